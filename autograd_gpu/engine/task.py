"""One backward: what it keeps, what it is to find, which of its nodes are ready."""
from __future__ import annotations

import operator
from heapq import heappop, heappush

from autograd_gpu import devices as _device
from autograd_gpu.engine.grad_mode import everywhere

_by_seq = operator.attrgetter("_seq")


class ReadyQueue:
    """Nodes of one device whose gradients have all arrived; the newest comes first."""

    __slots__ = ("device", "seqs", "_nodes")

    def __init__(self, device):
        self.device = device
        self.seqs = []                       # negated sequence numbers: a heap gives the smallest
        self._nodes = {}

    def push(self, node):
        heappush(self.seqs, -node._seq)
        self._nodes[node._seq] = node

    def pop(self):
        return self._nodes.pop(-heappop(self.seqs))


class GraphTask:
    """One backward: what it keeps, where its gradients go and what has not arrived yet.

    `captures`, for autograd.grad: {(node, output number): None, then the gradient}; no .grad changes. `only`, for
    backward(inputs=...): the nodes whose gradients are wanted. With neither, all leaves get theirs.
    """

    __slots__ = ("keep_graph", "create_graph", "captures", "captured", "ends", "only", "needed", "dependencies", "buffers", "owned",
                 "queues", "roots", "guard", "__weakref__")

    def __init__(self, keep_graph, create_graph, captures=None, only=None):
        self.keep_graph, self.create_graph, self.captures, self.only = keep_graph, create_graph, captures, only
        self.captured = () if captures is None else {node for node, _ in captures}
        # where gradients of tensors that are no leaves are captured; a sole root
        self.ends = {n for n in self.captured if n._arity} if captures else set()
        self.needed = None                   # the nodes that have to run; None: all
        self.buffers = {}                    # node: what has arrived for it
        self.owned = set()                   # nodes whose buffer is an array that `+` made here, free to be added to
        self.queues = {}                     # device: ReadyQueue
        self.guard = None                    # keeps the queue's device current

    def queue(self, device):
        """The ready queue of a device."""
        found = self.queues.get(device)
        if found is None:
            found = self.queues[device] = ReadyQueue(device)
        return found

    def work_on(self, device):
        """Make a device current in this thread, until the next call; None ends it."""
        if self.guard is not None:
            self.guard.__exit__(None, None, None)
            self.guard = None
        if device is not None and device is not _device.CPU:
            self.guard = _device.guard(device)
            self.guard.__enter__()


def count_dependencies(roots):
    """{node: how many gradients will arrive at it} over all that is reachable from the roots, which count one each."""
    counts = {}
    stack = []
    for node in roots:
        if node in counts:
            counts[node] += 1
        else:
            counts[node] = 1
            stack.append(node)
    while stack:
        node = stack.pop()
        while node is not None:                                  # along the first edge; the others wait on the stack
            arity = node._arity
            if arity == 1:
                n = node.n0
            elif arity == 2:
                n, other = node.n0, node.n1
                if n is None:
                    n = other
                elif other is not None:
                    if other in counts:
                        counts[other] += 1
                    else:
                        counts[other] = 1
                        stack.append(other)
            else:
                n = None
                if arity:
                    for other, _ in node._edge_list:
                        if other is None:
                            continue
                        if other in counts:
                            counts[other] += 1
                        else:
                            counts[other] = 1
                            stack.append(other)
            if n in counts:
                counts[n] += 1
                break
            if n is None:
                break
            counts[n] = 1
            node = n
    return counts


def find_needed(task):
    """The nodes that have to run for the gradients that a task wants, those at which it ends not included. None: all of them."""
    needed = set(task.only or ())
    wanted = needed | set(task.captured)
    if not needed and not everywhere.nowhere:
        for node in task.dependencies:
            if (not node._arity) is not (node in wanted):
                break
        else:                                # the leaves, all of them, are what is wanted
            return None
    for node in sorted(task.dependencies, key=_by_seq):          # a node's inputs are older than the node
        arity = node._arity
        if arity == 1:
            found = node.n0 in wanted
        elif arity == 2:
            found = node.n0 in wanted or node.n1 in wanted
        else:
            found = any([n in wanted for n, _ in node._edges()])
        if found:
            needed.add(node)
            wanted.add(node)
    return needed
