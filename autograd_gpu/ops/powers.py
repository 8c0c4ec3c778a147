"""Powers and roots: each element from the elements at its place."""
from __future__ import annotations

import cmath
import math
from numbers import Number

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise
from autograd_gpu.ops.operands import NOT_NUMBER, beside, check_number, held, of_tensors, refuse


def _plain(value):
    """A number as Python's int, float or complex; anything else as it is."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, bool) else value


def _integer_power(self, exponent):
    """A power of integers: where the exponent is negative, what truncating the fraction leaves."""
    if self.dtype.kind == exponent.dtype.kind == "b":
        refuse("pow", self, "b")
    below = exponent < 0
    if not below.any():
        return np.power(self, exponent)
    unit = np.where(self == 1, 1, np.where(self == -1, 1 - 2 * (exponent & 1), 0))
    return np.where(below, unit, np.power(self, np.where(below, 0, exponent))).astype(np.result_type(self, exponent))


@elementwise(node="PowBackward0", divert={NOT_NUMBER.format("exponent"): "pow_other"})
def pow(self, exponent: Number):
    """self to the power of exponent, which may be a number or a Tensor; either operand may be the number.

    Raises: RuntimeError for integers to a negative integer power. Reference: torch.pow.
    """
    if exponent == 2 and self.dtype.kind == "f":
        return np.multiply(self, self)
    if self.dtype.kind in "biu":
        self = beside(self, exponent)
        if self.dtype.kind in "iu" and not -1 << 63 <= exponent < 1 << 63:
            raise RuntimeError(f"pow: exponent {exponent} cannot be converted to type int64 without overflow: give a float")
        if self.dtype.kind in "iu" and exponent < 0:
            raise RuntimeError(f"pow: Integers to negative integer powers are not allowed, got exponent {exponent}: convert the "
                               f"tensor to a floating dtype first")
    if exponent.__class__ is complex and self.dtype.kind != "c":
        self = self.astype(_dtype.of(self.dtype).to_complex().dtype)
    if exponent == 2:
        return np.multiply(self, self)
    if exponent == 0:
        return np.ones_like(self)
    if exponent == 3:
        return self * self * self
    if exponent == 0.5:
        return np.sqrt(self)
    if exponent == -1:
        return F.inverted(self)
    if exponent == -0.5:
        return F.inverted(np.sqrt(self))
    if exponent == -2 and self.dtype.kind == "c":
        return F.inverted(self * self)
    return np.power(self, exponent)

pow.vjp(self=lambda grad, self, exponent: F.pow_grad(grad, self, exponent))


@composite(method=False, function=False)
def pow_grad(grad, self, exponent):
    """The derivative of self ** exponent for a number: 0 where the exponent is 0, also at 0."""
    if exponent == 2:
        return F.square_grad(grad, self)
    if exponent == 0:
        return F.no_gradient(grad)
    return grad * (exponent * F.pow(self, exponent - 1)).conj()


@elementwise(node="MulBackward0", method=False, function=False, inplace=False)
def square_grad(grad_output, self):
    """grad_output * 2 * self: one node, where PyTorch records two multiplications, under the name of the outer one."""
    twice = self.conj()
    return grad_output * (twice + twice)     # a Python number beside a small array costs as much as another operation

square_grad.vjp(grad_output=lambda grad, self: F.square_grad(grad, self.conj()),
                # with the history of self, as PyTorch's graph has it: a third derivative is 0, not absent
                self=lambda grad, grad_output, self: F.led_to(grad.conj() * (grad_output + grad_output), self))


@composite(method=False, function=False, arrays=lambda x, other: x)
def led_to(x, other):
    """x, of which other is an origin, too: its gradient there is 0."""
    return x * F.pow(other, 0)


@composite(method=False, function=False)
def pow_other(self, exponent):
    """pow of a Tensor or a number to a Tensor, or to a number of another type."""
    if isinstance(exponent, (bool, np.bool_)) and isinstance(self, Tensor) and self._array.dtype.kind == "b":
        return F.clone(self) if exponent else F.logical_or(self, F.logical_not(self))
    exponent, self = _plain(exponent), _plain(self)
    if isinstance(exponent, (int, float, complex)):
        return F.pow(self, exponent)
    if isinstance(self, (int, float, complex)) and isinstance(exponent, Tensor):
        return F.pow_base(self, exponent)
    if not isinstance(exponent, (Tensor, np.ndarray)) and hasattr(type(exponent), "__rpow__"):
        return NotImplemented
    if not isinstance(exponent, (Tensor, np.ndarray)) and not hasattr(exponent, "__cuda_array_interface__"):
        check_number("pow", "exponent", exponent)
    return F.pow_tensors(self, exponent)


@elementwise(node="PowBackward1", method=False, function=False)
def pow_tensors(self, exponent):
    """self ** exponent for Tensors."""
    if self.dtype.kind in "biu" and exponent.dtype.kind in "biu":
        return _integer_power(self, exponent)
    return np.power(self, exponent)

pow_tensors.vjp(
    self=lambda grad, self, exponent: F.where(exponent == 0, 0, grad * (exponent * F.pow_tensors(self, exponent - 1)).conj()),
    exponent=lambda grad, self, exponent, result: F.where(
        (self == 0) & F.not_negative(exponent), 0, grad * (result * F.log(F.alike(self, result))).conj()))


@composite(method=False, function=False)
def not_negative(exponent):
    """Whether 0 to the power of exponent is finite and flat: where it is real and not negative."""
    if exponent.dtype.kind != "c":
        return exponent >= 0
    return (F.imag(exponent) == 0) & (F.real(exponent) >= 0)


@composite(method=False, function=False)
def alike(self, other):
    """self in other's dtype."""
    return self if self.dtype == other.dtype else F.to_copy(self, other.dtype)


@elementwise(node="PowBackward2", method=False, function=False, inplace=False)
def pow_base(base: Number, exponent):
    """base ** exponent with a number as the base."""
    exponent = beside(exponent, base)
    if exponent.dtype.kind in "iu":
        return _integer_power(np.asarray(held(base, exponent), exponent.dtype), exponent)
    return np.power(base, exponent)

pow_base.vjp(exponent=lambda grad, base, exponent, result: F.pow_base_grad(grad, base, exponent, result))


@composite(method=False, function=False)
def pow_base_grad(grad, base, exponent, result):
    """The derivative of base ** exponent: 0 at base 0 as far as the power itself is finite."""
    if base == 0:
        return F.where(F.real(exponent) >= 0, 0, grad * (result * -math.inf))
    if isinstance(base, complex) or exponent.dtype.kind == "c":
        log = cmath.log(base)
    else:
        log = math.log(base) if base > 0 else math.nan
    return F.times_conj(grad * result.conj(), log)


@composite(method=False, function=False)
def rpow(self, other):
    """other ** self."""
    return F.pow_other(other, self)


@composite(inplace=True, out=True)
def square(input):
    """input * input. Reference: torch.square."""
    return F.pow(input, 2)


@composite(inplace=True, out=True)
def float_power(input, exponent):
    """input ** exponent in float64 or complex128. Reference: torch.float_power."""
    wide = np.dtype(np.complex128 if any(isinstance(x, complex) or (isinstance(x, Tensor) and x._array.dtype.kind == "c")
                                         for x in (input, exponent)) else np.float64)
    return F.pow(*[x.to(wide) if isinstance(x, Tensor) else x for x in (input, exponent)])


@elementwise(to_float=True, domain=(0.1, 2))
def sqrt(self):
    """The square root. Reference: torch.sqrt."""
    return np.sqrt(self)

sqrt.vjp(self=lambda grad, result: grad / (2 * result.conj()))


@composite(method=False, function=False)
def inverted(self):
    """1 / self on arrays. np.reciprocal's real part is NaN for a complex 0, where that of a quotient is infinite, as PyTorch's."""
    return self.dtype.type(1) / self if self.dtype.kind == "c" else np.reciprocal(self)


@elementwise(to_float=True)
def reciprocal(self):
    """1 / self; integers become the default float. Reference: torch.reciprocal."""
    return F.inverted(self)

reciprocal.vjp(self=lambda grad, result: -grad * (result * result).conj())


@elementwise(to_float=True, domain=(0.1, 2))
def rsqrt(self):
    """1 / sqrt(self). Reference: torch.rsqrt."""
    return F.inverted(np.sqrt(self))

rsqrt.vjp(self=lambda grad, result: -0.5 * grad * (result * result * result).conj())


@elementwise(divert=of_tensors("hypot"))
def hypot(self, other):
    """sqrt(self² + other²). Raises NotImplementedError for other than floating dtypes. Reference: torch.hypot."""
    refuse("hypot", self, "biuc")
    return np.hypot(self, other)

hypot.vjp(self=lambda grad, self, result: grad * self / result, other=lambda grad, other, result: grad * other / result)
