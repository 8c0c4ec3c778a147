"""What load takes for safe; files that are damaged, of other kinds, or made to do harm: errors that say what is wrong, and nothing else."""
import builtins
import collections
import io
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu import unpickling
from tests.test_serialization import archived, by_pytorch, changed, libraries, read, written


class Plain:
    def __init__(self, value):
        self.value = value


# ------------------------------------------------------------------------------------------------------------- safe globals

def test_safe_globals():
    def run(torch):
        found, serialization = [], torch.serialization
        before = set(serialization.get_safe_globals())

        def tried(data):
            try:
                return read(torch, data).value
            except pickle.UnpicklingError as error:
                return "Unsupported global: GLOBAL tests.test_unpickling.Plain was not an allowed global by default" in str(error)
        data = written(torch, Plain(5))
        found.append(tried(data))
        with serialization.safe_globals([Plain]):
            found += [tried(data), set(serialization.get_safe_globals()) - before == {Plain}]
        found.append(tried(data))
        serialization.add_safe_globals([(Plain, "tests.test_unpickling.Plain")])
        found += [tried(data), len(set(serialization.get_safe_globals()) - before)]
        serialization.clear_safe_globals()
        found += [tried(data), serialization.get_safe_globals()]
        serialization.add_safe_globals(list(before))
        return found
    for torch in libraries():
        assert run(torch) == [True, 5, True, True, 5, 1, True, []]


class Pair(collections.namedtuple("Pair", "x y")):
    pass


@pytest.mark.parametrize("value", [np.float64(0.5), np.arange(3), {"a": [np.int64(2)]}, Pair(1, [2]), Plain((1, 2)), range(3)],
                         ids=lambda value: type(value).__name__)
def test_what_is_allowed_loads_both_ways(value):
    allowed = [np._core.multiarray.scalar, np._core.multiarray._reconstruct, np.ndarray, np.dtype, np.dtypes.Float64DType,
               np.dtypes.Int64DType, Pair, Plain, range]
    for writer in libraries():
        for reader in libraries():
            with reader.serialization.safe_globals(allowed):
                found = read(reader, written(writer, value))
            assert type(found) is type(value)
            np.testing.assert_equal(getattr(found, "value", found), getattr(value, "value", value))


def test_a_context_leaves_what_was_safe_before():
    autograd_gpu.serialization.add_safe_globals([Plain])
    with autograd_gpu.serialization.safe_globals([Plain]):
        pass
    assert autograd_gpu.serialization.get_safe_globals() == [Plain]
    autograd_gpu.serialization.clear_safe_globals()
    with pytest.raises(ValueError, match="length 2"):
        autograd_gpu.serialization.add_safe_globals([(Plain, "a", "b")])
    with pytest.raises(TypeError, match="str"):
        autograd_gpu.serialization.add_safe_globals([(Plain, Plain)])


@pytest.mark.parametrize("value", [range(3), slice(1), frozenset([1]), collections.defaultdict(dict), collections.deque(), print, type,
                                   np.float64(1.0), np.ones(2), pathlib.PurePosixPath("a")], ids=repr)
def test_what_pytorch_does_not_take_for_safe(value):
    data = written(autograd_gpu, {"x": [value]})
    for torch in libraries():
        with pytest.raises(pickle.UnpicklingError, match="(?s)Weights only load failed.*nsupported"):
            read(torch, data)
    np.testing.assert_equal(read(autograd_gpu, data, weights_only=False)["x"][0], value)


# ---------------------------------------------------------------------------------------------------------------- bad files

@pytest.mark.parametrize("data, error, words", [
    (b"", EOFError, "empty"), (b"hello world", pickle.UnpicklingError, "no zip file"),
    (pickle.dumps([1]), pickle.UnpicklingError, "pickle.load"),
    (b"PK\x03\x04", RuntimeError, "failed reading zip archive"), (by_pytorch()[:-30], RuntimeError, "failed reading zip archive"),
    (by_pytorch()[:500], RuntimeError, "failed reading zip archive"), (archived({"x": b""}), RuntimeError, "failed locating file"),
    (changed(by_pytorch(), data_pkl=None), RuntimeError, r"failed locating file data\.pkl"),
    (changed(by_pytorch(), data__0=None), RuntimeError, "failed locating file data/0"),
    (changed(by_pytorch(), version=None), RuntimeError, "version"), (changed(by_pytorch(), version=b"11"), RuntimeError, "version '11'"),
    (changed(by_pytorch(), version=b"x"), RuntimeError, "version 'x'"), (changed(by_pytorch(), constants_pkl=b"").replace(
        b"constants_pkl", b"constants.pkl"), RuntimeError, "TorchScript archives"),
    (changed(by_pytorch(), data__0=bytes(23)), RuntimeError, r"record size \(23 bytes\) of data/0 does not match expected size \(24"),
    (changed(by_pytorch(), data__0=bytes(28)), RuntimeError, r"record size \(28 bytes\)"),
    (archived({"data.pkl": b"N.", "version": b"3"}, zipfile.ZIP_LZMA), RuntimeError, "compressed in a way")])
def test_damaged_files(data, error, words):
    with pytest.raises(error, match=words):
        read(autograd_gpu, data)


def test_every_byte_of_a_small_file_damaged():
    """Either it is noticed, by one of a few kinds of errors, or it did not matter: no crash, no other value."""
    data = written(autograd_gpu, {"a": autograd_gpu.arange(3.0)})
    for at in range(len(data)):
        worse = bytearray(data)
        worse[at] ^= 0xFF
        try:
            found = read(autograd_gpu, bytes(worse))
        except (RuntimeError, pickle.UnpicklingError, ValueError):
            continue
        assert found["a"].tolist() == [0.0, 1.0, 2.0], at


def test_a_record_with_a_wrong_checksum():
    data = written(autograd_gpu, autograd_gpu.arange(3.0))
    with pytest.raises(RuntimeError, match="failed reading data/0"):
        read(autograd_gpu, data.replace(np.arange(3, dtype=np.float32).tobytes(), np.ones(3, np.float32).tobytes()))


def test_old_files_and_torchscript(oracle, tmp_path):
    old = written(oracle, oracle.ones(2), _use_new_zipfile_serialization=False)
    for weights_only in (True, False):
        with pytest.raises(pickle.UnpicklingError, match="before PyTorch 1.6"):
            read(autograd_gpu, old, weights_only=weights_only)
    with pytest.raises(ValueError, match="only zip files"):
        written(autograd_gpu, 1, _use_new_zipfile_serialization=False)
    script = io.BytesIO()
    oracle.jit.save(oracle.jit.script(oracle.nn.Linear(1, 1)), script)
    with pytest.raises(RuntimeError, match="TorchScript archives"):
        read(autograd_gpu, script.getvalue())


@pytest.mark.parametrize("make", [lambda torch: torch.ones(2).to_sparse(), lambda torch: torch.ones(2, device="meta"),
                                  lambda torch: torch.ones(2).to(torch.float8_e4m3fn), lambda torch: torch.quantize_per_tensor(
                                      torch.ones(2), 0.1, 0, torch.quint8)], ids=str)
def test_tensors_that_are_not_here(make, oracle):
    data = written(oracle, make(oracle))
    for weights_only in (True, False):
        with pytest.raises(pickle.UnpicklingError, match="no counterpart here"):
            read(autograd_gpu, data, weights_only=weights_only)


def test_bfloat16_without_ml_dtypes(monkeypatch):
    for name in ("torch.BFloat16Storage", "torch.bfloat16"):
        monkeypatch.delitem(unpickling._NAMES, name, raising=False)
        data = file_of(b"\x80\x02c" + name.replace(".", "\n").encode() + b"\n.")
        for weights_only in (True, False):
            with pytest.raises(RuntimeError, match="pip install ml_dtypes"):
                read(autograd_gpu, data, weights_only=weights_only)


def test_wrong_arguments(tmp_path):
    for torch in libraries():
        with pytest.raises(AttributeError, match="write"):
            torch.save(1, 5)
        with pytest.raises(AttributeError, match="seekable"):
            torch.load(5)
        with pytest.raises(FileNotFoundError):
            torch.load(tmp_path / "nothing")
        with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
            torch.save(1, tmp_path / "no" / "file")
        with pytest.raises(ValueError, match="f must be a file path in order to use the mmap argument"):
            torch.load(io.BytesIO(written(torch, 1)), mmap=True)


def test_what_cannot_be_pickled_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "model.pt"
    autograd_gpu.save({"epoch": 1}, path)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        autograd_gpu.save({"epoch": 2, "f": lambda: 0}, path)
    assert autograd_gpu.load(path) == {"epoch": 1}


# ------------------------------------------------------------------------------------------------------ made to do harm

def file_of(pickled, **storages):
    return archived({"data.pkl": pickled, "version": b"3", "byteorder": sys.byteorder.encode(),
                     **{f"data/{key[1:]}": value for key, value in storages.items()}})


class Names:
    """Pickles to a call of whatever it is given."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


RAN = []


def harm(*args):
    RAN.append(args)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("call", [(os.system, "false"), (builtins.eval, "harm()"), (builtins.exec, "harm()"), (harm,),
                                  (subprocess.Popen, ["false"]),
                                  (builtins.getattr, 1, "real"), (builtins.__import__, "os"), (print, "harm")], ids=str)
def test_nothing_is_called(call, protocol, monkeypatch):
    data = file_of(pickle.dumps([Names(*call)], protocol))
    monkeypatch.setattr(subprocess, "Popen", harm)
    monkeypatch.setattr(os, "system", harm)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        read(autograd_gpu, data)
    assert RAN == []


@pytest.mark.parametrize("name", ["os.system", "posix.system", "nt.system", "sys.exit"])
def test_modules_that_are_never_safe(name):
    autograd_gpu.serialization.add_safe_globals([(harm, name)])
    try:
        module, function = name.split(".")
        for torch in libraries():
            with pytest.raises(pickle.UnpicklingError, match=f"{name},? whose module {module} is blocked"):
                read(torch, file_of(b"\x80\x02c" + f"{module}\n{function}\n".encode() + b")R."))
    finally:
        autograd_gpu.serialization.clear_safe_globals()
    assert RAN == []


REBUILD, FLOATS = b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n"
TENSOR = REBUILD + b"((U\x07storage" + FLOATS + b"U\x010U\x03cpuK\x04tQK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"


@pytest.mark.parametrize("pickled, words", [
    (REBUILD + b"}U\x01aK\x01sb.", "set the state"),                          # the state of a function, of a class, of a tensor
    (REBUILD + b"N}U\x0c__defaults__)s\x86b.", "set the state"), (b"ctorch\nTensor\nN}U\x08__repr__K\x01s\x86b.", "set the state"),
    (b"ctorch\nSize\nN}U\x05numelK\x01s\x86b.", "set the state"), (TENSOR + b"N}U\x06_arrayNs\x86b.", "set the state"),
    (b"ctorch\nfloat32\nN}U\x08itemsizeK\x01s\x86b.", "set the state"), (TENSOR + b"K\x00K\x01s.", "set an item"),
    (TENSOR + b"(K\x00K\x01u.", "set items"), (TENSOR + b"K\x01a.", "append to"), (TENSOR + b"(K\x01e.", "append to"),
    (b"ctorch\nTensor\n)\x81.", "make an object"), (b"ctorch\nTensor\n)R.", "call"),
    (b"ctorch\nFloatTensor\nJ\x00\x00\x00\x40\x85R.", "call"),
    (b"U\x01a)R.", "call"), (TENSOR + b")R.", "call"), (b"(ios\nsystem\n.", "Unsupported operand"), (b"\x82\x01.", "Unsupported operand"),
    (b"Pstorage\n.", "Unsupported operand"), (b"(ctorch\nSize\no.", "Unsupported operand"), (b"](K\x01\x90.", "add to"),
    (b"c_codecs\nencode\nU\x01aU\x03zip\x86R.", "latin1"), (b"ctorch\nload\nU\x01a\x85R.", "no counterpart"),
    (b"ctorch.utils.cpp_extension\nload\n.", "no counterpart"), (b"cautograd_gpu\nload\n.", "not an allowed"),
    (b"cautograd_gpu.unpickling\n_dtype.np\n.", "not an allowed"), (b"\x8c\x05torch\x8c\x0eTensor.__new__\x93.", "no counterpart"),
    (b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)}tR.", "damaged"),
    (b"ctorch._tensor\n_rebuild_from_type_v2\n(" + REBUILD + b"ccollections\nOrderedDict\n)}tR.", "damaged"),
    (b"U\x01aQ.", "persistent id"), (b"(U\x07storageK\x01U\x010U\x03cpuK\x04tQ.", "persistent id"),
    (b"(U\x07storage" + FLOATS + b"K\x00U\x03cpuK\x04tQ.", "persistent id"), (REBUILD + b"(K\x01K\x00))\x89NtR.", "damaged"),
    (b"ctorch._utils\n_rebuild_tensor_v3\n((U\x07storage" + FLOATS + b"U\x010U\x03cpuK\x04tQK\x00))\x89NK\x01tR.", "damaged")])
def test_pickles_that_reach_for_more(pickled, words):
    with pytest.raises((pickle.UnpicklingError, RuntimeError), match=words):
        read(autograd_gpu, file_of(b"\x80\x02" + pickled, _0=np.arange(4, dtype=np.float32).tobytes()))
    assert read(autograd_gpu, file_of(b"\x80\x02" + TENSOR + b".", _0=np.arange(4, dtype=np.float32).tobytes())).tolist() == [0, 1, 2, 3]


def view_of(offset, size, stride, dtype="float32"):
    """A file of a tensor over four numbers, as it says."""
    types = {"float32": unpickling.STORAGES[autograd_gpu.float32], "bool": unpickling.STORAGES[autograd_gpu.bool]}

    class Says:
        def __reduce__(self):
            return unpickling.rebuild_tensor_v2, (Stored(), offset, size, stride, False, collections.OrderedDict())

    class Stored:
        pass

    class Pickler(autograd_gpu.serialization._pickler(pickle)):
        def persistent_id(self, obj):
            return ("storage", types[dtype], "0", "cpu", 16 // types[dtype].dtype.itemsize) if type(obj) is Stored else None
    file = io.BytesIO()
    Pickler(file, 2).begin().dump(Says())
    return file_of(file.getvalue(), _0=bytes(range(12, 28)) if dtype == "bool" else np.arange(4, dtype=np.float32).tobytes())


@pytest.mark.parametrize("offset, size, stride", [
    (0, (5,), (1,)), (1, (4,), (1,)), (4, (1,), (1,)), (0, (2, 3), (2, 1)), (0, (2,), (4,)), (-1, (2,), (1,)), (0, (2,), (-1,)),
    (3, (2,), (-1,)),
    (0, (-1,), (1,)), (0, (2,), (1, 1)), (0, (2, 2), (1,)), (4, (), ()), (2**62, (1,), (1,)), (0, (2**62,), (1,)), (0, (2,), (2**62,)),
    (0, (2**33, 2**33), (0, 0)), (0, (2,), (2**64 - 1,)), (2**64 - 1, (2,), (1,)), (-2**64, (2,), (2**64,)),
    (0, (2**40, 2**40, 2**40), (0, 0, 0))])
def test_tensors_that_reach_past_their_storage(offset, size, stride):
    data = view_of(offset, size, stride)
    with pytest.raises(RuntimeError, match="out of bounds for storage|mismatch in length|negative|cannot be"):
        read(autograd_gpu, data)
    if max(map(abs, (offset, *size, *stride))) < 2**62 and len(size) == len(stride) and size[:1] < (2**33,):
        for torch in libraries():
            with pytest.raises(RuntimeError):
                read(torch, data)


@pytest.mark.parametrize("offset, size, stride, expected", [
    (0, (4,), (1,), [0, 1, 2, 3]), (3, (1,), (7,), [3]), (0, (2, 2), (2, 1), [[0, 1], [2, 3]]), (1, (2, 2), (1, 1), [[1, 2], [2, 3]]),
    (2, (), (), 2),
    (0, (3,), (0,), [0, 0, 0]), (9, (0,), (1,), []), (0, (0, 2), (5, 1), [])])
def test_tensors_that_just_fit(offset, size, stride, expected):
    for torch in libraries():
        assert read(torch, view_of(offset, size, stride)).tolist() == expected


def test_bools_of_any_byte_are_made_zero_or_one():
    """NumPy's masks count on it: by others it would read and write out of bounds."""
    found = read(autograd_gpu, view_of(0, (16,), (1,), "bool"))
    assert found.numpy().view(np.uint8).tolist() == [1] * 16 and autograd_gpu.arange(16)[found].tolist() == list(range(16))


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "../../archive/version", "..", "", "0/../../x"])
def test_nothing_outside_of_the_archive_is_read(key, tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(bytes(16))
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    text = key.encode()
    data = file_of(b"\x80\x02" + TENSOR.replace(b"U\x010", b"U" + bytes([len(text)]) + text) + b".", _0=bytes(16))
    for options in ({}, {"mmap": True}):
        (tmp_path / "inside" / "file.pt").write_bytes(data)
        with pytest.raises(RuntimeError, match="failed locating file"):
            autograd_gpu.load("file.pt", **options)


def test_records_of_two_folders():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for folder, value in (("one", b"1"), ("two", b"2")):
            for name, data in (("data.pkl", b"\x80\x02K" + value + b"."), ("version", b"3")):
                archive.writestr(f"{folder}/{name}", data)
    for torch in libraries():
        with pytest.raises(RuntimeError, match="file in archive is not in a subdirectory one/: two/data.pkl"):
            read(torch, file.getvalue())


def test_a_header_that_says_more_than_there_is(tmp_path):
    data = bytearray(file_of(b"\x80\x02" + TENSOR + b".", _0=np.arange(4, dtype=np.float32).tobytes()))
    at = data.rindex(b"archive/data/0") - 46           # the entry of the directory at the end
    for size in (0, 17, 10_000, 0xFFFFFFF0):
        data[at + 20:at + 28] = struct.pack("<II", size, size)
        (tmp_path / "file.pt").write_bytes(data)
        for options in ({}, {"mmap": True}):
            with pytest.raises(RuntimeError, match="failed reading|does not match expected size"):
                autograd_gpu.load(tmp_path / "file.pt", **options)
