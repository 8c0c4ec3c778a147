"""What offloading has moved: counts, bytes, peaks and how much of the copies' time was hidden."""
from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any

from autograd_gpu import devices as _device


@dataclasses.dataclass(frozen=True)
class OffloadReport:
    """What save_on_cpu has done since the last reset. `print` shows it.

    bytes_out, copies_out, bytes_in, copies_in: what was copied to host memory and back. A value that several nodes save is copied once:
    duplicates and duplicate_bytes count the others. stayed: how many values stayed on their device, by the reason (leaf, small, cpu).
    peak_bytes: the most that CuPy's pools had in use whenever a copy began; peak_bytes_without: the same with each value that lay in
    host memory only added, the memory that it would have taken without offloading. Both are sums over devices.
    copy_ms: the time in which copies ran, by the devices' events; stall_ms: how long streams waited for them. host_bytes, and of them
    free_host_bytes: page-locked memory that the pool holds now.
    """

    bytes_out: int
    copies_out: int
    bytes_in: int
    copies_in: int
    duplicates: int
    duplicate_bytes: int
    stayed: dict[str, int]
    peak_bytes: int
    peak_bytes_without: int
    copy_ms: float
    stall_ms: float
    host_bytes: int
    free_host_bytes: int

    @property
    def overlapped(self) -> float | None:
        """The share of the copies' time in which no stream waited for them; None where nothing was timed."""
        return max(0.0, 1 - self.stall_ms / self.copy_ms) if self.copy_ms else None

    def __str__(self):
        hidden = "not timed" if self.overlapped is None else f"{self.overlapped:.0%} of {self.copy_ms:.3g} ms hidden"
        stayed = ", ".join(f"{n} {why}" for why, n in self.stayed.items() if n) or "none"
        return (f"offloaded: {self.bytes_out:,} bytes in {self.copies_out} copies out, {self.bytes_in:,} in {self.copies_in} back\n"
                f"avoided:   {self.duplicates} duplicates of {self.duplicate_bytes:,} bytes; stayed on their device: {stayed}\n"
                f"peak:      {self.peak_bytes:,} bytes on devices, {self.peak_bytes_without:,} without offloading\n"
                f"copies:    {hidden}\n"
                f"host:      {self.host_bytes:,} bytes page-locked, {self.free_host_bytes:,} of them free")


class _Traffic:
    """The counters behind the report."""

    def __init__(self):
        self._lock = threading.Lock()        # guards the fields below
        self._gone: collections.deque[tuple[int, int]] = collections.deque()     # (device index, bytes) of values that were dropped
        self._away: collections.Counter[int] = collections.Counter()             # bytes that are in host memory only, by device
        self.reset()

    def reset(self):
        with self._lock:
            self._counts: collections.Counter[str] = collections.Counter()
            self._stayed: collections.Counter[str] = collections.Counter()
            self._peak: collections.Counter[int] = collections.Counter()         # by device, as is the next
            self._without: collections.Counter[int] = collections.Counter()
            self._ms: dict[str, float] = {"copy_ms": 0.0, "stall_ms": 0.0}
            self._timed: collections.deque[Any] = collections.deque(maxlen=10_000)

    def count(self, stayed=None, duplicate=0):
        """A value that was not copied: because of why it stayed, or as so many bytes of it were copied already."""
        with self._lock:
            if stayed:
                self._stayed[stayed] += 1
            else:
                self._counts["duplicates"] += 1
                self._counts["duplicate_bytes"] += duplicate

    def _sample(self, index):
        while self._gone:
            device, nbytes = self._gone.popleft()
            self._away[device] -= nbytes
        used = _device.cupy.get_default_memory_pool().used_bytes()
        self._peak[index] = max(self._peak[index], used)
        self._without[index] = max(self._without[index], used + self._away[index])

    def went_out(self, value):
        """A value was copied to host memory."""
        self._moved(value, "out")

    def left(self, value):
        """The device's memory of a value is free."""
        with self._lock:
            value.away = True
            self._away[value.device.index] += value.nbytes

    def came_back(self, value):
        """A value was copied back. From the first time on it counts as on its device."""
        self._moved(value, "in")

    def _moved(self, value, way):
        with self._lock, _device.guard(value.device):
            self._counts["bytes_" + way] += value.nbytes
            self._counts["copies_" + way] += 1
            if way == "in" and value.away:
                value.away = False
                self._away[value.device.index] -= value.nbytes
            self._sample(value.device.index)

    def dropped(self, value):
        """A value that is away is needed no more. Takes no lock: a finaliser calls it."""
        self._gone.append((value.device.index, value.nbytes))

    def copying(self, device, start, end):
        self._time("copy_ms", device, start, end)

    def waiting(self, device, start, end):
        self._time("stall_ms", device, start, end)

    def _time(self, what, device, start, end):
        with self._lock:
            self._timed.append((what, device, start, end))
            self._add_up()

    def _add_up(self):
        """Turn events that have passed into milliseconds."""
        while self._timed and self._timed[0][3].done:
            what, device, start, end = self._timed.popleft()
            with _device.guard(device):
                self._ms[what] += _device.cupy.cuda.get_elapsed_time(start, end)

    def report(self, host_bytes, free_host_bytes):
        with self._lock:
            self._add_up()
            counts = {name: self._counts[name] for name in (
                "bytes_out", "copies_out", "bytes_in", "copies_in", "duplicates", "duplicate_bytes")}
            return OffloadReport(
                **counts, stayed=dict(self._stayed), peak_bytes=sum(self._peak.values()), peak_bytes_without=sum(self._without.values()),
                copy_ms=self._ms["copy_ms"], stall_ms=self._ms["stall_ms"], host_bytes=host_bytes, free_host_bytes=free_host_bytes)


TRAFFIC = _Traffic()


def timed_wait(stream, event):
    """Make a stream wait for an event, and note for how long it does. The stream's device is current."""
    if event.done:
        return
    device = _device.Device("cuda", _device.cupy.cuda.Device().id)
    start = stream.record()
    stream.wait_event(event)
    TRAFFIC.waiting(device, start, stream.record())
