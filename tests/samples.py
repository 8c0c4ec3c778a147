"""Inputs for every op of the registry: what the loop of tests/test_ops.py calls each of them with.

An elementwise op has its samples made, from its signature and `domain`; what it takes besides Tensors stands in `ARGUMENTS`. Any other op
has a line in `SAMPLES`, under the name by which users call it: as torch's, `F.` torch.nn.functional's, `linalg.` and `special.` those
modules', `Tensor.` a method that no module has as a function.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import autograd_gpu as torch
from autograd_gpu.ops.compile import PLAIN, TENSOR
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op


class X(NamedTuple):
    """An operand of the dtype that is tested, with values from `domain`: all different, and none near a multiple of a half."""

    shape: tuple
    domain: tuple | None = None              # of the op, or (-2, 2)
    grad: bool = True                        # whether its gradient is asked for


class I(NamedTuple):                         # noqa: E742
    """Indices from 0 to n - 1, with duplicates where there are more than n."""

    shape: tuple
    n: int


class M(NamedTuple):
    """A mask, with both values where it has two elements."""

    shape: tuple


class A(NamedTuple):
    """An array as it is."""

    values: Any
    dtype: str = "int64"


class D(NamedTuple):
    """A dtype, by name."""

    name: str


class Sample(NamedTuple):
    """One call. `before` makes of the first operand what the op takes, `after` of its results what has one value only."""

    args: tuple
    kwargs: dict
    before: Callable = None
    after: Callable = None


def x(*shape, grad=True):
    return X(shape, None, grad)


def p(*shape, grad=True):
    """Values between 0 and 1, as probabilities are."""
    return X(shape, (0.05, 0.95), grad)


def i(n, *shape):
    return I(shape, n)


def m(*shape):
    return M(shape)


def s(*args, **kwargs):
    return Sample(args, kwargs)


inf, nan = float("inf"), float("nan")

ARGUMENTS = {        # of elementwise ops: plain parameters without a default
    "remainder": {"other": 0.7}, "fmod": {"other": 0.7}, "lerp": {"weight": 0.3}, "round_decimals": {"decimals": 1},
    "clamp_min": {"min": 0.13}, "clamp_max": {"max": 0.13}, "threshold": {"threshold": 0.13, "value": 0.5}, "mul_number": {"other": 1.5},
    "div_number": {"other": 1.5}, "pow": {"exponent": 3}, "pow_base": {"base": 1.5}, "polygamma": {"n": 1}, "mvlgamma": {"p": 2},
    "rsub": {"other": 1.5}, "rsub_tensors": {}, "clamp": {"min": -0.6, "max": 0.7}, "masked_fill": {"value": 0.5},
    "div_rounded": {"rounding_mode": "floor"}, "threshold_backward": {"threshold": 0.13}, "relu_backward": {"threshold": 0},
    "leaky_relu_backward": {"negative_slope": 0.1},
    "hardtanh_backward": {"min_val": -0.6, "max_val": 0.7}, "hardshrink_backward": {"lambd": 0.4}, "softshrink_backward": {"lambd": 0.4},
    "close": {"rtol": 1e-5, "atol": 1e-8, "equal_nan": True},
}
BOOLEAN = {"condition", "mask"}              # parameters that take a mask

SECOND_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
          "arctanh": "atanh", "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "negative": "neg",
          "absolute": "abs", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "clip": "clamp",
          "fix": "trunc", "swapdims": "transpose", "swapaxes": "transpose", "moveaxis": "movedim", "adjoint": "Tensor.mH",
          "concat": "cat", "concatenate": "cat", "row_stack": "vstack", "ger": "outer", "det": "linalg.det", "slogdet": "linalg.slogdet",
          "inverse": "linalg.inv", "Tensor.swapaxes_": "Tensor.transpose_", "Tensor.swapdims_": "Tensor.transpose_"}     # second names

_ONE = [s(x(2, 3))]                          # what takes one operand and nothing else
_TWO = [s(x(2, 3), x(2, 3)), s(x(2, 3), x(3)), s(x(2, 1), x())]
_ALONG = [s(x(3, 4), 1), s(x(2, 3, 4), -2), s(x(), 0)]
_REDUCE = [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), (0, -1), keepdim=True), s(x(2, 3), dim=()), s(x())]
_ONE_DIM = [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), -2, keepdim=True), s(x(2, 3), 5), s(x())]
_SPREAD = [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), (0, 2), correction=0, keepdim=True), s(x(3, 4), unbiased=False),
           s(x(3, 4), 0, correction=4)]
_SOFT = [s(x(3, 4), 1), s(x(2, 3, 4), dim=0), s(x(3, 4), -1, dtype=D("float64")), s(x(), 0)]
_LOSS = [s(x(3, 4), x(3, 4)), *[s(x(3, 4), x(3, 4), reduction=r) for r in ("none", "sum")]]
_SQUARE = [s(x(3, 3)), s(x(2, 2, 2)), s(x(2, 3))]
_SORT = [s(x(3, 4)), s(x(3, 4), 0, True), s(x(5), descending=True), s(x())]
_SCATTER = [s(x(3, 4), 1, i(4, 3, 2), x(3, 2)), s(x(3, 4), 0, A([[2, 2, 0], [0, 1, 1]]), x(3, 4)), s(x(3, 4), 0, A([[3]]), x(1, 1)),
            s(x(), 0, A(0), x())]
_PUT = [s(x(3, 4), 0, A([2, 0]), x(2, 4)), s(x(3, 4), -1, A([1]), x(3, 1)), s(x(3), 0, A([3]), x(1))]
_SPLIT = [s(x(4, 4), 2), s(x(4, 4), (1, 3)), s(x(4, 4, 4), 4), s(x(3, 3, 3), 5)]
_TO = [s(x(2, 3)), s(A([True, False], "bool")), s(A([-1.5, 300.0], "float32"))]
_DROPOUT = [s(x(2, 3, 4), 0.5, False), s(x(2, 3, 4), 0.0, True), s(x(2, 3, 4), 1.0, True), s(x(2, 3, 4), 1.5, True)]
_POOL1 = [s(x(2, 3, 7), 3), s(x(3, 7), 3, 2, 1), s(x(2, 3, 6), 2, 3, 0, ceil_mode=True), s(x(2, 3, 4), 3, 1, 2)]
_POOL2 = [s(x(2, 2, 5, 4), 2), s(x(2, 5, 4), (3, 2), (2, 1), (1, 0)), s(x(1, 2, 5, 5), 2, ceil_mode=True), s(x(2, 2, 4, 4), 3, 1, 2)]
_POOL3 = [s(x(1, 2, 4, 3, 4), 2), s(x(2, 3, 4, 3), (3, 2, 2), 1, (1, 0, 1)), s(x(1, 1, 3, 3, 3), 2, ceil_mode=True), s(x(3, 4), 2)]
_DILATED1 = s(x(2, 3, 9), 3, 2, 1, 2)
_DILATED2 = s(x(1, 2, 7, 6), (3, 2), 2, 1, (2, 3))
_DILATED3 = s(x(1, 1, 5, 4, 5), 2, 1, 1, (2, 1, 3))
_ADAPTIVE1 = [s(x(2, 3, 7), 3), s(x(3, 4), 1), s(x(2, 3, 3), 5), s(x(3), 2)]
_ADAPTIVE2 = [s(x(2, 2, 5, 4), 2), s(x(2, 5, 4), (3, None)), s(x(1, 2, 3, 2), (2, 3)), s(x(3, 4), 2)]
_ADAPTIVE3 = [s(x(1, 2, 4, 3, 5), 2), s(x(2, 4, 3, 2), (3, 1, None)), s(x(3, 4), 2)]
_SHUFFLE = [s(x(1, 8, 2, 4), 2), s(x(4, 2, 2), 2), s(x(2, 3, 3), 2), s(x(4, 4), 2)]
_SIGNS = A([[1, -1, 1, -1], [-1, -1, 1, 1], [1, 1, -1, 1]])
_TRIPLE = [s(x(3, 4), x(3, 4), x(3, 4)), s(x(3, 4), x(3, 4), x(3, 4), swap=True, margin=2.5, reduction="none"),
           s(x(4), x(4), x(4), reduction="sum"), s(x(3, 4), x(4), x(3, 4)), s(x(3, 4), x(3, 4), x(3, 4), margin=-1.0)]
_RESIZED = [s(x(1, 2, 4), 7), s(x(1, 2, 3, 4), (5, 2)), s(x(1, 2, 3, 4), scale_factor=1.7), s(x(1, 1, 2, 3, 2), scale_factor=(2, 0.7, 1.5)),
            s(x(1, 2, 3, 4)), s(x(3, 4), 2)]


def _hermitian(t):
    return t + t.mH


def _positive(t):
    return t @ t.mH + 1


def _up_to_signs(result):
    """Of eigenvectors and singular vectors, what their phases do not change."""
    return [t.abs() for t in result]


def each(samples, before=None, after=None):
    return [sample._replace(before=before, after=after) for sample in samples]


SAMPLES = {
    # elementwise, besides the samples that are made
    "add": [s(x(2, 3), x(3), alpha=2), s(x(2, 3), 1.5), s(x(2, 3), 2), s(x(2, 3), True)],
    "sub": [s(x(2, 3), x(3), alpha=2), s(x(2, 3), 1.5), s(x(2, 3), 2)],
    "rsub": [s(x(2, 3), 2, alpha=3), s(x(2, 3), x(3))],
    "mul": [s(x(2, 3), 1.5), s(x(2, 3), 2), s(x(2, 3), 1.5j)],
    "div": [s(x(2, 3), 1.5), s(x(2, 3), x(3), rounding_mode="floor"), s(x(2, 3), x(3), rounding_mode="trunc"),
            s(x(2, 3), 2, rounding_mode="floor"), s(x(2, 3), 2, rounding_mode="ceil")],
    "floor_divide": [s(x(2, 3), 2), s(x(2, 3), 0.7)],
    "remainder": [s(x(2, 3), x(3)), s(2, x(3)), s(x(2, 3), 2)], "fmod": [s(x(2, 3), x(3)), s(x(2, 3), 2)],
    "pow": [*[s(x(2, 3), e) for e in (2, 0, -1, 0.5, 1.5)], s(X((2, 3), (0.2, 2)), x(2, 3)), s(X((2, 3), (0.2, 2)), x(3)), s(2, x(2, 3)),
            s(1.5, x(2, 3)), s(x(2, 3), A([2, -1, 0]))],
    "float_power": [s(X((2, 3), (0.2, 2)), 3), s(X((2, 3), (0.2, 2)), x(3)), s(2, x(2, 3))],
    "square": _ONE, "reciprocal": _ONE, "positive": _ONE,
    "clamp": [s(x(2, 3), 0.3), s(x(2, 3), max=0.3), s(x(2, 3), x(3), x(2, 1)), s(x(2, 3), max=x(2, 3)), s(x(2, 3), -1, 1),
              s(x(2, 3), 1, -1),
              s(x(2, 3)), s(x(2, 3), x(3), 1.0)],
    "clamp_min": [s(x(2, 3), x(3))], "clamp_max": [s(x(2, 3), x(3))],
    "nan_to_num": [s(x(2, 3)), s(A([nan, inf, -inf, 1.0], None), 0.5, 7.0, -7.0), s(A([nan, inf, -inf, 1.0], None))],
    "lerp": [s(x(2, 3), x(3), x(2, 1)), s(x(2, 3), x(2, 3), 0.7), s(x(2, 3), x(2, 3), 0.5)],
    "addcmul": [s(x(2, 3), x(3), x(2, 1), value=0.5)], "addcdiv": [s(x(2, 3), x(3), x(2, 1), value=0.5)],
    "round": [s(x(2, 3), decimals=1), s(x(2, 3), decimals=-1)],
    "where": [s(m(2, 3), x(2, 3), x(3)), s(m(3), x(2, 3), 0.5), s(m(3), 0.5, x(3)), s(m(2, 3)), s(m(3), 1, 2), s(x(3), x(3), x(3))],
    "Tensor.where": [s(x(2, 3), m(2, 3), x(3)), s(x(2, 3), m(3), 0.5)],
    "masked_fill": [s(x(2, 3), m(3), x()), s(x(2, 3), m(2, 3), 1), s(x(2, 3), m(2, 3), x(1))],
    "prelu": [s(x(2, 3), x(1)), s(x(2, 3, 2), x(3)), s(x(2, 3), x(2))],
    "F.leaky_relu": [s(x(2, 3), 0.2), s(x(2, 3), -0.2)], "F.elu": [s(x(2, 3), 0.7)],
    "F.gelu": [s(x(2, 3), approximate="tanh"), s(x(2, 3), approximate="no")],
    "F.softplus": [s(x(2, 3), 2, 1)], "F.hardtanh": [s(x(2, 3), -0.3, 0.4)], "F.softshrink": [s(x(2, 3), 0.3), s(x(2, 3), -0.3)],
    "hardshrink": [s(x(2, 3), 0.3)], "celu": [s(x(2, 3), 0.7), s(x(2, 3), 0.0)], "threshold": [s(x(2, 3), 1, 2)], "selu": _ONE,
    "F.relu6": _ONE,
    "F.softsign": _ONE, "F.tanhshrink": _ONE,
    "polygamma": [s(0, x(2, 3)), s(2, X((2, 3), (0.3, 2)))], "Tensor.polygamma": [s(X((2, 3), (0.3, 2)), 1)],
    "logit": [s(X((2, 3), (-0.2, 1.2)), 0.1)], "heaviside": _TWO, "nextafter": _TWO,
    "ldexp": [s(x(2, 3), A([1, 0, 3])), s(x(2, 3), x(3))],      # PyTorch takes 2 ** -2 for 0 in a gradient
    "copysign": [s(x(2, 3), -1.0)], "atan2": [s(x(2, 3), x(3))],
    "isclose": [s(x(2, 3), x(3)), s(x(2, 3), x(3), 0.5, 0.1, True)], "allclose": [s(x(2, 3), x(3)), s(x(2, 3), x(2, 3), 1e3)],
    "equal": [s(x(2, 3), x(2, 3)), s(x(2, 3), x(3))],
    "eq": [s(x(2, 3), 1)], "logical_and": [s(x(2, 3), x(3))], "bitwise_left_shift": [s(x(2, 3), 1)],
    "bitwise_and": [s(x(2, 3), 1), s(x(2, 3), True)],
    "complex": [s(x(2, 3), x(3))], "polar": [s(X((2, 3), (0.1, 2)), x(3))],
    "view_as_real": _ONE, "view_as_complex": [s(x(3, 2)), s(x(2, 3))], "real": _ONE, "imag": _ONE, "resolve_conj": _ONE,
    "resolve_neg": _ONE,
    "Tensor.__rtruediv__": [s(x(2, 3), 2), s(x(2, 3), 1.5)], "Tensor.__rpow__": [s(x(2, 3), 2), s(x(2, 3), 1.5)],
    "Tensor.__rfloordiv__": [s(x(2, 3), 2)], "Tensor.__rmod__": [s(x(2, 3), 2)], "Tensor.__rmatmul__": [s(x(3, 4), x(2, 3))],
    # reductions
    "sum": [*_REDUCE, s(x(3, 4), 1, dtype=D("float64")), s(x(3, 4), dtype=D("float64"))],
    "mean": [*_REDUCE, s(x(3, 4), 1, dtype=D("float64"))],
    "nansum": [*_REDUCE, s(A([1.0, nan], None))], "nanmean": [*_REDUCE, s(A([1.0, nan], None))], "amax": _REDUCE, "amin": _REDUCE,
    "max": [*_ONE_DIM, s(x(2, 3), x(3))], "min": [*_ONE_DIM, s(x(2, 3), x(3))], "argmax": _ONE_DIM, "argmin": _ONE_DIM, "median": _ONE_DIM,
    "nanmedian": [*_ONE_DIM, s(A([[1.0, nan, 3.0], [nan, nan, nan]], None), 1)],
    "aminmax": [s(x(3, 4)), s(x(3, 4), dim=1), s(x(2, 3), dim=0, keepdim=True)],
    "all": _REDUCE, "any": _REDUCE, "count_nonzero": [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), (0, 2))],
    "var": _SPREAD, "std": _SPREAD, "var_mean": _SPREAD, "std_mean": _SPREAD,
    "logsumexp": [s(x(3, 4), 1), s(x(2, 3, 4), (0, 2), keepdim=True), s(x(), 0)],
    "linalg.vector_norm": [s(x(3, 4)), *[s(x(3, 4), o, 1) for o in (0, 1, 2, 3, 0.5, -1, inf, -inf)], s(x(2, 3, 4), 2, (0, 2), True),
                           s(x(3, 4), dtype=D("float64"))],
    "norm": [s(x(3, 4)), s(x(3, 4), 1, 1), s(x(3, 4), "fro", (0, 1)), s(x(3, 4), "nuc"), s(x(3, 4), inf, 0, True), s(x(3, 4), 3),
             s(x(3, 4), 0, 0)],
    "prod": [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), -2, keepdim=True), s(x(3, 4), 1, dtype=D("float64")),
             s(A([[0.0, 2.0], [0.0, 0.0]], None), 1), s(x())],
    "cumsum": [*_ALONG, s(x(3, 4), 0, dtype=D("float64"))], "cumprod": [*_ALONG, s(A([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]], None), 1)],
    # softmax and what normalises
    "softmax": _SOFT, "log_softmax": _SOFT, "F.softmax": _SOFT, "F.log_softmax": _SOFT, "F.softmin": _SOFT,
    "F.layer_norm": [s(x(3, 4), (4,), x(4), x(4)), s(x(2, 3, 4), (3, 4)), s(x(3, 4), (4,), None, x(4)), s(x(3, 4), (3,))],
    "F.batch_norm": [s(x(5, 3), None, None, x(3), x(3), True), s(x(2, 3, 4), None, None, training=True),
                     s(x(2, 3), x(3, grad=False), X((3,), (0.5, 2), False), x(3), x(3)),
                     s(x(5, 3), x(3, grad=False), X((3,), (0.5, 2), False), training=True)],
    "F.group_norm": [s(x(3, 4, 2), 2, x(4), x(4)), s(x(3, 6), 2), s(x(3, 4), 3)],
    "F.instance_norm": [s(x(2, 3, 4)), s(x(2, 3, 4), None, None, x(3), x(3)), s(x(2, 3))],
    "rms_norm": [s(x(3, 4), (4,), x(4)), s(x(2, 3, 4), (3, 4)), s(x(3, 4), (3,))],
    "F.normalize": [s(x(3, 4)), s(x(3, 4), 1.0, 0)], "cosine_similarity": [s(x(3, 4), x(3, 4)), s(x(3, 4), x(4), -1)],
    # shapes
    "Tensor.view": [s(x(3, 4), 4, 3), s(x(3, 4), (2, -1)), s(x(3, 4), 5, 2), s(x(2, 3), D("int32"))],
    "reshape": [s(x(3, 4), (4, -1)), s(x(3, 4), (5, 2)), s(x(), (1, 1))],
    "Tensor.view_as": [s(x(3, 4), x(4, 3))], "Tensor.reshape_as": [s(x(3, 4), x(4, 3))],
    "flatten": [s(x(2, 3, 4)), s(x(2, 3, 4), 1), s(x(2, 3, 4), 0, 1), s(x()), s(x(2, 3), 1, 0)],
    "unflatten": [s(x(3, 4), 1, (2, -1)), s(x(3, 4), 0, (2, 2))],
    "ravel": [s(x(3, 4)), s(x())], "Tensor.expand": [s(x(3, 1), 2, 3, 4), s(x(3, 1), (-1, 4)), s(x(3), 4)],
    "Tensor.expand_as": [s(x(3, 1), x(2, 3, 4))],
    "broadcast_to": [s(x(3, 1), (2, 3, 4)), s(x(3), (4,))], "broadcast_tensors": [s(x(3, 1), x(4)), s(x(3), x(4))],
    "broadcast_shapes": [s((3, 1), (4,)), s((3,), (4,))], "Tensor.sum_to_size": [s(x(3, 4), 3, 1), s(x(3, 4), 2)],
    "t": [s(x(3, 4)), s(x(3)), s(x(2, 3, 4))], "transpose": [s(x(2, 3, 4), 0, -1), s(x(), 0, -1), s(x(3), 0, 1)],
    "permute": [s(x(2, 3, 4), (2, 0, 1)), s(x(2, 3), (0, 0)), s(x(), ())], "Tensor.T": [s(x(3, 4))], "Tensor.mT": [s(x(2, 3, 4)), s(x(3))],
    "Tensor.H": [s(x(3, 4))], "Tensor.mH": [s(x(2, 3, 4)), s(x(3))],
    "movedim": [s(x(2, 3, 4), 0, 2), s(x(2, 3, 4), (0, 1), (2, 0)), s(x(2, 3), 0, 2)],
    "squeeze": [s(x(3, 1, 1)), s(x(3, 1, 1), 1), s(x(3, 1, 1), (1, 2)), s(x(3, 4), 0), s(x(), 0)],
    "unsqueeze": [s(x(3, 4), 1), s(x(3, 4), -3), s(x(3, 4), 3)],
    "atleast_1d": [s(x()), s(x(2), x())], "atleast_2d": [s(x(3)), s(x())], "atleast_3d": [s(x(3, 4)), s(x(3)), s(x())],
    **{name: [s(x(2, 3, 4)), s(x(3))] for name in ("clone", "Tensor.contiguous")},
    "Tensor.as_strided_": [s(x(12), (2, 3), (1, 2), 1)], "Tensor.squeeze_": [s(x(3, 1))], "Tensor.unsqueeze_": [s(x(3, 4), 0)],
    "Tensor.transpose_": [s(x(3, 4), 0, 1)],
    "Tensor.t_": [s(x(3, 4))],
    # parts
    "select": [s(x(3, 4), 1, 2), s(x(3, 4), 0, -1), s(x(3, 4), 0, 3), s(x(), 0, 0)],
    "narrow": [s(x(3, 4), 1, 1, 2), s(x(3, 4), 0, -2, 1), s(x(3, 4), 1, 3, 2)],
    "unbind": [s(x(3, 4)), s(x(3, 4), 1), s(x())], "split": [s(x(5, 4), 2), s(x(3, 4), (1, 3), 1), s(x(3, 4), (1, 1), 1)],
    "split_with_sizes": [s(x(3, 4), (1, 3), 1)], "chunk": [s(x(5, 4), 2), s(x(3, 4), 3, 1), s(x(3, 4), 0)],
    "tensor_split": [s(x(5, 4), 2), s(x(3, 4), (1, 3), 1)],
    "hsplit": _SPLIT, "vsplit": _SPLIT, "dsplit": _SPLIT,
    "diagonal": [s(x(3, 4)), s(x(3, 4), 1), s(x(2, 3, 4), -1, 0, 2), s(x(3), 0)], "diagonal_copy": [s(x(3, 4), 1)],
    "diag_embed": [s(x(2, 3)), s(x(2, 3), 1, 0, 2)], "diagflat": [s(x(2, 3)), s(x(3), -1)], "diag": [s(x(3)), s(x(3, 4), 1), s(x(2, 3, 4))],
    "tril": [s(x(3, 4)), s(x(2, 3, 4), -1), s(x(3))], "triu": [s(x(3, 4)), s(x(2, 3, 4), 1), s(x(3))],
    "flip": [s(x(3, 4), (0,)), s(x(2, 3, 4), (0, -1)), s(x(3), (0, 0))], "fliplr": [s(x(3, 4)), s(x(3))], "flipud": [s(x(3, 4)), s(x())],
    "roll": [s(x(3, 4), 1), s(x(3, 4), (1, -2), (0, 1)), s(x(3, 4), 1, 1)],
    "Tensor.repeat": [s(x(3, 2), 2, 1, 2), s(x(3, 2), 2), s(x(2, 2), 0, 1)],
    "tile": [s(x(3, 2), (2,)), s(x(3), (2, 2))], "repeat_interleave": [s(x(3, 2), 2), s(x(3, 2), 2, 1), s(x(3, 2), A([1, 0, 2]), 0),
                                                                       s(A([1, 0, 2]))],
    "rot90": [s(x(3, 4)), s(x(2, 3, 4), 2, (0, 2)), s(x(3, 4), 3), s(x(3))],
    "select_scatter": [s(x(3, 4), x(3), 1, 2)], "slice_scatter": [s(x(3, 4), x(2, 4), 0, 1, 3), s(x(3, 4), x(3, 2), 1, 0, 4, 2)],
    "diagonal_scatter": [s(x(3, 3), x(3)), s(x(3, 4), x(3), 1)], "Tensor.unfold": [s(x(3, 4), 1, 2, 1), s(x(5), 0, 3, 2), s(x(3), 0, 4, 1)],
    "as_strided": [s(x(12), (2, 3), (1, 2), 1), s(x(12), (3, 2), (2, 1)), s(x(3, 4), (3,), (5,))],
    # joins
    "cat": [s([x(3, 4), x(3, 2), x(3, 1)], 1), s([x(2, 3), x(1, 3)]), s([x(2, 3), x(2, 4)]), s([x(), x()])],
    "stack": [s([x(3, 4), x(3, 4)], 1), s([x(), x()]), s([x(3), x(4)])], "hstack": [s([x(3), x(2)]), s([x(2, 3), x(2, 1)]), s([x(), x()])],
    "vstack": [s([x(3), x(3)]), s([x(2, 3), x(1, 3)])], "dstack": [s([x(3), x(3)]), s([x(2, 3), x(2, 3)])],
    "column_stack": [s([x(3), x(3)]), s([x(3, 2), x(3)])], "meshgrid": [s(x(3), x(2), indexing="ij"), s(x(3), x(), indexing="xy")],
    "block_diag": [s(x(2, 3), x(2), x())], "cartesian_prod": [s(x(3), x(2)), s(x(3))],
    # sorting
    "sort": [*_SORT, s(x(3, 4), stable=True, dim=1)], "argsort": _SORT, "msort": [s(x(3, 4)), s(x())],
    "topk": [s(x(3, 4), 2), s(x(3, 4), 2, 0, False), s(x(3, 4), 5), s(x(), 1)],
    # indices
    "gather": [s(x(3, 4), 1, i(4, 3, 2)), s(x(3, 4), 0, A([[2, 0], [-1, 1]])), s(x(3, 4), 0, A([[3]])), s(x(), 0, A(0)),
               s(x(3, 4), 0, A([0]))],
    "scatter": [*_SCATTER[1:], s(x(3, 4), 1, A([[0, 3], [1, 2], [2, 0]]), x(3, 2)), s(x(3, 4), 1, A([[0, 3], [1, 2], [2, 0]]), 0.5),
                s(x(3, 4), 1, i(4, 3, 2), x(3, 2, grad=False), reduce="add"),
                s(x(3, 4, grad=False), 1, i(4, 3, 2), 1.5, reduce="multiply")],
    "scatter_add": _SCATTER, "take_along_dim": [s(x(3, 4), i(4, 3, 1), 1), s(x(3, 4), A([5, 0, 11])), s(x(3, 4), A([12]))],
    "index_select": [s(x(3, 4), 1, A([3, 1, 1])), s(x(3, 4), 0, A([-1])), s(x(), 0, A([0])), s(x(3), 0, A([[0]]))],
    "index_add": [*_PUT, s(x(3, 4), 0, A([2, 0, 2]), x(3, 4), alpha=2)], "index_copy": _PUT,
    "index_fill": [s(x(3, 4), 0, A([2, 0]), 2.0), s(x(3, 4), 1, A([-1]), x()), s(x(3, 4), 0, A([3]), 1)],
    "index_put": [s(x(3, 4), [A([0, 2])], x(2, 4)), s(x(3, 4), [A([0, 0]), A([1, 1])], x(2), True), s(x(3, 4), [m(3, 4)], x()),
                  s(x(3, 4), [A([3])], x()), s(x(3, 4), [A([0, 1, 1], "uint8")], x(2, 4)), s(x(3, 4), [A([0, 1, 1], "uint8")], x(), True),
                  s(x(3, 4), [A([1, 0])], x(4)), s(x(3, 4), [A([1, 0], "int16")], x(4), True)],
    "masked_select": [s(x(3, 4), m(3, 4)), s(x(3, 4), m(4)), s(x(), m())], "nonzero": [s(x(3, 4)), s(x(3, 4), as_tuple=True), s(x())],
    "argwhere": [s(x(3, 4))],
    "masked_scatter": [s(x(3, 4), m(3, 4), x(12)), s(x(3, 4), m(3, 4), x(1))],
    "take": [s(x(3, 4), A([0, 5, 5, -1])), s(x(3, 4), A([12])), s(x(3, 4), A([[1]]))],
    "Tensor.__getitem__": [s(x(3, 4), 1), s(x(3, 4), (slice(1, None), slice(None, None, 2))), s(x(2, 3, 4), (..., None, -1)),
                           s(x(3, 4), A([2, 0, 2])),
                           s(x(3, 4), (A([0, 2]), A([1, 1]))), s(x(3, 2, 4), (A([0, 2]), slice(None), A([1, 3]))), s(x(3, 4), m(3, 4)),
                           s(x(3, 4), m(3)),
                           s(x(3, 4), 3), s(x(3, 4), A([3])), s(x(), ...), s(x(3, 4), True)],
    "Tensor.__setitem__": [s(x(3, 4), 1, x(4)), s(x(3, 4), (slice(1, None), slice(None, None, 2)), x(2, 1)), s(x(3, 4), A([2, 0]), x(4)),
                           s(x(3, 4), m(3, 4), 0.5),
                           s(x(3, 4), m(3, 4), x()), s(x(3, 4), (A([0, 0]), A([1, 2])), x(2)), s(x(3, 4), 3, 1.0)],
    "Tensor.copy_": [s(x(3, 4), x(4)), s(x(3, 4), x(2))], "fill": [s(x(3, 4), 0.5), s(x(3, 4), x()), s(x(3), x(1))],
    "Tensor.zero_": [s(x(3, 4))],
    # random numbers, where they are not
    "bernoulli": [s(A([0.0, 1.0, 1.0], "float32")), s(p(3), 0.0)],
    "normal": [s(x(3, grad=False), 0.0), s(x(3, grad=False), A([0.0] * 3, "float64")), s(1.5, A([0.0] * 3, "float32"))],
    # not yet functions of a module of their own
    **{f"special.{name}": [s(X((2, 3), (0.1, 0.9)))] for name in ("entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri")},
    "special.xlog1py": [s(x(2, 3), X((3,), (0.1, 2)))],
    # products
    "mm": [s(x(3, 4), x(4, 2)), s(x(3, 4), x(3, 4)), s(x(3), x(3))], "mv": [s(x(3, 4), x(4)), s(x(3, 4), x(3))],
    "dot": [s(x(4), x(4)), s(x(4), x(3))],
    "vdot": [s(x(4), x(4)), s(x(2, 2), x(4))], "bmm": [s(x(2, 3, 4), x(2, 4, 2)), s(x(2, 3, 4), x(3, 4, 2))],
    "outer": [s(x(3), x(4)), s(x(2, 2), x(4))],
    "matmul": [s(x(3, 4), x(4, 2)), s(x(4), x(4)), s(x(3, 4), x(4)), s(x(4), x(4, 2)), s(x(2, 1, 3, 4), x(3, 4, 2)), s(x(2, 3, 4), x(4)),
               s(x(), x(4)),
               s(x(3, 4), x(3, 4))],
    "inner": [s(x(3, 4), x(2, 4)), s(x(4), x(4)), s(x(), x(3))],
    "tensordot": [s(x(2, 3, 4), x(3, 4, 2)), s(x(3, 4), x(2, 3), ([0], [1])), s(x(3), x(2), 0)],
    "addmm": [s(x(2), x(3, 4), x(4, 2), beta=0.5, alpha=2), s(x(3, 2), x(3, 4), x(4, 2)), s(x(3, 2), x(3, 4), x(4, 2), beta=0)],
    "addmv": [s(x(3), x(3, 4), x(4), beta=0.5, alpha=2), s(x(), x(3, 4), x(4))],
    "addr": [s(x(3, 4), x(3), x(4), beta=0.5, alpha=2), s(x(), x(3), x(4))],
    "baddbmm": [s(x(2, 3, 2), x(2, 3, 4), x(2, 4, 2), beta=0.5, alpha=2), s(x(2), x(2, 3, 4), x(2, 4, 2))],
    "addbmm": [s(x(3, 2), x(2, 3, 4), x(2, 4, 2), beta=0.5, alpha=2), s(x(3, 2), x(2, 3, 4), x(2, 4, 2))],
    "trace": [s(x(3, 4)), s(x(3))], "kron": [s(x(2, 2), x(2, 3)), s(x(2), x(3, 2))],
    "chain_matmul": [s(x(2, 3), x(3, 4), x(4, 2)), s(x(2, 3))],
    "einsum": [s("bij,bkj->bik", x(2, 3, 4), x(2, 2, 4)), s("ii", x(3, 3)), s("ij,jk,k", x(2, 3), x(3, 4), x(4)), s("...i->...", x(2, 3)),
               s("ij->ji", x(2)),
               s("i,j->ij", x(2), x(3))],
    "linalg.inv": _SQUARE, "linalg.det": _SQUARE, "linalg.slogdet": _SQUARE, "logdet": [s(A([[2.0, 0.5], [0.5, 1.0]], None)), s(x(2, 3))],
    "linalg.solve": [s(x(3, 3), x(3, 2)), s(x(2, 2, 2), x(2)), s(x(3, 3), x(3)), s(x(3, 3), x(2, 3), left=False), s(x(2, 3), x(2))],
    "linalg.cholesky": [*each([s(x(3, 3)), s(x(2, 2, 2)), s(x(2, 2), upper=True)], _positive), s(A([[1.0, 2.0], [2.0, 1.0]], None)),
                        s(x(2, 3))],
    "cholesky": each([s(x(3, 3)), s(x(2, 2, 2), True)], _positive),
    "linalg.eigh": [*each([s(x(3, 3)), s(x(2, 2, 2), "U")], _hermitian, _up_to_signs), s(x(2, 3))],
    "linalg.eigvalsh": each(_SQUARE[:2], _hermitian),
    "linalg.svd": [*each([s(x(3, 2), False), s(x(2, 2, 3), full_matrices=False)], None, _up_to_signs),
                   *each([s(x(3, 2))], None, lambda result: result.S), s(x(3))],
    "linalg.svdvals": [s(x(3, 2)), s(x(2, 2, 3)), s(x(3))],
    "linalg.matrix_norm": [s(x(3, 4)), *[s(X((3, 4), (-1, 2.3)), o) for o in ("nuc", 1, -1, 2, -2, inf, -inf, 3)],
                           s(x(2, 3, 4), "fro", (0, 2), True)],
    "linalg.norm": [s(x(3, 4)), s(x(3, 4), 1), s(x(3, 4), 1, 0), s(x(3), 3), s(x(3, 4), "nuc"), s(x(2, 3, 4), 2, (0, 1)), s(x(3), "fro")],
    # functional
    "F.linear": [s(x(3, 4), x(2, 4), x(2)), s(x(2, 3, 4), x(2, 4)), s(x(4), x(4)), s(x(3, 4), x(2, 3))],
    "bilinear": [s(x(5, 2), x(5, 3), x(4, 2, 3), x(4)), s(x(2), x(3), x(4, 2, 3), None)],
    "embedding": [s(x(3, 4), i(3, 2, 2)), s(x(3, 4), i(3, 2), 1), s(x(3, 4), A([0, 0, 2]), -1, True), s(x(3, 4), A([3]))],
    "F.embedding": [s(i(3, 2, 2), x(3, 4)), s(A([0, 2, 2]), x(3, 4), 2), s(A([0, 0, 2]), x(3, 4), None, None, 2.0, True),
                    s(A(-1), x(3, 4))],
    "F.one_hot": [s(i(3, 2, 2)), s(i(3, 4), 5), s(A([3]), 2), s(A([-1]))],
    "F.scaled_dot_product_attention": [s(x(2, 3, 4), x(2, 3, 4), x(2, 3, 4)), s(x(2, 3, 4), x(2, 5, 4), x(2, 5, 3), m(3, 5)),
                                       s(x(2, 3, 4), x(2, 3, 4), x(2, 3, 4), is_causal=True, scale=0.7),
                                       s(x(2, 3, 4), x(2, 5, 4), x(2, 5, 3), x(3, 5, grad=False))],
    "F.multi_head_attention_forward": [s(x(3, 2, 4), x(3, 2, 4), x(3, 2, 4), 4, 2, x(12, 4), x(12), None, None, False, 0.0, x(4, 4), x(4))],
    **{name: _DROPOUT for name in ("dropout", "F.dropout", "F.dropout1d", "F.alpha_dropout", "F.feature_alpha_dropout")},
    "F.dropout2d": [s(x(2, 3, 2, 2), *a.args[1:]) for a in _DROPOUT], "F.dropout3d": [s(x(2, 3, 2, 1, 2), *a.args[1:]) for a in _DROPOUT],
    # convolutions
    "conv1d": [s(x(2, 4, 6), x(3, 4, 3), x(3)), s(x(4, 7), x(4, 2, 3), x(4), 2, 1, 2, 2),
               s(x(2, 2, 5), x(4, 1, 2), padding="same", groups=2), s(x(1, 2, 5), x(3, 2, 3), None, 1, "valid"),
               s(x(2, 4, 6), x(3, 3, 3)), s(x(2, 4, 2), x(3, 4, 3))],
    "conv2d": [s(x(2, 3, 5, 4), x(2, 3, 3, 2), x(2)), s(x(2, 6, 5), x(4, 1, 3, 2), x(4), (2, 1), (1, 2), (1, 2), 2),
               s(x(1, 2, 4, 5), x(2, 2, 2, 3), padding="same", dilation=2), s(x(2, 3, 4, 4), x(2, 3, 1, 1)),
               s(x(1, 2, 4, 5), x(2, 2, 2, 3), None, 2, "same"), s(x(2, 3, 5, 4), x(2, 3, 3, 2), x(3))],
    "conv3d": [s(x(1, 2, 3, 4, 3), x(2, 2, 2, 2, 2), x(2)), s(x(2, 3, 4, 5), x(2, 1, 2, 2, 1), x(2), (1, 2, 1), 1, (1, 1, 2), 2),
               s(x(1, 2, 4, 4), x(2, 3, 2, 2, 2))],
    "conv_transpose1d": [s(x(2, 3, 4), x(3, 2, 3), x(2)), s(x(4, 4), x(4, 1, 3), x(2), 3, 1, 2, 2, 2), s(x(2, 3, 4), x(2, 3, 3)),
                         s(x(2, 3, 4), x(3, 2, 3), None, 2, 0, 2)],
    "conv_transpose2d": [s(x(2, 3, 3, 2), x(3, 2, 2, 3), x(2)), s(x(2, 3, 2), x(2, 2, 2, 3), x(4), (2, 3), (1, 0), (1, 2), 2, (2, 1)),
                         s(x(2, 3, 3, 2), x(3, 2, 2, 3), x(3))],
    "conv_transpose3d": [s(x(1, 2, 2, 3, 2), x(2, 3, 2, 2, 2), x(3)), s(x(2, 2, 2, 2), x(2, 1, 2, 1, 2), x(2), 2, 1, (1, 0, 1), 2)],
    "F.unfold": [s(x(2, 2, 4, 5), 2), s(x(2, 5, 4), (3, 2), (1, 2), 1, (2, 1)), s(x(2, 4), 2), s(x(2, 2, 3, 3), 4)],
    "F.fold": [s(x(2, 8, 6), (3, 4), 2), s(x(12, 15), (5, 4), (3, 2), (1, 2), 1, (2, 1)), s(x(12, 12), (5, 4), (3, 2), (1, 2), 1, (2, 1)),
               s(x(2, 7, 6), (3, 4), 2)],
    # pooling
    "max_pool1d": [*_POOL1, _DILATED1], "max_pool2d": [*_POOL2, _DILATED2], "max_pool3d": [*_POOL3, _DILATED3],
    "max_pool1d_with_indices": [*_POOL1, _DILATED1], "F.max_pool2d_with_indices": [*_POOL2, _DILATED2],
    "F.max_pool3d_with_indices": [*_POOL3, _DILATED3],
    "avg_pool1d": [*_POOL1, s(x(2, 3, 7), 3, 2, 1, True, False)],
    "F.avg_pool2d": [*_POOL2, s(x(1, 2, 5, 4), 3, 2, 1, True, False), s(x(1, 2, 5, 4), 2, divisor_override=3)],
    "F.avg_pool3d": [*_POOL3, s(x(1, 1, 4, 3, 4), 2, 2, 1, True, False), s(x(1, 1, 4, 3, 4), 2, divisor_override=3)],
    "F.lp_pool1d": [s(x(2, 3, 7), 2, 3), s(x(3, 6), 3, 2, 1), s(x(2, 3, 6), 2, 4, 3, True)],
    "F.lp_pool2d": [s(x(2, 2, 5, 4), 2, 2), s(x(2, 5, 4), 3, (3, 2), 1, True)],
    "F.lp_pool3d": [s(x(1, 2, 4, 3, 4), 2, 2), s(x(2, 4, 3, 4), 3, (3, 2, 2), 1, True)],
    "adaptive_avg_pool1d": _ADAPTIVE1, "F.adaptive_avg_pool2d": _ADAPTIVE2, "F.adaptive_avg_pool3d": _ADAPTIVE3,
    "adaptive_max_pool1d": _ADAPTIVE1,
    **{f"F.adaptive_max_pool{d}d{more}": given for d, given in enumerate((_ADAPTIVE1, _ADAPTIVE2, _ADAPTIVE3), 1)
       for more in ("", "_with_indices")},
    "F.max_unpool1d": [s(x(2, 2, 3), A([[[0, 3, 5], [1, 2, 4]]] * 2), 2), s(x(2, 2), A([[0, 3], [6, 2]]), 3, 2, 0, (7,)),
                       s(x(1, 2), A([[0, 9]]), 2)],
    "F.max_unpool2d": [s(x(1, 2, 2, 2), A([[[[0, 2], [9, 15]], [[1, 3], [8, 10]]]]), 2),
                       s(x(1, 2, 1), A([[[0], [7]]]), (2, 3), (2, 1), 0, (4, 3)), s(x(1, 1, 2), A([[[0, 99]]]), 2)],
    "F.max_unpool3d": [s(x(1, 1, 1, 2, 2), A([[[[[0, 2], [9, 31]]]]]), 2), s(x(1, 1, 1, 2), A([[[[0, 99]]]]), 2)],
    # padding and resizing
    "constant_pad_nd": [s(x(2, 3), (1, 2)), s(x(2, 3, 4), (1, -1, -1, 2), 0.5), s(x(2, 3), (0, 0)), s(x(2, 3), (1,)), s(x(2, 3), (-2, -2))],
    "F.pad": [s(x(2, 3), (1, 2)), s(x(2, 3, 4), (1, -1, 0, 2), "constant", 0.5), s(x(2, 3), (1, 1, 1, 1, 1, 1)),
              *[s(x(2, 3, 4), (2, 1), mode) for mode in ("reflect", "replicate", "circular")],
              *[s(x(3, 4, 5), (2, 1, 1, 3), mode) for mode in ("reflect", "replicate", "circular")],
              *[s(x(1, 2, 4, 3, 4), (2, 1, 1, 0, 3, -1), mode) for mode in ("reflect", "replicate", "circular")],
              *[s(x(2, 3, 4), (4, 5), mode) for mode in ("reflect", "replicate", "circular")], s(x(2, 3, 4), (1, 1), "mirror")],
    "F.interpolate": [*_RESIZED, *[s(*a.args, **a.kwargs, mode=mode) for mode in ("nearest-exact", "area") for a in _RESIZED[:4]],
                      *[s(x(1, 2, 4), size, mode="linear", align_corners=aligned) for size in (7, 3) for aligned in (False, True)],
                      *[s(x(1, 2, 3, 4), scale_factor=(1.7, 0.6), mode=mode, align_corners=aligned, recompute_scale_factor=again)
                        for mode in ("bilinear", "bicubic") for aligned in (False, True) for again in (None, True)],
                      *[s(x(1, 1, 2, 3, 2), (3, 2, 4), mode="trilinear", align_corners=aligned) for aligned in (False, True)],
                      s(x(1, 2, 4), 7, mode="bilinear"), s(x(1, 2, 4), 7, align_corners=True)],
    "F.upsample": _RESIZED[:4], "F.upsample_nearest": _RESIZED[:4], "F.upsample_bilinear": _RESIZED[1:4],
    "pixel_shuffle": _SHUFFLE, "pixel_unshuffle": _SHUFFLE, "channel_shuffle": _SHUFFLE,
    "F.glu": [s(x(3, 4)), s(x(2, 4, 3), 1), s(x(3, 3)), s(x())],
    "F.local_response_norm": [s(x(2, 4, 3), 3), s(x(1, 3, 2, 2), 2, 0.1, 0.5, 2.0), s(x(3, 4), 2)],
    # losses
    "F.mse_loss": [*_LOSS, s(x(3, 4), x(3, 4), reduction="mode")], "F.l1_loss": _LOSS,
    "F.smooth_l1_loss": [*_LOSS, s(x(3, 4), x(3, 4), beta=0.5)],
    "F.huber_loss": [*_LOSS, s(x(3, 4), x(3, 4), delta=0.5)],
    "F.binary_cross_entropy": [s(p(3, 4), p(3, 4)), s(p(3, 4), p(3, 4), p(4), reduction="none"), s(p(3, 4), p(3))],
    "F.binary_cross_entropy_with_logits": [s(x(3, 4), p(3, 4)), s(x(3, 4), p(3, 4), pos_weight=p(4, grad=False)),
                                           s(x(3, 4), p(3, 4), p(4, grad=False), reduction="sum"), s(x(3, 4), p(4))],
    "F.kl_div": [s(x(3, 4), p(3, 4)), s(x(3, 4), x(3, 4), reduction="batchmean", log_target=True), s(x(3, 4), p(3, 4), reduction="sum")],
    "F.nll_loss": [s(x(3, 4), A([1, 0, 3])), s(x(3, 4), A([1, -100, 3]), p(4, grad=False), reduction="none"),
                   s(x(2, 3, 2), A([[0, 1], [2, 0]])), s(x(4), A(1)),
                   s(x(3, 4), A([1, 0, 4])), s(x(3, 4), A([1, 0])), s(x(3, 4), A([-100] * 3))],
    "F.cross_entropy": [s(x(3, 4), A([1, 0, 3])), s(x(3, 4), A([1, 0, 3]), p(4, grad=False), label_smoothing=0.1), s(x(3, 4), p(3, 4)),
                        s(x(3, 4), p(3, 4), reduction="sum", label_smoothing=0.2), s(x(3, 4), A([1, 0, -100]), reduction="none"),
                        s(x(4), A(2))],
    "pairwise_distance": [s(x(3, 4), x(3, 4)), s(x(3, 4), x(4), 1.0, 1e-3, True), *[s(x(3, 4), x(3, 4), p) for p in (0.0, 3.0, inf)],
                          s(x(4), x(4)), s(x(3, 4), x(3, 3))],
    "F.margin_ranking_loss": [s(x(3), x(3), A([1, -1, 1])), *[s(x(3, 4), x(3, 4), _SIGNS, 0.5, reduction=r) for r in ("none", "sum")],
                              s(x(3), x(3, 4), _SIGNS)],
    "F.hinge_embedding_loss": [s(x(3, 4), _SIGNS), *[s(x(3, 4), _SIGNS, 0.5, reduction=r) for r in ("none", "sum")],
                               s(x(3, 4), A([1, -1]))],
    "F.cosine_embedding_loss": [s(x(3, 4), x(3, 4), A([1, -1, 1])), s(x(4), x(4), A(-1), -0.5),
                                *[s(x(3, 4), x(3, 4), A([1, -1, -1]), 0.1, reduction=r) for r in ("none", "sum")],
                                s(x(3, 4), x(3, 4), _SIGNS)],
    "F.triplet_margin_loss": [*_TRIPLE, s(x(3, 4), x(3, 4), x(3, 4), p=1.0, eps=1e-3)],
    "F.triplet_margin_with_distance_loss": [*_TRIPLE, s(x(3, 4), x(3, 4), x(3, 4), distance_function=lambda a, b: (a - b).abs().sum(-1))],
    "F.gaussian_nll_loss": [s(x(3, 4), x(3, 4), p(3, 4)), s(x(3, 4), x(3, 4), p(3), True, reduction="none"),
                            s(x(3, 4), x(3, 4), p(3, 1, grad=False), eps=0.5, reduction="sum"), s(x(3, 4), x(3, 4), 0.7),
                            s(x(3, 4), x(3, 4), x(3, 4)), s(x(3, 4), x(3, 4), p(2))],
    "F.poisson_nll_loss": [s(x(3, 4), p(3, 4)), s(p(3, 4), X((3, 4), (0.3, 5)), False, True, reduction="sum"),
                           s(x(3, 4), X((3, 4), (0.3, 5)), full=True, reduction="none"), s(x(3, 4), p(3))],
    "F.soft_margin_loss": [s(x(3, 4), _SIGNS), *[s(x(3, 4), x(3, 4, grad=False), reduction=r) for r in ("mean", "none", "sum")],
                           s(x(3, 4), x(3, grad=False))],
    "F.multilabel_soft_margin_loss": [s(x(3, 4), p(3, 4)), s(x(3, 4), p(3, 4), p(4), reduction="none"), s(x(4), p(4), reduction="sum"),
                                      s(x(3, 4), p(3))],
    "F.multi_margin_loss": [s(x(3, 4), A([1, 0, 3])), s(x(3, 4), A([1, 0, 3]), 2, 0.5, p(4, grad=False), reduction="none"),
                            s(x(4), A(2), reduction="sum"), s(x(3, 4), A([1, 0, 4])), s(x(3, 4), A([1, 0])), s(x(3, 4), A([1, 0, 3]), 3)],
    # conversions
    "Tensor.to": [s(x(2, 3), D("float32")), s(x(2, 3), D("complex128")), s(x(2, 3), dtype=D("int64")), s(x(2, 3), "cpu"),
                  s(x(2, 3), D("float64"), copy=True)],
    **{f"Tensor.{name}": _TO for name in ("cpu", "bool", "byte", "char", "short", "int", "long", "half", "bfloat16", "float", "double",
                                          "cfloat", "cdouble") if hasattr(torch.Tensor, name)},         # bfloat16: with the extra
    "Tensor.type_as": [s(x(2, 3), A([1])), s(x(2, 3), x())], "Tensor.type": [s(x(2, 3), D("float32"))],
}


# ------------------------------------------------------------------------------------------------------------ who needs a sample

def public():
    """{name by which users call it: record} of every record of the registry that users can call; one name is enough."""
    found, functions = {}, {r.function for r in REGISTRY.values()}
    for record in REGISTRY.values():
        own = (record.function, record.operator)
        functional = [f"F.{n}" for n, f in vars(torch.nn.functional).items()
                      if callable(f) and (f in own or REGISTRY.get(n) is record and f not in functions)]
        methods = [n for n, f in vars(torch.Tensor).items() if getattr(f, "fget", f) in own and n != "__pos__"]
        if record.is_function:
            names = [record.name]
        elif record.name.startswith("linalg_"):
            names = [record.name.replace("_", ".", 1)]
        elif record.inplace == "only":
            names = [f"Tensor.{record.name}_"]
        else:
            names = [n for n in functional if not n.startswith("F._")] or [f"Tensor.{n}" for n in methods]
        found.update(dict.fromkeys(names[:1], record))
    return found


def generated(record):
    """The samples of an elementwise op: operands of one shape, and operands that are broadcast."""
    given = ARGUMENTS.get(record.name, {})
    if any(r == PLAIN and n not in record.defaults and n not in given for n, r in record.roles.items()):
        return []
    tensors = [n for n in record.parameters if record.roles[n] != PLAIN]
    shapes = [[(2, 3)] * len(tensors), [(2, 1), (3,), ()][:len(tensors)]][:len(tensors)]
    order = inspect.signature(record.body).parameters
    return [Sample(tuple([M(shape) if n in BOOLEAN else X(shape, record.domain) for n, shape in zip(tensors, each, strict=True)]) if
                   list(order)[:len(tensors)] == tensors else (), dict(given) if list(order)[:len(tensors)] == tensors else
                   dict(zip(tensors, [X(shape, record.domain) for shape in each], strict=True)) | given) for each in shapes]


def samples():
    """{name: (record, its samples)} of all that users can call."""
    found = {}
    for name, record in public().items():
        first = SECOND_NAMES.get(name)
        made = generated(record) if isinstance(record, Op) and record.is_elementwise else []
        again = REGISTRY.get(first) if first else None
        if isinstance(again, Op) and again.is_elementwise:
            made += generated(again)
        if isinstance(record, Op) and any(target.endswith("_of_numbers") for target in record.divert.values()):
            made.append(s(1.5, 2.5))         # which PyTorch refuses
        found[name] = record, [*made, *SAMPLES.get(name, []), *(SAMPLES.get(first, []) if first else [])]
    for name in SAMPLES.keys() - found.keys() - {*SECOND_NAMES.values()}:
        found[name] = REGISTRY.get(name.rpartition(".")[2].strip("_")), SAMPLES[name]       # what has a record behind another face
    return {name: found[name] for name in sorted(found)}


# ------------------------------------------------------------------------------------------ elementwise ops, internal ones too

REFUSED = {"floor_divide", "heaviside", "remainder_of_number"}      # recorded without a derivative, as in PyTorch
COMPLEX = {"complex", "polar"}               # complex results of real operands: the operator sweep compares them with PyTorch
ELEMENTWISE = sorted(r.name for r in REGISTRY.values() if isinstance(r, Op) and r.is_elementwise and r.edges
                     and r.name not in REFUSED | COMPLEX)


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
