"""Hooks on gradients: of a leaf, of a node."""
from __future__ import annotations

import weakref

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.engine.node import HookDict, RemovableHandle, rare_of, stand_in

OWN = object()                               # stands for the leaf's own dtype


class LeafHooks:
    """A leaf's hooks: on its gradient, and after the gradient was accumulated. Kept by the tensor, so that they outlive graphs.

    And the dtype that its gradient is brought to first, NumPy's: its own, another, or None for whatever it comes in.
    """

    __slots__ = ("tensor_hooks", "post_accumulate", "grad_dtype")

    def __init__(self):
        self.tensor_hooks = HookDict()
        self.post_accumulate = HookDict()
        self.grad_dtype = OWN


def _as_tensor(g):
    """A gradient as a hook sees it: a copy, since what a hook writes must reach nobody else's gradient."""
    if g is None:
        return None
    return stand_in(g, g._array.copy()) if isinstance(g, Tensor) else wrap(g.copy())


def _replace(value, given, what):
    """What a hook returned, as a gradient in place of the one it was given."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} should return a Tensor or None, got {type(value).__name__}")
    if given is None:
        raise RuntimeError(f"{what} can't replace a None gradient with a non-None value: nothing flowed here")
    if value._array.shape != given._array.shape:
        raise RuntimeError(f"{what} has changed the size of value: it got {given._array.shape} and returned {value._array.shape}")
    if value._array.dtype != given._array.dtype:
        raise RuntimeError(f"{what} has changed the type of value: it got {given._array.dtype} and returned {value._array.dtype}")
    return value


def _call_all(hooks, g, what):
    """A gradient through hooks of the form grad -> None or its replacement."""
    t = _as_tensor(g)
    for hook in tuple(hooks):
        result = hook(t)
        if result is not None:
            t = _replace(result, t, what)
    return t


def _back(t, tensors):
    return t if t is None or tensors else t._array


def run_leaf_hooks(leaf, g, tensors):
    """The gradient of a leaf after its hooks."""
    if leaf.grad_dtype is not OWN and leaf.grad_dtype is not None and g is not None:
        g = g.to(_dtype.of(leaf.grad_dtype)) if tensors else g.astype(leaf.grad_dtype, copy=False)
    return _back(_call_all(leaf.tensor_hooks.values(), g, "hook"), tensors)


def run_tensor_hooks(node, grad, tensors):
    """A node's incoming gradients after the hooks of the tensors that it made, and kept where retain_grad asked for it."""
    rare = node._rare
    grads = [grad] if node._outputs == 1 else list(grad)
    for nr, hooks in rare.tensor_hooks.items():
        grads[nr] = _back(_call_all(hooks.values(), grads[nr], "hook"), tensors)
    for nr, reference in rare.retain.items():
        t = reference()
        if t is None or grads[nr] is None:
            continue
        g = grads[nr] if tensors else wrap(grads[nr].copy())
        if t._grad is None:
            t._grad = g.clone() if tensors else g
        else:
            t._grad = t._grad + g
    return grads[0] if node._outputs == 1 else grads


def _replaced(result, given, what):
    """What a hook returned in place of several gradients, checked."""
    if not isinstance(result, tuple):
        raise TypeError(f"{what}: expected tuple of {len(given)} gradients or None, but hook returned '{type(result).__name__}'")
    if len(result) != len(given):
        raise RuntimeError(f"{what} has returned an incorrect number of values: it got {len(given)} gradients and returned {len(result)}")
    return tuple(None if r is None else _replace(r, g, what) for r, g in zip(result, given, strict=True))


def _differentiable(node, grads):
    """Which of a node's results its hooks get to see: those that have gradients at all."""
    record = getattr(node, "_record", None)
    return range(len(grads)) if record is None or record.outputs == "list" else [i for i, d in enumerate(record.differentiable) if d]


def run_prehooks(node, grad, tensors):
    """A node's incoming gradients after its prehooks, each of the form (grads) -> None or the grads in their place."""
    grads = [grad] if node._outputs == 1 else list(grad)
    shown = _differentiable(node, grads)
    given = tuple([_as_tensor(grads[i]) for i in shown])
    for hook in tuple(node._rare.prehooks.values()):
        result = hook(given)
        if result is not None:
            given = _replaced(result, given, "prehook")
    for i, t in zip(shown, given, strict=True):
        grads[i] = _back(t, tensors)
    return grads[0] if node._outputs == 1 else grads


def run_posthooks(node, results, grad, tensors):
    """A node's results after its hooks, each of the form (results, incoming) -> None or the results in their place."""
    several = isinstance(results, tuple)
    inputs = tuple(_as_tensor(g) for g in (results if several else (results,)))
    grads = grad if isinstance(grad, (list, tuple)) else (grad,)
    outputs = tuple([_as_tensor(grads[i]) for i in _differentiable(node, grads)])
    for hook in tuple(node._rare.posthooks.values()):
        changed = hook(inputs, outputs)
        if changed is not None:
            inputs = _replaced(changed, inputs, "hook")
    back = tuple(_back(t, tensors) for t in inputs)
    return back if several else back[0]


def register_on_tensor(t: Tensor, hook):
    """A hook on the gradient of a tensor that requires one."""
    if t._node is None:
        hooks = leaf_hooks(t).tensor_hooks
    else:
        hooks = rare_of(t._node).tensor_hooks.setdefault(t._nr, HookDict())
    return RemovableHandle(hooks, hook)


def has_hooks(t: Tensor) -> bool:
    """Whether a hook was ever registered on a tensor that is not a leaf, since it has its history."""
    rare = getattr(t._node, "_rare", None)
    return rare is not None and t._nr in rare.tensor_hooks


def leaf_hooks(t: Tensor) -> LeafHooks:
    """The hooks of a leaf, made at the first need."""
    if t._hooks is None:
        t._hooks = LeafHooks()
    return t._hooks


def retain_grad(t: Tensor):
    """Keep the gradient of a tensor that is not a leaf in its .grad."""
    if t._node is not None:
        rare_of(t._node).retain[t._nr] = weakref.ref(t)
