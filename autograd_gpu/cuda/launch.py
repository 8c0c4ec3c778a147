"""Fused elementwise kernels: a traced body or formula as one RawKernel, made at the first call for its dtypes and layout."""
from __future__ import annotations

import math
import re

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu import expression
from autograd_gpu.cuda.source import filled, kernel_text, sections
from autograd_gpu.expression import NO_EXPRESSION, TYPES, Traced, computed_in, is_mixed, is_number, kind_of

_HALF = {np.dtype(np.float16): "__half"} | ({_dtype.bfloat16.dtype: "__nv_bfloat16"} if _dtype.bfloat16 else {})
STORED = {**TYPES, **_HALF}
REAL = {d: t for d, t in STORED.items() if d.kind != "c"}
_HEADERS = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h", "complex<float>": "cupy/complex.cuh",
            "complex<double>": "cupy/complex.cuh"}
ACCESS = 16                                  # the most bytes that one access moves; they have to be aligned to as many
_INT32 = 2 ** 31 - 1
_VALUES = 16                                 # for how many values of its numbers a function is compiled that looks at them
BLOCK = 256
MAX_GRID = 1 << 16


class Program(Traced):
    """What was traced for one combination of dtypes as the text of a kernel, and its launch."""

    into: tuple[int, ...] = ()               # the arguments whose memory the results are written to: cuda/update.py

    def __init__(self, name, function, kinds, keywords=()):
        super().__init__(function, kinds, keywords)
        self.name = name
        if self.into:
            self.dtypes, self.given = [kinds[i] for i in self.into], [None] * len(self.into)
        kept = [r for r, i in zip(self.results, self.given, strict=True) if i is None]
        self.stored = [d for d, i in zip(self.dtypes, self.given, strict=True) if i is None]
        self.statements, self.finals = expression.text(*kept)
        self.kernels = {}

    def width(self, single):
        """How many elements one access of the flat layout moves: 16 bytes of the widest operand."""
        return max(ACCESS // max([d.itemsize for d in (*self.stored, *[self.kinds[i] for i in self.arrays if i not in single])]), 1)

    def source(self, layout, single=(), ndim=0, index="long long"):
        """The CUDA text of a layout: "flat" with the arguments in `single` of one element, or "strided" over ndim dimensions."""
        common, flat, strided = sections("elementwise.cu")
        return headed(common + self.filled(flat if layout == "flat" else strided, layout, single, ndim, index))

    def filled(self, text, layout, single=(), ndim=0, index="long long", **more):
        """A text with what there is to say of this program filled in; `more`: what else."""
        width, outs = self.width(single), [STORED[d] for d in self.stored]
        flat = [i for i in self.arrays if i not in single]
        types = {i: STORED[self.kinds[i]] for i in self.arrays}
        places = [f"p{i}" for i in self.into] or [f"out{k}" for k in range(len(outs))]
        offsets = [f"o{i}" for i in self.into] if layout == "strided" and self.into else ["i"] * len(outs)
        computed = {i: TYPES[computed_in(self.kinds[i])] for i in self.arrays}
        values = [f"({t})({v})" for t, v in zip(outs, self.finals, strict=True)]
        lines = "\n".join
        words = {
            "name": self.name, "width": str(width), "index": index,
            "outputs": "" if self.into else " ".join(f"{t}* __restrict__ {out}," for t, out in zip(outs, places, strict=True)),
            "pointers": " ".join(f"{types[i]}* p{i}," if i in self.into else f"const {types[i]}* __restrict__ p{i}," for i in self.arrays),
            "scalars": " ".join(f"{TYPES[d]} x{i}," for i, d in self.scalars),
            "single_loads": lines(f"const {computed[i]} x{i} = ({computed[i]})p{i}[0];" for i in single),
            "pack_loads": lines(f"const Pack<{types[i]}, {width}> q{i} = reinterpret_cast<const Pack<{types[i]}, {width}>*>(p{i})[p];"
                                   for i in flat),
            "packs": lines(f"Pack<{t}, {width}> r{k};" for k, t in enumerate(outs)),
            "pack_elements": lines(f"const {computed[i]} x{i} = ({computed[i]})q{i}.at[k];" for i in flat),
            "pack_results": lines(f"r{k}.at[k] = {v};" for k, v in enumerate(values)),
            "pack_stores": lines(f"reinterpret_cast<Pack<{t}, {width}>*>({places[k]})[p] = r{k};" for k, t in enumerate(outs)),
            "elements": lines(f"const {computed[i]} x{i} = ({computed[i]})p{i}[i];" for i in flat),
            "statements": lines(self.statements), "stores": lines(f"{places[k]}[{offsets[k]}] = {v};" for k, v in enumerate(values)),
            **geometry_words(index, ndim, self.arrays),
            "strided_elements": lines(f"const {computed[i]} x{i} = ({computed[i]})p{i}[o{i}];" for i in self.arrays),
            "count": f"n / {width}", **more,
        }
        return filled(text.replace("@loops@\n", kernel_text("packs.cuh")), words)

    def __call__(self, *args):
        if not self.stored:
            return self._results(args, ())
        empty = _device.cupy.empty
        for i, limits in self.held:
            if not limits.min <= args[i] <= limits.max:
                raise RuntimeError(f"{self.name}: value cannot be converted to type {limits.dtype} without overflow: {args[i]}")
        arrays = [args[i] for i in self.arrays]
        shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*[a.shape for a in arrays])
        n = math.prod(shape)
        if not n:
            return self._results(args, [empty(shape, d) for d in self.stored])
        scalars = [dtype.type(args[i]) for i, dtype in self.scalars]
        single = tuple([i for i, a in zip(self.arrays, arrays, strict=True) if a.size == 1])       # every thread reads it
        if all([a.size == 1 or a.shape == shape and a.flags.c_contiguous and not a.data.ptr % ACCESS for a in arrays]):
            outs = [empty(shape, d) for d in self.stored]
            kernel = self._kernel("flat", single)
            kernel(grid(n // self.width(single)), (BLOCK,), (*outs, *arrays, *scalars, np.int64(n)))
            return self._results(args, outs)
        order, sizes, strides = walk(shape, arrays)
        outs = [empty([shape[k] for k in order], d) for d in self.stored]
        index, kind = index_type(n, sizes, strides)
        kernel = self._kernel("strided", (), len(sizes), index)
        kernel(grid(n), (BLOCK,), (*outs, *arrays, *scalars, *geometry(kind, sizes, strides), np.int64(n)))
        axes = [order.index(k) for k in range(len(shape))]
        return self._results(args, [out.transpose(axes) for out in outs])

    def _results(self, args, outs):
        """What the function gives: the kernel's results, and the arguments that are results as they are."""
        if not self.several:
            return args[self.given[0]] if self.given[0] is not None else outs[0]
        rest = iter(outs)
        return tuple([next(rest) if i is None else args[i] for i in self.given])

    def _kernel(self, layout, single=(), ndim=0, index="long long"):
        key = layout, single, ndim, index
        if key not in self.kernels:
            kernel = _device.cupy.RawKernel(self.source(*key), f"{self.name}_{layout}")
            try:
                kernel.compile()
            except _device.cupy.cuda.compiler.CompileException as error:
                raise RuntimeError(f"{self.name}: its kernel does not compile. It computes {'; '.join(self.statements)}; where that comes "
                                   f"of an op's text, cuda=, the text has to be an expression of CUDA C. {error}") from None
            self.kernels[key] = kernel
        return self.kernels[key]


def headed(text):
    """A kernel's text with what it needs ahead of it."""
    headers = {h: None for t, h in _HEADERS.items() if t in text}
    special = kernel_text("special.cuh")
    used = any([name + "(" in text for name in re.findall(r"inline T (ag_\w+)", special)])
    return "".join(f"#include <{h}>\n" for h in headers) + kernel_text("prelude.cuh") + (special if used else "") + text


def geometry_words(index, ndim, operands, group=""):
    """Of a strided kernel: its parameters d0 ... (sizes) and s0_0 ... (strides), and the offsets o0 ... of an element in each operand.

    `group`: what the parameters' names begin with, where a kernel has several groups of them.
    """
    dims = range(ndim)
    return {
        "geometry": " ".join([f"{index} {group}d{k}," for k in dims] + [f"{index} {group}s{i}_{k}," for i in operands for k in dims]),
        "offsets": "\n".join([f"{index} o{i} = 0;" for i in operands] + [
            f"{{ const {index} c = " + (f"rest % {group}d{k}; rest /= {group}d{k}; " if k else "rest; ") +
            " ".join(f"o{i} += c * {group}s{i}_{k};" for i in operands) + " }" for k in reversed(dims)])}


def geometry(kind, sizes, strides):
    """The arguments for the parameters of geometry_words. `kind`: the NumPy type of index_type."""
    return [kind(m) for m in sizes] + [kind(s) for row in strides for s in row]


def grid(threads, most=MAX_GRID):
    """The grid of blocks for a number of threads that go on by steps of a whole grid."""
    return (min(max(-(-threads // BLOCK), 1), most),)


def index_type(n, sizes, strides):
    """The C and NumPy types in which every element number and offset fits, the last step past the end included."""
    far = max([n, *[sum([abs(s) * (m - 1) for s, m in zip(row, sizes, strict=True)]) for row in strides]])
    return ("int", np.int32) if far + BLOCK * MAX_GRID < _INT32 else ("long long", np.int64)


def walk(shape, arrays):
    """(order, sizes, strides): the axes from slowest to fastest in memory, which the result keeps as NumPy's would, then the sizes and
    per array the strides in elements of as few dimensions as the operands can be walked by in that order.
    """
    rows = []
    for a in arrays:
        lead = len(shape) - a.ndim
        rows.append([0] * lead + [0 if a.shape[k] == 1 else a.strides[k] // a.itemsize for k in range(a.ndim)])
    order = memory_order(len(shape), rows)
    return order, *merged(shape, rows, order)


def merged(shape, rows, order):
    """(sizes, strides): as few dimensions as the axes can be walked by in an order. `rows`: per array the stride along each axis."""
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in rows]
    for k in order:
        n = shape[k]
        if n == 1:
            continue
        if sizes and all(row[-1] == r[k] * n for row, r in zip(strides, rows, strict=True)):
            sizes[-1] *= n
            for row, r in zip(strides, rows, strict=True):
                row[-1] = r[k]
        else:
            sizes.append(n)
            for row, r in zip(strides, rows, strict=True):
                row.append(r[k])
    return (sizes, strides) if sizes else ([1], [[0] for _ in rows])


def memory_order(ndim, rows):
    """The axes from slowest to fastest: two change places only if every array that moves along both has the first one faster."""
    order: list[int] = []
    for axis in reversed(range(ndim)):       # insert before all that are faster
        at = 0
        for place, other in enumerate(order):
            faster = [abs(row[axis]) < abs(row[other]) for row in rows if row[axis] and row[other]]
            if faster and not all(faster):
                break
            if faster:
                at = place + 1
        order.insert(at, axis)
    return order


class Fused:
    """A body or formula on CuPy's arrays: one kernel where it can be traced, CuPy's functions where not."""

    def __init__(self, name, traced, plain, mixes=True):
        """`traced`: the function for Symbols; `plain`: the same for CuPy's arrays. Unless it `mixes` floating dtypes, those of half
        precision are not to meet others: as Symbols both are float, and the function may want to tell them apart.
        """
        self.name, self.traced, self.plain, self.mixes = name, traced, plain, mixes
        self.programs = {}                   # kinds of arguments: Program, or None where there is none for all values of the numbers
        self.by_value = {}                   # kinds with numbers and without a Program: {the numbers: Program, or None}
        self.reasons = {}                    # kinds of arguments: why there is no Program

    def __call__(self, *args, **options):
        values = (*args, *options.values())
        array = _device.cupy.ndarray
        kinds = tuple([a.dtype if type(a) is array else kind_of(a) for a in values])
        if kinds not in self.programs:
            self.programs[kinds] = self.program(kinds, tuple(options))
        program = self.programs[kinds] or self._of_values(kinds, values, tuple(options))
        if program is not None:
            try:
                return program(*values)
            except OverflowError:            # an integer that needs more than 64 bits
                pass
        return self.plain(*[_on_device(a) for a in args], **options)

    def _of_values(self, kinds, values, keywords):
        """The Program of a function that looks at its numbers, for these numbers; None without numbers, or for one value too many."""
        numbers = [v for v, k in zip(values, kinds, strict=True) if is_number(k)]
        if not numbers:
            return None
        key = repr(numbers)                  # tells 2 from 2.0 and 0.0 from -0.0
        programs = self.by_value.setdefault(kinds, {})
        if key not in programs and len(programs) < _VALUES:
            programs[key] = self.program(tuple([v if is_number(k) else k for v, k in zip(values, kinds, strict=True)]), keywords)
        return programs.get(key)

    def program(self, kinds, keywords=()):
        """The Program for these kinds; None where the function cannot be traced, and then `reasons` says why."""
        if not any(isinstance(k, np.dtype) for k in kinds):
            return None
        if not self.mixes and is_mixed(kinds):
            self.reasons[kinds] = "half precision beside another"
            return None
        try:
            return Program(self.name, self.traced, kinds, keywords)
        except NO_EXPRESSION as error:
            self.reasons[kinds] = f"{type(error).__name__}: {error}"
            return None


def _on_device(a):
    """A number in host memory as an array on the device, for CuPy's functions."""
    return _device.cupy.asarray(a) if type(a) is np.ndarray else a


class Gradients:
    """The formulas of a node with several inputs: (needs, ...) -> a gradient for each input that needs one, all from one kernel."""

    def __init__(self, name, formulas, parameters):
        """`formulas`: {input: Fused}; `parameters`: {input: the places of its formula's arguments among all}."""
        self.name, self.formulas, self.parameters = name, formulas, parameters
        self.wanted = {}                     # needs: (Fused of several results, the places of its arguments)

    def __call__(self, needs, *values):
        if needs not in self.wanted:
            self.wanted[needs] = self.together([p for p, need in zip(self.formulas, needs, strict=True) if need])
        fused, places = self.wanted[needs]
        found = iter(fused(*[values[i] for i in places]))
        return tuple([next(found) if need else None for need in needs])

    def together(self, inputs):
        """(Fused, places): the gradients of some inputs in one, and which arguments they take."""
        places = sorted({i for p in inputs for i in self.parameters[p]})
        calls = [(self.formulas[p], [places.index(i) for i in self.parameters[p]]) for p in inputs]
        return Fused("_".join([self.name, *inputs]), lambda *values: tuple([f.traced(*[values[i] for i in own]) for f, own in calls]),
                     lambda *values: tuple([f(*[values[i] for i in own]) for f, own in calls])), places
