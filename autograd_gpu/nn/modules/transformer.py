"""The encoder of a transformer."""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.attention import MultiheadAttention
from autograd_gpu.nn.modules.container import ModuleList
from autograd_gpu.nn.modules.dropout import Dropout
from autograd_gpu.nn.modules.linear import Linear
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.modules.normalization import LayerNorm


class TransformerEncoderLayer(Module):
    """Self-attention and two linear maps, each added to its input and normalised.

    `activation`: "relu", "gelu" or a function. `norm_first`: normalise before instead of after.
    Raises: RuntimeError for the name of another activation. Reference: torch.nn.TransformerEncoderLayer; Vaswani et al. 2017.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable[[Tensor], Tensor] = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if isinstance(activation, str):
            if activation not in ("relu", "gelu"):
                raise RuntimeError(f"activation should be relu/gelu, not {activation}")
            activation = F.relu if activation == "relu" else F.gelu
        self.activation = activation

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        """The shape of src; masks as in MultiheadAttention."""
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal):
        x, _ = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal)
        return self.dropout1(x)

    def _ff_block(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """Copies of an encoder layer one after the other, and a normalisation if one is given.

    enable_nested_tensor and mask_check are accepted for programs that give them. Reference: torch.nn.TransformerEncoder.
    """

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        """The shape of src; masks as in MultiheadAttention."""
        out = src
        for layer in self.layers:
            out = layer(out, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return out if self.norm is None else self.norm(out)
