"""Calls an op with a sample and tells what came out: on PyTorch or on this package, on any device. See tests/test_ops.py."""
from __future__ import annotations

import contextlib
import warnings
from typing import NamedTuple

import numpy as np

from autograd_gpu.ops.namespace import OPS
from tests.samples import A, D, I, M, X

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-9, "complex128": 1e-9}
FLOATING = tuple(TOLERANCE)
FORMS = ("function", "method", "in-place")


class How(NamedTuple):
    """What a sample is called with."""

    dtype: str = "float64"
    form: str = "function"
    change: str = ""                         # one of CHANGES or EDGES
    orders: int = 1
    device: str = "cpu"
    left_out: frozenset = frozenset()        # edges that are not looked at
    forward: bool = False                    # look at tangents in place of gradients


# ------------------------------------------------------------------------------------------------------------------ operands

def _spread(shape, domain, turn):
    """Different numbers of a domain, in no order, none near a multiple of a half."""
    count, (low, high) = int(np.prod(shape)), domain
    found = np.random.RandomState(turn).permutation(np.linspace(low, high, count + 2)[1:-1]) + turn % 5 * 0.0027 * (high - low)
    return np.where(np.abs(found - np.round(found * 2) / 2) < 0.02, found + 0.043 * (high - low) / 4, found).reshape(shape)


def _of_dtype(values, dtype, turn):
    """The numbers as a dtype's: whole ones without 0, complex ones with an imaginary part."""
    if dtype == "bool":
        return values > np.median(values) if values.size > 1 else values > 0
    if dtype.startswith(("int", "uint")):
        whole = np.where(values < 0, -1, 1) * np.ceil(np.abs(values))
        return (np.abs(whole) if dtype[0] == "u" else whole).astype(np.int64)
    return values + 1j * _spread(values.shape, (-0.9, 0.9), turn + 50) if dtype.startswith("complex") else values


def _numbers(sample):
    """The numbers among the arguments, at which an op may bend."""
    return [float(v) for v in (*sample.args, *sample.kwargs.values()) if type(v) in (int, float) and abs(v) < 1e6]


def edges(dtype, numbers=()):
    """Values at which a function may differ from its neighbours."""
    info = np.finfo(dtype)
    return [0.0, -0.0, np.inf, -np.inf, np.nan, float(info.smallest_subnormal), float(info.max), float(-info.max), 1.0, -1.0, 0.5, -0.5,
            2.0, -2.5, 3.0, *numbers]


# What is done to a sample's operands: to their sizes, and to their values.
EDGES = ("edges", "strided edges")           # PyTorch computes in vectors where operands are contiguous, and gives something else for NaN
CHANGES = ("strided", "last empty", "first empty", "single", "scalar", "ties", "zeros", "nan", "inf")


def _sizes(sample, change):
    first = next((a for a in _leaves(sample) if isinstance(a, X)), None)
    if change == "scalar":
        return lambda shape: ()
    if change == "single":
        return lambda shape: (1,) * len(shape)
    if change in ("last empty", "first empty") and first is not None and first.shape:
        gone = first.shape[-1 if change == "last empty" else 0]
        return lambda shape: tuple([0 if n == gone else n for n in shape])
    return tuple


def _changed(values, change, dtype, index):
    """An operand's values, `index` of them first."""
    if change == "ties":
        return np.round(values)
    if change == "zeros":
        return values * 0
    if change in ("nan", "inf") and values.size:
        values = values.copy()
        flat = values.reshape(-1)
        for k, v in enumerate({"nan": [np.nan], "inf": [np.inf, -np.inf]}[change][:flat.size]):
            flat[(k + index) % flat.size] = v
    return values


def _leaves(sample):
    for a in (*sample.args, *sample.kwargs.values()):
        yield from a if isinstance(a, (list, tuple)) and not isinstance(a, (X, M, I, A, D)) else [a]


class Built:
    """A sample's arguments on one of the two packages."""

    def __init__(self, torch, sample, how):
        self.torch, self.how, self.turn, self.operands = torch, how, 0, []
        self.sizes = _sizes(sample, how.change)
        self.grid = None
        if how.change in EDGES:
            count = sum(isinstance(a, X) for a in _leaves(sample))
            values = [v for v in edges(how.dtype, _numbers(sample)) if v not in how.left_out]
            self.grid = iter([np.resize(g.ravel(), max(g.size, 64)) for g in np.meshgrid(*[values if count < 3 else values[:9]] * count)])
        self.args = [self.value(a) for a in sample.args]
        self.kwargs = {k: self.value(a) for k, a in sample.kwargs.items()}

    def call(self, function, sample, operands=None):
        """The function's result, with other operands in the place of the sample's if they are given."""
        args, kwargs = self.args, self.kwargs
        if operands is not None:
            given = {id(old): new for old, new in zip(self.operands, operands, strict=True)}

            def put(a):
                return type(a)(map(put, a)) if type(a) in (list, tuple) else given.get(id(a), a)
            args, kwargs = put(args), {k: put(a) for k, a in kwargs.items()}
        if sample.before:
            args = [sample.before(args[0]), *args[1:]]
        result = function(*args, **kwargs)
        return sample.after(result) if sample.after else result

    def value(self, a):
        torch = self.torch
        self.turn += 1
        if isinstance(a, X):
            return self.operand(a)
        if isinstance(a, M):
            shape = self.sizes(a.shape)
            return self.tensor(np.arange(int(np.prod(shape))).reshape(shape) % 2 == 0, "bool")
        if isinstance(a, I):
            shape = self.sizes(a.shape)
            return self.tensor(np.random.RandomState(self.turn).randint(0, a.n, shape), "int64")
        if isinstance(a, A):
            t = self.tensor(np.array(a.values), a.dtype or self.how.dtype)
            return self.leaf(t) if a.dtype is None else t
        if isinstance(a, D):
            return getattr(torch, a.name)
        if isinstance(a, (list, tuple)):
            return type(a)([self.value(b) for b in a])
        return a

    def operand(self, a):
        dtype, change = self.how.dtype, self.how.change
        if self.grid is not None:
            values = next(self.grid)
        else:
            values = _spread(self.sizes(a.shape), a.domain or (-2, 2), self.turn)
            if change:
                values = _changed(values, change, dtype, self.turn)
            values = _of_dtype(values, dtype, self.turn)
        t = self.tensor(values, dtype)
        if change in ("strided", "strided edges") and values.ndim:
            t = self.tensor(np.repeat(values.T, 2, -1), dtype)[..., ::2].permute(*range(values.ndim)[::-1])
        return self.leaf(t) if a.grad else t

    def tensor(self, values, dtype):
        t = self.torch.tensor(values.astype(np.float32) if dtype == "bfloat16" else values).to(getattr(self.torch, dtype))
        return t.to(self.how.device) if self.how.device != "cpu" else t

    def leaf(self, t):
        if self.how.dtype in FLOATING and self.how.orders:
            t = t.detach().requires_grad_()
            self.operands.append(t)
        return t


# ------------------------------------------------------------------------------------------------------------------ one call

def called(torch, name, form):
    """The function by which users reach an op in one of FORMS."""
    module, _, own = name.rpartition(".")
    if form == "in-place":
        method = getattr(torch.Tensor, own + "_")

        def write(x, *args, **kwargs):
            x = x * 1 if x.dtype != torch.bool else x | False        # no leaf
            return method(x, *args, **kwargs)
        return write
    if form == "method" or module == "Tensor":
        found = getattr(torch.Tensor, own)
        if own in ("__setitem__",) or own.endswith("_") and not own.endswith("__"):
            def write(x, *args):
                x = x.clone()
                found(x, *args)
                return x
            return write
        return found if callable(found) else found.__get__
    return getattr({"F": torch.nn.functional, "linalg": torch.linalg, "special": getattr(torch, "special", OPS), "": torch}[module], own)


def flat(result, tensor):
    if isinstance(result, tensor):
        return [result]
    return [t for r in result for t in flat(r, tensor)] if isinstance(result, (tuple, list)) else [result]


def weights(torch, t, turn):
    """A fixed cotangent for a result."""
    angle = np.arange(t.numel(), dtype=np.float64).reshape(tuple(t.shape)) + turn + 1
    w = torch.tensor(np.cos(angle) + (1j * np.sin(angle) if t.dtype.is_complex else 0)).to(t.dtype).to(t.device)
    return w.requires_grad_()


def _attempt(found, what, f):
    """f's result; where it raises, the error's type becomes what was found."""
    try:
        return f()
    except Exception as error:               # its type is the result
        found[what] = error
        return None


def tangents_of(torch, built, function, sample, only=None):
    """The tangents of a call's results, where every operand has one, or one of them, by its number."""
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x.detach(), weights(torch, x, n).detach()) if only in (None, n) else x.detach()
                 for n, x in enumerate(built.operands)]
        results = [r for r in flat(built.call(function, sample, duals), torch.Tensor) if isinstance(r, torch.Tensor)]
        return [forward_ad.unpack_dual(r).tangent for r in results]


def outcome(torch, name, sample, how=None, function=None):
    """{"result 0": tensor, "gradient 0": ..., "second 0": ...} of a call; an exception in the place of what raised it."""
    how = how or How()
    found = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        built = Built(torch, sample, how)
        result = _attempt(found, "result", lambda: built.call(function or called(torch, name, how.form), sample))
        if "result" in found:
            return found
        results = flat(result, torch.Tensor)
        found.update({f"result {n}": r for n, r in enumerate(results)})
        if how.forward:
            tangents = _attempt(found, "gradient", lambda: tangents_of(torch, built, function or called(torch, name, how.form), sample))
            return found | {f"tangent {n}": t for n, t in enumerate(tangents or ())}
        results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        found["recorded"] = len(results)
        if not results or not how.orders:
            return found
        ws = [weights(torch, r, n) for n, r in enumerate(results)]
        gradients = _attempt(found, "gradient", lambda: torch.autograd.grad(results, built.operands, ws, create_graph=how.orders > 1,
                                                                            allow_unused=True))
        found.update({f"gradient {n}": g for n, g in enumerate(gradients or ())})
        again = {n: g for n, g in enumerate(gradients or ()) if g is not None and g.requires_grad}
        if again and how.orders > 1:
            wanted, seeds = [*built.operands, *ws], [weights(torch, g, n) for n, g in again.items()]
            seconds = _attempt(found, "second", lambda: torch.autograd.grad([*again.values()], wanted, seeds, allow_unused=True))
            found.update({f"second {n}": g for n, g in enumerate(seconds or ())})
        return found


# ------------------------------------------------------------------------------------------------------------------ comparing

def plain(value):
    """(dtype, array) of a tensor; anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    dtype = str(value.dtype).rpartition(".")[2]
    t = value.detach().cpu()
    if dtype in ("bfloat16", "complex32"):
        t = t.float() if dtype == "bfloat16" else t.cfloat()
    return dtype, t.numpy(force=True)


MORE = ("Trying to use forward AD with", "not implemented for 'Half'", "not implemented for 'BFloat16'", "not supported for Half",
        "outputs with complex dtype", "inplace version of", "derivative for aten::", "is not currently implemented for",
        "returned an invalid gradient", "out of DATA bounds", "Expected grad_output to have non-zero size",
        "Expected a proper Tensor but got None", "select(): index 0 out of range", "may not be a boolean tensor",
        "Half, Float or Double tensors but got BFloat16", "view size is not compatible with input tensor's size and stride")


def _is_more(error):
    """Whether PyTorch raised for want of a kernel in half precision or of a derivative, which may be there here."""
    return any(words in str(error) for words in MORE)


def _kind(error):
    """The built-in type that an error is one of; None for what is no error."""
    return next((c for c in type(error).__mro__ if c.__module__ == "builtins"), None) if isinstance(error, Exception) else None


def differences(got, want, other=None, tolerance=None):
    """What is not the same in two outcomes, in words. `other`: a second outcome whose elements will do as well."""
    other = want if other is None else other
    for what in ("result", "gradient", "second"):
        a, b = got.get(what), want.get(what)
        if a is not None or b is not None:
            if _is_more(b) or str(getattr(want.get("result 0"), "dtype", "")) == "torch.complex32":
                return []
            return [] if a is not None and b is not None and issubclass(_kind(a), _kind(b)) else [f"{what}: {a!r:.200} for {b!r:.200}"]
    said = []
    for what in dict.fromkeys((*got, *want)):
        a, b, c = plain(got.get(what)), plain(want.get(what)), plain(other.get(what))
        if isinstance(a, tuple) or isinstance(b, tuple):
            said += [f"{what}: {text}" for text in _unlike(a, b, c, tolerance, 10 if what.startswith("second") else 1)]
        elif str(a).replace("torch.", "") != str(b).replace("torch.", ""):
            said.append(f"{what}: {a!r} for {b!r}")
    return said


def _unlike(a, b, c, tolerance, times):
    if not (isinstance(a, tuple) and isinstance(b, tuple)):          # None is a gradient of zeros
        there = a if isinstance(a, tuple) else b
        return [] if (a is None or b is None) and not there[1].any() else [f"{a!r:.80} for {b!r:.80}"]
    (other, a), (dtype, b) = a, b
    if dtype == "complex32":                 # which NumPy has not: half precision's complex numbers are complex64
        dtype, other = "float16", other.replace("complex64", "float16")
    if dtype != other or a.shape != b.shape:
        return [f"{other}{a.shape} for {dtype}{b.shape}"]
    rtol = (TOLERANCE.get(dtype, 0) if tolerance is None else tolerance.get(dtype, 0)) * times
    with np.errstate(all="ignore"):
        finite = np.abs(b[np.isfinite(b)]) if b.dtype.kind in "fc" else np.abs(b)
        least = rtol * min(max(finite.max(initial=0), 1), 1e3)
        same = np.isclose(a, b, rtol, least, equal_nan=True)
        if c is not b and isinstance(c, tuple) and c[1].shape == b.shape:
            same |= np.isclose(a, c[1], rtol, least, equal_nan=True)
    if np.all(same):
        return []
    at = tuple([int(k[0]) for k in np.nonzero(~same)]) if a.ndim else ()
    return [f"{a[at]} for {b[at]} at {at}, {int((~same).sum())} of {a.size}"]
