"""The op record: an operation's forward, its derivative and everything that is made from the two.

    @elementwise(to_float=True)
    def tanh(self):
        '''...'''
        return np.tanh(self)

    tanh.vjp(self=lambda grad, result: grad * (1 - result * result).conj())

Bodies and formulas are written once and read several times: `rebind` gives the same code other globals. In a body `np` and
`sp` are NumPy and SciPy, or CuPy and cupyx; in a formula or a composite `F` is the namespace of functions on arrays or on
Tensors. So families of ops need no import of each other, nor an order.
"""
from __future__ import annotations

import collections
import functools
import inspect
import types

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import expression
from autograd_gpu.blocks import steps
from autograd_gpu.ops import compile as _compile
from autograd_gpu.ops import runtime
from autograd_gpu.ops.compile import LIST, OPTIONAL, PLAIN, TENSOR
from autograd_gpu.ops.kernels import launched
from autograd_gpu.ops.namespace import OPS, REGISTRY, rebind
from autograd_gpu.ops.out import accepting

_ROLES = {"Tensor": TENSOR, "Tensor | None": OPTIONAL, "Optional[Tensor]": OPTIONAL, "Sequence[Tensor]": LIST, "list[Tensor]": LIST,
          "tuple[Tensor, ...]": LIST}


def _role(parameter):
    """What a parameter is, by its annotation: a Tensor without one, a plain value with any other than the forms of Tensor."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return TENSOR
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return _ROLES.get(text.replace("torch.", "").replace("autograd_gpu.", "").replace("typing.", ""), PLAIN)



def _register(name, record):
    if name in REGISTRY:
        raise ValueError(f"op {name!r} is registered already, in {REGISTRY[name].body.__module__}; give the new one another name")
    REGISTRY[name] = record
    setattr(OPS, name, record.function)


class Op:
    """One operation. Everything in it follows from the body's signature, the formulas and the decorator's options.

    A parameter without annotation is a Tensor, `Tensor | None` an optional one, `Sequence[Tensor]` a list of them; any other
    annotation makes it a plain value. After `grad`, a formula's parameters are what is saved: inputs, `result` or an output's
    name, a value in `aux`, `<input>_shape`, `<input>_dtype`, plain parameters.
    """

    def __init__(self, body, *, elementwise=False, view=False, node=None, digit=None, outputs=(), differentiable=None, hidden=(),
                 aux=(), many=False, promote=None, to_float=False, may_be_integer=False, varargs=None, aliases=None, divert=None,
                 cuda=None, over=None, method=True, function=True, inplace=None, out=None, accepts_none=False, linear=False,
                 domain=(-2.0, 2.0), without_tangent=()):
        self.name = body.__name__
        self.body = body
        self.is_elementwise, self.is_view, self.cuda = elementwise, view, cuda
        self.method, self.is_function, self.domain = method, function, domain
        self.over = over
        self.inplace = elementwise if inplace is None else inplace
        self.out = function and not view and not many if out is None else out
        self.digit = digit
        self.title = _node_title(self.name, node, digit)
        self.digit_parameters = tuple(inspect.signature(digit).parameters) if digit else ()
        self._read_signature(varargs)
        self.output_names = tuple(outputs) or ("result",)
        self.outputs = "list" if many else len(self.output_names)
        self.differentiable = differentiable or (True,) * len(self.output_names)
        self.first_differentiable = self.differentiable.index(True) if True in self.differentiable else 0
        if isinstance(aux, str) or isinstance(hidden, str) or isinstance(outputs, str):
            raise TypeError(f"op {self.name!r}: outputs, hidden and aux are tuples of names; write (\"mask\",) with the comma")
        self.hidden, self.aux = tuple(hidden), tuple(aux)
        self.given = 1 + len(self.aux)       # how much the body returns, its results counted as one
        shown = [n for n in self.output_names if n not in self.hidden]
        self.result_type = _result_type(self.name, shown) if len(shown) > 1 else None
        self.accepts_none, self.linear, self.without_tangent = accepts_none, linear, without_tangent
        self.lifts = elementwise
        self.promotes = promote if promote is not None else \
            [p for p in self.parameters if self.roles[p] == TENSOR] if elementwise else []
        self.to_float, self.may_be_integer = to_float, may_be_integer
        self.varargs, self.divert = varargs, divert or {}
        self.settled = [p for p in self.parameters if p in self.keyword_only and                # past the divert it has its default,
                        {f"{p} != {self.defaults.get(p)!r}", f"{p} is not None"} & set(self.divert)]   # so the body need not get it
        self.aliases = aliases or {p: a for p, a in (("dim", "axis"), ("keepdim", "keepdims"))
                                   if p in self.parameters and self.roles[p] == PLAIN}
        self.formulas, self.vjp_all = {}, None
        self._derive()
        self.function = _lazy(self, soft=False)
        self.operator = _lazy(self, soft=True) if elementwise else self.function
        self.public = _lazy(self, soft=False, out=True) if self.out else self.function
        self._cuda_function = None
        self._bodies = {}                    # NumPy or CuPy: the body for its arrays

    def _read_signature(self, varargs):
        parameters = inspect.signature(self.body).parameters
        self.parameters = list(parameters)
        self.roles = {n: _role(p) for n, p in parameters.items()}
        several = [n for n, p in parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if several:
            raise TypeError(f"op {self.name!r}: a body cannot take *{several[0]}; annotate one parameter as Sequence[Tensor], or "
                            f"name it in varargs=")
        self.annotations = {n: p.annotation for n, p in parameters.items()}
        self.defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        self.keyword_only = {n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
        self.varargs_plain = None

    def __call__(self, /, *args, **kwargs):
        return self.function(*args, **kwargs)

    def vjp(self, /, **formulas):
        """Give the derivative: for each differentiable input a formula of `grad` and of what it needs saved."""
        self._once()
        self.formulas = formulas
        self._derive()
        return self

    def vjp_shared(self, *inputs):
        """Decorator: one formula for all inputs, (needs, grad, ...) -> one gradient or None each, where they share work."""
        self._once()

        def take(formula):
            self.formulas, self.vjp_all = dict.fromkeys(inputs), formula
            self._derive()
            return formula
        return take

    def _once(self):
        if self.formulas:
            raise ValueError(f"op {self.name!r} has its formulas already")

    def _derive(self):
        """What each node keeps, from what the formulas name."""
        self.edges = [p for p in self.parameters if p in self.formulas and self.roles[p] != PLAIN]
        unknown = set(self.formulas) - set(self.edges)
        if unknown:
            inputs = [p for p in self.parameters if self.roles[p] != PLAIN]
            raise ValueError(f"op {self.name!r}: formulas for {sorted(unknown)}, which are not among its tensor inputs {inputs}")
        self.list_edge = next((p for p in self.edges if self.roles[p] == LIST), None)
        self.arity = 3 if self.list_edge or len(self.edges) > 2 else len(self.edges)
        if self.vjp_all:
            self.all_parameters = list(inspect.signature(self.vjp_all).parameters)[1:]
            named = {n: None for n in self.all_parameters}
        else:
            self.formula_parameters = {p: list(inspect.signature(f).parameters) for p, f in self.formulas.items()}
            self.all_parameters = list(dict.fromkeys(n for names in self.formula_parameters.values() for n in names))
            named = {}
            for p, names in self.formula_parameters.items():
                for n in names:
                    named.setdefault(n, []).append(p)
        named = {n: u for n, u in named.items() if n not in ("grad", "grads") and not
                 (n.startswith("grad_") and n[5:] in self.output_names)}
        self.users = named
        self.named_anywhere = set(named) | set(self.digit_parameters)
        self.named_by_all = [n for n in named]
        self.saved_inputs = [n for n in named if self.roles.get(n, PLAIN) != PLAIN]
        self.saved_results = [n for n in named if n in self.output_names and n not in self.roles]
        self.saved_aux = [n for n in named if n in self.aux]
        taken = {*self.saved_inputs, *self.saved_results, *self.saved_aux}
        edge_meta = {f"{p}{s}" for p in self.edges for s in ("_shape", "_dtype")}
        self.saved_plain = [n for n in [*named, *(d for d in self.digit_parameters if d not in named)]
                            if n not in taken and n not in edge_meta]
        for n in self.saved_plain:
            stem = n.removesuffix("_shape").removesuffix("_dtype")
            if n not in self.parameters and stem not in self.parameters:
                raise ValueError(f"op {self.name!r}: a formula names {n!r}, which is neither an input, an output nor a parameter")

    @property
    def fuses_gradients(self):
        """Whether one kernel on CUDA computes the gradients of all inputs that need one."""
        return self.is_elementwise and not self.vjp_all and len(self.edges) > 1

    @functools.cached_property
    def in_blocks(self):
        """The inputs whose formulas are of elements alone, so that large arrays are computed in blocks and by several threads."""
        return () if self.vjp_all else tuple([p for p, formula in self.formulas.items() if steps(formula, REGISTRY)])

    @functools.cached_property
    def widens(self):
        """Whether half precision needs float32 for a formula to round once: not for one operation on tensors."""
        return bool(self.vjp_all) or not all([steps(formula, REGISTRY) in (0, 1) and not any([
            self.roles.get(n, TENSOR) == PLAIN for n in self.formula_parameters[p]]) and not any([
            isinstance(c, (int, float, complex)) for c in formula.__code__.co_consts]) for p, formula in self.formulas.items()])

    @property
    def wide_body(self):
        """Whether a half-precision body has to run in float32 to round once: when it is more than one ufunc."""
        return self.is_elementwise and not isinstance(self.on_arrays(np), np.ufunc)

    def on_arrays(self, module):
        """The body for NumPy's or CuPy's arrays. A body that is a call of one ufunc is that ufunc."""
        found = self._bodies.get(module)
        if found is None and module is expression.FUNCTIONS and not self.is_elementwise:
            found = self._bodies[module] = expression.refusal(self.name)
        if found is None and module is expression.FUNCTIONS and self.cuda:
            found = self._bodies[module] = expression.written(self.cuda, self.parameters)
        if found is None:
            direct = _direct_ufunc(self) if self.is_elementwise else None
            found = getattr(module, direct) if direct else rebind(self.body, module, sp=_device.scientific(module))
            if module is _device.cupy:
                found = launched(self.name, found)
            self._bodies[module] = found
        return found

    def on_cuda(self, *args, **kwargs):
        """The op on CuPy's arrays, under the guard of their device. Raises RuntimeError where they are on several devices."""
        if self._cuda_function is None:
            self._cuda_function = _compiled(self, _device.cupy)["function"]
        with _device.guard(runtime.common_device(self, (*args, *kwargs.values()))):
            return self._cuda_function(*args, **kwargs)


class Composite:
    """A function written with ops, without a node of its own."""

    def __init__(self, body, method, function, inplace, out, arrays, moves):
        self.name, self.body, self.method, self.is_function, self.inplace = body.__name__, body, method, function, inplace
        self.out, self.moves = out, moves
        # not the body itself: a profiler may give a function other code, while the body's is what gets other globals
        function = types.FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, body.__closure__)
        function.__kwdefaults__ = body.__kwdefaults__
        self.function = self.operator = functools.update_wrapper(function, body)
        self.public = accepting(self.name, self.function, casts=True) if out else self.function
        self.arrays = arrays

    def on_arrays(self, module):
        found = rebind(self.arrays or self.body, module)
        return launched(self.name, found) if module is _device.cupy else found


def elementwise(**options):
    """Decorator: a body that computes each element from the operands' elements at its place, after broadcasting.

    On CUDA the body itself is traced; where it cannot be, `cuda="tanh(self)"` gives its CUDA C text: an expression of the parameters'
    names, each of which is of the operands' common type T, as the result is. Options as in `op`.
    """
    return op(elementwise=True, **options)


def view(**options):
    """Decorator: a body that gives a view of its input's memory."""
    return op(view=True, **options)


def op(**options):
    """Decorator: make a body an op. Options:

    node             the node's name, where it is not <Op>Backward0
    over             the node's name where the in-place form made it, if PyTorch has another for that
    digit            a function of plain parameters giving the digit by which PyTorch tells overloads apart; then `node` is the name
                     without "Backward" and digit
    outputs          names of several results; `differentiable` says which have a history, `hidden` which are not returned
    many             the body gives any number of results
    aux              names of integer or boolean values that the body returns behind its result, for the formulas
    promote          inputs brought to a common dtype (elementwise: all); to_float: integers become the default float
    linear           whether the result is linear in all inputs with a derivative, and its tangent the op of theirs; to be said where
                     the formulas alone do not give it, as where one element is written over another
    without_tangent  inputs of which, alone, the result has no tangent, where else it would be one of zeros
    varargs          the parameter that users may give as several integers
    divert           {condition: op}: calls for which the condition (Python text over the parameters) holds go to that op, or, of ITSELF,
                     give the first operand
    method, function, inplace   whether it is a method of Tensor, a function of the package, a method with an underscore
    out              whether the function takes out= (unless it gives views or any number of results, it does)
    domain           the range of test inputs
    """
    def register(body):
        record = Op(body, **options)
        _register(record.name, record)
        return record
    return register


def composite(body=None, *, method=True, function=True, inplace=False, out=False, arrays=None, moves=False):
    """Decorator: a function of Tensors written with F.<op>; it records what its ops record.

    method, function, inplace, out: as in `op`. `arrays`: a shorter way to the same on arrays, in the formulas of an ordinary backward.
    `moves`: it only converts operands but for the first, or moves them to that one's device, for an op that does not save that one.
    """
    if body is None:
        return functools.partial(composite, method=method, function=function, inplace=inplace, out=out, arrays=arrays, moves=moves)
    record = Composite(body, method, function, inplace, out, arrays, moves)
    _register(record.name, record)
    return record.function


# ------------------------------------------------------------------------------------------------- making the functions

def _compiled(record, module, soft=False, out=False):
    """The op's function for the arrays of NumPy or CuPy."""
    names = runtime.bindings(record, module, soft)
    exec(compile(_compile.source(record, on_cuda=module is not np, out=out), f"<op {record.name}>", "exec"), names)
    for cls in (names.get("N"), names.get("NU")):
        if cls:
            cls.__name__ = cls.__qualname__ = record.title.rpartition("::")[2]
            cls.__module__ = "autograd_gpu"
    return names


def _lazy(record, soft, out=False):
    """The op's function, compiled at its first call; the object stays the same, so references to it stay right.

    As an operator (`soft`) it answers NotImplemented to an operand it does not know, as a function it raises TypeError. The package's
    function takes `out`, the method does not.
    """
    def build():
        names.update(_compiled(record, np, soft, out))
        made = names["function"]
        function.__code__, function.__defaults__, function.__kwdefaults__ = made.__code__, made.__defaults__, made.__kwdefaults__

    names = {"build": build, "__builtins__": __builtins__}
    function = types.FunctionType(_first_call.__code__, names, record.name)
    function.__module__, function.__qualname__ = "autograd_gpu", record.name
    function.__doc__ = record.body.__doc__
    function.record = record
    names["itself"] = function
    return function


def _first_call(*args, **kwargs):
    build()                                  # noqa: F821 - globals of each function made from this code
    return itself(*args, **kwargs)           # noqa: F821


FIRST_CALL = _first_call.__code__            # of a function of an op that has not been compiled yet


def _node_title(name, node, digit):
    """A node's name; where a digit is computed, all but the digit."""
    if node is None:
        node = "".join(word.capitalize() for word in name.split("_"))
        return node + ("Backward" if digit else "Backward0")
    return node + "Backward" if digit else node


class _Probe:
    """Stands for np while a body is asked whether it is one call of a ufunc on its own parameters, in order."""

    def __init__(self, operands):
        self._operands = operands

    def __getattr__(self, name):
        if not isinstance(getattr(np, name, None), np.ufunc):
            raise LookupError
        def call(*args):
            if len(args) != len(self._operands) or any(a is not b for a, b in zip(args, self._operands, strict=True)):
                raise LookupError
            return name
        return call


def _direct_ufunc(record):
    operands = [object() for r in record.roles.values() if r == TENSOR]
    if len(record.parameters) != len(operands) + len(record.settled):
        return None
    try:
        found = rebind(record.body, np=_Probe(operands))(*operands)
    except Exception:
        return None
    return found if isinstance(found, str) else None


def _result_type(op, fields):
    """A named tuple whose fields read and print as torch.return_types' do; copied and pickled by the name of the op."""
    name = op.removesuffix("_dim").removesuffix("_correction")
    cls = collections.namedtuple(name, fields)

    def __repr__(self):
        parts = ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self, strict=True))
        return f"torch.return_types.{name}(\n{parts})"
    made = type(name, (cls,), {"__slots__": (), "__repr__": __repr__, "__new__": lambda c, values: tuple.__new__(c, values),
                               "__reduce__": lambda self: (_result, (op, tuple(self)))})
    made.__module__ = "autograd_gpu.return_types"
    return made


def _result(op, values):
    return REGISTRY[op].result_type(values)
