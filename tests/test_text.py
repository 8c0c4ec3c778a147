"""How tensors print: literally, and compared with PyTorch character by character on random tensors."""
import numpy as np
import pytest

import autograd_gpu as torch

OPTIONS = [{}] * 6 + [
    {"precision": 2}, {"precision": 8}, {"profile": "short"}, {"profile": "full"}, {"sci_mode": True}, {"sci_mode": False},
    {"linewidth": 20}, {"linewidth": 120, "edgeitems": 2}, {"threshold": 5}, {"threshold": 5, "edgeitems": 0}]
SHAPES = [(), (0,), (1,), (3,), (30,), (1001,), (1000,), (2, 3), (0, 3), (3, 0), (2, 3, 4), (1, 1, 1, 2), (2, 600), (600, 2),
          (7, 1, 200), (12, 12, 12), (5, 5, 2, 30)]
DTYPES = ["f4", "f8", "f2", "i8", "i4", "u1", "?", "c8", "c16", "i2"]


@pytest.mark.parametrize(("make", "text"), [
    (lambda: torch.tensor([1.0, 2.5, -3.0]), "tensor([ 1.0000,  2.5000, -3.0000])"),
    (lambda: torch.tensor([1.0, 200.0]), "tensor([  1., 200.])"),
    (lambda: torch.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
    (lambda: torch.tensor(2.0), "tensor(2.)"),
    (lambda: torch.tensor(True), "tensor(True)"),
    (lambda: torch.tensor([1, -20]), "tensor([  1, -20])"),
    (lambda: torch.tensor([1 + 2j]), "tensor([1.+2.j])"),
    (lambda: torch.tensor([float("nan"), float("inf"), 1.5]), "tensor([   nan,    inf, 1.5000])"),
    (lambda: torch.tensor([]), "tensor([])"),
    (lambda: torch.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: torch.zeros(0, dtype=torch.int64), "tensor([], dtype=torch.int64)"),
    (lambda: torch.ones(2, dtype=torch.float64), "tensor([1., 1.], dtype=torch.float64)"),
    (lambda: torch.ones(2, requires_grad=True), "tensor([1., 1.], requires_grad=True)"),
    (lambda: torch.ones(2, requires_grad=True) + 1, "tensor([2., 2.], grad_fn=<AddBackward0>)"),
    (lambda: torch.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (lambda: torch.arange(4).reshape(2, 2), "tensor([[0, 1],\n        [2, 3]])"),
])
def test_literally(make, text):
    assert repr(make()) == str(make()) == text


def test_a_note_that_does_not_fit_goes_to_its_own_line():
    text = repr(torch.linspace(0, 1, 9, dtype=torch.float64, requires_grad=True))
    assert text.splitlines()[-1] == "       dtype=torch.float64, requires_grad=True)"


def test_device_is_named_where_it_is_not_the_cpu(device):
    text = repr(torch.ones(1, device=device))
    assert text == ("tensor([1.])" if device.type == "cpu" else f"tensor([1.], device='{device}')")


def random_array(rng, shape, dtype):
    """Numbers of many kinds of size, some of them nan, inf and -0.0."""
    values = np.asarray(rng.standard_normal(shape))
    values = np.asarray([
        values, values * 10.0 ** rng.integers(-6, 7, shape), np.round(values * 10), values * 1e9, values * 1e-5,
        np.round(values * 100) * 10, values * 0, np.round(values * 3) * 1e3][rng.integers(8)])
    if dtype[0] in "fc" and rng.random() < 0.4:
        pick = rng.random(shape)
        values = np.select([pick < 0.1, pick < 0.2, pick < 0.3, pick < 0.4], [np.nan, np.inf, -np.inf, -0.0], values)
    if dtype[0] == "c":
        imag = rng.permutation(values.ravel()).reshape(shape) * rng.choice([1, 1000, 0.001])
        values = values + 1j * np.where(np.isfinite(imag), imag, 0)
    if dtype in ("u1", "i2"):
        values = np.abs(values) % 120
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


@pytest.mark.parametrize("seed", range(40))
def test_as_pytorch(oracle, seed):
    rng = np.random.default_rng(seed)
    options = OPTIONS[rng.integers(len(OPTIONS))]
    default = ["float32", "float64"][rng.integers(2)]
    for module in (torch, oracle):
        module.set_printoptions(**options)
        module.set_default_dtype(getattr(module, default))
    for _ in range(10):
        shape, dtype = SHAPES[rng.integers(len(SHAPES))], DTYPES[rng.integers(len(DTYPES))]
        array = random_array(rng, shape, dtype)
        ours, real = torch.from_numpy(array), oracle.from_numpy(array)
        if dtype[0] in "fc" and rng.random() < 0.4:
            ours.requires_grad_()
            real.requires_grad_()
        assert repr(ours) == repr(real), (seed, options, default, shape, dtype)


def test_printing_changes_nothing():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    version = y._version
    repr(y)
    assert y._version == version and y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_options():
    with pytest.raises(ValueError, match="profile"):
        torch.set_printoptions(profile="long")
    torch.set_printoptions(precision=2, sci_mode=False)
    assert repr(torch.tensor([1e-5])) == "tensor([0.00])"
    torch.set_printoptions(precision=1)                                  # sci_mode, not named, is decided by the numbers again
    assert repr(torch.tensor([1e-5])) == "tensor([1.0e-05])"
    torch.set_printoptions(profile="default")
    assert repr(torch.tensor([1.5])) == "tensor([1.5000])"


def test_a_number_is_formatted_as_a_number():
    x = torch.tensor(1.5, requires_grad=True)
    assert f"{x} {x * 2:.3f} {torch.tensor(3)} {torch.tensor(True)} {torch.tensor([1.0])}" == "1.5 3.000 3 True tensor([1.])"
    assert f"{torch.nn.Parameter(torch.tensor(1.0))}" == "Parameter containing:\ntensor(1., requires_grad=True)"
    with pytest.raises(TypeError, match="unsupported format string"):
        format(torch.tensor([1.0]), ".2f")
