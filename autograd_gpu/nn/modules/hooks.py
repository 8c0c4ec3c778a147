"""Hooks of modules: before and after forward, and around a module's part of a backward."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from autograd_gpu.autograd.function import Function
from autograd_gpu.base import Tensor
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import HookDict, RemovableHandle
from autograd_gpu.ops.namespace import OPS

EVERY_MODULE = HookDict()                    # handle id: (kind, hook, with_kwargs, always_call)
ON_REGISTRATION = HookDict()                 # handle id: ("parameter", "buffer" or "module", hook)


def add(hooks: HookDict, hook: Any, prepend: bool = False) -> RemovableHandle:
    """Put a hook behind those that are there, or in front of them."""
    handle = RemovableHandle(hooks, hook)
    if prepend:
        for key in list(hooks)[:-1]:
            hooks[key] = hooks.pop(key)
    return handle


def of_every_module(kind: str) -> list[tuple[Any, bool, bool]]:
    """(hook, with_kwargs, always_call) of one kind that run for every module."""
    return [found for k, *found in EVERY_MODULE.values() if k == kind]


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What is registered with a module after the hooks that look at each registration."""
    for k, hook in tuple(ON_REGISTRATION.values()):
        if k == kind:
            changed = hook(module, name, value)
            if changed is not None:
                value = changed
    return value


# ------------------------------------------------------------------------------------------------- hooks of every module

def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, args) before each module's forward; what it returns, if anything, replaces the arguments.

    Reference: torch.nn.modules.module.register_module_forward_pre_hook.
    """
    return add(EVERY_MODULE, ("forward_pre", hook, False, False))


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Call hook(module, args, output) after each module's forward; what it returns, if anything, replaces the output.

    With `with_kwargs` it is hook(module, args, kwargs, output); with `always_call` it runs although forward raised.
    Reference: torch.nn.modules.module.register_module_forward_hook.
    """
    return add(EVERY_MODULE, ("forward", hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_output) when the gradients of a module's outputs are known, for every module.

    Reference: torch.nn.modules.module.register_module_full_backward_pre_hook.
    """
    return add(EVERY_MODULE, ("backward_pre", hook, False, False))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_input, grad_output) when the gradients of a module's inputs are known, for every module.

    Reference: torch.nn.modules.module.register_module_full_backward_hook.
    """
    return add(EVERY_MODULE, ("backward", hook, False, False))


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, parameter) for each parameter registered; what it returns, if anything, is registered instead.

    Reference: torch.nn.modules.module.register_module_parameter_registration_hook.
    """
    return add(ON_REGISTRATION, ("parameter", hook))


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, buffer) for each buffer registered; what it returns, if anything, is registered instead.

    Reference: torch.nn.modules.module.register_module_buffer_registration_hook.
    """
    return add(ON_REGISTRATION, ("buffer", hook))


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, submodule) for each module registered; what it returns, if anything, is registered instead.

    Reference: torch.nn.modules.module.register_module_module_registration_hook.
    """
    return add(ON_REGISTRATION, ("module", hook))


# -------------------------------------------------------------------------------------------------------- a call with hooks

def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """module.forward(*args, **kwargs) with every hook around it."""
    called: set[Any] = set()
    try:
        return _call(module, args, kwargs, called)
    except Exception:
        for key, hook, with_kwargs, always in _forward_hooks(module):
            if always and key not in called:
                try:
                    _after(module, hook, with_kwargs, args, kwargs, None)
                except Exception as error:   # the error that forward raised counts
                    warnings.warn("module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                                  f"error was raised in forward: {error}", stacklevel=3)
        raise


def _call(module, args, kwargs, called):
    for hook, _, _ in of_every_module("forward_pre"):
        args, kwargs = _before(module, hook, False, args, kwargs)
    for key, hook in tuple(module._forward_pre_hooks.items()):
        args, kwargs = _before(module, hook, key in module._forward_pre_hooks_with_kwargs, args, kwargs)
    hooks = [*(hook for hook, _, _ in of_every_module("backward")), *module._backward_hooks.values()]
    prehooks = [*(hook for hook, _, _ in of_every_module("backward_pre")), *module._backward_pre_hooks.values()]
    around = _BackwardHooks(module, hooks, prehooks) if hooks or prehooks else None
    if around is not None:
        args = around.watch_inputs(args)
    result = module.forward(*args, **kwargs)
    for key, hook, with_kwargs, _ in _forward_hooks(module):
        called.add(key)
        changed = _after(module, hook, with_kwargs, args, kwargs, result)
        if changed is not None:
            result = changed
    if around is not None:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                          f"{type(result)}", stacklevel=4)
        result = around.watch_outputs(result)
    return result


def _before(module, hook, with_kwargs, args, kwargs):
    if with_kwargs:
        changed = hook(module, args, kwargs)
        if changed is None:
            return args, kwargs
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
        return changed
    changed = hook(module, args)
    if changed is None:
        return args, kwargs
    return changed if isinstance(changed, tuple) else (changed,), kwargs


def _after(module, hook, with_kwargs, args, kwargs, result):
    return hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)


def _forward_hooks(module: Any) -> Iterator[tuple[Any, Any, bool, bool]]:
    """(id, hook, with_kwargs, always_call), those of every module first."""
    for key, (kind, hook, with_kwargs, always) in tuple(EVERY_MODULE.items()):
        if kind == "forward":
            yield key, hook, with_kwargs, always
    for key, hook in tuple(module._forward_hooks.items()):
        yield key, hook, key in module._forward_hooks_with_kwargs, key in module._forward_hooks_always_called


class BackwardHookFunction(Function):
    """Passes tensors on: a node of its own where a module begins and where it ends."""

    @staticmethod
    def forward(ctx, *args):
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx, *grads):
        return grads

    @staticmethod
    def jvp(ctx, *tangents):
        return tuple([OPS.alias(t) if needed else None for t, needed in zip(tangents, ctx.needs_input_grad, strict=True)])


class _BackwardHooks:
    """One call's hooks on the gradients of a module's inputs and outputs, held by the nodes at its two ends."""

    def __init__(self, module, hooks, prehooks):
        self.module, self.hooks, self.prehooks = module, hooks, prehooks
        self.inputs: list[int] = []          # which arguments are Tensors, if some require grad
        self.outputs: list[int] = []
        self.input_count = self.output_count = 0
        self.grad_output = None              # known from the end of the module's backward on, until its begin

    def watch_inputs(self, args):
        """The arguments, Tensors by way of a node whose hook sees the gradients of the inputs."""
        self.input_count = len(args)
        args, self.inputs = self._through_node(args, lambda node: node.register_hook(self._at_inputs))
        return args

    def watch_outputs(self, result):
        """The outputs, Tensors by way of a node whose hook sees the gradients of the outputs."""
        outputs = result if isinstance(result, tuple) else (result,)
        self.output_count = len(outputs)
        outputs, self.outputs = self._through_node(outputs, lambda node: node.register_hook(self._at_outputs))
        return outputs if isinstance(result, tuple) else outputs[0]

    @staticmethod
    def _through_node(values, register):
        where = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        if not local.state.enabled or local.state.inference or not any([values[i].requires_grad for i in where]):
            return values, []
        passed = BackwardHookFunction.apply(*[values[i] for i in where])
        register(next(t.grad_fn for t in passed if t.requires_grad))
        values = list(values)
        for i, t in zip(where, passed, strict=True):
            values[i] = t
        return tuple(values), where

    def _at_outputs(self, _, grads):
        grad_output = _spread(grads, self.outputs, self.output_count)
        for hook in self.prehooks:
            changed = hook(self.module, grad_output)
            if changed is not None:
                grad_output = _checked(changed, grad_output, "pre hook", "grad_output")
        self.grad_output = grad_output
        if not self.inputs:
            self._without_inputs()
        return tuple([grad_output[i] for i in self.outputs])

    def _without_inputs(self):
        """No input requires grad, so there is no later moment for the hooks."""
        warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                      "gradients: its grad_input holds None", stacklevel=2)
        for hook in self.hooks:
            changed = hook(self.module, (None,) * self.input_count, self.grad_output)
            if changed is not None and not (isinstance(changed, tuple) and all([g is None for g in changed])):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for all "
                                   "gradients.")
        self.grad_output = None

    def _at_inputs(self, grads, _):
        if self.grad_output is None:         # what came did not pass the module's end
            return None
        grad_input = _spread(grads, self.inputs, self.input_count)
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = _checked(changed, grad_input, "hook", "grad_input")
        self.grad_output = None
        return tuple([grad_input[i] for i in self.inputs])


def _spread(grads, where, count):
    """Gradients at the places of their Tensors, None elsewhere."""
    found = [None] * count
    for i, g in zip(where, grads, strict=True):
        found[i] = g
    return tuple(found)


def _checked(changed, given, what, name):
    if len(changed) != len(given):
        raise RuntimeError(f"Backward {what} returned an invalid number of {name}, got {len(changed)}, but expected {len(given)}")
    return changed
