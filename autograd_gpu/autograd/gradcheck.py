"""Gradients checked against finite differences, of first and second order.

With J the Jacobian of an output with respect to an input, differences give J u for a direction u of the input, backward gives v^T J for
a v of the output's shape. Slow mode takes every unit vector and compares all of J; fast mode compares v^T J u for one random u and v.

For a complex input, J is the derivative by the real part plus i times that by the imaginary part: what backward gives for a real output.
A complex output is checked as two real ones, its real and its imaginary part.
"""
from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from autograd_gpu.autograd.forward_ad import make_dual, unpack_dual
from autograd_gpu.autograd.function import Function
from autograd_gpu.backward import grad
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.dtypes import complex128, float64, promote_types
from autograd_gpu.engine.forward_mode import own_level
from autograd_gpu.generator import Generator
from autograd_gpu.ops.namespace import OPS

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient that is not what finite differences give, or not the same each time.

    Reference: torch.autograd.gradcheck.GradcheckError.
    """


def gradcheck(func: Callable[..., Any], inputs: Tensor | Sequence[Any], *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """Check the gradients of `func(*inputs)`, a Tensor or several, against central differences of step `eps`.

    Every input that requires a gradient is checked: real or complex, of any shape, in float64 or complex128, as differences of
    narrower types are too rough for the default tolerances. `func` is called often, and each time has to compute the same; the inputs'
    memory is changed while it runs, and is as before afterwards, as is their .grad.

    atol, rtol: as in allclose. nondet_tol: how far two backwards of the same may differ. check_undefined_grad: whether the backwards
    of custom Functions have to cope with gradients that are None. check_forward_ad: also compare tangents, J u, computed in forward mode;
    without check_backward_ad, only these. fast_mode: compare one random projection of each Jacobian in place
    of all of it. masked: let gradients that should be zero be close to it. check_grad_dtypes: nothing left to check, since the engine
    gives each gradient its input's dtype; nor for check_batched_grad and check_batched_forward_grad, as a batch is a loop.
    Returns True, or without raise_exception False in place of a GradcheckError.
    Raises: GradcheckError; ValueError where no input requires a gradient; RuntimeError for an input whose elements overlap in memory;
    AssertionError for options that contradict each other, or where the shape or dtype of what `func` returns depends on the inputs'
    values; and what `func` raises.
    Reference: torch.autograd.gradcheck.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("gradcheck: Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("gradcheck: check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("gradcheck: check_batched_forward_grad=True requires check_forward_ad to be True")
    check = _Check(func, _as_tuple(inputs), eps, atol, rtol, nondet_tol)
    check.check_inputs()
    try:
        if check_backward_ad:
            check.check_jacobians(fast_mode)
        if check_forward_ad:
            check.check_forward(fast_mode)
            if check_undefined_grad:
                check.check_missing_tangents()
        if check_backward_ad:
            check.check_zero_grad(bool(masked))
            if check_undefined_grad:
                check.check_undefined_grad()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func: Callable[..., Any], inputs: Tensor | Sequence[Any], grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
                  *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False,
                  raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
                  check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """gradcheck of the gradients of `func`, as a function of the inputs and of the gradients with respect to its outputs.

    grad_outputs: these gradients; by default random ones between -1 and 1, the same each time, strided if
    gen_non_contig_grad_outputs. check_fwd_over_rev: also compare the gradients' tangents. All else as in gradcheck.
    Reference: torch.autograd.gradgradcheck.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("gradgradcheck: Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("gradgradcheck: check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("gradgradcheck: check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = _as_tuple(inputs)
    if grad_outputs is None:
        stream = Generator().manual_seed(0)
        outputs = _as_tuple(func(*inputs))
        grad_outputs = [_random_grad(o, stream, gen_non_contig_grad_outputs) for o in outputs if o.requires_grad]

    def gradients(*args):
        wanted = [x.requires_grad_() for x, own in zip(args, inputs, strict=False) if _is_wanted(own)]      # forward mode gives plain ones
        outputs = [o for o in _as_tuple(func(*args[:len(inputs)])) if o.requires_grad]
        found = grad(outputs, wanted, args[len(inputs):], create_graph=True, allow_unused=True)
        return [g for g in found if g is not None]

    return gradcheck(gradients, inputs + _as_tuple(grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
                     check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev,
                     fast_mode=fast_mode, masked=masked)


@dataclasses.dataclass
class _Check:
    """One gradcheck: the function and how closely it is looked at."""

    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    eps: float
    atol: float
    rtol: float
    nondet_tol: float

    def __post_init__(self):
        self.wanted = {j: x for j, x in enumerate(self.inputs) if _is_wanted(x)}
        self.stream = Generator().manual_seed(0)

    def check_inputs(self):
        """Raise for inputs that cannot be checked, warn for those that hardly can."""
        for j, x in self.wanted.items():
            if x.dtype not in (float64, complex128):
                warnings.warn(f"gradcheck: Input #{j} requires gradient and is not a double precision floating point or complex: it is "
                              f"{x.dtype}. This check will likely fail: convert it, or pass larger eps, atol and rtol", stacklevel=3)
            if x.numel() and any([n > 1 and stride == 0 for n, stride in zip(x.shape, x.stride(), strict=True)]):
                raise RuntimeError(f"gradcheck: the {j}th input has a dimension with stride 0, but only inputs that are non-overlapping "
                                   f"can be moved element by element: pass its clone()")
        if not self.wanted:
            raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True")

    def call(self):
        """What the function returns, as a tuple."""
        return _as_tuple(self.func(*self.inputs))

    def outputs(self):
        """What the function returns, as real Tensors: {(position, which part of a complex one): Tensor}."""
        return _as_real(self.call())

    # ----------------------------------------------------------------------------------------------------- differences

    def quotients(self, place, u, names):
        """(f(p + eps u) - f(p - eps u)) / (2 eps), flat, for the outputs of these names, at `place`: memory that they are computed from."""
        origin, moved = place.clone(), []
        try:
            for step in (-self.eps * u, self.eps * u):
                place.copy_(origin + step)
                found = self.outputs()
                moved.append([found[name].detach().clone() for name in names])
        finally:
            place.copy_(origin)
        for low, high in zip(*moved, strict=True):
            if low.shape != high.shape or low.dtype != high.dtype:
                raise AssertionError(f"gradcheck: Expected `func` to return outputs with the same shape and dtype when inputs are "
                                     f"perturbed by {self.eps}, but got {low.dtype} of {tuple(low.shape)} and {high.dtype} of "
                                     f"{tuple(high.shape)}")
        return [((high - low) / (2 * self.eps)).reshape(-1) for low, high in zip(*moved, strict=True)]

    def slopes(self, place, u, names):
        """{output: J u}. For a complex place: the derivative along u.real, plus i times that along i u.imag."""
        return _along_parts(lambda v: self.quotients(place, v, names), u, names)

    def numerical(self, x, outputs):
        """The Jacobian of each output: a row per element of x, a column per element of the output."""
        dtype = x.dtype if x.is_complex() else None
        found = {name: o.new_zeros((x.numel(), o.numel()), dtype=dtype) for name, o in outputs.items()}
        u = x.new_full((), 1 + 1j if x.is_complex() else 1)
        for row, index in enumerate(itertools.product(*map(range, x.shape))):
            for name, slope in self.slopes(x.data[index], u, outputs).items():
                found[name][row] = slope
        return found

    # -------------------------------------------------------------------------------------------------------- tangents

    def tangents(self, tangents, names):
        """The tangents, flat, of the outputs of these names, for {position of an input: its tangent}."""
        with own_level() as level:
            inputs = [make_dual(x.detach(), tangents[j], level=level) if j in tangents else x.detach() if j in self.wanted else x
                      for j, x in enumerate(self.inputs)]
            found = _as_real([_tangent(o, level) for o in _as_tuple(self.func(*inputs))])
        return [found[name].reshape(-1) for name in names]

    def pushed(self, j, u, names):
        """{output: J u} by forward mode, as in slopes."""
        zeros = {i: x.detach().new_zeros(x.shape) for i, x in self.wanted.items()}
        return _along_parts(lambda v: self.tangents(zeros | {j: v.to(self.wanted[j].dtype)}, names), u, names)

    def pushed_units(self, j, outputs):
        """The Jacobian of each output with respect to input j by forward mode, as in numerical."""
        x = self.wanted[j]
        rows = [self.pushed(j, u * (1 + 1j) if x.is_complex() else u, outputs) for u in _unit_vectors(x.detach())]
        return {name: OPS.stack([row[name] for row in rows]) if rows else o.new_zeros((0, o.numel())) for name, o in outputs.items()}

    # ------------------------------------------------------------------------------------------------------- backwards

    def rows(self, output, v=None):
        """{position of an input: v^T J as a row; J, a row per element of the output, if no v is given}."""
        found = {j: x.new_zeros((output.numel() if v is None else 1, x.numel())) for j, x in self.wanted.items()}
        for row, each in enumerate(_unit_vectors(output) if v is None else [v]):
            gradients = grad(output, list(self.wanted.values()), each, retain_graph=True, allow_unused=True)
            for matrix, g in zip(found.values(), gradients, strict=True):
                if g is not None:
                    matrix[row] = g.reshape(-1)
        return found

    def analytical(self, output, v=None):
        """rows, after a look at whether other backwards give the same."""
        first, second = self.rows(output, v), self.rows(output, v)
        for j, a in first.items():
            if a.numel() and (difference := (a - second[j]).abs().max().item()) > self.nondet_tol:
                raise GradcheckError(f"Backward is not reentrant, i.e. two backwards with the same input and grad_output gave values that "
                                     f"differ by {difference}. The tolerance for nondeterminism was {self.nondet_tol}: pass a larger "
                                     f"nondet_tol where the operation is meant to be nondeterministic")
        return first

    # ------------------------------------------------------------------------------------------------------ comparison

    def check_jacobians(self, fast):
        """Compare J of each output that requires a gradient with respect to each input that does."""
        found = self.differentiable(fast)
        if found and fast:
            self.compare_projections(found)
        elif found:
            self.compare_jacobians(found)

    def differentiable(self, fast):
        """The outputs that require a gradient. Where none does, none may change with the inputs."""
        outputs = self.outputs()
        found = {name: o for name, o in outputs.items() if o.requires_grad}
        if not found:
            self.check_constant({name: o for name, o in outputs.items() if o.is_floating_point()}, fast)
        return found

    def check_constant(self, outputs, fast):
        for x in self.wanted.values():
            found = self.slopes(x.data, _random(x, self.stream), outputs) if fast else self.numerical(x, outputs)
            if any([not _is_zero(slope, self.nondet_tol if fast else 0) for slope in found.values()]):
                raise GradcheckError("Numerical gradient for function expected to be zero, as none of its outputs requires grad: is it "
                                     "detached, or computed under no_grad()?")

    def compare_jacobians(self, outputs):
        """Slow mode: J itself."""
        numerical = {j: self.numerical(x, outputs) for j, x in self.wanted.items()}
        for name, o in outputs.items():
            for j, rows in self.analytical(o).items():
                if not _close(rows.t(), numerical[j][name], self.rtol, self.atol):
                    raise GradcheckError(_mismatch(name, j, rows.t(), numerical[j][name]))

    def compare_projections(self, outputs):
        """Fast mode: v^T J u, for one random v per output and one random u per input."""
        us = {j: _random(x, self.stream) for j, x in self.wanted.items()}
        numerical = {j: self.slopes(x.data, us[j], outputs) for j, x in self.wanted.items()}
        for name, o in outputs.items():
            v = _random(o, self.stream)
            for j, row in self.analytical(o, v).items():
                x, u = self.wanted[j], us[j]
                a, n = _along(row.reshape(x.shape), u), (v.reshape(-1) * numerical[j][name]).sum()
                if not _close(a, n, self.rtol, self.atol * _weight(u) * _weight(v)):
                    jacobian, differences = self.rows(o)[j].t(), self.numerical(x, {name: o})[name]
                    close = _close(jacobian, differences, self.rtol, self.atol)
                    raise GradcheckError(f"{_mismatch(name, j, a, n)}These are projections on random vectors, as fast_mode is set. The "
                                         f"Jacobians themselves {'are close: pass fast_mode=False' if close else 'differ too'}.\n"
                                         f"numerical:{differences}\nanalytical:{jacobian}\n")

    def check_forward(self, fast):
        """Compare J of each output that requires a gradient, computed in forward mode."""
        outputs = self.differentiable(fast)
        for j, x in self.wanted.items():
            if fast:
                u = _random(x, self.stream)
                found, expected = self.pushed(j, u, outputs), self.slopes(x.data, u, outputs)
            else:
                found, expected = self.pushed_units(j, outputs), self.numerical(x, outputs)
            for name in outputs:
                a, n = found[name], expected[name]
                if not _close(a, n, self.rtol, self.atol * (_weight(u) if fast else 1)):
                    a, n = (a, n) if fast else (a.t(), n.t())
                    raise GradcheckError(_mismatch(name, j, a, n, "computed with forward mode "))

    def check_missing_tangents(self):
        """An input without a tangent has to count as one whose tangent is zero."""
        names = [name for name, o in self.outputs().items() if o.requires_grad]
        tangents = {j: _random(x, self.stream) for j, x in self.wanted.items()}
        for j, x in self.wanted.items():
            without = {i: t for i, t in tangents.items() if i != j}
            zero = self.tangents(tangents | {j: x.detach().new_zeros(x.shape)}, names)
            for (i, _), a, b in zip(names, zero, self.tangents(without, names), strict=True):
                if not _close(a, b, 1e-5, 1e-8):
                    raise GradcheckError(f"Mismatch in tangent values for output with index: {i} when input {j} has an undefined tangent "
                                         f"value. Got: {a} but expected: {b}")

    def check_zero_grad(self, masked):
        """A gradient of zero for each output has to become zero for each input."""
        outputs = [o for o in self.call() if o.requires_grad]
        for g in self.gradients_of_zero(outputs):
            if g is not None and not _is_zero(g, 1e-8 if masked else 0):
                raise GradcheckError("backward not multiplied by grad_output: where that is zero, it gave a gradient that is not")

    def check_undefined_grad(self):
        """A gradient that is missing, of all outputs or of one of several, has to count as zero."""
        count = len([o for o in self.call() if o.requires_grad])
        for undefined in [range(count), *([i] for i in range(count if count > 1 else 0))]:
            outputs = [o for o in self.call() if o.requires_grad]
            try:
                found = self.gradients_of_zero([_UndefinedGrad.apply(o) if i in undefined else o for i, o in enumerate(outputs)])
            except RuntimeError as error:
                raise GradcheckError("Expected backward function to handle undefined output grads: where set_materialize_grads(False) was "
                                     "called, a gradient may be None; or pass check_undefined_grad=False") from error
            if any([g is not None and not _is_zero(g, 0) for g in found]):
                raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or zero; pass "
                                     "check_undefined_grad=False to leave this out")

    def gradients_of_zero(self, outputs):
        """The inputs' gradients where the outputs' are zero."""
        return grad(outputs, list(self.wanted.values()), [o.new_zeros(o.shape) for o in outputs], allow_unused=True)


class _UndefinedGrad(Function):
    """The identity, through which no gradient arrives."""

    @staticmethod
    def forward(ctx, x):
        return OPS.alias(x)

    @staticmethod
    def backward(ctx, g):
        return None


def _as_real(outputs):
    """Complex outputs as two real ones: {(position, which part of a complex one): Tensor}."""
    found: dict[tuple[int, str | None], Tensor] = {}
    for i, o in enumerate(outputs):
        if o.is_complex():
            found[i, "imaginary"], found[i, "real"] = o.imag, o.real
        else:
            found[i, None] = o
    return found


def _tangent(output, level):
    """The tangent of an output; zeros if it has none."""
    tangent = unpack_dual(output, level=level).tangent
    return output.detach().new_zeros(output.shape) if tangent is None else tangent.detach()


def _along_parts(slopes, u, names):
    """{output: J u} of what gives a list of them for a direction; for a complex u, that of its real part, plus i times that of i u.imag."""
    found = slopes(u.real)
    if u.is_complex():
        found = [a + 1j * b for a, b in zip(found, slopes(1j * u.imag), strict=True)]
    return dict(zip(names, found, strict=True))


def _as_tuple(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _is_wanted(x):
    return isinstance(x, Tensor) and x.requires_grad


def _random_grad(output, stream, strided):
    """A gradient for an output: a leaf of numbers between -1 and 1, which are not side by side in memory if `strided`."""
    g = 2 * wrap(stream.uniform(output.shape, output._array.dtype)).to(output.device) - (1 + 1j if output.is_complex() else 1)
    return (OPS.stack((g, g), -1)[..., 0] if strided else g).requires_grad_()


def _random(like, stream):
    """A vector of length 1, in the tensor's shape; its numbers are positive, so that tolerances add up along it."""
    u = wrap(stream.uniform(like.shape, like._array.dtype)).to(like.device)
    return u / u.norm()


def _unit_vectors(output):
    for k in range(output.numel()):
        v = output.new_zeros(output.numel())
        v[k] = 1
        yield v.reshape(output.shape)


def _along(row, u):
    """v^T J u from v^T J, real and imaginary parts apart as in slopes."""
    if row.is_complex():
        return (row.real * u.real).sum() + 1j * (row.imag * u.imag).sum()
    return (row * u).sum()


def _weight(u):
    """By how much a tolerance for each element grows along u."""
    total = u.sum().item()
    return total.real + total.imag


def _is_zero(t, tolerance):
    return not t.numel() or bool(t.abs().max() <= tolerance)


def _close(a, n, rtol, atol):
    dtype = promote_types(a.dtype, n.dtype)
    return OPS.allclose(a.to(dtype), n.to(a.device, dtype), rtol, atol)


def _mismatch(name, j, analytical, numerical, how=""):
    i, part = name
    where = "" if part is None else f"While considering the {part} part of complex outputs only, "
    return (f"{where}Jacobian {how}mismatch for output {i} with respect to input {j},\nnumerical:{numerical}\nanalytical:{analytical}\n")
