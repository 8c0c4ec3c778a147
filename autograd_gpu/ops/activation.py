"""Activations, clamping and choosing: relu, gelu, where, clamp."""
from __future__ import annotations

from numbers import Number

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.bits import choose, kept
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import composite, elementwise, op
from autograd_gpu.ops.operands import beside, check_number, fitted, of_tensors, refuse
from autograd_gpu.ops.reduce import accumulator
from autograd_gpu.ops.runtime import promote_all
from autograd_gpu.ops.shape import wrap_dim

_CPU = np.ndarray                            # np in a body may be CuPy

# --------------------------------------------------------------------------------------------------------------- choosing

@elementwise(promote=["self", "other"], method=False, inplace=False, divert={"input is None and other is None": "where_true"})
def where(condition, self=None, other=None):
    """self where condition is true, else other; with the condition alone, the indices of its true elements.

    Dtype: torch.result_type of self and other.
    Raises: RuntimeError for a condition that is not bool. Reference: torch.where.
    """
    if condition.dtype.kind != "b" and condition.dtype != np.uint8:
        raise RuntimeError(f"where: expected condition to be a boolean tensor, but got a tensor with dtype "
                           f"{_dtype.of(condition.dtype)}: compare it, with condition != 0 for instance")
    return choose(condition, self, other) if condition.__class__ is _CPU else np.where(condition, self, other)

where.vjp(self=lambda grad, condition: F.where(condition, grad, 0), other=lambda grad, condition: F.where(condition, 0, grad))


@composite(method=False, function=False)
def where_true(condition, self, other):
    """The indices of the true elements, a Tensor per dimension."""
    return F.nonzero(condition, as_tuple=True)


@composite(function=False)
def where_method(self, condition, other):
    """self where condition is true, else other. Reference: torch.Tensor.where."""
    return F.where(condition, self, other)

REGISTRY["where_method"].name = "where"      # the method takes the condition second


@elementwise(promote=[], divert={"isinstance(value, Tensor)": "masked_fill_tensor"}, out=False)
def masked_fill(self, mask, value: Number):
    """self with value where the bool mask is true; of self's dtype.

    Raises: RuntimeError for another mask or a value that self's dtype cannot hold. Reference: torch.masked_fill.
    """
    return F.masked_fill_value(self, mask, np.asarray(fitted("masked_fill", value, self.dtype), self.dtype))

masked_fill.vjp(self=lambda grad, mask: F.where(mask, 0, grad))


@composite(method=False, function=False)
def masked_fill_tensor(input, mask, value):
    """masked_fill with a 0-d Tensor as the value."""
    if value.ndim:
        raise RuntimeError(f"masked_fill: only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s): "
                           f"use torch.where")
    return F.masked_fill_value(input, mask, value)


@elementwise(node="MaskedFillBackward1", promote=[], method=False, function=False)
def masked_fill_value(self, mask, value):
    """masked_fill with one element as the value."""
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_fill: only supports boolean masks, but got mask with dtype {_dtype.of(mask.dtype)}")
    if value.dtype.kind == "c" and self.dtype.kind != "c":
        raise RuntimeError(f"masked_fill: value of dtype {_dtype.of(value.dtype)} cannot be cast to {_dtype.of(self.dtype)}")
    return F.where(mask, value.astype(self.dtype), self)

masked_fill_value.vjp(self=lambda grad, mask: F.where(mask, 0, grad), value=lambda grad, mask: F.where(mask, grad, 0))


@elementwise(inplace=False, divert=of_tensors("maximum"))
def maximum(self, other):
    """The larger element, NaN if either is. Reference: torch.maximum."""
    refuse("maximum", self, "c", RuntimeError)
    return np.maximum(self, other)

maximum.vjp(self=lambda grad, self, other: F.where(self < other, 0, F.where(self == other, grad / 2, grad)),
            other=lambda grad, self, other: F.where(self > other, 0, F.where(self == other, grad / 2, grad)))


@elementwise(inplace=False, divert=of_tensors("minimum"))
def minimum(self, other):
    """The smaller element, NaN if either is. Reference: torch.minimum."""
    refuse("minimum", self, "c", RuntimeError)
    return np.minimum(self, other)

minimum.vjp(self=lambda grad, self, other: F.where(self > other, 0, F.where(self == other, grad / 2, grad)),
            other=lambda grad, self, other: F.where(self < other, 0, F.where(self == other, grad / 2, grad)))


@elementwise(inplace=False, divert=of_tensors("fmax"))
def fmax(self, other):
    """The larger element, the other one where one is NaN. Reference: torch.fmax."""
    refuse("fmax", self, "c", RuntimeError)
    return np.fmax(self, other)

fmax.vjp(self=lambda grad, self, other: F.where((self >= other) | F.isnan(other), grad, 0),
         other=lambda grad, self, other: F.where((self >= other) | F.isnan(other), 0, grad))


@elementwise(inplace=False, divert=of_tensors("fmin"))
def fmin(self, other):
    """The smaller element, the other one where one is NaN. Reference: torch.fmin."""
    refuse("fmin", self, "c", RuntimeError)
    return np.fmin(self, other)

fmin.vjp(self=lambda grad, self, other: F.where((self <= other) | F.isnan(other), grad, 0),
         other=lambda grad, self, other: F.where((self <= other) | F.isnan(other), 0, grad))


# --------------------------------------------------------------------------------------------------------------- clamping

_PLAIN = (float, int, type(None))            # bounds that need no look


def _bounded(name, array, bound):
    """An array in the dtype that it has beside a bound, and the bound in it. Raises RuntimeError where either is complex."""
    refuse(name, array, "c")
    if bound is None:
        return array, None
    bound = check_number(name, "min or max", bound)
    if isinstance(bound, complex):
        raise RuntimeError(f"{name}: complex numbers have no order: the bound {bound} cannot be converted to {_dtype.of(array.dtype)}")
    array = beside(array, bound)
    return array, fitted(name, bound, array.dtype) if array.dtype.kind in "iu" else bound


@elementwise(node="ClampBackward1", divert={"isinstance(min, Tensor) or isinstance(max, Tensor)": "clamp_mixed"})
def clamp(self, min: Number | None = None, max: Number | None = None):
    """self, at least min and at most max, which are numbers or Tensors; max where min is larger.

    Raises: RuntimeError if neither is given. Reference: torch.clamp.
    """
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    if self.dtype.kind != "f" or not (type(min) in _PLAIN and type(max) in _PLAIN):
        self, max = _bounded("clamp", self, max)
        self, min = _bounded("clamp", self, min)
    if min is not None:
        self = np.maximum(self, min)
    return self if max is None else np.minimum(self, max)

clamp.vjp(self=lambda grad, self, min, max: F.where(F.within(self, min, max), grad, 0))


@composite(method=False, function=False)
def within(self, min, max):
    """Where self is not beyond its bounds, of which one may be None."""
    if min is None:
        return self <= max
    return self >= min if max is None else (self >= min) & (self <= max)


@composite(method=False, function=False)
def clamp_mixed(self, min, max):
    """clamp with Tensors as bounds."""
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and not isinstance(bound, Tensor):
            raise TypeError(f"clamp(): with one bound a Tensor, argument '{name}' must be Tensor too, not {type(bound).__name__}")
    return F.clamp_tensors(self, *[b if b is None or b.ndim else F.to(b, device=self.device) for b in (min, max)])


@op(node="ClampBackward0", method=False, function=False)       # not elementwise: the bounds are promoted only where given
def clamp_tensors(self, min: Tensor | None = None, max: Tensor | None = None):
    """clamp with Tensors as bounds."""
    given = [x for x in (self, min, max) if x is not None]
    refuse("clamp", self, "c" if min is None or max is None else "bc")
    self, *bounds = promote_all(*given)
    if min is not None:
        self = np.maximum(self, bounds[0])
    return self if max is None else np.minimum(self, bounds[-1])

clamp_tensors.vjp(self=lambda grad, self, min, max: F.where(F.within(self, min, max), grad, 0),
                  min=lambda grad, self, min, max: F.where(F.at_min(self, min, max), grad, 0),
                  max=lambda grad, self, min, max: F.where(F.at_max(self, min, max), grad, 0))


@composite(method=False, function=False)
def at_min(self, min, max):
    """Where a clamp gives its lower bound."""
    return self < min if max is None else (self < min) & (min < max)


@composite(method=False, function=False)
def at_max(self, min, max):
    """Where a clamp gives its upper bound."""
    return self > max if min is None else (self > max) | (max < min)


@composite(inplace=True, out=True)
def clip(input, min=None, max=None):
    """clamp. Reference: torch.clip."""
    return F.clamp(input, min, max)


@elementwise(divert={"isinstance(min, Tensor)": "clamp_min_tensor"})
def clamp_min(self, min: Number):
    """self, at least min. Reference: torch.clamp_min."""
    return np.maximum(*_bounded("clamp_min", self, min))

clamp_min.vjp(self=lambda grad, self, min: F.where(self >= min, grad, 0))


@elementwise(node="ClampMinBackward1", method=False, function=False, divert=of_tensors("clamp_min", second=None))
def clamp_min_tensor(self, min):
    """clamp_min with a Tensor."""
    refuse("clamp_min", self, "c")
    return np.maximum(self, min)

clamp_min_tensor.vjp(self=lambda grad, self, min: F.where(self >= min, grad, 0),
                     min=lambda grad, self, min: F.where(self < min, grad, 0))


@elementwise(divert={"isinstance(max, Tensor)": "clamp_max_tensor"})
def clamp_max(self, max: Number):
    """self, at most max. Reference: torch.clamp_max."""
    return np.minimum(*_bounded("clamp_max", self, max))

clamp_max.vjp(self=lambda grad, self, max: F.where(self <= max, grad, 0))


@elementwise(node="ClampMaxBackward1", method=False, function=False, divert=of_tensors("clamp_max", second=None))
def clamp_max_tensor(self, max):
    """clamp_max with a Tensor."""
    refuse("clamp_max", self, "c")
    return np.minimum(self, max)

clamp_max_tensor.vjp(self=lambda grad, self, max: F.where(self <= max, grad, 0),
                     max=lambda grad, self, max: F.where(self > max, grad, 0))


@op(inplace=True)       # not elementwise: half precision is not widened, as its largest number is asked for
def nan_to_num(self, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None):
    """self with numbers for NaN (0), inf (the largest one) and -inf (the smallest). Reference: torch.nan_to_num."""
    if self.dtype.kind in "biu":
        return self.copy()
    if self.dtype.kind == "c":
        return F.complex(F.nan_to_num(self.real, nan, posinf, neginf), F.nan_to_num(self.imag, nan, posinf, neginf))
    largest = _dtype.finfo(self.dtype).max
    of = self.dtype.type                     # NumPy would promote bfloat16 beside a Python number
    out = np.where(np.isnan(self), of(0.0 if nan is None else nan), self)
    out = np.where(self == np.inf, of(largest if posinf is None else posinf), out)
    return np.where(self == -np.inf, of(-largest if neginf is None else neginf), out)

nan_to_num.vjp(self=lambda grad, self: F.where(F.isfinite(self), grad, 0))


# ------------------------------------------------------------------------------------------------------------ activations

@elementwise(to_float=True)
def sigmoid(self):
    """1 / (1 + exp(-self)). Reference: torch.sigmoid."""
    return F.inverted(1 + np.exp(-self))

sigmoid.vjp(self=lambda grad, result: grad * ((1 - result) * result).conj())


@elementwise(out=False)  # this way round NaN stays NaN, as in np.maximum
def relu(self):
    """self where it is positive, else 0. Reference: torch.relu."""
    if self.dtype.kind in "bc":
        kind = NotImplementedError if self.dtype.kind == "c" else RuntimeError
        raise kind(f"relu: not supported for {_dtype.of(self.dtype)} inputs: convert them first, with .to(dtype)")
    return np.maximum(self, 0)

relu.vjp(self=lambda grad, result: F.relu_backward(grad, result, 0))


@elementwise(over="LeakyReluBackward1", method=False, function=False)
def leaky_relu(self, negative_slope: Number = 0.01):
    """self where it is positive, else negative_slope * self. Reference: torch.nn.functional.leaky_relu."""
    negative_slope = check_number("leaky_relu", "negative_slope", negative_slope)
    refuse("leaky_relu", self, "biuc")
    return F.where(self > 0, self, self * negative_slope)

leaky_relu.vjp(self=lambda grad, self, negative_slope: F.leaky_relu_backward(grad, self, negative_slope))


@elementwise(node="LeakyReluBackwardBackward0", method=False, function=False, inplace=False)
def leaky_relu_backward(grad_output, self, negative_slope: Number):
    """The gradient of leaky_relu: an op of its own, whose edge to self keeps the history there although only zero flows through it."""
    return F.where(self > 0, grad_output, grad_output * negative_slope)

leaky_relu_backward.vjp(grad_output=lambda grad, self, negative_slope: F.leaky_relu_backward(grad, self, negative_slope),
                        self=lambda grad: F.no_gradient(grad))


@elementwise(over="EluBackward1", method=False, function=False)
def elu(self, alpha: Number = 1.0, scale: Number = 1, input_scale: Number = 1):
    """scale * (self, or alpha * (exp(input_scale * self) - 1) where self is negative). Reference: torch.nn.functional.elu."""
    refuse("elu", self, "biuc")
    alpha, scale, input_scale = [check_number("elu", "alpha", x) for x in (alpha, scale, input_scale)]
    return F.where(self <= 0, np.expm1(np.minimum(self, 0) * input_scale) * (alpha * scale), self * scale)

elu.vjp(self=lambda grad, self, alpha, scale, input_scale: F.where(
    self <= 0, grad * (F.exp(F.where(self < 0, self, 0) * input_scale) * (alpha * scale * input_scale)), grad * scale))


@composite(method=False, inplace=True)
def selu(input):
    """elu with the constants that keep mean and variance. Reference: torch.selu."""
    return F.elu(input, 1.6732632423543772, 1.0507009873554805, 1)


@elementwise(over="CeluBackward1", method=False, out=False)
def celu(self, alpha: Number = 1.0):
    """elu, continuously differentiable for every alpha. Reference: torch.celu."""
    refuse("celu", self, "biuc")
    alpha = check_number("celu", "alpha", alpha)
    if alpha == 0:
        raise RuntimeError("celu: ZeroDivisionError: alpha cannot be 0")
    return F.where(self <= 0, np.expm1(np.minimum(self, 0) / alpha) * alpha, self)

celu.vjp(self=lambda grad, self, alpha: F.where(self <= 0, grad * F.exp(F.where(self < 0, self, 0) / alpha), grad))


@elementwise(method=False, function=False)
def gelu(self, *, approximate: str = "none"):
    """self times the normal distribution function of self, or its `tanh` approximation. Reference: torch.nn.functional.gelu."""
    refuse("gelu", self, "biuc")
    if approximate == "none":
        return self * (0.5 + 0.5 * F.erf(self * 0.7071067811865476))
    if approximate != "tanh":
        raise RuntimeError(f"gelu: approximate argument must be either none or tanh, got {approximate!r}")
    return 0.5 * self * (1 + np.tanh(0.7978845608028654 * (self + 0.044715 * (self * self * self))))

gelu.vjp(self=lambda grad, self, approximate: F.gelu_grad(grad, self, approximate))


@composite(method=False, function=False)
def gelu_grad(grad, self, approximate):
    """The derivative of gelu."""
    if approximate == "none":
        return grad * ((0.5 + 0.5 * F.erf(self * 0.7071067811865476)) + self * (0.3989422804014327 * F.exp(self * self * -0.5)))
    square = self * self
    t = F.tanh(0.7978845608028654 * (self + 0.044715 * (square * self)))
    return grad * (0.5 * (1 + t) + 0.5 * self * ((1 - t * t) * (0.7978845608028654 * (1 + 0.134145 * square))))


@elementwise(method=False, function=False)
def silu(self):
    """self * sigmoid(self). Reference: torch.nn.functional.silu."""
    refuse("silu", self, "biu")
    return self * F.sigmoid(self)

silu.vjp(self=lambda grad, self: grad * (F.sigmoid(self) * (1 + self * (1 - F.sigmoid(self)))).conj())


@elementwise(method=False, function=False)
def mish(self):
    """self * tanh(softplus(self)). Reference: torch.nn.functional.mish."""
    refuse("mish", self, "biuc")
    return self * np.tanh(np.logaddexp(self, 0))

mish.vjp(self=lambda grad, self: grad * F.mish_slope(self, F.tanh(F.softplus(self))))


@composite(method=False, function=False)
def mish_slope(self, t):
    """The derivative of mish, from tanh(softplus(self))."""
    return t + self * F.sigmoid(self) * (1 - t * t)


@elementwise(method=False, function=False)
def softplus(self, beta: Number = 1, threshold: Number = 20):
    """log(1 + exp(beta * self)) / beta, or self where beta * self is above threshold. Reference: torch.nn.functional.softplus."""
    refuse("softplus", self, "biuc")
    beta, threshold = check_number("softplus", "beta", beta), check_number("softplus", "threshold", threshold)
    scaled = self * beta
    return F.where(scaled > threshold, self, np.log1p(np.exp(np.minimum(scaled, threshold))) / beta)

softplus.vjp(self=lambda grad, self, beta, threshold: F.where(self * beta > threshold, grad, grad * F.sigmoid(self * beta)))


@elementwise(node="LogSigmoidBackward0", method=False, function=False)
def logsigmoid(self):
    """log(sigmoid(self)) without overflow. Reference: torch.nn.functional.logsigmoid."""
    refuse("logsigmoid", self, "biuc")
    return np.minimum(self, 0) - np.log1p(np.exp(-np.absolute(self)))

logsigmoid.vjp(self=lambda grad, self: grad * F.sigmoid(-self))


@elementwise(method=False, function=False)
def hardtanh(self, min_val: Number = -1.0, max_val: Number = 1.0):
    """self between two bounds, at which its derivative is 0. Reference: torch.nn.functional.hardtanh."""
    refuse("hardtanh", self, "bc")
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")
    if self.dtype.kind == "u" and min_val <= -1:
        raise RuntimeError(f"hardtanh: cannot be computed on an unsigned dtype with negative limits, got {min_val}")
    return np.minimum(np.maximum(self, min_val), max_val).astype(self.dtype, copy=False)

hardtanh.vjp(self=lambda grad, self, min_val, max_val: F.hardtanh_backward(grad, self, min_val, max_val))


@elementwise(node="HardtanhBackwardBackward0", method=False, function=False, inplace=False)
def hardtanh_backward(grad_output, self, min_val: Number, max_val: Number):
    """The gradient of hardtanh: an op of its own, whose edge to self keeps the history there although only zero flows through it."""
    return F.where((self <= min_val) | (self >= max_val), 0, grad_output)

hardtanh_backward.vjp(grad_output=lambda grad, self, min_val, max_val: F.hardtanh_backward(grad, self, min_val, max_val),
                      self=lambda grad: F.no_gradient(grad))


@composite(method=False, function=False, inplace=True)
def relu6(self):
    """self between 0 and 6. Reference: torch.nn.functional.relu6."""
    return F.hardtanh(self, 0.0, 6.0)


@elementwise(method=False, function=False)
def hardsigmoid(self):
    """self / 6 + 1 / 2, between 0 and 1. Reference: torch.nn.functional.hardsigmoid."""
    refuse("hardsigmoid", self, "biuc")
    return np.minimum(np.maximum(self + 3, 0), 6) / 6

hardsigmoid.vjp(self=lambda grad, self: F.where((self > -3) & (self < 3), grad / 6, 0))


@elementwise(method=False, function=False)
def hardswish(self):
    """self * hardsigmoid(self). Reference: torch.nn.functional.hardswish."""
    refuse("hardswish", self, "biuc")
    return self * np.minimum(np.maximum(self + 3, 0), 6) / 6

hardswish.vjp(self=lambda grad, self: F.where(self <= -3, 0, F.where(self < 3, grad * (self / 3 + 0.5), grad)))


@elementwise(inplace=False)
def hardshrink(self, lambd: Number = 0.5):
    """self beyond lambd from 0, else 0. Reference: torch.nn.functional.hardshrink."""
    refuse("hardshrink", self, "biuc")
    lambd = check_number("hardshrink", "lambd", lambd)
    return F.where((self >= -lambd) & (self <= lambd), self.dtype.type(0), self)

hardshrink.vjp(self=lambda grad, self, lambd: F.hardshrink_backward(grad, self, lambd))


@elementwise(node="HardshrinkBackwardBackward0", method=False, function=False, inplace=False)
def hardshrink_backward(grad_output, self, lambd: Number):
    """The gradient of hardshrink: an op of its own, whose edge to self keeps the history there although only zero flows through it."""
    return F.where((self >= -lambd) & (self <= lambd), 0, grad_output)

hardshrink_backward.vjp(grad_output=lambda grad, self, lambd: F.hardshrink_backward(grad, self, lambd),
                        self=lambda grad: F.no_gradient(grad))


@elementwise(method=False, function=False)
def softshrink(self, lambd: Number = 0.5):
    """self moved towards 0 by lambd. Reference: torch.nn.functional.softshrink."""
    refuse("softshrink", self, "biuc")
    lambd = check_number("softshrink", "lambd", lambd)
    if lambd < 0:
        raise RuntimeError(f"softshrink: lambda must be greater or equal to 0, but found to be {lambd}")
    return F.where(self > lambd, self - lambd, F.where(self < -lambd, self + lambd, self * 0))

softshrink.vjp(self=lambda grad, self, lambd: F.softshrink_backward(grad, self, lambd))


@elementwise(node="SoftshrinkBackwardBackward0", method=False, function=False, inplace=False)
def softshrink_backward(grad_output, self, lambd: Number):
    """The gradient of softshrink: an op of its own, whose edge to self keeps the history there although only zero flows through it."""
    return F.where((self >= -lambd) & (self <= lambd), 0, grad_output)

softshrink_backward.vjp(grad_output=lambda grad, self, lambd: F.softshrink_backward(grad, self, lambd),
                        self=lambda grad: F.no_gradient(grad))


@elementwise(over="ThresholdBackward1", method=False)
def threshold(self, threshold: Number, value: Number):
    """self above a threshold, else value. Reference: torch.nn.functional.threshold."""
    check_number("threshold", "threshold", threshold)
    check_number("threshold", "value", value)
    refuse("threshold", self, "bc")
    return F.where(self <= threshold, np.asarray(value).astype(self.dtype), self)

threshold.vjp(self=lambda grad, self, threshold: F.threshold_backward(grad, self, threshold))


@elementwise(node="ThresholdBackwardBackward0", method=False, function=False, inplace=False)
def threshold_backward(grad_output, self, threshold: Number):
    """The gradient of threshold: an op of its own, whose edge to self keeps the history there although only zero flows through it."""
    if grad_output.__class__ is _CPU and grad_output.shape == self.shape:
        return kept(grad_output, lambda x: ~(x <= threshold), self)
    return F.where(self <= threshold, 0, grad_output)

threshold_backward.vjp(grad_output=lambda grad, self, threshold: F.threshold_backward(grad, self, threshold),
                       self=lambda grad: F.no_gradient(grad))


@elementwise(node="ThresholdBackwardBackward0", method=False, function=False, inplace=False)
def relu_backward(grad_output, self, threshold: Number):
    """threshold_backward for a result of relu and the threshold 0: there one comparison tells what is kept, NaN among it."""
    if grad_output.__class__ is _CPU and grad_output.shape == self.shape:
        return kept(grad_output, lambda x: x != threshold, self)
    return F.where(self != threshold, grad_output, 0)

relu_backward.vjp(grad_output=lambda grad, self, threshold: F.relu_backward(grad, self, threshold),
                  self=lambda grad: F.no_gradient(grad))


@composite(method=False, function=False)
def softsign(self):
    """self / (1 + |self|). Reference: torch.nn.functional.softsign."""
    return self / (F.abs(self) + 1)


@composite(method=False, function=False)
def tanhshrink(self):
    """self - tanh(self). Reference: torch.nn.functional.tanhshrink."""
    return self - F.tanh(self)


@elementwise(node="PreluKernelBackward0", method=False, function=False)
def prelu_kernel(self, weight):
    """prelu with the weight shaped to broadcast against self."""
    refuse("prelu", self, "biuc")
    return F.where(self > 0, self, weight * self)

prelu_kernel.vjp(self=lambda grad, self, weight: F.where(self > 0, grad, weight * grad),
                 weight=lambda grad, self, weight: F.where(self > 0, 0, self * grad))


@composite
def prelu(input, weight):
    """input where it is positive, else weight * input, one weight in all or one per channel (dimension 1). Reference: torch.prelu."""
    if input.dtype != weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}: convert one of them")
    if weight.ndim > 1 or (weight.ndim and weight.shape[0] not in (1, input.shape[1] if input.ndim > 1 else 1)):
        raise RuntimeError(f"prelu: Mismatch of parameter numbers and input channel size: weight has shape {tuple(weight.shape)}, "
                           f"input {tuple(input.shape)}; expected one weight, or one per channel in dimension 1")
    if weight.ndim and input.ndim > 1:
        weight = F.reshape(weight, (1, weight.shape[0], *(1,) * (input.ndim - 2)))
    elif input.ndim == 0 and weight.ndim:
        weight = F.reshape(weight, ())
    return F.prelu_kernel(input, weight)


# --------------------------------------------------------------------------------------------------------------- gates

@op(method=False, function=False)
def glu(self, dim: int = -1):
    """The first half of a dimension times the sigmoid of the second.

    Dtype: floating. Raises: RuntimeError for an odd size. Reference: torch.nn.functional.glu.
    """
    refuse("glu", self, "biuc")
    if not self.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even: give it at least one dimension")
    d = wrap_dim(dim, self.ndim, "glu")
    n, odd = divmod(self.shape[d], 2)
    if odd:
        raise RuntimeError(f"glu: Halving dimension must be even, but dimension {d} is size {2 * n + 1}")
    x = self.astype(accumulator(self.dtype), copy=False)
    return (F.slice(x, d, 0, n) * F.sigmoid(F.slice(x, d, n))).astype(self.dtype, copy=False)

glu.vjp(self=lambda grad, self, dim: F.glu_backward(grad, self, dim))


@composite(method=False, function=False)
def glu_backward(grad, self, dim):
    """The gradient of glu."""
    n = self.shape[dim] // 2
    gate = F.sigmoid(F.slice(self, dim, n, None, 1))
    return F.cat([grad * gate, grad * F.slice(self, dim, 0, n, 1) * gate * (1 - gate)], dim)
