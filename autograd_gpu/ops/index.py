"""Indexing: x[key] read and written, and what is written over whole tensors."""
from __future__ import annotations

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, count_write, wrap
from autograd_gpu.cuda import bounds, scatter
from autograd_gpu.engine.grad_mode import everywhere, run_apart
from autograd_gpu.ops.inplace import about_to_write, check_writable
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise, op
from autograd_gpu.ops.operands import fitted
from autograd_gpu.ops.shape import ALL, numpy
from autograd_gpu.rows import add_at

_INT64 = np.dtype(np.int64)
_INDICES = (_INT64, np.dtype(np.int32), np.dtype(bool))
_FEW = 512                                   # elements up to which np.add.at on several dimensions takes no longer; measured

# ------------------------------------------------------------------------------------------------------------- adding at a key

@composite(method=False, function=False)
def accumulate(name, out, key, values):
    """Add values to the elements of an array that a key names, for the op of this name; one that it names several times gets them all.

    np.add.at is several times as fast on one dimension as on more, so the key becomes places in memory, unless it names few elements.
    """
    if np is not numpy:
        scatter.at("add", name, out, key, values)
        return
    arrays = [k for k in key if k is not ALL]
    kinds = {k.dtype.kind for k in arrays}
    if kinds == {"b"}:
        out[key] += values                   # a mask names nothing twice
        return
    if out.dtype.itemsize == 2 and out.dtype.kind in "fV":
        wide = np.zeros(out.shape, np.float32)
        F.accumulate(name, wide, key, values.astype(np.float32))
        out[...] = out.astype(np.float32) + wide
        return
    few = values.size <= _FEW and max([k.size for k in arrays], default=0) <= _FEW
    if few or "b" in kinds or out.dtype.kind == "b":
        np.add.at(out, key, values)
        return
    m = len(arrays)
    try:
        size = np.broadcast_shapes(*[k.shape for k in arrays])
    except ValueError as error:              # what NumPy calls it where it is asked to index
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together: {error}") from None
    if m < len(key) or not out.flags.c_contiguous:         # bring the indexed dimensions to the front
        places = [i for i, k in enumerate(key) if k is not ALL]
        others = [d for d in range(out.ndim) if d not in places]
        moved = out.transpose(places + others)
        work = moved.copy("C")
        if places[-1] - places[0] == m - 1:
            first, k = places[0], len(size)
            full = (*[out.shape[d] for d in others[:first]], *size, *[out.shape[d] for d in others[first:]])
            values = np.broadcast_to(values, full)
            values = values.transpose([*range(first, first + k), *range(first), *range(first + k, len(full))])
        F.accumulate(name, work, tuple(arrays), values)
        moved[...] = work
        return
    try:
        flat = np.ravel_multi_index(arrays, out.shape[:m])
    except ValueError:                       # negative ones, or out of range
        flat = _flat(arrays, out.shape)
    shape = (*flat.shape, *out.shape[m:])
    values = values if values.shape == shape else np.broadcast_to(values, shape)
    flat = flat.reshape(-1)
    if not flat.size or not values.size:
        return
    width = values.size // flat.size
    add_at(out.reshape(-1, width), flat, values.reshape(-1, width))


def _flat(arrays, shape):
    """Places in memory of index arrays that broadcast, negative ones counted from the end. Raises IndexError for one out of range."""
    found = []
    for k, n in zip(arrays, shape, strict=False):
        low, high = (numpy.minimum.reduce(k, None), numpy.maximum.reduce(k, None)) if k.size else (0, -1)
        if low < -n or high >= n:
            raise IndexError(f"index {low if low < -n else high} is out of bounds for dimension with size {n}")
        found.append(numpy.where(k < 0, k + n, k))
    return numpy.ravel_multi_index(found, shape[:len(arrays)])


def _key(indices, places):
    """The key of an array that puts each index at its place among full slices."""
    if places is None or places[-1] < len(places):
        return tuple(indices)
    key = [ALL] * (max(places) + 1)
    for place, index in zip(places, indices, strict=True):
        key[place] = index
    return tuple(key)


def _assign(name, out, key, values):
    """out[key] = values, for the op of this name. On a CUDA device the host does not wait for a mask if there is only one value."""
    if type(out) is numpy.ndarray:
        out[key] = values
        return
    with _device.guard(_device.of(out)):
        if key is ...:
            out[key] = values
            return
        bounds.check_key(name, out.shape, key)
        if len(key) == 1 and key[0].dtype.kind == "b" and key[0].shape == out.shape[:key[0].ndim] and values.size == 1:
            mask = key[0].reshape((*key[0].shape, *[1] * (out.ndim - key[0].ndim)))
            _device.xp(out).copyto(out, values.reshape(()), where=mask)
        else:
            out[key] = values


@op(method=False, function=False)
def index(self, indices: Sequence[Tensor], places: Dims):
    """The elements at index tensors or masks, which stand at `places` among full slices."""
    if np is not numpy:
        bounds.check_key("x[key]", self.shape, _key(indices, places))
    try:
        return np.ascontiguousarray(self[_key(indices, places)])
    except IndexError as error:
        raise IndexError(f"x[key]: {str(error).replace('axis', 'dimension')}: x has the shape {self.shape}") from None

index.vjp(self=lambda grad, indices, places, self_shape: F.index_backward(grad, indices, places, self_shape))


@op(node="IndexPutBackward0", method=False, function=False)
def index_backward(grad_output, indices: Sequence[Tensor], places: Dims, input_sizes: Size):
    """Zeros but for the elements that index takes, which get the sum of what arrives for them."""
    made = np.zeros(input_sizes, grad_output.dtype)
    F.accumulate("x[key]", made, _key(indices, places), grad_output)
    return made

index_backward.vjp(grad_output=lambda grad, indices, places: F.index(grad, indices, places))


@op(inplace=True, divert={"any([isinstance(i, Tensor) and i._array.dtype.char == 'B' for i in indices])": "index_put_bytes",
                          "type(input) is not T and any([i.device is not input.device for i in indices])": "index_put_across"}, out=False,
    linear=True)
def index_put(self, indices: Sequence[Tensor], values, accumulate: bool = False, *, places: Dims = None):
    """A copy with values at index tensors or masks, added to what was there if `accumulate`.

    Indices: int64 or int32; bool or uint8 for masks.
    Raises: IndexError for an index out of range or of another dtype, RuntimeError for values of another dtype or a shape that does not fit.
    Reference: torch.index_put.
    """
    for i in indices:
        if i.dtype not in _INDICES:
            raise IndexError(f"index_put: tensors used as indices must be long, int, byte or bool tensors, got {_dtype.of(i.dtype)}: "
                             f"convert it with .long()")
    filled = values.size == 1 and len(indices) == 1 and indices[0].dtype.kind == "b" and indices[0].ndim   # as masked_fill
    if self.dtype != values.dtype and not (filled and _dtype.can_cast(values.dtype, self.dtype)):
        raise RuntimeError(f"index_put: Index put requires the source and destination dtypes match, got {_dtype.of(self.dtype)} for "
                           "the "
                           f"destination and {_dtype.of(values.dtype)} for the source.")
    if places is None and len(indices) > self.ndim:
        raise IndexError(f"index_put: too many indices for tensor of dimension {self.ndim} (got {len(indices)})")
    out = self.copy()
    key = _key(indices, places)
    try:
        if accumulate:
            F.accumulate("index_put", out, key, values)
        else:
            _assign("index_put", out, key, values)
    except IndexError as error:
        raise IndexError(f"index_put: {str(error).replace('axis', 'dimension')}: the tensor has the shape {self.shape}") from None
    except ValueError as error:
        raise RuntimeError(f"index_put: shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to the "
                           "indexing "
                           f"result: {error}") from None
    return out

index_put.vjp(self=lambda grad, indices, accumulate, places: F.index_put_kept(grad, indices, accumulate, places),
              values=lambda grad, indices, places: F.index(grad, indices, places))


@composite(method=False, function=False, moves=True)
def index_put_bytes(input, indices, values, accumulate=False, *, places=None):
    """index_put where indices of uint8 are masks."""
    masks = [F.to(i, _dtype.bool) if isinstance(i, Tensor) and i._array.dtype.char == "B" else i for i in indices]
    return F.index_put(input, masks, values, accumulate, places=places)


@composite(method=False, function=False, moves=True)
def index_put_across(input, indices, values, accumulate=False, *, places=None):
    """index_put at indices in host memory, for a tensor on a CUDA device."""
    return F.index_put(input, [_beside(input, i) for i in indices], values, accumulate, places=places)


def _beside(x, index):
    """An index tensor on x's device: one in host memory is moved. Raises RuntimeError for one on another CUDA device."""
    if index.device is x.device:
        return index
    if index.device is not _device.CPU and index.ndim:
        raise RuntimeError(f"x[key]: indices should be either on cpu or on the same device as the indexed tensor ({x.device}), but one is "
                           f"on {index.device}: move it with .to()")
    return F.to(index, device=x.device)


@composite(method=False, function=False)
def index_put_kept(grad, indices, accumulate, places):
    """The gradient of what index_put leaves."""
    return grad if accumulate else F.index_clear(grad, indices, places)


@op(node="IndexPutBackward0", method=False, function=False)
def index_clear(self, indices: Sequence[Tensor], places: Dims):
    """A copy with zeros at index tensors or masks."""
    out = self.copy()
    _assign("index_put", out, _key(indices, places), np.zeros((), self.dtype))
    return out

index_clear.vjp(self=lambda grad, indices, places: F.index_clear(grad, indices, places))


# ---------------------------------------------------------------------------------------------------------------------- x[key]

@composite(method=False, function=False)
def getitem(input, key):
    """x[key]: integers, slices, ..., None, and index tensors, masks, arrays or lists; a view unless the latter occur."""
    kind = type(key)
    if kind is int:
        return F.select(input, 0, key)
    if kind is slice and input._array.ndim:
        return F.slice(input, 0, key.start, key.stop, 1 if key.step is None else key.step)
    if kind is tuple and 0 < len(key) <= input._array.ndim:
        for k in key:
            if type(k) is not int and type(k) is not slice:
                break
        else:
            return _integers_and_slices(input, key)
        for k in key:
            if not _takes_elements(input, k):
                break
        else:
            return F.index(input, key, tuple(range(len(key))))
    elif input.ndim and _takes_elements(input, key):
        return F.index(input, (key,), (0,))
    part, indices, places = _basic(input, key)
    if indices:
        return F.index(part, indices, places)
    return F.alias(part) if part is input else part


def _takes_elements(x, key):
    """Whether a key, or a part of one, is an ordinary index tensor beside x."""
    return type(key) is Tensor and key._array.dtype is _INT64 and key._array.ndim and key.device is x.device


def _integers_and_slices(part, key):
    dim, start = 0, part
    for k in key:
        if type(k) is int:
            part = F.select(part, dim, k)
            continue
        if k != ALL and not _is_full(k, part.shape[dim]):
            part = F.slice(part, dim, k.start, k.stop, 1 if k.step is None else k.step)
        dim += 1
    return F.alias(part) if part is start else part


def _is_full(k, n):
    """Whether a slice takes all of a dimension, so that PyTorch leaves it out."""
    return k.start in (None, 0) and k.step in (None, 1) and (k.stop is None or k.stop >= n)


_SEQUENCE = (Tensor, list, tuple, slice, type(None), type(...), np.ndarray)


def _basic(input, key):
    """What the integers, slices, ... and None in a key take, and the index tensors left to apply, with their places."""
    if type(key) is list and len(key) < 32 and any([isinstance(k, _SEQUENCE) for k in key]):
        key = tuple(key)                     # as PyTorch reads a list of more than numbers
    keys = [_as_index(input, k) for k in (key if type(key) is tuple else (key,))]
    used = 0
    for k in keys:
        if k is not None and k is not ... and type(k) is not bool:
            used += k.ndim if isinstance(k, Tensor) and k._array.dtype.kind == "b" else 1
    ndim = input.ndim
    if used > ndim:
        if not ndim and len(keys) == 1:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number")
        raise IndexError(f"too many indices for tensor of dimension {ndim}: {used} are given")
    part, indices, places, entries, dim, left = input, [], [], 0, 0, ndim - used
    for k in keys:
        kind = type(k)
        if kind is int:
            part = F.select(part, dim, k)
            continue
        if kind is slice:
            if not _is_full(k, part.shape[dim]):
                part = F.slice(part, dim, k.start, k.stop, 1 if k.step is None else k.step)
        elif k is ...:
            dim, entries, left = dim + left, entries + left, 0
            continue
        elif k is None:
            part = F.unsqueeze(part, dim)
        else:
            if kind is bool:
                with _device.guard(part.device):
                    part, k = F.unsqueeze(part, dim), wrap(_device.module(part.device).full((1,), k))
            elif not k.ndim:
                part, k = F.unsqueeze(part, dim), wrap(k._array.reshape((1,)))
            else:
                _check_mask(part, k, dim)
            indices.append(k)
            places.append(entries)
            dim += k.ndim - 1 if k._array.dtype.kind == "b" else 0
        dim, entries = dim + 1, entries + 1
    return part, indices, tuple(places)


def _check_mask(part, k, dim):
    if k._array.dtype.kind == "b":
        shape = tuple(part.shape)
        for i, n in enumerate(k._array.shape):
            if shape[dim + i] != n:
                raise IndexError(f"The shape of the mask {list(k._array.shape)} at index {i} does not match the shape of the indexed "
                                 "tensor "
                                 f"{list(shape)} at index {dim + i}")


def _as_index(input, k):
    """One part of a key: an int, slice, bool, None, ... or a Tensor on input's device that is not a single integer."""
    kind = type(k)
    if kind is int or kind is slice or k is None or k is ... or kind is bool:
        return k
    if isinstance(k, Tensor):
        a = k._array
        if a.dtype.kind not in "bu" and a.dtype not in (np.int64, np.int32) or a.dtype.kind == "u" and a.dtype != np.uint8:
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {k.dtype}")
        if a.dtype == np.uint8:
            k = wrap(a.astype(bool))         # as PyTorch takes it
        elif a.ndim == 0 and a.dtype.kind == "i":
            return int(a)
    elif isinstance(k, np.generic):
        if k.dtype.kind not in "biu":
            raise IndexError(f"only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices (got "
                             f"{kind.__name__})")
        return k.item()
    elif _device.is_array(k) or isinstance(k, (list, tuple, range)):
        array = _device.plain(k) if _device.is_array(k) else np.array([x.item() if isinstance(x, Tensor) and not x.ndim else x for x in k])
        if not array.size and not _device.is_array(k):
            array = array.astype(np.int64)
        if array.dtype.kind not in "biu":
            if array.dtype.kind in "OSU":
                raise TypeError(f"new(): invalid data in an index: {k!r:.80}")
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {array.dtype}")
        if array.ndim == 0 and array.dtype.kind != "b":
            return int(array)
        k = wrap(array.copy() if array is k else array)      # the caller may write to it before backward
    elif hasattr(k, "__index__"):
        return k.__index__()
    elif isinstance(k, str):
        raise TypeError(f"new(): invalid data type 'str' for an index: {k!r:.80}")
    else:
        raise IndexError(f"only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices (got "
                         f"{kind.__name__})")
    return _beside(input, k)


@composite(method=False, function=False)
def setitem(input, key, value):
    """x[key] = value: a number, or a Tensor or array that can be broadcast to x[key]."""
    part, indices, places = _basic(input, key)
    dtype = part._array.dtype
    if not isinstance(value, Tensor):
        if isinstance(value, (int, float, complex)):
            value = run_apart(fitted, "setitem", value, dtype)
        if not isinstance(value, (int, float, complex, np.generic)) and not _device.is_array(value):
            raise TypeError(f"can't assign a {type(value).__name__} to a Tensor of {_dtype.of(dtype)}; give a number, a Tensor or an "
                            "array")
        array = _device.plain(value) if _device.is_array(value) else np.asarray(value)
        value = wrap(_device.copy(run_apart(array.astype, dtype), input.device))
    elif value.device != input.device and not value.ndim:
        value = F.to(value, device=input.device)
    filled = not value.ndim and part.ndim
    shape = tuple(value.shape)
    if shape[:1] == (1,) and (indices or shape != tuple(part.shape)):
        ones = 0
        while ones < len(shape) and shape[ones] == 1:
            ones += 1
        value = F.reshape(value, shape[ones:])
    known = part._requires or value._requires or value.requires_grad or everywhere.levels      # to autograd
    if not known and value.device == part.device and value._array.dtype == dtype:
        _store(part, _key([t._array for t in indices], places) if indices else ..., value._array)
    elif indices:
        part.index_put_(indices, value, False, places=places)
    elif filled:
        part.fill_(value)
    else:
        part.copy_(value if value.shape == part.shape else F.expand(value, part.shape))


def _store(t, key, value):
    """Write what has no history, without a copy of the rest."""
    check_writable(t, "setitem")
    about_to_write(t)
    try:
        _assign("setitem", t._array, key, value)
    except (ValueError, TypeError) as error:
        raise RuntimeError(f"setitem: shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to x[key]: "
                           f"{error}") from None
    count_write(t)


# ------------------------------------------------------------------------------------------------------- what is written over

@op(node="torch::autograd::CopyBackwards", method=False, function=False, inplace="only", may_be_integer=True,
    divert={"type(getattr(src, '_array', None)) is not type(input._array) or type(input) is not T and src.device is not input.device":
            "copy_across"})
def copy(self, src, non_blocking: bool = False):
    """src's values, broadcast, in self's shape and dtype: copy_ writes them. Reference: torch.Tensor.copy_."""
    if src.shape != self.shape:
        try:
            src = np.broadcast_to(src, self.shape)
        except ValueError:
            raise RuntimeError(f"copy_: The expanded size of the tensor {list(self.shape)} must match the existing size "
                               f"{list(src.shape)} of "
                               f"src, or src be broadcast to it") from None
    if src.dtype is self.dtype:
        return src
    return (src.real if src.dtype.kind == "c" and self.dtype.kind not in "cb" else src).astype(self.dtype)

copy.vjp(self=lambda grad: F.no_gradient(grad), src=lambda grad: grad)


@composite(method=False, function=False, moves=True)
def copy_across(input, src, non_blocking=False):
    """copy from a number or an array, or from another device."""
    if not isinstance(src, Tensor):
        if not _device.is_array(src) and not isinstance(src, (int, float, complex)):
            raise TypeError(f"copy_(): argument 'other' must be Tensor, not {type(src).__name__}")
        src = wrap(_device.plain(src) if _device.is_array(src) else np.asarray(src))
    return F.copy(input, F.to(src, device=input.device))


@elementwise(node="ZeroBackward0", method=False, function=False, inplace="only")
def zero(self):
    """Zeros in self's shape and dtype: zero_ writes them. Reference: torch.Tensor.zero_."""
    return np.zeros_like(self)

zero.vjp(self=lambda grad: F.no_gradient(grad))


@op(node="FillBackward0", over="FillBackward2", method=False, inplace="only", out=False,
    divert={"isinstance(value, Tensor)": "fill_across"})
def fill(self, value: Number):
    """A value everywhere, in self's shape and dtype. Reference: torch.fill, torch.Tensor.fill_."""
    return np.full(self.shape, fitted("fill", value, self.dtype), self.dtype)

fill.vjp(self=lambda grad: F.no_gradient(grad))


@composite(method=False, function=False, moves=True)
def fill_across(input, value):
    """fill with the value of a tensor, from any device."""
    return F.fill_tensor(input, F.to(value, device=input.device))


@op(node="FillBackward1", over="FillBackward3", method=False, function=False)
def fill_tensor(self, value):
    """The value of a 0-d tensor everywhere."""
    if value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    return np.broadcast_to(value.astype(self.dtype), self.shape).copy()

fill_tensor.vjp(self=lambda grad: F.no_gradient(grad), value=lambda grad: F.sum(grad))
