"""Convolutions of any dimension: matrix products over a strided view of the windows, and the three gradients, which are each other's.

With `out[n, o, p] = sum of weight[o, c, k] * input[n, c, p * stride + k * dilation - padding]`, the sum of `grad * out` is linear in each
of input, weight and grad. So the derivatives of convolution, of convolution_input and of convolution_weight are these three again, to every
order, and a transposed convolution is a convolution_input. Reference for the unfolding of the input into a matrix: Chellapilla, Puri and
Simard 2006, "High performance convolutional neural networks for document processing".
"""
from __future__ import annotations

import itertools
import math
import operator
from typing import NamedTuple

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.reduce import accumulator
from autograd_gpu.ops.shape import ALL

BOUND = 64 << 20                             # bytes that the unfolded input takes at most
CACHED = 1 << 20                             # the same on the CPU, where a product is faster on what the cache still holds; measured
_CPU = np.ndarray                            # np in a body may be CuPy


# ----------------------------------------------------------------------------------------------------------------- windows

class Walk(NamedTuple):
    """How windows lie along the dimensions behind batch and channels: sizes, steps between them, borders, steps within them."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def outputs(self, size):
        """How many windows fit into an input of this size."""
        return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, *self, strict=True)])

    def inputs(self, size, more):
        """The size of the input in which there are so many windows, and `more` elements behind them."""
        return tuple([(n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, m, k, s, p, d in zip(size, more, *self, strict=True)])


class Block(NamedTuple):
    """Windows that are unfolded at once: some rows of them in some samples of the batch."""

    windows: tuple                           # where they are among all, as an index of the outputs
    count: tuple[int, ...]                   # how many along each dimension
    source: tuple                            # the index of what they reach in the input
    target: tuple                            # the same within their span
    span: tuple[int, ...]                    # how far they reach, borders included


def block(walk, size, out, samples, rows):
    """The Block of these rows of windows, of all `out`, in these samples of an input that is of `size` behind its channels."""
    count = (rows.stop - rows.start, *out[1:])
    source, target, span = [], [], []
    for i, (length, c, k, s, p, d) in enumerate(zip(size, count, *walk, strict=True)):
        low = (0 if i else rows.start * s) - p
        span.append((c - 1) * s + (k - 1) * d + 1)
        start = min(max(low, 0), length)
        stop = max(start, min(low + span[-1], length))
        source.append(slice(start, stop))
        target.append(slice(start - low, stop - low))
    return Block((samples, ALL, rows), count, (samples, ALL, *source), (ALL, ALL, *target), tuple(span))


def blocks(x, shape, walk, out, beside=0):
    """The Blocks of the `out` windows in an input of `shape`: samples whose unfolded input keeps to the bound, or rows of one.

    x: an array of the device and dtype that it is about. `beside`: bytes that each sample takes besides.
    """
    bound = min(BOUND, CACHED) if x.__class__ is _CPU else BOUND
    batch, channels, *size = shape
    row = max(1, channels * math.prod(walk.kernel) * math.prod(out[1:]) * x.itemsize)
    samples, rows = max(1, bound // max(row * out[0], beside)), max(1, bound // row)
    for n, r in itertools.product(range(0, batch, samples), range(0, out[0], rows)):
        yield block(walk, size, out, slice(n, n + samples), slice(r, min(r + rows, out[0])))


def batch_last(batch, walk, out):
    """Whether the batch is walked behind the other dimensions: where a row of windows is short, longer pieces of memory are copied so."""
    return batch > 1 and out[-1] < 16 and math.prod(walk.kernel) > 1


def _turned(x):
    """(n, c, ...) as (1, c, ..., n)."""
    return x.transpose(*range(1, x.ndim), 0)[None]


def _turned_back(x):
    """(1, c, ..., n) as (n, c, ...)."""
    return x[0].transpose(-1, *range(x.ndim - 2))


@composite(method=False, function=False)
def columns(x, part, walk, last):
    """The windows of a block as an array (n, c, *kernel, *count); batch last: (1, c, *kernel, *count, n)."""
    x = x[part.source]
    if last:
        x = _turned(x)
    m = len(walk.kernel) + 2
    if last or x.shape[2:] != part.span:
        made = np.empty if x.shape[2:m] == part.span else np.zeros
        made = made((*x.shape[:2], *part.span, *x.shape[m:]), x.dtype)
        made[part.target] = x
        x = made
    steps = x.strides[2:m]
    strides = (*x.strides[:2], *map(operator.mul, steps, walk.dilation), *map(operator.mul, steps, walk.stride), *x.strides[m:])
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(x, (*x.shape[:2], *walk.kernel, *part.count, *x.shape[m:]), strides))


@composite(method=False, function=False)
def overlapped(found, part, walk):
    """What `columns` took of a block put back to where it was: elements that several windows share are summed."""
    dims = len(walk.kernel)
    made = np.zeros((*found.shape[:2], *part.span, *found.shape[2 + 2 * dims:]), found.dtype)
    for tap in itertools.product(*map(range, walk.kernel)):
        places = [slice(t * d, t * d + (c - 1) * s + 1, s)
                  for t, d, c, s in zip(tap, walk.dilation, part.count, walk.stride, strict=True)]
        made[(ALL, ALL, *places)] += found[(ALL, ALL, *tap)]
    return made[part.target]


# --------------------------------------------------------------------------------------------------------- the three products

@op(method=False, function=False)
def convolution(input, weight, bias: Tensor | None, stride: Size, padding: Size, dilation: Size, transposed: bool, output_padding: Size,
                groups: int):
    """A weight times each window of the input, plus bias; `transposed`: what such a convolution has as gradient for its input, plus bias.

    Raises: RuntimeError for shapes and dtypes that do not fit, NotImplementedError for bools and some integers, as in PyTorch.
    """
    walk = Walk(tuple(weight.shape[2:]), stride, padding, dilation)
    _check(input, weight, bias, walk, transposed, output_padding, groups)
    dtype, size = accumulator(input.dtype), input.shape[2:]
    x, w = input.astype(dtype, copy=False), weight.astype(dtype, copy=False)
    made = (weight.shape[1] * groups, *walk.inputs(size, output_padding)) if transposed else (len(weight), *walk.outputs(size))
    product = F.convolution_input if transposed else F.convolution_output
    out = product(x, w, (len(input), *made), stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(size))
    return out.astype(input.dtype, copy=False)


@convolution.vjp_shared("input", "weight", "bias")
def _(needs, grad, input, weight, stride, padding, dilation, transposed, output_padding, groups):
    return F.convolution_backward(needs, grad, input, weight, stride, padding, dilation, transposed, output_padding, groups)


@composite(method=False, function=False)
def convolution_backward(needs, grad, input, weight, stride, padding, dilation, transposed, output_padding, groups):
    """The gradients of convolution for input, weight and bias."""
    to_input = to_weight = to_bias = None
    if needs[0]:
        weight = F.conj(weight)
        product = F.convolution_output if transposed else F.convolution_input
        to_input = product(grad, weight, tuple(input.shape), stride, padding, dilation, groups)
    if needs[1]:
        input = F.conj(input)
        x, g = (grad, input) if transposed else (input, grad)
        to_weight = F.convolution_weight(g, x, tuple(weight.shape), stride, padding, dilation, groups)
    if needs[2]:
        to_bias = F.sum(grad, (0, *range(2, grad.ndim)))
    return to_input, to_weight, to_bias


@op(method=False, function=False, node="ConvolutionBackwardBackward0")
def convolution_output(input, weight, size: Size, stride: Size, padding: Size, dilation: Size, groups: int):
    """A convolution without bias; size: its result's."""
    walk = Walk(tuple(weight.shape[2:]), stride, padding, dilation)
    matrix = weight.reshape(groups, len(weight) // groups, math.prod(weight.shape[1:]))
    out = np.empty(size, input.dtype)
    last = batch_last(len(input), walk, size[2:])
    for part in blocks(input, input.shape, walk, size[2:]):
        found, target = F.columns(input, part, walk, last), out[part.windows]
        tail = found.shape[len(size):]
        windows = math.prod(tail)
        found = found.reshape(len(found), groups, matrix.shape[2], windows)
        if not last and target.flags.c_contiguous:
            np.matmul(matrix, found, out=target.reshape(len(found), groups, matrix.shape[1], windows))    # CuPy takes it by name only
        else:
            found = np.matmul(matrix, found).reshape(len(found), size[1], *tail)
            target[...] = _turned_back(found) if last else found
        del found                            # before the next block's are made
    return out

convolution_output.vjp(
    input=lambda grad, weight, input_shape, stride, padding, dilation, groups:
        F.convolution_input(grad, F.conj(weight), input_shape, stride, padding, dilation, groups),
    weight=lambda grad, input, weight_shape, stride, padding, dilation, groups:
        F.convolution_weight(grad, F.conj(input), weight_shape, stride, padding, dilation, groups))


@op(method=False, function=False, node="ConvolutionBackwardBackward0")
def convolution_input(grad_output, weight, size: Size, stride: Size, padding: Size, dilation: Size, groups: int):
    """The gradient of a convolution for its input, which is of this size; grad_output: that of its result."""
    walk, count = Walk(tuple(weight.shape[2:]), stride, padding, dilation), grad_output.shape[2:]
    matrix = weight.reshape(groups, len(weight) // groups, math.prod(weight.shape[1:])).swapaxes(1, 2)
    out = np.zeros(size, grad_output.dtype)
    last = batch_last(size[0], walk, count)
    for part in blocks(grad_output, size, walk, count):
        grad = grad_output[part.windows]
        grad = np.ascontiguousarray(_turned(grad) if last else grad)
        tail = grad.shape[2:]
        found = np.matmul(matrix, grad.reshape(len(grad), groups, matrix.shape[2], math.prod(tail)))
        found = F.overlapped(found.reshape(len(grad), size[1], *walk.kernel, *tail), part, walk)
        found = _turned_back(found) if last else found
        if found.shape == size and part.count == count:
            return np.ascontiguousarray(found)
        out[part.source] += found
        del found
    return out

convolution_input.vjp(
    grad_output=lambda grad, weight, grad_output_shape, stride, padding, dilation, groups:
        F.convolution_output(grad, F.conj(weight), grad_output_shape, stride, padding, dilation, groups),
    weight=lambda grad, grad_output, weight_shape, stride, padding, dilation, groups:
        F.convolution_weight(F.conj(grad_output), grad, weight_shape, stride, padding, dilation, groups))


@op(method=False, function=False, node="ConvolutionBackwardBackward0")
def convolution_weight(grad_output, input, size: Size, stride: Size, padding: Size, dilation: Size, groups: int):
    """The gradient of a convolution for its weight, which is of this size; grad_output: that of its result."""
    walk = Walk(tuple(size[2:]), stride, padding, dilation)
    out = np.zeros((groups, math.prod(size[1:]), size[0] // groups), input.dtype)
    last = batch_last(len(input), walk, grad_output.shape[2:])
    for part in blocks(input, input.shape, walk, grad_output.shape[2:], 0 if last else out.nbytes):
        grad = grad_output[part.windows]
        grad = np.ascontiguousarray(_turned(grad) if last else grad)
        found = F.columns(input, part, walk, last)
        windows = math.prod(grad.shape[2:])
        grad = grad.reshape(len(grad), groups, out.shape[2], windows)
        found = found.reshape(len(grad), groups, out.shape[1], windows)
        out += np.add.reduce(np.matmul(found, grad.swapaxes(2, 3)), 0)       # this way round: the larger matrix first is faster
        del found
    made = np.empty(size, input.dtype)
    made.reshape(groups, out.shape[2], out.shape[1])[...] = out.swapaxes(1, 2)
    return made

convolution_weight.vjp(
    grad_output=lambda grad, input, grad_output_shape, stride, padding, dilation, groups:
        F.convolution_output(F.conj(input), grad, grad_output_shape, stride, padding, dilation, groups),
    input=lambda grad, grad_output, input_shape, stride, padding, dilation, groups:
        F.convolution_input(F.conj(grad_output), grad, input_shape, stride, padding, dilation, groups))


# ------------------------------------------------------------------------------------------------------------ windows as columns

@op(method=False, function=False, node="Im2ColBackward0")
def im2col(self, kernel_size: Size, dilation: Size, padding: Size, stride: Size):
    """The windows of images (n, c, h, w), or of one without n, as columns: (n, c * elements of a window, windows)."""
    walk = Walk(kernel_size, stride, padding, dilation)
    *batch, channels, height, width = self.shape
    out = walk.outputs((height, width))
    found = F.columns(self if batch else self[None], block(walk, (height, width), out, ALL, slice(0, out[0])), walk, False)
    found = found.reshape(*batch, channels * math.prod(kernel_size), math.prod(out))
    return found.copy() if np.may_share_memory(found, self) else found       # windows that do not overlap may need no copy to be unfolded

im2col.vjp(self=lambda grad, self_shape, kernel_size, dilation, padding, stride:
           F.col2im(grad, self_shape[-2:], kernel_size, dilation, padding, stride))


@op(method=False, function=False, node="Col2ImBackward0")
def col2im(self, output_size: Size, kernel_size: Size, dilation: Size, padding: Size, stride: Size):
    """Columns put back into images of a size, summed where windows share elements: what im2col has as its gradient."""
    walk = Walk(kernel_size, stride, padding, dilation)
    *batch, rows, _ = self.shape
    channels, out = rows // math.prod(kernel_size), walk.outputs(output_size)
    made = np.zeros((*(batch or (1,)), channels, *output_size), self.dtype)
    part = block(walk, output_size, out, ALL, slice(0, out[0]))
    found = self.reshape(len(made), channels, *kernel_size, *out).astype(accumulator(self.dtype), copy=False)
    made[part.source] = F.overlapped(found, part, walk)
    return made if batch else made[0]

col2im.vjp(self=lambda grad, kernel_size, dilation, padding, stride: F.im2col(grad, kernel_size, dilation, padding, stride))


@composite(method=False, function=False)
def unfold_function(input, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of images as columns.

    Shape: (batch, c, h, w) or (c, h, w) -> (batch, c * elements of a window, windows). Dtype: any but integers.
    Raises: RuntimeError for what does not fit, IndexError for fewer than 3 dimensions, NotImplementedError for integers.
    Reference: torch.nn.functional.unfold.
    """
    shape = list(input.shape)
    if input.ndim not in (3, 4) or 0 in shape[-3:]:
        raise (IndexError if input.ndim < 3 else RuntimeError)(
            f"unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: "
            f"{shape}")
    walk = _walk_of("unfold", input, kernel_size, dilation, padding, stride)
    if min(out := walk.outputs(shape[-2:])) < 1:
        raise RuntimeError(f"unfold: Given input with spatial size {shape[-2:]}, {_described(walk)}, calculated shape of the array of "
                           f"sliding blocks as {out}, but its components must be at least one")
    return F.im2col(input, walk.kernel, walk.dilation, walk.padding, walk.stride)


@composite(method=False, function=False)
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns put back into images, summed where windows share elements.

    Shape: (batch, c * elements of a window, windows), batch may lack -> (batch, c, *output_size). Dtype: any but integers.
    Raises: RuntimeError for what does not fit, NotImplementedError for integers. Reference: torch.nn.functional.fold.
    """
    walk = _walk_of("fold", input, kernel_size, dilation, padding, stride)
    size, shape, n = _two("fold", "output_size", output_size), list(input.shape), math.prod(walk.kernel)
    if input.ndim not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(f"fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
                           f"input, but got: {shape}")
    if shape[-2] % n:
        raise RuntimeError(f"fold: Expected size of input's dimension {input.ndim - 2} to be divisible by the product of kernel_size, but "
                           f"got {shape[-2]} and kernel_size={walk.kernel}")
    out = walk.outputs(size)
    if min(out) < 1 or shape[-1] != math.prod(out):
        raise RuntimeError(f"fold: Given output_size={size}, {_described(walk)}, expected size of input's dimension {input.ndim - 1} to "
                           f"match the calculated number of sliding blocks {out[0]} * {out[1]}, but got {shape[-1]}")
    return F.col2im(input, size, walk.kernel, walk.dilation, walk.padding, walk.stride)


def _two(name, what, value):
    """A number or a pair as two integers. Raises RuntimeError for another count, TypeError for what is no integer."""
    if isinstance(value, (tuple, list)) and len(value) != 2:
        raise RuntimeError(f"{name}: It is expected {what} equals to 2, but got size {len(value)}: give one number or two")
    return _numbers(name, what, value, 2)


def _walk_of(name, input, kernel_size, dilation, padding, stride):
    """The arguments of unfold and fold as a Walk, checked."""
    walk = Walk(*[_two(name, what, value) for what, value in (("kernel_size", kernel_size), ("stride", stride), ("padding", padding),
                                                              ("dilation", dilation))])
    for what, value, least in (("kernel size", walk.kernel, 1), ("dilation", walk.dilation, 1), ("stride", walk.stride, 1),
                               ("padding", walk.padding, 0)):
        if min(value) < least:
            raise RuntimeError(f"{name}: {what} should be {'greater than zero' if least else 'non-negative'}, but got {value}")
    if _dtype.category(input._array.dtype) == "i":
        raise NotImplementedError(f"{name}: not implemented for {input.dtype}: convert the input to a floating dtype first")
    return walk


def _described(walk):
    return f"kernel_size={walk.kernel}, dilation={walk.dilation}, padding={walk.padding}, stride={walk.stride}"


# ------------------------------------------------------------------------------------------------------------------- operands

def _check(input, weight, bias, walk, transposed, output_padding, groups):
    """Raises what PyTorch raises for the operands of a convolution."""
    name, shape, size = "convolution", list(weight.shape), list(input.shape)
    for t, what in ((weight, "weight"), (bias, "bias")):
        if t is not None and t.dtype != input.dtype:
            raise RuntimeError(f"{name}: Input type ({_dtype.of(input.dtype)}) and {what} type ({_dtype.of(t.dtype)}) should be the same: "
                               f"convert one of them with .to()")
    if input.dtype.kind == "b" or input.dtype.kind in "iu" and input.dtype != np.int64 and (transposed or max(walk.dilation) > 1):
        raise NotImplementedError(f"{name}: not implemented for {_dtype.of(input.dtype)}: convert the operands first, with .to(dtype)")
    if min(walk.padding) < 0:
        raise RuntimeError(f"{name}: negative padding is not supported, got {walk.padding}")
    if transposed and min(output_padding) < 0:
        raise RuntimeError(f"{name}: negative output_padding is not supported, got {output_padding}")
    if min(walk.stride) < 1:
        raise RuntimeError(f"{name}: non-positive stride is not supported, got {walk.stride}")
    if min(walk.dilation) < 1:
        raise RuntimeError(f"{name}: dilation should be greater than zero, but got {walk.dilation}")
    if groups < 1:
        raise RuntimeError(f"{name}: non-positive groups is not supported, got {groups}")
    if shape[0] < groups or shape[0] % groups:
        raise RuntimeError(f"{name}: Given groups={groups}, expected weight to be at least {groups} at dimension 0 and divisible by it, "
                           f"but got weight of size {shape}")
    channels, made = (shape[0], shape[1] * groups) if transposed else (shape[1] * groups, shape[0])
    if size[1] != channels:
        raise RuntimeError(f"{name}: Given groups={groups}, transposed={transposed}, weight of size {shape}, expected input{size} to have "
                           f"{channels} channels, but got {size[1]} channels instead")
    if bias is not None and bias.shape != (made,):
        raise RuntimeError(f"{name}: Given weight of size {shape}, expected bias to be 1-dimensional with {made} elements, but got bias of "
                           f"size {list(bias.shape)} instead")
    if min(walk.kernel) < 1:
        raise RuntimeError(f"{name}: kernel size should be greater than zero, but got {walk.kernel}")
    if transposed:
        if any([m >= max(s, d) for m, s, d in zip(output_padding, walk.stride, walk.dilation, strict=True)]):
            raise RuntimeError(f"{name}: output padding must be smaller than either stride or dilation, but got output_padding "
                               f"{output_padding}, stride {walk.stride}, dilation {walk.dilation}")
        if min(found := walk.inputs(size[2:], output_padding)) < 1:
            raise RuntimeError(f"{name}: Given input size per channel: {size[2:]}. Calculated output size per channel: {found}. Output "
                               f"size is too small")
    elif min(walk.outputs(size[2:])) < 1:
        raise RuntimeError(f"{name}: Given input size per channel: {size[2:]} and padding {walk.padding}. Kernel size: {walk.kernel} with "
                           f"dilation {walk.dilation}. Kernel size can't be greater than actual input size")
    if 0 in size[2:] and 0 not in size[:2]:
        raise RuntimeError(f"{name}: Only zero batch or zero channel inputs are supported, but got input shape: {size}")


def _numbers(name, what, value, n):
    """A number, or one or n of them, as n integers. Raises RuntimeError for another count, TypeError for what is no integer."""
    try:
        found = [operator.index(v) for v in (value if isinstance(value, (tuple, list)) else (value,))]
        if isinstance(value, bool):
            raise TypeError
    except TypeError:
        raise TypeError(f"{name}(): argument '{what}' must be {f'an int or a tuple of {n} ints' if n > 1 else 'an int'}, not "
                        f"{value!r:.60}") from None
    if len(found) not in (1, n):
        raise RuntimeError(f"{name}: expected {what} to be a single integer value or a list of {n} values to match the convolution "
                           f"dimensions, but got {what}={found}")
    return tuple(found) if len(found) == n else tuple(found * n)


def _convolve(name, input, weight, bias, stride, padding, dilation, groups, output_padding=None):
    """A convolution over as many dimensions as the last character but one of its name says, batched or not.

    With an output_padding it is a transposed one.
    """
    n = int(name[-2])
    for what, t in (("input", input), ("weight", weight)):
        if not isinstance(t, Tensor) and not _device.is_array(t):
            raise TypeError(f"{name}(): argument '{what}' must be Tensor, not {type(t).__name__}")
    input, weight = (t if isinstance(t, Tensor) else wrap(t) for t in (input, weight))
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: "
                           f"{list(input.shape)}")
    if weight.ndim != n + 2:
        raise RuntimeError(f"{name}: expected weight to have {n + 2} dimensions, but got weight of size: {list(weight.shape)}")
    stride, dilation = _numbers(name, "stride", stride, n), _numbers(name, "dilation", dilation, n)
    groups, = _numbers(name, "groups", groups, 1)
    whole = F.unsqueeze(input, 0) if input.ndim == n + 1 else input
    if isinstance(padding, str) and output_padding is None:
        whole, padding = _bordered(name, whole, padding, weight.shape[2:], stride, dilation)
    padding = _numbers(name, "padding", padding, n)
    more = (0,) * n if output_padding is None else _numbers(name, "output_padding", output_padding, n)
    out = F.convolution(whole, weight, bias, stride, padding, dilation, output_padding is not None, more, groups)
    return F.squeeze(out, 0) if whole.ndim > input.ndim else out


def _bordered(name, input, padding, kernel, stride, dilation):
    """The input and the padding on both sides for 'valid' and 'same'; where the sides differ, the input has the rest already."""
    if padding not in ("valid", "same"):
        raise RuntimeError(f"{name}: Invalid padding string: {padding!r}: it has to be 'valid' or 'same'")
    if padding == "valid":
        return input, 0
    if max(stride) > 1:
        raise RuntimeError(f"{name}: padding='same' is not supported for strided convolutions: give it as numbers")
    both = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any([b % 2 for b in both]):
        input = F.pad(input, [w for b in reversed(both) for w in (0, b % 2)])
    return input, [b // 2 for b in both]


# ---------------------------------------------------------------------------------------------------------- the public names

@composite(method=False)
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """The products of a weight with each window of the last dimension, summed over channels, plus bias.

    Shape: (batch, in, n) or (in, n), (out, in / groups, k), (out) -> (batch, out, windows). padding: numbers, 'valid' or 'same'.
    Dtype: one for all; floating, complex, integers. Raises: RuntimeError for what does not fit. Reference: torch.nn.functional.conv1d.
    """
    return _convolve("conv1d", input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """conv1d over the last two dimensions. Reference: torch.nn.functional.conv2d."""
    return _convolve("conv2d", input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """conv1d over the last three dimensions. Reference: torch.nn.functional.conv3d."""
    return _convolve("conv3d", input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """What a convolution has as gradient for its input, where `input` is that for its result; plus bias.

    Shape: (batch, in, n) or (in, n), (in, out / groups, k), (out) -> (batch, out, (n - 1) * stride - 2 * padding + dilation * (k - 1) +
    output_padding + 1). Dtype: one for all; floating, complex, int64. Raises: RuntimeError for what does not fit.
    Reference: torch.nn.functional.conv_transpose1d.
    """
    return _convolve("conv_transpose1d", input, weight, bias, stride, padding, dilation, groups, output_padding)


@composite(method=False)
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """conv_transpose1d over the last two dimensions. Reference: torch.nn.functional.conv_transpose2d."""
    return _convolve("conv_transpose2d", input, weight, bias, stride, padding, dilation, groups, output_padding)


@composite(method=False)
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """conv_transpose1d over the last three dimensions. Reference: torch.nn.functional.conv_transpose3d."""
    return _convolve("conv_transpose3d", input, weight, bias, stride, padding, dilation, groups, output_padding)
