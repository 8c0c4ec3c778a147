"""Padding of the last one, two or three dimensions."""
from __future__ import annotations

from collections.abc import Sequence

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module


class _PadNd(Module):
    """What the padding modules have in common: an int pads all sides, a sequence is as nn.functional.pad takes it."""

    mode, dims = "constant", 0

    def __init__(self, padding: int | Sequence[int]):
        super().__init__()
        self.padding = tuple(padding) if hasattr(padding, "__iter__") else (padding,) * (2 * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):

    def __init__(self, padding: int | Sequence[int]):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The padded input. Raises ValueError for another number of dimensions."""
        n = self.dims + 1
        if input.ndim not in (n, n + 1):
            raise ValueError(f"expected {n}D or {n + 1}D input (got {input.ndim}D input)")
        return super().forward(input)


class ConstantPad1d(_ConstantPadNd):
    """The last dimension within `value`. Reference: torch.nn.ConstantPad1d."""

    dims = 1


class ConstantPad2d(_ConstantPadNd):
    """The last two dimensions within `value`. Reference: torch.nn.ConstantPad2d."""

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """The last three dimensions within `value`. Reference: torch.nn.ConstantPad3d."""

    dims = 3


class ZeroPad1d(_ZeroPadNd):
    """The last dimension within zeros. Reference: torch.nn.ZeroPad1d."""

    dims = 1


class ZeroPad2d(_ZeroPadNd):
    """The last two dimensions within zeros. Reference: torch.nn.ZeroPad2d."""

    dims = 2


class ZeroPad3d(_ZeroPadNd):
    """The last three dimensions within zeros. Reference: torch.nn.ZeroPad3d."""

    dims = 3


class ReflectionPad1d(_PadNd):
    """(N, C, W) or (C, W) mirrored at the edges, which are not repeated. Reference: torch.nn.ReflectionPad1d."""

    mode, dims = "reflect", 1


class ReflectionPad2d(_PadNd):
    """(N, C, H, W) or (C, H, W) mirrored at the edges, which are not repeated. Reference: torch.nn.ReflectionPad2d."""

    mode, dims = "reflect", 2


class ReflectionPad3d(_PadNd):
    """(N, C, D, H, W) or (C, D, H, W) mirrored at the edges, which are not repeated. Reference: torch.nn.ReflectionPad3d."""

    mode, dims = "reflect", 3


class ReplicationPad1d(_PadNd):
    """(N, C, W) or (C, W) with its edges repeated. Reference: torch.nn.ReplicationPad1d."""

    mode, dims = "replicate", 1


class ReplicationPad2d(_PadNd):
    """(N, C, H, W) or (C, H, W) with its edges repeated. Reference: torch.nn.ReplicationPad2d."""

    mode, dims = "replicate", 2


class ReplicationPad3d(_PadNd):
    """(N, C, D, H, W) or (C, D, H, W) with its edges repeated. Reference: torch.nn.ReplicationPad3d."""

    mode, dims = "replicate", 3


class CircularPad1d(_CircularPadNd):
    """(N, C, W) or (C, W) wrapped around. Reference: torch.nn.CircularPad1d."""

    dims = 1


class CircularPad2d(_CircularPadNd):
    """(N, C, H, W) or (C, H, W) wrapped around. Reference: torch.nn.CircularPad2d."""

    dims = 2


class CircularPad3d(_CircularPadNd):
    """(N, C, D, H, W) or (C, D, H, W) wrapped around. Reference: torch.nn.CircularPad3d."""

    dims = 3
