"""Convolutions and transposed convolutions."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.ops.creation import empty

_MODES = ("zeros", "reflect", "replicate", "circular")


def _numbers(value, n):
    return tuple(value) if isinstance(value, Sequence) else (value,) * n


class _ConvNd(Module):
    """What the convolutions share. `dims`: over how many dimensions they go."""

    dims: int
    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias,
                 padding_mode, device, dtype):
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {groups}")
        if in_channels % groups:
            raise ValueError(f"in_channels must be divisible by groups, but {in_channels} is not by {groups}")
        if out_channels % groups:
            raise ValueError(f"out_channels must be divisible by groups, but {out_channels} is not by {groups}")
        n = self.dims
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = _numbers(kernel_size, n), _numbers(stride, n), _numbers(dilation, n)
        self.transposed, self.output_padding, self.padding_mode = transposed, _numbers(output_padding, n), padding_mode
        self.padding = padding if isinstance(padding, str) else _numbers(padding, n)
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'valid' and 'same'")
        if padding == "same" and any([s != 1 for s in self.stride]):
            raise ValueError("padding='same' is not supported for strided convolutions: give it as numbers")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {', '.join(_MODES)}, but got padding_mode={padding_mode!r}")
        self._reversed_padding_repeated_twice = self._borders()
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*shape, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _borders(self):
        """(left, right) of the last dimension, of the one before, and so on: what functional.pad takes."""
        if not isinstance(self.padding, str):
            return [p for p in reversed(self.padding) for _ in range(2)]
        both = [d * (k - 1) if self.padding == "same" else 0 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        return [side for b in reversed(both) for side in (b // 2, b - b // 2)]

    def reset_parameters(self) -> None:
        """Draw weight and bias evenly from +-1 / sqrt(elements of a window)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            inputs = math.prod(self.weight.shape[1:])
            if inputs:
                init.uniform_(self.bias, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

    def extra_repr(self) -> str:
        plain = (0,) * len(self.kernel_size)
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        parts += [f"padding={self.padding}"] * (self.padding != plain)
        parts += [f"dilation={self.dilation}"] * (self.dilation != (1,) * len(self.dilation))
        parts += [f"output_padding={self.output_padding}"] * (self.output_padding != plain)
        parts += [f"groups={self.groups}"] * (self.groups != 1) + ["bias=False"] * (self.bias is None)
        return ", ".join(parts + [f"padding_mode={self.padding_mode}"] * (self.padding_mode != "zeros"))


class _Conv(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device,
                         dtype)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, *size) or without batch -> the same with out_channels and the windows."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        """forward with another weight and bias, for classes that compute theirs."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0
        return getattr(F, f"conv{self.dims}d")(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """The products of `out_channels` weights with each window of a dimension. weight: (out, in / groups, k). Reference: torch.nn.Conv1d."""

    dims = 1


class Conv2d(_Conv):
    """Conv1d over two dimensions. Reference: torch.nn.Conv2d."""

    dims = 2


class Conv3d(_Conv):
    """Conv1d over three dimensions. Reference: torch.nn.Conv3d."""

    dims = 3


class _ConvTranspose(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                 groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}')
        if isinstance(padding, str):
            raise ValueError(f"padding must be numbers for {type(self).__name__}, got {padding!r}")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias,
                         padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """(batch, in_channels, *size) or without batch -> the same with out_channels, of output_size where there are several."""
        more = self.output_padding if output_size is None else self._output_padding(input, output_size)
        return getattr(F, f"conv_transpose{self.dims}d")(input, self.weight, self.bias, self.stride, self.padding, more, self.groups,
                                                         self.dilation)

    def _output_padding(self, input, output_size):
        """The output_padding for a size of the result. Raises ValueError for one that there is not."""
        n = self.dims
        size, lead = list(output_size), input.ndim - n
        if len(size) not in (n, n + lead):
            raise ValueError(f"ConvTranspose{n}D: for {input.ndim}D input, output_size must have {n} or {n + lead} elements (got "
                             f"{len(size)})")
        size = size[-n:]
        least = [(m - 1) * s - 2 * p + d * (k - 1) + 1 for m, k, s, p, d in
                 zip(input.shape[lead:], self.kernel_size, self.stride, self.padding, self.dilation, strict=True)]
        most = [m + s - 1 for m, s in zip(least, self.stride, strict=True)]
        if any([not a <= m <= b for a, m, b in zip(least, size, most, strict=True)]):
            raise ValueError(f"requested an output size of {tuple(size)}, but valid sizes range from {least} to {most} (for an input of "
                             f"{list(input.shape[lead:])})")
        return [m - a for m, a in zip(size, least, strict=True)]


class ConvTranspose1d(_ConvTranspose):
    """The gradient of a Conv1d for its input, as a module. weight: (in, out / groups, k). Reference: torch.nn.ConvTranspose1d."""

    dims = 1


class ConvTranspose2d(_ConvTranspose):
    """ConvTranspose1d over two dimensions. Reference: torch.nn.ConvTranspose2d."""

    dims = 2


class ConvTranspose3d(_ConvTranspose):
    """ConvTranspose1d over three dimensions. Reference: torch.nn.ConvTranspose3d."""

    dims = 3
