"""Devices to test on, PyTorch as an oracle where it is installed, and the one table of tolerances."""
import sys
import threading

import numpy as np
import pytest

import autograd_gpu as torch

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-9, "complex128": 1e-9}
needs_bfloat16 = pytest.mark.skipif(not hasattr(torch, "bfloat16"), reason="ml_dtypes is not installed")


@pytest.fixture(params=["cpu", *[pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda:0", "cuda:1")]])
def device(request):
    """Each kind of device in turn; one that is not here is skipped, and the report says why."""
    where = torch.device(request.param)
    if where.type == "cuda":
        reason = torch.cuda.why_not_available()
        if reason:
            pytest.skip(f"{where}: {reason}")
        if where.index >= torch.cuda.device_count():
            pytest.skip(f"{where}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    return where


@pytest.fixture(scope="session")
def oracle():
    """PyTorch itself, for tests that compare with it; skipped visibly where it is not installed."""
    return pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")


def _array(x):
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)


@pytest.fixture
def close():
    """close(ours, expected): equal to within the table's tolerance for the dtype, NaN equal to NaN, shapes and dtypes the same."""
    def check(ours, expected):
        a, b = _array(ours), _array(expected)
        assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, a.dtype, b.shape, b.dtype)
        tolerance = TOLERANCE.get(a.dtype.name, 0)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return check


@pytest.fixture(autouse=True)
def _defaults():
    """No test leaves its default dtype, device or print options to the next."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_printoptions(profile="default")
    real = sys.modules.get("torch")
    if real is not None:
        real.set_default_dtype(real.float32)
        real.set_printoptions(profile="default")


@pytest.fixture
def in_small_stack():
    """in_small_stack(f): what f returns in a thread with a stack of 512 KB, where deep recursion would end the process."""
    def run(f):
        found = []
        old = threading.stack_size(512 * 1024)
        try:
            thread = threading.Thread(target=lambda: found.append(f()))
            thread.start()
            thread.join()
        finally:
            threading.stack_size(old)
        return found[0]
    return run
