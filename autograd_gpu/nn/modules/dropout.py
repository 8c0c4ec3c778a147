"""Dropout: elements, or channels as a whole, that are zero at random in training."""
from __future__ import annotations

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module


class _DropoutNd(Module):
    """What the dropout modules have in common."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training each element is zero with probability p, else divided by 1 - p. Reference: torch.nn.Dropout."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training each channel of (N, C, L) or (C, L) is zero with probability p. Reference: torch.nn.Dropout1d."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training each channel of (N, C, H, W) is zero with probability p. Reference: torch.nn.Dropout2d."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training each channel of (N, C, D, H, W) is zero with probability p. Reference: torch.nn.Dropout3d."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout for selu: mean and variance stay 0 and 1. Reference: torch.nn.AlphaDropout."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of channels as a whole. Reference: torch.nn.FeatureAlphaDropout."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, or its dropout in training."""
        return F.feature_alpha_dropout(input, self.p, self.training)
