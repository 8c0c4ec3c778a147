"""Views that walk memory in strides of their own."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.op import view as view_op
from autograd_gpu.ops.shape import ALL, numpy, wrap_dim
from autograd_gpu.ops.shape import _slice as _range


@view_op(function=False)
def unfold(self, dimension: int, size: int, step: int):
    """A view of the windows of `size` parts of a dimension, `step` apart; the parts of a window become the last dimension.

    Raises: RuntimeError for a window larger than the dimension. Reference: torch.Tensor.unfold.
    """
    d = wrap_dim(dimension, self.ndim, "unfold")
    n, stride = (self.shape[d], self.strides[d]) if self.ndim else (1, self.itemsize)
    if not 0 <= size <= n:
        raise RuntimeError(f"unfold: maximum size for tensor at dimension {dimension} is {n} but size is {size}")
    if step < 1:
        raise RuntimeError(f"unfold: step is {step} but must be > 0")
    shape, strides = list(self.shape), list(self.strides)
    if self.ndim:
        shape[d], strides[d] = (n - size) // step + 1, stride * step
    return np.lib.stride_tricks.as_strided(self, (*shape, size), (*strides, stride))

unfold.vjp(self=lambda grad, self_shape, dimension, size, step: F.unfold_backward(grad, self_shape, dimension, size, step))


@op(method=False, function=False)
def unfold_backward(grad_in, input_sizes: Size, dim: int, size: int, step: int):
    """Zeros but for what unfold takes, with the sum over the windows that an element is in."""
    made = np.zeros(input_sizes, grad_in.dtype)
    if not made.ndim:
        return made + np.add.reduce(grad_in, -1)
    d = dim % made.ndim
    for k in range(size):                    # over the places in a window, which is small
        made[(ALL,) * d + (_range(k, k + step * (grad_in.shape[d] - 1) + 1, step),)] += grad_in[..., k]
    return made

unfold_backward.vjp(grad_in=lambda grad, dim, size, step: F.unfold(grad, dim, size, step))


def origin(array):
    """The address of an array's first element."""
    return array.ctypes.data if type(array) is numpy.ndarray else array.data.ptr


def _reach(size, stride):
    """The places of the first and the last element, from the first one's, of what is walked so."""
    ends = [(n - 1) * s for n, s in zip(size, stride, strict=True)]
    return sum([e for e in ends if e < 0]), sum([e for e in ends if e > 0])


def _elements(array, itemsize):
    """How many elements of a size lie between an array's first byte and its last."""
    return (_reach(array.shape, [s // array.itemsize for s in array.strides])[1] + 1) * array.itemsize // itemsize if array.size else 0


def placed(input):
    """Where a tensor begins in the memory that it, or what it is a view of, lies in, and how much that is; in elements."""
    array = input._array
    base = array if input._view is None else input._view.base._array
    at, whole = (origin(array) - origin(base)) // array.itemsize, _elements(base, array.itemsize)
    if not 0 <= at <= whole:                 # .data has brought the view into other memory
        base = array.base if isinstance(array.base, type(array)) else array
        at, whole = (origin(array) - origin(base)) // array.itemsize, _elements(base, array.itemsize)
    return at, whole


@composite
def as_strided(input, size, stride, storage_offset=None):
    """A view of the memory that the tensor, or what it is a view of, lies in: element i, j, ... is at storage_offset + i * stride[0] + ...

    size and stride: tuples of integers of one length. storage_offset counts from the first element of the memory; by default the view
    begins where the tensor does. Gradients of elements that several places of the view share are summed.
    Raises: RuntimeError for negative strides or sizes, lengths that differ, or places outside of the memory.
    Reference: torch.as_strided.
    """
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"as_strided: mismatch in length of strides and shape: {len(stride)} and {len(size)}")
    if any([n < 0 for n in size]) or any([s < 0 for s in stride]):
        raise RuntimeError(f"as_strided: Negative strides and sizes are not supported, got size {size} and stride {stride}")
    array = input._array
    at, whole = placed(input)
    offset = at if storage_offset is None else storage_offset
    if offset < 0:
        raise RuntimeError(f"as_strided: Tensor: invalid storage offset {offset}")
    if math.prod(size) and offset + _reach(size, stride)[1] >= whole:
        raise RuntimeError(f"as_strided: setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds "
                           f"for storage of {whole} elements")
    return F.as_strided_at(input, size, stride, offset - at, tuple([s // array.itemsize for s in array.strides]))


class _Memory:
    """What NumPy makes an array of: an array's memory, walked otherwise. `array` is kept alive by what is made."""

    def __init__(self, interface, array):
        self.__array_interface__, self.array = interface, array


@view_op(method=False, function=False, node="AsStridedBackward0")
def as_strided_at(self, size: Size, stride: Size, offset: int, own: Size):
    """as_strided, `offset` elements from the first one of self, whose own strides are `own`."""
    strides = tuple([s * self.itemsize for s in stride])
    if np is not numpy:
        return _device.strided(self, size, strides, offset * self.itemsize)
    interface = dict(self.__array_interface__, shape=tuple(size), strides=strides)
    interface["data"] = interface["data"][0] + offset * self.itemsize, not self.flags.writeable
    view = np.asarray(_Memory(interface, self))
    return view if view.dtype == self.dtype else view.view(self.dtype)             # the interface does not know bfloat16

as_strided_at.vjp(self=lambda grad, self_shape, size, stride, offset, own:
                  F.share(F.restride(grad, size, stride, offset, self_shape, own, 0), own))


def _places(xp, size, stride, offset):
    """For each element of what is walked so its place in memory, as a vector."""
    found = xp.full((1,), offset, xp.int64)
    for n, s in zip(size, stride, strict=True):
        found = (found[:, None] + xp.arange(n, dtype=xp.int64) * s).reshape(-1)
    return found


@op(method=False, function=False)
def restride(grad, size: Size, stride: Size, offset: int, to_size: Size, to_stride: Size, to_offset: int):
    """What lies in memory by one size, stride and offset, as it is by others: summed where places were shared, 0 where there were none."""
    source, target = _places(np, size, stride, offset), _places(np, to_size, to_stride, to_offset)
    low = min(0, offset, to_offset)
    n = max(offset + _reach(size, stride)[1], to_offset + _reach(to_size, to_stride)[1]) - low + 1
    memory = np.zeros(n, grad.dtype)
    F.accumulate("as_strided", memory, (source - low,), grad.reshape(-1))
    return memory[target - low].reshape(to_size)

restride.vjp(grad=lambda grad, size, stride, offset, to_size, to_stride, to_offset:
             F.restride(grad, to_size, to_stride, to_offset, size, stride, offset))


@op(method=False, function=False)
def share(self, stride: Size):
    """Each element divided by how many there are in its place of memory, walked by these strides."""
    if _device.apart(self.shape, stride):
        return self
    places, own = _places(np, self.shape, stride, 0), self.real.dtype
    counts = np.zeros(_reach(self.shape, stride)[1] + 1, own)
    F.accumulate("as_strided", counts, (places,), np.ones(places.shape, own))
    return self / counts[places].reshape(self.shape)

share.vjp(self=lambda grad, stride: F.share(grad, stride))
