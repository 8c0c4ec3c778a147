"""The CUDA texts that the package makes, for whoever compiles or examines them: tests/nvrtc.py, test_kernels.py.

Each op and formula in each dtype and layout; of what multiplies them, pairs of dtypes or numbers of dimensions, a sample. `FAMILIES` has
the generators: a new kernel joins by a line in one of them.
"""
import inspect
import re
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from autograd_gpu import dtypes
from autograd_gpu.cuda import bounds, nll, overlap, reduce, scatter, softmax
from autograd_gpu.cuda.launch import ACCESS
from autograd_gpu.cuda.update import UpdateProgram
from autograd_gpu.expression import TYPES
from autograd_gpu.ops import kernels
from autograd_gpu.ops.compile import PLAIN
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.optim import adadelta, adagrad, adam, adamax, nadam, radam, rmsprop, sgd
from tests.make_kernel_table import traced

DTYPES = [d.dtype for d in dtypes.ALL]
FLOATS = [d for d in DTYPES if d.kind in "fV"]                           # V: bfloat16
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
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


def programs(dtype):
    """(Fused, Program or None) for each elementwise body and formula of the registry, and for the formulas of several inputs in one."""
    return [found[2:] for found in traced(dtype)]


def elementwise(dtypes):
    """The texts of kernels/elementwise.cu; on floats in all the layouts that differ in more than a number."""
    for dtype in dtypes:
        for f, program in programs(dtype.name):
            if program is None or not program.stored:
                continue
            used = set(re.findall(r"\bx\d+\b", " ".join([*program.statements, *program.finals])))
            arrays = [i for i in program.arrays if f"x{i}" in used]
            singles = [(i,) for i in program.arrays if len(program.arrays) > 1 and dtype in FLOATS]
            for single in ((), *singles):
                width = 16 // max([d.itemsize for d in (*program.stored, *[program.kinds[i] for i in program.arrays if i not in single])])
                yield Text(f.name, dtype.name, f"flat{' and single' if single else ''}", program.source("flat", single),
                           tuple([width * program.kinds[i].itemsize for i in arrays if i not in single]),
                           tuple([width * d.itemsize for d in program.stored]))
            for layout in (STRIDED, FAR) if dtype in FLOATS else (STRIDED,):
                yield Text(f.name, dtype.name, f"strided by {layout[3]}", program.source(*layout))


def several_dtypes(dtypes):
    """elementwise.cu for the gradients of operands of two dtypes, which are saved as they are."""
    for name in ("mul", "div", "atan2", "pow_tensors", "hypot", "xlogy", "logaddexp"):
        for pair in (("float32", "float64"), ("float64", "float32"), ("float16", "float32"), ("int64", "float32"), ("bool", "float32"),
                     ("float32", "int8"), ("float32", "complex64"), ("complex128", "int32")):
            given = [np.dtype(d) for d in pair]
            if {*given} <= {*dtypes}:
                f, program = kernels.program(REGISTRY[name], given, "backward")
                for layout in (FLAT, STRIDED) if program else ():
                    yield Text(f.name, " and ".join(pair), layout[0], program.source(*layout))


def some_gradients(dtypes):
    """elementwise.cu where only some of an op's inputs need a gradient, but more than one."""
    for record in REGISTRY.values():
        gradients = kernels.fused(record).get("raw_all") if getattr(record, "is_elementwise", False) else None
        for n in range(2, len(record.edges)) if gradients else ():
            for inputs in combinations(record.edges, n):
                f, places = gradients.together(inputs)
                parameters = [record.all_parameters[i] for i in places]
                for dtype in [d for d in FLOATS if d in dtypes]:
                    program = f.program(tuple([float if record.roles.get(p) == PLAIN else dtype for p in parameters]))
                    for layout in (FLAT, STRIDED) if program else ():
                        yield Text(f.name, dtype.name, layout[0], program.source(*layout))


def more_dimensions(dtypes):
    """The strided texts of elementwise.cu and scatter.cu over as many dimensions as an array may have that nothing merges."""
    for dtype in [d for d in FLOATS if d in dtypes]:
        for name in ("mul", "gelu", "lerp_tensors", "tanh"):
            f, program = kernels.program(REGISTRY[name], [dtype])
            for ndim, index in ((1, "int"), (1, "long long"), (4, "int"), (5, "long long"), (8, "int")):
                yield Text(f.name, dtype.name, f"strided by {ndim}, {index}", program.source("strided", (), ndim, index))
        for indices, ndim in ((0, 2), (1, 1), (1, 5), (3, 4), (4, 1)):
            yield Text("scatter_add", dtype.name, f"{indices} by {ndim}", scatter.source("add", dtype, (_INT64,) * indices, ndim, "int"))


def scatters(dtypes):
    """The texts of kernels/scatter.cu and bounds.cu."""
    for dtype in dtypes:
        if dtype.kind != "c":                # they are added as two
            for operation in ("add", "multiply"):
                yield Text(f"scatter_{operation}", dtype.name, "far", scatter.source(operation, dtype, (_INT64, _INT32), 3, "long long"))
                yield Text(f"scatter_{operation}", dtype.name, "near", scatter.source(operation, dtype, (_INT64,), 2, "int"))
    for dtype in [d for d in dtypes if d.kind in "iu"]:
        yield Text("check_bounds", dtype.name, "", bounds.source(dtype))


def overlaps(dtypes):
    """The texts of kernels/overlap.cu."""
    for dtype in [d for d in dtypes if d in TYPES]:
        for index in ("int", "long long"):
            yield Text("overlap", dtype.name, index, overlap.source(dtype, index))


def row_wise(dtypes):
    """The texts of kernels/reduce.cu, softmax.cu and nll.cu: each reduction in each layout, softmax and the losses."""
    for dtype in dtypes:
        floating, integer = dtype in FLOATS, dtype == np.int64
        for op in reduce.STATES:
            if floating or integer and op in ("sum", "prod", "max", "min"):
                result = reduce.computed(dtype) if op == "moments" else dtype
                for layout, kept, reduced, index in (("packs", 1, 1, "int"), ("x", 2, 2, "int"), ("y", 2, 1, "long long")):
                    yield Text(f"reduce_{op}", dtype.name, layout, reduce.kernel_source(op, layout, kept, reduced, dtype, result, index))
                yield Text(f"{op}_states", dtype.name, "", reduce.joining_source(op, reduce.STATES[op], dtype, result))
        for name in softmax.RULES if floating else ():
            for along_x, width in ((True, 16 // dtype.itemsize), (True, 1), (False, 1)):
                yield Text(name, dtype.name, f"{along_x} {width}", softmax.along_source(name, along_x, width, dtype, "int"))
        for target in ("int64", "uint8") if floating else ():
            for reduction in range(3):
                yield Text("nll", dtype.name, f"{reduction} {target}",
                           nll.nll_source("nll", dtype, dtype, np.dtype(target), "int", reduction))
            yield Text("nll_backward", dtype.name, target, nll.nll_source("nll_backward", dtype, dtype, np.dtype(target), "int"))


def row_wise_between_dtypes(dtypes):
    """What else reduce.cu, softmax.cu and nll.cu are asked for: integers, results in other dtypes, rows and losses past 2^31 elements."""
    given = {"int32": ("int32", "int64", "float32"), "uint8": ("uint8", "int64", "float32"), "bool": ("bool", "int64", "float64"),
             "int64": ("float32", "float64"), "float16": ("float32", "float64"), "float32": ("float16", "float64"), "float64": ("float32",)}
    for own, results in given.items():
        for result in [r for r in results if {np.dtype(own), np.dtype(r)} <= {*dtypes}]:
            accumulated = ("sum", "prod", "mean") if result.startswith("float") else ("sum", "prod")
            for op in ("max", "min") if result == own else accumulated:
                for layout, kept, reduced, index in (("packs", 1, 1, "long long"), ("x", 1, 3, "int"), ("y", 3, 1, "int")):
                    yield Text(f"reduce_{op}", f"{own} to {result}", layout,
                               reduce.kernel_source(op, layout, kept, reduced, np.dtype(own), np.dtype(result), index))
                yield Text(f"{op}_states", f"{own} to {result}", "",
                           reduce.joining_source(op, reduce.STATES[op], np.dtype(own), np.dtype(result)))
    for dtype in [d for d in FLOATS if d in dtypes]:
        for name in softmax.RULES:
            for along_x, width in ((True, 16 // dtype.itemsize), (False, 1)):
                yield Text(name, dtype.name, f"far, {along_x}", softmax.along_source(name, along_x, width, dtype, "long long"))
        wide = reduce.computed(dtype)        # of the sum of weights
        for name, result in (("nll", dtype), ("nll", wide), ("nll_backward", dtype)):
            yield Text(name, f"{dtype.name} to {result.name}", "far", nll.nll_source(name, dtype, result, _INT64, "long long"))


RULES = [adadelta.adadelta, adagrad.adagrad, adam.adam, adamax.adamax, nadam.nadam, radam.radam, rmsprop.rmsprop, sgd.sgd]


def update_programs(dtype, **given):
    """An UpdateProgram for each rule of the optimizers on a dtype. `given`: what stands for some of their parameters."""
    for rule in RULES:
        parameters = inspect.signature(rule).parameters.values()
        named = tuple([p.name for p in parameters if p.kind is p.KEYWORD_ONLY])
        kinds = {p.name: float if p.name in named else dtype for p in parameters} | {"maximize": True}
        kinds |= {name: value for name, value in ({"nesterov": True} | given).items() if name in kinds}
        yield rule.program(UpdateProgram, tuple(kinds.values()), named)


LEAST = {"buffer": None, "largest": None, "grad_avg": None, "rectified": None, "shrink": None, "decay": None, "maximize": False,
         "nesterov": False}


def updates(dtypes):
    """The texts of the optimizers, with all options and with none: kernels/group.cu, and elementwise.cu where it writes into operands."""
    for dtype in [d for d in FLOATS if d in dtypes]:
        for program in chain(update_programs(dtype), update_programs(dtype, **LEAST)):
            yield Text(program.name, dtype.name, f"group of {len(program.arrays)}", program.source("group"),
                       (ACCESS,) * len(program.arrays), (ACCESS,) * len(program.into))
            for layout in (STRIDED, FAR):
                yield Text(program.name, dtype.name, f"strided by {layout[3]}", program.source(*layout))


FAMILIES = [elementwise, several_dtypes, some_gradients, more_dimensions, updates, scatters, overlaps, row_wise, row_wise_between_dtypes]


def texts(dtypes=DTYPES):
    """Every text, each once."""
    return list(dict.fromkeys(chain.from_iterable(family(dtypes) for family in FAMILIES)))
