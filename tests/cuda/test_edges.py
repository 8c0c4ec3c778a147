"""The functions of kernels/prelude.cuh at their edges, beside the functions of NumPy that they stand for."""
import re

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu import expression
from autograd_gpu.cuda.launch import Fused
from autograd_gpu.cuda.source import kernel_text
from autograd_gpu.ops.namespace import OPS as F
from tests.cuda.common import cp, gpu
from tests.cuda.programs import TOLERANCE

pytestmark = gpu
inf, nan = np.inf, np.nan

REAL = ["absolute", "maximum", "minimum", "sign", "reciprocal", "remainder", "floor_divide", "logaddexp", "logaddexp2", "power", "exp"]
WHOLE = ["absolute", "maximum", "minimum", "fmax", "fmin", "sign", "invert", "remainder", "floor_divide", "fmod", "left_shift",
         "right_shift"]
FUNCTIONS = {"f": REAL, "i": WHOLE, "u": [*WHOLE, "power"], "b": ["absolute", "maximum", "minimum", "invert"], "c": ["reciprocal", "power"]}
DTYPES = ["float32", "float64", "int8", "int64", "uint8", "uint64", "bool", "complex64"]


def edges(dtype):
    """Every pair of the values at which a function may differ from its neighbours."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        found = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0, -7.0, 88.0, 1e30, -1e-30]
    elif kind in "iu":
        limits = np.iinfo(dtype)
        found = [limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.bits - 1, limits.bits, limits.bits + 1, limits.max - 1, limits.max]
        found += [-1, -2, -3, -7] if limits.min else []
    else:
        found = [False, True] if kind == "b" else [0, 1, -1, 2, 2 + 3j, -0.5 - 2j]
    return [a.ravel() for a in np.meshgrid(np.array(found, dtype), np.array(found, dtype))]


def results(of, names):
    """A function of pairs: what the functions of these names give."""
    return lambda x, y: tuple([getattr(of, n)(*(x, y)[:getattr(np, n).nin]) for n in names])


def fused(dtype):
    names = FUNCTIONS[np.dtype(dtype).kind]
    return names, Fused("edges", results(expression.FUNCTIONS, names), None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_are_numpys(dtype):
    x, y = edges(dtype)
    names, f = fused(dtype)
    with np.errstate(all="ignore"):
        wanted = results(np, names)(x, y)
    for name, want, got in zip(names, wanted, map(cp.asnumpy, f(cp.asarray(x), cp.asarray(y))), strict=True):
        assert got.dtype == want.dtype, name
        tolerance = TOLERANCE.get(want.dtype.name, 0)
        np.testing.assert_allclose(got, want, rtol=tolerance, err_msg=name)
        if want.dtype.kind == "f":
            signs = np.isnan(want) | (np.signbit(got) == np.signbit(want))
            assert signs.all(), (name, x[~signs], y[~signs])


def test_no_function_is_left_out():
    prelude = kernel_text("prelude.cuh")
    texts = [fused(d)[1].program((np.dtype(d), np.dtype(d))).source("flat") for d in DTYPES]
    called = {name for text in texts for name in re.findall(r"ag_\w+", text.split(prelude)[1])}
    assert set(re.findall(r"inline \w+ (ag_\w+)\(", prelude)) - called == {"ag_is_minus_one", "ag_float_remainder", "ag_float_floor_divide"}


@pytest.mark.parametrize("name", ["digamma", "i0e", "i1e", "lgamma", "polygamma 1", "polygamma 2", "polygamma 5"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_special_functions_are_scipys(name, dtype):
    """Those of kernels/special.cuh at poles, zeros, where they change the formula, and between."""
    x = np.array([*np.linspace(-8.3, 40, 400), 0.0, -0.0, -1.0, -2.0, inf, -inf, nan, 1e-8, 1e5, 300.0, 29.999, 30.001], dtype)
    f, *n = name.split()
    got = getattr(F, f)(*map(int, n), torch.from_numpy(x).cuda()).cpu().numpy()
    want = getattr(F, f)(*map(int, n), torch.from_numpy(x)).numpy()
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-6 if dtype == "float32" else 1e-11)
