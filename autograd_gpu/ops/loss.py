"""Losses: the ops behind nn.functional's."""
from __future__ import annotations

import math
import warnings

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.cuda import bounds
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise, op
from autograd_gpu.ops.operands import refuse
from autograd_gpu.ops.reduce import accumulator

_CPU = np.ndarray                            # np in a body may be CuPy
_NONE, _MEAN, _SUM = 0, 1, 2                 # what PyTorch saves for reduction="none", "mean", "sum"
_CODES = {"none": _NONE, "mean": _MEAN, "sum": _SUM}


def reduction_name(name, reduction, size_average=None, reduce=None):
    """A reduction, or what the two flags say that PyTorch once had instead."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(f"{name}: size_average and reduce are deprecated: use reduction={reduction!r}", stacklevel=4)
    return reduction


def _reduction(name, reduction, size_average=None, reduce=None):
    """A reduction's code. Raises ValueError for a name that is none."""
    reduction = reduction_name(name, reduction, size_average, reduce)
    if reduction not in _CODES:
        raise ValueError(f"{name}: {reduction} is not a valid value for reduction: expected 'none', 'mean' or 'sum'")
    return _CODES[reduction]


def _floating(name, *arrays):
    for a in arrays:
        if a is not None and _dtype.category(a.dtype) != "f":
            raise NotImplementedError(f"{name}: not implemented for {_dtype.of(a.dtype)}: convert it to a floating dtype first")


@composite(method=False, function=False)
def reduced(each, reduction, dtype):
    """The losses of the elements as the reduction wants them, in a dtype."""
    if reduction == _NONE:
        return each.astype(dtype, copy=False)
    total = np.add.reduce(each, None)
    return (total if reduction == _SUM else total / each.size).astype(dtype, copy=False)


@composite(method=False, function=False)
def per_element(grad, shape, reduction):
    """The gradient of a loss for each element's own loss."""
    return grad / math.prod(shape) if reduction == _MEAN else grad


def _alike(name, input, target, weight=None):
    """Input and target in one shape; a warning where they were not."""
    if input.shape != target.shape:
        warnings.warn(f"{name}: Using a target size ({tuple(target.shape)}) that is different to the input size "
                      f"({tuple(input.shape)}): they are broadcast, which is rarely meant", stacklevel=4)
        try:
            shape = np.broadcast_shapes(input.shape, target.shape)
        except ValueError:
            raise RuntimeError(f"{name}: The size of tensor a {tuple(input.shape)} must match the size of tensor b "
                               f"{tuple(target.shape)} or be 1 in every dimension") from None
        input, target = (t if t.shape == shape else F.expand(t, shape) for t in (input, target))
    return input, target


# ------------------------------------------------------------------------------------------- losses of differences

@op(node="MseLossBackward0", promote=["self", "target"], method=False, function=False)
def mse_loss_of(self, target, reduction: int):
    """(self - target) ** 2, reduced."""
    _floating("mse_loss", self)
    off = np.subtract(self, target, dtype=accumulator(self.dtype))
    return F.reduced(off * off, reduction, self.dtype)

mse_loss_of.vjp(self=lambda grad, self, target, reduction: F.per_element(grad * 2, self.shape, reduction) * (self - target),
                target=lambda grad, self, target, reduction: F.per_element(grad * 2, self.shape, reduction) * (target - self))


@composite(method=False, function=False)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target) ** 2, its mean, sum or the elements.

    Raises: ValueError for another reduction, RuntimeError for shapes that cannot be broadcast.
    Reference: torch.nn.functional.mse_loss.
    """
    code = _reduction("mse_loss", reduction, size_average, reduce)
    input, target = _alike("mse_loss", input, target)
    if weight is None:
        return F.mse_loss_of(input, target, code)
    each = F.mse_loss_of(input, target, _NONE) * weight
    return each if code == _NONE else F.sum(each) if code == _SUM else F.sum(each) / F.sum(F.expand(weight, tuple(input.shape)))


@composite(method=False, function=False)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|, its mean, sum or the elements.

    Raises: ValueError for another reduction, RuntimeError for shapes that cannot be broadcast.
    Reference: torch.nn.functional.l1_loss.
    """
    code = _reduction("l1_loss", reduction, size_average, reduce)
    input, target = _alike("l1_loss", input, target)
    each = F.abs(input - target)
    if weight is not None:
        each = each * weight
        if code == _MEAN:
            return F.sum(each) / F.sum(F.expand(weight, tuple(input.shape)))
    return each if code == _NONE else F.sum(each) if code == _SUM else F.mean(each)


@op(node="SmoothL1LossBackward0", promote=["self", "target"], method=False, function=False)
def smooth_l1_loss_of(self, target, reduction: int, beta: float):
    """Half the square over beta where the difference is below beta, else its absolute value less beta / 2; reduced."""
    _floating("smooth_l1_loss", self)
    off = np.abs(np.subtract(self, target, dtype=accumulator(self.dtype)))
    return F.reduced(F.where(off < beta, off * off * (0.5 / beta), off - 0.5 * beta), reduction, self.dtype)

smooth_l1_loss_of.vjp(
    self=lambda grad, self, target, reduction, beta:
        F.per_element(grad, self.shape, reduction) * F.bent(self - target, beta, 1 / beta, 1),
    target=lambda grad, self, target, reduction, beta:
        F.per_element(grad, self.shape, reduction) * F.bent(target - self, beta, 1 / beta, 1))


@composite(method=False, function=False)
def bent(off, bend, inner, outer):
    """The slope of a loss that is a parabola up to `bend` and a line from there."""
    return F.where(F.abs(off) >= bend, F.sign(off) * outer, off * inner)      # this way round NaN stays NaN


@composite(method=False, function=False)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """The absolute difference, rounded off to a parabola below beta.

    Raises: RuntimeError for a negative beta, ValueError for another reduction. Reference: torch.nn.functional.smooth_l1_loss.
    """
    code = _reduction("smooth_l1_loss", reduction, size_average, reduce)
    input, target = _alike("smooth_l1_loss", input, target)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: does not support negative values for beta, got {beta}")
    if beta == 0:
        return F.l1_loss(input, target, reduction=("none", "mean", "sum")[code])
    return F.smooth_l1_loss_of(input, target, code, float(beta))


@op(node="HuberLossBackward0", promote=["self", "target"], method=False, function=False)
def huber_loss_of(self, target, reduction: int, delta: float):
    """Half the square of the difference up to delta, a line from there; reduced."""
    _floating("huber_loss", self)
    off = np.abs(np.subtract(self, target, dtype=accumulator(self.dtype)))
    return F.reduced(F.where(off <= delta, off * off * 0.5, delta * (off - 0.5 * delta)), reduction, self.dtype)

huber_loss_of.vjp(
    self=lambda grad, self, target, reduction, delta:
        F.per_element(grad, self.shape, reduction) * F.bent(self - target, delta, 1, delta),
    target=lambda grad, self, target, reduction, delta:
        F.per_element(grad, self.shape, reduction) * F.bent(target - self, delta, 1, delta))


@composite(method=False, function=False)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Half the square of the difference up to delta, a line from there.

    Raises: RuntimeError for a delta that is not positive, ValueError for another reduction. Reference: torch.nn.functional.huber_loss.
    """
    code = _reduction("huber_loss", reduction)
    input, target = _alike("huber_loss", input, target)
    if delta <= 0:
        raise RuntimeError(f"huber_loss: does not support non-positive values for delta, got {delta}")
    if weight is None:
        return F.huber_loss_of(input, target, code, float(delta))
    each = F.huber_loss_of(input, target, _NONE, float(delta)) * weight
    return each if code == _NONE else F.sum(each) if code == _SUM else F.mean(each)


# ----------------------------------------------------------------------------------------------- losses of probabilities

@op(node="BinaryCrossEntropyBackward0", method=False, function=False)
def binary_cross_entropy_of(self, target, weight: Tensor | None, reduction: int):
    """-(target log self + (1 - target) log(1 - self)), logarithms not below -100; weighted, reduced."""
    _floating("binary_cross_entropy", self, target)
    if self.__class__ is _CPU and self.size and not (self.min() >= 0 and self.max() <= 1):
        raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1: apply sigmoid, or use "
                           "binary_cross_entropy_with_logits")
    x, t = (a.astype(accumulator(a.dtype), copy=False) for a in (self, target))
    floor = x.dtype.type(-100)
    each = (t - 1) * np.maximum(np.log1p(-x), floor) - t * np.maximum(np.log(x), floor)
    return F.reduced(each if weight is None else each * weight, reduction, self.dtype)

binary_cross_entropy_of.vjp(
    self=lambda grad, self, target, weight, reduction:
        F.weighted(F.per_element(grad, self.shape, reduction), weight) * (self - target) / F.at_least(self * (1 - self), 1e-12),
    target=lambda grad, self, target, weight, reduction, self_shape:
        F.weighted(F.per_element(grad, self_shape, reduction), weight) * (F.log1p(-self) - F.log(self)))


@composite(method=False, function=False)
def weighted(grad, weight):
    """A gradient times the weight, if there is one."""
    return grad if weight is None else grad * weight


@composite(method=False, function=False)
def at_least(x, low):
    """x, or a number where x is below it."""
    return F.where(x < low, low, x)


@composite(method=False, function=False)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The cross entropy of probabilities `input` and truths `target`, both from 0 to 1.

    Raises: ValueError for a target of another shape or another reduction, RuntimeError for one of another dtype and for an input
    outside of 0 to 1 (not looked for on a GPU, which would have to wait). Reference: torch.nn.functional.binary_cross_entropy.
    """
    code = _reduction("binary_cross_entropy", reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(f"binary_cross_entropy: Using a target size ({tuple(target.shape)}) that is different to the input size "
                         f"({tuple(input.shape)}) is not supported: give them the same shape")
    if input.dtype != target.dtype:
        raise RuntimeError(f"binary_cross_entropy: Found dtype {target.dtype} but expected {input.dtype}: convert the target")
    return F.binary_cross_entropy_of(input, target, _fitting("binary_cross_entropy", weight, input.shape), code)


def _fitting(name, weight, shape):
    """A weight that can be broadcast to a shape. Raises RuntimeError for another, or one that requires grad."""
    if weight is not None:
        if weight.requires_grad:
            raise RuntimeError(f"{name}: The function is not differentiable with respect to argument 'weight': detach() it")
        try:
            fits = np.broadcast_shapes(weight.shape, shape) == tuple(shape)
        except ValueError:
            fits = False
        if not fits:
            raise RuntimeError(f"{name}: The size of the weight {tuple(weight.shape)} must match the size of the input "
                               f"{tuple(shape)}, or be broadcastable to it")
    return weight


@op(node="BinaryCrossEntropyWithLogitsBackward0", method=False, function=False)
def binary_cross_entropy_with_logits_of(self, target, weight: Tensor | None, pos_weight: Tensor | None, reduction: int):
    """The cross entropy of sigmoid(self) and target without a sigmoid that underflows; weighted, reduced."""
    refuse("binary_cross_entropy_with_logits", self, "biuc")
    refuse("binary_cross_entropy_with_logits", target, "biuc", RuntimeError)
    own = self.dtype
    for other in (target, weight, pos_weight):
        own = own if other is None else _dtype.promote_numpy(own, other.dtype)
    x = self.astype(accumulator(own), copy=False)
    other = np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0)
    if pos_weight is not None:
        other = other * ((pos_weight - 1) * target + 1)
    each = (1 - target) * x + other
    return F.reduced(each if weight is None else each * weight, reduction, target.dtype)

binary_cross_entropy_with_logits_of.vjp(
    self=lambda grad, self, target, weight, pos_weight, reduction:
        F.weighted(F.per_element(grad, self.shape, reduction), weight) * F.logit_slope(self, target, pos_weight),
    target=lambda grad, self, target, weight, pos_weight, reduction:
        F.weighted(F.per_element(grad, self.shape, reduction), weight) * F.truth_slope(self, pos_weight))


@composite(method=False, function=False)
def logit_slope(x, target, pos_weight):
    """The derivative of the cross entropy with logits by the logits."""
    if pos_weight is None:
        return F.sigmoid(x) - target
    return (1 - target) + ((pos_weight - 1) * target + 1) * (F.sigmoid(x) - 1)


@composite(method=False, function=False)
def truth_slope(x, pos_weight):
    """The derivative of the cross entropy with logits by the truths."""
    return -x if pos_weight is None else F.softplus(-x) * (pos_weight - 1) - x


@composite(method=False, function=False)
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    """The cross entropy of probabilities sigmoid(input) and truths `target`; `pos_weight` weighs the true ones.

    The result has the target's dtype. Raises: ValueError for a target of another shape or another reduction, RuntimeError for one of
    integers. Reference: torch.nn.functional.binary_cross_entropy_with_logits.
    """
    name = "binary_cross_entropy_with_logits"
    code = _reduction(name, reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(f"{name}: Target size ({tuple(target.shape)}) must be the same as input size ({tuple(input.shape)})")
    weight, pos_weight = _fitting(name, weight, input.shape), _fitting(name, pos_weight, input.shape)
    return F.binary_cross_entropy_with_logits_of(input, target, weight, pos_weight, code)


@composite(method=False, function=False)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log target - input), its mean, sum, sum over the batch's size ("batchmean") or the elements.

    Raises: ValueError for another reduction. Reference: torch.nn.functional.kl_div.
    """
    if input.dtype.kind != "f" or target.dtype.kind != "f":
        raise RuntimeError(f"kl_div: Integral and complex inputs not supported, got {input.dtype} and {target.dtype}: convert them first")
    batch = reduction == "batchmean"
    code = _SUM if batch else _reduction("kl_div", reduction, size_average, reduce)
    each = F.exp(target) * (target - input) if log_target else F.xlogx(target) - target * input
    if code == _NONE:
        return each
    if code == _MEAN:
        return F.mean(each)
    total = F.sum(each)
    return total / input.shape[0] if batch and input.ndim else total


@elementwise(node="XlogyBackward0", to_float=True, method=False, function=False, domain=(0.1, 2))
def xlogx(self):
    """self * log(self), 0 at 0."""
    return np.where(self == 0, self.dtype.type(0), self * np.log(self))

xlogx.vjp(self=lambda grad, self: grad * (F.log(self) + self / self))


# ----------------------------------------------------------------------------------------------------- losses of classes

@composite(method=False, function=False)
def nll_terms(target, weight, ignore_index, classes):
    """(target with 0 where it is ignored, each target's weight, where it is not ignored); None if all weigh 1, if none is ignored."""
    if target.__class__ is _CPU and target.size:         # a GPU would wait for these values
        low, high = F.smallest(target, None, False), F.largest(target, None, False)
        if low >= 0 and high < classes and not 0 <= ignore_index < classes:
            return target, None if weight is None else weight[target], None
        wrong = target[((target < 0) | (target >= classes)) & (target != ignore_index)]
        if wrong.size:
            raise IndexError(f"nll_loss: Target {wrong[0]} is out of bounds: there are {classes} classes, numbered from 0")
    used = target != ignore_index
    safe = np.where(used, target, 0)
    return safe, None if weight is None else weight[safe], used


@composite(method=False, function=False)
def nll_divisor(safe, w, used, dtype):
    """What the mean is divided by, for nll_terms: the weights of the targets that count."""
    if w is None:
        return safe.size if used is None else np.add.reduce(used, None, dtype)
    return np.add.reduce(F.nll_counted(w, used), None, dtype)


@composite(method=False, function=False)
def nll_counted(values, used):
    """Each target's value, 0 where the target is ignored, whatever the value."""
    return values if used is None else np.where(used, values, values.dtype.type(0))


@composite(method=False, function=False)
def nll_value(self, target, weight, reduction, ignore_index):
    """The body of nll_loss."""
    axis = 0 if self.ndim == 1 else 1
    own = self.dtype
    _floating("nll_loss", self)
    wide = accumulator(own)
    safe, w, used = F.nll_terms(target, weight, ignore_index, self.shape[axis])
    if target.__class__ is not _CPU:
        bounds.check("nll_loss", safe, self.shape[axis], axis)
    if self.ndim == 2:
        picked = self[np.arange(safe.size), safe]
    else:
        picked = np.take_along_axis(self, np.expand_dims(safe, axis), axis).reshape(safe.shape)
    each = F.nll_counted(np.negative(picked, dtype=wide) if w is None else picked * -w.astype(wide), used)
    if reduction == _NONE:
        return each.astype(own, copy=False)
    loss = np.add.reduce(each, None)
    if reduction == _MEAN:
        loss = loss / F.nll_divisor(safe, w, used, wide)
    return loss.astype(own, copy=False)


@op(node="NllLossBackward0", method=False, function=False)
def nll_loss_forward(self, target, weight: Tensor | None, reduction: int, ignore_index: int):
    """nll_loss for one sample, or a batch of them."""
    return F.nll_value(self, target, weight, reduction, ignore_index)

nll_loss_forward.vjp(self=lambda grad, self, target, weight, reduction, ignore_index:
                     F.nll_loss_backward(grad, target, weight, self.shape, reduction, ignore_index))


@op(node="NllLoss2DBackward0", method=False, function=False)
def nll_loss2d_forward(self, target, weight: Tensor | None, reduction: int, ignore_index: int):
    """nll_loss for a batch of images."""
    return F.nll_value(self, target, weight, reduction, ignore_index)

nll_loss2d_forward.vjp(self=lambda grad, self, target, weight, reduction, ignore_index:
                       F.nll_loss_backward(grad, target, weight, self.shape, reduction, ignore_index))


@op(method=False, function=False)
def nll_loss_backward(grad_output, target, weight: Tensor | None, size: Size, reduction: int, ignore_index: int):
    """The gradient of nll_loss: at each target's class its weight, negative."""
    axis = 0 if len(size) == 1 else 1
    safe, w, used = F.nll_terms(target, weight, ignore_index, size[axis])
    g = -grad_output
    if reduction == _MEAN:
        g = g / F.nll_divisor(safe, w, used, g.dtype)
    if w is not None:
        g = g * w.astype(g.dtype, copy=False)
    g = F.nll_counted(g, used)
    if len(size) == 2:
        result = np.zeros(size, g.dtype)
        result[np.arange(safe.size), safe] = g
        return result
    at = np.arange(size[axis]).reshape((-1,) + (1,) * (len(size) - 1 - axis))
    return np.where(at == np.expand_dims(safe, axis), np.expand_dims(g, axis) if g.ndim else g, g.dtype.type(0))

nll_loss_backward.vjp(grad_output=lambda grad, target, weight, reduction, ignore_index:
                      F.nll_loss_forward(grad, target, weight, reduction, ignore_index))


@composite(method=False, function=False)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """Minus the log probability of the target's class, times the class's weight; targets `ignore_index` do not count.

    Shape: input (classes), (batch, classes) or (batch, classes, ...); target without the classes.
    Raises: ValueError for another batch size or reduction, IndexError for a target that is no class, RuntimeError for a target that is
    not of int64. Reference: torch.nn.functional.nll_loss.
    """
    code = _reduction("nll_loss", reduction, size_average, reduce)
    if input.ndim == 0:
        raise ValueError("nll_loss: Expected 1 or more dimensions (got 0)")
    if input.ndim != 1 and (target.ndim == 0 or input.shape[0] != target.shape[0]):
        raise ValueError(f"nll_loss: Expected input batch_size ({input.shape[0]}) to match target batch_size "
                         f"({target.shape[0] if target.ndim else 'none, it has no dimensions'}).")
    return _nll(input, target, weight, code, ignore_index)


def _nll(input, target, weight, code, ignore_index):
    shape = input._array.shape
    classes = shape[0 if len(shape) == 1 else 1]
    expected = () if len(shape) == 1 else (shape[0], *shape[2:])
    if len(shape) == 1 and target.ndim == 1 and target.shape[0] != 1:
        raise ValueError(f"nll_loss: For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}")
    if len(shape) == 1 and target.ndim == 1:
        target = F.reshape(target, ())
    if target._array.shape != expected:
        raise RuntimeError(f"nll_loss: Expected target size {list(expected)}, got {list(target.shape)}")
    if target._array.dtype not in (np.int64, np.uint8):
        raise RuntimeError(f"nll_loss: expected target dtype to be Long or Byte, but got {target.dtype}: convert it with .long()")
    if weight is not None:
        if tuple(weight.shape) != (classes,):
            raise RuntimeError(f"nll_loss: weight tensor should be defined either for all {classes} classes or no classes but got "
                               f"weight tensor of shape: {list(weight.shape)}")
        if weight.requires_grad:
            raise RuntimeError("nll_loss: The function is not differentiable with respect to argument 'weight': detach() it")
        if weight._array.dtype != input._array.dtype:
            raise RuntimeError(f"nll_loss: expected scalar type of the weight to be the input's {input.dtype} but found "
                               f"{weight.dtype}")
    if input.ndim <= 2:
        return F.nll_loss_forward(input, target, weight, code, ignore_index)
    if input.ndim == 4:
        return F.nll_loss2d_forward(input, target, weight, code, ignore_index)
    width = (1, math.prod(shape[2:])) if input.ndim != 3 else (1, shape[2])
    input, target = F.reshape(input, (*shape[:2], *width)), F.reshape(target, (shape[0], *width))
    out = F.nll_loss2d_forward(input, target, weight, code, ignore_index)
    return F.view(out, expected) if code == _NONE else out


@composite(method=False, function=False)
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """nll_loss of log_softmax(input); target holds classes, or probabilities in the shape of input.

    Raises: RuntimeError for a label_smoothing outside of 0 to 1; as nll_loss. Reference: torch.nn.functional.cross_entropy.
    """
    code = _reduction("cross_entropy", reduction, size_average, reduce)
    shape, target_shape = input._array.shape, target._array.shape
    axis = 0 if len(shape) == 1 else 1
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if shape == target_shape:
        if _dtype.category(target._array.dtype) != "f":
            raise RuntimeError(f"cross_entropy: Expected floating point type for target with class probabilities, got {target.dtype}")
        if ignore_index >= 0:
            raise RuntimeError("cross_entropy: ignore_index is not supported for floating point target")
        return _of_probabilities(F.log_softmax(input, axis), target, weight, code, label_smoothing, axis)
    logs = F.log_softmax(input, axis)
    if len(shape) > 1 and target_shape and shape[0] != target_shape[0]:
        raise ValueError(f"cross_entropy: Expected input batch_size ({shape[0]}) to match target batch_size ({target_shape[0]}).")
    loss = _nll(logs, target, weight, code, ignore_index)
    return _smoothed(loss, logs, target, weight, code, ignore_index, label_smoothing, axis) if label_smoothing > 0 else loss


def _per_class(weight, ndim, axis):
    return F.reshape(weight, (-1,) + (1,) * (ndim - 1 - axis))


def _of_probabilities(logs, target, weight, code, label_smoothing, axis):
    classes = logs.shape[axis]
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / max(classes, 1)
    terms = logs * target
    if weight is not None:
        if tuple(weight.shape) != (classes,):
            raise RuntimeError(f"cross_entropy: weight tensor should be defined for all {classes} classes, got shape "
                               f"{list(weight.shape)}")
        terms = terms * _per_class(weight, logs.ndim, axis)
    if code == _NONE:
        return -F.sum(terms, axis)
    total = -F.sum(terms)
    if code == _SUM:
        return total
    elements = math.prod(logs.shape)
    return F.div_number(total, elements / classes) if elements else -F.mul_number(total, math.nan)


def _smoothed(loss, logs, target, weight, code, ignore_index, label_smoothing, axis):
    """Class targets smoothed: a share of the loss is the mean over all classes."""
    classes = logs.shape[axis]
    even = -F.sum(logs if weight is None else logs * _per_class(weight, logs.ndim, axis), axis)
    ignored = target == ignore_index
    even = F.masked_fill(even, F.reshape(ignored, tuple(even.shape)), 0.0)
    if code == _SUM:
        even = F.sum(even)
    elif code == _MEAN:
        counted = ~ignored
        if weight is not None:
            even = F.sum(even) / F.sum(weight[F.where(ignored, 0, target)] * counted)
        else:
            even = F.sum(even) / F.sum(counted)
    return F.mul_number(loss, 1 - label_smoothing) + F.mul_number(even, label_smoothing / max(classes, 1))


@elementwise(node="MulBackward1", method=False, function=False)
def mul_number(self, other: Number):
    """self * other, by a number that PyTorch multiplies by inside of an op of its own."""
    return self * other

mul_number.vjp(self=lambda grad, other: grad * other)


@elementwise(node="DivBackward1", method=False, function=False)
def div_number(self, other: Number):
    """self / other, by a number that PyTorch divides by inside of an op of its own."""
    return self / other

div_number.vjp(self=lambda grad, other: grad / other)
