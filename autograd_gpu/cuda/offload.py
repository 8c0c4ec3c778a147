"""Values of CUDA arrays kept in host memory until they are wanted back.

Copies to and from page-locked memory go on two streams of each device that are theirs alone, ordered by events; the host waits for none.

    out   reads a copy of the values made on their own device, on the stream that is current: so the program may write to its own tensor,
          or free it, at once, and what has to outlive the transfer is memory that nobody else has. It waits for that copy, and for the
          last transfer from or to the page-locked memory that it writes.
    back  waits for the transfer out, and for the point at which the memory that it writes was allocated. Who uses the values waits for it.

The copy on the device is freed as soon as the transfer is done, or else its stream is told to wait for that: then later work, which may
get the same memory, comes after. That happens where more than `ahead` bytes are on their way.
"""
from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.cuda.streams import captures, here
from autograd_gpu.cuda.traffic import TRAFFIC, timed_wait

kept: dict[int, Any] = {}                    # by id: what lies in page-locked memory now; empty: no backward has to look for it


# ------------------------------------------------------------------------------------------------------- page-locked memory

class _Memory:
    """Page-locked memory and the event of the last copy from or to it. The pool holds it always: see _Buffer."""

    __slots__ = ("memory", "last")

    def __init__(self, memory):
        self.memory, self.last = memory, None


class _Buffer:
    """Gives memory back to the pool when nobody holds this any more.

    Where that is the cycle collector, the finalisers of all that is in the cycle have run, in any order: what is given back must not be in
    it, with a finaliser of its own, so it is held elsewhere too. And this one may run while any lock is held: it takes none.
    """

    __slots__ = ("of", "_free")

    def __init__(self, of, free):
        self.of, self._free = of, free

    def __del__(self):
        self._free.append(self.of)


class PinnedPool:
    """Page-locked memory that is used again. Only devices write to it, so the next copy waits on its stream for the last one, not the host.

    A request is rounded up to one of four sizes per power of two, so that at most a quarter is not used.
    """

    def __init__(self):
        self._all: dict[int, set[_Memory]] = {}                  # by size
        self._free: dict[int, collections.deque[_Memory]] = {}   # by size, the longest unused first
        self._lock = threading.Lock()        # guards `_all`

    @property
    def reserved(self) -> int:
        """Bytes of page-locked memory."""
        with self._lock:
            return sum([size * len(found) for size, found in self._all.items()])

    @property
    def free(self) -> int:
        """Bytes of it that nobody uses."""
        return sum([size * len(found) for size, found in list(self._free.items())])

    def take(self, nbytes) -> _Buffer:
        """Memory for so many bytes: a free one of its size, else a new one."""
        step = 1 << max(nbytes.bit_length() - 3, 9)
        size = -(-nbytes // step) * step
        free = self._free.setdefault(size, collections.deque())
        try:
            found = free.popleft()
        except IndexError:
            found = _Memory(_device.cupy.cuda.PinnedMemory(size))
            with self._lock:
                self._all.setdefault(size, set()).add(found)
        return _Buffer(found, free)

    def give_back(self):
        """Give what is free back to the system, once the copies from and to it are done: the host waits for those."""
        for size, free in list(self._free.items()):
            while free:
                found = free.popleft()
                if found.last is not None:
                    found.last.synchronize()
                with self._lock:
                    self._all[size].remove(found)


pool = PinnedPool()


# ------------------------------------------------------------------------------------------------------------------- copies

class _Leaving:
    """Elements that are being copied out, held until they may be freed. `stream`: on which they were made, so whose memory it is."""

    __slots__ = ("flat", "stream", "done", "value")

    def __init__(self, flat, stream, done, value):
        self.flat, self.stream, self.done, self.value = flat, stream, done, weakref.ref(value)

    def free(self):
        """Free it, as the copy is done or the stream waits for it."""
        value = self.value()
        if value is not None and self.flat is not None:
            TRAFFIC.left(value)
        self.flat = None


class _Lanes:
    """The current device's streams for copies, and the arrays that are on their way out."""

    def __init__(self):
        self.out, self.back = (_device.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self.leaving: collections.deque[_Leaving] = collections.deque()
        self.lock = threading.RLock()        # guards `leaving`, and the order of copies and their events

    def let_go(self, leaving):
        """Free an array now: its stream waits for the copy, before whatever gets the memory next."""
        if leaving.flat is not None:
            timed_wait(leaving.stream, leaving.done)
            leaving.free()

    def settle(self, most=float("inf")):
        """Free what was copied, and the oldest of the rest while they are more than so many bytes."""
        waiting = self.leaving
        while waiting and (waiting[0].flat is None or waiting[0].done.done):
            waiting.popleft().free()
        held = sum([w.flat.nbytes for w in waiting if w.flat is not None])
        while waiting and held > most:
            oldest = waiting.popleft()
            if oldest.flat is not None:
                held -= oldest.flat.nbytes
                self.let_go(oldest)


_lanes: dict[int, _Lanes] = {}
_making = threading.Lock()                   # guards `_lanes`


def _lanes_of(device) -> _Lanes:
    """Those of the current device."""
    found = _lanes.get(device.index)
    if found is None:
        with _making:
            found = _lanes.get(device.index)
            if found is None:
                if not _lanes:
                    _be_patient()
                found = _lanes[device.index] = _Lanes()
    return found


def _be_patient():
    """From now on, who finds no memory on a device has it free what is on its way out, and tries again."""
    impatient = _device.cupy.cuda.get_allocator()

    def allocate(size):
        try:
            return impatient(size)
        except _device.cupy.cuda.memory.OutOfMemoryError:
            lanes = _lanes.get(_device.cupy.cuda.Device().id)
            if lanes is None or not lanes.leaving:
                raise
            with lanes.lock:
                lanes.settle(0)
            return impatient(size)
    with contextlib.suppress(ValueError):    # inside of CuPy's using_allocator
        _device.cupy.cuda.set_allocator(allocate)


def _refuse_capture():
    """Raise RuntimeError where the current stream is captured: later copies would have to wait for events that exist in the graph only."""
    if captures and here().is_capturing():
        raise RuntimeError("save_on_cpu: copies to and from host memory cannot be captured into a CUDA graph: capture without it")


def settle():
    """Free every array whose copy to host memory is done. The host waits for nothing."""
    for lanes in list(_lanes.values()):
        with lanes.lock:
            lanes.settle()


class Offloaded:
    """The elements of a CUDA array in pageable host memory: the host waits for the copies.

    `counter` is its memory's: held, so that no other memory's can have the same id meanwhile.
    """

    __slots__ = ("device", "nbytes", "counter", "away", "_host", "__weakref__")

    def __init__(self, elements, counter):
        self.device, self.nbytes, self.counter, self.away = _device.of(elements), elements.nbytes, counter, False
        self._out(elements)
        TRAFFIC.went_out(self)

    @property
    def host(self):
        """The elements in host memory."""
        return self._host

    def _out(self, elements):
        self._host = _device.moved(elements, self.device, _device.CPU)
        TRAFFIC.left(self)

    def fetch(self):
        """Its elements on their device again, in new memory, for the current stream. Raises RuntimeError where that is captured."""
        _refuse_capture()
        found = _device.moved(self._host, _device.CPU, self.device)
        TRAFFIC.came_back(self)
        return found

    def __del__(self):
        if self.away:
            TRAFFIC.dropped(self)


class Pinned(Offloaded):
    """Offloaded, in page-locked memory. `prefetch` and `ahead`: save_on_cpu's prefetch and ahead_bytes."""

    __slots__ = ("prefetch", "ahead", "_buffer", "_leaving")

    def __init__(self, elements, counter, prefetch, ahead):
        self.prefetch, self.ahead = prefetch, ahead
        super().__init__(elements, counter)
        kept[id(self)] = self.nbytes

    def _out(self, elements):
        with _device.guard(self.device):
            _refuse_capture()
            lanes = _lanes_of(self.device)
            self._buffer = pool.take(self.nbytes)
            pinned = self._buffer.of
            self._host = np.frombuffer(_device.cupy.cuda.PinnedMemoryPointer(pinned.memory, 0), np.uint8, self.nbytes)
            stream = _device.cupy.cuda.get_current_stream()
            with lanes.lock:
                lanes.settle(self.ahead - self.nbytes)
                elements = elements.copy()
                lanes.out.wait_event(stream.record())
                if pinned.last is not None:
                    lanes.out.wait_event(pinned.last)
                start = lanes.out.record()
                elements.data.copy_to_host_async(pinned.memory.ptr, self.nbytes, lanes.out)
                pinned.last = lanes.out.record()
                TRAFFIC.copying(self.device, start, pinned.last)
                self._leaving = _Leaving(elements, stream, pinned.last, self)
                lanes.leaving.append(self._leaving)

    def coming(self) -> Coming:
        """Start the copy back, into memory of the current stream. Raises RuntimeError where that is captured."""
        with _device.guard(self.device):
            _refuse_capture()
            lanes = _lanes_of(self.device)
            pinned, stream = self._buffer.of, _device.cupy.cuda.get_current_stream()
            with lanes.lock:
                lanes.let_go(self._leaving)
                lanes.settle()
                flat = _device.cupy.empty(self.nbytes, np.uint8)
                lanes.back.wait_event(stream.record())           # what used this memory before has ended by then
                lanes.back.wait_event(self._leaving.done)
                start = lanes.back.record()
                flat.data.copy_from_host_async(pinned.memory.ptr, self.nbytes, lanes.back)
                pinned.last = done = lanes.back.record()
                TRAFFIC.copying(self.device, start, done)
        TRAFFIC.came_back(self)
        return Coming(flat, stream, done, self.device)

    def fetch(self):
        return self.coming().received()

    def __del__(self):
        kept.pop(id(self), None)
        super().__del__()


_coming: dict[int, tuple[Any, Any, Any]] = {}    # by id of a Coming: (elements, their stream, event). Held here for the reason in _Buffer


class Coming:
    """Elements that are being copied back, into memory of `stream`, which waits for that before they are used, or freed."""

    __slots__ = ("_device",)

    def __init__(self, flat, stream, done, device):
        self._device = device
        _coming[id(self)] = flat, stream, done

    def received(self):
        """The elements, for the current stream; None where that is not theirs."""
        flat, stream, done = _coming[id(self)]
        with _device.guard(self._device):
            if stream.ptr != _device.cupy.cuda.get_current_stream().ptr:
                return None
            if done is not None:
                timed_wait(stream, done)
                _coming[id(self)] = flat, stream, None
        return flat

    def __del__(self):
        _, stream, done = _coming.pop(id(self))
        if done is not None:                 # nobody took them: an error came between
            with _device.guard(self._device):
                stream.wait_event(done)


# ------------------------------------------------------------------------------------------------------------------ layouts

class Part:
    """How an array lies in what was offloaded: several may share that, such as a tensor and its transpose."""

    __slots__ = ("whole", "shape", "strides", "dtype", "__weakref__")

    def __init__(self, whole, array):
        self.whole, self.shape, self.strides, self.dtype = whole, array.shape, array.strides, array.dtype

    def over(self, elements):
        """The array over fetched elements."""
        return _device.cupy.ndarray(self.shape, self.dtype, elements.data, self.strides)


def _elements(array):
    """The elements of an array in the order of its memory, in one dimension; None where they have gaps or overlap."""
    dense = array.transpose(sorted(range(array.ndim), key=lambda k: -array.strides[k]))
    return dense.reshape(-1) if dense.flags.c_contiguous else None


class Store:
    """What was put into host memory, to be put there once: the same bytes, at the same version of their memory."""

    def __init__(self, make):
        self._make = make                    # make(elements, counter): an Offloaded
        self._found: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    def put(self, array, counter) -> Part:
        """A CUDA array in host memory. `counter`: its memory's."""
        version = id(counter), counter.count, getattr(counter, "moved", 0)       # .data may bring other values to an address that is free
        layout = (*version, array.data.ptr, array.shape, array.strides, array.dtype)
        part = self._found.get(layout)
        if part is None:
            part = self._found[layout] = self._part(array, counter, version)
        else:
            TRAFFIC.count(duplicate=array.nbytes)
        return part

    def _part(self, array, counter, version):
        elements = _elements(array)
        if elements is None:                 # another part of its memory may be saved, too: this one is on its own
            with _device.guard(_device.of(array)):
                array = array.copy(_device.order_of(array))
            return Part(self._make(_elements(array), counter), array)
        span = (*version, elements.data.ptr, elements.nbytes)
        whole = self._found.get(span)
        if whole is None:
            whole = self._found[span] = self._make(elements, counter)
        else:
            TRAFFIC.count(duplicate=array.nbytes)
        return Part(whole, array)
