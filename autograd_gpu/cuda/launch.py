"""Fused elementwise kernels: a traced body or formula as one RawKernel, made at the first call for its dtypes and layout."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import expression
from autograd_gpu.cuda.source import filled, kernel_text, sections
from autograd_gpu.expression import TYPES, Parameter, Symbol, Untraceable

_STORED = {**TYPES, np.dtype(np.float16): "__half"}
_LANES = 16                                  # bytes that one access of the flat layout moves
_INT32 = 2 ** 31 - 1
BLOCK = 256
MAX_GRID = 1 << 16


class Program:
    """The expression of one body or formula for one combination of dtypes: inputs, scalar parameters, result."""

    def __init__(self, name, function, kinds, keywords=()):
        """`kinds`: per argument a NumPy dtype for an array, int or float for a number, and what else there is as it is; the last ones
        are those of `keywords`.
        """
        self.name, self.kinds = name, kinds
        symbols: list = []
        self.arrays, self.scalars = [], []
        exact = any([isinstance(k, np.dtype) and k.kind in "biu" for k in kinds])
        for i, kind in enumerate(kinds):
            if isinstance(kind, np.dtype):
                computed = np.dtype(np.float32) if kind == np.float16 else kind
                if computed not in TYPES:
                    raise Untraceable(f"{kind}")
                symbols.append(Symbol(f"x{i}", (), computed))
                self.arrays.append(i)
            elif kind is int or kind is float:
                if exact:
                    raise Untraceable("a number beside integers, whose dtype may depend on its value")
                dtype = np.dtype(np.int64 if kind is int else np.float64)
                symbols.append(Parameter(f"x{i}", (), dtype, kind))
                self.scalars.append((i, dtype))
            elif kind is None or isinstance(kind, (bool, str)):
                symbols.append(kind)
            else:
                raise Untraceable(f"an argument of type {kind.__name__}")
        positional = len(symbols) - len(keywords)
        result = expression.lift(function(*symbols[:positional], **dict(zip(keywords, symbols[positional:], strict=True))))
        self.same = next((i for i in self.arrays if symbols[i] is result and kinds[i] != np.float16), None)
        half = [kinds[i] for i in self.arrays if kinds[i] == np.float16]
        self.dtype = half[0] if half and result.dtype == np.float32 and all(
            kinds[i] == np.float16 or kinds[i].kind in "biu" for i in self.arrays) else result.dtype
        self.statements, self.final = expression.text(result)
        self.kernels = {}

    def width(self, single):
        """How many elements one access of the flat layout moves: 16 bytes of the widest operand."""
        return max(_LANES // max([self.dtype.itemsize, *[self.kinds[i].itemsize for i in self.arrays if i not in single]]), 1)

    def source(self, layout, single=(), ndim=0, index="long long"):
        """The CUDA text of a layout: "flat" with the arguments in `single` of one element, or "strided" over ndim dimensions."""
        out, width = _STORED[self.dtype], self.width(single)
        flat = [i for i in self.arrays if i not in single]
        types = {i: _STORED[self.kinds[i]] for i in self.arrays}
        computed = {i: TYPES[np.dtype(np.float32) if self.kinds[i] == np.float16 else self.kinds[i]] for i in self.arrays}
        dims = range(ndim)
        words = {
            "name": self.name, "out_type": out, "width": str(width), "index": index,
            "pointers": " ".join(f"const {types[i]}* __restrict__ p{i}," for i in self.arrays),
            "scalars": " ".join(f"{TYPES[d]} x{i}," for i, d in self.scalars),
            "single_loads": " ".join(f"const {computed[i]} x{i} = ({computed[i]})p{i}[0];" for i in single),
            "pack_loads": " ".join(f"const Pack<{types[i]}, {width}> q{i} = reinterpret_cast<const Pack<{types[i]}, {width}>*>(p{i})[p];"
                                   for i in flat),
            "pack_elements": " ".join(f"const {computed[i]} x{i} = ({computed[i]})q{i}.at[k];" for i in flat),
            "elements": " ".join(f"const {computed[i]} x{i} = ({computed[i]})p{i}[i];" for i in flat),
            "statements": " ".join(self.statements), "store": f"({out})({self.final})",
            "geometry": " ".join(f"{index} d{k}," for k in dims) + " " +
                        " ".join(f"{index} s{i}_{k}," for i in self.arrays for k in dims),
            "offsets": " ".join(f"{index} o{i} = 0;" for i in self.arrays) + " " + " ".join(
                f"{{ const {index} c = " + (f"rest % d{k}; rest /= d{k}; " if k else "rest; ") +
                " ".join(f"o{i} += c * s{i}_{k};" for i in self.arrays) + " }" for k in reversed(dims)),
            "strided_elements": " ".join(f"const {computed[i]} x{i} = ({computed[i]})p{i}[o{i}];" for i in self.arrays),
        }
        common, flat_text, strided_text = sections("elementwise.cu")
        body = filled(flat_text if layout == "flat" else strided_text, words)
        used = {self.dtype, *[self.kinds[i] for i in self.arrays]}
        headers = "#include <cuda_fp16.h>\n" if np.dtype(np.float16) in used else ""
        return headers + kernel_text("prelude.cuh") + common + body

    def __call__(self, *args):
        if self.same is not None:
            return args[self.same]
        xp = _device.cupy
        arrays = [args[i] for i in self.arrays]
        shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*[a.shape for a in arrays])
        n = math.prod(shape)
        if not n:
            return xp.empty(shape, self.dtype)
        scalars = [dtype.type(args[i]) for i, dtype in self.scalars]
        single = tuple([i for i, a in zip(self.arrays, arrays, strict=True) if a.size == 1])
        if all([a.size == 1 or a.shape == shape and a.flags.c_contiguous and not a.data.ptr % _LANES for a in arrays]):
            out = xp.empty(shape, self.dtype)
            kernel = self._kernel("flat", single)
            grid = min(-(-n // (BLOCK * self.width(single))), MAX_GRID)
            kernel((grid,), (BLOCK,), (out, *arrays, *scalars, np.int64(n)))
            return out
        order, sizes, strides = walk(shape, arrays)
        out = xp.empty([shape[k] for k in order], self.dtype)
        index, kind = index_type(n, sizes, strides)
        kernel = self._kernel("strided", (), len(sizes), index)
        geometry = [kind(m) for m in sizes] + [kind(s) for row in strides for s in row]
        kernel((min(-(-n // BLOCK), MAX_GRID),), (BLOCK,), (out, *arrays, *scalars, *geometry, np.int64(n)))
        return out.transpose([order.index(k) for k in range(len(shape))])

    def _kernel(self, layout, single=(), ndim=0, index="long long"):
        key = layout, single, ndim, index
        if key not in self.kernels:
            self.kernels[key] = _device.cupy.RawKernel(self.source(*key), f"{self.name}_{layout}")
        return self.kernels[key]


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

    def __init__(self, name, traced, plain):
        """`traced`: the function for Symbols; `plain`: the same for CuPy's arrays."""
        self.name, self.traced, self.plain = name, traced, plain
        self.programs = {}                   # kinds of arguments: Program, or None where only `plain` will do
        self.reasons = {}

    def __call__(self, *args, **options):
        values = (*args, *options.values())
        kinds = tuple([a.dtype if type(a) is _device.cupy.ndarray else a if a is None or isinstance(a, (bool, str)) else type(a)
                       for a in values])
        try:
            program = self.programs[kinds]
        except KeyError:
            program = self.programs[kinds] = self.program(kinds, tuple(options))
        return self.plain(*args, **options) if program is None else program(*values)

    def program(self, kinds, keywords=()):
        """The Program for these kinds; None where the function cannot be traced, and then `reasons` says why."""
        if not any(isinstance(k, np.dtype) for k in kinds):
            return None
        try:
            return Program(self.name, self.traced, kinds, keywords)
        except (Untraceable, ArithmeticError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            self.reasons[kinds] = f"{type(error).__name__}: {error}"
            return None
