"""Compile every CUDA text for real GPUs, with NVRTC, which needs none: many kernels to a program, a process per core.

    python -m tests.nvrtc                        every text for sm_80, and a tenth of them for each other architecture
    python -m tests.nvrtc --all                  every text for every architecture
    python -m tests.nvrtc softmax --arch 90      the texts whose name, dtype and layout have the word in them, for one architecture

Needed: cupy-cuda12x, nvidia-cuda-nvrtc-cu12, nvidia-cuda-runtime-cu12, ml_dtypes, scipy, pytest, hypothesis; no driver. ptxas is part of
NVRTC and reports in its log.
"""
import argparse
import hashlib
import multiprocessing
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import cpu_count
from typing import NamedTuple

from autograd_gpu.cuda.source import kernel_text

try:
    from cupy._core import core
    from cupy_backends.cuda.libs import nvrtc
except ImportError as error:
    nvrtc, _missing = None, error

MAIN, OTHERS = 80, (70, 90, 100)
PER_PROGRAM = 64
_KERNEL = re.compile(r'(extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?)(\w+)')
_GUARD = re.compile(r"#ifndef (\w+)\s*\n#define \1\b")
_USED = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S)
_ACCESS = re.compile(r"\b(ld|st)\.global(?:\.\w+)*?(?:\.v(\d))?\.[busf](\d+)\s")


class Kernel(NamedTuple):
    """What ptxas and the PTX say of one kernel: `loads` and `stores` count the accesses of global memory by their bytes."""

    registers: int
    spilled: int
    loads: Counter
    stores: Counter


def why_not():
    """None where NVRTC can compile, else the reason in words."""
    if nvrtc is None:
        return f"NVRTC, through CuPy, is not installed: {_missing}"
    if not hasattr(nvrtc, "getCUBIN"):
        return "this CuPy is not for CUDA"
    try:
        nvrtc.getVersion()
    except RuntimeError as error:
        return f"NVRTC is not installed: {error}"
    return None


def together(texts):
    """One program of many texts: what each has of its own in a namespace, its kernels under names with its number."""
    prelude = kernel_text("prelude.cuh")
    heads, parts = {}, []
    for i, text in enumerate(texts):
        head, _, own = text.source.partition(prelude)
        heads[head] = None
        again = "".join(f"#undef {guard}\n" for guard in _GUARD.findall(own))        # the next text has that header too
        own = _KERNEL.sub(rf"\1text{i}_\2", own)
        parts.append(f"namespace text{i} {{\n{own}\n}}\n{again}")
    return "".join([*heads, prelude, *parts])


def compiled(source, arch):
    """(binary, PTX, log) of a program, with CuPy's options. Raises ValueError with the log where it does not compile."""
    made = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(made, (*core.assemble_cupy_compiler_options(()), "-ftz=true", f"-arch=sm_{arch}", "--ptxas-options=-v"))
        ptx = nvrtc.getPTX(made)
        return nvrtc.getCUBIN(made), ptx if isinstance(ptx, str) else ptx.decode(), nvrtc.getProgramLog(made)
    except nvrtc.NVRTCError:
        raise ValueError(nvrtc.getProgramLog(made)) from None
    finally:
        nvrtc.destroyProgram(made)


def accesses(ptx):
    """{kernel: (its loads, its stores)}."""
    found = {}
    for part in ptx.split(".visible .entry ")[1:]:
        loads, stores = found[re.match(r"\w+", part)[0]] = Counter(), Counter()
        for which, count, bits in _ACCESS.findall(part):
            (loads if which == "ld" else stores)[int(count or 1) * int(bits) // 8] += 1
    return found


def compile_texts(texts, arch):
    """Per text the Kernels of it, or the log where it does not compile."""
    try:
        binary, ptx, log = compiled(together(texts), arch)
    except ValueError as error:
        if len(texts) == 1:
            return [str(error)]
        half = len(texts) // 2               # find whose fault it is
        return compile_texts(texts[:half], arch) + compile_texts(texts[half:], arch)
    assert binary[:4] == b"\x7fELF"
    moved, found = accesses(ptx), [[] for _ in texts]
    for name, stores, loads, registers in _USED.findall(log):
        found[int(re.match(r"text(\d+)_", name)[1])].append(Kernel(int(registers), int(stores) + int(loads), *moved[name]))
    return found


class Result(NamedTuple):
    """What came of compiling texts: failures as [(text, log)], kernels as {text: [Kernel]}."""

    failures: list
    kernels: dict
    line: str


def compile_all(texts, arch):
    """Compile texts for one architecture, in a process per core."""
    start = time.perf_counter()
    parts = [texts[i:i + PER_PROGRAM] for i in range(0, len(texts), PER_PROGRAM)]
    with ProcessPoolExecutor(cpu_count(), multiprocessing.get_context("spawn")) as pool:
        found = [r for part in pool.map(partial(compile_texts, arch=arch), parts) for r in part]
    failures = [(text, r) for text, r in zip(texts, found, strict=True) if isinstance(r, str) or not r]
    kernels = {text: r for text, r in zip(texts, found, strict=True) if not isinstance(r, str)}
    spilling = sum(k.spilled > 0 for several in kernels.values() for k in several)
    return Result(failures, kernels, f"sm_{arch}: {len(texts)} texts in {len(parts)} programs, {time.perf_counter() - start:.0f} s; "
                                     f"{len(failures)} do not compile, {spilling} spill, at most "
                                     f"{max((k.registers for several in kernels.values() for k in several), default=0)} registers")


def tenth(texts):
    """The same tenth of the texts each time: a text keeps its luck while others come and go."""
    return [t for t in texts if int(hashlib.sha256(t.source.encode()).hexdigest(), 16) % 10 == 0]


def main():
    from tests.kernel_texts import texts  # noqa: PLC0415 - not in the processes that only compile
    parser = argparse.ArgumentParser(prog="python -m tests.nvrtc", description="Compile every CUDA text for real GPUs.")
    parser.add_argument("words", nargs="*", help='only the texts with one of these in "NAME of DTYPE, LAYOUT"')
    parser.add_argument("--all", action="store_true", help="every text for every architecture")
    parser.add_argument("--arch", type=int, help="every text for this one only, such as 90")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(reason)
    every = [t for t in texts() if not given.words or any(w in str(t) for w in given.words)]
    if not every:
        sys.exit(f"no text has {' or '.join(given.words)} in its name")
    failed = False
    for arch in [given.arch] if given.arch else (MAIN, *OTHERS):
        result = compile_all(every if given.all or given.arch or arch == MAIN else tenth(every), arch)
        print(result.line, flush=True)
        for text, log in result.failures:
            print(f"{text}: {log}")
        failed = failed or bool(result.failures)
    sys.exit(failed)


if __name__ == "__main__":
    main()
