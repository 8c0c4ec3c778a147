"""Convolutions, transposed ones, unfold and fold beside PyTorch: values, derivatives of two orders, dtypes, errors, and how much memory."""
import itertools
import math
import tracemalloc

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.autograd import gradcheck, gradgradcheck
from autograd_gpu.ops import convolution
from tests.conftest import needs_bfloat16
from tests.parity import filled, result, said

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns or raises is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def drawn(*shape, dtype="float64", seed=0):
    rs = np.random.RandomState(seed)
    x = rs.randn(*shape)
    return (x + 1j * rs.randn(*shape) if dtype.startswith("complex") else x * 3 if dtype.startswith("int") else x).astype(dtype)


# ----------------------------------------------------------------------------------------------- values and derivatives

def derivatives(torch, name, arrays, options):
    """The result of an operation with the first and second derivatives for all its operands."""
    operands = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = getattr(torch.nn.functional, name)(*operands, **options)
    first = torch.autograd.grad((out * out * out).abs().sum(), operands, create_graph=True)
    return out, *first, *torch.autograd.grad(sum((g * g).abs().sum() for g in first), operands)


def case(seed):
    """(name, shapes of the operands, options) of a convolution that is drawn; some of them do not fit."""
    rs = np.random.RandomState(seed)
    dims, groups, transposed = rs.randint(1, 4), rs.randint(1, 4), rs.rand() < 0.5
    kernel, size = rs.randint(1, 4, dims), rs.randint(3, 8, dims)
    stride, padding, dilation = (tuple(map(int, rs.randint(low, high, dims))) for low, high in ((1, 4), (0, 3), (1, 3)))
    batch = [(), (1,), (2,), (3,)][rs.randint(4)]
    channels, out = groups * rs.randint(1, 3), groups * rs.randint(1, 3)
    options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    if transposed:
        options["output_padding"] = tuple([int(rs.randint(0, max(s, d))) for s, d in zip(stride, dilation, strict=True)])
    weight = (channels, out // groups) if transposed else (out, channels // groups)
    shapes = [(*batch, channels, *size), (*weight, *kernel), (out,)][:3 - (rs.rand() < 0.3)]
    return f"conv{'_transpose' if transposed else ''}{dims}d", [tuple(map(int, s)) for s in shapes], options


def compared(seed, oracle, close, dtype):
    name, shapes, options = case(seed)
    arrays = [drawn(*s, dtype=dtype, seed=seed + i) for i, s in enumerate(shapes)]
    try:
        theirs = derivatives(oracle, name, arrays, options)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="convolution"):
            derivatives(autograd_gpu, name, arrays, options)
        return
    for ours, expected in zip(derivatives(autograd_gpu, name, arrays, options), theirs, strict=True):
        scale = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
        close(ours / scale, expected / scale)
        assert ours.is_contiguous()


@pytest.mark.parametrize("seed", range(120))
def test_values_and_derivatives(seed, oracle, close):
    compared(seed, oracle, close, "complex128" if seed % 4 == 3 else "float64")


@pytest.mark.parametrize("bound", [1, 400, 3000])
@pytest.mark.parametrize("seed", range(0, 120, 6))
def test_blocks_give_the_same(seed, bound, oracle, close, monkeypatch):
    """A bound of one row of windows, of a few, and of a few samples."""
    monkeypatch.setattr(convolution, "BOUND", bound)
    compared(seed, oracle, close, "float64")


@pytest.mark.parametrize("seed", range(1, 120, 7))
def test_the_batch_in_either_place(seed, oracle, close, monkeypatch):
    for name in ("convolution_output", "convolution_input", "convolution_weight"):
        body = autograd_gpu.ops.namespace.REGISTRY[name].on_arrays(np)
        monkeypatch.setitem(body.__globals__, "batch_last", lambda batch, walk, out: seed % 2 == 0)
    compared(seed, oracle, close, "float64")


@pytest.mark.parametrize("seed", range(0, 120, 10))
def test_derivatives_by_differences(seed):
    torch = autograd_gpu
    name, shapes, options = case(seed)
    operands = [torch.tensor(drawn(*s, seed=i), requires_grad=True) for i, s in enumerate(shapes)]

    def f(*operands):
        return getattr(torch.nn.functional, name)(*operands, **options)
    assert gradcheck(f, operands, fast_mode=True) and gradgradcheck(f, operands, fast_mode=True)


def test_a_third_derivative(oracle, close):
    def run(torch):
        x, w = (torch.tensor(drawn(*s, seed=s[0]), requires_grad=True) for s in ((2, 1, 4, 4), (3, 1, 2, 2)))
        y = (torch.conv2d(x, w, padding=1) ** 4).sum()
        for _ in range(2):
            y = sum((g ** 2).sum() for g in torch.autograd.grad(y, (x, w), create_graph=True))
        return torch.autograd.grad(y, (x, w))
    for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
        scale = theirs.abs().max().item()
        close(ours / scale, theirs / scale)


@pytest.mark.parametrize("layout", ["transposed", "stepped", "expanded", "flipped"])
def test_operands_of_any_layout(layout, oracle, close):
    def run(torch):
        x, w = torch.tensor(drawn(2, 2, 6, 6), requires_grad=True), torch.tensor(drawn(4, 2, 3, 3), requires_grad=True)
        view = {"transposed": lambda t: t.transpose(2, 3), "stepped": lambda t: t[..., ::2, :],
                "expanded": lambda t: t[:, :, :1].expand(t.shape), "flipped": lambda t: t.flip(2)}[layout]
        y = torch.conv2d(view(x), view(w), padding=2)
        return y, *torch.autograd.grad(y, (x, w), (y * y).transpose(2, 3).contiguous().transpose(2, 3))
    for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 2), (2, 3), (3, 3), (4, 2)])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_same_padding(kernel, dilation, oracle, close):
    def run(torch):
        x, w = torch.tensor(drawn(2, 2, 5, 7), requires_grad=True), torch.tensor(drawn(3, 2, *kernel), requires_grad=True)
        y = torch.conv2d(x, w, padding="same", dilation=dilation)
        return y, *torch.autograd.grad((y * y).sum(), (x, w))
    for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("seed", range(30))
def test_unfold_and_fold(seed, oracle, close):
    rs = np.random.RandomState(seed)
    options = {n: tuple(map(int, rs.randint(low, high, 2))) for n, low, high in
               (("kernel_size", 1, 4), ("dilation", 1, 3), ("padding", 0, 3), ("stride", 1, 4))}
    size = tuple(map(int, rs.randint(5, 9, 2)))
    shape = (*[(2,), ()][seed % 2], 3, *size)

    def run(torch):
        x = torch.tensor(drawn(*shape, dtype="complex128" if seed % 5 == 4 else "float64"), requires_grad=True)
        columns = torch.nn.functional.unfold(x, **options)
        back = torch.nn.functional.fold(columns * columns, size, **options)
        first, = torch.autograd.grad((back * back).abs().sum(), x, create_graph=True)
        return columns, back, first, *torch.autograd.grad((first * first).abs().sum(), x)
    for ours, theirs in zip(run(autograd_gpu), run(oracle), strict=True):
        scale = max(1.0, float(theirs.detach().abs().max()))
        close(ours / scale, theirs / scale)


@program
def columns_are_no_view(torch):
    """Nor where the windows lie in memory as the columns do."""
    x = torch.arange(8.0).view(1, 2, 2, 2)
    found = [torch.nn.functional.unfold(x, 1), torch.nn.functional.unfold(x, 2), torch.nn.functional.unfold(x[0], 1)]
    x.zero_()
    return found


@program
def a_small_kernel_gives_no_view(torch):
    x, w = torch.arange(4.0).view(1, 1, 4), torch.ones(1, 1, 1)
    found = [torch.conv1d(x, w), torch.conv_transpose1d(x, w)]
    x.zero_()
    return found


# --------------------------------------------------------------------------------------------------------------- dtypes

CALLS = {"conv1d": ((2, 2, 5), (4, 2, 3)), "conv2d": ((2, 2, 5, 4), (4, 2, 3, 2)), "conv3d": ((1, 2, 4, 3, 3), (4, 2, 2, 2, 2)),
         "conv_transpose1d": ((2, 2, 5), (2, 3, 3)), "conv_transpose2d": ((2, 2, 3, 4), (2, 3, 2, 3)),
         "conv_transpose3d": ((1, 2, 2, 3, 3), (2, 3, 2, 2, 2))}
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", [*DTYPES, pytest.param("bfloat16", marks=needs_bfloat16)])
@pytest.mark.parametrize(("name", "options"), [*[(n, {}) for n in CALLS], ("conv2d", {"dilation": 2}), ("conv1d", {"padding": "same"})])
def test_dtype(name, options, dtype, oracle, close):
    """The same dtype and numbers, or error; half precision is added up in float32 and rounded once."""
    shapes = [(2, 2, 5, 5), (4, 2, 2, 2)] if "dilation" in options else CALLS[name]
    made = shapes[1][1] if "transpose" in name else shapes[1][0]

    def run(torch):
        operands = [torch.tensor(drawn(*s, dtype="int64" if dtype[0] in "iu" else "complex64" if dtype[0] == "c" else "float32", seed=i))
                    .to(getattr(torch, dtype)) for i, s in enumerate((*shapes, (made,)))]
        if operands[0].is_floating_point():
            operands = [t.requires_grad_() for t in operands]
        out = getattr(torch.nn.functional, name)(*operands, **options)
        if not operands[0].requires_grad:
            return [out]
        return [t.float() for t in (out, *torch.autograd.grad(out, operands, torch.ones_like(out)))], str(out.dtype)
    try:
        theirs = run(oracle)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="not implemented for"):
            run(autograd_gpu)
        return
    ours = run(autograd_gpu)
    assert ours[1:] == theirs[1:]
    for a, b in zip(ours[0], theirs[0], strict=True):
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5}.get(dtype, 0)
        scale = float(b.detach().abs().max()) if tolerance else 1
        assert tuple(a.shape) == tuple(b.shape) and str(a.dtype) == str(b.dtype)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance * scale)


def test_half_precision_is_rounded_once():
    torch = autograd_gpu
    x, w, b = (torch.tensor(drawn(*s, dtype="float16", seed=i)) for i, s in enumerate(((2, 50, 9), (3, 50, 5), (3,))))
    wide = torch.conv1d(x.float(), w.float(), b.float())
    assert (torch.conv1d(x, w, b) == wide.half()).all()


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32"])
def test_dtypes_of_unfold_and_fold(dtype, oracle):
    def run(torch):
        F = torch.nn.functional
        x = torch.tensor(drawn(1, 2, 4, 4, dtype="float32") > 0).to(getattr(torch, dtype))
        return F.unfold(x, 2), F.fold(F.unfold(x, 2), 4, 2)
    assert result(run, autograd_gpu) == result(run, oracle)


# ---------------------------------------------------------------------------------------- what is empty, and what is recorded

@program
def an_empty_batch(torch):
    found = []
    for name, (shape, weight) in CALLS.items():
        x, w = torch.ones(0, *shape[1:], requires_grad=True), torch.ones(weight, requires_grad=True)
        y = getattr(torch, name)(x, w, torch.ones(4 if "_" not in name else 3))
        found += [y, *torch.autograd.grad(y.sum(), (x, w))]
    return found


@program
def an_empty_batch_of_images(torch):
    x = torch.ones(0, 2, 4, 4, requires_grad=True)
    columns = torch.nn.functional.unfold(x, 3)
    y = torch.nn.functional.fold(columns, 4, 3)
    return columns, y, torch.autograd.grad(y.sum(), x)


@program
def names_of_nodes(torch):
    F = torch.nn.functional
    x, w, b = (torch.ones(s, requires_grad=True) for s in ((1, 2, 4, 4), (2, 2, 2, 2), (2,)))
    y = F.conv2d(x, w, b)
    gradients = torch.autograd.grad(y.sum(), (x, w, b), create_graph=True)
    columns = F.unfold(x, 2)
    node = y.grad_fn
    return (y, F.conv2d(x[0], w), F.conv_transpose2d(x, w), columns, F.fold(columns, 4, 2), F.unfold(x[0], 2),
            [g.grad_fn.name() for g in gradients[:2]], [type(f).__name__ for f, _ in node.next_functions],
            node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed, node._saved_output_padding,
            node._saved_groups, node._saved_input is x, node._saved_weight is w)


@program
def same_padding_is_one_node_where_both_sides_are_alike(torch):
    x, w = torch.ones(1, 1, 5, requires_grad=True), torch.ones(1, 1, 3)
    uneven = torch.conv1d(x, torch.ones(1, 1, 2), padding="same").grad_fn
    return torch.conv1d(x, w, padding="same").grad_fn.next_functions[0][0].name(), uneven.next_functions[0][0].name()


@pytest.mark.parametrize("what", ["input", "weight", "bias"])
@pytest.mark.parametrize("wanted", ["input", "weight", "bias"])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_an_operand_written_to_before_backward(name, wanted, what, oracle):
    def run(torch):
        operands = {n: torch.ones(s) for n, s in (("input", (1, 2, 3, 3)), ("weight", (2, 2, 2, 2)), ("bias", (2,)))}
        operands[wanted].requires_grad_()
        used = {n: t * 1 for n, t in operands.items()}
        y = getattr(torch, name)(**used).sum()
        used[what].mul_(2)
        y.backward()
        return operands[wanted].grad
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("wanted", [*itertools.product((False, True), repeat=3)])
def test_only_the_gradients_that_are_wanted(wanted, oracle):
    def run(torch):
        x, w, b = (torch.ones(s, requires_grad=r) for s, r in zip(((2, 1, 3), (2, 1, 2), (2,)), wanted, strict=True))
        y = torch.conv1d(x, w, b)
        if any(wanted):
            y.sum().backward()
        return y, x.grad, w.grad, b.grad
    assert result(run, autograd_gpu) == result(run, oracle)


# --------------------------------------------------------------------------------------------------------------- errors

X, W = "torch.ones(1, 2, 5, 5), ", "torch.ones(3, 2, 2, 2)"
ERRORS = {
    f"conv2d({X}{W}.double())": "", f"conv2d({X}{W}, torch.ones(3).half())": "bias type (",
    f"conv2d({X}{W}, torch.ones(4))": "expected bias to be 1-dimensional with 3 elements",
    f"conv2d({X}{W}, torch.ones(3, 1))": "expected bias to be 1-dimensional with 3 elements",
    "conv2d(torch.ones(1, 3, 5, 5), torch.ones(3, 2, 2, 2))": "to have 2 channels, but got 3 channels",
    f"conv2d(torch.ones(5, 5), {W})": "input to conv2d", f"conv2d(torch.ones(1, 1, 2, 5, 5), {W})": "input to conv2d",
    f"conv2d({X}torch.ones(3, 2, 2))": "", f"conv2d({X}torch.ones(()))": "weight",
    f"conv2d({X}torch.ones(3, 2, 7, 2))": "Kernel size can't be greater than actual input size",
    f"conv2d({X}torch.ones(3, 2, 0, 2))": "kernel size should be greater than zero",
    f"conv2d({X}torch.ones(0, 2, 2, 2))": "at dimension 0",
    "conv2d(torch.ones(1, 2, 0, 5), torch.ones(3, 2, 1, 1), padding=1)": "Only zero batch or zero channel inputs are supported",
    f"conv2d({X}{W}, padding=-1)": "negative padding", f"conv2d({X}{W}, stride=0)": "non-positive stride",
    f"conv2d({X}{W}, dilation=0)": "dilation should be greater than zero", f"conv2d({X}{W}, groups=0)": "non-positive groups",
    f"conv2d({X}torch.ones(3, 1, 2, 2), groups=2)": "divisible", f"conv2d({X}{W}, stride=())": "stride",
    f"conv2d({X}{W}, stride=(1, 1, 1))": "expected stride to be a single integer value or a list of 2 values",
    "conv1d(torch.ones(1, 2, 5), torch.ones(3, 2, 2), padding=(1, 1))": "expected padding to be a single integer value or a list of 1",
    f"conv2d({X}{W}, stride=1.0)": "", f"conv2d({X}{W}, stride=True)": "", f"conv2d({X}{W}, padding=None)": "", f"conv2d([1], {W})": "",
    f"conv2d({X}{W}, groups=2.0)": "", f"conv2d({X}{W}, groups=None)": "", f"conv2d({X}{W}, groups=True)": "",
    f"conv2d({X}{W}, [1.0, 2.0, 3.0])": "", f"conv2d({X}None)": "", f"conv2d({X}{W}, dilation='1')": "",
    f"conv2d({X}{W}, padding='foo')": "Invalid padding string",
    f"conv2d({X}{W}, padding='same', stride=2)": "padding='same' is not supported for strided convolutions",
    f"conv_transpose2d({X}torch.ones(2, 3, 2, 2), output_padding=1)": "output padding must be smaller than either stride or dilation",
    f"conv_transpose2d({X}torch.ones(2, 3, 2, 2), output_padding=-1)": "negative output_padding is not supported",
    "conv_transpose2d(torch.ones(1, 3, 5, 5), torch.ones(2, 3, 2, 2))": "to have 2 channels, but got 3 channels",
    f"conv_transpose2d({X}torch.ones(2, 3, 2, 2), torch.ones(4))": "expected bias to be 1-dimensional with 3 elements",
    "conv_transpose2d(torch.ones(1, 2, 1, 1), torch.ones(2, 3, 2, 2), padding=2)": "Output size is too small",
    "conv_transpose2d(torch.ones(1, 3, 5, 5), torch.ones(3, 3, 2, 2), groups=2)": "divisible",
    "unfold(torch.ones(1, 1, 2, 5, 5), 2)": "Expected 3D or 4D", "unfold(torch.ones(1, 0, 5, 5), 2)": "Expected 3D or 4D",
    f"unfold({X}6)": "calculated shape of the array of sliding blocks", f"unfold({X}0)": "kernel size should be greater than zero",
    f"unfold({X}2, 0)": "dilation should be greater than zero", f"unfold({X}2, padding=-1)": "padding should be non-negative",
    f"unfold({X}2, stride=0)": "stride should be greater than zero", f"unfold({X}(2, 2, 2))": "It is expected kernel_size equals to 2",
    f"unfold({X}2.0)": "", "unfold(torch.ones(1, 2, 5, 5).int(), 2)": "not implemented for",
    "fold(torch.ones(1, 8, 15), 5, 2)": "to match the calculated number of sliding blocks",
    "fold(torch.ones(1, 8, 1), 1, 2)": "to match the calculated number of sliding blocks",
    "fold(torch.ones(1, 7, 16), 5, 2)": "to be divisible by the product of kernel_size",
    "fold(torch.ones(16), 5, 2)": "Expected 2D or 3D", "fold(torch.ones(1, 8, 16), 5, 2, 1, -1)": "padding should be non-negative",
    "fold(torch.ones(1, 8, 16), (5,), 2)": "It is expected output_size equals to 2",
}


@pytest.mark.parametrize("call", ERRORS)
def test_error(call, oracle):
    """PyTorch's type and words."""
    ours, theirs = (said(lambda torch=torch: eval("torch.nn.functional." + call, {"torch": torch}), ERRORS[call])
                    for torch in (autograd_gpu, oracle))
    assert ours is not None and ours == theirs


MODULES = [
    "Conv2d(2, 3, 3)", "Conv2d(2, 4, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False, padding_mode='reflect')",
    "Conv1d(2, 3, 3, padding='same')", "Conv3d(2, 3, 3, padding='valid')", "ConvTranspose2d(2, 3, 3, stride=2, output_padding=1)",
    "ConvTranspose1d(2, 3, 3)", "ConvTranspose3d(2, 4, [3, 2, 1], padding=1, groups=2)", "Unfold(2)", "Fold((4, 4), 2)",
    "Unfold((2, 3), 1, 0, 2)",
    "Conv2d(3, 3, 3, groups=2)", "Conv2d(2, 3, 3, groups=2)", "Conv2d(2, 3, 3, groups=0)", "Conv2d(2, 3, 3, padding='foo')",
    "Conv2d(2, 3, 3, padding='same', stride=2)", "Conv2d(2, 3, 3, padding_mode='foo')", "ConvTranspose2d(2, 3, 3, padding_mode='reflect')",
    "Conv2d(2.0, 3, 3)", "Conv2d(-2, 3, 3)"]


@pytest.mark.parametrize("text", MODULES)
def test_module_as_it_prints_or_the_error(text, oracle):
    def run(torch):
        module = eval("torch.nn." + text, {"torch": torch})
        return repr(module), [(n, tuple(p.shape)) for n, p in module.state_dict().items()]
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("text", ["Conv2d(8, 32, 3)", "ConvTranspose1d(32, 16, 4, groups=2)", "Conv3d(4, 32, 2, groups=4)"])
def test_initial_values(text, oracle):
    """Spread evenly over PyTorch's interval."""
    for torch in (autograd_gpu, oracle):
        torch.manual_seed(0)                 # few values: their mean is further off now and then
    ours, theirs = (eval("torch.nn." + text, {"torch": torch}) for torch in (autograd_gpu, oracle))
    bound = 1 / math.sqrt(math.prod(theirs.weight.shape[1:]))
    for p in [*ours.parameters(), *theirs.parameters()]:
        assert 0.8 * bound < p.detach().abs().max().item() <= bound and abs(p.detach().mean().item()) < 0.3 * bound


@program
def a_weight_computed_for_each_call(torch):
    class Standardized(torch.nn.Conv1d):
        def forward(self, x):
            return self._conv_forward(x, self.weight - self.weight.mean((1, 2), keepdim=True), self.bias)
    return filled(torch, Standardized(2, 3, 2, padding=1))(torch.ones(1, 2, 4))


@pytest.mark.parametrize("size", [(8,), (2, 3, 8), (7,), (9,), (5,), (8, 8), None])
def test_a_size_asked_of_a_transposed_convolution(size, oracle):
    def run(torch):
        return filled(torch, torch.nn.ConvTranspose1d(2, 3, 3, stride=3))(torch.ones(2, 2, 2), size)
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# --------------------------------------------------------------------------------------------------------------- memory

@pytest.mark.parametrize("shape", [(32, 16, 64, 64), (1, 16, 512, 256)])
def test_the_unfolded_input_is_bounded(shape, monkeypatch):
    """All of it would take 72 MiB; a bound of 2 MiB leaves room for what else there is: results, a padded block."""
    torch = autograd_gpu
    monkeypatch.setattr(convolution, "BOUND", 2 << 20)
    x, w = torch.ones(shape, requires_grad=True), torch.ones(16, 16, 3, 3, requires_grad=True)
    size = x.numel() * 4
    tracemalloc.start()
    try:
        y = torch.conv2d(x, w, padding=1)
        forward = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        torch.autograd.grad(y, (x, w), y.detach())
        backward = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert forward < size + (6 << 20) and backward < 3 * size + (6 << 20)
