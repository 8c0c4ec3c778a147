"""What is on in this thread: recording, and the rarer features that a recording has to look out for."""
from __future__ import annotations

import contextvars
import functools
import inspect
import threading

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


class State:
    """One thread's modes. `mode` is what a recording looks at: it combines the others."""

    __slots__ = ("mode", "run", "enabled", "saved_hooks", "graph_task", "pending", "disabled_hooks", "before_write")

    def __init__(self):
        self.mode = ON
        self.enabled = True
        self.run = quiet_context().run       # quiet_run for when that is taken
        self.saved_hooks = []                # innermost last: (pack, unpack)
        self.disabled_hooks = None           # the message with which saved-tensor hooks are refused, if they are
        self.before_write = None             # called with each tensor that is about to be written to in place, if set
        self.graph_task = None               # the backward that this thread is running
        self.pending = None                  # what an unlinking node has left to drop (node.unlink)

    def refresh(self):
        """Recompute `mode` after a change of the others."""
        self.mode = OFF if not self.enabled else RARE if self.saved_hooks else ON


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


def _enable(flag):
    state = local.state
    previous = state.enabled
    state.enabled = flag
    state.refresh()
    return previous


class _Mode:
    """A context manager and decorator that sets grad mode; one object may be entered again while it is entered."""

    __slots__ = ("_previous",)

    def __enter__(self):
        state = local.state
        self._previous.append(state.enabled)
        state.enabled = self._flag
        state.refresh()

    def __exit__(self, *exc_info):
        state = local.state
        state.enabled = self._previous.pop()
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
        self._previous = []
        return self if function is None else self(function)


class enable_grad(no_grad):
    """Record again inside no_grad. Also a decorator. Reference: torch.enable_grad."""

    __slots__ = ()
    _flag = True


class set_grad_enabled(_Mode):
    """Turn recording on or off at once; as a context manager, until its end; as a decorator, in the function only.

    Reference: torch.set_grad_enabled.
    """

    __slots__ = ("_flag", "_before")

    def __init__(self, mode: bool):
        self._previous = []
        if not isinstance(mode, (bool, int)):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        self._flag = bool(mode)
        self._before = _enable(self._flag)

    def __enter__(self):
        self._previous.append(self._before)
        _enable(self._flag)
        self._before = self._flag

    def _fresh(self):
        flag = self._flag
        fresh = set_grad_enabled.__new__(set_grad_enabled)
        fresh._previous, fresh._flag, fresh._before = [], flag, local.state.enabled
        return fresh

    def __call__(self, function):
        _enable(self._before)                # a decorator changes nothing until the function is called
        return super().__call__(function)
