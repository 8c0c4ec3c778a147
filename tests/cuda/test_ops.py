"""Every op on CUDA beside the same op on the CPU: values, derivatives, dtypes, and how many kernels it takes."""
import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op, elementwise
from tests.conftest import needs_bfloat16
from tests.cuda.common import cp, equal, gpu, same_on_both, settled, two_devices
from tests.cuda.programs import PROGRAMS, TOLERANCE, VALUES, operands
from tests.loop import How, differences, outcome
from tests.samples import samples
from tests.simgpu import runtime as simulated
from tests.test_ops import HUGE, forms

pytestmark = gpu
CLOSE = {**TOLERANCE, "float32": 2e-5}       # of what is computed in several steps

ALL = samples()
NOT_SIMULATED = ("CUSOLVERError", "CUBLASError")          # what calls these libraries runs on a GPU only
LEFT_OUT = {name: HUGE | {np.inf, -np.inf} for name in ("i0", "special.i1")}    # SciPy: NaN
LEFT_OUT_CHANGES = {"F.binary_cross_entropy": ("nan",)}   # an error on the CPU; here nothing waits for the values


@pytest.mark.parametrize("name", ALL)
def test_sample(name):
    """Each sample of tests/samples.py in float32: what it gives on the CPU, at the edges too."""
    record, given = ALL[name]
    changes = ("edges",) if isinstance(record, Op) and record.is_elementwise else ("strided", "ties", "nan")
    left_out, changes = frozenset(LEFT_OUT.get(name, ())), [c for c in changes if c not in LEFT_OUT_CHANGES.get(name, ())]
    hows = [How("float32", change=c, left_out=left_out) for c in changes]
    for sample in given:
        for how in [*[How("float32", form) for form in forms(name, sample) if form != "method"], How("float32", forward=True), *hows]:
            want, got = outcome(torch, name, sample, how), outcome(torch, name, sample, how._replace(device="cuda:0"))
            try:
                torch.cuda.synchronize()
            except IndexError:               # which a device tells when it is waited for
                assert "result" in want
                continue
            errors = [got[what] for what in ("result", "gradient") if what in got]
            if errors and type(errors[0]).__name__ in NOT_SIMULATED and simulated.active():
                pytest.skip(f"{type(errors[0]).__name__}: not simulated")
            assert not differences(got, want, tolerance=CLOSE), (sample, how)


@pytest.mark.parametrize("where", ["cuda:0", pytest.param("cuda:1", marks=two_devices)])       # the second is not the current one
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, where):
    same_on_both(PROGRAMS[name][0], operands(name), where)


@pytest.mark.parametrize("name", VALUES)
def test_value(name):
    x = np.random.default_rng(3).standard_normal((3, 4))
    equal(VALUES[name](torch.from_numpy(x).to("cuda:0")), VALUES[name](torch.from_numpy(x)), name)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int64", "bool", "uint8"])
def test_arithmetic_in_each_dtype(dtype):
    x = (np.arange(6).reshape(2, 3) % 4).astype(dtype)
    for f in (lambda x: x + x, lambda x: x * 2, lambda x: x.sum(), lambda x: x / 3, lambda x: x == 1,
              lambda x: x @ x.t() if dtype != "bool" else x):
        equal(f(torch.from_numpy(x).cuda()), f(torch.from_numpy(x)), dtype)


def test_formulas_run_in_float32_for_half_precision():
    def program(where):
        x = torch.tensor([0.1, 0.7, -2.3], dtype=torch.float16, device=where, requires_grad=True)
        y = torch.nn.functional.silu(x) * torch.tensor([3.0], dtype=torch.float16, device=where)
        y.sum().backward()
        return y, x.grad
    for ours, want in zip(program("cuda:0"), program("cpu"), strict=True):
        equal(ours, want, "half")


def launched(f):
    """How many operations the devices do for f(), and how many blocks of memory are taken, once its kernels are there."""
    if not simulated.active():
        pytest.skip("operations are counted on simulated devices")
    f()

    class Hook(cp.cuda.memory_hook.MemoryHook):
        taken = 0

        def malloc_preprocess(self, **what):
            Hook.taken += 1
    before = simulated.counts()["operations"]
    with Hook():
        f()
    return simulated.counts()["operations"] - before, Hook.taken


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "complex64"])
@pytest.mark.parametrize("f", [lambda x: x * 2, lambda x: 2 + x, lambda x: x - 1, lambda x: 3 - x, lambda x: x == 1,
                               lambda x: x * torch.tensor(2), lambda x: x ** 2, lambda x: x.add(x, alpha=3)])
def test_a_number_is_an_argument_of_the_one_kernel(f, dtype):
    x = torch.arange(11).to(getattr(torch, dtype))
    on_cuda = x.cuda()
    equal(f(on_cuda), f(x), dtype)
    assert launched(lambda: f(on_cuda)) == (1, 1)


def test_a_number_never_decides_the_dtype():
    for dtype in ("float16", "float32", "float64", "int8", "int64", "bool", "complex64"):
        x = torch.ones(3).to(getattr(torch, dtype))
        for number in (True, 2, 0.1, 1j):
            for f in (lambda x, n: x + n, lambda x, n: n * x, lambda x, n: torch.where(x == 1, x, n), lambda x, n: x == n):
                equal(f(x.cuda(), number), f(x, number), f"{dtype} {number}")
    x = torch.tensor([1, 200], dtype=torch.uint8)
    assert (x.cuda() == 456).tolist() == (x == 456).tolist() == [False, False]


def test_the_numbers_derivatives():
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda:0", requires_grad=True)
    y = x * 3 / 2
    g, = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward()
    assert g.tolist() == [4.5, 9, 13.5] and x.grad.tolist() == [4.5] * 3
    assert (x * 3).grad_fn._saved_other.item() == 3
    assert launched(lambda: torch.autograd.grad(x * 3, x, x.detach())) == (2, 2)


def test_a_body_that_looks_at_its_numbers():
    x = torch.linspace(0.5, 2, 7, requires_grad=True)
    on_cuda = x.detach().cuda().requires_grad_()
    for number in [-2.0, -1, -0.5, 0, 0.0, -0.0, 0.5, 1, 2, 2.0, 3, 1.5, float("inf"), float("nan"), *range(4, 30)]:
        equal(on_cuda ** number, x ** number, f"power {number}")
        for got, want in zip(torch.autograd.grad((on_cuda ** number).sum(), on_cuda), torch.autograd.grad((x ** number).sum(), x),
                             strict=True):
            equal(got, want, f"gradient of power {number}")
    big = torch.tensor([1, 2])
    equal(big.cuda().remainder(2**62), big.remainder(2**62), "remainder")


@pytest.mark.parametrize("name", ["mul", "div", "atan2", "pow", "hypot", "xlogy", "copysign", "where", "lerp", "addcmul", "addcdiv", "sub"])
def test_a_node_computes_its_gradients_in_one_kernel(name):
    x, y, z = (torch.linspace(0.5, 2 + k, 11, device="cuda:0", requires_grad=True) for k in range(3))
    operands = {"where": (x > 1, y, z), "lerp": (x, y, z), "addcmul": (x, y, z), "addcdiv": (x, y, z)}.get(name, (x, y))
    inputs = [t for t in operands if t.requires_grad]
    result = getattr(torch, name)(*operands)
    grad = torch.ones(11, device="cuda:0")
    new = len(inputs) - (name in ("addcmul", "addcdiv", "sub"))              # the first gradient is the one that came in
    assert launched(lambda: result.grad_fn._apply(grad._array, True)) == (1, new)


def test_only_the_gradients_that_are_wanted_are_computed():
    x, y = torch.ones(11, device="cuda:0", requires_grad=True), torch.ones(11, device="cuda:0")
    node = (x / y).grad_fn
    assert launched(lambda: node._apply(y._array, True)) == (1, 1) and node._apply(y._array, True)[1] is None
    assert (y * x).grad_fn._saved_self.tolist() == [1.0] * 11 and (x * y).grad_fn._saved_self is None


def test_gradients_of_broadcast_operands_are_summed_after_their_kernel():
    x, y = torch.linspace(0, 1, 12).reshape(3, 4), torch.linspace(1, 2, 4)
    for f in (lambda x, y: x * y, lambda x, y: y / (x + 1), lambda x, y: torch.lerp(x, x.detach() * 2, y[0]), torch.hypot):
        same_on_both(f, [x.numpy(), y.numpy()])


def test_a_contiguous_view_that_does_not_start_at_a_multiple_of_16_bytes():
    x = torch.arange(11.0)
    for dtype in ("float32", "float16", "int8", "complex64"):
        y = x.to(getattr(torch, dtype))
        equal(y.cuda()[1:] * y.cuda()[:-1], y[1:] * y[:-1], dtype)


@needs_bfloat16
@pytest.mark.parametrize("f", [
    lambda x: x * x, lambda x: x * 0.1, lambda x: x.exp(), lambda x: torch.nn.functional.gelu(x), lambda x: x > 1, lambda x: x / 3 + x,
    lambda x: torch.where(x > 1, x, 0.3), lambda x: x.t() + x[:, :1].t(), torch.sigmoid])
def test_bfloat16_is_computed_in_float_and_rounded_once(f):
    x = torch.linspace(-2, 2, 21).reshape(3, 7).bfloat16()
    on_cpu, on_cuda = x.clone().requires_grad_(), x.cuda().requires_grad_()
    want, got = f(on_cpu), f(on_cuda)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(settled(got.detach().float()), want.detach().float().numpy())
    if want.requires_grad:
        want.float().sum().backward()
        got.float().sum().backward()
        np.testing.assert_allclose(settled(on_cuda.grad.float()), on_cpu.grad.float().numpy(), rtol=2**-8)


COMPLEX_OPS = ["mul", "div", "add", "sub", "exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "abs", "reciprocal", "square",
           "sigmoid", "conj", "neg", "asin", "acos", "atan", "pow", "sgn", "real", "imag", "rsqrt"]


@pytest.mark.parametrize(("name", "dtype"), [*[(n, "complex64") for n in COMPLEX_OPS], *[(n, "complex128") for n in ("div", "abs", "exp")]])
def test_complex_numbers(name, dtype):
    rng = np.random.default_rng(5)
    x, y = [(rng.uniform(0.2, 1.5, 7) + 1j * rng.uniform(0.2, 1.5, 7)).astype(dtype) for _ in range(2)]
    f = getattr(torch, name)
    found = []
    for where in ("cpu", "cuda:0"):
        leaves = [torch.from_numpy(a).to(where).requires_grad_() for a in (x, y)[:2 if name in ("mul", "div", "add", "sub", "pow") else 1]]
        result = f(*leaves)
        found.append([result, *torch.autograd.grad(result, leaves, torch.ones_like(result.detach()))])
    for got, want in zip(found[1], found[0], strict=True):
        equal(got, want, f"{name} {dtype}")


def test_an_op_given_as_cuda_text():
    @elementwise(cuda="self < T(0) ? T(0) : sqrt(self) * weight", method=False)
    def rooted(self, weight: float = 1.0):
        """The square root of the positive ones: its body branches on values, so it cannot be traced."""
        return np.array([w ** 0.5 * weight if w > 0 else 0 for w in self.tolist()], self.dtype)
    try:
        rooted.vjp(self=lambda grad, self, weight: F.where(self <= 0, 0, grad * weight * weight / (2 * F.rooted(self, weight))))
        x = torch.tensor([-1.0, 4.0, 9.0], device="cuda:0", requires_grad=True)
        y = rooted(x, 2.0)
        y.sum().backward()
        assert y.tolist() == [0, 4, 6] and x.grad.tolist() == [0, 0.5, pytest.approx(1 / 3)]
        assert launched(lambda: rooted(x.detach(), 3.0)) == (1, 1)
        assert rooted(x.detach().half(), 2.0).dtype == torch.float16 and rooted(x.detach().cpu(), 2.0).tolist() == [0, 4, 6]
        assert "sqrt(x0)" in torch.cuda.kernel_source("rooted", "float32")
    finally:
        del REGISTRY["rooted"]
        del F.rooted


def test_a_mistake_in_the_cuda_text_of_an_op_names_it():
    @elementwise(cuda="squareroot(self)", method=False)
    def mistaken(self):
        """An op whose text calls what CUDA C has not."""
        return np.sqrt(self)
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"mistaken: .*squareroot\(x0\)"):
                mistaken(torch.ones(3, device="cuda:0"))
    finally:
        del REGISTRY["mistaken"]
        del F.mistaken
