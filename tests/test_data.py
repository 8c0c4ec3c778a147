"""Datasets, samplers, collation and the loader: what PyTorch gives, in the same order; random orders are permutations of it."""
import inspect
import threading
import time
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.utils import data
from tests.parity import result, said

PROGRAMS = {}
Pair = namedtuple("Pair", "a b")


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def shown(x):
    """Nested samples as Python values with the types around them."""
    if hasattr(x, "detach"):
        return x.tolist(), str(x.dtype), tuple(x.shape)
    if isinstance(x, dict):
        return {k: shown(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [shown(y) for y in x]
    return x


def numbers(torch, n=10):
    return torch.utils.data.TensorDataset(torch.arange(n), torch.arange(float(n)) * 2)


def stream(torch, n):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            return iter(range(n) if info is None else range(info.id, n, info.num_workers))

        def __len__(self):
            return n
    return Stream()


LOADERS = {
    "plain": {}, "batches": {"batch_size": 3}, "last_dropped": {"batch_size": 3, "drop_last": True}, "larger": {"batch_size": 64},
    "single": {"batch_size": None}, "sampler": {"sampler": [3, 1, 4], "batch_size": 2}, "batch_sampler": {"batch_sampler": [[0, 5], [7]]},
    "collate": {"batch_size": 4, "collate_fn": len}, "no_shuffle": {"shuffle": False, "batch_size": 5},
}


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("name", LOADERS)
def test_batches_in_order(name, workers, oracle):
    def run(torch, workers=0):
        loader = torch.utils.data.DataLoader(numbers(torch), num_workers=workers, **LOADERS[name])
        return [shown(batch) for batch in loader], len(loader), [shown(batch) for batch in loader] != []
    assert run(autograd_gpu, workers) == run(oracle)


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}], ids=str)
def test_streams(options, oracle):
    def run(torch):
        loader = torch.utils.data.DataLoader(stream(torch, 10), **options)
        return [shown(batch) for batch in loader], len(loader)
    assert run(autograd_gpu) == run(oracle)


@pytest.mark.parametrize("n, workers, size", [(10, 2, 2), (11, 3, 2), (1, 4, 2), (0, 2, 3), (23, 2, 5)])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_streams_in_several_workers(n, workers, size, oracle):
    """Each worker's own batches, in turn; PyTorch's come from processes in the same order."""
    def run(torch):
        loader = torch.utils.data.DataLoader(stream(torch, n), batch_size=size, num_workers=workers)
        return [batch.tolist() for batch in loader]
    found = run(autograd_gpu)
    assert sorted(sum(found, [])) == list(range(n))
    assert all(len({k % workers for k in batch}) == 1 for batch in found)
    assert found == run(oracle)


SAMPLES = {
    "tensors": lambda torch: [torch.ones(2), torch.zeros(2)], "arrays": lambda torch: [np.ones((2, 1), np.float32)] * 2,
    "scalars": lambda torch: [np.float32(1), np.float32(2)], "floats": lambda torch: [1.0, 2.5], "ints": lambda torch: [1, 2],
    "bools": lambda torch: [True, False], "texts": lambda torch: ["a", "b"], "bytes": lambda torch: [b"a", b"b"],
    "tuples": lambda torch: [(1, "a"), (2, "b")], "lists": lambda torch: [[1, 2.0], [3, 4.0]],
    "dicts": lambda torch: [{"x": 1, "y": [1.0]}, {"x": 2, "y": [2.0]}], "named": lambda torch: [Pair(1, 2.0), Pair(3, 4.0)],
    "uneven": lambda torch: [[1, 2], [3]], "uneven_tensors": lambda torch: [torch.ones(2), torch.ones(3)],
    "objects": lambda torch: [object(), object()], "none": lambda torch: [None], "text_arrays": lambda torch: [np.array(["a"])] * 2,
    "ordered": lambda torch: [OrderedDict(x=1.0)] * 2,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_collate(name, oracle):
    def run(torch):
        return shown(torch.utils.data.default_collate(SAMPLES[name](torch)))
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "objects"])
def test_convert(name, oracle):
    def run(torch):
        return shown(torch.utils.data.default_convert(SAMPLES[name](torch)))
    assert result(run, autograd_gpu) == result(run, oracle)


@program
def kinds_of_dictionaries_and_sequences(torch):
    collate, convert = torch.utils.data.default_collate, torch.utils.data.default_convert
    given = [OrderedDict(a=1.5), defaultdict(list, a=1.5), UserDict(a=1.5), MappingProxyType({"a": 1.5}), range(2)]
    return [(type(found).__name__, [*found]) for x in given for found in (collate([x, x]), convert(x))]


@program
def rows_of_subsets(torch):
    data, found = torch.utils.data, []
    part = data.Subset(numbers(torch, 20), [3, 1, 4, 15, 9, 2, 6])
    for dataset in (part, data.Subset(part, torch.tensor([5, 0, 2])), data.Subset(range(9), [8, 1])):
        found += [shown(batch) for batch in data.DataLoader(dataset, batch_size=2)]
    found += [shown(batch) for batch in data.DataLoader(part, batch_sampler=[torch.tensor([0, 6]), (2,), [-1, 3]])]
    return found, said(lambda: list(data.DataLoader(numbers(torch), batch_sampler=[[3, 10]])))


@program
def datasets_one_after_the_other(torch):
    both = numbers(torch, 3) + numbers(torch, 2) + numbers(torch, 4)
    return len(both), [shown(both[i]) for i in (0, 2, 3, 4, 5, 8, -1, -9)], both.cumulative_sizes


@program
def too_negative_an_index(torch):
    return torch.utils.data.ConcatDataset([numbers(torch, 3)])[-4]


@program
def streams_one_after_the_other(torch):
    both = stream(torch, 3) + stream(torch, 2)
    return list(both), len(both)


@program
def subsets(torch):
    part = torch.utils.data.Subset(numbers(torch), [5, 2, 7])
    nested = torch.utils.data.Subset(part, [2, 0])
    loader = torch.utils.data.DataLoader(nested, batch_size=2)
    return len(nested), shown(nested[0]), shown(part[[0, 1]]), [shown(b) for b in loader]


@program
def stacked(torch):
    by_place = torch.utils.data.StackDataset(numbers(torch, 3), [4, 5, 6])
    by_name = torch.utils.data.StackDataset(x=[1, 2], y=["a", "b"])
    return shown(by_place[1]), shown(by_name[1]), len(by_place), len(by_name)


@program
def split_by_lengths_and_by_fractions(torch):
    found = []
    for lengths in ([7, 3], [0.5, 0.5], [0.3, 0.3, 0.4], [0.34, 0.33, 0.33], [10, 0]):
        parts = torch.utils.data.random_split(range(10), lengths, generator=torch.Generator().manual_seed(0))
        found.append(([len(p) for p in parts], sorted(p[i] for p in parts for i in range(len(p)))))
    return found


@program
def samplers(torch):
    d = torch.utils.data
    batches = d.BatchSampler(d.SequentialSampler(range(7)), 3, True)
    random = d.RandomSampler(range(5), num_samples=12)
    again = d.RandomSampler(range(5), replacement=True, num_samples=70)
    some = d.SubsetRandomSampler([4, 7, 9])
    drawn = list(random)
    return (list(batches), len(batches), list(d.BatchSampler(range(4), 3, False)), len(drawn), sorted(drawn[:5]), sorted(drawn[5:10]),
            len(random), len(list(again)), set(again) <= set(range(5)), sorted(some), len(some))


@program
def weighted(torch):
    sampler = torch.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0, 3.0], 400, generator=torch.Generator().manual_seed(2))
    drawn = list(sampler)
    few = list(torch.utils.data.WeightedRandomSampler([0.0, 1.0, 3.0], 2, replacement=False))
    return len(sampler), len(drawn), set(drawn) == {1, 3}, 250 < drawn.count(3) < 350, sorted(few)


@program
def no_shuffle_of_nothing(torch):
    loader = torch.utils.data.DataLoader([], shuffle=True)
    return len(loader), list(loader)


@program
def shuffled(torch):
    loader = torch.utils.data.DataLoader(numbers(torch, 100), batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(1))
    first, second = [[x for a, b in loader for x in a.tolist()] for _ in range(2)]
    return first != second, sorted(first) == sorted(second) == list(range(100)), first != list(range(100))


@program
def a_dataset_that_gives_several_at_once(torch):
    class Several(torch.utils.data.Dataset):
        def __getitems__(self, keys):
            return [key * 10 for key in keys]

        def __len__(self):
            return 5
    return [b.tolist() for b in torch.utils.data.DataLoader(Several(), batch_size=2)]


WRONG = {
    "workers": {"num_workers": -1}, "timeout": {"timeout": -1}, "prefetch": {"prefetch_factor": 2},
    "persistent": {"persistent_workers": True},
    "both": {"sampler": [1], "shuffle": True}, "batch_sampler": {"batch_sampler": [[1]], "batch_size": 2},
    "batch_sampler_shuffle": {"batch_sampler": [[1]], "shuffle": True}, "no_batches": {"batch_size": None, "drop_last": True},
    "size": {"batch_size": 0}, "size_type": {"batch_size": 2.5}, "prefetch_negative": {"num_workers": 1, "prefetch_factor": -1},
}
WRONG_STREAM = {"shuffle": {"shuffle": True}, "sampler": {"sampler": [1]}, "batch_sampler": {"batch_sampler": [[1]]}}
WRONG_CALLS = {
    "sizes": lambda torch: torch.utils.data.TensorDataset(torch.ones(2), torch.ones(3)),
    "nothing": lambda torch: torch.utils.data.ConcatDataset([]),
    "stream": lambda torch: torch.utils.data.ConcatDataset([stream(torch, 3)]),
    "stack_none": lambda torch: torch.utils.data.StackDataset(), "stack_both": lambda torch: torch.utils.data.StackDataset([1], x=[1]),
    "stack_sizes": lambda torch: torch.utils.data.StackDataset([1], [1, 2]), "no_getitem": lambda torch: torch.utils.data.Dataset()[0],
    "split": lambda torch: torch.utils.data.random_split([1, 2], [1, 2]), "fraction": lambda torch: torch.utils.data.random_split(
        [1, 2], [1.5, -0.5]), "replacement": lambda torch: torch.utils.data.RandomSampler([1], replacement=1),
    "num_samples": lambda torch: torch.utils.data.RandomSampler([1], num_samples=0),
    "weights": lambda torch: torch.utils.data.WeightedRandomSampler([[1.0]], 1),
    "weighted_count": lambda torch: torch.utils.data.WeightedRandomSampler([1.0], 0),
    "weighted_replacement": lambda torch: torch.utils.data.WeightedRandomSampler([1.0], 1, replacement=1),
    "drop_last": lambda torch: torch.utils.data.BatchSampler([1], 2, 1),
}


@program
def what_decides_the_order_is_fixed(torch):
    loader = torch.utils.data.DataLoader(numbers(torch, 4), 2)
    loader.collate_fn = len
    fixed = ("dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "persistent_workers")
    return [said(lambda name=name: setattr(loader, name, 3), "should not be set after DataLoader") for name in fixed], list(loader)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


@pytest.mark.parametrize("make, options", [(numbers, o) for o in WRONG.values()] + [(lambda torch: stream(torch, 3), o)
                                                                                  for o in WRONG_STREAM.values()], ids=str)
def test_options_that_exclude_each_other(make, options, oracle):
    def run(torch):
        torch.utils.data.DataLoader(make(torch), **options)
        return "no error"
    assert result(run, autograd_gpu) == result(run, oracle) == "ValueError"


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_errors(name, oracle):
    def run(torch):
        WRONG_CALLS[name](torch)
        return "no error"
    assert result(run, autograd_gpu) == result(run, oracle) != "no error"


def test_names_and_parameters_are_those_of_pytorch(oracle):
    theirs = oracle.utils.data
    assert set(data.__all__) <= set(theirs.__all__)
    for name in data.__all__:
        if name in ("Sampler", "Dataset", "IterableDataset", "TensorDataset", "StackDataset"):
            continue
        ours = [list(inspect.signature(getattr(module, name)).parameters) for module in (data, theirs)]
        assert [p for p in ours[0] if p != "data_source"] == [p for p in ours[1] if p not in ("data_source", "collate_fn_map")], name


# ------------------------------------------------------------------------------------------------------------------ threads

def test_slow_workers_keep_the_order_and_load_ahead():
    class Slow(data.Dataset):
        def __getitem__(self, i):
            time.sleep(0.03 if i % 4 == 0 else 0.001)
            threads.add(threading.current_thread().name)
            return i

        def __len__(self):
            return 40
    threads = set()
    assert [b.item() for b in data.DataLoader(Slow(), num_workers=4)] == list(range(40))
    assert threads == {f"DataLoader worker {i}_0" for i in range(4)}


def test_how_far_workers_load_ahead():
    class Counting(data.Dataset):
        def __getitem__(self, i):
            started.append(i)
            return i

        def __len__(self):
            return 100
    started = []
    batches = iter(data.DataLoader(Counting(), num_workers=2, prefetch_factor=3))
    next(batches)
    time.sleep(0.05)
    assert len(started) == 7                 # six ahead of the first, and one for it
    batches.close()
    time.sleep(0.05)
    assert len(started) <= 9


def test_errors_in_workers_reach_the_loop():
    class Failing(data.Dataset):
        def __getitem__(self, i):
            return 1 / (3 - i)

        def __len__(self):
            return 9
    found = []
    with pytest.raises(ZeroDivisionError):
        for batch in data.DataLoader(Failing(), num_workers=2):
            found.append(batch.item())
    assert len(found) == 3


def test_a_worker_knows_which_it_is_and_is_begun_once():
    class Asking(data.Dataset):
        def __getitem__(self, i):
            info = data.get_worker_info()
            return info.id, info.num_workers, info.dataset is self, info.seed

        def __len__(self):
            return 6
    begun = []
    loader = data.DataLoader(Asking(), batch_size=None, num_workers=2, worker_init_fn=begun.append)
    found = list(loader)
    assert [x[:3] for x in found] == [[i % 2, 2, True] for i in range(6)] and sorted(begun) == [0, 1]
    assert found[1][3] == found[0][3] + 1 and data.get_worker_info() is None


def test_a_timeout():
    class Stuck(data.Dataset):
        def __getitem__(self, i):
            waiting.wait(5)
            return i

        def __len__(self):
            return 2
    waiting = threading.Event()
    try:
        with pytest.raises(RuntimeError, match="timed out after 0.05 seconds"):
            next(iter(data.DataLoader(Stuck(), num_workers=1, timeout=0.05)))
    finally:
        waiting.set()
