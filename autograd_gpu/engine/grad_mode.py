"""What is on: in this thread recording, and the rarer features that a recording has to look out for; anomaly mode in all threads."""
from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import sys
import threading
import weakref

import numpy as np

OFF, ON, RARE = 0, 1, 2


def quiet_context():
    """A context in which NumPy reports no floating-point condition, as PyTorch never does.

    `run` of such a context costs 15 ns; np.errstate around a call costs a microsecond.
    """
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


quiet_run = quiet_context().run
"""quiet_run(body, *arrays): the body without NumPy's warnings. One for all threads, as to find a thread's own costs more than to
enter it; where it is taken by another thread, ops/runtime.py falls back on the thread's own."""

(QUIET_VARIABLE, QUIET), = quiet_context().items()
"""NumPy's context variable and its value in a quiet context: setting it around a backward costs 0.1 us."""


class Everywhere:
    """What concerns all threads, in one place that costs 2 ns to look at."""

    __slots__ = ("unusual", "large", "shared", "levels", "anomaly", "check_nan", "nowhere", "profiled", "lines", "noting")

    def __init__(self):
        self.unusual = 0                     # inference_mode blocks entered, in whatever thread, and dual levels
        self.large = False                   # whether there was ever an array of blocks.LARGE elements: only then ops look for one
        self.shared = False                  # the same for one ufunc, which is cut only if several threads may work
        self.levels = ()                     # the dual levels entered, outermost first (engine/forward_mode.py)
        self.anomaly = False
        self.check_nan = True
        self.nowhere = False                 # whether a node was ever recorded that no gradient leaves (engine/node.py: leads_nowhere)
        self.profiled = False                # whether backwards run their nodes through `visit`, which a profiler has exchanged
        self.lines = 0                       # record_lines blocks entered
        self.noting = False                  # whether new nodes keep the user's lines: for either of anomaly and lines


everywhere = Everywhere()
_states: weakref.WeakSet[State] = weakref.WeakSet()
_lock = threading.Lock()                     # guards `_states` and the fields of `everywhere`


class State:
    """One thread's modes. `mode` is what a recording looks at: it combines the others."""

    __slots__ = ("mode", "run", "enabled", "inference", "sees", "saved_hooks", "graph_task", "at", "disabled_hooks", "multithreading",
                 "enforces_layout", "depth", "started_at", "result_of", "before_write", "inside", "__weakref__")

    def __init__(self):
        self.enabled = True
        self.inference = False
        self.sees = sys.maxsize              # its operations carry tangents at the dual levels of a smaller number
        self.run = quiet_context().run       # quiet_run for when that is taken
        self.saved_hooks = []                # innermost last: (pack, unpack)
        self.disabled_hooks = None           # the message with which saved-tensor hooks are refused, if they are
        self.inside = None                   # what depends on the inputs of the Function whose forward is running (engine/inside.py)
        self.before_write = None             # called with each tensor that is about to be written to in place, if set
        self.graph_task = None               # the backward that this thread is running
        self.at = None                       # its node that this thread is running; kept up in anomaly mode
        self.multithreading = None           # whether CUDA devices' workers run a backward; None: where it runs on several devices
        self.enforces_layout = True          # whether a .grad made by backward lies in memory as its leaf does
        self.depth = 0                       # how many backwards run inside each other
        self.started_at = 0                  # of these, how many were there when this thread began
        self.result_of = {}                  # node: the node that its saved result belongs to, where that is another (CopySlices)
        with _lock:
            _states.add(self)
        self.refresh()

    def follow(self, other):
        """Take over the modes of another thread, on whose behalf this one works."""
        for name in ("enabled", "inference", "sees", "graph_task", "at", "disabled_hooks", "before_write", "multithreading",
                     "enforces_layout", "depth"):
            setattr(self, name, getattr(other, name))
        self.saved_hooks = list(other.saved_hooks)
        self.refresh()

    def records(self):
        """Whether operations on what needs a gradient are recorded."""
        return self.enabled and not self.inference

    def refresh(self):
        """Recompute `mode` after a change of the others. It calls nothing, so that no other thread runs between its look and its write."""
        if self.inference or not self.enabled and self.inside is None:
            self.mode = OFF
        else:
            self.mode = RARE if everywhere.noting or everywhere.levels or self.saved_hooks or self.inside is not None else ON


class _Local(threading.local):
    def __init__(self):
        self.state = State()


local = _Local()


def run_apart(body, *arguments, **options):
    """Run a body while the context that all threads share is taken."""
    try:
        return local.state.run(body, *arguments, **options)
    except RuntimeError as error:
        if not str(error).startswith("cannot enter context"):
            raise
        return quiet_context().run(body, *arguments, **options)  # from a finaliser that ran inside another op of this thread


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread. Reference: torch.is_grad_enabled."""
    return local.state.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode. Reference: torch.is_inference_mode_enabled."""
    return local.state.inference


def set_anomaly(enabled, check_nan):
    """Switch anomaly mode on or off, in all threads."""
    local.state                              # noqa: B018 - made before the lock is taken, as making one takes it
    with _lock:
        everywhere.anomaly, everywhere.check_nan = enabled, check_nan
        _noting_changed()


def count_lines(blocks):
    """One more block, or one less, in which new nodes keep the line that made them, in all threads."""
    local.state                              # noqa: B018
    with _lock:
        everywhere.lines += blocks
        _noting_changed()


def _noting_changed():
    everywhere.noting = everywhere.anomaly or everywhere.lines > 0
    for state in _states:
        state.refresh()


def carries_tangents() -> bool:
    """Whether this thread's operations carry tangents, where an operand has one."""
    state = local.state
    return bool(everywhere.levels) and everywhere.levels[0].number < state.sees and not state.inference


def set_levels(change):
    """Make `change(levels)` the dual levels, in all threads, as one step: each thread enters and leaves its own."""
    local.state                              # noqa: B018 - as above
    with _lock:
        levels = change(everywhere.levels)
        everywhere.unusual += len(levels) - len(everywhere.levels)
        everywhere.levels = levels
        for state in _states:
            state.refresh()


def _enable(flag):
    state = local.state
    previous = state.enabled
    state.enabled = flag
    state.refresh()
    return previous


class _Mode:
    """A context manager and decorator that sets grad mode; one object may be entered again while it is entered."""

    __slots__ = ("_previous",)               # what it was before, and the same of the block further out or None

    def __enter__(self):
        state = local.state
        self._previous = state.enabled, self._previous
        state.enabled = self._flag
        state.refresh()

    def __exit__(self, kind, error, traceback):
        state = local.state
        state.enabled, self._previous = self._previous
        state.refresh()

    def _fresh(self):
        return type(self)()

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)
        fresh = self._fresh

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with fresh():
                return function(*args, **kwargs)
        return wrapper

    def _wrap_generator(self, function):
        """Each step of the generator's body begins in this mode; its caller never sees it."""
        fresh = self._fresh

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            generator = function(*args, **kwargs)
            step, value = generator.send, None
            while True:
                try:
                    with fresh():
                        item = step(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    value, step = (yield item), generator.send
                except GeneratorExit:
                    with fresh():
                        generator.close()
                    raise
                except BaseException as error:
                    value, step = error, generator.throw
        return wrapper


class no_grad(_Mode):
    """Record nothing in this thread: results have requires_grad=False. Also a decorator; nests in itself.

    Reference: torch.no_grad.
    """
    __slots__ = ()
    _flag = False

    def __new__(cls, function=None):
        self = object.__new__(cls)
        self._previous = None
        return self if function is None else self(function)


class enable_grad(no_grad):
    """Record again inside no_grad. Also a decorator. Reference: torch.enable_grad."""

    __slots__ = ()
    _flag = True


class set_grad_enabled(_Mode):
    """Turn recording on or off at once; as a context manager, until its end; as a decorator, in the function only.

    Raises: TypeError for a mode that is no bool. Reference: torch.set_grad_enabled.
    """

    __slots__ = ("_flag", "_before")

    def __init__(self, mode: bool):
        self._previous = None
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        self._flag = mode
        self._before = _enable(self._flag)

    def __enter__(self):
        self._previous = self._before, self._previous
        _enable(self._flag)
        self._before = self._flag

    def _fresh(self):
        flag = self._flag
        fresh = set_grad_enabled.__new__(set_grad_enabled)
        fresh._previous, fresh._flag, fresh._before = None, flag, local.state.enabled
        return fresh

    def __call__(self, function):
        _enable(self._before)                # a decorator changes nothing until the function is called
        return super().__call__(function)


class setting(contextlib.ContextDecorator):
    """A field of this thread's state, `_field`, set from now on; as a context manager until its end, as a decorator in the function.

    Raises: TypeError for a mode that is no bool.
    """

    _field: str

    def __init__(self, mode):
        if not isinstance(mode, bool):
            raise TypeError(f"{type(self).__name__}(): argument 'enabled' must be bool, not {type(mode).__name__}")
        self._mode, self._before = mode, getattr(local.state, self._field)
        setattr(local.state, self._field, self._mode)

    def _recreate_cm(self):                  # of a decorated function's call
        return type(self)(self._mode)

    def __enter__(self):
        pass

    def __exit__(self, *exc_info):
        setattr(local.state, self._field, self._before)

    def __call__(self, function):
        setattr(local.state, self._field, self._before)          # a decorator changes nothing until the function is called
        return super().__call__(function)


class enforce_grad_layout_policy(setting):
    """Whether a .grad that backward makes lies in memory as its leaf does. False: as the gradient came, where that saves a copy.

    In this thread, from now on; as a context manager until its end. Reference: torch.autograd.enforce_grad_layout_policy.
    """

    _field = "enforces_layout"

    def __init__(self, enable: bool = True):
        super().__init__(enable)


class inference_mode(_Mode):
    """Record nothing and keep no versions: what is made in the block is an inference tensor. Also a decorator; nests in itself.

    An inference tensor cannot be saved for backward, nor written to in place outside of inference mode: clone() it. Views of other
    tensors made in the block are no inference tensors. `mode=False` switches recording on again, and inference mode off.
    Raises: TypeError for a mode that is no bool. Reference: torch.inference_mode.
    """

    __slots__ = ("_mode",)

    def __new__(cls, mode=True):
        if not isinstance(mode, bool) and not callable(mode):
            raise TypeError(f"inference_mode(): argument 'mode' must be bool, not {type(mode).__name__}")
        self = object.__new__(cls)
        self._previous = None
        self._mode = mode is not False
        return self if isinstance(mode, bool) else self(mode)

    def __enter__(self):
        state = local.state
        self._previous = state.inference, state.enabled, self._previous
        with _lock:
            everywhere.unusual += self._mode
        state.inference, state.enabled = self._mode, not self._mode
        state.refresh()

    def __exit__(self, kind, error, traceback):
        state = local.state
        state.inference, state.enabled, self._previous = self._previous
        with _lock:
            everywhere.unusual -= self._mode
        state.refresh()

    def _fresh(self):
        return type(self)(self._mode)
