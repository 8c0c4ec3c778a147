"""Parameter and Buffer: tensors that a module finds by themselves when they are assigned to it."""
from __future__ import annotations

from autograd_gpu.base import Tensor
from autograd_gpu.ops.creation import check_requires, empty


class Parameter(Tensor):
    """A leaf over another tensor's memory, with requires_grad=True unless said otherwise. Results of operations are plain Tensors.

    Raises: RuntimeError for an integer, bool or inference tensor with requires_grad. Reference: torch.nn.Parameter.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True):
        data = empty(0) if data is None else data
        t = data.detach()
        t.__class__ = cls
        if requires_grad:
            check_requires(t)
        t._requires = bool(requires_grad)
        return t

    def __init__(self, data=None, requires_grad=True):
        pass

    def __repr__(self) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)       # without .grad, as in PyTorch
        return memo[id(self)]


class Buffer(Tensor):
    """A tensor that a module takes for a buffer; unless `persistent`, its state_dict leaves it out. Reference: torch.nn.Buffer."""

    __slots__ = ()
    persistent = True

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True):
        data = empty(0) if data is None else data
        t = data.detach()
        t.__class__ = Buffer if persistent else _TemporaryBuffer
        t._requires = data.requires_grad
        return t

    def __init__(self, data=None, *, persistent=True):
        pass


class _TemporaryBuffer(Buffer):
    """A Buffer that state_dict leaves out. A class of its own so that copies and pickles are the same."""

    __slots__ = ()
    persistent = False
