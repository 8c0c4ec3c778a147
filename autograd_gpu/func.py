"""Transforms of functions, under torch.func's names: grad, vjp, jvp, jacobians, vmap.

Arguments and results are Tensors in tuples, lists and dictionaries. A transform differentiates with respect to aliases of the arguments, so
transforms nest, and what is given back depends on what outside of the transform requires grad, and on nothing else. All of it stands on
autograd.grad and forward mode; `vmap` is a loop.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from autograd_gpu.autograd.functional import Drawn, basis, check_randomness, columns, linearized, pushed, recorded_grad
from autograd_gpu.base import Tensor
from autograd_gpu.engine.forward_mode import carry, seen
from autograd_gpu.engine.grad_mode import enable_grad, is_grad_enabled
from autograd_gpu.engine.node import LEAF, edge_of
from autograd_gpu.nn.modules.batchnorm import _BatchNorm
from autograd_gpu.nn.utils.stateless import functional_call, stack_module_state
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.tree import LEAF as ONE_LEAF
from autograd_gpu.tree import flatten, spread, tree_map, unflatten

__all__ = ["grad", "grad_and_value", "vmap", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize", "functional_call",
           "stack_module_state", "replace_all_batch_norm_modules_", "debug_unwrap"]


class _Chosen:
    """The arguments that `argnums` names, or all: their `leaves` and structure (`form`), and the call with other leaves in their place."""

    def __init__(self, what, function, args, kwargs=None, argnums=None, has_aux=False):
        self.what, self.function, self.args, self.kwargs, self.has_aux = what, function, args, kwargs or {}, has_aux
        self.places, self.alone = range(len(args)) if argnums is None else _places(args, argnums), isinstance(argnums, int)
        chosen = tuple([args[n] for n in self.places])
        self.leaves, self.form = flatten(chosen[0] if self.alone else chosen)
        self.output = self.aux = None

    def call(self, leaves):
        """The leaves of the function's output. Raises RuntimeError where has_aux finds none."""
        mine, args = unflatten(self.form, leaves), list(self.args)
        for n, value in zip(self.places, (mine,) if self.alone else mine, strict=True):
            args[n] = value
        self.output = self.function(*args, **self.kwargs)
        if self.has_aux:
            if not (isinstance(self.output, tuple) and len(self.output) == 2):
                raise RuntimeError(f"{self.what}: output of function f should be a tuple: (output, aux) if has_aux is True")
            self.output, self.aux = self.output
        outputs, self.structure = flatten(self.output)
        return outputs

    def call_for_tensors(self, *leaves):
        """call. Raises RuntimeError unless the function gives Tensors."""
        outputs = self.call(leaves)
        if not outputs or self.output is None:
            raise RuntimeError(f"{self.what}: Expected f to be a function that has non-empty output (got output = {self.output})")
        for t in outputs:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{self.what}: expected f(*primals) to return only tensors, got unsupported type {type(t)}")
        return outputs

    def check_real(self, tensors, which):
        """Raises RuntimeError for complex Tensors."""
        for i, t in enumerate(tensors):
            if isinstance(t, Tensor) and t.is_complex():
                raise RuntimeError(f"{self.what}: Expected all {which} to be real but received complex tensor at flattened input idx: {i}")


def _places(args, argnums):
    """The places of the arguments that argnums names. Raises RuntimeError for an argnums that names none."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if argnums == ():
        raise RuntimeError("argnums must be non-empty")
    places = []
    for n in argnums if isinstance(argnums, tuple) else (argnums,):
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
        places.append(n % len(args))
    if len(set(places)) < len(places):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return places


def _alias(t):
    """(a Tensor of our own in the place of an argument, whether gradients flow on from it): a result of the argument, or else a leaf."""
    if not isinstance(t, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
    if edge_of(t)[0] is not None:
        return t.view_as(t), True
    alias = t.detach()
    carry(t, alias)
    return alias.requires_grad_(), False


# The leaves that transforms have made of their arguments, by node: whether the function that was called with them is running. While it is,
# they are what requires grad outside of the transforms in it; afterwards nobody asks for their gradient.
_made: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


class _Run(_Chosen):
    """A function run on some arguments, recorded with respect to those that are chosen.

    `outputs` and `inputs` are flat. `tracked`: whether something outside requires grad, so that what is found is recorded too.
    """

    def __init__(self, what, function, args, kwargs=None, argnums=None, has_aux=False, tensors=True):
        super().__init__(what, function, args, kwargs, argnums, has_aux)
        self.records = is_grad_enabled()
        with enable_grad():
            aliases = [_alias(t) for t in self.leaves]
            self.inputs = [t for t, _ in aliases]
            self._flows_on = {edge_of(t)[0]: flows_on for t, flows_on in aliases}
            leaves = [node for node, flows_on in self._flows_on.items() if not flows_on]
            _made.update(dict.fromkeys(leaves, True))
            try:
                self.outputs = self.call_for_tensors(*self.inputs) if tensors else self.call(self.inputs)
            finally:
                _made.update(dict.fromkeys(leaves, False))
        self.tracked = self.records and any([self._reaches_out(t) for t in self.outputs if isinstance(t, Tensor)])

    def check_floating(self):
        """Raises RuntimeError for an output that has no derivative."""
        for t in self.outputs:
            if not (t.is_floating_point() or t.is_complex()):
                raise RuntimeError(f"{self.what}: All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                                   f"{t.dtype}")

    def _reaches_out(self, t):
        """Whether a Tensor depends on what requires grad outside."""
        nodes = [edge_of(t)[0]]
        seen = {None}
        while nodes:
            node = nodes.pop()
            if node in seen:
                continue
            if self._flows_on.get(node, node._kind == LEAF and _made.get(node, True)):
                return True
            seen.add(node)
            if node not in self._flows_on:   # what lies beyond an input is known
                nodes += [n for n, _ in node._edges()]
        return False

    def given(self, t):
        """A Tensor as the caller gets it."""
        if not isinstance(t, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(t)}")
        if self.records and self._reaches_out(t):
            return t
        out = t.detach()
        for level in seen():                 # inside of a jvp
            tangent = level.get(t)
            if tangent is not None:
                with level.outside():
                    level.put(out, self.given(tangent))
        return out

    def back(self, outputs, grad_outputs=None, record=False, **options):
        """The gradients of all inputs."""
        found = recorded_grad(outputs, self.inputs, grad_outputs, create_graph=self.tracked or record, **options)
        return [OPS.zeros_like(t) if g is None else g for g, t in zip(found, self.inputs, strict=True)]

    def shown(self):
        """(output, aux) as the caller gets them."""
        return tree_map(self.given, self.output), tree_map(self.given, self.aux) if self.has_aux else None


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that gives (the gradient, the value) of one that returns a 0-d Tensor.

    argnums: the argument, or a tuple of those, to differentiate with respect to; the gradient has its structure. has_aux: func returns
    (output, aux), and the result is (gradient, (value, aux)).
    Raises: RuntimeError for another output or argnums, ValueError for arguments that are no Tensors. Reference: torch.func.grad_and_value.
    """
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        what = "grad_and_value(f)(*args)"
        run = _Run(what, func, args, kwargs, argnums, has_aux, tensors=False)
        if not isinstance(run.output, Tensor):
            raise RuntimeError(f"{what}: Expected f(*args) to return a Tensor, got {type(run.output)}")
        if run.output.ndim:
            raise RuntimeError(f"{what}: Expected f(*args) to return a scalar Tensor, got tensor with {run.output.ndim} dims: use jacrev")
        found = unflatten(run.form, [run.given(g) for g in run.back(run.outputs)])
        value, aux = run.shown()
        return found, (value, aux) if has_aux else value
    return wrapper


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that gives the gradient of one that returns a 0-d Tensor; with has_aux, (gradient, aux). See grad_and_value.

    Reference: torch.func.grad.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found
    return wrapper


def vjp(func: Callable, *primals: Any, has_aux: bool = False):
    """(func(*primals), vjp_fn): vjp_fn takes the gradient of the output, in its structure, and gives a tuple of those of the primals.

    has_aux: func returns (output, aux), and aux is a third result.
    Raises: RuntimeError for an output that is no floating Tensor, or a gradient of another structure. Reference: torch.func.vjp.
    """
    run = _Run("vjp(f, *primals)", func, primals, has_aux=has_aux)
    run.check_floating()

    def vjp_fn(cotangents, retain_graph=True, create_graph=None):
        leaves, structure = flatten(cotangents)
        if structure != run.structure:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {structure}, primal output: {run.structure}")
        record = is_grad_enabled() if create_graph is None else create_graph
        record = record and any([isinstance(v, Tensor) and v.requires_grad for v in leaves])
        found = run.back(run.outputs, leaves, record, retain_graph=retain_graph)
        return unflatten(run.form, [run.given(g) for g in found])
    output, aux = run.shown()
    return (output, vjp_fn, aux) if has_aux else (output, vjp_fn)


def _check_tangents(what, primals, tangents):
    """The leaves of the tangents. Raises RuntimeError where they do not fit the primals."""
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{what}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    (xs, structure), (vs, other) = flatten(primals), flatten(tangents)
    if structure != other:
        raise RuntimeError(f"{what}: Expected primals and tangents to have the same python structure. Got primals with structure "
                           f"{structure} and tangents with structure {other}")
    for name, leaves in (("primals", xs), ("tangents", vs)):
        if not leaves:
            raise RuntimeError(f"{what}: Expected {name} to contain at least one Tensor.")
        for t in leaves:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{what}: Expected {name} to only contain Tensors, got {type(t)}")
    for x, v in zip(xs, vs, strict=True):
        if x.shape != v.shape:
            raise RuntimeError(f"{what}: Expected tangents to have the shapes of the primals, got {v.shape} for {x.shape}")
    return vs


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False):
    """(func(*primals), J @ tangents): how the output changes along a direction, by forward mode.

    strict: an output that does not depend on the primals is a RuntimeError. has_aux: func returns (output, aux), and aux is a third result.
    Raises: RuntimeError for tangents that do not fit the primals. Reference: torch.func.jvp.
    """
    what = "jvp(f, primals, tangents)"
    tangents = _check_tangents(what, primals, tangents)
    chosen = _Chosen(what, func, primals, has_aux=has_aux)
    found = pushed(chosen.call_for_tensors, chosen.leaves, tangents)
    if strict and None in [tangent for _, tangent in found]:
        raise RuntimeError(f"{what}: The output of f is independent of the inputs. This is not allowed with strict=True.")
    output = unflatten(chosen.structure, [primal for primal, _ in found])
    tangent = unflatten(chosen.structure, [OPS.zeros_like(t) if v is None else v for t, v in found])
    return (output, tangent, tree_map(_checked, chosen.aux)) if has_aux else (output, tangent)


def _checked(t):
    """A Tensor of aux. Raises RuntimeError for anything else."""
    if not isinstance(t, Tensor):
        raise RuntimeError(f"Expected tensors, got unsupported type {type(t)}")
    return t


def linearize(func: Callable, *primals: Any):
    """(func(*primals), jvp_fn): jvp_fn(*tangents) gives J @ tangents, without running func again: by functional.linearized.

    Raises: RuntimeError for tangents that do not fit the primals. Reference: torch.func.linearize.
    """
    what = "linearize(f, *primals)"
    run = _Run(what, func, primals)
    dependent = [t for t in run.outputs if t.requires_grad]
    _, push = linearized(dependent, run.inputs)

    def jvp_fn(*tangents):
        tangents = _check_tangents(what, primals, tangents)
        for x, v in zip(run.leaves, tangents, strict=True):
            if x.dtype != v.dtype:
                raise RuntimeError(f"{what}: Expected tangents to have the dtypes of the primals, got {v.dtype} for {x.dtype}")
        found = iter(push(tangents, is_grad_enabled() and (run.tracked or any([v.requires_grad for v in tangents]))))
        made = [next(found) if t.requires_grad else None for t in run.outputs]
        return unflatten(run.structure, [run.given(OPS.zeros_like(t) if v is None else v) for t, v in zip(run.outputs, made, strict=True)])
    return run.shown()[0], jvp_fn


def jacrev(func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Callable:
    """A function that gives the jacobian, by a backward per element of the output: shape (*output.shape, *input.shape) per pair.

    argnums, has_aux: as in grad_and_value. chunk_size is accepted: one row is computed at a time.
    Raises: RuntimeError for complex Tensors; as grad_and_value. Reference: torch.func.jacrev.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args):
        run = _Run("jacrev", func, args, None, argnums, has_aux)
        run.check_real(flatten(args)[0], "inputs")
        run.check_real(run.outputs, "outputs")
        run.check_floating()
        with enable_grad():
            blocks = [unflatten(run.form, [run.given(block) for block in _rows(run, out)]) for out in run.outputs]
        found = unflatten(run.structure, blocks)
        return (found, run.shown()[1]) if has_aux else found
    return wrapper


def _rows(run, out):
    """The derivatives of one output with respect to each input: a backward per element."""
    flat = out.reshape(-1)
    outputs = (flat,) if flat.numel() else ()
    found = recorded_grad(outputs, run.inputs, [basis(t) for t in outputs], create_graph=run.tracked, retain_graph=True,
                          is_grads_batched=True)
    return [t.new_zeros((*out.shape, *t.shape)) if g is None else g.reshape((*out.shape, *t.shape))
            for g, t in zip(found, run.inputs, strict=True)]


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """A function that gives the jacobian, by a call of func in forward mode per element of the input. randomness: as in vmap.

    Raises: as jacrev. Reference: torch.func.jacfwd.
    """
    @functools.wraps(func)
    def wrapper(*args):
        chosen = _Chosen("jacfwd", func, args, None, argnums, has_aux)
        chosen.check_real(flatten(args)[0], "inputs")
        blocks = [unflatten(chosen.form, of_output) for of_output in columns(chosen.call_for_tensors, chosen.leaves, randomness)]
        chosen.check_real(flatten(chosen.output)[0], "outputs")
        found = unflatten(chosen.structure, blocks)
        return (found, tree_map(_checked, chosen.aux)) if has_aux else found
    return wrapper


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """A function that gives the matrix of second derivatives: jacfwd of jacrev. Reference: torch.func.hessian."""
    return jacfwd(jacrev(func, argnums), argnums)


# ------------------------------------------------------------------------------------------------------------------- vmap

def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable:
    """A function that applies func to each slice of its arguments and stacks the results: a loop, for ops have no batching rules yet.

    So it costs as many calls as there are slices. in_dims, out_dims: the dimension that is taken apart or made, or None, for all or in
    the arguments' or results' structure. randomness: random numbers are an "error", "different" for each slice, or the "same"; as errors
    they are noticed on the CPU, after the calls.
    Raises: ValueError for in_dims, out_dims or results that do not fit; RuntimeError for a write to an argument that is not taken apart.
    Reference: torch.func.vmap.
    """
    check_randomness(randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        leaves, form, dims = _taken_apart(args, in_dims)
        sizes = [t.shape[d] for t, d in zip(leaves, dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("vmap: Expected at least one Tensor to vmap over")
        if len(set(sizes)) > 1:
            raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes}")
        if not sizes[0]:
            raise RuntimeError("vmap: the mapped dimension has size 0, so that there is nothing to stack")
        drawn = Drawn(randomness, leaves)
        whole = [(t, t._version) for t, d in zip(leaves, dims, strict=True)
                 if d is None and isinstance(t, Tensor) and not t.is_inference()]
        found = []
        for k in range(sizes[0]):
            with drawn.slice(k):
                one = unflatten(form, [t if d is None else t.select(d, k) for t, d in zip(leaves, dims, strict=True)])
                found.append(flatten(func(*one, **kwargs)))
            if k == 0 and sizes[0] > 1 and any([t._version != count for t, count in whole]):
                raise RuntimeError("vmap: the function wrote to an argument that is not taken apart, and would do so for each slice: let "
                                   "it write to a clone()")
        drawn.check()
        structure = found[0][1]
        dims = _given_to(out_dims, structure)
        return unflatten(structure, [_stacked(column, d) for column, d in zip(zip(*[leaves for leaves, _ in found], strict=True), dims,
                                                                            strict=True)])
    return wrapper


def _taken_apart(args, in_dims):
    """(the leaves of the arguments, their structure, the dimension of each that is taken apart)."""
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"vmap: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                         f"{type(in_dims)}.")
    if not args:
        raise ValueError("vmap: got no inputs; kwargs are not mapped over")
    leaves, form = flatten(args)
    dims = spread(in_dims, form)
    if dims is None:
        raise ValueError(f"vmap: in_dims={in_dims} is not compatible with the structure of `inputs`, {form}")
    for t, d in zip(leaves, dims, strict=True):
        if d is None:
            continue
        if not isinstance(d, int):
            raise ValueError(f"vmap: Got in_dim={d} for an input but in_dim must be either an integer dimension or None.")
        if not isinstance(t, Tensor):
            raise ValueError(f"vmap: Got in_dim={d} for an input of type {type(t)}: use None, as only Tensors are taken apart")
        if not -t.ndim <= d < t.ndim:
            raise ValueError(f"vmap: Got in_dim={d} for some input, but that input is a Tensor of dimensionality {t.ndim}, so expected "
                             f"in_dim to satisfy -{t.ndim} <= in_dim < {t.ndim}.")
    return leaves, form, dims


def _given_to(out_dims, structure):
    """The dimension for each leaf of the function's results. Raises ValueError for out_dims that do not fit."""
    dims = spread(out_dims[0] if structure == ONE_LEAF and isinstance(out_dims, tuple) and len(out_dims) == 1 else out_dims, structure)
    if dims is None:
        raise ValueError(f"vmap: out_dims={out_dims} is not compatible with the structure of `outputs`, {structure}")
    if any([d is not None and not isinstance(d, int) for d in dims]):
        raise ValueError(f"vmap: out_dims={out_dims}: each has to be an int or None")
    return dims


def _stacked(column, dim):
    """What the calls gave in one place of their results, as one Tensor."""
    if dim is None:
        if any([isinstance(t, Tensor) and t is not column[0] and not OPS.equal(t, column[0]) for t in column]):
            raise ValueError("vmap: the function can not return a Tensor that differs from slice to slice when out_dim is None: use 0")
        return column[0]
    for t in column:
        if not isinstance(t, Tensor):
            raise ValueError(f"vmap: the function must only return Tensors, got type {type(t)}. Did you mean to set out_dims= to None?")
    return OPS.stack(column, dim)


# ---------------------------------------------------------------------------------------------------------------- modules

def replace_all_batch_norm_modules_(root):
    """Make the batch norms of a module forget their running statistics, in place, so that they use their batch's alone; returns it.

    Reference: torch.func.replace_all_batch_norm_modules_.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The Tensor itself: transforms wrap none. Reference: torch.func.debug_unwrap."""
    return tensor
