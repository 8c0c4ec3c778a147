"""The run loop: from roots and their gradients to the leaves, newest node first."""
from __future__ import annotations

import contextvars
import threading

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.cuda.streams import Surroundings
from autograd_gpu.engine.deliver import NOTHING, deliver, deliver_all, visit
from autograd_gpu.engine.grad_mode import OFF, QUIET, QUIET_VARIABLE, everywhere, local
from autograd_gpu.engine.node import MANY, TWO
from autograd_gpu.engine.streams import Crossings, streams_of
from autograd_gpu.engine.task import GraphTask
from autograd_gpu.engine.workers import drain_by_workers, worked_by

_ndarray = np.ndarray
NESTED = 30                                  # so many backwards inside each other run on one thread: each takes about nine Python frames


def run(task: GraphTask, roots):
    """Run a backward. `roots`: [(node, output number, gradient as an array, or as a Tensor if the task has `tensors`)].

    This thread does the work, but for a graph on several CUDA devices each has its worker (engine/workers.py).
    """
    state = local.state
    depth = state.depth
    if depth and not depth % NESTED and state.started_at != depth:
        return _on_a_fresh_thread(task, roots, state)
    outer, noting, quiet = (state.graph_task, state.at, state.enabled, depth, state.mode), everywhere.noting, QUIET_VARIABLE.get()
    task.prepare(roots)
    try:
        state.graph_task, state.enabled, state.depth = task, task.create_graph, depth + 1
        if task.create_graph or state.inside is not None:
            state.refresh()
        else:
            state.mode = OFF
        QUIET_VARIABLE.set(QUIET)
        streams = streams_of(task) if _device.cupy is not None else ()
        if not streams:
            _drain(task, roots)
        else:
            _run_on_cuda(task, roots, streams, state)
    finally:                                 # first what needs no call: with one comes a KeyboardInterrupt that is on its way
        state.graph_task, state.at, state.enabled, state.depth, state.mode = outer
        QUIET_VARIABLE.set(quiet)
        if task.current is not None:
            task.work_on(None)
        if everywhere.noting is not noting:  # a hook has switched anomaly mode, or record_lines
            state.refresh()


def _run_on_cuda(task, roots, streams, state):
    """Run a task some of whose nodes are on CUDA devices."""
    task.streams = Crossings(streams)
    task.streams.begin()
    try:
        if devices := worked_by(streams, state):
            drain_by_workers(task, roots, devices, state)
        else:
            _drain(task, roots)
    finally:
        if task.streams.several:
            task.streams.end(task)


def _on_a_fresh_thread(task, roots, state):
    """run, where so many backwards run inside each other that this thread's stack of Python frames may not suffice."""
    raised = []
    surroundings = Surroundings()

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
    """Run a task's nodes on this thread."""
    buffers, ends, keep, tensors = task.buffers, task.ends, task.keep_graph, task.tensors
    watched = ends or task.partly or everywhere.anomaly or everywhere.profiled       # each node is visited
    here, streams = None, task.streams
    several, instead = (False, None) if streams is None else (streams.several, streams.instead)
    for n, nr, grad in roots:
        if streams is not None:
            streams.send(task, None, n, nr, grad, grad, deliver)
        elif n in buffers:
            deliver(task, n, nr, grad, grad)
        else:
            buffers[n] = grad
    for node in task.in_order():
        rare = node._rare
        grad = buffers[node]
        del buffers[node]
        if rare is None and not watched:
            results = node._apply_tensors(grad, keep) if tensors else node._apply(grad, keep)
            kind = node._kind
        else:
            stream = None if rare is None else rare.stream
            if instead:
                stream = instead.get(stream, stream)
            if stream is not here:
                here = stream
                task.work_on(stream)
            if several:
                streams.await_gradients(node)
            results, grad = visit(task, node, grad)
            if results is NOTHING:
                continue
            kind = MANY if several or rare is not None and rare.crosses else node._kind
        if kind == MANY:
            deliver_all(task, node, results, grad)
            results = None                   # not kept while others run
            continue
        if kind == TWO:
            g, results = results
            n = node.n0
            if n is not None:
                if results is g and n is not node.n1 and not tensors and g is not grad and g is not None:
                    results = g.copy()       # no two leaves may get the same array
                if n in buffers:
                    deliver(task, n, node.i0, g, grad)
                else:
                    buffers[n] = g
            g = None
            n, nr = node.n1, node.i1
        else:
            n, nr = node.n0, node.i0
        if n is None:
            continue
        if n in buffers:
            deliver(task, n, nr, results, grad)
            results = None
        else:
            buffers[n] = results             # the first for a node with one output: most get one only
