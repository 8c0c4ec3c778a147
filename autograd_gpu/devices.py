"""Devices, the array module behind each, and copies between them. The only file that imports CuPy."""
from __future__ import annotations

import contextlib
import importlib
import threading
import types
from typing import Any, ClassVar, NamedTuple

import numpy as np

_ARRAYS: tuple[type, ...]
cupy: Any
try:
    import cupy  # type: ignore[no-redef]
    _ARRAYS, _import_error = (np.ndarray, cupy.ndarray), ""
except Exception as error:               # not only ImportError: a broken driver or toolkit raises its own kinds
    cupy, _ARRAYS, _import_error = None, (np.ndarray,), f"{type(error).__name__}: {error}"


class Device:
    """A place for tensors: `device("cpu")`, `device("cuda")` (the current one), `device("cuda:1")` or `device("cuda", 1)`.

    Raises RuntimeError for another type or a malformed index. Reference: torch.device.
    """

    type: str
    index: int | None
    __slots__ = ("type", "index")
    _made: ClassVar[dict[tuple[str, int | None], Device]] = {}   # one object per device: they compare and hash by identity

    def __new__(cls, type, index=None):
        if isinstance(type, Device):
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device(): expected a string such as 'cpu' or 'cuda:0', or a device index, got {type!r}")
        name, colon, number = type.partition(":")
        if name not in ("cpu", "cuda"):
            raise RuntimeError(f"Expected one of cpu, cuda device type at start of device string: {type!r}")
        if colon:
            if index is not None:
                raise RuntimeError(f"device: type must not include an index because index was passed explicitly: {type!r}, {index!r}")
            if not number.isdecimal() or number != str(int(number)):
                raise RuntimeError(f"Invalid device string: {type!r}; expected 'cpu', 'cuda' or 'cuda:N'")
            index = int(number)
        if index is not None and index < 0:
            raise RuntimeError(f"device: Device index must not be negative, got {index}")
        found = cls._made.get((name, index))
        if found is None:
            found = object.__new__(cls)
            object.__setattr__(found, "type", name)
            object.__setattr__(found, "index", index)
            found = cls._made.setdefault((name, index), found)
        return found

    def __setattr__(self, name, value):
        raise AttributeError(f"device: {name} of a device cannot be changed; make another device")

    def __repr__(self):
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self):
        return Device, (self.type, self.index)

    def __enter__(self):
        _local.stack = (*_local.stack, self)
        return self

    def __exit__(self, *exc_info):
        _local.stack = _local.stack[:-1]


class _Local(threading.local):
    stack: tuple[Device, ...] = ()           # `with device(...):` sets where new tensors are made
    default: Device | None = None            # set_default_device, of this thread


CPU = Device("cpu")
_local = _Local()


def why_no_cuda() -> str | None:
    """None when CUDA works here, else the reason in words. Never raises."""
    if cupy is None:
        return f"CuPy cannot be imported ({_import_error}); install the extra cuda12 or cuda13, as your CUDA driver allows"
    installed = f"CuPy {getattr(cupy, '__version__', '')} is installed"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"{installed} but finds no usable GPU ({type(error).__name__}: {error})"
    return None if count else f"{installed} and the driver reports no device"


def device_count() -> int:
    """How many CUDA devices can be used; 0 where CUDA is not available."""
    return 0 if why_no_cuda() else cupy.cuda.runtime.getDeviceCount()


def _usable(what):
    reason = why_no_cuda()
    if reason:
        raise RuntimeError(f"{what} cannot be used: {reason}")


def current_device() -> int:
    """The index of the CUDA device on which "cuda" lies. Raises RuntimeError without CUDA. Reference: torch.cuda.current_device."""
    _usable("cuda.current_device")
    return cupy.cuda.Device().id


def set_device(device) -> None:
    """Make a CUDA device current in this thread. Raises RuntimeError without it. Reference: torch.cuda.set_device."""
    where = cuda_device(device)
    cupy.cuda.Device(where.index).use()


def get_device_name(device=None) -> str:
    """What a CUDA device calls itself. Raises RuntimeError without CUDA. Reference: torch.cuda.get_device_name."""
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    """The compute capability of a CUDA device, such as (8, 0).

    Raises RuntimeError without CUDA. Reference: torch.cuda.get_device_capability.
    """
    found = get_device_properties(device)
    return found.major, found.minor


class DeviceProperties(NamedTuple):
    """What a CUDA device is: its name, compute capability (major, minor), bytes of memory and multiprocessors."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int


def get_device_properties(device=None) -> DeviceProperties:
    """What a CUDA device is. Raises RuntimeError without CUDA. Reference: torch.cuda.get_device_properties."""
    found = cupy.cuda.runtime.getDeviceProperties(cuda_device(device).index)
    return DeviceProperties(found["name"].decode(), found["major"], found["minor"], found["totalGlobalMem"], found["multiProcessorCount"],
                            found["warpSize"])


@contextlib.contextmanager
def on_cuda(device=None):
    """A context in which a CUDA device is current in this thread, by default the current one; gives the device.

    Raises RuntimeError without it. Reference: torch.cuda.device.
    """
    where = cuda_device(device)
    with guard(where):
        yield where


def cuda_device(where) -> Device:
    """A CUDA device that exists, by default, or for a negative number, the current one.

    Raises RuntimeError without it, ValueError for another kind of device.
    """
    where = resolve("cuda" if where is None or isinstance(where, int) and where < 0 else where)
    if where.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {where}")
    return where


def resolve(where) -> Device:
    """A device that exists, with its index: None is the default device, "cuda" the current one.

    Raises RuntimeError where CUDA is not available, saying why, or the index is too large.
    """
    where = Device(where) if where is not None else chosen() or CPU
    if where.type == "cpu":
        return CPU
    _usable(f"device {where}")
    index = cupy.cuda.Device().id if where.index is None else where.index
    if index >= device_count():
        raise RuntimeError(f"device {where} does not exist: this machine has {device_count()} CUDA device(s), numbered from 0")
    return Device("cuda", index)


def chosen() -> Device | None:
    """The device that this thread has set for new tensors, by `with device(...)` or set_default_device; None where it has not."""
    return _local.stack[-1] if _local.stack else _local.default


def choices():
    """What chosen() looks at in this thread, for `choose` in another."""
    return _local.stack, _local.default


def choose(choices) -> None:
    """Have this thread make new tensors where another does."""
    _local.stack, _local.default = choices


def set_default_device(device) -> None:
    """New tensors of this thread are made here unless they name a device; None is the CPU again.

    Raises RuntimeError where the device cannot be used. Reference: torch.set_default_device.
    """
    _local.default = None if device is None else resolve(device)


def get_default_device() -> Device:
    """The device on which new tensors are made. Reference: torch.get_default_device."""
    return chosen() or CPU


def is_array(x) -> bool:
    """Whether x is an array of NumPy or CuPy."""
    return isinstance(x, _ARRAYS)


def plain(array):
    """An array of NumPy's or CuPy's own class, over the same memory: of a subclass such as np.memmap a view."""
    return array.view(np.ndarray) if isinstance(array, np.ndarray) and type(array) is not np.ndarray else array


def of(array) -> Device:
    """The device whose memory an array lives in."""
    return CPU if isinstance(array, np.ndarray) else Device("cuda", array.device.id)


def from_dlpack(exporter):
    """The array over what an object of another library offers by DLPack, on the device where that is."""
    kind, _ = exporter.__dlpack_device__()
    if kind in _HOST:
        return np.from_dlpack(exporter)
    _usable(f"from_dlpack: memory on a device of DLPack's kind {int(kind)}")
    return cupy.from_dlpack(exporter)        # which makes its device current


_HOST = (1, 3, 11)                           # DLPack's numbers for host memory: pageable, or page-locked by CUDA or ROCm


def root(array):
    """The array that has the memory of which an array is a view; itself where it is none."""
    while True:
        base = array.base
        if base is None and type(array) is not np.ndarray:
            base = getattr(array.data.mem, "_owner", None)       # of `strided`'s
        while base is not None and not is_array(base):           # NumPy's as_strided puts an object between
            base = getattr(base, "base", None)
        if base is None:
            return array
        array = base


def xp(array):
    """NumPy or CuPy: the module whose functions take this array."""
    return np if isinstance(array, (np.ndarray, np.generic)) else cupy     # NumPy's sums of 0-d arrays are scalars


def module(where: Device):
    """NumPy or CuPy: the module that makes arrays on a device."""
    return np if where.type == "cpu" else cupy


def _in_bfloat16(found, a):
    """What cupy.where makes float32 where its operand is bfloat16."""
    return found.astype(a.dtype) if a.dtype.kind == "V" else found


def strided(array, shape, strides, offset=0):
    """A view of a CuPy array that walks its memory in steps of its own, from so many bytes after its first element.

    It has a base and keeps the array, which CuPy's as_strided does not: by its base a view is known for one, and the array that has the
    memory says which streams use it.
    """
    memory = cupy.cuda.UnownedMemory(array.data.ptr + offset, array.nbytes, array, array.device.id)
    return cupy.ndarray(shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0), strides).view()


class _LikeNumPy:
    """CuPy as bodies of ops see it: its functions, and NumPy's results where its own differ."""

    lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=strided))

    def __getattr__(self, name):
        found = getattr(cupy, name)
        setattr(self, name, found)
        return found

    @staticmethod
    def where(condition, x, y):
        found = cupy.where(condition, x, y)
        arrays = [v for v in (x, y) if isinstance(v, cupy.ndarray)]
        return _in_bfloat16(found, arrays[0]) if arrays and arrays[0].dtype == arrays[-1].dtype else found

    @staticmethod
    def tril(a, k=0):
        return _in_bfloat16(cupy.tril(a, k), a)

    @staticmethod
    def triu(a, k=0):
        return _in_bfloat16(cupy.triu(a, k), a)

    @classmethod
    def argmax(cls, a, axis=None, keepdims=False):
        return cls._first_nan(a, cupy.argmax(a, axis, keepdims=keepdims), axis, keepdims)

    @classmethod
    def argmin(cls, a, axis=None, keepdims=False):
        return cls._first_nan(a, cupy.argmin(a, axis, keepdims=keepdims), axis, keepdims)

    @staticmethod
    def _first_nan(a, found, axis, keepdims):
        """Where an extremum stands: CuPy gives the last of several NaNs."""
        if a.dtype.kind in "biu" or not a.size:
            return found
        nan = a != a
        return cupy.where(nan.any(axis, keepdims=keepdims), cupy.argmax(nan, axis, keepdims=keepdims), found)


_like_numpy = _LikeNumPy()


def as_numpy(module):
    """What `np` is in a body on the arrays of a module."""
    return _like_numpy if module is cupy and module is not None else module


def repeats(array) -> bool:
    """Whether several elements of an array are one place in memory, as after expand."""
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride == 0 and n > 1:
            return True
    return False


def apart(shape, strides) -> bool:
    """Whether surely no two elements share memory: each step goes beyond all that the smaller ones reach. Not for negative strides."""
    reach = 0
    for stride, n in sorted([(stride, n) for stride, n in zip(strides, shape, strict=True) if n > 1]):
        if stride <= reach:
            return False
        reach += stride * (n - 1)
    return True


def order_of(array) -> str:
    """The order in which a copy keeps an array's layout, as PyTorch does: its own ("K"), or C order where it was expanded."""
    return "C" if repeats(array) else "K"


def guard(where: Device):
    """A context in which CuPy works on a device; nothing for the CPU."""
    return cupy.cuda.Device(where.index) if where.type == "cuda" else contextlib.nullcontext()


def copy(array, where: Device, move=None):
    """The array's values on a device: the array itself if it is there already. `move`: what is used in place of `moved`."""
    move = move or moved
    here = of(array)
    if here == where:
        return array
    if array.flags.c_contiguous:
        return move(array, here, where)
    axes = sorted(range(array.ndim), key=lambda k: -array.strides[k])
    dense = array.transpose(axes)            # in C order, if its elements lie without gaps: then it is laid out alike on both sides
    if not dense.flags.c_contiguous:
        with guard(here):
            return copy(array.copy(order_of(array)), where, move)
    return move(dense, here, where).transpose(sorted(range(array.ndim), key=axes.__getitem__))


def host(array):
    """The array in host memory: itself if it is there already, else once the device has computed it."""
    return array if type(array) is np.ndarray else copy(array, CPU)


def moved(array, here, where):
    """An array in C order on another device."""
    if where.type == "cpu":
        with guard(here):
            found = cupy.asnumpy(array)
        raise_reported(here)
        return found
    if here.type == "cpu":
        with guard(where):
            return cupy.asarray(array)
    # On the source's stream, behind what wrote the values; so whoever frees the source and uses its memory again comes after the copy.
    with guard(where):
        target = cupy.cuda.get_current_stream()
        out = cupy.empty(array.shape, array.dtype)
        free = target.record()               # what used this memory before has ended by then
    with guard(here):
        source = cupy.cuda.get_current_stream()
        source.wait_event(free)
        out.data.copy_from_device_async(array.data, array.nbytes, source)
        done = source.record()
    with guard(where):                       # a null stream is that of the current device
        target.wait_event(done)
    return out


# ----------------------------------------------------------------------------------------------------- what kernels report

_reports: dict[int, Any] = {}                # by device: five numbers in page-locked memory, as kernels/bounds.cuh has them
_reporters: dict[str, int] = {}              # the number by which a kernel names an op, from 1
_reporting = threading.Lock()                # guards both


def reporter(name):
    """(address, number): where a kernel on the current device reports an index out of range, and how it names the op there."""
    index = cupy.cuda.Device().id
    if index not in _reports or name not in _reporters:
        with _reporting:
            if index not in _reports:
                made = np.frombuffer(cupy.cuda.alloc_pinned_memory(5 * 8), np.int64, 5)
                made[...] = 0
                _reports[index] = made
            _reporters.setdefault(name, len(_reporters) + 1)
    return np.uint64(_reports[index].ctypes.data), np.int32(_reporters[name])


def raise_reported(where: Device) -> None:
    """Raise the IndexError that a kernel has reported on a device, once. To be called where the host has waited: it reads host memory."""
    report = _reports.get(where.index or 0)
    if report is None or not report[1]:
        return
    with _reporting:
        _, number, index, dim, size = report.tolist()
        report[1:] = 0
        report[0] = 0                        # last: a kernel of another stream may take it at once
    if not number:
        return                               # another thread was faster
    name = next(n for n, k in _reporters.items() if k == number)
    raise IndexError(f"{name}: index {index} is out of bounds for dimension {dim} with size {size}; found on {where} while the op ran "
                     f"there, before what the host waits for now")


class _Scientific:
    """SciPy, or cupyx.scipy, whose parts are loaded by the first op that needs them: importing scipy.special takes 0.3 s."""

    def __init__(self, package):
        self._package = package

    def __getattr__(self, name):
        part = importlib.import_module(f"{self._package}.{name}")
        setattr(self, name, part)
        return part


_scientific = {np: _Scientific("scipy")}


def scientific(array_module):
    """What `sp` is in an op's body: the scientific library beside NumPy or CuPy."""
    if array_module not in _scientific:
        own = getattr(array_module, "scientific", None)          # a stand-in for NumPy brings its own
        _scientific[array_module] = own or _Scientific("cupyx.scipy")
    return _scientific[array_module]
