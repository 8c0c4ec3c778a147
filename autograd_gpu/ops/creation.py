"""Tensors from data and from nothing."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import device as _device
from autograd_gpu import dtype as _dtype
from autograd_gpu.base import Tensor, version, wrap
from autograd_gpu.ops.namespace import OPS

FUNCTIONS = {}


def public(function):
    """Offer a function under its name in the package."""
    FUNCTIONS[function.__name__] = function
    return function


def check_differentiable(dtype) -> None:
    """Raises RuntimeError unless tensors of a NumPy dtype can require gradients."""
    if _dtype.category(dtype) not in "fc":
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, got {_dtype.of(dtype)}: convert it, "
                           f"with .to(torch.float32) for instance")


def leaf(array, requires_grad=False, device=None) -> Tensor:
    """A leaf over an array, on a device."""
    if requires_grad:
        check_differentiable(array.dtype)
    t = wrap(array if device is None else _device.copy(array, device))
    t._requires = bool(requires_grad)
    return t


def array_of(data, dtype=None):
    """A new array of data: Tensors, arrays, numbers or nested lists of them. Python floats take the default dtype.

    Raises: ValueError for lists of unequal lengths, TypeError for what is not data.
    """
    wanted = None if dtype is None else _dtype.to_numpy(dtype)
    if isinstance(data, Tensor):
        return data._array.astype(wanted or data._array.dtype, copy=True)
    if _device.is_array(data):
        _dtype.of(data.dtype.newbyteorder("="))
        return data.astype(wanted or data.dtype.newbyteorder("="), copy=True)
    if isinstance(data, np.generic):
        return np.array(data, wanted or data.dtype)
    data = _plain(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueError(f"tensor: nested lists must have the same length at each level: {error}") from None
    if array.dtype == object or array.dtype.kind not in "biufcV":
        raise TypeError(f"tensor: data must be numbers, arrays, Tensors or nested lists of them, got {type(data).__name__}: {data!r:.80}")
    if wanted is None:
        kind = array.dtype.kind
        if not array.size and kind == "f" or kind == "f" and not _has_array(data):
            wanted = _dtype.default()
        elif kind == "c" and not _has_array(data):
            wanted = np.result_type(_dtype.default(), np.complex64)
        elif kind == "u" and not _has_array(data):
            wanted = np.dtype(np.int64)
        else:
            wanted = array.dtype
    return array.astype(wanted)


def _plain(data):
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data]
    return data.detach().cpu()._array if isinstance(data, Tensor) else data


def _has_array(data):
    if isinstance(data, (list, tuple)):
        return any(_has_array(x) for x in data)
    return isinstance(data, (np.generic, np.ndarray)) and not isinstance(data, float)


@public
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """A new leaf holding a copy of data: numbers, nested lists, arrays or Tensors.

    Dtype: arrays keep theirs; Python floats give the default dtype, integers int64.
    Raises: ValueError for ragged lists, TypeError for other data, RuntimeError for an integer dtype with requires_grad.
    Reference: torch.tensor.
    """
    array = array_of(data, dtype)
    where = _device.of(array) if device is None and (isinstance(data, Tensor) or _device.is_array(data)) else _device.resolve(device)
    return leaf(array, requires_grad, where)


@public
def as_tensor(data, dtype=None, device=None) -> Tensor:
    """data as a Tensor, sharing memory and history where dtype and device allow it. Reference: torch.as_tensor."""
    if isinstance(data, Tensor):
        t = data
    elif _device.is_array(data) and data.dtype.isnative:
        _dtype.of(data.dtype)
        t = wrap(data)
    else:
        t = tensor(data, dtype=dtype, device=device)
    if dtype is not None or device is not None:
        t = OPS.to(t, device=device, dtype=dtype)
    return t


@public
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False) -> Tensor:
    """obj as a Tensor; `copy` True always copies, False never does. Reference: torch.asarray."""
    t = as_tensor(obj, dtype, device)
    shares = isinstance(obj, Tensor) and t._array is obj._array or t._array is obj
    if copy is False and not shares:
        raise ValueError("asarray: cannot share memory with obj under the dtype or device asked for; leave copy=False out")
    t = t.detach()
    if copy and shares:
        t = wrap(t._array.copy())
    return t.requires_grad_(requires_grad) if requires_grad else t


@public
def from_numpy(ndarray) -> Tensor:
    """A Tensor over a NumPy array, sharing its memory. Raises TypeError for anything else. Reference: torch.from_numpy."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: expected np.ndarray (got {type(ndarray).__name__})")
    _dtype.of(ndarray.dtype)
    return wrap(ndarray)


def _size(size, name):
    if len(size) == 1 and not isinstance(size[0], (int, np.integer)):
        size = size[0]
    size = tuple([int(n) if not isinstance(n, Tensor) else n.item() for n in size])
    for n in size:
        if n < 0:
            raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {n}: {list(size)}")
    return size


def _make(array_function, dtype, device, requires_grad):
    where = _device.resolve(device)
    d = _dtype.default() if dtype is None else _dtype.to_numpy(dtype)
    with _device.guard(where):
        return leaf(array_function(_device.module(where), d), requires_grad)


@public
def zeros(*size, dtype=None, device=None, requires_grad=False, layout=None, out=None) -> Tensor:
    """A tensor of zeros. Reference: torch.zeros."""
    shape = _size(size, "zeros")
    return _make(lambda xp, d: xp.zeros(shape, d), dtype, device, requires_grad)


@public
def ones(*size, dtype=None, device=None, requires_grad=False, layout=None, out=None) -> Tensor:
    """A tensor of ones. Reference: torch.ones."""
    shape = _size(size, "ones")
    return _make(lambda xp, d: xp.ones(shape, d), dtype, device, requires_grad)


@public
def empty(*size, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None) -> Tensor:
    """A tensor whose elements are whatever the memory held. Reference: torch.empty."""
    shape = _size(size, "empty")
    return _make(lambda xp, d: xp.empty(shape, d), dtype, device, requires_grad)


@public
def full(size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None) -> Tensor:
    """A tensor of one value; without dtype of the value's own. Reference: torch.full."""
    shape = _size((size,), "full")
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    d = array_of(value).dtype if dtype is None else dtype
    return _make(lambda xp, d: xp.full(shape, value).astype(d), d, device, requires_grad)


@public
def arange(start, end=None, step=1, *, dtype=None, device=None, requires_grad=False, layout=None) -> Tensor:
    """The numbers from start (0) to end, end not included, step apart.

    Dtype: int64 if all three are integers, else the default dtype.
    Raises: RuntimeError for a step of 0 or of the wrong sign. Reference: torch.arange.
    """
    if end is None:
        start, end = 0, start
    start, end, step = (x.item() if isinstance(x, (Tensor, np.generic)) else x for x in (start, end, step))
    if step == 0:
        raise RuntimeError("arange: step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange: upper bound and lower bound inconsistent with step sign: from {start} to {end} by {step}")
    if dtype is None and all(isinstance(x, int) for x in (start, end, step)):
        dtype = _dtype.int64
    count = math.ceil((end - start) / step)
    return _make(lambda xp, d: (start + step * xp.arange(count)).astype(d), dtype, device, requires_grad)


@public
def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False, layout=None) -> Tensor:
    """`steps` numbers evenly apart from start to end, both included. Reference: torch.linspace."""
    if steps < 0:
        raise RuntimeError(f"linspace: number of steps must be non-negative, got {steps}")
    return _make(lambda xp, d: xp.linspace(start, end, steps).astype(d), dtype, device, requires_grad)


@public
def eye(n, m=None, *, dtype=None, device=None, requires_grad=False, layout=None) -> Tensor:
    """Ones on the diagonal of an n x m (n x n) matrix of zeros. Reference: torch.eye."""
    return _make(lambda xp, d: xp.eye(n, m, dtype=d), dtype, device, requires_grad)


def _like(name, make):
    def function(input, *, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None):
        return make(input, dtype=input._array.dtype if dtype is None else dtype, device=input.device if device is None else device,
                    requires_grad=requires_grad)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name[:-5]} of input's shape, and of its dtype and device unless given. Reference: torch.{name}."
    return public(function)


zeros_like = _like("zeros_like", lambda t, **kw: zeros(t._array.shape, **kw))
ones_like = _like("ones_like", lambda t, **kw: ones(t._array.shape, **kw))
empty_like = _like("empty_like", lambda t, **kw: empty(t._array.shape, **kw))


@public
def full_like(input, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None) -> Tensor:
    """One value in input's shape, dtype and device unless given. Reference: torch.full_like."""
    return full(input._array.shape, fill_value, dtype=input._array.dtype if dtype is None else dtype,
                device=input.device if device is None else device, requires_grad=requires_grad)
