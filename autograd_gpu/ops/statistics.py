"""Statistics: variances, logsumexp, norms; products, running sums and running products."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.blocks import by_rows
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import check_number
from autograd_gpu.ops.reduce import accumulator, dim_of, dims_of

# -------------------------------------------------------------------------------------------------------------- statistics

def _statistic(name, make, method=True):
    """var, std and their kin: the positional forms (dim, unbiased, keepdim) and (unbiased) beside the keyword `correction`."""
    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=None):
        dim = dim if axis is None else axis
        keepdim = keepdim if keepdims is None else keepdims
        if isinstance(dim, bool):
            if unbiased is not None:
                raise TypeError(f"{name}(): unbiased given twice, as {dim} and {unbiased}")
            dim, unbiased = None, dim
        if unbiased is not None:
            if correction is not None:
                raise TypeError(f"{name}(): got both unbiased and correction; unbiased={unbiased} is correction={int(unbiased)}")
            correction = int(unbiased)
        if correction is not None:
            check_number(name, "correction", correction)
        return make(input, dim, 1 if correction is None else correction, keepdim)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"{name} over `dim`, divided by the count less `correction` (1; `unbiased=False`: 0).\n\n"
                        f"    Raises: RuntimeError for integers and bools. Reference: torch.{name}.")
    return composite(function, method=method, out="mean" not in name)


_statistic("var", lambda *a: F.var_correction(*a))
_statistic("std", lambda *a: F.std_correction(*a))
_statistic("var_mean", lambda *a: tuple(F.var_mean_correction(*a)), method=False)
_statistic("std_mean", lambda *a: tuple(F.std_mean_correction(*a)), method=False)


@composite(method=False, function=False)
def variance(name, self, dim, correction):
    """(variance, mean) with kept dimensions, in the accumulator's dtype."""
    if _dtype.category(self.dtype) not in "fc":
        raise RuntimeError(f"{name}: std and var only support floating point and complex dtypes, got {_dtype.of(self.dtype)}")
    dims = dims_of(name, dim, self.ndim)
    n = math.prod([self.shape[d] for d in dims])

    def compute(x):
        mean = F.total(x, dims, self.size) / n
        rest = F.total(x - mean, dims, self.size) / n            # corrects the mean, so that of equal elements the variance is 0
        mean = mean + np.where(np.isinf(rest), 0, rest)          # inf: the sum was too large
        off = x - mean
        square = off * off if off.dtype.kind != "c" else off.real * off.real + off.imag * off.imag
        total = F.total(square, dims, self.size)
        return total / max(n - correction, 0), mean
    return by_rows(compute, self.astype(accumulator(self.dtype), copy=False), dims)


@composite(method=False, function=False)
def unkept(x, shape, dim, keepdim, dtype):
    """A result with kept dimensions as it is to be returned."""
    dims = dims_of("reduction", dim, len(shape))
    x = np.asarray(x).astype(dtype, copy=False)
    return x if keepdim else x.reshape([n for i, n in enumerate(shape) if i not in dims])


@op(node="VarBackward0", method=False, function=False)
def var_correction(self, dim: Dims, correction: Number, keepdim: bool):
    """The variance."""
    var, _ = F.variance("var", self, dim, correction)
    return F.unkept(var, self.shape, dim, keepdim, self.real.dtype)

var_correction.vjp(self=lambda grad, self, dim, correction, keepdim: F.var_backward(grad, self, dim, correction, keepdim))


@op(node="StdBackward0", method=False, function=False)
def std_correction(self, dim: Dims, correction: Number, keepdim: bool):
    """The standard deviation."""
    var, _ = F.variance("std", self, dim, correction)
    return F.unkept(np.sqrt(var), self.shape, dim, keepdim, self.real.dtype)

std_correction.vjp(self=lambda grad, self, result, dim, correction, keepdim:
                   F.var_backward(F.of_variance(grad, result), self, dim, correction, keepdim))


@op(node="VarMeanBackward0", outputs=("var", "mean"), method=False, function=False, accepts_none=True)
def var_mean_correction(self, dim: Dims, correction: Number, keepdim: bool):
    """The variance and the mean."""
    var, mean = F.variance("var_mean", self, dim, correction)
    return (F.unkept(var, self.shape, dim, keepdim, self.real.dtype), F.unkept(mean, self.shape, dim, keepdim, self.dtype))

var_mean_correction.vjp(self=lambda grad_var, grad_mean, self, dim, correction, keepdim:
                        F.var_mean_backward(grad_var, grad_mean, self, dim, correction, keepdim))


@op(node="StdMeanBackward0", outputs=("std", "mean"), method=False, function=False, accepts_none=True)
def std_mean_correction(self, dim: Dims, correction: Number, keepdim: bool):
    """The standard deviation and the mean."""
    var, mean = F.variance("std_mean", self, dim, correction)
    return (F.unkept(np.sqrt(var), self.shape, dim, keepdim, self.real.dtype), F.unkept(mean, self.shape, dim, keepdim, self.dtype))

std_mean_correction.vjp(self=lambda grad_std, grad_mean, self, std, dim, correction, keepdim:
                        F.var_mean_backward(F.of_variance(grad_std, std), grad_mean, self, dim, correction, keepdim))


@composite(method=False, function=False)
def of_variance(grad, std):
    """The gradient of the variance from that of its root."""
    return None if grad is None else F.where(std == 0, 0, grad / (F.nonzeros(std) * 2))


@composite(method=False, function=False)
def var_mean_backward(grad_var, grad_mean, self, dim, correction, keepdim):
    """The gradients of the variance and of the mean, of which one may be missing: that of the variance need not be finite."""
    of_var = None if grad_var is None else F.var_backward(grad_var, self, dim, correction, keepdim)
    if grad_mean is None:
        return of_var
    of_mean = F.spread(grad_mean / F.count(self.shape, dim), self.shape, dim, keepdim)
    return of_mean if of_var is None else of_var + of_mean


@composite(method=False, function=False)
def var_backward(grad, self, dim, correction, keepdim):
    """The gradient of the variance. Without degrees of freedom it is infinite; over all elements, NaN at the mean."""
    n = F.count(self.shape, dim)
    off = self - F.mean(self, dim, True)
    grad = F.kept(grad, self.shape, dim, keepdim)
    if n <= correction and (dim is None or not self.ndim):
        return grad * F.where(off == 0, math.nan, math.inf)
    return (2 / (n - correction) if n != correction else math.inf) * grad * off


# ------------------------------------------------------------------------------------------------------------------ median

@op(node="MedianBackward0", divert={"dim is not None or keepdim": "median_dim"})
def median(self, dim: int = None, keepdim: bool = False):
    """The middle element, the lower of two, NaN if there is one; with `dim` a named tuple (values, indices) along it.

    Raises: IndexError for an empty or unknown dim. Reference: torch.median.
    """
    flat = self.reshape(-1)
    if not flat.size:
        return np.full((), math.nan if _dtype.category(self.dtype) == "f" else 0, self.dtype)
    return flat[F.middle("median", flat, 0, False)].reshape(())

median.vjp(self=lambda grad, self, result: F.evenly(grad, self, result))


@op(node="NanmedianBackward0", divert={"dim is not None or keepdim": "nanmedian_dim"})
def nanmedian(self, dim: int = None, keepdim: bool = False):
    """The middle one of the elements that are not NaN, the lower of two; with `dim` as median. Reference: torch.nanmedian."""
    flat = self.reshape(-1)
    if not flat.size:
        return np.full((), math.nan if _dtype.category(self.dtype) == "f" else 0, self.dtype)
    return flat[F.middle("nanmedian", flat, 0, True)].reshape(())

nanmedian.vjp(self=lambda grad, self, result: F.evenly(grad, self, result))


@op(node="MedianBackward1", outputs=("values", "indices"), differentiable=(True, False), method=False, function=False)
def median_dim(self, dim: int, keepdim: bool = False):
    """median along a dimension."""
    return F.middle_along("median", self, dim, keepdim, False)

median_dim.vjp(self=lambda grad, indices, self_shape, dim, keepdim: F.put_index(grad, indices, self_shape, dim, keepdim))


@op(node="NanmedianBackward1", outputs=("values", "indices"), differentiable=(True, False), method=False, function=False)
def nanmedian_dim(self, dim: int, keepdim: bool = False):
    """nanmedian along a dimension."""
    return F.middle_along("nanmedian", self, dim, keepdim, True)

nanmedian_dim.vjp(self=lambda grad, indices, self_shape, dim, keepdim: F.put_index(grad, indices, self_shape, dim, keepdim))
for _record, _name in ((median_dim, "median"), (nanmedian_dim, "nanmedian")):
    _record.result_type.__name__ = _record.result_type.__qualname__ = _name


def _check_order(name, d):
    if _dtype.category(d) not in "if":
        raise NotImplementedError(f"{name}: not implemented for {_dtype.of(d)}: convert the input to integers or floats first")


@composite(method=False, function=False)
def middle(name, self, d, skip_nan):
    """Where the median stands along a dimension, which is kept with size 1. NaN sorts last."""
    _check_order(name, self.dtype)
    order = np.argsort(self, d, kind="stable")
    missing = self != self
    n = np.add.reduce(~missing, d, None, None, True)
    whole = (n if skip_nan else n * 0 + self.shape[d])
    found = np.take_along_axis(order, np.maximum(whole - 1, 0) // 2, d)
    return found if skip_nan else np.where(n < self.shape[d], np.argmax(missing, d, keepdims=True), found)


@composite(method=False, function=False)
def middle_along(name, self, dim, keepdim, skip_nan):
    """(values, indices) of medians along a dimension."""
    dim_of(name, dim, self.ndim)
    _check_order(name, self.dtype)
    if F.is_single(name, self, dim):
        return self.copy(), np.zeros((), np.int64)
    d = dim_of(name, dim, self.ndim)
    at = F.middle(name, self, d, skip_nan)
    values = np.take_along_axis(self, at, d)
    shape = at.shape if keepdim else self.shape[:d] + self.shape[d + 1:]
    return values.reshape(shape), at.reshape(shape)


# ---------------------------------------------------------------------------------------------------------- logsumexp, norm

@op(to_float=True)
def logsumexp(self, dim: Dims, keepdim: bool = False):
    """log of the sum of exp over `dim`, without overflow; -inf over nothing.

    Dtype: floating and complex; integers become the default float. Reference: torch.logsumexp.
    """
    own = self.dtype
    dims = dims_of("logsumexp", dim, self.ndim)

    def compute(x):
        top = F.largest(x.real, dims, True) if x.size else 0
        top = np.where(np.isfinite(top), top, x.real.dtype.type(0))
        return np.log(F.total(np.exp(x - top), dims, self.size)) + top
    return F.unkept(by_rows(compute, self.astype(accumulator(own), copy=False), dims), self.shape, dim, keepdim, own)

logsumexp.vjp(self=lambda grad, self, result, dim, keepdim:
              F.kept(grad, self.shape, dim, keepdim) * F.exp(self - F.kept(result, self.shape, dim, keepdim)).conj())


@op(may_be_integer=True, function=False, method=False, out=True)
def linalg_vector_norm(self, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """(sum of |x| ** ord) ** (1 / ord) over `dim`; inf, -inf: the largest, smallest |x|; 0: how many are not zero.

    Dtype: the real one of input or `dtype`.
    Raises: RuntimeError for integers and bools, and where nothing is reduced by an order without a neutral element.
    Reference: torch.linalg.vector_norm.
    """
    if _dtype.category(self.dtype) not in "fc":
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {_dtype.of(self.dtype)}: "
                           f"convert it first")
    if dtype is not None:
        wanted = _dtype.to_numpy(dtype)
        if _dtype.category(wanted) != _dtype.category(self.dtype) or wanted.itemsize < self.dtype.itemsize:
            raise RuntimeError(f"linalg.vector_norm: dtype should be {'complex' if self.dtype.kind == 'c' else 'floating'}, as the "
                               f"input, and not narrower than its {_dtype.of(self.dtype)}, but got {_dtype.of(wanted)}")
        self = self.astype(wanted, copy=False)
    dims = dims_of("linalg.vector_norm", dim, self.ndim)
    if (ord < 0 or ord == math.inf) and math.prod([self.shape[d] for d in dims]) == 0:
        raise RuntimeError(f"linalg.vector_norm: cannot compute the {ord} norm over dimensions {dims} of shape {self.shape}, which "
                           f"are empty: the operation does not have an identity")
    own = self.real.dtype

    def compute(x):
        size = np.abs(x)
        if ord == math.inf:
            return F.largest(size, dims, keepdim)
        if ord == -math.inf:
            return F.smallest(size, dims, keepdim)
        if ord == 0:
            return np.add.reduce(size != 0, dims, size.dtype, None, keepdim)
        if ord == 1:
            return np.add.reduce(size, dims, None, None, keepdim)
        if ord == 2:
            return np.sqrt(np.add.reduce(size * size, dims, None, None, keepdim))
        return np.add.reduce(size ** ord, dims, None, None, keepdim) ** (1 / ord)
    return by_rows(compute, self.astype(accumulator(self.dtype), copy=False), dims).astype(own, copy=False)

linalg_vector_norm.vjp(self=lambda grad, self, result, ord, dim, keepdim: F.norm_backward(grad, self, result, ord, dim, keepdim))


@composite(method=False, function=False)
def norm_backward(grad, self, result, ord, dim, keepdim):
    """The gradient of a norm: 0 where the norm is 0; equal extremes share it. A count has none."""
    if ord == 0:
        return None
    grad, result = F.kept(grad, self.shape, dim, keepdim), F.kept(result, self.shape, dim, keepdim)
    if ord == 1:
        return F.sgn(self) * grad
    if ord == 2:
        return grad * F.where(result == 0, 0, self / result)
    size = F.abs(self)
    if abs(ord) == math.inf:
        mask = (size == result) | ((size != size) & (result != result))
        return F.sgn(self) * (grad / F.sum(mask, dim, True)) * mask
    if ord < 1:
        return F.sgn(self) * F.where(self == 0, 0, size ** (ord - 1)) * grad * result ** (1 - ord)
    scale = F.where(result == 0, 0, grad / result ** (ord - 1))
    return F.sgn(self) * size ** (ord - 1) * scale if ord < 2 else self * size ** (ord - 2) * scale


@composite(out=True)
def norm(input, p="fro", dim=None, keepdim=False, *, dtype=None):
    """The p-norm over `dim`, of vectors: p a number, inf or "fro" (2); or the nuclear norm of matrices, "nuc".

    Raises: RuntimeError for another name. Reference: torch.norm.
    """
    if p == "nuc":
        return F.linalg_matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise RuntimeError(f"norm: Order {p} not supported: expected a number, 'fro' or 'nuc'")
    return F.linalg_vector_norm(input, p, dim, keepdim, dtype=dtype)


# ----------------------------------------------------------------------------------------------------------------- product

@op(node="Prod", digit=lambda dim: dim is not None, may_be_integer=True)
def prod(self, dim: int = None, keepdim: bool = False, *, dtype: DType = None):
    """The product over one dimension, or over all.

    Dtype: as sum. Raises: IndexError for a dimension there is not, TypeError for several.
    Reference: torch.prod; the derivative at an element is the product of the others, also where elements are zero.
    """
    if keepdim and dim is None:
        raise TypeError("prod(): keepdim needs a dim")
    dims = (*range(self.ndim),) if dim is None else (dim_of("prod", dim, self.ndim),)[:self.ndim]
    self = F.prepared(self, dtype)
    return np.multiply.reduce(self, dims, accumulator(self.dtype), None, keepdim).astype(self.dtype, "C", copy=False)

prod.vjp(self=lambda grad, self, result, dim, keepdim: F.prod_backward(grad, self, result, dim, keepdim))


@op(divert={"True": "prod_backward_tensor"}, method=False, function=False)
def prod_backward(grad, self, result, dim: int, keepdim: bool):
    """The gradient of prod, on arrays: without division by zero, without a look at values, which a GPU would wait for."""
    if not self.ndim:
        return grad
    dims = dims_of("prod", dim, self.ndim)
    if result.dtype.kind != "c":
        self = self.real                     # prod(dtype=...) of complex elements took their real parts
    zero = self == 0
    safe = np.where(zero, self.dtype.type(1), self)
    others = np.multiply.reduce(safe, dims, None, None, True)
    zeros = np.add.reduce(zero, dims, None, None, True)
    factor = np.where(zero, np.where(zeros == 1, others, 0), np.where(zeros == 0, others / safe, 0))
    return F.kept(grad, self.shape, dim, keepdim) * np.conjugate(factor)


@composite(method=False, function=False)
def prod_backward_tensor(grad, input, result, dim, keepdim):
    """prod_backward, recorded: what stands before an element times what stands behind it, if there are zeros."""
    shape = input.shape
    if not input.ndim:
        return grad
    if input.is_complex() and not result.is_complex():
        input = F.real(input)
    grad = F.kept(grad, shape, dim, keepdim)
    if not bool(F.any(input == 0)):
        return grad * (F.kept(result, shape, dim, keepdim) / input).conj()
    x, d = (F.reshape(input, (-1,)), 0) if dim is None else (input, dim_of("prod", dim, input.ndim))
    n = x.shape[d]
    one = F.ones_like(F.narrow(x, d, 0, 1))
    before = F.cumprod(F.cat([one, F.narrow(x, d, 0, n - 1)], d), d)
    behind = F.flip(F.cumprod(F.cat([one, F.flip(F.narrow(x, d, 1, n - 1), (d,))], d), d), (d,))
    return grad * F.reshape(before * behind, shape).conj()


# -------------------------------------------------------------------------------------------------- running sums, products

def _running(array):
    """The dtype in which sums are carried on from element to element: a double one on the CPU, as PyTorch's, so that errors do not grow."""
    wide = accumulator(array.dtype)
    return np.result_type(wide, np.float64) if array.__class__ is np.ndarray and wide.kind in "fc" else wide


@op(may_be_integer=True, inplace=True)
def cumsum(self, dim: int, *, dtype: DType = None):
    """The sums of the elements up to each one along a dimension.

    Dtype: as sum. Raises: IndexError for a dimension there is not. Reference: torch.cumsum.
    """
    d = dim_of("cumsum", dim, self.ndim)
    self = F.prepared(self, dtype)
    if not self.ndim:
        return self.copy()
    return np.ascontiguousarray(np.cumsum(self, d, _running(self)).astype(self.dtype, copy=False))

cumsum.vjp(self=lambda grad, dim: F.cumsum_reverse(grad, dim))


@op(method=False, function=False)
def cumsum_reverse(self, dim: int):
    """The sums of the elements from each one on along a dimension."""
    if not self.ndim:
        return self.copy()
    return np.flip(np.cumsum(np.flip(self, dim), dim, _running(self)), dim).astype(self.dtype, copy=False)

cumsum_reverse.vjp(self=lambda grad, dim: F.cumsum(grad, dim))


@op(may_be_integer=True, inplace=True)
def cumprod(self, dim: int, *, dtype: DType = None):
    """The products of the elements up to each one along a dimension.

    Dtype: as sum. Raises: IndexError for a dimension there is not.
    Reference: torch.cumprod; the derivative is right also where elements are zero.
    """
    d = dim_of("cumprod", dim, self.ndim)
    self = F.prepared(self, dtype)
    if not self.ndim:
        return self.copy()
    return np.ascontiguousarray(np.cumprod(self, d, accumulator(self.dtype)).astype(self.dtype, copy=False))

cumprod.vjp(self=lambda grad, self, result, dim: F.cumprod_backward(grad, self, result, dim))


@op(divert={"True": "cumprod_backward_tensor"}, method=False, function=False)
def cumprod_backward(grad, self, result, dim: int):
    """The gradient of cumprod, on arrays.

    Before a row's first zero it is the sum of grad * result from there on, divided by the element; at the zero the same sum
    with 1 in the zero's place; behind it nothing, as every later product keeps that zero.
    """
    if self.size <= 1 or self.shape[dim] == 1:
        return grad
    if result.dtype.kind != "c":
        self = self.real
    zero = self == 0
    zeros = np.cumsum(zero, dim)
    first = zero & (zeros == 1)
    one = self.dtype.type(1)
    filled = np.cumprod(np.where(first, one, self), dim)
    ahead = F.cumsum_reverse(grad * np.conjugate(result), dim) / np.conjugate(np.where(zero, one, self))
    at = F.cumsum_reverse(np.where(zeros == 0, 0, grad * np.conjugate(filled)), dim)
    return np.where(zeros == 0, ahead, np.where(first, at, 0))


@composite(method=False, function=False)
def cumprod_backward_tensor(grad, input, result, dim):
    """cumprod_backward, recorded. With zeros it needs the products between each two elements: memory grows as the square."""
    if input.numel() <= 1 or input.shape[dim] == 1:               # a constant, as in PyTorch
        return grad
    if input.is_complex() and not result.is_complex():
        input = F.real(input)
    if not bool(F.any(input == 0)):
        return F.cumsum_reverse(grad * result.conj(), dim) / input.conj()
    x = F.transpose(input, dim, -1).conj()
    row = F.unsqueeze(x, -2)
    later = F.later(x)                                            # [i, k]: k > i
    between = F.cumprod(F.where(later, row, 1), -1)               # the product of the elements behind i up to k
    onward = F.sum(F.where(F.transpose(later, 0, 1), 0, F.unsqueeze(F.transpose(grad, dim, -1), -2) * between), -1)
    before = F.prod(F.where(F.transpose(later, 0, 1), row, 1), -1)
    return F.transpose(before * onward, dim, -1)


@op(method=False, function=False)
def later(self):
    """For the last dimension's size n, the n x n bools [i, k]: k > i."""
    at = np.arange(self.shape[-1])
    return at[:, None] < at
