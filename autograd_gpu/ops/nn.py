"""Linear layers, embedding, distances: ops behind nn.functional."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import count_write, wrap
from autograd_gpu.cuda import bounds, scatter
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import refuse
from autograd_gpu.rows import added_up

_CPU = np.ndarray                            # np in a body may be CuPy


# ------------------------------------------------------------------------------------------------------------------ linear

@composite(method=False, function=False)
def linear(input, weight, bias=None):
    """input @ weight.T + bias.

    Shape: (*, in), (out, in), (out) -> (*, out). Raises: RuntimeError for sizes that do not fit.
    Reference: torch.nn.functional.linear.
    """
    if not input.ndim or not weight.ndim:
        raise RuntimeError(f"linear: both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D")
    if weight.ndim == 1:
        out = F.matmul(input, F.t(weight))
        return out if bias is None else out + bias
    if bias is None:
        return F.matmul(input, F.t(weight))
    if input.ndim == 2:
        return F.addmm(bias, input, F.t(weight))
    if bias.ndim > 1 or not input.is_contiguous():
        return F.matmul(input, F.t(weight)) + bias
    rows = math.prod(input.shape[:-1])
    return F.view(F.addmm(bias, F.view(input, (rows, input.shape[-1])), F.t(weight)), (*input.shape[:-1], weight.shape[0]))


@composite(method=False)
def bilinear(input1, input2, weight, bias=None):
    """input1 @ weight[k] @ input2 + bias[k] for each k.

    Shape: (*, a), (*, b), (out, a, b), (out) -> (*, out). Raises: RuntimeError for sizes that do not fit. Reference: torch.bilinear.
    """
    if input1.ndim != input2.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}")
    for d, (m, n) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if m != n:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {d}: got {m} and {n}")
    for i, t in ((1, input1), (2, input2)):
        if t.shape[-1] != weight.shape[i]:
            raise RuntimeError(f"bilinear(): input{i} size does not match weight size: got {t.shape[-1]} but expected {weight.shape[i]}")
    if not input1.dtype == input2.dtype == weight.dtype:
        raise RuntimeError(f"bilinear(): All tensors must have the same dtype, got input1: {input1.dtype}, input2: {input2.dtype}, weight: "
                           f"{weight.dtype}")
    refuse("bilinear", input1._array, "b")
    rows = (-1, input1.shape[-1]), (-1, input2.shape[-1])
    out = F.reshape(F.trilinear(F.reshape(input1, rows[0]), weight, F.reshape(input2, rows[1])), (*input1.shape[:-1], weight.shape[0]))
    return out if bias is None else out + bias


@op(method=False, function=False)
def trilinear(i1, i2, i3):
    """i1[n] @ i2[k] @ i3[n] for each n and k: (n, a), (k, a, b), (n, b) -> (n, k)."""
    return F.mm(F.outer_rows(i1, i3), i2.reshape(i2.shape[0], -1).T)

trilinear.vjp(
    i1=lambda grad, i2, i3: F.mm(F.outer_rows(grad, i3.conj()), F.reshape(F.transpose(i2.conj(), 1, 2), (-1, i2.shape[1]))),
    i2=lambda grad, i1, i3, i2_shape: F.reshape(F.mm(F.t(F.outer_rows(grad, i1.conj())), i3.conj()), i2_shape),
    i3=lambda grad, i1, i2: F.mm(F.outer_rows(grad, i1.conj()), F.reshape(i2.conj(), (-1, i2.shape[2]))))


@composite(method=False, function=False)
def outer_rows(x, y):
    """The products of each element of a row of x with each of the same row of y: (n, a), (n, b) -> (n, a * b)."""
    return F.reshape(F.unsqueeze(x, 2) * F.unsqueeze(y, 1), (x.shape[0], x.shape[1] * y.shape[1]))


# --------------------------------------------------------------------------------------------------------------- embedding

@op(method=False, out=False, linear=True)
def embedding(weight, indices, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False):
    """The rows of weight at indices; the row `padding_idx` gets no gradient.

    Shape: (rows, width), any -> (*indices, width).
    Raises: IndexError for an index out of range, RuntimeError for a weight without two dimensions, indices not of int32 or int64.
    Reference: torch.embedding; see also nn.functional.embedding.
    """
    if weight.ndim != 2:
        raise RuntimeError(f"embedding: 'weight' must be 2-D, got shape {weight.shape}")
    if indices.dtype not in (np.int64, np.int32):
        raise RuntimeError(f"embedding: Expected tensor for argument 'indices' to have one of the following scalar types: Long, Int; "
                           f"but got {_dtype.of(indices.dtype)}: convert it with .long()")
    if indices.__class__ is not _CPU:
        bounds.check("embedding", indices, weight.shape[0])
    elif indices.size and (indices.min() < 0 or indices.max() >= weight.shape[0]):
        raise IndexError(f"embedding: index out of range in self: indices go from {indices.min()} to {indices.max()}, weight has "
                         f"{weight.shape[0]} rows")
    return np.take(weight, indices, 0) if indices.size else np.zeros((*indices.shape, weight.shape[1]), weight.dtype)

embedding.vjp(weight=lambda grad, indices, weight_shape, padding_idx, scale_grad_by_freq:
              F.embedding_backward(grad, indices, weight_shape, padding_idx, scale_grad_by_freq))


@op(node="EmbeddingDenseBackwardBackward0", method=False, function=False)
def embedding_backward(grad_output, indices, size: Size, padding_idx: int, scale_grad_by_freq: bool):
    """The gradient of embedding: rows added up at their indices."""
    flat = indices.reshape(-1)
    rows = F.embedding_scaled(grad_output.reshape(flat.size, size[1]), flat, size, padding_idx, scale_grad_by_freq)
    if rows.__class__ is _CPU:
        return added_up(flat, rows, size[0])
    total = np.zeros(size, rows.dtype)
    scatter.at("add", "embedding", total, (flat,), rows, wraps=False)
    return total

embedding_backward.vjp(grad_output=lambda grad, indices, size, padding_idx, scale_grad_by_freq:
                       F.embedding_scaled(F.embedding(grad, indices), indices, size, padding_idx, scale_grad_by_freq))


@composite(method=False, function=False)
def embedding_scaled(rows, indices, size, padding_idx, scale_grad_by_freq):
    """Rows of a gradient: none for the padding, divided by how often their index occurs if asked for."""
    if scale_grad_by_freq:
        rows = rows / F.unsqueeze(F.occurrences(indices, size[0]), -1)
    return rows * F.unsqueeze(indices != padding_idx, -1) if padding_idx >= 0 else rows


@op(method=False, function=False)
def occurrences(self, n: int):
    """How often each index occurs among all of them."""
    flat = self.reshape(-1)
    if flat.__class__ is _CPU:
        return np.bincount(flat, minlength=n)[self]
    counts = np.zeros(n, np.int64)
    scatter.at("add", "embedding", counts, (flat,), np.ones((), np.int64))
    return counts[self]


@composite(method=False, function=False)
def embedding_lookup(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of weight at the indices in input.

    `padding_idx`: a row without gradient. `max_norm`: rows that are used and longer are shortened in place first.
    Raises: IndexError for an index out of range. Reference: torch.nn.functional.embedding.
    """
    if weight.ndim != 2:
        raise RuntimeError(f"embedding: 'weight' must be 2-D, got shape {tuple(weight.shape)}")
    rows = weight.shape[0]
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise AssertionError(f"embedding: Padding_idx must be within num_embeddings, got {padding_idx} for {rows} rows")
    else:
        padding_idx %= rows
    if max_norm is not None and input.device is weight.device:       # embedding refuses others
        with _device.guard(weight.device):
            _shorten(weight, input, float(max_norm), float(norm_type))
    return F.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def _shorten(weight, indices, max_norm, norm_type):
    used = indices._array.reshape(-1)        # a row named twice gets the same values twice
    rows = weight._array[used]
    norms = F.linalg_vector_norm(wrap(rows), norm_type, -1, True)._array
    scale = (max_norm / (norms + 1e-7)).clip(None, 1)
    scale[norms <= max_norm] = 1
    weight._array[used] = rows * scale
    count_write(weight)


@composite(method=False, function=False)
def one_hot(input, num_classes=-1):
    """Zeros with a one at each index along a new last dimension. Dtype: int64. Reference: torch.nn.functional.one_hot."""
    array = input._array
    if array.dtype != np.int64:
        raise RuntimeError(f"one_hot: one_hot is only applicable to index tensor of type LongTensor, got {input.dtype}")
    if not array.size and num_classes <= 0:
        raise RuntimeError("one_hot: Can not infer total number of classes from empty tensor: pass num_classes")
    if array.__class__ is not _CPU and num_classes > 0:      # the host would wait for the largest
        with _device.guard(input.device):
            bounds.check("one_hot", array, num_classes)
        return F.one_hot_of(input, num_classes)
    with _device.guard(input.device):
        smallest, largest = (int(array.min()), int(array.max())) if array.size else (0, -1)
    if smallest < 0:
        raise RuntimeError(f"one_hot: Class values must be non-negative, got {smallest}")
    if num_classes == -1:
        num_classes = largest + 1
    elif num_classes < 1:
        raise RuntimeError(f"one_hot: num_classes should be positive, got {num_classes}")
    if largest >= num_classes:
        raise RuntimeError(f"one_hot: Class values must be smaller than num_classes, got {largest} for {num_classes}")
    return F.one_hot_of(input, num_classes)


@op(method=False, function=False)
def one_hot_of(self, n: int):
    """one_hot with a number of classes."""
    return (self[..., None] == np.arange(n)).astype(np.int64)


# ---------------------------------------------------------------------------------------------------- distances and lengths

@composite(method=False, function=False)
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """The input over its p-norm along a dimension, which counts as eps at least. Reference: torch.nn.functional.normalize."""
    return input / F.expand(F.clamp_min(F.norm(input, p, dim, True), eps), tuple(input.shape))


@composite(method=False)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along a dimension; each length counts as eps at least.

    Reference: torch.cosine_similarity.
    """
    refuse("cosine_similarity", x1._array, "c")
    shape = F.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = (t if t.shape == shape else F.expand(t, shape) for t in (x1, x2))
    x = F.clamp_min(F.linalg_vector_norm(x1, 2, dim, True), eps)
    y = F.clamp_min(F.linalg_vector_norm(x2, 2, dim, True), eps)
    return F.sum((x1 / x) * (x2 / y), dim)
