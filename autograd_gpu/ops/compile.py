"""Writes the Python of one op: the function that runs and records it, and the class of its nodes.

An operation on small arrays costs what its bookkeeping costs, so that is written out for each op: no loop over inputs, no
dictionary of arguments, no test of a property that the record already answers. `source(op)` returns the text; `print` it
to see what runs. The names it uses besides the op's own are given by `bindings` in ops/op.py.

    a_<p>   the array of parameter p          s_<p>   its saved value           w<i>   whether edge i wants a gradient
    g<i>    the gradient for edge i           k_<p>   its version when saved     v      a version counter
"""
from __future__ import annotations

TENSOR, OPTIONAL, LIST, PLAIN = "tensor", "optional", "list", "plain"
ITSELF = "itself"                            # what a call is diverted to where its result is the first operand


class Text:
    """Lines of code at an indentation."""

    def __init__(self):
        self.lines, self.depth = [], 0

    def __call__(self, line):
        self.lines.append("    " * self.depth + line)

    def block(self, head):
        self(head)
        return self

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *exc_info):
        self.depth -= 1

    def __str__(self):
        return "\n".join(self.lines) + "\n"


def public(name):
    """The name under which users give a parameter: PyTorch's schema calls the first `self`, its functions `input`."""
    return "input" if name == "self" else name


def source(op, on_cuda=False, out=False):
    """The text of an op's Node class and recording function, for NumPy's arrays or CuPy's. `out`: it takes out=."""
    text = Text()
    if op.edges:
        _node_class(text, op, on_cuda)
        text("NU = unlinking(N)")
    _function(text, op, on_cuda, out)
    return str(text)


def partly_source(op, on_cuda=False):
    """The text of the functions that give the gradients of some edges only: see runtime.partly."""
    text = Text()
    for reader in ("raw", "tensor"):
        _apply(text, op, reader, on_cuda, partly=True)
    return str(text)


# ---------------------------------------------------------------------------------------------------------- the node

def _slots(op):
    if op.arity <= 2:
        slots = [s for i in range(op.arity) for s in (f"n{i}", f"i{i}")]
    else:
        slots = ["_edge_list"]
    for p in op.edges:
        slots += [f"{p}_shape", f"{p}_dtype"]
    for p in op.saved_inputs:
        slots += [f"s_{p}"] + ([f"k_{p}"] if op.roles[p] != LIST else [f"k_{p}"])
    for r in op.saved_results:
        slots += [f"s_{r}", f"c_{r}", f"k_{r}"]
    slots += [f"s_{a}" for a in op.saved_aux]
    slots += [s for s in op.saved_plain if s not in slots]
    return slots + (["_result_meta"] if op.outputs != 1 else [])


def _node_class(text, op, on_cuda):
    with text.block("class N(Node):"):
        text(f"__slots__ = {tuple(_slots(op))!r}")
        text(f"_arity = {op.arity}")
        text(f"_outputs = {op.outputs!r}")
        text(f"_title = {op.title!r}")
        text(f"_edge_names = {tuple(op.edges)!r}")
        text("_record = op")
        text(f"_on_cuda = {on_cuda}")
        text("_partly = partly")
        if any([op.roles[p] == LIST for p in op.edges]):
            text("_jointly = True")
        if op.title == "torch::autograd::Identity":  # in PyTorch it does not look at what is wanted
            text("_jointly = ALWAYS")
        for name, shown in _shown(op):
            text(f"_saved_{shown} = property(lambda node: shown(node, {name!r}))")
        for name in [*op.saved_inputs, *op.saved_results, *op.saved_aux]:
            text(f"_raw_saved_{name} = property(lambda node: raw_saved(node, {name!r}))")
        if op.title == "torch::autograd::NotImplemented":        # PyTorch's lists what needs a gradient, nothing else
            text("next_functions = property(lambda node: tuple([e for e in node._edges() if e[0] is not None]))")
        if op.digit:
            with text.block("def name(node):"):
                names = ", ".join(f"node.{p}" for p in op.digit_parameters)
                text(f"return node._title + str(int(digit({names})))")
        for reader in ("raw", "tensor"):
            _apply(text, op, reader, on_cuda)
        saved = [*op.saved_inputs, *op.saved_results, *op.saved_aux]
        if saved:
            lists = [name for name in saved if op.roles.get(name) == LIST]
            values = ", ".join([f"*listed(node.s_{name})" if name in lists else f"node.s_{name}" for name in saved])
            text(f"_values = lambda node: ({values},)")
        with text.block("def _release(node):"):
            for line in _released(op) or ["pass"]:
                text(line)


def _released(op):
    """The lines that drop what a node saved."""
    return [f"node.s_{name} = RELEASED" for name in [*op.saved_inputs, *op.saved_results, *op.saved_aux]] + [
        f"node.c_{name} = NEVER" for name in op.saved_results]


def _shown(op):
    """(what is saved, its name after `_saved_`): readable under PyTorch's names."""
    for name in [*op.saved_inputs, *op.saved_results, *op.saved_aux, *op.saved_plain]:
        yield name, name.removesuffix("_shape") + "_sym_sizes" if name.endswith("_shape") else name
    for p in op.edges:
        if f"{p}_shape" in op.named_anywhere:
            yield f"{p}_shape", f"{p}_sym_sizes"


def _apply(text, op, reader, on_cuda, partly=False):
    """apply (on arrays) or apply_tensors: the op's formulas, each for an edge that wants a gradient, or one call for all of them.

    partly: only for edges that are `wanted`, a flag each; all that was saved is read, as in PyTorch.
    """
    together = op.vjp_all or on_cuda and reader == "raw" and op.fuses_gradients
    name = "_apply" if reader == "raw" else "_apply_tensors"
    nothing = "None" if op.arity == 1 else "(" + "None, " * op.arity + ")" if op.arity <= 2 else "(None,) * len(node._edge_list)"
    with text.block(f"def {name}_partly(node, grad, keep, wanted):" if partly else f"def {name}(node, grad, keep):"):
        with text.block("if grad is None:" if op.outputs == 1 else "if all_none(grad):"):
            text("unreached(node, keep)")
            text(f"return {nothing}")
        if op.outputs == 1:
            raw = reader == "raw" and not on_cuda
            half = [f"{'grad' if reader == 'raw' else 'grad._array'}.itemsize == 2"] if not raw or op.widens else []
            large = ["everywhere.large and grad.size >= LARGE"] if raw and op.in_blocks else []
            text(f"apart = {' or '.join(half + large) or False}")
        else:
            if not op.accepts_none:
                without = tuple([i for i, d in enumerate(op.differentiable) if not d])
                text(f"grad = {'materialize' if reader == 'raw' else 'materialize_tensors'}(node, grad, {without})")
            text("apart = is_half(grad)")
        if op.arity > 2 and not partly:
            text("edges = node._edge_list")
        if together:
            needs = "wanted" if partly else "tuple([n is not None for n, _ in node._edges()])"
            for name in op.named_by_all:
                _load(text, op, name, reader, maybe=_is_saved_by_need(op, name))
            call = ", ".join(_argument(op, n) for n in op.all_parameters)
            text(f"g = {_formula(reader, 'all')}({needs}, {call})")
            if op.list_edge:
                text(f"g = tuple([{_fit(reader)}(x, s, d) for x, s, d in "
                     f"zip(g, node.{op.list_edge}_shape, node.{op.list_edge}_dtype)])")
                _end_of_apply(text, op, "g")
                return
            if op.arity == 1:
                text("g0, = g")
            else:
                text(", ".join(f"g{i}" for i in range(len(op.edges))) + " = g")
            for i, p in enumerate(op.edges):
                text(f"if g{i} is not None: g{i} = {_fit(reader)}(g{i}, node.{p}_shape, node.{p}_dtype)")
        else:
            names = [*sorted(op.saved_inputs), *op.saved_results, *op.saved_aux]
            always = [n for n in names if partly or reader == "tensor" or not _is_saved_by_need(op, n)]
            for name in always:              # once: to read a value may run an unpack hook
                _load(text, op, name, reader, maybe=_is_saved_by_need(op, name))
            for p in sorted(op.edges) if reader == "tensor" else op.edges:       # PyTorch's order, which that of the new nodes shows
                _one_gradient(text, op, op.edges.index(p), p, reader, on_cuda, always, partly)
        _end_of_apply(text, op, "g0" if op.arity == 1 else "(" + ", ".join(f"g{i}" for i in range(len(op.edges))) + ",)")


def _end_of_apply(text, op, result):
    lines = _released(op)
    if lines:
        with text.block("if not keep:"):
            for line in lines:
                text(line)
    text(f"return {result}")


def _one_gradient(text, op, i, p, reader, on_cuda, loaded, partly):
    def body():
        names = op.formula_parameters[p]
        for name in names:
            if name not in loaded:
                _load(text, op, name, reader)
        arguments = ", ".join(_argument(op, n) for n in names)
        if reader == "raw" and not on_cuda and op.arity > 1 and p in op.in_blocks:
            text(f"g{i} = raw_{p}({arguments}) if not apart else wide_raw_{p}.summed(node.{p}_shape, {arguments})")
        else:
            text(f"g{i} = {_formula(reader, p)}({arguments})")
        array = f"g{i}" if reader == "raw" else f"g{i}._array"
        wrong = f"{array}.shape != node.{p}_shape or {array}.dtype is not node.{p}_dtype"
        kind = f"type(g{i}) is not {'nd' if reader == 'raw' else 'T'}"
        text(f"if {kind} or {wrong}: g{i} = {_fit(reader)}(g{i}, node.{p}_shape, node.{p}_dtype)")
    if op.arity == 1 and not partly:
        return body()
    text(f"g{i} = None")
    with text.block(f"if wanted[{i}]:" if partly else f"if {f'node.n{i}' if op.arity == 2 else f'edges[{i}][0]'} is not None:"):
        body()


def _formula(reader, p):
    return f"({reader}_{p} if not apart else wide_{reader}_{p})"


def _fit(reader):
    return "fit" if reader == "raw" else "fit_tensor"


def _argument(op, name):
    if name == "grad" and op.outputs not in (1, "list"):
        return f"grad[{op.first_differentiable}]"
    if name == "grads":
        return "grad"
    if name.startswith("grad_") and name[5:] in op.output_names:
        return f"grad[{op.output_names.index(name[5:])}]"
    if name in op.saved_inputs or name in op.saved_results or name in op.saved_aux or name == "grad":
        return name
    return f"node.{name}"


def _load(text, op, name, reader, maybe=False):
    """Read a saved value into a local of its name, checked. `maybe`: it is None where no gradient needs it, and was not saved."""
    if name in op.saved_inputs:
        role = op.roles[name]
        if role == LIST:
            text(f"{name} = saved_list(node, {name!r})")
            if reader == "raw":
                text(f"{name} = [t._array for t in {name}]")
            return
        text(f"{name} = node.s_{name}" + (f" if hasattr(node, 'k_{name}') else None" if maybe else ""))
        take = f"saved_input(node, {name!r})"
        if role == OPTIONAL or maybe:
            with text.block(f"if {name} is not None:"):
                _check_input(text, name, take, reader)
        else:
            _check_input(text, name, take, reader)
    elif name in op.saved_results:
        nr = op.output_names.index(name)
        text(f"{name} = node.s_{name}")
        take = f"saved_result(node, {name!r}, {nr})"
        if reader == "raw":
            text(f"if node.c_{name}.count != node.k_{name}: {name} = {take}._array")
        else:
            text(f"{name} = own_result(node, {name}, {nr}, node.c_{name}) if node.c_{name}.count == node.k_{name} else {take}")
    elif name in op.saved_aux:
        text(f"{name} = node.s_{name}")
        text(f"if type({name}) is not nd: {name} = saved_aux(node, {name!r})")
        if reader == "tensor":
            text(f"if type({name}) is nd: {name} = wrap({name})")


def _check_input(text, name, take, reader):
    text(f"v = {name}._counter")
    text(f"if v is not None and v.count != node.k_{name}: {name} = {take}")
    if reader == "raw":
        text(f"{name} = {name}._array")


# ------------------------------------------------------------------------------------------------------ the function

def _function(text, op, on_cuda, out):
    with text.block(f"def function({signature(op, out)}):"):
        if op.varargs:
            text(f"{op.varargs} = {op.varargs}_ if {op.varargs} is None else unpack_varargs({op.varargs})")
        for p, alias in op.aliases.items():
            text(f"if {alias} is not None: {p} = {alias}")
        if out:
            positional = [p for p in op.parameters if p not in op.keyword_only or p == op.varargs]
            by_name = ", ".join(f"{p}={p}" for p in op.parameters if p not in positional)
            places = "".join(("*" if p == op.varargs else "") + public(p) + ", " for p in positional)
            text(f"if out is not None: return into({op.name!r}, op.function, out, ({places}), dict({by_name}), {op.is_elementwise})")
        for condition, other in op.divert.items():
            text(f"if {condition}: return " + (public(op.parameters[0]) if other is ITSELF else f"F.{other}({', '.join(_pass_on(op))})"))
        if op.varargs:
            v = op.varargs
            text(f"if len({v}) == 1 and type({v}[0]) is not int: {v} = unpack_varargs({v}[0])")
        tensors = [p for p in op.parameters if op.roles[p] != PLAIN]
        single = [p for p in tensors if op.roles[p] == TENSOR]
        _take_tensors(text, op, tensors, single)
        _run_body(text, op, on_cuda)
        _wrap_outputs(text, op, on_cuda)
        if op.edges:
            _record(text, op, on_cuda)
        elif op.outputs == 1:
            text("out._node = None; out._nr = 0; out._requires = False")
            text("if everywhere.unusual: mark(out)")
        text("return " + _returned(op))


def signature(op, out=False):
    """The function's parameters as Python text, under their public names."""
    parts, star = [], False
    for p in op.parameters:
        if p == op.varargs:
            parts += ["*" + p + "_", p + "=None"]      # several integers, or one tuple by name
            star = True
            continue
        if p in op.keyword_only and not star:
            parts.append("*")
            star = True
        parts.append(public(p) + (f"={op.defaults[p]!r}" if p in op.defaults else ""))
    if op.aliases:
        if not star:
            parts.append("*")
            star = True
        parts += [f"{alias}=None" for alias in op.aliases.values()]
    if out:
        parts += ["out=None"] if star else ["*", "out=None"]
    return ", ".join(parts)


def _pass_on(op):
    return [f"{p}={p}" if p in op.keyword_only else "*" + p if p == op.varargs else public(p) for p in op.parameters]


def _take_tensors(text, op, tensors, single):
    """Operands as Tensors of this build's array module; a call whose operands are elsewhere goes to the other build."""
    names = [public(p) for p in single]
    optional = [p for p in tensors if op.roles[p] == OPTIONAL]
    lists = [p for p in tensors if op.roles[p] == LIST]
    there = f"return op.on_cuda({', '.join(_pass_on(op))})"
    go = f"if elsewhere({', '.join([*names, *optional, *['*' + p for p in lists]])}): {there}"
    for p in lists:
        text(f"{p} = as_list(op, {p})")
    foreign = [f"type({n}) is not T" for n in names] + [f"{p} is not None and type({p}) is not T" for p in optional]
    if foreign:
        with text.block(f"if {' or '.join(foreign)}:"):
            lifts = op.lifts and len(names) > 1
            if lifts:
                text(f"lifted = lift{'' if len(names) == 2 else '_all'}(op, {', '.join(names)})")
                text("if lifted is NotImplemented: return lifted")
                text(f"if lifted is ELSEWHERE: {there}")
                text(f"{', '.join(names)} = lifted")
            else:
                for n in names:
                    text(f"if not isinstance({n}, Tensor): {n} = not_tensor(op, {n!r}, {n})")
            for p in optional:
                text(f"if {p} is not None and not isinstance({p}, Tensor): {p} = not_tensor(op, {p!r}, {p})")
            if not lists and (optional or not lifts):
                text(go)
    if lists:
        text(go)
    for p in tensors:
        if op.roles[p] == LIST:
            text(f"a_{p} = [t._array for t in {p}]")
        elif op.roles[p] == OPTIONAL:
            text(f"a_{p} = None if {p} is None else {p}._array")
        else:
            text(f"a_{p} = {public(p)}._array")


def _run_body(text, op, on_cuda):
    tensors = [p for p in op.parameters if op.roles[p] != PLAIN]
    arguments = [("*" + p if p == op.varargs_plain else f"{p}={p}" if p in op.keyword_only else p)
                 if op.roles[p] == PLAIN else f"a_{p}" for p in op.parameters if p not in op.settled]
    first = f"a_{tensors[0]}" if op.roles[tensors[0]] != LIST else f"(a_{tensors[0]}[0] if a_{tensors[0]} else None)"
    with text.block("try:"):
        promoted = [f"a_{p}" for p in op.promotes]
        if len(promoted) == 2:
            a, b = promoted
            text(f"if {a}.dtype is not {b}.dtype: {a}, {b} = promote({a}, {b})")
        elif len(promoted) > 2:
            a = promoted[0]
            differ = " or ".join(f"{a}.dtype is not {b}.dtype" for b in promoted[1:])
            text(f"if {differ}: {', '.join(promoted)} = promote_all({', '.join(promoted)})")
        if op.to_float:
            for a in promoted or [f"a_{p}" for p in op.edges]:
                text(f"if {a}.dtype is not f32 and {a}.dtype is not f64: {a} = to_float({a})")
        if op.is_elementwise and not on_cuda:
            odd = f"{first}.itemsize == 2 or everywhere.large" if op.wide_body else "everywhere.shared"
            text(f"if {odd} and {first}.size >= LARGE: data = run_apart(apart_body, {', '.join(arguments)})")
            text(f"else: data = quiet_run(body, {', '.join(arguments)})")
        else:
            text(f"data = body({', '.join(arguments)})" if op.is_view else     # a view computes nothing that NumPy could warn of
                 f"data = quiet_run(body, {', '.join(arguments)})")
    with text.block("except Exception as error:"):
        text(f"data = recover(op, error, body, ({', '.join(a for a in arguments if '=' not in a)},), "
             f"dict({', '.join(a for a in arguments if '=' in a)}))")


def _wrap_outputs(text, op, on_cuda):
    """Results: Tensors over what the body returned, as yet without history."""
    if op.aux:
        text(", ".join(["data", *(f"s_{a}" for a in op.aux)]) + " = with_aux(op, data)")
    if op.outputs == "list":
        text("outs = [wrap(d) for d in data]")
        if op.is_view:
            text("view_outputs(input, outs, op, (" + _step_arguments(op) + "))")
    elif op.outputs == 1:
        text("if type(data) is not nd: data = asarray(data)")
        if not (op.is_elementwise or op.is_view or on_cuda):
            text("if not everywhere.large and data.size >= LARGE: notice_large()")
        _new_tensor(text, "out", "data")
        if op.is_view:
            text("v = input._counter")
            text("if v is None: v = version(input)")
            text("elif v is INFERENCE: return inference_view(out)")
            text("out._counter = v")
            text("view = View()")
            text(f"view.step = (op, ({_step_arguments(op)}))")
            text("parent = input._view")
            with text.block("if parent is None:"):
                text("view.base = input; view.before = (); view.links = 0")
            with text.block("else:"):
                text("view.base = parent.base; view.links = links = parent.links + 1")
                text("view.before = parent if links % LINKS else parent.steps")
            text("view.seen = v.count")
            text("out._view = view")
        else:
            text("out._counter = out._view = None")
    else:
        text(", ".join(f"d_{n}" for n in op.output_names) + " = data")
        for n in op.output_names:
            text(f"if type(d_{n}) is not nd: d_{n} = asarray(d_{n})")
            _new_tensor(text, f"o_{n}", f"d_{n}")
            text(f"o_{n}._counter = o_{n}._view = o_{n}._node = None; o_{n}._nr = 0; o_{n}._requires = False")
        text("if everywhere.unusual: " + "; ".join([f"mark(o_{n})" for n in op.output_names]))


def _step_arguments(op):
    return "".join(f"{p}, " for p in op.parameters if op.roles[p] == PLAIN)


def _new_tensor(text, name, data):
    text(f"{name} = new(T)")
    text(f"{name}._array = {data}; {name}._grad = {name}._leaf = {name}._hooks = None")


def _record(text, op, on_cuda):
    """The node, if anything that flows into it needs a gradient and this thread records."""
    for p in op.edges:
        if op.roles[p] != LIST:
            name = public(p)
            present = f"{name} is not None and " if op.roles[p] == OPTIONAL else ""
            text(f"if {present}{name}._view is not None and {name}._view.seen != {name}._counter.count: refresh({name})")
    wanted = []
    for p in op.edges:
        name = public(p)
        wanted.append({TENSOR: f"{name}._requires", OPTIONAL: f"({p} is not None and {p}._requires)",
                       LIST: f"any_requires({p})"}[op.roles[p]])
    wanted = f"({' or '.join(wanted)})" if len(wanted) > 1 else wanted[0]
    condition = f"{wanted} and (mode := local.state.mode)"
    if op.may_be_integer:
        condition += " and data.dtype.kind in 'fcV'"
    with text.block(f"if {condition}:"):
        text("node = N()")
        text("node._rare = " + ("on_stream()" if on_cuda else "None"))
        _record_edges(text, op)
        text("node._seq = seq = next_seq()")
        text("if not seq % PRIME: node.__class__ = NU")
        _record_saved(text, op)
        if op.outputs == 1:
            text("out._node = node; out._nr = 0; out._requires = True")
        elif op.outputs == "list":
            text("attach_list(node, outs)")
        else:
            text("node._result_meta = (" + "".join(f"(d_{n}.shape, d_{n}.dtype), " for n in op.output_names) + ")")
            for i, n in enumerate(op.output_names):
                if op.differentiable[i]:
                    text(f"o_{n}._node = node; o_{n}._nr = {i}; o_{n}._requires = True")
        text(f"if mode == 2: rare(node, local.state, {_made(op)})")
    with text.block("else:"):
        if op.outputs == 1:                  # a view made while nothing is recorded requires what its base does, and is a leaf
            text(f"out._node = None; out._nr = 0; out._requires = {'view.base._requires' if op.is_view else 'False'}")
            if op.is_view:
                text("if not local.state.records(): view.step = unrecorded(view.step)")
        text(f"if everywhere.unusual: unusual({_made(op)})")


def _made(op):
    """What was computed from what, as Python text: the op, its results, its arguments, its aux values."""
    outs = "(out,)" if op.outputs == 1 else "outs" if op.outputs == "list" else "(" + "".join(f"o_{n}, " for n in op.output_names) + ")"
    arguments = "".join(f"{public(p) if op.roles[p] == TENSOR else p}, " for p in op.parameters)
    return f"op, {outs}, ({arguments}), ({''.join(f's_{a}, ' for a in op.aux)})"


def _record_edges(text, op):
    parts = []
    for i, p in enumerate(op.edges):
        name = public(p)
        if op.roles[p] == LIST:
            parts.append(f"*[edge_of(t) for t in {p}]")
            text(f"node.{p}_shape = [a.shape for a in a_{p}]; node.{p}_dtype = [t._array.dtype for t in {p}]")
            continue
        meta = f"a = {name}._array; node.{p}_shape = a.shape; node.{p}_dtype = a.dtype"
        if op.arity <= 2:
            want = f"fn = {name}._node; node.n{i} = leaf_node({name}) if fn is None else fn; node.i{i} = {name}._nr; {meta}"
            if op.arity == 1:
                text(want)
            else:
                text(f"if {name}._requires: {want}" if op.roles[p] == TENSOR else f"if {name} is not None and {name}._requires: {want}")
                if f"{p}_shape" in op.named_anywhere:
                    text(f"else: node.n{i} = None; node.i{i} = 0; a = {name}._array; node.{p}_shape = a.shape")
                else:
                    text(f"else: node.n{i} = None; node.i{i} = 0")
        else:
            present = f"if {name} is not None: " if op.roles[p] == OPTIONAL else ""
            text(present + meta)
            parts.append(f"edge_of({name})" if op.roles[p] == TENSOR else f"NO_EDGE if {name} is None else edge_of({name})")
    if op.arity > 2:
        text(f"node._edge_list = ({', '.join(parts)},)")


def _record_saved(text, op):
    for p in op.saved_inputs:
        name = public(p)
        if op.roles[p] == LIST:
            text(f"node.s_{p} = tuple({p}); node.k_{p} = [0 if t._counter is None else t._counter.count for t in {p}]")
            continue
        save = f"node.s_{p} = {name}; v = {name}._counter; node.k_{p} = 0 if v is None else v.count"
        conditions = []
        if op.roles[p] == OPTIONAL:
            conditions.append(f"{name} is not None")
        if _is_saved_by_need(op, p):
            i = op.edges.index(*op.users[p])
            conditions.append(f"node.n{i} is not None" if op.arity <= 2 else f"node._edge_list[{i}][0] is not None")
        if conditions:
            text(f"if {' and '.join(conditions)}: {save}")
            text(f"else: node.s_{p} = None")
        else:
            text(save)
    for r in op.saved_results:
        out, data = ("out", "data") if op.outputs == 1 else (f"o_{r}", f"d_{r}")
        text(f"v = {out}._counter")
        text(f"if v is None: v = {out}._counter = new(Version); v.count = 0")
        text(f"node.s_{r} = {data}; node.c_{r} = v; node.k_{r} = v.count")
    for a in op.saved_aux:
        text(f"node.s_{a} = s_{a}")
    for s in op.saved_plain:
        text(f"node.{s} = {_plain_source(op, s)}")


def _is_saved_by_need(op, name):
    """Whether a node keeps an input only where the gradient that uses it is wanted: one that several use is always kept, as in PyTorch."""
    return name in op.saved_inputs and len(op.edges) > 1 and not op.list_edge and len(op.users[name] or ()) == 1


def _plain_source(op, name):
    for suffix, attribute in (("_shape", "shape"), ("_dtype", "dtype")):
        stem = name.removesuffix(suffix)
        if stem != name and op.roles.get(stem) in (TENSOR, LIST):
            return f"{public(stem)}._array.{attribute}" if op.roles[stem] == TENSOR else f"[t._array.{attribute} for t in {stem}]"
    if name == "dim":
        return "tuple(dim) if dim.__class__ is list else dim"      # the caller may change the list before backward
    return name


def _returned(op):
    if op.outputs == 1:
        return "out"
    if op.outputs == "list":
        return "tuple(outs)"
    shown = [f"o_{n}" for n in op.output_names if n not in op.hidden]
    if len(shown) == 1:
        return shown[0]
    return f"result_type(({', '.join(shown)}))" if op.result_type else f"({', '.join(shown)})"
