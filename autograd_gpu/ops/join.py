"""Tensors made of several: cat, stack and what is written with them."""
from __future__ import annotations

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.shape import ALL, wrap_dim


@op(method=False)
def cat(tensors: Sequence[Tensor], dim: int = 0):
    """The tensors joined along a dimension that they have; 1-d empty ones are left out.

    Dtype: torch.result_type of all.
    Raises: ValueError for none, RuntimeError where the other sizes differ or a tensor is 0-d. Reference: torch.cat.
    """
    if not tensors:
        raise ValueError("cat: expected a non-empty list of Tensors")
    dtype = tensors[0].dtype
    for a in tensors:
        if a.dtype is not dtype:
            dtype = _dtype.result_of([(b.dtype, 2 if b.ndim else 1) for b in tensors])
            break
    else:
        try:
            return np.ascontiguousarray(np.concatenate(tensors, dim))
        except (ValueError, IndexError, TypeError):
            pass
    kept = [a for a in tensors if a.ndim != 1 or a.shape[0]] if any([a.shape == (0,) for a in tensors]) else tensors
    if not kept:
        wrap_dim(dim, 1, "cat")
        return np.zeros((0,), dtype)
    d = wrap_dim(dim, kept[0].ndim, "cat") if kept[0].ndim else 0
    try:
        return np.ascontiguousarray(np.concatenate(kept, d, dtype=dtype, casting="unsafe"))
    except (ValueError, TypeError):          # CuPy's
        for i, a in enumerate(tensors):
            if not a.ndim:
                raise RuntimeError(f"cat: zero-dimensional tensor (at position {i}) cannot be concatenated; use stack") from None
            if a.ndim != kept[0].ndim:
                raise RuntimeError(f"cat: Tensors must have same number of dimensions: got {kept[0].ndim} and {a.ndim}") from None
        raise RuntimeError(f"cat: Sizes of tensors must match except in dimension {dim}, got shapes "
                           f"{', '.join(str(a.shape) for a in tensors)}") from None


@cat.vjp_shared("tensors")
def _cat_gradients(needs, grad, tensors_shape, dim):
    return F.cat_backward(grad, tensors_shape, dim)


@composite(method=False, function=False)
def cat_backward(grad, shapes, dim):
    """Each joined tensor's part of the gradient; None for those left out."""
    kept = [tuple(s) != (0,) or grad.ndim == 1 for s in shapes]
    parts = iter(F.split_with_sizes(grad, [s[dim] for s, k in zip(shapes, kept, strict=True) if k], dim))
    return [next(parts) if k else F.slice(F.reshape(grad, (-1,)), 0, 0, 0, 1) for k in kept]


@composite(method=False, out=True)
def concat(tensors, dim=0, *, axis=None):
    """cat under another name. Reference: torch.concat."""
    return F.cat(tensors, dim if axis is None else axis)


@composite(method=False, out=True)
def concatenate(tensors, dim=0, *, axis=None):
    """cat under another name. Reference: torch.concatenate."""
    return F.cat(tensors, dim if axis is None else axis)


@op(method=False)
def stack(tensors: Sequence[Tensor], dim: int = 0):
    """Tensors of one shape joined along a new dimension. Raises RuntimeError for other shapes, or none. Reference: torch.stack."""
    if not tensors:
        raise RuntimeError("stack expects a non-empty list of Tensors")
    shape, dtype = tensors[0].shape, tensors[0].dtype
    d = wrap_dim(dim, len(shape) + 1, "stack")
    for i, a in enumerate(tensors):
        if a.shape != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(a.shape)} at "
                               f"entry {i}")
    before = (ALL,) * d + (None,)
    for a in tensors:
        if a.dtype is not dtype:
            dtype = _dtype.result_of([(b.dtype, 2 if b.ndim else 1) for b in tensors])
            return np.ascontiguousarray(np.concatenate([a[before] for a in tensors], d, dtype=dtype, casting="unsafe"))
    return np.ascontiguousarray(np.concatenate([a[before] for a in tensors], d))


@stack.vjp_shared("tensors")
def _stack_gradients(needs, grad, dim):
    return F.unbind(grad, dim)


def _given(name, tensors):
    """The tensors as a tuple. Raises RuntimeError for none."""
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty list of Tensors")
    return tuple(tensors)


@composite(method=False, out=True)
def hstack(tensors):
    """The tensors joined along their second dimension, 1-d ones along their only one. Reference: torch.hstack."""
    tensors = F.atleast_1d(_given("hstack", tensors))
    return F.cat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


@composite(method=False, out=True)
def vstack(tensors):
    """The tensors, at least 2-d, joined along the first dimension. Reference: torch.vstack."""
    return F.cat(F.atleast_2d(_given("vstack", tensors)), 0)


@composite(method=False, out=True)
def row_stack(tensors):
    """vstack under another name. Reference: torch.row_stack."""
    return F.vstack(tensors)


@composite(method=False, out=True)
def dstack(tensors):
    """The tensors, at least 3-d, joined along the third dimension. Reference: torch.dstack."""
    return F.cat(F.atleast_3d(_given("dstack", tensors)), 2)


@composite(method=False, out=True)
def column_stack(tensors):
    """1-d tensors as columns and matrices joined along the second dimension. Reference: torch.column_stack."""
    return F.cat([F.reshape(t, (-1, 1)) if t.ndim < 2 else t for t in _given("column_stack", tensors)], 1)


@composite(method=False)
def meshgrid(*tensors, indexing="ij"):
    """1-d tensors, each expanded over the others' sizes. Reference: torch.meshgrid, with indexing "ij" unless given."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty list of Tensors")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing!r}')
    for t in tensors:
        if t.ndim > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor in the tensor list but got a tensor with {t.ndim} dimensions")
    swap = indexing == "xy" and len(tensors) > 1
    tensors = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    size = tuple([t.shape[0] if t.ndim else 1 for t in tensors])
    n = len(size)
    grids = [F.expand(F.view(t, tuple([-1 if j == i else 1 for j in range(n)])), size) for i, t in enumerate(tensors)]
    return tuple([grids[1], grids[0], *grids[2:]] if swap else grids)


@composite(method=False)
def block_diag(*tensors):
    """Matrices along the diagonal of one of zeros; 0-d and 1-d tensors count as one row. Reference: torch.block_diag."""
    parts = [F.reshape(t, (1, -1)) if t.ndim < 2 else t for t in tensors]
    width = 0
    for t in parts:
        if t.ndim > 2:
            raise RuntimeError(f"block_diag: tensors must be 2D or fewer, got {t.ndim}D")
        width += t.shape[1]
    rows, at = [], 0
    for t in parts:
        rows.append(F.slice_backward(t, (t.shape[0], width), 1, at, at + t.shape[1], 1))
        at += t.shape[1]
    return F.cat(rows, 0)


@composite(method=False)
def cartesian_prod(*tensors):
    """All combinations of the elements of vectors, as rows. Reference: torch.cartesian_prod."""
    for t in tensors:
        if t.ndim != 1:
            raise RuntimeError(f"cartesian_prod: Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return F.stack([F.reshape(t, (-1,)) for t in F.meshgrid(*tensors)], 1)
