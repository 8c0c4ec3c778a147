"""What the ops take: numbers beside arrays, numbers where a Tensor belongs, dtypes that an op does not have."""
from __future__ import annotations

import math
from numbers import Number

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.op import composite

# A Python number that is not converted to a Tensor: what the ops with a number as second operand take without a detour.
NOT_NUMBER = "type({0}) is not int and type({0}) is not float and type({0}) is not complex"


def beside(array, number):
    """An array in the dtype that it has in an operation with a Python number of a higher category."""
    kind = array.dtype.kind
    if kind not in "biu" or (kind != "b" and isinstance(number, int)):
        return array
    if isinstance(number, int):
        return array if isinstance(number, bool) else array.astype(np.int64)
    return array.astype(_dtype.default() if isinstance(number, float) else np.result_type(_dtype.default(), np.complex64))


def held(number, array):
    """A number as an array of integers holds it: one that is too large wraps around, as in PyTorch.

    Raises: OverflowError for one that no integer of 64 bits holds.
    """
    if array.dtype.kind not in "iu" or not isinstance(number, int):
        return number
    if not -1 << 63 <= number < 1 << 64:
        raise OverflowError(f"int too big to convert: {number} needs more than 64 bits; give a float")
    bits = 8 * array.itemsize
    number %= 1 << bits
    return number - (1 << bits) if array.dtype.kind == "i" and number >> (bits - 1) else number


def check_number(name, argument, value):
    """A number as Python's own: NumPy's scalars would decide dtypes. Raises TypeError for what is no number."""
    if not isinstance(value, (Number, np.generic)):
        raise TypeError(f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}: {value!r:.60}")
    return value.item() if isinstance(value, np.generic) else value


def check_int(name, argument, *values):
    """Raises TypeError for what is no integer."""
    for value in values:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}: {value!r:.60}")


_LIMITS: dict[np.dtype, tuple] = {}          # the smallest and largest number that is taken for a dtype


def _limits(d):
    if d not in _LIMITS:
        info = np.iinfo(d) if d.kind in "iu" else _dtype.finfo(d)
        _LIMITS[d] = (-info.max if d.kind == "u" else info.min, info.max)      # -1 is taken for the largest unsigned number
    return _LIMITS[d]


def fitted(name, value, d):
    """A number as a tensor's dtype holds it, into which it is to be written.

    Raises: RuntimeError for one that the dtype cannot hold (inf and NaN are held by floating dtypes), OverflowError for an integer of
    more than 64 bits, TypeError for no number.
    """
    value = check_number(name, "value", value)
    if isinstance(value, int) and not -1 << 63 <= value < 1 << 64:
        raise OverflowError(f"{name}: int too big to convert to {_dtype.of(d)}: {value}; give a float")
    if d.kind == "b":
        return value != 0
    low, high = _limits(d)
    if d.kind == "u" and not isinstance(value, int):
        low = 0
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    imaginary = d.kind != "c" and len(parts) == 2 and value.imag != 0
    if imaginary or any([not low <= x <= high and (d.kind in "iu" or math.isfinite(x)) for x in parts]):
        raise RuntimeError(f"{name}: value cannot be converted to type {_dtype.of(d)} without overflow: {value}; convert the "
                           f"tensor first, with .to(dtype)")
    if d.kind != "c":
        value = parts[0]
    return np.asarray(value).astype(d).item()


def of_tensors(name, first="input", second="other"):
    """The divert of an op that PyTorch has for two Tensors only, or for a Tensor as the first: with a number it raises TypeError."""
    def refused(a, b):
        wrong, value = (first, a) if isinstance(a, (int, float, complex)) else (second, b)
        raise TypeError(f"{name}(): argument '{wrong}' must be Tensor, not {type(value).__name__}: make one of it, with "
                        f"torch.tensor({value!r:.60})")
    refused.__name__ = f"{name}_of_numbers"
    composite(method=False, function=False)(refused)
    one = "type({0}) is not Tensor and isinstance({0}, (int, float, complex))"
    return {" or ".join([one.format(p) for p in (first, second) if p]): refused.__name__}


def refuse(name, array, kinds, error=NotImplementedError):
    """Raises an error for dtypes that PyTorch has no such op for."""
    if array.dtype.kind in kinds:
        raise error(f"{name}: not implemented for {_dtype.of(array.dtype)}: convert the tensor first, with .to(dtype)")


def floating(name, dtype):
    """Raises NotImplementedError unless a NumPy dtype is floating."""
    if _dtype.category(dtype) != "f":
        raise NotImplementedError(f"{name}: not implemented for {_dtype.of(dtype)}: convert the input to a floating dtype first")
