"""Where a program's time goes: every operation and every node of a backward, timed, under torch.autograd.profiler's names.

While a profile runs, the functions of the ops have other code, which notes the time around their own; so it sees each call, by whatever
name or method, in any thread, and costs nothing when it is over: the functions have their code back.
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
import types

from autograd_gpu import devices as _device
from autograd_gpu.autograd.memory import Counted
from autograd_gpu.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, Interval, built
from autograd_gpu.base import Tensor
from autograd_gpu.cuda.streams import current
from autograd_gpu.engine import deliver as _deliver
from autograd_gpu.engine.anomaly_mode import user_frames
from autograd_gpu.engine.grad_mode import everywhere
from autograd_gpu.ops.creation import FUNCTIONS
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import FIRST_CALL
from autograd_gpu.tree import flatten

__all__ = ["EventList", "FunctionEvent", "emit_nvtx", "profile", "record_function"]

FORWARD, BACKWARD, USER = 0, 1, 7            # `scope` of an event, as PyTorch numbers them


# ------------------------------------------------------------------------------------------------- functions with other code

def _entry(*args, **kwargs):
    call = "around"                          # a constant of this code, which _exchange replaces
    return call(args, kwargs)


def _exchange(function, around):
    """Make a function call `around(own, args, kwargs)`, where own() is what it was; returns what undoes it."""
    code = function.__code__
    if code is FIRST_CALL:
        return _exchange_later(function, around)
    own = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    own.__kwdefaults__ = function.__kwdefaults__

    def call(args, kwargs):
        return around(own, args, kwargs)
    constants = tuple([call if constant == "around" else constant for constant in _entry.__code__.co_consts])
    function.__code__ = _entry.__code__.replace(co_consts=constants, co_freevars=code.co_freevars, co_name=function.__name__)
    return functools.partial(setattr, function, "__code__", code)


def _exchange_later(function, around):
    """_exchange for a function of an op that has no code yet: it is written, then exchanged, when it is called."""
    names, undo = function.__globals__, []
    build = names["build"]

    def build_and_exchange():
        build()
        with _changing:
            if names["build"] is build_and_exchange:
                undo.append(_exchange(function, around))

    def put_back():
        names["build"] = build
        while undo:
            undo.pop()()
    names["build"] = build_and_exchange
    return put_back


def _functions():
    """{function: its name in a profile} of all that ops are called by, in-place forms and creation functions too."""
    found = {}
    for name, record in REGISTRY.items():
        shown = f"aten::{name.removesuffix('_function')}"
        found |= dict.fromkeys((record.function, record.operator, record.public), shown)
        if name + "_" in Tensor.__dict__:
            found[Tensor.__dict__[name + "_"]] = shown + "_"
    found |= {function: f"aten::{name}" for name, function in FUNCTIONS.items()}
    return {function: name for function, name in found.items() if isinstance(function, types.FunctionType)}      # a class makes tensors


_changing = threading.RLock()                # guards the code of the functions, and _running; a finaliser may call an op meanwhile
_running: _Watch | None = None


class _Watch:
    """A block in which begin() is called ahead of each op, node and record_function, and end() after it. One at a time."""

    def begin(self, name, scope, sequence_nr=-1, operands=()):
        """What end() is to be given."""
        raise NotImplementedError

    def end(self, begun, result=None):
        """The call returned this, or raised."""
        raise NotImplementedError

    def start(self):
        """Exchange the functions. Raises RuntimeError while another block runs, in whatever thread."""
        global _running
        with _changing:
            if _running is not None:
                raise RuntimeError("a profiler is running already, and only one can: leave its block first")
            with contextlib.ExitStack() as undo:
                for function, name in _functions().items():
                    undo.callback(_exchange(function, functools.partial(self._op, name)))
                undo.callback(_exchange(_deliver.visit, self._node))
                undo.callback(_exchange(_deliver.accumulate, self._leaf))
                self._undo = undo.pop_all()
            _running, everywhere.profiled = self, True

    def stop(self):
        """Give the functions their code back."""
        global _running
        with _changing:
            _running, everywhere.profiled = None, False
            self._undo.close()

    def _op(self, name, own, args, kwargs):
        return self._within(self.begin(name, FORWARD, operands=(*args, *kwargs.values())), own, args, kwargs)

    def _node(self, own, args, kwargs):
        """`visit(task, node, gradients)`: all that becomes of a node in a backward."""
        _, node, gradients = args
        return self._within(self.begin(node.name(), BACKWARD, node._seq, (gradients,)), own, args, kwargs)

    def _leaf(self, own, args, kwargs):
        """`accumulate(variable, gradient, shared)`: a gradient is added into a leaf's."""
        return self._within(self.begin("torch::autograd::AccumulateGrad", BACKWARD, operands=(args[1],)), own, args, kwargs)

    def _within(self, begun, own, args, kwargs):
        result = None
        try:
            result = own(*args, **kwargs)
            return result
        finally:
            self.end(begun, result)


# ---------------------------------------------------------------------------------------------------------------- profile

class _Here(threading.local):
    """What a profile knows of a thread: its number, and how many timed calls it is inside of."""

    depth = 0

    def __init__(self, threads):
        self.thread = next(threads.numbers)
        threads[self.thread] = threading.current_thread().name


class _Threads(dict):
    """The names of threads by their numbers: Python gives a thread's own number away when it ends."""

    def __init__(self):
        self.numbers = itertools.count(1)


class _Timed:
    """One call, as it is noted while the profile runs."""

    __slots__ = ("name", "scope", "sequence_nr", "thread", "depth", "shapes", "stack", "saved", "device", "marks", "start", "end")


class profile(_Watch):
    """Within the block every operation, in whatever thread, and every node of a backward is timed; afterwards this object tells.

    record_shapes: with the shapes of its inputs. profile_memory: with the bytes that it keeps for backward. with_stack: with the user's
    lines that led to it. What runs on a CUDA device is timed there too, between two events on its stream; that waits for nothing before
    the block's end. Other options of PyTorch's are accepted and change nothing.
    Raises: RuntimeError where a profile runs already. Reference: torch.autograd.profiler.profile.
    """

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
                 use_kineto: bool = False, use_cpu: bool = True, experimental_config=None, acc_events: bool = False):
        self.enabled, self.record_shapes, self.profile_memory, self.with_stack = enabled, record_shapes, profile_memory, with_stack
        self._events: EventList | None = None

    def __enter__(self):
        if self.enabled:
            self._found, self._counted, self._threads = [], Counted(), _Threads()
            self._here = _Here(self._threads)
            self.start()
            self._begun = time.perf_counter_ns()
        return self

    def __exit__(self, *exc_info):
        if self.enabled:
            self.stop()
            found, self._found = self._found, []
            self._events = EventList(built([(call.depth, self._event(call)) for call in found]), self._threads, self.profile_memory)

    def begin(self, name, scope, sequence_nr=-1, operands=()):
        call, here = _Timed(), self._here
        call.name, call.scope, call.sequence_nr, call.thread, call.depth, call.saved = name, scope, sequence_nr, here.thread, here.depth, 0
        here.depth += 1
        call.shapes = [_shape(x) for x in operands] if self.record_shapes else ()
        call.stack = user_frames() if self.with_stack else ()
        call.device = None if _device.cupy is None else _cuda_device(operands)
        call.marks = call.device and [_mark(call.device)]
        call.start = time.perf_counter_ns()
        return call

    def end(self, begun, result=None):
        begun.end = time.perf_counter_ns()
        self._here.depth -= 1
        if begun.device:
            begun.marks.append(_mark(begun.device))
        if isinstance(result, tuple) and result and result[0] is _deliver.NOTHING:
            return                           # visited, but not to run
        node = _made(result) if begun.scope == FORWARD else None
        if node is not None:
            begun.sequence_nr = node._seq
            begun.saved = self._counted.of(node) if self.profile_memory else 0
        self._found.append(begun)

    def _event(self, call):
        times = Interval((call.start - self._begun) / 1e3, (call.end - self._begun) / 1e3)
        stack = [f"{frame.filename}({frame.lineno}): {frame.name}" for frame in reversed(call.stack)]
        return FunctionEvent(0, call.name, times, call.thread, input_shapes=call.shapes, stack=stack, scope=call.scope,
                             sequence_nr=call.sequence_nr, self_saved=call.saved, use_device=call.device and "cuda",
                             device_time_total=_elapsed_us(call.device, *call.marks) if call.device else 0.0)

    # ------------------------------------------------------------------------------------------------------ what was found

    @property
    def function_events(self) -> EventList:
        """All events, in the order in which they began. Raises RuntimeError before the block has ended."""
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running: ask it after its block, which enabled=False leaves empty")
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The averages over the events of a name, or of a name and input shapes, or of one and lines of the program. See EventList."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events."""
        return self.function_events.total_average()

    def table(self, *args, **kwargs) -> str:
        """All events as a table; that of key_averages() is shorter. See EventList."""
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path) -> None:
        """Write a trace for chrome://tracing and Perfetto. See EventList."""
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path, metric: str = "self_cpu_time_total") -> None:
        """Write the lines of the program with their times, for a flame graph. See EventList. Raises AssertionError without with_stack."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all of it, in microseconds."""
        return self.function_events.self_cpu_time_total

    def __repr__(self):
        return "<unfinished torch.autograd.profile>" if self._events is None else repr(self._events)

    def __str__(self):
        return repr(self) if self._events is None else str(self._events)


def _made(result):
    """The node that an op made; None where it made none."""
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    return first._node if isinstance(first, Tensor) else None


def _shape(x):
    """An argument's shape as PyTorch shows it: of a list of Tensors all of theirs, empty for what is no Tensor."""
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape"):
        return [_shape(y) for y in x]
    return list(getattr(x, "shape", ()))


def _cuda_device(operands):
    """The CUDA device of the first operand that is on one, or None; None also where its stream is captured, as nothing runs there."""
    for x in flatten(operands)[0]:
        array = getattr(x, "_array", x)
        if _device.is_array(array) and _device.of(array) is not _device.CPU:
            where = _device.of(array)
            return None if current(where.index).is_capturing() else where
    return None


def _mark(where):
    """An event on the stream of a device that is current."""
    with _device.guard(where):
        event = _device.cupy.cuda.Event()
        event.record()
    return event


def _elapsed_us(where, start, end):
    """Microseconds on a device between two events; waits for the second."""
    with _device.guard(where):
        end.synchronize()
        return _device.cupy.cuda.get_elapsed_time(start, end) * 1e3


class record_function(contextlib.ContextDecorator):
    """A block, or a function, that a profile shows under a name. While none runs it does nothing.

    Reference: torch.autograd.profiler.record_function.
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args

    def _recreate_cm(self):                  # of a decorated function's call
        return type(self)(self.name, self.args)

    def __enter__(self):
        self._watch = _running
        self._call = None if self._watch is None else self._watch.begin(self.name, USER)
        return self

    def __exit__(self, *exc_info):
        if self._watch is not None:
            self._watch.end(self._call)
            self._watch = self._call = None


class emit_nvtx(_Watch):
    """Within the block every operation and node is an NVTX range, which NVIDIA Nsight Systems shows beside the kernels.

    record_shapes: the shapes of inputs stand in its name. Raises: RuntimeError without CuPy for CUDA, or while a profile runs.
    Reference: torch.autograd.profiler.emit_nvtx.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self):
        if self.enabled:
            if _device.cupy is None:
                raise RuntimeError(f"emit_nvtx needs CuPy for CUDA: {_device.why_no_cuda()}")
            self._nvtx = _device.cupy.cuda.nvtx
            self.start()
        return self

    def __exit__(self, *exc_info):
        if self.enabled:
            self.stop()

    def begin(self, name, scope, sequence_nr=-1, operands=()):
        told = name if sequence_nr < 0 else f"{name}, seq = {sequence_nr}"
        self._nvtx.RangePush(f"{told}, sizes = {[_shape(x) for x in operands]}" if self.record_shapes else told)

    def end(self, begun, result=None):
        self._nvtx.RangePop()
