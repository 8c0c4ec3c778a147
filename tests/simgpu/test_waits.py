"""When the host waits for a device: only where a result's shape or Python value depends on elements that are there."""
import warnings

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops.namespace import REGISTRY
from tests import random_streams
from tests.cuda.programs import PROGRAMS, VALUES
from tests.samples import ELEMENTWISE, call, operands_for
from tests.simgpu import runtime
from tests.test_optim import OPTIONS

F = torch.nn.functional
if not runtime.active():
    pytest.skip("the simulated devices are not installed: run with -p tests.simgpu.plugin, in an environment with cupy-rocm-7-0",
                allow_module_level=True)

cp = pytest.importorskip("cupy")

_COUNT = "as many elements as a mask has True: their number is the result's shape"
_BACK = "the gradient comes back to as many elements as a mask has True; PyTorch waits there too"
FORWARD = {"mask": _COUNT, "masked_select": _COUNT, "nonzero": _COUNT, "argwhere": _COUNT}
BACKWARD = {"mask": _BACK, "masked_select": _BACK, "masked_scatter": _BACK}


def rows(x, n):
    return torch.arange(n, device=x.device) % 7


def waits():
    return runtime.counts()["host_waits"]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_elementwise_op_makes_the_host_wait(name):
    record = REGISTRY[name]
    operands = {n: torch.from_numpy(a).to("cuda:0") for n, a in operands_for(record, np.random.default_rng(1), (7,)).items()}
    for x in operands.values():
        x.requires_grad_(x.is_floating_point())
    start = waits()
    y = call(record, operands)
    if y.requires_grad:
        (y.real if y.is_complex() else y).sum().backward()
    assert waits() == start


def test_which_programs_make_the_host_wait():
    forward, backward = set(), set()
    rng = np.random.default_rng(0)
    for name, (program, *shapes) in PROGRAMS.items():
        leaves = [torch.from_numpy(rng.standard_normal(shape)).to("cuda:0").requires_grad_() for shape in shapes]
        start = waits()
        loss = program(*leaves).sum()
        middle = waits()
        loss.backward()
        forward |= {name} if middle > start else set()
        backward |= {name} if waits() > middle else set()
    for name, f in VALUES.items():
        x = torch.from_numpy(rng.standard_normal((3, 4))).to("cuda:0")
        start = waits()
        f(x)
        forward |= {name} if waits() > start else set()
    assert forward == set(FORWARD) and backward == set(BACKWARD)


LARGE = {
    "sum": lambda x: x.sum(), "mean of rows": lambda x: x.reshape(2, -1).mean(1), "logsumexp": lambda x: x.reshape(-1, 2).logsumexp(0),
    "var": lambda x: x.var(), "half sum": lambda x: x.half().sum(), "half softmax": lambda x: x[:300].half().softmax(0),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(-1, 4), rows(x, 10_000) % 4),
    "half embedding": lambda x: F.embedding(rows(x, 300), x.reshape(-1, 4).half()), "half x[i]": lambda x: x.half()[rows(x, 300)],
    "half index_add": lambda x: x.half().index_add(0, rows(x, 300), x[:300].half())}


@pytest.mark.parametrize("name", LARGE)
def test_large_arrays_and_half_precision_do_not_make_the_host_wait(name):
    """Several blocks share a row; what has no atomics is worked out in a wider dtype."""
    x = torch.linspace(-1, 1, 40_000, device="cuda:0", requires_grad=True)
    start = waits()
    LARGE[name](x).sum().backward()
    assert waits() == start


@pytest.mark.parametrize("name", OPTIONS)
def test_a_training_step_does_not_make_the_host_wait(name):
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to("cuda:0")
    opt = getattr(torch.optim, name)(model.parameters(), **OPTIONS[name][-1])
    x = torch.ones(7, 3, device="cuda:0")
    start = waits()
    for _ in range(3):
        opt.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        opt.step()
    assert waits() == start


def test_streams_do_not_make_the_host_wait():
    """Forward and backward over streams of both devices, with what crosses held, and memory given back."""
    graphs = [random_streams.Graph(seed) for seed in range(10)]
    x = torch.ones(3, device="cuda:0")
    start = waits()
    x.cpu()
    one = waits() - start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for graph in graphs:
            graph.waits = ()                 # its own
            start = waits()
            results = random_streams.run(graph, cuda=True)       # which it reads by cpu(), each
            assert waits() - start == one * sum([g is not None for g in results])


def test_a_learning_rate_on_the_device_is_read_once_for_each_group():
    params = [torch.ones(3, device="cuda:0", requires_grad=True) for _ in range(5)]
    lr = torch.tensor(0.1, device="cuda:0")
    opt = torch.optim.Adam([{"params": params[:3]}, {"params": params[3:]}], lr=lr)
    for p in params:
        p.grad = torch.ones_like(p)
    start = waits()
    lr.item()
    middle = waits()
    opt.step()
    assert waits() - middle == 2 * (middle - start)


@pytest.mark.parametrize(("ours", "cupys"), [
    (lambda x: x[0, 0].item(), lambda a: a[0, 0].item()), (lambda x: x.tolist(), lambda a: a.tolist()), (lambda x: x.cpu(), cp.asnumpy),
    (lambda x: torch.cuda.synchronize(), lambda a: cp.cuda.Device().synchronize())])
def test_what_kernels_report_is_read_without_a_wait(ours, cupys):
    x = torch.ones(2, 3, device="cuda:0")
    x.index_select(0, torch.tensor([1], device="cuda:0"))
    found = []
    for read, of in (ours, x), (cupys, x._array):
        start = waits()
        read(of)
        found.append(waits() - start)
    assert found[0] == found[1] > 0
