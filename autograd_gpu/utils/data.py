"""Datasets, samplers and the loader that makes batches of them, in this thread or in worker threads."""
from __future__ import annotations

import bisect
import contextlib
import copy
import itertools
import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.dtypes import float64
from autograd_gpu.generator import Generator
from autograd_gpu.ops.creation import as_tensor, tensor
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.ops.random import multinomial, randint, randperm

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
           "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
           "default_collate", "default_convert", "get_worker_info", "random_split"]


# ----------------------------------------------------------------------------------------------------------------- datasets

class Dataset:
    """What gives samples by `dataset[key]`, usually with a `len`. Two that are added are one after the other.

    Reference: torch.utils.data.Dataset.
    """

    def __class_getitem__(cls, kind):
        return cls

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__: subclasses of Dataset should implement it")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """What gives samples by `iter(dataset)`. In worker threads each iterates over it: get_worker_info says which part is whose.

    Reference: torch.utils.data.IterableDataset.
    """

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __iter__: subclasses of IterableDataset should implement it")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Samples are the rows of tensors, in tuples. Raises AssertionError where their first sizes differ.

    Reference: torch.utils.data.TensorDataset.
    """

    def __init__(self, *tensors: Tensor):
        sizes = [t.size(0) for t in tensors]
        if any([n != sizes[0] for n in sizes]):
            raise AssertionError(f"Size mismatch between tensors: their first sizes are {sizes}")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple([t[index] for t in self.tensors])

    def __len__(self):
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Samples are tuples of those of several datasets or, given by name, dictionaries. Raises ValueError where their lengths differ.

    Reference: torch.utils.data.StackDataset.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if bool(args) == bool(kwargs):
            raise ValueError("Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output: give datasets by "
                             "position or by name")
        self.datasets: Any = args or kwargs
        lengths = [len(d) for d in args or kwargs.values()]
        if len(set(lengths)) > 1:
            raise ValueError(f"Size mismatch between datasets: their lengths are {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple([d[index] for d in self.datasets])

    def __len__(self):
        return self._length


class ConcatDataset(Dataset):
    """Datasets one after the other. Raises AssertionError for none, or for an IterableDataset.

    Reference: torch.utils.data.ConcatDataset.
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any([isinstance(d, IterableDataset) for d in self.datasets]):
            raise AssertionError("ConcatDataset does not support IterableDataset: use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate([len(d) for d in self.datasets]))

    def __getitem__(self, index):
        if index < 0:
            if -index > len(self):
                raise ValueError(f"absolute value of index should not exceed dataset length: got {index}, the length is {len(self)}")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - self.cumulative_sizes[which - 1] if which else index]

    def __len__(self):
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """IterableDatasets one after the other. Reference: torch.utils.data.ChainDataset."""

    def __init__(self, datasets: Iterable[IterableDataset]):
        self.datasets = datasets

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self):
        return sum([len(d) for d in self.datasets])


class Subset(Dataset):
    """The samples of a dataset at some indices. Reference: torch.utils.data.Subset."""

    def __init__(self, dataset: Any, indices: Sequence[Any]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __getitems__(self, indices):
        return _samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Subsets without a sample in common, of these lengths, or of these fractions of all.

    Raises ValueError where they do not add up to all. Reference: torch.utils.data.random_split.
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, part in enumerate(lengths):
            if not 0 <= part <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1: {part}")
        counts = [math.floor(total * part) for part in lengths]
        for i in range(total - sum(counts)):                     # what rounding left, to one after the other
            counts[i % len(counts)] += 1
        for i, count in enumerate(counts):
            if not count:
                warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
    else:
        counts = list(lengths)
    if sum(counts) != total:
        raise ValueError(f"Sum of input lengths does not equal the length of the input dataset: {sum(counts)} and {total}")
    order, ends = randperm(total, generator=generator).tolist(), itertools.accumulate(counts)
    return [Subset(dataset, order[end - count:end]) for end, count in zip(ends, counts, strict=True)]


# ----------------------------------------------------------------------------------------------------------------- samplers

class Sampler:
    """What gives, by `iter(sampler)`, the keys of samples in the order in which they are to be loaded.

    Reference: torch.utils.data.Sampler.
    """

    def __class_getitem__(cls, kind):
        return cls

    def __init__(self, data_source: Any = None):
        pass

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler):
    """0, 1, 2 ... Reference: torch.utils.data.SequentialSampler."""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """The indices of a dataset in random order, or with `replacement`; `num_samples` of them, by default as many as there are.

    Raises: TypeError for a replacement that is no bool; ValueError for a number that is not positive.
    Reference: torch.utils.data.RandomSampler.
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None):
        self.data_source, self.replacement, self._num_samples, self.generator = data_source, replacement, num_samples, generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _check_count(self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices there will be."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, count = len(self.data_source), self.num_samples
        if self.replacement:
            yield from randint(0, n, (count,), generator=self.generator).tolist()
            return
        for begun in range(0, count, n):
            yield from randperm(n, generator=self.generator).tolist()[:count - begun]

    def __len__(self):
        return self.num_samples


def _check_count(n):
    if not isinstance(n, int) or isinstance(n, bool) or n <= 0:
        raise ValueError(f"num_samples should be a positive integer value, but got num_samples={n}")


class WeightedRandomSampler(Sampler):
    """num_samples indices, each as often as its weight among all says.

    Raises ValueError for a number that is not positive, a replacement that is no bool, or weights that are no row.
    Reference: torch.utils.data.WeightedRandomSampler.
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None):
        _check_count(num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some indices in random order. Reference: torch.utils.data.SubsetRandomSampler."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class BatchSampler(Sampler):
    """Lists of batch_size keys of another sampler; with drop_last no shorter one at the end.

    Raises ValueError for a size that is no positive integer, or a drop_last that is no bool. Reference: torch.utils.data.BatchSampler.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        keys = iter(self.sampler)
        while batch := [*itertools.islice(keys, self.batch_size)]:
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        return _batches(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def _batches(count, size, drop_last):
    return count // size if drop_last else -(-count // size)


class _Endless(Sampler):
    """The keys of an IterableDataset, which has none."""

    def __iter__(self):
        return itertools.repeat(None)


# ------------------------------------------------------------------------------------------------------------------ batches

def _kept_kind(mapping, values):
    """A dictionary's new values in a mapping of the same kind, where one can be made."""
    try:
        if not isinstance(mapping, MutableMapping):
            return type(mapping)(values)
        made = copy.copy(mapping)
        made.update(values)
        return made
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """NumPy's arrays as Tensors, also inside of tuples, lists and dictionaries; the rest as it is.

    Reference: torch.utils.data.default_convert.
    """
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SUO":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _kept_kind(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)._make([default_convert(x) for x in data])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [default_convert(x) for x in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """A list of samples as one: Tensors, arrays and numbers are stacked, also inside of tuples, lists and dictionaries; texts are listed.

    Raises: TypeError for samples of another type; RuntimeError where they have different lengths.
    Reference: torch.utils.data.default_collate.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return OPS.stack(list(batch), 0)
    if isinstance(first, np.ndarray) and first.dtype.kind not in "SUO":
        return OPS.stack([as_tensor(a) for a in batch], 0)
    if isinstance(first, np.generic) and first.dtype.kind not in "SUO":
        return as_tensor(np.array(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _kept_kind(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        if any([len(sample) != len(first) for sample in batch]):
            raise RuntimeError("each element in list of batch should be of equal size")
        parts = [default_collate(part) for part in zip(*batch, strict=True)]
        return type(first)._make(parts) if hasattr(first, "_fields") else parts
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}: pass a "
                    f"collate_fn")


def _samples(dataset, keys):
    """The samples at several keys; at once, where the dataset can."""
    return dataset.__getitems__(keys) if hasattr(dataset, "__getitems__") else [dataset[key] for key in keys]


def _collated(dataset, keys):
    """default_collate of the samples at several keys: of tensors the rows at once, which on a GPU saves a kernel for each."""
    while type(dataset) is Subset:
        dataset, keys = dataset.dataset, [dataset.indices[k] for k in keys]
    if type(dataset) is TensorDataset:
        rows = tensor(keys)
        return [t[rows] for t in dataset.tensors]
    return default_collate(_samples(dataset, keys))


# ------------------------------------------------------------------------------------------------------------------- loader

class WorkerInfo(NamedTuple):
    """Which of how many workers runs here, and for which dataset. Reference: torch.utils.data.get_worker_info."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Local(threading.local):
    info: WorkerInfo | None = None


_local = _Local()


def get_worker_info() -> WorkerInfo | None:
    """In a worker thread of a DataLoader, which it is; elsewhere None. Reference: torch.utils.data.get_worker_info."""
    return _local.info


class DataLoader:
    """Batches of a dataset's samples, in the order of a sampler, by `for batch in loader`.

    `num_workers` threads load ahead, prefetch_factor batches each; what they load comes in the order it would have without them. They
    share the dataset, unlike PyTorch's, which are processes with copies of it. `pin_memory`, `multiprocessing_context`,
    `persistent_workers`, `pin_memory_device` and `in_order` are accepted and change nothing.
    Raises ValueError for options that exclude each other. Reference: torch.utils.data.DataLoader.
    """

    _made = False

    def __class_getitem__(cls, kind):
        return cls

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Iterable[Any] | None = None,
                 batch_sampler: Iterable[Any] | None = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None, multiprocessing_context: Any = None,
                 generator: Generator | None = None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True):
        if num_workers < 0:
            raise ValueError(f"num_workers option should be non-negative, got {num_workers}; use num_workers=0 to load in this thread")
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing: let num_workers > 0 to enable it")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError(f"prefetch_factor option should be non-negative, got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler options: the "
                             "dataset itself decides the order")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = _Endless() if iterable else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        batched = batch_sampler is not None or batch_size is not None
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.sampler, self.batch_sampler, self.drop_last = (
            dataset, batch_size, sampler, batch_sampler, drop_last)
        self.num_workers, self.timeout, self.worker_init_fn, self.generator = num_workers, timeout, worker_init_fn, generator
        self.collate_fn = collate_fn if collate_fn is not None else default_collate if batched else default_convert
        self.pin_memory, self.multiprocessing_context, self.persistent_workers = pin_memory, multiprocessing_context, persistent_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self._made = True

    def __setattr__(self, name, value):
        if self._made and name in ("dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "persistent_workers"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized: make another one")
        super().__setattr__(name, value)

    def __len__(self):
        if not isinstance(self.sampler, _Endless):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)       # type: ignore[arg-type]
        count = len(self.dataset)
        return count if self.batch_size is None else _batches(count, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        keys = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        return self._by_workers(keys) if self.num_workers else self._here(keys)

    def _here(self, keys):
        fetch = self._fetcher()
        for key in keys:
            batch = fetch(key)
            if batch is _END:
                return
            yield batch

    def _fetcher(self):
        """A function from what a sampler gives to a batch, or _END."""
        dataset, collate, several = self.dataset, self.collate_fn, self.batch_sampler is not None
        if not isinstance(self.sampler, _Endless):
            if several and collate is default_collate:
                return lambda keys: _collated(dataset, keys)
            return lambda key: collate(_samples(dataset, key) if several else dataset[key])
        samples = iter(dataset)

        def fetch(key):
            if not several:
                sample = next(samples, _END)
                return sample if sample is _END else collate(sample)
            batch = [*itertools.islice(samples, len(key))]
            return collate(batch) if batch and not (self.drop_last and len(batch) < len(key)) else _END
        return fetch

    def _by_workers(self, keys):
        """Workers take turns; one whose part of an IterableDataset has ended is left out."""
        seed = randint(0, 2 ** 62, (), generator=self.generator).item()
        with contextlib.ExitStack() as stack:
            turn: deque[_Worker] = deque()
            for i in range(self.num_workers):
                turn.append(_Worker(self, WorkerInfo(i, self.num_workers, seed + i, self.dataset)))
                stack.callback(turn[-1].stop)
            waiting: deque[Any] = deque()

            def load_one_more():
                if turn and (key := next(keys, _END)) is not _END:
                    waiting.append((turn[0], turn[0].load(key)))
                    turn.rotate(-1)

            for _ in range(max(self.prefetch_factor, 1) * self.num_workers):
                load_one_more()
            while waiting:
                worker, future = waiting.popleft()
                try:
                    batch = future.result(self.timeout or None)
                except TimeoutError:
                    if future.done():        # the dataset's own
                        raise
                    raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds") from None
                if batch is _END and worker in turn:
                    turn.remove(worker)
                load_one_more()
                if batch is not _END:
                    yield batch


class _End:
    """Stands for what an iterator has no more of."""


_END = _End()


class _Worker:
    """One thread of a loader."""

    def __init__(self, loader, info):
        self._loader, self._info, self._fetch = loader, info, None
        self._pool = ThreadPoolExecutor(1, f"DataLoader worker {info.id}")

    def load(self, key):
        """A future of the batch."""
        return self._pool.submit(self._load, key)

    def _load(self, key):
        if self._fetch is None:
            _local.info = self._info
            if self._loader.worker_init_fn is not None:
                self._loader.worker_init_fn(self._info.id)
            self._fetch = self._loader._fetcher()
        return self._fetch(key)

    def stop(self):
        """Begin no more batches."""
        self._pool.shutdown(wait=False, cancel_futures=True)
