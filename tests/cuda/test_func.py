"""Derivatives of functions, pictures and saved bytes on a device: what they are on the CPU."""
import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd import functional, graph
from tests.cuda.common import equal, two_devices

A, B = np.linspace(0.3, 1.3, 6).reshape(2, 3), np.linspace(-1, 1, 3)
PROGRAMS = {
    "jacobian": lambda a, b: functional.jacobian(lambda x, y: (x * y).sin().sum(1), (a, b)),
    "vectorized": lambda a, b: functional.jacobian(lambda x, y: (x * y).sin().sum(1), (a, b), vectorize=True),
    "forward": lambda a, b: functional.jacobian(lambda x, y: (x * y).sin().sum(1), (a, b), vectorize=True, strategy="forward-mode"),
    "hessian": lambda a, b: functional.hessian(lambda y: (a @ y).exp().sum(), b),
    "products": lambda a, b: [functional.vjp(lambda y: a @ y, b, a[:, 0])[1], functional.jvp(lambda y: (a @ y).exp(), b, b)[1],
                              functional.hvp(lambda y: (a @ y).exp().sum(), b, b)[1]],
    "batched": lambda a, b: torch.autograd.grad(b * b, b, a, is_grads_batched=True),
    "func": lambda a, b: [torch.func.grad(lambda y: (a @ y).exp().sum())(b), torch.func.hessian(lambda y: (a @ y).exp().sum())(b),
                          torch.func.jvp(lambda y: a @ y, (b,), (b,))[1]],
    "vmap": lambda a, b: [torch.vmap(torch.func.grad(lambda y: (y * b).sin().sum()))(a), torch.vmap(torch.dot, (0, None))(a, b)],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_on_the_cpu(name):
    def run(where):
        made = PROGRAMS[name](*[torch.tensor(x, device=where, requires_grad=True) for x in (A, B)])
        return flat(made)
    for on_cuda, on_cpu in zip(run("cuda:0"), run("cpu"), strict=True):
        equal(on_cuda, on_cpu, name)


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, (list, tuple)) else [x]


@two_devices
def test_what_is_seen_of_devices():
    x = torch.ones(300, device="cuda:0").requires_grad_()
    y = x.exp().to("cuda:1").sin().sum()
    assert graph.saved_bytes(y).total == 2400
    text = str(graph.draw(y, {"x": x}, format="mermaid"))
    assert "x<br>(300,) float32 cuda:0" in text and "ExpBackward0 cuda:0<br>saves 1.17 KB" in text
    assert "SinBackward0<br>(300,) float32 cuda:1" in text and "output<br>() float32 cuda:1" in text
    with graph.save_on_cpu(pin_memory=True):
        z = x.exp().sum()
    assert graph.saved_bytes(z).total == 1200
