"""What the tests of this folder share: they run on a GPU or on simulated devices, and skip, saying why, where there is neither."""
import numpy as np
import pytest

import autograd_gpu as torch
from tests.cuda.programs import TOLERANCE, derivatives

_reason = torch.cuda.why_not_available()
if _reason:
    pytest.skip(f"no CUDA device: {_reason}; for simulated ones run with -p tests.simgpu.plugin", allow_module_level=True)
import cupy as cp  # noqa: E402

gpu = pytest.mark.gpu
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


def settled(t, where="cuda:0"):
    """A CUDA tensor's array, known to be a CuPy array on the device that the tensor names."""
    assert isinstance(t._array, cp.ndarray) and t.device == torch.device(where) and t._array.device.id == t.device.index and t.is_cuda
    return cp.asnumpy(t._array)


def equal(on_cuda, on_cpu, what, where="cuda:0"):
    got, want = settled(on_cuda.detach(), where), on_cpu.detach().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype, what
    tolerance = TOLERANCE.get(got.dtype.name, 0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=what)


def same_on_both(program, operands, where="cuda:0"):
    on_cpu, on_cuda = derivatives(program, operands, "cpu"), derivatives(program, operands, where)
    assert on_cpu.keys() == on_cuda.keys()
    for what, t in on_cuda.items():
        equal(t, on_cpu[what], what, where)
