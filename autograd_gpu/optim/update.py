"""Update rules: written once, traced, and run on NumPy's arrays in blocks, on CuPy's as one kernel for all parameters alike."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu import expression
from autograd_gpu.base import Tensor, count_write
from autograd_gpu.blocks import InPlace
from autograd_gpu.cuda.update import UpdateProgram
from autograd_gpu.expression import kind_of
from autograd_gpu.ops.inplace import about_to_write
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import rebind


class UpdateRule:
    """Decorates a rule `(grad, *written, **numbers)` -> the new values of each of `written`; of one that is None, None.

    A rule is an expression of elements, in operators and functions of np. Its numbers are floats; where it branches, by bool or None.
    Complex tensors come as real ones with the parts as a last dimension, half precision as float32.
    """

    def __init__(self, function: Callable[..., tuple]):
        functools.update_wrapper(self, function)
        traced = rebind(function, np=expression.FUNCTIONS)
        self.on_tensors = rebind(function, np=_OnTensors())
        self.traced = lambda *arrays, **numbers: tuple([new for new in traced(*arrays, **numbers) if new is not None])
        self.programs: dict[tuple, InPlace | UpdateProgram] = {}

    def __call__(self, rows: Sequence[tuple[Tensor | None, ...]], numbers: dict[str, Any]) -> None:
        """Update tensors of one device by the same numbers, in place, and count the writes.

        A row is (grad, *written) of one of them. Raises RuntimeError where they are not of one shape.
        """
        found: dict[tuple, list] = {}        # what one program updates: the arrays by the types of the rule's arguments
        options = tuple([kind_of(v) for v in numbers.values()])
        for grad, *written in rows:
            for t in written:
                if t is None:
                    continue
                if t._array.shape != grad._array.shape:
                    raise RuntimeError(f"{self.__name__}: the gradient has shape {tuple(grad.shape)}, but the parameter or a tensor of "
                                       f"its state {tuple(t.shape)}: load the state of parameters of the same shapes")
                about_to_write(t)
            arrays = [None if t is None else _real(t._array) for t in (grad, *written)]
            kinds = (*[None if a is None else a.dtype for a in arrays], *options)
            found.setdefault(kinds, []).append([a for a in arrays if a is not None])
        device = rows[0][0].device
        make = InPlace if device.type == "cpu" else UpdateProgram
        with _device.guard(device):
            for kinds, several in found.items():
                self.program(make, kinds, tuple(numbers))(several, [*numbers.values()])
        for _, *written in rows:
            for t in written:
                if t is not None:
                    count_write(t)

    def recorded(self, rows: Sequence[tuple[Tensor | None, ...]], numbers: dict[str, Any]) -> None:
        """The same by operations on Tensors, which are recorded. The numbers may be Tensors of one element."""
        for grad, *written in rows:
            values = [None if t is None else F.view_as_real(t.clone()) if t.is_complex() else t.clone() for t in (grad, *written)]
            for t, new in zip(written, self.on_tensors(*values, **numbers), strict=True):
                if t is not None:
                    t.copy_(F.view_as_complex(new) if t.is_complex() else new)

    def program(self, make: type, kinds: tuple, keywords: tuple[str, ...]) -> Any:
        """The rule for arguments of these kinds, made by InPlace or UpdateProgram. Raises NotImplementedError where it is no expression."""
        key = make, kinds
        if key not in self.programs:
            try:
                self.programs[key] = make(f"{self.__name__}_update", self.traced, kinds, keywords)
            except expression.NO_EXPRESSION as error:
                raise NotImplementedError(f"{self.__name__}: the rule cannot be traced for {kinds}: {error}") from error
        return self.programs[key]


class _OnTensors:
    """What `np` is in a rule on Tensors."""

    def __getattr__(self, name):
        return getattr(F, {"absolute": "abs"}.get(name, name))


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
