"""nll_loss and its derivative on CuPy's arrays, by the kernels of kernels/nll.cu."""
from __future__ import annotations

import functools
import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.cuda.launch import BLOCK, grid, index_type
from autograd_gpu.cuda.reduce import computed, covered, join, source
from autograd_gpu.cuda.source import kernel_text, sections
from autograd_gpu.expression import TYPES

_NONE, _MEAN, _SUM = 0, 1, 2                 # reductions, as ops/loss.py numbers them
_BLOCKS = 512                                # of which each leaves a state, where the losses are summed


def nll_source(name, given, result, target, index, reduction=_SUM):
    """The text of nll or nll_backward, for dtypes of the input, the result and the target."""
    common, forward, backward = sections("nll.cu")
    kernel = {"nll": forward, "nll_backward": backward}[name]
    return source(kernel_text("bounds.cuh") + common + kernel, given, result, _state(reduction), index,
                  target=TYPES[target], each="true" if reduction == _NONE else "false")


def _state(reduction):
    return "Weighted<true>" if reduction == _MEAN else "Weighted<false>"


@functools.cache
def _kernel(name, *key):
    return _device.cupy.RawKernel(nll_source(name, *key), name)


def _sizes(shape):
    """(classes, elements that a sample has of each) of an input of this shape."""
    return (shape[0], 1) if len(shape) == 1 else (shape[1], math.prod(shape[2:]))


def _loss(x, given, result, target, weight, shape, reduction, ignore_index):
    """The losses of samples, their sum or mean, in the dtype `result`; without x, of dtype `given`, the sum of their weights."""
    xp = _device.cupy
    each = reduction == _NONE
    out = xp.empty((shape[0], *shape[2:]) if each and len(shape) > 1 else (), result)
    if each and not target.size:
        return out
    index, kind = index_type(math.prod(shape), [], [])
    blocks = grid(target.size) if each else grid(target.size // 4, _BLOCKS)
    number = computed(result).type
    states = xp.empty((2 * blocks[0],), number) if not each and blocks[0] > 1 else None
    address, op = _device.reporter("nll_loss")
    _kernel("nll", given, result, target.dtype, index, reduction)(blocks, (BLOCK,), (
        out, x, target, weight, states, *[kind(n) for n in (target.size, *_sizes(shape))], np.int64(ignore_index), address, op,
        np.int32(len(shape) > 1)))
    if states is not None:
        join("nll", _state(reduction), given, out, states, 1, blocks[0], (number(0), number(0)))
    return out


def _operands(x, target, weight):
    """Whether the kernels take these; the latter two as they take them, contiguous."""
    if not covered(x, kinds="f") or weight is not None and (not covered(weight) or weight.dtype != x.dtype):
        return None
    if target.dtype not in (np.int64, np.uint8):
        return None
    contiguous = _device.cupy.ascontiguousarray
    return contiguous(target), None if weight is None else contiguous(weight)


def _forward(self, target, weight, reduction, ignore_index):
    """`nll_value` of ops/loss.py."""
    operands = _operands(self, target, weight)
    if operands is None:
        return NotImplemented
    x, (target, weight) = _device.cupy.ascontiguousarray(self), operands
    return _loss(x, x.dtype, x.dtype, target, weight, x.shape, reduction, ignore_index)


def _backward(grad_output, target, weight, size, reduction, ignore_index):
    """`nll_loss_backward` of ops/loss.py."""
    xp = _device.cupy
    operands = _operands(grad_output, target, weight)
    if operands is None:
        return NotImplemented
    target, weight = operands
    own = grad_output.dtype
    out = xp.empty(size, own)
    if not out.size:
        return out
    total = _loss(None, own, computed(own), target, weight, size, _SUM, ignore_index) if reduction == _MEAN else None
    index, kind = index_type(out.size, [], [])
    _kernel("nll_backward", own, own, target.dtype, index)(grid(out.size), (BLOCK,), (
        out, xp.ascontiguousarray(grad_output), target, weight, total, *[kind(n) for n in (out.size, *_sizes(size))],
        np.int64(ignore_index), np.bool_(grad_output.ndim > 0)))
    return out


LAUNCHERS = {"nll_value": _forward, "nll_loss_backward": _backward}
"""{op or composite: what computes it on CuPy's arrays}; NotImplemented leaves it to the op's own body."""
