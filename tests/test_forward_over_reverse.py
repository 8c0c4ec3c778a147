"""Forward mode and backward: tangents of gradients, gradients of tangents, hooks, checkpoints, beside PyTorch."""
import threading

import numpy as np
import pytest

import autograd_gpu
from tests.duals import Api, assert_same, beside, flat, raised

PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


def _put(x):
    y = x.new_zeros(3, 3)
    y[0] = x[1]
    y[:, 1] = x[:, 0] ** 2
    return (y ** 3).sum()


FUNCTIONS = {
    "exp": lambda torch, x: x.exp().sum(), "tanh": lambda torch, x: (x.tanh() * x).sum(), "mm": lambda torch, x: (x @ x.t()).sin().sum(),
    "softmax": lambda torch, x: (torch.softmax(x, 1) ** 2).sum(), "std": lambda torch, x: x.std() * 2, "put": lambda torch, x: _put(x),
    "logsumexp": lambda torch, x: x.logsumexp(1).sum() ** 2, "max": lambda torch, x: (x.max(1).values ** 2).sum(),
    "views": lambda torch, x: (x.view(-1)[1:4] ** 3).sum(), "in place": lambda torch, x: (x * 1).mul_(x).exp_().mul(x).sum(),
    "cat": lambda torch, x: (torch.cat([x, x * 2]) ** 2).sum(), "norm": lambda torch, x: x.norm() ** 3,
    "index": lambda torch, x: (x[torch.tensor([0, 0, 1])] ** 3).sum(), "cumprod": lambda torch, x: x.cumprod(0).sum() * x.sum(),
    "layer_norm": lambda torch, x: (torch.nn.functional.layer_norm(x, (3,)) ** 3).sum(),
    "conv": lambda torch, x: (torch.nn.functional.conv1d(x[None], x[:, None, :2].expand(3, 3, 2) * 1.0) ** 2).sum(),
    "cross_entropy": lambda torch, x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 2, 1])),
    "inv": lambda torch, x: torch.linalg.inv(x @ x.t() + torch.eye(3, dtype=x.dtype)).sum(),
    "sort": lambda torch, x: (x.sort(1).values * torch.arange(3)).pow(2).sum(),
    "complex": lambda torch, x: (torch.complex(x, x * x) ** 3).abs().sum(),
    "detach": lambda torch, x: (x * x.detach() ** 2).sum() + x.sum() ** 2}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_of_gradients(name, oracle):
    def run(api):
        found, f = [], FUNCTIONS[name]
        with api.level():
            for create in (False, True):
                d = api.dual(api.tensor(3, 3, grad=True), api.tensor(3, 3, turn=4))
                g, = api.torch.autograd.grad(f(api.torch, d), d, create_graph=create)
                found += [g, api.of(g), g.requires_grad]
        return found
    assert_same(flat(run(Api(autograd_gpu))), flat(run(Api(oracle))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_tangents(name):
    """By symmetry, the gradient of the tangent along t is the tangent of the gradient along t."""
    api, f = Api(autograd_gpu), FUNCTIONS[name]
    with api.level():
        x, t = api.tensor(3, 3, grad=True), api.tensor(3, 3, turn=4, grad=True)
        d = api.dual(x, t)
        y = f(api.torch, d)
        of_gradient = api.of(api.torch.autograd.grad(y, d, create_graph=True)[0])
        by_x, by_t = api.torch.autograd.grad(api.of(y), (x, t))
        gradient, = api.torch.autograd.grad(f(api.torch, x), x)
    if name != "detach":                     # there is no symmetry
        np.testing.assert_allclose(by_x.tolist(), of_gradient.tolist(), 1e-9, 1e-9)
    np.testing.assert_allclose(by_t.tolist(), gradient.tolist(), 1e-9, 1e-9)


@program
def gradients_of_tangents_in_the_level(api):
    """A tangent has none itself: nor has its gradient, but for what flows through the result."""
    torch, found = api.torch, []
    for f in (lambda d: d * d, lambda d: d @ d - d, lambda d: d.sin(), lambda d: d.exp(), lambda d: torch.cat([d * d, d]),
              lambda d: d.mul_(d * 1), lambda d: torch.atan2(d, d * d), lambda d: torch.stack([d, d.sin()]) @ d,
              lambda d: torch.addcmul(d, d, d)):
        x = api.tensor(3, grad=True)
        with api.level():
            y = f(api.dual(x * 1, api.tensor(3, turn=2)))
            g, = torch.autograd.grad((api.of(y) * api.tensor(*y.shape, turn=1)).sum(), x)
            found += [g, api.of(g)]
    return found


@program
def hooks_and_custom_backwards_see_tangents(api):
    torch, of, seen = api.torch, api.of, []

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            seen.extend([of(g), of(x), of(y)])
            return g * y

        @staticmethod
        def jvp(ctx, t):
            return t * 3
    x, t = api.tensor(3, grad=True), api.tensor(3, turn=4)
    with api.level():
        d = api.dual(x, t)
        y = d ** 3
        y.register_hook(lambda g: seen.append(of(g)) or g * 2)
        y.retain_grad()
        y.grad_fn.register_hook(lambda inputs, outputs: seen.extend([of(inputs[0]), of(outputs[0])]))
        y.grad_fn.register_prehook(lambda outputs: seen.append(of(outputs[0])))
        g, = torch.autograd.grad((y ** 2).sum(), d, retain_graph=True)
        (y ** 2).sum().backward()
        z, = torch.autograd.grad((Exp.apply(d) ** 2).sum(), d)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: (x.detach().clone(),), lambda p: p[0]):
            o = (d.tanh() * d).sum()
        h, = torch.autograd.grad(o, d)
        v = api.pair(3, turn=8)
        k, = torch.autograd.grad(x ** 2, x, v)
        values, indices = d.topk(2)
        m, = torch.autograd.grad((values ** 2).sum(), d)
        return [seen, *[of(a) for a in (g, z, h, k, m, values, indices)], z]


@program
def inputs_are_packed_before_what_tangents_save(api):
    """So a checkpoint whose function names a tensor that has become a dual since still finds its values in their order."""
    torch, packed = api.torch, []
    t = api.tensor(3, turn=1, grad=True)
    named = t * 1
    y = torch.utils.checkpoint.checkpoint(lambda x: named * named, api.tensor(3, grad=True), use_reentrant=False)
    with api.level():
        named = api.dual(named, api.tensor(3, turn=2))
        g, = torch.autograd.grad(y.sum(), t)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.detach().clone()) or t, lambda t: t):
            named.sin()
            named * named
    return g, packed[:6]


@program
def checkpoints(api):
    torch = api.torch
    found = []
    with api.level():
        for reentrant in (False, True):
            def run(reentrant=reentrant):
                t = api.tensor(3, turn=4, grad=True)
                d = api.dual(api.tensor(3, grad=True), t)
                o = torch.utils.checkpoint.checkpoint(lambda a: (a.tanh() * a).sin().sum(), d, use_reentrant=reentrant)
                g, = torch.autograd.grad(o, d, retain_graph=True)
                h, = torch.autograd.grad(api.of(o), t)
                found.extend([api.of(o), api.of(g), h])
            found.append(raised(run))
    return found


def test_gradients_that_are_accumulated_have_tangents():
    """PyTorch detaches the first one, and so adds to the second one's tangent only."""
    api = Api(autograd_gpu)
    x, t = api.tensor(3, grad=True), api.tensor(3, turn=4)
    with api.level():
        d = api.dual(x, t)
        (d ** 3).sum().backward()
        first = x.grad
        np.testing.assert_allclose(api.of(x.grad).tolist(), (6 * x * t).tolist())
        (d ** 3).sum().backward()
        assert x.grad is first
        np.testing.assert_allclose(api.of(x.grad).tolist(), (12 * x * t).tolist())
        np.testing.assert_allclose(x.grad.tolist(), (6 * x * x).tolist())
    assert api.of(x.grad) is None and not x.grad.requires_grad


test_programs = beside(PROGRAMS)


def test_backward_on_two_streams_of_calls(device):
    """A backward inside another, and one in a thread, carry tangents."""
    api, torch, found = Api(autograd_gpu), autograd_gpu, []

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 2

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            with torch.enable_grad():
                x = x.view_as(x).requires_grad_()
                h, = torch.autograd.grad((x ** 2).sum(), x)
            return g * h

        @staticmethod
        def jvp(ctx, t):
            return t
    with api.level():
        d = api.dual(api.tensor(3).to(device).requires_grad_(), api.tensor(3, turn=2).to(device))

        def run():
            g, = torch.autograd.grad(Inner.apply(d).sum(), d)
            found.append(api.of(g).tolist())
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        run()
    assert found == [pytest.approx((2 * api.tensor(3, turn=2)).tolist())] * 2
