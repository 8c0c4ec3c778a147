"""Backwards inside each other, and beside each other in several threads."""
import sys
import threading

import pytest

import autograd_gpu as torch
from autograd_gpu.engine.grad_mode import local
from tests import stress


def test_a_thousand_backwards_inside_each_other():
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, g):
            if ctx.depth:
                with torch.enable_grad():
                    x = torch.ones(1, requires_grad=True)
                    y = Nested.apply(x, ctx.depth - 1)
                y.backward()
                g = g + x.grad
            else:
                seen.append((torch.is_grad_enabled(), torch.ones(1).dtype, threading.current_thread() is caller))
            return g, None
    seen, caller, x = [], threading.current_thread(), torch.ones(1, requires_grad=True)
    Nested.apply(x, 1000).backward()
    assert x.grad.item() == 1001 and seen == [(False, torch.float32, False)]
    Nested.apply(x, 20).backward()
    assert seen[1:] == [(False, torch.float32, True)]


def test_an_error_a_hundred_backwards_deep():
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, g):
            if not ctx.depth:
                raise KeyError("innermost")
            with torch.enable_grad():
                y = Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1)
            y.backward()
            return g, None
    with pytest.raises(KeyError, match="innermost"):
        Nested.apply(torch.ones(1, requires_grad=True), 100).backward()
    assert torch.is_grad_enabled() and local.state.depth == 0 and local.state.graph_task is None


def test_nested_backwards_keep_the_callers_modes_on_a_fresh_thread():
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                y = Nested.apply(torch.ones(1, requires_grad=True), ctx.depth - 1) if ctx.depth else torch.ones(1, requires_grad=True) ** 2
            if ctx.depth:
                y.backward(create_graph=False)
            names.add(threading.current_thread().name)
            return g, None
    names, packed = set(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        Nested.apply(torch.ones(1, requires_grad=True), 70).backward()
    assert names == {threading.current_thread().name, "autograd:nested"} and len(packed) == 1


def test_threads_over_shared_leaves_lose_nothing():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    trunk = (x * w).exp()
    unit = (trunk.detach() * 1).sum().item() / 3

    def work():
        for _ in range(100):
            (trunk * 2).sum().backward(retain_graph=True)
            (x * 3).sum().backward()
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.grad.tolist() == pytest.approx([600 * (2 * unit + 3)] * 3, rel=1e-4)
    assert w.grad.tolist() == pytest.approx([600 * 2 * unit] * 3, rel=1e-4)


def test_second_derivatives_through_a_write_to_a_view_in_several_threads():
    x = torch.ones(4, dtype=torch.float64, requires_grad=True)
    h = x * 2
    h[1:3].exp_()
    wrong = []

    def work():
        for _ in range(30):
            g, = torch.autograd.grad((h * h).sum(), x, create_graph=True)
            gg, = torch.autograd.grad(g.sum(), x, retain_graph=True)
            if gg.tolist() != expected:
                wrong.append(gg.tolist())
    g, = torch.autograd.grad((h * h).sum(), x, create_graph=True)
    expected = torch.autograd.grad(g.sum(), x, retain_graph=True)[0].tolist()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_stress():
    """Some rounds of tests/stress.py; its own command runs ten thousand."""
    stress.main(60)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("use", [lambda h: h * h, lambda h: torch.stack([h, h]), Twice.apply, lambda h: h[:1], lambda h: h[:1].mul_(3),
                                 lambda h: torch.lerp(h, h, h), lambda h: h.gt_(0)])
def test_edges_lead_to_older_nodes_whenever_another_thread_writes(use):
    """The run loop counts on it. Here the other thread gets its turn at any one line of what records."""
    use(torch.ones(2, requires_grad=True) * 1)                       # compiled
    line = 0
    while True:
        h = torch.ones(2, requires_grad=True) * 1
        left = line

        def trace(frame, event, _):
            nonlocal left
            if event == "line":
                if not left:
                    h.mul_(2)                # noqa: B023
                left -= 1
            return trace
        outer = sys.gettrace()
        sys.settrace(trace)
        try:
            out = use(h)
        except RuntimeError:                 # values that changed on the way are refused
            out = h
        finally:
            sys.settrace(outer)
        nodes = [h.grad_fn, out.grad_fn]
        for node in nodes:
            for n, _ in node.next_functions:
                if n is not None and n not in nodes:
                    nodes.append(n)
                assert n is None or not n.next_functions or n._sequence_nr() < node._sequence_nr(), (line, node, n)
        if left >= 0:
            break
        line += 1
    assert line > 10
