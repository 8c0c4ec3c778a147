"""Optimizers: values and states are those of PyTorch; how a step meets memory and the graph."""
import copy
import gc
import itertools
import pickle
import warnings
import weakref

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu import blocks
from tests.conftest import needs_bfloat16

OPTIONS = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"maximize": True, "weight_decay": 0.1, "lr": 1e-3}, {"momentum": 0.5, "maximize": True, "lr": 1e-4}],
    "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1, "betas": (0.3, 0.5)}, {"maximize": True, "lr": 1e-3}, {"betas": (0.0, 0.0)},
             {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"foreach": True, "eps": 1e-3}],
    "AdamW": [{}, {"amsgrad": True, "lr": 0.01}, {"weight_decay": 0.3}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.9, "lr": 1e-3}, {"centered": True, "momentum": 0.5, "weight_decay": 0.1},
                {"maximize": True, "alpha": 0.5}],
    "Adagrad": [{}, {"lr_decay": 0.1}, {"initial_accumulator_value": 1.0, "weight_decay": 0.1}, {"maximize": True, "eps": 0.1}],
    "Adadelta": [{}, {"rho": 0.5, "weight_decay": 0.1}, {"maximize": True, "lr": 0.1}],
    "Adamax": [{}, {"weight_decay": 0.1}, {"maximize": True, "betas": (0.5, 0.9)}],
    "NAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True, "momentum_decay": 0.1}],
    "RAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {"maximize": True, "betas": (0.8, 0.9)}],
}
ALL = {                                      # every combination of these is tried; FULL has the one with the largest state
    "SGD": {"momentum": (0, 0.9), "dampening": (0, 0.5), "nesterov": (False, True), "weight_decay": (0, 0.1), "maximize": (False, True)},
    "Adam": {"amsgrad": (False, True), "weight_decay": (0, 0.1), "maximize": (False, True), "decoupled_weight_decay": (False, True)},
    "AdamW": {"amsgrad": (False, True), "weight_decay": (0, 0.1), "maximize": (False, True)},
    "RMSprop": {"centered": (False, True), "momentum": (0, 0.9), "weight_decay": (0, 0.1), "maximize": (False, True)},
    "Adagrad": {"lr_decay": (0, 0.1), "initial_accumulator_value": (0, 0.5), "weight_decay": (0, 0.1), "maximize": (False, True)},
    "Adadelta": {"weight_decay": (0, 0.1), "maximize": (False, True)}, "Adamax": {"weight_decay": (0, 0.1), "maximize": (False, True)},
    "NAdam": {"weight_decay": (0, 0.1), "maximize": (False, True), "decoupled_weight_decay": (False, True)},
    "RAdam": {"weight_decay": (0, 0.1), "maximize": (False, True), "decoupled_weight_decay": (False, True)},
}
FULL = {name: {option: several[-1] for option, several in options.items()} for name, options in ALL.items()}
FULL["SGD"]["dampening"] = 0
CASES = [(name, options) for name, several in OPTIONS.items() for options in several]
every = pytest.mark.parametrize("name", OPTIONS)
STEPS = 100


def leaf(torch, values, dtype="float64"):
    return torch.tensor(np.asarray(values), dtype=getattr(torch, dtype)).requires_grad_()


def start(dtype="float64", shape=(3, 4), seed=0):
    rng = np.random.RandomState(seed)
    values = rng.randn(*shape)
    return values + 1j * rng.randn(*shape) if dtype.startswith("complex") else values


def train(torch, params, opt, steps=STEPS, seed=1):
    """Steps towards other targets each time."""
    rng = np.random.RandomState(seed)
    for _ in range(steps):
        opt.zero_grad()
        loss = 0
        for p in params:
            target = rng.randn(*p.shape) + (1j * rng.randn(*p.shape) if p.is_complex() else 0)
            d = p - torch.tensor(target, dtype=p.dtype)
            loss = loss + ((d * d.conj()).real.sum() if p.is_complex() else (d * d).sum())
        loss.backward()
        opt.step()


def arrays(state):
    """A state dict's tensors as arrays."""
    if isinstance(state, dict):
        return {k: arrays(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(arrays(v) for v in state)
    return state.detach().numpy() if hasattr(state, "detach") else state


def of_numbers(state):
    """arrays(state), with what NAdam keeps in float32 as a Python number: PyTorch brings it to the parameters' dtype when it is loaded."""
    found = arrays(state)
    for entry in found[-1]["state"].values():
        if "mu_product" in entry:
            entry["mu_product"] = np.float64(entry["mu_product"])[None]
    return found


def agree(ours, theirs, rtol):
    assert type(ours) is type(theirs) or isinstance(ours, (float, int, np.generic)), (ours, theirs)
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for k in ours:
            agree(ours[k], theirs[k], rtol)
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b, rtol)
    elif isinstance(ours, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)
    else:
        assert ours == theirs


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("complex128", 1e-12), ("float32", 1e-5), ("complex64", 1e-5)])
@pytest.mark.parametrize("name, options", CASES, ids=str)
def test_values_and_states_over_100_steps(name, options, dtype, rtol, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        params = [leaf(torch, start(dtype), dtype), leaf(torch, start(dtype, (), 2), dtype)]
        opt = getattr(torch.optim, name)(params, **options)
        train(torch, params, opt)
        found.append(arrays([*params, opt.state_dict()]))
    agree(*found, rtol)


@every
def test_all_combinations_of_options_over_100_steps(name, oracle):
    tried = 0
    for values in itertools.product(*ALL[name].values()):
        options = dict(zip(ALL[name], values, strict=True))
        if options.get("nesterov") and (not options["momentum"] or options["dampening"]):
            continue
        found = []
        for torch in (autograd_gpu, oracle):
            p = leaf(torch, start())
            opt = getattr(torch.optim, name)([p], lr=1e-3, **options)
            train(torch, [p], opt)
            found.append(arrays([p, opt.state_dict()]))
        agree(*found, 1e-12)
        tried += 1
    assert tried >= 4


@every
@pytest.mark.parametrize("given", [{}, FULL], ids=["few options", "all options"])
def test_a_state_of_pytorch_goes_on_here(name, given, oracle):
    options = given.get(name, OPTIONS[name][-1])
    theirs = [leaf(oracle, start()), leaf(oracle, start(seed=2))]
    opt = getattr(oracle.optim, name)(theirs, **options)
    train(oracle, theirs, opt, 10)
    for state in (arrays(opt.state_dict()), opt.state_dict()):           # as arrays, and as PyTorch's own tensors
        ours = [leaf(autograd_gpu, p.detach().numpy().copy()) for p in theirs]
        again = getattr(autograd_gpu.optim, name)(ours, lr=0.5)
        again.load_state_dict(state)
        expected = [leaf(oracle, p.detach().numpy().copy()) for p in theirs]
        reference = getattr(oracle.optim, name)(expected, lr=0.5)
        reference.load_state_dict(copy.deepcopy(opt.state_dict()))
        train(autograd_gpu, ours, again, 10)
        train(oracle, expected, reference, 10)
        agree(of_numbers([*ours, again.state_dict()]), of_numbers([*expected, reference.state_dict()]), 1e-6 if name == "NAdam" else 1e-12)


@every
@pytest.mark.parametrize("given", [{}, FULL], ids=["few options", "all options"])
def test_a_state_from_here_goes_on_in_pytorch(name, given, oracle):
    ours = [leaf(autograd_gpu, start())]
    opt = getattr(autograd_gpu.optim, name)(ours, **given.get(name, OPTIONS[name][-1]))
    train(autograd_gpu, ours, opt, 10)
    theirs = [leaf(oracle, ours[0].detach().numpy().copy())]
    again = getattr(oracle.optim, name)(theirs)
    state = opt.state_dict()
    state = {**state, "state": {i: {k: oracle.tensor(v) for k, v in arrays(s).items()} for i, s in state["state"].items()}}
    again.load_state_dict(copy.deepcopy(state))
    train(autograd_gpu, ours, opt, 10)
    train(oracle, theirs, again, 10)
    agree(of_numbers([*ours, opt.state_dict()]), of_numbers([*theirs, again.state_dict()]), 1e-6 if name == "NAdam" else 1e-12)


@every
def test_a_loaded_state_is_a_copy_on_the_parameters_dtype(name):
    p, q = leaf(autograd_gpu, start()), leaf(autograd_gpu, start(), "float32")
    opt, other = [getattr(autograd_gpu.optim, name)([t]) for t in (p, q)]
    train(autograd_gpu, [p], opt, 2)
    before = copy.deepcopy(arrays(opt.state_dict()))
    other.load_state_dict(opt.state_dict())
    for key, value in other.state[q].items():
        assert value._array.dtype == (np.float32), key
    train(autograd_gpu, [q], other, 2)
    agree(arrays(opt.state_dict()), before, 0)


@every
@pytest.mark.parametrize("make", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_of_an_optimizer_train_their_own_parameters(name, make):
    p = leaf(autograd_gpu, start())
    opt = getattr(autograd_gpu.optim, name)([p], **OPTIONS[name][-1])
    opt.register_step_post_hook(lambda *args: None)
    train(autograd_gpu, [p], opt, 3)
    again = make(opt)
    q, = again.param_groups[0]["params"]
    train(autograd_gpu, [p], opt, 3)
    train(autograd_gpu, [q], again, 3)
    assert q is not p
    agree(arrays([p, opt.state_dict()]), arrays([q, again.state_dict()]), 0)


# ------------------------------------------------------------------------------------------------------ memory and the graph

LAYOUTS = {"c": lambda t: t, "transposed": lambda t: t.t(), "strided": lambda t: t[:, ::2], "mixed": lambda t: t[:, :2],
           "empty": lambda t: t[:0], "number": lambda t: t[0, 0]}


@every
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(name, layout, oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        whole = torch.tensor(start(shape=(4, 6)))
        p = LAYOUTS[layout](whole).detach().requires_grad_()
        opt = getattr(torch.optim, name)([p], **OPTIONS[name][-1])
        train(torch, [p], opt, 5)
        found.append(arrays([whole, p, opt.state_dict()]))
    agree(*found, 1e-12)


@every
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_large_parameters_are_updated_in_blocks(name, dtype, monkeypatch):
    found = []
    for block in (blocks.BLOCK, 7):
        monkeypatch.setattr(blocks, "BLOCK", block)
        monkeypatch.setattr(getattr(autograd_gpu.optim, name)._rule, "programs", {})
        params = [leaf(autograd_gpu, start(shape=(5, 11)), dtype), leaf(autograd_gpu, start(shape=(11, 5)).T, dtype)]
        opt = getattr(autograd_gpu.optim, name)(params, **OPTIONS[name][-1])
        train(autograd_gpu, params, opt, 5)
        found.append(arrays([*params, opt.state_dict()]))
    agree(*found, 0)


@every
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_half_precision_is_computed_in_float32(name, dtype):
    rounded = {"float16": 1e-3, "bfloat16": 1e-2}[dtype]
    p = leaf(autograd_gpu, start(), dtype)
    q = p.detach().float().requires_grad_()
    grad = autograd_gpu.full((3, 4), 2.0 ** -10)
    for t, kind in ((p, p.dtype), (q, q.dtype)):
        t.grad = grad.to(kind)
        getattr(autograd_gpu.optim, name)([t], lr=0.1).step()
    np.testing.assert_allclose(p.detach().float().numpy(), q.detach().numpy(), rtol=rounded, atol=rounded)
    p.grad = autograd_gpu.zeros(3, 4, dtype=p.dtype)         # an eps that half precision cannot hold still prevents 0 / 0
    getattr(autograd_gpu.optim, name)([p]).step()
    assert p.isfinite().all()


@every
def test_a_step_writes_in_place_and_older_graphs_notice(name):
    p = leaf(autograd_gpu, start())
    alias, opt = p.detach(), getattr(autograd_gpu.optim, name)([p])
    older = (p * p).sum()
    (p * 1).sum().backward()
    before = alias.clone()
    opt.step()
    assert p.grad_fn is None and p.requires_grad and p._version == 1 and not alias.equal(before) and alias.equal(p.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        older.backward()


def test_no_warning_of_numpy_escapes_and_infinities_are_those_of_pytorch(oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        p = leaf(torch, [np.inf, -np.inf, np.nan, 1e308])
        p.grad = torch.tensor([np.inf, 1.0, 1.0, 1e308], dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in OPTIONS:
                getattr(torch.optim, name)([p], weight_decay=0.1).step()
        found.append(p.detach().numpy())
    np.testing.assert_array_equal(*found)


def test_an_optimizer_and_its_parameters_are_freed():
    p = leaf(autograd_gpu, start())
    opt = autograd_gpu.optim.Adam([p])
    train(autograd_gpu, [p], opt, 2)
    refs = [weakref.ref(x) for x in (p, opt)]
    gc.collect()
    gc.disable()
    try:
        del p, opt
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_in_inference_mode_and_in_a_block_that_keeps_what_is_written():
    p = leaf(autograd_gpu, [1.0, 2.0])
    opt = autograd_gpu.optim.SGD([p], lr=0.5)
    with autograd_gpu.autograd.graph.allow_mutation_on_saved_tensors():
        y = (p * p).sum()
        p.grad = autograd_gpu.ones(2, dtype=autograd_gpu.float64)
        opt.step()
        y.backward()                         # with the values that p had
        assert p.tolist() == [0.5, 1.5] and p.grad.tolist() == [3.0, 5.0]


@every
def test_options_may_be_numbers_of_numpy_and_decide_no_dtype(name):
    found = []
    for kind in (float, np.float64):
        p = leaf(autograd_gpu, start(), "float32")
        opt = getattr(autograd_gpu.optim, name)([p])
        for key, value in opt.param_groups[0].items():
            if type(value) is float:
                opt.param_groups[0][key] = kind(value)
            elif key == "betas":
                opt.param_groups[0][key] = tuple([kind(b) for b in value])
        train(autograd_gpu, [p], opt, 3)
        found.append(p.detach().numpy())
    np.testing.assert_array_equal(*found)
