"""Distances between vectors."""
from __future__ import annotations

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along a dimension. Reference: torch.nn.CosineSimilarity."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The inputs without the dimension."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors. Reference: torch.nn.PairwiseDistance."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The inputs without the last dimension."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
