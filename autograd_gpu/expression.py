"""The expression tree: an elementwise body or formula run once on Symbols instead of arrays, and printed as CUDA text or, by
blocks.py, as a NumPy program.

A Symbol stands for one element. It has a dtype and promotes as NumPy does (each ufunc is asked by resolve_dtypes), so what is
traced computes what the arrays would. What has no text, a reduction or a look at a value, raises Untraceable: the caller then
uses CuPy's functions.
"""
from __future__ import annotations

import importlib
import re

import numpy as np

from autograd_gpu import dtypes as _dtype


class Untraceable(Exception):
    """What was run on Symbols is not an expression of elements."""


NO_EXPRESSION = (Untraceable, ArithmeticError, KeyError, TypeError, AttributeError, ValueError, RuntimeError)
"""What a body or formula may raise on Symbols: it expected arrays."""


TYPES: dict[np.dtype, str] = {np.dtype(k): v for k, v in {
    np.bool_: "bool", np.uint8: "unsigned char", np.uint16: "unsigned short", np.uint32: "unsigned int", np.uint64: "unsigned long long",
    np.int8: "signed char", np.int16: "short", np.int32: "int", np.int64: "long long", np.float32: "float", np.float64: "double",
    np.complex64: "complex<float>", np.complex128: "complex<double>"}.items()}
"""The C type of each dtype that is computed with. Half precision is loaded as float; complex<> is that of cupy/complex.cuh."""


class Symbol:
    """One element: an input, a scalar parameter, a constant, or an operation on others.

    `template` is C text with {0}, {1} ... for the operands; an input's or a parameter's is its name. `function` is what NumPy
    computes it with: a ufunc, np.where, np.copyto for a cast; a constant's is its value. None: only CUDA has it.
    """

    __slots__ = ("template", "operands", "dtype", "weak", "function")
    __array_ufunc__ = None                   # NumPy's scalars on the left leave the operation to the Symbol

    def __init__(self, template, operands, dtype, weak=None, function=None):
        self.template, self.operands, self.dtype, self.weak, self.function = template, operands, dtype, weak, function

    @property
    def itemsize(self):
        return self.dtype.itemsize

    def __bool__(self):
        raise Untraceable("a branch on a value")

    def __getattr__(self, name):
        raise Untraceable(f".{name} of an element")

    def astype(self, dtype, order=None, copy=True):
        return cast(self, np.dtype(dtype))

    def copy(self, order=None):
        return self

    def conjugate(self):
        return ufunc("conjugate", self)

    def conj(self):
        return self.conjugate() if self.dtype.kind == "c" else self

    @property
    def real(self):
        return Symbol("real({0})", (self,), _PARTS[self.dtype]) if self.dtype in _PARTS else self

    @property
    def imag(self):
        return Symbol("imag({0})", (self,), _PARTS[self.dtype]) if self.dtype in _PARTS else constant(self.dtype.type(0))

    def __hash__(self):
        return id(self)


_PARTS = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


class Scalar(Symbol):
    """One number for all elements: a constant, or an argument of the kernel."""

    __slots__ = ()
    ndim = 0


class Parameter(Scalar):
    """A Python number that a kernel takes as an argument. isinstance takes it for one of its type, so bodies accept it.

    `held`: the dtypes of integers that it is brought to, and has to fit into.
    """

    __slots__ = ("held",)

    def __init__(self, template, dtype, weak):
        super().__init__(template, (), dtype, weak)
        self.held = set()

    @property  # type: ignore[misc]
    def __class__(self):                     # what isinstance asks where type(self) is no subclass
        return self.weak


def constant(value) -> Symbol:
    """A number of the program's own text; weak, as NumPy's Python numbers are, unless it is NumPy's."""
    dtype, weak = None, type(value)
    if isinstance(value, np.generic):
        dtype, value = value.dtype, value.item()
    text = _literal(value)
    if dtype is None:
        return Scalar(text, (), np.result_type(type(value)), weak, value)
    return Scalar(_converted(text, dtype), (), dtype, function=value)


def _converted(text, dtype):
    """C text as a value of another type; without it a constant would be a double, and make what is computed with it one."""
    return f"{TYPES[dtype]}({text})" if " " not in TYPES[dtype] else f"(({TYPES[dtype]})({text}))"


def _literal(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value == -2 ** 63:
            return "(-9223372036854775807LL - 1)"
        if not -2 ** 63 < value < 2 ** 63:
            raise Untraceable("an integer of more than 64 bits")
        return f"({value}LL)" if value < 0 else f"{value}LL"
    if isinstance(value, float):
        if value != value:
            return "NAN"
        return f"({'-' if value < 0 else ''}INFINITY)" if value in (np.inf, -np.inf) else f"({value!r})"
    if isinstance(value, complex):
        return f"complex<double>({_literal(value.real)}, {_literal(value.imag)})"
    raise Untraceable(f"a {type(value).__name__} in the text")


_WEAK = (int, float, complex)


def lift(value) -> Symbol:
    """A Symbol of a Symbol, or of a number."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return constant(value)
    raise Untraceable(f"a {type(value).__name__} among elements")


def cast(x: Symbol, dtype) -> Symbol:
    """x in a dtype, as a C conversion."""
    if x.dtype == dtype and x.weak is None:
        return x
    if dtype not in TYPES:
        raise Untraceable(f"{dtype} in the middle of an expression")
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        raise Untraceable(f"a complex number as {dtype}")
    if dtype.kind in "iu" and type(x) is Parameter:
        x.held.add(dtype)
    elif dtype.kind in "iu" and type(x.function) is int and not np.iinfo(dtype).min <= x.function <= np.iinfo(dtype).max:
        raise Untraceable(f"{x.function} as {dtype}")
    if dtype.kind == "b":
        return Symbol(f"({{0}} != {_converted(0, x.dtype)})", (x,), dtype, function=np.copyto)
    return Symbol(_converted("{0}", dtype), (x,), dtype, function=np.copyto)


_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "divide": "/", "equal": "==", "not_equal": "!=", "less": "<",
          "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
          "logical_and": "&&", "logical_or": "||"}
_TEXT = {"negative": "-{0}", "positive": "{0}", "square": "({0} * {0})", "logical_not": "!{0}", "logical_xor": "(bool({0}) != bool({1}))",
         "absolute": "ag_abs({0})", "maximum": "ag_max({0}, {1})", "minimum": "ag_min({0}, {1})", "sign": "ag_sign({0})",
         "conjugate": "{0}", "reciprocal": "ag_reciprocal({0})", "invert": "ag_invert({0})", "remainder": "ag_remainder({0}, {1})",
         "floor_divide": "ag_floor_divide({0}, {1})", "logaddexp": "ag_logaddexp({0}, {1})", "logaddexp2": "ag_logaddexp2({0}, {1})",
         "power": "ag_pow({0}, {1})", "left_shift": "ag_left_shift({0}, {1})",
         "right_shift": "ag_right_shift({0}, {1})"}
_SAME = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
         "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "fmax", "fmin", "hypot", "copysign", "nextafter", "fmod"}
_OTHER = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
          "arctanh": "atanh"}
_OF_INTEGERS = {"fmax": "ag_max({0}, {1})", "fmin": "ag_min({0}, {1})", "fmod": "ag_fmod({0}, {1})", "isnan": "false", "isinf": "false",
                "isfinite": "true"}
_TRUE = "(real({%d}) != 0 || imag({%d}) != 0)"
_OF_COMPLEX = {"logical_not": f"!{_TRUE % (0, 0)}", "logical_and": f"({_TRUE % (0, 0)} && {_TRUE % (1, 1)})",
               "logical_or": f"({_TRUE % (0, 0)} || {_TRUE % (1, 1)})", "logical_xor": f"({_TRUE % (0, 0)} != {_TRUE % (1, 1)})",
               "absolute": "abs({0})", "conjugate": "conj({0})", "power": "ag_complex_pow({0}, {1})", "reciprocal": _TEXT["reciprocal"],
               "negative": "-{0}", "positive": "{0}", "square": "({0} * {0})", "isnan": "(isnan(real({0})) || isnan(imag({0})))",
               "isinf": "(isinf(real({0})) || isinf(imag({0})))", "isfinite": "(isfinite(real({0})) && isfinite(imag({0})))"} | {
    n: f"({{0}} {_INFIX[n]} {{1}})" for n in ("add", "subtract", "multiply", "true_divide", "divide", "equal", "not_equal")} | {
    n: _OTHER.get(n, n) + "({0})" for n in ("exp", "log", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos",
                                           "arctan", "arcsinh", "arccosh", "arctanh")}


def _template(name, kind):
    """The text of a ufunc on elements of a dtype's kind; None where there is none."""
    if kind == "c":
        return _OF_COMPLEX.get(name)
    if name in _INFIX:
        return "({0} " + _INFIX[name] + " {1})"
    if name in _TEXT:
        return _TEXT[name]
    if kind != "f":                          # C's functions of these names are on floats
        return _OF_INTEGERS.get(name)
    if name in _SAME or name in _OTHER:
        return _OTHER.get(name, name) + ("({0}, {1})" if getattr(np, name).nin == 2 else "({0})")
    return None


def ufunc(name, *values) -> Symbol:
    """A NumPy ufunc on elements, with NumPy's promotion."""
    operands = [lift(v) for v in values]
    function = getattr(np, name)
    if len(operands) != function.nin:
        raise Untraceable(f"np.{name} of {len(operands)} operands")
    asked = [o.weak if o.weak in _WEAK else o.dtype for o in operands]
    numbers = all([o.weak is not None for o in operands])
    if numbers:                              # Python's numbers among themselves, and a Python number again
        asked = [o.dtype for o in operands]
    try:
        *inputs, output = function.resolve_dtypes((*asked, None))
    except TypeError as error:
        raise Untraceable(str(error)) from None
    template = _template(name, inputs[0].kind)
    if template is None or output not in TYPES or any(d not in TYPES for d in inputs):
        raise Untraceable(f"np.{name} of {', '.join(map(str, inputs))}")
    weak = {"f": float, "i": int, "c": complex}.get(output.kind) if numbers else None
    return Symbol(template, tuple([cast(o, d) for o, d in zip(operands, inputs, strict=True)]), output, weak, function)


def where(condition, x, y) -> Symbol:
    """np.where: which of two, brought to their common dtype."""
    x, y = lift(x), lift(y)
    kinds = [s.weak if s.weak in _WEAK else s.dtype for s in (x, y)]
    if all(isinstance(k, type) for k in kinds):
        kinds = [x.dtype, y.dtype]
    dtype = np.result_type(*[k(0) if isinstance(k, type) else k for k in kinds])
    return Symbol("({0} ? {1} : {2})", (cast(lift(condition), np.dtype(bool)), cast(x, dtype), cast(y, dtype)), dtype,
                  function=np.where)


def full_like(x, value, dtype=None, order=None) -> Symbol:
    """np.full_like: a constant of an element's dtype."""
    return constant(np.dtype(dtype or lift(x).dtype).type(value))


def _like(value):
    return lambda x, dtype=None, order=None: full_like(x, value, dtype)


def asarray(value, dtype=None) -> Symbol:
    """np.asarray of a number, which decides dtypes from then on."""
    x = lift(value)
    if not isinstance(x, Scalar):
        raise Untraceable("np.asarray of an element")
    made = cast(x, np.dtype(dtype or x.dtype))
    return Scalar("{0}", (made,), made.dtype, function=np.copyto)


def written(text, names):
    """A function of Symbols from CUDA C text over the names of parameters, each of which is of the operands' common type T, as is the
    result.
    """
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, [*names, "T"])) + r")\b")

    def function(*values, **options):
        given = dict(zip(names, values)) | options                   # noqa: B905 - the rest has defaults that the text does not see
        used = [n for n in names if re.search(rf"\b{re.escape(n)}\b", text)]
        operands = [lift(given[n]) for n in used]
        dtype = np.result_type(*[o.dtype for o in operands if o.weak is None])
        places = {n: f"{{{i}}}" for i, n in enumerate(used)} | {"T": TYPES[dtype]}
        template = "".join(places.get(part, part.replace("{", "{{").replace("}", "}}")) for part in re.split(f"({pattern.pattern})", text))
        return Symbol(f"({template})", tuple([cast(o, dtype) for o in operands]), dtype)
    return function


class _Functions:
    """What `np` is while a body is traced: its ufuncs, where, and the types and numbers that bodies name."""

    where, full_like, asarray = staticmethod(where), staticmethod(full_like), staticmethod(asarray)
    zeros_like, ones_like = staticmethod(_like(0)), staticmethod(_like(1))

    def __init__(self):
        self.scientific = _Special()

    def __getattr__(self, name):
        found = getattr(np, name, None)
        if isinstance(found, np.ufunc):
            return lambda *values: ufunc(name, *values)
        if isinstance(found, (float, type)) or name in ("result_type", "dtype", "iinfo", "finfo"):
            return found
        raise Untraceable(f"np.{name}")


class _Special:
    """What `sp` is while a body is traced: the functions of scipy.special that CUDA or kernels/special.cuh has."""

    _names = {"erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "erfcx": "erfcx", "gammaln": "lgamma", "i0": "cyl_bessel_i0",
              "i1": "cyl_bessel_i1", "digamma": "ag_digamma", "i0e": "ag_i0e", "i1e": "ag_i1e"}

    @property
    def special(self):
        return self

    @staticmethod
    def polygamma(n, x):
        x = lift(x)
        if x.dtype.kind != "f":
            raise Untraceable(f"scipy.special.polygamma of {x.dtype}")
        order = cast(lift(n), np.dtype(np.float64))
        return Symbol("ag_polygamma({0}, {1})", (order, x), x.dtype)

    def __getattr__(self, name):
        if name not in self._names:
            raise Untraceable(f"scipy.special.{name}")

        def function(x):
            x = lift(x)
            if x.dtype.kind != "f":
                raise Untraceable(f"scipy.special.{name} of {x.dtype}")
            return Symbol(self._names[name] + "({0})", (x,), x.dtype, function=getattr(importlib.import_module("scipy.special"), name))
        return function


FUNCTIONS = _Functions()


def refusal(name):
    """What stands for an op that is not elementwise while others are traced."""
    def function(*args, **kwargs):
        raise Untraceable(f"{name}, which is not elementwise")
    return function


for _name, _ufunc in {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power", "mod": "remainder",
                      "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lt": "less",
                      "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}.items():
    setattr(Symbol, f"__{_name}__", lambda x, y, f=_ufunc: ufunc(f, x, y))
    setattr(Symbol, f"__r{_name}__", lambda x, y, f=_ufunc: ufunc(f, y, x))
for _name, _ufunc in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(Symbol, f"__{_name}__", lambda x, f=_ufunc: ufunc(f, x))


HALF = {np.dtype(np.float16)} | ({_dtype.bfloat16.dtype} if _dtype.bfloat16 else set())


def computed_in(dtype):
    """The dtype that elements are computed in: half precision is loaded as float."""
    return np.dtype(np.float32) if dtype in HALF else dtype


def is_mixed(kinds):
    """Whether half precision is among floating dtypes of several kinds."""
    floats = {np.dtype(k) for k in kinds if isinstance(k, np.dtype) or isinstance(k, type) and issubclass(k, np.generic)}
    floats = {d for d in floats if d in HALF or d.kind in "fc"}
    return len(floats) > 1 and not floats.isdisjoint(HALF)


def is_number(kind):
    """Whether a kind stands for any Python number of a type."""
    return kind is int or kind is float or kind is complex        # not `in`: NumPy's float64 equals float


def kind_of(a):
    """What a function is traced for instead of a value that is no array with elements: of a number only the type."""
    if a is None or isinstance(a, (bool, str)):
        return a
    return a.dtype.type if type(a) is np.ndarray else type(a)


class Traced:
    """The expressions of one body or of several formulas for one combination of dtypes: inputs, scalar parameters, results."""

    def __init__(self, function, kinds, keywords=()):
        """`kinds`: per argument a NumPy dtype for an array, a type for a number that stays an argument (NumPy's decide dtypes, Python's
        do not), and what else there is as it is; the last ones are those of `keywords`. Raises Untraceable.
        """
        self.kinds = kinds
        self.symbols: list = []
        self.arrays, self.scalars = [], []
        read = []                            # what decides whether a result is rounded to half precision
        for i, kind in enumerate(kinds):
            if isinstance(kind, np.dtype):
                self.symbols.append(Symbol(f"x{i}", (), computed_in(kind)))
                self.arrays.append(i)
                read.append(kind)
            elif is_number(kind):
                dtype = np.result_type(kind)
                self.symbols.append(Parameter(f"x{i}", dtype, kind))
                self.scalars.append((i, dtype))
            elif isinstance(kind, type) and issubclass(kind, np.generic):
                read.append(np.dtype(kind))
                self.symbols.append(Scalar(f"x{i}", (), computed_in(read[-1])))
                self.scalars.append((i, self.symbols[-1].dtype))
            elif kind is None or isinstance(kind, (bool, str, int, float, complex)):
                self.symbols.append(kind)
            else:
                raise Untraceable(f"an argument of type {kind.__name__}")
            if isinstance(self.symbols[-1], Symbol) and self.symbols[-1].dtype not in TYPES:
                raise Untraceable(f"{kind}")
        positional = len(self.symbols) - len(keywords)
        found = function(*self.symbols[:positional], **dict(zip(keywords, self.symbols[positional:], strict=True)))
        self.several = type(found) is tuple
        self.results = [lift(r) for r in (found if self.several else (found,))]
        half = {k for k in read if k in HALF}
        narrow = half.pop() if len(half) == 1 and all([k in HALF or k.kind in "biu" for k in read]) else None
        self.dtypes = [narrow if narrow and r.dtype == np.float32 else r.dtype for r in self.results]
        self.held = [(i, np.iinfo(d)) for i, _ in self.scalars if type(self.symbols[i]) is Parameter for d in self.symbols[i].held
                     if d.itemsize < 8 or d.kind == "u"]          # the argument itself is of 64 bits
        self.given = [next((i for i in self.arrays if self.symbols[i] is r and kinds[i] == d), None)
                      for r, d in zip(self.results, self.dtypes, strict=True)]    # which argument a result is, if it is one


def text(*results: Symbol):
    """(statements, final expressions): every distinct subexpression once, in the order of evaluation."""
    lines: list[str] = []
    names: dict[tuple, str] = {}

    def visit(x):
        operands = [visit(o) for o in x.operands]
        expression = x.template.format(*operands)
        if not x.operands:
            return expression
        key = (expression, x.dtype)
        if key not in names:
            names[key] = f"v{len(names)}"
            lines.append(f"const {TYPES[x.dtype]} {names[key]} = {expression};")
        return names[key]
    finals = [visit(r) for r in results]
    return lines, finals
