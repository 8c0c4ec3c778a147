"""What load makes of the pickle in a file: tensors over storages, what names of PyTorch's stand for, and nothing that is not allowed."""
from __future__ import annotations

import _compat_pickle
import operator
import pickle
import warnings
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import CudaTensor, Tensor, wrap
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.nn.parameter import Buffer, Parameter
from autograd_gpu.ops.convert import TYPES
from autograd_gpu.ops.creation import FUNCTIONS
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.size import Size, strided

# ---------------------------------------------------------------------------------------------------------------- tensors


class Storage:
    """A file's bytes that tensors share, as load gives them to a map_location that is a function; on the CPU until a tensor needs them."""

    __slots__ = ("device", "_array", "_swapped", "_bools")

    def __init__(self, array, device=_device.CPU, swapped=False):
        self.device = device
        self._array = array
        self._swapped = swapped              # in the byte order of another machine, until it is known what the bytes are
        self._bools = False                  # whether all bytes are 0 or 1

    def __len__(self):
        return self._array.size

    nbytes = size = __len__

    def cpu(self) -> Storage:
        """The storage on the CPU."""
        return Storage(self._array, _device.CPU, self._swapped)

    def cuda(self, device=None) -> Storage:
        """The storage on a CUDA device, by default the current one."""
        return Storage(self._array, _device.cuda_device(device), self._swapped)

    def memory(self, dtype):
        """The bytes on the device, in this machine's order."""
        unit = dtype.to_real().itemsize if dtype.is_complex else dtype.itemsize
        if self._swapped and unit > 1:
            self._array[:self._array.size // unit * unit].view(f"u{unit}").byteswap(inplace=True)
            self._swapped = False
        if dtype is _dtype.bool and not self._bools:       # NumPy's masks go out of bounds by any other byte
            with _device.guard(_device.of(self._array)):
                if self._array.size and self._array.max() > 1:
                    _device.xp(self._array).minimum(self._array, 1, out=self._array)
            self._bools = True
        self._array = _device.copy(self._array, self.device)
        return self._array


class Typed(NamedTuple):
    """A storage, and the dtype that a file says it has."""

    storage: Storage
    dtype: _dtype.dtype


class StorageType(NamedTuple):
    """torch.FloatStorage and its like, of which a file only needs the dtype."""

    name: str
    dtype: _dtype.dtype


def _over(storage, dtype, offset, size, stride):
    """A tensor over a part of a storage. Raises RuntimeError for one that is not inside."""
    offset, size, stride = operator.index(offset), Size(size), Size(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"load: mismatch in length of strides and shape: {len(stride)} and {len(size)}")
    if min((offset, *size, *stride)) < 0:
        raise RuntimeError(f"load: negative sizes, strides or offsets are not supported, got size {size}, stride {stride}, offset {offset}")
    needed = 0 if 0 in size else offset + 1 + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    if needed * dtype.itemsize > storage.nbytes():
        raise RuntimeError(f"load: sizes {list(size)}, strides {list(stride)} and storage offset {offset} need {needed * dtype.itemsize} "
                           f"bytes and are out of bounds for storage of size {storage.nbytes()}: the file is damaged")
    memory = storage.memory(dtype)
    strides, start = tuple([s * dtype.itemsize for s in stride]), offset * dtype.itemsize if needed else 0
    try:
        if type(memory) is np.ndarray:
            return wrap(np.ndarray(size, dtype.dtype, memory, start, strides))
        with _device.guard(storage.device):
            if not needed:
                return wrap(_device.module(storage.device).empty(size, dtype.dtype))
            typed = memory[:memory.size // dtype.itemsize * dtype.itemsize].view(dtype.dtype)
            return wrap(_device.strided(typed, size, strides, start))
    except (ValueError, OverflowError) as error:
        raise RuntimeError(f"load: sizes {list(size)} with strides {list(stride)} cannot be: {error}") from error


def rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    if not (isinstance(storage, Typed) and isinstance(dtype, _dtype.dtype)):
        raise pickle.UnpicklingError(f"load: a tensor of {storage!r} and {dtype!r}, expected a storage and a dtype: the file is damaged")
    t = _over(storage.storage, dtype, storage_offset, size, stride)
    with no_grad():                          # PyTorch has views that are conjugates or negatives of their memory
        if metadata and metadata.get("conj"):
            t = F.conj(t)
        if metadata and metadata.get("neg"):
            t = F.neg(t)
    return t.requires_grad_() if requires_grad else t


def rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    dtype = getattr(storage, "dtype", None)
    return rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata)


def rebuild_tensor(storage, storage_offset, size, stride):
    return rebuild_tensor_v3(storage, storage_offset, size, stride, False, None, getattr(storage, "dtype", None))


def rebuild_parameter(data, requires_grad, backward_hooks):
    return Parameter(data, requires_grad)


def rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    return _with_state(Parameter(data, requires_grad), state)


def rebuild_from_type_v2(func, new_type, args, state):
    """A Buffer, a tensor with attributes, or one of a subclass."""
    if not any([func is f for f in _REBUILDS]) or not (isinstance(new_type, type) and issubclass(new_type, Tensor)):
        raise pickle.UnpicklingError(f"load: a tensor of the type {new_type!r} made by {func!r}: the file is damaged")
    t = func(*args)
    if isinstance(state, dict) and state.get("_is_buffer"):
        return Buffer(t, persistent=bool(state.get("persistent", True)))
    if new_type is not Tensor:
        requires, t = t.requires_grad, wrap(t._array, lambda _: object.__new__(new_type))
        t._requires = requires
    return _with_state(t, state)


def _with_state(t, state):
    """A tensor with the attributes that were saved with it, where it takes some."""
    if hasattr(type(t), "__setstate__"):
        t.__setstate__(state)
    elif state:
        fields = state[0] if isinstance(state, tuple) else state
        if hasattr(t, "__dict__"):
            t.__dict__.update(fields)
        else:
            warnings.warn(f"load: a {type(t).__name__} takes no attributes of its own here: {', '.join(map(str, fields))} left out",
                          stacklevel=2)
    return t


def get_layout(name):
    if name != "torch.strided":
        raise pickle.UnpicklingError(f"load: the layout {name!r} has no counterpart here: every tensor is strided. "
                                     f"In PyTorch, save tensor.to_dense()")
    return strided


def _encode(text, encoding):
    """What bytes are in a pickle of protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"load: bytes encoded as {encoding!r}, expected 'latin1': the file is damaged")
    return text.encode("latin1")


def _no_bytes():
    """What empty bytes are in one."""
    return b""


# ------------------------------------------------------------------------------------------------------------------ names

_REBUILDS = (rebuild_tensor, rebuild_tensor_v2, rebuild_tensor_v3, rebuild_parameter, rebuild_parameter_with_state)
_CALLED: dict[str, Any] = {                  # what a pickle may call
    **{"torch._utils._" + f.__name__: f for f in _REBUILDS},
    "torch._tensor._rebuild_from_type_v2": rebuild_from_type_v2,
    "torch.serialization._get_layout": get_layout,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.Size": Size,
    "torch.device": _device.Device,
}
STORAGES = {d: StorageType(name.replace("Tensor", "Storage"), d) for name, d in TYPES.items() if d is not None}
UNTYPED = StorageType("UntypedStorage", _dtype.uint8)
_NAMES: dict[str, Any] = {                   # those, and what it may only have
    **_CALLED,
    "torch.Tensor": Tensor,
    **{f"torch.{d.name}": d for d in _dtype.ALL},
    **{f"torch.{t.name}": t for t in STORAGES.values()},
    "torch.storage.UntypedStorage": UNTYPED,
    **{f"torch.{name}": FUNCTIONS[name] for name in TYPES if name in FUNCTIONS},
}
WRITTEN = {id(found): name.rpartition(".") for name, found in _NAMES.items()} | {id(CudaTensor): ("torch", ".", "Tensor")}
_PLAIN: dict[str, Any] = {"collections.OrderedDict": OrderedDict, "collections.Counter": Counter, "builtins.set": set,
                          "builtins.complex": complex, "builtins.bytearray": bytearray, "builtins.bytes": _no_bytes,
                          "_codecs.encode": _encode}
_NEVER = ("os", "posix", "nt", "sys")        # modules of which no class is safe, whoever says so

_safe: set[Any] = set()                      # what add_safe_globals was given


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Have load take classes or functions for safe: a list of them, or of pairs of one and its name in files, "module.name".

    Raises: ValueError for a tuple that is no pair, TypeError for a name that is no string. Reference: torch.serialization.add_safe_globals.
    """
    for item in safe_globals:
        if isinstance(item, tuple) and len(item) != 2:
            raise ValueError(f"add_safe_globals: Expected tuple of length 2 (a class, its full name), but got {item!r}")
        if isinstance(item, tuple) and not isinstance(item[1], str):
            raise TypeError(f"add_safe_globals: Expected second item in tuple to be str, a full name, but got {item[1]!r}")
    _safe.update(safe_globals)


def get_safe_globals() -> list[Any]:
    """What add_safe_globals was given. Reference: torch.serialization.get_safe_globals."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Forget what add_safe_globals was given. Reference: torch.serialization.clear_safe_globals."""
    _safe.clear()


class safe_globals:
    """A context in which load takes classes or functions for safe, as by add_safe_globals. Reference: torch.serialization.safe_globals."""

    def __init__(self, safe_globals: list[Any]):
        self._given = list(safe_globals)

    def __enter__(self):
        self._added = set(self._given) - _safe
        add_safe_globals(self._given)

    def __exit__(self, *exc_info):
        _safe.difference_update(self._added)


def _marked_safe():
    """The same by the names that files have for them."""
    return dict([(item[1], item[0]) if isinstance(item, tuple) else (f"{item.__module__}.{item.__qualname__}", item) for item in _safe])


# -------------------------------------------------------------------------------------------------------------- unpicklers

class _Reading:
    """What all unpicklers of this file have in common."""

    def begin(self, archive, restore):
        self._archive, self._restore = archive, restore
        self._storages: dict[str, Storage] = {}
        return self

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], StorageType)
                and type(pid[2]) is str and type(pid[3]) is str and type(pid[4]) is int):
            raise pickle.UnpicklingError(f"load: expected ('storage', type, key, location, count) for a persistent id, got {pid!r}")
        _, kind, key, location, count = pid
        if key not in self._storages:
            array = self._archive.storage(key, count * kind.dtype.itemsize)
            self._storages[key] = self._restore(Storage(array, swapped=self._archive.swapped), location)
        return Typed(self._storages[key], kind.dtype)

    def named(self, module, name):
        """What a name of PyTorch's stands for; None for a name of others."""
        found = _NAMES.get(f"{module}.{name}")
        if found is None and module.partition(".")[0] == "torch":
            if name.lower().startswith("bfloat16"):
                raise RuntimeError("load: the file has tensors of bfloat16, for which ml_dtypes is needed: pip install ml_dtypes")
            raise pickle.UnpicklingError(
                f"load: Unsupported global: GLOBAL {module}.{name} of PyTorch's has no counterpart here. Of a module or an optimizer, "
                f"save the state_dict() in PyTorch and load that; tensors have to be dense ones of the dtypes that are here")
        return found


class _Opcodes(dict):
    """The instructions that the safe unpickler knows."""

    def __missing__(self, key):
        raise pickle.UnpicklingError(f"Weights only load failed: Unsupported operand {key} in the pickle. If you trust who wrote the file, "
                                     f"load it with weights_only=False")


class SafeUnpickler(_Reading, pickle._Unpickler):
    """Knows what tensors and plain Python values are made of, and what add_safe_globals was given."""

    dispatch = _Opcodes({getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in """
        PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINSTRING SHORT_BINSTRING
        BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
        TUPLE3 EMPTY_DICT EMPTY_SET FROZENSET BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL BINPERSID""".split()})

    def begin(self, archive, restore):
        self._marked = _marked_safe()
        self._callable = {id(f) for f in (*_CALLED.values(), *_PLAIN.values(), *self._marked.values())}
        return super().begin(archive, restore)

    def find_class(self, module, name):
        if self.proto < 3:                   # names of Python 2
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))
        full = f"{module}.{name}"
        if module.partition(".")[0] in _NEVER:
            raise pickle.UnpicklingError(f"Weights only load failed: the file names {full}, whose module {module} is blocked: it is not "
                                         f"made of weights, and may be made to do harm")
        for known in (_PLAIN, self._marked):
            if full in known:
                return known[full]
        found = self.named(module, name)
        if found is None:
            raise pickle.UnpicklingError(
                f"Weights only load failed. Unsupported global: GLOBAL {full} was not an allowed global by default. If it can do no harm, "
                f"allow it: serialization.add_safe_globals([{name}]). weights_only=False loads any file, but runs what the file says: do "
                f"that only if you trust who wrote it")
        return found

    def _only(self, allowed, what, found):
        if not allowed:
            raise pickle.UnpicklingError(f"Weights only load failed: cannot {what} {found!r}. If you trust who wrote the file, load it "
                                         f"with weights_only=False")

    def _load_call(self):
        self._only(id(self.stack[-2]) in self._callable, "call", self.stack[-2])
        self._base[pickle.REDUCE[0]](self)

    def _load_new(self):
        self._only(any([self.stack[-2] is c for c in self._marked.values()]), "make an object of", self.stack[-2])
        self._base[pickle.NEWOBJ[0]](self)

    def _load_build(self):
        kind = type(self.stack[-2])
        self._only(kind is OrderedDict or any([kind is c for c in self._marked.values()]), "set the state of a", kind)
        self._base[pickle.BUILD[0]](self)

    def _load_item(self):
        self._only(isinstance(self.stack[-3], dict), "set an item of", self.stack[-3])
        self._base[pickle.SETITEM[0]](self)

    def _load_items(self):
        self._only(isinstance(self.metastack[-1][-1], dict), "set items of", self.metastack[-1][-1])
        self._base[pickle.SETITEMS[0]](self)

    def _load_append(self):
        self._only(isinstance(self.stack[-2], list), "append to", self.stack[-2])
        self._base[pickle.APPEND[0]](self)

    def _load_appends(self):
        self._only(isinstance(self.metastack[-1][-1], list), "append to", self.metastack[-1][-1])
        self._base[pickle.APPENDS[0]](self)

    def _load_additems(self):
        self._only(isinstance(self.metastack[-1][-1], set), "add to", self.metastack[-1][-1])
        self._base[pickle.ADDITEMS[0]](self)

    _base = pickle._Unpickler.dispatch
    dispatch.update({pickle.REDUCE[0]: _load_call, pickle.NEWOBJ[0]: _load_new, pickle.BUILD[0]: _load_build,
                     pickle.SETITEM[0]: _load_item, pickle.SETITEMS[0]: _load_items, pickle.APPEND[0]: _load_append,
                     pickle.APPENDS[0]: _load_appends, pickle.ADDITEMS[0]: _load_additems})


def trusting(base):
    """An unpickler that finds any class, made from a module's."""
    class Unpickler(_Reading, base):
        def find_class(self, module, name):
            found = self.named(module, name)
            return super().find_class(module, name) if found is None else found
    return Unpickler


def _restored(storage, location):
    """A storage on the device that a file, or map_location, names. Raises RuntimeError where that is not here."""
    if location == "cpu":
        return storage.cpu()
    if not location.startswith("cuda"):
        raise RuntimeError(f"load: don't know how to restore data location of a storage (tagged with {location}): devices here are 'cpu' "
                           f"and 'cuda:N'; load it with map_location='cpu'")
    where, reason = _device.Device(location), _device.why_no_cuda()
    if reason:
        raise RuntimeError(f"Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False: load it with "
                           f"map_location='cpu'. ({reason})")
    if (where.index or 0) >= _device.device_count():
        raise RuntimeError(f"Attempting to deserialize object on CUDA device {where.index} but torch.cuda.device_count() is "
                           f"{_device.device_count()}: load it with map_location='cuda:0' or 'cpu'")
    return storage.cuda(where)


def restoring(map_location):
    """What puts a storage where it belongs: a function of it and of the location in the file."""
    if map_location is None:
        return _restored
    if isinstance(map_location, dict):
        return lambda storage, location: _restored(storage, str(map_location.get(location, location)))
    if isinstance(map_location, (str, _device.Device)):
        return lambda storage, location: _restored(storage, str(map_location))
    if not callable(map_location):
        raise TypeError(f"load: map_location must be a device, a string, a dictionary or a callable, got {map_location!r}")

    def by_function(storage, location):
        found = map_location(storage, location)
        if found is None:
            return _restored(storage, location)
        if not isinstance(found, Storage):
            raise TypeError(f"load: a map_location function must return the storage it is given, storage.cuda(...) or None, got {found!r}")
        return found
    return by_function
