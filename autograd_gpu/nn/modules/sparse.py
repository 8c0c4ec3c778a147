"""Embedding."""
from __future__ import annotations

from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.ops.creation import empty


class Embedding(Module):
    """A table whose rows are looked up by index. weight: (num_embeddings, embedding_dim).

    `padding_idx`: a row of zeros at first, which gets no gradient. `max_norm`: rows that are used and longer are shortened first.
    Raises: AssertionError for a padding_idx out of range. Reference: torch.nn.Embedding.
    """

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
                 _freeze: bool = False, device: Any = None, dtype: Any = None):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(f"Padding_idx must be within num_embeddings, got {padding_idx} for {num_embeddings} rows")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype), requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Embedding:
        """An Embedding over the memory of a table; unless `freeze`, it is trained. Raises AssertionError for no table.

        Reference: torch.nn.Embedding.from_pretrained.
        """
        if embeddings.dim() != 2:
            raise AssertionError(f"Embeddings parameter is expected to be 2-dimensional, got shape {tuple(embeddings.shape)}")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def reset_parameters(self) -> None:
        """Draw the rows from the normal distribution, but for the padding's, which is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        """Indices of any shape -> (*, embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, default in (("padding_idx", None), ("max_norm", None), ("norm_type", 2), ("scale_grad_by_freq", False),
                              ("sparse", False)):
            value = getattr(self, name)
            if value is not default and value != default:
                parts.append(f"{name}={value}")
        return ", ".join(parts)
