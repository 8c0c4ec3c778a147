"""Update rules: written once, run on NumPy's arrays in blocks and on CuPy's as one kernel for all parameters alike."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import expression
from autograd_gpu.base import Tensor, count_write
from autograd_gpu.blocks import BLOCK
from autograd_gpu.cuda.update import Update
from autograd_gpu.ops.inplace import about_to_write
from autograd_gpu.ops.namespace import rebind


class UpdateRule:
    """Decorates a rule `(grad, *written, **numbers)` -> the new values of each of `written`; of one that is None, None.

    A rule is read on arrays and on Symbols. Its numbers are floats; where it branches, by bool or None. Complex tensors come as real
    ones with the parts as a last dimension, half precision as float32.
    """

    def __init__(self, function: Callable[..., tuple]):
        functools.update_wrapper(self, function)
        self.function = function
        traced = rebind(function, np=expression.FUNCTIONS)
        self.kernel = Update(f"{self.__name__}_update", lambda *arrays, **numbers: tuple(
            [new for new in traced(*arrays, **numbers) if new is not None]))

    def __call__(self, rows: Sequence[tuple[Tensor | None, ...]], numbers: dict[str, Any]) -> None:
        """Update tensors of one device by the same numbers, in place, and count the writes.

        A row is (grad, *written) of one of them. Raises RuntimeError where they are not of one shape.
        """
        arrays = []
        for grad, *written in rows:
            for t in written:
                if t is None:
                    continue
                if t._array.shape != grad._array.shape:
                    raise RuntimeError(f"{self.__name__}: the gradient has shape {tuple(grad.shape)}, but the parameter or a tensor of "
                                       f"its state {tuple(t.shape)}: load the state of parameters of the same shapes")
                about_to_write(t)
            arrays.append([None if t is None else _real(t._array) for t in (grad, *written)])
        if type(rows[0][0]._array) is np.ndarray:
            for row in arrays:
                self._in_blocks(row, numbers)
        else:
            with _device.guard(rows[0][0].device):
                self.kernel(arrays, numbers)
        for _, *written in rows:
            for t in written:
                if t is not None:
                    count_write(t)

    def _in_blocks(self, arrays, numbers):
        """Update NumPy's arrays. Such as lie alike are updated block by block, so that what the rule makes on the way stays in the
        cache; others at once.
        """
        present = [a for a in arrays if a is not None]
        if all([a.flags.c_contiguous for a in present]):
            flat = [None if a is None else a.reshape(-1) for a in arrays]
        elif all([a.flags.f_contiguous for a in present]):
            flat = [None if a is None else a.T.reshape(-1) for a in arrays]
        else:
            return self._write(arrays, numbers)
        size = flat[0].size
        for start in range(0, size, BLOCK):
            self._write(flat if size <= BLOCK else [None if a is None else a[start:start + BLOCK] for a in flat], numbers)

    def _write(self, arrays, numbers):
        read = arrays
        if arrays[0].dtype in expression.HALF:
            read = [None if a is None else a.astype(np.float32) for a in arrays]
        for target, new in zip(arrays[1:], self.function(*read, **numbers), strict=True):
            if target is not None:
                target[...] = new


def _real(array):
    """A complex array's memory as real numbers, with the parts as a last dimension; another array as it is."""
    if array.dtype.kind != "c":
        return array
    part = array.real
    return _device.xp(array).lib.stride_tricks.as_strided(part, (*part.shape, 2), (*part.strides, part.itemsize))


def directed(grad, param, decay, maximize):
    """The gradient to go against: the other way round to maximize, with weight decay unless it is None. For rules."""
    if maximize:
        grad = -grad
    return grad if decay is None else grad + decay * param
