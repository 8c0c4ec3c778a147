"""dtypes and PyTorch's promotion rules, compared with PyTorch in full where it is installed."""
import copy
import itertools
import pickle

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.dtypes import ALL, to_numpy

NAMES = [d.name for d in ALL]
VALUES = {"bool": True, "int": 1, "float": 1.5, "complex": 1j}


def of(module, name):
    return getattr(module, name)


def outcome(function, *args):
    """What a call gives, as a name that reads alike for both packages."""
    try:
        return str(function(*args))
    except RuntimeError:
        return "RuntimeError"


def test_promote_types_and_can_cast(oracle):
    for a, b in itertools.product(NAMES, NAMES):
        for function in ("promote_types", "can_cast"):
            ours, real = (outcome(getattr(m, function), of(m, a), of(m, b)) for m in (torch, oracle))
            assert ours == real, (function, a, b)


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_result_type(oracle, default):
    def operands(m):
        for name in NAMES:
            yield f"{name} 1-d", m.ones(2, dtype=of(m, name))
            yield f"{name} 0-d", m.ones((), dtype=of(m, name))
        yield from VALUES.items()

    results = []
    for m in (torch, oracle):
        m.set_default_dtype(of(m, default))
        results.append({(a, b): outcome(m.result_type, x, y) for (a, x), (b, y) in itertools.product(operands(m), repeat=2)})
    no_half_complex = {k for k, v in results[1].items() if v == "torch.complex32"}       # NumPy has none: complex64 takes its place
    assert {results[0][k] for k in no_half_complex} == {"torch.complex64"}
    assert {k: (results[0][k], v) for k, v in results[1].items() if k not in no_half_complex and results[0][k] != v} == {}


@pytest.mark.parametrize("name", NAMES)
def test_limits_print_as_pytorchs(oracle, name):
    for function in ("finfo", "iinfo"):
        try:
            expected = getattr(oracle, function)(of(oracle, name))
        except TypeError:
            with pytest.raises(TypeError, match=function):
                getattr(torch, function)(of(torch, name))
            continue
        found = getattr(torch, function)(of(torch, name))
        assert repr(found) == repr(expected)
        assert (found.bits, found.min, found.max, found.dtype) == (expected.bits, expected.min, expected.max, expected.dtype)


def test_attributes(oracle):
    for name in NAMES:
        ours, real = of(torch, name), of(oracle, name)
        assert repr(ours) == repr(real)
        for attribute in ("itemsize", "is_floating_point", "is_complex", "is_signed"):
            assert getattr(ours, attribute) == getattr(real, attribute), (name, attribute)
        if name in ("float32", "float64", "complex64", "complex128"):
            assert repr(ours.to_complex()) == repr(real.to_complex()) and repr(ours.to_real()) == repr(real.to_real())


def test_a_dtype_is_one_object_and_equals_numpys():
    for d in ALL:
        assert pickle.loads(pickle.dumps(d)) is d and copy.deepcopy(d) is d
        assert d == d.dtype and d.dtype == d and np.dtype(d) is d.dtype and hash(d) == hash(d.dtype)
    assert torch.float32 == np.float32 and torch.float32 != np.float64
    assert torch.float64 != None  # noqa: E711 - NumPy takes None for float64
    assert torch.float64 != "float64" and torch.float is torch.float32 and torch.long is torch.int64


def test_default_dtype():
    assert torch.get_default_dtype() is torch.float32
    torch.set_default_dtype(torch.float64)
    assert torch.tensor(1.5).dtype is torch.zeros(1).dtype is torch.float64 and torch.tensor(1j).dtype is torch.complex128
    for wrong in (torch.int64, float, None, "nothing"):
        with pytest.raises(TypeError):
            torch.set_default_dtype(wrong)
    assert torch.get_default_dtype() is torch.float64


def test_a_dtype_that_is_not_there_is_named():
    with pytest.raises(TypeError, match="longdouble|float128"):
        torch.from_numpy(np.zeros(2, np.longdouble))
    with pytest.raises(TypeError, match="None"):
        to_numpy(None)


@pytest.mark.parametrize("f", [lambda b: -b, lambda b: b - b, lambda b: 1 - b, lambda b: b - 1,
                               lambda b: b.clone().sub_(b), lambda b: b.neg()])
def test_bools_are_neither_negated_nor_subtracted_and_the_remedy_is_told(f):
    with pytest.raises(RuntimeError, match="~") as caught:
        f(torch.tensor([True, False]))
    assert type(caught.value) is RuntimeError
