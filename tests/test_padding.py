"""Padding beside PyTorch: values, first and second derivatives, dtypes, modules, errors."""
import itertools

import numpy as np
import pytest

import autograd_gpu
from tests.parity import said

MODES = ["constant", "reflect", "replicate", "circular"]
SHAPES = [((2, 3, 4), (1, 2)), ((3, 4), (0, 3)), ((2, 3, 4), (3, 3)), ((2, 3, 4), (0, 0)), ((2, 3, 4), (-1, -1)), ((2, 3, 4), (-1, 2)),
          ((2, 4, 4), (1, 2, 2, 1)), ((2, 3, 4, 5), (1, 1, 2, 2)), ((0, 3, 4, 4), (1, 1, 1, 1)), ((2, 3, 5, 5), (2, 2, -2, 2)),
          ((2, 2, 3, 4, 3), (1, 2, 2, 1, 1, 0)), ((2, 4, 3, 3), (2, 1, 1, 1, 2, 2))]
CASES = [(mode, *case) for mode, case in itertools.product(MODES, SHAPES)] + [
    ("constant", (2, 3), (1, 1, 2, 2)), ("constant", (2, 3, 4, 2), (0, 1, 1, 0, -1, 2, 1, -1)), ("constant", (), ()),
    ("constant", (3, 0), (1, 1, 1, 1)), ("constant", (3, 4), (-2, -2)), ("reflect", (2, 3, 4), (-5, 2)), ("reflect", (2, 3, 4), (3, -2)),
    ("replicate", (1, 1, 1), (7, 5)), ("replicate", (2, 3, 4), (-4, 4)), ("circular", (2, 0, 4), (4, 4))]
REFUSED = {
    ("constant", (2, 3), (1,)): "divisible by 2", ("constant", (2, 3), (1,) * 6): "Padding length", ("constant", (2, 3), (-4, 2)): "narrow",
    ("constant", (2, 3), (-2, -2)): "length must be non-negative", ("constant", (), (1, 1)): "input of dimension 0",
    ("reflect", (2, 3, 4), (4, 0)): "less than the corresponding input dimension", ("reflect", (3,), (1, 1)): "not supported for 1D",
    ("reflect", (2, 3, 4, 5), (1, 1)): "not supported for 4D", ("reflect", (2, 0, 4), (1, 1)): "non-zero dimensions",
    ("replicate", (2, 3, 4), (-2, -2)): "too small. Calculated output W: 0", ("circular", (2, 3, 4), (5, 0)): "wrapping around",
    ("circular", (2, 3, 4), (0, -5)): "", ("mirror", (2, 3, 4), (1, 1)): "Unrecognised padding mode mirror",
    ("constant", (2, 3), 1): "must be tuple of ints, not int", ("constant", (2, 3), (1.0, 1)): "found element of type float",
}


def twice(torch, mode, shape, widths, dtype="float64", value=None):
    """The padded input, its gradient and the gradient of that."""
    x = torch.tensor(np.random.RandomState(0).randn(*shape)).to(getattr(torch, dtype)).requires_grad_()
    y = torch.nn.functional.pad(x * 1, widths, mode, value)
    weight = torch.tensor(np.random.RandomState(1).randn(*y.shape)).to(y.dtype)
    g, = torch.autograd.grad((y * y * weight).sum().real if y.is_complex() else (y * y * weight).sum(), x, create_graph=True)
    h, = torch.autograd.grad((g * g).sum().real if y.is_complex() else (g * g).sum(), x)
    return y.grad_fn.name(), y.detach(), g.detach(), h


def agree(close, found, expected):
    assert found[0] == expected[0]
    for a, b in zip(found[1:], expected[1:], strict=True):
        close(a, b)


@pytest.mark.parametrize(("mode", "shape", "widths"), CASES)
def test_values_and_derivatives(mode, shape, widths, oracle, close):
    agree(close, twice(autograd_gpu, mode, shape, widths), twice(oracle, mode, shape, widths))


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("mode", MODES)
def test_floating_dtypes(mode, dtype, oracle, close):
    agree(close, twice(autograd_gpu, mode, (2, 4), (1, 0), dtype), twice(oracle, mode, (2, 4), (1, 0), dtype))


@pytest.mark.parametrize("mode", MODES)
def test_other_dtypes(mode, oracle):
    def run(torch, dtype):
        return torch.nn.functional.pad(torch.arange(12).view(3, 4).to(getattr(torch, dtype)), (2, 1), mode).tolist()
    for dtype in ("int8", "uint8", "int32", "int64"):
        assert run(autograd_gpu, dtype) == run(oracle, dtype)
    if mode in ("constant", "circular"):
        assert run(autograd_gpu, "bool") == run(oracle, "bool")
    else:
        for torch in (autograd_gpu, oracle):
            with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
                run(torch, "bool")


def test_values(oracle):
    values = [0, 1.5, -1, 300, float("inf"), True, "one", 1j]
    for dtype, value in itertools.product(["bool", "int8", "uint8", "float16", "float32", "complex64"], values):
        def run(torch, dtype=dtype, value=value):
            made = torch.nn.functional.pad(torch.ones(2).to(getattr(torch, dtype)), (1, 2), value=value)
            return str(made.dtype), made.tolist()
        words = ("without overflow", "argument 'value' (position 4) must be float, not")
        expected = said(lambda run=run: run(oracle), *words)
        assert said(lambda run=run: run(autograd_gpu), *words) == expected
        assert expected or run(autograd_gpu) == run(oracle)
    for torch in (autograd_gpu, oracle):
        with pytest.raises(RuntimeError, match='Padding mode "reflect" doesn\'t take in value argument'):
            torch.nn.functional.pad(torch.ones(2, 3), (1, 1), "reflect", 1.0)


@pytest.mark.parametrize(("case", "word"), REFUSED.items())
def test_refusals(case, word, oracle):
    mode, shape, widths = case
    expected = said(lambda: oracle.nn.functional.pad(oracle.ones(shape), widths, mode), word)
    assert expected is not None and expected[1] == [True]
    assert said(lambda: autograd_gpu.nn.functional.pad(autograd_gpu.ones(shape), widths, mode), word) == expected


def test_circular_after_taking_away(oracle, close):
    """What a negative width takes away is not wrapped around; where too little is left PyTorch reads memory that nobody wrote."""
    agree(close, twice(autograd_gpu, "circular", (1, 1, 6), (3, -2)), twice(oracle, "circular", (1, 1, 6), (3, -2)))
    with pytest.raises(RuntimeError, match="wrapping around more than once: 3 for size 2"):
        autograd_gpu.nn.functional.pad(autograd_gpu.ones(1, 1, 3), (3, -1), "circular")


def test_a_padding_of_nothing_is_a_copy(oracle):
    for torch in (autograd_gpu, oracle):
        x = torch.arange(6.0).view(2, 3).t()
        y = torch.nn.functional.pad(x, (0, 0))
        y[0, 0] = 9
        assert x[0, 0] == 0 and y.stride() == (1, 3)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", ["ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"])
def test_modules(name, dims, oracle, close):
    for widths in (2, [1] * (2 * dims), (1, 2) * dims):
        def run(torch, widths=widths):
            module = getattr(torch.nn, f"{name}{dims}d")(widths, *[3.5] * (name == "ConstantPad"))
            x = torch.arange(2.0 * 4 ** dims).view(2, *[4] * dims)
            return repr(module), module.padding, module(x), module(x[None])
        ours, theirs = run(autograd_gpu), run(oracle)
        assert ours[:2] == theirs[:2]
        for a, b in zip(ours[2:], theirs[2:], strict=True):
            close(a, b)
    if name == "CircularPad":
        for torch in (autograd_gpu, oracle):
            with pytest.raises(ValueError, match=f"expected {dims + 1}D or {dims + 2}D input"):
                getattr(torch.nn, f"{name}{dims}d")(1)(torch.ones([2] * dims))
