"""Parameter: a leaf that is a module's."""
from __future__ import annotations

from autograd_gpu.base import Tensor, uncounted
from autograd_gpu.ops.creation import check_requires, empty


class Parameter(Tensor):
    """A leaf over another tensor's memory, with requires_grad=True unless said otherwise. Results of operations are plain Tensors.

    Raises: RuntimeError for an integer, bool or inference tensor with requires_grad. Reference: torch.nn.Parameter.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True):
        data = empty(0) if data is None else data
        t = uncounted(data)
        t.__class__ = cls
        if requires_grad:
            check_requires(t)
        t._requires = bool(requires_grad)
        return t

    def __init__(self, data=None, requires_grad=True):
        pass

    def __repr__(self):
        return "Parameter containing:\n" + Tensor.__repr__(self)
