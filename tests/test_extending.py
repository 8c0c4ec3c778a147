"""The programs of docs/extending.md run as they are printed, and print what they say."""
import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops.namespace import OPS, REGISTRY

TEXT = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
WITH_CUPY, ELEMENTWISE = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def run(program):
    """What a program prints, as a list of numbers, and its names."""
    names, printed = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, names)
    return [float(n) for n in re.findall(r"\d+\.\d*", printed.getvalue())], names


def said(program):
    return [float(n) for n in re.findall(r"\d+\.?\d*", program.rsplit(": ", 1)[1])]


@pytest.mark.gpu
def test_a_function_around_a_kernel(close):
    if torch.cuda.why_not_available():
        pytest.skip(torch.cuda.why_not_available())
    numbers, names = run(WITH_CUPY)
    assert numbers == pytest.approx(said(WITH_CUPY))
    x = torch.linspace(-2, 2, 700, device="cuda").reshape(2, 350).t().requires_grad_()
    y = names["Softsign"].apply(x)
    close(y.cpu(), (x / (1 + x.abs())).detach().cpu())
    g, = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    close(g.cpu(), torch.autograd.grad(((x / (1 + x.abs())) ** 2).sum(), x)[0].cpu())
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_an_elementwise_operation(close):
    try:
        numbers, names = run(ELEMENTWISE)
        assert numbers == pytest.approx(said(ELEMENTWISE), rel=1e-3)
        softclip = names["softclip"]
        x = torch.tensor(np.linspace(-2, 2, 7), requires_grad=True)
        assert torch.autograd.gradcheck(softclip, (x, 1.5)) and torch.autograd.gradgradcheck(softclip, (x, 1.5))
        assert softclip(torch.tensor([1, 2])).dtype == torch.float32
        if torch.cuda.is_available():
            close(softclip(x.detach().cuda(), 1.5).cpu(), softclip(x.detach(), 1.5))
            assert "fabs" in torch.cuda.kernel_source("softclip", "float32") or "ag_abs" in torch.cuda.kernel_source("softclip", "float32")
    finally:
        del REGISTRY["softclip"], OPS.softclip
