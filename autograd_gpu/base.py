"""Tensor's memory: slots and what they mean, no arithmetic. Operations and methods are attached in methods.py."""
from __future__ import annotations

from numpy import ndarray as _ndarray

from autograd_gpu import devices as _device
from autograd_gpu.blocks import LARGE
from autograd_gpu.engine.anomaly_mode import user_lines
from autograd_gpu.engine.grad_mode import everywhere, local
from autograd_gpu.parallel import notice_large

CHANGE = 1 << 40                             # what a step counts that is no write, detach_() or requires_grad_(); a write counts 1


class Version:
    """Counts the in-place writes to one memory, and changes of what its Tensors require; shared by every Tensor over it."""

    __slots__ = ("count",
                 "written_at",               # in anomaly mode: the line of the last write
                 "moved")                    # once one of its Tensors was given other memory by `.data`: how often

    def __init__(self):
        self.count = 0


class _Inference(Version):
    """In the place of a counter, the mark of an inference tensor. To save one for backward means to read its count."""

    __slots__ = ()

    @property
    def count(self):
        if local.state.inside is not None and not local.state.enabled:       # in a custom Function's forward nothing is saved
            return 0
        raise RuntimeError("Inference tensors cannot be saved for backward: writes to Tensors created in inference mode are not counted. "
                           "Use a clone() made outside of it, or no_grad() instead of inference_mode()")


INFERENCE = object.__new__(_Inference)


class View:
    """How a view was made: by `step`, (op, arguments), from the view described by `before`, a View or the steps to it from the base.

    So a view of a view costs the same however long their chain; at every LINKS-th the steps are written out, as CPython frees
    a chain by recursion. `seen` is the version at which the view's grad_fn was last right: in-place writes through the base or
    another view change the history of them all.
    """

    __slots__ = ("base", "before", "step", "links", "seen")

    @property
    def steps(self):
        """What leads from the base's array to the view's, in order."""
        found, view = [], self
        while isinstance(view, View):
            found.append(view.step)
            view = view.before
        return (*view, *reversed(found))


class LeafView(View):
    """A view that requires grad by itself, whatever its base does: requires_grad_() was called on it."""

    __slots__ = ()


LINKS = 500


class Tensor:
    """A NumPy or CuPy array with autograd: `requires_grad`, `grad`, `grad_fn`, `backward()`.

    Make one with `tensor`, `as_tensor`, `from_numpy` or a creation function. Results of operations are always plain
    Tensors, also where an operand is of a subclass. Reference: torch.Tensor.
    """

    __slots__ = (
        "_array",        # numpy.ndarray or cupy.ndarray, never a scalar
        "_requires",     # whether gradients are tracked: a leaf's own flag, True for every result with a node
        "_node",         # grad_fn; None for a leaf
        "_nr",           # which output of _node this is
        "_grad",
        "_counter",      # None while nobody else shares the memory and nothing was written in place
        "_view",         # View of a view that autograd follows, else None
        "_leaf",         # weak reference to the AccumulateGrad of a leaf, else None
        "_hooks",        # LeafHooks: a leaf's hooks; WrappedNumber on a Python number made a Tensor; else None
        "__weakref__",
    )

    @property
    def device(self) -> _device.Device:
        """Where the memory is."""
        return _device.of(self._array)


class CudaTensor(Tensor):
    """A Tensor over a CuPy array. A class of its own so that one comparison tells an op which of its two builds runs."""

    __slots__ = ()


CudaTensor.__name__ = CudaTensor.__qualname__ = "Tensor"


def wrap(array, new=object.__new__):
    """A leaf over an array, sharing its memory."""
    if type(array) is _ndarray:
        t = new(Tensor)
        if not everywhere.large and array.size >= LARGE:
            notice_large()
    else:
        t = new(CudaTensor)
    t._array = array
    t._requires = False
    t._node = t._grad = t._counter = t._view = t._leaf = t._hooks = None
    t._nr = 0
    if everywhere.unusual:
        mark(t)
    return t


def mark(t: Tensor) -> None:
    """Make a new tensor an inference tensor if this thread is in inference mode. Called only while something is unusual."""
    if local.state.inference:
        t._counter = INFERENCE


def uncounted(t: Tensor) -> Tensor:
    """A leaf over t's memory whose writes t's counter does not see; an inference tensor if t is one."""
    out = wrap(t._array)
    out._counter = INFERENCE if t._counter is INFERENCE else None
    return out


def version(t: Tensor) -> Version:
    """The counter of t's memory, made at its first need: a second alias, or a write."""
    found = t._counter
    if found is None:
        found = t._counter = Version()
    return found


def count_change(counter: Version) -> None:
    """Take a step that is no write, so that views of the memory look at their base again."""
    counter.count += CHANGE


def count_write(t: Tensor) -> None:
    """Count an in-place write to t's memory, after it. Raises RuntimeError for an inference tensor outside of inference mode."""
    found = t._counter
    if found is None:
        found = t._counter = Version()
    elif found is INFERENCE:
        if not local.state.inference:
            raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed: write to a clone(), or inside "
                               "inference_mode()")
        return
    found.count += 1
    if everywhere.anomaly:
        found.written_at = "".join(user_lines(1))
