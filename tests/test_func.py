"""torch.func: each program on PyTorch and on this package."""
import collections
import threading

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.tree import flatten, spread, unflatten
from tests.parity import filled, result, said
from tests.test_functional import check, same, tensors, told

PROGRAMS = {}
Point = collections.namedtuple("Point", "x y")


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def each(torch, *programs):
    """The outcomes of short programs."""
    return [result(f, torch, told) for f in programs]


def x(torch, *shape, **options):
    return tensors(torch, shape or (3,), **options)


@program
def gradients(torch):
    grad = torch.func.grad
    a, b = tensors(torch, (2, 2), (2,))
    tree = {"a": a, "rest": [b, (a * 2, b)]}
    return (grad(lambda t: (t ** 3).sum())(x(torch)), grad(lambda p, q: (p ** 2 @ q).sum(), 1)(a, b),
            grad(lambda p, q: (p ** 2 @ q).sum(), (1, 0))(a, b), grad(lambda p, q: (p ** 2 @ q).sum(), -1)(a, b),
            grad(lambda t: (t["a"] @ t["rest"][0]).sum() + t["rest"][1][0].sum())(tree),
            grad(lambda p, q=1: (p ** q).sum())(a, q=3), grad(lambda p, k: (p * k).sum())(a, 2.0),
            grad(lambda p, q: (p * q["b"]).sum(), argnums=(0,))(a, {"b": b}),
            grad(lambda t: (t.x * t.y).sum())(Point(a, a * 2)).y, grad(lambda t: a.sum())(b))


@program
def values_and_aux(torch):
    f = lambda t: ((t ** 2).sum(), (t * 2, {"t": t}))
    return (torch.func.grad_and_value(lambda t: (t ** 2).sum())(x(torch)), torch.func.grad(f, has_aux=True)(x(torch)),
            torch.func.grad_and_value(f, has_aux=True)(x(torch)), torch.func.vjp(f, x(torch), has_aux=True)[::2],
            torch.func.jvp(f, (x(torch),), (x(torch),), has_aux=True), torch.func.jacrev(f, has_aux=True)(x(torch)),
            torch.func.jacfwd(f, has_aux=True)(x(torch)))


@program
def what_is_tracked(torch):
    """A result requires grad where it depends on something outside that does."""
    w, plain = x(torch, requires_grad=True), x(torch)
    grad = torch.func.grad
    f = lambda t: (t ** 3).sum()
    told = [grad(f)(w), grad(f)(plain), grad(lambda t: (t * t * w).sum())(plain), grad(lambda t: (t * t + w).sum())(plain),
            grad(lambda t: (t * w.detach()).sum())(plain), torch.func.vjp(lambda t: t * w, plain)[0],
            torch.func.vjp(lambda t: t * w, plain)[1](plain), torch.func.vjp(lambda t: t * t, plain)[1](w),
            torch.func.jvp(lambda t: t * t * w, (plain,), (plain,)), torch.func.jvp(lambda t: t * t, (plain,), (w,)),
            torch.func.jacrev(lambda t: t * t)(w), torch.func.jacrev(lambda t: t * t)(plain), torch.func.jacfwd(lambda t: t ** 3)(w),
            torch.func.hessian(f)(w), torch.func.hessian(f)(plain)]
    with torch.no_grad():
        told += [grad(f)(w), grad(grad(lambda t: t ** 3))(w[0]), torch.func.vjp(lambda t: t * t, w)[1](plain)]
    told += [grad(lambda t: no_grad_inside(torch, t))(w)]
    other, inner = x(torch, 3), lambda t: grad(lambda u: (u ** 2 * t).sum())(other)          # what is left of `inner` leads nowhere outside
    _, pull = torch.func.vjp(torch.sin, other)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        told += [transform(inner)(plain), transform(inner)(w), transform(lambda t: torch.func.jacrev(lambda u: u ** 2 * t)(other))(plain)]
    told += [grad(lambda t: inner(t).sum())(plain), torch.func.vjp(inner, plain)[0], torch.func.vjp(inner, plain)[1](plain),
             torch.func.grad_and_value(lambda t: torch.func.vjp(lambda u: u ** 2 * t, other)[0].sum())(plain),
             grad(lambda t: (t * pull(t)[0]).sum())(plain), torch.func.hessian(lambda t: (inner(t) * t).sum())(plain),
             grad(lambda t: grad(lambda u: (inner(u) * t).sum())(other).sum())(plain)]
    return told


def no_grad_inside(torch, t):
    with torch.no_grad():
        c = t ** 2
    return (t - c).sum()


@program
def nested(torch):
    grad = torch.func.grad
    s = torch.tensor(0.7, dtype=torch.float64)
    inner = lambda p: grad(lambda q: p * q ** 2)(p)              # d/dq, then q = p: 2 p^2
    return (grad(grad(torch.sin))(s), grad(grad(grad(lambda t: t ** 5)))(s), grad(inner)(s),
            grad(lambda p: p * grad(lambda q: p * q)(s))(s), torch.func.jacfwd(torch.func.jacfwd(lambda t: (t ** 4).sum()))(x(torch)),
            torch.func.jacrev(torch.func.jacrev(torch.sin))(x(torch)),
            torch.func.jvp(grad(lambda t: (t ** 4).sum()), (x(torch),), (x(torch),)),
            grad(lambda t: torch.func.jvp(torch.sin, (t,), (t,))[1].sum())(x(torch)),
            torch.func.jvp(lambda t: torch.func.jvp(torch.exp, (t * t,), (t,))[1], (s,), (s,)))


@program
def outside_differentiates_inside(torch):
    w = x(torch, requires_grad=True)
    g = torch.func.grad(lambda t: (t ** 3).sum())(w)
    first, = torch.autograd.grad(g.sum(), w)
    v = x(torch, requires_grad=True)
    out, vjp_fn = torch.func.vjp(lambda t: t ** 3, w)
    second = torch.autograd.grad(vjp_fn(v)[0].sum(), [w, v], retain_graph=True)
    torch.func.grad(lambda t: (t ** 2).sum())(x(torch))
    return first, second, torch.autograd.grad(out.sum(), w), w.grad


@program
def products(torch):
    a, b = tensors(torch, (2, 2), (2,))
    f = lambda p, q: {"out": p @ q, "rest": (p.sum(), q["none"] if isinstance(q, dict) else q * 2)}
    out, vjp_fn = torch.func.vjp(f, a, b)
    one = torch.ones(2, dtype=torch.float64)
    cot = {"out": one, "rest": (torch.ones((), dtype=torch.float64), one)}
    lin_out, jvp_fn = torch.func.linearize(lambda t: t.sin(), b)
    return (out, vjp_fn(cot), vjp_fn(cot), torch.func.jvp(f, (a, b), (a * 2, b * 3)), lin_out, jvp_fn(one), jvp_fn(b),
            torch.func.jvp(lambda t: (t * 2, torch.ones(2)), (b,), (b,)), torch.func.vjp(lambda t: t[0] * t[1], (a, a))[1](a),
            torch.func.vjp(lambda t: torch.ones(2), b)[1](torch.ones(2)))


@program
def jacobians(torch):
    a, b = tensors(torch, (2, 2), (2,))
    f = lambda p, q: p.sin() @ q
    g = lambda p, q: {"s": (p * q).sum(), "m": (p, torch.ones(3, dtype=torch.float64))}
    told = []
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        told += [transform(torch.sin)(b), transform(f)(a, b), transform(f, 1)(a, b), transform(f, (0, 1))(a, b), transform(f, (1,))(a, b),
                 transform(g, argnums=(0, 1))(a, b), transform(lambda t: t["a"] * t["b"])({"a": b, "b": b * 2}),
                 transform(lambda t: t[0] ** 2)(b), transform(torch.sin)(b[0]), transform(lambda t: t[:0] * 2)(b),
                 transform(lambda t: t * 2)(b[:0])]
    return told, torch.func.hessian(lambda p, q: (p ** 2 @ q).prod(), (0, 1))(a, b), torch.func.jacrev(torch.sin, chunk_size=1)(b)


@program
def wrong_calls(torch):
    F, a = torch.func, x(torch, 2)
    return each(
        torch, lambda _: F.grad(lambda t: t)(a), lambda _: F.grad(lambda t: (t, t))(a), lambda _: F.grad(lambda t: t.sum(), 1)(a),
        lambda _: F.grad(lambda t: t.sum(), ())(a), lambda _: F.grad(lambda t: t.sum(), (0, 0))(a),
        lambda _: F.grad(lambda t: t.sum(), "0")(a),
        lambda _: F.grad(lambda t: t.sum())(3.0), lambda _: F.grad(lambda t: t.sum(), has_aux=True)(a),
        lambda _: F.grad(lambda t: (t.sum(), 5), has_aux=True)(a), lambda _: F.grad(lambda t: t.sum())(torch.ones(2, dtype=torch.int64)),
        lambda _: F.vjp(lambda t: None, a), lambda _: F.vjp(lambda t: (t, 5), a), lambda _: F.vjp(lambda t: t.long(), a),
        lambda _: F.vjp(lambda t: t, a)[1]((a,)), lambda _: F.vjp(lambda t: t, a)[1](torch.ones(3, dtype=torch.float64)),
        lambda _: F.jvp(lambda t: t, a, a), lambda _: F.jvp(lambda t: t, (a,), (a, a)), lambda _: F.jvp(lambda t: t, (), ()),
        lambda _: F.jvp(lambda t: t, (3.0,), (3.0,)), lambda _: F.jvp(lambda t: t, (a,), (a[0],)),
        lambda _: F.jvp(lambda t: torch.ones(2), (a,), (a,), strict=True), lambda _: F.jvp(lambda t: 5, (a,), (a,)),
        lambda _: F.jacrev(lambda t: t)(a.to(torch.complex128)), lambda _: F.jacfwd(lambda t: t)(a.to(torch.complex128)),
        lambda _: F.jacrev(lambda t: t + 1j)(a), lambda _: F.jacrev(lambda t: t, chunk_size=0), lambda _: F.jacrev(lambda t: t.long())(a),
        lambda _: F.jacfwd(lambda t: t, randomness="some")(a), lambda _: F.linearize(torch.sin, a)[1](a.float()),
        lambda _: F.vjp(torch.sin, a)[1](1.0))


@program
def mapped(torch):
    vmap, grad = torch.vmap, torch.func.grad
    a, b = tensors(torch, (3, 2), (3, 2, 2))
    loss = lambda w, t: ((w @ t) ** 2).sum()
    return (vmap(torch.dot)(a, a), vmap(lambda t: (t, {"s": t.sum()}))(a), vmap(torch.mv, (0, 0))(b, a), vmap(torch.sin, 1)(a),
            vmap(torch.sin, 1, 1)(a), vmap(torch.sin, out_dims=(1,))(a), vmap(torch.sin, -1, -1)(a),
            vmap(lambda p, q: p * q, (0, None))(a, a[0]),
            vmap(lambda t: t["a"] + t["b"], ({"a": 0, "b": None},))({"a": a, "b": a[0]}), vmap(lambda t, k: t * k, (0, None))(a, 3.0),
            vmap(lambda t: (t, t.sum()), out_dims=(1, 0))(a), vmap(lambda t, k=1: t * k)(a, k=2),
            vmap(grad(loss), (None, 0))(b[0], a), vmap(vmap(lambda t: t * 2))(a), grad(lambda t: vmap(torch.dot)(t, t).sum())(a),
            vmap(torch.sin, chunk_size=2)(a), vmap(lambda t, k: t + k)(a, k=a), vmap(lambda t: (t, b, 5), out_dims=(0, None, None))(a),
            vmap(lambda t: torch.zeros(2), out_dims=None)(a), vmap(lambda t: (t * 2).sum())(x(torch, 3, 2, requires_grad=True)))


@program
def results_of_several_parts(torch):
    """Named tuples of the library's own, as what a transform takes and gives."""
    a, one = x(torch, 3, 2), x(torch, 2)
    slogdet = lambda t: torch.linalg.slogdet(t.outer(t) + torch.eye(2, dtype=torch.float64))
    told = [torch.vmap(lambda t: t.sort())(a), torch.vmap(lambda t: t.max(0))(a), torch.vmap(lambda t: t.sort(), out_dims=(1, 0))(a),
            torch.vmap(lambda t: t.values)(a.max(1)), torch.vmap(slogdet)(a), torch.func.jacrev(slogdet)(one).logabsdet,
            torch.func.jvp(slogdet, (one,), (one,))[1].logabsdet, torch.func.grad(lambda t: (t.sum(), t.max(0)), has_aux=True)(one)]
    return told, type(told[0]).__name__, told[0].indices, type(told[5:]).__name__


@program
def what_a_function_writes_to(torch):
    """A transform that calls a function once for each direction calls it each time with the values that it was given."""
    a, b = x(torch, 2), x(torch, 2)
    twice = lambda t: t.mul_(2).pow(2)
    told = [torch.func.jacfwd(twice)(a), a, torch.autograd.functional.jacobian(twice, b, vectorize=True, strategy="forward-mode"), b]
    return told, each(torch, lambda _: torch.vmap(lambda p, q: q.add_(p), (0, None))(x(torch, 2, 2), x(torch, 2)),
                      lambda _: torch.vmap(lambda p, q: q.add_(1) * p, (0, None))(x(torch, 1, 2), x(torch, 2)))


@program
def mapped_wrongly(torch):
    vmap, a = torch.vmap, x(torch, 3, 2)
    return each(
        torch, lambda _: vmap(torch.sin, None)(a), lambda _: vmap(torch.sin, [0])(a), lambda _: vmap(torch.sin)(),
        lambda _: vmap(torch.add, (0, 0, 0))(a, a), lambda _: vmap(torch.sin, 2)(a), lambda _: vmap(torch.sin, "0")(a),
        lambda _: vmap(torch.add)(a, 3.0), lambda _: vmap(torch.add)(a, a[:2]), lambda _: vmap(torch.sin, (None,))(a),
        lambda _: vmap(lambda t: 5)(a), lambda _: vmap(torch.sin, out_dims=(0, 0))(a), lambda _: vmap(torch.sin, chunk_size=0)(a),
        lambda _: vmap(torch.sin, out_dims=None)(a), lambda _: vmap(lambda t: t[0], in_dims=([0],))([a, a]),
        lambda _: vmap(torch.sin, randomness="some")(a), lambda _: vmap(lambda t: t + torch.rand(2))(a),
        lambda _: vmap(torch.sin, ("0",))(a), lambda _: vmap(torch.sin, out_dims="0")(a), lambda _: vmap(torch.sin, out_dims=0.5)(a),
        lambda _: vmap(lambda t: (t, t), out_dims=(0, "0"))(a), lambda _: vmap(torch.sin, out_dims=[0])(a),
        lambda _: vmap(lambda t: t + torch.rand(2), randomness="different")(a).shape,
        lambda _: vmap(lambda t: torch.rand(2) + 0 * t, randomness="same")(a).std(0).sum())


class Shared:
    """A module with a tied parameter, a buffer and a submodule."""

    def __new__(cls, torch):
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Parameter(torch.ones(2))
                self.b = self.a
                self.inner = torch.nn.Linear(2, 2)
                self.register_buffer("count", torch.zeros(2))
                self.plain = torch.ones(2)

            def forward(self, t, scale=1.0):
                self.count += 1
                return self.inner(t) * self.a + self.b * scale + self.plain
        return filled(torch, Module())


@program
def forward_mode_and_transforms(torch):
    """Each inside of the other; a Function that has nothing but a jvp."""
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(t):
            return t ** 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def jvp(ctx, v):
            return 3 * ctx.saved_tensors[0] ** 2 * v
    a, w = x(torch, 2), x(torch, 2, requires_grad=True)
    f = lambda t: (t ** 4).sum()
    told = [torch.func.jvp(Cube.apply, (a,), (a,)),
            torch.autograd.functional.jacobian(Cube.apply, a, vectorize=True, strategy="forward-mode"),
            torch.func.jvp(lambda t: torch.func.vjp(torch.exp, t)[1](t)[0], (a,), (a,)),
            torch.func.jvp(lambda t: torch.func.grad(f)(t) * w, (a,), (a,)), torch.func.jvp(torch.func.jacrev(torch.sin), (a,), (a,)),
            torch.func.grad(lambda t: torch.func.jvp(torch.func.grad(f), (t,), (a,))[1].sum())(a)]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, a * 2)
        for made in (torch.func.grad(f)(dual), torch.func.jacrev(torch.sin)(dual), torch.func.vjp(torch.exp, dual)[1](a)[0],
                     torch.func.grad(torch.func.grad(lambda t: t ** 3))(dual[0])):
            told.append(list(torch.autograd.forward_ad.unpack_dual(made)))
    return told


@program
def modules_with_other_tensors(torch):
    call, t = torch.func.functional_call, torch.ones(1, 2)
    module = Shared(torch)
    own = {k: v.detach() for k, v in module.named_parameters()}
    two = torch.full((2,), 2.0)
    buffers = {"count": torch.zeros(2)}
    told = each(
        torch, lambda _: call(module, {"a": two}, t), lambda _: call(module, {"a": two}, (t,), {"scale": 3.0}),
        lambda _: call(module, {"a": two}, t, tie_weights=False), lambda _: call(module, {"a": two, "b": two * 2}, t),
        lambda _: call(module, {"a": two, "b": two * 2}, t, tie_weights=False), lambda _: call(module, (own, buffers), t),
        lambda _: call(module, [own, own], t), lambda _: call(module, [own, 3], t), lambda _: call(module, 3, t),
        lambda _: call(module, {"no": two}, t), lambda _: call(module, {"inner.no": two}, t), lambda _: call(module, {"plain": two}, t),
        lambda _: call(module, {"a": 3}, t), lambda _: call(module, own, t, strict=True),
        lambda _: call(module, (own, buffers), t, strict=True),
        lambda _: call(module, {"inner": two}, t), lambda _: call(module, {"a": two, "x": two}, t, strict=True))
    loss = lambda parameters: call(module, (parameters, {"count": torch.zeros(2)}), t).sum()
    return told, buffers, module.count, module.plain, [p for p in module.parameters()], torch.func.grad(loss)(own)


@program
def ensembles(torch):
    models = [filled(torch, torch.nn.Linear(3, 2), seed) for seed in range(4)]
    parameters, buffers = torch.func.stack_module_state(models)
    t = torch.ones(5, 3)
    out = torch.vmap(lambda p, b, d: torch.func.functional_call(models[0], (p, b), d), (0, 0, None))(parameters, buffers, t) \
        if buffers else torch.vmap(lambda p, d: torch.func.functional_call(models[0], p, d), (0, None))(parameters, t)
    out.sum().backward()
    return parameters, out, parameters["weight"].grad, each(
        torch, lambda _: torch.func.stack_module_state([]),
        lambda _: torch.func.stack_module_state([models[0], torch.nn.Linear(3, 2).eval()]),
        lambda _: torch.func.stack_module_state([models[0], torch.nn.ReLU()]))


@program
def batch_norms_that_forget(torch):
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.ReLU())
    found = torch.func.replace_all_batch_norm_modules_(net)
    return found is net, net[0].running_mean, net[0].track_running_stats, found(torch.arange(4.0).reshape(2, 2))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, oracle):
    check(PROGRAMS[name], oracle, name)


@pytest.mark.parametrize("torch", ["ours", "theirs"])
def test_what_errors_say(torch, oracle):
    torch = autograd_gpu if torch == "ours" else oracle
    F, a = torch.func, x(torch, 2)
    for call, words in [
            (lambda: F.grad(lambda t: t)(a), ["grad_and_value(f)(*args)", "scalar"]),
            (lambda: F.grad(lambda t: t.sum(), 2)(a), ["Got argnum=2, but only 1 positional inputs"]),
            (lambda: F.grad(lambda t: t.sum(), has_aux=True)(a), ["should be a tuple: (output, aux) if has_aux is True"]),
            (lambda: F.vjp(lambda t: t, a)[1]((a,)), ["pytree structure of cotangents"]),
            (lambda: F.jvp(lambda t: t, a, a), ["Expected primals to be a tuple"]),
            (lambda: F.jvp(lambda t: t, (a,), (a, a)), ["same python structure"]),
            (lambda: torch.vmap(lambda t: t + torch.rand(2))(a), ["random", "randomness"]),
            (lambda: torch.vmap(torch.add)(a, 3.0), ["in_dim=0", "use None"]),
            (lambda: torch.vmap(lambda t: 5)(a), ["must only return Tensors"])]:
        _, found = said(call, *words)
        assert all(found), (words, found)


def test_saved_tensor_hooks_may_be_on():
    """PyTorch refuses them inside of its transforms."""
    packed = []
    with autograd_gpu.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        found = autograd_gpu.func.grad(lambda t: (t ** 3).sum())(x(autograd_gpu))
    assert packed and found.tolist() == (3 * x(autograd_gpu) ** 2).tolist()


def test_levels_of_several_threads():
    """A transform that began first ends while another thread's runs, which goes on in a dual level of the first thread."""
    torch, forward_ad = autograd_gpu, autograd_gpu.autograd.forward_ad
    inside, go_on, found = threading.Event(), threading.Event(), []
    a = x(torch)

    def slow(t):
        inside.set()
        assert go_on.wait(10)
        return t.sin()

    def fast(t):
        other.start()
        assert inside.wait(10)
        return t.cos()
    def run():
        found.append(torch.func.jvp(slow, (a,), (a,))[1])
        found.append(torch.autograd.gradcheck(torch.sin, x(torch, requires_grad=True), check_forward_ad=True))
    other = threading.Thread(target=run)
    told = torch.func.jvp(fast, (a,), (a,))[1]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        go_on.set()
        other.join()
        tangent = forward_ad.unpack_dual(dual * 2).tangent
    assert found[1]
    assert same([told.tolist(), found[0].tolist(), tangent.tolist()], [t.tolist() for t in (-a * a.sin(), a * a.cos(), a * 2)])


def test_nested_values():
    value = (1, [2, {"a": 3, "b": (4, None)}], Point(5, 6))
    leaves, structure = flatten(value)
    assert leaves == [1, 2, 3, 4, None, 5, 6] and structure.leaves == 7
    assert unflatten(structure, leaves) == value and type(unflatten(structure, leaves)[2]) is Point
    assert spread(0, structure) == [0] * 7 and spread((0, None, 1), structure) == [0, None, None, None, None, 1, 1]
    assert spread((0, None), structure) is None and spread([0, None, 1], structure) is None
    assert str(structure) == "tuple(*, list(*, dict('a': *, 'b': tuple(*, *))), Point(*, *))"


def test_vmap_gives_what_numpy_does():
    rs = np.random.RandomState(0)
    a, b = rs.randn(5, 3, 4), rs.randn(5, 4)
    found = autograd_gpu.vmap(autograd_gpu.mv)(autograd_gpu.as_tensor(a), autograd_gpu.as_tensor(b))
    assert same(found.tolist(), np.einsum("bij,bj->bi", a, b).tolist())
