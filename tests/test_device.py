"""Devices as values, where new tensors are made, and words for why CUDA is not there, whatever CuPy does on import."""
import copy
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import autograd_gpu as torch

ROOT = Path(__file__).parent.parent


def test_text_and_equality():
    assert repr(torch.device("cuda:1")) == "device(type='cuda', index=1)" and str(torch.device("cuda:1")) == "cuda:1"
    assert repr(torch.device("cpu")) == "device(type='cpu')"
    assert torch.device("cuda", 1) == torch.device("cuda:1") == torch.device(torch.device("cuda:1")) == torch.device(1)
    assert torch.device("cpu") != torch.device("cpu:0") and torch.device("cuda") != "cuda"
    assert len({torch.device("cuda:1"), torch.device("cuda", 1), torch.device("cuda")}) == 2
    for d in (torch.device("cpu"), torch.device("cuda:1")):
        assert pickle.loads(pickle.dumps(d)) == d == copy.deepcopy(d)
    with pytest.raises(AttributeError):
        torch.device("cpu").index = 1


@pytest.mark.parametrize("text", ["cuda:-1", "cuda:01", "cuda:a", "cuda:", "gpu", "", "CPU"])
def test_malformed_strings(text):
    with pytest.raises(RuntimeError, match="device"):
        torch.device(text)


@pytest.mark.parametrize("value", [2.5, None, True, []])
def test_what_is_no_device(value):
    with pytest.raises(TypeError, match="device"):
        torch.device(value)


def test_wrong_indices():
    for args in (("cuda", -1), (-1,), ("cuda:1", 1)):
        with pytest.raises(RuntimeError, match="index"):
            torch.device(*args)


def test_where_tensors_are_made(device):
    assert torch.zeros(2, device=device).device.type == device.type
    with device:
        assert torch.ones(2).device == torch.tensor([1.0]).device == torch.get_default_device()
        assert torch.ones(2).device.type == device.type
        with torch.device("cpu"):
            assert torch.rand(2).device == torch.device("cpu")
    torch.set_default_device(device)
    assert torch.arange(3).device.type == device.type
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(1).device))
    thread.start()
    thread.join()
    assert found == [torch.device("cpu")]                                # as in PyTorch, a default belongs to its thread
    torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu")


def test_there_and_back(device):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert torch.tensor(x).device == x.device
    assert torch.tensor(x, device="cpu").tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert torch.zeros_like(x).device == torch.ones_like(x).device == torch.rand_like(x).device == x.device


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_without_cuda_the_error_says_why():
    reason = torch.cuda.why_not_available()
    assert isinstance(reason, str) and len(reason) > 20 and torch.cuda.device_count() == 0
    for call in (lambda: torch.zeros(1, device="cuda"), lambda: torch.set_default_device("cuda:1"), torch.cuda.current_device,
                 torch.cuda.synchronize, lambda: torch.Generator("cuda"), torch.cuda.Stream, lambda: torch.cuda.ExternalStream(1),
                 torch.cuda.current_stream, torch.cuda.default_stream, torch.cuda.Event().record, torch.cuda.graph_pool_handle,
                 lambda: torch.cuda.graph(torch.cuda.CUDAGraph())):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert reason in str(caught.value)
    torch.cuda.manual_seed(0)                                            # as in PyTorch: nothing to seed, no error
    with torch.cuda.stream(None):
        assert not torch.cuda.is_current_stream_capturing()


RUNTIME = """
    __version__ = "99.0"
    class ndarray: pass
    class cuda:
        class runtime:
            @staticmethod
            def getDeviceCount(): {count}
"""


@pytest.mark.parametrize(("stub", "words"), [
    ('raise ImportError("libcuda.so.1: cannot open shared object file")', ["cannot be imported", "libcuda.so.1", "cuda12"]),
    ('raise OSError("libcublas.so is damaged")', ["cannot be imported", "OSError", "libcublas.so is damaged"]),
    ('raise RuntimeError("CUDA driver version is insufficient")', ["cannot be imported", "RuntimeError", "insufficient"]),
    ('raise AttributeError("numpy has no attribute bool8")', ["cannot be imported", "AttributeError"]),
    ("pass", ["cannot be imported", "ndarray"]),                         # an unfinished installation
    (RUNTIME.format(count='raise RuntimeError("cudaErrorInsufficientDriver")'),
     ["99.0", "no usable GPU", "cudaErrorInsufficientDriver"]),
    (RUNTIME.format(count='raise OSError("no driver")'), ["99.0", "no usable GPU", "OSError: no driver"]),
    (RUNTIME.format(count="return 0"), ["99.0", "no device"]),
    ("class ndarray: pass", ["no usable GPU", "AttributeError"]),
])
def test_a_broken_cupy_never_breaks_the_import(tmp_path, stub, words):
    (tmp_path / "cupy.py").write_text(textwrap.dedent(stub))
    program = """if True:
        import autograd_gpu as torch
        assert torch.cuda.is_available() is False and torch.cuda.device_count() == 0
        x = torch.tensor([2.0], requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [4.0]
        print(torch.cuda.why_not_available())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout
