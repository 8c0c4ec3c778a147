"""Values saved for backward: when they may still be used, and what is said when not.

A recorded node keeps in its slots
    s_<input>, k_<input>      the caller's Tensor, and the version it had
    s_result, c_result, k_result   the operation's own result as a bare array (a Tensor would be a cycle), its counter, its version
Reading one costs a comparison of two integers; everything unusual (released, packed by a hook, written to) fails that
comparison and comes here.
"""
from __future__ import annotations

import weakref

from autograd_gpu.base import CHANGE, Tensor, Version, version, wrap
from autograd_gpu.engine.forward_mode import carry_from_packed, carry_from_result
from autograd_gpu.engine.grad_mode import everywhere, local
from autograd_gpu.engine.node import LAST


class _Never:
    """Stands where a version counter would: no saved version equals it."""
    count = -1


NEVER = _Never()


class _Released:
    """Stands where a saved value was."""
    __slots__ = ()
    _counter = NEVER
    count = -1

    def __repr__(self):
        return "<released>"


RELEASED = _Released()


class Packed:
    """What a pack hook made of a saved value."""

    __slots__ = ("content", "unpack", "counter", "edge", "requires", "shape", "dtype", "__weakref__")
    _counter = NEVER

    def open(self, node, what, saved_at):
        """The unpack hook's Tensor, with the history that the packed one had.

        Raises: RuntimeError if it is still the memory that was saved, and that was written to since; TypeError if it is no Tensor.
        """
        t = self.unpack(self.content)
        if not isinstance(t, Tensor):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}")
        if t._counter is self.counter and writes_since(self.counter, saved_at):
            raise _modified(node, what, self, self.counter, saved_at)
        if t._array.shape != self.shape:
            raise RuntimeError(f"the unpack hook gave a tensor of shape {t._array.shape} for one of shape {self.shape}")
        out = wrap(t._array)
        if everywhere.levels:
            carry_from_packed(self, out)
        out._counter = version(t)
        node, out._nr = self.edge
        out._requires = self.requires
        if node is not None and node._seq == LAST:
            out._leaf = weakref.ref(node)        # stands in for the leaf: gradients go to its AccumulateGrad
        else:
            out._node = node
        return out


def freed(node):
    return RuntimeError(
        f"{type(node).name(node)}: Trying to backward through the graph a second time, or to read values that were freed: what this "
        f"node saved was freed by an earlier backward() or autograd.grad(). Pass retain_graph=True to that earlier call, or "
        f"compute the loss again")


def _modified(node, what, like, counter, expected):
    """The error for a saved value of an array's shape and dtype that was written to after it was at the version `expected`."""
    where = getattr(counter, "written_at", None)
    return RuntimeError(
        f"{type(node).name(node)}: {what} (shape {tuple(like.shape)}, {like.dtype}), one of the variables needed for gradient computation, "
        f"has been modified by an inplace operation: it is at version {counter.count % CHANGE}; expected version "
        f"{expected % CHANGE}. Write to a clone() instead, or after the backward. " + (
            f"The last write to it:\n{where}" if where else
            "Anomaly mode, torch.autograd.set_detect_anomaly(True), shows the line that wrote to it"))


def _was_detached(node, name):
    return RuntimeError(
        f"{type(node).name(node)}: its saved input '{name}' was taken out of the graph by detach_() after it was saved; "
        f"call detach() instead, which leaves the original as it is")


def saved_input(node, name):
    """The Tensor behind an input whose version is not the one it was saved at. Raises RuntimeError where it may not be used."""
    value = getattr(node, "s_" + name)
    if value is RELEASED:
        raise freed(node)
    saved_at = getattr(node, "k_" + name)
    if isinstance(value, Packed):
        return value.open(node, f"its saved input '{name}'", saved_at)
    counter = version(value)
    if value._node is None and _had_history(node, name):
        raise _was_detached(node, name)
    if writes_since(counter, saved_at):
        raise _modified(node, f"its saved input '{name}'", value._array, counter, saved_at)
    return value


def saved_result(node, name, nr):
    """Tensor over one of the node's own results, with the node as its history. Raises RuntimeError where it may not be used."""
    value = getattr(node, "s_" + name)
    if value is RELEASED:
        raise freed(node)
    saved_at = getattr(node, "k_" + name)
    if isinstance(value, Packed):
        t = value.open(node, f"its result '{name}'", saved_at)
        return _with_history(t, node, nr)
    counter = getattr(node, "c_" + name)
    if writes_since(counter, saved_at):
        raise _modified(node, f"its result '{name}'", value, counter, saved_at)
    return own_result(node, value, nr, counter)


def own_result(node, array, nr, counter):
    """A Tensor over a node's saved result, as differentiable as the result that the user holds."""
    t = wrap(array)
    t._counter = counter
    return _with_history(t, node, nr)


def _with_history(t, node, nr):
    if t._array.dtype.kind not in "fcV":     # such as the indices of a maximum: no gradient flows there
        return t
    if everywhere.levels:
        carry_from_result(node, nr, t)
    view = local.state.result_of.get(node)
    if view is not None:
        node, nr = view, 0
    t._node, t._nr, t._requires = node, nr, True
    return t


def constant(array, counter):
    """A Tensor over a saved value that no gradient flows through."""
    t = wrap(array)
    t._counter = counter
    return t


def saved_aux(node, name):
    """What the forward made for the backward, where that is no array as it stands: freed, packed by a hook, or a plain value."""
    value = getattr(node, "s_" + name)
    if value is RELEASED:
        raise freed(node)
    return value.open(node, f"its saved '{name}'", 0)._array if type(value) is Packed else value


def writes_since(counter: Version, saved_at):
    """Whether the memory was written to after the count was saved."""
    return (counter.count - saved_at) % CHANGE != 0


def _had_history(node, name):
    return any(edge is not None and edge._seq != LAST and n == name
               for (edge, _), n in zip(node._edges(), node._edge_names, strict=False))


def list_item(node, name, value, saved_at):
    """One Tensor of a saved list, checked."""
    if isinstance(value, Packed):
        return value.open(node, f"a tensor of its saved '{name}'", saved_at)
    counter = value._counter
    if counter is not None and counter.count != saved_at and writes_since(counter, saved_at):
        raise _modified(node, f"a tensor of its saved '{name}'", value._array, counter, saved_at)
    return value
