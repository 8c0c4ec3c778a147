"""backward and grad: arguments checked, roots made, the task run."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.engine.hooks import retain_grad
from autograd_gpu.engine.inside import Dependent
from autograd_gpu.engine.node import AccumulateGrad, GradientEdge, Node, edge_of, leads_nowhere, leaf_node, output_count
from autograd_gpu.engine.run import run
from autograd_gpu.engine.task import GraphTask
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.ops.views import refresh

_Places = Tensor | GradientEdge | Sequence[Tensor | GradientEdge]


def _as_tuple(value):
    return (value,) if isinstance(value, (Tensor, GradientEdge)) else tuple(value)


def _edge(edge, what):
    """(node, output number) of a GradientEdge. Raises RuntimeError for one that names no output of a node."""
    node, nr, _ = edge
    if not isinstance(node, Node):
        raise RuntimeError(f"{what}: GradientEdge's first object must be an autograd.graph.Node but got {type(node).__name__}")
    count = output_count(node)
    if not isinstance(nr, int) or not 0 <= nr < count:
        raise RuntimeError(f"{what}: GradientEdge's output_nr is {nr!r}, its node {node.name()} has {count} output(s), numbered from 0")
    return node, nr


def _result_of(node, nr):
    """(shape, dtype, device) of a node's output; None where neither the node nor get_gradient_edge has noted it."""
    if type(node) is AccumulateGrad:
        return node.variable._array.shape, node.variable._array.dtype, node.variable.device
    if node._rare is not None and nr in node._rare.results:
        return node._rare.results[nr]
    meta = getattr(node, "_result_meta", None)
    return None if meta is None or meta[nr] is None else (*meta[nr][:2], node._device)


def _make_root(i, output, gradient, tensors):
    """(node, output number, gradient) of one output. Raises RuntimeError or TypeError, naming what is wrong."""
    if gradient is not None and not isinstance(gradient, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
    if not isinstance(output, Tensor):
        if isinstance(output, GradientEdge):
            node, nr = _edge(output, f"element {i} of tensors to differentiate")
            return _make_root_of_edge(i, node, nr, gradient, tensors)
        raise TypeError(f"element {i} of tensors to differentiate must be a Tensor, got {type(output).__name__}")
    array = output._array
    if output._view is not None:
        refresh(output, asked=True)
    if not output._requires or isinstance(output._node, Dependent) or output._view is not None and leads_nowhere(output):
        raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn: compute it from a tensor with "
                           f"requires_grad=True, outside no_grad()")
    if gradient is None:
        if array.size != 1 or array.dtype.kind == "c":
            raise _not_implicit(i, array.shape, array.dtype)
        node = output._node
        return (leaf_node(output) if node is None else node), output._nr, _one(array, tensors)
    node, nr = edge_of(output)
    return node, nr, _checked(i, gradient, array.shape, array.dtype, output.device, tensors)


def _make_root_of_edge(i, node, nr, gradient, tensors):
    """_make_root for an output of which only the edge is given."""
    found = _result_of(node, nr)
    if found is None:
        if gradient is None:
            raise RuntimeError(f"element {i} of tensors to differentiate is a GradientEdge that was not made by get_gradient_edge, so that "
                               f"the shape of its gradient is not known: pass the gradient")
        found = gradient._array.shape, gradient._array.dtype, gradient.device
    shape, dtype, device = found
    if gradient is not None:
        return node, nr, _checked(i, gradient, shape, dtype, device, tensors)
    if any([n != 1 for n in shape]) or dtype.kind == "c":
        raise _not_implicit(i, shape, dtype)
    with _device.guard(device):
        one = _device.module(device).ones(shape, dtype)
    return node, nr, wrap(one) if tensors else one


def _not_implicit(i, shape, dtype):
    if any([n != 1 for n in shape]):
        return RuntimeError(f"grad can be implicitly created only for scalar outputs, element {i} has shape {shape}: reduce it, with "
                            f".sum() for instance, or pass the gradient with respect to it")
    return RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {_dtype.of(dtype)}")


def _checked(i, gradient, shape, dtype, device, tensors):
    """The gradient that was given for an output, as the task takes it. Raises RuntimeError where it does not fit."""
    array = gradient._array
    if array.shape != shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {tuple(array.shape)} and output[{i}] has a shape of "
                           f"{tuple(shape)}; they have to be the same")
    if (array.dtype.kind == "c") != (dtype.kind == "c"):
        raise RuntimeError(f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                           f"grad_output[{i}] has {gradient.dtype} and output[{i}] has {_dtype.of(dtype)}")
    if gradient.device != device:
        raise RuntimeError(f"grad_output[{i}] is on {gradient.device}, output[{i}] on {device}; move it with .to()")
    if tensors:
        return gradient if array.dtype == dtype else gradient.to(_dtype.of(dtype))
    return array.astype(dtype, copy=False)


_ones: dict[np.dtype, np.ndarray] = {}       # a 0-d one of each dtype, read-only


def _one(array, tensors):
    """The gradient of an array of one element with respect to itself: a Tensor if the task has `tensors`."""
    if type(array) is np.ndarray:
        one = _ones.get(array.dtype)
        if one is None:
            one = _ones[array.dtype] = np.ones((), array.dtype)
            one.flags.writeable = False
        if array.ndim or tensors:            # a Tensor's array is nobody else's
            one = one.reshape(array.shape).copy()
    else:
        with _device.guard(_device.of(array)):
            one = _device.xp(array).ones(array.shape, array.dtype)
    return wrap(one) if tensors else one


def _make_roots(outputs, gradients, tensors):
    if len(outputs) > len(gradients):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(gradients)} gradients; there has to be one gradient, or None, per tensor")
    if len(outputs) == 1:
        return [_make_root(0, outputs[0], gradients[0], tensors)]
    return [_make_root(i, t, g, tensors) for i, (t, g) in enumerate(zip(outputs, gradients, strict=False))]


def backward(tensors: _Places, grad_tensors=None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables=None, inputs: _Places | None = None) -> None:
    """Add the gradients of `tensors` to the .grad of the leaves they were computed from, or of `inputs` only.

    grad_tensors: for each tensor the gradient with respect to it, of its shape; may be left out, or None, for a tensor of one
    element. retain_graph keeps what the graph saved, so that it can be run again; by default as create_graph, which records
    the gradients' own computation, so that they can be differentiated.
    Raises: RuntimeError for a tensor that needs no gradient, a shape that does not fit, a graph already freed, an empty `inputs`
    or one that needs no gradient; TypeError for what is no Tensor.
    Reference: torch.autograd.backward.
    """
    tensors = _as_tuple(tensors)
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("backward: the `inputs` argument cannot be empty; leave it out to reach all leaves")
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("backward: grad_variables is the old name of grad_tensors; give only the latter")
        grad_tensors = grad_variables
    if grad_tensors is None:
        grads = (None,) * len(tensors)
    elif isinstance(grad_tensors, Tensor) or hasattr(grad_tensors, "__iter__"):
        grads = _as_tuple(grad_tensors)
    else:
        raise TypeError(f"gradients can be either Tensors or None, but got {type(grad_tensors).__name__}")
    task = GraphTask(create_graph if retain_graph is None else bool(retain_graph), create_graph)
    roots = _make_roots(tensors, grads, task.tensors)
    if inputs is not None:
        only = task.only = set()
        for i, t in enumerate(inputs):
            if isinstance(t, GradientEdge):
                only.add(_edge(t, f"backward: element {i} of `inputs`")[0])
                continue
            if not isinstance(t, Tensor):
                raise RuntimeError(f"backward: element {i} of `inputs` must be a Tensor, got {type(t).__name__}")
            if not t.requires_grad:
                raise RuntimeError(f"backward: element {i} of `inputs` does not require grad")
            if t._view is not None:
                refresh(t, asked=True)
            retain_grad(t)
            only.add(AccumulateGrad() if leads_nowhere(t) else edge_of(t)[0])
    if create_graph:
        warnings.warn("backward() with create_graph=True will create a reference cycle between the parameter and its gradient, which "
                      "keeps both until the garbage collector runs; autograd.grad does not, and setting .grad to None breaks it",
                      stacklevel=3)
    run(task, roots)


def grad(outputs: _Places, inputs: _Places, grad_outputs=None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> Any:
    """The gradients of the sum of `outputs` with respect to `inputs`, one each; no .grad changes.

    grad_outputs, retain_graph, create_graph: as in backward. allow_unused gives None for an input that the outputs do not depend
    on, materialize_grads zeros. is_grads_batched: each of grad_outputs has one more dimension in front, over which the gradient is taken
    once per entry and stacked. Where inputs is a dictionary of tensors, so is the result.
    Raises: RuntimeError as backward, and for an unused input if neither flag is given.
    Reference: torch.autograd.grad.
    """
    if isinstance(inputs, dict):
        found = grad(outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched,
                     materialize_grads)
        return dict(zip(inputs, found, strict=True))
    if not only_inputs:
        warnings.warn("grad: only_inputs is ignored, gradients go nowhere but to `inputs`; leave it out", FutureWarning, stacklevel=2)
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if not inputs:
        raise RuntimeError("grad: `inputs` cannot be empty")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    grads = (None,) * len(outputs) if grad_outputs is None else _as_tuple(grad_outputs)
    retain = create_graph if retain_graph is None else bool(retain_graph)
    if is_grads_batched:
        return _batched(outputs, inputs, grads, retain, create_graph, allow_unused, materialize_grads)
    captures: dict[Any, Any] = {}
    keys = []
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor):
            if t._view is not None:
                refresh(t, asked=True)
            if not t._requires:
                raise RuntimeError(f"grad: One of the differentiated Tensors, element {i} of `inputs`, does not require grad")
            key = edge_of(t) if t._view is None or not leads_nowhere(t) else (AccumulateGrad(), 0)
        elif isinstance(t, GradientEdge):
            key = _edge(t, f"grad: element {i} of `inputs`")
        else:
            raise RuntimeError(f"grad: all inputs have to be Tensors or GradientEdges, but got {type(t).__name__} at {i}")
        keys.append(key)
        captures[key] = None
    task = GraphTask(retain, create_graph, captures)
    run(task, _make_roots(outputs, grads, task.tensors))
    gradients = []
    for i, key in enumerate(keys):
        g = captures[key]
        if g is None:
            g = _absent(i, inputs[i], allow_unused, materialize_grads, create_graph)
        elif not isinstance(g, Tensor):
            g = captures[key] = wrap(g)      # an input that is there twice gets one Tensor
        gradients.append(g)
    return tuple(gradients)


def _absent(i, t, allow_unused, materialize_grads, create_graph):
    """What stands for the gradient of an input that the outputs do not depend on."""
    if materialize_grads:
        if isinstance(t, GradientEdge):
            raise RuntimeError(f"grad: materialize_grads cannot be used when the given input is a GradientEdge, as element {i} is: pass "
                               f"the tensor, whose shape is known")
        zeros = wrap(_device.xp(t._array).zeros_like(t._array))
        zeros._requires = create_graph
        return zeros
    if not allow_unused:
        raise RuntimeError(f"grad: One of the differentiated Tensors, element {i} of `inputs`, appears to not have been used in the "
                           f"graph. Set allow_unused=True if this is the desired behavior.")
    return None


def _batched(outputs, inputs, grads, retain, create_graph, allow_unused, materialize_grads):
    """One backward per entry of the leading dimension: a named loop, until ops have batching rules."""
    size = _batch_size(outputs, grads)
    rows = [grad(outputs, inputs, [None if g is None else g[k] for g in grads], retain or k < size - 1, create_graph,
                 allow_unused=allow_unused or materialize_grads) for k in range(size)]
    return tuple([_absent(i, inputs[i], allow_unused, materialize_grads, create_graph) if column[0] is None else OPS.stack(column)
                  for i, column in enumerate(zip(*rows, strict=True))])


def _batch_size(outputs, grads):
    """The leading size of the gradients of a batch. Raises what grad does for gradients that are none."""
    sizes = []
    for i, (output, g) in enumerate(zip(outputs, grads, strict=False)):
        if g is None:
            continue
        if not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        if not g.ndim:
            raise IndexError(f"grad: with is_grads_batched=True grad_output[{i}] needs a batch dimension in front, but is a 0-dim tensor")
        if isinstance(output, Tensor) and g.shape[1:] != output.shape:
            raise RuntimeError(f"grad: with is_grads_batched=True the first dimension of each grad_output is the batch dimension, and the "
                               f"rest has to match the shape of the output, but a mismatch was detected: grad_output[{i}] has a shape of "
                               f"{tuple(g.shape[1:])} without it and output[{i}] has a shape of {tuple(output.shape)}")
        sizes.append(g.shape[0])
    if not sizes:
        raise RuntimeError("grad: is_grads_batched=True needs grad_outputs: grad can be implicitly created only for scalar outputs")
    if len(set(sizes)) > 1:
        raise ValueError(f"grad: Expected all grad_outputs to have the same size in the batch dimension, got sizes {sizes}")
    if not sizes[0]:
        raise IndexError("grad: with is_grads_batched=True the batch dimension has size 0, so that there is nothing to stack")
    return sizes[0]
