"""Attention."""
from __future__ import annotations

import math

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op

_NEVER = -math.inf                           # a mask's value where nothing is attended to


@op(node="SafeSoftmaxBackward0", method=False, function=False)
def safe_softmax(self, dim: int):
    """softmax, of which a row of nothing but -inf is zeros instead of NaN."""
    return F.where(F.all(self == _NEVER, dim, True), self.dtype.type(0), F.softmax(self, dim))

safe_softmax.vjp(self=lambda grad, result, dim: F.softmax_backward(grad, result, dim))


@composite(method=False, function=False)
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(query @ key.T * scale) @ value; `scale` is 1 / sqrt(width) by default.

    Shape: (*, l, e), (*, s, e), (*, s, v) -> (*, l, v). `attn_mask`, broadcast to (*, l, s): False where a key is left out, or a float
    that is added. `is_causal`: query i sees keys up to i. `enable_gqa`: fewer heads (dimension -3) of keys and values than of queries.
    Raises: RuntimeError for a mask beside is_causal. Reference: torch.nn.functional.scaled_dot_product_attention.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(f"scaled_dot_product_attention: Expected query, key, and value to all be at least 2 dimensional, but got "
                           f"{query.ndim}, {key.ndim} and {value.ndim} dimensions")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = F.repeat_interleave(key, times, -3), F.repeat_interleave(value, times, -3)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else math.inf
    scores = F.matmul(query * scale, F.transpose(key, -2, -1))
    if is_causal:
        attn_mask = F.tril(query.new_ones(tuple(scores.shape[-2:]))) != 0
    if attn_mask is not None:
        scores = scores + _added(attn_mask, query.dtype, False)
    return F.matmul(F.dropout_function(F.safe_softmax(scores, -1), dropout_p), value)


def _added(mask, dtype, left_out):
    """A mask as the numbers to add to scores; of bools, -inf where it is `left_out`."""
    if str(mask.dtype) != "torch.bool":
        return mask
    return F.masked_fill(mask.new_zeros(tuple(mask.shape), dtype=dtype), mask if left_out else F.logical_not(mask), _NEVER)


@composite(method=False, function=False)
def multi_head_attention_forward(
        query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
        out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
        use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
        average_attn_weights=True, is_causal=False):
    """Attention of num_heads heads: (result, weights), the weights None unless wanted.

    Shape: query (l, n, e), key and value (s, n, *); without n where there is no batch. Masks are of bools, True where a key is left out,
    or of floats that are added: key_padding_mask (n, s), attn_mask (l, s) or (n * num_heads, l, s). `is_causal` is a hint about attn_mask.
    Raises: AssertionError or RuntimeError for sizes that do not fit. Reference: torch.nn.functional.multi_head_attention_forward.
    """
    if is_causal and attn_mask is None:
        raise RuntimeError("multi_head_attention_forward: Need attn_mask if specifying the is_causal hint.")
    batched = query.ndim == 3
    _check_inputs(query, key, value, key_padding_mask, embed_dim_to_check, num_heads)
    same, alike = query is key and key is value, key is value
    if not batched:
        query, key, value = (F.unsqueeze(t, 1) for t in (query, key, value))
        key_padding_mask = key_padding_mask if key_padding_mask is None else F.unsqueeze(key_padding_mask, 0)
    length, n, width = query.shape
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else F.chunk(in_proj_weight, 3)
    biases = (None,) * 3 if in_proj_bias is None else F.chunk(in_proj_bias, 3)
    if same and not use_separate_proj_weight:
        q, k, v = F.chunk(F.linear(query, in_proj_weight, in_proj_bias), 3, -1)
    else:
        q, k, v = (F.linear(t, w, b) for t, w, b in zip((query, key, key if alike else value), weights, biases, strict=True))
    mask = None if attn_mask is None else _shaped(_added(attn_mask, query.dtype, True), n * num_heads, length, key.shape[0])
    padding = None if key_padding_mask is None else _added(key_padding_mask, query.dtype, True)
    if bias_k is not None:
        k, v = F.cat((k, F.repeat(bias_k, (1, n, 1)))), F.cat((v, F.repeat(bias_v, (1, n, 1))))
        mask, padding = _longer(mask), _longer(padding)
    q = _heads(q, n, num_heads)
    k = _heads(k, n, num_heads) if static_k is None else static_k
    v = _heads(v, n, num_heads) if static_v is None else static_v
    if add_zero_attn:
        k, v = (F.cat((t, t.new_zeros((t.shape[0], 1, t.shape[2]))), 1) for t in (k, v))
        mask, padding = _longer(mask), _longer(padding)
    if padding is not None:
        rows = F.reshape(F.expand(F.view(padding, (n, 1, 1, -1)), (n, num_heads, 1, padding.shape[1])), (n * num_heads, 1, -1))
        mask = rows if mask is None else mask + rows
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        scores = F.bmm(q * math.sqrt(1 / q.shape[-1]), F.transpose(k, 1, 2))
        shares = F.dropout_function(F.softmax(scores if mask is None else scores + mask, -1), dropout_p)
        out = F.bmm(shares, v)
    else:
        out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p)
    out = F.linear(F.reshape(F.transpose(out, 0, 1), (length * n, width)), out_proj_weight, out_proj_bias)
    out = F.view(out, (length, n, out.shape[1]))
    if not need_weights:
        return out if batched else F.squeeze(out, 1), None
    shares = F.view(shares, (n, num_heads, length, k.shape[1]))
    if average_attn_weights:
        shares = F.mean(shares, 1)
    return (out, shares) if batched else (F.squeeze(out, 1), F.squeeze(shares, 0))


def _check_inputs(query, key, value, key_padding_mask, embed_dim, num_heads):
    if query.ndim not in (2, 3):
        raise AssertionError(f"multi_head_attention_forward: query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D "
                             f"query tensor")
    for name, t in (("key", key), ("value", value)):
        if t.ndim != query.ndim:
            raise AssertionError(f"multi_head_attention_forward: For {query.ndim}-D query expected {name} to be {query.ndim}-D but found "
                                 f"{t.ndim}-D")
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(f"multi_head_attention_forward: For {query.ndim}-D query expected key_padding_mask to be None or "
                             f"{query.ndim - 1}-D but found {key_padding_mask.ndim}-D")
    if query.shape[-1] != embed_dim:
        raise AssertionError(f"multi_head_attention_forward: was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}")
    if embed_dim % num_heads:
        raise AssertionError(f"multi_head_attention_forward: embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(f"multi_head_attention_forward: key's sequence and batch dims {tuple(key.shape[:-1])} do not match value's "
                             f"{tuple(value.shape[:-1])}")


def _shaped(mask, heads, length, keys):
    """An attn_mask of (l, s) or (heads, l, s) as three dimensions. Raises RuntimeError for another shape."""
    wanted = (length, keys) if mask.ndim == 2 else (heads, length, keys)
    if tuple(mask.shape) != wanted:
        raise RuntimeError(f"multi_head_attention_forward: The shape of the attn_mask is {tuple(mask.shape)}, but should be {wanted}.")
    return F.unsqueeze(mask, 0) if mask.ndim == 2 else mask


def _longer(mask):
    """A mask for one more key, which is not left out."""
    return mask if mask is None else F.cat((mask, mask.new_zeros((*mask.shape[:-1], 1))), -1)


def _heads(t, n, num_heads):
    """(s, n, e) as (n * num_heads, s, e / num_heads)."""
    return F.transpose(F.reshape(t, (t.shape[0], n * num_heads, t.shape[2] // num_heads)), 0, 1)
