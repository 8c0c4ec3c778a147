"""Special functions: gamma, Bessel, the normal distribution, entropy."""
from __future__ import annotations

import math
from numbers import Number

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.devices import scientific
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import composite, elementwise, op
from autograd_gpu.ops.operands import check_number, of_tensors, refuse
from autograd_gpu.ops.reduce import accumulator
from autograd_gpu.ops.runtime import promote

sp = scientific(np)


# ---------------------------------------------------------------------------------------------- gamma and its derivatives

@elementwise(to_float=True, domain=(0.1, 3))
def lgamma(self):
    """The logarithm of |gamma(self)|. Reference: torch.lgamma."""
    refuse("lgamma", self, "c")
    return np.where(self == -np.inf, -self, sp.special.gammaln(self))

lgamma.vjp(self=lambda grad, self: grad * F.digamma(self))


@elementwise(to_float=True, domain=(0.1, 3))
def digamma(self):
    """The derivative of lgamma; NaN at negative integers, infinite at 0. Reference: torch.digamma."""
    refuse("digamma", self, "c")
    return np.where(self == 0, np.copysign(np.full_like(self, np.inf), -self), sp.special.digamma(self))

digamma.vjp(self=lambda grad, self: grad * F.polygamma(1, self))


@elementwise(method=False, inplace=False, to_float=True, domain=(0.1, 3))
def polygamma(n: int, self):
    """The n-th derivative of digamma. Raises RuntimeError for a negative n. Reference: torch.polygamma."""
    if n < 0:
        raise RuntimeError(f"polygamma: polygamma(n, x) does not support negative n, got {n}")
    refuse("polygamma", self, "c")
    if n == 0:
        return F.digamma(self)
    if n != 1:
        return sp.special.polygamma(np.asarray(n), self).astype(self.dtype, copy=False)
    mirrored = self < 0.5                    # where the series has no answer; reflected at 1/2
    right = sp.special.polygamma(np.asarray(1), np.where(mirrored, 1 - self, self)).astype(self.dtype, copy=False)
    slope = np.pi / np.sin(np.pi * self)
    return np.where(mirrored, slope * slope - right, right)

polygamma.vjp(self=lambda grad, n, self: grad * F.polygamma(n + 1, self))


@composite(function=False, inplace=True)
def polygamma_method(input, n):
    """The n-th derivative of digamma. Reference: torch.Tensor.polygamma."""
    return F.polygamma(n, input)

REGISTRY["polygamma_method"].name = "polygamma"      # the method takes the tensor first


@elementwise(to_float=True, domain=(3, 5))
def mvlgamma(self, p: int):
    """The logarithm of the multivariate gamma function of dimension p. Raises RuntimeError for p < 1. Reference: torch.mvlgamma."""
    refuse("mvlgamma", self, "c")
    if p < 1:
        raise RuntimeError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    total = F.lgamma(self)
    for k in range(1, p):
        total = total + F.lgamma(self - k / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)

mvlgamma.vjp(self=lambda grad, self, p: grad * F.mvlgamma_slope(self, p))


@composite(method=False, function=False)
def mvlgamma_slope(self, p):
    """The derivative of mvlgamma."""
    total = F.digamma(self)
    for k in range(1, p):
        total = total + F.digamma(self - k / 2)
    return total


# ------------------------------------------------------------------------------------------------------ error functions

@elementwise(to_float=True, domain=(-0.9, 0.9))
def erfinv(self):
    """The inverse of erf. Reference: torch.erfinv."""
    refuse("erfinv", self, "c")
    return sp.special.erfinv(self)

erfinv.vjp(self=lambda grad, self: grad * (0.8862269254527579 * F.exp(F.square(F.erfinv(self)))))


@elementwise(node="SpecialErfcxBackward0", method=False, function=False, to_float=True)
def erfcx(self):
    """exp(self²) * erfc(self). Reference: torch.special.erfcx."""
    refuse("erfcx", self, "c")
    return sp.special.erfcx(self)

erfcx.vjp(self=lambda grad, self, result: grad * (2 * self * result - 1.1283791670955126))


@composite(method=False, function=False)
def ndtr(input):
    """The distribution function of the standard normal. Reference: torch.special.ndtr."""
    return F.erfc(input * -0.7071067811865476) * 0.5


@elementwise(node="SpecialLogNdtrBackward0", method=False, function=False, to_float=True)
def log_ndtr(self):
    """The logarithm of ndtr, exact in the left tail. Reference: torch.special.log_ndtr."""
    refuse("log_ndtr", self, "c")
    return sp.special.log_ndtr(self)

log_ndtr.vjp(self=lambda grad, self: grad * (0.7978845608028654 / F.erfcx(self * -0.7071067811865476)))


@elementwise(node="SpecialNdtriBackward0", method=False, function=False, to_float=True, domain=(0.1, 0.9))
def ndtri(self):
    """The inverse of ndtr. Reference: torch.special.ndtri."""
    refuse("ndtri", self, "c")
    return sp.special.ndtri(self)

ndtri.vjp(self=lambda grad, result: grad * (2.5066282746310002 * F.exp(result * result * 0.5)))


# ---------------------------------------------------------------------------------------------------- logarithmic forms

@elementwise(to_float=True, domain=(0.1, 0.9))
def logit(self, eps: Number | None = None):
    """log(self / (1 - self)), self held between eps and 1 - eps if given. Reference: torch.logit."""
    refuse("logit", self, "c")
    if eps is not None:
        eps = check_number("logit", "eps", eps)
        self = np.minimum(np.maximum(self, eps), 1 - eps)
    return np.log(self / (1 - self))

logit.vjp(self=lambda grad, self, eps: F.logit_grad(grad, self, eps))


@composite(method=False, function=False)
def logit_grad(grad, self, eps):
    """The derivative of logit: NaN outside of its domain, 0 where it was held."""
    if eps is None:
        return F.where((self < 0) | (self > 1), np.nan, grad / (F.abs(self) * (1 - self)))      # -0.0 gives inf too
    return F.where((self < eps) | (self > 1 - eps), 0, grad / (self * (1 - self)))


@elementwise(to_float=True, domain=(0.1, 2))
def xlogy(self, other):
    """self * log(other), and 0 where self is 0 and other no NaN. Reference: torch.xlogy."""
    refuse("xlogy", self, "c")
    return np.where(np.isnan(other), other, np.where(self == 0, self.dtype.type(0), self * np.log(other)))

xlogy.vjp(self=lambda grad, self, other: F.where((self == 0) & (other <= 0), 0, grad * F.log(other)),
          other=lambda grad, self, other: grad * self / other)


@elementwise(node="SpecialXlog1PyBackward0", method=False, function=False, to_float=True, domain=(0.1, 2))
def xlog1py(self, other):
    """self * log(1 + other), and 0 where self is 0 and other no NaN. Reference: torch.special.xlog1py."""
    refuse("xlog1py", self, "c")
    return np.where(np.isnan(other), other, np.where(self == 0, self.dtype.type(0), self * np.log1p(other)))

xlog1py.vjp(self=lambda grad, self, other: F.where((self == 0) & (other <= -1), 0, grad * F.log1p(other)),
            other=lambda grad, self, other: grad * (self / (other + 1)))


@elementwise(node="SpecialEntrBackward0", method=False, function=False, to_float=True, domain=(0.1, 2))
def entr(self):
    """-self * log(self), 0 at 0, -inf below. Reference: torch.special.entr."""
    refuse("entr", self, "c")
    return np.where(self > 0, -self * np.log(self), np.where(self == 0, self * 0, np.where(self < 0, self.dtype.type(-np.inf), self)))

entr.vjp(self=lambda grad, self: grad * (-F.log(self) - 1))


# -------------------------------------------------------------------------------------------------------- Bessel functions

@elementwise(to_float=True)
def i0(self):
    """The modified Bessel function of the first kind, of order 0. Reference: torch.i0."""
    refuse("i0", self, "c")
    return sp.special.i0(self)

i0.vjp(self=lambda grad, self: grad * F.i1(self))


@composite(method=False, function=False)
def nonzeros(self):
    """self with 1 for 0: a divisor whose quotient is replaced there, in derivatives of every order."""
    return F.where(self == 0, 1, self)


@elementwise(node="SpecialI0EBackward0", method=False, function=False, to_float=True)
def i0e(self):
    """i0 scaled by exp(-|self|). Reference: torch.special.i0e."""
    refuse("i0e", self, "c")
    return sp.special.i0e(self)

i0e.vjp(self=lambda grad, self, result: grad * (F.i1e(self) - F.sgn(self) * result))


@elementwise(node="SpecialI1Backward0", method=False, function=False, to_float=True)
def i1(self):
    """The modified Bessel function of the first kind, of order 1. Reference: torch.special.i1."""
    refuse("i1", self, "c")
    return sp.special.i1(self)

i1.vjp(self=lambda grad, self, result: grad * F.where(F.abs(self) > 1e-30, F.i0(self) - result / F.nonzeros(self), 0.5))


@elementwise(node="SpecialI1EBackward0", method=False, function=False, to_float=True)
def i1e(self):
    """i1 scaled by exp(-|self|). Reference: torch.special.i1e."""
    refuse("i1e", self, "c")
    return sp.special.i1e(self)

i1e.vjp(self=lambda grad, self, result: grad * F.where(
    F.abs(self) > 1e-30, F.i0e(self) - result * (F.sgn(self) + 1 / F.nonzeros(self)), 0.5))


# ----------------------------------------------------------------------------------------------------------- odds and ends

@elementwise(node="Deg2RadBackward0", to_float=True)
def deg2rad(self):
    """Degrees as radians. Reference: torch.deg2rad."""
    refuse("deg2rad", self, "c", RuntimeError)
    return self * 0.017453292519943295

deg2rad.vjp(self=lambda grad: grad * 0.017453292519943295)


@elementwise(node="Rad2DegBackward0", to_float=True)
def rad2deg(self):
    """Radians as degrees. Reference: torch.rad2deg."""
    refuse("rad2deg", self, "c", RuntimeError)
    return self * 57.29577951308232

rad2deg.vjp(self=lambda grad: grad * 57.29577951308232)


@op(promote=["self", "other"], inplace=True, divert=of_tensors("nextafter"), without_tangent=("other",))
def nextafter(self, other):                  # not @elementwise, which would look for the next one in float32 for half precision
    """The next floating number after self in the direction of other. Reference: torch.nextafter."""
    refuse("nextafter", self, "biuc")
    return np.nextafter(self, other)

nextafter.vjp(self=lambda grad, self, other: F.where(self != other, grad, 0), other=lambda grad: F.no_gradient(grad))


@op(inplace=True, divert=of_tensors("ldexp"))  # not elementwise: an integer exponent does not decide the dtype
def ldexp(self, other):
    """self * 2 ** other, exact for integers as other, also where the power alone would overflow.

    Dtype: floating and complex; integers as self become the default float.
    Reference: torch.ldexp.
    """
    if other.dtype.kind in "biu":
        if self.dtype.kind in "biu":
            return self.astype(_dtype.default()) * np.exp2(other.astype(_dtype.default()))
        own = self.dtype
        if own.kind == "c":
            return self * np.exp2(other.astype(self.real.dtype))
        power = (other if other.dtype.itemsize == 1 else np.clip(other, -5000, 5000)).astype(np.int32)
        return np.ldexp(self.astype(accumulator(own), copy=False), power).astype(own, copy=False)
    self, other = promote(self, other)
    own, wide = self.dtype, accumulator(self.dtype)
    return (self.astype(wide, copy=False) * np.power(2, other.astype(wide, copy=False))).astype(own, copy=False)

ldexp.vjp(self=lambda grad, other: F.ldexp(grad, other.conj()),
          other=lambda grad, result: grad * result.conj() * 0.6931471805599453)
