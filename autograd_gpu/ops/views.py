"""Views and their history: what an in-place write through one view means for its base and for the other views.

A view knows its base and the steps that lead to it (base.View), each an op on plain arguments. Steps can be replayed on any
array that is laid out as the base is, so on a copy of the base's gradient in K order.
Reference: torch's history rewriting, "In-place operations with autograd" in the documentation's autograd mechanics.
"""
from __future__ import annotations

import contextlib
import functools
import weakref

from autograd_gpu import devices as _device
from autograd_gpu.base import INFERENCE, LINKS, LeafView, Tensor, View, version, wrap
from autograd_gpu.engine.forward_mode import replayed
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import Node, edge_of, new_node, rare_of
from autograd_gpu.engine.saved import freed, writes_since
from autograd_gpu.ops.namespace import OPS


def replay(array, steps):
    """The view that the steps lead to from an array laid out as their base was."""
    for op, arguments, *pick in steps:
        array = op.on_arrays(_device.xp(array))(array, *arguments)
        if pick:
            array = array[pick[0]]
    return array


def like_base(array, shape, strides, dtype):
    """Uninitialised memory with the base's order of dimensions, without its gaps or overlaps."""
    order = sorted(range(len(shape)), key=lambda d: (-abs(strides[d]), d))
    made = _device.xp(array).empty([shape[d] for d in order], dtype)
    return made.transpose([order.index(d) for d in range(len(shape))])


class _OfBase(Node):
    """A node that knows a base's layout and the steps to one of its views."""

    __slots__ = ("steps", "shape", "strides", "dtype")

    def _set(self, base, steps):
        self.steps = steps
        self.shape, self.strides, self.dtype = base._array.shape, base._array.strides, base._array.dtype

    def base_gradient(self, g):
        """A copy of the base's gradient, laid out as the base."""
        made = like_base(g, self.shape, self.strides, self.dtype)
        made[...] = g
        return made


def overlaps(array, steps) -> bool:
    """Whether elements of the view may share memory with each other: after expand or unfold."""
    return _device.repeats(array) or any([step[0].name in ("unfold", "as_strided") for step in steps])


class AsStrided(_OfBase):
    """The history of a view whose base was written to since the view was made."""

    __slots__ = ("n0", "i0")
    _arity = 1
    _title = "AsStridedBackward0"

    def _apply(self, grad, keep):
        if grad is None:
            return None
        made = like_base(grad, self.shape, self.strides, self.dtype)
        made[...] = 0
        if not grad.size:
            return made
        part = replay(made, self.steps)
        if overlaps(part, self.steps):
            return self._added_up(made, wrap(grad))._array
        part[...] = grad
        return made

    def _apply_tensors(self, grad, keep):
        if grad is None:
            return None
        zeros = like_base(grad._array, self.shape, self.strides, self.dtype)
        zeros[...] = 0
        if not grad._array.size:             # a constant, as in PyTorch
            return wrap(zeros)
        if overlaps(replay(zeros, self.steps), self.steps):
            return self._added_up(zeros, grad)
        base = wrap(zeros)
        replayed(base, self.steps).copy_(grad)
        return base

    def _added_up(self, zeros, grad):
        """The gradient of a view whose elements share memory as that of the base, a Tensor: gradients of one place are added up.

        The places are what the steps make of a base of numbers; a complex number has two, its parts, as the view may be of one of them.
        """
        xp, pairs = _device.xp(zeros), self.dtype.kind == "c"
        numbers = like_base(zeros, self.shape, self.strides, xp.complex128 if pairs else xp.float64)
        count = xp.arange(zeros.size * (1 + pairs), dtype=xp.float64)
        numbers[...] = (count.view(xp.complex128) if pairs else count).reshape(self.shape)
        places = replay(numbers, self.steps).reshape(-1)
        paired = places.dtype.kind == "c"
        if paired:
            places = places.real / 2
        memory = wrap(xp.zeros(count.size // (1 + paired), grad._array.dtype))
        made = OPS.index_put(memory, (wrap(places.astype(xp.int64)),), OPS.reshape(grad, (-1,)), True)
        if pairs and not paired:
            made = OPS.view_as_complex(OPS.reshape(made, (-1, 2)))
        elif paired and not pairs:
            made = OPS.view_as_real(made)
        return OPS.reshape(made, self.shape)


class Severed(Node):
    """The history of a view whose base has none any more."""

    __slots__ = ()
    _arity = 3
    _edge_list = ((None, 0),)
    _title = "AsStridedBackward0"

    def _apply(self, grad, keep):
        return (None,)

    _apply_tensors = _apply


class CopySlices(_OfBase):
    """The history of a base after `inner`, an in-place operation on one of its views, which was its input number `at`."""

    __slots__ = ("_edge_list", "inner", "at", "of_view")
    _arity = 3
    _title = "torch::autograd::CopySlices"

    def _apply(self, grad, keep):
        if grad is None:
            return self._nothing(keep)
        if self.inner is None:
            raise freed(self)
        result = self.base_gradient(grad)
        part = replay(result, self.steps)
        inner = self.inner._apply(part.copy(), keep)
        of_view, rest = self._split(inner)
        part[...] = 0 if of_view is None else of_view
        if not keep:
            self.inner = None
        return (self._of_base(result), *rest)

    def _apply_tensors(self, grad, keep):
        if grad is None:
            return self._nothing(keep)
        if self.inner is None:
            raise freed(self)
        result = wrap(like_base(grad._array, self.shape, self.strides, self.dtype))
        result.copy_(grad)
        with self._result_as_view():
            inner = self.inner._apply_tensors(replayed(result, self.steps).clone(), keep)
        of_view, rest = self._split(inner)
        part = replayed(result, self.steps)
        if of_view is None:
            part.zero_()
        else:
            part.copy_(of_view)
        if not keep:
            self.inner = None
        return (self._of_base(result), *rest)

    def _of_base(self, gradient):
        """A gradient for what the base was made of; None where it goes nowhere."""
        return None if self._edge_list[0][0] is None else gradient

    def _split(self, gradients):
        """inner's gradients: the view's, and the others."""
        if not isinstance(gradients, tuple):
            return gradients, ()
        return gradients[self.at], gradients[:self.at] + gradients[self.at + 1:]

    def _nothing(self, keep):
        if not keep:
            self._release()
        return (None,) * len(self._edge_list)

    @contextlib.contextmanager
    def _result_as_view(self):
        """If inner saved its result, that is the view: its history is the view's, not inner's, which never runs by itself."""
        view = self.of_view()
        if view is None:                     # the view is gone
            view = new_node(AsStrided, self._device)
            view.steps, view.shape, view.strides, view.dtype = self.steps, self.shape, self.strides, self.dtype
            view.n0, view.i0 = self, 0
        of = local.state.result_of
        inner, outer = self.inner, of.get(self.inner)
        of[inner] = view
        try:
            yield
        finally:
            if outer is None:
                del of[inner]
            else:
                of[inner] = outer

    def _values(self):
        return () if self.inner is None else self.inner._values()

    def _release(self):
        if self.inner is not None:
            self.inner._release()
            self.inner = None


class Overwritten(Node):
    """The history of a tensor whose values an operation without a derivative replaced: zero flows back to what it was made of."""

    __slots__ = ("_edge_list", "metas", "label")
    _arity = 3

    def name(self):
        return self.label

    def _apply(self, grad, keep):
        if grad is None:
            return (None,) * len(self._edge_list)
        return tuple([_device.xp(grad).zeros(*meta) for meta in self.metas])

    def _apply_tensors(self, grad, keep):
        return tuple([None if g is None else wrap(g) for g in self._apply(None if grad is None else grad._array, keep)])


def overwritten(operands, label) -> Node:
    """The node of an in-place operation without a derivative, on the first of its operands."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    edges = tuple([edge_of(t) for t in tensors])
    node = new_node(Overwritten, tensors[0].device)
    node._edge_list = edges
    node.metas = [(t._array.shape, t._array.dtype) for t in tensors]
    node.label = label
    return node


def refresh(t: Tensor, asked=False) -> None:
    """Bring a view's history up to date after writes through its base or another view. `asked`: also while nothing is recorded.

    Raises: RuntimeError where the view has lost its history.
    """
    view = t._view
    counter = version(t)
    count = counter.count
    if view.seen == count:
        return
    if t._node is None and type(view) is not LeafView:           # requires_grad_() may have changed its base's
        t._requires = view.base._requires
    if not writes_since(counter, view.seen):
        view.seen = count
        return
    base = view.base
    if not base._requires and t._node is None:
        return
    reason = unwritable(view)
    if reason:
        if not asked and not local.state.records():
            return                           # its values are read, not its history
        raise RuntimeError(f"a view has lost its history, as its base or another view of its base has been modified inplace since: "
                           f"{reason}. Write to a clone(), or take the view again")
    if base._requires:
        edge = edge_of(base)
        node = new_node(AsStrided, base.device)
        node._set(base, view.steps)
        node.n0, node.i0 = edge
    else:                                    # its base was detached: what was written since has no history
        node = new_node(Severed, base.device)
    _move_retained(t, node, 0)
    t._node, t._nr, t._requires = node, 0, True
    view.seen = count


class NoGradStep(tuple):
    """The step that made a view while nothing was recorded."""

    __slots__ = ()
    reason = "it was created in no_grad mode, so that its history is not known"


class InferenceStep(tuple):
    """The step that made a view of a tensor, which is no inference tensor, in inference mode."""

    __slots__ = ()
    reason = "it was created in inference mode and is used in normal mode, where its history is not known"


def unrecorded(step):
    """The step of a view made while nothing is recorded."""
    return (InferenceStep if local.state.inference else NoGradStep)(step)


class FunctionStep(tuple):
    """The step that made a view which a custom Function returned."""

    __slots__ = ()
    reason = ("it was created inside a custom Function (one that returns multiple views, or its input as it is), and the write would "
              "bypass the Function's backward")


OTHERS = "it came with others from a function that returns multiple views, whose gradients could no longer be told apart"


def unwritable(view: View) -> str | None:
    """Why no history can be made for a view after a write to its memory; None where it can."""
    for step in reversed(view.steps):
        if type(step) is not tuple:
            return step.reason
        if len(step) == 3:
            return OTHERS
    return None


def set_history(t: Tensor, node, nr, at=0) -> None:
    """Make a node the history of a tensor, its input number `at`, that it wrote to, and so of its base and the base's other views."""
    if t._view is None:
        _move_retained(t, node, nr)
        t._node, t._nr, t._requires = node, nr, True
        return
    base = t._view.base
    edges = node._edges()
    edges = (edge_of(base), *edges[:at], *edges[at + 1:])
    copy = new_node(CopySlices, base.device)
    copy._set(base, t._view.steps)
    copy.inner, copy.at, copy._edge_list = node, at, edges
    _move_retained(base, copy, 0)
    base._node, base._nr, base._requires = copy, 0, True
    t._view.seen = -1
    refresh(t)
    copy.of_view = weakref.ref(t._node)      # not held: it leads to `copy`


@functools.cache
def _renamed(cls, title):
    return type(title, (cls,), {"__slots__": (), "_title": title, "name": Node.name, "__module__": cls.__module__})


def rename(node, title) -> None:
    """Give the node of an in-place operation the name that PyTorch has for it, where that is not the operation's own."""
    if node is not None and title is not None:
        node.__class__ = _renamed(type(node), title)


def _move_retained(t, node, nr):
    old = t._node
    if old is None and t._leaf is not None:  # a leaf that has got a history is none to the graph that it was in
        leaf, t._leaf = t._leaf(), None
        if leaf is not None:
            rare_of(leaf)
    if old is not None and old._rare is not None and t._nr in old._rare.retain:
        reference = old._rare.retain[t._nr]
        if reference() is t:
            del old._rare.retain[t._nr]
            rare_of(node).retain[nr] = reference


def view_outputs(t, outs, op, arguments):
    """Make an op's several results views of t."""
    counter = version(t)
    if counter is INFERENCE:
        for out in outs:
            inference_view(out)
        return
    parent = t._view
    for i, out in enumerate(outs):
        out._counter = counter
        out._view = view = View()
        view.step = (op, arguments, i) if local.state.records() else unrecorded((op, arguments, i))
        if parent is None:
            view.base, view.before, view.links = t, (), 0
        else:
            view.base, view.links = parent.base, parent.links + 1
            view.before = parent if view.links % LINKS else parent.steps
        view.seen = counter.count
        out._requires = view.base._requires


def inference_view(out: Tensor) -> Tensor:
    """A view of an inference tensor: an inference tensor too, without a base and without a gradient."""
    out._counter = INFERENCE
    out._view = out._node = None
    out._nr, out._requires = 0, False
    return out
