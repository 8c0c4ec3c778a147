"""Update rules: written once, run on NumPy's arrays in blocks and on CuPy's as one kernel that writes into its operands."""
from __future__ import annotations

import functools

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import expression
from autograd_gpu.base import Tensor, count_write
from autograd_gpu.blocks import BLOCK
from autograd_gpu.cuda.launch import Update
from autograd_gpu.ops.inplace import about_to_write
from autograd_gpu.ops.namespace import rebind


def update_rule(function):
    """Decorates a rule `(grad, *written, **numbers)` -> the new values of each of `written`; of one that is None, None.

    A rule is read on arrays and on Symbols. Its numbers are floats; where it branches, by bool or None. Complex tensors come as real
    ones with the parts as a last dimension, half precision as float32. Called with Tensors, the result writes to them and counts
    the writes.
    """
    def on_symbols(*arrays, **numbers):
        return tuple([new for new in traced(*arrays, **numbers) if new is not None])

    traced = rebind(function, np=expression.FUNCTIONS)
    kernel = Update(f"{function.__name__}_update", on_symbols)

    @functools.wraps(function)
    def update(grad: Tensor, *written: Tensor | None, **numbers: float | bool | None) -> None:
        for t in written:
            if t is not None:
                about_to_write(t)
        arrays = [None if t is None else _real(t._array) for t in (grad, *written)]
        if type(arrays[0]) is np.ndarray:
            _in_blocks(function, arrays, numbers)
        else:
            with _device.guard(grad.device):
                kernel(*arrays, **numbers)
        for t in written:
            if t is not None:
                count_write(t)

    update.kernel = kernel
    return update


def _real(array):
    """A complex array's memory as real numbers, with the parts as a last dimension; another array as it is."""
    if array.dtype.kind != "c":
        return array
    part = array.real
    return _device.xp(array).lib.stride_tricks.as_strided(part, (*part.shape, 2), (*part.strides, part.itemsize))


def _in_blocks(function, arrays, numbers):
    """A rule on NumPy's arrays. Such as lie alike are updated block by block, so that what the rule makes on the way
    stays in the cache; others at once.
    """
    present = [a for a in arrays if a is not None]
    if all([a.flags.c_contiguous for a in present]):
        flat = [None if a is None else a.reshape(-1) for a in arrays]
    elif all([a.flags.f_contiguous for a in present]):
        flat = [None if a is None else a.T.reshape(-1) for a in arrays]
    else:
        return _write(function, arrays, numbers)
    size = flat[0].size
    for start in range(0, size, BLOCK):
        _write(function, flat if size <= BLOCK else [None if a is None else a[start:start + BLOCK] for a in flat], numbers)


def _write(function, arrays, numbers):
    read = arrays
    if arrays[0].dtype in expression.HALF:
        read = [None if a is None else a.astype(np.float32) for a in arrays]
    for target, new in zip(arrays[1:], function(*read, **numbers), strict=True):
        if target is not None:
            target[...] = new
