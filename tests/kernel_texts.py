"""Every CUDA text that the package can make, for whoever compiles or examines them: tests/nvrtc.py, test_kernels.py.

`FAMILIES` has a generator for each file of kernels/: a new kernel joins by a line there.
"""
import re
from itertools import chain
from typing import NamedTuple

import numpy as np

from autograd_gpu import dtypes
from autograd_gpu.ops.compile import PLAIN
from autograd_gpu.ops.kernels import fused
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op
from tests.test_ops import ARGUMENTS, BOOLEAN

DTYPES = [d.dtype for d in dtypes.ALL if d.dtype.kind != "c"]
FLOATS = [d for d in DTYPES if d.kind in "fV"]                           # V: bfloat16
FLAT, STRIDED, FAR = ("flat",), ("strided", (), 3, "int"), ("strided", (), 2, "long long")


class Text(NamedTuple):
    """One kernel's source, and of how many bytes its accesses of global memory have to be."""

    name: str
    dtype: str
    layout: str
    source: str
    loads: tuple = ()
    stores: tuple = ()

    def __str__(self):
        return f"{self.name} of {self.dtype}, {self.layout}"


def kinds_of(record, names, dtype):
    """The kinds of a body's or formula's arguments, its plain ones as the tests of the ops call it."""
    for n in names:
        if n in BOOLEAN:
            yield np.dtype(bool)
        elif n in ("grad", "result") or record.roles.get(n, PLAIN) != PLAIN:
            yield dtype
        elif n in record.roles:
            value = ARGUMENTS.get(record.name, {}).get(n, record.defaults.get(n))
            yield type(value) if type(value) in (int, float) else value
        else:
            yield tuple


def programs(dtype):
    """(Fused, Program or None) for each elementwise body and formula of the registry."""
    dtype = np.dtype(dtype)
    for record in REGISTRY.values():
        if not isinstance(record, Op) or not record.is_elementwise:
            continue
        for name, f in fused(record, dict.fromkeys(["body", *[r + p for p in record.formulas for r in ("raw_", "wide_raw_")]])).items():
            if name.startswith("wide"):
                continue
            names = record.formula_parameters[name[4:]] if name != "body" else [n for n in record.parameters if n not in record.settled]
            yield f, f.program(tuple(kinds_of(record, names, dtype)))


def elementwise(dtypes):
    """The texts of kernels/elementwise.cu; on floats in all the layouts that differ in more than a number."""
    for dtype in dtypes:
        for f, program in programs(dtype):
            if program is None or program.same is not None:
                continue
            used = set(re.findall(r"\bx\d+\b", " ".join([*program.statements, program.final])))
            arrays = [i for i in program.arrays if f"x{i}" in used]
            singles = [(i,) for i in program.arrays if len(program.arrays) > 1 and dtype in FLOATS]
            for single in ((), *singles):
                width = program.width(single)
                yield Text(f.name, dtype.name, f"flat{' and single' if single else ''}", program.source("flat", single),
                           tuple([width * program.kinds[i].itemsize for i in arrays if i not in single]), (width * program.dtype.itemsize,))
            for layout in (STRIDED, FAR) if dtype in FLOATS else (STRIDED,):
                yield Text(f.name, dtype.name, f"strided by {layout[3]}", program.source(*layout))


FAMILIES = [elementwise]


def texts(dtypes=DTYPES):
    """Every text, each once."""
    return list(dict.fromkeys(chain.from_iterable(family(dtypes) for family in FAMILIES)))
