"""The real CuPy on simulated devices: install() before CuPy is imported, attach() after.

Checked while programs run: kernels' memory accesses (bounds, freed memory, alignment, races between threads, barriers), the order of
operations on different streams and devices, blocks freed while another stream uses them, page-locked buffers changed in flight,
arguments of RawKernels. A fault raises where CuPy would see an error, and is kept as a finding either way.
"""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import glob
import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

import numpy as np

from tests.simgpu import kernels
from tests.simgpu.kernels import HERE, KernelError

DEVICES = 2
_COUNTS = ("operations", "host_waits", "allocations", "compilations", "bytes_moved")
_CUPYS_OWN = ("_tensordot_core_int",)        # CuPy passes Python integers for int; their first four bytes do
_kept = []                                   # what C holds pointers to


def why_not() -> str | None:
    """None where the simulated devices can be installed, else the reason in words."""
    try:
        importlib.metadata.version("cupy-rocm-7-0")
    except importlib.metadata.PackageNotFoundError:
        return "the simulated CUDA devices need the package cupy-rocm-7-0, which is not installed"
    return kernels.why_not()


def _wanted():
    """What the wheel's libraries ask for: names of libraries, and {symbol: version}."""
    root = Path(importlib.util.find_spec("cupy").origin).parent.parent
    libraries, symbols = set(), {}
    for path in glob.glob(f"{root}/cupy*/**/*.so", recursive=True):
        libraries |= set(re.findall(r"NEEDED.*\[(lib(?:amdhip|hip|roc|rccl)[^\]]+)\]", kernels.run(["readelf", "-d", path])))
        for line in kernels.run(["nm", "-D", "--undefined-only", "--with-symbol-versions", path]).splitlines():
            found = re.search(r"U ((?:__)?(?:hip|roc|nccl)\w*)(?:@@?([\w.]+))?", line)
            if found:
                symbols[found[1]] = found[2] or symbols.get(found[1])
    return libraries | {"libhiprtc.so.7"}, symbols


def _build(folder):
    """Compile the runtime, a stub for each function it lacks, and a library under each name that CuPy links to."""
    libraries, symbols = _wanted()
    kernels.run(["g++", "-std=c++17", "-O2", "-w", "-fPIC", "-c", HERE / "hip.cpp", "-o", folder / "hip.o"])
    have = set(re.findall(r" T (\w+)", kernels.run(["nm", "--defined-only", folder / "hip.o"])))
    stub = 'int {0}() {{ fprintf(stderr, "simgpu: {0} is not implemented\\n"); return 1; }}\n'
    (folder / "stubs.c").write_text("#include <stdio.h>\n" + "".join(stub.format(s) for s in sorted(symbols) if s not in have))
    kernels.run(["gcc", "-c", "-fPIC", "-w", folder / "stubs.c", "-o", folder / "stubs.o"])
    versions = {}
    for symbol, version in symbols.items():
        if version:
            versions.setdefault(version, []).append(symbol)
    (folder / "versions").write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in sorted(versions.items())))
    link = ["g++", "-shared", "-Wl,--version-script=versions"]
    main = sorted(libraries)[0]
    kernels.run([*link, "hip.o", "stubs.o", f"-L{kernels.cache_folder()}", "-l:libsimt.so", f"-Wl,-soname,{main}", "-ldl", "-o", main],
                folder)
    # The others only refer to it. They have its versions all the same: those are looked for in the library of the name that CuPy gives.
    for name in sorted(libraries)[1:]:
        kernels.run([*link, f"-Wl,-soname,{name}", "-Wl,--no-as-needed", main, "-o", name], folder)
    (folder / "rocm" / "bin").mkdir(parents=True)
    (folder / "rocm" / "include").mkdir()
    compiler = folder / "rocm" / "bin" / "hipcc"           # CuPy asks it where headers are
    answer = ("#include <...> search starts here:", " /usr/include", "End of search list.")
    compiler.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in answer))
    compiler.chmod(0o755)
    (folder / "libraries").write_text("\n".join([main, *sorted(libraries - {main})]))


def _runtime_folder():
    out = kernels.cache_folder() / "hip"
    with open(kernels.cache_folder() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)     # several processes may come here first
        if not out.exists():
            made = kernels.cache_folder() / f"hip.{os.getpid()}"
            made.mkdir()
            _build(made)
            os.replace(made, out)
    return out


def _compile(source, option_count, options, name_count, names, out, size):
    """Called by hiprtc: compile a text; what CuPy takes for the binary says where the result is."""
    try:
        module = kernels.Module(source.decode(), [names[i].decode() for i in range(name_count)],
                                [options[i].decode() for i in range(option_count)])
        text, failed = f"SIMGPU {'F' if module.fibers else 'L'}{module.path}", 0
    except Exception as error:
        text, failed = str(error), 1
    data = text.encode()[:size - 1] + b"\0"
    ctypes.memmove(out, data, len(data))
    return failed


@functools.cache
def install():
    """Load the simulated runtime in place of ROCm's. Raises RuntimeError where that cannot be, or CuPy is imported already."""
    reason = why_not() or ("CuPy is imported already" if "cupy" in sys.modules else None)
    if reason:
        raise RuntimeError(reason)
    kernels.scheduler()
    folder = _runtime_folder()
    os.environ["ROCM_HOME"] = str(folder / "rocm")
    os.environ["PATH"] = f"{folder}/rocm/bin:{os.environ['PATH']}"
    os.environ["CUPY_CACHE_DIR"] = str(kernels.cache_folder() / "cupy")        # its entries name files of the cache folder
    # Loaded here, they are what the dynamic linker finds under these names; so no LD_LIBRARY_PATH has to be set before Python starts.
    loaded = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in (folder / "libraries").read_text().split("\n")]
    library = loaded[0]
    _kept.extend(loaded)
    compiler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int,
                                ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_char), ctypes.c_int)(_compile)
    _kept.append(compiler)
    library.simgpu_start(compiler, DEVICES)
    library.simgpu_check(int(os.environ.get("SIMGPU_CHECK", 2)))       # 1 finds no races between a kernel's threads, but is faster
    library.simgpu_finding.restype = ctypes.c_char_p
    library.simgpu_count.restype = ctypes.c_long
    library.simgpu_rates.argtypes = [ctypes.c_double] * 4
    library.simgpu_limit.argtypes = [ctypes.c_size_t]
    library.simgpu_pool_gave.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.simgpu_pool_took.argtypes = [ctypes.c_void_p]
    library.simgpu_parameters.argtypes = [ctypes.c_void_p]
    library.simgpu_parameters.restype = ctypes.POINTER(kernels._Parameter)
    return library


def active() -> bool:
    """Whether the simulated devices are installed in this process."""
    return install.cache_info().currsize > 0


def attach():
    """After `import cupy`: tell the checker of the pool's blocks, sort and draw without compiled kernels, check RawKernels' arguments."""
    import cupy  # noqa: PLC0415 - the runtime has to be installed first
    library = install()
    _watch_pool(cupy, library)
    _sort_on_host(cupy.cuda.thrust)
    _draw_on_host(cupy)
    _check_raw_kernels(cupy, library)


def _watch_pool(cupy, library):
    pool = cupy.get_default_memory_pool()

    class Block:                             # exact sizes for the bounds check, and the moment at which a block goes back
        def __init__(self, pointer, size):
            self.pointer, self.address = pointer, pointer.ptr
            library.simgpu_pool_gave(self.address, size, cupy.cuda.get_current_stream().ptr or None)

        def __del__(self):
            library.simgpu_pool_took(self.address)

    def malloc(size):
        if size == 0:
            return pool.malloc(0)
        pointer = pool.malloc(size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(pointer.ptr, size, Block(pointer, size), pointer.device_id), 0)
    cupy.cuda.set_allocator(malloc)


def _sort_on_host(thrust):
    """CuPy sorts with kernels compiled for AMD. Device memory is host memory here, so NumPy sorts in their place."""
    def at(address, dtype, shape):
        dtype = np.dtype(dtype)
        return np.frombuffer((ctypes.c_char * (int(np.prod(shape)) * dtype.itemsize)).from_address(address), dtype).reshape(shape)

    def sort(dtype, data, keys, shape):
        values = at(data, dtype, shape)
        values[...] = np.sort(values, axis=-1, kind="stable")

    def argsort(dtype, indices, data, keys, shape):
        values = at(data, dtype, shape)
        order = np.argsort(values, axis=-1, kind="stable")
        at(indices, np.intp, shape)[...] = order
        values[...] = np.take_along_axis(values, order, -1)

    def lexsort(dtype, indices, data, count, size):
        at(indices, np.intp, (size,))[...] = np.lexsort(at(data, dtype, (count, size)))
    thrust.sort, thrust.argsort, thrust.lexsort = sort, argsort, lexsort


def _draw_on_host(cupy):
    """Random numbers come from compiled kernels too: NumPy draws them, so the values are not those of a GPU."""
    class Generator:
        def __init__(self, bits):
            self._host = np.random.default_rng(getattr(bits, "seed", None))

        def random(self, size=None, dtype=np.float64):
            return cupy.asarray(self._host.random(size, dtype))

        def standard_normal(self, size=None, dtype=np.float64):
            return cupy.asarray(self._host.standard_normal(size, dtype))

        def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
            return cupy.asarray(self._host.integers(low, high, size, dtype, endpoint))

    class XORWOW:
        def __init__(self, seed=None):
            self.seed = seed
    cupy.random.Generator, cupy.random.XORWOW = Generator, XORWOW


def _check_raw_kernels(cupy, library):
    def check(kernel, args):
        if kernel.name.startswith(_CUPYS_OWN):
            return
        wanted = kernels.parameters(library.simgpu_parameters(kernel.kernel.ptr))
        if len(args) != len(wanted):
            raise KernelError(f"{kernel.name}: {len(args)} arguments given, {len(wanted)} wanted")
        for i, (value, parameter) in enumerate(zip(args, wanted, strict=True)):
            kind, code, size, _ = parameter
            if isinstance(value, cupy.ndarray):
                if kind != "v":
                    kernels.check_argument(kernel.name, i, value.dtype, parameter)
                elif code != "s":            # CuPy passes an address, or its own structure for a parameter of type CArray
                    raise KernelError(f"{kernel.name}: argument {i} is an array, the parameter is a {size}-byte {code!r}")
            elif kind == "v":
                kernels.check_argument(kernel.name, i, kernels.as_value(value).dtype, parameter)

    class RawKernel(cupy.RawKernel):
        def __call__(self, grid, block, args, **options):
            check(self, args)
            super().__call__(grid, block, args, **options)

    class Checked:                           # what a RawModule gives
        def __init__(self, kernel):
            self._kernel = kernel

        def __getattr__(self, name):
            return getattr(self._kernel, name)

        def __call__(self, grid, block, args, **options):
            check(self._kernel, args)
            self._kernel(grid, block, args, **options)

    class RawModule(cupy.RawModule):
        def get_function(self, name):
            return Checked(super().get_function(name))
    cupy.RawKernel, cupy.RawModule = RawKernel, RawModule


# ----------------------------------------------------------------------------------------------------------------- findings

def counts():
    """How many operations, host waits, device allocations and compilations there were so far, and bytes that operations moved."""
    return {name: install().simgpu_count(i) for i, name in enumerate(_COUNTS)}


@contextlib.contextmanager
def rates(memory=2e9, flops=5e10, link=2.5e7, launch=2e-3):
    """Within the block, what the times of events are computed from: bytes, operations and bytes between host and device per ms, ms per
    launch. A model of the order of operations, in which submitting takes no time; it measures nothing.
    """
    install().simgpu_rates(memory, flops, link, launch)
    try:
        yield
    finally:
        install().simgpu_rates(2e9, 5e10, 2.5e7, 2e-3)


def settle():
    """Wait for every device, so that what is still under way is checked too."""
    import cupy  # noqa: PLC0415 - the runtime has to be installed first
    for i in range(cupy.cuda.runtime.getDeviceCount()):
        cupy.cuda.Device(i).synchronize()


def take_findings():
    """The faults found since the last call."""
    library = install()
    found = [library.simgpu_finding(i).decode() for i in range(library.simgpu_findings())]
    library.simgpu_forget()
    return found


@contextlib.contextmanager
def faults():
    """A block whose faults raise RuntimeError at its end, unless an exception of its own leaves it."""
    take_findings()
    yield
    settle()
    found = take_findings()
    if found:
        raise RuntimeError("; ".join(found))
