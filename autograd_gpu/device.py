"""Devices, the array module behind each, and copies between them. With cuda/launch.py the only importer of CuPy."""
from __future__ import annotations

import contextlib
import importlib
import threading

import numpy as np

try:
    import cupy
except Exception as error:               # not only ImportError: a broken driver or toolkit raises its own kinds
    cupy, _import_error = None, error
else:
    _import_error = None


class Device:
    """A place for tensors: `device("cpu")`, `device("cuda")` (the current one), `device("cuda:1")` or `device("cuda", 1)`.

    Raises RuntimeError for another type or a malformed index. Reference: torch.device.
    """

    __slots__ = ("type", "index")
    _made: dict[tuple[str, int | None], Device] = {}             # one object per device: they compare and hash by identity

    def __new__(cls, type="cpu", index=None):
        if isinstance(type, Device):
            return type
        if isinstance(type, int):
            type, index = "cuda", type
        name, colon, number = str(type).partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"device: the index is given twice, in {type!r} and as {index!r}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: {type!r}; expected 'cpu', 'cuda' or 'cuda:N'")
            index = int(number)
        if name not in ("cpu", "cuda"):
            raise RuntimeError(f"Expected one of cpu, cuda device type at start of device string: {type}")
        if index is not None and (index < 0 or (name == "cpu" and index)):
            raise RuntimeError(f"device: there is no {name} device with index {index}")
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


CPU = Device("cpu")
_local = _Local()
_default = CPU


def why_no_cuda() -> str | None:
    """None when CUDA works here, else the reason in words. Never raises."""
    if cupy is None:
        return f"CuPy cannot be imported ({type(_import_error).__name__}: {_import_error}); install the extra cuda12 or cuda13"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"CuPy {cupy.__version__} is installed but finds no usable GPU ({type(error).__name__}: {error})"
    return None if count else f"CuPy {cupy.__version__} is installed and the driver reports no device"


def device_count() -> int:
    """How many CUDA devices can be used; 0 where CUDA is not available."""
    return 0 if why_no_cuda() else cupy.cuda.runtime.getDeviceCount()


def resolve(where) -> Device:
    """A device that exists, with its index: None is the default device, "cuda" the current one.

    Raises RuntimeError where CUDA is not available, saying why, or the index is too large.
    """
    if where is None:
        where = _local.stack[-1] if _local.stack else _default
    where = Device(where)
    if where.type == "cpu":
        return CPU
    reason = why_no_cuda()
    if reason:
        raise RuntimeError(f"device {where} cannot be used: {reason}")
    index = cupy.cuda.Device().id if where.index is None else where.index
    if index >= device_count():
        raise RuntimeError(f"device {where} does not exist: this machine has {device_count()} CUDA device(s), numbered from 0")
    return Device("cuda", index)


def set_default_device(where) -> None:
    """New tensors are made here unless they name a device; None is the CPU. Reference: torch.set_default_device."""
    global _default
    _default = resolve(where if where is not None else CPU)


def get_default_device() -> Device:
    """The device on which new tensors are made. Reference: torch.get_default_device."""
    return _local.stack[-1] if _local.stack else _default


def is_array(x) -> bool:
    """Whether x is an array of NumPy or CuPy."""
    return isinstance(x, np.ndarray) or (cupy is not None and isinstance(x, cupy.ndarray))


def of(array) -> Device:
    """The device whose memory an array lives in."""
    return CPU if isinstance(array, np.ndarray) else Device("cuda", array.device.id)


def xp(array):
    """NumPy or CuPy: the module whose functions take this array."""
    return np if isinstance(array, np.ndarray) else cupy


def module(where: Device):
    """NumPy or CuPy: the module that makes arrays on a device."""
    return np if where.type == "cpu" else cupy


def guard(where: Device):
    """A context in which CuPy works on a device; nothing for the CPU."""
    return cupy.cuda.Device(where.index) if where.type == "cuda" else contextlib.nullcontext()


def copy(array, where: Device):
    """The array's values on a device: the array itself if it is there already."""
    here = of(array)
    if here == where:
        return array
    if where.type == "cpu":
        return cupy.asnumpy(array)
    with cupy.cuda.Device(where.index):
        return cupy.asarray(array)


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
        _scientific[array_module] = _Scientific("cupyx.scipy")
    return _scientific[array_module]
