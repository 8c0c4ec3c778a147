"""Optimizers on a device: the values of the CPU, written in place by one kernel for the parameters of a group."""
import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.cuda.update import CHUNK
from tests.cuda.common import cp, two_devices
from tests.cuda.programs import TOLERANCE
from tests.cuda.test_ops import launched
from tests.test_optim import CASES, OPTIONS

LAYOUTS = {"c": lambda t: t, "transposed": lambda t: t.t(), "strided": lambda t: t[:, ::2], "mixed": lambda t: t[:, :3],
           "empty": lambda t: t[:0], "number": lambda t: t[0, 0], "one": lambda t: t[:1, :1]}


def trained(name, options, where, dtype="float32", layout=LAYOUTS["c"], steps=4):
    """(parameter, optimizer, what the parameter is a part of) after some steps."""
    rng = np.random.RandomState(0)
    values = rng.randn(5, 7) + (1j * rng.randn(5, 7) if dtype.startswith("complex") else 0)
    whole = torch.tensor(values, dtype=getattr(torch, dtype), device=where)
    p = layout(whole).detach().requires_grad_()
    opt = getattr(torch.optim, name)([p], **options)
    for _ in range(steps):
        opt.zero_grad()
        (p * p.conj()).real.sum().backward()
        opt.step()
    return p, opt, whole


def host(t):
    return cp.asnumpy(t.detach()._array) if t.is_cuda else t.detach()._array


def same(ours, theirs, dtype):
    tolerance = TOLERANCE[dtype] * 4
    np.testing.assert_allclose(host(ours), host(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("name, options", CASES, ids=str)
def test_values_are_those_of_the_cpu(name, options, dtype):
    on_cuda, on_cpu = [trained(name, options, where, dtype) for where in ("cuda:0", "cpu")]
    same(on_cuda[0], on_cpu[0], dtype)
    for key, value in on_cpu[1].state.get(on_cpu[0], {}).items():
        found = on_cuda[1].state[on_cuda[0]][key]
        assert found.is_cuda == (key not in ("step", "mu_product")) and found.dtype == value.dtype
        same(found, value, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_parameter_is_written_where_it_lies_and_nothing_beside_it(name, layout):
    on_cuda, on_cpu = [trained(name, OPTIONS[name][-1], where, layout=LAYOUTS[layout]) for where in ("cuda:0", "cpu")]
    same(on_cuda[2], on_cpu[2], "float32")
    assert on_cuda[0]._version == on_cpu[0]._version == 4


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_is_one_launch_for_all_learning_rates_and_allocates_nothing(name):
    p, opt, _ = trained(name, OPTIONS[name][-1], "cuda:0")
    rates = iter((0.1, 0.01))

    def step():
        opt.param_groups[0]["lr"] = next(rates)
        opt.step()
    assert launched(step) == (1, 0)


# ------------------------------------------------------------------------------------------------------ many parameters at once

def parameters(where, shapes, dtype="float32", seed=0):
    rng = np.random.RandomState(seed)
    found = []
    for shape in shapes:
        p = torch.tensor(rng.randn(*shape), dtype=getattr(torch, dtype), device=where).requires_grad_()
        p.grad = torch.tensor(rng.randn(*shape), dtype=p.dtype, device=where)
        found.append(p)
    return found


def both(shapes, name="Adam", options=(("amsgrad", True),), change=lambda params: params, steps=3, dtype="float32"):
    """The optimizer on CUDA, after as many steps as one on the CPU that came to the same parameters and states."""
    found = []
    for where in ("cuda:0", "cpu"):
        params = change(parameters(where, shapes, dtype))
        opt = getattr(torch.optim, name)(params, **dict(options))
        for _ in range(steps):
            opt.step()
        found.append(opt)
    ours, theirs = [[p for group in opt.param_groups for p in group["params"]] for opt in found]
    for p, q in zip(ours, theirs, strict=True):
        same(p, q, dtype)
        assert p._version == q._version
        for key, value in found[1].state.get(q, {}).items():
            same(found[0].state[p][key], value, dtype)
    return found[0]


SHAPES = [(5, 7), (), (0, 3), (1,), (CHUNK,), (CHUNK - 1,), (CHUNK + 1,), (3, CHUNK), (2, 3, 4), (17,), (3 * CHUNK - 5,), (1, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_group_of_parameters_is_one_launch(name, dtype):
    opt = both(SHAPES, name, OPTIONS[name][-1].items(), dtype=dtype)
    assert launched(opt.step) == (1, 0)


@pytest.mark.parametrize("name, options", CASES, ids=str)
def test_a_group_is_one_launch_with_any_options(name, options):
    opt = both(SHAPES[:4], name, options.items())
    assert launched(opt.step) == (1, 0)


@pytest.mark.parametrize("name, most", [("SGD", 140), ("RMSprop", 100), ("Adam", 70)])
def test_more_parameters_than_fit_a_launch(name, most):
    count = 2 * most + 50
    opt = both([(k % 5 + 1, k % 3) for k in range(count)], name, (), steps=2)
    operations, taken = launched(opt.step)
    assert 2 <= operations <= 3 and not taken


def test_what_is_not_alike_takes_further_launches():
    def change(params):
        a, b, c, d = params
        strided = torch.zeros(4, 6, device=a.device)[:, ::2].requires_grad_()
        strided.grad = torch.ones(4, 3, device=a.device)
        doubles = parameters(a.device, [(3,), (4, 2)], "float64")
        transposed = torch.zeros(6, 4, device=a.device).t().requires_grad_()         # its state lies as it does
        transposed.grad = torch.ones(6, 4, device=a.device).t()
        return [{"params": [a, strided, b, *doubles, transposed]}, {"params": [c, d], "lr": 0.5}]
    opt = both([(3, 4), (5,), (2, 2), (3,)], change=change)
    assert launched(opt.step) == (4, 0)      # float32, float64, the strided one; the other group
    late, *_ = opt.param_groups[1]["params"]
    opt.state[late]["step"] += 3             # its numbers are others now
    assert launched(opt.step) == (5, 0)


def test_parameters_that_do_not_lie_at_multiples_of_16_bytes():
    def change(params):
        for k, p in enumerate(params):
            whole = torch.zeros(k + p.numel(), device=p.device)
            whole[k:] = p.detach().reshape(-1)
            q = whole[k:].requires_grad_()
            q.grad = p.grad.reshape(-1)
            params[k] = q
        return params
    opt = both([(9,), (CHUNK + 3,), (30,), (5,), (8,)], change=change)
    assert launched(opt.step) == (1, 0)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_parameters_that_share_memory_are_updated_one_after_the_other(name):
    def change(params):
        a, b = params
        part = b.detach()[2:5].requires_grad_()
        part.grad = torch.ones(3, device=b.device)
        return [a, a, b, part]
    opt = both([(4,), (6,)], name, (), change)
    assert launched(opt.step)[0] >= 3


def test_a_gradient_that_is_another_parameter():
    def change(params):
        a, b = params
        b.grad = a.detach()
        return params
    both([(6,), (6,)], "SGD", (), change)


def test_a_state_of_another_shape_is_refused():
    for where in ("cuda:0", "cpu"):
        p, = parameters(where, [(3,)])
        opt = torch.optim.Adam([p])
        opt.step()
        opt.state[p]["exp_avg"] = torch.zeros(1, device=where)
        with pytest.raises(RuntimeError, match="shape"):
            opt.step()


# ----------------------------------------------------------------------------------------------------------------- devices

def test_a_state_goes_to_the_parameters_device_and_back():
    p, opt, _ = trained("Adam", {"amsgrad": True}, "cpu")
    q = p.detach().to("cuda:0").requires_grad_()
    again = torch.optim.Adam([q])
    again.load_state_dict(opt.state_dict())
    assert {k: v.is_cuda for k, v in again.state[q].items()} == {"step": False, "exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": True}
    for t, o in ((p, opt), (q, again)):
        t.grad = torch.ones_like(t)
        o.step()
    same(q, p, "float32")
    back = torch.optim.Adam([p])
    back.load_state_dict(again.state_dict())
    assert not any([v.is_cuda for v in back.state[p].values()])
    same(back.state[p]["exp_avg"], opt.state[p]["exp_avg"], "float32")


@two_devices
def test_parameters_of_several_devices_in_one_optimizer():
    params = [torch.tensor([1.0, 2.0], device=where).requires_grad_() for where in ("cpu", "cuda:0", "cuda:1")]
    opt = torch.optim.Adam(params, lr=0.5)
    for p in params:
        p.grad = torch.ones_like(p)
    opt.step()
    opt.step()
    assert len({str(p.detach().tolist()) for p in params}) == 1
    for p in params:
        assert opt.state[p]["exp_avg"].device == p.device


def test_a_learning_rate_on_the_device():
    found = []
    for where in ("cpu", "cuda:0"):
        p = torch.tensor([1.0, 2.0], device=where).requires_grad_()
        opt = torch.optim.SGD([p], lr=torch.tensor(0.25, device=where))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        for _ in range(3):
            p.grad = torch.ones_like(p)
            opt.step()
            scheduler.step()
        found.append((p.tolist(), opt.param_groups[0]["lr"].item()))
    assert found[0] == found[1]
