"""Kernels for reductions, softmax and the losses of classes: every op, dtype and layout gives what it gives on the CPU."""
import math

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.cuda import reduce
from autograd_gpu.ops import kernels
from tests.cuda.common import gpu

pytestmark = gpu

F = torch.nn.functional
FLOATS = [torch.float32, torch.float64, torch.float16, *([torch.bfloat16] if hasattr(torch, "bfloat16") else [])]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.bool]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-9, torch.float16: 2e-3} | dict.fromkeys(FLOATS[3:], 1.6e-2)      # 2 units
inf, nan = math.inf, math.nan


def values(shape, dtype, low=-2.0, high=2.0):
    x = np.random.default_rng(len(shape)).uniform(low, high, shape)
    return torch.from_numpy(np.asarray(x)).to(dtype)


def numbers(t):
    return t.detach().cpu().to(torch.float64).numpy() if t.dtype.is_floating_point else t.cpu().numpy()


def same(on_cuda, on_cpu, what=""):
    if isinstance(on_cpu, (tuple, list)):
        for x, y in zip(on_cuda, on_cpu, strict=True):
            same(x, y, what)
        return
    assert on_cuda.is_cuda and on_cuda.shape == on_cpu.shape and on_cuda.dtype == on_cpu.dtype, what
    tolerance = TOLERANCE.get(on_cpu.dtype, 0)
    np.testing.assert_allclose(numbers(on_cuda), numbers(on_cpu), rtol=tolerance, atol=tolerance, err_msg=str(what))


@pytest.fixture
def only_kernels(monkeypatch):
    """What the kernels do not cover is not given to CuPy's functions, but fails."""
    def insisting(launcher):
        def function(*args, **options):
            found = launcher(*args, **options)
            assert found is not NotImplemented, launcher
            return found
        return function
    for name, launcher in kernels.LAUNCHERS.items():
        monkeypatch.setitem(kernels.LAUNCHERS, name, insisting(launcher))


# Over one dimension or all (dim None), and what they take besides.
REDUCTIONS = {
    "sum": lambda x, dim, keep: x.sum(dim, keep), "mean": lambda x, dim, keep: x.mean(dim, keep),
    "prod": lambda x, dim, keep: x.prod() if dim is None else x.prod(dim, keep),
    "amax": lambda x, dim, keep: x.amax(() if dim is None else dim, keep),
    "amin": lambda x, dim, keep: x.amin(() if dim is None else dim, keep),
    "var": lambda x, dim, keep: x.var(dim, keepdim=keep), "std": lambda x, dim, keep: x.std(dim, correction=0, keepdim=keep),
    "var_mean": lambda x, dim, keep: torch.var_mean(x, dim, keepdim=keep),
    "logsumexp": lambda x, dim, keep: x.logsumexp(tuple(range(x.ndim)) if dim is None else dim, keep)}
EXACT = ("sum", "prod", "amax", "amin")      # of integers too


def layouts():
    """(name, shape, what makes a view of it, dims to reduce)."""
    plain = lambda x: x                      # noqa: E731
    yield "0-d", (), plain, [None]
    yield "one", (1,), plain, [None, 0]
    yield "33", (33,), plain, [None, 0]
    yield "narrow", (1000, 3), plain, [None, 0, 1]
    yield "wide", (3, 1000), plain, [None, 0, -1]
    yield "permuted", (2, 3, 4, 5, 6), lambda x: x.permute(3, 0, 4, 2, 1), [None, 0, 2, -1, (1, 3), (0, 2, 4), (0, 1, 2, 3)]
    yield "gapped", (6, 40, 7), lambda x: x[::2, 1::3, 1:6], [None, 0, 1, 2, (0, 2)]
    yield "backwards", (5, 33), lambda x: x.flip(0, 1)[1:, 1:], [None, 0, 1]
    yield "expanded", (5, 1, 3), lambda x: x.expand(5, 4, 3), [None, 0, 1, (1, 2)]
    yield "unaligned", (70,), lambda x: x[3:], [None]
    yield "unaligned rows", (4, 45), lambda x: x[:, 1:], [1, 0]


LAYOUTS = {name: rest for name, *rest in layouts()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_layouts(op, layout, only_kernels):
    shape, view, dims = LAYOUTS[layout]
    base = values(shape, torch.float32, *((0.9, 1.1) if op == "prod" else (0.1, 2)))     # nothing cancels
    x, y = view(base), view(base.cuda())     # a view on each device: a copy would lose the gaps
    for dim in dims:
        if op == "prod" and isinstance(dim, tuple) or op in ("var", "var_mean") and x.numel() == 1:
            continue
        for keep in (False, True):
            if not (op == "prod" and dim is None and keep):
                same(REDUCTIONS[op](y, dim, keep), REDUCTIONS[op](x, dim, keep), (dim, keep))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_dtypes(op, dtype, only_kernels):
    if op not in EXACT and dtype in INTEGERS:
        pytest.skip("of floating dtypes only")
    low, high = (0.9, 1.1) if op == "prod" else (-2, 2)
    x = values((9, 77), dtype, low, high) if dtype in FLOATS else values((9, 77), torch.float32, -0.5, 3.5).abs().to(dtype)
    y = x.cuda()
    for dim in (None, 0, 1):
        same(REDUCTIONS[op](y, dim, False), REDUCTIONS[op](x, dim, False), dim)
    if dtype in FLOATS or op != "prod":
        same(y.max(), x.max()), same(y.min(), x.min())


@pytest.mark.parametrize("given", ["int32", "float16", "float32", "bool"])
@pytest.mark.parametrize("wanted", ["float16", "float32", "float64", "int64", "int32"])
def test_elements_are_converted_first(given, wanted, only_kernels):
    x = values((5, 33), torch.float32, 0, 3).to(getattr(torch, given))
    wanted = getattr(torch, wanted)
    same(x.cuda().sum(1, dtype=wanted), x.sum(1, dtype=wanted))
    same(x.cuda().prod(0, dtype=wanted), x.prod(0, dtype=wanted))
    if wanted.is_floating_point:
        same(x.cuda().mean(0, dtype=wanted), x.mean(0, dtype=wanted))


def test_nothing_to_reduce():
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 3)):
        x = torch.zeros(shape)
        for f in (lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.sum(-1, True), lambda x: x.prod(), lambda x: x.prod(0),
                  lambda x: x.mean(), lambda x: x.mean(-1), lambda x: x.logsumexp(0), lambda x: x.var(0), lambda x: x.var_mean(-1)
                  if hasattr(x, "var_mean") else torch.var_mean(x, -1), lambda x: torch.softmax(x, 0), lambda x: torch.log_softmax(x, -1)):
            same(f(x.cuda()), f(x), shape)
        with pytest.raises(RuntimeError, match="numel"):
            x.cuda().max()
        with pytest.raises((RuntimeError, IndexError)):
            x.cuda().amin()
    same(torch.zeros(0, 3).cuda().amax(1), torch.zeros(0, 3).amax(1))
    with pytest.raises(IndexError, match="non-zero size"):
        torch.zeros(3, 0).cuda().amax(1)


ROWS = [[1.0, nan, 2.0], [nan, nan, nan], [1.0, inf, 2.0], [1.0, -inf, 2.0], [-inf, -inf, -inf], [inf, inf, 1.0], [inf, -inf, 0.0],
        [1e38, 1e38, 3.0], [-0.0, 0.0, -0.0], [1e-30, 1e-30, 1e-30], [88.0, 89.0, 90.0], [-200.0, -100.0, -300.0]]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin", "mean", "logsumexp", "var", "softmax", "log_softmax"])
def test_not_a_number_and_infinities(op, dtype):
    f = REDUCTIONS.get(op) or (lambda x, dim, keep: getattr(torch, op)(x, dim))
    for repeat in (1, 15):                   # within a thread's elements, and between threads
        x = torch.tensor([row * repeat for row in ROWS]).to(dtype)
        same(f(x.cuda(), 1, False), f(x, 1, False), repeat)
        same(f(x.t().contiguous().cuda(), 0, False), f(x.t().contiguous(), 0, False), repeat)


def test_a_variance_far_from_zero():
    exact = np.random.default_rng(0).standard_normal((4, 5000))
    x = torch.from_numpy((exact + 1e4).astype(np.float32))
    wanted = x.double().var(1).numpy()
    np.testing.assert_allclose(x.cuda().var(1).cpu().numpy(), wanted, rtol=2e-6)
    np.testing.assert_allclose(x.cuda().t().contiguous().var(0).cpu().numpy(), wanted, rtol=2e-6)


@pytest.mark.parametrize("shape, dim", [((40_000,), 0), ((2, 17_000), 1), ((17_000, 2), 0), ((8_000, 5), (0, 1))])
def test_several_blocks_share_a_row(shape, dim, only_kernels):
    x = values(shape, torch.float32) + 1
    assert reduce._plan(shape, tuple(4 * s for s in x.stride()), 4, (dim,) if isinstance(dim, int) else dim, False).grid[1] > 1
    for op in ("sum", "mean", "amax", "var_mean", "logsumexp"):
        got = REDUCTIONS[op](x.cuda(), dim, False)
        for a, b in zip(*[t if isinstance(t, tuple) else (t,) for t in (got, REDUCTIONS[op](x.double(), dim, False))], strict=True):
            np.testing.assert_allclose(numbers(a), numbers(b), rtol=1e-6)
        again = REDUCTIONS[op](x.cuda(), dim, False)
        for a, b in zip(*[t if isinstance(t, tuple) else (t,) for t in (got, again)], strict=True):
            np.testing.assert_array_equal(numbers(a), numbers(b))


def test_half_precision_is_summed_in_float():
    x = torch.full((5000,), 1.0, dtype=torch.float16)        # in half precision the sum would stay at 2048
    assert x.cuda().sum().item() == 5000 and x.cuda().mean().item() == 1
    assert torch.full((70_000,), 1, dtype=torch.uint8).cuda().sum().item() == 70_000


def test_a_result_keeps_the_order_of_memory():
    x = torch.zeros(2, 3, 4).permute(2, 0, 1).cuda()
    assert x.sum(1).stride() == (1, 4) and x.sum(1, keepdim=True).shape == (4, 1, 3) and x.sum(0).is_contiguous()


def test_gradients_that_were_broadcast():
    x, b = values((40, 7), torch.float32), values((7,), torch.float32)
    grads = []
    for where in ("cpu", "cuda:0"):
        w = b.detach().to(where).requires_grad_()
        (x.to(where) * w).exp().sum().backward()
        grads.append(w.grad)
    same(grads[1], grads[0])


# ------------------------------------------------------------------------------------------------------------------- softmax

def backward_of(f, x, where):
    leaf = x.to(where).requires_grad_()
    y = f(leaf)
    weights = torch.from_numpy(np.linspace(0.5, 1.5, y.numel()).reshape(y.shape)).to(where).to(y.dtype)
    grad, = torch.autograd.grad((y * weights).sum(), leaf, create_graph=True)
    second, = torch.autograd.grad((grad * grad).sum(), leaf)
    return y, grad, second


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape, dim", [((5,), 0), ((1, 1), 1), ((4, 33), 1), ((3, 1000), 1), ((60, 4), 0), ((2, 5, 3), 1),
                                        ((2, 4, 64), -1)])
def test_softmax(op, shape, dim, dtype, only_kernels):
    x = values(shape, dtype, -4, 4)
    f = lambda t: getattr(torch, op)(t, dim)       # noqa: E731
    got, want, exact = backward_of(f, x, "cuda:0"), backward_of(f, x, "cpu"), backward_of(f, x.double(), "cpu")
    same(got[0], want[0])
    for a, b, c in zip(got, want, exact, strict=True):       # gradients come of sums that cancel: as good as the CPU's
        assert a.shape == b.shape and a.dtype == b.dtype
        error, allowed = (np.abs(numbers(t) - numbers(c)).max() for t in (a, b))
        assert error <= 2 * allowed + TOLERANCE[dtype] * np.abs(numbers(c)).max()


def test_softmax_of_views(only_kernels):
    x = values((6, 8, 5), torch.float32)
    for view in (lambda x: x.permute(2, 0, 1), lambda x: x[1::2, 1:6], lambda x: x[1:, :, 1:], lambda x: x[:1].expand(3, 8, 5)):
        for dim in (0, 1, 2):
            same(torch.softmax(view(x.cuda()), dim), torch.softmax(view(x), dim))
    flat = values((65,), torch.float32)
    same(torch.softmax(flat.cuda()[1:].view(4, 16), 1), torch.softmax(flat[1:].view(4, 16), 1))


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_a_gradient_that_does_not_start_at_a_multiple_of_16_bytes(op, only_kernels):
    x, grad = values((4, 16), torch.float32), values((65,), torch.float32)
    found = []
    for where in ("cuda:0", "cpu"):
        leaf = x.to(where).requires_grad_()
        found += torch.autograd.grad(getattr(torch, op)(leaf, 1), leaf, grad.to(where)[1:].view(4, 16))
    same(*found)


def test_rows_of_a_softmax_sum_to_one():
    x = values((7, 3001), torch.float32, -30, 30).cuda()
    np.testing.assert_allclose(torch.softmax(x, 1).double().sum(1).cpu().numpy(), 1, rtol=2e-7)


# --------------------------------------------------------------------------------------------------------- losses of classes

@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (7, 10), (1500, 4), (2, 5, 3), (2, 4, 3, 5), (0, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(shape, reduction, dtype, weighted, only_kernels):
    rng = np.random.default_rng(0)
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.from_numpy(np.asarray(rng.integers(0, classes, () if len(shape) == 1 else (shape[0], *shape[2:]))))
    weight = values((classes,), dtype, 0.5, 1.5) if weighted else None
    for ignored in (-100, 1):
        found = []
        for where in ("cuda:0", "cpu"):
            x = values(shape, dtype, -2, -0.1).to(where).requires_grad_()
            loss = F.nll_loss(x, target.to(where), None if weight is None else weight.to(where), ignore_index=ignored, reduction=reduction)
            grad = torch.from_numpy(np.linspace(0.5, 1.5, max(loss.numel(), 1))[:loss.numel()].reshape(loss.shape)).to(dtype).to(where)
            loss.backward(grad)              # one of its own for each sample
            found.append((loss.detach(), x.grad))
        same(*found, (ignored,))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weight", [[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [0.0, 1.0, 2.0]])
def test_nll_loss_of_weights_that_vanish(weight, reduction, only_kernels):
    for target in ([0, 1], [0, -100], [-100, -100], [2, 2]):
        found = []
        for where in ("cuda:0", "cpu"):
            x = torch.tensor([[-1.0, -2.0, -inf], [-inf, -3.0, -1.0]], device=where, requires_grad=True)
            loss = F.nll_loss(x, torch.tensor(target, device=where), torch.tensor(weight, device=where), reduction=reduction)
            (loss * loss).sum().backward()
            found.append((loss.detach(), x.grad))
        same(*found, target)


def test_cross_entropy():
    target = torch.from_numpy(np.random.default_rng(1).integers(0, 10, 64))
    x = values((64, 10), torch.float32)
    f = lambda t: F.cross_entropy(t, target.to(t.device), ignore_index=3)      # noqa: E731
    same(backward_of(f, x, "cuda:0")[:2], backward_of(f, x, "cpu")[:2])


def test_a_target_of_few_bits_and_one_that_is_no_class():
    x = values((3, 4), torch.float32).cuda()
    same(F.nll_loss(x, torch.tensor([0, 3, 1], dtype=torch.uint8).cuda()), F.nll_loss(x.cpu(), torch.tensor([0, 3, 1], dtype=torch.uint8)))
    for wrong in (4, -1, 2 ** 40):
        with pytest.raises(IndexError, match=f"nll_loss: index {wrong} is out of bounds"):
            F.nll_loss(x, torch.tensor([0, wrong, 1]).cuda()).item()


def test_what_kernels_do_not_cover_is_left_to_cupy():
    x = torch.complex(values((4, 5), torch.float32), values((4, 5), torch.float32))
    for f in (lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.prod(1), lambda x: x.logsumexp(1)):
        same_complex = f(x.cuda()).cpu().numpy()
        np.testing.assert_allclose(same_complex, f(x).numpy(), rtol=1e-5)
    with pytest.raises(IndexError):
        x.real.cuda().sum(5)
    with pytest.raises(RuntimeError, match="multiple times"):
        x.real.cuda().sum((0, 0))
    with pytest.raises(RuntimeError, match="could not infer"):
        torch.ones(3, dtype=torch.int64).cuda().mean()
