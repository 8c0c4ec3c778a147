"""Softmax and its logarithm."""
from __future__ import annotations

import warnings

import numpy as np

from autograd_gpu.blocks import LARGE, LONG, block
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import floating
from autograd_gpu.ops.reduce import accumulator, dim_of
from autograd_gpu.parallel import each

_CPU = np.ndarray                            # np in a body may be CuPy


def _in_parts(compute, dim, *arrays):
    """compute(*arrays), all of one shape; large ones on the CPU in parts that stay in the cache, unless they would be cut along `dim`."""
    first = arrays[0]
    if first.size < LARGE or not dim or first.__class__ is not _CPU:
        compute(*arrays)
        return
    rows = max(1, block() * len(first) // first.size)
    each(lambda part: compute(*[a[part] for a in arrays]), [slice(i, i + rows) for i in range(0, len(first), rows)])


@op(divert={"dtype is not None": "softmax_as"})
def softmax(self, dim: int, dtype: DType = None):
    """exp(self) over its sum along a dimension.

    Dtype: floating; `dtype` converts the input first.
    Raises: IndexError for a dimension there is not, NotImplementedError for another dtype. Reference: torch.softmax.
    """
    d = dim_of("softmax", dim, self.ndim)
    floating("softmax", self.dtype)
    if not self.ndim or not self.size:
        return self * 0 + self.dtype.type(1)
    x = self.astype(accumulator(self.dtype), copy=False)
    out, size = np.empty(x.shape, x.dtype), x.size

    def compute(x, rows):
        np.subtract(x, F.largest(x, d, True), rows)
        np.exp(rows, rows)
        rows *= np.reciprocal(F.total(rows, d, size))
    _in_parts(compute, d, x, out)
    return out.astype(self.dtype, copy=False)

softmax.vjp(self=lambda grad, result, dim: F.softmax_backward(grad, result, dim))


def _softmax_backward(grad, result, dim):
    dim = dim_of("softmax", dim, result.ndim)
    out = np.empty(result.shape, result.dtype)

    def compute(y, g, made):
        if result.ndim and dim == result.ndim - 1 and g.__class__ is _CPU and result.shape[-1] <= LONG:
            inner = np.einsum("...i,...i->...", g, y)[..., None]    # np.vecdot holds the interpreter for up to 500 rows
        else:
            inner = np.add.reduce(np.multiply(g, y, made), dim if result.ndim else None, None, None, True)
        np.subtract(g, inner, made)
        made *= y
    _in_parts(compute, dim, result, grad, out)
    return out


@composite(method=False, function=False, arrays=_softmax_backward)
def softmax_backward(grad, result, dim):
    """The gradient of softmax."""
    return (grad - F.sum(grad * result, dim, True)) * result


@composite(method=False, function=False)
def softmax_as(input, dim, dtype=None):
    """softmax of the input converted to a dtype."""
    return F.softmax(F.to(input, dtype), dim)


@op(divert={"dtype is not None": "log_softmax_as"})
def log_softmax(self, dim: int, dtype: DType = None):
    """log(softmax(self)) along a dimension, without underflow.

    Dtype: floating; `dtype` converts the input first.
    Raises: IndexError for a dimension there is not, NotImplementedError for another dtype. Reference: torch.log_softmax.
    """
    d = dim_of("log_softmax", dim, self.ndim)
    floating("log_softmax", self.dtype)
    if not self.ndim or not self.size:
        return self - self
    x = self.astype(accumulator(self.dtype), copy=False)
    out, size = np.empty(x.shape, x.dtype), x.size

    def compute(x, rows):
        shift = F.largest(x, d, True)
        np.exp(np.subtract(x, shift, rows), rows)
        total = np.log(F.total(rows, d, size))
        np.subtract(x, shift, rows)          # once more: cheaper than memory for the exponentials
        rows -= total
    _in_parts(compute, d, x, out)
    return out.astype(self.dtype, copy=False)

log_softmax.vjp(self=lambda grad, result, dim: F.log_softmax_backward(grad, result, dim))


def _log_softmax_backward(grad, result, dim):
    dim = dim_of("log_softmax", dim, result.ndim)
    out = np.empty(result.shape, result.dtype)

    def compute(result, g, shares):
        np.exp(result, shares)
        shares *= F.total(np.asarray(g, order="C"), dim if result.ndim else None, grad.size)
        np.subtract(g, shares, shares)
    _in_parts(compute, dim, result, grad, out)
    return out


@composite(method=False, function=False, arrays=_log_softmax_backward)
def log_softmax_backward(grad, result, dim):
    """The gradient of log_softmax."""
    return grad - F.exp(result) * F.sum(grad, dim, True)


@composite(method=False, function=False)
def log_softmax_as(input, dim, dtype=None):
    """log_softmax of the input converted to a dtype."""
    return F.log_softmax(F.to(input, dtype), dim)


def _implicit(name, dim, ndim):
    if dim is None:
        warnings.warn(f"{name}: the dimension is chosen by the number of dimensions, which is deprecated: pass dim=", stacklevel=4)
        return 0 if ndim in (0, 1, 3) else 1
    return dim


@composite(method=False, function=False)
def softmax_function(input, dim=None, _stacklevel=3, dtype=None):
    """softmax along a dimension. Reference: torch.nn.functional.softmax."""
    return F.softmax(input, _implicit("softmax", dim, input.ndim), dtype)


@composite(method=False, function=False)
def softmin_function(input, dim=None, _stacklevel=3, dtype=None):
    """softmax of -input along a dimension. Reference: torch.nn.functional.softmin."""
    return F.softmax(-input, _implicit("softmin", dim, input.ndim), dtype)


@composite(method=False, function=False)
def log_softmax_function(input, dim=None, _stacklevel=3, dtype=None):
    """log_softmax along a dimension. Reference: torch.nn.functional.log_softmax."""
    return F.log_softmax(input, _implicit("log_softmax", dim, input.ndim), dtype)
