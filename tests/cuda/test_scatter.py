"""Scatter-add on CUDA in every dtype, and integer indices that are out of range there."""
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu import devices
from autograd_gpu.cuda import scatter
from tests.cuda.common import cp, gpu, two_devices
from tests.simgpu import kernels, runtime

pytestmark = gpu
F = torch.nn.functional
ALL = slice(None)
BFLOAT16 = ["bfloat16"] if hasattr(torch, "bfloat16") else []
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", *BFLOAT16, "float32", "float64", "complex64", "complex128"]
FLOATING = DTYPES[6:]


def whole_numbers(dtype, shape, seed=0, most=4):
    """Numbers of which every sum is exact, in whatever order they are added."""
    x = np.random.default_rng(seed).integers(0, most, shape)
    x = x * (1 - 2j) if dtype.startswith("complex") else x
    return torch.from_numpy(np.asarray(x)).to(getattr(torch, dtype))


def same(f, *operands):
    """f on the CPU and on cuda:0 gives the same, gradients too where the operands have any."""
    found = []
    for where in "cpu", "cuda:0":
        leaves = [x.to(where) for x in operands]
        for x in leaves:
            x.requires_grad_(x.is_floating_point() or x.is_complex())
        y = f(*leaves)
        wanted = [x for x in leaves if x.requires_grad]
        weights = whole_numbers(str(y.dtype).removeprefix("torch."), tuple(y.shape), 5).to(where)
        found.append([y, *(torch.autograd.grad(y, wanted, weights) if wanted else ())])
    for on_cpu, on_cuda in zip(*found, strict=True):
        assert on_cuda.device == torch.device("cuda:0") and on_cuda.dtype == on_cpu.dtype
        np.testing.assert_array_equal(on_cuda.detach().cpu().numpy(), on_cpu.detach().numpy())


ADDING = {
    "index_put": lambda x, v, i: x.index_put((i,), v, accumulate=True),
    "index_put_two": lambda x, v, i: x.index_put((i, i % 3), v[:, 0], accumulate=True),
    "index_put_broadcast": lambda x, v, i: x.index_put((i[:, None], i % 3), v[0, 0], accumulate=True),
    "index_add": lambda x, v, i: x.index_add(0, i, v),
    "index_add_columns": lambda x, v, i: x.index_add(1, i[:7] % 3, v[:7, :1].expand(7, 7).t()),
    "scatter_add": lambda x, v, i: x.scatter_add(0, i[:, None].expand(i.shape[0], 2), v),
    "scatter_add_rows": lambda x, v, i: x.scatter_add(1, (i % 3)[:21].reshape(7, 3), v[:7]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ADDING)
def test_adding(name, dtype):
    index = torch.from_numpy(np.random.default_rng(1).integers(0, 7, 300))
    same(ADDING[name], whole_numbers(dtype, (7, 3), 2), whole_numbers(dtype, (300, 3), 3), index)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.startswith("complex")])
def test_scatter_that_multiplies(dtype):
    x, v = whole_numbers(dtype, (5, 3), 2), whole_numbers(dtype, (9, 3), 3, 3)
    index = torch.from_numpy(np.random.default_rng(1).integers(0, 5, (9, 3)))
    got, want = (x.to(d).scatter(0, index.to(d), v.to(d), reduce="multiply") for d in ("cuda:0", "cpu"))
    np.testing.assert_array_equal(got.cpu().numpy(), want.numpy())


def test_complex_numbers_are_not_multiplied():
    x = torch.ones(3, dtype=torch.complex64, device="cuda:0")
    with pytest.raises(NotImplementedError, match="complex64"):
        x.scatter(0, torch.tensor([0], device="cuda:0"), x, reduce="multiply")


TAKING = {
    "x[i]": lambda x, i: x[i - 3], "x[:, i]": lambda x, i: x[:, i % 3], "x[i, i]": lambda x, i: x[i, i % 3],
    "x[i, :, i]": lambda x, i: x.reshape(7, 1, 3)[i, :, i % 3], "x[mask, i]": lambda x, i: x[torch.arange(
        7, device=x.device) < 3, torch.tensor([0, 0, -1], device=x.device)],
    "x[mask]": lambda x, i: x[torch.arange(7, device=x.device) % 2 == 0],
    "index_select": lambda x, i: x.index_select(0, i), "index_select_columns": lambda x, i: x.index_select(1, i % 3),
    "gather": lambda x, i: x.gather(0, i[:, None]), "gather_columns": lambda x, i: x.gather(1, (i % 3)[:6].reshape(2, 3)),
    "take": lambda x, i: x.take(i * 3 - 21), "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "int32": lambda x, i: x.index_select(0, i.int()), "permuted": lambda x, i: x.t()[:, i],
}


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", TAKING)
def test_gradients_of_taking(name, dtype):
    same(TAKING[name], whole_numbers(dtype, (7, 3), 2), torch.from_numpy(np.random.default_rng(1).integers(0, 7, 300)))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("dtype", ["float16", *BFLOAT16, "float32", "float64"])
def test_embedding(dtype, options):
    index = torch.tensor([[0, 2, 2, 2], [5, 0, 2, 5]])       # how often each occurs is a power of two
    same(lambda w, i: F.embedding(i, w, **options), whole_numbers(dtype, (7, 3), 2), index)


@pytest.mark.parametrize("f", [
    lambda x, i: x[i], lambda x, i: x.index_add(0, i.reshape(-1), x[:0]), lambda x, i: x.index_put((i,), x[0], accumulate=True),
    lambda x, i: x.gather(1, i.reshape(0, 1)), lambda x, i: x.scatter_add(1, i.reshape(0, 1), x), lambda x, i: F.embedding(i, x),
    lambda x, i: x[:, :0][i + 0] * x[:1, :0]])
@pytest.mark.parametrize("shape", [(0,), (4, 0)])
def test_empty_indices(f, shape):
    same(f, whole_numbers("float32", (5, 3)), torch.zeros(shape, dtype=torch.int64))


def layouts():
    """Targets that are no arrays in C order."""
    base = np.arange(4 * 5 * 6, dtype=np.int64).reshape(4, 5, 6)
    return {"plain": base, "permuted": base.transpose(2, 0, 1), "reversed": base[::-1, :, ::-1], "part": base[1:, ::2, 1:4],
            "last first": np.moveaxis(base, -1, 0)[::2]}


@pytest.mark.parametrize("dtype", ["int8", "float32", "complex64"])
@pytest.mark.parametrize("layout", layouts())
def test_targets_of_any_layout(layout, dtype):
    rng = np.random.default_rng(4)
    for key in (0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2):
        want = layouts()[layout].astype(dtype)
        base = cp.asarray(np.zeros((8, 8, 8), dtype))
        shape = want.shape
        got = base.transpose(2, 0, 1)[1:1 + shape[0], 1:1 + shape[1], 1:1 + shape[2]][:, ::-1]
        got[...] = cp.asarray(want)
        arrays = [rng.integers(-shape[d], shape[d], (3, 1, 50)[n % 2 * 2:] if n else (50,)) for n, d in enumerate(key)]
        index = [ALL] * (key[-1] + 1)
        for d, a in zip(key, arrays, strict=True):
            index[d] = a
        values = rng.integers(-3, 4, want[tuple(index)].shape[-1:]).astype(dtype)
        np.add.at(want, tuple(index), values)
        scatter.at("add", "test", got, tuple([k if k is ALL else cp.asarray(k) for k in index]), cp.asarray(values))
        np.testing.assert_array_equal(cp.asnumpy(got), want)
        assert int(cp.asnumpy(base != 0).sum()) == int((want != 0).sum())


# --------------------------------------------------------------------------------------------------------- out of range

def at(*numbers, where="cuda:0"):
    return torch.tensor(numbers, device=where)


X = torch.arange(12.0).reshape(3, 4)
OUTSIDE = {
    "x[key]": (lambda x: x[at(0, 3)], 3, 0, 3), "x[key] below": (lambda x: x[at(-4)], -4, 0, 3),
    "x[key] second": (lambda x: x[:, at(1, -5)], -5, 1, 4),
    "x[key] after a mask": (lambda x: x.reshape(3, 2, 2)[torch.ones(3, 2, dtype=torch.bool, device=x.device), at(2)], 2, 2, 2),
    "index_put": (lambda x: x.index_put((at(3),), x[0]), 3, 0, 3),
    "index_put added": (lambda x: x.index_put((at(0), at(9)), x[0, 0], accumulate=True), 9, 1, 4),
    "setitem": (lambda x: x.__setitem__(at(0, 7), 1.0), 7, 0, 3), "index_select": (lambda x: x.index_select(1, at(0, 4)), 4, 1, 4),
    "index_select below": (lambda x: x.index_select(1, at(-1)), -1, 1, 4), "gather": (lambda x: x.gather(1, at([4])), 4, 1, 4),
    "gather below": (lambda x: x.gather(0, at([-1])), -1, 0, 3), "scatter": (lambda x: x.scatter(0, at([3]), x), 3, 0, 3),
    "scatter number": (lambda x: x.scatter(0, at([3]), 1.0), 3, 0, 3),
    "scatter multiplied": (lambda x: x.scatter(0, at([3]), x, reduce="multiply"), 3, 0, 3),
    "scatter_add": (lambda x: x.scatter_add(0, at([-1]), x), -1, 0, 3), "index_add": (lambda x: x.index_add(0, at(5), x[:1]), 5, 0, 3),
    "index_copy": (lambda x: x.index_copy(0, at(5), x[:1]), 5, 0, 3), "index_fill": (lambda x: x.index_fill(0, at(3), 1.0), 3, 0, 3),
    "index_fill below": (lambda x: x.index_fill(1, at(-2, -5), 1.0), -5, 1, 4),
    "index_add below": (lambda x: x.index_add(1, at(-1), x[:, :1]), -1, 1, 4),
    "scatter added": (lambda x: x.scatter(0, at([-1]), x, reduce="add"), -1, 0, 3),
    "embedding": (lambda x: F.embedding(at(0, 3), x), 3, 0, 3), "embedding below": (lambda x: F.embedding(at(-1), x), -1, 0, 3),
    "take": (lambda x: x.take(at(12)), 12, 0, 12), "one_hot": (lambda x: F.one_hot(at(2, 5), 4), 5, 0, 4),
    "nll_loss": (lambda x: F.nll_loss(x, at(0, 1, 4)), 4, 1, 4), "nll_loss of": (lambda x: F.cross_entropy(x, at(0, -1, 3)), -1, 1, 4),
    "masked_scatter": (lambda x: x.masked_scatter(x > 5, x[0]), 4, 0, 4),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_out_of_range_is_told_when_the_host_waits(name):
    run, index, dim, size = OUTSIDE[name]
    x = X.clone().cuda()
    run(x)                                   # nothing is raised: the host does not wait
    with pytest.raises(IndexError) as caught:
        torch.cuda.synchronize()
    assert str(caught.value).startswith(f"{name.partition(' ')[0]}: index {index} is out of bounds for dimension {dim} with size {size}; ")
    torch.cuda.synchronize()                 # once
    assert (X.cuda() + 1).sum().item() == 78


@pytest.mark.parametrize("wait", [
    lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: x.cpu(), lambda x: x.numpy(force=True), lambda x: x.to("cpu"),
    lambda x: bool(x.sum()), lambda x: float(x.sum()), lambda x: torch.zeros(2, 4).copy_(x), lambda x: repr(x)])
def test_where_the_host_waits(wait):
    x = X.cuda()[at(1, -7)]
    with pytest.raises(IndexError, match=r"x\[key\]: index -7 .* with size 3"):
        wait(x)
    wait(x)


def test_the_first_of_several_is_told():
    x = X.cuda()
    x[at(5, 6)].index_select(0, at(8))
    with pytest.raises(IndexError, match="index [56] is"):
        torch.cuda.synchronize()


def test_nothing_is_written_outside():
    around = torch.zeros(9, device="cuda:0")
    around[3:6].index_put_((at(-4, 1, 3),), torch.ones(3, device="cuda:0"), accumulate=True)
    with pytest.raises(IndexError):
        torch.cuda.synchronize()
    assert around.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@two_devices
def test_each_device_has_its_own_report():
    X.to("cuda:1").index_select(0, at(3, where="cuda:1"))
    X.to("cuda:1")[0].__setitem__(at(9, where="cuda:1"), 1.0)            # cuda:0 is the current one
    torch.cuda.synchronize("cuda:0")
    with pytest.raises(IndexError, match="cuda:1"):
        torch.cuda.synchronize("cuda:1")


def test_threads_that_report_for_the_first_time_together(monkeypatch):
    """Each device has one report and each op a number of its own, also where a thread is interrupted at the worst moment."""
    class Slow(dict):
        def __len__(self):
            length = super().__len__()
            time.sleep(0.01)
            return length

        def __setitem__(self, key, value):
            time.sleep(0.01)
            super().__setitem__(key, value)
    monkeypatch.setattr(devices, "_reports", Slow())
    monkeypatch.setattr(devices, "_reporters", Slow())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(devices.reporter, [f"op {k}" for k in range(8)]))
    assert len({address for address, _ in found}) == 1 and sorted(number for _, number in found) == [*range(1, 9)]


def test_ignored_targets_are_no_fault():
    x = X.cuda().requires_grad_()
    F.cross_entropy(x, at(0, -100, 3)).backward()
    F.nll_loss(x, at(0, 7, 3), ignore_index=7).backward()
    torch.cuda.synchronize()


# ------------------------------------------------------------------------------------------- the kernel alone, on the simulator

def scattered(operation, dtype, text=None, seed=0):
    """64 rows at the four places of a target, two indices out of range; the target and the report."""
    text = text or scatter.source(operation, np.dtype(dtype), (np.dtype(np.int64),), 2, "int")
    out = np.ones((4, 3), np.int32 if dtype == "bool" else dtype)
    values, index = np.full((64, 3), 2).astype(dtype), np.arange(64) % 2
    index[5:7] = 4, -5
    geometry = [np.int32(k) for k in (64, 3, 0, 1, 3, 1, 1, 0)]
    report = np.zeros(5, np.int64)
    kernels.Module(text)["scatter_" + operation]((3,), (64,), (
        out, values, index, report, np.int32(9), np.bool_(True), *geometry, np.int32(1), np.int64(4), np.int32(3), np.int64(192)),
        seed=seed)
    return out, report


simulated = pytest.mark.skipif(not runtime.active(), reason="only the simulated devices look for races")


@simulated
@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize(("operation", "dtype", "want"), [("add", "float32", [63, 63]), ("add", "int64", [63, 63]), ("add", "bool", [1, 1]),
                                                          ("multiply", "float64", [2.0 ** 31] * 2), ("multiply", "int32", [-2 ** 31] * 2)])
def test_any_order_of_threads(operation, dtype, want, seed):
    out, report = scattered(operation, dtype, seed=seed)
    assert out.tolist() == [[want[0]] * 3, [want[1]] * 3, [1] * 3, [1] * 3]
    taken, op, index, dim, size = report
    assert (taken, op, dim, size) == (1, 9, 1, 4) and index in (4, -5)


@simulated
@pytest.mark.parametrize(("operation", "dtype", "atomic", "plain"), [
    ("add", "float32", "atomicAdd(p, v);", "*p += v;"), ("add", "bool", "atomicOr(p, 1);", "*p |= 1;"),
    ("add", "int64", "atomicAdd((unsigned long long*)p, (unsigned long long)v);", "*p += v;"),
    ("multiply", "float64", "found = atomicCAS((Bits*)p, seen.bits, product.bits);", "*p *= v; found = seen.bits;")])
def test_a_kernel_without_atomics_is_found(operation, dtype, atomic, plain):
    text = scatter.source(operation, np.dtype(dtype), (np.dtype(np.int64),), 2, "int")
    assert text.count(atomic) == 1
    with pytest.raises(kernels.KernelError, match="data race .*global"):
        scattered(operation, dtype, text.replace(atomic, plain))
