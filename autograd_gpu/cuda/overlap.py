"""Windows of up to three dimensions put back to where they were taken from, on CuPy's arrays, by the kernel of kernels/overlap.cu."""
from __future__ import annotations

import functools
import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.cuda.launch import BLOCK, grid, headed, index_type
from autograd_gpu.cuda.source import filled, kernel_text
from autograd_gpu.expression import TYPES

_ALONG = ("size", "first", "kernel", "stride", "dilation", "count")      # what the kernel is told of each dimension


def source(dtype, index):
    """The text of the kernel for elements of a dtype."""
    words = {f"along{i}": ", ".join(f"{name}{i}" for name in _ALONG) for i in range(3)}
    words["geometry"] = " ".join(f"{index} {name}{i}," for i in range(3) for name in _ALONG)
    return headed(filled(kernel_text("overlap.cu"), words | {"value": TYPES[dtype], "index": index}))


@functools.cache
def _kernel(*key):
    return _device.cupy.RawKernel(source(*key), "overlap")


def _overlapped(found, part, walk):
    """`overlapped` of ops/convolution.py."""
    dims = len(walk.kernel)
    if dims > 3 or found.dtype not in TYPES:
        return NotImplemented
    xp = _device.cupy
    found = xp.ascontiguousarray(found)
    inside = part.target[2:]
    tail = found.shape[2 + 2 * dims:]
    out = xp.empty((*found.shape[:2], *[at.stop - at.start for at in inside], *tail), found.dtype)
    if not out.size:
        return out
    along = [(1, 0, 1, 1, 1, 1)] * (3 - dims) + [(at.stop - at.start, at.start, k, s, d, c) for at, c, k, s, d in
                                                 zip(inside, part.count, walk.kernel, walk.stride, walk.dilation, strict=True)]
    reach = [k * d + a + n for n, a, k, _, d, _ in along]
    index, kind = index_type(max(out.size, found.size), [max(reach) + 1], [[1]])
    numbers = [kind(v) for dim in along for v in dim]
    _kernel(found.dtype, index)(grid(out.size), (BLOCK,), (out, found, *numbers, kind(math.prod(tail)), np.int64(out.size)))
    return out


LAUNCHERS = {"overlapped": _overlapped}
