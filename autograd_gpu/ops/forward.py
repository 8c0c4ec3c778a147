"""The tangents of an operation's results, from the formulas that its gradients are computed with.

With J the Jacobian with respect to an input, a formula gives J^H v, linear in v. Where each element depends on the elements at its place
only, and on real numbers, J is diagonal and real: the formula of the input's tangent is the result's. A view's tangent is the same view of
its input's. Where an op is declared linear, the result's tangent is the op of its inputs'. Else the formula is run on some v that requires
a gradient, and what it gives is differentiated with respect to v: the gradient of Re <J^H v, t> is J t, for complex numbers and functions
that have no complex derivative, too.
"""
from __future__ import annotations

import contextlib
import functools

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.base import INFERENCE, Tensor, wrap
from autograd_gpu.engine.forward_mode import apart, link, seen
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import edge_of
from autograd_gpu.engine.run import run
from autograd_gpu.engine.task import GraphTask
from autograd_gpu.ops.compile import LIST
from autograd_gpu.ops.fit import HALF, fit_tensor, widened
from autograd_gpu.ops.namespace import OPS, rebind
from autograd_gpu.ops.views import refresh


def dual(op, outs, arguments, aux, node=None) -> None:
    """Give the results of an op their tangents, at each level at which an argument has one.

    outs, arguments and aux: all results as Tensors, what the op's parameters were, its aux values. node: the history of the results, if
    they have any. Raises: NotImplementedError for an op without a derivative.
    """
    if op.is_view:
        link(op, outs, arguments)
        return
    for level in seen():
        given = _tangents(op, arguments, level)
        if not given:
            continue
        if op.title == "torch::autograd::NotImplemented":
            raise NotImplementedError(f"Trying to use forward AD with aten::{op.name} that does not support it: it has no derivative; take "
                                      f"it out, with detach() on its operands")
        with level.outside():
            values = dict(zip(op.parameters, arguments, strict=True))
            recorded = local.state.records() and any([t._requires for t in _flat((*values.values(), *given.values()))])
            call = _Call(op, outs, values, aux, recorded)
            if recorded:
                for p in given:              # a gradient of the tangent is to have none, as it has none itself
                    values[p] = [_primal(level, t) for t in values[p]] if op.roles[p] == LIST else _primal(level, values[p])
                call.outs = [_primal(level, t) for t in outs]
            made = call.linear(given) if op.linear else call.diagonal(given) if call.is_diagonal(given) else call.transposed(given)
            taken = [t for ts in given.values() for t in (ts if isinstance(ts, list) else [ts]) if t is not None]
            made = [t if t is None else _own(t, out._array, taken) for t, out in zip(made, outs, strict=True)]
        for t, out in zip(made, outs, strict=True):
            if t is not None:
                level.put(out, t)
        if node is not None and op.saved_results:
            level.put(node, {nr: t for nr, t in enumerate(made) if t is not None})


def _flat(values):
    """The Tensors among arguments."""
    return [x for v in values for x in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(x, Tensor)]


def _primal(level, t):
    """A Tensor without its tangent of a level."""
    view = apart(OPS.primal_view, t)
    level.put(view, None)
    return view


def _tangents(op, arguments, level):
    """{input: its tangent, or for a list those of its elements or None} for the inputs with a derivative that have one."""
    found = {}
    for p, value in zip(op.parameters, arguments, strict=True):
        if p not in op.edges or p in op.without_tangent or value is None:
            continue
        if op.roles[p] == LIST:
            tangents = [level.get(t) for t in value]
            if any([t is not None for t in tangents]):
                found[p] = tangents
        elif (tangent := level.get(value)) is not None:
            found[p] = tangent
    return found


def _own(t, array, taken):
    """A tangent laid out as the array it belongs to, in memory that is none of those of the tangents it was made of."""
    own = t._array
    shares = any([_device.xp(own).may_share_memory(own, other._array) for other in taken])
    if own.strides == array.strides and own.shape == array.shape and own.dtype == array.dtype and not shares:
        return t
    return wrap(_device.xp(array).empty_like(array, order="K")).copy_(t)


@functools.cache
def _formula(op, p):
    """The formula of an input on Tensors, and the one for half precision; with None, that of all inputs."""
    formula = rebind(op.formulas[p] if p else op.vjp_all, F=OPS)
    return formula, widened(formula)


class _Call:
    """One call of an op: its results, its arguments by name, its aux values, whether its tangents have a history."""

    def __init__(self, op, outs, arguments, aux, recorded):
        self.op, self.outs, self.arguments, self.aux, self.recorded = op, outs, arguments, aux, recorded
        self.differentiable = [d and t._array.dtype.kind in "fcV" for d, t in zip(_differentiable(op, outs), outs, strict=True)]

    # -------------------------------------------------------------------------------------------------------- formulas

    def formula(self, p, *values):
        """What the formula of an input gives; with None, that of all."""
        first = next(t for t, d in zip(self.outs, self.differentiable, strict=True) if d)
        return _formula(self.op, p)[first._array.dtype in HALF](*values)

    def value(self, name, grads):
        """What a formula's parameter stands for."""
        op = self.op
        if name == "grad" or name == "grads":
            return grads if name == "grads" or op.outputs == "list" else grads[op.first_differentiable]
        if name.startswith("grad_") and name[5:] in op.output_names:
            return grads[op.output_names.index(name[5:])]
        if name in self.arguments:
            return self.arguments[name]
        if name in op.output_names:
            return self.outs[op.output_names.index(name)]
        if name in op.aux:
            value = self.aux[op.aux.index(name)]
            return wrap(value) if _device.is_array(value) else value
        of, _, what = name.rpartition("_")   # self_shape, self_dtype
        of = self.arguments[of]
        return [getattr(t._array, what) for t in of] if isinstance(of, (list, tuple)) else getattr(of._array, what)

    def gradients(self, inputs, grads):
        """{input: its gradient, or for a list one of each element}, for gradients of the results."""
        op = self.op
        if not op.vjp_all:
            return {p: self.formula(p, *[self.value(n, grads) for n in op.formula_parameters[p]]) for p in inputs}
        edges = [op.list_edge] * len(self.arguments[op.list_edge]) if op.list_edge else op.edges
        found = self.formula(None, tuple([p in inputs for p in edges]), *[self.value(n, grads) for n in op.all_parameters])
        return {op.list_edge: list(found)} if op.list_edge else dict(zip(edges, found, strict=True))

    # -------------------------------------------------------------------------------------------------------- tangents

    def linear(self, given):
        """The result's tangent, where it is linear in all inputs with a derivative: the op of their tangents."""
        op, values = self.op, dict(self.arguments)
        for p in op.edges:
            array = values[p]._array
            values[p] = fit_tensor(given[p], array.shape, array.dtype) if p in given else _zeros(array)
        by_place = [v for p, v in values.items() if p not in op.keyword_only]
        return [op.function(*by_place, **{p: v for p, v in values.items() if p in op.keyword_only})]

    def is_diagonal(self, given):
        """Whether the Jacobians are diagonal and real."""
        return self.op.is_elementwise and not self.op.vjp_all and len(self.outs) == 1 and \
            all([t._array.dtype.kind != "c" for t in (*self.outs, *given.values())])

    def diagonal(self, given):
        """The result's tangent, where an input's formula gives it of the input's tangent."""
        out = self.outs[0]
        if not self.differentiable[0]:
            return [None]
        total = None
        for p, tangent in given.items():
            if tangent._array.dtype != out._array.dtype:
                tangent = OPS.to_copy(tangent, out._array.dtype)
            if tangent._array.shape != out._array.shape:
                tangent = OPS.expand(tangent, out._array.shape)
            found = self.gradients((p,), (tangent,))[p]
            if found is not None:
                found = _as_tensor(found)
                total = found if total is None else total + found
        return [wrap(_device.xp(out._array).zeros_like(out._array)) if total is None else total]

    def transposed(self, given):
        """The tangents of all results: the gradients, with respect to v, of the gradients for v."""
        if not any(self.differentiable):
            return [None] * len(self.outs)
        op, pairs = self.op, []
        if not self.recorded:
            self.arguments = {n: _savable(v) for n, v in self.arguments.items()}
            self.outs = _savable(self.outs)
        with _recording():
            vs = [_zeros(t._array).requires_grad_() if d else None for t, d in zip(self.outs, self.differentiable, strict=True)]
            for p, g in self.gradients(given, self._filled(vs)).items():
                if p in given:
                    found = g, given[p], self.arguments[p]
                    pairs += zip(*found, strict=True) if op.roles[p] == LIST else [found]
            pairs = [(fit_tensor(_as_tensor(g), t._array.shape, t._array.dtype), tangent) for g, tangent, t in pairs
                     if g is not None and tangent is not None]
            pairs = [(g, fit_tensor(tangent, g._array.shape, g._array.dtype)) for g, tangent in pairs if g._requires]
        task = GraphTask(self.recorded, self.recorded, {edge_of(v): None for v in vs if v is not None})
        roots = []
        for g, tangent in pairs:
            if g._view is not None:
                refresh(g)
            roots.append((*edge_of(g), tangent if task.tensors else tangent._array))
        if roots:
            run(task, roots)
        found = [None if v is None else task.captures[edge_of(v)] for v in vs]
        return [None if v is None else _zeros(v._array) if g is None else _as_tensor(g) for v, g in zip(vs, found, strict=True)]

    def _filled(self, vs):
        """vs with zeros for results that have no derivative, unless the op's formulas accept None."""
        return vs if self.op.accepts_none else [_zeros(t._array) if v is None else v for v, t in zip(vs, self.outs, strict=True)]


def _differentiable(op, outs):
    return [True] * len(outs) if op.outputs == "list" else op.differentiable


def _zeros(array):
    return wrap(_device.xp(array).zeros_like(array))


def _savable(value):
    """An argument, or a list of Tensors, with what can be recorded for the time of a formula in place of inference tensors."""
    if isinstance(value, (list, tuple)) and any([isinstance(v, Tensor) for v in value]):
        return [_savable(v) for v in value]
    return wrap(value._array) if isinstance(value, Tensor) and value._counter is INFERENCE else value


def _as_tensor(value):
    """What a formula or a backward gave: a Tensor, an array or a number."""
    return value if isinstance(value, Tensor) else wrap(value if _device.is_array(value) else np.asarray(value))


@contextlib.contextmanager
def _recording():
    """A block in which everything is recorded, and hooks on saved values see nothing of it: what it records is used up at once."""
    state = local.state
    outer = state.enabled, state.saved_hooks
    state.enabled, state.saved_hooks = True, []
    state.refresh()
    try:
        yield
    finally:
        state.enabled, state.saved_hooks = outer
        state.refresh()
