"""A custom Function in forward mode: its jvp called, and what it gives made the outputs' tangents."""
from __future__ import annotations

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor, version, wrap
from autograd_gpu.engine.forward_mode import seen
from autograd_gpu.ops.inplace import set_tangent


def push(ctx, args, returned, outputs) -> None:
    """Give a Function's outputs their tangents, at each level at which an argument has one.

    returned: what forward returned; outputs: what apply does, where an input among them has become a view of it.
    Raises: RuntimeError where jvp's tangents do not fit the outputs; what jvp raises.
    """
    for level in seen():
        tangents = [level.get(a) if isinstance(a, Tensor) else None for a in args]
        if all([t is None for t in tangents]):
            continue
        versions = [None if t is None else version(t).count for t in tangents]
        with level.outside():
            results = ctx._function.jvp(ctx, *[_given(ctx, a, t) for a, t in zip(args, tangents, strict=True)])
            results = results if isinstance(results, tuple) else (results,)
            if len(results) != len(outputs):
                raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(outputs)} but got "
                                   f"{len(results)})")
            noted = {}
            for nr, (raw, out, result) in enumerate(zip(returned, outputs, results, strict=True)):
                if not _is_differentiable(ctx, nr, raw, result):
                    continue
                at = next((i for i, a in enumerate(args) if a is raw), None)
                if any([raw is t for t in ctx.dirty_tensors]) and at is not None and tangents[at] is not None:
                    _check_written(result, tangents[at], versions[at])
                    noted[nr] = result
                elif result is not None:
                    _check_view(level, args, tangents, out, result)
                    set_tangent(level, out, result)
                    noted[nr] = level.get(out)
        level.put(ctx, noted)


def _given(ctx, argument, tangent):
    """What jvp gets for an argument."""
    if tangent is not None or not isinstance(argument, Tensor) or not ctx.materialize_grads or argument._array.dtype.kind not in "fcV":
        return tangent
    with _device.guard(argument.device):
        return wrap(_device.xp(argument._array).zeros_like(argument._array))


def _is_differentiable(ctx, nr, output, result):
    """Whether an output has a tangent, if jvp gives one. Raises RuntimeError where it gives what cannot be one."""
    if result is not None and not isinstance(result, Tensor):
        raise RuntimeError(f"expected Variable or None (got {type(result).__name__}) for grad output {nr}.")
    if isinstance(output, Tensor) and output._array.dtype.kind in "fcV" and not any([output is t for t in ctx.non_differentiable]):
        return True
    if result is not None:
        raise RuntimeError(f"Function's jvp returned a gradient at position {nr}, but the corresponding forward output is not a "
                           f"differentiable Tensor. You should return None at that position instead.")
    return False


def _check_written(result, tangent, before):
    """Raises RuntimeError unless jvp wrote to the tangent of an input that forward wrote to."""
    if result is None or version(result).count == before:
        raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an "
                           "input inplace, then the jvp function must modify the corresponding gradient inplace.")
    if result is not tangent:
        raise RuntimeError("An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying an "
                           "input inplace, then the jvp function must modify the gradient inplace and return it as-is.")


def _check_view(level, args, tangents, out, result):
    """Raises RuntimeError where an output is a view of an input with a tangent, and its tangent no view of that."""
    if out._view is None or level.own(out) is None:
        return
    for a, tangent in zip(args, tangents, strict=True):
        if tangent is None or (a if a._view is None else a._view.base) is not out._view.base:
            continue
        if result._view is None:
            raise RuntimeError("A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view.")
        if result._view.base is not (tangent if tangent._view is None else tangent._view.base):
            raise RuntimeError("A custom Function is returning a view but the jvp is not returning a view of the given grad input.")
