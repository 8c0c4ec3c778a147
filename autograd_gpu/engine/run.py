"""The run loop: from roots and their gradients to the leaves, newest node first."""
from __future__ import annotations

import operator
import threading
from heapq import heappop, heappush

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor, version, wrap
from autograd_gpu.engine import hooks as _hooks
from autograd_gpu.engine.grad_mode import OFF, ON, QUIET, QUIET_VARIABLE, RARE, local
from autograd_gpu.engine.node import AccumulateGrad, stand_in

_ndarray = np.ndarray
_by_seq = operator.attrgetter("_seq")
_LOCKS = [threading.Lock() for _ in range(64)]   # guard `_grad` of the leaves, by the leaf's address


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

    __slots__ = ("keep_graph", "create_graph", "captures", "captured", "only", "needed", "dependencies", "buffers", "owned", "queues",
                 "roots", "guard", "__weakref__")

    def __init__(self, keep_graph, create_graph, captures=None, only=None):
        self.keep_graph, self.create_graph, self.captures, self.only = keep_graph, create_graph, captures, only
        self.captured = () if captures is None else {node for node, _ in captures}
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


def total(a, b):
    """The sum of two gradients, Tensors or arrays; NumPy's sum of 0-d arrays is no array."""
    c = a + b
    return np.asarray(c) if type(a) is _ndarray and type(c) is not _ndarray else c


def find_needed(task):
    """The nodes that have to run for the gradients that a task wants, those at which it ends not included. None: all of them."""
    needed = set(task.only or ())
    wanted = needed | set(task.captured)
    if not needed:
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


def run(task: GraphTask, roots):
    """Run a backward on this thread. `roots`: [(node, output number, gradient as an array, or as a Tensor if create_graph)]."""
    state = local.state
    outer = state.graph_task, state.enabled, state.mode
    task.roots = roots
    task.dependencies = count_dependencies([root[0] for root in roots])
    if task.captures is not None or task.only is not None:
        task.needed = find_needed(task)
    state.graph_task, state.enabled = task, task.create_graph
    state.mode = OFF if not task.create_graph else RARE if state.saved_hooks else ON
    token = QUIET_VARIABLE.set(QUIET)
    try:
        _drain(task, roots)
    finally:
        QUIET_VARIABLE.reset(token)
        if task.guard is not None:
            task.work_on(None)
        state.graph_task, state.enabled, state.mode = outer


def _drain(task, roots):
    dependencies, buffers, owned = task.dependencies, task.buffers, task.owned
    needed = task.needed
    ends = task.captured and {n for n in task.captured if n._arity}   # where gradients of tensors that are no leaves are captured
    accumulates = needed is None and task.captures is None
    plain = needed is None and not ends      # every node runs, and none is stopped at
    keep, tensors = task.keep_graph, task.create_graph
    queue, seqs, on_cpu = None, (), True     # the queue being drained; none yet while the nodes follow each other
    grad = None

    def deliver(n, nr, g):
        """A gradient arrives at node n from the node that took `grad`. Returns n when it was the last and n is to be run."""
        left = dependencies[n] - 1
        leaf = type(n) is AccumulateGrad
        if not leaf and n._outputs != 1:
            slots = buffers.get(n)
            if slots is None:
                slots = buffers[n] = [None] * (n._outputs if type(n._outputs) is int else len(n._result_meta))
            if g is not None:
                slots[nr] = g if slots[nr] is None else total(slots[nr], g)
        elif n not in buffers:
            if leaf and not left:
                shared = tensors or g is grad or g is None or g.base is not None
                if accumulates and n._rare is None and n.variable._hooks is None and n.variable._requires and n.variable._view is None:
                    if g is not None:
                        accumulate(n.variable, g, shared)
                else:
                    _arrive_at_leaf(task, n, g, shared)
                return None
            buffers[n] = g
        elif g is not None:
            old = buffers[n]
            if old is None:
                buffers[n] = g
            elif n in owned:
                old += g
            else:
                g = total(old, g)
                if not tensors:
                    owned.add(n)
                buffers[n] = g
        if left:
            dependencies[n] = left
            return None
        if leaf:
            _arrive_at_leaf(task, n, buffers.pop(n), n not in owned)
            return None
        return n if needed is None or n in needed or n in ends else None

    def put_off(n):
        """Leave a node that is ready to its queue."""
        nonlocal queue, seqs
        if n._rare is None and on_cpu:
            if queue is None:
                queue = task.queue(_device.CPU)
                seqs = queue.seqs
            queue.push(n)
        else:
            task.queue(n._device).push(n)

    node = None
    if len(roots) == 1:
        node, _, grad = roots[0]
        if not node._arity or node._outputs != 1 or node._rare is not None or needed is not None and node not in needed:
            node = None
    if node is None:
        for n, nr, grad in roots:
            if type(grad) is not _ndarray and not tensors:
                task.work_on(_device.of(grad))
            ready = deliver(n, nr, grad)
            if ready is not None:
                put_off(ready)
    while True:
        if node is None:
            if not seqs:
                for queue in task.queues.values():
                    if queue.seqs:
                        break
                else:
                    return
                seqs, on_cpu = queue.seqs, queue.device is _device.CPU
                plain = on_cpu and needed is None and not ends
                task.work_on(queue.device)
            node = queue.pop()
            grad = buffers.pop(node)
        rare = node._rare
        while True:                                              # from node to node, without the queue while it can
            if rare is not None or ends and node in ends:
                stop, grad = _before(task, node, grad)
                if stop:
                    break
            if rare is None or not rare.posthooks:
                results = node._apply_tensors(grad, keep) if tensors else node._apply(grad, keep)
            else:                                                # a hook may look at what was saved
                results = node._apply_tensors(grad, True) if tensors else node._apply(grad, True)
                results = _hooks.run_posthooks(node, results, grad, tensors)
                if not keep:
                    node._release()
            following = None
            arity = node._arity
            if arity == 1:
                n, nr, g = node.n0, node.i0, results
            elif arity == 2:
                g, h = results
                n, other = node.n0, node.n1
                if other is None:
                    nr = node.i0
                elif n is None:
                    n, nr, g = other, node.i1, h
                else:
                    following = deliver(n, node.i0, g)
                    other = deliver(other, node.i1, h if h is not g or h is grad or tensors or h is None else h.copy())
                    if following is None:
                        following = other
                    elif other is not None:
                        if other._seq > following._seq:
                            other, following = following, other
                        put_off(other)
                    n = None
            else:
                following, *others = _deliver_all(node, results, grad, tensors, deliver) or (None,)
                for other in others:
                    put_off(other)
                n = None
            if n is not None:                                    # one edge
                if plain and dependencies[n] == 1 and type(n) is not AccumulateGrad and n._outputs == 1 and n not in buffers:
                    rare = n._rare
                    if rare is None and not (seqs and -seqs[0] > n._seq):
                        node, grad = n, g                        # a chain
                        continue
                    rare = node._rare
                if rare is not None and rare.lands is not None:  # what it is added to is there too
                    task.work_on(rare.lands)
                    following = deliver(n, nr, g)
                    task.work_on(queue.device)
                else:
                    following = deliver(n, nr, g)
            if following is None:
                break
            rare = following._rare
            if seqs and -seqs[0] > following._seq or \
                    (rare is not None or not on_cpu) and (queue is None or following._device != queue.device):
                put_off(following)
                break
            node = following
            grad = buffers.pop(node)
        node = None


def _deliver_all(node, results, grad, tensors, deliver):
    """Deliver the gradients of a node with many edges; the nodes that became ready."""
    ready, seen = [], set()
    for (n, nr), g in zip(node._edges(), results, strict=True):
        if n is not None:
            if not tensors and g is not None and g is not grad:
                if id(g) in seen:                                # no two leaves may get the same array
                    g = g.copy()
                seen.add(id(g))
            n = deliver(n, nr, g)
            if n is not None:
                ready.append(n)
    return ready


def _before(task, node, grad):
    """What comes ahead of a node's own work: hooks on its gradients, and their capture. Returns (stop here, gradients).

    A node that runs is captured before its hooks, one at which the backward ends after them, as in PyTorch.
    """
    rare = node._rare
    runs = task.needed is None or node in task.needed
    hooked = rare is not None and (rare.tensor_hooks or rare.retain)
    if hooked and not runs:
        grad = _hooks.run_tensor_hooks(node, grad, task.create_graph)
    if node in task.captured:
        for key in task.captures:
            if key[0] is node:
                task.captures[key] = _own(task, grad if node._outputs == 1 else grad[key[1]])
    if runs and hooked:
        grad = _hooks.run_tensor_hooks(node, grad, task.create_graph)
    if runs and rare is not None and rare.prehooks:
        grad = _hooks.run_prehooks(node, grad, task.create_graph)
    return not runs, grad


def _own(task, g):
    """A gradient as the caller's own: a copy if it is a view or somebody else's array."""
    if g is None:
        return None
    for root in task.roots:
        if g is root[2]:
            return g.clone() if isinstance(g, Tensor) else g.copy()
    if isinstance(g, Tensor):
        return g if g._array.base is None else stand_in(g, g._array.copy())
    if g.base is not None:
        return g.copy()
    for other in task.captures.values():
        if g is other:
            return g.copy()
    return g


def _arrive_at_leaf(task, node, g, shared):
    """The whole gradient of a leaf is there."""
    if task.captures is not None:
        if node not in task.captured:
            return
    elif task.needed is not None and node not in task.needed:
        return
    variable, rare = node.variable, node._rare
    leaf_hooks = variable._hooks
    if leaf_hooks is not None and leaf_hooks.tensor_hooks:
        g, shared = _hooks.run_leaf_hooks(leaf_hooks.tensor_hooks, g, task.create_graph), True
    if task.captures is not None:
        task.captures[node, 0] = _own(task, g)
        return
    if rare is not None and rare.prehooks:
        g, shared = _hooks.run_prehooks(node, g, task.create_graph), True
    if variable._requires and (variable._view is None or not variable._view.base._requires):
        if g is not None:
            accumulate(variable, g, shared)
        if leaf_hooks is not None:
            for hook in tuple(leaf_hooks.post_accumulate.values()):
                result = hook(variable)
                if result is not None:
                    raise (RuntimeError if isinstance(result, Tensor) else TypeError)(
                        f"post accumulate grad hooks should return None, got {type(result).__name__}")
    if rare is not None and rare.posthooks:
        _hooks.run_posthooks(node, (), g, task.create_graph)


def accumulate(variable: Tensor, g, shared):
    """Add a gradient into variable.grad: a Tensor recorded, an array in place. `shared`: g itself may not be kept."""
    with _LOCKS[(id(variable) >> 6) & 63]:
        old = variable._grad
        if isinstance(g, Tensor):
            variable._grad = g.clone() if old is None else old + g
        elif old is None:
            own = variable._array
            if not shared and g.strides == own.strides:
                variable._grad = wrap(g)
            elif own.flags.c_contiguous:
                variable._grad = wrap(g.copy())
            else:                            # laid out as the leaf is
                like = _device.xp(g).empty_like(own, order=_device.order_of(own))
                like[...] = g
                variable._grad = wrap(like)
        elif old._array.shape != g.shape:
            raise RuntimeError(f"a gradient of shape {g.shape} cannot be added to .grad of shape {old._array.shape}; the tensor's data was "
                               f"replaced: set .grad to None first")
        elif type(old._array) is not _ndarray or old._array.flags.writeable:
            target = old._array
            target += g
            version(old).count += 1
        else:
            variable._grad = wrap(_device.xp(g).asarray(old._array + g))
