"""The jvp of custom Functions, beside PyTorch."""
import pytest

import autograd_gpu
from tests.duals import Api, assert_same, beside, flat, raised

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


def _function(torch, forward, jvp, setup=lambda ctx: None):
    class Custom(torch.autograd.Function):
        @staticmethod
        def backward(ctx, *g):
            return g * 3
    Custom.forward, Custom.jvp = staticmethod(lambda ctx, *args: (setup(ctx), forward(ctx, *args))[1]), staticmethod(jvp)
    return Custom.apply


def _write(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


FORWARDS = {
    "plain": (lambda ctx, x: x * 2, lambda ctx, t: t * 2), "wrong number": (lambda ctx, x: x * 2, lambda ctx, t: (t, t)),
    "no tensor": (lambda ctx, x: x * 2, lambda ctx, t: 3), "wrong shape": (lambda ctx, x: x * 2, lambda ctx, t: t[:1]),
    "integers": (lambda ctx, x: (x * 2, x.argmax()), lambda ctx, t: (t * 2, None)),
    "a tangent for integers": (lambda ctx, x: (x * 2, x.argmax()), lambda ctx, t: (t * 2, t)),
    "view": (lambda ctx, x: x.view(2, 1), lambda ctx, t: t.view(2, 1)),
    "view, copied": (lambda ctx, x: x.view(2, 1), lambda ctx, t: t.view(2, 1) * 1),
    "view of another": (lambda ctx, x: x.view(2, 1), lambda ctx, t: t.clone().view(2, 1)),
    "as it is": (lambda ctx, x: x, lambda ctx, t: t.view_as(t)), "as it is, both": (lambda ctx, x: x, lambda ctx, t: t),
    "written to": (_write, lambda ctx, t: t.mul_(2)), "written to, tangent not": (_write, lambda ctx, t: t),
    "written to, tangent new": (_write, lambda ctx, t: t * 2), "error": (lambda ctx, x: x * 2, lambda ctx, t: t.missing),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FORWARDS)
def test_jvp_of_a_function(name, grad, oracle):
    def run(api):
        with api.level():
            d = api.dual(api.tensor(2, grad=grad) * 1, api.tensor(2, turn=3))
            found = []

            def call():
                result = _function(api.torch, *FORWARDS[name])(d)
                found.extend([[r, api.of(r)] for r in (result if isinstance(result, tuple) else (result,))])
            return [raised(call), found, d, api.of(d)]
    assert_same(flat(run(Api(autograd_gpu))), flat(run(Api(oracle))))


@program
def what_jvp_is_given(api):
    torch, seen = api.torch, []

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, k):
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(y)
            ctx.k = k
            seen.extend([api.of(x), api.of(x * 2), api.of(y)])
            return x * y * k

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * y * ctx.k, None, None

        @staticmethod
        def jvp(ctx, a, b, k):
            x, y = ctx.saved_tensors
            seen.extend([a, b, k, x, y, torch.is_grad_enabled(), api.fw._is_fwd_grad_enabled(), ctx.needs_input_grad])
            return ctx.k * (a * y + b * x)

    class Apart(Product):
        @staticmethod
        def forward(x, y, k):
            return x * y * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)
            ctx.save_for_forward(*inputs[:2])
            ctx.k = inputs[2]

        @staticmethod
        def jvp(ctx, a, b, k):
            seen.extend([a, b, k])
            return ctx.k * (a * ctx.saved_tensors[1])
    found = []
    with api.level():
        for cls in (Product, Apart):
            x, t = api.tensor(2, grad=True), api.tensor(2, turn=3, grad=True)
            result = cls.apply(api.dual(x, t), api.tensor(2, turn=6), 2.0)
            found += [result, api.of(result), torch.autograd.grad(api.of(result).sum(), t)]
        found.append(raised(lambda: _function(torch, lambda ctx, x: x * 2, torch.autograd.Function.jvp)(api.pair(2))))
    return [found, seen]


@program
def a_function_that_writes_a_dual_into_a_view(api):
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.mul_(y)
    with api.level():
        base = api.tensor(2, 2)
        view, other = base[0], base.t()
        _function(api.torch, forward, lambda ctx, a, b: b * 1)(view, api.pair(2))
        return [base, api.of(base), api.of(view), api.of(other)]


def test_none_for_a_tangent_is_zero():
    api = Api(autograd_gpu)
    with api.level():
        result = _function(autograd_gpu, lambda ctx, x: x * 2, lambda ctx, t: None)(api.pair(2))
        assert api.of(result) is None and api.of(result + api.pair(2)).tolist() == api.tensor(2, turn=5).tolist()


test_programs = beside(PROGRAMS)
