"""Losses of classes where weights vanish and targets are ignored: values, gradients and second derivatives as PyTorch's."""
import math

import pytest

import autograd_gpu
from tests.parity import result

WEIGHTS = {"none": None, "zeros": [0.0, 0.0, 0.0], "sum to zero": [1.0, -1.0, 0.5], "one zero": [0.0, 1.0, 2.0]}
TARGETS = ([0, 1], [0, -100], [-100, -100], [2, 2], [1, 1])


def derivatives(torch, f, rows):
    x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    y = f(x)
    grad, = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    second, = torch.autograd.grad((grad * grad).sum(), x)
    return y.detach(), grad.detach(), second


@pytest.mark.parametrize("smoothing", [None, 0.0, 0.25])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_weights_that_vanish_and_targets_that_are_ignored(weight, reduction, smoothing, oracle, close):
    def program(torch, target):
        F, given = torch.nn.functional, WEIGHTS[weight]
        options = dict(weight=given and torch.tensor(given, dtype=torch.float64), reduction=reduction)
        if smoothing is None:                # an infinity at a class that nobody's target is
            rows = [[-1.0, -2.0, -math.inf], [-math.inf, -3.0, -1.0]]
            return derivatives(torch, lambda x: F.nll_loss(x, torch.tensor(target), **options), rows)
        f = lambda x: F.cross_entropy(x, torch.tensor(target), label_smoothing=smoothing, **options)      # noqa: E731
        return derivatives(torch, f, [[0.5, -1.0, 2.0], [1.0, 1.5, -0.5]])
    for target in TARGETS:
        for ours, expected in zip(program(autograd_gpu, target), program(oracle, target), strict=True):
            close(ours, expected)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_shapes(shape, reduction, oracle, close):
    def program(torch):
        x = (torch.arange(1.0, math.prod(shape) + 1) / 7).reshape(shape).requires_grad_()
        target = torch.zeros((shape[0], *shape[2:]) if len(shape) > 1 else (), dtype=torch.int64)
        loss = torch.nn.functional.nll_loss(x, target, torch.zeros(3), reduction=reduction)
        loss.sum().backward()
        return loss.detach(), x.grad
    for ours, expected in zip(program(autograd_gpu), program(oracle), strict=True):
        close(ours, expected)


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("own", ["float16", "float32", "float64"])
@pytest.mark.parametrize("other", ["float16", "float32", "float64", "int64", "bool"])
def test_dtypes_of_truths(name, own, other, oracle):
    def program(torch):
        x = torch.tensor([0.25, 0.5, 0.75], dtype=getattr(torch, own), requires_grad=True)
        loss = getattr(torch.nn.functional, name)(x, torch.tensor([0, 1, 1]).to(getattr(torch, other)))
        return loss.dtype.itemsize, torch.autograd.grad(loss, x)[0].dtype.itemsize
    assert result(program, autograd_gpu) == result(program, oracle)
