"""Arithmetic, powers, exponentials, trigonometry, comparison: each element from the elements at its place."""
from __future__ import annotations

import numpy as np

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise


@elementwise(cuda="self + other", divert={"alpha != 1": "add_scaled"})
def add(self, other, *, alpha: Number = 1):
    """self + alpha * other.

    Dtype: torch.result_type of the operands.
    Raises: RuntimeError for a fractional alpha with integer operands.
    Reference: torch.add.
    """
    return np.add(self, other)

add.vjp(self=lambda grad: grad, other=lambda grad: grad)


@elementwise(cuda="self * other")
def mul(self, other):
    """self * other. Reference: torch.mul."""
    return np.multiply(self, other)

mul.vjp(self=lambda grad, other: grad * F.conj(other), other=lambda grad, self: grad * F.conj(self))


@elementwise(cuda="self / other", to_float=True, divert={"rounding_mode is not None": "div_rounded"})
def div(self, other, *, rounding_mode: str = None):
    """self / other; integers are divided as the default float. `rounding_mode`: None, "trunc" or "floor". Reference: torch.div."""
    return np.true_divide(self, other)

div.vjp(self=lambda grad, other: grad / F.conj(other),
        other=lambda grad, self, other: -grad * F.conj((self / other) / other))


@elementwise(cuda="-self")
def neg(self):
    """-self. Raises RuntimeError for bool. Reference: torch.neg."""
    return np.negative(self)

neg.vjp(self=lambda grad: -grad)


@elementwise(cuda="exp(self)", to_float=True)
def exp(self):
    """e to the power of self. Reference: torch.exp."""
    return np.exp(self)

exp.vjp(self=lambda grad, result: grad * F.conj(result))


@elementwise(cuda="sin(self)", to_float=True)
def sin(self):
    """Sine. Reference: torch.sin."""
    return np.sin(self)

sin.vjp(self=lambda grad, self: grad * F.conj(F.cos(self)))


@elementwise(cuda="cos(self)", to_float=True)
def cos(self):
    """Cosine. Reference: torch.cos."""
    return np.cos(self)

cos.vjp(self=lambda grad, self: -grad * F.conj(F.sin(self)))


@elementwise(cuda="tanh(self)", to_float=True)
def tanh(self):
    """Hyperbolic tangent. Reference: torch.tanh."""
    return np.tanh(self)

tanh.vjp(self=lambda grad, result: grad * F.conj(1 - result * result))


@elementwise(cuda="conj(self)")
def conj(self):
    """The complex conjugate; a real tensor as it is. Reference: torch.conj."""
    return np.conjugate(self) if self.dtype.kind == "c" else self

conj.vjp(self=lambda grad: F.conj(grad))


@elementwise(node="Pow", digit=lambda: 0)
def pow_scalar(self, exponent: Number):
    """self ** exponent with a number as the exponent."""
    return np.multiply(self, self) if exponent == 2 else np.power(self, exponent)

pow_scalar.vjp(self=lambda grad, self, exponent: F.pow_scalar_grad(grad, self, exponent))


@composite
def pow_scalar_grad(grad, self, exponent):
    """The derivative of self ** exponent: 0 where the exponent is 0, also at 0."""
    if exponent == 2:
        return grad * (F.conj(self) * 2)
    if exponent == 0:
        return F.zeros_like(self)
    return grad * F.conj(exponent * F.pow_scalar(self, exponent - 1))
