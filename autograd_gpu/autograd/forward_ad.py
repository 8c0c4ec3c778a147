"""Forward mode: values that carry a tangent, the derivative along one direction, through whatever is computed from them.

    with dual_level():
        x = make_dual(primal, tangent)
        y, jvp = unpack_dual(f(x))           # jvp = J tangent, with J the Jacobian of f at primal
"""
from __future__ import annotations

from typing import NamedTuple

from autograd_gpu.base import Tensor
from autograd_gpu.engine import forward_mode as _forward_mode
from autograd_gpu.engine.forward_mode import ALL, apart, check_tangent, laid_out, mine, seen
from autograd_gpu.engine.grad_mode import _Mode, carries_tangents, everywhere, local
from autograd_gpu.ops.namespace import OPS

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A tensor without its tangent, and the tangent, None if it has none. Reference: torch.autograd.forward_ad.UnpackedDualTensor."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enter the dual level, in which tensors can have tangents, in all threads; its number.

    Raises: RuntimeError inside another one. Reference: torch.autograd.forward_ad.enter_dual_level.
    """
    if mine():
        raise RuntimeError("Nested forward mode AD is not supported at the moment: leave the dual level that is entered first, or take the "
                           "gradient of a tangent by autograd.grad")
    return _forward_mode.enter().number


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the dual level; its tangents are dropped.

    Raises: RuntimeError where no level, or another one, was entered last. Reference: torch.autograd.forward_ad.exit_dual_level.
    """
    entered = next((found for found in everywhere.levels if found.thread is None), None)
    if level is not None and (entered is None or level != entered.number):
        raise RuntimeError(f"Trying to exit a forward AD level that was not the last one that was created, level {level} of which the last "
                           f"is {-1 if entered is None else entered.number}. This is not supported.")
    if entered is None:
        raise RuntimeError("Dual level must be a positive number: there is none to exit, as none was entered")
    _forward_mode.leave(entered)


class dual_level(_Mode):
    """A block in which tensors can have tangents, for all threads; at its end they are dropped. Also a decorator.

    Raises: RuntimeError inside another one. Reference: torch.autograd.forward_ad.dual_level.
    """

    __slots__ = ()

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exc_info):
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent`: as it is, where it is laid out as the tensor, else a copy.

    Both floating or complex, of one shape. What is computed from the result carries a tangent, too, also under no_grad(); what is
    written to it in place changes its tangent in place. Differentiable: gradients flow to both. In inference_mode() it carries nothing.
    Raises: RuntimeError outside of a level, for shapes that differ, a tensor that has a tangent, or a tangent that has; ValueError for
    integers. Reference: torch.autograd.forward_ad.make_dual.
    """
    levels = {found.number: found for found in mine()}
    number = max(levels, default=-1) if level is None else level
    if number < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {t.dtype}")
    if number not in levels:
        raise RuntimeError(f"Invalid level given to _make_dual: {number}, the last one that was entered is {max(levels, default=-1)}")
    found, gives = levels[number], not local.state.inference
    if gives and found.get(tensor) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level {number} is not "
                           f"supported.")
    if gives:
        check_tangent(found, tensor, tangent)
    with found.outside():
        dual = apart(OPS.dual_view, tensor)
        found.put(dual, laid_out(tangent, tensor) if gives else None)
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor: a view of it that carries none, and the tangent itself, None if there is none.

    Reference: torch.autograd.forward_ad.unpack_dual.
    """
    levels = {found.number: found for found in mine()}
    number = max(levels, default=-1) if level is None else level
    if number < 0:
        return UnpackedDualTensor(tensor, None)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    if number not in levels:
        return UnpackedDualTensor(apart(OPS.primal_view, tensor), None)
    found = levels[number]
    with found.outside():
        primal = apart(OPS.primal_view, tensor)
    found.put(primal, None)
    return UnpackedDualTensor(primal, found.get(tensor) if found in seen() else None)


def _is_fwd_grad_enabled() -> bool:
    """Whether operations of this thread carry tangents."""
    return carries_tangents() or local.state.sees == ALL and not local.state.inference


class _set_fwd_grad_enabled(_Mode):
    """Let operations carry tangents or not, in this thread, at once; as a context manager, until its end."""

    __slots__ = ("_flag", "_before")

    def __init__(self, mode: bool):
        self._previous, self._flag = [], mode
        self._before = local.state.sees
        local.state.sees = ALL if mode else 0

    def __enter__(self):
        self._previous.append(self._before)

    def __exit__(self, *exc_info):
        local.state.sees = self._previous.pop()

    def _fresh(self):
        return type(self)(self._flag)
