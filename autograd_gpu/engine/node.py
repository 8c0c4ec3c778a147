"""Nodes of the graph: what an operation leaves behind so that its gradient can be computed later."""
from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from autograd_gpu.base import LeafView, Tensor, wrap
from autograd_gpu.cuda import streams as _streams
from autograd_gpu.devices import CPU
from autograd_gpu.devices import cupy as _cupy
from autograd_gpu.engine.anomaly_mode import note
from autograd_gpu.engine.forward_mode import carry_copy
from autograd_gpu.engine.grad_mode import everywhere

next_seq = itertools.count().__next__
LAST = 2**64 - 1                             # AccumulateGrad's sequence number: ahead of everything in a ready queue
_next_id = itertools.count().__next__
LEAF, ONE, TWO, MANY = range(4)              # `_kind` of a node: no edges; one or two, and a single output; anything else
PRIME = 251                                  # one node in so many can unlink (see unlink); prime, so that no stride misses it


class HookDict(dict):
    """Hooks by handle id, in the order they were registered. A class of its own so that handles can hold it weakly."""

    __slots__ = ("__weakref__",)


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook out; as a context manager, at its end."""

    def __init__(self, hooks: dict, hook):
        self.id = _next_id()
        self.hooks_dict_ref = weakref.ref(hooks)
        hooks[self.id] = hook

    def remove(self):
        """Take the hook out; nothing happens if it is out already."""
        hooks = self.hooks_dict_ref()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id

    def __setstate__(self, state):
        hooks, self.id = state               # a copy of the hooks that nobody else holds goes at once, and the handle does nothing
        self.hooks_dict_ref = weakref.ref(HookDict() if hooks is None else hooks)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.remove()


ALWAYS = "always"


class Rare:
    """What few nodes have, behind one slot so that the others pay one comparison."""

    __slots__ = ("tensor_hooks", "retain", "prehooks", "posthooks", "metadata", "stream", "crosses", "results")

    def __init__(self):
        self.tensor_hooks = {}               # output number: {handle id: hook}
        self.retain = {}                     # output number: weak reference to the tensor whose .grad is kept
        self.prehooks = HookDict()
        self.posthooks = HookDict()
        self.metadata = None
        self.stream = None                   # the CUDA stream that the node was recorded on, and runs on; None: the CPU
        self.crosses = False                 # whether it gives gradients on other devices than the one it runs on
        self.results = {}                    # output number: (shape, dtype, device), of those that somebody asked the edge of


class Node:
    """One recorded operation.

    A subclass gives `_arity`, the number of edges; with one or two they are the slots n0, i0, n1, i1 (node or None, and which
    of its outputs), else the slot `_edge_list`. `_outputs` is the number of gradients it takes; `_apply(grad, keep)`, on arrays,
    and `_apply_tensors(grad, keep)`, on Tensors, give one gradient or None per edge (a bare one when arity is 1) and take a list
    when `outputs` is not 1. Unless `keep`, they drop what was saved, as `_release()` does. A custom Function's users put
    attributes of their own on its nodes: names without an underscore are PyTorch's, or theirs. Reference: torch.autograd.graph.Node.
    """

    __slots__ = ("_seq", "_rare", "__weakref__")
    _result_meta: Sequence[Any]              # of a node with several results: (shape, dtype, ...) of each
    _arity = 0
    _outputs = 1
    _kind = LEAF
    _jointly = False                         # whether it gives all its gradients where one is wanted, or ALWAYS, which its posthooks see
    _title = "Node"

    def __init_subclass__(cls):
        cls._kind = cls._arity if cls._arity <= TWO and cls._outputs == 1 else MANY

    def name(self) -> str:
        """The name PyTorch gives this kind of node, such as MulBackward0."""
        return self._title

    def __repr__(self):
        return f"<{self.name().rpartition('::')[2]} object at {id(self):#x}>"

    def _edges(self):
        """((node or None, output number), ...), one per differentiable input."""
        arity = self._arity
        if arity == 1:
            return ((self.n0, self.i0),)
        if arity == 2:
            return (self.n0, self.i0), (self.n1, self.i1)
        return self._edge_list if arity else ()

    @property
    def next_functions(self):
        """((node or None, output number), ...): where this node's results go. Reference: torch.autograd.graph.Node."""
        return self._edges()

    def __call__(self, *grads):
        """The gradients of its inputs for those of its results: a Tensor or None, or a tuple of them. Recorded as any computation is."""
        count = output_count(self)
        if len(grads) != count:
            raise TypeError(f"{self.name()}: expected {count} arguments, got {len(grads)} instead: the gradient of each result")
        for i, g in enumerate(grads):
            if not (g is None or isinstance(g, Tensor)):
                raise TypeError(f"{self.name()}: argument {i} is not a Variable but of type {type(g).__name__}")
        return self._apply_tensors(grads[0] if self._outputs == 1 else list(grads), True)

    def _release(self):
        """Drop the saved values; a later backward through this node then fails, if it saved any."""

    def _values(self):
        """What it saved, as it is kept: tensors, arrays, what pack hooks made of them."""
        return ()

    @property
    def _stream(self):
        """The CUDA stream that this node runs on; None on the CPU."""
        return None if self._rare is None else self._rare.stream

    @property
    def _device(self):
        """The device this node runs on, whose ready queue it waits in."""
        stream = self._stream
        return CPU if stream is None else stream.device

    @property
    def metadata(self) -> dict:
        """A dictionary for the user's own notes. Reference: torch.autograd.graph.Node.metadata."""
        rare = rare_of(self)
        if rare.metadata is None:
            rare.metadata = {}
        return rare.metadata

    def _sequence_nr(self) -> int:
        return self._seq

    def register_hook(self, hook) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this node ran; a tuple it returns replaces grad_inputs.

        Reference: torch.autograd.graph.Node.register_hook.
        """
        return RemovableHandle(rare_of(self).posthooks, hook)

    def register_prehook(self, hook) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node runs; a tuple it returns replaces them.

        Reference: torch.autograd.graph.Node.register_prehook.
        """
        return RemovableHandle(rare_of(self).prehooks, hook)


def output_count(node: Node) -> int:
    """How many gradients a node takes; of an op with any number of results, what this node recorded."""
    return node._outputs if type(node._outputs) is int else len(node._result_meta)


_making = threading.Lock()                   # guards `_rare` of nodes, so that no thread's hook goes into one that is dropped


def rare_of(node: Node) -> Rare:
    """The node's Rare, made at its first need."""
    if node._rare is None:
        made = Rare()
        with _making:                        # no allocation in here: a finaliser that it ran could want the lock
            if node._rare is None:
                node._rare = made
    return node._rare


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor arrives: a node, and which of its outputs the tensor was.

    autograd.grad and backward take it in place of the tensor, which need not be kept for that.
    Reference: torch.autograd.graph.GradientEdge.
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None      # PyTorch's, whose nodes do not keep what lies before them; here the node does


class AccumulateGrad(Node):
    """Adds what arrives into `variable.grad`. One per leaf; the leaf holds it weakly, the graph strongly."""

    __slots__ = ("variable", "_stream")
    variable: Tensor
    _stream: Any                             # as of any node: the one that was current when the leaf was first used
    _title = "torch::autograd::AccumulateGrad"


def leads_nowhere(t: Tensor) -> bool:
    """Whether a tensor is a view that requires grad as its base does, but was made while nothing was recorded: no gradient reaches it."""
    view = t._view
    return view is not None and t._node is None and type(view) is not LeafView and view.base._requires


def leaf_node(t: Tensor) -> AccumulateGrad | None:
    """The AccumulateGrad of a leaf, made at its first need; None for a view that leads nowhere."""
    reference = t._leaf
    if reference is not None:
        node = reference()
        if node is not None:
            return node
    if t._view is not None and leads_nowhere(t):
        everywhere.nowhere = True
        return None
    node = AccumulateGrad()
    node.variable = t
    node._seq = LAST
    node._rare = None
    node._stream = _streams.at(t.device) if _cupy is not None and type(t._array) is not ndarray else None
    t._leaf = weakref.ref(node)
    if everywhere.noting:
        note(node)
    return node


def edge_of(t: Tensor):
    """(node, output number) that a gradient of t is sent to; (None, 0) if it needs none."""
    if not t._requires:
        return None, 0
    node = t._node
    return (leaf_node(t), 0) if node is None else (node, t._nr)


def stand_in(t: Tensor, array) -> Tensor:
    """A Tensor over other memory with t's place in the graph: what flows to it flows where t's gradients go."""
    out = wrap(array)
    if everywhere.levels:
        carry_copy(t, out)
    out._node, out._nr = edge_of(t)
    out._requires = t._requires
    return out


def all_slots(cls):
    """The names of a class's slots but for weak references."""
    return tuple(s for c in cls.__mro__ for s in getattr(c, "__slots__", ()) if s != "__weakref__")


class _Unlinking(threading.local):
    pending = None                           # what a node further up has left to drop; a class attribute: threads need no start


_unlinking = _Unlinking()


def unlink(node, state=_unlinking):
    """`__del__` of one node in PRIME: hands on what it holds in a loop instead of from within its own deallocation.

    CPython frees a chain by recursion. It bounds the depth, but 3.13.0 at ten thousand levels, more than a thread with a
    stack of 512 KB survives; with this no chain of frees is deeper than PRIME nodes. The state is a default argument: at exit,
    globals are gone before the last nodes are.
    """
    held = []
    for slot in node._held_slots:
        try:
            held.append(getattr(node, slot))
            delattr(node, slot)
        except AttributeError:
            pass
    if state.pending is not None:            # further up, this thread is already in the loop below
        state.pending.append(held)
        return
    pending = [held]
    del held
    try:
        state.pending = pending
        while pending:
            pending.pop()
    finally:                                 # in here too a signal's handler may raise
        state.pending = None


def unlinking(cls):
    """The subclass of a Node class whose instances unlink. The class keeps it: a Function's comes and goes with the Function."""
    found = cls.__dict__.get("_unlinking")
    if found is None:
        found = cls._unlinking = type(cls.__name__, (cls,), {"__slots__": (), "__del__": unlink, "_held_slots": all_slots(cls)})
    return found


def new_node(cls, device=CPU) -> Node:
    """A node of a class that runs on a device, on the stream that is current there now; newer than what its edges, read before, lead to.

    The compiled functions of ops have this written out.
    """
    seq = next_seq()
    node = object.__new__(cls if seq % PRIME else unlinking(cls))
    node._seq, node._rare = seq, None
    if device is not CPU:
        rare_of(node).stream = _streams.at(device)
    if everywhere.noting:
        note(node)
    return node
