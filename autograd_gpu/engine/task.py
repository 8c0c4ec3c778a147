"""One backward: what it keeps, what it is to find, which of its nodes run and in what order."""
from __future__ import annotations

import operator

from autograd_gpu.cuda.offload import kept
from autograd_gpu.engine.ahead import Ahead
from autograd_gpu.engine.grad_mode import carries_tangents, everywhere
from autograd_gpu.engine.node import LEAF, MANY, TWO, output_count

_by_seq = operator.attrgetter("_seq")


ABSENT = object()                            # in the buffer of a leaf: nothing has arrived yet
UNWANTED = object()                          # in that of a node that is not to run


class GraphTask:
    """One backward: what it keeps, where its gradients go and what has not arrived yet.

    `captures`, for autograd.grad: {(node, output number): None, then the gradient}; no .grad changes. `only`, for
    backward(inputs=...): the nodes whose gradients are wanted. With neither, all leaves get theirs.
    """

    __slots__ = ("keep_graph", "create_graph", "tensors", "captures", "captured", "ends", "only", "needed", "partly", "dependencies",
                 "nodes", "buffers", "owned", "taken", "arrived", "roots", "streams", "current", "ahead", "__weakref__")

    def __init__(self, keep_graph, create_graph, captures=None, only=None):
        self.keep_graph, self.create_graph, self.captures, self.only = keep_graph, create_graph, captures, only
        self.tensors = create_graph or everywhere.levels and carries_tangents()        # whether its gradients are Tensors, not arrays
        self.captured = ()                   # the nodes in `captures`, where they are not just all leaves
        self.ends = ()                       # where gradients of tensors that are no leaves are captured; a sole root
        self.needed = None                   # the nodes that have to run; None: all
        self.partly = ()                     # those among them that lead elsewhere, too
        self.buffers = {}                    # node: what has arrived for it; a list where it has several outputs
        self.owned = set()                   # nodes whose buffer is an array that `+` made here, free to be added to
        self.taken = None if captures is None else set()       # the addresses of the arrays in `captures`
        self.arrived = None                  # where it is for others to do what is due at leaves: the list of those that are ready for it
        self.streams = None                  # what orders its CUDA streams, if it has any (engine/streams.py)
        self.current = None                  # the stream that work_on has made current
        self.ahead = None                    # fetches saved values from host memory, where there are any

    def prepare(self, roots):
        """Look at the graph: count what will arrive, find what has to run, give leaves and what is not to run their buffers."""
        self.roots = roots
        self.dependencies, self.nodes = explore(roots, self.buffers)
        if (self.captures is not None or self.only is not None) and not self._wants_all():
            self._choose()
        if kept:
            self.ahead = Ahead(self.nodes)

    def _wants_all(self):
        """Whether all leaves, and nothing else, are wanted."""
        if self.only or len(self.captures) != len(self.buffers) or everywhere.nowhere:
            return False
        for node, _ in self.captures:
            if node._arity or node not in self.buffers:
                return False
        return True

    def _choose(self):
        """Find what has to run where not all gradients are wanted."""
        self.captured = {node for node, _ in self.captures or ()}
        self.ends = {n for n in self.captured if n._arity}
        needed = self.needed = find_needed(self)
        if len(self.roots) == 1 and self.roots[0][0] not in needed:
            self.ends.add(self.roots[0][0])                      # its hooks run, as the gradient is there
        for node in self.dependencies:
            if not (node in needed or node in self.captured or node in self.ends):
                self.buffers[node] = UNWANTED
        self.nodes = [n for n in self.nodes if self.buffers.get(n) is not UNWANTED]

    def wants(self, node):
        """Of each edge of a node, whether its gradient is wanted."""
        return tuple([n is not None and (self.needed is None or n in self.needed or n in self.captured) for n, _ in node._edges()])

    def in_order(self):
        """The nodes that run, the newest first, with what they saved in host memory on its way."""
        return self.nodes if self.ahead is None else self.ahead.in_order(self.nodes)

    def work_on(self, stream):
        """Make a CUDA stream current in this thread, until the next call; None ends it."""
        if self.current is not None:
            self.current.__exit__(None, None, None)
        self.current = stream
        if stream is not None:
            stream.__enter__()


def explore(roots, buffers):
    """({node: how many gradients will arrive at it}, nodes) over all that is reachable from the roots, (node, ...), which count one each.

    The nodes are those that are no leaves, the newest first: every edge leads to an older node, so that all that a node waits for comes
    before it. It is the order that a ready queue gives. Leaves and nodes with several outputs get their places in `buffers`.
    """
    counts = {None: 0}                       # where an edge leads nowhere
    nodes, leaves = [], 0
    for root in roots:
        node = root[0]
        if node in counts:
            counts[node] += 1
        else:
            counts[node] = 1
            nodes.append(node)
    for node in nodes:                       # which grows meanwhile
        kind = node._kind
        if kind == TWO:
            n = node.n1
            if n is not None:
                if n in counts:
                    counts[n] += 1
                else:
                    counts[n] = 1
                    nodes.append(n)
        elif kind == LEAF:
            buffers[node] = ABSENT
            leaves += 1
            continue
        elif kind == MANY:
            if node._outputs != 1:
                buffers[node] = [None] * output_count(node)
            for n, _ in node._edges():
                if n in counts:
                    counts[n] += 1
                else:
                    counts[n] = 1
                    nodes.append(n)
            continue
        n = node.n0
        if n in counts:
            counts[n] += 1
        else:
            counts[n] = 1
            nodes.append(n)
    del counts[None]
    nodes.sort(key=_by_seq, reverse=True)
    del nodes[:leaves]                       # they have the highest number
    return counts, nodes


def find_needed(task):
    """The nodes that have to run for the gradients that a task wants, those at which it ends not included."""
    needed = set(task.only or ())
    wanted = needed | task.captured
    partly = task.partly = set()
    for node in reversed(task.nodes):        # a node's inputs are older than the node
        arity = node._arity
        if arity == 1:
            found = whole = node.n0 in wanted
        elif arity == 2:
            first, second = node.n0 in wanted, node.n1 in wanted
            found, whole = first or second, (first or node.n0 is None) and (second or node.n1 is None)
        else:
            edges = [n in wanted for n, _ in node._edges() if n is not None]
            found, whole = any(edges), all(edges)
        if found:
            needed.add(node)
            wanted.add(node)
        if not whole and node in needed:
            partly.add(node)
    return needed
