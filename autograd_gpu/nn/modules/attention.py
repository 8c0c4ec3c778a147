"""Multi-head attention."""
from __future__ import annotations

from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.linear import Linear
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.ops.creation import empty


class NonDynamicallyQuantizableLinear(Linear):
    """Linear, under the name that the output of attention has in PyTorch."""


class MultiheadAttention(Module):
    """Attention of several heads, each in embed_dim / num_heads dimensions.

    `kdim`, `vdim`: the widths of key and value where they are not embed_dim. `batch_first`: the batch is dimension 0, not 1.
    `add_bias_kv`: one more key and value that are learned; `add_zero_attn`: one more of zeros.
    Raises: ValueError or AssertionError for sizes that do not fit. Reference: torch.nn.MultiheadAttention.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
                 device: Any = None, dtype: Any = None):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead")
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def new(*shape):
            return Parameter(empty(*shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = new(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = new(embed_dim, embed_dim)
            self.k_proj_weight = new(embed_dim, self.kdim)
            self.v_proj_weight = new(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", new(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.bias_k = new(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = new(1, 1, embed_dim) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self):
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(result, weights or None); see nn.functional.multi_head_attention_forward for shapes and masks."""
        turn = self.batch_first and query.dim() == 3
        if turn:
            found: dict[int, Tensor] = {}    # the same argument stays the same Tensor, so that its projections can be one product
            query, key, value = (found.setdefault(id(t), t.transpose(1, 0)) for t in (query, key, value))
        out, weights = F.multi_head_attention_forward(  # type: ignore[misc]
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal)
        return out.transpose(1, 0) if turn else out, weights
