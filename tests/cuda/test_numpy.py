"""Where CuPy, C++ or a traced body would give something else than NumPy: dtypes, integers' ranges, NaN, devices of what is written."""
import pickle

import numpy as np
import pytest

import autograd_gpu as torch
from tests.conftest import needs_bfloat16
from tests.cuda.common import equal, gpu, two_devices

pytestmark = gpu
F = torch.nn.functional
nan = float("nan")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool", "complex64"])
def test_logical_operations_ask_for_truth(dtype):
    x, y = (torch.tensor(v).to(getattr(torch, dtype)) for v in ([3.5, 0.0, 2.0, 0.0], [2.5, 0.0, 0.0, 7.0]))
    for f in (torch.logical_xor, torch.logical_and, torch.logical_or):
        equal(f(x.cuda(), y.cuda()), f(x, y), dtype)


@pytest.mark.parametrize("f", [lambda x: F.threshold(x, 300, 1), lambda x: F.hardtanh(x, -300, 300), lambda x: x ** 300,
                               lambda x: x ** 2**40])
def test_a_number_that_does_not_fit_into_integers(f):
    x = torch.tensor([-3, 0, 1, 100], dtype=torch.int8)
    for operand in (x.cuda(), x.cuda()[::2]):
        with pytest.raises((RuntimeError, OverflowError)):
            f(operand)
    equal(F.threshold(x.cuda(), 2, 100), F.threshold(x, 2, 100), "fits")


def test_bodies_that_compare_dtypes_see_half_precision():
    half, single = torch.ones(3).half(), torch.ones(3)
    equal(torch.lerp(half.cuda(), half.cuda(), torch.tensor(0.3).cuda()), torch.lerp(half, half, torch.tensor(0.3)), "lerp")
    for f in (lambda x, y: torch.lerp(x, y, 0.5), torch.complex, torch.polar):
        for x, y in ((single, half), (half, single)):
            for a, b in ((x, y), (x.cuda(), y.cuda())):
                with pytest.raises(RuntimeError, match="dtype"):
                    f(a, b)


@needs_bfloat16
@pytest.mark.parametrize("f", [torch.nan_to_num, lambda x: x.nansum(1), lambda x: x.masked_scatter(x > 0, x), torch.tril, torch.triu,
                               lambda x: x.cumprod(1), lambda x: x.median(1).values])
def test_bfloat16_stays_bfloat16(f):
    x = torch.tensor([[1.0, nan, -2.0], [0.5, 0.0, 3.0]]).bfloat16()
    assert f(x.cuda()).dtype == f(x).dtype == torch.bfloat16


def test_a_bool_among_the_numbers_decides_nothing():
    for dtype in (torch.float32, torch.float16):
        x = torch.tensor([-1.0, 2.0]).to(dtype)
        equal(F.elu(x.cuda(), alpha=True), F.elu(x, alpha=True), str(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_first_nan_is_the_extremum(dtype):
    x = torch.tensor([[1.0, nan, nan, 2.0], [nan, 5.0, 6.0, nan], [1.0, 3.0, 3.0, 0.0]]).to(getattr(torch, dtype))
    for f in (lambda x: x.argmax(1), lambda x: x.argmin(0), lambda x: x.argmax(), lambda x: x.max(1).indices,
              lambda x: x.min(1, keepdim=True).indices):
        equal(f(x.cuda()), f(x), dtype)
    on_cuda = x[:1].cuda().requires_grad_()
    on_cuda.max(1).values.sum().backward()
    assert on_cuda.grad.tolist() == [[0.0, 1.0, 0.0, 0.0]]


@two_devices
@pytest.mark.parametrize("key", [0, ..., slice(0, 1), True, [0], None])
def test_writes_on_a_device_that_is_not_the_current_one(key):
    for value in (5.0, np.float32(2), torch.tensor(3.0), torch.tensor(4.0, device="cuda:1")):
        x, on_cuda = torch.ones(2), torch.ones(2, device="cuda:1")
        x[key] = value.cpu() if isinstance(value, torch.Tensor) else value
        on_cuda[key] = value
        equal(on_cuda, x, str(key), "cuda:1")
        equal(on_cuda[key], x[key], str(key), "cuda:1")


@two_devices
def test_a_pickle_remembers_its_device():
    x = torch.tensor([1.0, 2.0], device="cuda:1", requires_grad=True)
    again = pickle.loads(pickle.dumps(x))
    assert again.device == x.device and again.tolist() == x.tolist() and again.requires_grad


@pytest.mark.parametrize("f", [lambda x: x & 2, lambda x: ~x.to(torch.complex64), lambda x: x % 1j, lambda x: torch.atan2(x * 1j, x)])
def test_what_no_kernel_is_for_is_refused_as_on_the_cpu(f):
    x = torch.ones(3)
    errors = []
    for operand in (x, x.cuda()):
        with pytest.raises((NotImplementedError, RuntimeError)) as caught:
            f(operand)
        errors.append(caught.type)
    assert errors[0] is errors[1]
