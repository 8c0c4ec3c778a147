"""Linear, embedding, normalisation: ops behind nn.functional."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import count_write, wrap
from autograd_gpu.blocks import by_rows
from autograd_gpu.cuda import bounds, scatter
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import floating, refuse
from autograd_gpu.ops.reduce import accumulator

_CPU = np.ndarray                            # np in a body may be CuPy


def _one_dtype(name, input, *parameters):
    """Raises RuntimeError unless parameters have the input's dtype, or float32 where that is a half."""
    found = {p.dtype for p in parameters if p is not None}
    if found and found != {input.dtype} and (input.dtype.itemsize != 2 or found != {_dtype.float32}):
        raise RuntimeError(f"{name}: mixed dtype: the input is {input.dtype}, its parameters {', '.join(sorted(map(str, found)))}: all "
                           f"inputs must share same datatype, or expect parameter to have scalar type of Float beside a half")


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
    i1=lambda grad, i2, i3: F.mm(F.outer_rows(grad, F.conj(i3)), F.reshape(F.transpose(F.conj(i2), 1, 2), (-1, i2.shape[1]))),
    i2=lambda grad, i1, i3, i2_shape: F.reshape(F.mm(F.t(F.outer_rows(grad, F.conj(i1))), F.conj(i3)), i2_shape),
    i3=lambda grad, i1, i2: F.mm(F.outer_rows(grad, F.conj(i1)), F.reshape(F.conj(i2), (-1, i2.shape[2]))))


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
    total = np.zeros(size, rows.dtype)
    if total.__class__ is _CPU:
        np.add.at(total, flat, rows)
    else:
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


# ----------------------------------------------------------------------------------------------------------- normalisation

@op(node="NativeLayerNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_layer_norm(input, normalized_shape: Size, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5):
    """layer_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("layer_norm", input.dtype)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    n = math.prod(normalized_shape)

    def compute(x):
        mean = F.total(x, axes, input.size) / n
        x = x - mean
        rstd = 1 / np.sqrt(F.total(x * x, axes, input.size) / n + x.dtype.type(eps))
        x *= rstd
        if weight is not None:
            x = x * weight
        if bias is not None:
            x = x + bias
        return x.astype(input.dtype, copy=False), mean, rstd
    return by_rows(compute, input.astype(accumulator(input.dtype), "C", copy=False), axes)


@native_layer_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, bias, normalized_shape):
    return F.normalized_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight,
                                 (*range(-len(normalized_shape), 0),), True)


@composite(method=False, function=False)
def normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, moving):
    """Gradients of (input - mean) * rstd * weight + bias for input, weight and bias; `moving`: mean and rstd come from the input."""
    n = math.prod([input.shape[d] for d in dims])
    off = input - mean
    to_input = None
    if grad is not None and needs[0]:
        scaled = (grad if weight is None else grad * weight) * rstd
        to_input = scaled
        if moving:
            normal = off * rstd
            to_input = scaled - (F.sum(scaled, dims, True) + normal * F.sum(scaled * normal, dims, True)) / n
    if needs[0] and moving:
        if grad_rstd is not None:
            more = off * (grad_rstd * rstd * rstd * rstd / -n)
            to_input = more if to_input is None else to_input + more
        if grad_mean is not None:
            more = F.expand(grad_mean / n, input.shape)
            to_input = more if to_input is None else to_input + more
    if grad is None:
        return to_input, None, None
    return to_input, grad * (off * rstd) if needs[1] else None, grad if needs[2] else None


@composite(method=False, function=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """The last dimensions brought to mean 0 and variance 1, times weight, plus bias.

    Raises: RuntimeError unless input ends in normalized_shape, and weight and bias have it. Reference: torch.nn.functional.layer_norm.
    """
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"layer_norm(): argument 'normalized_shape' must be tuple of ints, not {type(normalized_shape).__name__}")
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("layer_norm: Expected normalized_shape to be at least 1-dimensional, got an empty one")
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(f"layer_norm: Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                               f"{list(t.shape)} and normalized_shape = {list(shape)}")
    if tuple(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"layer_norm: Given normalized_shape={list(shape)}, expected input with shape "
                           f"[*, {str(list(shape))[1:-1]}], but got input of size {list(input.shape)}")
    _one_dtype("layer_norm", input, weight, bias)
    return F.native_layer_norm(input, shape, weight, bias, eps)


@op(node="NativeBatchNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_batch_norm(input, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                      training: bool, momentum: float, eps: float):
    """batch_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("batch_norm", input.dtype)
    axes = (0, *range(2, input.ndim))
    shape = (1, input.shape[1]) + (1,) * (input.ndim - 2)
    x = input.astype(accumulator(input.dtype), "C", copy=False)
    if training:
        n = input.size // input.shape[1]
        mean = np.add.reduce(x, axes, None, None, True) / n
        x = x - mean
        var = np.add.reduce(x * x, axes, None, None, True) / n
    else:
        mean, var = running_mean.reshape(shape), running_var.reshape(shape)
        x = x - mean
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    x = x * rstd
    if weight is not None:
        x = x * weight.reshape(shape)
    if bias is not None:
        x = x + bias.reshape(shape)
    return x.astype(input.dtype, copy=False), mean, rstd


@native_batch_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, training):
    return F.batch_norm_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, training)


@composite(method=False, function=False)
def batch_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, training):
    """The gradients of batch_norm: those of normalized_backward, summed per channel for weight and bias."""
    dims = (0, *range(2, input.ndim))
    if weight is not None:
        weight = F.reshape(weight, mean.shape)
    to_input, to_weight, to_bias = F.normalized_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, dims, training)
    return (to_input, None if to_weight is None else F.sum(to_weight, dims), None if to_bias is None else F.sum(to_bias, dims))


@composite(method=False, function=False)
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05):
    """Each channel (dimension 1) brought to mean 0 and variance 1, times weight, plus bias.

    In training the batch's own mean and variance are used, and the running ones move towards them by `momentum`.
    Raises: ValueError for one value per channel in training, RuntimeError for sizes that do not fit or missing running values.
    Reference: torch.nn.functional.batch_norm.
    """
    shape = input.shape
    if not input._array.size:
        out = F.clone(input) if weight is None else F.clone(input) * weight[0]          # so that both have a gradient
        return out if bias is None else out + bias[0]
    if input.ndim < 2:
        raise ValueError(f"batch_norm: expected an input of at least 2 dimensions, got {tuple(shape)}")
    if training and math.prod(shape) // max(shape[1], 1) == 1:
        raise ValueError(f"batch_norm: Expected more than 1 value per channel when training, got input size {list(shape)}")
    for name, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if t is None:
            if not training and name.startswith("running"):
                raise RuntimeError(f"batch_norm: {name} must be defined in evaluation mode")
        elif math.prod(t.shape) != shape[1]:
            raise RuntimeError(f"batch_norm: {name} should contain {shape[1]} elements not {math.prod(t.shape)}")
    _one_dtype("batch_norm", input, running_mean, running_var, weight, bias)
    out = F.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if training:
        data = input.detach()
        dims = (0, *range(2, input.ndim))
        for t, value in ((running_mean, lambda: F.mean(data, dims)), (running_var, lambda: F.var(data, dims))):
            if t is not None:
                t._array[...] = t._array * (1 - momentum) + value()._array * momentum
                count_write(t)
    return out


@op(node="NativeGroupNormBackward0", outputs=("result0", "result1", "result2"), hidden=("result1", "result2"), accepts_none=True,
    method=False, function=False)
def native_group_norm(input, weight: Tensor | None, bias: Tensor | None, group: int, eps: float):
    """group_norm with the mean (result1) and the reciprocal standard deviation (result2), which its derivative goes through."""
    floating("group_norm", input.dtype)
    x = input.astype(accumulator(input.dtype), "C", copy=False).reshape(input.shape[0], group, math.prod(input.shape[1:]) // group)
    mean = F.total(x, 2) / max(x.shape[2], 1)
    x = x - mean
    rstd = 1 / np.sqrt(F.total(x * x, 2) / max(x.shape[2], 1) + x.dtype.type(eps))
    x = (x * rstd).reshape(input.shape)
    shape = (-1,) + (1,) * (input.ndim - 2)
    if weight is not None:
        x = x * weight.reshape(shape)
    if bias is not None:
        x = x + bias.reshape(shape)
    return x.astype(input.dtype, copy=False), mean[..., 0], rstd[..., 0]


@native_group_norm.vjp_shared("input", "weight", "bias")
def _(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, group):
    return F.group_norm_backward(needs, grad_result0, grad_result1, grad_result2, input, result1, result2, weight, group)


@composite(method=False, function=False)
def group_norm_backward(needs, grad, grad_mean, grad_rstd, input, mean, rstd, weight, group):
    """The gradients of group_norm: in rows of one group each for the input, summed per channel for weight and bias."""
    rows = (input.shape[0], group, math.prod(input.shape[1:]) // group)
    mean, rstd, grad_mean, grad_rstd = (None if t is None else F.unsqueeze(t, 2) for t in (mean, rstd, grad_mean, grad_rstd))
    x = F.reshape(input, rows)
    scaled = grad if weight is None or grad is None else grad * F.reshape(weight, (-1,) + (1,) * (input.ndim - 2))
    to_input, _, _ = F.normalized_backward((needs[0], False, False), None if scaled is None else F.reshape(scaled, rows), grad_mean,
                                           grad_rstd, x, mean, rstd, None, (2,), True)
    dims = (0, *range(2, input.ndim))
    return (None if to_input is None else F.reshape(to_input, input.shape),
            F.sum(grad * F.reshape((x - mean) * rstd, input.shape), dims) if needs[1] and grad is not None else None,
            F.sum(grad, dims) if needs[2] and grad is not None else None)


@composite(method=False, function=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Groups of channels (dimension 1) brought to mean 0 and variance 1 in each sample, times weight, plus bias, both per channel.

    Raises: RuntimeError for sizes that do not fit, ValueError for groups of one element. Reference: torch.nn.functional.group_norm.
    """
    shape = list(input.shape)
    if len(shape) < 2:
        raise RuntimeError(f"group_norm: Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0 or shape[1] % num_groups:
        raise RuntimeError(f"group_norm: Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{shape} and num_groups={num_groups}")
    if shape[0] * shape[1] // num_groups * math.prod(shape[2:]) == 1:
        raise ValueError(f"group_norm: Expected more than 1 value per channel when training, got input size {shape}")
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != (shape[1],):
            raise RuntimeError(f"group_norm: Expected {name} to be a vector of size equal to the number of channels in input, but got "
                               f"{name} of shape {list(t.shape)} and input of shape {shape}")
    _one_dtype("group_norm", input, weight, bias)
    return F.native_group_norm(input, weight, bias, num_groups, eps)


@composite(method=False, function=False)
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05):
    """Each channel of each sample brought to mean 0 and variance 1, times weight, plus bias.

    Where there are running values, they move towards the mean over the batch by `momentum`, or are used themselves unless
    `use_input_stats`. Raises: ValueError for one element per channel, RuntimeError for missing running values.
    Reference: torch.nn.functional.instance_norm.
    """
    n, c, *rest = shape = tuple(input.shape)
    if use_input_stats and math.prod(rest) == 1:
        raise ValueError(f"instance_norm: Expected more than 1 spatial element when training, got input size {input.shape}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false")
    mean, var, scale, shift = (t if t is None else F.repeat(t, (n,)) for t in (running_mean, running_var, weight, bias))
    out = F.batch_norm(F.reshape(input, (1, n * c, *rest)), mean, var, scale, shift, use_input_stats, momentum, eps)
    if use_input_stats:
        for t, moved in ((running_mean, mean), (running_var, var)):
            if t is not None:
                t.data.copy_(F.mean(F.reshape(moved.detach(), (n, c)), 0))
                count_write(t)
    return F.reshape(out, shape)


@composite(method=False)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """The last dimensions over the root of the mean of their squares, times weight. `eps`: by default that of the dtype.

    Raises: RuntimeError unless input ends in normalized_shape, and weight has it. Reference: torch.nn.functional.rms_norm.
    """
    shape = list(normalized_shape)
    if weight is not None and list(weight.shape) != shape:
        raise RuntimeError(f"rms_norm: Expected weight to be of same shape as normalized_shape, but got weight of shape "
                           f"{list(weight.shape)} and normalized_shape = {shape}")
    if not shape or list(input.shape[-len(shape):]) != shape:
        raise RuntimeError(f"rms_norm: Given normalized_shape={shape}, expected input with shape [*, {str(shape)[1:-1]}], but got input of "
                           f"size {list(input.shape)}")
    own = input.dtype.dtype
    refuse("rms_norm", input._array, "biu")
    wide = accumulator(own)
    x = F.to(input, wide)
    mean = F.mean(F.pow(x, 2), tuple(range(-len(shape), 0)), True)
    out = x * F.rsqrt(mean + (np.finfo(wide).eps.item() if eps is None else eps))
    return F.to(F.contiguous(out if weight is None else out * weight), own)


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
