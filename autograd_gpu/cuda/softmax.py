"""Softmax, log_softmax and their derivatives on CuPy's arrays, by the kernel of kernels/softmax.cu."""
from __future__ import annotations

import functools
import math

from autograd_gpu import devices as _device
from autograd_gpu.cuda.launch import ACCESS, index_type
from autograd_gpu.cuda.reduce import computed, covered, row_block, source
from autograd_gpu.cuda.source import kernel_text

RULES = {"softmax": ("Softmax", "Exponentials<Acc>"), "log_softmax": ("LogSoftmax", "Exponentials<Acc>"),
          "softmax_backward": ("SoftmaxBackward", "Total<false>"), "log_softmax_backward": ("LogSoftmaxBackward", "Total<false>")}


def along_source(name, along_x, width, dtype, index):
    """The text of one of RULES for rows along x, `width` elements at a time, or along y."""
    rule, state = RULES[name]
    return source(kernel_text("softmax.cu"), dtype, dtype, state, index, name=name, rule=rule, width=str(width),
                  along_x="true" if along_x else "false")


@functools.cache
def _along(name, *key):
    return _device.cupy.RawKernel(along_source(name, *key), name)


def _softmax(name, dim, *operands):
    """A function of RULES along a dimension; the result is contiguous."""
    x = operands[0]
    if not covered(*operands, kinds="f") or not x.size or type(dim) is not int or not -x.ndim <= dim < x.ndim or any(
            [a.shape != x.shape or a.dtype != x.dtype for a in operands]):
        return NotImplemented
    first, *second = [_device.cupy.ascontiguousarray(a) for a in operands]
    d = dim % x.ndim
    n, inner = x.shape[d], math.prod(x.shape[d + 1:])
    rows, along_x, width = x.size // n, inner == 1, ACCESS // x.itemsize
    if not along_x or n % width or any([a.data.ptr % ACCESS for a in (first, *second)]):
        width = 1
    block, in_block = row_block(n, rows, along_x, width)
    index, kind = index_type(x.size, [], [])
    out = _device.cupy.empty(x.shape, x.dtype)
    none = computed(x.dtype).type(0 if second else -math.inf)
    _along(name, along_x, width, x.dtype, index)((-(-rows // in_block),), block, (
        out, first, second[0] if second else None, kind(rows), kind(n), kind(inner), none))
    return out


LAUNCHERS = {
    "softmax": lambda self, dim, dtype=None: _softmax("softmax", dim, self),
    "log_softmax": lambda self, dim, dtype=None: _softmax("log_softmax", dim, self),
    "softmax_backward": lambda grad, result, dim: _softmax("softmax_backward", dim, result, grad),
    "log_softmax_backward": lambda grad, result, dim: _softmax("log_softmax_backward", dim, result, grad)}
"""{op or composite: what computes it on CuPy's arrays}; NotImplemented leaves it to the op's own body."""
