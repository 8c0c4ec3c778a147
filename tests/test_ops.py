"""A loop over the registry: every elementwise op against numeric differences, and the properties that come with the record.

The operator sweep compares values with PyTorch; this file needs no oracle. An op carries its own test range (`domain=`), so a
new op needs no new test.
"""
import ast
import inspect
import sys

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops.compile import PLAIN, TENSOR
from autograd_gpu.ops.namespace import OPS, REGISTRY, raw, rebind
from autograd_gpu.ops.op import Op

ARGUMENTS = {        # plain parameters without a default
    "remainder": {"other": 0.7}, "fmod": {"other": 0.7}, "lerp": {"weight": 0.3}, "round_decimals": {"decimals": 1},
    "clamp_min": {"min": 0.13}, "clamp_max": {"max": 0.13}, "threshold": {"threshold": 0.13, "value": 0.5}, "mul_number": {"other": 1.5},
    "div_number": {"other": 1.5}, "pow": {"exponent": 3}, "pow_base": {"base": 1.5}, "polygamma": {"n": 1}, "mvlgamma": {"p": 2},
    "rsub": {"other": 1.5}, "rsub_tensors": {}, "clamp": {"min": -0.6, "max": 0.7}, "masked_fill": {"value": 0.5},
    "div_rounded": {"rounding_mode": "floor"}, "threshold_backward": {"threshold": 0.13}, "leaky_relu_backward": {"negative_slope": 0.1},
    "hardtanh_backward": {"min_val": -0.6, "max_val": 0.7}, "hardshrink_backward": {"lambd": 0.4}, "softshrink_backward": {"lambd": 0.4},
    "close": {"rtol": 1e-5, "atol": 1e-8, "equal_nan": True},
}
BOOLEAN = {"condition", "mask"}
REFUSED = {"floor_divide", "heaviside", "remainder_of_number"}      # recorded without a derivative, as in PyTorch
COMPLEX = {"complex", "polar"}               # complex results of real operands: the operator sweep compares them with PyTorch
ELEMENTWISE = sorted(r.name for r in REGISTRY.values() if isinstance(r, Op) and r.is_elementwise and r.edges
                     and r.name not in REFUSED | COMPLEX)
IN_PLACE = sorted(n for n in ELEMENTWISE if n != "conj_physical" and REGISTRY[n].inplace and REGISTRY[n].method
                  and [p for p in REGISTRY[n].parameters if REGISTRY[n].roles[p] != PLAIN] == ["self"])


def call(record, operands):
    """The op on operands by parameter name, plain parameters filled in."""
    kwargs = {("input" if p == "self" else p): v for p, v in operands.items()}
    kwargs.update(ARGUMENTS.get(record.name, {}))
    return record.function(**kwargs)


def operands_for(record, rng, shape, dtype=np.float64):
    """An array per tensor parameter, away from the kinks that most ops have at 0 and at small integers."""
    low, high = record.domain
    found = {}
    for p in record.parameters:
        if record.roles[p] == PLAIN:
            continue
        assert record.roles[p] == TENSOR
        if (record.name, p) == ("masked_fill_value", "value"):
            shape = ()
        a = rng.uniform(low, high, shape)
        a = np.where(np.abs(a - np.round(a * 2) / 2) < 0.02, a + 0.05, a)
        found[p] = rng.integers(0, 2, shape).astype(bool) if p in BOOLEAN else a.astype(dtype)
    return found


def leaves(record, arrays):
    return {p: torch.from_numpy(np.array(a)).requires_grad_(p in record.edges) for p, a in arrays.items()}


def numeric(f, arrays, p, eps=1e-6):
    plus, minus = dict(arrays), dict(arrays)
    plus[p], minus[p] = arrays[p] + eps, arrays[p] - eps
    slope = (f(plus) - f(minus)) / (2 * eps)
    return slope if arrays[p].shape else slope.sum()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_first_and_second_derivative_match_differences(name):
    record = REGISTRY[name]
    rng = np.random.default_rng(len(name))
    arrays = operands_for(record, rng, (7,))

    def value(a):
        with torch.no_grad():
            return call(record, {p: torch.from_numpy(np.array(v)) for p, v in a.items()}).numpy()

    def gradient(a, p):
        t = leaves(record, a)
        y = call(record, t)
        g, = torch.autograd.grad(y.sum(), t[p], create_graph=True, allow_unused=True, materialize_grads=True)
        return g, t

    for p in record.edges:
        g, t = gradient(arrays, p)
        np.testing.assert_allclose(g.detach().numpy(), numeric(value, arrays, p), rtol=1e-6, atol=1e-7, err_msg=f"d {name} / d {p}")
        if not g.requires_grad:
            continue
        for q in record.edges:
            h, = torch.autograd.grad(g.sum(), t[q], retain_graph=True, allow_unused=True, materialize_grads=True)
            want = numeric(lambda a, p=p: gradient(a, p)[0].detach().numpy(), arrays, q)
            np.testing.assert_allclose(h.numpy(), want, rtol=1e-5, atol=1e-6, err_msg=f"d2 {name} / d {p} d {q}")


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 1)], ids=str)
def test_shapes_dtypes_and_broadcast_gradients(name, shape):
    record = REGISTRY[name]
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float16):
        t = leaves(record, operands_for(record, rng, shape, dtype))
        tensors = list(t)
        if len(tensors) > 1 and name != "masked_fill_value":    # a dimension more in the last, so that the others' gradients are summed
            a = operands_for(record, rng, (2, *shape), dtype)[tensors[-1]]
            t[tensors[-1]] = torch.from_numpy(a).requires_grad_(tensors[-1] in record.edges)
        y = call(record, t)
        assert isinstance(y, torch.Tensor) and type(y._array) is np.ndarray
        assert y.shape == np.broadcast_shapes(*[x.shape for x in t.values()])
        assert y.requires_grad
        y.backward(torch.ones_like(y))
        for p in record.edges:
            g = t[p].grad
            if g is not None:
                assert g.shape == t[p].shape and g.dtype == t[p].dtype and type(g._array) is np.ndarray


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_is_out_of_place(name):
    record = REGISTRY[name]
    arrays = operands_for(record, np.random.default_rng(2), (5,))
    args = ARGUMENTS.get(name, {})
    grads = []
    for inplace in (False, True):
        x = torch.from_numpy(np.array(arrays["self"])).requires_grad_()
        h = x * 1.0
        y = getattr(h, name + "_" if inplace else name)(**args)
        assert (y is h) == inplace
        y.sum().backward()
        grads.append((y.detach().numpy(), x.grad.numpy()))
    np.testing.assert_array_equal(grads[0][0], grads[1][0])
    np.testing.assert_array_equal(grads[0][1], grads[1][1])


@pytest.mark.parametrize("name, program", {
    "floor_divide": lambda x: x // 1, "heaviside": lambda x: torch.heaviside(x, torch.ones(2)), "remainder": lambda x: 2 % x}.items())
def test_an_op_without_a_derivative_says_so(name, program):
    x = torch.tensor([1.5, 2.5], requires_grad=True)
    with pytest.raises(RuntimeError, match=f"derivative.*{name}.*not implemented"):
        program(x).sum().backward()
    assert x.grad is None


def test_every_name_that_formulas_and_composites_use_exists():
    """F.<name> is looked up when it runs: a misspelt one would show only there."""
    missing = set()
    for module in {r.body.__module__ for r in REGISTRY.values()}:
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "F":
                if node.attr not in REGISTRY:
                    missing.add((module, node.attr))
    assert not missing


def test_the_namespace_of_arrays_has_the_same_functions():
    x = np.array([0.3, 0.7])
    f = rebind(lambda x: F.tanh(x) + F.logsumexp(x, 0), np)        # noqa: F821 - bound by rebind
    want = OPS.tanh(torch.from_numpy(x)) + OPS.logsumexp(torch.from_numpy(x), 0)
    np.testing.assert_allclose(f(x), want.numpy())
    assert raw(np).tanh is np.tanh
