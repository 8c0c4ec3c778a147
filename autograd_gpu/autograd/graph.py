"""The graph and what can be attached to it, under torch.autograd.graph's names."""
from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence

from autograd_gpu.autograd.drawing import draw
from autograd_gpu.autograd.memory import record_lines, saved_bytes
from autograd_gpu.autograd.saving import allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from autograd_gpu.base import Tensor, version
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import GradientEdge, Node, RemovableHandle, edge_of, rare_of
from autograd_gpu.engine.streams import set_override_stale_capture_stream, set_warn_on_accumulate_grad_stream_mismatch
from autograd_gpu.ops.views import refresh

__all__ = ["GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "draw", "get_gradient_edge",
           "increment_version", "record_lines", "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu",
           "saved_bytes", "saved_tensors_hooks", "set_override_stale_capture_stream", "set_warn_on_accumulate_grad_stream_mismatch"]


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor arrives: autograd.grad and backward take it in place of the tensor, which may then be dropped.

    Raises: RuntimeError for a tensor that does not require grad. Reference: torch.autograd.graph.get_gradient_edge.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"get_gradient_edge(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    if tensor._view is not None:
        refresh(tensor)
    node, nr = edge_of(tensor)
    if tensor._node is not None:
        rare_of(node).results[nr] = tensor._array.shape, tensor._array.dtype, tensor.device
    return GradientEdge(node, nr)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to the memory of one tensor or several that autograd did not see, such as one by a kernel of your own.

    A backward that needs the values from before then raises. Reference: torch.autograd.graph.increment_version.
    """
    if not isinstance(tensor, (Tensor, Iterable)):
        raise RuntimeError(f"increment_version expect a Iterable[Tensor] as input, got {type(tensor).__name__}")
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"increment_version expects each element of the iterable to be a tensor, got {type(t).__name__}")
        version(t).count += 1


class _Handles(RemovableHandle):
    """The handle of several hooks that are one to the user."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state):
        self.handles = state


class _Arrived:
    """What one backward has brought to the tensors of a multi-grad hook so far."""

    __slots__ = ("gradients", "missing")

    def __init__(self, gradients, missing):
        self.gradients, self.missing = gradients, missing


def _weak(t):
    """What leads to the node of a tensor's gradient without keeping it: a hook that held its own graph would be a cycle."""
    return weakref.ref(t if t._node is None else t._node)


def _runs(task, reference):
    """Whether a backward brings a gradient to where a `_weak` leads."""
    node = reference()
    if isinstance(node, Tensor):
        node = None if node._leaf is None else node._leaf()
    return node in task.dependencies and (task.needed is None or node in task.needed or node in task.captured)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> RemovableHandle:
    """Call a hook once per backward for several tensors; it cannot replace gradients.

    mode "all": `fn(gradients)` when all of them are known, in a list; None stands for a tensor that this backward does not reach. mode
    "any": `fn(gradient)` for the first of them. Returns a handle.
    Raises: ValueError for another mode, AssertionError in mode "all" for a tensor that does not require grad.
    Reference: torch.autograd.graph.register_multi_grad_hook.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    arrived: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()     # by backward: one that failed leaves nothing behind
    lock = threading.Lock()                  # guards `arrived` and what it holds: other threads run backwards of their own
    if mode == "any":
        def first(gradient):
            with lock:
                if local.state.graph_task in arrived:
                    return
                arrived[local.state.graph_task] = True
            fn(gradient)
        return _Handles([t.register_hook(first) for t in tensors if t.requires_grad])
    if not all([t.requires_grad for t in tensors]):
        raise AssertionError("register_multi_grad_hook: Expected gradient function to be set, but one of the tensors does not require grad")
    places = [_weak(t) for t in tensors]

    def one(i, gradient):
        task = local.state.graph_task
        with lock:
            found = arrived.get(task)
            if found is None:
                found = arrived[task] = _Arrived([None] * len(places), sum([_runs(task, place) for place in places]))
            found.gradients[i] = gradient
            found.missing -= 1
            if found.missing:
                return
            del arrived[task]
        fn(found.gradients)
    return _Handles([t.register_hook(functools.partial(one, i)) for i, t in enumerate(tensors)])


def region_activation_memory_budget(budget: float) -> contextlib.AbstractContextManager[None]:
    """For torch.compile, which there is not: RuntimeError for any budget in [0, 1], ValueError or TypeError for another.

    Reference: torch.autograd.graph.region_activation_memory_budget.
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"region_activation_memory_budget: expects a float, got {type(budget).__name__}")
    if not 0 <= budget <= 1:
        raise ValueError(f"region_activation_memory_budget: must be in [0, 1], got {budget}")
    raise RuntimeError("region_activation_memory_budget can only be used inside a compiled region, and nothing is compiled here")
