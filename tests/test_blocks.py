"""Large arrays in blocks: the same bits as in one pass, for every body and formula that has a program; and when there is none."""
import inspect
import itertools
import math
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu import blocks, expression, parallel
from autograd_gpu.bits import FEW, choose
from autograd_gpu.buffers import Buffers
from autograd_gpu.ops.fit import fit
from autograd_gpu.ops.namespace import REGISTRY, rebind
from autograd_gpu.ops.op import Op
from autograd_gpu.ops.runtime import bindings
from tests.samples import ARGUMENTS, BOOLEAN, operands_for

RECORDS = [r for r in REGISTRY.values() if isinstance(r, Op) and r.is_elementwise]
N = 2503                                     # two blocks of a thousand and a part of one


@pytest.fixture
def small(monkeypatch):
    """Blocks of a thousand elements, and arrays large from that size on; one thread (tests/test_parallel.py has more)."""
    monkeypatch.setattr(parallel, "_threads", 1)
    monkeypatch.setattr(blocks, "BLOCK", 1000)
    monkeypatch.setattr(blocks, "LARGE", 1000)


def values(record, names, rng, dtype, shape):
    """Arguments by name: arrays for tensors, what the tests of the ops give for the rest."""
    operands = operands_for(record, rng, shape, dtype)
    for n in names:
        if n in operands:
            yield operands[n]
        elif n in BOOLEAN:
            yield rng.integers(0, 2, shape).astype(bool)
        elif n in record.roles:
            yield ARGUMENTS.get(record.name, {}).get(n, record.defaults.get(n, 0.7))
        elif n in ("grad", "result"):
            yield rng.uniform(*record.domain, shape).astype(dtype)
        else:
            yield None


def made(dtype):
    """(name, Blocked, arguments, keyword arguments) for everything of the registry that is made for large arrays."""
    for record in RECORDS:
        for name, f in bindings(record, np).items():
            if not isinstance(f, blocks.Blocked):
                continue
            names = [n for n in record.parameters if n not in record.settled] if name == "apart_body" else \
                record.formula_parameters[name.removeprefix("wide_raw_")]
            args = dict(zip(names, values(record, names, np.random.default_rng(1), dtype, (N,)), strict=True))
            named = {n: args.pop(n) for n in names if name == "apart_body" and n in record.keyword_only}
            yield f"{record.name}.{name}", f, list(args.values()), named


@pytest.mark.parametrize(("dtype", "least"), [("float32", 110), ("float64", 110), ("float16", 120)])
def test_the_same_bits(small, dtype, least):
    count = 0
    with np.errstate(all="ignore"):
        for name, f, args, named in made(dtype):
            for a in args:
                if isinstance(a, np.ndarray) and a.ndim and a.dtype.kind == "f":
                    a[[1, 1001, 2001, 2502]] = np.nan, np.inf, -np.inf, -0.0
            try:
                want, got = f.plain(*args, **named), f(*args, **named)
            except (NotImplementedError, TypeError):               # an op on integers
                continue
            program = next(iter(f.programs.values()))
            if program is None:
                continue
            count += 1
            assert type(want) is np.ndarray and got.dtype == want.astype(program.dtypes[0]).dtype, name
            np.testing.assert_array_equal(got.view(f"u{got.itemsize}") if got.dtype.kind == "f" else got,
                                          want.astype(got.dtype).view(f"u{got.itemsize}") if got.dtype.kind == "f" else want, err_msg=name)
    assert count >= least


def program(name, *kinds):
    return blocks.Program(rebind(REGISTRY[name].formulas["self"], expression.FUNCTIONS), kinds)


F4 = np.dtype("f4")


@pytest.mark.parametrize("shape", [(50, 50), (10, 5, 50)])
def test_layouts(small, shape):
    p = program("sigmoid", F4, F4)
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, np.float32) for _ in range(2))
    plain = rebind(REGISTRY["sigmoid"].formulas["self"], np)
    for g, r in [(a, b), (a.T, b.T), (np.asfortranarray(a), np.asfortranarray(b)), (np.array(2, "f4"), b),
                 (np.broadcast_to(np.float32(3), shape), b), (a[:1], b), (a[..., :1], b), (a[:, :1].copy(), b),
                 (a[0], b), (a[0, ..., ::-1], b)]:
        got = p(g, r)
        np.testing.assert_array_equal(got, plain(g, r))
        assert got.strides == r.strides
    for g, r in [(a, np.asfortranarray(b)), (a[::2], b[::2]), (a[..., :1], np.asfortranarray(b)),
                 (a.reshape(-1, 1)[:50], b.reshape(1, -1)[:, :40])]:
        assert p(g, r) is None
    for n, answer in ((4000, True), (4001, False)):      # a row
        long = rng.random((2, n), np.float32)
        assert (p(long[:, :1], long) is not None) is answer


@pytest.mark.parametrize(("name", "p", "factors", "steps"), [
    ("sub", "other", "grad", 1), ("mul", "other", "grad self", 0), ("div", "other", "grad self", 3), ("div", "self", None, 0),
    ("addcdiv", "tensor2", "grad tensor1", 3), ("lerp_tensors", "weight", None, 0), ("atan2", "other", None, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_is_summed_without_what_does_not_vary(small, monkeypatch, name, p, factors, steps, dtype, threads):
    monkeypatch.setattr(parallel, "_threads", threads)
    record, rng = REGISTRY[name], np.random.default_rng(0)
    names, f = record.formula_parameters[p], bindings(record, np)[f"wide_raw_{p}"]
    for whole, row in [((300, 8), (300, 1)), ((4, 50, 7, 3), (4, 50, 1, 1)), ((7, 500), (7, 1)), ((40, 30, 5), (40, 1, 1))]:
        args = [rng.uniform(0.5, 2, row if n in (p, "weight") else whole).astype(dtype) if n == "grad" or n in record.roles and
                record.annotations[n] is inspect.Parameter.empty else 0.5 for n in names]
        args[0] -= np.asarray(1, dtype)
        total = f.summed(row, *args)
        want = fit(f.plain(*[a.astype("f8") if isinstance(a, np.ndarray) else a for a in args]), row, np.dtype("f8"))
        np.testing.assert_allclose(fit(total, row, np.dtype(dtype)), want, 1e-4 if dtype == "float32" else 1e-11, 1e-5)
        program = f._program_for(args, {})
        products = [] if program is None else [*program._products.values()]
        if factors is None:
            assert products in ([], [None])
        else:
            (found, after), = products[:1]
            assert total.shape == row and ([names[i] for i in found], len(after)) == (factors.split(), steps)


@pytest.mark.parametrize("f", [lambda x, q: x - q, lambda x, q: x * q, lambda x, q: x / q, lambda x, q: torch.sub(x, q, alpha=2),
                               lambda x, q: q / x, lambda x, q: x.detach() * q, lambda x, q: -q + x, lambda x, q: x ** q])
def test_sums_of_gradients_that_are_expanded(f):
    """That of a sum is one number for all elements."""
    def gradients(dtype):
        x, q = (torch.tensor(a.astype(dtype), requires_grad=True) for a in arrays)
        f(x, q).sum().backward()
        f(x, q).sum(1, keepdim=True).mul(3).sum().backward()
        return x.grad, q.grad
    rng = np.random.default_rng(0)
    for row in ((600, 1), (600, 8, 1), (1, 1), (1, 100), ()):
        whole = (600, 8, 100) if len(row) == 3 else (600, 800)
        arrays = rng.uniform(0.5, 2, whole), rng.uniform(0.5, 2, row if row != (1, 100) else (1, 800))
        for g, want in zip(gradients("f4"), gradients("f8"), strict=True):
            if g is not None:
                np.testing.assert_allclose(g.numpy(), want.numpy(), 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", ["x / q", "t.addcdiv(x, x, q)", "t.addcmul(x, x, q, value=2)", "x - q", "x * q"])
def test_a_product_is_not_summed_out_of_its_range(oracle, f, dtype):
    """Divisors that are zero or inf, zeros, tiny and huge numbers: as where each product is divided; rows without a gradient."""
    rng, far = np.random.default_rng(0), 25 if dtype == "float32" else 200
    x, g = rng.uniform(0.5, 2, (2, blocks.LARGE // 4, 4)) * [[[1]], [[-1]]]
    q, even, some = rng.uniform(0.5, 2, (len(x), 1)), np.arange(len(x))[:, None] % 2 == 0, np.arange(4) % 3 > 0
    tiny, huge = 10.0 ** -far, 10.0 ** far
    for a, b, grad in ((x * some, q * even, g), (x, np.where(even, np.inf, q), g), (x * tiny, q * tiny, g * tiny), (x * tiny, q, g * tiny),
                       (x * huge, q * huge, g * huge), (x * huge, q, g * huge), (x, q * even, g * even),
                       (x * some, q, np.where(some, g, np.inf))):
        found = []
        for t in (oracle, torch):
            x_, q_, grad_ = (t.tensor(v.astype(dtype), requires_grad=True) for v in (a, b, grad))
            eval(f, {"x": x_, "q": q_, "t": t}).backward(grad_)
            found.append(q_.grad.numpy())
        np.testing.assert_allclose(found[1], found[0], 1e-4, 1e-40)


def test_a_long_row_of_products_is_summed_in_halves(small):
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(-1, 1, (3, 2, blocks.LONG + 1)).astype("f4")
    f = bindings(REGISTRY["mul"], np)["wide_raw_other"]
    assert f.summed((2, 1), a, b) is not None and not f._program_for((a, b), {})._products


def test_blocks_begin_at_cache_lines():
    buffers = Buffers()
    made = [buffers.at(i, (n, 3), np.dtype(dtype)) for i, (n, dtype) in enumerate([(5, "f4"), (7, "f8"), (1, "i2")])]
    assert all(a.ctypes.data % 64 == 0 and a.shape[1:] == (3,) for a in (*made, buffers.at(1, (500, 3), np.dtype("f8"))))


def test_equal_expressions_once_and_buffers_reused():
    p = blocks.Program(lambda x: (x * x + 1) / (x * x + 1) - x, (F4,))
    assert p.source.count("multiply(") == 1 and "b1" not in p.source, p.source


def test_what_is_no_expression_has_no_program():
    for f in (lambda x: x, lambda x: x.sum(), lambda x: x if x > 0 else -x):
        b = blocks.Blocked(f, f)
        assert b._program((F4,), ()) is None


def test_a_single_operation_is_only_for_several_threads(small, monkeypatch):
    b = blocks.Blocked(lambda x: x + 1, lambda x: "plain")
    a = np.arange(20000, dtype="f4")
    for threads, large, answer in ((1, a, "plain"), (2, a, a + 1), (2, a[:10], "plain"), (2, a[::2], "plain")):
        monkeypatch.setattr(parallel, "_threads", threads)
        np.testing.assert_array_equal(b(large), answer)


def test_steps_reads_the_code():
    assert blocks.steps(REGISTRY["mul"].formulas["self"], REGISTRY) == 1
    assert blocks.steps(REGISTRY["sigmoid"].formulas["self"], REGISTRY) > 1
    assert blocks.steps(REGISTRY["add"].formulas["self"], REGISTRY) == 0
    assert blocks.steps(REGISTRY["softmax"].formulas["self"], REGISTRY) is None


def test_what_half_precision_needs_float32_for():
    """More than one operation, or a number, which is rounded where it meets half precision."""
    assert [REGISTRY[n].widens for n in ("mul", "add", "sigmoid", "add_scaled", "mean")] == [False, False, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int16, torch.complex64])
def test_large_tensors_from_the_outside(small, monkeypatch, dtype):
    """Above and below the size at which blocks begin: the same values and gradients, in several threads at once."""
    x = (torch.rand(blocks.LARGE * 300) * 4 - 2).to(dtype)
    floating = dtype in (torch.float32, torch.float16)

    def run():
        leaf = x.clone().requires_grad_(dtype.is_floating_point or dtype.is_complex)
        y = torch.sigmoid(leaf) * 2 + (torch.nn.functional.silu(leaf) if floating else torch.tanh(leaf) * 3)
        if leaf.requires_grad:
            (y.abs() if dtype.is_complex else y).sum().backward()
        return y.detach().numpy(), leaf.grad.numpy() if leaf.requires_grad else None
    found = []
    threads = [threading.Thread(target=lambda: found.append(run())) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    found.append(run())
    monkeypatch.setattr(blocks, "LARGE", 1 << 60)
    y, g = run()
    assert len(found) == 4
    for a, b in found:
        np.testing.assert_array_equal(a, y)
        if g is not None:
            np.testing.assert_array_equal(b, g)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "float16", "int32", "float32", "int64", "float64",
                                   "complex64", "complex128"])
def test_choose_gives_the_bits_of_where(dtype):
    rs = np.random.RandomState(0)
    shape = (80, 64)
    assert math.prod(shape) >= FEW
    special = np.array([0.0, -0.0, 1, np.nan, np.inf, -np.inf, 7]).astype("float16" if dtype[0] in "fc" else "bool")
    x, y = (special[rs.randint(0, len(special), shape)].astype(dtype) for _ in range(2))
    condition = rs.rand(*shape) > 0.5
    zero = np.zeros((), dtype)[()]
    for a, b in ((x, y), (x, zero), (zero, y), (x, 0), (0, y), (x, -zero if dtype[0] in "fc" else zero),
                 (x[0], y), (x, y[:, :1]), (zero, zero),
                 (x.T.copy().T, y), (x[::-1], y[:, ::-1]), (np.broadcast_to(x[0], shape), y)):
        for c in (condition, condition.T.reshape(shape), np.asfortranarray(condition)):
            expected = np.where(c, a, b)
            for found in (choose(c, a, b), choose(c, a, b, out=np.empty(shape, expected.dtype))):
                assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    assert choose(np.array(True), 1, 2) == 1 and choose(condition, x[:, None], zero).shape == (80, 80, 64)


# ------------------------------------------------------------------------------------------------------------- writing in place

RULES = {
    "one after the other": lambda np: lambda g, a, b: (a + g, b * (a - g)),
    "the old values": lambda np: lambda g, a, b: (b + 1, a + 2), "the same value": lambda np: lambda g, a, b: (a * b, a * b),
    "one of another": lambda np: lambda g, a, b: (np.sqrt(a * a + 1), a * a + 1),
    "where": lambda np: lambda g, a, b: (np.where(a > b, a, g), np.where(b > a, b * g, b)),
    "where it reads itself": lambda np: lambda g, a, b: (np.where(g > 0, a * 2, a), np.where(b > 0, g, b)),
    "of the gradient alone": lambda np: lambda g, a, b: (-g, g * 2), "a long way": lambda np: lambda g, a, b: (
        a - 0.1 * (0.9 * b + g * g) / (np.sqrt(b * b) + 1e-3), 0.9 * b + g * g)}


def rows(dtype):
    """Of several lengths, in C order, in Fortran order and in neither."""
    rng = np.random.default_rng(0)
    shapes = [(N,), (1000,), (3,), (), (0,), (30, 40), (30, 40), (30, 40)]
    found = [[rng.standard_normal(shape).astype(dtype) for _ in range(3)] for shape in shapes]
    found[-2] = [np.asfortranarray(a) for a in found[-2]]
    found[-1] = [np.repeat(a, 2, 1)[:, ::2] if k else a.T.copy().T for k, a in enumerate(found[-1])]
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", RULES)
def test_results_are_written_to_the_arguments(small, name, dtype):
    program = blocks.InPlace("k", RULES[name](expression.FUNCTIONS), (np.dtype(dtype),) * 3)
    changed, wanted = rows(dtype), rows(dtype)
    program(changed, ())
    for row in wanted:
        wide = [a.astype(np.float32) if dtype == "float16" else a for a in row]
        for a, new in zip(row[1:], RULES[name](np)(*wide), strict=True):
            a[...] = new
    for ours, theirs in zip(changed, wanted, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_numbers_are_arguments_and_several_rows_may_be_the_same_one(small):
    program = blocks.InPlace("k", lambda g, a, rate, n: (a * rate + n,), (np.dtype("f4"),) * 2 + (float, float), ("rate", "n"))
    a = np.arange(6, dtype="f4").reshape(2, 3)[:, ::2]
    program([[a, a], [a, a]], (2.0, 1.0))
    np.testing.assert_array_equal(a, [[3, 11], [15, 23]])
    with pytest.raises(expression.Untraceable):
        blocks.InPlace("k", lambda g, a: (a,), (np.dtype("f4"),) * 2)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "c8"])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_rows(monkeypatch, dtype, threads):
    monkeypatch.setattr(parallel, "_threads", threads)
    monkeypatch.setattr(blocks, "LARGE", 1 << 13)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 9)
    a = (np.random.default_rng(0).standard_normal(1 << 15) * 9).astype(dtype)
    for shape in [(-1, 8), (16, -1, 4), (4, -1, 64), (-1, 512), (2, -1), (-1,), (-1, 1)]:
        for x in (a.reshape(shape), a.reshape(shape).T, a.reshape(shape)[:100], a.reshape(shape)[..., ::2]):
            for dim in (-1, x.ndim - 1, (x.ndim - 1,), 0, None, tuple(range(x.ndim))):
                for keepdim in (False, True):
                    got, want = blocks.summed(x, dim, keepdim), np.add.reduce(x, dim, None, None, keepdim)
                    assert np.shape(got) == want.shape and got.dtype == want.dtype
                    np.testing.assert_allclose(got, want, {"f2": 1e-2, "f8": 1e-12}.get(dtype, 1e-4), 1e-3)
                    assert getattr(got, "base", None) is None or dtype not in ("f4", "f8") or x.size < 1 << 13
    for dim in (2, 3, -3, 5, (3,), (-3,)):                      # which are the last of two when they are taken modulo 2
        with pytest.raises(IndexError, match="out of range"):
            torch.from_numpy(a.reshape(-1, 8)).sum(dim)
    rows = np.random.default_rng(1).random((6000, 50), np.float32)
    parts = [blocks.summed(rows[i:i + 7], -1, True, rows.size) for i in range(0, 6000, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), blocks.summed(rows, -1, True))


@pytest.mark.parametrize("shape", [(64, 70), (1, 5000), (5000, 1), (600, 8), (1000, 33), (8, 9, 70), (2, 3, 4, 500), (2000, 3, 4),
                                   (70, 0, 100)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_over_any_dimensions(shape, dtype):
    a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    several = [c for k in range(len(shape) + 1) for c in itertools.permutations(range(-len(shape), 0), k)]
    for dim, keepdim in itertools.product([None, *range(-len(shape), len(shape)), *several], (False, True)):
        got, want = blocks.summed(a, dim, keepdim), np.add.reduce(a, dim, np.float64, None, keepdim)
        assert np.shape(got) == want.shape and got.dtype == a.dtype
        np.testing.assert_allclose(got, want, 1e-5 if dtype == "f4" else 1e-12, 1e-4 if dtype == "f4" else 1e-12)
    for dim in (len(shape), -len(shape) - 1, (0, 0), (0, len(shape))):
        with pytest.raises((ValueError, IndexError)):
            blocks.summed(a, dim)


@pytest.mark.parametrize("n", [7, 10, 1000, 1030])
def test_equal_elements_have_no_variance(oracle, n):
    """So the deviation has no gradient there. It is the mean that has to be exact: it is NaN of infinities."""
    for rows in (3, 300):
        for values in ([0.1] * n, [1 / 3] * n, [123.456] * n, [math.inf] * n):
            found = []
            for t in (oracle, torch):
                x = t.tensor([values] * rows, requires_grad=True)
                x.std(1).sum().backward()
                found.append([*t.var_mean(x.detach(), 1), *t.std_mean(x.detach()), x.grad])
            for a, b in zip(*found, strict=True):
                np.testing.assert_allclose(b.numpy(), a.numpy(), 1e-6)
        large = [t.tensor([[3e38] * n + [3.0]] * rows).var(1).numpy() for t in (oracle, torch)]
        np.testing.assert_array_equal(*large)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [511, 512, 1000, 100_000])
def test_columns_are_summed_as_exactly_as_rows(monkeypatch, threads, n):
    """Of equal numbers, too, whose rounding errors have one sign: as the gradient of what is added to each row of a mean."""
    monkeypatch.setattr(parallel, "_threads", threads)
    bias = torch.zeros(3, requires_grad=True)
    (torch.zeros(n, 3) + bias).mean().backward()
    np.testing.assert_allclose(bias.grad.numpy(), 1 / 3, 2e-5)
    a = np.random.default_rng(0).random((n, 3))
    for keepdim in (False, True):
        np.testing.assert_allclose(torch.tensor(a, dtype=torch.float32).sum(0, keepdim).numpy(), a.sum(0, keepdims=keepdim), 2e-6)


@pytest.mark.parametrize("shape", [(5000, 3), (5000, 1, 3), (3000, 2, 3)])
def test_half_precision_is_summed_in_float32(shape):
    bias = torch.zeros(3, dtype=torch.float16, requires_grad=True)
    (torch.zeros(shape, dtype=torch.float16) + bias).backward(torch.ones(shape, dtype=torch.float16))
    assert bias.grad.tolist() == [math.prod(shape) / 3] * 3
