"""The pooling functions of nn.functional: what they take, checked, and the ops behind them."""
from __future__ import annotations

import math

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite
from autograd_gpu.ops.pooling import even_window

_WORDS = {1: "one int", 2: "a tuple of two ints", 3: "a tuple of three ints"}
_LETTERS = "THW"


def _ints(name, argument, value, dims, position, default=None):
    """An argument that is one int or one for each dimension, as a tuple."""
    if default is not None and (value is None or (isinstance(value, (tuple, list)) and not value)):
        return default
    values = value if isinstance(value, (tuple, list)) else (value,)
    for v in values:
        if isinstance(v, bool) or not hasattr(v, "__index__"):
            got = f"not {type(value).__name__}" if value is v else f"but found element of type {type(v).__name__}"
            raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be tuple of ints, {got}")
    if len(values) not in (1, dims):
        if dims == 1:
            raise RuntimeError(f"{name}() argument '{argument}' should contain one int (got {len(values)}): {argument} must be an int, "
                               f"list of ints, or tuple of ints of size 1 but got size {len(values)}")
        raise RuntimeError(f"{name}: {argument} must {'either ' * (dims == 2 or name[0] == 'm')}be {'omitted, ' * (default is not None)}a "
                           f"single int, or {_WORDS[dims]}, got {value}")
    return tuple([int(v) for v in (values * dims if len(values) == 1 else values)])


def _named(letter, values):
    """kH: 2 kW: 3"""
    return " ".join([f"{letter}{x}: {v}" for x, v in zip(_LETTERS[3 - len(values):], values, strict=True)])


def _check_input(name, input, dims, empty_channels=False):
    """Raises RuntimeError unless the input is (C, ...) or (N, C, ...), of which only N may be 0."""
    shape, batched = list(input.shape), input.ndim == dims + 2
    if input.ndim in (dims + 1, dims + 2) and 0 not in shape[batched + empty_channels:]:
        return
    raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                       f"{shape}. Expected {dims + 1} to {dims + 2} dimensions, non-empty, with positive length of all but the batch")


def _windows(name, input, dims, kernel, stride, padding, dilation, ceil_mode):
    """The sizes of the result and the windows along each dimension, checked."""
    stride = _ints(name, "stride", stride, dims, 3, _ints(name, "kernel_size", kernel, dims, 2))
    kernel, padding = _ints(name, "kernel_size", kernel, dims, 2), _ints(name, "padding", padding, dims, 4)
    dilation = _ints(name, "dilation", dilation, dims, 5)
    prefix = f"{name}()" if name == "max_pool1d" else f"{name}:"
    for what, letter, values in (("kernel_size" if dims == 1 else "kernel size", "k", kernel), ("stride", "d", stride),
                                 ("dilation", "dilation", dilation)):
        if min(values) <= 0:
            zero = f": {what} should not be zero" if 0 in values else ""
            raise RuntimeError(f"{prefix} {what} {'must' if dims == 1 else 'should'} be greater than zero, but got "
                               f"{values[0] if dims == 1 else _named(letter, values)}{zero}")
    _check_input(name, input, dims)
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"{prefix} {'padding' if dims == 1 else 'pad'} must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(f"{prefix} pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                               f"dilation={d}")
    inside = input.shape[input.ndim - dims:]
    windows = tuple(zip(kernel, stride, padding, dilation, strict=True))
    sizes = tuple([_size(n, *window, ceil_mode) for n, window in zip(inside, windows, strict=True)])
    if min(sizes) < 1:
        given, made = ("x".join(map(str, (input.shape[-1 - dims], *s))) for s in (inside, sizes))
        raise RuntimeError(f"{prefix} Given input size: ({given}). Calculated output size: ({made}). Output size is too small: Invalid "
                           f"computed output size, the input is smaller than kernel size {kernel}")
    return sizes, windows


def _size(n, kernel, stride, padding, dilation, ceil_mode):
    """How many windows fit; with ceil_mode also one that begins in the input or the padding before it, but ends behind."""
    size = (n + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
    return size - (ceil_mode and (size - 1) * stride >= n + padding)


def _public(function, name, doc, top_level=True):
    """Register a function under torch.nn.functional's name, and where torch has it, under torch's."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "autograd_gpu"     # where a pickle finds it; nn.functional names itself for its own
    function.__doc__ = doc
    return composite(method=False, function=top_level)(function)


# -------------------------------------------------------------------------------------------------------------------- maximum

def _make_max_pool(dims):
    name, node = f"max_pool{dims}d", f"MaxPool{max(dims, 2)}DWithIndices"

    def with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if input.dtype in (_dtype.bool, _dtype.complex64, _dtype.complex128):
            raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input first, with .to(dtype)")
        sizes, windows = _windows(name, input, dims, kernel_size, stride, padding, dilation, ceil_mode)
        return _on_planes(getattr(F, node), input, sizes, windows) if dims == 1 else tuple(getattr(F, node)(input, sizes, windows))

    def max_pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if dims == 1 and not return_indices and not input.dtype.is_floating_point:
            raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input first, with .to(dtype)")
        found = with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
        return found if return_indices else found[0]

    _public(with_indices, f"{name}_with_indices", f"{name} and each maximum's place. Reference: torch.nn.functional.{name}.", dims == 1)
    _public(max_pool, name, f"""The largest element of each window over the last dimensions.

    A window takes `kernel_size` elements, `dilation` apart, and the next begins `stride` further, by default kernel_size. Padding counts as
    -infinity. With ceil_mode the last window may end behind the input. The gradient goes to the first of equal elements, or the last NaN.
    Shape: (C, ...) or (N, C, ...). With return_indices also the place of each maximum in its plane, counted along all its dimensions.
    Raises: RuntimeError for sizes that do not fit, NotImplementedError for bool and complex dtypes. Reference: torch.nn.functional.{name}.
    """)


def _on_planes(pool, input, sizes, windows, *more):
    """A pooling of two dimensions over the last one."""
    found = pool(F.unsqueeze(input, -2), (1, *sizes), ((1, 1, 0, 1), *windows), *more)
    return tuple([F.squeeze(t, -2) for t in found]) if isinstance(found, tuple) else F.squeeze(found, -2)


# -------------------------------------------------------------------------------------------------------------------- average

def _make_avg_pool(dims):
    name, node = f"avg_pool{dims}d", f"AvgPool{max(dims, 2)}D"

    def checked(input, kernel_size, stride, padding, ceil_mode):
        if not isinstance(ceil_mode, bool):
            raise TypeError(f"{name}(): argument 'ceil_mode' (position 5) must be bool, not {type(ceil_mode).__name__}")
        if not input.dtype.is_floating_point and input.dtype != _dtype.int64:
            raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input first, with .to(dtype)")
        sizes, windows = _windows(name, input, dims, kernel_size, stride, padding, 1, ceil_mode)
        inside, kernel = input.shape[input.ndim - dims:], [w[0] for w in windows]
        if dims == 3 and any([n < k for n, k in zip(inside, kernel, strict=True)]):             # of padded ones too, as in PyTorch
            raise RuntimeError(f"{name}: input image ({_named('', inside)}) smaller than kernel size ({_named('k', kernel)})")
        return sizes, windows

    def avg_pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        sizes, windows = checked(input, kernel_size, stride, padding, ceil_mode)
        if divisor_override is not None and (isinstance(divisor_override, bool) or not hasattr(divisor_override, "__index__")):
            raise TypeError(f"{name}(): argument 'divisor_override' must be int, not {type(divisor_override).__name__}")
        if divisor_override == 0:
            raise RuntimeError(f"{name}: divisor must be not zero")
        return getattr(F, node)(input, sizes, windows, bool(count_include_pad), divisor_override)

    def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        return _on_planes(F.AvgPool2D, input, *checked(input, kernel_size, stride, padding, ceil_mode), bool(count_include_pad))

    _public(avg_pool1d if dims == 1 else avg_pool, name, f"""The average of each window over the last dimensions.

    Windows as in max_pool{dims}d. Padding counts as zeros, with count_include_pad=False not at all{'' if dims == 1 else
    '; divisor_override: divide by it instead'}.
    Dtype: floating, int64. Raises: RuntimeError for sizes that do not fit. Reference: torch.nn.functional.{name}.
    """, dims == 1)


# ------------------------------------------------------------------------------------------------------------------- adaptive

def _output_size(name, input, dims, output_size):
    """The sizes of an adaptive pooling's result; None stands for the input's."""
    if dims == 1:
        sizes = _ints(name, "output_size", output_size, 1, 2)
    elif hasattr(output_size, "__index__"):
        sizes = (int(output_size),) * dims
    else:
        for m in output_size:
            if m is not None and not hasattr(m, "__index__"):
                raise TypeError(f"{name}(): argument 'output_size' (position 2) must be tuple of ints, but found element of type "
                                f"{type(m).__name__}")
        if input.ndim <= len(output_size):
            raise ValueError(f"{name}: Input dimension should be at least {len(output_size) + 1}, but the input has the shape "
                             f"{tuple(input.shape)}")
        if len(output_size) != dims:
            raise RuntimeError(f"{name}: output_size must be {dims} sizes, got {len(output_size)}; output_size.size() must be {dims}")
        sizes = tuple([n if m is None else m for n, m in zip(input.shape[input.ndim - dims:], output_size, strict=True)])
    shape = list(input.shape)
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got {shape}. Expected {dims + 1} to {dims + 2} "
                           f"dimensions, but got {input.ndim}-dimensional tensor")
    first = 1 if "max" in name or dims == 3 else input.ndim - dims
    mean = "max" not in name and set(sizes) == {1}       # which may be of nothing, and has dtypes of its own
    for d in range(first, input.ndim):
        if shape[d] == 0 and not mean:
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {shape} with "
                               f"dimension {d} being empty")
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}: Trying to create "
                           f"tensor with negative dimension {min(sizes)}")
    if not input.dtype.is_floating_point and not mean:
        raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input first, with .to(dtype)")
    return sizes, tuple([even_window(n, m) for n, m in zip(input.shape[input.ndim - dims:], sizes, strict=True)])


def _make_adaptive(dims):
    average, largest = f"adaptive_avg_pool{dims}d", f"adaptive_max_pool{dims}d"
    averaging, maximum = f"AdaptiveAvgPool{max(dims, 2)}D", f"AdaptiveMaxPool{max(dims, 2)}D"

    def adaptive_avg_pool(input, output_size):
        sizes, windows = _output_size(average, input, dims, output_size)
        if set(sizes) == {1}:
            mean = F.mean(F.unsqueeze(input, -2) if dims == 1 else input, tuple(range(-max(dims, 2), 0)), True)
            return F.squeeze(mean, -2) if dims == 1 else mean
        return _on_planes(F.AdaptiveAvgPool2D, input, sizes, windows) if dims == 1 else getattr(F, averaging)(input, sizes, windows)

    def with_indices(input, output_size, return_indices=False):
        sizes, windows = _output_size(largest, input, dims, output_size)
        return _on_planes(getattr(F, maximum), input, sizes, windows) if dims == 1 else tuple(getattr(F, maximum)(input, sizes, windows))

    def adaptive_max_pool(input, output_size, return_indices=False):
        found = with_indices(input, output_size)
        return found if return_indices else found[0]

    share = "Window i of m over n elements begins at floor(i * n / m) and ends before ceil((i + 1) * n / m)."
    _public(adaptive_avg_pool, average, f"""The average of each of `output_size` windows that share the last dimensions out.

    {share} output_size: an int, or one for each dimension, None for the input's.
    Dtype: floating. Raises: RuntimeError for sizes that do not fit. Reference: torch.nn.functional.{average}.
    """, dims == 1)
    _public(with_indices, f"{largest}_with_indices", f"{largest} and the place of each maximum. Reference: torch.nn.functional.{largest}.",
            False)
    _public(adaptive_max_pool, largest, f"""The largest element of each of `output_size` windows that share the last dimensions out.

    {share} output_size: an int, or one for each dimension, None for the input's.
    Dtype: floating. Raises: RuntimeError for sizes that do not fit. Reference: torch.nn.functional.{largest}.
    """, False)


# ------------------------------------------------------------------------------------------------------------- unpooling, norms

def _make_max_unpool(dims):
    name, node = f"max_unpool{dims}d", f"MaxUnpool{max(dims, 2)}D"

    def max_unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        stride = _ints(name, "stride", stride, dims, 4, _ints(name, "kernel_size", kernel_size, dims, 3))
        kernel, padding = _ints(name, "kernel_size", kernel_size, dims, 3), _ints(name, "padding", padding, dims, 5)
        inside = input.shape[input.ndim - dims:]
        usual = tuple([(n - 1) * s + k - 2 * p for n, s, k, p in zip(inside, stride, kernel, padding, strict=True)])
        sizes = usual if output_size is None else tuple(output_size)[-dims:]
        if output_size is not None and len(output_size) not in (dims, dims + 1, dims + 2):
            raise ValueError(f"{name}: output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
                             f"'{len(output_size)}'")
        for d, (n, m, s) in enumerate(zip(sizes, usual, stride, strict=True)):
            if not m - s < n < m + s:
                raise ValueError(f'{name}: invalid output_size "{sizes}" (dim {d} must be between {m - s} and {m + s})')
        if indices.dtype != _dtype.int64:
            raise RuntimeError(f"{name}: elements in indices should be type int64 but got: {indices.dtype}")
        if input.shape != indices.shape:
            raise RuntimeError(f"{name}: Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
                               f"indices tensor with shape: {list(indices.shape)}")
        _check_input(name, input, dims, True)
        if not input.dtype.is_floating_point:
            raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input first, with .to(dtype)")
        if dims > 1:
            return getattr(F, node)(input, indices, sizes)
        return F.squeeze(F.MaxUnpool2D(F.unsqueeze(input, -1), F.unsqueeze(indices, -1), (*sizes, 1)), -1)

    _public(max_unpool, name, f"""Zeros but for the places that indices name, which get the input's elements: what max_pool{dims}d left.

    output_size: by default the smallest that max_pool{dims}d with these windows makes the input's size of.
    Raises: ValueError for an output_size that does not fit, RuntimeError for an index outside. Reference: torch.nn.functional.{name}.
    """, False)


def _make_lp_pool(dims):
    name = f"lp_pool{dims}d"

    def lp_pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        kernel = _ints(name, "kernel_size", kernel_size, dims, 2)
        out = getattr(F, f"avg_pool{dims}d")(F.pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        return F.pow(F.sign(out) * F.relu(F.abs(out)) * math.prod(kernel), 1.0 / norm_type)

    _public(lp_pool, name, f"""The p-norm of each window over the last dimensions, without absolute values. Windows as in max_pool{dims}d.

    The gradient of a window whose sum of powers is 0 is NaN, as in PyTorch. Reference: torch.nn.functional.{name}.
    """, False)


for _dims in (1, 2, 3):
    for _make in (_make_max_pool, _make_avg_pool, _make_adaptive, _make_max_unpool, _make_lp_pool):
        _make(_dims)
