"""Reductions: sums, means, extremes, truth."""
from __future__ import annotations

import math
import operator

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.bits import FEW
from autograd_gpu.blocks import summed
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import refuse
from autograd_gpu.rows import extreme

_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_CPU = np.ndarray                            # np in a body may be CuPy
_ON_CPU = np.ndarray, np.generic
_SMALL = 1000                                # elements up to which a gradient is spread by copying it


# -------------------------------------------------------------------------------------------------------- dims and dtypes

def dims_of(name, dim, ndim):
    """dim as a tuple of numbers from 0; all dimensions for None and ().

    Raises: IndexError for a dimension there is not, RuntimeError for one given twice, TypeError for what is no integer.
    """
    if dim.__class__ is int and -ndim <= dim < ndim:
        return (dim % ndim,)
    if dim is None:
        return (*range(ndim),)
    try:
        given = [operator.index(d) for d in dim] if isinstance(dim, (tuple, list)) else [operator.index(dim)]
        if isinstance(dim, bool):
            raise TypeError
    except TypeError:
        raise TypeError(f"{name}(): argument 'dim' must be an int or a tuple of ints, not {dim!r:.60}") from None
    if not given:
        return (*range(ndim),)
    size = ndim or 1
    found = []
    for d in given:
        if not -size <= d < size:
            raise IndexError(f"{name}: Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {d})")
        if d % size in found:
            raise RuntimeError(f"{name}: dim {d % size} appears multiple times in the list of dims {given}: name each one once")
        found.append(d % size)
    return tuple(found) if ndim else ()


def dim_of(name, dim, ndim):
    """One dimension as a number from 0; see dims_of. Raises TypeError for a tuple."""
    if dim.__class__ is int and -ndim <= dim < ndim:
        return dim % ndim
    if isinstance(dim, (tuple, list)) or dim is None:
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    dims = dims_of(name, dim, ndim)
    return dims[0] if dims else 0


def _is_half(d):
    return d.itemsize == 2 and d.kind in "fV"


def accumulator(d):
    """The dtype in which a sum or product of elements of dtype d is formed, before it is rounded to its own."""
    return _F32 if _is_half(d) else d


@composite(method=False, function=False)
def prepared(self, dtype):
    """The operand of a sum or product in its result's dtype: as asked for, else int64 for integers and bools."""
    if dtype is not None:
        return F.cast(self, _dtype.to_numpy(dtype))
    return self.astype(_I64, copy=False) if self.dtype.kind in "biu" else self


@composite(method=False, function=False)
def cast(self, d):
    """The operand in a dtype, without a warning for the imaginary parts that go lost."""
    return (self.real if self.dtype.kind == "c" and d.kind != "c" else self).astype(d, copy=False)


def _is_empty(dim):
    return isinstance(dim, (tuple, list)) and not dim


def _nonempty(name, shape, dims, given, error=RuntimeError):
    """Raises where a reduction without a neutral element has nothing to reduce."""
    if given is None or _is_empty(given):
        if 0 in shape:
            raise error(f"{name}(): Expected reduction dim to be specified for input.numel() == 0, shape {tuple(shape)}: give a 'dim' "
                        f"that is not empty")
        return
    for d in dims:
        if shape and shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size, the shape is {tuple(shape)}")


def _ordered(name, d, refused="c", error=RuntimeError):
    if d.kind in refused:
        raise error(f"{name}: does not support {_dtype.of(d)} input, elements must have an order: reduce abs() or real instead")


# ------------------------------------------------------------------------------------------------- gradients' way back

@composite(method=False, function=False)
def kept(x, shape, dim, keepdim):
    """A reduction's result, or its gradient, with the dimensions that were reduced from `shape` as size 1."""
    if keepdim or not shape:
        return x
    dims = dims_of("reduction", dim, len(shape))
    return F.reshape(x, tuple([1 if i in dims else n for i, n in enumerate(shape)]))


@composite(method=False, function=False)
def spread(grad, shape, dim, keepdim):
    """The gradient of a reduction at each element of what was reduced."""
    if not keepdim and grad.ndim:
        if dim.__class__ is int:
            d = dim % len(shape)
            if d:                            # a dimension missing in front needs no reshape to be expanded
                grad = F.reshape(grad, (*shape[:d], 1, *shape[d + 1:]))
        else:
            grad = F.kept(grad, shape, dim, False)
    if isinstance(grad, _ON_CPU) and math.prod(shape) <= _SMALL:
        made = np.empty(shape, grad.dtype)   # costs what the view does, and what reads it takes half as long
        made[...] = grad
        return made
    return F.expand(grad, shape)


@composite(method=False, function=False)
def count(shape, dim):
    """How many elements a reduction takes for each of its results."""
    if dim is None:
        return math.prod(shape)
    return math.prod([shape[d] for d in dims_of("reduction", dim, len(shape))])


# ------------------------------------------------------------------------------------------------------------ sum and mean

@op(node="Sum", digit=lambda dim, keepdim: dim is not None or keepdim, divert={"dtype is not None": "sum_as"})
def sum(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """The sum over `dim`: one dimension, several, or all.

    Shape: without the dimensions summed over; they stay with size 1 if keepdim.
    Dtype: `dtype`, to which elements are converted first; else as input, int64 for integers and bools.
    Raises: IndexError for a dimension there is not, RuntimeError for one given twice.
    Reference: torch.sum.
    """
    d = self.dtype
    if (d is _F32 or d is _F64) and (dim.__class__ is not tuple or dim):
        try:
            if self.size >= FEW and self.__class__ is _CPU:
                return summed(self, dim, keepdim)
            return np.add.reduce(self, dim, None, None, keepdim)
        except (IndexError, TypeError, ValueError):      # a list, or a mistake that the longer way names
            pass
    return F.sum_of_any(self, dim, keepdim, None)

sum.vjp(self=lambda grad, self_shape, dim, keepdim: F.spread(grad, self_shape, dim, keepdim))


@composite(method=False, function=False)
def sum_of_any(self, dim, keepdim, dtype):
    """The body of sum for every dtype and form of dim."""
    dims = dims_of("sum", dim, self.ndim)
    self = F.prepared(self, dtype)
    return F.added_up(self, dims, keepdim).astype(self.dtype, copy=False)


@composite(method=False, function=False)
def added_up(self, dims, keepdim):
    """np.add.reduce in the accumulator's dtype."""
    if self.__class__ is _CPU and (self.dtype is _F32 or self.dtype is _F64):
        return summed(self, dims, keepdim)
    return np.add.reduce(self, dims, accumulator(self.dtype), None, keepdim)


@op(node="Sum", digit=lambda dim, keepdim: dim is not None or keepdim, may_be_integer=True, method=False, function=False)
def sum_as(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """sum in a dtype asked for, which may be one without gradients."""
    return F.sum_of_any(self, dim, keepdim, dtype)

sum_as.vjp(self=lambda grad, self_shape, dim, keepdim: F.spread(grad, self_shape, dim, keepdim))


@op(node="Mean", digit=lambda dim, keepdim: dim is not None or keepdim)
def mean(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """The mean over `dim`: one dimension, several, or all.

    Shape: as sum. Dtype: as input or `dtype`.
    Raises: RuntimeError for integers and bools unless dtype is given; as sum for dim.
    Reference: torch.mean.
    """
    d = self.dtype
    if (d is _F32 or d is _F64) and dtype is None and dim.__class__ is not tuple:
        try:
            count = self.size if dim is None else self.shape[dim]
            if self.size >= FEW and self.__class__ is _CPU:
                return summed(self, dim, keepdim) / count
            return np.add.reduce(self, dim, None, None, keepdim) / count
        except (IndexError, TypeError):
            pass
    own = d if dtype is None else _dtype.to_numpy(dtype)
    if _dtype.category(own) not in "fc":
        raise RuntimeError(f"mean: could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
                           f"{_dtype.of(own)}: pass dtype=")
    dims = dims_of("mean", dim, self.ndim)
    total = F.added_up(F.cast(self, own), dims, keepdim)
    return (total / math.prod([self.shape[i] for i in dims])).astype(own, copy=False)

mean.vjp(self=lambda grad, self_shape, dim, keepdim: F.spread(grad / F.count(self_shape, dim), self_shape, dim, keepdim))


@op(may_be_integer=True)
def nansum(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """The sum over `dim`, NaN counting as zero. Raises RuntimeError for complex input. Reference: torch.nansum."""
    _ordered("nansum", self.dtype)
    if _dtype.category(self.dtype) == "f":
        self = np.where(self == self, self, self.dtype.type(0))
    return F.sum_of_any(self, dim, keepdim, dtype)

nansum.vjp(self=lambda grad, self, dim, keepdim: F.spread(grad, self.shape, dim, keepdim) * (self == self))


@composite(out=True)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean over `dim` of the elements that are not NaN. Reference: torch.nanmean."""
    if _dtype.category(input._array.dtype) not in "fc":
        raise RuntimeError(f"nanmean: expected input to have floating point or complex dtype but got {input.dtype}")
    refuse("nanmean", input._array, "c")
    there = ~F.isnan(input)
    return F.nansum(input, dim, keepdim, dtype=dtype) / F.sum(there, dim, keepdim)


# ---------------------------------------------------------------------------------------------------------------- extremes

@composite(method=False, function=False)
def largest(self, dims, keepdim):
    """np.max without what its Python costs. CuPy's ufunc has no reduce."""
    if self.__class__ is _CPU:
        return extreme(np.maximum, self, dims, keepdim)
    try:
        return np.maximum.reduce(self, dims, None, None, keepdim)
    except NotImplementedError:
        return np.max(self, dims, keepdims=keepdim)


@composite(method=False, function=False)
def total(self, dims, size=None):
    """np.add.reduce over dimensions that are kept; `size`: as in blocks.summed."""
    return summed(self, dims, True, size) if self.__class__ is _CPU else np.add.reduce(self, dims, None, None, True)


@composite(method=False, function=False)
def smallest(self, dims, keepdim):
    """np.min without what its Python costs."""
    if self.__class__ is _CPU:
        return extreme(np.minimum, self, dims, keepdim)
    try:
        return np.minimum.reduce(self, dims, None, None, keepdim)
    except NotImplementedError:
        return np.min(self, dims, keepdims=keepdim)


@op(node="MaxBackward1", divert={"dim is not None or other is not None or keepdim": "max_other"})
def max(self, dim: int | Tensor = None, keepdim: bool = False, *, other: Any = None):
    """The largest element; with `dim` a named tuple (values, indices) along it; with another tensor the larger of each two.

    Where several elements are the largest of all they share the gradient; along a dim the first has it. NaN is largest.
    Raises: RuntimeError for an empty input, IndexError for an empty or unknown dim.
    Reference: torch.max.
    """
    d = self.dtype
    if d is not _F32 and d is not _F64:
        _nonempty("max", self.shape, (), None)
        _ordered("max", d, error=NotImplementedError)
    try:
        return np.maximum.reduce(self, None)
    except (ValueError, NotImplementedError):
        _nonempty("max", self.shape, (), None)
        return np.max(self)

max.vjp(self=lambda grad, self, result: F.evenly(grad, self, result))


@op(node="MinBackward1", divert={"dim is not None or other is not None or keepdim": "min_other"})
def min(self, dim: int | Tensor = None, keepdim: bool = False, *, other: Any = None):
    """The smallest element; with `dim` a named tuple (values, indices) along it; with another tensor the smaller of each two.

    Gradients and errors as max. Reference: torch.min.
    """
    d = self.dtype
    if d is not _F32 and d is not _F64:
        _nonempty("min", self.shape, (), None)
        _ordered("min", d, error=NotImplementedError)
    try:
        return np.minimum.reduce(self, None)
    except (ValueError, NotImplementedError):
        _nonempty("min", self.shape, (), None)
        return np.min(self)

min.vjp(self=lambda grad, self, result: F.evenly(grad, self, result))


@composite(method=False, function=False)
def max_other(input, dim, keepdim=False, *, other=None):
    """max along a dim or of two tensors."""
    if dim is None and other is None:
        raise TypeError("max(): keepdim needs a dim")
    if other is None and not hasattr(dim, "ndim"):
        return F.max_dim(input, dim, keepdim)
    return F.maximum(input, dim if other is None else other)


@composite(method=False, function=False)
def min_other(input, dim, keepdim=False, *, other=None):
    """min along a dim or of two tensors."""
    if dim is None and other is None:
        raise TypeError("min(): keepdim needs a dim")
    if other is None and not hasattr(dim, "ndim"):
        return F.min_dim(input, dim, keepdim)
    return F.minimum(input, dim if other is None else other)


@op(node="MulBackward0", method=False, function=False)
def evenly(grad_output, self, result):
    """grad_output shared by the elements that are the extreme."""
    mask = np.equal(self, result)
    count = np.count_nonzero(mask)
    if self.__class__ is _CPU and count:
        made = np.zeros(self.shape, grad_output.dtype)
        made[mask] = grad_output if count == 1 else grad_output / count
        return made
    mask = F.is_extreme(self, result)
    return np.where(mask, grad_output / np.count_nonzero(mask), 0)

evenly.vjp(grad_output=lambda grad, self, result: F.sum(F.where(F.is_extreme(self, result), grad, 0)) / F.count_nonzero(
    F.is_extreme(self, result)))


@op(method=False, function=False)
def is_extreme(self, result):
    """Where elements equal the extreme, NaN equal to NaN."""
    same = np.equal(self, result)
    if self.__class__ is _CPU and result == result:      # on a GPU this look would wait for the result
        return same
    return same | ((self != self) & (result != result))


@op(node="MaxBackward0", outputs=("values", "indices"), differentiable=(True, False), method=False, function=False)
def max_dim(self, dim: int, keepdim: bool = False):
    """The largest elements along a dimension, and where the first of each stands."""
    if not F.is_single("max", self, dim):
        return (np.asarray(F.largest(self, dim, keepdim), order="C"), np.asarray(np.argmax(self, dim, keepdims=keepdim), order="C"))
    return self.copy(), np.zeros((), np.int64)

max_dim.vjp(self=lambda grad, indices, self_shape, dim, keepdim: F.put_index(grad, indices, self_shape, dim, keepdim))


@op(node="MinBackward0", outputs=("values", "indices"), differentiable=(True, False), method=False, function=False)
def min_dim(self, dim: int, keepdim: bool = False):
    """The smallest elements along a dimension, and where the first of each stands."""
    if not F.is_single("min", self, dim):
        return (np.asarray(F.smallest(self, dim, keepdim), order="C"), np.asarray(np.argmin(self, dim, keepdims=keepdim), order="C"))
    return self.copy(), np.zeros((), np.int64)

min_dim.vjp(self=lambda grad, indices, self_shape, dim, keepdim: F.put_index(grad, indices, self_shape, dim, keepdim))
for _record, _name in ((max_dim, "max"), (min_dim, "min")):
    _record.result_type.__name__ = _record.result_type.__qualname__ = _name


@composite(method=False, function=False)
def is_single(name, self, dim):
    """Whether an extreme along a dimension is that of a 0-d array. Raises for an unknown or empty dimension, or no order."""
    d = dim_of(name, dim, self.ndim)
    _nonempty(name, self.shape, (d,), dim)
    _ordered(name, self.dtype)
    return not self.ndim


@op(method=False, function=False)
def put_index(grad_output, index, size: Size, dim: int, keepdim: bool):
    """Zeros of a size with one gradient at its index along each row of a dimension."""
    if not size:
        return grad_output
    d = dim % len(size)
    if not keepdim:
        shape = (*size[:d], 1, *size[d + 1:])
        grad_output, index = grad_output.reshape(shape), index.reshape(shape)
    at = np.arange(size[d]).reshape((-1,) + (1,) * (len(size) - 1 - d))
    return np.where(at == index, grad_output, grad_output.dtype.type(0))

put_index.vjp(grad_output=lambda grad, index, dim, keepdim: F.take_index(grad, index, dim, keepdim))


@op(method=False, function=False)
def take_index(self, index, dim: int, keepdim: bool):
    """The elements at an index along each row of a dimension."""
    if not self.ndim:
        return self
    d = dim % self.ndim
    shape = (*self.shape[:d], 1, *self.shape[d + 1:])
    taken = np.take_along_axis(self, index.reshape(shape), d)
    return taken if keepdim else taken.reshape(index.shape)

take_index.vjp(self=lambda grad, index, self_shape, dim, keepdim: F.put_index(grad, index, self_shape, dim, keepdim))


@op()
def amax(self, dim: Dims = (), keepdim: bool = False):
    """The largest element over `dim`, by default all; those that are equal share the gradient.

    Raises: as max. Reference: torch.amax.
    """
    dims = dims_of("amax", dim, self.ndim)
    _nonempty("amax", self.shape, dims, dim)
    if self.size:
        _ordered("amax", self.dtype, error=NotImplementedError)
    return F.largest(self, dims, keepdim)

amax.vjp(self=lambda grad, self, result, dim, keepdim: F.evenly_along(grad, self, result, dim, keepdim))


@op()
def amin(self, dim: Dims = (), keepdim: bool = False):
    """The smallest element over `dim`, by default all; those that are equal share the gradient.

    Raises: as max. Reference: torch.amin.
    """
    dims = dims_of("amin", dim, self.ndim)
    _nonempty("amin", self.shape, dims, dim)
    if self.size:
        _ordered("amin", self.dtype, error=NotImplementedError)
    return F.smallest(self, dims, keepdim)

amin.vjp(self=lambda grad, self, result, dim, keepdim: F.evenly_along(grad, self, result, dim, keepdim))


@composite(method=False, function=False)
def evenly_along(grad, self, result, dim, keepdim):
    """The gradient of an extreme over dimensions, shared by the elements that are equal to it."""
    mask = self == F.kept(result, self.shape, dim, keepdim)
    return F.kept(grad, self.shape, dim, keepdim) * mask / F.sum(mask, dim, True)


@op(outputs=("min", "max"))
def aminmax(self, *, dim: int = None, keepdim: bool = False):
    """A named tuple (min, max) of amin and amax over one dimension or all. Reference: torch.aminmax."""
    if dim is not None:
        dim_of("aminmax", dim, self.ndim)
    return F.amin(self, () if dim is None else dim, keepdim), F.amax(self, () if dim is None else dim, keepdim)

aminmax.vjp(self=lambda grad_min, grad_max, self, min, max, dim, keepdim:
            F.evenly_along(grad_min, self, min, dim, keepdim) + F.evenly_along(grad_max, self, max, dim, keepdim))


@op()
def argmax(self, dim: int = None, keepdim: bool = False):
    """Where the largest element stands along a dimension, or in the flattened input; the first of equals. Reference: torch.argmax."""
    return F.argument("argmax", self, np.argmax, dim, keepdim)


@op()
def argmin(self, dim: int = None, keepdim: bool = False):
    """Where the smallest element stands along a dimension, or in the flattened input; the first of equals. Reference: torch.argmin."""
    return F.argument("argmin", self, np.argmin, dim, keepdim)


@composite(method=False, function=False)
def argument(name, self, where, dim, keepdim):
    """The body of argmax and argmin."""
    _ordered(name, self.dtype, "cb")
    d = None if dim is None else dim_of(name, dim, self.ndim)
    _nonempty(name, self.shape, (d,), dim, IndexError)
    return where(self, d, keepdims=keepdim) if self.ndim else np.zeros((), np.int64)


@op()
def all(self, dim: Dims = None, keepdim: bool = False):
    """Whether every element over `dim` is true. Dtype: bool, uint8 for uint8. Reference: torch.all."""
    dims = () if _is_empty(dim) else dims_of("all", dim, self.ndim)
    found = np.all(self != 0, dims, keepdims=keepdim)
    return found.astype(self.dtype) if self.dtype == np.uint8 else found


@op()
def any(self, dim: Dims = None, keepdim: bool = False):
    """Whether any element over `dim` is true. Dtype: bool, uint8 for uint8. Reference: torch.any."""
    dims = () if _is_empty(dim) else dims_of("any", dim, self.ndim)
    found = np.any(self != 0, dims, keepdims=keepdim)
    return found.astype(self.dtype) if self.dtype == np.uint8 else found


@op(out=False)
def count_nonzero(self, dim: Dims = None):
    """How many elements over `dim` are not zero. Dtype: int64. Reference: torch.count_nonzero."""
    if dim is None:
        return np.count_nonzero(self)
    return np.add.reduce(self != 0, dims_of("count_nonzero", dim, self.ndim), np.int64)
