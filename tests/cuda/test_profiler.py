"""A profile on devices: time between events there, and the threads of workers."""
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import save_on_cpu
from autograd_gpu.autograd.profiler import emit_nvtx, profile, record_function
from tests.cuda.common import cp, two_devices


def test_time_on_the_device():
    x = torch.ones(300, device="cuda").requires_grad_()
    x.grad = torch.zeros_like(x)             # or the gradient is taken as it comes, which takes a device no time
    with profile(profile_memory=True) as found:
        (x * 2).sin().sum().backward()
        torch.ones(3).cos()
    events = {e.name: e for e in found.function_events}
    for name in ("aten::mul", "aten::sin", "aten::sum", "SinBackward0", "torch::autograd::AccumulateGrad"):
        assert events[name].device_time_total > 0 and events[name].use_device == "cuda", name
    assert events["aten::cos"].device_time_total == 0 and events["aten::cos"].use_device is None
    assert events["aten::sin"].saved == 1200
    text = found.key_averages().table(sort_by="self_cuda_time_total")
    assert "Self CUDA" in text and "Self CUDA time total" in text


def test_what_was_copied_to_the_host_is_counted():
    x = torch.ones(300, device="cuda").requires_grad_() * 2
    with profile(profile_memory=True) as found, save_on_cpu():
        x.sin()
    assert [e.saved for e in found.function_events if e.name == "aten::sin"] == [1200]


@two_devices
def test_the_threads_of_workers():
    x = torch.ones(3, device="cuda:0").requires_grad_()
    with profile() as found:
        (x.sin().to("cuda:1").cos()).sum().backward()
    names = found.function_events._threads
    ran = {e.name: names[e.thread] for e in found.function_events if e.scope == 1}
    assert ran["SinBackward0"] == "autograd:cuda:0" and ran["CosBackward0"] == "autograd:cuda:1"
    assert {names[e.thread] for e in found.function_events if e.scope == 0} >= {"MainThread"}


class _Ranges:
    """In the place of CuPy's nvtx."""

    def __init__(self):
        self.depth, self.pushed = 0, []

    def RangePush(self, name):
        self.pushed.append((self.depth, name))
        self.depth += 1

    def RangePop(self):
        self.depth -= 1


def test_ranges_for_nsight(monkeypatch):
    ranges = _Ranges()
    monkeypatch.setattr(cp.cuda, "nvtx", ranges, raising=False)
    x = torch.ones(3, device="cuda").requires_grad_()
    y = x * 2
    with emit_nvtx(record_shapes=True), record_function("mine"):
        z = y.sin()
        with pytest.raises(RuntimeError, match="same device"):
            z + torch.ones(3)
    with emit_nvtx():
        z.sum().backward()
    z.sum()                                  # no more of it
    nr = y.grad_fn._sequence_nr()
    assert ranges.depth == 0 and ranges.pushed[:2] == [(0, "mine, sizes = []"), (1, "aten::sin, sizes = [[3]]")]
    assert [name for _, name in ranges.pushed[2:] if "aten" not in name or name == "aten::sum"] == [
        "aten::sum", f"SumBackward0, seq = {nr + 2}", f"SinBackward0, seq = {nr + 1}", f"MulBackward0, seq = {nr}",
        "torch::autograd::AccumulateGrad"]
