"""CUDA kernel text, compiled by g++ and run on the CPU under checks; compiled once per text, kept in the cache folder.

    module = Module(text, names=["row_sum<float>"])
    module["row_sum<float>"](grid, block, (x, out, np.int32(rows), np.int32(columns)))

NumPy arrays stand for device arrays. `check`: 0 none, 1 bounds, alignment and read-only arrays, 2 data races too, 3 counts of memory
sectors too (`kernel.stats`). `seed`: 0 runs blocks and threads in order, 1 in reverse, any other shuffles them. `blocks`: the numbers
of those to run, instead of all.
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
_SOURCES = sorted(p for p in HERE.rglob("*") if p.suffix in (".cpp", ".h"))
# Kernels index and overflow as on a GPU; no contraction, so that a result is the same on every host.
_FLAGS = ["-std=c++17", "-fPIC", "-w", "-U_FORTIFY_SOURCE", "-fno-gnu-unique", "-fvisibility=hidden", "-fno-strict-aliasing",
          "-ffp-contract=off", "-fwrapv", "-O1", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"]
_MEETING = re.compile(r"__sync|__shfl|__ballot|__any_sync|__all_sync|cooperative_groups|cub::")   # such a kernel needs fibers


class KernelError(RuntimeError):
    """A kernel does not compile, is called with wrong arguments or does what it must not."""


def why_not() -> str | None:
    """None where kernels can be compiled and run, else the reason in words."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return f"the simulated CUDA devices need Linux on x86_64, this is {platform.system()} on {platform.machine()}"
    if shutil.which("g++") is None:
        return "the simulated CUDA devices need g++ (12 or later), which is not installed"
    version = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True).stdout.strip()
    if int(version.split(".")[0] or 0) < 12:
        return f"the simulated CUDA devices need g++ 12 or later, this is {version}"
    return None


def _cupy_folder():
    found = importlib.util.find_spec("cupy")
    return Path(found.origin).parent if found else None


@functools.cache
def cache_folder() -> Path:
    """Where compiled things are kept: a folder per version of these sources, of g++ and of CuPy. SIMGPU_CACHE moves it."""
    root = Path(os.environ.get("SIMGPU_CACHE", HERE.parent.parent / ".cache" / "simgpu"))
    compiler = subprocess.run(["g++", "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True).stdout
    cupy = _cupy_folder()
    meta = next(cupy.parent.glob("cupy_*.dist-info"), "") if cupy else ""
    parts = [*(p.read_text() for p in _SOURCES), *_FLAGS, compiler, str(cupy), getattr(meta, "name", "")]
    folder = root / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command, folder=None):
    """Run a compiler. Raises KernelError with what it said where it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise KernelError(f"{command[0]} failed:\n{done.stderr[:4000]}")
    return done.stdout


def built(name, make) -> Path:
    """The cached file of this name; where it is missing, make(folder) has to write it into an empty folder first."""
    out = cache_folder() / name
    if not out.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            make(Path(folder))
            os.replace(Path(folder) / name, out)           # at once, for processes that make the same
    return out


class _Parameter(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char), ("code", ctypes.c_char), ("size", ctypes.c_int), ("align", ctypes.c_int)]


class _Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("parameters", ctypes.POINTER(_Parameter))]


class _Region(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t), ("granule", ctypes.c_int), ("read_only", ctypes.c_int),
                *((n, ctypes.c_long) for n in ("read_low", "read_high", "write_low", "write_high"))]


class _Launch(ctypes.Structure):
    _fields_ = [("call", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_size_t), ("fibers", ctypes.c_int), ("seed", ctypes.c_uint), ("check", ctypes.c_int),
                ("image", ctypes.c_void_p), ("data_end", ctypes.c_void_p), ("bss_end", ctypes.c_void_p),
                ("regions", ctypes.POINTER(_Region)), ("region_count", ctypes.c_size_t), ("message", ctypes.c_char_p),
                ("message_size", ctypes.c_size_t), *((n, ctypes.c_long) for n in ("accesses", "requests", "sectors", "bytes")),
                ("only", ctypes.POINTER(ctypes.c_long)), ("only_count", ctypes.c_size_t)]


@functools.cache
def scheduler():
    """The library that runs kernels, for all to see: kernels refer to it."""
    path = built("libsimt.so", lambda d: run(["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-U_FORTIFY_SOURCE",
                                              "-Wl,-soname,libsimt.so", HERE / "simt.cpp", "-o", d / "libsimt.so"]))
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _include_options():
    options = ["-I", HERE, "-I", HERE / "include"]
    cupy = _cupy_folder()
    if cupy:
        include = cupy / "_core" / "include"
        for folder in (include, *(include / "cupy" / "_cccl" / part for part in ("cub", "thrust", "libcudacxx"))):
            options += ["-idirafter", folder]
    return options


def _prelude(text, definitions):
    """What is included ahead of a text, precompiled: most of the time a kernel takes would be the parsing of it."""
    if definitions:                                        # which may change what a header means
        return HERE / "cuda_on_host.h"
    name = "cupy_on_host.h" if text.lstrip().startswith("#include <cupy/complex.cuh>") else "cuda_on_host.h"

    def make(folder):
        run(["g++", *_FLAGS, *_include_options(), "-x", "c++-header", HERE / name, "-o", folder / f"{name}.gch"])
    return built(f"{name}.gch", make).with_suffix("")


def _external_kernels(text):
    """Names of the kernels with C linkage: `extern "C"` before one, or a block of it around."""
    blocks = []
    for found in re.finditer(r'extern\s+"C"\s*\{', text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        blocks.append((found.end(), end))
    bounds = r"(?:__launch_bounds__\([^)]*\)\s+)?"
    kernel = rf'(extern\s+"C"\s+)?(?:static\s+)?__global__\s+{bounds}void\s+{bounds}(\w+)\s*\('
    return [m[2] for m in re.finditer(kernel, text) if m[1] or any(low <= m.start() < high for low, high in blocks)]


def complete(text, names):
    """A kernel's text with its table of entry points. The one rewrite is of dynamic shared memory, which C++ cannot express."""
    text = re.sub(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;",
                  r"\1* \2 = (\1*)simt_dynamic_shared();", text)
    names = dict.fromkeys([*names, *_external_kernels(text)])
    table = "".join(f'{{"{n}", SimtEntry<&{n}>::call, SimtEntry<&{n}>::parameters}},\n' for n in names)
    marks = {"simt_image": "__ehdr_start", "simt_data_end": "_edata", "simt_bss_end": "_end"}     # set by the linker
    hidden, public = '__attribute__((visibility("hidden")))', '__attribute__((visibility("default")))'
    return "\n".join([
        text, "#undef min", 'extern "C" {',
        *(f"extern char {symbol} {hidden};\n{public} char* {function}() {{ return &{symbol}; }}" for function, symbol in marks.items()),
        f"{public} SimtKernel simt_kernels[] = {{", table + "{0, 0, 0}};", "}\n"])


class Module:
    """The kernels of a text. `names` are the template instances wanted; kernels with C linkage come by themselves."""

    def __init__(self, text, names=(), options=()):
        self.fibers = bool(_MEETING.search(text))
        definitions = [o for o in options if o.startswith("-D")]
        whole = complete(text, names)
        name = hashlib.sha256("\0".join([whole, *definitions]).encode()).hexdigest()[:32] + ".so"
        prelude = _prelude(text, definitions)

        def make(folder):
            (folder / "kernel.cpp").write_text(whole)
            run(["g++", *_FLAGS, *definitions, *_include_options(), "-include", prelude,
                 "-c", folder / "kernel.cpp", "-o", folder / "kernel.o"])
            run(["ld", "-shared", "-Bsymbolic", folder / "kernel.o", "-o", folder / name])     # what it calls is in the process
        scheduler()
        self.path = built(name, make)

    @functools.cached_property
    def kernels(self):
        """{name: Kernel}; loaded when it is first asked for."""
        library = ctypes.CDLL(str(self.path))
        marks = []
        for function in ("simt_image", "simt_data_end", "simt_bss_end"):
            getattr(library, function).restype = ctypes.c_void_p
            marks.append(getattr(library, function)())
        found = {}
        for entry in (_Kernel * 4096).in_dll(library, "simt_kernels"):
            if not entry.name:
                return found
            name = entry.name.decode()
            found[name] = Kernel(name, entry.call, parameters(entry.parameters), self.fibers, marks)

    def __getitem__(self, name):
        return self.kernels[name]


def parameters(pointer):
    """A kernel's parameters, from its table: [(kind, code, size, alignment)]."""
    found = []
    for p in pointer if pointer else ():
        if p.kind == b"\0":
            break
        found.append((p.kind.decode(), p.code.decode(), p.size, p.align))
    return found


def _code(dtype):
    return dtype.kind if dtype.kind in "bfiu" else "s"


def check_argument(kernel, index, dtype, parameter):
    """Raises KernelError where an array or a value of this dtype is not what the parameter is. CuPy passes anything, unconverted."""
    kind, code, size, _ = parameter
    if code == "v" or dtype.itemsize == size and (code == "s" or _code(dtype) == code):
        return
    if kind == "v":
        raise KernelError(f"{kernel}: argument {index} is a {dtype.itemsize}-byte {dtype}, the parameter is a {size}-byte {code!r}")
    raise KernelError(f"{kernel}: argument {index} is an array of {dtype}, the parameter points to {size}-byte {code!r}")


def as_value(value):
    """A scalar argument as CuPy passes it."""
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128)):
        if isinstance(value, kind):
            return np.asarray(dtype(value))
    return np.asarray(value)


def _aligned(data, align):
    """A buffer that holds data at a multiple of align, and that address."""
    buffer = ctypes.create_string_buffer(len(data) + align)
    start = ctypes.addressof(buffer)
    start += -start % align
    ctypes.memmove(start, data, len(data))
    return buffer, start


class Kernel:
    """One entry point: kernel(grid, block, arguments)."""

    def __init__(self, name, call, parameters, fibers, marks):
        self.name, self.call, self.parameters, self.fibers, self.marks = name, call, parameters, fibers, marks
        self.stats = {}

    def __call__(self, grid, block, args, shared_mem=0, check=2, seed=0, blocks=()):
        if len(args) != len(self.parameters):
            raise KernelError(f"{self.name}: {len(args)} arguments given, {len(self.parameters)} wanted")
        kept, pointers, memory = [], [], {}
        for i, (value, parameter) in enumerate(zip(args, self.parameters, strict=True)):
            kind, _, _, align = parameter
            if kind == "v":
                value = as_value(value)
                check_argument(self.name, i, value.dtype, parameter)
                buffer, start = _aligned(value.tobytes(), align)
            else:
                if value is not None:
                    check_argument(self.name, i, value.dtype, parameter)
                    base = value
                    while isinstance(base.base, np.ndarray):
                        base = base.base
                    memory[base.ctypes.data] = base.ctypes.data, base.nbytes, value.itemsize, not base.flags.writeable
                buffer, start = _aligned(np.intp(0 if value is None else value.ctypes.data).tobytes(), 8)
            kept.append(buffer)
            pointers.append(start)
        regions = (_Region * max(len(memory), 1))(*memory.values())
        message = ctypes.create_string_buffer(512)
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        launch = _Launch(self.call, ctypes.addressof(arguments), _three(grid), _three(block), shared_mem, self.fibers, seed, check,
                         *self.marks, regions, len(memory), ctypes.cast(message, ctypes.c_char_p), 512)
        if blocks:
            launch.only, launch.only_count = (ctypes.c_long * len(blocks))(*blocks), len(blocks)
        failed = scheduler().simt_launch(ctypes.byref(launch))
        self.stats = {n: getattr(launch, n) for n in ("accesses", "requests", "sectors", "bytes")}
        if failed:
            raise KernelError(f"{self.name}<<<{tuple(grid)}, {tuple(block)}>>>: {message.value.decode()}")


def _three(sizes):
    return (ctypes.c_uint * 3)(*(*map(int, sizes), 1, 1)[:3])
