"""Large arrays on the CPU: a traced body or formula as a NumPy program that runs in blocks which stay in the cache.

A formula such as `grad * (1 - result) * result` on arrays makes a temporary for each of its operations, each read and written
through main memory. Here it is traced once per dtypes (expression.py) and printed as ufunc calls with `out=` on buffers of one
block; every ufunc does the same to each element as before, so the result has the same bits.
"""
from __future__ import annotations

import dis
import math

import numpy as np

from autograd_gpu.expression import NO_EXPRESSION, Symbol, Traced, Untraceable, kind_of

LARGE = 1 << 18                              # elements from which on the program wins; measured
BLOCK = 1 << 15                              # elements of a block
FEW = 1 << 12                                # elements up to which np.where is as fast as `choose`; measured
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def choose(condition, x, y, out=None):
    """np.where(condition, x, y), without its branch per element, which a processor cannot predict: bits times 0 or 1."""
    if out is None and (type(condition) is not np.ndarray or condition.size < FEW or condition.dtype != np.bool_):
        return np.where(condition, x, y)
    dtype = np.result_type(x, y) if out is None else out.dtype
    bits = _BITS.get(dtype.itemsize)
    if bits is not None:
        a, b = np.asarray(x, dtype).view(bits), np.asarray(y, dtype).view(bits)
        into = None if out is None else out.view(bits)
        if not b.ndim and not b:
            return np.multiply(a, condition, out=into).view(dtype)
        if not a.ndim and not a:
            return np.multiply(b, ~condition, out=into).view(dtype)
        if dtype.itemsize <= 4:              # processors multiply 64 bits more slowly
            mixed = np.multiply(np.bitwise_xor(a, b, out=into), condition, out=into)
            return np.bitwise_xor(mixed, b, out=mixed).view(dtype)
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def cleared(values, test, *operands):
    """`values` with 0 where a comparison of `operands`, a ufunc, is true. All of one shape, or numbers; numbers of 1, 2, 4 or 8 bytes.

    The comparison is written as a mask of the values' bits: there is no array of bools.
    """
    bits, out = _BITS[values.dtype.itemsize], np.empty_like(values)
    mask = out.view(bits)
    test(*operands, out=mask)
    mask -= bits(1)
    mask &= values.view(bits)
    return out


def steps(function, records) -> float:
    """How many operations on elements a body or formula makes, read from its code; 0 where it does anything else.

    `records`: the ops by name. conj counts nothing: real numbers pass through it.
    """
    total, module = 0, None
    for i in dis.get_instructions(function.__code__):
        if i.opname in ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "UNARY_INVERT"):
            total += 1
        elif i.opname == "LOAD_GLOBAL":
            module = i.argval
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD") and module in ("np", "sp"):
            total += module == "np"
            module = None
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD") and module == "F":
            record, module = records.get(i.argval), None
            if i.argval != "conj":
                inner = steps(record.body, records) if getattr(record, "is_elementwise", False) else 0
                if not inner:
                    return 0
                total += inner
    return total


class Program(Traced):
    """What was traced for one combination of dtypes as the text of a NumPy program (`source`), and its run."""

    into: tuple[int, ...] = ()               # the arguments that the results are written to; none: the one result is a new array

    def __init__(self, function, kinds, keywords=()):
        """Raises Untraceable where the function is no expression, or only one operation."""
        super().__init__(function, kinds, keywords)
        if self.into:
            self.dtypes = [kinds[i] for i in self.into]
        elif self.several:
            raise Untraceable("several results")
        self.names: dict[str, object] = {"empty": np.empty}
        self.source = self._print({id(s): i for i, s in enumerate(self.symbols) if isinstance(s, Symbol)})
        exec(compile(self.source, "<blocks>", "exec"), self.names)

    def _print(self, inputs):
        """The text. x0, x1: arrays; p2: a number given as an argument; n0: a number computed ahead; b0: a buffer; o: a block of out."""
        numbers, found = {}, {}              # {text: name}; {(function, operands, dtype): its number}, in order

        def visit(x):
            """The text of an operand, or the number of the operation that gives it."""
            if id(x) in inputs:
                i = inputs[id(x)]
                if not isinstance(self.kinds[i], np.dtype):
                    return f"p{i}"
                return f"x{i}" if x.dtype == self.kinds[i] else operation(np.copyto, (f"x{i}",), x.dtype)
            if x.function is None:
                raise Untraceable("a function of CUDA")
            if not x.operands:
                return repr(x.function) if x.weak else number(x.dtype, repr(x.function))
            operands = tuple([visit(o) for o in x.operands])
            if any([type(o) is int or o[0] == "x" for o in operands]):
                return operation(x.function, operands, x.dtype)
            return number(x.dtype, operands[0] if x.function is np.copyto else f"{name(x.function)}({', '.join(operands)})")

        def number(dtype, text):
            return numbers.setdefault(f"{name(dtype.type)}({text})", f"n{len(numbers)}")

        def operation(function, operands, dtype):
            return found.setdefault((function, operands, dtype), len(found))

        def name(function):
            self.names[function.__name__] = function
            return function.__name__

        finals = {}                          # {where a result goes: the operation that gives it}
        for result, dtype, target in zip(self.results, self.dtypes, [f"x{i}" for i in self.into] or ["o"], strict=True):
            final = visit(result)
            if type(final) is str or len(found) < 2 and not self.into:
                raise Untraceable("one operation, which NumPy does in one pass")
            finals[target] = operation(np.copyto, (final,), dtype) if dtype != result.dtype else final
        order = list(found)
        last = {o: k for k, (_, operands, _) in enumerate(order) for o in operands}
        place, buffers, lines = {}, [], []   # {operation: where its result is}; a buffer's dtype and the operation that it is kept for
        for target, k in finals.items():     # at once where nothing reads what is there any more, else in the end
            if k not in place and last.get(target, -1) <= k - (order[k][0] is np.where):
                place[k] = target
            else:
                last[k] = len(order)
        for k, (function, operands, dtype) in enumerate(order):
            ended = {o for o in operands if type(o) is int and last[o] == k}
            for b in buffers:                # a ufunc may write over what it reads, np.copyto of several may not
                if function not in (np.where, np.copyto) and b[1] in ended:
                    b[1] = None
            if k not in place:
                at = next((i for i, b in enumerate(buffers) if b == [dtype, None]), len(buffers))
                if at == len(buffers):
                    buffers.append([dtype, None])
                buffers[at][1] = k
                place[k] = f"b{at}"
            for b in buffers:
                if b[1] in ended:
                    b[1] = None
            texts = [place[o] if type(o) is int else o for o in operands]
            if function is np.copyto:
                lines.append(f"copyto({place[k]}, {texts[0]}, 'unsafe')")
            elif function is np.where:
                lines.append(f"choose({', '.join(texts)}, out={place[k]})")
            else:
                lines.append(f"{name(function)}({', '.join(texts)}, out={place[k]})")
        lines += [f"copyto({target}, {place[k]})" for target, k in finals.items() if place[k] != target]
        self.names.update(copyto=np.copyto, choose=choose, empty=np.empty, inf=np.inf, nan=np.nan, dtypes=[b[0] for b in buffers])
        arrays, given = [f"x{i}" for i in self.arrays], [f"p{i}" for i in inputs.values() if i not in self.arrays]
        if self.into:                        # the blocks of one row of arrays after the other
            head, rows, indent = f"program({', '.join(['rows', *given])})", [f"    for {', '.join(arrays)} in rows:"], "    "
            cut = f"n = {arrays[-1]}.size; size = min(n, {BLOCK}) or 1; shape = size"
        else:
            head, rows, indent = f"program({', '.join(['o', 'size', *arrays, *given])})", [], ""
            cut = "n, shape = len(o), (size, *o.shape[1:])"
            arrays.append("o")
        body = [
            cut,
            *[f"b{i} = empty(shape, dtypes[{i}])" for i in range(len(buffers))],
            "; ".join([f"{x.upper()} = {x}" for x in arrays]),
            "for start in range(0, n, size):",
            "    if n - start < size:",
            "        size = n - start",
            *[f"        b{i} = b{i}[:size]" for i in range(len(buffers))],
            f"    {'; '.join([f'{x} = {x.upper()}[start:start + size]' for x in arrays])}",
            *[f"    {line}" for line in lines]]
        return "\n".join([f"def {head}:", *[f"    {n} = {text}" for text, n in numbers.items()], *rows,
                          *[f"    {indent}{line}" for line in body], ""])

    def __call__(self, *args):
        """The result for arguments of these kinds; None where their layout is not one that blocks can be cut from."""
        arrays = [args[i] for i in self.arrays]
        shape = max([a.shape for a in arrays], key=math.prod)
        size, order, rows, flat = math.prod(shape), None, False, list(args)
        for i, a in zip(self.arrays, arrays, strict=True):
            if a.size == 1 and a.ndim <= len(shape) or a.shape == shape and not any(a.strides):
                flat[i] = np.broadcast_to(a[(slice(0, 1),) * a.ndim].reshape(1), (size,))
                continue
            if a.shape != shape:
                rows = True
                continue
            own = "C" if a.flags.c_contiguous else "F" if a.flags.f_contiguous else None
            if own is None or order not in (None, own):
                return None
            order = own
            flat[i] = a.reshape(-1, order=own)
        if rows:
            return None if order == "F" else self._in_rows(shape, args, arrays)
        out = np.empty(shape, self.dtypes[0], order or "C")
        self._run(out.reshape(-1, order=order or "C"), BLOCK, flat)
        return out

    def _in_rows(self, shape, args, arrays):
        """Where an operand is broadcast, a block is some of the rows along the first dimension."""
        size = BLOCK * shape[0] // math.prod(shape)
        if not size or np.broadcast_shapes(*[a.shape for a in arrays]) != shape:
            return None
        out, values = np.empty(shape, self.dtypes[0]), list(args)
        for i, a in zip(self.arrays, arrays, strict=True):
            values[i] = np.broadcast_to(a, shape)
        self._run(out, size, values)
        return out

    def _run(self, out, size, values):
        self.names["program"](out, size, *[values[i] for i in self.arrays], *[values[i] for i, _ in self.scalars])


class InPlace(Program):
    """An update rule whose results are written into its arrays, all but the first: cuda/update.py has the same for CuPy's."""

    def __init__(self, name, function, kinds, keywords=()):
        self.into = tuple([i for i, kind in enumerate(kinds) if i and isinstance(kind, np.dtype)])
        super().__init__(function, kinds, keywords)

    def __call__(self, rows, numbers):  # type: ignore[override]
        """Update tensors. `rows`: of each its arrays, in the order of the rule's parameters; `numbers`: the rule's other arguments."""
        ahead = len(self.kinds) - len(numbers)
        self.names["program"](_flat(rows), *[numbers[i - ahead] for i, _ in self.scalars])


def _flat(rows):
    """The arrays of each row as vectors over the same elements; where they do not lie alike, as copies that are written back."""
    for row in rows:
        if all([a.flags.c_contiguous for a in row]):
            yield [a.reshape(-1) for a in row]
        elif all([a.flags.f_contiguous for a in row]):
            yield [a.T.reshape(-1) for a in row]
        else:
            copies = [a.flatten() for a in row]
            yield copies
            for a, new in zip(row[1:], copies[1:], strict=True):
                a[...] = new.reshape(a.shape)


class Blocked:
    """A body or formula on NumPy's arrays: in blocks where they are large and it can be traced, else as it is."""

    def __init__(self, traced, plain):
        """`traced`: the function for Symbols; `plain`: the same for arrays."""
        self.traced, self.plain = traced, plain
        self.programs = {}                   # kinds of arguments: Program, or None where only `plain` will do

    def __call__(self, *args, **options):
        for a in args:
            if type(a) is np.ndarray and a.size >= LARGE:
                return self._large(args, options)
        return self.plain(*args, **options)

    def _large(self, args, options):
        values = (*args, *options.values())
        kinds = tuple([a.dtype if type(a) is np.ndarray else kind_of(a) for a in values])
        try:
            program = self.programs[kinds]
        except KeyError:
            program = self.programs[kinds] = self._program(kinds, tuple(options))
        if program is not None:
            try:
                made = program(*values)
            except OverflowError:            # a number that does not fit into the integers beside it
                made = None
            if made is not None:
                return made
        return self.plain(*args, **options)

    def _program(self, kinds, keywords):
        try:
            return Program(self.traced, kinds, keywords)
        except NO_EXPRESSION:
            return None
