"""The recipe of docs/design.md, run as it is printed there."""
import re
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops.namespace import OPS, REGISTRY
from autograd_gpu.ops.op import elementwise
from tests import samples
from tests.test_ops import check_differences

RECIPE = Path(__file__).parent.parent / "docs" / "design.md"


@pytest.fixture(scope="module")
def squareplus():
    text = RECIPE.read_text(encoding="utf-8")
    code, sample = re.findall(r"```python\n(.*?)```", text.split("## Add an op")[1], re.S)
    assert len([line for line in code.splitlines() if line]) <= 10
    names = {}
    exec(code, names)
    exec(sample, vars(samples))
    yield names["squareplus"]
    del REGISTRY["squareplus"], OPS.squareplus, samples.SAMPLES["squareplus"]


def reference(x, b=4.0):
    return (x + np.sqrt(x * x + b)) / 2


def test_value_gradient_and_second_gradient(squareplus):
    x = torch.tensor(np.linspace(-2, 2, 7), requires_grad=True)
    y = squareplus(x, 2.0)
    np.testing.assert_allclose(y.detach().numpy(), reference(x.detach().numpy(), 2.0), rtol=1e-12)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    h, = torch.autograd.grad(g.sum(), x)
    a, eps = x.detach().numpy(), 1e-5
    np.testing.assert_allclose(g.detach().numpy(), (reference(a + eps, 2.0) - reference(a - eps, 2.0)) / (2 * eps), rtol=1e-8)
    np.testing.assert_allclose(h.numpy(), (reference(a + eps, 2.0) - 2 * reference(a, 2.0) + reference(a - eps, 2.0)) / eps ** 2, rtol=1e-4)
    assert y.grad_fn.name() == "SquareplusBackward0"


def test_it_is_in_the_loop(squareplus):
    _, given = samples.samples()["squareplus"]
    assert len(given) == 3                   # the one that is made, and two
    assert check_differences("squareplus", squareplus, given) == 6                    # real and complex


def test_integers_halves_and_wrong_operands_come_with_the_record(squareplus):
    assert squareplus(torch.tensor([1, 2])).dtype == torch.float32
    half = torch.tensor([0.5, 1.5], dtype=torch.float16, requires_grad=True)
    y = squareplus(half)
    y.sum().backward()
    assert y.dtype == half.grad.dtype == torch.float16
    np.testing.assert_array_equal(y.detach().numpy(), reference(half.detach().numpy().astype(np.float32)).astype(np.float16))
    with pytest.raises(TypeError, match="squareplus"):
        squareplus("text")


def test_a_second_registration_is_refused(squareplus):
    with pytest.raises(ValueError, match="registered already"):
        @elementwise()
        def squareplus(self):
            return self
    with pytest.raises(ValueError, match="formulas already"):
        REGISTRY["squareplus"].vjp(self=lambda grad: grad)
