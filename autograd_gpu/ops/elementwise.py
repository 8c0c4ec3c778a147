"""Arithmetic, powers, rounding: each element from the elements at its place."""
from __future__ import annotations

from numbers import Number

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise
from autograd_gpu.ops.operands import NOT_NUMBER, beside, check_number, held, of_tensors, refuse


def _check_alpha(name, factor, array):
    """A factor as Python's number. Raises RuntimeError for one that the operands' dtype cannot hold, TypeError for what is no number."""
    factor = check_number(name, "alpha" if name in ("add", "sub", "rsub") else "weight" if name == "lerp" else "value", factor)
    level = "b" if isinstance(factor, int) else "f" if isinstance(factor, float) else "c"
    if level != "b" and _dtype.category(array.dtype) in ("bi" if level == "f" else "bif"):
        raise RuntimeError(f"{name}: For {_dtype.of(array.dtype)} tensors the factor must not be a {type(factor).__name__}, got "
                           f"{factor}: convert the tensors, or scale one of them first")
    return factor


def _by_zero(name):
    return RuntimeError(f"{name}: ZeroDivisionError: the integer divisor is 0: convert the operands to a floating dtype, or replace "
                        f"the zeros first")


def _check_divisor(name, other):
    """Raises RuntimeError for a division of integers by zero, which floating numbers would answer with inf or nan."""
    if other.dtype.kind in "iu" and not other.all():
        raise _by_zero(name)


@elementwise(method=False, function=False, inplace=False)
def no_gradient(grad):
    """Zeros: the gradient through a function that is constant between its jumps."""
    return np.zeros_like(grad)


@composite(method=False, function=False)
def times_conj(grad, number):
    """The gradient through a multiplication by a number."""
    return grad * number.conjugate()


@composite(method=False, function=False)
def not_differentiable(grad, name):
    """Raises RuntimeError: PyTorch records such an op and has no derivative of it."""
    raise RuntimeError(f"derivative for aten::{name} is not implemented: take it out of the graph, with detach() on its operands")


# ------------------------------------------------------------------------------------------------------------ arithmetic

@elementwise(divert={"alpha != 1": "add_scaled"})
def add(self, other, *, alpha: Number = 1):
    """self + alpha * other.

    Dtype: torch.result_type of the operands.
    Raises: RuntimeError for a fractional alpha with integer operands.
    Reference: torch.add.
    """
    return np.add(self, other)

add.vjp(self=lambda grad: grad, other=lambda grad: grad)


@elementwise(node="AddBackward0", method=False, function=False)
def add_scaled(self, other, *, alpha: Number = 1):
    """self + alpha * other where alpha is not 1."""
    alpha = _check_alpha("add", alpha, self)
    return (self + held(alpha, self) * other).astype(self.dtype, copy=False)

add_scaled.vjp(self=lambda grad: grad, other=lambda grad, alpha: F.times_conj(grad, alpha))


@elementwise(divert={"alpha != 1": "sub_scaled"})
def sub(self, other, *, alpha: Number = 1):
    """self - alpha * other. Raises RuntimeError for bool and for a fractional alpha with integers. Reference: torch.sub."""
    return np.subtract(self, other)

sub.vjp(self=lambda grad: grad, other=lambda grad: -grad)


@elementwise(node="SubBackward0", method=False, function=False)
def sub_scaled(self, other, *, alpha: Number = 1):
    """self - alpha * other where alpha is not 1."""
    if self.dtype.kind == "b":
        raise RuntimeError("sub: Subtraction with a bool is not supported: use ^ (logical_xor) for two bools, or convert with .to()")
    alpha = _check_alpha("sub", alpha, self)
    return np.subtract(self, held(alpha, self) * other)

sub_scaled.vjp(self=lambda grad: grad, other=lambda grad, alpha: F.times_conj(grad, -alpha))


@elementwise(node="RsubBackward1", inplace=False, method=False, divert={NOT_NUMBER.format("other"): "rsub_tensors"}, out=False)
def rsub(self, other: Number, *, alpha: Number = 1):
    """other - alpha * self. Raises RuntimeError for bool. Reference: torch.rsub."""
    if self.dtype.kind == "b":
        raise RuntimeError("rsub: Subtraction with a bool is not supported: use ~ to invert a mask, or convert it with .to()")
    self = beside(self, other)
    return np.subtract(held(other, self), self if alpha == 1 else held(alpha, self) * self)

rsub.vjp(self=lambda grad, alpha: F.times_conj(grad, -alpha))


@elementwise(node="RsubBackward0", inplace=False, method=False, function=False, divert=of_tensors("rsub", second=None))
def rsub_tensors(self, other, *, alpha: Number = 1):
    """other - alpha * self for Tensors."""
    alpha = _check_alpha("rsub", alpha, self)
    return np.subtract(other, self if alpha == 1 else held(alpha, self) * self)

rsub_tensors.vjp(self=lambda grad, alpha: F.times_conj(grad, -alpha), other=lambda grad: grad)


@elementwise()
def mul(self, other):
    """self * other. Reference: torch.mul."""
    return np.multiply(self, other)

mul.vjp(self=lambda grad, other: grad * other.conj(), other=lambda grad, self: grad * self.conj())


@composite(inplace=True, out=True)
def multiply(input, other):
    """input * other. Reference: torch.multiply."""
    return F.mul(input, other)


@composite(inplace=True, out=True)
def subtract(input, other, *, alpha=1):
    """input - alpha * other. Reference: torch.subtract."""
    return F.sub(input, other, alpha=alpha)


@elementwise(to_float=True, divert={"rounding_mode is not None": "div_rounded"})
def div(self, other, *, rounding_mode: str | None = None):
    """self / other; integers are divided as the default float. `rounding_mode`: None, "trunc" or "floor". Reference: torch.div."""
    return np.true_divide(self, other)

div.vjp(self=lambda grad, other: grad / other.conj(),
        other=lambda grad, self, other: -grad * ((self / other) / other).conj())


@elementwise(node="DivBackward2", method=False, function=False)
def div_rounded(self, other, *, rounding_mode: str | None = None):
    """self / other, rounded towards zero ("trunc") or down ("floor"); integers stay integers."""
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}")
    refuse("div", self, "bc")
    _check_divisor("div", other)
    if rounding_mode == "floor":
        return np.floor_divide(self, other)
    if self.dtype.kind not in "iu":
        return np.trunc(self / other)
    down = np.floor_divide(self, other)
    return down + ((down < 0) & (down * other != self)).astype(down.dtype)

div_rounded.vjp(self=lambda grad, other: F.no_gradient(grad), other=lambda grad, self, other: F.no_gradient(grad))


@composite(inplace=True, out=True)
def divide(input, other, *, rounding_mode=None):
    """input / other. Reference: torch.divide."""
    return F.div(input, other, rounding_mode=rounding_mode)


@composite(inplace=True, out=True)
def true_divide(input, other):
    """input / other. Reference: torch.true_divide."""
    return F.div(input, other)


@composite(method=False, function=False)
def rdiv(self, other):
    """other / self for a number: two nodes, as PyTorch records it."""
    return F.mul(F.reciprocal(self), other)


@elementwise(node="torch::autograd::NotImplemented")
def floor_divide(self, other):
    """self / other rounded down; recorded, without a derivative, as in PyTorch.

    Raises: RuntimeError for an integer divisor of 0 and for bool. Reference: torch.floor_divide.
    """
    refuse("floor_divide", self, "bc")
    _check_divisor("floor_divide", other)
    return np.floor_divide(self, other)

floor_divide.vjp(self=lambda grad: F.not_differentiable(grad, "floor_divide"),
                 other=lambda grad: F.not_differentiable(grad, "floor_divide"))


@composite(method=False, function=False)
def rfloordiv(self, other):
    """other // self for a number."""
    return F.floor_divide(other, self)


@elementwise(node="RemainderBackward0", divert={NOT_NUMBER.format("other"): "remainder_tensors"})
def remainder(self, other: Number):
    """What a division rounded down leaves, with the divisor's sign. Raises RuntimeError for integer 0. Reference: torch.remainder."""
    self = beside(self, other)
    refuse("remainder", self, "bc")
    other = held(other, self)
    if self.dtype.kind in "iu" and other == 0:
        raise _by_zero("remainder")
    return np.remainder(self, other)

remainder.vjp(self=lambda grad: grad)


@elementwise(node="RemainderBackward1", method=False, function=False)
def remainder_tensors(self, other):
    """remainder of Tensors."""
    refuse("remainder", self, "bc")
    _check_divisor("remainder", other)
    return np.remainder(self, other)

remainder_tensors.vjp(self=lambda grad: grad,
                      other=lambda grad, self, other: -grad * F.div_rounded(F.alike(self, grad), F.alike(other, grad),
                                                                            rounding_mode="floor"))


@composite(method=False, function=False)
def rremainder(self, other):
    """other % self for a number."""
    return F.remainder_of_number(other, self) if isinstance(other, Number) else F.remainder_tensors(other, self)


@elementwise(node="torch::autograd::NotImplemented", method=False, function=False, inplace=False)
def remainder_of_number(value: Number, other):
    """A number % other; recorded, without a derivative, as in PyTorch."""
    other = beside(other, value)
    return F.remainder_tensors(np.asarray(value).astype(other.dtype), other)

remainder_of_number.vjp(other=lambda grad: F.not_differentiable(grad, "remainder"))


@elementwise(node="FmodBackward0", divert={NOT_NUMBER.format("other"): "fmod_tensors"})
def fmod(self, other: Number):
    """What a division rounded towards zero leaves, with self's sign. Raises RuntimeError for an integer 0. Reference: torch.fmod."""
    self = beside(self, other)
    refuse("fmod", self, "bc")
    other = held(other, self)
    if self.dtype.kind in "iu" and other == 0:
        raise _by_zero("fmod")
    return np.fmod(self, other)

fmod.vjp(self=lambda grad: grad)


@elementwise(node="FmodBackward1", method=False, function=False, divert=of_tensors("fmod", second=None))
def fmod_tensors(self, other):
    """fmod of Tensors."""
    refuse("fmod", self, "bc")
    _check_divisor("fmod", other)
    return np.fmod(self, other)

fmod_tensors.vjp(self=lambda grad: grad,
                 other=lambda grad, self, other: -grad * F.div_rounded(F.alike(self, grad), F.alike(other, grad),
                                                                       rounding_mode="trunc"))


@elementwise()
def neg(self):
    """-self. Raises RuntimeError for bool. Reference: torch.neg."""
    return np.negative(self)

neg.vjp(self=lambda grad: -grad)


@composite(inplace=True, out=True)
def negative(input):
    """-input. Reference: torch.negative."""
    return F.neg(input)


@composite
def positive(input):
    """input. Raises RuntimeError for bool. Reference: torch.positive."""
    if input.dtype.kind == "b":
        raise RuntimeError("positive: The `+` operator, on a bool tensor is not supported: convert it first, with .to(torch.int64)")
    return input


@elementwise()
def abs(self):
    """The absolute value; of complex numbers real. Raises NotImplementedError for bools. Reference: torch.abs."""
    refuse("abs", self, "b")
    return np.absolute(self)

abs.vjp(self=lambda grad, self: grad * F.sgn(self))


@composite(inplace=True, out=True)
def absolute(input):
    """The absolute value. Reference: torch.absolute."""
    return F.abs(input)


@elementwise()
def sign(self):
    """-1, 0 or 1. Raises RuntimeError for complex: see sgn. Reference: torch.sign."""
    refuse("sign", self, "c")
    above = np.greater(self, 0)
    return above if self.dtype.kind == "b" else above.astype(self.dtype) - np.less(self, 0).astype(self.dtype)

sign.vjp(self=lambda grad: F.no_gradient(grad))


@elementwise()
def sgn(self):
    """self / |self|, and 0 at 0. Reference: torch.sgn."""
    if self.dtype.kind != "c":
        return F.sign(self)
    length = np.absolute(self)
    return np.where(self == 0, self.dtype.type(0), self.real / length + self.imag / length * 1j)

sgn.vjp(self=lambda grad, self, result: F.sgn_grad(grad, self, result))


@composite(method=False, function=False)
def sgn_grad(grad, self, result):
    """Across the circle nothing changes; along it, as much as 1 / |self|."""
    if self.dtype.kind != "c":
        return F.no_gradient(grad)
    along = F.where(self == 0, 0, grad - result * F.real(result.conj() * grad))         # or the tangent at 0 is no number
    return F.where(self == 0, 0, along / F.abs(self))


@elementwise(to_float=True, divert=of_tensors("copysign", second=None), without_tangent=("other",))
def copysign(self, other):
    """|self| with other's sign; integers become the default float. Reference: torch.copysign."""
    return np.copysign(self, other)

copysign.vjp(self=lambda grad, self, result: F.where(self == 0, 0, grad * (result / F.nonzeros(self))),
             other=lambda grad: F.no_gradient(grad))


# --------------------------------------------------------------------------------------------- several operations in one

def _check_end(self, end):
    """Raises RuntimeError unless both ends are of one dtype."""
    if self.dtype != end.dtype:
        raise RuntimeError(f"lerp: expected dtype {_dtype.of(self.dtype)} for `end` but got dtype {_dtype.of(end.dtype)}: convert it, "
                           f"with .to(dtype)")


@elementwise(promote=[], divert={"isinstance(weight, Tensor)": "lerp_tensors"})
def lerp(self, end, weight: Number):
    """self + weight * (end - self), exact at both ends.

    Raises: RuntimeError for ends of different dtypes, NotImplementedError for integers. Reference: torch.lerp.
    """
    _check_end(self, end)
    refuse("lerp", self, "biu")
    weight = _check_alpha("lerp", weight, self)
    return self + weight * (end - self) if (weight * weight.conjugate()).real < 0.25 else end - (end - self) * (1 - weight)

lerp.vjp(self=lambda grad, weight: F.times_conj(grad, 1 - weight), end=lambda grad, weight: F.times_conj(grad, weight))


@elementwise(node="LerpBackward1", promote=[], method=False, function=False)
def lerp_tensors(self, end, weight):
    """lerp with a Tensor as the weight."""
    _check_end(self, end)
    if self.dtype != weight.dtype:
        if weight.ndim:
            raise RuntimeError(f"lerp: expected dtype {_dtype.of(self.dtype)} for `weight` but got dtype {_dtype.of(weight.dtype)}: "
                               f"convert it, with .to(dtype)")
        weight = weight.astype(self.dtype)
    refuse("lerp", self, "biu")
    return F.where(np.absolute(weight) < 0.5, self + weight * (end - self), end - (end - self) * (1 - weight))

lerp_tensors.vjp(self=lambda grad, weight: grad * (1 - weight).conj(), end=lambda grad, weight: grad * weight.conj(),
                 weight=lambda grad, self, end: grad * (end - self).conj())


@elementwise()
def addcmul(self, tensor1, tensor2, *, value: Number = 1):
    """self + value * tensor1 * tensor2; with integers value loses its fraction. Reference: torch.addcmul."""
    refuse("addcmul", self, "b")
    if self.dtype.kind in "iu" and isinstance(value, (float, np.floating)):
        value = int(value)
    value = _check_alpha("addcmul", value, self)
    return self + held(value, self) * tensor1 * tensor2

addcmul.vjp(self=lambda grad: grad, tensor1=lambda grad, tensor2, value: F.times_conj(grad * tensor2.conj(), value),
            tensor2=lambda grad, tensor1, value: F.times_conj(grad * tensor1.conj(), value))


@elementwise()
def addcdiv(self, tensor1, tensor2, *, value: Number = 1):
    """self + value * tensor1 / tensor2. Raises RuntimeError for integers. Reference: torch.addcdiv."""
    if self.dtype.kind in "biu":
        raise RuntimeError(f"addcdiv: Integer division with addcdiv is not supported, got {_dtype.of(self.dtype)}: convert the "
                           f"tensors to a floating dtype, or use self + value * torch.trunc(tensor1 / tensor2)")
    value = _check_alpha("addcdiv", value, self)
    return self + value * tensor1 / tensor2

addcdiv.vjp(self=lambda grad: grad, tensor1=lambda grad, tensor2, value: F.times_conj(grad / tensor2.conj(), value),
            tensor2=lambda grad, tensor1, tensor2, value: -grad * (value * tensor1 / (tensor2 * tensor2)).conj())


# -------------------------------------------------------------------------------------------------------------- rounding

def _rounded(name, ufunc, array):
    """A rounding function on floating arrays; integers are what they are."""
    refuse(name, array, "bc")
    return +array if array.dtype.kind in "iu" else ufunc(array)


@elementwise()
def floor(self):
    """The largest integer not above self. Reference: torch.floor."""
    return _rounded("floor", np.floor, self)

floor.vjp(self=lambda grad: F.no_gradient(grad))


@elementwise()
def ceil(self):
    """The smallest integer not below self. Reference: torch.ceil."""
    return _rounded("ceil", np.ceil, self)

ceil.vjp(self=lambda grad: F.no_gradient(grad))


@elementwise()
def trunc(self):
    """self without its fraction. Reference: torch.trunc."""
    return _rounded("trunc", np.trunc, self)

trunc.vjp(self=lambda grad: F.no_gradient(grad))


@composite(inplace=True, out=True)
def fix(input):
    """input without its fraction. Reference: torch.fix."""
    return F.trunc(input)


@elementwise(divert={"decimals is not None": "round_decimals"})
def round(self, *, decimals: int | None = None):
    """The nearest integer, halves to the even one; or the nearest multiple of 10 ** -decimals. Reference: torch.round."""
    return _rounded("round", np.rint, self)

round.vjp(self=lambda grad: F.no_gradient(grad))


@elementwise(node="RoundBackward1", method=False, function=False)
def round_decimals(self, *, decimals: int):
    """round with decimals given, also 0."""
    refuse("round", self, "biuc")
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    return np.rint(self * scale) / scale if decimals > 0 else np.rint(self / scale) * scale

round_decimals.vjp(self=lambda grad: F.no_gradient(grad))


@elementwise()
def frac(self):
    """The fraction, with self's sign. Reference: torch.frac."""
    refuse("frac", self, "biuc")
    return self - np.trunc(self)

frac.vjp(self=lambda grad: grad)
