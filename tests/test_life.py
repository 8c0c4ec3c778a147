"""With the collector off nothing outlives its tensors; what a user's cycle keeps, the collector reclaims."""
import copy
import gc
import pickle
import tracemalloc
import weakref

import numpy as np
import pytest

import autograd_gpu
import autograd_gpu as torch
from autograd_gpu.engine.node import Node
from autograd_gpu.ops.namespace import REGISTRY
from tests.cuda.programs import PROGRAMS, operands
from tests.samples import ELEMENTWISE, call, operands_for


def living():
    """How many nodes and tensors there are."""
    return sum(issubclass(type(o), (Node, torch.Tensor)) for o in gc.get_objects())       # isinstance would ask lazy modules


@pytest.fixture(autouse=True)
def collector_off():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaves_nothing(*programs):
    """Programs, each run once before for what lasts (numbers kept as tensors, what is made at first use), leave no node and no tensor."""
    for program in programs:
        program()
    gc.collect()
    before = living()
    for program in programs:
        program()
    if living() != before and len(programs) > 1:
        for program in programs:
            leaves_nothing(program)
    assert living() == before, programs


def elementwise(name):
    record = REGISTRY[name]
    arrays = operands_for(record, np.random.default_rng(1), (3,))

    def program():
        operands = {p: torch.from_numpy(a) for p, a in arrays.items()}
        leaves = [t.requires_grad_() for t in operands.values() if t.is_floating_point()]
        y = call(record, operands)
        y.sum().backward(retain_graph=True)
        torch.autograd.grad(y.sum(), leaves, create_graph=True, allow_unused=True)
        call(record, operands)               # dropped without a backward
    program.__name__ = name
    return program


def other(name):
    f = PROGRAMS[name][0]

    def program():
        leaves = [torch.from_numpy(a).requires_grad_() for a in operands(name)]
        f(*leaves).sum().backward(retain_graph=True)
        f(*leaves)
    program.__name__ = name
    return program


def test_every_op():
    leaves_nothing(*[elementwise(name) for name in ELEMENTWISE], *[other(name) for name in PROGRAMS])


def hooked():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y.retain_grad()
    x.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: None)
    y.grad_fn.register_hook(lambda gi, go: None)
    y.grad_fn.register_prehook(lambda go: None)
    x.register_post_accumulate_grad_hook(lambda x: None)
    torch.autograd.graph.register_multi_grad_hook((x, y), lambda grads: None)
    y.sum().backward()


def views_and_writes():
    x = torch.ones(2, 3, requires_grad=True)
    h = x * 2
    v = h[0].view(3)[1:]
    v.mul_(3)
    h.t()[0].exp_()
    g, = torch.autograd.grad((h * v.sum()).sum(), x, create_graph=True)
    g.sum().backward()
    x.grad = None


def custom():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            ctx.attribute = x
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2
    for part in (lambda h: h, lambda h: h[:1]):
        Writes.apply(part(torch.ones(2, requires_grad=True) * 1)).sum().backward()
        Writes.apply(part(torch.ones(2, requires_grad=True) * 1))
    Both.apply(torch.ones(2, requires_grad=True)).sum().backward()
    torch.autograd.grad(Both.apply(torch.ones(2, requires_grad=True)).sum(), torch.ones(2, requires_grad=True), allow_unused=True)


def packed():
    with torch.autograd.graph.save_on_cpu(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = (torch.ones(2, requires_grad=True) * 2).exp().sum()
    y.backward()


def failed():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    z = (y * y).sum()
    with torch.no_grad():
        y.zero_()
    try:
        z.backward()
    except RuntimeError:
        return
    raise AssertionError


def split_and_anomaly():
    with torch.autograd.set_detect_anomaly(True):
        a, b = torch.ones(4, requires_grad=True).split(2)
        (a * b).sum().backward()


@pytest.mark.parametrize("program", [hooked, views_and_writes, packed, failed, split_and_anomaly], ids=lambda f: f.__name__)
def test_nothing_is_left(program):
    leaves_nothing(program)


def test_a_custom_function_leaves_no_node():
    custom()                                 # its class is a cycle, as every class is; its nodes and tensors are not
    gc.collect()
    before = living()
    custom()
    assert living() == before


def test_freezing_and_unfreezing_keeps_no_record():
    p = torch.ones(3)
    p.add_(1)

    def freeze(times):
        for _ in range(times):
            p.requires_grad_()
            p.requires_grad_(False)
    freeze(100)
    tracemalloc.start()
    try:
        freeze(2000)
        assert tracemalloc.get_traced_memory()[0] < 2000 and p._version == 1
    finally:
        tracemalloc.stop()


def test_the_users_cycles_are_reclaimed():
    def hook_over_its_tensor():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.register_hook(lambda g: y * g)
        return weakref.ref(y.grad_fn)

    def create_graph():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        with pytest.warns(UserWarning, match="create_graph"):
            y.sum().backward(create_graph=True)
        return weakref.ref(y.grad_fn)

    def output_on_ctx():
        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.result = x * 2
                return ctx.result

            @staticmethod
            def backward(ctx, g):
                return g * 2
        return weakref.ref(Keeps.apply(torch.ones(2, requires_grad=True)).grad_fn)
    for make in (hook_over_its_tensor, create_graph, output_on_ctx):
        node = make()
        assert node() is not None
        gc.collect()
        assert node() is None, make.__name__


def test_copies_and_pickles_of_leaves():
    x = torch.ones(2, 3).t().requires_grad_()
    (x * 2).sum().backward()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again is not x and again.tolist() == x.tolist() and again.requires_grad and again.is_leaf and again.dtype is x.dtype
        assert again.stride() == x.stride() and not np.shares_memory(again.detach().numpy(), x.detach().numpy())
    deep = copy.deepcopy({"a": x, "b": [x, x.detach()]})
    assert deep["a"] is deep["b"][0] and deep["a"].grad.tolist() == x.grad.tolist() and deep["a"].grad is not x.grad
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 2, lambda x: x[:1], lambda x: (x * 2)[:1], lambda x: x.detach()],
                         ids=["leaf", "result", "view", "view of a result", "detached"])
@pytest.mark.parametrize("again", [copy.copy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "pickle"])
def test_what_is_copied_or_pickled_is_a_leaf(make, again, oracle):
    def run(torch):
        t = make(torch.tensor([1.0, 2.0], requires_grad=True))
        new = again(t)
        with torch.no_grad():
            new.zero_()
        return t.tolist(), new.shape, new.requires_grad, new.is_leaf, new._is_view(), type(new).__name__
    assert run(autograd_gpu) == run(oracle)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)), torch.utils.data.default_convert],
                         ids=["copy", "deepcopy", "pickle", "convert"])
@pytest.mark.parametrize("make", [lambda x: x.max(1), lambda x: x.topk(1), lambda x: torch.linalg.slogdet(x), lambda x: x.aminmax()])
def test_a_result_of_several_parts_is_copied_and_pickled(make, again):
    found = make(torch.tensor([[2.0, 1.0], [0.0, 3.0]]))
    new = again(found)
    assert type(new) is type(found) and new is not found and repr(new) == repr(found)


def test_a_copied_parameter_shares_its_memory(oracle):
    def run(torch):
        p = torch.nn.Parameter(torch.ones(2))
        q = copy.copy(p)
        q.data.zero_()
        return type(q).__name__, q.requires_grad, p.tolist()
    assert run(autograd_gpu) == run(oracle)
