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
                 "buffers", "owned", "roots", "streams", "current", "ahead", "__weakref__")

    def __init__(self, keep_graph, create_graph, captures=None, only=None):
        self.keep_graph, self.create_graph, self.captures, self.only = keep_graph, create_graph, captures, only
        self.tensors = create_graph or everywhere.levels and carries_tangents()        # whether its gradients are Tensors, not arrays
        self.captured = () if captures is None else {node for node, _ in captures}
        # where gradients of tensors that are no leaves are captured; a sole root
        self.ends = {n for n in self.captured if n._arity} if captures else set()
        self.needed = None                   # the nodes that have to run; None: all
        self.partly = set()                  # those among them that lead elsewhere, too
        self.buffers = {}                    # node: what has arrived for it; a list where it has several outputs
        self.owned = set()                   # nodes whose buffer is an array that `+` made here, free to be added to
        self.streams = None                  # what orders its CUDA streams, if it has any (engine/streams.py)
        self.current = None                  # the stream that work_on has made current
        self.ahead = None                    # fetches saved values from host memory, where there are any

    def prepare(self, roots):
        """Look at the graph: count what will arrive, find what has to run, give leaves and what is not to run their buffers."""
        self.roots = roots
        self.dependencies = count_dependencies([root[0] for root in roots], self.buffers)
        if self.captures is not None or self.only is not None:
            self.needed = find_needed(self)
            if self.needed is not None:
                if len(roots) == 1 and roots[0][0] not in self.needed:
                    self.ends.add(roots[0][0])               # its hooks run, as the gradient is there
                for node in self.dependencies:
                    if not (node in self.needed or node in self.captured or node in self.ends):
                        self.buffers[node] = UNWANTED

    def wants(self, node):
        """Of each edge of a node, whether its gradient is wanted."""
        return tuple([n is not None and (self.needed is None or n in self.needed or n in self.captured) for n, _ in node._edges()])

    def in_order(self):
        """The nodes that run, the newest first: every edge leads to an older node, so that all that a node waits for comes before it.

        It is the order that a ready queue gives. Leaves are not among them: they get their gradient as the last part of it arrives.
        """
        nodes = self.dependencies
        if self.needed is not None:
            nodes = [n for n in nodes if self.buffers.get(n) is not UNWANTED]
        nodes = sorted(nodes, key=_by_seq)
        while nodes and nodes[-1]._kind == LEAF:
            nodes.pop()
        nodes.reverse()
        if not kept:
            return nodes
        self.ahead = Ahead(nodes)
        return self.ahead.in_order(nodes)

    def work_on(self, stream):
        """Make a CUDA stream current in this thread, until the next call; None ends it."""
        if self.current is not None:
            self.current.__exit__(None, None, None)
        self.current = stream
        if stream is not None:
            stream.__enter__()


def count_dependencies(roots, buffers):
    """{node: how many gradients will arrive at it} over all that is reachable from the roots, which count one each.

    Leaves and nodes with several outputs get their places in `buffers`.
    """
    counts = {None: 0}                       # where an edge leads nowhere
    nodes = []
    for node in roots:
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
    return counts


def find_needed(task):
    """The nodes that have to run for the gradients that a task wants, those at which it ends not included. None: all of them."""
    needed = set(task.only or ())
    wanted = needed | set(task.captured)
    if not needed and not everywhere.nowhere and not task.ends and wanted == {n for n in task.buffers if not n._arity}:
        return None                          # the leaves, all of them, are what is wanted
    for node in sorted(task.dependencies, key=_by_seq):          # a node's inputs are older than the node
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
            task.partly.add(node)
    return needed
