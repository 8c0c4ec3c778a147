"""CUDA graphs: a replay gives new results from new inputs, its memory stays its own, and what cannot be captured is named."""
import gc
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import save_on_cpu
from tests.cuda.common import cp, gpu, settled

pytestmark = gpu
cuda = torch.cuda


def captured(f):
    """(a graph, what f gave in its capture); run once before, as kernels are compiled at their first use."""
    f()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        assert cuda.is_current_stream_capturing()
        found = f()
    assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
    return graph, found


def filled(x, value):
    with torch.no_grad():
        x.fill_(value)


def test_new_results_from_new_inputs():
    x = torch.full((1000,), 0.5, device="cuda", dtype=torch.float64, requires_grad=True)

    def f():
        y = (x * 2).exp() * x
        gradient, = torch.autograd.grad(y.sum(), x, create_graph=True)
        second, = torch.autograd.grad(gradient.sum(), x)
        return y.detach(), gradient.detach(), second, x.detach().softmax(0)
    graph, found = captured(f)
    for value in 0.25, -1.0, 3.0:
        filled(x, value)
        graph.replay()
        e = np.exp(2 * value)
        for t, want in zip(found, (e * value, e * (1 + 2 * value), e * (4 + 4 * value), 1 / 1000), strict=True):
            np.testing.assert_allclose(settled(t), want, rtol=1e-12)


def test_a_whole_training_step():
    def made(device):
        w = torch.linspace(-1, 1, 50, device=device, dtype=torch.float64).requires_grad_()
        x = torch.zeros(50, device=device, dtype=torch.float64)
        return w, x, torch.optim.SGD([w], lr=0.1, momentum=0.9)

    def step(w, x, opt):
        opt.zero_grad(set_to_none=False)
        ((w * x).tanh() - 0.3).square().mean().backward()
        opt.step()
    on_cuda, on_cpu = made("cuda"), made("cpu")
    for things in on_cuda, on_cpu:
        step(*things)                        # makes .grad and the buffer
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        step(*on_cuda)
    for value in 0.5, 2.0, -1.0:
        for _, x, _ in on_cuda, on_cpu:
            x.fill_(value)
        graph.replay()
        step(*on_cpu)
    np.testing.assert_allclose(settled(on_cuda[0].detach()), on_cpu[0].detach().numpy(), rtol=1e-12)


def test_several_streams_in_one_graph():
    x = torch.full((1000,), 0.5, device="cuda", requires_grad=True)
    side = cuda.Stream()

    def f():
        side.wait_stream(cuda.current_stream())
        x.record_stream(side)
        with side:
            a = x.exp()
        b = (x * 3).sin()
        cuda.current_stream().wait_stream(side)
        a.detach().record_stream(cuda.current_stream())
        return torch.autograd.grad((a * b).sum(), x)[0]
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        graph, g = captured(f)
    finally:
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    for value in 1.0, -0.5:
        filled(x, value)
        graph.replay()
        np.testing.assert_allclose(settled(g), np.exp(value) * (np.sin(3 * value) + 3 * np.cos(3 * value)), rtol=1e-4)


def test_what_any_stream_has_made_before_is_there_for_a_replay_on_any_other():
    (torch.ones(1000, device="cuda") * 2).add(1)             # kernels are compiled
    with cuda.Stream():
        x = torch.ones(1000, device="cuda") * 2
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = x + 1
    graph.replay()
    assert y[0].item() == 3


@pytest.mark.parametrize("kept", ["loss", "leaf"])
def test_a_leaf_of_the_default_stream_whose_graph_is_kept(kept):
    x = torch.full((1000,), 0.5, device="cuda", requires_grad=True)
    loss = x.exp().sum()
    loss.backward(retain_graph=kept == "loss")
    graph = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="set_override_stale_capture_stream"), cuda.graph(graph):
        (x * x).sum().backward()
    cuda.synchronize()
    torch.autograd.graph.set_override_stale_capture_stream(True)
    try:
        with cuda.graph(graph):
            (x * x).sum().backward()
            if kept == "loss":
                loss.backward(retain_graph=True)             # what it saved has to outlive the graph
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
    filled(x.grad, 0.0)
    graph.replay()
    np.testing.assert_allclose(settled(x.grad), 1 + (np.exp(0.5) if kept == "loss" else 0), rtol=1e-6)
    filled(x, 2.0)
    graph.replay()
    assert x.grad[0].item() > 4


def test_a_stale_leaf_and_several_streams_in_one_graph():
    x, side = torch.full((1000,), 0.5, device="cuda", requires_grad=True), cuda.Stream()
    warm_up = x.exp().sum()                  # on the default stream, as x's AccumulateGrad, and still kept
    graph = cuda.CUDAGraph()
    torch.autograd.graph.set_override_stale_capture_stream(True)
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        with cuda.graph(graph):
            side.wait_stream(cuda.current_stream())
            with side:
                a = x.exp()
            b = x * 3
            cuda.current_stream().wait_stream(side)
            a.detach().record_stream(cuda.current_stream())
            y = (a * b).sum()
            g, = torch.autograd.grad(y, x, retain_graph=True)
            y.backward()
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    filled(x, 1.0)
    filled(x.grad, 0.0)
    graph.replay()
    for found in g, x.grad:
        np.testing.assert_allclose(settled(found), 6 * np.exp(1.0), rtol=1e-5)
    del warm_up


def test_no_worker_runs_what_is_captured():
    x, names = torch.ones(10, device="cuda", requires_grad=True), []
    x.register_hook(lambda g: names.append(threading.current_thread().name))
    torch.autograd.graph.set_override_stale_capture_stream(True)         # the worker may be about to drop the first run's graph
    try:
        with torch.autograd.set_multithreading_enabled(True):
            graph, g = captured(lambda: torch.autograd.grad((x * x).sum(), x)[0])
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
    filled(x, 3.0)
    graph.replay()
    assert g.tolist() == [6.0] * 10 and names == ["autograd:cuda:0", threading.current_thread().name]


def test_the_memory_of_a_graph_is_nobody_elses():
    x = torch.ones(10_000, device="cuda")
    graph, y = captured(lambda: (x * 2 + 1).exp().sum())
    gc.collect()
    others = [torch.full((10_000,), float(k), device="cuda") for k in range(20)]
    graph.replay()
    cuda.synchronize()
    assert [t[0].item() for t in others] == list(range(20)) and abs(y.item() / (10_000 * np.exp(3)) - 1) < 1e-5
    again = cuda.CUDAGraph()
    with cuda.graph(again, pool=graph.pool()):
        z = y * 2
    again.replay()
    assert again.pool() is graph.pool() and z.item() == 2 * y.item()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()


@pytest.mark.parametrize(("f", "name"), [
    (lambda w: w @ w, "mm"), (lambda w: torch.nn.functional.linear(w, w), "mm"), (lambda w: w.sum().item(), "the block"),
    (lambda w: w.cpu(), "the block"), (lambda w: w[w > 0], "index"), (lambda w: cuda.synchronize(), "the block"),
    (lambda w: cuda.current_stream().synchronize(), "the block")])
def test_what_cannot_be_captured_is_named(f, name):
    w = torch.ones(3, 3, device="cuda")
    f(w)
    graph = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=f"{name} cannot be captured.*takes kernels and copies"), cuda.graph(graph):
        f(w)
    assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()
    with cuda.graph(graph):                  # the same object may be used again
        y = w * 2
    graph.replay()
    assert y.tolist() == [[2.0] * 3] * 3 and f(w) is not NotImplemented


@pytest.mark.parametrize("pinned", [False, True])
def test_offloading_cannot_be_captured_and_goes_on_afterwards(pinned):
    x = torch.full((9,), 0.5, device="cuda", requires_grad=True)

    def offloaded():
        with save_on_cpu(pinned):
            return (x * 2).sin().sum()
    y = offloaded()
    torch.autograd.graph.set_override_stale_capture_stream(True)
    try:
        for step in offloaded, lambda: y.backward(retain_graph=True):        # the first needs other page-locked memory than y has
            with pytest.raises(RuntimeError, match="sin cannot be captured"), cuda.graph(cuda.CUDAGraph()):
                step()
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
    for loss in y, offloaded():
        loss.backward()
    np.testing.assert_allclose(settled(x.grad), 4 * np.cos(1.0), rtol=1e-6)


def test_a_generator_started_again_in_a_capture_holds_no_memory_back():
    x, side = torch.ones(100_000, device="cuda"), cuda.Stream()
    with side:
        torch.rand(3, device="cuda")
    with cuda.graph(cuda.CUDAGraph(), stream=side):
        torch.manual_seed(0)
    cuda.synchronize()
    start = cuda.memory_allocated()
    x.record_stream(side)
    del x
    cuda.synchronize()
    assert cuda.memory_allocated() <= start - 400_000


def test_a_capture_in_a_profile():
    x = torch.ones(1000, device="cuda", requires_grad=True)
    with torch.autograd.profiler.profile() as profile:
        graph, found = captured(lambda: torch.autograd.grad((x * 2).exp().sum(), x)[0])
    graph.replay()
    assert found[0].item() == pytest.approx(2 * np.exp(2), rel=1e-6)
    ran, noted = [e for e in profile.function_events if e.name == "aten::exp"]         # in the capture nothing runs that could be timed
    assert ran.device_time_total > 0 and noted.device_time_total == 0


def test_errors_of_the_block_and_of_its_use():
    graph, stream = cuda.CUDAGraph(), cuda.Stream()
    with pytest.raises(KeyError), cuda.graph(graph):
        raise KeyError("the block's own")
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="capture_begin"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()
    x = torch.ones(3, device="cuda")
    cuda.synchronize()
    with stream:
        with pytest.raises(ValueError, match="capture error mode"):
            graph.capture_begin(capture_error_mode="none")
        with pytest.raises(TypeError, match="graph_pool_handle"):
            graph.capture_begin(pool=3)
        graph.capture_begin(cuda.graph_pool_handle(), capture_error_mode="thread_local")
        with pytest.raises(RuntimeError, match="already owns"):
            graph.capture_begin()
        y = x + 1
        graph.capture_end()
        with pytest.raises(RuntimeError, match="already owns"):
            graph.capture_begin()
        graph.replay()
        assert y.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="non-default stream"), cuda.graph(cuda.CUDAGraph(), stream=cuda.default_stream()):
        pass
    with pytest.raises(TypeError, match="expected a Stream"):
        cuda.graph(cuda.CUDAGraph(), stream=3)
    assert cuda.current_stream() == cuda.default_stream()
    other = cp.cuda.Stream(non_blocking=True)
    again = cuda.CUDAGraph()
    with cuda.graph(again, stream=other):
        assert cuda.current_stream().cuda_stream == other.ptr
        z = x * 5
    again.replay()
    assert z.tolist() == [5.0] * 3
