"""The old name of a Tensor, as older programs make and recognise one."""
from __future__ import annotations

import warnings

from autograd_gpu.base import Tensor


class _OfTensors(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor)


class Variable(metaclass=_OfTensors):
    """Variable(data, requires_grad): a leaf that shares the memory of `data`, a Tensor; isinstance(x, Variable) is true of any Tensor.

    Raises: TypeError for data that is no Tensor, RuntimeError for requires_grad of integers. New programs call
    tensor(..., requires_grad=True). Reference: torch.autograd.Variable.
    """

    def __new__(cls, data=None, requires_grad=False, volatile=False, name=None):  # type: ignore[misc]
        if volatile:
            warnings.warn("volatile was removed and now has no effect: record nothing by `with no_grad():`", stacklevel=2)
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}: make one, with tensor(...)")
        return data.detach().requires_grad_(requires_grad)
