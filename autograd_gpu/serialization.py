"""save and load: objects with Tensors in them, in PyTorch's zip files.

A file is a zip archive, not compressed: `data.pkl`, a pickle in which each tensor is a call of a function of PyTorch's on a storage, and
`data/0`, `data/1` ..., the bytes of the storages. What such functions and other names stand for here is in unpickling.py.
"""
from __future__ import annotations

import codecs
import io
import mmap as _mmap
import os
import pickle
import sys
import zipfile
import zlib
from collections import OrderedDict
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.base import CudaTensor, Tensor
from autograd_gpu.nn.parameter import Buffer, Parameter
from autograd_gpu.ops.strided import origin
from autograd_gpu.size import strided
from autograd_gpu.unpickling import (
    STORAGES,
    UNTYPED,
    WRITTEN,
    SafeUnpickler,
    add_safe_globals,
    clear_safe_globals,
    get_layout,
    get_safe_globals,
    rebuild_from_type_v2,
    rebuild_parameter,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    restoring,
    safe_globals,
    trusting,
)

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

ALIGNMENT = 64                               # where in the file a storage begins, so that it can be mapped
NEWEST = 10                                  # the version of the format up to which PyTorch reads files


# ------------------------------------------------------------------------------------------------------------------- load

class _Archive:
    """The records of a file, found by their names only."""

    def __init__(self, file, mapped):
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise RuntimeError(f"load: failed reading zip archive: {error}. The file is damaged, or was not written to its end") from error
        found = self._zip.infolist()
        folder = found[0].filename.partition("/")[0] + "/" if found else ""
        for info in found:
            if not info.filename.startswith(folder):
                raise RuntimeError(f"load: file in archive is not in a subdirectory {folder}: {info.filename}. It was not written by save")
        self._records = {info.filename.removeprefix(folder): info for info in found}
        self._whole = np.frombuffer(_mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_COPY), np.uint8) if mapped else None
        if "constants.pkl" in self._records:
            raise RuntimeError("load: TorchScript archives hold programs of PyTorch's, which cannot run here: in PyTorch, "
                               "torch.save(torch.jit.load(f).state_dict(), ...)")
        version = self.read("version" if "version" in self._records else ".data/version")
        if not version.strip().isdigit() or int(version) > NEWEST:
            raise RuntimeError(f"load: the file has version {version.decode('latin1').strip()!r}, but the newest that is known here is "
                               f"{NEWEST}")
        order = self.read("byteorder").decode("latin1") if "byteorder" in self._records else "little"
        if order not in ("little", "big"):
            raise ValueError(f"load: Unknown endianness type: {order!r}, expected 'little' or 'big'")
        self.swapped = order != sys.byteorder

    def read(self, name):
        """The bytes of a record, which may be written to. Raises RuntimeError where there is none, or it is damaged."""
        info = self._records.get(name)
        if info is None:
            raise RuntimeError(f"load: failed locating file {name} in the archive, which was not written by save, or is damaged")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RuntimeError(f"load: failed reading {name}: it is compressed in a way that PyTorch does not know")
        found = bytearray()
        try:
            with self._zip.open(info) as record:
                while piece := record.read(1 << 20):     # not all at once: what the header says of its size may be wrong
                    found += piece
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
            raise RuntimeError(f"load: failed reading {name}: {error}. The file is damaged") from error
        return found

    def storage(self, key, nbytes):
        """The bytes of a storage."""
        array = self._mapped(self._records.get(f"data/{key}"))
        if array is None:
            array = np.frombuffer(self.read(f"data/{key}"), np.uint8)
        if array.size != nbytes:
            raise RuntimeError(f"load: record size ({array.size} bytes) of data/{key} does not match expected size ({nbytes} bytes): "
                               f"the file is damaged")
        return array

    def _mapped(self, info):
        """A part of the mapped file, writes to which stay in memory; None where that cannot be."""
        if self._whole is None or info is None or info.compress_type != zipfile.ZIP_STORED:
            return None
        at = info.header_offset
        at += 30 + sum([int.from_bytes(self._whole[at + k:at + k + 2].tobytes(), "little") for k in (26, 28)])    # its name, and the extra
        found = self._whole[at:at + info.file_size]
        return found if (self._whole.ctypes.data + at) % 16 == 0 else None


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None) -> Any:
    """What `save`, or torch.save of PyTorch 1.6 or later, has written: an object with Tensors in it, which share memory as they did.

    f: a path or a file that can be read and sought in. map_location: where to put what lay on which device: a device or its name; a
    dictionary from names to names; or a function of a storage and its name, which returns the storage, `storage.cpu()`, `.cuda(...)`, or
    None for where it lay. weights_only: by default, unless there is a `pickle_module`, a file may only have tensors, dictionaries, lists,
    tuples, sets, numbers, strings, bytes, sizes, dtypes and devices. A file that you trust loads with weights_only=False: it may have
    anything, and do anything. mmap: the file, given by its path, is mapped and read as tensors are; writes to them do not reach it.
    Raises: pickle.UnpicklingError for a file that is not such a one, or has what is not safe; RuntimeError for one that is damaged, has
    tensors of a device that is not here, of bfloat16 without ml_dtypes, or a TorchScript program; EOFError for an empty one.
    Reference: torch.load.
    """
    if weights_only and pickle_module is not None:
        raise RuntimeError("load: Can not safely load weights when explicit pickle_module is specified: leave one of the two out")
    restore = restoring(map_location)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _loaded(file, restore, pickle_module, weights_only, mmap)
    if mmap:
        raise ValueError("load: f must be a file path in order to use the mmap argument")
    for method in ("read", "seek", "tell"):
        if not hasattr(f, method):
            raise AttributeError(f"load: {type(f).__name__!r} object has no attribute {method!r}. You can only load from a path, or a file "
                                 f"that is seekable, such as io.BytesIO")
    return _loaded(f, restore, pickle_module, weights_only, mmap)


def _loaded(file, restore, pickle_module, weights_only, mapped):
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if not head:
        raise EOFError("load: the file is empty")
    if head != b"PK\x03\x04":
        raise pickle.UnpicklingError("load: this is no zip file. One of before PyTorch 1.6, or saved with "
                                     "_use_new_zipfile_serialization=False, has to be loaded in PyTorch and saved again; what pickle.dump "
                                     "has written loads by pickle.load")
    archive = _Archive(file, mapped)
    data = io.BytesIO(archive.read("data.pkl"))
    if weights_only is None:
        weights_only = pickle_module is None
    kind = SafeUnpickler if weights_only else trusting((pickle_module or pickle).Unpickler)
    return kind(data, encoding="utf-8").begin(archive, restore).load()


# ------------------------------------------------------------------------------------------------------------------- save

class _Saved:
    """A storage in a pickle: what its persistent id is."""

    __slots__ = ("pid",)

    def __init__(self, pid):
        self.pid = pid


def _bytes(array):
    """The memory of an array whose elements lie without gaps in it, as bytes in their order; None for another."""
    if type(array) is not np.ndarray and isinstance(array, np.ndarray):
        array = np.asarray(array)
    array = array.transpose(sorted(range(array.ndim), key=lambda k: -array.strides[k]))
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else None


class _Pickling:
    """Writes Tensors, and what else PyTorch has names for, under those names."""

    def begin(self):
        self.records: list[Any] = []         # the bytes of each storage
        self._numbers: dict[Any, int] = {}   # by where they lie, which they do until the end: the memo has their tensors
        self._kinds: dict[int, Any] = {}     # the type of each storage
        return self

    def persistent_id(self, obj):
        return obj.pid if type(obj) is _Saved else None

    def reducer_override(self, obj):
        if id(obj) in WRITTEN:
            return WRITTEN[id(obj)][2]
        if isinstance(obj, Tensor) and type(obj).__reduce_ex__ is Tensor.__reduce_ex__:
            return self._reduced(obj)
        if type(obj) is bytes and not obj and self.proto < 3:        # PyTorch reads no empty bytes as pickle writes them
            return codecs.encode, ("", "latin1")
        if type(obj) is _device.Device:
            return _device.Device, (obj.type,) if obj.index is None else (obj.type, obj.index)
        return (get_layout, ("torch.strided",)) if obj is strided else NotImplemented

    def save_global(self, obj, name=None):
        if id(obj) not in WRITTEN:
            return super().save_global(obj, name)
        module, _, name = WRITTEN[id(obj)]
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def _reduced(self, t):
        cls, kind = type(t), STORAGES.get(t.dtype, UNTYPED)
        args = (*self._placed(t._array, kind), t.requires_grad, OrderedDict())
        rebuild = rebuild_tensor_v2
        if kind is UNTYPED:
            rebuild, args = rebuild_tensor_v3, (*args, t.dtype)
        if cls is Tensor or cls is CudaTensor:
            return rebuild, args
        if cls is Parameter:
            plain = t.detach()
            return rebuild_parameter, (plain, t.requires_grad, OrderedDict())
        if isinstance(t, Buffer):
            cls, state = Tensor, {"persistent": t.persistent, "_is_buffer": True}
        else:
            state = getattr(t, "__dict__", {})
        return rebuild_from_type_v2, (rebuild, cls, args, state)

    def _placed(self, array, kind):
        """Where an array is in which storage: (storage, offset, size, stride) in elements."""
        itemsize, root = array.itemsize, _device.root(array)
        with _device.guard(_device.of(array)):
            memory = _bytes(root) if array.size else None
            start = origin(array) - origin(memory) if memory is not None else 0
            end = start + sum([(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]) + itemsize
            if (memory is None or memory.size % itemsize or start % itemsize or start < 0 or end > memory.size
                    or any([s < 0 or s % itemsize for s in array.strides])):
                array, start = array.copy("C"), 0          # by itself
                memory = _bytes(array)
        key = (_device.of(array), origin(memory), memory.size) if memory.size else object()
        number = self._numbers.setdefault(key, len(self.records))
        if number == len(self.records):
            self.records.append(memory)
        if self._kinds.setdefault(number, kind).dtype is not kind.dtype:
            raise RuntimeError("save: Cannot save multiple tensors or storages that view the same data as different types: save a clone() "
                               f"of one of them, here {self._kinds[number].dtype} and {kind.dtype}")
        storage = _Saved(("storage", kind, str(number), str(_device.of(array)), memory.size // kind.dtype.itemsize))
        return storage, start // itemsize, tuple(array.shape), tuple([s // itemsize for s in array.strides])


def _pickler(module):
    """The class that pickles, made from a module's."""
    base = getattr(module, "_Pickler", None) or module.Pickler
    if not issubclass(base, pickle._Pickler):
        raise TypeError(f"save: pickle_module must be pickle, or one whose Pickler is derived from the one written in Python, as dill's "
                        f"is; got {module!r}")
    return type("Pickler", (_Pickling, base), {})


class _Stream:
    """A file as zipfile writes to it: what is written is counted, so that an archive begins at 0, wherever in the file it lies."""

    def __init__(self, file):
        self._file = file
        self.count = 0

    def write(self, data):
        left = memoryview(data)
        while left:
            count = self._file.write(left)
            left = left[len(left) if count is None else count:]      # an unbuffered file may take a part
        self.count += len(data)
        return len(data)

    def flush(self):
        if hasattr(self._file, "flush"):
            self._file.flush()


def _write(file, name, records):
    """A zip archive of records, by name, each of which begins at a multiple of ALIGNMENT."""
    stream = _Stream(file)
    with zipfile.ZipFile(stream, "w") as archive:
        for record, data in records:
            data = memoryview(data if isinstance(data, bytes) else _device.host(data))
            info = zipfile.ZipInfo(f"{name}/{record}")
            large = data.nbytes >= zipfile.ZIP64_LIMIT       # then zipfile adds a field of 20 bytes
            used = stream.count + 30 + len(info.filename) + 4 + 20 * large
            padding = -used % ALIGNMENT
            info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
            with archive.open(info, "w", force_zip64=large) as target:
                target.write(data)


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True) -> None:
    """Write an object with Tensors in it to a file, which `load` reads, and PyTorch's torch.load.

    obj: anything that can be pickled. Tensors that are views of one memory write it once, and all of it: save a clone() of a small part.
    Tensors on CUDA are copied to the host and keep the name of their device. What is no tensor, dtype, device or size is pickled under its
    own name, so that PyTorch reads what consists of those and of plain Python values. f: a path, or a file that can be written.
    pickle_protocol: with weights_only PyTorch reads 2. pickle_module: one whose Pickler is derived from Python's own, as dill's is.
    Raises: RuntimeError for a path in a directory that is not there, and for tensors of several dtypes over one memory; AttributeError for
    what is no file; ValueError for the format of before PyTorch 1.6. Reference: torch.save.
    """
    if not _use_new_zipfile_serialization:
        raise ValueError("save: only zip files are written, _use_new_zipfile_serialization=False is for PyTorch of before 1.6")
    path = os.fspath(f) if isinstance(f, (str, os.PathLike)) else None
    if path is None and not hasattr(f, "write"):
        raise AttributeError(f"save: expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {f!r}")
    if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
        raise RuntimeError(f"save: Parent directory {os.path.dirname(path)} does not exist: make it first")
    data = io.BytesIO()
    pickler = _pickler(pickle_module or pickle)(data, pickle_protocol).begin()
    pickler.dump(obj)                        # before the file is opened: what cannot be pickled leaves an older file as it is
    records = [("data.pkl", data.getvalue()), (".format_version", b"1"), (".storage_alignment", str(ALIGNMENT).encode()),
               ("byteorder", sys.byteorder.encode()), *[(f"data/{i}", memory) for i, memory in enumerate(pickler.records)],
               ("version", b"3\n")]
    if path is None:
        _write(f, "archive", records)
        return
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, "wb") as file:
        _write(file, name if name.isascii() and name else "archive", records)
