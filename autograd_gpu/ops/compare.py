"""Comparison, logic and bits: results without a derivative."""
from __future__ import annotations

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise
from autograd_gpu.ops.operands import of_tensors, refuse

# ------------------------------------------------------------------------------------------------------------- comparison

@elementwise(divert=of_tensors("eq", second=None))
def eq(self, other):
    """Whether the elements are equal. Reference: torch.eq."""
    return np.equal(self, other)


@elementwise(divert=of_tensors("ne", second=None))
def ne(self, other):
    """Whether the elements differ. Reference: torch.ne."""
    return np.not_equal(self, other)


@elementwise(divert=of_tensors("lt", second=None))
def lt(self, other):
    """Whether self is less. Reference: torch.lt."""
    if self.dtype.kind == "c":
        refuse("lt", self, "c")
    return np.less(self, other)


@elementwise(divert=of_tensors("le", second=None))
def le(self, other):
    """Whether self is less or equal. Reference: torch.le."""
    if self.dtype.kind == "c":
        refuse("le", self, "c")
    return np.less_equal(self, other)


@elementwise(divert=of_tensors("gt", second=None))
def gt(self, other):
    """Whether self is greater. Reference: torch.gt."""
    if self.dtype.kind == "c":
        refuse("gt", self, "c")
    return np.greater(self, other)


@elementwise(divert=of_tensors("ge", second=None))
def ge(self, other):
    """Whether self is greater or equal. Reference: torch.ge."""
    if self.dtype.kind == "c":
        refuse("ge", self, "c")
    return np.greater_equal(self, other)


@composite(inplace=True, out=True)
def not_equal(input, other):
    """ne. Reference: torch.not_equal."""
    return F.ne(input, other)


@composite(inplace=True, out=True)
def less(input, other):
    """lt. Reference: torch.less."""
    return F.lt(input, other)


@composite(inplace=True, out=True)
def less_equal(input, other):
    """le. Reference: torch.less_equal."""
    return F.le(input, other)


@composite(inplace=True, out=True)
def greater(input, other):
    """gt. Reference: torch.greater."""
    return F.gt(input, other)


@composite(inplace=True, out=True)
def greater_equal(input, other):
    """ge. Reference: torch.greater_equal."""
    return F.ge(input, other)


def _alike(name, a, b):
    """Raises RuntimeError unless two tensors have one dtype, TypeError for what is no Tensor."""
    for t in (a, b):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): both operands must be Tensors, got {type(t).__name__}")
    if a.dtype != b.dtype:
        raise RuntimeError(f"{name}: {a.dtype} did not match {b.dtype}: convert one of the tensors, with .to(dtype)")


@composite
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other|, or both are the same infinity.

    Raises: RuntimeError for tensors of different dtypes or a negative tolerance. Reference: torch.isclose.
    """
    _alike("isclose", input, other)
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"isclose: rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}")
    return F.close(input, other, rtol, atol, equal_nan)


@elementwise(method=False, function=False, inplace=False)
def close(self, other, rtol: float, atol: float, equal_nan: bool):
    """isclose, unchecked."""
    same = np.equal(self, other)
    if equal_nan and self.dtype.kind not in "biu":
        same = same | (np.isnan(self) & np.isnan(other))
    if self.dtype.kind in "biu":
        if rtol == atol == 0:
            return same
        self, other = self.astype(np.float64), other.astype(np.float64)
    gap = np.absolute(self - other)
    return same | (np.isfinite(gap) & (gap <= atol + np.absolute(rtol * other)))


@composite
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close, as a bool; see isclose. Reference: torch.allclose."""
    return bool(F.all(F.isclose(input, other, rtol, atol, equal_nan)))


@composite
def equal(input, other):
    """Whether shape and elements are equal, as a bool; dtypes may differ. Reference: torch.equal."""
    return tuple(input.shape) == tuple(other.shape) and bool(F.all(F.eq(input, other)))


# ------------------------------------------------------------------------------------------------------ kinds of numbers

@elementwise(inplace=False, out=False)
def isnan(self):
    """Whether elements are NaN. Reference: torch.isnan."""
    return np.isnan(self)


@elementwise(inplace=False, out=False)
def isinf(self):
    """Whether elements are infinite. Reference: torch.isinf."""
    return np.isinf(self)


@elementwise(inplace=False, out=False)
def isfinite(self):
    """Whether elements are neither infinite nor NaN. Reference: torch.isfinite."""
    return np.isfinite(self)


@elementwise(inplace=False)
def isposinf(self):
    """Whether elements are inf. Raises RuntimeError for complex. Reference: torch.isposinf."""
    refuse("isposinf", self, "c", RuntimeError)
    return self == np.inf


@elementwise(inplace=False)
def isneginf(self):
    """Whether elements are -inf. Raises RuntimeError for complex. Reference: torch.isneginf."""
    refuse("isneginf", self, "c", RuntimeError)
    return self == -np.inf


@elementwise(inplace=False, out=False)
def isreal(self):
    """Whether elements have no imaginary part. Reference: torch.isreal."""
    return self.imag == 0 if self.dtype.kind == "c" else np.ones_like(self, dtype=np.bool_)


@elementwise(inplace=False)
def signbit(self):
    """Whether elements have a minus sign. Raises RuntimeError for complex. Reference: torch.signbit."""
    refuse("signbit", self, "c")
    return np.signbit(self) if self.dtype.kind not in "biu" else self < 0


# ------------------------------------------------------------------------------------------------------------------ logic

@elementwise(divert=of_tensors("logical_and"))
def logical_and(self, other):
    """Whether both elements are true. Reference: torch.logical_and."""
    return np.logical_and(self, other)


@elementwise(divert=of_tensors("logical_or"))
def logical_or(self, other):
    """Whether at least one element is true. Reference: torch.logical_or."""
    return np.logical_or(self, other)


@elementwise(divert=of_tensors("logical_xor"))
def logical_xor(self, other):
    """Whether exactly one element is true. Reference: torch.logical_xor."""
    return np.logical_xor(self, other)


@elementwise()
def logical_not(self):
    """Whether the element is false. Reference: torch.logical_not."""
    return np.logical_not(self)


# ------------------------------------------------------------------------------------------------------------------- bits

@elementwise()
def bitwise_and(self, other):
    """The bits set in both; of bools, logical and. Reference: torch.bitwise_and."""
    return np.bitwise_and(self, other)


@elementwise()
def bitwise_or(self, other):
    """The bits set in either; of bools, logical or. Reference: torch.bitwise_or."""
    return np.bitwise_or(self, other)


@elementwise()
def bitwise_xor(self, other):
    """The bits set in one of both; of bools, logical xor. Reference: torch.bitwise_xor."""
    return np.bitwise_xor(self, other)


@elementwise()
def bitwise_not(self):
    """The other bits; of bools, logical not. Reference: torch.bitwise_not."""
    return np.invert(self)


@elementwise()
def bitwise_left_shift(self, other):
    """self times 2 to the power of other. Reference: torch.bitwise_left_shift."""
    refuse("bitwise_left_shift", self, "bfcV")
    return np.left_shift(self, other)


@elementwise()
def bitwise_right_shift(self, other):
    """self divided by 2 to the power of other, rounded down. Reference: torch.bitwise_right_shift."""
    refuse("bitwise_right_shift", self, "bfcV")
    return np.right_shift(self, other)


@elementwise(node="torch::autograd::NotImplemented", promote=[], divert=of_tensors("heaviside", second="values"))
def heaviside(self, values):
    """0 where self is negative, 1 where it is positive, values where it is 0.

    Raises: RuntimeError for operands of different dtypes and for complex. Reference: torch.heaviside.
    """
    if self.dtype != values.dtype:
        raise RuntimeError(f"heaviside: not available for tensors with different dtypes, got {_dtype.of(self.dtype)} and "
                           f"{_dtype.of(values.dtype)}: convert one of them, with .to(dtype)")
    refuse("heaviside", self, "c", RuntimeError)
    return np.where(self == 0, values, np.greater(self, 0).astype(self.dtype))

heaviside.vjp(self=lambda grad: F.not_differentiable(grad, "heaviside"), values=lambda grad: F.not_differentiable(grad, "heaviside"))
