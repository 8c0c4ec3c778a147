"""Which memory a node keeps for its backward."""
from __future__ import annotations

import contextlib
import linecache
import os
import re
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from autograd_gpu import devices as _device
from autograd_gpu.autograd.profiler_util import memory_text, shortened, text_table
from autograd_gpu.base import Tensor
from autograd_gpu.cuda.offload import Part
from autograd_gpu.dtypes import of as dtype_of
from autograd_gpu.engine.grad_mode import count_lines
from autograd_gpu.engine.node import GradientEdge, Node, edge_of
from autograd_gpu.engine.packing import is_number
from autograd_gpu.engine.saved import Packed
from autograd_gpu.engine.task import explore
from autograd_gpu.ops.views import CopySlices, refresh
from autograd_gpu.tree import flatten


def kept(node: Node) -> Iterator[tuple[str, Any, Tensor | None]]:
    """(name, array, Tensor or None) for all that a node keeps, as it is kept now; of what a pack hook made of a value, the arrays in it,
    also inside of tuples, lists and dictionaries. The Tensor is there where one was saved. Numbers of the program are left out.
    """
    if isinstance(node, CopySlices) and node.inner is not None:
        yield from kept(node.inner)          # the operation on the view
    record = getattr(node, "_record", None)
    if record is not None:
        values = [(name, getattr(node, "s_" + name, None)) for name in (*record.saved_inputs, *record.saved_results, *record.saved_aux)]
    else:                                    # of a custom Function
        values = [("saved_tensors", getattr(node, "_saved", ()))]
    for name, value in values:
        for one in value if isinstance(value, tuple) else (value,):
            for tensor in flatten(one.content)[0] if type(one) is Packed else (one,):
                array = tensor.whole.host if isinstance(tensor, Part) else getattr(tensor, "_array", tensor)
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
        # by id; a dead array is not found, so that its id may be given away
        self._seen: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

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


class record_lines(contextlib.ContextDecorator):
    """Within the block each new node keeps the line of the program that made it, in all threads, for `saved_bytes` and `draw`.

    It costs some 10 us for each operation; anomaly mode, which keeps all the lines that led there, serves as well.
    """

    def __enter__(self):
        count_lines(1)
        return self

    def __exit__(self, *exc_info):
        count_lines(-1)


def line_of(node: Node) -> str:
    """The line that made a node, as "file.py:12: code"; empty where none was kept."""
    found = node._rare.metadata if node._rare is not None and node._rare.metadata else {}
    if "line_" in found:
        file, line = found["line_"]
    elif found.get("traceback_"):
        file, line = re.match(r'\s*File "(.*)", line (\d+)', found["traceback_"][-1]).groups()
    else:
        return ""
    code = linecache.getline(file, int(line)).strip()
    return f"{os.path.basename(file)}:{line}" + (f": {code}" if code else "")


class Saved(NamedTuple):
    """What the nodes of one name from one line keep: `tensors` are (name, shape, dtype), `nbytes` their memory that no row above has."""

    name: str
    line: str
    nbytes: int
    tensors: tuple[tuple[str, tuple[int, ...], str], ...]


class SavedBytes(list):
    """The rows of `saved_bytes`, the largest first; printed as a table. `total`, and `leaves`: what of leaves is kept, not in the total."""

    def __init__(self, rows, leaves: int):
        super().__init__(rows)
        self.leaves = leaves

    @property
    def total(self) -> int:
        """The bytes of all rows."""
        return sum([row.nbytes for row in self])

    def __str__(self):
        rows = [["Node", "Saved", "Tensors", "Line"]]
        for row in self:
            told = ", ".join([f"{name} {list(shape)} {dtype}" for name, shape, dtype in row.tensors[:3]])
            rows.append([row.name, memory_text(row.nbytes), told + ", ..." * (len(row.tensors) > 3), shortened(row.line, 75)])
        lines = [line.rstrip() for line in text_table(rows, left=(0, 2, 3))]
        return "\n".join([*lines, f"Saved for backward: {memory_text(self.total)}; of leaves, which live on anyway: "
                          f"{memory_text(self.leaves)}"])

    __repr__ = __str__


def saved_bytes(outputs: Any) -> SavedBytes:
    """Which operations keep how much memory for the backward of some Tensors, or of a node or edge; with `record_lines`, from which lines.

    Memory counts once, for the first operation of the program that keeps it, and wholly, also where a view of it is kept. Leaves that
    require grad are counted apart: they live on anyway. What a backward has freed counts for nothing, what hooks have packed as it is now.
    Raises: RuntimeError for a Tensor that does not require grad.
    """
    counted, leaves = Counted(), 0
    rows: dict[tuple[str, str], tuple[int, tuple]] = {}
    for node in nodes_of(outputs):
        found = [(name, array, is_leaf(t)) for name, array, t in kept(node)]
        leaves += sum([counted.new(array) for _, array, leaf in found if leaf])
        tensors = [(name, array.shape, str(dtype_of(array.dtype)).removeprefix("torch.")) for name, array, leaf in found if not leaf]
        if tensors:
            key = node.name().rpartition("::")[2], line_of(node)
            nbytes, before = rows.get(key, (0, ()))
            rows[key] = nbytes + sum([counted.new(array) for _, array, leaf in found if not leaf]), (*before, *tensors)
    return SavedBytes(sorted([Saved(*key, *row) for key, row in rows.items()], key=lambda row: -row.nbytes), leaves)


def nodes_of(outputs: Any) -> list[Node]:
    """The nodes of the graph of a Tensor, node or edge, or of several, in the order in which the program made them; leaves at the end.

    Raises: RuntimeError for a Tensor that does not require grad, TypeError for anything else.
    """
    roots = []
    for t in outputs if isinstance(outputs, (list, tuple)) and not isinstance(outputs, GradientEdge) else [outputs]:
        if isinstance(t, Tensor):
            if t._view is not None:
                refresh(t)
            t = edge_of(t)[0]
            if t is None:
                raise RuntimeError("a Tensor that does not require grad has no graph: compute it from one with requires_grad=True")
        node = t.node if isinstance(t, GradientEdge) else t
        if not isinstance(node, Node):
            raise TypeError(f"expected Tensors, nodes or gradient edges, got {type(node).__name__}")
        roots.append((node,))
    return sorted(explore(roots, {})[0], key=lambda node: node._seq)
