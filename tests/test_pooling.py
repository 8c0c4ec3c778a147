"""Pooling beside PyTorch: values, first and second derivatives, dtypes, NaN, modules, errors."""
import itertools
import pickle

import numpy as np
import pytest

import autograd_gpu
from tests.parity import result, said

WINDOWS = [(2,), (3, 2, 1), (3, 1, 1), (2, 2, 0, True), (3, 2, 1, True), (3, 5, 0, True), (1,), (5, 1, 2), (2, [])]        # ..., ceil_mode
SIZES = [1, 2, 3, 5, 7]                      # of 6: even windows, uneven ones, more of them than elements
ADAPTIVE = [("adaptive_max_pool", (n,)) for n in SIZES]


def call(torch, name, *args, **options):
    return lambda x: getattr(torch.nn.functional, name)(x, *args, **options)


def pool_calls(dims):
    """{what: (function's name, arguments)}"""
    found = {}
    for window in WINDOWS:
        kernel, stride, padding, ceil, *_ = (*window, *[None, 0, False][len(window) - 1:])
        for dilation in (1, 2):
            found[f"max {window} {dilation}"] = f"max_pool{dims}d", (kernel, stride, padding, dilation, ceil)
        found[f"avg {window}"] = f"avg_pool{dims}d", (kernel, stride, padding, ceil)
        found[f"avg {window} without padding"] = f"avg_pool{dims}d", (kernel, stride, padding, ceil, False)
    for n in SIZES:
        found[f"adaptive_avg {n}"] = f"adaptive_avg_pool{dims}d", (n,)
        found[f"adaptive_max {n}"] = f"adaptive_max_pool{dims}d", (n,)
    if dims > 1:
        found["avg divided by 3"] = f"avg_pool{dims}d", (2, None, 0, False, True, 3)
        found["max of sizes"] = f"max_pool{dims}d", ((2, 3, 1)[:dims], (1, 2, 3)[:dims], (1, 1, 0)[:dims])
        found["avg of sizes"] = f"avg_pool{dims}d", ((2, 3, 1)[:dims], (1, 2, 3)[:dims], (1, 1, 0)[:dims])
        found["adaptive_avg of sizes"] = f"adaptive_avg_pool{dims}d", ((None, 4, 1)[:dims],)
        found["adaptive_max of sizes"] = f"adaptive_max_pool{dims}d", ((None, 4, 1)[:dims],)
    return found


CASES = {f"{dims}d {what}": (dims, *found) for dims in (1, 2, 3) for what, found in pool_calls(dims).items()}


def twice(torch, f, array, dtype="float64"):
    """The result, its gradient and the gradient of that."""
    x = torch.tensor(array).to(getattr(torch, dtype)).requires_grad_()
    y = f(x * 1)
    weight = torch.tensor(np.random.RandomState(1).randn(*y.shape)).to(y.dtype)
    g, = torch.autograd.grad((y * y * weight).sum(), x, create_graph=True)
    h, = torch.autograd.grad((g * g).sum(), x)
    return y.grad_fn.name(), y.detach(), g.detach(), h


def agree(close, found, expected):
    assert found[0] == expected[0]
    for a, b in zip(found[1:], expected[1:], strict=True):
        close(a, b)


def drawn(*shape):
    return np.random.RandomState(0).randn(*shape)


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives(case, oracle, close):
    dims, name, args = CASES[case]
    for shape in ((2, 3, *[6] * dims), (3, *(7, 5, 6)[:dims]), (0, 2, *[6] * dims)):
        agree(close, *[twice(torch, call(torch, name, *args), drawn(*shape)) for torch in (autograd_gpu, oracle)])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_windows_of_nothing_but_padding(dims, oracle):
    """Their place is somewhere in the plane here; PyTorch's may lie outside of it."""
    def run(torch, dtype):
        x = torch.tensor(drawn(1, 2, *[1] * dims) * 9).to(getattr(torch, dtype))
        return getattr(torch.nn.functional, f"max_pool{dims}d")(x, 2, 1, 1, 2, return_indices=True)
    for dtype in ("float32", "float16", "int64")[:3 if dims > 1 else 2]:
        (found, at), (expected, _) = run(autograd_gpu, dtype), run(oracle, dtype)
        assert found.tolist() == expected.tolist() and not at.any(), dtype


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_places_of_the_maxima(dims, oracle, close):
    for name, args in [*[("max_pool", window) for window in ((2,), (3, 2, 1), (2, 1, 1, 2, True))], *ADAPTIVE]:
        def run(torch, name=name, args=args):
            x = torch.tensor(drawn(2, 3, *[6] * dims))
            return call(torch, f"{name}{dims}d", *args, return_indices=True)(x), call(torch, f"{name}{dims}d_with_indices", *args)(x)
        for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
            assert type(ours) is tuple
            close(ours[0], theirs[0])
            close(ours[1], theirs[1])


def special(*shape):
    rs = np.random.RandomState(3)
    return rs.choice([-2.0, -1, 0, 0, 1, 2, np.nan, -np.inf, -np.inf, -np.inf, np.inf], shape)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_ties_and_nan(dims, oracle, close):
    """The gradient goes to the first of equal maxima, or to the last NaN; what lies in the padding is never taken."""
    for name, args in [*[("max_pool", window) for window in ((2,), (3, 1, 1), (3, 2, 1), (2, 1, 1))], *ADAPTIVE]:
        def run(torch, name=name, args=args):
            x = torch.tensor(special(2, 3, *[6] * dims), requires_grad=True)
            y, places = call(torch, f"{name}{dims}d", *args, return_indices=True)(x)
            return y.detach(), places, *torch.autograd.grad(y, x, torch.ones_like(y))
        for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
            close(ours, theirs)
    for name, args in [("avg_pool", (2, 1, 1)), ("adaptive_avg_pool", (4,))]:
        close(*[call(torch, f"{name}{dims}d", *args)(torch.tensor(special(2, 3, *[6] * dims))) for torch in (autograd_gpu, oracle)])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_floating_dtypes(name, dtype, oracle, close):
    array = np.round(drawn(1, 2, 5, 5) * 4) / 4
    agree(close, twice(autograd_gpu, call(autograd_gpu, name, 2), array, dtype), twice(oracle, call(oracle, name, 2), array, dtype))


def test_other_dtypes(oracle):
    for name, dims, dtype in itertools.product(["max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"], [1, 2, 3], [
            "bool", "uint8", "int8", "int32", "int64", "complex64"]):
        def run(torch, name=name, dims=dims, dtype=dtype):
            x = torch.arange(-4, 4 ** dims * 2 - 4).view(2, *[4] * dims).to(getattr(torch, dtype))
            return getattr(torch.nn.functional, f"{name}{dims}d")(x, 2).tolist()
        expected = said(lambda run=run: run(oracle), "not implemented for")
        assert said(lambda run=run: run(autograd_gpu), "not implemented for") == expected
        assert expected or run(autograd_gpu) == run(oracle)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(dims, oracle, close):
    for n, options in ((6, {}), (7, {"output_size": (7,) * dims}), (7, {"output_size": (2, 3, *[7] * dims)}), (6, {"stride": 2})):
        def run(torch, n=n, options=options):
            x = torch.tensor(drawn(2, 3, *[n] * dims), requires_grad=True)
            y, places = call(torch, f"max_pool{dims}d", 2, return_indices=True)(x)
            u = getattr(torch.nn.functional, f"max_unpool{dims}d")(y, places, 2, **options)
            g, = torch.autograd.grad((u ** 3).sum(), x, create_graph=True)
            return u.grad_fn.name(), u.detach(), g.detach(), *torch.autograd.grad((g * g).sum(), x)
        agree(close, run(autograd_gpu), run(oracle))
    for torch in (autograd_gpu, oracle):
        y, unpool = torch.ones(1, *[2] * dims), getattr(torch.nn.functional, f"max_unpool{dims}d")
        with pytest.raises(RuntimeError, match="invalid max index"):
            unpool(y, y.long() * 100, 2)
        with pytest.raises(ValueError, match="invalid output_size"):
            unpool(y, y.long(), 2, output_size=(9,) * dims)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_lp_pool(dims, oracle, close):
    for p, options in itertools.product([1.0, 2.0, 3.0], [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "ceil_mode": True}]):
        f = [lambda x, torch=torch, p=p, options=options: getattr(torch.nn.functional, f"lp_pool{dims}d")(x * x + 1, p, **options)
             for torch in (autograd_gpu, oracle)]
        agree(close, twice(autograd_gpu, f[0], drawn(2, 3, *[5] * dims)), twice(oracle, f[1], drawn(2, 3, *[5] * dims)))


REFUSED = {
    "zero": ([0], 0, "zero"), "negative": ([-1], 0, "greater than zero"), "no stride": ([2, 0], 0, "zero"),
    "padding": ([2, 2, 2], 0, "at most half of"), "negative padding": ([2, 2, -1], 0, "must be non-negative"),
    "too large": ([7], 0, "kernel size|output size"), "too many": ([(2,) * 4], 0, "kernel_size"),
    "too many strides": ([2, (2,) * 4], 0, "stride"),
    "a float": ([2.0], 0, "must be tuple of ints, not float"), "None": ([None], 0, "must be tuple of ints, not NoneType"),
    "text": (["a"], 0, "must be tuple of ints, not str"), "few dimensions": ([2], -2, "xpected"), "many dimensions": ([2], 1, "xpected"),
    "empty": ([2], None, "xpected")}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_refusals(name, what, dims, oracle):
    args, more, words = REFUSED[what]
    shape = (2, 3, *[0] * dims) if more is None else (2, 2, 2, *[6] * dims)[1 - more:]
    found = [said(lambda torch=torch: getattr(torch.nn.functional, f"{name}{dims}d")(torch.ones(shape), *args), *words.split("|"))
             for torch in (autograd_gpu, oracle)]
    assert found[1] is not None and any(found[1][1]) and found[0] is not None and any(found[0][1])
    assert found[0][0] == found[1][0] or (name, what, dims) == ("avg_pool", "few dimensions", 2)      # an IndexError there, by chance


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", ["adaptive_avg_pool", "adaptive_max_pool"])
def test_adaptive_refusals(name, dims, oracle):
    for shape, size in (((2, 3, *[6] * dims), -1), ((2, 3, *[6] * dims), (2,) * (dims + 1)), ((6,) * dims, 2), ((1, 2, 3, *[6] * dims), 2),
                        ((2, 3, *[0] * dims), 2), ((2, 3, *[6] * dims), 2.0), ((2, 3, *[6] * dims), None)):
        words = ("output_size", "non-zero size", "xpected", "dimension")
        found = [said(lambda torch=torch, shape=shape, size=size: call(torch, f"{name}{dims}d", size)(torch.ones(shape)), *words)
                 for torch in (autograd_gpu, oracle)]
        assert found[0] is not None and found[0][0] == found[1][0]
        assert not any(found[1][1]) or any(a and b for a, b in zip(found[0][1], found[1][1], strict=True))


MODULES = ["MaxPool{}d(2)", "MaxPool{}d(3, 2, 1, 1, True, True)", "MaxPool{}d((3,) * {}, stride=(1,) * {}, dilation=2)",
           "AvgPool{}d(2)", "AvgPool{}d((3,) * {}, 2, 1, True, False)", "AdaptiveAvgPool{}d(3)", "AdaptiveMaxPool{}d(2)",
           "AdaptiveMaxPool{}d((2,) * {}, True)", "LPPool{}d(2, 3, stride=2)", "LPPool{}d(1.0, 2, ceil_mode=True)"]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("text", MODULES)
def test_modules(text, dims, oracle, close):
    def run(torch):
        module = eval("torch.nn." + text.replace("{}", str(dims)), {"torch": torch})
        out = module(torch.tensor(drawn(2, 3, *[6] * dims)))
        return repr(module), sorted(k for k in vars(module) if not k.startswith("_")), *(out if isinstance(out, tuple) else (out,))
    ours, theirs = run(autograd_gpu), run(oracle)
    assert ours[:2] == theirs[:2]
    for a, b in zip(ours[2:], theirs[2:], strict=True):
        close(a, b)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_module(dims, oracle, close):
    def run(torch):
        module = getattr(torch.nn, f"MaxUnpool{dims}d")(2, stride=2)
        return repr(module), module(*getattr(torch.nn, f"MaxPool{dims}d")(2, return_indices=True)(torch.tensor(drawn(2, 3, *[6] * dims))))
    ours, theirs = run(autograd_gpu), run(oracle)
    assert ours[0] == theirs[0]
    close(ours[1], theirs[1])


def test_names_beside_pytorchs(oracle):
    names = ["max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d",
             "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "max_unpool2d"]
    assert [hasattr(autograd_gpu, n) for n in names] == [hasattr(oracle, n) for n in names]
    for f in (autograd_gpu.max_pool2d, autograd_gpu.nn.functional.avg_pool2d, autograd_gpu.nn.functional.max_unpool1d):
        assert pickle.loads(pickle.dumps(f)) is f


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_sizes_for_any_number_of_dimensions(kind, dims, oracle):
    def run(torch, ndim, size):
        f = getattr(torch.nn.functional, f"adaptive_{kind}_pool{dims}d")
        return result(lambda torch: tuple(f(torch.ones((4,) * ndim), size).shape), torch, lambda shape: shape)
    for ndim in range(6):
        for size in (2, (2,) * dims, [None] * dims, (2,) * (dims + 1), (2,) * (dims - 1)):
            assert run(autograd_gpu, ndim, size) == run(oracle, ndim, size), (ndim, size)
