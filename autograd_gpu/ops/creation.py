"""Tensors from data and from nothing. `FUNCTIONS` are the package's, `METHODS` are for Tensor."""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import INFERENCE, Tensor, wrap
from autograd_gpu.cuda.streams import shared
from autograd_gpu.engine.grad_mode import local, run_apart
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.ops.op import op
from autograd_gpu.ops.operands import fitted

FUNCTIONS: dict[str, Callable] = {}
METHODS: dict[str, Callable] = {}


def public(function):
    """Offer a function under its name in the package."""
    FUNCTIONS[function.__name__] = function
    return function


def method(function, name=None):
    """Offer a function, whose first argument is a tensor, as a method of Tensor."""
    METHODS[name or function.__name__] = function
    return function


def check_differentiable(dtype) -> None:
    """Raises RuntimeError unless tensors of a NumPy dtype can require gradients."""
    if _dtype.category(dtype) not in "fc":
        raise RuntimeError(f"only Tensors of floating point and complex dtype can require gradients, got {_dtype.of(dtype)}: "
                           f"convert it, with .to(torch.float32) for instance")


def check_requires(t: Tensor) -> None:
    """Raises RuntimeError unless a leaf may require gradients."""
    check_differentiable(t._array.dtype)
    if t._counter is INFERENCE and not local.state.inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed: clone() it first")


def leaf(array, requires_grad=False, device=None) -> Tensor:
    """A leaf over an array, on a device."""
    if requires_grad:
        check_differentiable(array.dtype)
    array = _device.plain(array)
    t = wrap(array if device is None else _device.copy(array, device))
    t._requires = bool(requires_grad)
    return t


def check_tensor(name, value) -> None:
    """Raises TypeError where a function's input is no Tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(value).__name__}")


# ------------------------------------------------------------------------------------------------------------- from data

_NUMBERS = {bool, int, float, complex}


def array_of(data, dtype=None):
    """A new array of data: Tensors, arrays, numbers or nested lists of them. Python floats take the default dtype.

    Raises: ValueError for lists of unequal lengths, TypeError or RuntimeError for what is not data, RuntimeError for a number
    that the dtype cannot hold.
    """
    wanted = None if dtype is None else _dtype.to_numpy(dtype)
    if isinstance(data, Tensor):
        with _device.guard(data.device):
            return data._array.astype(wanted or data._array.dtype, copy=True)
    if _device.is_array(data) or isinstance(data, np.generic):
        own = _dtype.of(data.dtype.newbyteorder("=")).dtype
        return np.array(data, wanted or own) if isinstance(data, np.generic) else data.astype(wanted or own, copy=True)
    if type(data) is float and wanted is None:
        return run_apart(np.array, data, _dtype.default())
    level = _leaves(data)
    kinds = set(map(type, level))
    if not kinds <= _NUMBERS:
        found, data = _infer(level, isinstance(data, (list, tuple))), _unwrapped(data)
    else:
        found = np.dtype(np.complex64 if complex in kinds else float if float in kinds or not kinds else
                         np.int64 if int in kinds else bool)
        if found.kind in "fc":
            found = _default_of(found)
    array = np.array(data) if level else np.empty(_shape_of(data))
    _check_range(array, wanted or found, data)
    return run_apart(array.astype, wanted or found)


def _default_of(dtype):
    return _dtype.default() if dtype.kind == "f" else np.result_type(_dtype.default(), np.complex64)


def _leaves(data):
    """The numbers in nested lists, flat. Raises ValueError or TypeError where the lists have no common shape."""
    level = [data]
    for depth in itertools.count():
        kinds = set(map(type, level))
        if kinds <= _NUMBERS:
            return level
        nested = [k for k in kinds if issubclass(k, (list, tuple, range))]
        if not nested:
            return level
        if len(nested) < len(kinds):
            raise TypeError(f"tensor: not a sequence: dimension {depth} of data mixes numbers with lists: {data!r:.80}")
        lengths = sorted(set(map(len, level)))
        if len(lengths) > 1:
            raise ValueError(f"tensor: expected sequences of equal length at dim {depth}, got lengths {lengths}: {data!r:.80}")
        level = list(itertools.chain.from_iterable(level))


def _shape_of(data):
    shape = []
    while isinstance(data, (list, tuple, range)):
        shape.append(len(data))
        if not len(data):
            break
        data = data[0]
    return tuple(shape)


def _unwrapped(data):
    """Nested lists with each Tensor replaced by its array on the CPU."""
    if isinstance(data, (list, tuple)):
        return [_unwrapped(x) for x in data]
    if isinstance(data, Tensor):
        if data._array.size != 1:
            raise ValueError(f"tensor: only one element tensors can be converted to Python scalars, got one of shape "
                             f"{tuple(data._array.shape)} in a list: use stack")
        return _device.copy(data._array, _device.CPU).reshape(())
    return data


def _infer(level, nested):
    """The common dtype of numbers among which are arrays, Tensors or NumPy's scalars, which keep theirs."""
    found = None
    for x in level:
        if isinstance(x, Tensor):
            d = x._array.dtype
        elif isinstance(x, (np.generic, np.ndarray)):
            d = x.dtype
            if d.kind in "SU":
                raise ValueError(f"tensor: data must be numbers, got the string {x!r:.80}")
            _dtype.of(d)
        elif isinstance(x, (bool, int, float, complex)):
            d, _ = _operand(x)
            d = _default_of(d) if d.kind in "fc" else d
        elif isinstance(x, str):
            raise (ValueError if nested else TypeError)(f"tensor: data must be numbers, got the string {x!r:.80}")
        else:
            raise RuntimeError(f"tensor: Could not infer dtype of {type(x).__name__}: data must be numbers, arrays, Tensors or nested "
                               f"lists of them, got {x!r:.80}")
        found = d if found is None else found if found == d else _dtype.promote_numpy(found, d)
    return found


def _check_range(array, wanted, data):
    """Refuse Python numbers that an integer dtype cannot hold; an unsigned one wraps a negative integer, as in PyTorch."""
    if array.dtype.kind == "O" and wanted.kind in "iu" or array.dtype.kind == "u" and wanted == np.int64:
        raise ValueError(f"tensor: Overflow: an integer of the data does not fit into {_dtype.of(wanted)}: {data!r:.80}")
    if array.dtype.kind == "c" and wanted.kind not in "cb":
        raise TypeError(f"tensor: must be real numbers for {_dtype.of(wanted)}, not complex: {data!r:.80}")
    if wanted.kind in "iu" and array.size and array.dtype.kind in "iuf" and array.dtype != wanted:
        low, high = array.min(), array.max()
        info = np.iinfo(wanted)
        least = info.min if wanted.kind == "i" or array.dtype.kind == "f" else -info.max
        if not (least <= low.item() and high.item() <= info.max):
            raise RuntimeError(f"tensor: value cannot be converted to type {_dtype.of(wanted)} without overflow: {data!r:.80}")


def _home(data, device):
    """Where a tensor of data belongs: where it is told to, else where the thread makes tensors, else where the data is."""
    if device is None and _device.chosen() is None:
        array = data._array if isinstance(data, Tensor) else data
        if _device.is_array(array):
            return _device.of(array)
    return _device.resolve(device)


@public
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """A new leaf holding a copy of data: numbers, nested lists, arrays or Tensors.

    Dtype: arrays keep theirs; Python floats give the default dtype, integers int64.
    Raises: ValueError or TypeError for ragged lists and for what are no numbers, RuntimeError for numbers that the dtype cannot
    hold and for an integer dtype with requires_grad.
    Reference: torch.tensor.
    """
    return leaf(array_of(data, dtype), requires_grad, _home(data, device))


@public
def as_tensor(data, dtype=None, device=None) -> Tensor:
    """data as a Tensor, sharing memory and history where dtype and device allow it. Reference: torch.as_tensor."""
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else OPS.to(data, device=device, dtype=dtype)
    if not _device.is_array(data):
        if not hasattr(data, "__cuda_array_interface__"):
            return tensor(data, dtype=dtype, device=device)
        data = shared(data)
    check_shareable("as_tensor", data)
    own = _dtype.of(data.dtype).dtype
    return leaf(data.astype(own if dtype is None else _dtype.to_numpy(dtype), copy=False), False, _home(data, device))


@public
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None) -> Tensor:
    """obj as a Tensor; `copy` True always copies, False never does; requires_grad=False leaves its history behind.

    Raises: ValueError where copy=False cannot be done. Reference: torch.asarray.
    """
    t = as_tensor(obj, dtype, device)
    shares = t is obj or t._array is obj or t._array.base is obj or (isinstance(obj, Tensor) and t._array is obj._array)
    if copy is False and not shares:
        raise ValueError("asarray: cannot share memory with obj under the dtype or device asked for; leave copy=False out")
    if copy and shares:
        t = OPS.clone(t)
    if requires_grad is False and t.requires_grad:
        return t.detach()
    return t.requires_grad_() if requires_grad and t.is_leaf else t


def check_shareable(name, array):
    _dtype.of(array.dtype.newbyteorder("="))
    if not array.dtype.isnative:
        raise ValueError(f"{name}: the array's byte order is not this machine's: convert it, with "
                         f".astype(array.dtype.newbyteorder('='))")
    if any(s < 0 for s in array.strides):
        raise ValueError(f"{name}: At least one stride of the array is negative, {array.strides}, which tensors do not support: "
                         f"pass array.copy()")


@public
def from_numpy(ndarray) -> Tensor:
    """A Tensor over a NumPy array, sharing its memory.

    Raises: TypeError for anything else or a dtype there is not, ValueError for negative strides. Reference: torch.from_numpy.
    """
    if not isinstance(ndarray, np.ndarray):
        what = "a CuPy array: use torch.as_tensor, which shares its memory" if _device.is_array(ndarray) else type(ndarray).__name__
        raise TypeError(f"from_numpy: expected np.ndarray (got {what})")
    check_shareable("from_numpy", ndarray)
    return wrap(_device.plain(ndarray))


@public
def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A 0-d tensor of a number, of the default dtype unless given. Reference: torch.scalar_tensor."""
    return full((), s, dtype=_dtype.default() if dtype is None else dtype, device=device, requires_grad=requires_grad)


# ----------------------------------------------------------------------------------------------------------- from nothing

def size_of(name, size, keyword=None):
    """A shape given as several integers, as one sequence, or under the keyword `size`."""
    if keyword is not None:
        size = keyword
    elif not size:
        raise TypeError(f"{name}() missing 1 required positional argument: \"size\"")
    elif len(size) == 1 and isinstance(size[0], (list, tuple)):
        size, = size
    if not isinstance(size, (list, tuple)) or any(isinstance(n, bool) for n in size):
        raise TypeError(f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}: {size!r:.80}")
    try:
        size = tuple([operator.index(n) for n in size])
    except TypeError:
        raise TypeError(f"{name}(): argument 'size' must be tuple of ints, got {size!r:.80}") from None
    for n in size:
        if n < 0:
            raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {n}: {list(size)}")
    return size


def make(array_function, dtype, device, requires_grad) -> Tensor:
    """A leaf over array_function(array module, NumPy dtype), under the guard of its device."""
    where = _device.resolve(device)
    d = _dtype.default() if dtype is None else _dtype.to_numpy(dtype)
    if requires_grad:
        check_differentiable(d)
    if where is _device.CPU:
        array = run_apart(array_function, np, d)
        t = wrap(array if type(array) is np.ndarray else np.asarray(array))      # NumPy's arithmetic on 0-d arrays gives scalars
    else:
        with _device.guard(where):
            t = wrap(run_apart(array_function, _device.cupy, d))
    t._requires = bool(requires_grad)
    return t


@public
def zeros(*shape, size=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A tensor of zeros. Raises RuntimeError for a negative size. Reference: torch.zeros."""
    size = size_of("zeros", shape, size)
    return make(lambda xp, d: xp.zeros(size, d), dtype, device, requires_grad)


@public
def ones(*shape, size=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A tensor of ones. Raises RuntimeError for a negative size. Reference: torch.ones."""
    size = size_of("ones", shape, size)
    return make(lambda xp, d: xp.ones(size, d), dtype, device, requires_grad)


@public
def empty(*shape, size=None, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None,
          pin_memory=False) -> Tensor:
    """A tensor whose elements are whatever the memory held. Raises RuntimeError for a negative size. Reference: torch.empty."""
    size = size_of("empty", shape, size)
    return make(lambda xp, d: xp.empty(size, d), dtype, device, requires_grad)


@public
def full(size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A tensor of one value, without dtype of the value's own.

    Raises: TypeError for a value that is no number, RuntimeError for one that the dtype cannot hold.
    Reference: torch.full.
    """
    size = size_of("full", (), size)
    value = _filling("full", fill_value, dtype)
    return make(lambda xp, d: xp.full(size, value, d), value.dtype, device, requires_grad)


def _filling(name, value, dtype):
    """A number as a scalar of a dtype, or of its own."""
    if isinstance(value, Tensor) and not value._array.ndim:
        value = value._array.item()
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float, complex, np.generic)):
        raise TypeError(f"{name}(): argument 'fill_value' must be a number, not {type(value).__name__}")
    wanted = array_of(value)[()].dtype if dtype is None and not isinstance(value, int) else _dtype.to_numpy(
        dtype or (bool if isinstance(value, bool) else int))
    return run_apart(np.asarray(fitted(name, value, wanted)).astype, wanted)[()]


def _number(name, argument, value):
    if isinstance(value, Tensor) and value._array.size == 1 or isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Tensor):
        raise RuntimeError(f"{name}: expected a 0-dimensional tensor for {argument}, but got {value.ndim} dimension(s)")
    if not isinstance(value, (int, float, complex)):
        raise TypeError(f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}")
    return value


@public
def arange(start=None, end=None, step=1, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """The numbers from start (0) to end, end not included, step apart.

    Dtype: int64 if all three are integers, else the default dtype. An integer dtype counts in integers.
    Raises: RuntimeError for a step of 0 or of the wrong sign, or for a bound that is not finite. Reference: torch.arange.
    """
    if end is None:
        start, end = 0, start
    if end is None:
        raise TypeError("arange() missing 1 required positional argument: \"end\"")
    start, end, step = _number("arange", "start", start or 0), _number("arange", "end", end), _number("arange", "step", step)
    whole = all(isinstance(x, int) for x in (start, end, step))
    d = np.dtype(np.int64) if dtype is None and whole else _dtype.default() if dtype is None else _dtype.to_numpy(dtype)
    if _dtype.category(d) in "bc":
        raise NotImplementedError(f"arange: not implemented for {_dtype.of(d)}; make it in another dtype and convert it")
    if not all(math.isfinite(x) for x in (start, end, step)):
        raise RuntimeError(f"arange: unsupported range: {start} -> {end}")
    if step == 0:
        raise RuntimeError("arange: step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(f"arange: upper bound and lower bound inconsistent with step sign: from {start} to {end} by {step}")
    if d.kind in "iu":
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError(f"arange: step must be nonzero, and is less than 1, thus 0 in {_dtype.of(d)}")
        count = -((start - end) // step)
        return make(lambda xp, d: (start + step * xp.arange(count)).astype(d), d, device, requires_grad)
    count = math.ceil((end - start) / step)
    return make(lambda xp, d: (start + step * xp.arange(count, dtype=np.float64)).astype(d), d, device, requires_grad)


def _even(xp, start, end, steps):
    """From both ends towards the middle, so that both ends are exact."""
    if steps == 1:
        return xp.full(1, start, np.result_type(type(start), np.float64))
    i = xp.arange(steps, dtype=np.float64)
    step = (end - start) / max(steps - 1, 1)
    return xp.where(i < steps / 2, start + step * i, end - step * (steps - 1 - i))


def _spaced(name, start, end, steps, dtype, device, requires_grad, change):
    start, end = _number(name, "start", start), _number(name, "end", end)
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, got {steps}")
    if dtype is None and isinstance(start + end, complex):
        dtype = np.result_type(_dtype.default(), np.complex64)
    if name == "linspace" and dtype is not None and _dtype.category(_dtype.to_numpy(dtype)) == "i":
        start, end = int(start), int(end)                # the ends are integers before there is anything between them
    return make(lambda xp, d: change(xp, _even(xp, start, end, steps)).astype(d), dtype, device, requires_grad)


@public
def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """`steps` numbers evenly apart from start to end, both included.

    Raises: RuntimeError for a negative number of steps. Reference: torch.linspace.
    """
    return _spaced("linspace", start, end, steps, dtype, device, requires_grad, lambda xp, x: x)


@public
def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """`base` to the power of `steps` numbers evenly apart from start to end, both included.

    Raises: RuntimeError for a negative number of steps. Reference: torch.logspace.
    """
    return _spaced("logspace", start, end, steps, dtype, device, requires_grad, lambda xp, x: xp.power(base, x))


@public
def eye(n, m=None, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """Ones on the diagonal of an n x m (n x n) matrix of zeros. Raises RuntimeError for a negative size. Reference: torch.eye."""
    m = n if m is None else m
    for name, value in (("n", n), ("m", m)):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"eye(): argument '{name}' must be int, not {type(value).__name__}")
        if value < 0:
            raise RuntimeError(f"eye: {name} must be greater or equal to 0, got {value}")
    return make(lambda xp, d: xp.eye(n, m, dtype=d), dtype, device, requires_grad)


def _triangle(name, row, col, offset, dtype, device, inside):
    for argument, value in (("row", row), ("col", col)):
        if value < 0:
            raise RuntimeError(f"{name}: {argument} must be non-negative, got {value}")
    return make(lambda xp, d: xp.stack(xp.nonzero(inside(xp.arange(col) - xp.arange(row)[:, None]))).astype(d),
                dtype or np.int64, device, False)


@public
def tril_indices(row, col, offset=0, *, dtype=None, device=None, layout=None) -> Tensor:
    """Row and column numbers of the lower triangle of a row x col matrix, up to diagonal `offset`. Reference: torch.tril_indices."""
    return _triangle("tril_indices", row, col, offset, dtype, device, lambda diagonal: diagonal <= offset)


@public
def triu_indices(row, col, offset=0, *, dtype=None, device=None, layout=None) -> Tensor:
    """Row and column numbers of the upper triangle of a row x col matrix, from diagonal `offset`. Reference: torch.triu_indices."""
    return _triangle("triu_indices", row, col, offset, dtype, device, lambda diagonal: diagonal >= offset)


# -------------------------------------------------------------------------------------------------------- beside a tensor

@op(method=False, function=False)
def zeros_like(self):
    """Zeros of self's shape, dtype and device: for formulas; the package's function also takes dtype and device."""
    return np.zeros_like(self, order=_device.order_of(self))


@op(method=False, function=False)
def ones_like(self):
    """Ones of self's shape, dtype and device: for formulas; the package's function also takes dtype and device."""
    return np.ones_like(self, order=_device.order_of(self))


def _fill(t, dtype, device, value):
    """make's array_function for an array of a tensor's shape, in its order of dimensions, filled with a value unless that is None."""
    array = t._array

    def filled(xp, d):
        made = xp.empty_like(array, d, _device.order_of(array)) if xp is _device.xp(array) else xp.empty(array.shape, d)
        if value is not None:
            made[...] = value
        return made
    return filled, dtype or array.dtype, device or _device.of(array)


def _like(name, value):
    """The function of a name, which fills an array like input with a value."""
    def function(input, *, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None, pin_memory=False) -> Tensor:
        check_tensor(name, input)
        return make(*_fill(input, dtype, device, value), requires_grad)
    function.__name__ = function.__qualname__ = name
    what = {0: "Zeros", 1: "Ones", None: "Whatever the memory held,"}[value]
    function.__doc__ = f"{what} in input's shape, and in its dtype and on its device unless given. Reference: torch.{name}."
    return public(function)


zeros_like = _like("zeros_like", 0)  # noqa: F811 - the op is reached as F.zeros_like
ones_like = _like("ones_like", 1)  # noqa: F811
empty_like = _like("empty_like", None)


@public
def full_like(input, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None,
              pin_memory=False) -> Tensor:
    """One value in input's shape, and in its dtype and on its device unless given. Reference: torch.full_like."""
    check_tensor("full_like", input)
    value = _filling("full_like", fill_value, dtype or input._array.dtype)
    return make(*_fill(input, dtype, device, value), requires_grad)


def _new(name, function):
    def new(self, *shape, size=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
        return function(size_of(name, shape, size), dtype=dtype or self._array.dtype, device=device or self.device,
                        requires_grad=requires_grad)
    new.__name__ = new.__qualname__ = name
    new.__doc__ = f"As {name[4:]}, with this tensor's dtype and device unless given. Reference: torch.Tensor.{name}."
    return method(new)


_new("new_zeros", zeros)
_new("new_ones", ones)
_new("new_empty", empty)


@method
def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """As full, with this tensor's dtype and device unless given. Reference: torch.Tensor.new_full."""
    return full(size, fill_value, dtype=dtype or self._array.dtype, device=device or self.device, requires_grad=requires_grad)


@method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False) -> Tensor:
    """As tensor, with this tensor's dtype and device unless given. Reference: torch.Tensor.new_tensor."""
    own = data._array.dtype if isinstance(data, Tensor) else self._array.dtype
    return tensor(data, dtype=dtype or own, device=device or self.device, requires_grad=requires_grad)


# -------------------------------------------------------------------------------------------------------------- questions

@public
def is_tensor(obj) -> bool:
    """Whether obj is a Tensor. Reference: torch.is_tensor."""
    return isinstance(obj, Tensor)


@public
def is_floating_point(input) -> bool:
    """Whether a tensor's dtype is floating. Reference: torch.is_floating_point."""
    check_tensor("is_floating_point", input)
    return _dtype.category(input._array.dtype) == "f"


@public
def is_complex(input) -> bool:
    """Whether a tensor's dtype is complex. Reference: torch.is_complex."""
    check_tensor("is_complex", input)
    return input._array.dtype.kind == "c"


@public
def is_inference(input) -> bool:
    """Whether a tensor is an inference tensor: made in inference mode. Reference: torch.is_inference."""
    check_tensor("is_inference", input)
    return input._counter is INFERENCE


@public
def is_nonzero(input) -> bool:
    """Whether a tensor's single element is not 0. Raises RuntimeError unless there is exactly one. Reference: torch.is_nonzero."""
    check_tensor("is_nonzero", input)
    return bool(input)


@public
def numel(input) -> int:
    """The number of elements. Reference: torch.numel."""
    check_tensor("numel", input)
    return input._array.size


def _operand(value):
    if isinstance(value, Tensor):
        return value._array.dtype, 2 if value._array.ndim else 1
    if isinstance(value, np.generic):
        value = value.item()
    for kind, d in ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128)):
        if isinstance(value, kind):
            return np.dtype(d), 0
    raise TypeError(f"result_type(): operands must be Tensors or numbers, got {type(value).__name__}")


@public
def result_type(tensor1, tensor2) -> _dtype.dtype:
    """The dtype of an arithmetic result of two tensors or numbers. Reference: torch.result_type."""
    return _dtype.of(_dtype.result_of([_operand(tensor1), _operand(tensor2)]))
