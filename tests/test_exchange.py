"""Memory shared with NumPy and, by DLPack, with any library; PyTorch itself is one where it is installed."""
import numpy as np
import pytest

import autograd_gpu as torch

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_shares_memory_both_ways(dtype):
    a = np.zeros((2, 3), dtype)
    t = torch.from_dlpack(a)
    assert t.dtype == getattr(torch, dtype) and t.shape == (2, 3) and not t.requires_grad
    t[0, 1] = 1
    assert a[0, 1] == 1
    b = np.from_dlpack(t.t())
    assert b.ctypes.data == a.ctypes.data and b.dtype == a.dtype and b.strides == a.T.strides
    assert torch.from_dlpack(t).data_ptr() == t.data_ptr() and t.__dlpack_device__() == (1, 0)


def test_a_copy_if_asked_for():
    t = torch.ones(2)
    assert torch.from_dlpack(t, copy=True).data_ptr() != t.data_ptr()
    assert torch.from_dlpack(t, device="cpu", copy=False).data_ptr() == t.data_ptr()


def test_what_is_refused():
    x = torch.ones(2, requires_grad=True)
    for t in (x, x * 2):
        with pytest.raises(BufferError, match="detach"):
            np.from_dlpack(t)
        with pytest.raises(BufferError, match="detach"):
            torch.from_dlpack(t)
    with torch.no_grad(), pytest.raises(BufferError):
        x.__dlpack__()
    for wrong in ([1.0], 3, x.detach().__dlpack__()):
        with pytest.raises(TypeError, match="__dlpack_device__"):
            torch.from_dlpack(wrong)
    with pytest.raises(ValueError, match="from_dlpack"):
        torch.from_dlpack(np.arange(12.0).reshape(3, 4)[:, ::-1])


def test_no_array_of_a_device_on_the_cpu():
    t = torch.ones(2)
    assert not hasattr(t, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="cuda()"):
        t.__cuda_array_interface__  # noqa: B018 - reading it raises


@pytest.mark.parametrize("dtype", DTYPES)
def test_exchange_with_pytorch(oracle, dtype):
    theirs = oracle.arange(6).reshape(2, 3).to(getattr(oracle, dtype))
    ours = torch.from_dlpack(theirs.t())
    assert ours.data_ptr() == theirs.data_ptr() and ours.stride() == (1, 3)
    back = oracle.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr() and back.dtype == theirs.dtype and oracle.equal(back, theirs.t())
    for source, sink in ((oracle, torch), (torch, oracle)):
        with pytest.raises(BufferError, match="detach"):
            sink.from_dlpack(source.ones(2, requires_grad=True))
