"""Which memory a node keeps for its backward."""
from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor
from autograd_gpu.cuda.offload import Offloaded
from autograd_gpu.engine.node import Node
from autograd_gpu.engine.packing import is_number
from autograd_gpu.engine.saved import Packed


def kept(node: Node) -> Iterator[tuple[str, Any, Tensor | None]]:
    """(name, array, Tensor or None) for all that a node keeps, as it is kept now; of what a pack hook made of a value, its array if it has
    one. The Tensor is there where one was saved. Numbers of the program are left out.
    """
    inner = getattr(node, "inner", None)     # of CopySlices: the operation on the view
    if inner is not None:
        yield from kept(inner)
    record = getattr(node, "_record", None)
    if record is not None:
        values = [(name, getattr(node, "s_" + name, None)) for name in (*record.saved_inputs, *record.saved_results, *record.saved_aux)]
    else:                                    # of a custom Function
        values = [("saved_tensors", getattr(node, "_saved", ()))]
    for name, value in values:
        for one in value if isinstance(value, tuple) else (value,):
            tensor = one.content if type(one) is Packed else one
            array = tensor.host if isinstance(tensor, Offloaded) else getattr(tensor, "_array", tensor)
            if _device.is_array(array) and not (isinstance(tensor, Tensor) and is_number(tensor)):
                yield name, array, tensor if isinstance(tensor, Tensor) else None


def whole(array):
    """The array that owns an array's memory: what is kept alive by keeping a view of it."""
    while _device.is_array(array.base):
        array = array.base
    return array


def is_leaf(t: Tensor | None) -> bool:
    """Whether a Tensor is a leaf that requires grad, or a view of one: a parameter, whose memory lives on anyway."""
    if t is None:
        return False
    owner = t if t._view is None else t._view.base
    return owner._requires and owner._node is None


class Counted:
    """Memory that has been counted, so that each is counted once."""

    def __init__(self):
        self._seen = weakref.WeakValueDictionary()       # by id: one that is freed may have its id given away

    def new(self, array) -> int:
        """The bytes of the memory that an array lies in; 0 if it was counted before."""
        owner = whole(array)
        if self._seen.get(id(owner)) is owner:
            return 0
        self._seen[id(owner)] = owner
        return owner.nbytes

    def of(self, node: Node) -> int:
        """The bytes that a node keeps and none before it did, leaves that require grad not counted."""
        return sum([self.new(array) for _, array, t in kept(node) if not is_leaf(t)])
