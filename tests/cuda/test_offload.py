"""save_on_cpu with page-locked memory: copies beside the computation, in backward ahead of it; no race, no wait of the host, no leak."""
import contextlib
import gc
import inspect
import threading
import time
import warnings

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import offload_report, save_on_cpu, saved_tensors_hooks
from autograd_gpu.cuda import offload
from autograd_gpu.utils.checkpoint import checkpoint
from tests import random_streams
from tests.cuda.common import cp, settled, two_devices
from tests.simgpu import runtime

F = torch.nn.functional
simulated = pytest.mark.skipif(not runtime.active(), reason="needs the simulated devices, which see what is not ordered")
SETTINGS = pytest.mark.parametrize("settings", [
    {}, {"prefetch": 1}, {"prefetch": 3}, {"prefetch": 2, "ahead_bytes": 0}, {"prefetch": 100, "ahead_bytes": 1 << 40}],
    ids=lambda s: " ".join(f"{k}={v}" for k, v in s.items()) or "default")


@pytest.fixture(autouse=True)
def everything_returns():
    """After each test all page-locked memory is free again, and no backward looks for any."""
    yield
    end = time.monotonic() + 5               # a device's worker lets go of its backward when it next waits
    while offload.kept and time.monotonic() < end:
        gc.collect()
    assert not offload.kept and offload.pool.free == offload.pool.reserved
    assert all(not lanes.leaving or lanes.leaving[-1].value() is None for lanes in offload._lanes.values())


def mlp(layers=5, size=8, rows=16, where="cuda:0"):
    """(leaves, f): f() is a loss of a chain of linear maps and relus."""
    rng = np.random.default_rng(0)
    weights = [torch.tensor(rng.standard_normal((size, size)) / 2, device=where, requires_grad=True) for _ in range(layers)]
    x = torch.tensor(rng.standard_normal((rows, size)), device=where)

    def loss():
        h = x
        for w in weights:
            h = F.linear(h, w)
            h = h.relu()
        return h.square().mean()
    return weights, loss


def gradients(leaves):
    found = [settled(w.grad, w.device) for w in leaves]
    for w in leaves:
        w.grad = None
    return found


def same(found, want):
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


def waits():
    return runtime.counts()["host_waits"]


# ------------------------------------------------------------------------------------------------------------ right results

def residual(torch, x, w):
    h = x @ w
    for _ in range(3):
        h = h + (h.tanh() @ w).sigmoid() * h.t().t()
    return h


def views(torch, x, w):
    h = x @ w
    return (h.reshape(-1) ** 2).reshape(h.shape) * h.t().exp().t() + h[:, ::2].sin().sum() + h.max(1, keepdim=True).values


def normed(torch, x, w):
    h = F.layer_norm(x @ w, (w.shape[1],))
    return F.softmax(F.gelu(h) @ w, 1).logsumexp(0) * h


def in_place(torch, x, w):
    h = x @ w
    y = h.sin()
    h.mul_(2)
    h[1:].exp_()
    return y * h.cos()


PROGRAMS = pytest.mark.parametrize("program", [residual, views, normed, in_place], ids=lambda f: f.__name__)


@SETTINGS
@PROGRAMS
def test_gradients_are_the_same_to_the_bit(program, settings):
    rng = np.random.default_rng(1)
    x, w = (torch.tensor(rng.standard_normal((6, 6)), device="cuda:0", requires_grad=True) for _ in range(2))
    found = []
    for context in (contextlib.nullcontext(), save_on_cpu(True, **settings)):
        with context:
            y = program(torch, x, w).sum() if program is not in_place else None
            if y is None and not isinstance(context, save_on_cpu):           # without, what was saved is overwritten
                h = x @ w
                y = h.sin() * (torch.cat([2 * h[:1], (2 * h[1:]).exp()])).cos()
                y = y.sum()
            elif y is None:
                y = in_place(torch, x, w).sum()
        for keep in (True, False):
            y.backward(retain_graph=keep)
            found.append(gradients((x, w)))
    same(found[0], found[1])
    compare = np.testing.assert_allclose if program is in_place else np.testing.assert_array_equal
    for a, b in zip(found[0] + found[1], found[2] + found[3], strict=True):
        compare(a, b, **({"rtol": 1e-9} if program is in_place else {}))


@SETTINGS
def test_every_kind_of_backward(settings):
    """create_graph, autograd.grad for some inputs, custom Functions, checkpoints, nested hooks, hooks on one value."""
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * (y / x * 3)

    def f(x):
        with saved_tensors_hooks(lambda t: t * 1, lambda t: t):
            y = x.exp()
        return checkpoint(lambda t: Cube.apply(t).sin(), y * 0.1, use_reentrant=False) + checkpoint(
            torch.tanh, x * 2, use_reentrant=True) + Cube.apply(x * 3)

    x, found = torch.linspace(-1, 1, 12, device="cuda:0", dtype=torch.float64).requires_grad_(), []
    for context in (contextlib.nullcontext(), save_on_cpu(True, **settings)):
        with context:
            f(x).sum().backward()
            z = (Cube.apply(x * 3) + (x * 2).exp()).sum()
            g, = torch.autograd.grad(z, x, create_graph=True)
            gg, = torch.autograd.grad(g.sin().sum(), x)
            h = x * 1
            y = h * h
            y.grad_fn._raw_saved_self.register_hooks(lambda t: t.cpu(), lambda t: t.to("cuda:0")) if not isinstance(
                context, save_on_cpu) else None
            part, = torch.autograd.grad(y.sum(), h)
        found.append([*gradients([x]), *(settled(t.detach()) for t in (g, gg, part))])
    same(*found)


def test_who_writes_to_what_was_unpacked_changes_nobody_elses():
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * x.mul_(2)
    x = torch.linspace(-1, 1, 5, device="cuda:0", requires_grad=True)
    with save_on_cpu(True, prefetch=4):
        h = x * 1
        y = h.sin() + Doubles.apply(h) + h * h
    y.sum().backward()
    h = settled(x.detach())
    np.testing.assert_allclose(settled(x.grad), np.cos(h) + 4 * h, rtol=1e-5)


@pytest.mark.parametrize("workers", [None, True, False])
@pytest.mark.parametrize("prefetch", [0, 2])
@two_devices
def test_several_devices(workers, prefetch):
    x = torch.linspace(-1, 1, 6, device="cuda:0", dtype=torch.float64).requires_grad_()
    found = []
    for context in (contextlib.nullcontext(), save_on_cpu(True, prefetch=prefetch, ahead_bytes=100)):
        with torch.autograd.set_multithreading_enabled(True) if workers is None else torch.autograd.set_multithreading_enabled(workers):
            with context:
                h, k = x.exp(), (x * 2).to("cuda:1")
                for _ in range(4):
                    h, k = (h * 0.5).tanh() + k.to("cuda:0").sin(), (k * h.to("cuda:1")).cos()
            (h.sum() + k.to("cuda:0").sum()).backward()
        found.append(gradients([x]))
    same(*found)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_several_streams(prefetch):
    """Nodes run on the streams that they were recorded on, and a value is fetched onto the stream of the node that wants it first."""
    leaves, loss = mlp(4)
    loss().backward()
    want = gradients(leaves)
    streams, chosen = [torch.cuda.Stream() for _ in range(2)], []

    def next_stream():
        before = torch.cuda.current_stream()
        chosen.append(streams[len(chosen) % 2])
        chosen[-1].wait_stream(before)
        torch.cuda.set_stream(chosen[-1])
    original, here = F.linear, torch.cuda.current_stream()
    try:
        with pytest.MonkeyPatch.context() as patch, save_on_cpu(True, prefetch=prefetch, ahead_bytes=3000):
            def linear(h, w):
                h.record_stream(streams[len(chosen) % 2])
                next_stream()
                return original(h, w)
            patch.setattr(F, "linear", linear)
            y = loss()
    finally:
        torch.cuda.set_stream(here)
    here.wait_stream(chosen[-1])
    offload_report(reset=True)
    y.backward()
    assert len(chosen) == 4 and offload_report().copies_in == 5 + 3          # three are wanted on two streams
    same(gradients(leaves), want)


class OnTwo(torch.autograd.Function):
    """x * w, where w is on another device than x, and than the node."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w, w[:, ::2])
        return x * w.to(x.device)

    @staticmethod
    def backward(ctx, g):
        x, w, part = ctx.saved_tensors
        assert w.device == part.device == torch.device("cuda:1") and (part.cpu() == w[:, ::2].cpu()).all()
        return g * w.to(g.device), (g * x).to(w.device)


@two_devices
@pytest.mark.parametrize("prefetch", [0, 4])
def test_nodes_that_save_values_of_other_devices(prefetch):
    x, w = (torch.linspace(0.5, 1, 400, device=where).reshape(20, 20).detach().requires_grad_() for where in ("cuda:0", "cuda:1"))
    found = []
    for context in (contextlib.nullcontext(), save_on_cpu(True, prefetch=prefetch)):
        with context, torch.autograd.set_multithreading_enabled(False):
            h = w * 2
            first = OnTwo.apply(x, h)
            y = OnTwo.apply(first, h.sin())

            def stop(grads):
                raise ValueError
            handle = y.grad_fn.register_prehook(stop)
            with pytest.raises(ValueError):
                y.sum().backward()           # drops what was fetched ahead for the others
            handle.remove()
            y.sum().backward()
            del y, first, h
        found.append([settled(t.grad, t.device) for t in (x, w)])
        x.grad = w.grad = None
    same(*found)


@two_devices
@pytest.mark.parametrize("prefetch", [0, 2])
def test_random_graphs(prefetch):
    """Some of tests/random_streams.py --prefetch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert random_streams.differences(range(20), prefetch) == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_several_threads(prefetch):
    leaves, loss = mlp()
    loss().backward()
    want, failed = gradients(leaves), []

    def work():
        try:
            for _ in range(3):
                with save_on_cpu(True, prefetch=prefetch, ahead_bytes=2000):
                    y = loss()
                same([settled(g.detach()) for g in torch.autograd.grad(y, leaves)], want)
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_memory_of_graphs_that_the_collector_frees_is_used_again():
    """It calls the finalisers of all that a cycle holds, in any order."""
    leaves, loss = mlp()
    loss().backward()
    want = gradients(leaves)
    for _ in range(3):
        with save_on_cpu(True, prefetch=2):
            cycle = [loss()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        with save_on_cpu(True, prefetch=2):
            loss().backward()
        same(gradients(leaves), want)


class Stops(BaseException):
    """As KeyboardInterrupt, whatever catches errors."""


@pytest.mark.parametrize("workers", [False, True])
@SETTINGS
def test_an_error_in_between_loses_nothing(settings, workers):
    leaves, loss = mlp()
    loss().backward()
    want = gradients(leaves)
    for error in (ValueError, Stops):
        with save_on_cpu(True, **settings):
            y = loss()
        node = y.grad_fn
        for _ in range(4):
            node = node.next_functions[0][0]

        def stop(grads, error=error):
            raise error
        handle = node.register_prehook(stop)
        with pytest.raises(error) as raised, torch.autograd.set_multithreading_enabled(workers):
            y.backward(retain_graph=True)
        assert not offload._coming           # while the error, and with it the backward's frame, is still there
        del raised
        for w in leaves:
            w.grad = None
        handle.remove()
        assert len(offload.kept) > 3
        y.backward()                         # the same graph, from what is still there
        same(gradients(leaves), want)
        del y, node, stop
    with pytest.raises(ZeroDivisionError), save_on_cpu(True, **settings):
        loss()
        1 / 0  # noqa: B018
    torch.cuda.synchronize()


def test_what_comes_next_is_left_where_the_device_has_no_memory_for_it(monkeypatch):
    leaves, loss = mlp()
    loss().backward()
    want = gradients(leaves)
    with save_on_cpu(True, prefetch=4):
        y = loss()
    coming, refused = offload.Pinned.coming, []

    def sometimes(value):
        if len(refused) < 3 and inspect.currentframe().f_back.f_locals.get("distance"):
            refused.append(value.nbytes)
            raise MemoryError
        return coming(value)
    monkeypatch.setattr(offload.Pinned, "coming", sometimes)
    y.backward()
    same(gradients(leaves), want)
    assert len(refused) == 3

    def never(value):
        raise MemoryError("none left")
    with save_on_cpu(True, prefetch=4):
        y = loss()
    monkeypatch.setattr(offload.Pinned, "coming", never)
    with pytest.raises(MemoryError, match="none left"):
        y.backward()


def test_where_memory_is_short_copies_on_their_way_out_are_not_held():
    pool = cp.get_default_memory_pool()
    x = torch.ones(64, 1024, device="cuda:0", requires_grad=True)
    gc.collect()
    torch.cuda.synchronize()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 6 * x.nbytes + 4096)
    try:
        with save_on_cpu(True, prefetch=1):  # 256 MiB on their way out, if they fitted
            h = x * 2
            for _ in range(12):
                h = h.sin()
        h.backward(torch.ones_like(h))
    finally:
        pool.set_limit(size=0)
    value, slope = np.float32(2), np.float32(2)
    for _ in range(12):
        value, slope = np.sin(value), slope * np.cos(value)
    np.testing.assert_allclose(settled(x.grad), slope, rtol=1e-4)


# -------------------------------------------------------------------------------------------------- what is moved, and when

def test_what_stays_and_what_is_moved_once():
    offload_report(reset=True)
    w = torch.nn.Parameter(torch.ones(4, 4, device="cuda:0"))
    frozen = torch.nn.Parameter(torch.ones(4, 4, device="cuda:0"), requires_grad=False)
    x, on_cpu = torch.ones(4, 4, device="cuda:0"), torch.ones(2, requires_grad=True)
    with save_on_cpu(True, min_bytes=32):
        h = x @ w                            # x goes, w stays
        y = h @ frozen.t()                   # a frozen parameter, by a view
        z = h.t().cos().sum() + h.reshape(16).sin().sum() + h.sin().sum() + y.sum()      # h once, in three layouts
        s = h.mean()
        s = s * s                            # 4 bytes
        c = on_cpu * on_cpu
        h[:, ::2].cos()                      # its own copy: the others' has more in between
    (z + s).backward()
    c.sum().backward()
    report = offload_report()
    assert report.stayed["leaf"] >= 1 and report.stayed["small"] == 2 and report.stayed["cpu"] == 2
    assert (report.copies_out, report.bytes_out) == (3, 64 + 64 + 32)
    assert (report.copies_in, report.bytes_in) == (2, 64 + 64)
    assert report.duplicates == 2 and report.duplicate_bytes == 128
    assert "3 copies out" in str(report) and report.host_bytes >= report.bytes_out and offload_report(reset=True) == report
    assert offload_report().bytes_out == 0 and offload_report().overlapped is None


@pytest.mark.parametrize(("name", "value"), [("prefetch", -1), ("min_bytes", -1), ("ahead_bytes", -5)])
def test_settings_that_make_no_sense(name, value):
    with pytest.raises(ValueError, match=f"{name} must not be negative"):
        save_on_cpu(True, **{name: value})
    with pytest.raises(ValueError, match="pin_memory=True"):
        save_on_cpu(prefetch=1)
    with pytest.raises(TypeError, match="number of nodes"):
        save_on_cpu(True, prefetch=1.5)


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_values_come_back_in_the_order_of_the_nodes_and_so_many_nodes_ahead(prefetch, workers, monkeypatch):
    x = torch.linspace(-1, 1, 7, device="cuda:0", requires_grad=True)
    log, values = [], {}
    with save_on_cpu(True, prefetch=prefetch):
        h = x * 1
        for i in range(6):
            k = h.sin()
            value = k.grad_fn._raw_saved_self.data.whole
            values[value] = f"fetch {i}"
            k.grad_fn.register_prehook(lambda g, i=i: log.append(f"run {i}"))
            h = k
        del value
    coming = offload.Pinned.coming
    monkeypatch.setattr(offload.Pinned, "coming", lambda value: (log.append(values[value]), coming(value))[1])
    with torch.autograd.set_multithreading_enabled(workers):
        h.sum().backward()
    values.clear()
    want = [f"fetch {i}" for i in range(5, max(-1, 4 - prefetch), -1)]
    for i in range(5, -1, -1):
        want += [f"run {i}"] + ([f"fetch {i - 1 - prefetch}"] if i - 1 - prefetch >= 0 else [])
    if prefetch == 0:
        want = [w for i in range(5, -1, -1) for w in (f"fetch {i}", f"run {i}")]
    assert log == want


@pytest.mark.parametrize("workers", [False, True])
def test_a_value_is_dropped_when_the_last_node_that_wants_it_has_run(workers):
    x, seen = torch.ones(7, device="cuda:0", requires_grad=True), []
    with save_on_cpu(True, prefetch=2):
        y = (x * 2).sin()
    x.register_hook(lambda g: seen.append(len(offload._coming)))
    with torch.autograd.set_multithreading_enabled(workers):
        y.sum().backward()
    assert seen == [0]


def test_bytes_bound_what_is_ahead(monkeypatch):
    x = torch.ones(10, device="cuda:0", requires_grad=True)
    with save_on_cpu(True, prefetch=50, ahead_bytes=120):        # three values
        h = x * 1
        for _ in range(8):
            h = h.sin()
    most, original = [], offload.Pinned.coming

    def coming(value):
        found = original(value)
        most.append(len(offload._coming))
        return found
    monkeypatch.setattr(offload.Pinned, "coming", coming)
    h.sum().backward()
    assert max(most) == 3 and len(most) == 8


def test_peak_memory_is_two_values_and_the_look_ahead():
    """Of 20 layers: two values at a time while the chain is computed, in backward two gradients, and what is copied meanwhile."""
    leaves, loss = mlp(20, 32, 256)
    value, weight = 256 * 32 * 8, 32 * 32 * 8
    for w in leaves:
        w.grad = torch.zeros_like(w)
    peaks = {}
    for name, settings in (("without", None), ("one", dict(prefetch=1, ahead_bytes=value)),
                           ("two", dict(prefetch=2, ahead_bytes=2 * value))):
        gc.collect()
        torch.cuda.synchronize()
        offload_report(reset=True)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with contextlib.nullcontext() if settings is None else save_on_cpu(True, **settings):
            y = loss()
        y.backward()
        peaks[name] = torch.cuda.max_memory_allocated() - before
        del y
        report = offload_report()
    assert peaks["without"] > 20 * value
    assert peaks["one"] <= 3 * value + 2 * weight
    assert peaks["two"] <= 4 * value + 2 * weight
    assert report.bytes_out == report.bytes_in == 21 * value
    assert report.peak_bytes_without - report.peak_bytes == pytest.approx(17 * value, abs=2 * value)


@simulated
@SETTINGS
def test_the_host_waits_for_nothing(settings):
    leaves, loss = mlp()
    start = waits()
    for _ in range(3):
        with save_on_cpu(True, **settings):
            y = loss()
        y.backward()
        for w in leaves:
            w.grad = None
    assert waits() == start
    del y
    offload_report()
    assert waits() == start
    torch.cuda.empty_cache()                 # says that it waits
    assert waits() > start and offload.pool.reserved == 0


def test_page_locked_memory_is_used_again():
    leaves, loss = mlp()
    torch.cuda.empty_cache()
    reserved = []
    for _ in range(4):
        with save_on_cpu(True, prefetch=1):
            y = loss()
        y.backward()
        del y
        reserved.append(offload.pool.reserved)
    assert reserved == [reserved[0]] * 4


def test_sizes_are_rounded_by_a_quarter_at_most():
    wanted = (1, 511, 513, 5000, 100_000, 100_001)
    pool = offload.PinnedPool()
    for n in wanted:
        size = pool.take(n).of.memory.size
        assert n <= size <= max(1.25 * n, n + 512)
    assert pool.free == pool.reserved > 100_000
    assert pool.take(99_000).of.memory.size == size          # one that is there
    pool.give_back()
    assert pool.free == pool.reserved == 0
