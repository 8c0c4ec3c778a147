"""Conversions to another dtype or device."""
from __future__ import annotations

import builtins

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.engine.forward_mode import seen
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.inside import depend
from autograd_gpu.engine.node import Node, edge_of, new_node, rare_of
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op

numpy = np                                   # np is CuPy in a body that runs on a CUDA device


@op(method=False, function=False, may_be_integer=True)
def to_copy(self, dtype: DType):
    """A copy in another dtype; of complex numbers the real part where it is real."""
    if self.dtype.kind == "c" and numpy.dtype(dtype).kind not in "cb":
        self = self.real                     # astype would warn
    return self.astype(dtype, _device.order_of(self))

to_copy.vjp(self=lambda grad: grad)          # the edge casts back


class _DeviceCopy(Node):
    """The history of a copy on another device."""

    __slots__ = ("n0", "i0", "source", "target")
    _arity = 1
    _title = "ToCopyBackward0"

    def _apply(self, grad, keep):
        return None if grad is None else _device.copy(grad, self.source)

    def _apply_tensors(self, grad, keep):
        return None if grad is None else _to_device(grad, self.source)


def _to_device(t, where):
    made = wrap(_device.copy(t._array, where))
    if t._requires and local.state.inside is not None and not local.state.enabled:
        depend([made], [edge_of(t)])
    elif t.requires_grad and local.state.records():
        edge = edge_of(t)
        node = new_node(_DeviceCopy, where)
        rare_of(node).crosses = True
        node.n0, node.i0 = edge
        node.source, node.target = t.device, where
        made._node, made._nr, made._requires = node, 0, True
    for level in seen():
        if (tangent := level.get(t)) is not None:
            with level.outside():
                level.put(made, _to_device(tangent, where))
    return made


def _is_dtype(value):
    return isinstance(value, (_dtype.dtype, np.dtype, builtins.type))


@composite(function=False)
def to(input, *args, dtype=None, device=None, other=None, non_blocking=False, copy=False, memory_format=None):
    """The tensor in another dtype, on another device, or as another tensor is: itself where nothing changes, unless `copy`.

    Call it with a dtype, a device (and a dtype), another Tensor, or by keyword.
    Raises: RuntimeError for a device that is not there. Reference: torch.Tensor.to.
    """
    if args:
        first, rest = args[0], args[1:]
        if isinstance(first, Tensor):
            other = first
        elif _is_dtype(first):
            dtype = first
        else:
            device = first
            if rest and (rest[0] is None or _is_dtype(rest[0])):
                dtype, rest = rest[0] if rest[0] is not None else dtype, rest[1:]
        copy = rest[1] if len(rest) > 1 else copy
    if other is not None:
        dtype, device = other._array.dtype, other.device
    array = input._array
    wanted = array.dtype if dtype is None else _dtype.to_numpy(dtype)
    where = input.device if device is None else _device.resolve(device)
    if wanted != array.dtype:
        input, copy = F.to_copy(input, wanted), False
    if where != input.device:
        return _to_device(input, where)
    return F.to_copy(input, wanted) if copy else input


@composite(function=False)
def type_as(input, other):
    """input in other's dtype, on its device. Reference: torch.Tensor.type_as."""
    if not isinstance(other, Tensor):
        raise TypeError(f"type_as(): argument 'other' must be Tensor, not {type(other).__name__}")
    return F.to(input, other)


@composite(function=False)
def cpu(input, memory_format=None):
    """The tensor in host memory. Reference: torch.Tensor.cpu."""
    return F.to(input, device=_device.CPU)


@composite(function=False)
def cuda(input, device=None, non_blocking=False, memory_format=None):
    """The tensor on a CUDA device, by default the current one. Reference: torch.Tensor.cuda."""
    return F.to(input, device="cuda" if device is None else device)


def _conversion(name, wanted):
    def convert(input, memory_format=None):
        array = input._array
        return input if array.dtype is wanted.dtype else F.to(input, wanted)
    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"The tensor as {wanted}. Reference: torch.Tensor.{name}."
    composite(method=True, function=False)(convert)


for _name in ("bool", "uint8", "int8", "short", "int", "long", "half", "bfloat16", "float", "double", "cfloat", "cdouble"):
    if getattr(_dtype, _name) is not None:
        _conversion({"uint8": "byte", "int8": "char"}.get(_name, _name), getattr(_dtype, _name))

TYPES = {"FloatTensor": _dtype.float32, "DoubleTensor": _dtype.float64, "HalfTensor": _dtype.float16, "ByteTensor": _dtype.uint8,
          "CharTensor": _dtype.int8, "ShortTensor": _dtype.int16, "IntTensor": _dtype.int32, "LongTensor": _dtype.int64,
          "BoolTensor": _dtype.bool, "BFloat16Tensor": _dtype.bfloat16, "ComplexFloatTensor": _dtype.complex64,
          "ComplexDoubleTensor": _dtype.complex128}


def _type(input, dtype=None, non_blocking=False):
    """The name of the tensor's type; with a dtype, such a name or type, the tensor in it. Reference: torch.Tensor.type."""
    place = "torch." if input.device.type == "cpu" else "torch.cuda."
    if dtype is None:
        return next((place + name for name, d in TYPES.items() if d is not None and d.dtype == input._array.dtype),
                    place + str(input.dtype).removeprefix("torch."))
    if isinstance(dtype, str):
        found = TYPES.get(dtype.removeprefix("torch.").removeprefix("cuda."))
        if found is None:
            raise ValueError(f"invalid type: {dtype!r}; the types are {', '.join('torch.' + name for name in TYPES)}")
        dtype = found
    return F.to(input, getattr(dtype, "dtype", dtype))


_type.__name__ = "type"
composite(method=True, function=False)(_type)
