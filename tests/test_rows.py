"""Normalisation on the CPU in blocks of rows: beside the same formulas in float64 and PyTorch, the same bits from any number of threads."""
import itertools

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu import blocks, rows

F = torch.nn.functional
SHAPES = [(1, 1), (1, 7), (5, 1), (3, 40), (700, 8), (40, 1100), (9, 5000), (2, 20000), (600, 300)]


def numbers(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("columns", [False, True])
def test_sums_products_and_what_is_made_of_them(shape, columns):
    x, grad = numbers(shape), numbers(shape, seed=1)
    common = (1, shape[1]) if columns else (shape[0], 1)
    mean, factor, slope, shift = (numbers(common, seed=i) for i in range(2, 6))
    off, axis = x.astype("f8") - mean, 0 if columns else 1
    for got, want in [(rows.sums(x, columns=columns), x.astype("f8")), (rows.sums(x, mean, columns), off),
                      (rows.products(x, mean, columns=columns), off * off), (rows.products(x, mean, grad, columns), off * grad)]:
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, want.sum(axis, keepdims=True), 1e-5, 1e-6 * x.size ** 0.5 * 10)
    out = np.empty_like(x)
    for last in (shift, None):
        rows.scaled(x, mean, factor, last, out)
        np.testing.assert_allclose(out, off * factor + (0 if last is None else last), 1e-5, 1e-5)
    rows.combined(grad, factor, x, mean, slope, shift, out)
    np.testing.assert_allclose(out, grad * factor.astype("f8") + off * slope + shift, 1e-5, 1e-5)


@pytest.mark.parametrize(("n", "width", "length"), [(3000, 16, 300), (2100, 128, 10000), (20000, 8, 3), (7, 5, 4), (5000, 1, 50)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i8", "f2"])
def test_rows_added_at_indices(n, width, length, dtype):
    rng = np.random.default_rng(0)
    index, values = rng.integers(0, length, n), (rng.standard_normal((n, width)) * 5).astype(dtype)
    out = (rng.standard_normal((length, width)) * 5).astype(dtype)
    want = out.astype("c16" if dtype == "c8" else "f8")
    np.add.at(want, index, values)
    before = out.copy()
    rows.add_at(out, index, values)
    assert out.dtype == dtype
    made = rows.added_up(index, values, length)
    assert made.dtype == dtype and made.shape == out.shape
    np.testing.assert_allclose(made + before, out, 0.2 if dtype == "f2" else 1e-5, {"f2": 0.5, "f8": 1e-10}.get(dtype, 1e-3))
    np.testing.assert_allclose(out, want, 0.2 if dtype == "f2" else 1e-5, {"f2": 0.5, "f8": 1e-10}.get(dtype, 1e-3))


def test_infinite_rows_added_at_indices_stay_what_they_are():
    out = np.zeros((4, 16), "c8")
    rows.add_at(out, np.arange(3000) % 3, np.full((3000, 16), complex(np.inf, 0), "c8"))
    assert (out[:3] == complex(np.inf, 0)).all() and not out[3].any()


def layers(module, dtype):
    """Functions of an input of some shape, and shapes for them."""
    functional = module.nn.functional

    def parameters(*shape):
        return [module.tensor(numbers(shape, dtype, seed), requires_grad=True) for seed in (8, 9)]
    for shape, axes in (((600, 40), 1), ((2, 700, 30), 1), ((40, 3, 50), 2), ((1, 300000), 1), ((70000, 4), 1)):
        own = parameters(*shape[-axes:])
        yield shape, own, lambda x, own=own, n=axes: functional.layer_norm(x, x.shape[-n:], *own)
    for shape in ((600, 40), (20, 6, 500), (3, 4, 9, 11), (2, 3, 300, 200), (5, 4, 1)):
        own, running = parameters(shape[1]), [module.zeros(shape[1], dtype=getattr(module, {"f4": "float32", "f8": "float64"}[dtype])),
                                              module.ones(shape[1], dtype=getattr(module, {"f4": "float32", "f8": "float64"}[dtype]))]
        for training in (True, False):
            yield shape, [*own, *running], lambda x, own=own, r=running, t=training: functional.batch_norm(x, *r, *own, training=t)
        yield shape, [], lambda x: functional.batch_norm(x, None, None, training=True)
    for shape, groups in (((20, 6, 500), 3), ((3, 4, 9, 11), 4), ((2, 8, 200, 100), 2), ((300, 6), 2), ((4, 6, 1), 1)):
        own = parameters(shape[1])
        yield shape, own, lambda x, own=own, n=groups: functional.group_norm(x, n, *own)
        yield shape, [], lambda x, n=groups: functional.group_norm(x, n)


def found(module, dtype, change):
    """Results, gradients of all that has one, and running values, of every layer."""
    for shape, own, f in layers(module, dtype):
        x = module.tensor(change(numbers(shape, dtype)))
        x.requires_grad_()
        result = f(x)
        (result * module.tensor(numbers(shape, dtype, 3))).sum().backward()
        yield shape, [t.detach().numpy() for t in (result, x.grad, *[p.grad if p.requires_grad else p for p in own])]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("change", [lambda a: a, lambda a: a * 3 + 50, lambda a: np.asfortranarray(a)])
def test_beside_pytorch(oracle, dtype, change):
    for (shape, ours), (_, theirs) in zip(found(torch, dtype, change), found(oracle, dtype, change), strict=True):
        for got, want in zip(ours, theirs, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            scale = max(1, np.abs(want).max(initial=0))
            assert np.abs(got - want).max(initial=0) <= (2e-4 if dtype == "f4" else 1e-10) * scale, shape


def test_the_same_bits_from_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(blocks, "LARGE", 1 << 12)
    monkeypatch.setattr(rows, "LARGE", 1 << 12)
    monkeypatch.setattr(rows, "BLOCK", 1 << 10)
    before = torch.get_num_threads()
    try:
        made = []
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            made.append([a.tobytes() for _, arrays in found(torch, "f4", lambda a: a) for a in arrays])
        assert made[0] == made[1] == made[2]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("value", [0.1, 12345.678, -3e4])
def test_equal_elements_are_brought_to_zero(value):
    """Where their mean is rounded, what is left is not divided by nearly nothing."""
    x = torch.full((6, 4, 30, 7), value)
    for result in (F.layer_norm(x, (30, 7)), F.batch_norm(x, None, None, training=True), F.group_norm(x, 2)):
        assert result.abs().max() < 1e-5


def test_running_values_are_the_unbiased_ones_and_written_once():
    m = torch.nn.BatchNorm1d(3, momentum=0.25)
    x = torch.tensor(numbers((50, 3), "f4"))
    versions = m.running_mean._version, m.running_var._version
    m(x)
    assert (m.running_mean._version, m.running_var._version) == tuple(v + 1 for v in versions)
    np.testing.assert_allclose(m.running_mean.numpy(), x.numpy().mean(0) * 0.25, 1e-5, 1e-6)
    np.testing.assert_allclose(m.running_var.numpy(), 0.75 + 0.25 * x.numpy().var(0, ddof=1), 1e-5)
    m(x[:2])
    for half, norm in itertools.product((torch.float16, torch.float32), (torch.nn.LayerNorm(3), m)):
        assert norm.to(half)(x.to(half)).dtype == half


def test_running_values_that_change_after_a_forward_do_not_change_its_gradients():
    m, x = torch.nn.BatchNorm1d(3).double(), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]], dtype=torch.float64, requires_grad=True)
    y = m.eval()(x)
    m.train()(x.detach() * 10)
    (y * y).sum().backward()
    np.testing.assert_allclose(m.weight.grad.numpy(), 2 * (x.detach().numpy() ** 2).sum(0), 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(64, 10), (3, 40, 5), (64, 33), (8, 300), (4, 4), (1, 700), (700, 1), (40, 64, 64)])
@pytest.mark.parametrize("function", [np.maximum, np.minimum])
def test_the_extremes_of_rows(function, shape, dtype):
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    if x.dtype.kind == "f":
        x[0, ..., -1] = np.nan
    for dims, keepdim in itertools.product((-1, len(shape) - 1, (len(shape) - 1,), 0, None, (0, 1)), (False, True)):
        np.testing.assert_array_equal(rows.extreme(function, x, dims, keepdim), function.reduce(x, dims, keepdims=keepdim), strict=True)
    turned = x.T
    np.testing.assert_array_equal(rows.extreme(function, turned, 1, True), function.reduce(turned, 1, keepdims=True), strict=True)


@pytest.mark.parametrize("n", [3, 600])
@pytest.mark.parametrize("shapes", [("n", "2"), ("n", "2n"), ("2n", "2")])
def test_indices_that_do_not_fit_each_other(oracle, n, shapes):
    a, b = (np.zeros({"n": n, "2": 2, "2n": (2, n)}[s], np.int64) for s in shapes)
    outcomes = []
    for lib in (torch, oracle):
        try:
            outcomes.append(lib.zeros(3, 4).index_put((lib.tensor(a), lib.tensor(b)), lib.ones(()), accumulate=True).numpy())
        except IndexError as error:
            outcomes.append("shape mismatch: indexing" in str(error))
    np.testing.assert_array_equal(*outcomes)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "complex64"])
def test_batch_norm_of_no_floating_dtype(dtype, training, oracle):
    for module in (torch, oracle):
        with pytest.raises(NotImplementedError):
            module.nn.functional.batch_norm(module.ones(2, 3, dtype=getattr(module, dtype)), module.ones(3), module.ones(3),
                                            training=training)
