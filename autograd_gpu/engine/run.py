"""The run loop: from roots and their gradients to the leaves, newest node first."""
from __future__ import annotations

import contextvars
import threading

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.engine.deliver import NOTHING, arrive_at_leaf, deliver_all, deliverer, visit
from autograd_gpu.engine.grad_mode import OFF, QUIET, QUIET_VARIABLE, everywhere, local
from autograd_gpu.engine.node import AccumulateGrad
from autograd_gpu.engine.task import GraphTask, count_dependencies, find_needed
from autograd_gpu.engine.workers import cuda_devices, drain_by_workers

_ndarray = np.ndarray
NESTED = 30                                  # so many backwards inside each other run on one thread: each takes about nine Python frames


def run(task: GraphTask, roots):
    """Run a backward. `roots`: [(node, output number, gradient as an array, or as a Tensor if create_graph)].

    This thread does the work, but for a graph on several CUDA devices each has its worker (engine/workers.py).
    """
    state = local.state
    depth = state.depth
    if depth and not depth % NESTED and state.started_at != depth:
        return _on_a_fresh_thread(task, roots, state)
    outer, mode, anomaly = (state.graph_task, state.at, state.enabled), state.mode, everywhere.anomaly
    task.roots = roots
    task.dependencies = count_dependencies([root[0] for root in roots])
    if task.captures is not None or task.only is not None:
        task.needed = find_needed(task)
        if len(roots) == 1 and task.needed is not None and roots[0][0] not in task.needed:
            task.ends.add(roots[0][0])       # its hooks run, as the gradient is there
    state.graph_task, state.enabled, state.depth = task, task.create_graph, depth + 1
    if task.create_graph or state.inside is not None:
        state.refresh()
    else:
        state.mode = OFF
    token = QUIET_VARIABLE.set(QUIET)
    try:
        if _device.cupy is not None and (devices := cuda_devices(task, state)):
            drain_by_workers(task, roots, devices, state)
        else:
            _drain(task, roots)
    finally:
        QUIET_VARIABLE.reset(token)
        if task.guard is not None:
            task.work_on(None)
        state.graph_task, state.at, state.enabled = outer
        state.depth = depth
        if everywhere.anomaly is anomaly:
            state.mode = mode
        else:                                # a hook has switched anomaly mode
            state.refresh()


def _on_a_fresh_thread(task, roots, state):
    """run, where so many backwards run inside each other that this thread's stack of Python frames may not suffice."""
    raised = []
    surroundings = _device.Surroundings()

    def work():
        local.state.follow(state)
        local.state.started_at = state.depth
        try:
            with surroundings.on():
                run(task, roots)
        except BaseException as error:       # raised again where the caller waits
            raised.append(error)
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="autograd:nested")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _drain(task, roots):
    dependencies, buffers = task.dependencies, task.buffers
    needed, ends = task.needed, task.ends
    anomaly = everywhere.anomaly
    plain = needed is None and not ends and not anomaly          # every node runs, and none is stopped at
    keep, tensors = task.keep_graph, task.create_graph
    queue, seqs, on_cpu = None, (), True     # the queue being drained; none yet while the nodes follow each other
    deliver = deliverer(task, arrive_at_leaf)

    def put_off(n):
        """Leave a node that is ready to its queue."""
        nonlocal queue, seqs
        if n._rare is None and on_cpu:
            if queue is None:
                queue = task.queue(_device.CPU)
                seqs = queue.seqs
            queue.push(n)
        else:
            other = task.queue(n._device)
            other.push(n)
            if queue is None and other.device is _device.CPU:    # what follows may have to wait for it
                queue, seqs = other, other.seqs

    node = None
    if len(roots) == 1:
        node, _, grad = roots[0]
        if not node._arity or node._outputs != 1 or node._rare is not None or needed is not None and node not in needed:
            node = None
    if node is None:
        for n, nr, grad in roots:
            if type(grad) is not _ndarray and not tensors:
                task.work_on(_device.of(grad))
            ready = deliver(n, nr, grad, grad)
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
                plain = on_cpu and needed is None and not ends and not anomaly
                task.work_on(queue.device)
            node = queue.pop()
            grad = buffers.pop(node)
        rare = node._rare
        while True:                                              # from node to node, without the queue while it can
            if rare is None and not anomaly and (not ends or node not in ends):
                results = node._apply_tensors(grad, keep) if tensors else node._apply(grad, keep)
            else:
                results, grad = visit(task, node, grad)
                if results is NOTHING:
                    break
            following = n = None
            arity = node._arity
            if arity > 2 or rare is not None and rare.crosses:
                following, *others = deliver_all(task, node, results, grad, deliver) or (None,)
                for other in others:
                    put_off(other)
            elif arity == 1:
                n, nr, g = node.n0, node.i0, results
            elif arity == 2:
                g, h = results
                n, nr, other = node.n0, node.i0, node.n1
                if n is None:
                    n, nr, g = other, node.i1, h
                elif other is not None:
                    following = deliver(n, nr, g, grad)
                    other = deliver(other, node.i1, h if h is not g or h is grad or tensors or h is None else h.copy(), grad)
                    if following is None:
                        following = other
                    elif other is not None:
                        if other._seq > following._seq:
                            other, following = following, other
                        put_off(other)
                    n = None
            if n is not None:                                    # one edge
                if plain and rare is None and dependencies[n] == 1 and type(n) is not AccumulateGrad and n._outputs == 1 \
                        and n not in buffers and n._rare is None and not (seqs and -seqs[0] > n._seq):
                    node, grad = n, g                            # a chain
                    continue
                following = deliver(n, nr, g, grad)
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
