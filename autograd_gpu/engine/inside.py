"""Inside a custom Function's forward nothing is recorded, but what depends on its inputs is remembered.

A backward that uses a tensor which forward computed and kept, neither an input nor an output, has the right first derivative. To a
second one that tensor would be a constant, silently. So while forward runs, results that depend on the inputs get a node of class
Dependent, which users do not see; and while a backward is recorded, those that are left get a node that refuses to be differentiated.
"""
from __future__ import annotations

import contextlib
import weakref

from autograd_gpu.base import Tensor
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import Node, edge_of, new_node


class Dependent(Node):
    """The history of what depends on the inputs of the Function whose forward is running. To a backward inside it, a constant."""

    __slots__ = ("_edge_list",)
    _arity = 3

    def _apply(self, grad, keep):
        return (None,) * len(self._edge_list)

    _apply_tensors = _apply


class Refusing(Node):
    """The history of what a forward computed and kept, while the backward that uses it is recorded."""

    __slots__ = ("_edge_list", "label")
    _arity = 3

    def name(self):
        return self.label

    def _apply(self, grad, keep):
        raise RuntimeError(
            f"{self.label}: its backward uses a tensor that forward computed from its inputs and kept, and this derivative goes through "
            f"it: it is not known. Save only inputs and outputs with save_for_backward and compute the rest in backward, return the tensor "
            f"as one more output, or decorate backward with once_differentiable")

    _apply_tensors = _apply


def depend(outs, edges) -> None:
    """Make tensors depend on the inputs that edges lead to, unseen, until forward ends."""
    node = new_node(Dependent)
    node._edge_list = tuple(edges)
    inside = local.state.inside
    for t in outs:
        t._node, t._nr, t._requires = node, 0, True
        inside.append(weakref.ref(t))


def depend_on(t, others) -> None:
    """Make a tensor that is written to, and what it is a view of, depend on the tensors among those that the values come from.

    Not what has a history of its own.
    """
    edges = [edge_of(o) for o in others if isinstance(o, Tensor) and o._requires]
    if edges and not local.state.enabled:
        for own in (t,) if t._view is None else (t, t._view.base):
            if own._array.dtype.kind in "fcV" and (not own._requires or isinstance(own._node, Dependent)):
                depend([own], [edge_of(own), *edges])


@contextlib.contextmanager
def remembering():
    """A block in which a forward runs; gives the list of weak references to what depends on its inputs, as plain tensors at the end."""
    state = local.state
    outer, found = (state.inside, state.enabled, state.mode), []
    try:
        state.inside, state.enabled = found, False
        state.refresh()
        yield found
    finally:                                 # first what needs no call, as in engine/run.py
        state.inside, state.enabled, state.mode = outer
        state.refresh()
        for reference in found:
            t = reference()
            if t is not None and isinstance(t._node, Dependent):  # not what forward made a leaf of its own
                t._node, t._requires = None, False


@contextlib.contextmanager
def refusing(references, edges, label):
    """A block in which what a forward kept refuses to be differentiated. `references`: what remembering gave."""
    kept = [t for t in [r() for r in references] if t is not None and t._node is None and not t._requires]
    for t in kept:
        t._node, t._requires = refusal(edges, label), True
    try:
        yield
    finally:
        for t in kept:
            t._node, t._requires = None, False


def refusal(edges, label) -> Refusing:
    """A node that refuses, on the way to where the edges lead."""
    node = new_node(Refusing)
    node._edge_list, node.label = edges, label
    return node
