"""Gradients made to fit: broadcasting undone, the real part for a real input, the dtype; half precision computed in float32."""
from __future__ import annotations

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.blocks import add_columns, summed
from autograd_gpu.ops.kernels import launched
from autograd_gpu.ops.namespace import OPS

nd = np.ndarray
HALF = tuple(np.dtype(d.dtype) for d in (_dtype.float16, _dtype.bfloat16) if d)


def sum_to(g, shape):
    """g summed over the dimensions along which a tensor of `shape` was broadcast to it. Raises RuntimeError where it was not."""
    lead = g.ndim - len(shape)
    if type(g) is nd and g.itemsize == 2:
        g = g.astype(np.float32)             # fit rounds the sum, once
    if lead == 1 and g.shape[1:] == shape and type(g) is nd:     # a bias
        if g.dtype.kind != "f" or not shape or not g.flags.c_contiguous:
            return np.asarray(summed(g, 0))
        out = np.empty(shape, g.dtype)
        add_columns(g.reshape(len(g), out.size), out.reshape(-1))
        return out
    if lead < 0 or any([n not in (1, m) for n, m in zip(shape, g.shape[lead:], strict=True)]):
        raise RuntimeError(f"a formula gave a gradient of shape {g.shape} for an input of shape {tuple(shape)}: it has to be the shape of "
                           f"the input, or one that the input is broadcast to")
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1)
    if axes:
        g = summed(g, axes, True) if _device.xp(g) is np else _sum_on_cuda(g, axes, True)
    return g.reshape(shape)


_sum_on_cuda = launched("sum", lambda g, axes, keepdim: _device.cupy.add.reduce(g, axes, keepdims=keepdim))


def fit(g, shape, dtype):
    """A formula's result as the gradient of an input: broadcasting undone, its real part for a real input, its dtype."""
    if g is None:
        return None
    if type(g) is not nd and not _device.is_array(g):
        g = np.asarray(g)
    if g.shape != shape:
        g = sum_to(g, shape)
    if g.dtype != dtype:
        if g.dtype.kind == "c" and dtype.kind != "c":
            g = g.real
        g = g.astype(dtype, copy=False)
    return g


def fit_tensor(g, shape, dtype):
    """fit on Tensors, recorded."""
    if g is None:
        return None
    if not isinstance(g, Tensor):
        g = wrap(np.asarray(g))
    if g._array.shape != shape:
        g = OPS.sum_to_size(g, shape)
    if g._array.dtype != dtype:
        if g._array.dtype.kind == "c" and dtype.kind != "c":
            g = OPS.real(g)
        if g._array.dtype != dtype:
            g = OPS.to_copy(g, dtype)
    return g


def widen(x):
    """Half precision as float32, of an array or a Tensor; anything else as it is."""
    if isinstance(x, Tensor):
        return OPS.to_copy(x, np.dtype(np.float32)) if x._array.dtype in HALF else x
    if isinstance(x, (list, tuple)):
        return type(x)([widen(y) for y in x])
    return x.astype(np.float32, _device.order_of(x)) if getattr(x, "dtype", None) in HALF else x


def widened(formula):
    """A formula read on half precision: its steps in float32, its result rounded once, by fit."""
    return lambda *values: formula(*[widen(v) for v in values])
