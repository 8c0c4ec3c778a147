"""Write docs/kernels.md: which elementwise ops CuPy's functions run on CUDA, and why.

Run `python -m tests.make_kernel_table`; tests/test_kernels.py checks that the file is what it writes.
"""
from __future__ import annotations

from pathlib import Path

import autograd_gpu as torch
from autograd_gpu.dtypes import to_numpy
from autograd_gpu.ops import kernels
from autograd_gpu.ops.compile import PLAIN
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op
from tests.samples import ARGUMENTS, BOOLEAN

PATH = Path(__file__).parent.parent / "docs" / "kernels.md"
DTYPES = ("float32", "complex64", "int64")
REFUSALS = ("NotImplementedError", "RuntimeError", "Untraceable: ufunc", "Untraceable: The numpy", "Untraceable: numpy",
            "Untraceable: np.less", "Untraceable: np.greater")
HEAD = """# Elementwise ops that are no kernel of their own

On CUDA an elementwise op is one kernel: its forward, and the gradients of all its inputs; an optimizer's step is one kernel for all
parameters of a group ([how](design.md#optimizers-and-checkpoints)). What is listed here is run by CuPy's functions instead, one kernel per
operation of NumPy. Written by `python -m tests.make_kernel_table`; {kernels} forwards and gradients in float32 are kernels. Half
precision is as float32. What an op refuses, or what no function of NumPy takes, is not listed.

| op | what | dtype | what the kernels have no text for |
|---|---|---|---|
"""


def traced(dtype):
    """(op, "forward", the name of an input or "backward" for the gradients of all, Fused, Program or None) of the registry."""
    for record in REGISTRY.values():
        if isinstance(record, Op) and record.is_elementwise:
            tensors = [to_numpy(torch.bool if p in BOOLEAN else getattr(torch, dtype)) for p in record.parameters
                       if record.roles[p] != PLAIN]
            for what in ["forward", *record.edges, *(["backward"] if len(record.edges) > 1 else [])]:
                yield record, what, *kernels.program(record, tensors, what, **ARGUMENTS.get(record.name, {}))


def written():
    """The text of the table."""
    rows, count = {}, 0
    for dtype in DTYPES:
        refused = set()
        for op, what, kernel, program in traced(dtype):
            if program is not None:
                count += dtype == "float32"
                continue
            if what != "forward" and dtype == "int64":
                continue
            reason = [*kernel.reasons.values()][-1]
            if what == "forward" and reason.startswith(REFUSALS):
                refused.add(op.name)
            elif op.name not in refused and what != "backward" and not reason.startswith(REFUSALS):
                rows.setdefault((op.name, what, reason.partition(": ")[2]), []).append(dtype)
    lines = [f"| {name} | {what if what == 'forward' else f'gradient of {what}'} | {', '.join(dtypes)} | {reason} |"
             for (name, what, reason), dtypes in sorted(rows.items())]
    return HEAD.format(kernels=count) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")
