"""`out=`: results written to tensors that the caller has."""
from __future__ import annotations

import functools
import inspect
import warnings

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, count_write
from autograd_gpu.engine.forward_mode import tangents
from autograd_gpu.engine.grad_mode import everywhere, local, no_grad

_PICKING = frozenset((
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "row_stack", "dstack", "column_stack", "gather", "index_select", "take",
    "take_along_dim", "masked_select", "nonzero", "index_add", "index_copy"))      # they never write over what they read, PyTorch's neither

_CASTING = frozenset(("cat", "stack", "logsumexp"))          # they cast their result, as elementwise operations do


def into(name, function, out, args, kwargs, casts):
    """Call a function and write what it gives to `out`, a Tensor or one for each result. Returns out.

    `casts`: out may have any dtype that the result can be cast to, not only the result's. A function with a dtype works in out's, if it is
    not told another. A tensor of another shape gets new memory, with a warning unless it was empty.
    Raises: RuntimeError where anything that a gradient is wanted for takes part, where out is part of an operand's memory, and for a dtype,
    device or view that does not fit; TypeError for what is no Tensor.
    """
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(o).__name__}")
    if local.state.records() and any([t._requires for t in _tensors((*args, *kwargs.values(), *outs))]):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           f"requires grad: leave out= out, or call it inside no_grad()")
    if everywhere.levels and any([tangents(t) for t in _tensors((*args, *kwargs.values(), *outs))]):
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function: "
                                  f"leave out= out")
    casts = casts or name in _CASTING
    if not casts and kwargs.get("dtype", out) is None:
        kwargs["dtype"] = outs[0].dtype
    for t in _tensors((*args, *kwargs.values())):
        for o in outs:
            if (casts or name in _PICKING) and _overlap(o._array, t._array, name in _PICKING):
                raise RuntimeError(f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                                   f"single memory location. Please clone() the tensor before performing the operation.")
    with no_grad():
        results = function(*args, **kwargs)
        given = results if isinstance(results, tuple) else (results,)
        if len(given) != len(outs) or isinstance(out, Tensor) and given is results:
            raise TypeError(f"{name}(): argument 'out' must be {'a Tensor' if len(given) == 1 else f'{len(given)} Tensors in a tuple'}")
        for o, r in zip(outs, given, strict=True):
            _check(o, r, casts)
        for o, r in zip(outs, given, strict=True):
            _write(o, r)
    return out if given is not results else type(results)(outs)


def _tensors(operands):
    return [t for o in operands for t in (o if isinstance(o, (list, tuple)) else (o,)) if isinstance(t, Tensor)]


def _overlap(a, b, wholly):
    """Whether arrays share memory other than, unless `wholly`, as the same elements in the same places."""
    if type(a) is not type(b) or not wholly and a.shape == b.shape and a.strides == b.strides and _address(a) == _address(b):
        return False
    try:
        return _device.xp(a).shares_memory(a, b, 1000)
    except np.exceptions.TooHardError:
        return False


def _address(array):
    return array.ctypes.data if type(array) is np.ndarray else array.data.ptr


def _check(o, r, casts):
    if o.device != r.device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {r.device} and {o.device}, the "
                           f"latter of out=")
    if o.dtype != r.dtype and not casts:
        raise RuntimeError(f"Expected out tensor to have dtype {r.dtype}, but got {o.dtype} instead")
    if not _dtype.can_cast(r.dtype, o.dtype):
        raise RuntimeError(f"result type {r.dtype} can't be cast to the desired output type {o.dtype}")
    if any([n > 1 and not stride for n, stride in zip(o._array.shape, o._array.strides, strict=True)]):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                           "Please clone() the tensor before performing the operation.")
    if o._array.shape != r._array.shape and o._view is not None:
        raise RuntimeError(f"out= is a view of shape {tuple(o.shape)}, which cannot be resized to the result's, {tuple(r.shape)}")


def _write(o, r):
    if o._array.shape == r._array.shape:
        o.copy_(r)
        return
    if o._array.size:
        warnings.warn(f"An output with one or more elements was resized since it had shape {list(o.shape)}, which does not match the "
                      f"required output shape {list(r.shape)}. Pass an empty tensor, or one of the result's shape", stacklevel=4)
    with _device.guard(o.device):
        made = r._array.astype(o._array.dtype)               # a copy: the result may be an operand itself
    count_write(o)
    o._array = made


def accepting(name, function, casts=False):
    """A function of Python code that takes `out=`, too."""
    return _with_out(function, lambda out, args, kwargs: into(name, function, out, args, kwargs, casts))


def creating(function):
    """A creation function that takes `out=`, whose dtype and device it then has."""
    def fill(out, args, kwargs):
        if isinstance(out, Tensor):
            if kwargs.get("dtype") not in (None, out.dtype):
                raise RuntimeError(f"dtype {kwargs['dtype']} does not match dtype of out parameter ({out.dtype})")
            kwargs |= dict(dtype=out.dtype, device=out.device)
        return into(function.__name__, function, out, args, kwargs, False)
    return _with_out(function, fill)


def _with_out(function, instead):
    """A function with one more parameter, `out`; where it is given, `instead(out, args, kwargs)` is called."""
    @functools.wraps(function)
    def wrapper(*args, out=None, **kwargs):
        return function(*args, **kwargs) if out is None else instead(out, args, kwargs)
    own = inspect.signature(function)
    parameters = list(own.parameters.values())
    at = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    parameters.insert(at, inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    wrapper.__signature__ = own.replace(parameters=parameters)
    return wrapper
