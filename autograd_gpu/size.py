"""Size, the shape of a tensor, and the words for its layout."""
from __future__ import annotations

import math
import operator


class Size(tuple):
    """A tuple of integers with `numel()`. Raises TypeError for what is no integer. Reference: torch.Size."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        found = tuple.__new__(cls, sizes)
        for n in found:
            if type(n) is not int:
                return tuple.__new__(cls, [_integer(i, n) for i, n in enumerate(found)])
        return found

    def numel(self) -> int:
        """How many elements a tensor of this size has."""
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other):
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other):
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count):
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


def _integer(i, n):
    try:
        return operator.index(n)
    except TypeError:
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type(n).__name__}')") from None


class _Word:
    """A constant that PyTorch's programs pass around; here every tensor is strided and formats are only hints."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "torch." + self.name

    def __reduce__(self):
        return self.name                     # pickled as the module's variable of this name, so it stays one object


strided = _Word("strided")
contiguous_format = _Word("contiguous_format")
preserve_format = _Word("preserve_format")
channels_last = _Word("channels_last")
channels_last_3d = _Word("channels_last_3d")
