"""Saved values that lie in page-locked host memory are on their device again before the nodes that saved them run."""
from __future__ import annotations

import threading
from contextlib import nullcontext

from autograd_gpu.base import Version
from autograd_gpu.cuda.offload import Part, Pinned
from autograd_gpu.engine.saved import Packed


class _Line:
    """The values that the nodes of a backward saved on one device: by node, in the order in which they will run."""

    __slots__ = ("places", "reach", "coming")

    def __init__(self):
        self.places = []                     # (the node's stream, its values)
        self.reach = 0                       # the largest prefetch of any
        self.coming = {}                     # value: (Coming, counter of its memory)


def _offloaded(node):
    """The values of a node that are in page-locked memory."""
    parts = [v.content for v in node._values() if type(v) is Packed and type(v.content) is Part]
    return dict.fromkeys([p.whole for p in parts if type(p.whole) is Pinned])


class Ahead:
    """Fetches what the nodes of a backward saved: before its turn, so that a copy is under way while other nodes run."""

    def __init__(self, nodes):
        self._lock = threading.RLock()       # guards the lines: a value's device may be another than its node's
        self._lines = {}
        self._at = {}                        # node: its line and its place there, for each device on which it saved something
        for node in nodes:
            for value in _offloaded(node):
                line = self._lines.setdefault(value.device, _Line())
                places = self._at.setdefault(node, {})
                if line not in places:
                    places[line] = len(line.places)
                    line.places.append((node._stream, []))
                line.places[-1][1].append(value)
                line.reach = max(line.reach, value.prefetch)

    def in_order(self, nodes):
        """The nodes, with what they saved on its way."""
        try:
            for node in nodes:
                if node in self._at:
                    self.before(node)
                    yield node
                    self.after(node)
                else:
                    yield node
        finally:
            self.end()

    def before(self, node):
        """A node is about to run: fetch what it saved, and what those saved that come next, as far as that was asked for.

        What the device has no memory for is left for later: `elements` fetches it when it is wanted.
        """
        with self._lock:
            for line, at in self._at.get(node, {}).items():
                wanted = self._keep(line, at)
                held = sum([value.nbytes for value in line.coming])
                for value, (distance, stream) in wanted.items():
                    if value in line.coming:
                        continue
                    if distance and held + value.nbytes > value.ahead:
                        break
                    try:
                        with stream if stream is not None and stream.device is value.device else nullcontext():
                            line.coming[value] = value.coming(), Version()
                    except MemoryError:
                        break
                    held += value.nbytes

    def after(self, node):
        """A node has run: drop what none of the next ones wants soon."""
        with self._lock:
            for line, at in self._at.get(node, {}).items():
                self._keep(line, at + 1)

    def end(self):
        """Drop everything."""
        with self._lock:
            self._lines.clear()
            self._at.clear()

    def elements(self, value):
        """(elements, counter) of a value in page-locked memory, for the current stream."""
        with self._lock:
            line = self._lines.get(value.device)
            coming, counter = line and line.coming.get(value) or (None, None)
            elements = None if coming is None or counter.count else coming.received()        # counted: somebody wrote to what he was given
        return (value.fetch(), Version()) if elements is None else (elements, counter)

    def _keep(self, line, at):
        """{value: (how many nodes away the first is that wants it, that node's stream)} from a place on; drops what is not wanted soon."""
        wanted = {}
        for distance, (stream, values) in enumerate(line.places[at:at + line.reach + 1]):
            for value in values:
                if distance <= value.prefetch:
                    wanted.setdefault(value, (distance, stream))
        for value in [v for v in line.coming if v not in wanted]:
            del line.coming[value]
        return wanted
