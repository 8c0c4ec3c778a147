"""Parts of tensors and their arrangement: select, slice, split, diagonals, triangles, reversal, repetition."""
from __future__ import annotations

import operator

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.op import view as view_op
from autograd_gpu.ops.operands import check_int
from autograd_gpu.ops.shape import ALL, numpy, sizes_of, wrap_dim, wrap_dims
from autograd_gpu.ops.shape import _slice as _range

# --------------------------------------------------------------------------------------------------------------- one dimension

@view_op()
def select(self, dim: int, index: int):
    """The part at one index of a dimension. Raises IndexError where there is no such index. Reference: torch.select."""
    try:
        if dim == 0:
            return self[index, ...]
        return self[(ALL,) * wrap_dim(dim, self.ndim, "select") + (index, ...)]
    except IndexError:
        if not hasattr(index, "__index__"):
            raise TypeError(f"select(): argument 'index' must be int, not {type(index).__name__}: {index!r:.60}") from None
        if not self.ndim:
            raise IndexError("select: invalid index of a 0-dim tensor; use tensor.item() to convert it to a number") from None
        n = self.shape[wrap_dim(dim, self.ndim, "select")]
        raise IndexError(f"select: index {index} is out of bounds for dimension {dim} with size {n}") from None

select.vjp(self=lambda grad, self_shape, dim, index: F.select_backward(grad, self_shape, dim, index))


@op(method=False, function=False)
def select_backward(grad_output, input_sizes: Size, dim: int, index: int):
    """Zeros but for the part that select takes."""
    made = np.zeros(input_sizes, grad_output.dtype)
    made[(ALL,) * (dim % len(input_sizes)) + (index,)] = grad_output
    return made

select_backward.vjp(grad_output=lambda grad, dim, index: F.select(grad, dim, index))


@view_op(method=False, function=False)
def slice(self, dim: int = 0, start: int = None, end: int = None, step: int = 1):
    """Every step-th part of a dimension from start to end, end not included."""
    if step is not None and step < 1:
        raise ValueError(f"slice: step must be greater than zero, got {step}; flip() reverses" if step else "slice step cannot be zero")
    if dim == 0 and self.ndim:
        return self[start:end:step]
    if not self.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    return self[(ALL,) * wrap_dim(dim, self.ndim, "slice") + (_range(start, end, step),)]

slice.vjp(self=lambda grad, self_shape, dim, start, end, step: F.slice_backward(grad, self_shape, dim, start, end, step))


@op(method=False, function=False)
def slice_backward(grad_output, input_sizes: Size, dim: int, start: int, end: int, step: int):
    """Zeros but for the part that slice takes."""
    made = np.zeros(input_sizes, grad_output.dtype)
    if dim == 0:
        made[start:end:step] = grad_output
    else:
        made[(ALL,) * (dim % len(input_sizes)) + (_range(start, end, step),)] = grad_output
    return made

slice_backward.vjp(grad_output=lambda grad, dim, start, end, step: F.slice(grad, dim, start, end, step))


@composite
def narrow(input, dim, start, length):
    """`length` parts of a dimension from start on. Raises RuntimeError where it has fewer. Reference: torch.narrow."""
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    n = input.shape[wrap_dim(dim, input.ndim, "narrow")]
    if isinstance(start, Tensor):
        if start.ndim or start._array.dtype.kind not in "iu":
            raise RuntimeError(f"narrow: start must be an 0-dim integral Tensor, got {start.ndim}-d {start.dtype}")
        start = start.item()
    check_int("narrow", "start", start)
    check_int("narrow", "length", length)
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if not -n <= start <= n:
        raise IndexError(f"narrow: start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start = start + n if start < 0 else start
    if start + length > n:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return F.slice(input, dim, start, start + length, 1)


# ------------------------------------------------------------------------------------------------------------------- splitting

@view_op(many=True)
def unbind(self, dim: int = 0):
    """The parts of a dimension, as a tuple of views. Raises IndexError for a 0-d tensor. Reference: torch.unbind."""
    if not self.ndim:
        raise IndexError("unbind: Dimension specified as 0 but tensor has no dimensions")
    before = (ALL,) * wrap_dim(dim, self.ndim, "unbind")
    return [self[(*before, i, ...)] for i in range(self.shape[len(before)])]

unbind.vjp(self=lambda grads, dim: F.stack(grads, dim))


@view_op(many=True, node="SplitBackward0", method=False, function=False)
def split_equal(self, split_size: int, dim: int = 0):
    """Parts of one size, the last possibly smaller."""
    n, before = _to_split(self, dim)
    if split_size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={split_size}")
    if split_size == 0 and n:
        raise RuntimeError(f"split: split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
    return [self[(*before, _range(i, i + split_size))] for i in range(0, max(n, 1), split_size or 1)]

split_equal.vjp(self=lambda grads, dim: F.cat(grads, dim))


@view_op(many=True)
def split_with_sizes(self, split_sizes: Dims, dim: int = 0):
    """Parts of the given sizes. Raises RuntimeError unless they add up to the dimension's. Reference: torch.split_with_sizes."""
    n, before = _to_split(self, dim)
    if any(m < 0 for m in split_sizes):
        raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, but got "
                           f"split_sizes={list(split_sizes)}")
    made, at = [], 0
    for m in split_sizes:
        made.append(self[(*before, _range(at, at + m))])
        at += m
    if at != n:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), "
                           "but got "
                           f"split_sizes={list(split_sizes)}")
    return made

split_with_sizes.vjp(self=lambda grads, dim: F.cat(grads, dim))


def _to_split(array, dim):
    if not array.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, array.ndim, "split")
    return array.shape[d], (ALL,) * d


@composite
def split(tensor, split_size_or_sections=None, dim=0, *, split_size=None):
    """Views of the parts of a dimension: of one size (the last may be smaller), or of the sizes in a list. Reference: torch.split."""
    sizes = split_size if split_size_or_sections is None else split_size_or_sections
    check_int("split", "split_size_or_sections", *(sizes if isinstance(sizes, (tuple, list)) else (sizes,)))
    if hasattr(sizes, "__index__") and not isinstance(sizes, (tuple, list)):
        return F.split_equal(tensor, operator.index(sizes), dim)
    return F.split_with_sizes(tensor, tuple(sizes), dim)


@composite
def chunk(input, chunks, dim=0):
    """At most `chunks` views of parts of one size, the last possibly smaller. Reference: torch.chunk."""
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    check_int("chunk", "chunks", chunks)
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[wrap_dim(dim, input.ndim, "chunk")]
    size = -(-n // chunks)
    return F.split_equal(input, size, dim) if size else F.split_with_sizes(input, (0,) * chunks, dim)


@composite
def tensor_split(input, indices_or_sections=None, dim=0, *, sections=None, indices=None):
    """Views of a dimension's parts: `sections` of nearly one size, or cut at indices. Reference: torch.tensor_split."""
    cut = next((c for c in (indices_or_sections, sections, indices) if c is not None), None)
    if not input.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    n = input.shape[wrap_dim(dim, input.ndim, "tensor_split")]
    if isinstance(cut, Tensor):
        if cut.ndim > 1 or cut.dtype.kind != "i":
            raise RuntimeError(f"tensor_split: expected tensor_indices_or_sections to be a 0-d or 1-d int64 tensor, got {cut.ndim}-d, "
                               f"{cut.dtype}")
        cut = cut.tolist()
    if isinstance(cut, int):
        if cut < 1:
            raise RuntimeError(f"tensor_split: number of sections must be larger than 0, got {cut}")
        cut = [i * (n // cut) + min(i, n % cut) for i in range(1, cut)]
    edges = [0, *cut, n]
    return tuple([F.slice(input, dim, a, b, 1) for a, b in zip(edges, edges[1:], strict=False)])


def _split_along(name, of):
    def function(input, indices_or_sections=None, *, sections=None, indices=None):
        cut = next((c for c in (indices_or_sections, sections, indices) if c is not None), None)
        dim = of(input.ndim)
        if dim >= input.ndim:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {max(dim, 0) + 1} dimension, but got a tensor with "
                               f"{input.ndim} dimensions!")
        if isinstance(cut, int) and (cut < 1 or input.shape[dim] % cut):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                               f"{input.shape[dim]} is not divisible by the split_size {cut}!")
        return F.tensor_split(input, cut, dim)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"tensor_split along one dimension, into equal parts. Reference: torch.{name}."
    composite(function)


_split_along("hsplit", lambda ndim: 1 if ndim > 1 else 0)
_split_along("vsplit", lambda ndim: 0 if ndim > 1 else 1)
_split_along("dsplit", lambda ndim: 2)


# ------------------------------------------------------------------------------------------------------ diagonals and triangles

@view_op()
def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """A view of the diagonals over two dimensions, as the last one; `offset` above the main one. Reference: torch.diagonal."""
    a, b = wrap_dim(dim1, self.ndim, "diagonal"), wrap_dim(dim2, self.ndim, "diagonal")
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    part = self.diagonal(offset, a, b)
    if np is numpy:
        part.flags.writeable = self.flags.writeable      # NumPy's is read-only for no reason of memory
    return part

diagonal.vjp(self=lambda grad, self_shape, offset, dim1, dim2: F.diagonal_backward(grad, self_shape, offset, dim1, dim2))


@op(node="DiagonalBackward0_copy", method=False)
def diagonal_copy(self, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """diagonal, copied. Reference: torch.diagonal_copy."""
    return F.diagonal(self, offset, dim1, dim2).copy()

diagonal_copy.vjp(self=lambda grad, self_shape, offset, dim1, dim2: F.diagonal_backward(grad, self_shape, offset, dim1, dim2))


@op(method=False, function=False)
def diagonal_backward(grad_output, input_sizes: Size, offset: int, dim1: int, dim2: int):
    """Zeros but for the diagonals."""
    made = np.zeros(input_sizes, grad_output.dtype)
    F.diagonal(made, offset, dim1, dim2)[...] = grad_output
    return made

diagonal_backward.vjp(grad_output=lambda grad, offset, dim1, dim2: F.diagonal(grad, offset, dim1, dim2))


@op(out=False)
def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """The last dimension as the diagonals of matrices of zeros. Reference: torch.diag_embed."""
    n = self.ndim + 1
    a, b = wrap_dim(dim1, n, "diag_embed"), wrap_dim(dim2, n, "diag_embed")
    if a == b:
        raise RuntimeError(f"diag_embed: diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not self.ndim:
        raise IndexError("diag_embed: Dimension out of range, expected a tensor with at least one dimension")
    size = list(self.shape[:-1])
    for d in sorted((a, b)):
        size.insert(d, self.shape[-1] + abs(offset))
    return F.diagonal_backward(self, tuple(size), offset, a, b)

diag_embed.vjp(self=lambda grad, offset, dim1, dim2: F.diagonal(grad, offset, dim1, dim2))


@composite
def diagflat(input, offset=0):
    """All elements as the diagonal of a matrix of zeros. Reference: torch.diagflat."""
    return F.diag_embed(F.reshape(input, (-1,)), offset)


@composite(out=True)
def diag(input, diagonal=0):
    """A matrix with a 1-d tensor as its diagonal; a matrix' diagonal. Raises RuntimeError for other shapes. Reference: torch.diag."""
    check_int("diag", "diagonal", diagonal)
    if input.ndim == 1:
        return F.diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return F.diagonal_copy(input, diagonal)


@op(inplace=True)
def tril(self, diagonal: int = 0):
    """Matrices with zeros above a diagonal. Raises RuntimeError for fewer than two dimensions. Reference: torch.tril."""
    check_int("tril", "diagonal", diagonal)
    if self.ndim < 2:
        raise RuntimeError(f"tril: input tensor must have at least 2 dimensions, got {self.ndim}")
    return np.ascontiguousarray(np.tril(self, diagonal))

tril.vjp(self=lambda grad, diagonal: F.tril(grad, diagonal))


@op(inplace=True)
def triu(self, diagonal: int = 0):
    """Matrices with zeros below a diagonal. Raises RuntimeError for fewer than two dimensions. Reference: torch.triu."""
    check_int("triu", "diagonal", diagonal)
    if self.ndim < 2:
        raise RuntimeError(f"triu: input tensor must have at least 2 dimensions, got {self.ndim}")
    return np.ascontiguousarray(np.triu(self, diagonal))

triu.vjp(self=lambda grad, diagonal: F.triu(grad, diagonal))


# ------------------------------------------------------------------------------------------------------ reversal and repetition

@op(varargs="dims", out=False)
def flip(self, dims: Dims):
    """A copy with dimensions reversed, laid out as the original. Raises RuntimeError where one is named twice. Reference: torch.flip."""
    dims = wrap_dims(dims, self.ndim, "flip")
    if not self.ndim:
        return self.copy()
    back = _range(None, None, -1)
    out = np.empty_like(self, order=_device.order_of(self))
    out[...] = self[tuple([back if d in dims else ALL for d in range(self.ndim)])]
    return out

flip.vjp(self=lambda grad, dims: F.flip(grad, dims))


@composite
def fliplr(input):
    """The second dimension reversed. Reference: torch.fliplr."""
    if input.ndim < 2:
        raise RuntimeError(f"fliplr: Input must be >= 2-d, got {input.ndim}-d")
    return F.flip(input, (1,))


@composite
def flipud(input):
    """The first dimension reversed. Reference: torch.flipud."""
    if input.ndim < 1:
        raise RuntimeError("flipud: Input must be >= 1-d, got 0-d")
    return F.flip(input, (0,))


@op(method=False, function=False, node="RollBackward0")
def roll_dims(self, shifts: Dims, dims: Dims):
    """Elements shifted along dimensions, those pushed out at the end put in front."""
    self = np.asarray(self, order="C")
    return np.roll(self, tuple(shifts), tuple(dims)) if len(dims) else np.roll(self, shifts[0])

roll_dims.vjp(self=lambda grad, shifts, dims: F.roll_dims(grad, [-s for s in shifts], dims))


@composite
def roll(input, shifts, dims=()):
    """Elements shifted along dimensions, or in all as one, those pushed out at the end put in front. Reference: torch.roll."""
    shifts = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    dims = tuple(dims) if isinstance(dims, (tuple, list)) else () if dims is None else (dims,)
    check_int("roll", "shifts", *shifts)
    if not shifts:
        raise RuntimeError("roll: `shifts` required")
    if len(shifts) != len(dims) and (dims or len(shifts) != 1):
        raise RuntimeError(f"roll: shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(dims)}")
    if dims and not input.ndim:
        raise IndexError(f"roll: Dimension specified as {dims[0]} but tensor has no dimensions; leave dims out")
    return F.roll_dims(input, shifts, tuple([wrap_dim(d, input.ndim, "roll") for d in dims]))


@op(function=False, varargs="repeats")
def repeat(self, repeats: Size):
    """Copies of the tensor side by side, so many along each dimension. Reference: torch.Tensor.repeat."""
    check_int("repeat", "repeats", *repeats)
    if len(repeats) < self.ndim:
        raise RuntimeError(f"repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
                           f"{len(repeats)} and {self.ndim}")
    if any(r < 0 for r in repeats):
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension: repeats {list(repeats)}")
    return np.tile(self, tuple(repeats))

repeat.vjp(self=lambda grad, self_shape, repeats: F.repeat_backward(grad, self_shape, repeats))


@composite(method=False, function=False)
def repeat_backward(grad, shape, repeats):
    """The sum over the copies."""
    shape = (1,) * (len(repeats) - len(shape)) + tuple(shape)
    size = [m for r, n in zip(repeats, shape, strict=True) for m in (r, n)]
    return F.sum(F.reshape(grad, tuple(size)), tuple(range(0, len(size), 2))) if size else grad


@composite
def tile(input, *dims, **named):
    """Copies of the tensor side by side; a missing number in front is 1. Reference: torch.tile."""
    dims = sizes_of(dims, named, "tile")
    return F.repeat(input, (1,) * (input.ndim - len(dims)) + dims)


@composite
def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Each part of a dimension so many times in a row; without dim, of all elements in a row.

    repeats: a number, or a tensor of one per part. A tensor alone gives the index of the part that each place gets.
    Raises: RuntimeError for negative repeats, or another count of them. Reference: torch.repeat_interleave.
    """
    if repeats is None:
        return F.index_repeated(input)
    if dim is None:
        input, dim = F.reshape(input, (-1,)), 0
    d = wrap_dim(dim, input.ndim, "repeat_interleave")
    if isinstance(repeats, (tuple, list)):
        raise TypeError("repeat_interleave(): argument 'repeats' must be a number or a Tensor, not a list")
    if not isinstance(repeats, Tensor):
        check_int("repeat_interleave", "repeats", repeats)
    if isinstance(repeats, Tensor) and repeats.ndim and repeats.shape[0] != 1:
        if not input.ndim or repeats.shape[0] != input.shape[d]:
            raise RuntimeError(f"repeat_interleave: repeats must have the same size as input along dim, but got "
                               f"{tuple(repeats.shape)} for "
                               f"shape {tuple(input.shape)}, dim {dim}")
        return F.index_select(input, d, F.index_repeated(repeats))
    count = int(repeats.item()) if isinstance(repeats, Tensor) else operator.index(repeats)
    if count < 0:
        raise RuntimeError(f"repeat_interleave: repeats can not be negative, got {count}")
    input = input if input.ndim else F.reshape(input, (1,))
    shape = tuple(input.shape)
    wide = F.expand(F.unsqueeze(input, d + 1), (*shape[:d + 1], count, *shape[d + 1:]))
    return F.view(F.clone(wide, memory_format="contiguous_format"), (*shape[:d], shape[d] * count, *shape[d + 1:]))


@op(method=False, function=False)
def index_repeated(repeats):
    """The index of each element as often as the element says."""
    if repeats.ndim != 1 or repeats.dtype.kind != "i":
        raise RuntimeError(f"repeat_interleave: repeats must be a vector of int32 or int64, got {repeats.ndim} dimensions of "
                           f"{_dtype.of(repeats.dtype)}")
    if repeats.size and repeats.min() < 0:
        raise RuntimeError("repeat_interleave: repeats can not be negative")
    return np.arange(len(repeats)).repeat(repeats if np is numpy else repeats.tolist())


@op(node="Rot90Backward0", out=False)
def rot90(self, k: int = 1, dims: Dims = (0, 1)):
    """A copy turned by k right angles in the plane of two dimensions, from the first to the second. Reference: torch.rot90."""
    if len(dims) != 2:
        raise RuntimeError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}")
    if self.ndim < 2:
        raise RuntimeError(f"rot90: expected total dims >= 2, but got total dims = {self.ndim}")
    a, b = [wrap_dim(d, self.ndim, "rot90") for d in dims]
    if a == b:
        raise RuntimeError(f"rot90: expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return np.ascontiguousarray(np.rot90(self, k, (a, b)))

rot90.vjp(self=lambda grad, k, dims: F.rot90(grad, -k, dims))


def _with_part(input, src, part_of, name):
    """A copy of input with src in place of a part of it. Raises RuntimeError unless src has the part's shape."""
    made = F.clone(input)
    part = part_of(made)
    if src.shape != part.shape:
        raise RuntimeError(f"{name}: expected src to have a size equal to the slice of input, {tuple(part.shape)}, got {tuple(src.shape)}")
    part.copy_(src)
    return made


@composite
def select_scatter(input, src, dim, index):
    """A copy with src in place of the part at an index of a dimension. Reference: torch.select_scatter."""
    return _with_part(input, src, lambda x: F.select(x, dim, index), "select_scatter")


@composite(out=True)
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy with src in place of a slice of a dimension. Reference: torch.slice_scatter."""
    return _with_part(input, src, lambda x: F.slice(x, dim, start, end, step), "slice_scatter")


@composite
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy with src in place of the diagonals over two dimensions. Reference: torch.diagonal_scatter."""
    return _with_part(input, src, lambda x: F.diagonal(x, offset, dim1, dim2), "diagonal_scatter")
