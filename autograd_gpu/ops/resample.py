"""Images of other sizes: pixels moved between channels and places, interpolation."""
from __future__ import annotations

import math
import warnings

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.pooling import at_dim
from autograd_gpu.ops.reduce import accumulator

_CPU = np.ndarray                            # np in a body may be CuPy

# -------------------------------------------------------------------------------------------------------- pixels and channels

def _check_pixels(name, self, factor, what):
    if self.ndim < 3:
        raise RuntimeError(f"{name} expects input to have at least 3 dimensions, but got input with {self.ndim} dimension(s)")
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {what}, but got {factor}")


@op(method=False)
def pixel_shuffle(self, upscale_factor: int):
    """(*, C * r^2, H, W) as (*, C, H * r, W * r): channels become pixels.

    Raises: RuntimeError for fewer dimensions, or channels that r^2 does not divide. Reference: torch.pixel_shuffle.
    """
    r = upscale_factor
    _check_pixels("pixel_shuffle", self, r, "upscale_factor")
    *lead, c, h, w = self.shape
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
                           f"input.size(-3)={c} is not divisible by {r * r}")
    n = math.prod(lead)
    return self.reshape(n, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3).copy("C").reshape(*lead, c // (r * r), h * r, w * r)

pixel_shuffle.vjp(self=lambda grad, upscale_factor: F.pixel_unshuffle(grad, upscale_factor))


@op(method=False)
def pixel_unshuffle(self, downscale_factor: int):
    """(*, C, H * r, W * r) as (*, C * r^2, H, W): pixels become channels.

    Raises: RuntimeError for fewer dimensions, or sizes that r does not divide. Reference: torch.pixel_unshuffle.
    """
    r = downscale_factor
    _check_pixels("pixel_unshuffle", self, r, "downscale_factor")
    *lead, c, h, w = self.shape
    for what, d, n in (("height", -2, h), ("width", -1, w)):
        if n % r:
            raise RuntimeError(f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but input.size({d})={n} is not "
                               f"divisible by {r}")
    n = math.prod(lead)
    return self.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 3, 5, 2, 4).copy("C").reshape(*lead, c * r * r, h // r, w // r)

pixel_unshuffle.vjp(self=lambda grad, downscale_factor: F.pixel_shuffle(grad, downscale_factor))


@op(method=False)
def channel_shuffle(self, groups: int):
    """The channels (dimension 1) of `groups` groups dealt out in turn.

    Raises: RuntimeError for fewer than 3 dimensions, or channels that groups does not divide. Reference: torch.channel_shuffle.
    """
    if self.ndim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(self.shape)}")
    if groups <= 0:
        raise RuntimeError(f"channel_shuffle: Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, c, *rest = self.shape
    if c % groups:
        raise RuntimeError(f"channel_shuffle: Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    return self.reshape(n, groups, c // groups, math.prod(rest)).swapaxes(1, 2).copy("C").reshape(self.shape)

channel_shuffle.vjp(self=lambda grad, self_shape, groups: F.channel_shuffle(grad, self_shape[1] // groups))


# -------------------------------------------------------------------------------------------------------------- interpolation

@composite(method=False, function=False)
def sources(n, m, kind, scale, align_corners, dtype):
    """Where the m elements that n are resized to come from, and how much of each, as [(indices, weights or None)].

    cubic: Keys 1981, "Cubic convolution interpolation", with a = -0.75 as in PyTorch.
    """
    i = np.arange(m)
    if kind == "nearest" or kind == "nearest-exact":
        step = np.float32(1 / scale if scale else n / m)
        places = (i.astype(np.float32) + np.float32(0.5 if kind == "nearest-exact" else 0)) * step
        return [(np.minimum(np.floor(places).astype(np.int64), n - 1), None)]
    if align_corners:
        places = i.astype(dtype) * dtype.type((n - 1) / (m - 1) if m > 1 else 0)
    else:
        places = (i.astype(dtype) + dtype.type(0.5)) * dtype.type(1 / scale if scale else n / m) - dtype.type(0.5)
    if kind == "linear":
        places = np.maximum(places, 0)
        first = np.minimum(np.floor(places).astype(np.int64), n - 1)
        t = np.minimum(places - first.astype(dtype), 1)
        return [(first, 1 - t), (np.minimum(first + 1, n - 1), t)]
    first = np.floor(places).astype(np.int64)
    t, a = places - first.astype(dtype), -0.75
    weights = [((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a if far else ((a + 2) * x - (a + 3)) * x * x + 1
               for x, far in ((t, True), (t, False), (1 - t, False), (1 - t, True))]
    return [(np.minimum(np.maximum(first + k - 1, 0), n - 1), w) for k, w in enumerate(weights)]


def _times(x, d, taps, n):
    """How many neighbours along a dimension come from each of n elements, on the CPU, if it is so; else 0."""
    (i, weights), *others = taps
    times, rest = divmod(len(i), n)
    return times if x.__class__ is _CPU and weights is None and not rest and (i == np.arange(len(i)) // times).all() else 0


def _neighbours(x, d, times):
    """Views of an array, of which each has one of so many neighbours along a dimension."""
    split = x.reshape(*x.shape[:d], x.shape[d] // times, times, *x.shape[d:][1:])
    return [split[(..., k, *[slice(None)] * (-1 - d))] for k in range(times)]


def _working_dtype(dtype):
    return np.dtype(np.float32) if dtype.kind in "iu" else accumulator(dtype)


@op(method=False, function=False)
def resized(self, size: Size, kind: str, scales: object, align_corners: bool):
    """The last dimensions interpolated to other sizes, one after the other. Half precision is added up in float32."""
    wide = _working_dtype(self.dtype)
    x = self if kind[0] == "n" else self.astype(wide, copy=False)
    for d in range(-1, -1 - len(size), -1):
        taps = F.sources(x.shape[d], size[d], kind, scales[d], align_corners, wide)
        if times := _times(x, d, taps, x.shape[d]):
            made = np.empty((*x.shape[:d], size[d], *x.shape[d:][1:]), x.dtype)
            for part in _neighbours(made, d, times):
                part[...] = x
            x = made
            continue
        parts = [x[at_dim(d, i)] if w is None else x[at_dim(d, i)] * w.reshape(-1, *[1] * (-1 - d)) for i, w in taps]
        x = parts[0]
        for part in parts[1:]:
            x += part
        if self.dtype.kind == "u" and kind[0] != "n":
            x = np.clip(np.floor(x + 0.5), 0, 255)           # after each dimension, as PyTorch does
    return x.astype(self.dtype, "C", copy=False)

resized.vjp(self=lambda grad, self_shape, size, kind, scales, align_corners:
            F.resized_backward(grad, self_shape, size, kind, scales, align_corners))


@op(method=False, function=False)
def resized_backward(grad_output, input_sizes: Size, size: Size, kind: str, scales: object, align_corners: bool):
    """The gradient of resized: what arrives for an element, added to those that it comes from."""
    wide = accumulator(grad_output.dtype)
    g = grad_output.astype(wide, copy=False)
    for d in range(-len(size), 0):
        shape = (*g.shape[:d], input_sizes[d], *g.shape[d:][1:])
        taps = F.sources(input_sizes[d], size[d], kind, scales[d], align_corners, wide)
        if times := _times(g, d, taps, input_sizes[d]):
            first, *others = _neighbours(g, d, times)
            g = first.copy()
            for part in others:
                g += part
            continue
        total = np.zeros(shape, wide)
        for i, w in taps:
            total += F.index_select_backward(g if w is None else g * w.reshape(-1, *[1] * (-1 - d)), shape, d, i)
        g = total
    return g.astype(grad_output.dtype, copy=False)

resized_backward.vjp(grad_output=lambda grad, size, kind, scales, align_corners: F.resized(grad, size, kind, scales, align_corners))


def _named(name, kind):
    """resized under the name that PyTorch's nodes have for one mode and number of dimensions."""
    def body(self, size: Size, scales: object, align_corners: bool):
        return F.resized(self, size, kind, scales, align_corners)

    body.__name__ = name
    op(method=False, function=False, node=f"{name}Backward0")(body).vjp(
        self=lambda grad, self_shape, size, scales, align_corners: F.resized_backward(grad, self_shape, size, kind, scales, align_corners))
    return name


_OPS = {(mode, n): _named(f"Upsample{title}{n}D", mode) for mode, title in (("nearest", "Nearest"), ("nearest-exact", "NearestExact"))
        for n in (1, 2, 3)} | {
    ("linear", 1): _named("UpsampleLinear1D", "linear"), ("bilinear", 2): _named("UpsampleBilinear2D", "linear"),
    ("trilinear", 3): _named("UpsampleTrilinear3D", "linear"), ("bicubic", 2): _named("UpsampleBicubic2D", "cubic")}
_DIMS = {"linear": 3, "bilinear": 4, "trilinear": 5}


@composite(method=False, function=False)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """The spatial dimensions of (N, C, ...) resized to `size`, or by `scale_factor`, each one number or one per dimension.

    mode: nearest, nearest-exact, area (averages) for 1 to 3 dimensions, linear (1), bilinear, bicubic (2), trilinear (3). align_corners:
    the outermost elements keep their places. Not there: antialias.
    Raises: ValueError for sizes that do not fit, NotImplementedError for other modes, dimensions or dtypes.
    Reference: torch.nn.functional.interpolate.
    """
    linear = mode in ("linear", "bilinear", "bicubic", "trilinear")
    if align_corners is not None and not linear:
        raise ValueError("interpolate: align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                         "trilinear")
    dims = input.ndim - 2
    inside = tuple(input.shape[2:])
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: " + ("either size or scale_factor should be defined" if size is None else
                                            "only one of size or scale_factor should be defined"))
    what, given = ("output size", size) if size is not None else ("scale_factor", scale_factor)
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * dims
    if len(values) != dims:
        raise ValueError(f"interpolate: Input and {what.replace('size', 'scale_factor' if size is None else 'size')} must have the same "
                         f"number of spatial dimensions, but got input with spatial dimensions of {list(inside)} and {what} of {values}")
    if size is not None and recompute_scale_factor:
        raise ValueError("interpolate: recompute_scale_factor is not meaningful with an explicit size.")
    if antialias:
        if mode not in ("bilinear", "bicubic") or dims != 2:
            raise ValueError("interpolate: Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor")
        raise NotImplementedError("interpolate: antialias=True is not implemented: average first, for instance with avg_pool2d")
    if size is None:
        sizes = tuple([math.floor(float(n) * s) for n, s in zip(inside, values, strict=True)])
    elif any([not hasattr(n, "__index__") for n in values]):
        raise TypeError(f"interpolate(): argument 'size' must be tuple of ints, not {given!r:.60}")
    else:
        sizes = tuple([int(n) for n in values])
    scales = (None,) * dims if size is not None or recompute_scale_factor else tuple([float(s) for s in values])
    if dims in (1, 2, 3) and mode == "area":
        return getattr(F, f"adaptive_avg_pool{dims}d")(input, sizes)
    if (mode, dims) not in _OPS:
        raise NotImplementedError(_wrong_mode(mode, input.ndim))
    if min(*inside, *sizes) <= 0:
        raise RuntimeError(f"interpolate: Input and output sizes should be greater than 0, but got input {inside} output {sizes}")
    if input.shape[1] == 0:
        raise RuntimeError(f"interpolate: Non-empty {dims + 2}D data tensor expected but got a tensor with sizes {list(input.shape)}")
    if not input.dtype.is_floating_point and (input.dtype != _dtype.uint8 or mode in ("linear", "trilinear")):
        raise NotImplementedError(f"interpolate: {mode} is not implemented for {input.dtype}: convert the input first, with .to(dtype)")
    return getattr(F, _OPS[mode, dims])(input, sizes, scales, bool(align_corners))


def _wrong_mode(mode, ndim):
    if mode in _DIMS and 3 <= ndim <= 5:
        return f"interpolate: Got {ndim}D input, but {mode} mode needs {_DIMS[mode]}D input"
    return (f"interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | "
            f"bilinear | bicubic | trilinear | area | nearest-exact (got {mode})")


@composite(method=False, function=False)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate, under its former name. Reference: torch.nn.functional.upsample."""
    warnings.warn("nn.functional.upsample is deprecated: use nn.functional.interpolate", stacklevel=2)
    return F.interpolate(input, size, scale_factor, mode, align_corners)


@composite(method=False, function=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with the nearest element, under its former name. Reference: torch.nn.functional.upsample_nearest."""
    warnings.warn("nn.functional.upsample_nearest is deprecated: use nn.functional.interpolate", stacklevel=2)
    return F.interpolate(input, size, scale_factor, "nearest")


@composite(method=False, function=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate, bilinear with aligned corners, under its former name. Reference: torch.nn.functional.upsample_bilinear."""
    warnings.warn("nn.functional.upsample_bilinear is deprecated: use nn.functional.interpolate", stacklevel=2)
    return F.interpolate(input, size, scale_factor, "bilinear", True)
