"""Checkpoints: a function whose saved values are dropped after the forward and computed again in the backward.

`use_reentrant=False` is made of saved-tensor hooks. In the forward each value that is saved is packed into a `_Holder`, which is
nothing but its number. The first one that a backward unpacks runs the function again, with hooks that keep what is saved this time
under the same numbers, until the last one is there. `use_reentrant=True` is a Function whose backward runs a backward of its own.
"""
from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.autograd.function import Function
from autograd_gpu.autograd.saving import saved_tensors_hooks
from autograd_gpu.backward import backward
from autograd_gpu.base import Tensor
from autograd_gpu.cuda.streams import Surroundings, keep
from autograd_gpu.engine.grad_mode import enable_grad, is_grad_enabled, local, no_grad
from autograd_gpu.generator import Repeatable
from autograd_gpu.ops.creation import empty

__all__ = ["CheckpointError", "CheckpointFunction", "check_backward_validity", "checkpoint", "checkpoint_sequential", "detach_variable",
           "noop_context_fn", "set_checkpoint_early_stop"]

_early_stop: bool | None = None              # what set_checkpoint_early_stop says, for all threads
_MORE = "the function has to do the same operations each time; determinism_check='none' allows other dtypes and devices"


class CheckpointError(RuntimeError):
    """The function saved other tensors when it was run again. Reference: torch.utils.checkpoint.CheckpointError."""


class _Stop(BaseException):
    """Ends a run in which everything that is needed was saved. No Exception, so that the function does not catch it."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing. Reference: torch.utils.checkpoint.noop_context_fn."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the block, whether the checkpoints made in it stop computing again at the last value that is needed (True), or go on to the
    function's end. Reference: torch.utils.checkpoint.set_checkpoint_early_stop.
    """
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def _metadata(t):
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


_CHECKS: dict[str, Callable[[Tensor], Any]] = {"default": _metadata, "none": lambda t: None}


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn, determinism_check: str = "default", debug: bool = False,
               early_stop: bool = True, **kwargs: Any) -> Any:
    """function(*args, **kwargs), of which backward computes again what it needs: memory for time.

    `use_reentrant`: False is recommended, and has to be said; True runs the forward unrecorded, works with backward() for all leaves
    only and takes no keyword arguments. `preserve_rng_state=False` lets random numbers differ when they are drawn again. `context_fn`
    gives a context for the first run and one for the others. `determinism_check="none"` does not compare dtypes and devices of what
    is saved with the first run's. `early_stop=False` lets the function run to its end again. `debug` is accepted: errors always say which
    tensors differ.
    Raises: ValueError for arguments that the variant does not take; CheckpointError in backward where the function saves other tensors.
    Reference: torch.utils.checkpoint.checkpoint; Chen, Xu, Zhang and Guestrin 2016.
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if _chosen(use_reentrant, "checkpoint"):
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}; with use_reentrant=True pass them by position")
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    forward_context, recompute_context = context_fn()
    if not is_grad_enabled():
        return function(*args, **kwargs)
    numbers = _numbers(preserve, args)

    def again(*inputs):
        with numbers.again() if numbers else contextlib.nullcontext(), recompute_context:
            function(*inputs, **kwargs)

    frame = _Frame(again, args, early_stop if _early_stop is None else _early_stop, _CHECKS[determinism_check])
    raised = True
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context, numbers.first() if numbers else contextlib.nullcontext():
        found = function(*args, **kwargs)
        raised = False
    if raised:
        raise RuntimeError("checkpoint: the forward context of context_fn suppressed an exception of the function, which therefore has no "
                           "result")
    frame.completed = True
    return found


def _chosen(use_reentrant, name):
    if use_reentrant is None:
        warnings.warn(f"{name}: the use_reentrant parameter should be passed explicitly: use_reentrant=False is recommended; without it "
                      f"True is taken", stacklevel=3)
        return True
    return use_reentrant


def _numbers(preserve, args):
    """What draws the same random numbers again; None where it need not."""
    return Repeatable({a.device for a in args if isinstance(a, Tensor)} - {_device.CPU}) if preserve else None


class _Holder:
    """Stands for a value that was saved: its number."""

    __slots__ = ("number", "__weakref__")

    def __init__(self, number):
        self.number = number


class _Inputs(Function):
    """A node that saves the arguments as any other does: an outer checkpoint, or other hooks, may pack them, and writes are noticed."""

    @staticmethod
    def forward(ctx, recorded, *tensors):
        ctx.save_for_backward(*tensors)
        return empty(0)

    @staticmethod
    def jvp(ctx, *tangents):
        return None


class _Frame:
    """One call of a checkpointed function: its arguments, what it saved, and how to compute that again."""

    def __init__(self, again, args, early_stop, describe):
        self.again, self.early_stop, self.describe, self.completed = again, early_stop, describe, False
        self.holders: list[weakref.ref[_Holder]] = []            # those whose node has released them need not be computed again
        self.described: list[Any] = []
        self.values: weakref.WeakKeyDictionary[Any, dict[int, Tensor]] = weakref.WeakKeyDictionary()       # by backward: what is left
        self.surroundings = Surroundings()   # where the first run was, devices and streams
        self.lock = threading.RLock()        # guards `values`; held while computing: several devices' workers want one result
        self.others = [None if isinstance(a, Tensor) else (a,) for a in args]
        given = [a for a in args if isinstance(a, Tensor)]
        self.results = [not a.is_leaf for a in given]
        self.inputs = _Inputs.apply(empty(0, requires_grad=True), *given).grad_fn

    def pack(self, t):
        """Of the first run."""
        holder = _Holder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        self.described.append(self.describe(t))
        return holder

    def unpack(self, holder):
        """A value computed again; with it the others for the same backward. Raises CheckpointError where it was used already."""
        task, now = local.state.graph_task, Surroundings()
        with self.lock:
            values = self.values.get(task) if task else None
            if values is None:
                self.surroundings.wait_for(now)
                with self.surroundings.on():
                    values = self.compute()
                if task:
                    self.values[task] = values
            if holder.number not in values:
                raise CheckpointError("checkpoint: a value is unpacked that was unpacked in this backward already: read ctx.saved_tensors "
                                      "only once in a backward, and do not run backwards that overlap")
            t = values.pop(holder.number)
        now.wait_for(self.surroundings)
        if t.is_cuda and now.streams[t.device.index] != self.surroundings.streams[t.device.index]:
            keep(t._array, now.streams[t.device.index])
        return t

    def compute(self):
        """{number: value} of what is still needed."""
        values: dict[int, Tensor] = {}
        run = _Run(self, values)
        given = self.inputs.saved_tensors
        if any([result and t.grad_fn is None for t, result in zip(given, self.results, strict=True)]):
            raise RuntimeError("checkpoint: Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(): call "
                               "detach() on the argument instead, which leaves it as it is")
        tensors = iter(given)
        with contextlib.suppress(_Stop), saved_tensors_hooks(run.pack, lambda t: t), enable_grad():
            self.again(*[next(tensors) if other is None else other[0] for other in self.others])
        if run.beyond:
            return values
        if run.count != len(self.holders):
            raise CheckpointError(f"checkpoint: A different number of tensors was saved during the original forward and recomputation: "
                                  f"{len(self.holders)} and {run.count}; {_MORE}")
        differing = [f"tensor at position {i}: saved metadata: {self.described[i]}; recomputed metadata: {self.describe(t)}"
                     for i, t in values.items() if self.described[i] != self.describe(t)]
        if differing:
            raise CheckpointError("checkpoint: Recomputed values for the following tensors have different metadata than during the forward "
                                  "pass:\n" + "\n".join(differing) + f"\n{_MORE}")
        return values


class _Run:
    """One more run of a frame's function."""

    def __init__(self, frame, values):
        self.frame, self.values, self.count, self.beyond = frame, values, 0, False

    def pack(self, t):
        """Keep what is saved, and save it in the new graph too: the function may run a backward itself."""
        frame, number = self.frame, self.count
        t = t.detach() if t.requires_grad else t
        self.count += 1
        if number >= len(frame.holders):
            if frame.completed:
                raise CheckpointError("checkpoint: trying to save more tensors during recomputation than during the original forward "
                                      f"pass: {_MORE}")
            self.beyond = True               # a backward inside of the first run, which is to save more than it has so far
            return t
        if frame.holders[number]() is not None:
            self.values[number] = t
        if frame.early_stop and self.count == len(frame.holders):
            raise _Stop
        return t


# ----------------------------------------------------------------------------------------------------------- the reentrant one

def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple's tensors as leaves with the same requires_grad, the rest as it is. Raises RuntimeError for what is no tuple.

    Reference: torch.utils.checkpoint.detach_variable.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple([t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs])


def check_backward_validity(inputs: Any) -> None:
    """Warn where no input needs a gradient. Reference: torch.utils.checkpoint.check_backward_validity."""
    if not any([t.requires_grad for t in inputs if isinstance(t, Tensor)]):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """The reentrant checkpoint, as `CheckpointFunction.apply(function, preserve_rng_state, *args)`.

    Reference: torch.utils.checkpoint.CheckpointFunction.
    """

    @staticmethod
    def forward(ctx, function, preserve_rng_state, *args):
        """function(*args), unrecorded."""
        check_backward_validity(args)
        ctx.function, ctx.numbers = function, _numbers(preserve_rng_state, args)
        ctx.others = [None if isinstance(a, Tensor) else (a,) for a in args]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])
        with no_grad(), ctx.numbers.first() if ctx.numbers else contextlib.nullcontext():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        """The function recorded, and a backward through it. Raises RuntimeError in autograd.grad and backward(inputs=...)."""
        task = local.state.graph_task
        if task is not None and (task.captures is not None or task.only):
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                               "parameter to .backward(). Set use_reentrant=False, or call .backward() without `inputs`")
        tensors = iter(ctx.saved_tensors)
        inputs = detach_variable(tuple([next(tensors) if other is None else other[0] for other in ctx.others]))
        with enable_grad(), ctx.numbers.again() if ctx.numbers else contextlib.nullcontext():
            outputs = ctx.function(*inputs)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [(t, g) for t, g in zip(outputs, grads, strict=True) if isinstance(t, Tensor) and t.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward(*map(list, zip(*pairs, strict=True)))
        return (None, None, *[t.grad if isinstance(t, Tensor) else None for t in inputs])


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Functions, or a Sequential's modules, one after the other, in that many segments of which all but the last are checkpointed.

    Raises: ValueError for keyword arguments but preserve_rng_state, or fewer functions than segments.
    Reference: torch.utils.checkpoint.checkpoint_sequential.
    """
    use_reentrant = _chosen(use_reentrant, "checkpoint_sequential")
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    functions = list(functions.children() if hasattr(functions, "children") else functions)
    size = len(functions) // segments
    if not size:
        raise ValueError(f"checkpoint_sequential: {len(functions)} functions cannot make {segments} segments")

    def chain(several):
        def run(x):
            for f in several:
                x = f(x)
            return x
        return run

    for k in range(segments - 1):
        input = checkpoint(chain(functions[k * size:(k + 1) * size]), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return chain(functions[(segments - 1) * size:])(input)
