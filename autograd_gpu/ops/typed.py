"""Tensors made by the name of their type, the way before `tensor`: Tensor(2, 3), FloatTensor([1, 2]), t.new(2)."""
from __future__ import annotations

from numbers import Integral
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.ops.convert import TYPES
from autograd_gpu.ops.creation import FUNCTIONS, as_tensor, empty, method
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.size import Size


def _made(dtype, args, device=None):
    """A tensor of data, over another's memory, or of sizes, whichever the arguments are. An array of that dtype is shared.

    Raises: TypeError for data that is neither, or a tensor of another dtype.
    """
    if len(args) != 1 or isinstance(args[0], Integral) and not isinstance(args[0], bool):
        return empty(Size(args) if args else 0, dtype=dtype, device=device)
    data, = args
    if isinstance(data, Tensor):
        if data.dtype is not dtype:
            raise TypeError(f"expected a tensor of {dtype}, got one of {data.dtype}: convert it with .to({dtype})")
        return F.alias(data)
    if isinstance(data, Size):
        return empty(data, dtype=dtype, device=device)
    if not _device.is_array(data) and not isinstance(data, (list, tuple, range)):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__}): a number is a tensor by tensor({data!r})")
    return as_tensor(data, dtype=dtype, device=device)


class TensorType:
    """torch.FloatTensor and its like: called, it makes a tensor of its dtype; isinstance says whether a tensor is one."""

    is_cuda = False

    def __init__(self, name, dtype):
        self.__name__, self.dtype = name, dtype

    def __call__(self, *args: Any, device: Any = None) -> Tensor:
        return _made(self.dtype, args, device)

    def __instancecheck__(self, value):
        return isinstance(value, Tensor) and value.dtype is self.dtype and not value.is_cuda

    def __repr__(self):
        return f"<class 'torch.{self.__name__}'>"

    def __reduce__(self):
        return _named, (self.__name__,)


def _named(name):
    return FUNCTIONS[name]


FUNCTIONS.update({name: TensorType(name, dtype) for name, dtype in TYPES.items() if dtype is not None})


def _new_tensor(cls, *args, device=None):
    """Of the default dtype; given a tensor, over its memory and in its dtype."""
    dtype = args[0].dtype if len(args) == 1 and isinstance(args[0], Tensor) else _dtype.get_default_dtype()
    made = _made(dtype, args, device)
    if cls is Tensor:
        return made
    return wrap(made._array, lambda _: object.__new__(cls))


Tensor.__new__ = _new_tensor                 # type: ignore[method-assign, assignment]


@method
def new(self, *args: Any, device: Any = None) -> Tensor:
    """A tensor of data or of sizes, in this one's dtype and on its device. Reference: torch.Tensor.new."""
    return _made(self.dtype, args, self.device if device is None else device)
