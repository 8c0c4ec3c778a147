"""Interpolation to other sizes."""
from __future__ import annotations

from collections.abc import Sequence

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module

Sizes = int | Sequence[int]
Factors = float | tuple[float, ...]


class Upsample(Module):
    """nn.functional.interpolate. Reference: torch.nn.Upsample."""

    def __init__(self, size: Sizes | None = None, scale_factor: Factors | None = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None):
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Factors | None = tuple([float(s) for s in scale_factor])
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode, self.align_corners, self.recompute_scale_factor = mode, align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The resized input."""
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        size = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """(N, C, H, W) resized by the nearest element. Reference: torch.nn.UpsamplingNearest2d."""

    def __init__(self, size: Sizes | None = None, scale_factor: Factors | None = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """(N, C, H, W) resized bilinearly, the corners kept. Reference: torch.nn.UpsamplingBilinear2d."""

    def __init__(self, size: Sizes | None = None, scale_factor: Factors | None = None):
        super().__init__(size, scale_factor, "bilinear", True)
