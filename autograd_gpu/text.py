"""How tensors print."""
from __future__ import annotations


def tensor(t) -> str:
    """The text of a tensor as PyTorch's."""
    return f"tensor({t._array.tolist()})"
