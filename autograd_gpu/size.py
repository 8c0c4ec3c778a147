"""Size: the shape of a tensor."""
from __future__ import annotations

import math


class Size(tuple):
    """A tuple of integers with `numel()`. Reference: torch.Size."""

    __slots__ = ()

    def numel(self) -> int:
        """How many elements a tensor of this size has."""
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))
