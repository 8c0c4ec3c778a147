"""Learning rate schedules: the rates, momenta, states, warnings and errors of PyTorch."""
import copy
import inspect
import math
import warnings

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.optim import lr_scheduler as ours
from tests.parity import result

SCHEDULES = {
    "step": lambda s, o, **k: s.StepLR(o, 7, 0.5, **k),
    "multi_step": lambda s, o, **k: s.MultiStepLR(o, [5, 5, 30, 31], 0.3, **k),
    "constant": lambda s, o, **k: s.ConstantLR(o, 0.25, 12, **k),
    "constant_of_one_epoch": lambda s, o, **k: s.ConstantLR(o, 0.25, 0, **k),
    "linear": lambda s, o, **k: s.LinearLR(o, 0.1, 0.8, 50, **k),
    "exponential": lambda s, o, **k: s.ExponentialLR(o, 0.97, **k),
    "polynomial": lambda s, o, **k: s.PolynomialLR(o, 60, 2.5, **k),
    "cosine": lambda s, o, **k: s.CosineAnnealingLR(o, 40, 1e-3, **k),
    "cosine_odd": lambda s, o, **k: s.CosineAnnealingLR(o, 7, **k),
    "restarts": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 10, 2, 1e-4, **k),
    "restarts_alike": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 9, **k),
    "lambda": lambda s, o, **k: s.LambdaLR(o, lambda e: 0.95 ** e, **k),
    "lambdas": lambda s, o, **k: s.LambdaLR(o, [lambda e: 1 / (e + 1), lambda e: e], **k),
    "multiplicative": lambda s, o, **k: s.MultiplicativeLR(o, lambda e: 1 - 1 / (e + 3), **k),
    "cyclic": lambda s, o, **k: s.CyclicLR(o, 0.01, 0.1, 20, 30, **k),
    "cyclic_2": lambda s, o, **k: s.CyclicLR(o, [0.01, 0.02], 0.1, 20, mode="triangular2", base_momentum=0.5, **k),
    "cyclic_exp": lambda s, o, **k: s.CyclicLR(o, 0.01, [0.1, 0.3], 20, mode="exp_range", gamma=0.99, cycle_momentum=False, **k),
    "cyclic_scaled": lambda s, o, **k: s.CyclicLR(o, 0.01, 0.1, 15, scale_fn=lambda x: 1 / x if x else 1.0, scale_mode="iterations", **k),
    "one_cycle": lambda s, o, **k: s.OneCycleLR(o, 0.5, 220, **k),
    "one_cycle_linear": lambda s, o, **k: s.OneCycleLR(o, [0.5, 0.2], epochs=22, steps_per_epoch=10, anneal_strategy="linear",
                                                      base_momentum=[0.7, 0.8], **k),
    "one_cycle_three": lambda s, o, **k: s.OneCycleLR(o, 0.5, 220, three_phase=True, pct_start=0.25, div_factor=10.0, **k),
    "sequential": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=20), s.CosineAnnealingLR(o, 50), s.ExponentialLR(o, 0.9)],
                                              [20, 100]),
    "sequential_of_sequential": lambda s, o: s.SequentialLR(o, [s.SequentialLR(o, [s.ConstantLR(o, 0.1, 3), s.StepLR(o, 4)], [5]),
                                                                s.LambdaLR(o, lambda e: 1 / (1 + e))], [30]),
    "sequential_from_zero": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.5, 3), s.ExponentialLR(o, 0.9)], [0]),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 4), s.ExponentialLR(o, 0.98)], optimizer=o),
}
RESUMABLE = [name for name, make in SCHEDULES.items() if "k" in inspect.signature(make).parameters]


def optimizer(torch, kind="SGD", **options):
    p, q = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    options = options or {"momentum": 0.9} if kind == "SGD" else options
    return getattr(torch.optim, kind)([{"params": [p]}, {"params": [q], "lr": 0.03}], lr=0.1, **options)


def rates(scheduler, opt, steps, *args):
    found = []
    for _ in range(steps):
        found.append([[g["lr"], g.get("momentum", g.get("betas"))] for g in opt.param_groups] + [list(scheduler.get_last_lr())])
        opt.step()
        scheduler.step(*args)
    return found


def numbers(found):
    return np.array([np.hstack([np.hstack(x) for x in row]) for row in found])


quiet = pytest.mark.filterwarnings("ignore:Detected call")      # of schedules inside of others, in PyTorch too


@quiet
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name, kind, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch, kind)
        found.append(numbers(rates(SCHEDULES[name](torch.optim.lr_scheduler, opt), opt, 200)))
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-15)


@quiet
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_state_resumes_here_and_is_laid_out_as_in_pytorch(name, oracle):
    opt = optimizer(autograd_gpu)
    scheduler = SCHEDULES[name](ours, opt)
    rates(scheduler, opt, 13)
    state, options = copy.deepcopy(scheduler.state_dict()), copy.deepcopy(opt.state_dict())
    expected = numbers(rates(scheduler, opt, 20))
    for torch in (autograd_gpu, oracle):     # ours loads into PyTorch's too
        again = optimizer(torch)
        scheduler = SCHEDULES[name](torch.optim.lr_scheduler, again)
        own = set(scheduler.state_dict())
        scheduler.load_state_dict(copy.deepcopy(state))
        again.load_state_dict(copy.deepcopy(options))
        np.testing.assert_allclose(numbers(rates(scheduler, again, 20)), expected, rtol=1e-12, atol=1e-15)
        assert own >= set(state)


@pytest.mark.parametrize("name", RESUMABLE)
def test_beginning_at_a_later_epoch(name, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        scheduler = SCHEDULES[name](torch.optim.lr_scheduler, opt)
        rates(scheduler, opt, 11)
        scheduler = SCHEDULES[name](torch.optim.lr_scheduler, opt, last_epoch=scheduler.last_epoch)
        found.append(numbers(rates(scheduler, opt, 40)))
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", [name for name in RESUMABLE if name not in ("one_cycle", "one_cycle_linear", "one_cycle_three")])
def test_a_given_epoch_uses_the_closed_form(name, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        scheduler = SCHEDULES[name](torch.optim.lr_scheduler, opt)
        lrs = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for epoch in (3, 12, 5, 77):
                opt.step()
                scheduler.step(epoch)
                lrs.append(list(scheduler.get_last_lr()))
        found.append(lrs)
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("epoch", [0.0, 0.5, 9.99, 10, 29.5, 70.25])
def test_restarts_take_fractions_of_epochs(epoch, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        scheduler = SCHEDULES["restarts"](torch.optim.lr_scheduler, opt)
        scheduler.step(epoch)
        first = scheduler.get_last_lr()
        scheduler.step()
        found.append([first, scheduler.get_last_lr(), [scheduler.T_cur, scheduler.T_i]])
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("options", [
    {}, {"patience": 2, "factor": 0.5}, {"mode": "max", "patience": 1}, {"threshold": 0.2, "threshold_mode": "abs", "patience": 1},
    {"mode": "max", "threshold": 0.1, "threshold_mode": "abs", "patience": 0}, {"cooldown": 3, "patience": 1},
    {"min_lr": [0.02, 0.01], "patience": 0}, {"eps": 0.05, "patience": 0}], ids=str)
def test_reduce_on_plateau(options, oracle):
    metrics = np.random.RandomState(3).rand(60) + np.linspace(1, 0, 60)
    found, states = [], []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
        found.append([])
        for metric in metrics:
            scheduler.step(torch.tensor(metric))
            found[-1].append([*scheduler.get_last_lr(), scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter])
        states.append(scheduler.state_dict())
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert states[0].keys() == states[1].keys()


def test_a_tensor_as_learning_rate_is_changed_in_place(oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        lr = torch.tensor(0.1)
        opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=lr)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        opt.step()
        scheduler.step()
        last = scheduler.get_last_lr()[0]
        found.append((lr.item(), opt.param_groups[0]["lr"] is lr, last.item(), last is lr, opt.param_groups[0]["initial_lr"].item()))
    assert found[0] == found[1]


# ------------------------------------------------------------------------------------------------------ warnings and errors

ORDERS = {
    "right": lambda s, opt: (opt.step(), s.step(), s.step()),
    "wrong": lambda s, opt: (s.step(), opt.step()),
    "never": lambda s, opt: (s.step(), s.step(), s.step()),
    "overridden": lambda s, opt: (setattr(opt, "step", lambda: None), opt.step(), s.step()),
    "get_lr": lambda s, opt: s.get_lr(),
    "epoch": lambda s, opt: (opt.step(), s.step(3)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_warnings_about_the_order_of_calls(name, oracle):
    words = ("lr_scheduler.step()` before `optimizer.step()", "overridden", "get_last_lr()", "epoch parameter")
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ORDERS[name](scheduler, opt)
        found.append([(w.category.__name__, [word in str(w.message) for word in words]) for w in caught])
        assert torch is oracle or {w.filename for w in caught} <= {__file__}
    assert found[0] == found[1]


def test_a_step_before_the_schedule_was_made_does_not_count(oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        opt = optimizer(torch)
        opt.step()
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scheduler.step()
        found.append(len(caught))
    assert found == [1, 1]


ERRORS = {
    "no_optimizer": lambda s, o: s.StepLR(3, 2), "no_optimizer_plateau": lambda s, o: s.ReduceLROnPlateau(3),
    "no_optimizer_cyclic": lambda s, o: s.CyclicLR(3, 1, 2), "resumed_without_state": lambda s, o: s.StepLR(o, 3, last_epoch=2),
    "constant": lambda s, o: s.ConstantLR(o, 1.5), "linear_start": lambda s, o: s.LinearLR(o, 0.0), "linear_end": lambda s, o: s.LinearLR(
        o, 0.5, 1.5), "lambdas": lambda s, o: s.LambdaLR(o, [len]), "no_lambda": lambda s, o: s.MultiplicativeLR(o, 3),
    "factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), "mode": lambda s, o: s.ReduceLROnPlateau(o, "least"),
    "threshold_mode": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"), "min_lr": lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1.0]),
    "T_0": lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), "T_mult": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 0),
    "eta_min": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 1, "0"),
    "negative_epoch": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3).step(-1),
    "cyclic_mode": lambda s, o: s.CyclicLR(o, 0.1, 1, mode="x"), "cyclic_length": lambda s, o: s.CyclicLR(o, [0.1], 1),
    "no_total": lambda s, o: s.OneCycleLR(o, 0.1), "half_total": lambda s, o: s.OneCycleLR(o, 0.1, epochs=3),
    "bad_total": lambda s, o: s.OneCycleLR(o, 0.1, -3), "float_epochs": lambda s, o: s.OneCycleLR(o, 0.1, epochs=2.0, steps_per_epoch=3),
    "pct": lambda s, o: s.OneCycleLR(o, 0.1, 10, pct_start=1), "anneal": lambda s, o: s.OneCycleLR(o, 0.1, 10, anneal_strategy="exp"),
    "too_many": lambda s, o: [x.step() for x in [s.OneCycleLR(o, 0.1, 3)] * 9],
    "no_schedulers": lambda s, o: s.SequentialLR(o, [], []), "nothing_chained": lambda s, o: s.ChainedScheduler([]),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 3)], [2]), "no_scheduler": lambda s, o: s.SequentialLR(o, [3], []),
    "plateau_inside": lambda s, o: s.ChainedScheduler([s.StepLR(o, 2), s.ReduceLROnPlateau(o)]),
    "base": lambda s, o: s.LRScheduler(o),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, oracle):
    def run(torch):
        ERRORS[name](torch.optim.lr_scheduler, optimizer(torch))
    assert result(run, autograd_gpu) == result(run, oracle) != None  # noqa: E711 - both raise


def test_errors_of_several_optimizers_and_of_none_with_momentum(oracle):
    def apart(torch):
        s = torch.optim.lr_scheduler
        s.ChainedScheduler([s.StepLR(optimizer(torch), 2), s.StepLR(optimizer(torch), 2)])

    def without(torch):
        torch.optim.lr_scheduler.CyclicLR(optimizer(torch, "Adagrad"), 0.1, 1)

    def grown(torch):
        opt = optimizer(torch)
        s = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, min_lr=[0.0, 0.0])
        opt.add_param_group({"params": torch.ones(1, requires_grad=True)})
        s.step(1.0)
        s.step(1.0)
    for run in (apart, without, grown):
        assert result(run, autograd_gpu) == result(run, oracle) in ("ValueError", "RuntimeError")


@pytest.mark.parametrize("name", ["LRScheduler", "_LRScheduler"])
def test_schedules_of_ones_own(name, oracle):
    def run(torch):
        class Halving(getattr(torch.optim.lr_scheduler, name)):
            def get_lr(self):
                return [lr / 2 ** self.last_epoch for lr in self.base_lrs]
        opt = optimizer(torch)
        return rates(Halving(opt), opt, 5)
    assert run(autograd_gpu) == run(oracle)


class Function:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate ** x


def test_functions_that_are_objects_are_saved():
    opt = optimizer(autograd_gpu)
    state = ours.LambdaLR(opt, Function(0.5)).state_dict()
    again = ours.LambdaLR(opt, Function(0.1))
    again.load_state_dict(state)
    assert again.lr_lambdas[0].rate == 0.5 and "lr_lambdas" in state
    state = ours.CyclicLR(opt, 0.1, 1, scale_fn=Function(0.5)).state_dict()
    again = ours.CyclicLR(opt, 0.1, 1, scale_fn=Function(0.1))
    again.load_state_dict(state)
    assert again.scale_fn(1) == 0.5 and "_scale_fn_custom" in state
    assert math.isclose(again.get_last_lr()[0], 0.1)


def test_names_and_parameters_are_those_of_pytorch(oracle):
    theirs = oracle.optim.lr_scheduler
    assert set(ours.__all__) == set(theirs.__all__)
    for name in ours.__all__:
        parameters = [inspect.signature(getattr(s, name).__init__).parameters for s in (ours, theirs)]
        assert [(p.name, p.kind, p.default) for p in parameters[0].values()] == [
            (p.name, p.kind, p.default) for p in parameters[1].values()]
