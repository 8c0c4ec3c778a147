"""A KeyboardInterrupt comes with a call; wherever it comes in a backward or a Function, the thread's modes are what they were."""
import contextlib
import itertools
import sys

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.engine.grad_mode import State, local
from autograd_gpu.engine.node import PRIME, _unlinking
from tests.test_function import scale

Scale = scale(torch)


@pytest.fixture(autouse=True)
def errors_in_finalisers_are_not_shown(monkeypatch):
    """Some of the interrupts come in one."""
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: None)


def hooked(g):
    with torch.enable_grad():
        (g.detach().requires_grad_() * 2).sum().backward()


def a_backward():
    (torch.ones(2, requires_grad=True).exp() * 3).sum().backward()


def a_recorded_backward():
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Scale.apply(x.exp(), 2.0).sum(), x, create_graph=True)


def a_backward_inside_a_backward():
    y = torch.ones(2, requires_grad=True) * 3
    y.register_hook(hooked)
    y.sum().backward()


def modes():
    return [getattr(local.state, name) for name in State.__slots__ if name != "__weakref__"], np.geterr(), _unlinking.pending


def interrupted(program, number, within=""):
    """Run a program, interrupted at one of the places where CPython looks for signals: a function begins, or one in C ends.

    Whether it was. `within`: at those in functions of this name.
    """
    calls, done = itertools.count(), []

    def look(frame, event, argument):
        code = frame.f_code
        if "autograd_gpu" in code.co_filename and within in code.co_name and event in ("call", "c_return") and next(calls) == number:
            done.append(number)
            raise KeyboardInterrupt
    sys.setprofile(look)
    try:
        program()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return bool(done)


@pytest.mark.parametrize("block", [contextlib.nullcontext(), torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)])
@pytest.mark.parametrize("program", [a_backward, a_recorded_backward, a_backward_inside_a_backward])
def test_an_interrupt_leaves_modes_as_they_were(program, block):
    with block:
        program()
        before = modes()
        for number in itertools.count():
            if not interrupted(program, number):
                break
            assert modes() == before, number
    assert number > 50


def test_an_interrupt_while_nodes_are_dropped():
    def drop():
        y = torch.ones(2, requires_grad=True)
        for _ in range(3 * PRIME):
            y = y + 1
        chains.append(y)
        return chains.pop
    for number in itertools.count():
        chains = []
        if not interrupted(drop(), number, "unlink"):
            break
        assert _unlinking.pending is None
    assert number > 10
