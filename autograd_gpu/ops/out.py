"""Results written into a tensor that the caller gives: out=."""
from __future__ import annotations

import warnings

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, count_write
from autograd_gpu.engine.grad_mode import is_grad_enabled
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite


def into(name, casts=False, apart=True):
    """The divert of an op for calls with `out`.

    `casts`: out may be of another dtype, and is resized before its memory is looked at; `apart`: it may share no memory with an input.
    """
    def written(*args, out, **options):
        inputs = [t for a in args for t in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(t, Tensor)]
        check_out(name, out, inputs)
        if apart:
            _check_memory(name, out, inputs, casts)
        return fill_out(name, getattr(F, name)(*args, **options), out, casts)
    written.__name__ = f"{name}_into"
    composite(method=False, function=False)(written)
    return {"out is not None": written.__name__}


def check_out(name, out, inputs=()) -> None:
    """Raises TypeError for what is no Tensor, RuntimeError where something requires grad and this thread records."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if is_grad_enabled() and any([t.requires_grad for t in (out, *inputs)]):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           "requires grad: detach() it, or use no_grad()")


def _check_memory(name, out, inputs, resized):
    array = out._array
    if not resized and any([stride == 0 and n > 1 for n, stride in zip(array.shape, array.strides, strict=True)]):
        raise RuntimeError(f"{name}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
                           "location: clone() it first")
    if any([t is out or t.device is out.device and _device.xp(array).may_share_memory(array, t._array) for t in inputs]):
        raise RuntimeError(f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                           "memory location: clone() one of them first")


def fill_out(name, found, out, casts=False) -> Tensor:
    """out with a result's values, and its shape. Raises RuntimeError or TypeError where the dtype or the device does not fit."""
    if casts and not _dtype.can_cast(found.dtype, out.dtype):
        raise TypeError(f"{name}: input types can't be cast to the desired output type {out.dtype}, from {found.dtype}")
    if found.dtype is not out.dtype and not casts:
        raise RuntimeError(f"{name}: Expected out tensor to have dtype {found.dtype}, but got {out.dtype} instead")
    if found.device is not out.device:
        raise RuntimeError(f"{name}: Expected all tensors to be on the same device, but found {found.device} and, for out, {out.device}")
    if found.shape == out.shape:
        return out.copy_(found)              # which refuses an expanded one
    if out.numel():
        warnings.warn(f"{name}: An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
                      f"the required output shape {list(found.shape)}: give an out of that shape, or of no elements", stacklevel=4)
    out._array = F.to(found, out.dtype)._array
    count_write(out)
    return out
