"""Forward mode: dual levels, and which tensor has which tangent at them.

A tangent is kept by its level, which knows weakly what it belongs to and drops it at its end; so tensors have no slot for it. While a
level is entered, `mode` is RARE in every thread and `everywhere.unusual` is true: at these two places an operation looks for what is rare,
and ops/forward.py is called. The tangents of a level are computed with only the levels outside of it in sight, so that they have tangents
of those in turn.
Reference: torch.autograd.forward_ad.
"""
from __future__ import annotations

import contextlib
import sys
import weakref
from threading import get_ident
from typing import Any, NamedTuple

from autograd_gpu import devices as _device
from autograd_gpu.base import LINKS, Tensor, View, wrap
from autograd_gpu.engine.grad_mode import everywhere, local, set_levels

ALL = sys.maxsize                            # what a thread sees of the levels, by default
ABSENT = object()                            # what a level has of something that it knows nothing about


class Link(NamedTuple):
    """In place of a view's tangent, until somebody asks for it: of what it is a view, and by which steps, (whether recorded, step).

    None for whether recorded stands for what is so when it is asked for.
    """

    source: Tensor
    steps: tuple


class Level:
    """The tangents of one level: of a Tensor, of a packed value, or {output number: tangent} of a node for the results that it saved.

    None is noted for what shares no tangent with what it is a view of, and has none. Numbers grow inwards, with gaps where other threads
    have left theirs. `thread`: the one whose level it is, a transform's of functions, or None for dual_level's, which is all threads'.
    """

    __slots__ = ("number", "thread", "_found")

    def __init__(self, number, thread):
        self.number, self.thread = number, thread
        self._found = {}

    def own(self, owner):
        """What was noted for an object itself; ABSENT for nothing."""
        entry = self._found.get(id(owner))
        return ABSENT if entry is None else entry[1]

    def put(self, owner, tangent):
        """Note the tangent of an object, for as long as there are both it and the level."""
        key, found = id(owner), self._found
        found[key] = weakref.ref(owner, lambda _: found.pop(key, None)), tangent

    def get(self, t: Tensor) -> Tensor | None:
        """The tangent of a Tensor, if it has one. That of a view is the same view of the tangent of what it is a view of."""
        found = self.own(t)
        if type(found) is Link:
            source, steps = self.get(found.source), found.steps
        elif found is not ABSENT or t._view is None:
            return None if found is ABSENT else found
        elif not self._found:
            return None
        else:                                # its base may have got one since
            source, steps = origin(t)
            source, steps = self.own(source), [(True, step) for step in steps]
        if source is ABSENT or source is None:
            return None
        for recorded, step in steps:
            with self.outside(recorded):
                source = replayed(source, (step,))
        self.put(t, source)
        return source

    def root(self, t: Tensor) -> Tensor:
        """What a tensor is a view of, as far as tangents are shared; itself if there is nothing."""
        while type(found := self.own(t)) is Link:
            t = found.source
        return t if found is not ABSENT or t._view is None else origin(t)[0]

    def settle(self, t: Tensor) -> None:
        """Make the tangents of all views of a tensor."""
        for owner, found in list(self._found.values()):
            if type(found) is Link and found.source is t and (view := owner()) is not None:
                self.get(view)

    @contextlib.contextmanager
    def outside(self, recorded=None):
        """A block in which only the levels outside of this one are in sight: operations carry no tangents of this one.

        recorded: whether they are recorded, where it is not as before.
        """
        state = local.state
        outer = state.sees, state.enabled
        state.sees = self.number
        if recorded is not None and recorded is not state.enabled:
            state.enabled = recorded
            state.refresh()
        try:
            yield
        finally:
            state.sees = outer[0]
            if state.enabled is not outer[1]:
                state.enabled = outer[1]
                state.refresh()


def apart(make, t: Tensor) -> Tensor:
    """A view of a tensor, by the op `make`, that shares no tangent with it, in no level: its step tells which Tensor it made."""
    own: list[weakref.ref[Tensor]] = []
    view = make(t, own)
    own.append(weakref.ref(view))
    return view


def origin(t: Tensor):
    """(what a view shares tangents with, where its level has noted nothing of it; the steps from there to it)."""
    steps: list[Any] = []
    view = t._view
    while isinstance(view, View):
        step = view.step
        if step[0].name in ("dual_view", "primal_view"):
            made = step[1][0][0]()
            if made is not None and made._view is view:          # else the step is that of a gradient, or nobody has the view any more
                return made, steps
        steps.insert(0, step)
        view = view.before
    return t._view.base, [*view, *steps]


def link(op, outs, arguments) -> None:
    """Note that views share the tangent of what they are views of, where that is not their base's.

    Steps are put together, as a chain of Links would be followed, and freed, by recursion.
    """
    source, *plain = arguments
    recorded = None if local.state.inference else local.state.records()      # of a view taken in inference mode: as when it is asked for
    for level in everywhere.levels:
        found = level.own(source)
        if found is ABSENT:
            continue
        if type(found) is not Link or len(found.steps) >= LINKS:
            level.get(source)                # if there is a tangent, no Link is left
            found = Link(source, ())
        for i, out in enumerate(outs):
            step = (op, plain, i) if op.outputs == "list" else (op, plain)
            level.put(out, Link(found.source, (*found.steps, (recorded, step))))


def replayed(t: Tensor, steps) -> Tensor:
    """The view that the steps lead to, recorded as any operations are."""
    for op, arguments, *pick in steps:
        t = op.function(t, *arguments)
        if pick:
            t = t[pick[0]]
    return t


def enter(thread=None) -> Level:
    """Enter a level inside those there are, of a thread or of all."""
    level = Level(0, thread)

    def inside(levels):
        if levels:
            level.number = levels[-1].number + 1
        return (*levels, level)
    set_levels(inside)
    return level


def leave(level) -> None:
    """Leave a level: what has tangents of it has none from now on."""
    set_levels(lambda levels: tuple([other for other in levels if other is not level]))


@contextlib.contextmanager
def own_level():
    """A block in a level of this thread; gives its number, as another thread may enter one for all meanwhile."""
    level = enter(get_ident())
    try:
        yield level.number
    finally:
        leave(level)


def mine() -> list[Level]:
    """The levels that this thread has entered, and the one that dual_level has; the outermost first."""
    return [level for level in everywhere.levels if level.thread in (None, get_ident())]


def seen():
    """The levels at which this thread's operations carry tangents, the outermost first."""
    state = local.state
    return () if state.inference else [level for level in everywhere.levels if level.number < state.sees]


def unseen():
    """A block in which no level is in sight."""
    levels = everywhere.levels
    return levels[0].outside() if levels else contextlib.nullcontext()


def tangents(t: Tensor):
    """The tangents of a Tensor that this thread sees, of the outermost level first."""
    return [tangent for level in seen() if (tangent := level.get(t)) is not None]


def check_tangent(level: Level, t: Tensor, tangent: Tensor) -> None:
    """Raises RuntimeError where a tensor cannot have this tangent at a level."""
    if level.get(tangent) is not None:
        raise RuntimeError(f"Setting a forward grad that itself has a forward gradient at the same level {level.number} is not supported.")
    if tangent._array.shape != t._array.shape:
        raise RuntimeError(f"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                           f"supported. Tensor is of size {list(t.shape)} while the given forward gradient is of size "
                           f"{list(tangent.shape)}.")


def laid_out(tangent: Tensor, t: Tensor) -> Tensor:
    """A tangent whose elements lie as those of t do: itself or a copy."""
    own, like = tangent._array, t._array
    if all([n <= 1 or s // own.itemsize == z // like.itemsize for n, s, z in zip(own.shape, own.strides, like.strides, strict=True)]):
        return tangent
    return zeros_like(t, own.dtype).copy_(tangent)


def zeros_like(t: Tensor, dtype) -> Tensor:
    """Zeros laid out as t is, gaps included, as as_strided reaches into them; without overlaps and negative steps."""
    array = t._array
    xp = _device.xp(array)
    made = xp.zeros_like(array, dtype)
    steps = [s // array.itemsize for s in array.strides]
    if array.size and made.strides != tuple([s * made.itemsize for s in steps]) and _device.apart(array.shape, steps):
        memory = xp.zeros(1 + sum([(n - 1) * s for n, s in zip(array.shape, steps, strict=True)]), made.dtype)
        made = xp.lib.stride_tricks.as_strided(memory, array.shape, [s * made.itemsize for s in steps])
    return wrap(made)


def forget(t: Tensor) -> None:
    """Take a tensor's tangents from it. The views of it that there are keep theirs."""
    for level in everywhere.levels:
        if level.own(t) is not ABSENT:
            level.settle(t)
            level.put(t, None)


def carry(source: Tensor, target: Any) -> Any:
    """Give target, which has the value of source, its tangents, too: the same Tensors. Returns target."""
    for level in seen():
        tangent = level.get(source)
        if tangent is not None:
            level.put(target, tangent)
    return target


def carry_copy(source: Tensor, target: Tensor) -> None:
    """Give target, which has the value of source in memory of its own, its tangents in memory of their own."""
    for level in seen():
        tangent = level.get(source)
        if tangent is not None:
            with level.outside():
                level.put(target, tangent.clone())


def carry_from_result(node, nr, target) -> None:
    """Give target, which has the value of a node's result, the tangents that the result had when it was computed."""
    for level in seen():
        noted = level.own(node)
        if noted is not ABSENT and nr in noted:
            level.put(target, noted[nr])


def carry_from_packed(packed, target) -> None:
    """Give target, which was unpacked, the tangents of what was packed."""
    for level in seen():
        tangent = level.own(packed)
        if tangent is not ABSENT:
            level.put(target, tangent)
