"""Work on large arrays of the CPU shared by threads. NumPy lets other threads run while it computes, so they need no processes.

What is shared out is parts of an array, each computed by one thread as it would be alone; where parts are added up, the order is the
one that NumPy has. So a result has the same bits whatever the number of threads. The threads start when they are first needed.
"""
from __future__ import annotations

import contextlib
import os
import queue
import threading

import numpy as np

from autograd_gpu.engine.grad_mode import everywhere

PARTS = 3                                    # for each thread, so that one that is held up leaves the rest to the others
_lock = threading.Lock()                     # guards `_workers`
_workers: list[threading.Thread] = []
_jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()


def _available():
    """How many threads there are by default: the cores that this process may use, or what the environment allows, if that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    return min([cores, *[int(n) for n in asked if n.isdecimal() and int(n)]])


_threads = _available()


def _keep_freed_memory():
    """From when it was given 32 MB back on, glibc keeps freed memory of up to 64 MB for what is made next.

    Else it would give arrays from 128 KB on back to the kernel, whose clearing of new pages takes a sixth of the time of elementwise
    operations on millions of numbers, and a sixteenth of attention's on 512 tokens; measured.
    """
    with contextlib.suppress(MemoryError):
        np.empty((32 << 20) - (1 << 16), np.uint8)


_keep_freed_memory()


def get_num_threads() -> int:
    """How many threads work on a large array of the CPU. Reference: torch.get_num_threads."""
    return _threads


def set_num_threads(threads: int, /) -> None:
    """Set how many threads work on a large array of the CPU, the calling one among them.

    By default as many as there are cores that this process may use, or fewer by the variables OMP_NUM_THREADS and MKL_NUM_THREADS.
    Results are the same at any number. Matrix products run on BLAS's own threads: OPENBLAS_NUM_THREADS, or what your BLAS reads.
    Raises: RuntimeError for what is no positive integer. Reference: torch.set_num_threads.
    """
    global _threads                          # noqa: PLW0603
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(threads).__name__}")
    if threads <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, but got {threads}")
    if threads >= 1 << 31:
        raise ValueError(f"set_num_threads: Overflow when unpacking long: {threads} threads are too many")
    _threads = int(threads)
    everywhere.shared = everywhere.large and _threads > 1


def notice_large():
    """There is a large array: from now on operations look for them."""
    everywhere.large, everywhere.shared = True, _threads > 1


class _Job:
    """A function and the parts that nobody has taken yet."""

    __slots__ = ("function", "parts", "lock", "helpers", "closed", "left", "error")

    def __init__(self, function, parts):
        self.function, self.parts = function, parts[::-1]
        self.lock = threading.Lock()         # guards `helpers` and `closed`
        self.helpers, self.closed, self.error = 0, False, None
        self.left = threading.Lock()         # held until the last helper has left, if the caller waits for it
        self.left.acquire()

    def work(self):
        """Take parts until there is none."""
        while True:
            try:
                part = self.parts.pop()
            except IndexError:
                return
            self.function(part)

    def help(self):
        """work, on behalf of the caller, if the job is not over yet."""
        with self.lock:
            if self.closed:
                return
            self.helpers += 1
        try:
            self.work()
        except BaseException as error:       # raised again by the caller
            self.error = self.error or error
            self.parts.clear()
        with self.lock:
            self.helpers -= 1
            if self.closed and not self.helpers:
                self.left.release()

    def close(self):
        """Let nobody begin to help any more, and wait for those that have."""
        self.parts.clear()
        with self.lock:
            self.closed = True
            wait = self.helpers > 0
        if wait:
            self.left.acquire()
        self.function = None                 # a worker that is busy elsewhere may keep the job in its queue


def each(function, parts):
    """Call function(part) for each of a list of parts, on all threads; the function only runs NumPy on what the part names.

    The first error of a part is raised here; parts that have not begun by then are left out.
    """
    helpers = min(_threads, len(parts)) - 1
    if helpers <= 0 or not _start(helpers):
        for part in parts:
            function(part)
        return
    share = -(-len(parts) // (helpers + 1))  # far from each other at once, as two threads may not make the same page of new memory
    job = _Job(function, [part for i in range(share) for part in parts[i::share]])
    try:
        for _ in range(helpers):
            _jobs.put_nowait(job)
        job.work()
    finally:
        job.close()
    if job.error is not None:
        error, job.error = job.error, None
        raise error


def _start(helpers):
    """Have so many workers at least; False where threads cannot be started any more, as when Python ends."""
    if len(_workers) >= helpers:
        return True
    with _lock:
        try:
            while len(_workers) < helpers:
                worker = threading.Thread(target=_serve, args=(_jobs,), name=f"autograd:cpu:{len(_workers) + 1}", daemon=True)
                worker.start()
                _workers.append(worker)
        except RuntimeError:
            return bool(_workers)
    return True


def _serve(jobs):
    """What a worker does. Only it itself holds a job while it works on it, so that arrays are freed when the caller drops them."""
    np.seterr(all="ignore")                  # in this thread's context
    while True:
        jobs.get().help()


def _forget():
    """A forked child has none of the workers."""
    global _lock, _jobs                      # noqa: PLW0603
    _lock, _jobs = threading.Lock(), queue.SimpleQueue()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def cut(size, unit, least=1):
    """What cuts `size` elements or rows into parts of whole units, of `least` units or more each; one part if only one thread works."""
    units = -(-size // unit)
    parts = min(units // least, _threads * PARTS) if _threads > 1 else 1
    if parts <= 1:
        return [slice(0, size)]
    bounds = [-(-units * i // parts) * unit for i in range(parts)] + [size]
    return [slice(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
