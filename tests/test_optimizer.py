"""The base of optimizers: groups, options, states, closures, hooks and errors are those of PyTorch."""
import inspect
import subprocess
import sys

import pytest

import autograd_gpu
from autograd_gpu.optim import optimizer as base
from tests.parity import result
from tests.test_optim import FULL, agree, arrays, every, leaf, start

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


@program
def groups_with_options_of_their_own(torch):
    p, q, r = leaf(torch, [1.0]), leaf(torch, [2.0]), leaf(torch, [3.0])
    opt = torch.optim.SGD([{"params": [p]}, {"params": q, "lr": 0.5, "note": "x"}], lr=0.125, momentum=0.75)
    opt.add_param_group({"params": (t for t in [r]), "momentum": 0})
    for t in (p, q, r):
        t.grad = torch.ones_like(t)
    opt.step()
    opt.step()
    return p, q, r, opt.param_groups[1]["note"], [len(g["params"]) for g in opt.param_groups], sorted(opt.param_groups[2])


@program
def options_changed_between_steps(torch):
    p = leaf(torch, [1.0])
    opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = torch.ones_like(p)
    opt.step()
    opt.param_groups[0].update(lr=1.0, momentum=0.1, dampening=0.5)
    opt.step()
    opt.param_groups[0]["momentum"] = 0
    opt.step()
    return p, opt.state[p]["momentum_buffer"]


@program
def names_of_parameters(torch):
    p, q = leaf(torch, [1.0]), leaf(torch, [2.0])
    opt = torch.optim.Adam([("p", p), ("q", q)])
    state = opt.state_dict()
    other = torch.optim.Adam([p, q])
    other.load_state_dict(state)
    return opt.param_groups[0]["param_names"], state["param_groups"][0]["param_names"], other.param_groups[0]["param_names"]


@program
def text(torch):
    groups = [{"params": [leaf(torch, [1.0])]}, {"params": [leaf(torch, [2.0])], "lr": 0.5}]
    return repr(torch.optim.SGD(groups, lr=0.1, momentum=0.5)), repr(torch.optim.AdamW([leaf(torch, [1.0])]))


@program
def nothing_without_a_gradient(torch):
    p, q = leaf(torch, [1.0]), leaf(torch, [2.0])
    opt = torch.optim.Adam([p, q])
    q.grad = torch.ones_like(q)
    opt.step()
    return p, len(opt.state), p._version, opt.state_dict()["state"].keys() == {1}


@program
def the_closure_is_recorded_and_returned(torch):
    p, seen = leaf(torch, [1.0, -3.0]), []
    opt = torch.optim.Adagrad([p], lr=0.5)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        seen.append(torch.is_grad_enabled())
        return loss
    with torch.no_grad():
        found = [opt.step(closure), opt.step(closure=closure), opt.step()]
    return seen, [None if x is None else x.item() for x in found], p, torch.is_grad_enabled()


@program
def a_closure_that_raises_leaves_the_mode(torch):
    opt = torch.optim.SGD([leaf(torch, [1.0])])
    try:
        opt.step(lambda: 1 / 0)
    except ZeroDivisionError:
        return torch.is_grad_enabled()


@program
def zero_grad(torch):
    p, q, r = leaf(torch, [1.0]), leaf(torch, [2.0]), leaf(torch, [2.0])
    opt = torch.optim.SGD([p, q, r])
    p.grad, g = torch.ones_like(p), torch.ones_like(q)
    q.grad = g
    y = (r ** 3).sum()
    y.backward(create_graph=True)
    h = r.grad
    opt.zero_grad(set_to_none=False)
    found = [p.grad.tolist(), q.grad is g, g.tolist(), r.grad is h, h.requires_grad, h.grad_fn is None]
    opt.zero_grad()
    return found, p.grad, q.grad, g


@program
def a_gradient_that_is_recorded_itself(torch):
    p = leaf(torch, [1.0, 2.0])
    opt = torch.optim.Adam([p])
    (p ** 3).sum().backward(create_graph=True)
    opt.step()
    return p, opt.state[p]["exp_avg"]


@program
def hooks_on_steps(torch):
    p, log = leaf(torch, [1.0]), []
    opt = torch.optim.SGD([p], lr=0.1)
    p.grad = torch.ones_like(p)
    first = opt.register_step_pre_hook(lambda o, args, kwargs: log.append(("pre", o is opt, len(args), sorted(kwargs))))
    opt.register_step_post_hook(lambda o, args, kwargs: log.append(("post", p.item())))
    opt.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: 7.0}))
    found = [opt.step()]
    first.remove()
    found.append(opt.step(lambda: 1.0) if False else opt.step(closure=lambda: 1.0))
    return log, found


@program
def a_pre_hook_that_returns_something_else(torch):
    opt = torch.optim.SGD([leaf(torch, [1.0])])
    opt.register_step_pre_hook(lambda *args: 3)
    opt.step()


@program
def hooks_on_states(torch):
    p, log = leaf(torch, [1.0]), []
    opt = torch.optim.SGD([p], momentum=0.5)
    opt.register_state_dict_pre_hook(lambda o: log.append("saving"))
    opt.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    opt.register_state_dict_post_hook(lambda o, state: log.append(sorted(state)), prepend=True)
    opt.register_load_state_dict_pre_hook(lambda o, state: log.append(("loading", sorted(state))))
    opt.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "more"})
    opt.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    opt.register_load_state_dict_post_hook(lambda o: log.append("loaded first"), prepend=True)
    state = opt.state_dict()
    opt.load_state_dict(state)
    return log, sorted(state)


@program
def state_of_other_keys_is_kept(torch):
    p = leaf(torch, [1.0])
    opt = torch.optim.SGD([p])
    opt.state["counter"] = {"n": 3}
    opt.state[p]["extra"] = {"x": torch.ones(1), "n": 5}
    other = torch.optim.SGD([p])
    other.load_state_dict(opt.state_dict())
    return other.state["counter"], other.state[p]["extra"]["x"], other.state[p]["extra"]["n"]


@program
def an_optimizer_of_ones_own(torch):
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad, alpha=group["lr"])
                    self.state[p]["step"] = self.state[p].get("step", 0) + 1
            return "done"
    p, log = leaf(torch, [1.0]), []
    opt = Plain([p], 0.5)
    opt.register_step_post_hook(lambda *args: log.append(1))
    p.grad = torch.ones_like(p)
    found = opt.step(), opt.step()
    other = Plain([p], 0.1)
    other.load_state_dict(opt.state_dict())
    return p, found, log, other.state[p]["step"], other.param_groups[0]["lr"]


@program
def retained_results_may_be_optimized(torch):
    y = leaf(torch, [1.0]) * 2
    y.retain_grad()
    opt = torch.optim.SGD([y], lr=0.5)
    (y * y).sum().backward()
    opt.step()
    return y


@program
def duplicates_are_updated_twice(torch):
    p = leaf(torch, [1.0])
    opt = torch.optim.SGD([p, p], lr=0.5)
    p.grad = torch.ones_like(p)
    opt.step()
    return p, opt.state_dict()["param_groups"][0]["params"]


@program
def learning_rates_that_are_tensors(torch):
    found = []
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"):
        p = leaf(torch, [1.0, 2.0], "float32")
        lr = torch.tensor(0.25)
        opt = getattr(torch.optim, name)([p], lr=lr)
        p.grad = torch.ones_like(p)
        opt.step()
        lr.fill_(0.5)
        opt.step()
        found.append([round(x, 5) for x in p.tolist()])
    return found


@program
def a_number_of_steps_under_another_default(torch):
    torch.set_default_dtype(torch.float64)
    p = leaf(torch, [1.0], "float32")
    opt = torch.optim.Adam([p])
    p.grad = torch.ones_like(p)
    opt.step()
    return opt.state[p]["step"], opt.state[p]["exp_avg"].dtype == torch.float32


@program
def a_state_with_a_python_number_of_steps(torch):
    p = leaf(torch, [1.0])
    opt = torch.optim.Adam([p])
    p.grad = torch.ones_like(p)
    opt.step()
    state = opt.state_dict()
    state["state"][0]["step"] = 5
    opt.load_state_dict(state)
    opt.step()
    return p, opt.state[p]["step"]


BAD = {
    "empty": lambda o, p, q: o.SGD([]), "tensor": lambda o, p, q: o.SGD(p), "number": lambda o, p, q: o.SGD([1.0]),
    "not_iterable": lambda o, p, q: o.SGD(3), "no_leaf": lambda o, p, q: o.SGD([p * 2]), "set": lambda o, p, q: o.SGD([{"params": {p}}]),
    "no_dict": lambda o, p, q: o.SGD([p]).add_param_group([q]), "no_params": lambda o, p, q: o.SGD([{"lr": 1.0}]),
    "twice": lambda o, p, q: o.SGD([p]).add_param_group({"params": [p]}), "shared": lambda o, p, q: o.SGD([{"params": p}, {"params": p}]),
    "mixed": lambda o, p, q: o.SGD([p, {"params": q}]), "half_named": lambda o, p, q: o.SGD([("p", p), q]),
    "named_later": lambda o, p, q: o.SGD([("p", p)]).add_param_group({"params": [q]}),
    "lr": lambda o, p, q: o.SGD([p], lr=-1), "momentum": lambda o, p, q: o.SGD([p], momentum=-1), "decay": lambda o, p, q: o.SGD(
        [p], weight_decay=-1), "nesterov": lambda o, p, q: o.SGD([p], nesterov=True),
    "nesterov_dampening": lambda o, p, q: o.SGD([p], momentum=0.5, dampening=0.1, nesterov=True),
    "long_lr": lambda o, p, q: o.SGD([p], lr=p.detach().repeat(2)), "fused_foreach": lambda o, p, q: o.SGD([p], fused=True, foreach=True),
    "fused_foreach_adam": lambda o, p, q: o.Adam([p], fused=True, foreach=True),
    "adam_lr": lambda o, p, q: o.Adam([p], lr=-1), "eps": lambda o, p, q: o.Adam([p], eps=-1), "beta0": lambda o, p, q: o.Adam(
        [p], betas=(1.0, 0.5)), "beta1": lambda o, p, q: o.Adam([p], betas=(0.5, -0.1)),
    "betas": lambda o, p, q: o.Adam([p], betas=(0, 0.5)),
    "adam_decay": lambda o, p, q: o.AdamW([p], weight_decay=-1), "foreach_lr": lambda o, p, q: o.Adam(
        [p], lr=p.detach().reshape(()), foreach=True), "alpha": lambda o, p, q: o.RMSprop([p], alpha=-1),
    "rms_momentum": lambda o, p, q: o.RMSprop([p], momentum=-1), "rho": lambda o, p, q: o.Adadelta([p], rho=1.5),
    "lr_decay": lambda o, p, q: o.Adagrad([p], lr_decay=-1), "accumulator": lambda o, p, q: o.Adagrad([p], initial_accumulator_value=-1),
    "adamax_beta": lambda o, p, q: o.Adamax([p], betas=(0.5, 1.0)), "momentum_decay": lambda o, p, q: o.NAdam([p], momentum_decay=-1),
    "radam_eps": lambda o, p, q: o.RAdam([p], eps=-1), "unknown": lambda o, p, q: o.SGD([p], speed=1),
    "positional": lambda o, p, q: o.SGD([p], 0.1, 0, 0, 0, False, True), "no_step": lambda o, p, q: o.Optimizer([p], {}).step(),
    "fewer_groups": lambda o, p, q: o.SGD([p]).load_state_dict(o.SGD([{"params": p}, {"params": q}]).state_dict()),
    "recorded_leaf": lambda o, p, q: (setattr(p, "grad", q.detach()), o.SGD([p], differentiable=True).step()),
    "fused_recorded": lambda o, p, q: o.Adam([p], fused=True, differentiable=True),
    "other_sizes": lambda o, p, q: o.SGD([p]).load_state_dict(o.SGD([p, q]).state_dict()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


@pytest.mark.parametrize("name", BAD)
def test_errors(name, oracle):
    def run(torch):
        BAD[name](torch.optim, leaf(torch, [1.0]), leaf(torch, [2.0]))
        return "no error"
    found = result(run, autograd_gpu)
    assert found == result(run, oracle) != "no error"


def test_a_required_option_and_duplicates():
    p = leaf(autograd_gpu, [1.0])
    with pytest.raises(ValueError, match="didn't specify a value of required"):
        autograd_gpu.optim.Optimizer([p], {"lr": base.required})
    with pytest.warns(UserWarning, match="duplicate parameters"):
        autograd_gpu.optim.SGD([p, p])
    assert repr(base.required) == "<required parameter>"


def recorded(torch, name, options, first, grads):
    """What steps by some gradients make of a parameter, recorded; and the optimizer."""
    p = first.clone()
    opt = getattr(torch.optim, name)([p], differentiable=True, **options)
    for g in grads:
        p.grad = g
        opt.step()
    return p, opt


@pytest.mark.parametrize("name", sorted(FULL.keys() - {"Adamax"}))           # whose second step's backward is an error in PyTorch
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_steps_that_are_recorded(name, dtype, oracle):
    """Their gradients, and what the state comes to. PyTorch works the corrections of Adam's bias out in float32 then."""
    options = dict(weight_decay=0.1, maximize=True)

    def run(torch):
        first, *grads = [leaf(torch, start(dtype, seed=k), dtype) for k in range(4)]
        p, opt = recorded(torch, name, options, first, grads)
        found = torch.autograd.grad((p * p.conj()).real.sum(), [first, *grads])
        return arrays([p, *found, *[v for v in opt.state[p].values() if hasattr(v, "detach")]])
    agree(run(autograd_gpu), run(oracle), 1e-4 if name in ("Adam", "AdamW") else 1e-9)


@every
def test_recorded_steps_have_the_right_derivatives(name):
    """With all options. PyTorch detaches SGD's first buffer, and the backward of a centered RMSprop or of Adamax is an error there."""
    first, *grads = [leaf(autograd_gpu, start(shape=(2, 2), seed=k)) for k in range(4)]
    assert autograd_gpu.autograd.gradcheck(lambda *xs: recorded(autograd_gpu, name, FULL[name], xs[0], xs[1:])[0], (first, *grads))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_the_gradient_of_the_learning_rate(name, oracle):
    def run(torch):
        lr = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        p, _ = recorded(torch, name, dict(lr=lr, weight_decay=0.1), leaf(torch, start()), [torch.tensor(start(seed=k)) for k in (1, 2)])
        return arrays([p, *torch.autograd.grad((p * p).sum(), lr)])
    agree(run(autograd_gpu), run(oracle), 1e-9 if name == "SGD" else 1e-4)


def test_hooks_on_every_optimizer():
    log, p = [], leaf(autograd_gpu, [1.0])
    handles = [base.register_optimizer_step_pre_hook(lambda o, args, kwargs: log.append("pre")),
               base.register_optimizer_step_post_hook(lambda o, args, kwargs: log.append("post"))]
    try:
        opt = autograd_gpu.optim.SGD([p])
        opt.register_step_pre_hook(lambda *args: log.append("own pre"))
        opt.register_step_post_hook(lambda *args: log.append("own post"))
        opt.step()
    finally:
        for handle in handles:
            handle.remove()
    opt.step()
    assert log == ["pre", "own pre", "own post", "post", "own pre", "own post"]


@every
def test_parameters_and_options_are_those_of_pytorch(name, oracle):
    ours, theirs = [inspect.signature(getattr(torch.optim, name).__init__).parameters for torch in (autograd_gpu, oracle)]
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [(p.name, p.kind, p.default) for p in theirs.values()]
    ours, theirs = [getattr(torch.optim, name)([leaf(torch, [1.0])]) for torch in (autograd_gpu, oracle)]
    assert ours.defaults == theirs.defaults and list(ours.param_groups[0]) == list(theirs.param_groups[0])


def test_the_package_imports_its_optimizers_at_their_first_use():
    code = "import sys, autograd_gpu as t; assert 'autograd_gpu.optim' not in sys.modules; t.optim.SGD; t.optim.lr_scheduler.StepLR"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'optimizers'"):
        autograd_gpu.optimizers  # noqa: B018 - the lookup is the test
