"""Losses of pairs, margins and distributions, and the distance between vectors, made of other ops."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.ops.loss import _NONE, _SUM, _floating, _reduction
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op


def _reduced(each, code):
    return each if code == _NONE else F.sum(each) if code == _SUM else F.mean(each)


@composite(method=False)
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension. Reference: torch.pairwise_distance."""
    return F.norms_of_rows(x1 - x2 + eps, p, keepdim)


@op(node="NormBackward1", method=False, function=False)
def norms_of_rows(self, ord: Number, keepdim: bool):
    """The norm along the last dimension, which PyTorch has a node of its own for here."""
    return F.linalg_vector_norm(self, ord, -1, keepdim)

norms_of_rows.vjp(self=lambda grad, self, result, ord, keepdim: F.norm_backward(grad, self, result, ord, -1, keepdim))


@composite(method=False, function=False)
def margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """max(0, margin - target * (input1 - input2)): target is 1 where input1 should be the larger, else -1.

    Raises: RuntimeError unless all have one number of dimensions. Reference: torch.nn.functional.margin_ranking_loss.
    """
    code = _reduction("margin_ranking_loss", reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)}")
    return _reduced(F.clamp_min(-target * (input1 - input2) + margin, 0), code)


@composite(method=False, function=False)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """The input where target is 1, max(0, margin - input) where it is -1. Reference: torch.nn.functional.hinge_embedding_loss."""
    code = _reduction("hinge_embedding_loss", reduction, size_average, reduce)
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        margin = int(margin)                                 # PyTorch's is of the input's dtype
    apart, near = F.clamp_min(margin - input, 0), input
    return _reduced(F.where(target != 1, apart, 0) + F.where(target != -1, near, 0), code)


@composite(method=False, function=False)
def cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, with the cosine of the angle between the inputs.

    Shape: inputs (N, D) and target (N), or (D) and (). Raises: RuntimeError for others.
    Reference: torch.nn.functional.cosine_embedding_loss.
    """
    code = _reduction("cosine_embedding_loss", reduction, size_average, reduce)
    if target.ndim > 1:
        raise RuntimeError(f"cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported: got {target.ndim}D")
    if not input1.ndim == input2.ndim == target.ndim + 1:
        raise RuntimeError(f"cosine_embedding_loss: {target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
                           f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}.")
    squares = (F.sum(input1 * input1, -1) + 1e-12) * (F.sum(input2 * input2, -1) + 1e-12)
    cos = F.sum(input1 * input2, -1) / F.sqrt(squares)
    return _reduced(F.where(target == 1, 1 - cos, 0) + F.where(target == -1, F.clamp_min(cos - margin, 0), 0), code)


@composite(method=False, function=False)
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None,
                        reduction="mean"):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the p-norm of the difference along the last dimension.

    swap: d(positive, negative) counts where it is the smaller. Raises: ValueError for a margin that is not positive, RuntimeError unless
    all have one number of dimensions. Reference: torch.nn.functional.triplet_margin_loss.
    """
    code = _reduction("triplet_margin_loss", reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: margin must be greater than 0, got {margin}")
    return _triplet("triplet_margin_loss", anchor, positive, negative, lambda x, y: F.pairwise_distance(x, y, p, eps), margin, swap, code)


@composite(method=False, function=False)
def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """triplet_margin_loss with any distance of two tensors. Reference: torch.nn.functional.triplet_margin_with_distance_loss."""
    code = _reduction("triplet_margin_with_distance_loss", reduction)
    if margin <= 0:
        raise ValueError(f"triplet_margin_with_distance_loss: margin must be greater than 0, got {margin}")
    return _triplet("triplet_margin_with_distance_loss", anchor, positive, negative, distance_function or F.pairwise_distance, margin, swap,
                    code)


def _triplet(name, anchor, positive, negative, distance, margin, swap, code):
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(f"{name}: The anchor, positive, and negative tensors are expected to have the same number of dimensions, but "
                           f"got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    return _reduced(F.clamp_min(margin + near - far, 0), code)


@composite(method=False, function=False)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log(var) + (input - target)^2 / var) / 2, with var at least eps; full: and log(2 pi) / 2.

    var: of the input's shape, without its last dimension or with 1 there, or a number.
    Raises: ValueError for a negative var or one of another size. Reference: torch.nn.functional.gaussian_nll_loss.
    """
    if not isinstance(var, Tensor):
        var = F.ones_like(input) * float(var)
    if var.dtype.is_complex:
        raise NotImplementedError(f"gaussian_nll_loss: not implemented for a var of {var.dtype}: give a real one")
    if (var._array < 0).any():
        raise ValueError("gaussian_nll_loss: var has negative entry/entries")
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = F.unsqueeze(var, -1)
        elif not (input.shape[:-1] == var.shape[:-1] and var.shape[-1] == 1):
            raise ValueError(f"gaussian_nll_loss: var is of incorrect size: {tuple(var.shape)} for an input of {tuple(input.shape)}")
    code = _reduction("gaussian_nll_loss", reduction)
    if not var.dtype.is_floating_point:
        raise RuntimeError(f"gaussian_nll_loss: result type Float can't be cast to var's {var.dtype}: convert var first, with .to(dtype)")
    var = var + F.clamp_min(eps - var.detach(), 0)           # its gradient is not cut off
    each = 0.5 * (F.log(var) + F.square(input - target) / var)
    return _reduced(each + 0.5 * math.log(2 * math.pi) if full else each, code)


@composite(method=False, function=False)
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """exp(input) - target * input, or with log_input=False input - target * log(input + eps); full: and Stirling's log(target!).

    Reference: torch.nn.functional.poisson_nll_loss.
    """
    code = _reduction("poisson_nll_loss", reduction, size_average, reduce)
    each = F.exp(input) - target * input if log_input else input - target * F.log(input + eps)
    if full:
        each = each + F.where(target <= 1, 0, target * F.log(target) - target + 0.5 * F.log(2 * math.pi * target))
    return _reduced(each, code)


@op(node="SoftMarginLossBackward0", method=False, function=False)
def soft_margin_loss_of(self, target, reduction: int):
    """log(1 + exp(-target * self)), reduced."""
    _floating("soft_margin_loss", self)
    if np.broadcast_shapes(self.shape, target.shape) != self.shape:
        raise RuntimeError(f"soft_margin_loss: a target of {list(target.shape)} is broadcast beyond the input of {list(self.shape)}")
    return F.reduced(np.log(np.exp(-self * target) + 1), reduction, self.dtype)

soft_margin_loss_of.vjp(self=lambda grad, self, target, reduction:
                        F.per_element(grad, self.shape, reduction) * -target * F.sigmoid(-target * self))


@composite(method=False, function=False)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input)), target 1 or -1. Reference: torch.nn.functional.soft_margin_loss."""
    return F.soft_margin_loss_of(input, target, _reduction("soft_margin_loss", reduction, size_average, reduce))


@composite(method=False, function=False)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over the last dimension of -(target * log(s) + (1 - target) * log(1 - s)), s the input's sigmoid.

    Reference: torch.nn.functional.multilabel_soft_margin_loss.
    """
    code = _reduction("multilabel_soft_margin_loss", reduction, size_average, reduce)
    each = -(target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input))
    return _reduced(F.sum(each if weight is None else each * weight, -1) / input.shape[-1], code)


@composite(method=False, function=False)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The sum over classes but target's of max(0, margin - input[target] + input) ** p, times target's weight, over their number.

    Shape: input (N, C) and target (N), or (C) and (). Raises: ValueError for p other than 1 and 2 or a weight of several dimensions,
    RuntimeError for other shapes. Reference: torch.nn.functional.multi_margin_loss.
    """
    code = _reduction("multi_margin_loss", reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"multi_margin_loss: weight must be one-dimensional, got {weight.ndim} dimensions")
    if input.ndim > 2 or target.ndim > 1 or math.prod(target.shape) != (input.shape[0] if input.ndim == 2 else 1):
        raise RuntimeError(f"multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size), "
                           f"got {list(target.shape)} for an input of {list(input.shape)}: inconsistent target size")
    _floating("multi_margin_loss", input)
    rows, own = input if input.ndim == 2 else F.reshape(input, (1, -1)), F.reshape(target, (-1, 1))
    each = margin - F.gather(rows, 1, own) + rows
    counted = each > 0                                       # as clamp_min would not: no NaN, and no gradient at 0
    each = F.where(counted, each, 0)
    each = F.square(each) if p == 2 else each
    if weight is not None:
        each = each * F.where(counted, F.reshape(F.index_select(weight, 0, F.reshape(target, (-1,))), (-1, 1)), 0)
    found = F.sum(F.scatter_number(each, 1, own, 0), 1) / rows.shape[1]
    return _reduced(found if target.ndim else F.squeeze(found, 0), code)


@composite(method=False, function=False)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """The input over (k + alpha * the mean square of `size` neighbouring channels) ** beta.

    Raises: ValueError for fewer than 3 dimensions. Reference: torch.nn.functional.local_response_norm; Krizhevsky et al. 2012, section 3.3.
    """
    if input.ndim < 3:
        raise ValueError(f"local_response_norm: Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    shape = tuple(input.shape)
    if not math.prod(shape):
        return input
    squares = F.reshape(input * input, (shape[0], 1, shape[1], -1))
    means = F.avg_pool2d(F.pad(squares, (0, 0, size // 2, (size - 1) // 2)), (size, 1), 1)
    return input / F.pow(F.reshape(means, shape) * alpha + k, beta)
