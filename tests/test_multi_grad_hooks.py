"""Hooks on the gradients of several tensors: each program gives what it gives in PyTorch; then what only ours promises."""
import gc
import threading
import weakref

import pytest

import autograd_gpu
from autograd_gpu.autograd.graph import register_multi_grad_hook
from tests.parity import result
from tests.test_graph import backward, leaf

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def multi(watch, run, mode="all", times=1):
    def go(torch):
        log = []
        a, b = leaf(torch), leaf(torch)
        u, v = a * 2, b * 3

        def note(g):
            log.append([None if x is None else x.tolist() for x in g] if mode == "all" else g.tolist())
        torch.autograd.graph.register_multi_grad_hook(watch(a, b, u, v), note, mode=mode)
        for _ in range(times):
            run(torch, a, b, u, v)
        return log
    return go


def through_both(torch, a, b, u, v):
    (u * v).sum().backward(retain_graph=True)


def through_u(torch, a, b, u, v):
    (u * 4).sum().backward(retain_graph=True)


MULTI = [
    multi(lambda a, b, u, v: (u, v), through_both), multi(lambda a, b, u, v: (u, v, a, b), through_u),
    multi(lambda a, b, u, v: [a, b], through_both, times=3), multi(lambda a, b, u, v: (a, b, v, u), through_both),
    multi(lambda a, b, u, v: (a, a, u, u), through_both), multi(lambda a, b, u, v: (), through_both),
    multi(lambda a, b, u, v: (a, b, u, v), lambda torch, a, b, u, v: (u * v).sum().backward(inputs=[b])),
    multi(lambda a, b, u, v: (u, v), lambda torch, a, b, u, v: torch.autograd.grad((u * v).sum(), u)),
    multi(lambda a, b, u, v: (u, v.detach()), through_both), multi(lambda a, b, u, v: (b,), through_u),
    multi(lambda a, b, u, v: (u, v), through_both, "any"), multi(lambda a, b, u, v: (a, b), through_both, "any", 3),
    multi(lambda a, b, u, v: (u.detach(), v), through_both, "any"), multi(lambda a, b, u, v: (b, v), through_u, "any"),
    multi(lambda a, b, u, v: (a,), through_both, "some"),
]


@program
def multi_grad_hook_among_others(torch):
    log = []
    a, b = leaf(torch), leaf(torch)
    a.register_hook(lambda g: log.append("a1") or g * 10)
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append([g.tolist() for g in gs]) or 5)
    a.register_hook(lambda g: log.append("a2") or g * 10)
    b.register_hook(lambda g: log.append("b"))
    b.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    backward(a * b)
    return log, a.grad, b.grad


@program
def multi_grad_hook_with_create_graph(torch):
    log = []
    a, b = leaf(torch), leaf(torch)
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append([g.requires_grad for g in gs]))
    (a * a * b).sum().backward(create_graph=True)
    return log


@program
def multi_grad_hook_removed(torch):
    log = []
    a, b = leaf(torch), leaf(torch)
    with torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append("in")) as handle:
        backward(a * b)
    backward(a * b)
    h = a * b
    later = torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append("later"))
    h.register_hook(lambda g: later.remove())
    backward(h)
    return log, handle.remove(), len(later.handles)


@program
def multi_grad_hook_after_a_backward_that_failed(torch):
    log, times = [], []

    def fail_once(g):
        times.append(1)
        if len(times) == 1:
            raise KeyError("first")
    a, b = leaf(torch), leaf(torch)
    b.register_hook(fail_once)
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append(len(gs)))
    return result(lambda torch: backward(a * b), torch), backward(a * b), log


@program
def multi_grad_hook_in_threads(torch):
    log = []
    a, b = leaf(torch), leaf(torch)
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append([g.tolist() for g in gs]))
    threads = [threading.Thread(target=backward, args=(a * b,)) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return log


@pytest.mark.parametrize("run", [*MULTI, *PROGRAMS.values()], ids=[*map(str, range(len(MULTI))), *PROGRAMS])
def test_program(run, oracle):
    assert result(run, autograd_gpu) == result(run, oracle)


# ------------------------------------------------------------------------------------------------------------ only ours

@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_multi_grad_hook_makes_no_cycle(mode):
    torch = autograd_gpu
    gc.collect()
    gc.disable()
    try:
        x = leaf(torch)
        u, v = x * 2, x * 3
        register_multi_grad_hook((x, u, v), lambda g: None, mode=mode)
        backward(u * v)
        dropped = [weakref.ref(t) for t in (x, u, v, u.grad_fn)]
        del x, u, v
        assert [r() for r in dropped] == [None] * 4
    finally:
        gc.enable()


def test_a_multi_grad_hook_takes_any_iterable():
    torch = autograd_gpu
    log = []
    a, b = leaf(torch), leaf(torch)
    register_multi_grad_hook((t for t in (a, b)), lambda gs: log.append(len(gs)))
    backward(a * b)
    assert log == [2]


def test_a_multi_grad_hook_runs_for_leaves_of_grad():
    torch = autograd_gpu
    log = []
    a, b = leaf(torch), leaf(torch)
    register_multi_grad_hook((a, b), lambda gs: log.append([g is None for g in gs]))
    torch.autograd.grad((a * b).sum(), a)
    assert log == [[False, True]]
