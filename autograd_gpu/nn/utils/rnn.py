"""Sequences of several lengths in one batch: padded, or packed, where the rows of each time step follow those of the one before."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.creation import tensor
from autograd_gpu.ops.namespace import OPS as F

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
           "unpack_sequence", "unpad_sequence"]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences without padding: the rows of the first time step, then those of the second, and so on.

    data: (all rows, *). batch_sizes: on the CPU, how many sequences reach each time step. sorted_indices: which of the sequences as they
    were given is the longest, the next, and so on; unsorted_indices: the way back. Reference: torch.nn.utils.rnn.PackedSequence.
    """

    __slots__ = ()

    def __new__(cls, data: Any, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise AssertionError("PackedSequence: give data and batch_sizes, as two arguments or as one tuple")
            data, batch_sizes = data
        if batch_sizes.device.type != "cpu":
            raise ValueError(f"batch_sizes should always be on CPU. Instead got a tensor on {batch_sizes.device}: move it with .cpu()")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    @property
    def is_cuda(self) -> bool:
        """Whether data is on a CUDA device."""
        return self.data.is_cuda

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """data converted as Tensor.to does, the indices on its device; self where nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [t if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self) -> PackedSequence:
        """All of it on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = "cuda") -> PackedSequence:
        """data and indices on a CUDA device."""
        return self.to(device)

    def double(self) -> PackedSequence:
        """data as float64."""
        return self.to(_dtype.float64)

    def float(self) -> PackedSequence:
        """data as float32."""
        return self.to(_dtype.float32)

    def half(self) -> PackedSequence:
        """data as float16."""
        return self.to(_dtype.float16)

    def long(self) -> PackedSequence:
        """data as int64."""
        return self.to(_dtype.int64)

    def int(self) -> PackedSequence:
        """data as int32."""
        return self.to(_dtype.int32)

    def short(self) -> PackedSequence:
        """data as int16."""
        return self.to(_dtype.int16)

    def char(self) -> PackedSequence:
        """data as int8."""
        return self.to(_dtype.int8)

    def byte(self) -> PackedSequence:
        """data as uint8."""
        return self.to(_dtype.uint8)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another; None of None. Reference: torch.nn.utils.rnn.invert_permutation."""
    return None if permutation is None else permutation.argsort()


def _order(indices, n):
    """Indices on the host; 0 to n - 1 for None."""
    return np.arange(n) if indices is None else indices.cpu().numpy()


def _places(batch_sizes, order, length, batch_first):
    """Where the rows of packed sequences lie among those of a padded batch of so many sequences and time steps."""
    steps = np.repeat(np.arange(len(batch_sizes)), batch_sizes)
    own = order[np.concatenate([np.arange(n) for n in batch_sizes])]
    return own * length + steps if batch_first else steps * len(order) + own


def _on(array, like):
    return tensor(array, device=like.device)


def pack_padded_sequence(input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """A padded batch as a PackedSequence.

    Shape: input (length, batch, *), or (batch, length, *) with batch_first. `enforce_sorted=False`: the sequences are sorted here, and
    put back by pad_packed_sequence.
    Raises: RuntimeError for lengths that are not sorted, not positive, too long or too few. Reference:
    torch.nn.utils.rnn.pack_padded_sequence.
    """
    counts = np.asarray(lengths.cpu().numpy() if isinstance(lengths, Tensor) else lengths).astype(np.int64)
    if counts.ndim != 1:
        raise RuntimeError(f"pack_padded_sequence: 'lengths' argument should be a 1D CPU int64 tensor, but got {counts.ndim} dimensions")
    n, most = input.shape[:2] if batch_first else (input.size(1), input.size(0))
    if not input.numel():
        raise RuntimeError(f"pack_padded_sequence: Cannot pack empty tensors, got an input of {tuple(input.shape)}")
    if len(counts) != n:
        raise RuntimeError(f"pack_padded_sequence: Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} "
                           f"(batch_size={n})")
    order = np.arange(n) if enforce_sorted else np.argsort(-counts, kind="stable")
    ordered = counts[order]
    if counts.min() <= 0:
        raise RuntimeError(f"pack_padded_sequence: Length of all samples has to be greater than 0, but found {counts.min()} in 'lengths'")
    if (ordered[1:] > ordered[:-1]).any():
        raise RuntimeError(f"pack_padded_sequence: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True, but "
                           f"they are {counts.tolist()}: pass `enforce_sorted=False`")
    if ordered[0] > most:
        raise RuntimeError(f"pack_padded_sequence: the greatest of lengths is {ordered[0]}, but the input has {most} time steps")
    batch_sizes = (ordered > np.arange(ordered[0])[:, None]).sum(1)
    places = _on(_places(batch_sizes, order, most, batch_first), input)
    data = F.packed_rows(input.reshape(-1, *input.shape[2:]), places)
    return PackedSequence(data, tensor(batch_sizes, device="cpu"), None if enforce_sorted else _on(order, input))


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """(a padded batch in the order in which the sequences were packed, their lengths), the inverse of pack_padded_sequence.

    Raises: ValueError for a total_length that is too short. Reference: torch.nn.utils.rnn.pad_packed_sequence.
    """
    batch_sizes = sequence.batch_sizes.numpy()
    length = len(batch_sizes)
    if total_length is not None:
        if total_length < length:
            raise ValueError(f"Expected total_length to be at least the length of the longest sequence in input, but got "
                             f"total_length={total_length} and max sequence length being {length}")
        length = total_length
    n = int(batch_sizes[0])
    order = _order(sequence.sorted_indices if sequence.unsorted_indices is None else invert_permutation(sequence.unsorted_indices), n)
    rest, places = sequence.data.shape[1:], _on(_places(batch_sizes, order, length, batch_first), sequence.data)
    padded = F.padded_rows(sequence.data, places, (n * length, *rest), padding_value)
    lengths = np.empty(n, np.int64)
    lengths[order] = (batch_sizes[:, None] > np.arange(n)).sum(0)
    return padded.view(*((n, length) if batch_first else (length, n)), *rest), tensor(lengths, device="cpu")


def pad_sequence(sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences (length, *) in one tensor, as long as the longest: (length, batch, *), or (batch, length, *) with batch_first.

    `padding_side`: "right" or "left". Raises: RuntimeError for no sequences, or sizes that differ in other dimensions.
    Reference: torch.nn.utils.rnn.pad_sequence.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    found = list(sequences)
    if not found:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"pad_sequence: Expected padding_side to be one of left or right, but got {padding_side}")
    rows = F.cat(found).to(found[0].dtype)
    counts, n = [len(t) for t in found], len(found)
    length, rest = max(counts), rows.shape[1:]
    steps = np.concatenate([np.arange(k) + (length - k if padding_side == "left" else 0) for k in counts])
    own = np.repeat(np.arange(n), counts)
    places = _on(own * length + steps if batch_first else steps * n + own, rows)
    return F.padded_rows(rows, places, (n * length, *rest), padding_value).view(*((n, length) if batch_first else (length, n)), *rest)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, each as long as it is: views. Reference: torch.nn.utils.rnn.unpad_sequence."""
    counts = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    return [t[:n] for t, n in zip(padded_sequences.unbind(0 if batch_first else 1), counts, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (length, *) as a PackedSequence.

    Raises: RuntimeError for none, or unless they are sorted by length while enforce_sorted. Reference: torch.nn.utils.rnn.pack_sequence.
    """
    return pack_padded_sequence(pad_sequence(sequences), [len(t) for t in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence, in the order in which they were packed. Reference: torch.nn.utils.rnn.unpack_sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
