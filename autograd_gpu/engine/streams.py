"""The CUDA streams of one backward, and what orders them.

A node runs on the stream that it was recorded on. To its caller a backward is one operation of the streams that are current then:
what it runs on others begins after what those have by then, and they go on after it. A gradient that is made on one stream and used on
another goes with an event, for which the other waits before it first reads it; its memory is held until that one has passed.
"""
from __future__ import annotations

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.cuda.streams import Surroundings, captures, keep
from autograd_gpu.engine.anomaly_mode import warn
from autograd_gpu.engine.forward_mode import tangents
from autograd_gpu.engine.grad_mode import everywhere
from autograd_gpu.engine.node import LEAF, Node
from autograd_gpu.engine.task import ABSENT, UNWANTED

_MISMATCH = (
    "The AccumulateGrad node's stream does not match the stream of the node that produced the incoming gradient, which it waits for. The "
    "leaf was first used on another stream, by a graph that is still kept, as a loss keeps it: drop that, or use the leaf on one stream. "
    "If the mismatch is intended, torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False) says so")
_STALE = (
    "A node of this backward, which is captured into a CUDA graph, keeps the default stream of its device, as a leaf does whose first use "
    "was there and whose graph is still kept: a loss of the warm-up is enough. The default stream cannot be captured. Drop that graph (del "
    "loss), or run the warm-up on a side stream, or call torch.autograd.graph.set_override_stale_capture_stream(True), which has such "
    "nodes work on the stream that is captured")
_warns, _overrides = True, False


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Whether a backward warns where a leaf's gradient comes from another stream of its device than the one it is accumulated on.

    Reference: torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch.
    """
    global _warns
    _warns = _checked(enabled)


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Whether nodes of streams that are not captured work on the one that is, in a backward that a CUDA graph is captured of.

    Without it, where such a stream is a default one, the backward raises RuntimeError.
    Reference: torch.autograd.graph.set_override_stale_capture_stream.
    """
    global _overrides
    _overrides = _checked(enabled)


def _checked(enabled):
    if not isinstance(enabled, bool):
        raise RuntimeError(f"enabled must be a bool, but got {type(enabled).__name__}")
    return enabled


def streams_of(task):
    """The streams that the nodes of a task run on, a list in which one may stand twice."""
    found = {id(n._rare.stream): n._rare.stream for n in task.dependencies if n._rare is not None}
    for n in task.buffers:
        if n._kind == LEAF:
            found[id(n._stream)] = n._stream
    return [s for s in found.values() if s is not None]


class Crossings:
    """What orders the streams of a task. `several`: whether it runs on any other than its caller's current ones.

    `instead`: streams in whose place it works on others, the current ones: see set_override_stale_capture_stream.
    """

    __slots__ = ("caller", "several", "instead", "_others", "_awaited")

    def __init__(self, streams):
        self.caller = Surroundings()
        self._others = set(streams) - set(self.caller.streams)
        self.instead = self._stale() if captures else {}
        self._others -= set(self.instead)
        self.several = bool(self._others)
        self._awaited = {}                   # node: [(its stream, event of a gradient that it will read)]

    def _stale(self):
        """{stream that is not captured: the current one, which is}."""
        found = {}
        for stream in self._others:
            now = self.caller.streams[stream.device.index]
            if now.is_capturing() and not stream.is_capturing():
                if _overrides:
                    found[stream] = now
                elif not stream.cuda_stream:
                    raise RuntimeError(_STALE)
        return found

    def begin(self):
        """Have the others begin after what the caller's streams have by now."""
        for stream in self._others:
            stream.wait_stream(self.caller.streams[stream.device.index])

    def end(self, task):
        """Have the caller's streams go on after the others, and what it is given held for them."""
        for stream in self._others:
            self.caller.streams[stream.device.index].wait_stream(stream)
        self._give(task)

    def _give(self, task):
        given = [(node, g) for (node, _), g in (task.captures or {}).items()]
        for node in task.dependencies:
            if node._kind == LEAF:
                given.append((node, node.variable._grad))
            if node._rare is not None:
                given += [(node, t._grad) for reference in node._rare.retain.values() if (t := reference()) is not None]
        for node, g in given:
            array = getattr(g, "_array", g)
            if node._stream in self._others and array is not None and type(array) is not np.ndarray:
                _keep(g, self.caller.streams[array.device.id])

    def _on(self, node: Node | None, index):
        """Where a node has what it makes or takes on a device: on its own stream, or what is current where it runs."""
        stream = None if node is None else node._stream
        stream = self.instead.get(stream, stream) if self.instead else stream
        return stream if stream is not None and stream.device.index == index else self.caller.streams[index]

    def send(self, task, source, n, nr, g, grad, deliver):
        """Deliver a gradient that a node has made, or the caller (None: then `begin` has ordered it), where the next one uses it.

        See deliver.
        """
        there = task.buffers.get(n)
        if there is UNWANTED:
            return
        array, used = getattr(g, "_array", g), self.instead.get(n._stream, n._stream)
        if array is not None and type(array) is not np.ndarray:
            made, used = self._on(source, array.device.id), self._on(n, array.device.id)
            if made is not used and made != used and source is not None:
                if _warns and n._kind == LEAF and made is source._stream:
                    warn(_MISMATCH)
                self._awaited.setdefault(n, []).append((used, made.mark()))
                _keep(g, used)
        there = there[nr] if type(there) is list else there
        last = n._kind == LEAF and task.dependencies[n] == 1
        if used is None or not last and (there is None or there is ABSENT):
            deliver(task, n, nr, g, grad)
        else:                                # it is added to what is there, or the leaf takes it
            self.await_gradients(n)
            with used:
                deliver(task, n, nr, g, grad)

    def await_gradients(self, node):
        """A node's stream waits for the gradients that it is about to read."""
        for stream, event in self._awaited.pop(node, ()):
            stream.wait_for(event)


def _keep(g, stream):
    """Hold the memory of a gradient, an array or a Tensor, and of its tangents for a stream that uses them."""
    keep(getattr(g, "_array", g), stream)
    if everywhere.levels and isinstance(g, Tensor):
        for t in tangents(g):
            keep(t._array, stream)
