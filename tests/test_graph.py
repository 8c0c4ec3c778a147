"""Edges, and hooks on gradients: each program gives what it gives in PyTorch; then what only ours promises."""
import functools
import traceback
import weakref

import pytest

import autograd_gpu
from autograd_gpu.autograd.graph import register_multi_grad_hook
from tests.parity import result

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def leaf(torch, n=2):
    return torch.arange(1.0, n + 1, dtype=torch.float64).requires_grad_()


def edge(torch, t):
    return torch.autograd.graph.get_gradient_edge(t)


def ones(torch, *shape):
    return torch.ones(*shape, dtype=torch.float64)


def backward(y):
    y.sum().backward()


def each(name, programs):
    """A program for each of some short ones."""
    def run(torch):
        return [result(f, torch) for f in programs]
    run.__name__ = name
    program(run)


# ------------------------------------------------------------------------------------------------------------------ edges

def outputs(*gradients, make=lambda torch, x: [edge(torch, x * 2)]):
    def run(torch):
        x = leaf(torch)
        return torch.autograd.grad(make(torch, x), x, [g(torch) if callable(g) else g for g in gradients])
    return run


each("edges_as_outputs", [
    outputs(None), outputs(lambda torch: ones(torch, 2)), outputs(lambda torch: ones(torch, 3)), outputs(lambda torch: ones(torch, 1, 2)),
    outputs(lambda torch: torch.ones(2)), outputs(lambda torch: torch.ones(2, dtype=torch.complex128)), outputs("a"), outputs(),
    outputs(None, make=lambda torch, x: [edge(torch, x.sum())]), outputs(None, make=lambda torch, x: [edge(torch, x[:1])]),
    outputs(None, make=lambda torch, x: [edge(torch, (x * 1j).sum())]),
    outputs(lambda torch: ones(torch, 2), None, make=lambda torch, x: [edge(torch, x * 3), (x * 2).sum()]),
    outputs(lambda torch: ones(torch, 2), make=lambda torch, x: [edge(torch, x)]),
    outputs(lambda torch: ones(torch, 2), make=lambda torch, x: [torch.autograd.graph.GradientEdge((x * 2).grad_fn, 0)]),
    outputs(lambda torch: ones(torch), make=lambda torch, x: [torch.autograd.graph.GradientEdge((x * 2).grad_fn, 0)]),
    outputs(lambda torch: ones(torch, 1), make=lambda torch, x: edge(torch, x.split(1)[1])),
    outputs(lambda torch: ones(torch, 3, 2)),
])


@program
def a_node_of_any_number_of_results_is_called(torch):
    x = torch.arange(6, dtype=torch.float64, requires_grad=True)
    a, b = (x.reshape(2, 3) * 1).unbind()
    node = a.grad_fn
    with pytest.raises(TypeError):
        node(b.detach())
    return node(torch.ones(3, dtype=torch.float64), b.detach())


@program
def a_leaf_that_got_a_history(torch):
    told = []

    def tell(g):
        told.append("hook")
    for hooked in (False, True):
        x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
        if hooked:
            x.register_hook(tell)
        z = x * y
        x.requires_grad_(False)
        x += y * 2
        told += [x.grad_fn.name(), result(lambda torch, z=z: z.sum().backward(), torch), x.grad, y.grad]
        told += [result(lambda torch, x=x: (x * 3).sum().backward(), torch), y.grad]
    return told


@program
def hooks_of_a_leaf_that_stopped_to_require_grad(torch):
    log = []
    for change in (lambda x: x.detach_(), lambda x: x.requires_grad_(False)):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        x.register_hook(lambda g: log.append("tensor"))
        x.register_post_accumulate_grad_hook(lambda t: log.append((t.requires_grad, t.grad is None)))
        y = x * 2
        node = y.grad_fn.next_functions[0][0]
        node.register_prehook(lambda grads: log.append("pre"))
        node.register_hook(lambda results, grads: log.append("post"))
        change(x)
        y.sum().backward()
        log.append(x.grad is None)
    return log


@program
def edges_as_outputs_of_backward(torch):
    x = leaf(torch)
    torch.autograd.backward(edge(torch, x * 3), ones(torch, 2))
    torch.autograd.backward([edge(torch, x * 3), (x * 2).sum()], [ones(torch, 2), None])
    torch.autograd.backward([edge(torch, x)], [ones(torch, 2)])
    torch.autograd.backward(edge(torch, x.sum()), inputs=edge(torch, x))
    return x.grad


def inputs(choose, **options):
    def run(torch):
        x = leaf(torch)
        h = x * 2
        found = torch.autograd.grad((h * 3).sum(), choose(torch, x, h), **options)
        return list(found.values()) if isinstance(found, dict) else found
    return run


each("edges_as_inputs", [
    inputs(lambda torch, x, h: edge(torch, h)), inputs(lambda torch, x, h: [edge(torch, h), x, edge(torch, x)]),
    inputs(lambda torch, x, h: [edge(torch, h), h]), inputs(lambda torch, x, h: {"h": edge(torch, h), "x": x}),
    inputs(lambda torch, x, h: edge(torch, x * 2)), inputs(lambda torch, x, h: edge(torch, x * 2), allow_unused=True),
    inputs(lambda torch, x, h: edge(torch, x * 2), materialize_grads=True),
    inputs(lambda torch, x, h: edge(torch, h), materialize_grads=True),
    inputs(lambda torch, x, h: [torch.autograd.graph.GradientEdge(h.grad_fn, 0)]),
    inputs(lambda torch, x, h: [torch.autograd.graph.GradientEdge(None, 0)]), inputs(lambda torch, x, h: 5),
    inputs(lambda torch, x, h: [5]), inputs(lambda torch, x, h: edge(torch, x.detach())),
])


@program
def edges_as_inputs_of_backward(torch):
    x = leaf(torch)
    h = x * 2
    h.sum().backward(inputs=edge(torch, h))
    told = [h.grad, x.grad]
    (x * 2).sum().backward(inputs=[edge(torch, x), leaf(torch)])
    return told, x.grad


@program
def edges_of_a_node_with_several_outputs(torch):
    a, b, c = leaf(torch, 6).chunk(3)
    places = [edge(torch, t) for t in (a, b, c)]
    y = (a * 2 + b * 3).sum()
    return ([(e.node is places[0].node, e.output_nr) for e in places],
            torch.autograd.grad(y, places, allow_unused=True, retain_graph=True),
            result(lambda torch: torch.autograd.grad(y, places), torch))


@program
def edges_of_a_function(torch):
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 3
    x = leaf(torch)
    p, q = Two.apply(x)
    place = edge(torch, q)
    return (place.node is p.grad_fn, place.output_nr, torch.autograd.grad(place, x, ones(torch, 2), retain_graph=True),
            torch.autograd.grad((p + q).sum(), [edge(torch, q), edge(torch, p)]))


@program
def an_edge_stays_where_it_was(torch):
    x = leaf(torch)
    h = x * 2
    before = edge(torch, h)
    h.mul_(3)
    return before == edge(torch, h), torch.autograd.grad(h.sum(), before)


@program
def an_edge_of_a_view_written_through_its_base(torch):
    x = leaf(torch, 4)
    h = x * 1
    v = h[:2]
    before = edge(torch, v).node.name()
    h.mul_(2)
    return before, edge(torch, v).node.name(), torch.autograd.grad(edge(torch, v), x, ones(torch, 2))


@program
def an_edge_keeps_the_graph(torch):
    x = leaf(torch)
    h = x ** 3
    place, kept = edge(torch, h), weakref.ref(h)
    del h
    return kept() is None, torch.autograd.grad(place, x, ones(torch, 2), create_graph=True), torch.autograd.grad(place, x, ones(torch, 2))


@program
def what_an_edge_is(torch):
    h = leaf(torch) * 2
    return tuple.__len__(edge(torch, h)), edge(torch, h)._fields, edge(torch, h) == edge(torch, h), edge(torch, h).ownership_token


@program
def captures_and_hooks(torch):
    x = leaf(torch)
    h = x * 2
    h.register_hook(lambda g: g * 10)
    h.grad_fn.register_prehook(lambda g: (g[0] * 7,))
    y = (h * 3).sum()
    both = torch.autograd.grad(y, [edge(torch, h), x], retain_graph=True)
    return both, torch.autograd.grad(y, edge(torch, h))


# ------------------------------------------------------------------------------------------------------- nodes and gradients

def returned(register, value):
    def run(torch):
        x = leaf(torch)
        y = x * 2
        register(x, y)(lambda *g: value(torch))
        backward(y)
        return x.grad
    return run


VALUES = [
    lambda torch: 5, lambda torch: "a", lambda torch: False, lambda torch: (), lambda torch: (1,), lambda torch: (None,),
    lambda torch: [ones(torch, 2)], lambda torch: (ones(torch, 2),), lambda torch: (ones(torch, 3),), lambda torch: (ones(torch, 2), None),
    lambda torch: ones(torch, 2), lambda torch: ones(torch, 3), lambda torch: torch.ones(2), lambda torch: torch.ones(2).long(),
    lambda torch: ones(torch, 1, 2), lambda torch: ones(torch, 2) * 1j,
]
for _name, _register in {"tensor_hook": lambda x, y: x.register_hook, "node_hook": lambda x, y: y.grad_fn.register_hook,
                         "node_prehook": lambda x, y: y.grad_fn.register_prehook,
                         "accumulated_hook": lambda x, y: x.register_post_accumulate_grad_hook}.items():
    each("what_a_" + _name + "_returns", [returned(_register, value) for value in VALUES])


def changed_while_running(register):
    """A hook that removes the next one, itself and adds another, over two backwards."""
    def run(torch):
        log, handles = [], []
        x = leaf(torch)
        y = x * 2

        def first(*g):
            log.append("first")
            handles[0].remove()
            handles[1].remove()
            register(x, y)(lambda *g: log.append("added"))
        handles.append(register(x, y)(first))
        handles.append(register(x, y)(lambda *g: log.append("second")))
        register(x, y)(lambda *g: log.append("third"))
        for _ in range(2):
            y.sum().backward(retain_graph=True)
        return log
    return run


each("hooks_changed_while_they_run", [changed_while_running(register) for register in (
    lambda x, y: x.register_hook, lambda x, y: y.register_hook, lambda x, y: y.grad_fn.register_hook,
    lambda x, y: y.grad_fn.register_prehook, lambda x, y: x.register_post_accumulate_grad_hook)])


@program
def hooks_added_from_another_kind(torch):
    log = []
    x = leaf(torch)
    y = x * 2

    def add(g):
        y.grad_fn.register_prehook(lambda *g: log.append("prehook"))
        y.grad_fn.register_hook(lambda *g: log.append("hook"))
        x.register_hook(lambda g: log.append("leaf"))
    y.register_hook(add)
    backward(y)
    return log


@program
def every_kind_of_hook_in_order(torch):
    log = []
    x = leaf(torch)
    y = x * 2
    accumulate = edge(torch, x).node
    accumulate.register_hook(lambda *g: log.append("accumulate hook"))
    accumulate.register_prehook(lambda *g: log.append("accumulate prehook"))
    x.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    x.register_hook(lambda g: log.append("leaf"))
    y.grad_fn.register_hook(lambda *g: log.append("hook"))
    y.grad_fn.register_prehook(lambda *g: log.append("prehook"))
    y.register_hook(lambda g: log.append("tensor"))
    backward(y)
    (x * 3).sum().backward(inputs=[x])
    torch.autograd.grad((x * 3).sum(), x)
    return log


@program
def handles_of_nodes(torch):
    log = []
    y = leaf(torch) * 2
    with y.grad_fn.register_hook(lambda *g: log.append("in")) as handle:
        y.sum().backward(retain_graph=True)
    backward(y)
    return log, handle.remove()


@program
def exceptions_keep_type_and_place(torch):
    class Stop(BaseException):
        pass
    told = []
    for kind in (KeyError, Stop, KeyboardInterrupt):
        for register in (lambda x, y: x.register_hook, lambda x, y: y.grad_fn.register_hook, lambda x, y: y.grad_fn.register_prehook,
                         lambda x, y: x.register_post_accumulate_grad_hook):
            def hook_that_raises(*g, kind=kind):
                raise kind("here")
            x = leaf(torch)
            y = x * 2
            register(x, y)(hook_that_raises)
            try:
                backward(y)
            except BaseException as error:  # noqa: BLE001 - what came out is the result
                told.append((type(error).__name__, "hook_that_raises" in [f.name for f in traceback.extract_tb(error.__traceback__)]))
    return told


@program
def metadata_and_kinds(torch):
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g
    x = leaf(torch)
    y = Own.apply(x)
    Node = torch.autograd.graph.Node
    y.grad_fn.metadata["note"] = 1
    return y.grad_fn.metadata, (x * 2).grad_fn.metadata, [isinstance(n, Node) for n in (y.grad_fn, (x * 2).grad_fn, edge(torch, x).node, x)]


@program
def hooks_of_several_outputs(torch):
    log = []
    x = leaf(torch, 4)
    a, b = x.split(2)
    a.register_hook(lambda g: log.append(("a", g.tolist())))
    b.register_hook(lambda g: log.append(("b", g)))
    a.grad_fn.register_prehook(lambda gs: log.append([g is None for g in gs]))
    a.grad_fn.register_hook(lambda gi, go: log.append(([g is None for g in gi], [g is None for g in go])))
    backward(a * 2)
    return log, x.grad


@program
def hooks_see_what_a_node_computes_where_not_all_of_it_is_wanted(torch):
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g * 2, g * 3
    told = []
    for op in (Own.apply, lambda a, b: a * b, lambda a, b: torch.stack([a, b]), lambda a, b: torch.cat([a, b])):
        a, b = leaf(torch), leaf(torch)
        y = op(a, b)
        y.grad_fn.register_hook(lambda gi, go: told.append([g if g is None else g.tolist() for g in gi]))
        torch.autograd.grad(y.sum(), b, retain_graph=True)
        y.sum().backward(inputs=[a])
        told.append((a.grad, b.grad))
    return told


@program
def a_hook_that_runs_a_backward(torch):
    x, w = leaf(torch), leaf(torch)

    def inner(g):
        with torch.enable_grad():
            backward(w * 3)
    x.register_hook(inner)
    backward(x * 2)
    return x.grad, w.grad


@program
def a_hook_on_the_gradient_of_a_gradient(torch):
    log = []
    x = leaf(torch)
    y = x ** 3

    def watch(g):
        g.register_hook(lambda gg: log.append(gg.tolist()))
    y.register_hook(watch)
    g, = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    backward(g)
    return log, x.grad


@program
def a_hook_that_keeps_gradients(torch):
    kept = []
    x = leaf(torch)
    x.register_hook(lambda g: kept.append(g))
    backward(x * 2)
    backward(x * 2)
    return kept, x.grad


@program
def hooks_where_no_gradient_arrives(torch):
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None
    told = []
    for answer in (None, ones(torch, 2)):
        for register in (lambda x, y: x.register_hook, lambda x, y: y.register_hook, lambda x, y: y.grad_fn.register_hook,
                         lambda x, y: y.grad_fn.register_prehook, lambda x, y: edge(torch, x).node.register_prehook,
                         lambda x, y: x.register_post_accumulate_grad_hook):
            log = []

            def hook(*g, log=log, answer=answer):
                log.append([t is None if t is None or isinstance(t, torch.Tensor) else [u is None for u in t] for t in g])
                return answer if answer is None or len(log[0]) == 1 and not isinstance(g[0], tuple) else (answer,) * len(g[0])
            x = leaf(torch)
            y = x.exp()
            register(x, y)(hook)
            told += [result(lambda torch, y=y: backward(Cut.apply(y)), torch), log, x.grad]
    x = leaf(torch, 4)
    a, b = x.split(2)
    a.grad_fn.register_prehook(lambda g: (g[0], ones(torch, 2)))
    y = x[:2] * ones(torch, 2)
    y.grad_fn.register_hook(lambda g, h: (g[0], ones(torch, 2)))
    return told, result(lambda torch: backward(a), torch), result(lambda torch: backward(y), torch)


@program
def hooks_on_recorded_gradients(torch):
    log, found = [], []
    for hook in (lambda g, x: g.mul_(3), lambda g, x: g * x, lambda g, x: log.append((g.requires_grad, g.is_leaf, g.grad_fn.name()))):
        for on_leaf in (False, True):
            x = leaf(torch)
            h = x ** 2
            (x if on_leaf else h).register_hook(functools.partial(hook, x=x))
            g, = torch.autograd.grad((h ** 2).sum(), x, create_graph=True)
            found += [g, torch.autograd.grad(g.sum(), x)]
    return log, found


@program
def versions(torch):
    x = leaf(torch)
    increment = torch.autograd.graph.increment_version
    told = [increment(x), x._version, increment([x, x.detach()]), x._version, increment(t for t in [x]), x._version]
    return told, [result(lambda torch, bad=bad: increment(bad), torch) for bad in (5, [5], [x, None])]


@program
def a_counted_write_is_noticed(torch):
    h = leaf(torch) * 1
    y = h * h
    torch.autograd.graph.increment_version(h)
    backward(y)


@program
def prototypes(torch):
    graph = torch.autograd.graph
    told = [result(lambda torch, b=b: graph.region_activation_memory_budget(b), torch) for b in (0.5, 2.0, "a", True)]
    return told, graph.set_warn_on_accumulate_grad_stream_mismatch(True), graph.set_override_stale_capture_stream(False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------ only ours

def edit(g):
    g.mul_(10)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("register", [
    lambda x, y: x.register_hook(edit), lambda x, y: y.register_hook(edit), lambda x, y: y.grad_fn.register_prehook(lambda g: edit(g[0])),
    lambda x, y: y.grad_fn.register_hook(lambda g, h: edit(g[0]) or edit(h[0])),
    lambda x, y: register_multi_grad_hook([x], lambda g: edit(g[0])),
])
def test_a_hook_that_edits_its_argument_changes_no_other_gradient(register, create_graph):
    torch = autograd_gpu
    x, other = leaf(torch), leaf(torch)
    y = x + 1
    register(x, y)
    given = ones(torch, 2).requires_grad_(create_graph)
    found = torch.autograd.grad([y + other, other * 1], [x, other], [given, given], create_graph=create_graph)
    assert found[0].tolist() == [10, 10] and found[1].tolist() == [2, 2] and given.tolist() == [1, 1]
    if create_graph:
        back, = torch.autograd.grad([found[0].sum()], [given], retain_graph=True)
        assert back.tolist() == [10, 10]


@pytest.mark.parametrize("nr", [1, -1, None, 1.0])
def test_an_edge_of_no_output_is_refused(nr):
    torch = autograd_gpu
    x = leaf(torch)
    y = x * 2
    wrong = torch.autograd.graph.GradientEdge(y.grad_fn, nr)
    for run in (lambda: torch.autograd.grad(y.sum(), wrong), lambda: torch.autograd.grad(wrong, x, ones(torch, 2)),
                lambda: y.sum().backward(inputs=wrong)):
        with pytest.raises(RuntimeError, match="output_nr"):
            run()


def test_an_edge_made_by_hand_needs_a_gradient():
    torch = autograd_gpu
    x = leaf(torch)
    place = torch.autograd.graph.GradientEdge(x.sum().grad_fn, 0)
    with pytest.raises(RuntimeError, match="get_gradient_edge"):
        torch.autograd.grad(place, x)


def test_a_hook_on_a_view_made_in_no_grad_does_not_run(oracle):
    def run(torch):
        x = torch.ones(2, 3, requires_grad=True)
        with torch.no_grad():
            v = x[0]
        seen = []
        v.register_hook(lambda g: seen.append(g.tolist()))
        (v * 2).sum().backward()
        return seen, v.grad, x.grad
    assert result(run, autograd_gpu) == result(run, oracle)


def _named(name):
    return lambda side, x, y: getattr(side, name)(x, y)


@pytest.mark.parametrize("op", [
    lambda side, x, y: x * y, lambda side, x, y: x / y, lambda side, x, y: x ** y, _named("bmm"),
    _named("hypot"), _named("logaddexp"), _named("ldexp"), lambda side, x, y: side.lerp(x, y, side.full((), 0.5, requires_grad=True))])
def test_gradients_are_recorded_and_saved_values_unpacked_in_pytorchs_order(oracle, op):
    orders = []
    for side in (autograd_gpu, oracle):
        x, y = (side.full((2, 2, 2), value, requires_grad=True) for value in (1.0, 2.0))
        unpacked = []
        with side.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t, unpacked=unpacked: (unpacked.append(t.tolist()), t)[1]):
            out = op(side, x, y)
        gradients = side.autograd.grad(out.sum(), (x, y), create_graph=True)
        unpacked_first, ran = list(unpacked), []
        for g, name in zip(gradients, "xy", strict=True):
            g.grad_fn.register_prehook(lambda _, ran=ran, name=name: ran.append(name))
        sum(g.sum() for g in gradients).backward()
        orders.append((unpacked_first, ran))
    assert orders[0] == orders[1]
