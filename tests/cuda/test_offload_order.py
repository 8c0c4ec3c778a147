"""What orders the copies of save_on_cpu: right programs give no finding; with a wait left out, or something freed too early, they do."""
import contextlib
import ctypes
import gc
import inspect
import textwrap

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import save_on_cpu
from autograd_gpu.cuda import offload
from tests.cuda.common import cp
from tests.cuda.test_offload import everything_returns, mlp, simulated  # noqa: F401 - a fixture
from tests.simgpu import runtime


def train(steps=2, **settings):
    """A chain of relus, with values of several sizes, twice, so that memory is used again."""
    leaves, loss = mlp(4)
    for _ in range(steps):
        with save_on_cpu(True, **settings):
            y = loss()
        y.backward()
        gradients_without_waiting = [w.grad for w in leaves]
        for w in leaves:
            w.grad = None
        del gradients_without_waiting


def stops_between():
    """What was fetched ahead is dropped by an error before anybody used it."""
    x = torch.ones(100, device="cuda:0", requires_grad=True)
    with save_on_cpu(True, prefetch=3):
        h = x * 2
        y = h.sin().sin().sin()

    def stop(grads):
        raise ValueError
    y.grad_fn.register_prehook(stop)
    with contextlib.suppress(ValueError):
        y.sum().backward()
    (x * 3).exp()                            # may get the same memory


def one_after_the_other():
    """A buffer that one stream's value has left goes to another stream's, which knows nothing of the first."""
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    torch.cuda.empty_cache()
    held = []
    for stream in streams:
        with stream:
            values = cp.ones(100)
            value = offload.Pinned(values, None, 0, 1 << 20)
            held.append((values, value.fetch()))
            del value
    for stream in streams:
        stream.synchronize()


def from_one_stream_to_another():
    """A value is fetched, in part ahead, by a stream that did not make it."""
    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        values = cp.arange(100.0)
        value = offload.Pinned(values, None, 0, 1 << 20)
    with second:
        back = value.fetch()
        total = back.view(np.float64).sum()
    second.synchronize()
    first.synchronize()
    assert float(total) == 4950


def gives_back():
    with save_on_cpu(True):
        y = (torch.ones(100, device="cuda:0", requires_grad=True) * 2).exp()
    del y
    torch.cuda.empty_cache()


def near():
    train(prefetch=1, ahead_bytes=0)


def far():
    train(prefetch=3)


UNORDERED, FREED = "no event, stream or host wait orders them", "was freed while"
CHANGED, PINNED_FREED = "memory was changed", "memory was freed"
LEFT_OUT = {                                 # what is left out: (whose text, the text, what stands there instead, the program, the finding)
    "out waits for the values": (offload.Pinned._out, "lanes.out.wait_event(stream.record())", "pass", far, UNORDERED),
    "out waits for the buffer": (offload.Pinned._out, "lanes.out.wait_event(pinned.last)", "pass", one_after_the_other, UNORDERED),
    "a buffer goes back with its event": (
        offload._Buffer.__del__, "(self.of)", "(_Memory(self.of.memory))", one_after_the_other, UNORDERED),
    "the copy on the device is held": (
        offload.Pinned._out, "lanes.leaving.append(self._leaving)", "self._leaving.flat = elements = None", far, FREED),
    "its stream waits before it is freed": (offload._Lanes.let_go, "timed_wait(leaving.stream, leaving.done)", "pass", near, FREED),
    "it is freed when the copy is done": (
        offload._Lanes.settle, "waiting[0].flat is None or waiting[0].done.done", "True", far, FREED),
    "the values are copied on the device": (
        offload.Pinned._out, "elements = elements.copy()", "pass", lambda: in_place_after_packing(), UNORDERED),
    "back waits for the memory": (offload.Pinned.coming, "lanes.back.wait_event(stream.record())", "pass", far, UNORDERED),
    "back waits for the way out": (
        offload.Pinned.coming, "lanes.back.wait_event(self._leaving.done)", "pass", from_one_stream_to_another, UNORDERED),
    "the node waits for the way back": (offload.Coming.received, "timed_wait(stream, done)", "pass", far, UNORDERED),
    "unused values are waited for before they are freed": (
        offload.Coming.__del__, "stream.wait_event(done)", "pass", stops_between, FREED),
    "nobody writes to a buffer in flight": (
        offload.PinnedPool.take, "found = free.popleft()",
        "found = free.popleft(); ctypes.memset(found.memory.ptr, 0, size)", far, CHANGED),
    "a buffer is given back after its copies": (offload.PinnedPool.give_back, "found.last.synchronize()", "pass", gives_back, PINNED_FREED),
}


def in_place_after_packing():
    x = torch.ones(100, device="cuda:0", requires_grad=True)
    with save_on_cpu(True):
        h = x * 2
        y = h.sin()
        h.mul_(3)
    y.sum().backward()


def changed(function, old, new):
    """A function with a piece of its text replaced."""
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1
    scope = {}
    exec(compile(text.replace(old, new), "<changed>", "exec"), function.__globals__ | {"ctypes": ctypes}, scope)
    return scope[function.__name__]


@simulated
@pytest.mark.parametrize("program", [near, far, stops_between, one_after_the_other, from_one_stream_to_another,
                                     gives_back, in_place_after_packing], ids=lambda f: f.__name__)
def test_the_programs_are_right_as_they_are(program):
    with runtime.faults():
        program()


@simulated
@pytest.mark.plants_faults
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_found(name, monkeypatch):
    function, old, new, program, finding = LEFT_OUT[name]
    monkeypatch.setattr(offload, "pool", offload.PinnedPool())
    owner = getattr(offload, function.__qualname__.split(".")[0])
    monkeypatch.setattr(owner, function.__name__, changed(function, old, new))
    runtime.take_findings()
    with contextlib.suppress(Exception):     # of CuPy, for the launch or copy that showed it
        program()
    gc.collect()
    runtime.settle()
    assert any(finding in found for found in runtime.take_findings())
