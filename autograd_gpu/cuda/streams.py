"""Streams and events under torch.cuda's names; they stand on CuPy's, so that each side's current stream is the other's.

What is put on a stream runs in order, and apart from what is put on another: where one uses what another makes, it waits for an event.
CuPy's pool gives a freed block out again to the stream that it was made on, at once. What another stream may still use is therefore
held (`keep`) until that stream has passed, without making anybody wait.
"""
from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.devices import Device, guard


def _only_one(self, protocol):
    """__reduce_ex__ of what is the driver's: who holds a copy would destroy it, too."""
    raise TypeError(f"cannot pickle or copy a cuda.{type(self).__name__}: make another one")


class Stream:
    """A queue of work of one CUDA device: a new one, which does not wait for the default stream; `with stream:` makes it current.

    device: the current one unless given, or for a negative number. priority: lower numbers come first. Two are equal if they name the
    same queue of the driver. Raises: RuntimeError without CUDA. Reference: torch.cuda.Stream.
    """

    __slots__ = ("device", "_cupy", "__weakref__")
    device: Device
    _cupy: Any                               # CuPy's stream; that of the default stream is the same object on every device

    def __new__(cls, device=None, priority=0):
        where = _device.cuda_device(device)
        with guard(where):
            return _known(where.index, _device.cupy.cuda.Stream(non_blocking=True, priority=priority))

    @property
    def cuda_stream(self) -> int:
        """The driver's pointer."""
        return self._cupy.ptr

    @property
    def device_index(self) -> int:
        """The number of its device."""
        return self.device.index or 0

    @property
    def priority(self) -> int:
        """Its priority: lower numbers come first."""
        return self._cupy.priority

    def __cuda_stream__(self):
        return 0, self._cupy.ptr

    __reduce_ex__ = _only_one

    def is_capturing(self) -> bool:
        """Whether what is put on it goes into a CUDA graph; the default stream cannot be captured."""
        return self._cupy.ptr > 1 and bool(self._cupy.is_capturing())

    def __eq__(self, other):
        return self is other or isinstance(other, Stream) and self.device is other.device and self._cupy.ptr == other._cupy.ptr

    def __hash__(self):
        return hash((self.device.index, self._cupy.ptr))

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self):
        _device.cupy.cuda.Device(self.device.index).__enter__()
        self._cupy.__enter__()
        return self

    def __exit__(self, *exc_info):
        self._cupy.__exit__(*exc_info)       # CuPy keeps what was current before, for each thread
        _device.cupy.cuda.Device(self.device.index).__exit__(*exc_info)

    def mark(self):
        """A CuPy event of what is on this stream by now, without timing."""
        with guard(self.device):
            return self._cupy.record(_device.cupy.cuda.Event(disable_timing=True))

    def wait_for(self, event) -> None:
        """wait_event for a CuPy event."""
        with guard(self.device):             # a null stream is that of the current device
            self._cupy.wait_event(event)

    def wait_event(self, event) -> None:
        """What is put on this stream from now on runs after an event. The host does not wait. Reference: torch.cuda.Stream.wait_event."""
        event.wait(self)

    def wait_stream(self, stream) -> None:
        """What is put on this stream from now on runs after what is on another by now. Reference: torch.cuda.Stream.wait_stream."""
        self.wait_for(as_stream("wait_stream", stream).mark())

    def record_event(self, event=None):
        """Record an event, a new one unless given, and return it. Reference: torch.cuda.Stream.record_event."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all that was put on it is done. Reference: torch.cuda.Stream.query."""
        with guard(self.device):
            return self._cupy.done

    def synchronize(self) -> None:
        """Let the host wait until all that was put on it is done.

        Raises: IndexError for an index that was out of range there. Reference: torch.cuda.Stream.synchronize.
        """
        with guard(self.device):
            self._cupy.synchronize()
        _device.raise_reported(self.device)


class _Foreign:
    """CuPy takes another library's stream by its protocol."""

    def __init__(self, pointer):
        self._pointer = pointer

    def __cuda_stream__(self):
        return 0, self._pointer


class ExternalStream(Stream):
    """Another library's stream, by the driver's pointer. Whoever made it keeps it while this is in use.

    Raises: RuntimeError without CUDA. Reference: torch.cuda.ExternalStream.
    """

    __slots__ = ()

    def __new__(cls, stream_ptr, device=None):
        where = _device.cuda_device(device)
        return _made(cls, where, _taken(where.index, _Foreign(stream_ptr)) if stream_ptr else _device.cupy.cuda.Stream.null)


_latest: dict[int, Stream] = {}              # by device: the stream that was asked for last, which is nearly always the one asked for next
_streams: weakref.WeakValueDictionary[tuple[int, int], Stream] = weakref.WeakValueDictionary()


def _taken(index, stream):
    """CuPy's stream over another library's."""
    of_cupy = _device.cupy.cuda
    with guard(Device("cuda", index)):
        if hasattr(of_cupy.Stream, "from_external"):
            return of_cupy.Stream.from_external(stream)
        return of_cupy.ExternalStream(stream.__cuda_stream__()[1], index)        # CuPy 13


def _made(cls, where, stream):
    made = object.__new__(cls)
    made.device, made._cupy = where, stream
    return made


def _known(index, stream):
    """The Stream over a CuPy stream of a device: the same object while anybody has it."""
    found = _streams.get((index, stream.ptr))
    if found is None or found._cupy is not stream:
        found = _streams[index, stream.ptr] = _made(Stream, Device("cuda", index), stream)
    _latest[index] = found
    return found


def current(index: Any) -> Stream:
    """The current stream of a device by its number."""
    stream, found = _device.cupy.cuda.get_current_stream(index), _latest.get(index)
    return found if found is not None and found._cupy is stream else _known(index, stream)


def here() -> Stream:
    """The current stream of the current device."""
    return current(_device.cupy.cuda.runtime.getDevice())


def at(where: Device) -> Stream | None:
    """The current stream of a device; None for the CPU."""
    return None if where.type == "cpu" else current(where.index)


def as_stream(name, stream) -> Stream:
    """A Stream for whatever names one: CuPy's, or what has __cuda_stream__, which is of the current device. Raises TypeError for others."""
    if isinstance(stream, Stream):
        return stream
    index = _device.current_device()
    if isinstance(stream, (_device.cupy.cuda.Stream, _device.cupy.cuda.ExternalStream)):
        return _known(stream.device_id if stream.device_id >= 0 else index, stream)
    if not hasattr(stream, "__cuda_stream__"):
        raise TypeError(f"{name}(): expected a Stream, CuPy's or an object with __cuda_stream__, not {type(stream).__name__}")
    return _known(index, _taken(index, stream))


def current_stream(device=None) -> Stream:
    """The stream on which a device's work is put in this thread. Raises RuntimeError without CUDA. Reference: torch.cuda.current_stream."""
    return current(_device.cuda_device(device).index)


def default_stream(device=None) -> Stream:
    """The stream that is current unless another was set. Raises RuntimeError without CUDA. Reference: torch.cuda.default_stream."""
    return _known(_device.cuda_device(device).index, _device.cupy.cuda.Stream.null)


def set_stream(stream) -> None:
    """Make a stream current in this thread, and its device; None does nothing. Reference: torch.cuda.set_stream."""
    if stream is not None:
        stream = as_stream("set_stream", stream)
        _device.set_device(stream.device)
        stream._cupy.use()


class StreamContext:
    """A block in which a stream is current in this thread, and its device; None changes nothing. Reference: torch.cuda.StreamContext."""

    def __init__(self, stream):
        self.stream = None if stream is None else as_stream("stream", stream)

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc_info):
        if self.stream is not None:
            self.stream.__exit__(*exc_info)


def stream(stream) -> StreamContext:
    """A block in which a stream is current in this thread, and its device; None changes nothing.

    Raises: TypeError for what is no stream. Reference: torch.cuda.stream.
    """
    return StreamContext(stream)


class Event:
    """A point in a stream's work, which others can wait for. It is made when it is first recorded, on that stream's device.

    enable_timing: elapsed_time may be asked. blocking: synchronize() lets the host's thread sleep. interprocess: for other processes.
    Reference: torch.cuda.Event.
    """

    __slots__ = ("_options", "_cupy", "device", "_timed")
    device: Device | None

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if enable_timing and interprocess:
            raise ValueError("Event(): an event of several processes has no timing: leave enable_timing or interprocess out")
        self._options = {"block": blocking, "disable_timing": not enable_timing, "interprocess": interprocess}
        self._timed, self._cupy, self.device = enable_timing, None, None

    __reduce_ex__ = _only_one

    def __repr__(self):
        return f"<torch.cuda.Event {'uninitialized' if self._cupy is None else f'{self.cuda_event:#x}'}>"

    @property
    def cuda_event(self) -> int:
        """The driver's pointer; 0 before it was recorded."""
        return 0 if self._cupy is None else self._cupy.ptr

    def record(self, stream=None) -> None:
        """Record it on a stream, by default the current one: it is done when all that is there by now is.

        Raises: RuntimeError on a stream of another device than before. Reference: torch.cuda.Event.record.
        """
        stream = current_stream() if stream is None else as_stream("record", stream)
        if self.device not in (None, stream.device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}: use one event for "
                               f"each device")
        with guard(stream.device):
            if self._cupy is None:
                self._cupy, self.device = _device.cupy.cuda.Event(**self._options), stream.device
            stream._cupy.record(self._cupy)

    def wait(self, stream=None) -> None:
        """Let a stream, by default the current one, wait for it, and not the host. Nothing to wait for before it was recorded.

        Reference: torch.cuda.Event.wait.
        """
        stream = current_stream() if stream is None else as_stream("wait", stream)
        if self._cupy is not None:
            stream.wait_for(self._cupy)

    def query(self) -> bool:
        """Whether all that it was recorded after is done. Reference: torch.cuda.Event.query."""
        return self._cupy is None or self._cupy.done

    def synchronize(self) -> None:
        """Let the host wait for it. Raises IndexError for an index that was out of range there. Reference: torch.cuda.Event.synchronize."""
        if self._cupy is not None:
            self._cupy.synchronize()
            _device.raise_reported(self.device)

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds from this event to another.

        Raises: RuntimeError where one has no timing, was not recorded or is not done yet. Reference: torch.cuda.Event.elapsed_time.
        """
        if not (self._timed and end_event._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._cupy is None or end_event._cupy is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time: synchronize() the later one first.")
        return _device.cupy.cuda.get_elapsed_time(self._cupy, end_event._cupy)


def synchronize(device=None) -> None:
    """Wait until a CUDA device has done all its work.

    Raises: RuntimeError without CUDA, IndexError for an index that was out of range there. Reference: torch.cuda.synchronize.
    """
    where = _device.cuda_device(device)
    _device.cupy.cuda.Device(where.index).synchronize()
    let_go()
    _device.raise_reported(where)


# ---------------------------------------------------------------------------------------------------------- memory in use

_users: dict[int, tuple[Any, Any, set[Stream]]] = {}         # id of an array that owns memory: weak reference, memory, streams that use it
_in_flight: collections.deque[tuple[list[Any], Any]] = collections.deque()       # (events, memory) that a device may still be using
_patient: list[Any] = []                     # the allocator that _allocate stands in for, once something was held
_lock = threading.RLock()                    # guards these; a finaliser may come while this thread has it
captures: list[list[Any]] = []               # what each CUDA graph that is being captured keeps of the memory dropped meanwhile


def keep(array, stream: Stream) -> None:
    """Have the memory of a CuPy array held, when nobody has it any more, until what a stream has got by then is done."""
    root = array if array.base is None else array.base
    with _lock:
        found = _users.get(id(root))
        if found is None or found[0]() is not root:
            key = id(root)
            found = _users[key] = weakref.ref(root, lambda _: _ended(key)), root.data.mem, set()
        found[2].add(stream)


def _ended(key):
    with _lock:
        _, memory, used = _users.pop(key)
    hold(used, memory)


def hold(streams, memory) -> None:
    """Keep memory from being used again before what streams have by now is done. Whoever finds none left waits for it, and tries again."""
    if capture := captures[-1:]:             # an event of a capture cannot be asked whether it has passed
        capture[0].append(memory)
        return
    events = [s.mark() for s in streams]
    with _lock:
        if not _patient:
            _patient.append(_device.cupy.cuda.get_allocator())
            try:
                _device.cupy.cuda.set_allocator(_allocate)
            except ValueError:               # inside of CuPy's using_allocator: the next time, then
                _patient.clear()
        let_go()
        _in_flight.append((events, memory))


def let_go(wait=False) -> bool:
    """Give up the memory whose events have passed, or all of it once they have. Returns whether there was any."""
    with _lock:
        before = len(_in_flight)
        while _in_flight and (wait or all([e.done for e in _in_flight[0][0]])):
            for event in _in_flight[0][0] if wait else ():
                event.synchronize()
            _in_flight.popleft()
        return len(_in_flight) < before


def _allocate(size):
    try:
        return _patient[0](size)
    except _device.cupy.cuda.memory.OutOfMemoryError:
        if not let_go(wait=True):
            raise
        return _patient[0](size)


# ----------------------------------------------------------------------------------------------------------- other libraries

class _Described:
    """What an object's __cuda_array_interface__ says but for the stream: CuPy would let the host wait for that."""

    def __init__(self, owner, described):
        self._owner = owner                  # the array's memory holds this object
        self.__cuda_array_interface__ = {key: value for key, value in described.items() if key != "stream"}


def shared(owner):
    """The CuPy array over memory that an object offers by __cuda_array_interface__, ordered behind the stream that this names."""
    _device.cuda_device(None)
    described = owner.__cuda_array_interface__
    pointer, named = described["data"][0], described.get("stream")
    index = _device.cupy.cuda.runtime.pointerGetAttributes(pointer).device if pointer else _device.current_device()
    if named is not None:
        current(index).wait_stream(ExternalStream(named, index))
    with guard(Device("cuda", index)):
        found = _device.cupy.asarray(_Described(owner, described))
    keep(found, current(index))              # its owner would not wait for what is done with it here
    return found


# ------------------------------------------------------------------------------------------------------------- other threads

class Surroundings:
    """What of the current thread work on devices depends on: the device of new tensors, the current CUDA device, the streams."""

    __slots__ = ("_choices", "streams", "_current")

    def __init__(self):
        self._choices = _device.choices()
        self.streams = [current(index) for index in range(_device.device_count())]
        self._current = here() if self.streams else None

    def wait_for(self, other: Surroundings) -> None:
        """Have these streams go on after what those of another thread, or time, have by now."""
        for own, before in zip(self.streams, other.streams, strict=True):
            if own != before:
                own.wait_stream(before)

    @contextlib.contextmanager
    def on(self, stream: Stream | None = None):
        """In another thread: work as that one would, on its current stream or on another."""
        before = _device.choices()
        _device.choose(self._choices)
        try:
            with contextlib.ExitStack() as entered:
                for each in (*self.streams, stream or self._current):
                    if each is not None:
                        entered.enter_context(each)
                yield
        finally:
            _device.choose(before)
