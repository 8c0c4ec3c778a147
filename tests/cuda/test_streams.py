"""Streams and events: their names, memory used on several of them, what other libraries are told, and the streams of a backward."""
import copy
import gc
import pickle
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import save_on_cpu, set_warn_on_accumulate_grad_stream_mismatch
from autograd_gpu.utils.checkpoint import checkpoint
from tests import random_streams
from tests.cuda.common import cp, gpu, settled, two_devices
from tests.simgpu import runtime

pytestmark = gpu
cuda = torch.cuda


def leaf(n=1000, where="cuda:0"):
    return torch.linspace(-1.0, 2.0, n, device=where).detach().requires_grad_()


# ------------------------------------------------------------------------------------------------------------------- names

def test_a_stream_is_current_in_its_block():
    before, stream = cuda.current_stream(), cuda.Stream()
    assert before == cuda.default_stream() == cuda.default_stream(0) and before != stream and hash(stream) != hash(before)
    for block in stream, cuda.stream(stream), cuda.StreamContext(stream), stream._cupy:
        with block, cuda.stream(None):
            assert cuda.current_stream() is stream and cp.cuda.get_current_stream().ptr == stream.cuda_stream
            with cuda.stream(before):
                assert cuda.current_stream() == before
            assert cuda.current_stream(0) is stream
        assert cuda.current_stream() == before
    assert cuda.Stream(-1).device == cuda.current_stream(-1).device == torch.device("cuda:0")
    assert stream.device == torch.device("cuda:0") and stream.device_index == 0 and stream.__cuda_stream__() == (0, stream.cuda_stream)
    assert repr(before) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
    cuda.set_stream(None)
    cuda.set_stream(stream)
    try:
        assert cuda.current_stream() is stream
    finally:
        cuda.set_stream(before)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda f: f.__name__)
def test_streams_and_events_are_not_copied(copied):
    event = cuda.Stream().record_event()
    for one in cuda.Stream(), cuda.ExternalStream(0), event:     # a second holder would destroy the driver's
        with pytest.raises(TypeError, match="pickle"):
            copied(one)


@two_devices
def test_streams_of_two_devices():
    one, other = cuda.Stream(0), cuda.Stream(device="cuda:1")
    with one, other:
        assert cuda.current_device() == 1 and cuda.current_stream() is other and cuda.current_stream(0) is one
        assert torch.ones(2, device="cuda").device.index == 1
        with pytest.raises(RuntimeError, match="does not match"):
            event = cuda.Event()
            event.record(one)
            event.record(other)
    assert cuda.current_device() == 0 and cuda.default_stream(1) != cuda.default_stream(0)
    cuda.set_stream(other)
    try:
        assert cuda.current_device() == 1 and cuda.current_stream() is other
    finally:
        cuda.set_stream(cuda.default_stream(1))
        cuda.set_device(0)


@two_devices
def test_a_default_stream_is_that_of_its_device_wherever_it_is_asked():
    x, default = torch.ones(1000, device="cuda:1") * 2, cuda.default_stream(1)
    cuda.synchronize(0)
    assert not (runtime.active() and default.query())
    default.synchronize()
    assert default.query()
    with cuda.Stream(1):
        assert (x + 1)[0].item() == 3        # the host's wait is all that orders it


def test_streams_of_other_libraries():
    theirs = cp.cuda.Stream(non_blocking=True)
    ours = cuda.ExternalStream(theirs.ptr)
    assert isinstance(ours, cuda.Stream) and ours == cuda.ExternalStream(theirs.ptr, device="cuda:0")
    other = type("Other", (), {"__cuda_stream__": lambda self: (0, theirs.ptr)})()
    for stream in theirs, ours, other:
        with cuda.stream(stream):
            assert cuda.current_stream() == ours and cp.cuda.get_current_stream() == theirs
    cuda.current_stream().wait_stream(theirs)
    torch.ones(2, device="cuda").record_stream(theirs)
    assert cuda.ExternalStream(0) == cuda.default_stream()
    for wrong in 3, "stream", torch.device("cuda"):
        with pytest.raises(TypeError, match="expected a Stream"):
            cuda.stream(wrong)


def test_events():
    stream, event = cuda.Stream(), cuda.Event()
    assert event.query() and event.cuda_event == 0 and "uninitialized" in repr(event)
    event.wait()
    event.synchronize()
    with stream:
        x = torch.ones(1000, device="cuda") * 2
        event.record()
    assert event.device == stream.device and event.cuda_event and stream.record_event(event) is event
    event.wait()
    assert (x + 1).tolist()[0] == 3
    x.record_stream(cuda.current_stream())
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(end)
    start.record(stream)
    with stream:
        y = x * 3
    stream.record_event(end)
    end.synchronize()
    assert start.query() and end.query() and start.elapsed_time(end) >= 0 and stream.query()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(event)
    with pytest.raises(ValueError, match="enable_timing"):
        cuda.Event(enable_timing=True, interprocess=True)
    stream.wait_event(end)
    stream.synchronize()
    assert settled(y)[0] == 6


def test_an_index_out_of_range_is_heard_of_when_the_host_waits_for_a_stream_or_event():
    stream, event = cuda.Stream(), cuda.Event()
    for wait in stream.synchronize, event.synchronize:
        with stream:
            torch.ones(3, device="cuda").index_select(0, torch.tensor([5], device="cuda"))
            event.record()
        with pytest.raises(IndexError, match="out of bounds"):
            wait()


# ------------------------------------------------------------------------------------------------------------------ memory

def used_on(stream, x):
    """Have a stream read a tensor of the default stream."""
    stream.wait_stream(cuda.current_stream())
    with stream:
        return x.sum()


@pytest.mark.parametrize("alias", [
    lambda x: x, lambda x: x[3:].reshape(-1, 1), lambda x: torch.from_dlpack(x), lambda x: torch.as_tensor(cp.asarray(x)),
    lambda x: torch.as_tensor(cp.from_dlpack(x)), lambda x: x.detach(), lambda x: torch.as_tensor(x.cupy()[5:])])
def test_memory_of_a_recorded_stream_is_held_until_that_has_passed(alias):
    stream, x = cuda.Stream(), torch.ones(1000, device="cuda")
    cuda.synchronize()
    before = cuda.memory_allocated()
    y = alias(x)
    y.record_stream(stream)
    y.record_stream(stream)
    total = used_on(stream, y)
    del x, y                                 # the checker would find it freed too early
    z = torch.zeros(1000, device="cuda")
    with stream:
        assert total.item() > 900
    del z, total
    cuda.synchronize()
    assert cuda.memory_allocated() <= before - 4000


@pytest.mark.parametrize("view", [
    lambda x: x[3:], lambda x: x.expand(2, 1000), lambda x: x.unfold(0, 900, 1), lambda x: x.as_strided((500,), (2,), 1),
    lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(500, 2))), lambda x: x.reshape(10, 100).diagonal()])
def test_a_view_keeps_what_was_said_of_the_memory(view):
    stream, x = cuda.Stream(), torch.ones(1000, device="cuda")
    x.record_stream(stream)
    v = view(x).detach()
    del x
    cuda.synchronize()                       # what the stream had when x went is done
    with stream:
        y = v + 1
    del v
    z = torch.zeros(1000, device="cuda")     # the checker would find memory that the stream still reads
    with stream:
        assert y.sum().item() > 0 and z.shape == (1000,)


@two_devices
def test_record_stream_with_another_librarys_stream_of_the_tensors_device():
    theirs = cuda.Stream(1)
    foreign = type("Foreign", (), {"__cuda_stream__": lambda self: (0, theirs.cuda_stream)})()
    x = torch.ones(1000, device="cuda:1")
    theirs.wait_stream(cuda.default_stream(1))
    with theirs:
        y = x + 1
    x.record_stream(foreign)                 # whose device is not the current one
    del x
    theirs.synchronize()
    assert y[0].item() == 2


def test_record_stream_of_a_tensor_on_the_cpu():
    with pytest.raises(NotImplementedError, match="CPU"):
        torch.ones(2).record_stream(cuda.Stream())


def test_held_memory_is_let_go_without_a_wait_of_this_thread():
    stream = cuda.Stream()
    gc.collect()
    cuda.synchronize()
    start = cuda.memory_allocated()
    for _ in range(5):
        x = torch.ones(100_000, device="cuda")
        x.record_stream(stream)
        used_on(stream, x)
        del x
        stream._cupy.synchronize()           # which tells this package nothing
    assert cuda.memory_allocated() - start < 1_000_000           # one at a time is still held
    cuda.empty_cache()
    assert cuda.memory_allocated() - start < 10_000


def test_what_is_held_is_waited_for_where_memory_runs_out():
    stream, pool = cuda.Stream(), cp.get_default_memory_pool()
    gc.collect()
    cuda.empty_cache()
    cuda.synchronize()
    pool.set_limit(size=cuda.memory_reserved() + 12_000_000)
    try:
        for _ in range(4):                   # each held until the stream, of which the host knows nothing, has passed
            x = torch.ones(2_000_000, device="cuda")
            x.record_stream(stream)
            used_on(stream, x)
            del x
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            torch.ones(4_000_000, device="cuda")
    finally:
        pool.set_limit(size=0)


# --------------------------------------------------------------------------------------------------------- other libraries

class Described:
    """What another library would offer."""

    def __init__(self, array, stream):
        self.array = array
        self.__cuda_array_interface__ = dict(array.__cuda_array_interface__, stream=stream)


def test_a_consumer_on_another_stream_is_ordered_after_the_producer():
    ours, theirs = cuda.Stream(), cp.cuda.Stream(non_blocking=True)
    with ours:
        x = torch.arange(1000.0, device="cuda") * 2
        assert x.__cuda_array_interface__["stream"] == ours.cuda_stream
        x.__dlpack__(stream=theirs.ptr)      # the capsule is dropped; what it asked for stays
        with theirs:
            a = cp.negative(x.cupy())
        with theirs:                         # imported where it was made on the other
            with ours:
                y = x + 1
                capsule_of = y.__dlpack__
            other = type("Exporter", (), {"__dlpack__": lambda self, **k: capsule_of(**k), "__dlpack_device__": lambda self:
                                          y.__dlpack_device__()})()
            with ours:
                taken = torch.from_dlpack(other)
            b = taken
        for stream in None, -1:
            x.__dlpack__(stream=stream)
    ours.wait_stream(theirs)
    with ours:
        assert cp.asnumpy(a)[3] == -6 and b[3].item() == 7
    with pytest.raises(TypeError, match="int"):
        x.__dlpack__(stream=theirs)


@two_devices
def test_memory_of_a_device_is_shared_where_another_one_is_current():
    ours = cuda.Stream(1)
    with cp.cuda.Device(1):
        theirs = cp.cuda.Stream(non_blocking=True)
    with ours:
        x = torch.ones(1000, device="cuda:1") * 2
        with cuda.device(0):
            assert x.__cuda_array_interface__["stream"] == ours.cuda_stream
            x.__dlpack__(stream=theirs.ptr)                  # has theirs wait for ours
    with cp.cuda.Device(1), theirs:
        a = x.cupy() + 1
    assert cuda.current_device() == 0
    for y in torch.as_tensor(Described(a, theirs.ptr)), torch.from_dlpack(a):
        assert y.device == torch.device("cuda:1") and y.data_ptr() == a.data.ptr
    assert torch.as_tensor(Described(a, theirs.ptr))[0].item() == 3


def test_memory_of_other_libraries_is_ordered_behind_the_stream_they_name():
    ours, theirs = cuda.Stream(), cp.cuda.Stream(non_blocking=True)
    with theirs:
        a = cp.arange(1000, dtype=np.float32) * 2
    offered = Described(a, theirs.ptr)
    with ours:
        x = torch.as_tensor(offered)
        y = x + 1
        with theirs:
            b = cp.from_dlpack(torch.ones(3, device="cuda"))
        z = torch.from_dlpack(a)
        total = (x + z).sum()
        del offered
        assert y[3].item() == 7 and total.item() == 4 * 999 * 500 and x.data_ptr() == a.data.ptr and b.size == 3
    for stream in None, 1, 2:
        assert torch.as_tensor(Described(a, stream))[3].item() == 6
    empty = torch.as_tensor(Described(cp.empty((0, 3)), None))
    assert empty.shape == (0, 3) and empty.is_cuda


# ---------------------------------------------------------------------------------------------------------------- backward

def streams_seen(t, seen):
    t.register_hook(lambda g: seen.append(cuda.current_stream()))
    return t


def test_a_node_runs_on_the_stream_it_was_recorded_on():
    one, other, seen = cuda.Stream(), cuda.Stream(), []
    x = leaf()
    one.wait_stream(cuda.current_stream())
    with one:
        h = streams_seen(x * 2, seen)
        x.record_stream(one)
    other.wait_stream(one)
    with other:
        y = streams_seen(h.exp(), seen)
        h.detach().record_stream(other)
    cuda.current_stream().wait_stream(other)
    y.detach().record_stream(cuda.current_stream())
    y.sum().backward()
    assert seen == [other, one]
    np.testing.assert_allclose(settled(x.grad), 2 * np.exp(2 * settled(x.detach())), rtol=1e-5)


def test_backward_is_as_one_operation_of_the_current_stream():
    one, mine = cuda.Stream(), cuda.Stream()
    with one:
        x = leaf()
        y = x * x
    mine.wait_stream(one)
    with mine:
        y.backward(torch.full((1000,), 3.0, device="cuda"))
        doubled = x.grad * 2                 # no wait of the user's
        x.grad = None
        assert doubled[0].item() == -12
        del y
    mine.synchronize()


def test_a_leafs_gradient_is_accumulated_on_the_stream_of_its_first_use():
    one, other, seen = cuda.Stream(), cuda.Stream(), []
    x = leaf()
    x.register_hook(lambda g: seen.append(cuda.current_stream()))
    for first, second in ((one, other), (other, one)):
        for stream in first, second:
            stream.wait_stream(cuda.current_stream())
            x.record_stream(stream)
        with first:
            a = x * 2
        with second:
            b = x * 3
        for stream in first, second:
            cuda.current_stream().wait_stream(stream)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            (a + b).sum().backward()
        assert seen.pop() == first and len(told) == 1 and "stream does not match" in str(told[0].message) and told[0].filename == __file__
        del a, b
    set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        with one:
            a = x * 2
        with other, warnings.catch_warnings():
            warnings.simplefilter("error")
            b = x * 3
            other.wait_stream(one)
            (a + b).sum().backward()
            a.detach().record_stream(other)
    finally:
        set_warn_on_accumulate_grad_stream_mismatch(True)
    other.synchronize()
    assert x.grad[0].item() == 15


def test_a_gradient_that_is_given_to_a_leaf_is_added_on_its_stream():
    one = cuda.Stream()
    with one:
        x = leaf()
        y = x * 2                            # keeps what accumulates x's gradients
        y.sum().backward(retain_graph=True)
    x.backward(torch.ones(1000, device="cuda"))
    assert x.grad[0].item() == 3 and y.shape == x.shape


def test_a_stream_waits_as_late_as_it_can(monkeypatch):
    """What main has to do between a branch's end and the sum of both is not behind the branch."""
    main, side, log = cuda.current_stream(), cuda.Stream(), []
    h = leaf() * 1
    m = h.sin() * 2
    side.wait_stream(main)
    h.detach().record_stream(side)
    with side:
        s = h.exp()                          # the newest node of h: the first to be done with its gradient
    main.wait_stream(side)
    s.detach().record_stream(main)
    y = (m * s).sum()
    for name, t in ("h", h), ("m", m), ("s", s):
        t.register_hook(lambda g, name=name: log.append(name))
    wait = cuda.Stream.wait_for
    names = {main: "main", side: "side"}
    monkeypatch.setattr(cuda.Stream, "wait_for", lambda stream, event: log.append(names[stream]) or wait(stream, event))
    y.backward()
    assert log == ["side", "side", "s", "m", "main", "h", "main"]      # begin, then each that reads what the other made, and the end


def test_backward_makes_no_events_where_there_is_one_stream(monkeypatch):
    x = leaf()
    monkeypatch.setattr(cp.cuda, "Event", None)
    x.mul(2).exp().sum().backward()
    with cp.cuda.Stream(non_blocking=True):
        y = leaf()
        (y * y).sum().backward()
        cp.cuda.get_current_stream().synchronize()


@two_devices
def test_a_thread_per_device_and_streams_of_the_nodes():
    streams = [cuda.Stream(i) for i in range(2)]
    seen = []
    with streams[0], streams[1]:
        leaves = [leaf(10, f"cuda:{i}") for i in range(2)]
        parts = [streams_seen(x * 2, seen) for x in leaves]
    for stream in streams:
        cuda.current_stream(stream.device).wait_stream(stream)
    for t in parts:
        t.detach().record_stream(cuda.current_stream(t.device))
    names = []
    parts[1].register_hook(lambda g: names.append(threading.current_thread().name))
    (parts[0] + parts[1].to("cuda:0")).sum().backward()
    assert sorted(seen, key=lambda s: s.device.index) == streams and names == ["autograd:cuda:1"]
    assert [x.grad.tolist() for x in leaves] == [[2.0] * 10] * 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_is_run_again_on_its_own_stream(reentrant):
    one, seen = cuda.Stream(), []

    def function(x):
        seen.append(cuda.current_stream())
        with other:
            other.wait_stream(one)
            x.detach().record_stream(other)
            h = x.exp()
        one.wait_stream(other)
        h.detach().record_stream(one)
        return (h * x).sin() if not reentrant else h.sin()
    other = cuda.Stream()
    with one:
        x = leaf()
        y = checkpoint(function, x * 1, use_reentrant=reentrant)
    cuda.current_stream().wait_stream(one)
    y.detach().record_stream(cuda.current_stream())
    y.sum().backward()
    assert seen == [one, one] and x.grad is not None


def test_saved_values_are_unpacked_on_the_nodes_stream():
    one, seen = cuda.Stream(), []
    with one:
        x = leaf()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 1, lambda t: seen.append(cuda.current_stream()) or t * 1):
            y = x.sin()
        with save_on_cpu(pin_memory=True):
            y = (y * y).exp()
    cuda.current_stream().wait_stream(one)
    y.detach().record_stream(cuda.current_stream())
    y.sum().backward()
    assert seen == [one]
    s = np.sin(settled(x.detach()).astype(np.float64))
    np.testing.assert_allclose(settled(x.grad), np.exp(s * s) * 2 * s * np.cos(settled(x.detach())), rtol=1e-4)


def test_a_backward_inside_one_and_an_error():
    one = cuda.Stream()

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            assert cuda.current_stream() == one
            with torch.enable_grad():
                z = g.detach().requires_grad_()
                inner, = torch.autograd.grad((z * z).sum(), z)
            if g[0].item() > 100:
                raise KeyError("too large")
            return inner
    with one:
        x = leaf(5)
        y = Nested.apply(x)
        z = Nested.apply(x * 200)
    cuda.current_stream().wait_stream(one)
    (y * 3).sum().backward()
    assert x.grad.tolist() == [6.0] * 5
    with pytest.raises(KeyError, match="too large"):
        (z * 200).sum().backward()
    assert cuda.current_stream() == cuda.default_stream()


DOCUMENT = Path(__file__).parents[2] / "docs" / "streams.md"


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S))
def test_the_programs_of_the_documentation(program, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(program, {})
    assert float(capsys.readouterr().out) == pytest.approx(float(program.rsplit(": ", 1)[1]), rel=1e-5)


@pytest.mark.parametrize("threads", [1, 4])
def test_random_graphs(threads):
    """Some of tests/random_streams.py; its own command runs a thousand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert random_streams.differences(range(40), threads=threads) == []
