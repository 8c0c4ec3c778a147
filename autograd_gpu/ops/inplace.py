"""In-place forms: the op out of place, its result written into the tensor, the history rewritten.

What the formula needs decides what is kept: the overwritten input, as a copy; the result, as the memory after the write.
A call that fails leaves value, version and history as they were. Not so a write to an inference tensor outside of inference mode, which is
an error once the write is counted, as in PyTorch.
"""
from __future__ import annotations

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import INFERENCE, Tensor, count_write, version, wrap
from autograd_gpu.engine.forward_mode import carry_copy, check_tangent, laid_out, seen, zeros_like
from autograd_gpu.engine.grad_mode import OFF, everywhere, local, quiet_run, run_apart
from autograd_gpu.engine.inside import depend_on
from autograd_gpu.engine.saved import Packed
from autograd_gpu.ops.compile import ITSELF
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Composite, Op
from autograd_gpu.ops.views import overwritten, refresh, rename, set_history, unwritable

_COMPARISONS = dict(eq="Eq", ne="Ne", lt="Lt", le="Le", gt="Gt", ge="Ge", not_equal="Ne", less="Lt", less_equal="Le", greater="Gt",
                    greater_equal="Ge")
_LOGICAL = frozenset(("logical_not", "logical_and", "logical_or", "logical_xor"))      # autograd does not see these: history stays
_REAL_OF_COMPLEX = ("abs_", "absolute_")
_REPEATABLE = ("fill_", "zero_")             # leave the same value whatever order elements that share memory are written in


def check_writable(t: Tensor, name: str, others=()) -> bool:
    """Whether autograd has to record a write into t from the tensors among `others`.

    Raises: RuntimeError where autograd or the memory does not allow the write.
    """
    if not isinstance(t, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(t).__name__}")
    state = local.state
    if t._view is not None:
        if t._node is None and state.records():
            _check_since(t, name)
        refresh(t)
    tracked = state.records() and (t.requires_grad or any([isinstance(o, Tensor) and o.requires_grad for o in others]))
    if state.inside is not None:
        depend_on(t, others)
    if tracked:
        check_history(t, name)
    _check_memory(t, name, tracked)
    return tracked


def _check_memory(t, name, tracked):
    """Raises RuntimeError where the memory does not allow the write."""
    array = t._array
    if array.size and (tracked or name not in _REPEATABLE) and _device.repeats(array):
        raise RuntimeError(f"{name}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
                           f"location. Please clone() the tensor, of shape {array.shape}, before the operation")
    if type(array) is np.ndarray and not array.flags.writeable:
        raise RuntimeError(f"{name}: the tensor's NumPy array is read-only; clone() it first")


def _check_since(t, name):
    """Raises RuntimeError for a view without history whose base has come to require grad by a recorded write since: so does PyTorch."""
    view, base = t._view, t._view.base
    if base._requires and base._node is not None and not unwritable(view):
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an in-place operation: the view was taken before "
                           "a write made its base require grad. Take the view again")


def check_history(t, name):
    """Raises RuntimeError where the write would have to be recorded and cannot be."""
    view = t._view
    if view is not None:
        reason = unwritable(view)
        if reason:
            raise RuntimeError(f"{name}: a view is being modified inplace, but {reason}: write to a clone(), or take the view again")
        base = view.base
        if t.requires_grad and base._node is None:
            raise RuntimeError(f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation. Write under "
                               f"torch.no_grad(), or to a result computed from the leaf")
    if t._requires and t._node is None:
        raise RuntimeError(f"{name}: a leaf Variable that requires grad is being used in an in-place operation. Write under "
                           f"torch.no_grad(), or to a result computed from it")


def about_to_write(t: Tensor) -> None:
    """To be called ahead of a write, once the operation has saved what it saves: that may be t itself."""
    before_write = local.state.before_write
    if before_write is not None:
        before_write(t)


def written(t: Tensor, data) -> None:
    """Write values into t's memory and count the write."""
    about_to_write(t)
    array = t._array
    if type(array) is np.ndarray:
        run_apart(np.copyto, array, data, casting="unsafe")
    else:
        with _device.guard(t.device):
            _device.cupy.copyto(array, data, casting="unsafe")
    count_write(t)


def write_tangents(t: Tensor, value: Tensor) -> None:
    """What writing a value into t's memory does to its tangents: they are written over, too, in the memory that views of t share.

    A tensor that has had none, and what it is a view of, get one.
    """
    for level in seen():
        new, old = level.get(value), level.get(t)
        if old is None and new is not None:
            with level.outside():
                set_tangent(level, t, new.clone())
        elif old is not None:
            with level.outside():
                old.zero_() if new is None else old.copy_(new)


def set_tangent(level, t: Tensor, tangent: Tensor) -> None:
    """Make a tangent that of t, and if t is a view of what has none, a part of its base's.

    Raises: RuntimeError where it does not fit.
    """
    check_tangent(level, t, tangent)
    root = level.root(t)
    if root is t or level.get(t) is not None:
        level.put(t, laid_out(tangent, t))
    else:
        level.put(root, zeros_like(root, root._array.dtype))
        level.get(t).copy_(tangent)


def inplace(op):
    """The in-place form of an op: op_(self, ...) -> self."""
    title = op.name + "_"
    keeps = _may_save_self(op)
    no_derivative = getattr(op, "title", None) or "".join([word.capitalize() for word in op.name.split("_")]) + "Backward0"
    compares, logical = _COMPARISONS.get(op.name), op.name in _LOGICAL
    binary = isinstance(op, Op) and op.is_elementwise and len(op.promotes) == 2

    def function(input, *args, **kwargs):
        tracked = False
        if binary and type(input) is Tensor and len(args) == 1 and not kwargs:
            state = local.state
            if state.mode == OFF and state.inside is None and input._view is None and input._array.flags.c_contiguous and (
                    not everywhere.levels and _write_direct(op.on_arrays(np), input, args[0])):
                return input                 # an optimiser's update: nothing to record, no view, each element once in memory
        if logical:
            _check_memory(input, title, tracked)
        else:
            tracked = check_writable(input, title, (*args, *kwargs.values()))
        if title in _REAL_OF_COMPLEX and input._array.dtype.kind == "c":
            raise RuntimeError(f"{title}: In-place {op.name} is not supported for complex tensors: its result is real")
        if binary and not (tracked or everywhere.levels) and len(args) == 1 and not kwargs and \
                _write_direct(op.on_arrays(np), input, args[0]):
            return input
        source = _source(input, tracked and keeps)
        out = op.function(source, *args, **kwargs)
        data = out._array
        if type(data) is not type(input._array):
            raise RuntimeError(f"{title}: Expected all tensors to be on the same device, but found at least two devices, {input.device} "
                               f"and {out.device}: move one of them with .to()")
        if data.shape != input._array.shape:
            raise RuntimeError(f"{title}: output with shape {list(input._array.shape)} doesn't match the broadcast shape "
                               f"{list(data.shape)}; an in-place operation cannot enlarge its tensor")
        if not _dtype.can_cast(data.dtype, input._array.dtype):
            raise RuntimeError(f"{title}: result type {_dtype.of(data.dtype)} can't be cast to the desired output type "
                               f"{_dtype.of(input._array.dtype)}; convert the tensor with .to() first")
        if everywhere.levels and input._counter is not INFERENCE:           # such a write is refused
            write_tangents(input, out)       # first, as a tangent may refuse
        written(input, data)
        if tracked and _dtype.category(input._array.dtype) in "fc":
            if not out._requires:
                operands = source, *args, *kwargs.values()
                if compares:                 # PyTorch numbers its forms: with a number, with a tensor
                    label = f"{compares}Backward{sum([isinstance(o, Tensor) for o in operands[1:]])}"
                    set_history(input, overwritten(operands, label), 0)
                elif source._requires:
                    set_history(input, overwritten(operands, no_derivative), 0)
            elif out._node is not source._node:
                rename(out._node, getattr(getattr(out._node, "_record", None), "over", None))
                _keep_result(input, out._node)
                set_history(input, out._node, out._nr)
        return input

    function.__name__ = function.__qualname__ = title
    function.__doc__ = f"In-place form of {op.name}. Raises RuntimeError where the tensor may not be written to.\n\n{op.body.__doc__}"
    return function


def _write_direct(ufunc, t: Tensor, other) -> bool:
    """The ufunc with the tensor's memory as its output, where nothing is recorded and nothing has to be promoted; whether it was done."""
    if not isinstance(ufunc, np.ufunc):
        return False
    array = t._array
    if type(array) is not np.ndarray:
        return False
    if isinstance(other, Tensor):
        other = other._array
        if type(other) is not np.ndarray or other.dtype != array.dtype:
            return False
        views = other is not array and (other.base is not None or array.base is not None)
        if views and np.may_share_memory(array, other):
            return False
    elif type(other) is not float or array.dtype.kind != "f":
        return False
    about_to_write(t)
    try:
        quiet_run(ufunc, array, other, array)
    except Exception:                        # its shape does not fit, or the context is taken: the longer way says which
        return False
    count_write(t)
    return True


def _may_save_self(op):
    """Whether an op, or one that its calls are passed on to, may save its first input, which is about to be overwritten."""
    if isinstance(op, Composite):
        return not op.moves
    return "self" in op.saved_inputs or any(_may_save_self(REGISTRY[name]) for name in op.divert.values() if name is not ITSELF)


def _source(t: Tensor, copy):
    """What the op reads in t's place: t's history over t's memory, or over a copy if the formula will need the old values."""
    array = t._array
    copy = copy or everywhere.levels
    if copy and type(array) is np.ndarray:
        array = array.copy()
    elif copy:
        with _device.guard(t.device):        # CuPy copies to the current device
            array = array.copy()
    source = wrap(array)
    source._requires, source._node, source._nr = t._requires, t._node, t._nr
    if t._requires and t._node is None:
        source._leaf = t._leaf
    if everywhere.levels:
        carry_copy(t, source)
    return source


def _keep_result(t, node):
    """A node that saved its result keeps the memory that the result went to, at the version after the write."""
    record = getattr(node, "_record", None)
    for name in record.saved_results if record else ():
        if isinstance(getattr(node, "s_" + name), Packed):       # a hook has it, in memory of its own
            continue
        counter = version(t)
        setattr(node, "s_" + name, t._array)
        setattr(node, "c_" + name, counter)
        setattr(node, "k_" + name, counter.count)
