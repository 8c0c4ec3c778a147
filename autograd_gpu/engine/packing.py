"""Hooks on saved values: what a node keeps for its backward, packed when it is recorded or later, one value at a time."""
from __future__ import annotations

import contextlib
import functools

from autograd_gpu.base import Tensor, version, wrap
from autograd_gpu.devices import is_array
from autograd_gpu.engine.forward_mode import carry
from autograd_gpu.engine.grad_mode import everywhere, local
from autograd_gpu.engine.hooks import LeafHooks
from autograd_gpu.engine.node import edge_of
from autograd_gpu.engine.saved import NEVER, RELEASED, Packed, constant, freed, own_result, writes_since


def pack_inputs(node, state):
    """Put the inputs that a node saved through the innermost pair of hooks, which record nothing; numbers of the program are none."""
    with packing(*state.saved_hooks[-1]) as pack:
        for name in node._record.saved_inputs:
            value = getattr(node, "s_" + name)
            if isinstance(value, tuple):
                setattr(node, "s_" + name, tuple([pack(t, edge_of(t), t._requires, version(t)) for t in value]))
            elif value is not None and not is_number(value):
                setattr(node, "s_" + name, pack(value, edge_of(value), value._requires, version(value)))


def pack_results(node, state):
    """The same for its results and aux values."""
    with packing(*state.saved_hooks[-1]) as pack:
        for name in node._record.saved_results:
            _pack_result(node, name, pack, own_result(node, getattr(node, "s_" + name), *_place(node, name)))
        for name in node._record.saved_aux:
            value = getattr(node, "s_" + name)
            if is_array(value):
                t = wrap(value)
                setattr(node, "s_" + name, pack(t, (None, 0), False, version(t)))


@contextlib.contextmanager
def packing(pack_hook, unpack_hook):
    """Within the block nothing is recorded, and `pack(t, edge, requires, counter)` runs the pack hook and gives a Packed."""
    state = local.state
    outer = state.enabled, state.mode
    try:
        state.enabled = False
        state.refresh()
        yield functools.partial(_pack, pack_hook, unpack_hook)
    finally:                                 # first what needs no call, as in engine/run.py
        state.enabled, state.mode = outer
        state.refresh()


def is_number(t):
    """Whether a Tensor stands for a number of the program, whose memory is shared by all that use it."""
    return t._hooks is not None and type(t._hooks) is not LeafHooks


def _place(node, name):
    """(output number, version counter) of a result that its node saved."""
    return node._record.output_names.index(name), getattr(node, "c_" + name)


def _pack_result(node, name, pack, t):
    nr, counter = _place(node, name)
    setattr(node, "s_" + name, pack(t, (None, nr), t._requires, counter))
    setattr(node, "c_" + name, NEVER)


def _pack(pack_hook, unpack_hook, t, edge, requires, counter):
    packed = Packed()
    before = version(t).count
    packed.content = pack_hook(t)
    if writes_since(version(t), before):
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
                           "can not be modified by in-place operations: write to a clone()")
    packed.unpack, packed.counter, packed.edge, packed.requires = unpack_hook, counter, edge, requires
    if everywhere.levels:
        carry(t, packed)
    packed.shape, packed.dtype = t._array.shape, t._array.dtype
    return packed


class SavedTensor:
    """One value that a node saved, so that hooks can be put on it: what `_raw_saved_self` and its like give.

    Reference: "Hooks for saved tensors" in PyTorch's documentation of autograd.
    """

    __slots__ = ("_node", "_slot", "_at", "_read")

    def __init__(self, node, slot, at, read):
        self._node, self._slot, self._at, self._read = node, slot, at, read      # `at`: where in a tuple; read(): the value, checked

    def _content(self):
        value = getattr(self._node, self._slot)
        return value if self._at is None or value is RELEASED else value[self._at]

    def unpack(self) -> Tensor | None:
        """The saved value; through the unpack hook where there is one. Raises RuntimeError where it may not be used any more."""
        return None if self._content() is None else self._read()

    @property
    def data(self):
        """What is kept: the pack hook's result where there is one, else the value; None once it was freed."""
        value = self._content()
        return value.content if type(value) is Packed else None if value is None or value is RELEASED else self._read()

    @property
    def unpack_hook(self):
        """The unpack hook, or None."""
        value = self._content()
        return value.unpack if type(value) is Packed else None

    def register_hooks(self, pack_hook, unpack_hook) -> None:
        """Replace the value by `pack_hook(value)`, at once; backward then uses what `unpack_hook` makes of that.

        The version check stays alive as under saved_tensors_hooks.
        Raises: RuntimeError where hooks are set already, nothing is saved, it was freed, or it was written to since; TypeError for what
        cannot be called.
        """
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError("register_hooks(): pack_hook and unpack_hook have to be callable")
        node, slot, value = self._node, self._slot, self._content()
        if value is RELEASED:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed: register them before the backward, or "
                               "pass retain_graph=True to it") from freed(node)
        if value is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if type(value) is Packed:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set: only one pair of hooks is "
                               "allowed at a time")
        t = self._read()
        own = t._node is node                # a result of the node: to name it as its history would be a cycle
        edge = (None, t._nr) if own else edge_of(t)
        shown = constant(t._array.copy() if is_number(t) else t._array, version(t))
        with packing(pack_hook, unpack_hook) as pack:
            packed = pack(shown, edge, t._requires, version(t))
        if self._at is None:
            setattr(node, slot, packed)
        else:
            values = getattr(node, slot)
            setattr(node, slot, (*values[:self._at], packed, *values[self._at + 1:]))
        counter = "c" + slot[1:]
        if slot != "_saved" and hasattr(node, counter):
            setattr(node, counter, NEVER)
