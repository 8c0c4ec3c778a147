"""Initial values of parameters, written in place. Random ones are drawn from the package's generators: see manual_seed."""
from __future__ import annotations

import math
import warnings
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.ops.random import randperm

_GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
          "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much the standard deviation has to be larger before a nonlinearity; `param` is leaky_relu's slope.

    Raises: ValueError for an unknown one. Reference: torch.nn.init.calculate_gain.
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}: the known ones are leaky_relu, {', '.join(_GAINS)}")
    if param is None:
        param = 0.01
    if isinstance(param, bool) or not isinstance(param, (int, float)):
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2 / (1 + param ** 2))


def _fans(tensor):
    """(fan_in, fan_out): how many inputs an output has, and the reverse. Raises ValueError for fewer than 2 dimensions."""
    if tensor.dim() < 2:
        raise ValueError(f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans        # the name that programs for PyTorch use


def _fan(tensor, mode):
    if not isinstance(mode, str) or mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[mode.lower() == "fan_out"]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Evenly spread in [a, b). Reference: torch.nn.init.uniform_."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normally distributed. Reference: torch.nn.init.normal_."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None) -> Tensor:
    """Normally distributed, within [a, b]. Reference: torch.nn.init.trunc_normal_; by the inverse of the distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
                      stacklevel=2)

    def below(x):
        return math.erf((x - mean) / std / math.sqrt(2))

    with no_grad():
        tensor.uniform_(below(a), below(b), generator=generator)
        return tensor.erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(a, b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value. Reference: torch.nn.init.constant_."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones. Reference: torch.nn.init.ones_."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros. Reference: torch.nn.init.zeros_."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity. Raises ValueError for what is no matrix. Reference: torch.nn.init.eye_."""
    if tensor.dim() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}")
    with no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes on as many channels as it can.

    Raises: ValueError for another number of dimensions than 3 to 5, or groups that do not fit. Reference: torch.nn.init.dirac_.
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError(f"Only tensors with 3, 4, or 5 dimensions are supported, got shape {tuple(tensor.shape)}")
    out, into, *kernel = tensor.shape
    if out % groups:
        raise ValueError(f"dim 0 must be divisible by groups, got {out} and {groups}")
    per_group = out // groups
    middle = tuple(n // 2 for n in kernel)
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(per_group, into)):
                tensor[(g * per_group + d, d, *middle)] = 1
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Evenly spread in +-gain * sqrt(6 / (fan_in + fan_out)). Raises ValueError for fewer than 2 dimensions.

    Reference: torch.nn.init.xavier_uniform_; Glorot and Bengio 2010.
    """
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normally distributed with variance gain^2 * 2 / (fan_in + fan_out). Raises ValueError for fewer than 2 dimensions.

    Reference: torch.nn.init.xavier_normal_; Glorot and Bengio 2010.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Evenly spread in +-gain * sqrt(3 / fan). Raises ValueError for fewer than 2 dimensions.

    Reference: torch.nn.init.kaiming_uniform_; He et al. 2015.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normally distributed with variance gain^2 / fan. Raises ValueError for fewer than 2 dimensions.

    Reference: torch.nn.init.kaiming_normal_; He et al. 2015.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, times gain; the dimensions after the first count as one.

    Raises: ValueError for fewer than 2 dimensions. Reference: torch.nn.init.orthogonal_; Saxe et al. 2013.
    """
    if tensor.dim() < 2:
        raise ValueError(f"Only tensors with 2 or more dimensions are supported, got shape {tuple(tensor.shape)}")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        drawn = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        array = (drawn.t() if rows < columns else drawn)._array
        with _device.guard(tensor.device):
            q, r = _device.module(tensor.device).linalg.qr(array)
        q = wrap(q) * wrap(r).diagonal().sign()          # so that each orthogonal matrix is as likely as any other
        tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normally distributed, with a share of each column's elements zero. Raises ValueError for what is no matrix.

    Reference: torch.nn.init.sparse_; Martens 2010.
    """
    if tensor.dim() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[randperm(rows, generator=generator, device=tensor.device)[:zeros], column] = 0
    return tensor
