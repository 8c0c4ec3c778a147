"""Arrays of a CUDA device kept in host memory until they are wanted back."""
from __future__ import annotations

import collections
import threading
from typing import Any

import numpy as np

from autograd_gpu import devices as _device

_in_flight: collections.deque[tuple[Any, Any]] = collections.deque()     # (event, memory) of copies that a device may not have made yet
_lock = threading.Lock()                     # guards _in_flight


def _hold(event, memory):
    """Keep page-locked memory from being used again before the copy that ends with the event."""
    with _lock:
        while _in_flight and _in_flight[0][0].done:
            _in_flight.popleft()
        _in_flight.append((event, memory))


class Offloaded:
    """The values of a CUDA array in host memory, laid out as they were.

    `pinned`: in page-locked memory, so that the host need not wait for the copies; each is ordered on the stream that is current.
    """

    __slots__ = ("_host", "_device", "_pinned", "_done", "__weakref__")

    def __init__(self, array, pinned: bool):
        self._device, self._pinned, self._done = _device.of(array), pinned and array.size > 0, None
        self._host = _device.copy(array, _device.CPU, self._out if self._pinned else _device.moved)

    @property
    def host(self):
        """The values in host memory."""
        return self._host

    def restore(self):
        """The values on their device again, in new memory."""
        return _device.copy(self._host, self._device, self._back if self._pinned else _device.moved)

    def _out(self, array, here, where):
        with _device.guard(here):
            memory = _device.cupy.cuda.alloc_pinned_memory(array.nbytes)
            host = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
            stream = _device.cupy.cuda.get_current_stream()
            array.data.copy_to_host_async(host.ctypes.data, array.nbytes, stream)
            self._done = stream.record()
        _hold(self._done, memory)
        return host

    def _back(self, array, here, where):
        with _device.guard(where):
            found = _device.cupy.empty(array.shape, array.dtype)
            stream = _device.cupy.cuda.get_current_stream()
            stream.wait_event(self._done)
            found.data.copy_from_host_async(array.ctypes.data, array.nbytes, stream)
            _hold(stream.record(), array)
        return found
