"""Large arrays on the CPU: a traced body or formula as a NumPy program that runs in blocks which stay in the cache.

A formula such as `grad * (1 - result) * result` on arrays makes a temporary for each of its operations, each read and written
through main memory. Here it is traced once per dtypes (expression.py) and printed as ufunc calls with `out=` on buffers of one
block; every ufunc does the same to each element as before, so the result has the same bits. Rows of reductions are cut into blocks too.
Several threads share the blocks (parallel.py).
"""
from __future__ import annotations

import dis
import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from autograd_gpu import parallel
from autograd_gpu.bits import FEW, choose
from autograd_gpu.buffers import buffered
from autograd_gpu.expression import HALF, NO_EXPRESSION, Symbol, Traced, Untraceable, is_number, kind_of

LARGE = 1 << 18                              # elements from which on the program wins; measured
BLOCK = 1 << 16                              # elements of a block for one thread; measured
VALUES = 24                                  # programs of one body or formula, beyond which there is none more for certain numbers
SHORT = 1 << 10                              # elements of a row up to which its sum by einsum is as exact; measured
LONG = 1 << 12                               # elements of a row whose products are added up without halving it: up to these it is as exact
GROUP, MANY = 1 << 6, 1 << 9                 # rows that are added one to another, and from how many on they are in groups of so many


def block(times=4):
    """How many elements a block has; for several threads `times` as many: they wait for each other where one calls the next operation."""
    return BLOCK if parallel.get_num_threads() == 1 else times * BLOCK


def steps(function, records) -> int | None:
    """How many operations on elements a body or formula makes, read from its code; None where it does anything else.

    `records`: the ops by name. conj counts nothing: real numbers pass through it.
    """
    total, module = 0, None
    for i in dis.get_instructions(function.__code__):
        if i.opname in ("BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "UNARY_INVERT"):
            total += 1
        elif i.opname == "LOAD_GLOBAL":
            module = i.argval
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD") and module in ("np", "sp"):
            total, module = total + 1, None
        elif i.opname in ("LOAD_ATTR", "LOAD_METHOD") and module == "F":
            record, module = records.get(i.argval), None
            if i.argval != "conj":
                inner = steps(record.body, records) if getattr(record, "is_elementwise", True) else None
                if not inner:
                    return None
                total += inner
    return total


class Program(Traced):
    """What was traced for one combination of dtypes as the text of a NumPy program (`source`), and its run."""

    into: tuple[int, ...] = ()               # the arguments that the results are written to; none: the one result is a new array

    def __init__(self, function, kinds, keywords=()):
        """Raises Untraceable where the function is no expression, or no operation at all."""
        super().__init__(function, kinds, keywords)
        if self.into:
            self.dtypes = [kinds[i] for i in self.into]
        elif self.several:
            raise Untraceable("several results")
        self.names: dict[str, object] = {}
        self._products: dict[tuple, list | None] = {}
        self.inputs = {id(s): i for i, s in enumerate(self.symbols) if isinstance(s, Symbol)}
        self.source = self._print(self.inputs)
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
            if type(final) is str:
                raise Untraceable("no operation on elements")
            finals[target] = operation(np.copyto, (final,), dtype) if dtype != result.dtype else final
        order = list(found)
        self.passes = len(order)             # over the elements, if it were not for blocks
        self.wide = sum([dtype != np.bool_ for _, _, dtype in order])          # those that write numbers
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
        self.names.update(copyto=np.copyto, choose=choose, block=block, inf=np.inf, nan=np.nan, dtypes=[b[0] for b in buffers])
        arrays, given = [f"x{i}" for i in self.arrays], [f"p{i}" for i in inputs.values() if i not in self.arrays]
        if self.into:                        # the blocks of one row of arrays after the other
            head, rows, indent = f"program({', '.join(['buffers', 'rows', *given])})", [f"    for {', '.join(arrays)} in rows:"], "    "
            cut = f"n = {arrays[-1]}.size; size = min(n, block()) or 1; shape = size,"
        else:
            head, rows, indent = f"program({', '.join(['buffers', 'o', 'size', *arrays, *given])})", [], ""
            cut = "n, shape = len(o), (size, *o.shape[1:])"
            arrays.append("o")
        body = [
            cut,
            *[f"b{i} = buffers.at({i}, shape, dtypes[{i}])" for i in range(len(buffers))],
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
        shape = max([args[i].shape for i in self.arrays], key=math.prod)
        args = [_unexpanded(a) if i in self.arrays else a for i, a in enumerate(args)]
        arrays = [args[i] for i in self.arrays]
        size, order, rows, flat = math.prod(shape), None, False, list(args)
        for i, a in zip(self.arrays, arrays, strict=True):
            if a.size == 1 and a.ndim <= len(shape):
                flat[i] = np.broadcast_to(a.reshape(1), (size,))
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
        self._run(out.reshape(-1, order=order or "C"), block(), flat)
        return out

    def _in_rows(self, shape, args, arrays):
        """Where an operand is broadcast, a block is some of the rows along the first dimension."""
        size, values = self._rows(shape, args, arrays)
        if not size:
            return None
        out = np.empty(shape, self.dtypes[0])
        self._run(out, size, values)
        return out

    def _rows(self, shape, args, arrays):
        """How many rows of `shape` are a block, none if a row is too long for several threads, and the arguments broadcast."""
        row, values = math.prod(shape[1:]), list(args)
        if row > 4 * BLOCK or np.broadcast_shapes(*[a.shape for a in arrays]) != shape:      # the same for one thread: so are the bits
            return 0, values
        for i, a in zip(self.arrays, arrays, strict=True):
            values[i] = np.broadcast_to(a, shape)
        return max(1, block() // row), values

    def summed(self, shape, *args):
        """The result summed over all dimensions behind those that `shape` has in common with it, without being made as a whole.

        None where that is not what `shape` says, or the arguments' layout is not one that blocks can be cut from.
        """
        whole = max([args[i].shape for i in self.arrays], key=math.prod)
        args = [_unexpanded(a) if i in self.arrays else a for i, a in enumerate(args)]
        arrays = [args[i] for i in self.arrays]
        dims = tuple([d for d, n in enumerate(whole) if d and math.prod(shape[d:]) == 1])
        if len(shape) != len(whole) or not dims or shape[:dims[0]] != whole[:dims[0]] or self.dtypes[0] not in _FLOATS or not all([
                a.flags.c_contiguous for a in arrays]):
            return None
        varying = [i for i in self.arrays if math.prod(args[i].shape[-len(dims):]) > 1]
        if all([args[i].shape == whole for i in varying]) and math.prod(whole[dims[0]:]) <= LONG:
            product = self._product(tuple(varying))
            made = None if product is None else self._sum_of_product(*product, dims, args)
            if made is not None:
                return made
        size, values = self._rows(whole, args, arrays)
        if not size:
            return None
        out = np.empty(shape, self.dtypes[0])
        program, arrays, numbers = self.names["program"], [values[i] for i in self.arrays], [values[i] for i, _ in self.scalars]

        def part(buffers, s):
            for start in range(s.start, s.stop, size):
                b = slice(start, min(start + size, s.stop))
                made = buffers.at(0, (b.stop - start, *whole[1:]), out.dtype)
                program(buffers.others, made, size, *[a[b] for a in arrays], *numbers)
                np.add.reduce(made, dims, None, out[b], True)
        parallel.each(lambda s: buffered(part, s), parallel.cut(len(out), size))
        return out

    def _product(self, varying):
        """What a sum of the result is, where only the arrays `varying` do so along it: the one or two whose product is summed, and what is
        done to the sum, [(ufunc, the other operand or None)]. None where the result is no such product.
        """
        try:
            return self._products[varying]
        except KeyError:
            pass

        def split(x):
            """The factors of a product that vary, and what to do to a sum of those."""
            if self.inputs.get(id(x)) in varying:
                return [self.inputs[id(x)]], []
            if x.function is np.negative:
                factors, after = split(x.operands[0])
                return factors, [*after, (np.negative, None)]
            if x.function not in (np.multiply, np.true_divide):
                raise Untraceable("no product")
            a, b = x.operands
            if not self._depends(b, varying):
                factors, after = split(a)
                return factors, [*after, (x.function, b)]
            if x.function is np.true_divide:
                raise Untraceable("no product")
            if not self._depends(a, varying):
                factors, after = split(b)
                return factors, [*after, (x.function, a)]
            return [f + g for f, g in zip(split(a), split(b), strict=True)]

        try:
            found = split(self.results[0])
        except Untraceable:
            found = None
        if found is not None and (len(found[0]) > 2 or any([self.kinds[i] != self.dtypes[0] for i in found[0]])):
            found = None
        self._products[varying] = found
        return found

    def _depends(self, x, inputs):
        """Whether an expression depends on one of the arguments that are `inputs`."""
        return self.inputs[id(x)] in inputs if id(x) in self.inputs else any([self._depends(o, inputs) for o in x.operands])

    def _value(self, x, args):
        """What an expression is for arguments, computed at once."""
        if id(x) in self.inputs:
            return args[self.inputs[id(x)]]
        if not x.operands:
            return x.dtype.type(x.function)
        values = [self._value(o, args) for o in x.operands]
        return np.asarray(values[0]).astype(x.dtype) if x.function is np.copyto else x.function(*values)

    def _sum_of_product(self, factors, after, dims, args):
        """The sum of a product of arguments over the last dimensions, `dims`, and what is done to it.

        None where it is another sum than that of what was done to each product: 0 / 0, or a product out of its dtype's range.
        """
        first = args[factors[0]]
        n = math.prod(first.shape[dims[0]:])
        if len(factors) == 1:
            total = summed(first, dims, True)
        else:
            a, b = [args[i].reshape(-1, n) for i in factors]
            total = np.empty((*first.shape[:dims[0]], *[1] * len(dims)), a.dtype)
            sums = total.reshape(-1)
            parallel.each(lambda s: np.einsum("ij,ij->i", a[s], b[s], out=sums[s]), parallel.cut(len(a), max(1, block() // n)))
        values = [other if other is None else self._value(other, args) for _, other in after]

        def done(x):
            for (function, _), value in zip(after, values, strict=True):
                x = function(x) if value is None else function(x, value)
            return x

        out = done(total)
        if all([value is None for value in values]):
            return out
        limits = np.finfo(out.dtype)
        lost = np.abs(done(n * limits.tiny))           # times eps: of products that are too small for their dtype, at most
        return out if np.all(np.isfinite(out) & (lost <= np.abs(out) + limits.tiny / limits.eps ** 2)) else None

    def _run(self, out, size, values):
        program, arrays, numbers = self.names["program"], [values[i] for i in self.arrays], [values[i] for i, _ in self.scalars]

        def part(s):
            buffered(program, out[s], size if self.passes > 1 else len(out), *[a[s] for a in arrays], *numbers)
        short = self.passes <= 2 and out.size < 4 * block()      # not worth another thread's while; measured, as what _cut is given
        parallel.each(part, [slice(0, len(out))] if short else parallel.cut(len(out), size))


def _unexpanded(a):
    """What was broadcast to an array: its elements that differ."""
    return a if 0 not in a.strides else a[tuple([slice(0, 1) if not s else slice(None) for s in a.strides])]


class InPlace(Program):
    """An update rule whose results are written into its arrays, all but the first: cuda/update.py has the same for CuPy's."""

    def __init__(self, name, function, kinds, keywords=()):
        self.into = tuple([i for i, kind in enumerate(kinds) if i and isinstance(kind, np.dtype)])
        super().__init__(function, kinds, keywords)

    def __call__(self, rows, numbers):  # type: ignore[override]
        """Update tensors. `rows`: of each its arrays, in the order of the rule's parameters; `numbers`: the rule's other arguments."""
        ahead = len(self.kinds) - len(numbers)
        program, given = self.names["program"], [numbers[i - ahead] for i, _ in self.scalars]
        if parallel.get_num_threads() == 1 or all([row[0].size < LARGE for row in rows]):
            buffered(program, _flat(rows), *given)
            return
        for row in _flat(rows):
            parallel.each(lambda s, row=row: buffered(program, [[a[s] for a in row]], *given), parallel.cut(row[0].size, block()))


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
        self.programs = {}                   # kinds of arguments, or the text of kinds and numbers: Program, or None where there is none

    def __call__(self, *args, **options):
        for a in args:
            if type(a) is np.ndarray and a.size >= LARGE:
                program = self._program_for(args, options)
                if program is not None and (program.wide > 1 or parallel.get_num_threads() > 1):
                    made = self._made(program, *args, *options.values())
                    if made is not None:
                        return made
                break
        return self.plain(*args, **options)

    def summed(self, shape, *args):
        """The gradient of an input of that shape, or one that fit() has yet to sum. The first argument is the result's gradient."""
        if args[0].size >= LARGE and args[0].shape != shape:
            program = self._program_for(args, {})
            made = None if program is None else self._made(program.summed, shape, *args)
            if made is not None:
                return made
        return self(*args)

    @staticmethod
    def _made(program, *args):
        try:
            return program(*args)
        except OverflowError:                # a number that does not fit into the integers beside it
            return None

    def _program_for(self, args, options):
        values = (*args, *options.values())
        kinds = tuple([a.dtype if type(a) is np.ndarray else kind_of(a) for a in values])
        try:
            program = self.programs[kinds]
        except KeyError:
            program = self.programs[kinds] = self._program(kinds, tuple(options))
        if program is None and any([is_number(k) for k in kinds]):          # it may look at its numbers: one for these
            kinds = tuple([v if is_number(k) else k for k, v in zip(kinds, values, strict=True)])
            key = repr(kinds)                # tells 2 from 2.0 and 0.0 from -0.0
            if key not in self.programs and len(self.programs) < VALUES:
                self.programs[key] = self._program(kinds, tuple(options))
            program = self.programs.get(key)
        return program

    def _program(self, kinds, keywords):
        if type(self.plain) is np.ufunc and not HALF.isdisjoint(kinds):      # which rounds once as it is
            return None
        try:
            return Program(self.traced, kinds, keywords)
        except NO_EXPRESSION:
            return None


_FLOATS = np.dtype(np.float32), np.dtype(np.float64)
ONES = {dtype: np.ones(SHORT, dtype) for dtype in _FLOATS}


def _cut(a, dim, blocks):
    """What cuts an array of so many blocks or more along a dimension. A part is 16 wide at least: NumPy sums what is one wide otherwise."""
    n = a.shape[dim]
    return [slice(0, n)] if a.size < blocks * block() else parallel.cut(n, 1, max(16, block() * n // a.size))


def added(a, b, out=None):
    """a + b of a large array and another, in `out`, which may be a, by several threads if the shapes are the same."""
    if a.shape != b.shape or not a.ndim or out is not None and np.may_share_memory(out, b):
        return np.add(a, b, out)
    if out is None:
        out = np.empty_like(a, np.result_type(a, b))
    parallel.each(lambda s: np.add(a[s], b[s], out[s]), _cut(a, 0, 4))
    return out


def _groups_added(a, dim):
    """Sums of GROUP rows each, until they are few: NumPy's error grows with the rows it adds, unless a sum's elements are neighbours."""
    d = max(dims := normalize_axis_tuple(dim, a.ndim), key=a.shape.__getitem__, default=0)
    if not dims or a.shape[d] < MANY or a.dtype not in _FLOATS or any([a.strides[i] == a.itemsize for i in dims]):
        return a
    a = a.swapaxes(0, d)
    n = len(a) // GROUP
    sums = np.empty((n + (n * GROUP < len(a)), *a.shape[1:]), a.dtype)
    groups = a[:n * GROUP].reshape(n, GROUP, *a.shape[1:])
    parallel.each(lambda s: np.add.reduce(groups[s], 1, None, sums[:n][s]), _cut(groups, 0, 8))
    if n < len(sums):
        np.add.reduce(a[n * GROUP:], 0, None, sums[n:], True)
    return _groups_added(sums.swapaxes(0, d), dim)


def reduced(function, a, dim=None, keepdim=False):
    """function.reduce(a, dim, keepdims=keepdim) of a ufunc, by several threads where `a` is large; sums of many rows by groups."""
    if function is np.add and dim is not None and a.size >= FEW and max(a.shape) >= MANY:
        a = _groups_added(a, dim)
    if a.size < LARGE:
        return function.reduce(a, dim, None, None, keepdim)
    parallel.notice_large()                  # if nobody has so far: broadcasting may have made it
    if parallel.get_num_threads() == 1 or not a.flags.c_contiguous or a.dtype not in _FLOATS:
        return function.reduce(a, dim, None, None, keepdim)
    dims = normalize_axis_tuple(range(a.ndim) if dim is None else dim, a.ndim)
    at = next((d for d in range(a.ndim) if d not in dims and a.shape[d] > 1), None)      # each thread has some of the results
    if at is None:
        if function is not np.add or len(dims) < a.ndim or a.size < 8 * block():
            return function.reduce(a, dims, None, None, keepdim)
        return np.full((1,) * a.ndim if keepdim else (), _total(a.reshape(-1)))
    shape = tuple([1 if d in dims else n for d, n in enumerate(a.shape)])
    out, before = np.empty(shape if keepdim else [n for d, n in enumerate(shape) if d not in dims], a.dtype), (slice(None),) * at
    kept = out.reshape(shape)

    def part(s):
        function.reduce(a[(*before, s)], dims, None, kept[(*before, s)], True)
    parallel.each(part, _cut(a, at, 8))
    return out


def _neighbours(dim, ndim):
    """(first, end) of dimensions that follow each other, given in order; (0, 0) for any others, and what names none."""
    dims = dim if dim.__class__ is tuple else (dim,)
    if not dims or not all([d.__class__ is int and -ndim <= d < ndim for d in dims]):
        return 0, 0
    first, end = dims[0] % ndim, dims[-1] % ndim + 1
    return (first, end) if [d % ndim for d in dims] == [*range(first, end)] else (0, 0)


def add_columns(a, out):
    """The sums of a matrix's columns, float32 or float64 in C's order: a product with ones, faster than np.add.reduce and more exact.

    Of many rows GROUP at a time, as in _groups_added; the rows of a group are far from each other, so that one product does it for all.
    """
    n = len(a)
    if n < MANY:
        ONES[a.dtype][:n].dot(a, out)
        return
    rows = n // GROUP
    sums = np.empty((rows + (rows * GROUP < n), a.shape[1]), a.dtype)
    add_columns(a[:rows * GROUP].reshape(GROUP, rows * a.shape[1]), sums[:rows].reshape(-1))
    if rows < len(sums):
        add_columns(a[rows * GROUP:], sums[rows])
    add_columns(sums, out)


def _add_rows(a, out, size):
    """The sums of a matrix's rows, short ones of float32 or float64 in C's order: a product with ones, faster than np.add.reduce.

    `size`: of the whole, where it is a part. For large ones einsum, which several threads can run side by side.
    """
    if size < LARGE:
        a.dot(ONES[a.dtype][:a.shape[1]], out)
    else:
        parallel.each(lambda s: np.einsum("ij->i", a[s], out=out[s]), _cut(a, 0, 8))


def summed(a, dim=None, keepdim=False, size=None):
    """np.add.reduce(a, dim, keepdims=keepdim), by a product with ones over the first dimensions, and where the last ones make short rows.

    `size`: where `a` is a part, that of the whole.
    """
    size = a.size if size is None else size
    if size >= FEW and a.dtype in _FLOATS and a.flags.c_contiguous:
        first, end = _neighbours(dim, a.ndim)
        n = math.prod(a.shape[first:end])
        by_columns, by_rows = 0 == first < end < a.ndim, 0 < first < end == a.ndim and 1 < n <= SHORT
        if by_columns or by_rows:
            out = np.empty((*a.shape[:first], *[1] * ((end - first) * keepdim), *a.shape[end:]), a.dtype)
            if by_columns:
                add_columns(a.reshape(n, out.size), out.reshape(-1))
            else:
                _add_rows(a.reshape(out.size, n), out.reshape(-1), size)
            return out
    return reduced(np.add, a, dim, keepdim)


def by_rows(function, x, dims):
    """function(x): one or several arrays with a row for each of x, which it reduces along `dims`; large ones in blocks of rows."""
    if type(x) is not np.ndarray or x.size < LARGE or x.ndim < 2 or 0 in dims:
        return function(x)
    rows = max(1, block(2) * len(x) // x.size)                           # `function` makes arrays of its own
    like = function(x[:1])
    made = [np.empty((len(x), *a.shape[1:]), a.dtype) for a in (like if type(like) is tuple else (like,))]

    def part(s):
        found = function(np.ascontiguousarray(x[s]))                     # NumPy adds up a single row in another order where it has gaps
        for out, a in zip(made, found if type(found) is tuple else (found,), strict=True):
            out[s] = a
    parallel.each(part, [slice(i, i + rows) for i in range(0, len(x), rows)])
    return tuple(made) if type(like) is tuple else made[0]


def _total(a):
    """np.add.reduce of a vector, which adds the sums of its halves, and so on; so here threads add up parts."""
    def halves(start, stop, depth):
        if not depth:
            return [slice(start, stop)]
        middle = start + (stop - start) // 16 * 8                    # at a multiple of 8, as NumPy has it
        return halves(start, middle, depth - 1) + halves(middle, stop, depth - 1)
    parts = halves(0, len(a), parallel.get_num_threads().bit_length())
    sums = np.empty(len(parts), a.dtype)

    def part(i):
        np.add.reduce(a[parts[i]], out=sums[i:i + 1].reshape(()))
    parallel.each(part, list(range(len(parts))))
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    return sums[0]
