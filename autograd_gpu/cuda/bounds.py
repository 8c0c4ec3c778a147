"""Integer indices on a CUDA device, checked there: the host hears of one that is out of range when it next waits for the device."""
from __future__ import annotations

import functools

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.cuda.launch import BLOCK, grid, headed
from autograd_gpu.cuda.source import filled, kernel_text
from autograd_gpu.expression import TYPES


def check(name, index, size, dim=0, wraps=False):
    """Have a kernel look for indices out of range in a dimension, for the op of this name. `wraps`: negative ones count from the end."""
    if index.size:
        index = _device.cupy.ascontiguousarray(index)
        address, number = _device.reporter(name)
        _kernel(index.dtype)(grid(index.size), (BLOCK,), (
            index, address, number, np.bool_(wraps), np.int32(dim), np.int64(size), np.int64(index.size)))


def check_key(name, shape, key):
    """check for the integer arrays in the key of an array of this shape, which stand among full slices and masks."""
    dim = 0
    for k in key:
        mask = not isinstance(k, slice) and k.dtype.kind == "b"
        if not mask and not isinstance(k, slice):
            check(name, k, shape[dim], dim, True)
        dim += k.ndim if mask else 1


def source(dtype):
    """The text of the kernel for indices of a dtype."""
    return headed(kernel_text("bounds.cuh") + filled(kernel_text("bounds.cu"), {"type": TYPES[dtype]}))


@functools.cache
def _kernel(dtype):
    return _device.cupy.RawKernel(source(dtype), "check_bounds")
