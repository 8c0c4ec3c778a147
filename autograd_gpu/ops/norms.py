"""Normalisation: batch_norm, layer_norm, group_norm and their kin."""
from __future__ import annotations

import functools
import math

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu import rows
from autograd_gpu.base import count_write
from autograd_gpu.blocks import summed
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import floating, refuse
from autograd_gpu.ops.reduce import accumulator

_CPU = np.ndarray                            # np in a body may be CuPy


def _one_dtype(name, input, *parameters):
    """Raises RuntimeError unless parameters have the input's dtype, or float32 where that is a half."""
    found = {p.dtype for p in parameters if p is not None}
    if found and found != {input.dtype} and (input.dtype.itemsize != 2 or found != {_dtype.float32}):
        raise RuntimeError(f"{name}: mixed dtype: the input is {input.dtype}, its parameters {', '.join(sorted(map(str, found)))}: all "
                           f"inputs must share same datatype, or expect parameter to have scalar type of Float beside a half")


@op(node="NativeLayerNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_layer_norm(input, normalized_shape: Size, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5):
    """layer_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("layer_norm", input.dtype)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    n = math.prod(normalized_shape)
    x = input.astype(accumulator(input.dtype), "C", copy=False)
    if x.__class__ is _CPU and x.size:
        out, shape = np.empty(x.shape, x.dtype), (*x.shape[:-len(axes)], *[1] * len(axes))
        matrices = [None if t is None else t.reshape(-1, n) for t in (x, weight, bias, out)]
        found = rows.layer_norm(*matrices, x.dtype.type(eps))
        return out.astype(input.dtype, copy=False), *[t.reshape(shape) for t in found]
    mean = F.total(x, axes) / n
    x = x - mean
    rstd = 1 / np.sqrt(F.total(x * x, axes) / n + x.dtype.type(eps))
    x *= rstd
    if weight is not None:
        x = x * weight
    if bias is not None:
        x = x + bias
    return x.astype(input.dtype, copy=False), mean, rstd


@native_layer_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, bias, normalized_shape):
    return F.layer_norm_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight,
                                 (*range(-len(normalized_shape), 0),))


def _by_rows(grad, grad_mean, grad_rstd):
    """Whether there is a gradient of the result only, on the CPU: what the functions of `rows` are for."""
    return grad.__class__ is _CPU and grad.size > 0 and grad_mean is None and grad_rstd is None


def _layer_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims):
    if not _by_rows(grad, grad_mean, grad_rstd):
        return F.normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, True)
    own = input.shape[dims[0]:]
    found = [np.empty(shape, mean.dtype) if need else None for need, shape in zip(needs, (input.shape, own, own), strict=True)]
    n = math.prod(own)
    matrices = [None if t is None else np.ascontiguousarray(t, mean.dtype).reshape(-1, n) for t in (grad, input, weight, *found)]
    rows.layer_norm_backward(*matrices[:2], mean.reshape(-1, 1), rstd.reshape(-1, 1), *matrices[2:])
    return found


@composite(method=False, function=False, arrays=_layer_norm_backward)
def layer_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims):
    """The gradients of layer_norm: those of normalized_backward."""
    return F.normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, True)


@composite(method=False, function=False)
def normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, moving):
    """Gradients of (input - mean) * rstd * weight + bias for input, weight and bias; `moving`: mean and rstd come from the input."""
    n = math.prod([input.shape[d] for d in dims])
    off = input - mean
    to_input = None
    if grad is not None and needs[0]:
        scaled = (grad if weight is None else grad * weight) * rstd
        to_input = scaled
        if moving:
            normal = off * rstd
            to_input = scaled - (F.sum(scaled, dims, True) + normal * F.sum(scaled * normal, dims, True)) / n
    if needs[0] and moving:
        if grad_rstd is not None:
            more = off * (grad_rstd * rstd * rstd * rstd / -n)
            to_input = more if to_input is None else to_input + more
        if grad_mean is not None:
            more = F.expand(grad_mean / n, input.shape)
            to_input = more if to_input is None else to_input + more
    if grad is None:
        return to_input, None, None
    return to_input, grad * (off * rstd) if needs[1] else None, grad if needs[2] else None


@composite(method=False, function=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """The last dimensions brought to mean 0 and variance 1, times weight, plus bias.

    Raises: RuntimeError unless input ends in normalized_shape, and weight and bias have it. Reference: torch.nn.functional.layer_norm.
    """
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"layer_norm(): argument 'normalized_shape' must be tuple of ints, not {type(normalized_shape).__name__}")
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("layer_norm: Expected normalized_shape to be at least 1-dimensional, got an empty one")
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(f"layer_norm: Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                               f"{list(t.shape)} and normalized_shape = {list(shape)}")
    if tuple(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"layer_norm: Given normalized_shape={list(shape)}, expected input with shape "
                           f"[*, {str(list(shape))[1:-1]}], but got input of size {list(input.shape)}")
    _one_dtype("layer_norm", input, weight, bias)
    return F.native_layer_norm(input, shape, weight, bias, eps)


@op(node="NativeBatchNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_batch_norm(input, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                      training: bool, momentum: float, eps: float):
    """batch_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("batch_norm", input.dtype)
    axes = (0, *range(2, input.ndim))
    shape = (1, input.shape[1]) + (1,) * (input.ndim - 2)
    x = input.astype(accumulator(input.dtype), "C", copy=False)
    n = input.size // input.shape[1]
    channels = _Channels(x.shape) if x.__class__ is _CPU else None
    if not training:
        mean, var = (t.reshape(shape).astype(x.dtype) for t in (running_mean, running_var))      # copies: they are kept for backward
    elif channels:
        mean, var = (t.reshape(shape) for t in channels.moments(x))
    else:
        mean = np.add.reduce(x, axes, None, None, True) / n
        off = x - mean
        var = np.add.reduce(off * off, axes, None, None, True) / n
    if training:
        for t, value in ((running_mean, mean), (running_var, var * (n / (n - 1)))):
            if t is not None:
                t[...] = t * (1 - momentum) + value.reshape(-1) * momentum
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    if channels:
        x = channels.scaled(x, mean, rstd, weight, bias)
    else:
        x = (off if training else x - mean) * rstd
        if weight is not None:
            x = x * weight.reshape(shape)
        if bias is not None:
            x = x + bias.reshape(shape)
    return x.astype(input.dtype, copy=False), mean, rstd


class _Channels:
    """Arrays of the CPU, of a shape (samples, channels, ...), as matrices: a row for a channel of a sample, or a column for a channel."""

    def __init__(self, shape):
        self.samples, self.count = shape[:2]
        self.columns = math.prod(shape[2:]) == 1
        self.shape = (self.samples, self.count) if self.columns else (self.samples * self.count, math.prod(shape[2:]))

    def spread(self, values):
        """Numbers of the channels as what rows or columns have in common."""
        return values.reshape(1, -1) if self.columns else np.tile(values.reshape(-1), self.samples)[:, None]

    def total(self, sums):
        """Sums of columns, or of rows, as those of channels."""
        return sums[0] if self.columns else summed(sums.reshape(self.samples, self.count), 0)

    def sums(self, x, mean=None):
        """The sum of each channel of x or x - mean."""
        return self.total(rows.sums(x.reshape(self.shape), None if mean is None else self.spread(mean), self.columns))

    def products(self, x, mean, other=None):
        """The sum of each channel of (x - mean) * other, or of (x - mean) squared."""
        return self.total(rows.products(x.reshape(self.shape), self.spread(mean), other if other is None else other.reshape(self.shape),
                                        self.columns))

    def moments(self, x):
        """The mean and variance of each channel."""
        return rows.moments(functools.partial(self.sums, x), functools.partial(self.products, x), x.size // self.count)

    def scaled(self, x, mean, rstd, weight, bias):
        """(x - mean) * rstd * weight + bias."""
        factor, out = rstd if weight is None else rstd.reshape(-1) * weight, np.empty(x.shape, x.dtype)
        shift = None if bias is None else self.spread(bias)
        rows.scaled(x.reshape(self.shape), self.spread(mean), self.spread(factor), shift, out.reshape(self.shape))
        return out

    def combined(self, grad, factor, x, mean, slope, shift):
        """grad * factor + (x - mean) * slope + shift."""
        out = np.empty(x.shape, x.dtype)
        rows.combined(grad.reshape(self.shape), self.spread(factor), x.reshape(self.shape), *map(self.spread, (mean, slope, shift)),
                      out.reshape(self.shape))
        return out


@native_batch_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, training):
    return F.batch_norm_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, training)


def _batch_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training):
    if not _by_rows(grad, grad_mean, grad_rstd):
        return F.batch_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training)
    channels, r = _Channels(input.shape), rstd.reshape(-1)
    x, g = (np.ascontiguousarray(t, rstd.dtype) for t in (input, grad))
    of_grad, of_product = channels.sums(g), channels.products(x, mean, g)
    to_input = None
    if needs[0]:
        factor, n = r if weight is None else r * weight, x.size // channels.count
        if training:
            to_input = channels.combined(g, factor, x, mean, factor * r * r * of_product / -n, factor * of_grad / -n)
        else:
            to_input = g * factor.reshape(mean.shape)
    return to_input, of_product * r if needs[1] else None, of_grad if needs[2] else None


@composite(method=False, function=False, arrays=_batch_norm_backward)
def batch_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training):
    """The gradients of batch_norm."""
    return F.batch_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training)


@composite(method=False, function=False)
def batch_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training):
    """Those of normalized_backward, summed per channel for weight and bias."""
    dims = (0, *range(2, input.ndim))
    if weight is not None:
        weight = F.reshape(weight, mean.shape)
    to_input, to_weight, to_bias = F.normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, training)
    return (to_input, None if to_weight is None else F.sum(to_weight, dims), None if to_bias is None else F.sum(to_bias, dims))


@composite(method=False, function=False)
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    """Each channel (dimension 1) brought to mean 0 and variance 1, times weight, plus bias.

    In training the batch's own mean and variance are used, and the running ones move towards them by `momentum`.
    Raises: ValueError for one value per channel in training, RuntimeError for sizes that do not fit or missing running values.
    Reference: torch.nn.functional.batch_norm.
    """
    shape = input.shape
    if not input._array.size:
        out = F.clone(input) if weight is None else F.clone(input) * weight[0]          # so that both have a gradient
        return out if bias is None else out + bias[0]
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions, got {tuple(shape)}")
    if training and math.prod(shape) // max(shape[1], 1) == 1:
        raise ValueError(f"batch_norm: Expected more than 1 value per channel when training, got input size {list(shape)}")
    for name, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if t is None:
            if not training and name.startswith("running"):
                raise RuntimeError(f"batch_norm: {name} must be defined in evaluation mode")
        elif math.prod(t.shape) != shape[1]:
            raise RuntimeError(f"batch_norm: {name} should contain {shape[1]} elements not {math.prod(t.shape)}")
    floating("batch_norm", input._array.dtype)
    _one_dtype("batch_norm", input, running_mean, running_var, weight, bias)
    out = F.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if training:
        for t in (running_mean, running_var):
            if t is not None:
                count_write(t)
    return out


@op(node="NativeGroupNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_group_norm(input, weight: Tensor | None, bias: Tensor | None, group: int, eps: float):
    """group_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("group_norm", input.dtype)
    x = input.astype(accumulator(input.dtype), "C", copy=False)
    if x.__class__ is _CPU and x.size > x.shape[0] * x.shape[1]:
        groups = _Groups(x.shape, group)
        mean, var = groups.moments(x)
        rstd = 1 / np.sqrt(var + x.dtype.type(eps))
        out = groups.scaled(x, mean, rstd, weight, bias)
        return out.astype(input.dtype, copy=False), mean.reshape(-1, group), rstd.reshape(-1, group)
    x = x.reshape(input.shape[0], group, math.prod(input.shape[1:]) // group)
    mean = F.total(x, 2) / max(x.shape[2], 1)
    x = x - mean
    rstd = 1 / np.sqrt(F.total(x * x, 2) / max(x.shape[2], 1) + x.dtype.type(eps))
    x = (x * rstd).reshape(input.shape)
    shape = (-1,) + (1,) * (input.ndim - 2)
    if weight is not None:
        x = x * weight.reshape(shape)
    if bias is not None:
        x = x + bias.reshape(shape)
    return x.astype(input.dtype, copy=False), mean[..., 0], rstd[..., 0]


class _Groups:
    """Arrays of the CPU, of a shape (samples, channels, ...), as matrices: a row for a group of a sample, or for a channel of a sample."""

    def __init__(self, shape, group):
        self.samples, self.channels = shape[:2]
        self.each = self.channels // group               # channels of a group
        self.of_groups, self.of_channels = (self.samples * group, -1), (self.samples * self.channels, -1)

    def moments(self, x):
        """The mean and variance of each group, in a column."""
        x = x.reshape(self.of_groups)
        return rows.moments(functools.partial(rows.sums, x), functools.partial(rows.products, x), x.shape[1])

    def spread(self, values):
        """Numbers of the groups as those of their channels, in a column."""
        return np.repeat(values.reshape(-1), self.each)[:, None]

    def times(self, sums, weight):
        """Numbers of each sample's channels, in a column, times the channels' weight."""
        return sums if weight is None else sums * np.tile(weight, self.samples)[:, None]

    def scaled(self, x, mean, rstd, weight, bias):
        """(x - mean) * rstd * weight + bias."""
        shift, out = None if bias is None else np.tile(bias, self.samples)[:, None], np.empty(x.shape, x.dtype)
        rows.scaled(x.reshape(self.of_channels), self.spread(mean), self.times(self.spread(rstd), weight), shift,
                    out.reshape(self.of_channels))
        return out

    def backward(self, needs, grad, x, mean, rstd, weight):
        """The gradients of x, weight and bias."""
        mean, r = self.spread(mean), self.spread(rstd)
        n, to_input = x.size // self.of_groups[0], np.empty(x.shape, x.dtype) if needs[0] else None
        x, grad = x.reshape(self.of_channels), grad.reshape(self.of_channels)
        of_grad, of_product = rows.sums(grad), rows.products(x, mean, grad)
        if needs[0]:
            shift, slope = (self.spread(self.times(t, weight).reshape(-1, self.each).sum(1)) for t in (of_grad, of_product))
            rows.combined(grad, self.times(r, weight), x, mean, slope * r * r * r / -n, shift * r / -n, to_input.reshape(self.of_channels))
        return to_input, *[summed(t.reshape(self.samples, self.channels), 0) if need else None
                           for t, need in zip((of_product * r, of_grad), needs[1:], strict=True)]


@native_group_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, group):
    return F.group_norm_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, group)


def _group_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group):
    if not _by_rows(grad, grad_mean, grad_rstd) or grad.size == grad.shape[0] * grad.shape[1]:
        return F.group_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group)
    x, g = (np.ascontiguousarray(t, rstd.dtype) for t in (input, grad))
    return _Groups(x.shape, group).backward(needs, g, x, mean, rstd, weight)


@composite(method=False, function=False, arrays=_group_norm_backward)
def group_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group):
    """The gradients of group_norm."""
    return F.group_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group)


@composite(method=False, function=False)
def group_norm_gradients(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group):
    """Those of normalized_backward in rows of one group each for the input, and summed per channel for weight and bias."""
    rows = (input.shape[0], group, math.prod(input.shape[1:]) // group)
    mean, rstd, grad_mean, grad_rstd = (None if t is None else F.unsqueeze(t, 2) for t in (mean, rstd, grad_mean, grad_rstd))
    x = F.reshape(input, rows)
    scaled = grad if weight is None or grad is None else grad * F.reshape(weight, (-1,) + (1,) * (input.ndim - 2))
    to_input, _, _ = F.normalized_backward((needs[0], False, False), None if scaled is None else F.reshape(scaled, rows), grad_mean,
                                           grad_rstd, x, mean, rstd, None, (2,), True)
    dims = (0, *range(2, input.ndim))
    return (None if to_input is None else F.reshape(to_input, input.shape),
            F.sum(grad * F.reshape((x - mean) * rstd, input.shape), dims) if needs[1] and grad is not None else None,
            F.sum(grad, dims) if needs[2] and grad is not None else None)


@composite(method=False, function=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Groups of channels (dimension 1) brought to mean 0 and variance 1 in each sample, times weight, plus bias, both per channel.

    Raises: RuntimeError for sizes that do not fit, ValueError for groups of one element. Reference: torch.nn.functional.group_norm.
    """
    shape = list(input.shape)
    if len(shape) < 2:
        raise RuntimeError(f"group_norm: Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0 or shape[1] % num_groups:
        raise RuntimeError(f"group_norm: Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{shape} and num_groups={num_groups}")
    if shape[0] * shape[1] // num_groups * math.prod(shape[2:]) == 1:
        raise ValueError(f"group_norm: Expected more than 1 value per channel when training, got input size {shape}")
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != (shape[1],):
            raise RuntimeError(f"group_norm: Expected {name} to be a vector of size equal to the number of channels in input, but got "
                               f"{name} of shape {list(t.shape)} and input of shape {shape}")
    _one_dtype("group_norm", input, weight, bias)
    return F.native_group_norm(input, weight, bias, num_groups, eps)


@composite(method=False, function=False)
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05):
    """Each channel of each sample brought to mean 0 and variance 1, times weight, plus bias.

    Where there are running values, they move towards the mean over the batch by `momentum`, or are used themselves unless
    `use_input_stats`. Raises: ValueError for one element per channel, RuntimeError for missing running values.
    Reference: torch.nn.functional.instance_norm.
    """
    n, c, *rest = shape = tuple(input.shape)
    if use_input_stats and math.prod(rest) == 1:
        raise ValueError(f"instance_norm: Expected more than 1 spatial element when training, got input size {input.shape}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false")
    mean, var, scale, shift = (t if t is None else F.repeat(t, (n,)) for t in (running_mean, running_var, weight, bias))
    out = F.batch_norm(F.reshape(input, (1, n * c, *rest)), mean, var, scale, shift, use_input_stats, momentum, eps)
    if use_input_stats:
        for t, moved in ((running_mean, mean), (running_var, var)):
            if t is not None:
                t.data.copy_(F.mean(F.reshape(moved.detach(), (n, c)), 0))
                count_write(t)
    return F.reshape(out, shape)


@composite(method=False)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """The last dimensions over the root of the mean of their squares, times weight. `eps`: by default that of the dtype.

    Raises: RuntimeError unless input ends in normalized_shape, and weight has it. Reference: torch.nn.functional.rms_norm.
    """
    shape = list(normalized_shape)
    if weight is not None and list(weight.shape) != shape:
        raise RuntimeError(f"rms_norm: Expected weight to be of same shape as normalized_shape, but got weight of shape "
                           f"{list(weight.shape)} and normalized_shape = {shape}")
    if not shape or list(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"rms_norm: Given normalized_shape={shape}, expected input with shape [*, {str(shape)[1:-1]}], but got input of "
                           f"size {list(input.shape)}")
    own = input.dtype.dtype
    refuse("rms_norm", input._array, "biu")
    wide = accumulator(own)
    x = F.to(input, wide)
    mean = F.mean(F.pow(x, 2), tuple(range(-len(shape), 0)), True)
    out = x * F.rsqrt(mean + (np.finfo(wide).eps.item() if eps is None else eps))
    return F.to(F.contiguous(out if weight is None else out * weight), own)
