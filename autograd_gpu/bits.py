"""Numbers chosen by a condition, without a branch per element, which a processor cannot predict: their bits times 1 or 0."""
from __future__ import annotations

import numpy as np

FEW = 1 << 12                                # elements up to which np.where is as fast as `choose`; measured
PART = 1 << 14                               # elements of a part
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def choose(condition, x, y, out=None):
    """np.where(condition, x, y)."""
    if out is None and (type(condition) is not np.ndarray or condition.size < FEW or condition.dtype != np.bool_):
        return np.where(condition, x, y)
    dtype = np.result_type(x, y) if out is None else out.dtype
    bits = _BITS.get(dtype.itemsize)
    if bits is not None:
        a, b = np.asarray(x, dtype).view(bits), np.asarray(y, dtype).view(bits)
        from_y, from_x = not a.ndim and not a, not b.ndim and not b          # the other is 0
        if from_x or from_y or dtype.itemsize <= 4:                          # processors multiply 64 bits more slowly
            if out is None:
                like = next((t for t in (a, b, condition) if t.ndim), condition)
                shape = like.shape if a.shape == b.shape == condition.shape else np.broadcast_shapes(a.shape, b.shape, condition.shape)
                out = np.empty_like(like, dtype, shape=shape)
            into = out.view(bits)
            if from_x or from_y:
                np.multiply(a if from_x else b, condition if from_x else ~condition, into)
            else:
                np.multiply(np.bitwise_xor(a, b, into), condition, into)
                np.bitwise_xor(into, b, into)
            return out
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def kept(values, test, x):
    """`values` where test(x) is true, else 0, both of one shape, numbers of 1, 2, 4 or 8 bytes; in parts, for few bools at once."""
    out, unsigned = np.empty_like(values), _BITS[values.itemsize]
    bits, into = values.view(unsigned), out.view(unsigned)
    if values.size <= PART:
        np.multiply(bits, test(x), into)
        return out
    if values.flags.c_contiguous and x.flags.c_contiguous:
        bits, into, x = (t.reshape(-1) for t in (bits, into, x))
    rows = max(1, PART * len(x) // x.size)
    for i in range(0, len(x), rows):
        part = slice(i, i + rows)
        np.multiply(bits[part], test(x[part]), into[part])
    return out
