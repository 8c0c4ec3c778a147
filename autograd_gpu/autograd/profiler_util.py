"""What a profile found: events, averages over them, as a table and as a trace."""
from __future__ import annotations

import collections
import operator
from json import dump
from typing import Any, NamedTuple

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


def time_text(us: float) -> str:
    """Microseconds as text in the unit that suits them."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


def memory_text(nbytes: int) -> str:
    """Bytes as text in the unit that suits them."""
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def shortened(text: str, width: int | None) -> str:
    """Text of at most so many letters."""
    return text if width is None or len(text) <= width else text[:width - 3] + "..."


def _end_of(text: str, width: int) -> str:
    """The last letters of a text, at most so many."""
    return text if len(text) <= width else "..." + text[3 - width:]


def text_table(rows: list[list[str]], left: tuple[int, ...] = ()) -> list[str]:
    """Lines of a table whose first row is its head, columns as wide as they need be; those numbered in `left` start at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "  ".join(["-" * width for width in widths])
    lines = ["  ".join([cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))])
             for row in rows]
    return [rule, lines[0], rule, *lines[1:], rule]


class Interval(NamedTuple):
    """From when to when, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


class _Times:
    """What events and averages of events both have, from their totals. `saved` are bytes kept for backward."""

    count: int
    cpu_time_total: Any
    device_time_total: Any
    self_cpu_time_total: Any
    self_device_time_total: Any

    @property
    def cpu_time(self) -> float:
        """Host time of one call, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Device time of one call, in microseconds."""
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time = device_time
    cuda_time_total = property(operator.attrgetter("device_time_total"))
    self_cuda_time_total = property(operator.attrgetter("self_device_time_total"))
    cpu_time_str = property(lambda self: time_text(self.cpu_time))
    cpu_time_total_str = property(lambda self: time_text(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: time_text(self.self_cpu_time_total))
    device_time_str = property(lambda self: time_text(self.device_time))
    device_time_total_str = property(lambda self: time_text(self.device_time_total))
    self_device_time_total_str = property(lambda self: time_text(self.self_device_time_total))


class FunctionEvent(_Times):
    """One call: of an operation, of a node in backward, or of a block named by record_function. Times are in microseconds.

    `thread` is a number by thread, `sequence_nr` that of the node which the call made or ran, or -1; `saved` the bytes that the call newly
    kept for backward, `self_saved` those that none of its `cpu_children` did. Reference: torch.autograd.profiler.FunctionEvent.
    """

    is_async = is_remote = False
    count = 1

    def __init__(self, id: int, name: str, time_range: Interval, thread: int, *, input_shapes=(), stack=(), scope=0, sequence_nr=-1,
                 device_time_total=0.0, self_saved=0, use_device=None):
        self.id, self.name, self.time_range, self.thread = id, name, time_range, thread
        self.input_shapes, self.stack, self.scope, self.sequence_nr = list(input_shapes), list(stack), scope, sequence_nr
        self.device_time_total, self.self_saved, self.use_device = device_time_total, self_saved, use_device
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    @property
    def key(self) -> str:
        """What events are put together by."""
        return self.name

    @property
    def cpu_time_total(self) -> float:
        """Host time, with that of the calls inside."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Host time without that of the calls inside."""
        return self.cpu_time_total - sum([child.cpu_time_total for child in self.cpu_children])

    @property
    def self_device_time_total(self) -> float:
        """Device time without that of the calls inside."""
        return self.device_time_total - sum([child.device_time_total for child in self.cpu_children])

    @property
    def saved(self) -> int:
        """Bytes kept for backward, with those of the calls inside."""
        return self.self_saved + sum([child.saved for child in self.cpu_children])

    def __repr__(self):
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} start_us={self.time_range.start:.3f} "
                f"end_us={self.time_range.end:.3f} cpu_children={[child.id for child in self.cpu_children]} thread={self.thread} "
                f"input_shapes={self.input_shapes} seq_nr={self.sequence_nr} saved={self.saved}>")


_SUMMED = "count", "saved", "self_saved", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"


class FunctionEventAvg(_Times):
    """The sums over events of one key. Reference: torch.autograd.profiler_util.FunctionEventAvg."""

    is_async = is_remote = False

    def __init__(self, key: str = "", input_shapes="", stack=()):
        self.key, self.input_shapes, self.stack = key, input_shapes, list(stack)
        self.count = self.saved = self.self_saved = 0
        self.cpu_time_total = self.self_cpu_time_total = self.device_time_total = self.self_device_time_total = 0.0

    def add(self, other: Any) -> FunctionEventAvg:
        """Add an event, or another average."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self):
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
                f"self_device_time={self.self_device_time_total_str} device_time={self.device_time_str} input_shapes={self.input_shapes} "
                f"saved={self.saved}>")


class EventList(list):
    """Events, or averages of them. Reference: torch.autograd.profiler_util.EventList."""

    def __init__(self, events=(), threads: dict[int, str] | None = None, profile_memory: bool = False):
        super().__init__(events)
        self._threads, self._profile_memory = threads or {}, profile_memory

    def __str__(self):
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all of them."""
        return sum([event.self_cpu_time_total for event in self])

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0) -> EventList:
        """One average for all events of a name; or of a name and input shapes, or of one and the innermost n lines of its stack.

        Reference: torch.autograd.profiler.profile.key_averages.
        """
        found: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            shapes, stack = event.input_shapes if group_by_input_shapes else "", event.stack[:group_by_stack_n]
            average = found.setdefault((event.key, str(shapes), *stack), FunctionEventAvg(event.key, shapes, stack))
            average.add(event)
        return EventList(found.values(), profile_memory=self._profile_memory)

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events. Reference: torch.autograd.profiler.profile.total_average."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        total.saved = total.self_saved       # what is inside of others is among them already
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False) -> str:
        """A table like PyTorch's. sort_by: an attribute such as "self_cpu_time_total", largest first. row_limit -1: no limit.

        Stacks stand in a column, the innermost line first. "Saved" is what an operation keeps for backward, under profile_memory.
        Raises AttributeError for an attribute that there is not.
        Reference: torch.autograd.profiler.profile.table.
        """
        if not self:
            return ""
        events = list(self) if sort_by is None else sorted(self, key=operator.attrgetter(sort_by), reverse=True)
        if top_level_events_only:
            events = [event for event in events if getattr(event, "cpu_parent", None) is None]
        total, on_device = self.self_cpu_time_total, sum([event.self_device_time_total for event in self])
        shaped, stacked = any([event.input_shapes for event in self]), any([event.stack for event in self])
        rows = [["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]]
        if on_device:
            rows[0] += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"]
        rows[0] += ["Saved", "Self Saved"] * self._profile_memory + ["# of Calls"] + ["Input Shapes"] * shaped
        rows[0] += ["Source Location"] * stacked
        for event in events if row_limit < 0 else events[:row_limit]:
            row = [shortened(event.key, max_name_column_width), _percent(event.self_cpu_time_total, total), event.self_cpu_time_total_str,
                   _percent(event.cpu_time_total, total), event.cpu_time_total_str, event.cpu_time_str]
            if on_device:
                row += [event.self_device_time_total_str, _percent(event.self_device_time_total, on_device), event.device_time_total_str,
                        event.device_time_str]
            row += [memory_text(event.saved), memory_text(event.self_saved)] * self._profile_memory + [str(event.count)]
            row += [shortened(str(event.input_shapes or "[]"), max_shapes_column_width)] * shaped
            located = [_end_of(line, max_src_column_width) for line in event.stack] or [""] * stacked
            rows.append(row + located[:1])
            rows += [[""] * len(row) + [line] for line in located[1:]]
        left = (len(rows[0]) - 1,) if stacked else ()
        lines = [*([] if header is None else [header]), *text_table(rows, left), f"Self CPU time total: {time_text(total)}"]
        return "\n".join(lines + [f"Self CUDA time total: {time_text(on_device)}"] * bool(on_device)) + "\n"

    def export_stacks(self, path, metric: str = "self_cpu_time_total") -> None:
        """Write a line for each event: its stack, outermost first, and its microseconds, as FlameGraph and speedscope.app read it.

        metric: "self_cpu_time_total" or "self_cuda_time_total". Raises: ValueError for another.
        Reference: torch.autograd.profiler.profile.export_stacks.
        """
        metrics = ["self_cpu_time_total", "self_cuda_time_total"]
        if metric not in metrics:
            raise ValueError(f"metric should be one of: {metrics}")
        blanks = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                spent = int(getattr(event, metric))
                if event.stack and spent > 0:
                    file.write(";".join([line.translate(blanks) for line in reversed(event.stack)]) + f" {spent}\n")

    def export_chrome_trace(self, path) -> None:
        """Write the events as JSON for chrome://tracing and Perfetto; an arrow leads from each operation to its node's run in backward.

        Reference: torch.autograd.profiler.profile.export_chrome_trace.
        """
        trace: list[dict[str, Any]] = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": name}}
                                       for number, name in self._threads.items()]
        made: dict[int, FunctionEvent] = {}
        for event in self:
            trace.append({"ph": "X", "cat": "user_annotation" if event.scope == 7 else "cpu_op", "name": event.name, "pid": 0,
                          "tid": event.thread, "ts": event.time_range.start, "dur": event.cpu_time_total,
                          "args": {"Sequence number": event.sequence_nr, "Input Dims": event.input_shapes, "Saved bytes": event.saved,
                                   "Device time (us)": event.device_time_total}})
            if event.sequence_nr >= 0 and event.scope == 0:
                made[event.sequence_nr] = event
        for event in self:
            if event.scope == 1 and event.sequence_nr in made:
                for kind, end in (("s", made[event.sequence_nr]), ("f", event)):
                    trace.append({"ph": kind, "id": event.sequence_nr, "cat": "fwdbwd", "name": "fwdbwd", "pid": 0, "tid": end.thread,
                                  "ts": end.time_range.start, **({"bp": "e"} if kind == "f" else {})})
        with open(path, "w", encoding="utf-8") as file:
            dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace}, file)


def _percent(part, total):
    return f"{100 * part / total if total else 0:.2f}%"


def built(events: list[tuple[int, FunctionEvent]]) -> list[FunctionEvent]:
    """Events as a forest, given with the depth of each in its thread: in the order in which they began, numbered from 1."""
    events = sorted(events, key=lambda pair: (pair[1].time_range.start, pair[0]))
    open_at: dict[int, list[FunctionEvent]] = collections.defaultdict(list)
    for number, (depth, event) in enumerate(events, 1):
        event.id = number
        above = open_at[event.thread]
        del above[depth:]
        if above and event.time_range.end <= above[-1].time_range.end:
            event.cpu_parent = above[-1]
            above[-1].cpu_children.append(event)
        above.append(event)
    return [event for _, event in events]
