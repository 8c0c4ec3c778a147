"""Padding: borders of a constant, or of what lies inside, mirrored, repeated or wrapped around."""
from __future__ import annotations

import builtins
from numbers import Number

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import fitted
from autograd_gpu.ops.reduce import accumulator

_range = builtins.slice


def _widths(ndim, padding):
    """What a padding adds and what it takes away, as (left, right) of each dimension; its own first pair is the last dimension's."""
    pairs = [(0, 0)] * (ndim - len(padding) // 2) + [(padding[i], padding[i + 1]) for i in range(len(padding) - 2, -1, -2)]
    return [(max(a, 0), max(b, 0)) for a, b in pairs], [(max(-a, 0), max(-b, 0)) for a, b in pairs]


def _wider(sizes, widths):
    return [n + a + b for n, (a, b) in zip(sizes, widths, strict=True)]


def _inside(array, widths):
    """The part of an array within these widths of its borders: a view."""
    return array[tuple([_range(a, n - b) for n, (a, b) in zip(array.shape, widths, strict=True)])]


def _check_pairs(name, padding, ndim):
    if len(padding) % 2:
        raise RuntimeError(f"{name}: Padding length must be divisible by 2, left and right width of each dimension; got {len(padding)}")
    if len(padding) > 2 * ndim:
        raise RuntimeError(f"{name}: Padding length should be less than or equal to two times the input dimension but got padding length "
                           f"{len(padding)} and input of dimension {ndim}")


# -------------------------------------------------------------------------------------------------------------- a constant

@op(method=False)
def constant_pad_nd(self, pad: Size, value: Number = 0):
    """A border of one value; a negative width takes parts away.

    pad: (left, right) of the last dimension, then of the one before, and so on.
    Raises: RuntimeError where less than nothing would be left, or for a value that the dtype cannot hold.
    Reference: torch.constant_pad_nd.
    """
    _check_pairs("constant_pad_nd", pad, self.ndim)
    added, taken = _widths(self.ndim, pad)
    for d, (n, (a, b), (left, right)) in enumerate(zip(self.shape, added, taken, strict=True)):
        if max(left, right) > n or n + a + b < left + right:
            raise RuntimeError(f"constant_pad_nd: narrow(): length must be non-negative, but dimension {d} has size {n} and its padding is "
                               f"{a - left} and {b - right}")
    if not any(pad):
        return self.copy(_device.order_of(self))
    made = np.full(_wider(_inside(self, taken).shape, added), fitted("constant_pad_nd", value, self.dtype), self.dtype)
    _inside(made, added)[...] = _inside(self, taken)
    return made

constant_pad_nd.vjp(self=lambda grad, pad: F.constant_pad_nd(grad, tuple([-p for p in pad])))


# ---------------------------------------------------------------------------------------------------------- what lies inside

def _borders(shape, added, kind):
    """(dimension, the key of a border of a padded array, the key of what it repeats) for all borders."""
    for d, (n, (left, right)) in enumerate(zip(shape, added, strict=True)):
        end = n - right
        first, last = {
            "reflect": (_range(2 * left, left, -1), _range(end - 2, end - 2 - right if end - 2 >= right else None, -1)),
            "replicate": (_range(left, left + 1), _range(end - 1, end)),
            "circular": (_range(end - left, end), _range(left, left + right))}[kind]
        before = (_range(None),) * d
        if left:
            yield d, (*before, _range(0, left)), (*before, first)
        if right:
            yield d, (*before, _range(end, n)), (*before, last)


@op(method=False, function=False)
def bordered(self, padding: Size, kind: str):
    """A tensor within a border of its own elements; what a negative width takes away is taken from the result."""
    added, taken = _widths(self.ndim, padding)
    made = np.empty(_wider(self.shape, added), self.dtype)
    _inside(made, added)[...] = self
    for _, border, source in _borders(made.shape, added, kind):
        made[border] = made[source]
    return np.ascontiguousarray(_inside(made, taken))

bordered.vjp(self=lambda grad, self_shape, padding, kind: F.unbordered(grad, self_shape, padding, kind))


@op(method=False, function=False)
def unbordered(grad_output, input_sizes: Size, padding: Size, kind: str):
    """The gradient of bordered: that of each border added to that of what it repeats. Half precision is added up in float32."""
    added, taken = _widths(grad_output.ndim, padding)
    work = np.zeros(_wider(input_sizes, added), accumulator(grad_output.dtype))
    _inside(work, taken)[...] = grad_output
    for d, border, source in _borders(work.shape, added, kind):
        work[source] += np.add.reduce(work[border], d, keepdims=True) if kind == "replicate" else work[border]
    return _inside(work, added).astype(grad_output.dtype)

unbordered.vjp(grad_output=lambda grad, padding, kind: F.bordered(grad, padding, kind))


def _named(title, kind):
    """bordered under the name that PyTorch's nodes have for one mode and number of dimensions."""
    def body(self, padding: Size):
        return F.bordered(self, padding, kind)

    body.__name__ = f"{kind}_pad" if title.startswith("torch::") else title.removesuffix("Backward0")
    body.__doc__ = f"nn.functional.pad with mode {kind!r}."
    op(method=False, function=False, node=title)(body).vjp(
        self=lambda grad, self_shape, padding: F.unbordered(grad, self_shape, padding, kind))
    return body.__name__


_NAMES = {(mode, n): _named(f"{title}Pad{n}DBackward0", mode) for mode, title in (("reflect", "Reflection"), ("replicate", "Replication"))
          for n in (1, 2, 3)}
_named("torch::autograd::CopySlices", "circular")


@composite(method=False, function=False)
def pad(input, pad, mode="constant", value=None):
    """The input within a border; a negative width takes parts away.

    pad: (left, right) of the last dimension, then of the one before, and so on. mode: "constant", of `value` or 0; "reflect", mirrored
    without the edge; "replicate", the edge repeated; "circular", from the other side. All but "constant" are for the last one, two or three
    dimensions of (C, ...) or (N, C, ...).
    Raises: RuntimeError for widths that do not go with the size, NotImplementedError for other modes, dimensions or dtypes.
    Reference: torch.nn.functional.pad.
    """
    if isinstance(pad, (str, Tensor)) or not hasattr(pad, "__iter__"):
        raise TypeError(f"pad(): argument 'pad' (position 2) must be tuple of ints, not {type(pad).__name__}")
    for i, p in enumerate(pad):
        if isinstance(p, bool) or not hasattr(p, "__index__"):
            raise TypeError(f"pad(): argument 'pad' (position 2) must be tuple of ints, but found element of type {type(p).__name__} "
                            f"at pos {i}")
    pad = tuple([int(p) for p in pad])
    _check_pairs("pad", pad, input.ndim)
    if value is not None and (isinstance(value, complex) or not isinstance(value, (Number, np.generic, Tensor))):
        raise TypeError(f"pad(): argument 'value' (position 4) must be float, not {type(value).__name__}")
    if mode == "constant":
        return F.constant_pad_nd(input, pad, 0.0 if value is None else float(value))
    if value is not None and value != 0:
        raise RuntimeError(f'pad: Padding mode "{mode}" doesn\'t take in value argument')
    n = len(pad) // 2
    if not 1 <= n <= 3 or input.ndim not in (n + 1, n + 2):
        raise NotImplementedError(f"pad: Padding size {len(pad)} is not supported for {input.ndim}D input tensor: mode {mode!r} pads the "
                                  f"last one, two or three dimensions of (C, ...) or (N, C, ...)")
    if mode == "circular":
        return _circular(input, pad)
    if (mode, n) not in _NAMES:
        raise NotImplementedError(f"pad: Unrecognised padding mode {mode}: it is constant, reflect, replicate or circular")
    _check_sizes(input, pad, mode)
    return getattr(F, _NAMES[mode, n])(input, pad)


def _circular(input, pad):
    """Negative widths are taken away first, so that what is wrapped around is what is left."""
    if min(pad) < 0:
        input = F.constant_pad_nd(input, tuple([min(p, 0) for p in pad]))
        pad = tuple([max(p, 0) for p in pad])
    for i, width in enumerate(pad):
        if width > input.shape[-1 - i // 2]:
            raise RuntimeError(f"pad: Padding value causes wrapping around more than once: {width} for size {input.shape[-1 - i // 2]}")
    return F.circular_pad(input, pad)


def _check_sizes(input, pad, mode):
    n = len(pad) // 2
    shape, batched = list(input.shape), input.ndim == n + 2
    if 0 in shape[batched:]:
        raise RuntimeError(f"pad: Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero "
                           f"dimensions for input, but got: {shape}")
    if input.dtype == _dtype.bool:
        raise NotImplementedError(f"pad: mode {mode!r} is not implemented for 'Bool': convert the input first, with .to(dtype)")
    for i in range(n):
        size, left, right = shape[-1 - i], pad[2 * i], pad[2 * i + 1]
        if mode == "reflect" and max(left, right) >= size:
            raise RuntimeError(f"pad: Argument #{4 + 2 * i}: Padding size should be less than the corresponding input dimension, but got: "
                               f"padding ({left}, {right}) at dimension {input.ndim - 1 - i} of input {shape}")
        if size + left + right < 1:
            raise RuntimeError(f"pad: input ({'WHD'[i]}: {size}) is too small. Calculated output {'WHD'[i]}: {size + left + right}")
