"""Flatten and Unflatten."""
from __future__ import annotations

from autograd_gpu.base import Tensor
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.ops.namespace import OPS as F


class Flatten(Module):
    """The dimensions from start_dim to end_dim as one. Reference: torch.nn.Flatten."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """The input with fewer dimensions."""
        return F.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several. Raises TypeError for sizes that are no tuple of ints. Reference: torch.nn.Unflatten."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]):
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}")
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(f"unflattened_size must be tuple of ints, but found element of type {type(size).__name__} at pos {i}")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """The input with more dimensions."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
