"""Dropout, of elements or of channels as a whole."""
from __future__ import annotations

import math
import warnings

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.generator import generator_for
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op

_ALPHA = 1.7580993408473766                  # minus the limit of selu at minus infinity


@composite(method=False)
def dropout(input, p=0.5, train=True):
    """Each element zero with probability p, else divided by 1 - p; the input itself if not training.

    Raises: RuntimeError for a p outside of 0 to 1. Reference: torch.dropout.
    """
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout: dropout probability has to be between 0 and 1, but got {p}")
    return F.dropout_function(input, p, train)


@composite(method=False, function=False)
def dropout_function(input, p=0.5, training=True, inplace=False):
    """Each element zero with probability p, else divided by 1 - p; the input itself if not training.

    Raises: ValueError for a p outside of 0 to 1. Reference: torch.nn.functional.dropout.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or not input._array.size:
        return input
    if p != 1 and _dtype.category(input._array.dtype) not in "fc":
        raise RuntimeError(f"dropout: result type Float can't be cast to the desired output type {input.dtype}: convert the "
                           f"input first")
    mask = F.dropout_mask(input, p)
    return input.mul_(mask) if inplace else F.mul(input, mask)


@op(method=False, function=False)
def dropout_mask(self, p: float):
    """Zero with probability p, else 1 / (1 - p), in the shape of the input."""
    if p == 1:
        return np.zeros(self.shape, self.dtype)
    wide = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
    stream = generator_for(_device.of(self))
    return (stream.uniform(self.shape, wide) >= p) * self.dtype.type(1 / (1 - p))


# ------------------------------------------------------------------------------------------------- channels, and for selu

def _check(name, p):
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")


def _channels(input):
    """The shape of one number per channel, (N, C, 1, ...)."""
    return (*input.shape[:2], *(1,) * (input.ndim - 2))


@composite(method=False, function=False)
def feature_dropout(input, p, training, inplace=False):
    """Each channel of (N, C, *) zero with probability p, else divided by 1 - p."""
    if not training or p == 0 or not input._array.size:
        return input
    mask = F.dropout_mask(input.new_empty(_channels(input)), p)
    return input.mul_(mask) if inplace else F.mul(input, mask)


def _of_channels(name, input, p, training, inplace, ndim):
    """feature_dropout of (N, C, *) with `ndim` dimensions, or of (C, *) with one less."""
    _check(name, p)
    if input.ndim != ndim - 1:
        return F.feature_dropout(input, p, training, inplace)
    batch = F.unsqueeze_(input, 0) if inplace else F.unsqueeze(input, 0)
    out = F.feature_dropout(batch, p, training, inplace)
    return F.squeeze_(out, 0) if inplace else F.squeeze(out, 0)


def _unusual(name, input, ndim):
    if input.ndim not in (ndim - 1, ndim):
        warnings.warn(f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated and will result in an error in a future "
                      f"release: use dropout, or an input of {ndim - 1} or {ndim} dimensions", stacklevel=3)


@composite(method=False, function=False)
def dropout1d(input, p=0.5, training=True, inplace=False):
    """Each channel of (N, C, L) or (C, L) zero with probability p, else divided by 1 - p.

    Raises: ValueError for a p outside of 0 to 1, RuntimeError for another input. Reference: torch.nn.functional.dropout1d.
    """
    _check("dropout1d", p)
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input: use dropout for elements")
    return _of_channels("dropout1d", input, p, training, inplace, 3)


@composite(method=False, function=False)
def dropout2d(input, p=0.5, training=True, inplace=False):
    """Each channel of (N, C, H, W) zero with probability p, else divided by 1 - p; three dimensions are taken as (N, C, L).

    Raises: ValueError for a p outside of 0 to 1. Reference: torch.nn.functional.dropout2d.
    """
    _check("dropout2d", p)
    _unusual("dropout2d", input, 4)
    return F.feature_dropout(input, p, training, inplace)


@composite(method=False, function=False)
def dropout3d(input, p=0.5, training=True, inplace=False):
    """Each channel of (N, C, D, H, W) or (C, D, H, W) zero with probability p, else divided by 1 - p.

    Raises: ValueError for a p outside of 0 to 1. Reference: torch.nn.functional.dropout3d.
    """
    _check("dropout3d", p)
    _unusual("dropout3d", input, 5)
    return _of_channels("dropout3d", input, p, training, inplace, 5)


def _for_selu(input, shape, p):
    """The dropped elements get selu's limit; then scaled and moved so that mean and variance stay 0 and 1."""
    keep = F.to(F.dropout_mask(input.new_empty(shape), p) != 0, input.dtype)
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    return input * (keep * scale) + ((keep - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


@composite(method=False, function=False)
def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout for selu: mean and variance stay 0 and 1. Raises ValueError for a p outside of 0 to 1.

    Reference: torch.nn.functional.alpha_dropout; Klambauer et al. 2017.
    """
    _check("alpha_dropout", p)
    return _alpha(input, input.shape, p, training, inplace)


@composite(method=False, function=False)
def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of the channels of (N, C, *) as a whole. Raises ValueError for a p outside of 0 to 1.

    Reference: torch.nn.functional.feature_alpha_dropout.
    """
    _check("feature_alpha_dropout", p)
    return _alpha(input, _channels(input), p, training, inplace)


def _alpha(input, shape, p, training, inplace):
    if not training or p == 0 or not input._array.size:
        return input
    out = F.mul(input, False) if p == 1 else _for_selu(input, shape, p)
    return input.copy_(out) if inplace else out
