"""Numbers chosen by a condition, without a branch per element, which a processor cannot predict: their bits times 1 or 0."""
from __future__ import annotations

import numpy as np

FEW = 1 << 12                                # elements up to which np.where is as fast as `choose`; measured
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def choose(condition, x, y, out=None):
    """np.where(condition, x, y)."""
    if out is None and (type(condition) is not np.ndarray or condition.size < FEW or condition.dtype != np.bool_):
        return np.where(condition, x, y)
    dtype = np.result_type(x, y) if out is None else out.dtype
    bits = _BITS.get(dtype.itemsize)
    if bits is not None:
        a, b = np.asarray(x, dtype).view(bits), np.asarray(y, dtype).view(bits)
        into = None if out is None else out.view(bits)
        if not b.ndim and not b:
            return np.multiply(a, condition, out=into).view(dtype)
        if not a.ndim and not a:
            return np.multiply(b, ~condition, out=into).view(dtype)
        if dtype.itemsize <= 4:              # processors multiply 64 bits more slowly
            mixed = np.multiply(np.bitwise_xor(a, b, out=into), condition, out=into)
            return np.bitwise_xor(mixed, b, out=mixed).view(dtype)
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def kept(values, condition):
    """`values` where a condition is true, else 0, both of one shape, numbers of 1, 2, 4 or 8 bytes."""
    bits, out = _BITS[values.dtype.itemsize], np.empty_like(values)
    np.multiply(values.view(bits), condition, out.view(bits))
    return out
