"""When the copies of save_on_cpu hide: by the simulated runtime's order of operations, and as bench/offload.py computes it."""
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import offload_report, save_on_cpu
from bench import offload as bench
from tests.cuda.common import cp
from tests.cuda.test_offload import everything_returns, mlp, simulated  # noqa: F401 - a fixture
from tests.simgpu import runtime


@simulated
def test_the_share_that_is_hidden():
    """By the simulated runtime's order of operations: a copy takes half the time of a product of matrices, or twice as long.

    Even without prefetch the copy starts with the node, whose first product does not need it.
    """
    shares = {}
    for name, link in (("fast", 2.5e5), ("slow", 6e4)):
        for prefetch in (0, 1, 3):
            leaves, loss = mlp(12, 16, 64)
            value = 64 * 16 * 8
            with runtime.rates(memory=1e12, flops=2 * 64 * 16 * 16 / 0.064, link=link, launch=0):    # a product takes 0.064 ms
                offload_report(reset=True)
                with save_on_cpu(True, prefetch=prefetch, ahead_bytes=4 * value):
                    y = loss()
                y.backward()
                del y
                torch.cuda.synchronize()
                shares[name, prefetch] = offload_report(reset=True).overlapped
    assert min(shares["fast", k] for k in (0, 1, 3)) > 0.85                  # but the last value's ways out and back
    assert shares["slow", 0] <= shares["slow", 1] < shares["slow", 3] < 0.7


@simulated
@pytest.mark.parametrize("link", [2.5e5, 1.2e5, 6e4])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_the_computed_schedule_is_the_simulated_runtimes(link, prefetch):
    """bench/offload.py follows the same rules: a step of a chain takes as long there as by the order of operations here."""
    layers, size, rows = 8, 16, 64
    leaves, loss = mlp(layers, size, rows)
    value, product = 8 * size * rows, 2 * rows * size * size
    net = bench.Net(rows * size)
    for _ in range(layers):
        net.add(product, rows * size).add(0, rows * size, saves_input=False, saves_result=True)
    net.sizes = [value] * len(net.sizes)
    net.add(0, 0)                            # the squares of the last
    rates = bench.Rates(flops=product / 0.064, memory=1e12, link=link)
    with runtime.rates(memory=1e12, flops=rates.flops, link=link, launch=0):
        torch.cuda.synchronize()
        start = cp.cuda.get_current_stream().record()
        with save_on_cpu(True, prefetch=prefetch, ahead_bytes=2 * value):
            y = loss()
        y.backward()
        end = cp.cuda.get_current_stream().record()
        end.synchronize()
    step = cp.cuda.get_elapsed_time(start, end)
    assert step == pytest.approx(bench.schedule(net, rates, prefetch, 2 * value)[0], rel=0.1)
