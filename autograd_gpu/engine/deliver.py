"""What happens to a gradient: it is added to others of its node, captured, put through hooks, accumulated in a leaf."""
from __future__ import annotations

import functools
import threading
from sys import getrefcount

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor, count_write, wrap
from autograd_gpu.blocks import LARGE, added
from autograd_gpu.engine import anomaly_mode as _anomaly
from autograd_gpu.engine import hooks as _hooks
from autograd_gpu.engine.grad_mode import everywhere, local
from autograd_gpu.engine.node import ALWAYS, AccumulateGrad, stand_in
from autograd_gpu.engine.task import ABSENT, UNWANTED

_ndarray = np.ndarray
_FEW = 1000                                  # elements up to which a sum in new memory takes less than to find out whether the old is free
NOTHING = object()                           # what a node that is not run gives
_LOCKS = [threading.Lock() for _ in range(64)]   # guard `_grad` of the leaves, by the leaf's address


def _references_in_a_buffer():
    """How many references getrefcount finds to an array that a buffer and a variable have."""
    buffers = {None: np.empty(0)}
    old = buffers.get(None)
    return getrefcount(old)


ALONE = min(_references_in_a_buffer(), 3)    # 3 in CPython 3.11 to 3.13; more where a debugger looked at the variable meanwhile


def _can_add(old, g):
    """Whether a gradient can be added in the memory of another that only a buffer has."""
    return old.base is None and old.flags.writeable and old.dtype == g.dtype


def total(a, b):
    """The sum of two gradients, Tensors or arrays; NumPy's sum of 0-d arrays is no array."""
    if type(a) is _ndarray and a.size >= LARGE:
        return added(a, b)
    c = a + b
    return np.asarray(c) if type(a) is _ndarray and type(c) is not _ndarray else c


def add_to(a, b):
    """a += b, of arrays."""
    if everywhere.large and type(a) is _ndarray and a.size >= LARGE:
        added(a, b, a)
    else:
        a += b


def deliver(task, n, nr, g, grad):
    """Gradient g arrives at output nr of node n, from a node that took `grad`. After the last one of a leaf, what is due there is done."""
    buffers = task.buffers
    old = buffers.get(n, ABSENT)
    if old is UNWANTED:
        return
    leaf = type(n) is AccumulateGrad
    if leaf:
        left = task.dependencies[n] = task.dependencies[n] - 1
        if old is ABSENT and not left:
            del buffers[n]
            _arrive(task, n, g, task.tensors or g is grad or g is None or g.base is not None)
            return
    if old is ABSENT or old is None:
        buffers[n] = g
    elif g is not None:
        if type(old) is list:
            old[nr] = g if old[nr] is None else total(old[nr], g)
        elif n in task.owned:
            add_to(old, g)
        elif task.tensors:
            buffers[n] = total(old, g)
        else:
            task.owned.add(n)
            if type(old) is _ndarray and old.size > _FEW and getrefcount(old) == ALONE and _can_add(old, g):
                add_to(old, g)               # nobody else has it
            else:
                buffers[n] = total(old, g)
    if leaf and not left:
        _arrive(task, n, buffers.pop(n), n not in task.owned)


def _arrive(task, n, g, shared):
    """The whole gradient of a leaf is there. `shared`: others may have its array."""
    if task.arrived is not None:
        task.arrived.append((task, n, g, shared))
    elif task.needed is not None or n._rare is not None or n.variable._hooks is not None or not n.variable._requires:
        arrive_at_leaf(task, n, g, shared)
    elif task.captures is not None:
        if (n, 0) in task.captures:
            task.captures[n, 0] = _own(task, g)
    elif g is not None:
        accumulate(n.variable, g, shared)


def deliver_all(task, node, results, grad, deliver=deliver):
    """Deliver the gradients of a node with any number of edges, that took `grad`."""
    seen = set()
    tensors, streams, rare = task.tensors, task.streams, node._rare
    several = node._arity != 1
    crosses = streams is not None and (streams.several or rare is not None and rare.crosses)
    for (n, nr), g in zip(node._edges(), results if several else (results,), strict=True):
        if n is None:
            continue
        if not tensors and several and g is not None and g is not grad:
            if id(g) in seen:                # no two leaves may get the same array
                g = g.copy()
            seen.add(id(g))
        if crosses:
            streams.send(task, node, n, nr, g, grad, deliver)
        else:
            deliver(task, n, nr, g, grad)


def visit(task, node, grad):
    """_visit, with an error or a NaN explained in anomaly mode."""
    if not everywhere.anomaly:
        return _visit(task, node, grad)
    with _anomaly.explained(node):
        results, grad = _visit(task, node, grad)
        if results is not NOTHING and everywhere.check_nan:
            _anomaly.check_nan(node, results)
        return results, grad


def _visit(task, node, grad):
    """Run a node with its hooks and what else is rare. Returns (its results, the gradients it took); NOTHING where it is not to run.

    A node that runs is captured before its hooks, one at which the backward ends after them, as in PyTorch.
    """
    rare, tensors = node._rare, task.tensors
    runs = task.needed is None or node in task.needed
    hooked = rare is not None and (rare.tensor_hooks or rare.retain)
    if hooked and not runs:
        grad = _hooks.run_tensor_hooks(node, grad, tensors)
    if node in task.captured:
        for key in task.captures:
            if key[0] is node:
                task.captures[key] = _own(task, grad if node._outputs == 1 else grad[key[1]])
    if not runs:
        return NOTHING, grad
    if hooked:
        grad = _hooks.run_tensor_hooks(node, grad, tensors)
    if rare is not None and rare.prehooks:
        grad = _hooks.run_prehooks(node, grad, tensors)
    apply = node._apply_tensors if tensors else node._apply
    if node in task.partly and not node._jointly and hasattr(node, "_partly"):
        apply = functools.partial(node._partly, task.wants(node), tensors)
    if rare is None or not rare.posthooks:
        return apply(grad, task.keep_graph), grad
    results = _wanted(task, node, apply(grad, True))                         # kept: a hook may look at what was saved
    results = _hooks.run_posthooks(node, results, grad, tensors)
    if not task.keep_graph:
        node._release()
    return results, grad


def _wanted(task, node, results):
    """A node's results, None in place of those that go nowhere in this backward; all of them where they are computed jointly."""
    if task.needed is None and not everywhere.nowhere:
        return results
    wanted = task.wants(node)
    if node._jointly is ALWAYS:
        return results
    if not isinstance(results, tuple):
        return results if wanted[0] else None
    return results if node._jointly and any(wanted) else tuple([g if w else None for w, g in zip(wanted, results, strict=True)])


def _own(task, g):
    """A gradient as the caller's own: a copy if it is a view or somebody else's array."""
    if g is None:
        return None
    for root in task.roots:
        if g is root[2]:
            return g.clone() if isinstance(g, Tensor) else g.copy()
    if isinstance(g, Tensor):
        return g if g._array.base is None else stand_in(g, g._array.copy())
    if g.base is not None or id(g) in task.taken:
        return g.copy()
    task.taken.add(id(g))
    return g


def arrive_at_leaf(task, node, g, shared):
    """The whole gradient of a leaf is there. An error of its hooks is explained in anomaly mode."""
    if not everywhere.anomaly:
        return _arrive_at_leaf(task, node, g, shared)
    with _anomaly.explained(node):
        return _arrive_at_leaf(task, node, g, shared)


def _arrive_at_leaf(task, node, g, shared):
    variable, rare = node.variable, node._rare
    leaf_hooks = variable._hooks
    if (node, 0) not in task.captures if task.captures is not None else task.needed is not None and node not in task.needed:
        if node in task.ends and leaf_hooks is not None:
            _hooks.run_leaf_hooks(leaf_hooks, g, task.tensors)
        return
    if leaf_hooks is not None and (leaf_hooks.tensor_hooks or leaf_hooks.grad_dtype is not _hooks.OWN):
        g, shared = _hooks.run_leaf_hooks(leaf_hooks, g, task.tensors), True
    if task.captures is not None:
        task.captures[node, 0] = _own(task, g)
        return
    if rare is not None and rare.prehooks:
        g, shared = _hooks.run_prehooks(node, g, task.tensors), True
    if variable._requires and g is not None:
        if variable._leaf is None or variable._leaf() is not node:
            raise RuntimeError("leaf variable has been moved into the graph interior: it was written to after it was used, and has a "
                               "history of its own since; write to a clone()")
        accumulate(variable, g, shared or rare is not None and rare.posthooks)           # the hooks below get it as it came
    if leaf_hooks is not None:
        for hook in tuple(leaf_hooks.post_accumulate.values()):
            result = hook(variable)
            if result is not None:
                raise (RuntimeError if isinstance(result, Tensor) else TypeError)(
                    f"post accumulate grad hooks should return None, got {type(result).__name__}")
    if rare is not None and rare.posthooks:
        _hooks.run_posthooks(node, (), g, task.tensors)


def _laid_out(g, own):
    """A recorded copy of a gradient, laid out as the leaf's array is unless that has gaps or overlaps."""
    like = _device.xp(own).empty_like(own, g._array.dtype, _device.order_of(own))
    return wrap(like).copy_(g) if like.strides == own.strides else g.clone()


def accumulate(variable: Tensor, g, shared):
    """Add a gradient into variable.grad: a Tensor recorded, an array in place. `shared`: g itself may not be kept."""
    with _LOCKS[(id(variable) >> 6) & 63]:
        old = variable._grad
        if isinstance(g, Tensor):
            if old is None:
                variable._grad = _laid_out(g, variable._array)
            elif local.state.enabled:
                variable._grad = old + g
            else:
                old.add_(g)
        elif old is None:
            own = variable._array
            if not shared and (g.strides == own.strides or not local.state.enforces_layout):
                variable._grad = wrap(g)
            elif own.flags.c_contiguous:
                variable._grad = wrap(g.copy())
            else:                            # laid out as the leaf is
                like = _device.xp(g).empty_like(own, g.dtype, _device.order_of(own))
                like[...] = g
                variable._grad = wrap(like)
        elif old._array.shape != g.shape:
            raise RuntimeError(f"a gradient of shape {g.shape} cannot be added to .grad of shape {old._array.shape}; the tensor's data was "
                               f"replaced: set .grad to None first")
        else:
            target = old._array
            flags = target.flags
            if type(target) is _ndarray and not flags.writeable:
                variable._grad = wrap(np.asarray(target + g))
                return
            if not flags.c_contiguous and _device.repeats(target):
                raise RuntimeError(f"a gradient cannot be added to .grad: more than one element of it refers to a single memory location. "
                                   f"Assign a clone() of it, of shape {target.shape}")
            add_to(target, g)
            count_write(old)
