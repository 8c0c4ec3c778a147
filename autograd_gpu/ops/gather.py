"""Gathering and scattering: elements at an index along a dimension, or where a mask is True."""
from __future__ import annotations

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.cuda import bounds, scatter
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import fitted
from autograd_gpu.ops.shape import ALL, numpy, wrap_dim

# --------------------------------------------------------------------------------------------------------- along one dimension

@composite(method=False, function=False)
def key_along(index, dim):
    """The key that has an index along one dimension and stays in place along the others."""
    n = index.ndim
    return tuple([index if d == dim else np.arange(index.shape[d]).reshape((1,) * d + (-1,) + (1,) * (n - 1 - d)) for d in range(n)])


@composite(method=False, function=False)
def accumulate_along(name, out, dim, index, values):
    """Add values to the elements of an array at an index along a dimension, for the op of this name."""
    if np is numpy:
        F.accumulate(name, out, F.key_along(index, dim), values)
    else:
        scatter.along("add", name, out, dim, index, values)


def _check_integer(name, index):
    if index.dtype.kind != "i" or index.dtype.itemsize < 4:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {_dtype.of(index.dtype)}")


def _outside(name, index, n, dim, wraps=False):
    """An index out of range; None if there is none. On a CUDA device, where the host would wait, a kernel reports it instead.

    `wraps`: negative ones count from the end.
    """
    if not isinstance(index, numpy.ndarray):
        bounds.check(name, index, n, dim, wraps)
        return None
    if not index.size:
        return None
    if wraps:
        wrong = index[(index < -n) | (index >= n)]
        return int(wrong[0]) if wrong.size else None
    if numpy.maximum.reduce(index.view(_UNSIGNED[index.dtype.itemsize]), None) < n:        # negative ones are the largest so
        return None
    low, high = int(index.min()), int(index.max())
    return low if low < 0 else high


_UNSIGNED = {4: np.uint32, 8: np.uint64}


def _check_along(name, self, dim, index, src=None, adds=False):
    """Operands of gather and scatter, 0-d ones as 1-d, and the dimension. Raises RuntimeError where they do not fit.

    `adds`: accumulate_along follows, whose kernel checks the index itself.
    """
    d = wrap_dim(dim, self.ndim, name)
    if index.size:
        _check_integer(name, index)
    if src is not None and src.dtype != self.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype, got {_dtype.of(self.dtype)} and "
                           f"{_dtype.of(src.dtype)}")
    x, i = self if self.ndim else self.reshape((1,)), index if index.ndim else index.reshape((1,))
    s = None if src is None else src if src.ndim else src.reshape((1,))
    if not i.size:
        return x, d, i, s
    if x.ndim != i.ndim or s is not None and s.ndim != i.ndim:
        raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as input "
                           f"tensor{' and src' if src is not None else ''}"
                           f", got {index.ndim} and {self.ndim}{'' if src is None else f' and {src.ndim}'}")
    for k in range(x.ndim):
        if k != d and i.shape[k] > x.shape[k] or s is not None and i.shape[k] > s.shape[k]:
            raise RuntimeError(f"{name}(): Size does not match at dimension {k} expected index {list(index.shape)} to be no larger "
                               "than "
                               f"self {list(self.shape)} apart from dimension {dim}" + (
                                   f" and to be no larger size than src {list(src.shape)}" if src is not None else ""))
    n = x.shape[d]
    wrong = None if adds and not isinstance(i, numpy.ndarray) else _outside(name, i, n, d)
    if wrong is not None:
        raise RuntimeError(f"{name}(): index {wrong} is out of bounds for dimension {dim} with size {n}")
    return x, d, i, s if s is None else s[tuple([slice(m) for m in i.shape])]


@op()
def gather(self, dim: int, index, *, sparse_grad: bool = False):
    """The elements at an index along a dimension, in index's shape.

    Raises: RuntimeError for an index out of range (negative ones too) or shapes that do not fit. Reference: torch.gather.
    """
    x, d, i, _ = _check_along("gather", self, dim, index)
    if not index.size:
        return np.empty(index.shape, self.dtype)
    return x[F.key_along(i, d)].reshape(index.shape)

gather.vjp(self=lambda grad, self, dim, index: F.gather_backward(grad, self.shape, dim, index))


@op(node="ScatterAddBackward0", method=False, function=False)
def gather_backward(grad_output, input_sizes: Size, dim: int, index):
    """Zeros but for the elements that gather takes, which get the sum of what arrives for them."""
    made = np.zeros(input_sizes, grad_output.dtype)
    if index.size:
        x, d, i, s = _check_along("gather", made, dim, index, grad_output, adds=True)
        F.accumulate_along("gather", x, d, i, s)
    return made

gather_backward.vjp(grad_output=lambda grad, dim, index: F.gather(grad, dim, index))


@op(method=False, function=False, node="ScatterBackward0", linear=True)
def scatter_tensor(self, dim: int, index, src):
    """A copy with src's elements at an index along a dimension."""
    out = self.copy()
    x, d, i, s = _check_along("scatter", out, dim, index, src)
    if i.size:
        x[F.key_along(i, d)] = s
    return out

scatter_tensor.vjp(self=lambda grad, dim, index: F.scatter_number(grad, dim, index, 0),
                   src=lambda grad, src_shape, dim, index: F.gather_to(grad, dim, index, src_shape))


@composite(method=False, function=False)
def gather_to(grad, dim, index, shape):
    """gather, with zeros up to a shape that is larger than index's."""
    grad = F.gather(grad, dim, index)
    for d, n in enumerate(shape):
        if len(grad.shape) == len(shape) and grad.shape[d] != n:
            size = (*grad.shape[:d], n, *grad.shape[d + 1:])
            grad = F.slice_backward(grad, size, d, 0, grad.shape[d], 1)
    return grad


@op(method=False, function=False, node="ScatterBackward1")
def scatter_number(self, dim: int, index, value: Number):
    """A copy with a number at an index along a dimension."""
    value = fitted("scatter", value, self.dtype)
    out = self.copy()
    x, d, i, _ = _check_along("scatter", out, dim, index)
    if i.size:
        x[F.key_along(i, d)] = value
    return out

scatter_number.vjp(self=lambda grad, dim, index: F.scatter_number(grad, dim, index, 0))


@op(method=False, function=False, node="torch::autograd::NotImplemented")
def scatter_reduced(self, dim: int, index, src, reduce: str):
    """A copy with src's elements added to, or multiplied with, those at an index along a dimension."""
    out = self.copy()
    x, d, i, s = _check_along("scatter", out, dim, index, src, adds=True)
    if i.size and reduce == "add":
        F.accumulate_along("scatter", x, d, i, s)
    elif i.size and np is numpy:
        np.multiply.at(x, F.key_along(i, d), s)
    elif i.size:
        scatter.along("multiply", "scatter", x, d, i, s)
    return out

scatter_reduced.vjp(self=lambda grad: F.no_derivative("scatter with reduce"), src=lambda grad: F.no_derivative("scatter with reduce"))


@composite(method=False, function=False)
def no_derivative(name):
    """Raises RuntimeError."""
    raise RuntimeError(f"derivative for {name} is not implemented, as in PyTorch")


def _scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy with src's elements, or a number, at an index along a dimension; `reduce`: "add" or "multiply" with what is there.

    Raises: RuntimeError for an index out of range, other dtypes or shapes that do not fit. Reference: torch.scatter.
    """
    src = value if src is None else src
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError(f"scatter: reduce argument must be either add or multiply, got {reduce!r}")
        if not isinstance(src, Tensor):
            xp = _device.xp(index._array)
            src = wrap(xp.full(index._array.shape, src).astype(input._array.dtype))
        return F.scatter_reduced(input, dim, index, src, reduce)
    if isinstance(src, Tensor):
        return F.scatter_tensor(input, dim, index, src)
    return F.scatter_number(input, dim, index, src)


_scatter.__name__ = _scatter.__qualname__ = "scatter"
composite(inplace=True, out=True)(_scatter)


@op(inplace=True)
def scatter_add(self, dim: int, index, src):
    """A copy with src's elements added to those at an index along a dimension. Reference: torch.scatter_add."""
    out = self.copy()
    x, d, i, s = _check_along("scatter_add", out, dim, index, src, adds=True)
    if i.size:
        F.accumulate_along("scatter_add", x, d, i, s)
    return out

scatter_add.vjp(self=lambda grad: grad, src=lambda grad, src_shape, dim, index: F.gather_to(grad, dim, index, src_shape))


@composite(out=True)
def take_along_dim(input, indices, dim=None):
    """gather with input and indices broadcast to each other in the other dimensions; without dim, of all elements in a row.

    Reference: torch.take_along_dim.
    """
    if dim is None:
        input = F.reshape(input, (-1,))
        return F.gather(input, 0, F.from_the_front(F.reshape(indices, (-1,)), input.shape[0]))
    if input.ndim != indices.ndim:
        raise RuntimeError(f"take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} "
                           "dimensions "
                           f"for input, and {indices.ndim} dimensions for indices")
    _check_integer("take_along_dim", indices._array)
    d = wrap_dim(dim, input.ndim, "take_along_dim")
    indices = F.from_the_front(indices, input.shape[d])
    x, i = list(input.shape), list(indices.shape)
    x[d] = i[d] = 1
    size = list(F.broadcast_shapes(x, i))
    a, b = list(size), list(size)
    a[d], b[d] = input.shape[d], indices.shape[d]
    return F.gather(F.expand(input, tuple(a)), d, F.expand(indices, tuple(b)))


@op(method=False, function=False)
def from_the_front(index, n: int):
    """An index whose negative elements count from the end, without them."""
    return np.where(index < 0, index + n, index)


@op()
def index_select(self, dim: int, index):
    """The parts of a dimension at a vector of indices. Raises IndexError for one out of range. Reference: torch.index_select."""
    d, x, i = _check_vector("index_select", self, dim, index)
    return x.take(i, d) if self.ndim else x.take(i, 0).reshape(())

index_select.vjp(self=lambda grad, self_shape, dim, index: F.index_select_backward(grad, self_shape, dim, index))


def _check_vector(name, self, dim, index, adds=False):
    """The dimension, self with at least one and the index as a vector. `adds`: as for _check_along."""
    d = wrap_dim(dim, self.ndim, name)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, got {index.ndim} dimensions")
    _check_integer(name, index)
    x, i = self if self.ndim else self.reshape((1,)), index if index.ndim else index.reshape((1,))
    if not self.ndim and i.size != 1 and name == "index_select":
        raise RuntimeError(f"{name}(): Index to a 0-d tensor can have only 1 value, got {i.size}")
    n, wraps = x.shape[d], name == "index_fill"         # the only one of its family that counts negative numbers from the end
    wrong = None if adds and not isinstance(i, numpy.ndarray) else _outside(name, i, n, d, wraps)
    if wrong is not None:
        raise IndexError(f"{name}(): index {wrong} out of range in self, whose dimension {dim} has size {n}")
    return d, x, np.where(i < 0, i + n, i) if wraps else i


@op(node="IndexAddBackward0", method=False, function=False)
def index_select_backward(grad_output, input_sizes: Size, dim: int, index):
    """Zeros but for the parts that index_select takes."""
    if not len(input_sizes):
        return grad_output
    d, i = dim % len(input_sizes), index if index.ndim else index.reshape((1,))
    if np is not numpy:
        made = np.zeros(input_sizes, grad_output.dtype)
        scatter.at("add", "index_select", made, (*(ALL,) * d, i), grad_output, wraps=False)
        return made
    made = np.zeros((input_sizes[d], *input_sizes[:d], *input_sizes[d + 1:]), grad_output.dtype)
    F.accumulate("index_select", made, (i,), np.moveaxis(grad_output, d, 0))
    return np.moveaxis(made, 0, d)

index_select_backward.vjp(grad_output=lambda grad, dim, index: F.index_select(grad, dim, index))


@op(inplace=True)
def index_add(self, dim: int, index, source, *, alpha: Number = 1):
    """A copy with alpha times source's parts added to those at a vector of indices. Reference: torch.index_add."""
    d, x, i = _check_vector("index_add", self, dim, index, adds=True)
    if self.dtype != source.dtype:
        raise RuntimeError(f"index_add(): self and source expected to have the same dtype, but got (self) {_dtype.of(self.dtype)} and "
                           f"(source) {_dtype.of(source.dtype)}")
    s = source if source.ndim else source.reshape((1,))
    if s.ndim != x.ndim or s.shape[d] != i.size or s.shape[:d] + s.shape[d + 1:] != x.shape[:d] + x.shape[d + 1:]:
        raise RuntimeError(f"index_add(): Number of indices ({i.size}) should be equal to source.size(dim), and source match self's "
                           "other "
                           f"sizes; the shapes are {source.shape} and {self.shape}, dim {dim}")
    s = s if alpha == 1 else s * np.asarray(alpha).astype(self.dtype)
    if np is not numpy:
        out = x.copy()
        scatter.at("add", "index_add", out, (*(ALL,) * d, i), s, wraps=False)
        return out.reshape(self.shape)
    moved = np.moveaxis(x, d, 0).copy("C")
    F.accumulate("index_add", moved, (i,), np.moveaxis(s, d, 0))
    return np.ascontiguousarray(np.moveaxis(moved, 0, d)).reshape(self.shape)

index_add.vjp(self=lambda grad: grad,
              source=lambda grad, source, dim, index, alpha: F.scaled_back(
                  F.reshape(F.index_select(grad, dim, index), source.shape), alpha))


@op(inplace=True, linear=True)
def index_copy(self, dim: int, index, source):
    """A copy with source's parts at a vector of indices. Reference: torch.index_copy."""
    d, x, i = _check_vector("index_copy", self, dim, index)
    if self.dtype != source.dtype:
        raise RuntimeError(f"index_copy(): self and source expected to have the same dtype, but got (self) {_dtype.of(self.dtype)} "
                           "and "
                           f"(source) {_dtype.of(source.dtype)}")
    s = source if source.ndim else source.reshape((1,))
    if s.ndim != x.ndim or s.shape[d] != i.size or s.shape[:d] + s.shape[d + 1:] != x.shape[:d] + x.shape[d + 1:]:
        raise RuntimeError(f"index_copy(): Number of indices ({i.size}) should be equal to source.size(dim), and source match self's "
                           "other "
                           f"sizes; the shapes are {source.shape} and {self.shape}, dim {dim}")
    out = x.copy()
    out[(ALL,) * d + (i,)] = s
    return out.reshape(self.shape)

index_copy.vjp(self=lambda grad, dim, index: F.index_fill_number(grad, dim, index, 0),
               source=lambda grad, source, dim, index: F.reshape(F.index_select(grad, dim, index), source.shape))


@op(method=False, function=False, node="IndexFillBackward0")
def index_fill_number(self, dim: int, index, value: Number):
    """A copy with a number at a vector of indices."""
    if not hasattr(value, "ndim"):
        value = fitted("index_fill", value, self.dtype)
    d, x, i = _check_vector("index_fill", self, dim, index)
    out = x.copy()
    out[(ALL,) * d + (i,)] = value
    return out.reshape(self.shape)

index_fill_number.vjp(self=lambda grad, dim, index: F.index_fill_number(grad, dim, index, 0))


@op(method=False, function=False, node="IndexFillBackward1")
def index_fill_tensor(self, dim: int, index, value):
    """A copy with a 0-d tensor at a vector of indices."""
    if value.ndim:
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)")
    return F.index_fill_number(self, dim, index, value)

index_fill_tensor.vjp(self=lambda grad, dim, index: F.index_fill_number(grad, dim, index, 0),
                      value=lambda grad, dim, index: F.sum(F.index_select(grad, dim, F.distinct(index, grad.shape, dim))))


@op(method=False, function=False)
def distinct(index, size: Size, dim: int):
    """Each index once, counted from the front."""
    index = F.from_the_front(index, size[dim] if size else 1)
    return np.unique(index)


@composite(inplace=True)
def index_fill(input, dim, index, value):
    """A copy with one value at a vector of indices. Reference: torch.index_fill."""
    if isinstance(value, Tensor):
        return F.index_fill_tensor(input, dim, index, F.to(value, device=input.device))
    return F.index_fill_number(input, dim, index, value)


# --------------------------------------------------------------------------------------------------------- of all the elements

@op()
def masked_select(self, mask):
    """The elements where a mask, broadcast with them, is True, in one dimension. Reference: torch.masked_select."""
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {_dtype.of(mask.dtype)}")
    shape = F.broadcast_shapes(self.shape, mask.shape)
    return np.broadcast_to(self, shape)[np.broadcast_to(mask, shape)]

masked_select.vjp(self=lambda grad, self, mask: F.masked_select_backward(grad, mask, self.shape))


@op(method=False, function=False)
def masked_select_backward(grad_output, mask, input_sizes: Size):
    """Zeros but for the elements that masked_select takes."""
    shape = F.broadcast_shapes(tuple(input_sizes), mask.shape)
    made = np.zeros(shape, grad_output.dtype)
    made[np.broadcast_to(mask, shape)] = grad_output
    return made

masked_select_backward.vjp(grad_output=lambda grad, mask: F.masked_select(grad, mask))


@op(function=False, method=False)
def nonzero_places(self):
    """The indices of the elements that are not zero, one row each; those for a dimension lie together, as in PyTorch."""
    return np.stack((self if self.ndim else self.reshape((1,))).nonzero()).astype(np.int64)[:self.ndim].T


@composite(out=True)
def nonzero(input, *, as_tuple=False):
    """The indices of the elements that are not zero, one row each; with `as_tuple` as index tensors. Reference: torch.nonzero."""
    if as_tuple:
        return F.unbind(F.nonzero_places(input if input.ndim else F.reshape(input, (1,))), 1)
    return F.nonzero_places(input)


@composite
def argwhere(input):
    """The indices of the elements that are not zero, one row each. Reference: torch.argwhere."""
    return F.nonzero_places(input)


@op(inplace=True, out=False)
def masked_scatter(self, mask, source):
    """A copy with source's elements, in their order, where a mask, broadcast with self, is True. Reference: torch.masked_scatter."""
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter: expected a bool mask, got {_dtype.of(mask.dtype)}")
    if self.dtype != source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {_dtype.of(self.dtype)} and "
                           f"{_dtype.of(source.dtype)}")
    shape = F.broadcast_shapes(self.shape, mask.shape)
    if np is not numpy and source.size:      # a GPU would wait for the count
        mask = np.broadcast_to(mask, shape)
        at = np.where(mask, np.cumsum(mask, dtype=np.int64).reshape(shape) - 1, 0)
        bounds.check("masked_scatter", at, source.size)
        return np.where(mask, source.reshape((-1,))[at], self)
    out, mask = np.broadcast_to(self, shape).copy(), np.broadcast_to(mask, shape)
    count = int(np.count_nonzero(mask))
    if count > source.size:
        raise RuntimeError(f"masked_scatter: Number of elements of source < number of ones in mask: {source.size} < {count}, sizes "
                           f"{source.shape} and {shape}")
    out[mask] = source.reshape((-1,))[:count]
    return out

masked_scatter.vjp(self=lambda grad, mask: F.where(mask, F.zero(grad), grad),
                   source=lambda grad, mask, source_shape: F.masked_scatter_backward(grad, mask, source_shape))


@composite(method=False, function=False)
def masked_scatter_backward(grad, mask, shape):
    """The gradient of those elements of source that were taken; zero for the others."""
    part, n = F.masked_select(grad, mask), 1
    for m in shape:
        n *= m
    return F.reshape(F.slice_backward(part, (n,), 0, 0, part.shape[0], 1), tuple(shape))


@op()
def take(self, index):
    """The elements at indices into all of them in a row. Raises IndexError for one out of range. Reference: torch.take."""
    if index.dtype != np.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {_dtype.of(index.dtype)}")
    if np is not numpy:
        bounds.check("take", index, self.size, wraps=True)
    try:
        return self.reshape((-1,))[index]
    except IndexError:
        raise IndexError(f"take: out of range: an index lies outside a tensor of {self.size} elements") from None

take.vjp(self=lambda grad, self, index: F.take_backward(grad, self.shape, index))


@op(method=False, function=False)
def take_backward(grad_output, input_sizes: Size, index):
    """Zeros but for the elements that take takes."""
    made = np.zeros(input_sizes, grad_output.dtype)
    F.accumulate("take", made.reshape((-1,)), (index,), grad_output)
    return made

take_backward.vjp(grad_output=lambda grad, index: F.take(grad, index))
