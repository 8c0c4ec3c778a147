"""Exponentials, logarithms, trigonometry and their relatives: functions of analysis on each element."""
from __future__ import annotations

import numpy as np

from autograd_gpu.devices import scientific
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import composite, elementwise
from autograd_gpu.ops.operands import of_tensors, refuse

sp = scientific(np)


# -------------------------------------------------------------------------------------------- exponentials and logarithms

@elementwise(to_float=True)
def exp(self):
    """e to the power of self. Reference: torch.exp."""
    return np.exp(self)

exp.vjp(self=lambda grad, result: grad * result.conj())


@elementwise(to_float=True)
def exp2(self):
    """2 to the power of self. Reference: torch.exp2."""
    return np.exp2(self)

exp2.vjp(self=lambda grad, result: grad * result.conj() * 0.6931471805599453)


@elementwise(to_float=True)
def expm1(self):
    """exp(self) - 1, exact near 0. Reference: torch.expm1."""
    return np.expm1(self)

expm1.vjp(self=lambda grad, result: grad * (result + 1).conj())


@elementwise(to_float=True, domain=(0.1, 2))
def log(self):
    """The natural logarithm. Reference: torch.log."""
    return np.log(self)

log.vjp(self=lambda grad, self: grad / self.conj())


@elementwise(to_float=True, domain=(0.1, 2))
def log2(self):
    """The logarithm to base 2. Reference: torch.log2."""
    return np.log2(self)

log2.vjp(self=lambda grad, self: grad / (self * 0.6931471805599453).conj())


@elementwise(to_float=True, domain=(0.1, 2))
def log10(self):
    """The logarithm to base 10. Reference: torch.log10."""
    return np.log10(self)

log10.vjp(self=lambda grad, self: grad / (self * 2.302585092994046).conj())


@elementwise(node="Log1PBackward0", to_float=True, domain=(-0.9, 2))
def log1p(self):
    """log(1 + self), exact near 0. Reference: torch.log1p."""
    return np.log1p(self)

log1p.vjp(self=lambda grad, self: grad / (self + 1).conj())


@elementwise(inplace=False, divert=of_tensors("logaddexp"))
def logaddexp(self, other):
    """log(exp(self) + exp(other)) without overflow. Raises NotImplementedError for integers. Reference: torch.logaddexp."""
    refuse("logaddexp", self, "biu")
    if self.dtype.kind != "c":
        return np.logaddexp(self, other)
    larger = self.real >= other.real
    peak = F.where(larger, self, other)
    return F.where(self == other, self + 0.6931471805599453, peak + np.log1p(np.exp(F.where(larger, other, self) - peak)))

logaddexp.vjp(self=lambda grad, self, other: grad / (1 + F.exp(other - self)).conj(),
              other=lambda grad, self, other: grad / (1 + F.exp(self - other)).conj())


@elementwise(inplace=False, divert=of_tensors("logaddexp2"))
def logaddexp2(self, other):
    """log2(2 ** self + 2 ** other) without overflow. Raises NotImplementedError for integers. Reference: torch.logaddexp2."""
    refuse("logaddexp2", self, "biuc")
    return np.logaddexp2(self, other)

logaddexp2.vjp(self=lambda grad, self, other: grad / (1 + F.exp2(other - self)),
               other=lambda grad, self, other: grad / (1 + F.exp2(self - other)))


@elementwise(to_float=True)
def erf(self):
    """The error function. Reference: torch.erf."""
    refuse("erf", self, "c")
    return sp.special.erf(self)

erf.vjp(self=lambda grad, self: grad * (1.1283791670955126 * F.exp(-(self * self))))


@elementwise(to_float=True)
def erfc(self):
    """1 - erf(self), exact for large self. Reference: torch.erfc."""
    refuse("erfc", self, "c")
    return sp.special.erfc(self)

erfc.vjp(self=lambda grad, self: grad * (-1.1283791670955126 * F.exp(-(self * self))))


# ---------------------------------------------------------------------------------------------------------- trigonometry

@elementwise(to_float=True)
def sin(self):
    """Sine. Reference: torch.sin."""
    return np.sin(self)

sin.vjp(self=lambda grad, self: grad * F.cos(self).conj())


@elementwise(to_float=True)
def cos(self):
    """Cosine. Reference: torch.cos."""
    return np.cos(self)

cos.vjp(self=lambda grad, self: -grad * F.sin(self).conj())


@elementwise(to_float=True)
def tan(self):
    """Tangent. Reference: torch.tan."""
    return np.tan(self)

tan.vjp(self=lambda grad, result: grad * (1 + result * result).conj())


@elementwise(to_float=True, domain=(-0.9, 0.9))
def asin(self):
    """Arcsine. Reference: torch.asin."""
    return np.arcsin(self)

asin.vjp(self=lambda grad, self: grad * F.rsqrt(1 - self * self).conj())


@elementwise(to_float=True, domain=(-0.9, 0.9))
def acos(self):
    """Arccosine. Reference: torch.acos."""
    return np.arccos(self)

acos.vjp(self=lambda grad, self: -grad * F.rsqrt(1 - self * self).conj())


@elementwise(to_float=True)
def atan(self):
    """Arctangent. Reference: torch.atan."""
    return np.arctan(self)

atan.vjp(self=lambda grad, self: grad / (1 + self * self).conj())


@elementwise(to_float=True, divert=of_tensors("atan2"))
def atan2(self, other):
    """The angle of the point (other, self). Reference: torch.atan2."""
    return np.arctan2(self, other)

atan2.vjp(self=lambda grad, self, other: grad * F.atan2_factor(other, self, other),
          other=lambda grad, self, other: -grad * F.atan2_factor(self, self, other))


@composite(method=False, function=False)
def atan2_factor(side, self, other):
    """side / (self² + other²), and 0 at the origin."""
    radius = self * self + other * other
    return F.where(radius == 0, 0, side / radius)


@elementwise(to_float=True)
def sinh(self):
    """Hyperbolic sine. Reference: torch.sinh."""
    return np.sinh(self)

sinh.vjp(self=lambda grad, self: grad * F.cosh(self).conj())


@elementwise(to_float=True)
def cosh(self):
    """Hyperbolic cosine. Reference: torch.cosh."""
    return np.cosh(self)

cosh.vjp(self=lambda grad, self: grad * F.sinh(self).conj())


@elementwise(to_float=True)
def tanh(self):
    """Hyperbolic tangent. Reference: torch.tanh."""
    return np.tanh(self)

tanh.vjp(self=lambda grad, result: F.tanh_backward(grad, result.conj()))


@elementwise(node="TanhBackwardBackward0", method=False, function=False, inplace=False)
def tanh_backward(grad_output, output):
    """grad_output * (1 - output * output): an op of its own, as in PyTorch, so that a second derivative records one node."""
    return grad_output * (1 - output * output)

tanh_backward.vjp(grad_output=lambda grad, output: F.tanh_backward(grad, output.conj()),
                  output=lambda grad, grad_output, output: grad * (grad_output * output * -2).conj())


@elementwise(to_float=True, over="AsinhBackward1")
def asinh(self):
    """Inverse hyperbolic sine. Reference: torch.asinh."""
    return np.arcsinh(self)

asinh.vjp(self=lambda grad, self: grad * F.rsqrt(1 + self * self).conj())


@elementwise(to_float=True, over="AcoshBackward1", domain=(1.1, 3))
def acosh(self):
    """Inverse hyperbolic cosine. Reference: torch.acosh."""
    return np.arccosh(self)

acosh.vjp(self=lambda grad, self: grad * F.acosh_slope(self).conj())


@composite(method=False, function=False)
def acosh_slope(self):
    """1 / sqrt(self² - 1), on the right side of the complex branch cut."""
    return F.rsqrt(self - 1) * F.rsqrt(self + 1) if self.dtype.kind == "c" else F.rsqrt(self * self - 1)


@elementwise(to_float=True, over="AtanhBackward1", domain=(-0.9, 0.9))
def atanh(self):
    """Inverse hyperbolic tangent. Reference: torch.atanh."""
    return np.arctanh(self)

atanh.vjp(self=lambda grad, self: grad / (1 - self * self).conj())


@elementwise(to_float=True)
def sinc(self):
    """sin(pi * self) / (pi * self), and 1 at 0. Reference: torch.sinc."""
    angle = self * np.pi
    return np.where(self == 0, self.dtype.type(1), np.sin(angle) / angle)

sinc.vjp(self=lambda grad, self: F.where(self * self == 0, 0, grad * F.sinc_slope(self, self * 3.141592653589793).conj()))


@composite(method=False, function=False)
def sinc_slope(self, angle):
    """The derivative of sinc away from 0."""
    return (angle * F.cos(angle) - F.sin(angle)) / (angle * self)


# ----------------------------------------------------------------------------------------------------------- second names

def _alias(alias, name):
    """Register an op under a second name, under which PyTorch has it too."""
    def function(input, *args, **kwargs):
        return REGISTRY[name].function(input, *args, **kwargs)
    function.__name__ = alias
    function.__doc__ = f"{name}. Reference: torch.{alias}."
    composite(function, inplace=True, out=True)


for _second, _first in {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
                        "arccosh": "acosh", "arctanh": "atanh"}.items():
    _alias(_second, _first)
