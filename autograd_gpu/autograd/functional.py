"""Derivatives of functions of Tensors: jacobian, hessian, and their products with vectors, under torch.autograd.functional's names.

A function takes one Tensor or a tuple of them as its arguments, and returns one or a tuple; a result has the structure of what it belongs
to. What is returned is detached, unless `create_graph`: then it can be differentiated with respect to inputs that require grad. With
`strict`, an input or output that the function does not tie together is a RuntimeError instead of zeros.
"""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from autograd_gpu.autograd.forward_ad import make_dual, unpack_dual
from autograd_gpu.backward import grad
from autograd_gpu.base import Tensor
from autograd_gpu.devices import CPU
from autograd_gpu.engine.forward_mode import own_level
from autograd_gpu.engine.grad_mode import enable_grad
from autograd_gpu.generator import Repeatable, default_generator
from autograd_gpu.ops.creation import eye
from autograd_gpu.ops.namespace import OPS

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]

_Tensors = Tensor | tuple[Tensor, ...]
_NOT_STRICT = "This is not allowed in strict mode; pass strict=False to get zeros instead"


def _tensors(value, what, name):
    """(whether it is a tuple, the Tensors as a tuple). Raises TypeError for what is neither a Tensor nor a tuple of them."""
    several = isinstance(value, tuple)
    found = value if several else (value,)
    for i, t in enumerate(found):
        if not isinstance(t, Tensor):
            place = f"the value at index {i}" if several else f"the given {what}"
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but {place} has type {type(t)}")
    return several, found


def _apart(tensors, create_graph, requires_grad=True):
    """Tensors of our own to differentiate with respect to; with create_graph, where they require grad, results of the caller's."""
    return tuple([t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_(requires_grad) for t in tensors])


def _given(tensors, several, create_graph):
    """Tensors as they are given back to the caller."""
    found = tensors if create_graph else tuple([t.detach() for t in tensors])
    return found if several else found[0]


def _zeros_for_none(found, like):
    return tuple([OPS.zeros_like(t) if g is None else g for g, t in zip(found, like, strict=True)])


def recorded_grad(outputs, inputs, grad_outputs=None, **options):
    """autograd.grad of those outputs that require grad; None for each input that they do not depend on."""
    pairs = [(t, g) for t, g in zip(outputs, grad_outputs or (None,) * len(outputs), strict=True) if t is not None and t.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    outputs, grad_outputs = zip(*pairs, strict=True)
    return grad(outputs, inputs, grad_outputs, allow_unused=True, **options)


def linearized(outputs, inputs):
    """(gradients, push): `push(v, create_graph)` gives J @ v, the tangents of outputs for those of the inputs that they were computed from.

    u -> J.T @ u is linear, so its own vjp is v -> J @ v, the double-backward trick: `gradients` is J.T @ u, recorded for u = 0.
    """
    with enable_grad():
        u = tuple([OPS.zeros_like(t).requires_grad_() for t in outputs])
        gradients = recorded_grad(outputs, inputs, u, create_graph=True)

    def push(v, create_graph=False):
        return recorded_grad(gradients, u, v, retain_graph=True, create_graph=create_graph)
    return gradients, push


class _Call:
    """One call of a function of this file: the user's inputs, and the outputs that his function computes from them."""

    def __init__(self, name, inputs, create_graph, strict):
        self.name, self.create_graph, self.strict = name, create_graph, strict
        self.several, tensors = _tensors(inputs, "inputs", name)
        with enable_grad():
            self.inputs = _apart(tensors, create_graph)

    def run(self, function):
        """Call the user's function, recorded."""
        with enable_grad():
            outputs = function(*self.inputs)
        self.several_outputs, self.outputs = _tensors(outputs, "outputs of the user-provided function", self.name)
        for i, t in enumerate(self.outputs):
            if self.strict and not t.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require gradients: it has to be computed from the "
                                   f"inputs in a differentiable manner. {_NOT_STRICT}")

    def vector(self, v, like, several, whose):
        """The user's vector as a tuple, one for each of the Tensors in `like`; None stands for 1 where they are a single element."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise RuntimeError(f"{self.name}: the vector v can only be None if {whose} is a single Tensor with a single element")
            return None
        _, v = _tensors(v, "v", self.name)
        if len(v) != len(like):
            raise RuntimeError(f"{self.name}: v is a tuple of invalid length: should be {len(like)} but got {len(v)}" if several else
                               f"{self.name}: The given v should contain a single Tensor, got {len(v)}")
        for i, (x, y) in enumerate(zip(v, like, strict=True)):
            if x.shape != y.shape:
                raise RuntimeError(f"{self.name}: {f'Entry {i} in ' if several else ''}v has invalid size: should be {y.shape} but got "
                                   f"{x.shape}")
        with enable_grad():
            return _apart(v, self.create_graph, False)

    def vector_of_inputs(self, v):
        """vector, for one that belongs to the inputs."""
        return self.vector(v, self.inputs, self.several, "the input to the user-provided function")

    def first_derivative(self):
        """The gradient of the function's only element, recorded. Raises RuntimeError where it gives anything else, or by `strict`."""
        if self.several_outputs:
            raise RuntimeError(f"The function given to {self.name} should return a single Tensor, not a tuple")
        if self.outputs[0].numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {self.name} should contain a single element, got shape "
                               f"{self.outputs[0].shape}")
        found = recorded_grad(self.outputs, self.inputs, create_graph=True)
        for i, g in enumerate(found if self.strict else ()):
            if g is None:
                raise RuntimeError(f"The output of the user-provided function is independent of input {i}. {_NOT_STRICT}")
            if not g.requires_grad:
                raise RuntimeError(f"While computing the hessian, the jacobian of the user-provided function with respect to input {i} was "
                                   f"found to be independent of the input, as that of a linear function is: it has to be twice "
                                   f"differentiable. {_NOT_STRICT}")
        return _zeros_for_none(found, self.inputs)

    def filled(self, found, like, independent, derivative):
        """Zeros where nothing was found. Raises RuntimeError in strict mode, also for what cannot be differentiated with create_graph."""
        for i, g in enumerate(found if self.strict else ()):
            if g is None:
                raise RuntimeError(f"{independent} {i}. {_NOT_STRICT}")
            if self.create_graph and not g.requires_grad:
                raise RuntimeError(f"The {derivative} of the user-provided function is independent of input {i}. {_NOT_STRICT}, or "
                                   f"create_graph=False")
        return _zeros_for_none(found, like)

    def answer(self, found, of_inputs=True):
        """(the function's outputs, what was found), as the user gets them."""
        return (_given(self.outputs, self.several_outputs, self.create_graph),
                _given(found, self.several if of_inputs else self.several_outputs, self.create_graph))


def vjp(func: Callable, inputs: _Tensors, v: _Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """(func(*inputs), v.T @ J): what the outputs' gradients v are for the inputs.

    v: shaped as the outputs; may be None for a single element. Raises: TypeError for what is no Tensor, RuntimeError for a v that
    does not fit, or by `strict`. Reference: torch.autograd.functional.vjp.
    """
    call = _Call("vjp", inputs, create_graph, strict)
    call.run(func)
    v = call.vector(v, call.outputs, call.several_outputs, "the output of the user-provided function")
    found = recorded_grad(call.outputs, call.inputs, v, create_graph=create_graph)
    return call.answer(call.filled(found, call.inputs, "The output of the user-provided function is independent of input", "jacobian"))


def jvp(func: Callable, inputs: _Tensors, v: _Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """(func(*inputs), J @ v): how the outputs change along the direction v. By two backwards; see `linearized`.

    v: shaped as the inputs; may be None for a single element. Raises as vjp. Reference: torch.autograd.functional.jvp.
    """
    call = _Call("jvp", inputs, create_graph, strict)
    v = call.vector_of_inputs(v)
    call.run(func)
    gradients, push = linearized(call.outputs, call.inputs)
    for i, g in enumerate(gradients if strict else ()):
        if g is None:
            raise RuntimeError(f"The output of the user-provided function is independent of input {i}. {_NOT_STRICT}")
        if not g.requires_grad:
            raise RuntimeError(f"The gradient with respect to input {i} is independent of the inputs of the user-provided function. "
                               f"{_NOT_STRICT}")
    independent = "The gradient of the inputs, which the double-backward trick differentiates, is independent of grad_outputs entry"
    return call.answer(call.filled(push(v, create_graph), call.outputs, independent, "jacobian"), of_inputs=False)


def vhp(func: Callable, inputs: _Tensors, v: _Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """(func(*inputs), v.T @ H) for a function that returns a single element: by one backward through its gradient.

    v: shaped as the inputs; may be None for a single element. Raises as vjp. Reference: torch.autograd.functional.vhp.
    """
    call = _Call("vhp", inputs, create_graph, strict)
    v = call.vector_of_inputs(v)
    call.run(func)
    found = recorded_grad(call.first_derivative(), call.inputs, v, create_graph=create_graph)
    return call.answer(call.filled(found, call.inputs, "The jacobian of the user-provided function is independent of input", "hessian"))


def hvp(func: Callable, inputs: _Tensors, v: _Tensors | None = None, create_graph: bool = False, strict: bool = False):
    """(func(*inputs), H @ v) for a function that returns a single element. H is symmetric for most: vhp then gives the same, sooner.

    v: shaped as the inputs; may be None for a single element. Raises as vjp. Reference: torch.autograd.functional.hvp.
    """
    call = _Call("hvp", inputs, create_graph, strict)
    v = call.vector_of_inputs(v)
    call.run(func)
    _, push = linearized(call.first_derivative(), call.inputs)
    independent = "The hessian of the user-provided function, by the double-backward trick, is independent of grad_jacobian entry"
    return call.answer(call.filled(push(v, create_graph), call.inputs, independent, "hessian"))


def jacobian(func: Callable, inputs: _Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode"):
    """The derivative of each output with respect to each input, of shape (*output.shape, *input.shape): one per pair, outputs outside.

    strategy: "reverse-mode" runs a backward per element of the outputs; "forward-mode", with vectorize, pushes a direction per element
    of the inputs. vectorize changes no result, and takes complex outputs.
    Raises: AssertionError for another strategy, NotImplementedError or RuntimeError for options that PyTorch does not combine.
    Reference: torch.autograd.functional.jacobian.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f"jacobian: expected strategy to be either 'forward-mode' or 'reverse-mode', got {strategy!r}")
    forward = strategy == "forward-mode"
    if forward and create_graph:
        raise NotImplementedError("jacobian: create_graph=True and strategy='forward-mode' are not supported together: use 'reverse-mode'")
    if forward and strict:
        raise RuntimeError("jacobian: strict=True and strategy='forward-mode' are not supported together: use 'reverse-mode'")
    if forward and not vectorize:
        raise NotImplementedError("jacobian: strategy='forward-mode' is only implemented for vectorize=True")
    if forward:
        return _forward_jacobian(func, inputs)
    call = _Call("jacobian", inputs, create_graph, strict)
    call.run(func)
    if vectorize and strict:
        raise RuntimeError("jacobian: strict=True and vectorize=True are not supported together: leave one of them out")
    with enable_grad():
        blocks = [_rows(call, i, out, vectorize) for i, out in enumerate(call.outputs)]
    found = tuple([_given(tuple(of_output), call.several, create_graph) for of_output in blocks])
    return found if call.several_outputs else found[0]


def _rows(call, i, output, vectorize):
    """The derivatives of one output with respect to each input: a backward per element."""
    flat, options = output.reshape(-1), dict(retain_graph=True, create_graph=call.create_graph)
    if not flat.numel():
        found = (None,) * len(call.inputs)
    elif vectorize:
        found = recorded_grad((flat,), call.inputs, (basis(flat),), is_grads_batched=True, **options)
    else:
        rows = [recorded_grad((flat[k],), call.inputs, **options) for k in range(flat.numel())]
        found = tuple([None if None in column else OPS.stack(column) for column in zip(*rows, strict=True)])
    if call.strict:
        call.filled(found, call.inputs, f"Output {i} of the user-provided function is independent of input", "jacobian")
    return [t.new_zeros((*output.shape, *t.shape)) if g is None else g.reshape((*output.shape, *t.shape))
            for g, t in zip(found, call.inputs, strict=True)]


def _forward_jacobian(func, inputs):
    """jacobian by forward mode. Tangents of what requires grad are recorded, as any computation is."""
    several, inputs = _tensors(inputs, "inputs", "jacobian")
    structure: list[Any] = []

    def run(*duals):
        structure[:] = _tensors(func(*duals), "outputs of the user-provided function", "jacobian")
        return structure[1]
    found = [_given(tuple(of_output), several, any([t.requires_grad for t in inputs])) for of_output in columns(run, inputs)]
    return tuple(found) if structure[0] else found[0]


def pushed(function, inputs, tangents):
    """[(output, its tangent or None)] of a function that gives several Tensors, for tangents of its inputs: in a dual level of its own."""
    with own_level() as level:
        duals = [make_dual(t, v, level=level) for t, v in zip(inputs, tangents, strict=True)]
        return [unpack_dual(t, level=level) for t in function(*duals)]


def columns(function, inputs, randomness="error"):
    """For each output of a function its derivatives with respect to each input: a call in forward mode per element of an input."""
    check_randomness(randomness)
    still = [OPS.zeros_like(t) for t in inputs]
    found: list[list[Any]] = []
    drawn, numbers, last = Drawn(randomness, inputs), itertools.count(), sum([t.numel() for t in inputs]) - 1
    for j, t in enumerate(inputs):
        found.append([])
        for direction in basis(t.reshape(-1)):
            k = next(numbers)
            mine = inputs if k == last else [x.clone() for x in inputs]          # the function may write to them
            with drawn.slice(k):
                found[-1].append(pushed(function, mine, (*still[:j], direction.reshape(t.shape), *still[j + 1:])))
    drawn.check()
    outputs = next(([primal for primal, _ in calls[0]] for calls in found if calls), None) or function(*inputs)
    return [[_column(out, t, [call[i].tangent for call in calls]) for t, calls in zip(inputs, found, strict=True)]
            for i, out in enumerate(outputs)]


def _column(output, t, tangents):
    """The derivatives of an output with respect to an input, from the tangents that the input's directions gave."""
    if not tangents:
        return output.new_zeros((*output.shape, *t.shape))
    return OPS.stack(_zeros_for_none(tangents, [output] * len(tangents)), -1).reshape((*output.shape, *t.shape))


def check_randomness(randomness):
    """Raises RuntimeError for what is none of the three."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


class Drawn:
    """Random numbers in the calls of a loop that stands for one: an "error", "different" in each call, or the "same"."""

    def __init__(self, randomness, leaves):
        self.repeatable = Repeatable({t.device for t in leaves if isinstance(t, Tensor)} - {CPU}) if randomness == "same" else None
        self.before = default_generator.get_state().tolist() if randomness == "error" else None

    def slice(self, k):
        """The k-th call runs in this block."""
        if self.repeatable is None:
            return contextlib.nullcontext()
        return self.repeatable.first() if k == 0 else self.repeatable.again()

    def check(self):
        """Raises RuntimeError where numbers were drawn that should not have been."""
        if self.before is not None and default_generator.get_state().tolist() != self.before:
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
                               "randomness flags on vmap or perform the randomness operation out of vmap")


def basis(flat):
    """The unit vectors of the space that a 1-d Tensor lives in, as rows."""
    return eye(flat.numel(), dtype=flat.dtype, device=flat.device)


def hessian(func: Callable, inputs: _Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode"):
    """The second derivatives of a function that returns a single element, of shape (*input_i.shape, *input_j.shape) for each pair.

    outer_jacobian_strategy, vectorize: how the jacobian of the gradient is computed; see jacobian.
    Raises: RuntimeError where the function returns anything else; as jacobian. Reference: torch.autograd.functional.hessian.
    """
    several, _ = _tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f"hessian: expected outer_jacobian_strategy to be either 'forward-mode' or 'reverse-mode', got "
                             f"{outer_jacobian_strategy!r}")

    def gradient(*tensors):
        if outer_jacobian_strategy == "forward-mode":
            tensors = tuple([t.requires_grad_() for t in tensors])
        call = _Call("hessian", tensors, True, strict)
        call.run(func)
        return call.first_derivative()
    found = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if several else found[0]
