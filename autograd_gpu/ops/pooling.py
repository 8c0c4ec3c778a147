"""Pooling: the largest or the average of the elements of windows, and the elements back at the places of the largest.

A window over several dimensions is one over each of them in turn, and what a dimension's windows hold at one place, a tap, is a slice
of the input: so there are as many steps as a window is wide, long and high, whatever the size of the input.
"""
from __future__ import annotations

import builtins
import math

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.blocks import BLOCK
from autograd_gpu.ops.gather import _outside
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.reduce import accumulator

_range, ALL = builtins.slice, builtins.slice(None)
_INT32 = 2 ** 31
_CPU = np.ndarray                            # np in a body may be CuPy


def at_dim(d, part):
    """The key of a part of a dimension counted from the end."""
    return (..., part, *[ALL] * (-1 - d))


def _taps(n, m, kernel, stride, padding, dilation):
    """For each tap of m windows over n places: the windows for which it is the first and those for which it is not, and their places."""
    def part(a, b):
        at = a * stride + offset
        return (_range(a, b), _range(at, at + (b - a - 1) * stride + 1, stride)) if a < b else None

    first = m
    for offset in range(-padding, kernel * dilation - padding, dilation):
        low, high = max(-(offset // stride), 0), min((n - 1 - offset) // stride + 1, m)
        if low < high:
            yield part(low, min(first, high)), part(first, high)
            first = min(first, low)


@composite(method=False, function=False)
def uneven_taps(n, m):
    """For each tap of m windows that share n places out, the place in each window, and whether the window is that wide."""
    i = np.arange(m)
    start, end = i * n // m, -((i + 1) * -n // m)
    return [(np.minimum(start + t, end - 1), start + t < end) for t in range(n // m + 1 + (n % m > 1))]


def even_window(n, m):
    """The even windows that share n places out; None where they are uneven."""
    return (n // m, n // m, 0, 1) if m and n % m == 0 else None


# ----------------------------------------------------------------------------------------------------------------- the largest

@composite(method=False, function=False)
def largest_along(x, at, d, m, window):
    """The largest along a dimension in each of m windows, and what stands in `at` for its place: the first of equal ones, the last NaN."""
    n = x.shape[d]
    best = np.empty((*x.shape[:d], m, *x.shape[d:][1:]), x.dtype)
    found = np.empty(best.shape, at.dtype)
    if window and window[3] > 1:             # one that is spread out may hold nothing but padding
        best[...], found[...] = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, 0
    taps = _taps(n, m, *window) if window else [
        ((ALL, i), None) if k == 0 else (None, (ALL, i)) for k, (i, _) in enumerate(F.uneven_taps(n, m) if m else ())]
    for first, later in taps:
        if first:
            target, source = first
            best[at_dim(d, target)], found[at_dim(d, target)] = x[at_dim(d, source)], at[at_dim(d, source)]
        if later:
            target, source = later
            old, new = best[at_dim(d, target)], x[at_dim(d, source)]
            larger = new > old
            if x.dtype.kind == "f":
                larger |= np.isnan(new)
            np.maximum(old, new, out=old)
            place = found[at_dim(d, target)]
            place += (at[at_dim(d, source)] - place) * larger       # several times as fast as to copy where a mask is True
    return best, found


@composite(method=False, function=False)
def largest_in_windows(self, sizes, windows):
    """The largest in each window over the last dimensions, and its place among the elements of these."""
    _refuse("max_pool", self.dtype, "bc")
    k = len(sizes)
    inside = self.shape[self.ndim - k:]
    n = math.prod(inside)
    best = self.astype(accumulator(self.dtype), copy=False)
    found = np.arange(n, dtype=np.int32 if n < _INT32 else np.int64).reshape(inside)
    for d in range(-1, -1 - k, -1):
        best, found = F.largest_along(best, found, d, sizes[d], windows[d])
    return best.astype(self.dtype, copy=False), found.astype(np.int64, copy=False)


def _refuse(name, dtype, kinds):
    if dtype.kind in kinds:
        raise NotImplementedError(f"{name}: not implemented for {_dtype.of(dtype)}: convert the input first, with .to(dtype)")


def _flat(shape, dims):
    """A shape with its last dimensions, and with the others, as one."""
    return math.prod(shape[:len(shape) - dims]), math.prod(shape[len(shape) - dims:])


@op(method=False, function=False)
def at_places(self, indices, dims: int):
    """The elements at places of each plane: indices count along the last `dims` dimensions as one."""
    return np.take_along_axis(self.reshape(_flat(self.shape, dims)), indices.reshape(_flat(indices.shape, dims)), 1).reshape(indices.shape)

at_places.vjp(self=lambda grad, self_shape, indices, dims: F.summed_at_places(grad, indices, self_shape, dims))


@op(method=False, function=False)
def summed_at_places(grad_output, indices, input_sizes: Size, dims: int):
    """Zeros but for the elements that at_places takes, which get the sum of what arrives for them."""
    made = np.zeros(input_sizes, grad_output.dtype)
    if indices.size:
        planes, size = _flat(indices.shape, dims)
        indices, grad, out = indices.reshape(planes, size), grad_output.reshape(planes, size), made.reshape(_flat(input_sizes, dims))
        step = planes if made.__class__ is not _CPU else max(1, BLOCK // size)           # there each place takes memory on the way
        for i in range(0, planes, step):
            F.accumulate_along("max_pool", out[i:i + step], 1, indices[i:i + step], grad[i:i + step])
    return made

summed_at_places.vjp(grad_output=lambda grad, indices, dims: F.at_places(grad, indices, dims))


def _max_pool(title, dims):
    def body(self, sizes: Size, windows: object):
        return F.largest_in_windows(self, sizes, windows)

    body.__name__ = title
    op(method=False, function=False, node=f"{title}Backward0", outputs=("result0", "result1"), differentiable=(True, False))(body).vjp(
        self=lambda grad, self_shape, result1: F.summed_at_places(grad, result1, self_shape, dims))


def _max_unpool(title, dims):
    def body(self, indices, output_size: Size):
        return F.put_at_places(self, indices, output_size, dims)

    body.__name__ = title
    op(method=False, function=False, node=f"{title}Backward0", linear=True)(body).vjp(
        self=lambda grad, indices: F.at_places(grad, indices, dims))


for _dims in (2, 3):
    _max_pool(f"MaxPool{_dims}DWithIndices", _dims)
    _max_pool(f"AdaptiveMaxPool{_dims}D", _dims)
    _max_unpool(f"MaxUnpool{_dims}D", _dims)


@composite(method=False, function=False)
def put_at_places(self, indices, output_size, dims):
    """Zeros but for the places of each plane that indices name, on arrays. Raises RuntimeError for one that is outside."""
    made = np.zeros((*self.shape[:self.ndim - dims], *output_size), self.dtype)
    flat, n = _flat(self.shape, dims), math.prod(output_size)
    index = indices.reshape(flat)
    wrong = _outside("max_unpool", index, n, 1)
    if wrong is not None:
        raise RuntimeError(f"max_unpool{dims}d: Found an invalid max index: {wrong} (output volumes are of size "
                           f"{'x'.join(map(str, output_size))})")
    made.reshape(_flat(made.shape, dims))[F.key_along(index, 1)] = self.reshape(flat)
    return made


# ----------------------------------------------------------------------------------------------------------------- the average

@composite(method=False, function=False)
def summed_along(x, d, m, window):
    """The sums along a dimension in each of m windows."""
    n = x.shape[d]
    made = np.zeros((*x.shape[:d], m, *x.shape[d:][1:]), x.dtype)
    if window:
        for tap in _taps(n, m, *window):
            for target, source in filter(None, tap):
                made[at_dim(d, target)] += x[at_dim(d, source)]
    elif m:
        for i, inside in F.uneven_taps(n, m):
            made += np.where(inside.reshape(-1, *[1] * (-1 - d)), x[at_dim(d, i)], 0)
    return made


@composite(method=False, function=False)
def spread_along(g, d, n, window):
    """the gradient of summed_along: what arrives for a window, added to each of its n places."""
    m, shape = g.shape[d], (*g.shape[:d], n, *g.shape[d:][1:])
    made = np.zeros(shape, g.dtype)
    if window:
        for tap in _taps(n, m, *window):
            for target, source in filter(None, tap):
                made[at_dim(d, source)] += g[at_dim(d, target)]
    elif m:
        for i, inside in F.uneven_taps(n, m):
            made += F.index_select_backward(np.where(inside.reshape(-1, *[1] * (-1 - d)), g, 0), shape, d, i)
    return made


@composite(method=False, function=False)
def window_sizes(n, m, window, count_include_pad):
    """How many elements each window along a dimension counts: a number where it is the same for all, else an array."""
    i = np.arange(m)
    if window is None:
        return -((i + 1) * -n // m) - i * n // m
    kernel, stride, padding, _ = window
    if (not padding or count_include_pad) and (m - 1) * stride + kernel <= n + 2 * padding:
        return kernel
    start, end = i * stride - padding, np.minimum(i * stride - padding + kernel, n + padding)
    return end - start if count_include_pad else np.maximum(np.minimum(end, n) - np.maximum(start, 0), 1)


@composite(method=False, function=False)
def per_window(x, inside, sizes, windows, count_include_pad, divisor):
    """Sums in windows over `inside` places divided by the windows' sizes, or their gradient."""
    if divisor is None:
        divisor = 1
        for d, (n, m, window) in enumerate(zip(inside, sizes, windows, strict=True), -len(sizes)):
            size = F.window_sizes(n, m, window, count_include_pad)
            divisor = divisor * (size if isinstance(size, int) else size.reshape(-1, *[1] * (-1 - d)))
    if x.dtype.kind != "i":
        return x / (divisor if isinstance(divisor, int) else divisor.astype(x.dtype))
    if isinstance(divisor, int) and divisor < 0:
        x, divisor = -x, -divisor
    return np.sign(x) * (np.absolute(x) // divisor)        # rounded towards 0


@op(method=False, function=False)
def averaged(self, sizes: Size, windows: object, count_include_pad: bool, divisor: int | None):
    """The averages in windows over the last dimensions. Half precision is added up in float32."""
    k = len(sizes)
    x = self.astype(accumulator(self.dtype), copy=False)
    for d in range(-1, -1 - k, -1):
        x = F.summed_along(x, d, sizes[d], windows[d])
    return F.per_window(x, self.shape[self.ndim - k:], sizes, windows, count_include_pad, divisor).astype(self.dtype, copy=False)

averaged.vjp(self=lambda grad, self_shape, sizes, windows, count_include_pad, divisor:
             F.averaged_backward(grad, self_shape, sizes, windows, count_include_pad, divisor))


@op(method=False, function=False)
def averaged_backward(grad_output, input_sizes: Size, sizes: Size, windows: object, count_include_pad: bool, divisor: int | None):
    """The gradient of averaged."""
    k = len(sizes)
    inside = input_sizes[len(input_sizes) - k:]
    g = F.per_window(grad_output.astype(accumulator(grad_output.dtype), copy=False), inside, sizes, windows, count_include_pad, divisor)
    for d in range(-1, -1 - k, -1):
        g = F.spread_along(g, d, inside[d], windows[d])
    return g.astype(grad_output.dtype, copy=False)

averaged_backward.vjp(grad_output=lambda grad, sizes, windows, count_include_pad, divisor:
                      F.averaged(grad, sizes, windows, count_include_pad, divisor))


def _average_pool(title):
    def body(self, sizes: Size, windows: object, count_include_pad: bool = True, divisor: int | None = None):
        return F.averaged(self, sizes, windows, count_include_pad, divisor)

    body.__name__ = title
    op(method=False, function=False, node=f"{title}Backward0")(body).vjp(
        self=lambda grad, self_shape, sizes, windows, count_include_pad, divisor:
        F.averaged_backward(grad, self_shape, sizes, windows, count_include_pad, divisor))


for _dims in (2, 3):
    _average_pool(f"AvgPool{_dims}D")
    _average_pool(f"AdaptiveAvgPool{_dims}D")
