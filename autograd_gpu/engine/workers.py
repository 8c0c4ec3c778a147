"""One worker thread per CUDA device, for a backward over several of them.

A graph on the CPU and one CUDA device is run by the thread that called backward: handing work to another thread costs more than
it gives. On several devices each has its own ready queue and its own worker, named autograd:cuda:N, and the calling thread runs what
is on the CPU. No lock is held while a user's code runs: a hook, a custom backward.
"""
from __future__ import annotations

import os
import threading
from heapq import heappop, heappush

from autograd_gpu.cuda.streams import StreamContext, captures
from autograd_gpu.engine.deliver import NOTHING, arrive_at_leaf, deliver, deliver_all, visit
from autograd_gpu.engine.grad_mode import QUIET, QUIET_VARIABLE, State, local, setting
from autograd_gpu.engine.node import LEAF, next_seq
from autograd_gpu.engine.task import UNWANTED


class Worker(threading.Thread):
    """The thread of one CUDA device; it takes the newest ready node of whatever backward."""

    def __init__(self, device):
        super().__init__(name=f"autograd:{device}", daemon=True)
        self.device = device
        self._ready = []
        self._changed = threading.Condition()

    def push(self, backward, node):
        """Leave a node of a backward to this thread."""
        with self._changed:
            heappush(self._ready, (-node._seq, next_seq(), backward, node))      # two threads may run the same node
            self._changed.notify()

    def run(self):
        QUIET_VARIABLE.set(QUIET)
        idle = State()
        while True:
            with self._changed:
                while not self._ready:
                    self._changed.wait()
                _, _, backward, node = heappop(self._ready)
            local.state.follow(backward.state)
            with backward.task.streams.caller.on(node._stream):
                backward.step(node)
            local.state.follow(idle)         # nothing outlives its backward by this thread's waiting
            del backward, node


_workers: dict[object, Worker] = {}
_starting = threading.Lock()
_lost = False                                # in a child that was forked from a process with workers


def _forget():
    global _lost
    _lost = _lost or bool(_workers)
    _workers.clear()


os.register_at_fork(after_in_child=_forget)


def _worker(device) -> Worker:
    with _starting:
        found = _workers.get(device)
        if found is None:
            if _lost:
                raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing: this process was "
                                   "forked from one that has run a backward on several CUDA devices. Start it with the spawn method, or "
                                   "call autograd.set_multithreading_enabled(False) in it")
            found = _workers[device] = Worker(device)
            found.start()
        return found


def worked_by(streams, state):
    """The CUDA devices whose workers are to run a backward on these streams; none where this thread runs it all."""
    if state.depth > 1 or state.multithreading is False or captures:         # a graph's memory comes from a pool of its thread's
        return ()
    found = {s.device for s in streams}
    return found if len(found) > 1 or state.multithreading else ()


class _Backward:
    """A task that several threads run. What is ready waits in their queues; `left` counts it until it has run."""

    def __init__(self, task, devices, state):
        self.task, self.state = task, state
        self.queues = {device: _worker(device) for device in devices}
        self.own = []                        # ready nodes of the calling thread
        self.left = 0
        self.error = None
        self.changed = threading.Condition()     # and the lock of the task's buffers and counts
        task.arrived = []                    # leaves whose gradient is whole, while the lock is held

    def deliver(self, task, n, nr, g, grad):
        """A gradient arrives at a node; after the last one a node that is to run goes into its device's queue."""
        deliver(task, n, nr, g, grad)
        if n._kind == LEAF or task.buffers.get(n) is UNWANTED:
            return
        left = task.dependencies[n] = task.dependencies[n] - 1
        if left:
            return
        self.left += 1
        worker = self.queues.get(n._device)
        if worker is not None:
            worker.push(self, n)
        else:
            heappush(self.own, (-n._seq, n))
            self.changed.notify()

    def spread(self, some):
        """Call `some`, which delivers gradients, and do what is due at the leaves where the last one arrived."""
        with self.changed:
            if self.error is not None:
                return
            some()
            arrived, self.task.arrived = self.task.arrived, []
        for leaf in arrived:
            if self.error is None:
                with StreamContext(leaf[1]._stream):
                    arrive_at_leaf(*leaf)

    def step(self, node):
        """Run a node that is ready."""
        try:
            if self.error is None:
                with self.changed:
                    grad = self.task.buffers.pop(node)
                    self.task.streams.await_gradients(node)
                if self.task.ahead is None:
                    results, grad = visit(self.task, node, grad)
                else:
                    self.task.ahead.before(node)
                    results, grad = visit(self.task, node, grad)
                    self.task.ahead.after(node)
                if results is not NOTHING:
                    self.spread(lambda: deliver_all(self.task, node, results, grad, self.deliver))
        except BaseException as error:       # the caller of backward gets it, whichever thread this is
            self.fail(error)
        with self.changed:
            self.left -= 1
            if not self.left:
                self.changed.notify()

    def fail(self, error):
        """The first error ends the backward; what is ready is dropped as it comes up."""
        with self.changed:
            if self.error is None:
                self.error = error
            self.left -= len(self.own)
            self.own.clear()
            self.task.buffers.clear()
            self.changed.notify()

    def wait(self):
        """Run what is ready for this thread until all is done. Raises the first error, once no thread is at work for it any more."""
        while True:
            with self.changed:
                while self.left and not self.own:
                    self.changed.wait()
                if not self.left:
                    break
                _, node = heappop(self.own)
            self.step(node)
        if self.error is not None:
            raise self.error


def drain_by_workers(task, roots, devices, state):
    """Run a task whose graph lies on several CUDA devices."""
    backward = _Backward(task, devices, state)
    try:
        for n, nr, grad in roots:
            backward.spread(lambda n=n, nr=nr, grad=grad: task.streams.send(task, None, n, nr, grad, grad, backward.deliver))
        backward.wait()
    except BaseException as error:           # an interrupt of this thread, too
        backward.fail(error)
        raise
    finally:
        if task.ahead is not None:
            task.ahead.end()
        backward.error = None if backward.error is None else _ENDED              # a traceback would hold this frame


_ENDED = RuntimeError("this backward has ended")


class set_multithreading_enabled(setting):
    """Whether backward may use the CUDA devices' worker threads. In this thread, from now on; as a context manager until its end.

    Without it they run where a graph lies on several devices. True: they run whatever is on a CUDA device. False: the calling
    thread runs everything. Reference: torch.autograd.set_multithreading_enabled.
    """

    _field = "multithreading"

    def __init__(self, mode: bool):
        super().__init__(mode)


def is_multithreading_enabled() -> bool:
    """Whether backward may use worker threads in this thread. Reference: torch.autograd.is_multithreading_enabled."""
    return local.state.multithreading is not False
