"""Transforms of functions, under torch.func's names: grad, vjp, jvp, jacobians, vmap.

Arguments and results are Tensors in tuples, lists and dictionaries. A transform differentiates with respect to aliases of the arguments, so
transforms nest, and what is given back depends on what outside of the transform requires grad, and on nothing else. All of it stands on
autograd.grad; `vmap` is a loop.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from autograd_gpu.autograd.functional import basis, columns, linearized, recorded_grad
from autograd_gpu.base import Tensor
from autograd_gpu.devices import CPU
from autograd_gpu.engine.grad_mode import enable_grad, is_grad_enabled
from autograd_gpu.engine.node import LEAF, edge_of
from autograd_gpu.generator import Repeatable, default_generator
from autograd_gpu.nn.modules.batchnorm import _BatchNorm
from autograd_gpu.nn.utils.stateless import functional_call, stack_module_state
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.tree import flatten, spread, tree_map, unflatten

__all__ = ["grad", "grad_and_value", "vmap", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize", "functional_call",
           "stack_module_state", "replace_all_batch_norm_modules_", "debug_unwrap"]


def _chosen(args, argnums):
    """The arguments that argnums names, with their places. Raises RuntimeError for an argnums that names none."""
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
    return (tuple([args[n] for n in places]) if isinstance(argnums, tuple) else args[argnums]), places


def _alias(t):
    """(a Tensor of our own in the place of an argument, whether gradients flow on from it): a result of the argument, or else a leaf."""
    if not isinstance(t, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(t)}")
    flows_on = edge_of(t)[0] is not None
    return t.view_as(t) if flows_on else t.detach().requires_grad_(), flows_on


class _Run:
    """A function run on some arguments, recorded with respect to those that `argnums` names, or all.

    `outputs` and their `structure`, `inputs` and theirs (`form`) are flat. `tracked`: whether something outside requires grad, so that what
    is found is recorded too.
    """

    def __init__(self, what, function, args, kwargs=None, argnums=None, has_aux=False):
        records = is_grad_enabled()
        chosen, places = (args, range(len(args))) if argnums is None else _chosen(args, argnums)
        leaves, self.form = flatten(chosen)
        with enable_grad():
            aliases = [_alias(t) for t in leaves]
            self.inputs = [t for t, _ in aliases]
            self._flows_on = {edge_of(t)[0]: flows_on for t, flows_on in aliases}
            mine = unflatten(self.form, self.inputs)
            args = list(args)
            for n, value in zip(places, (mine,) if isinstance(argnums, int) else mine, strict=True):
                args[n] = value
            output, self.aux = function(*args, **kwargs or {}), None
            if has_aux:
                if not (isinstance(output, tuple) and len(output) == 2):
                    raise RuntimeError(f"{what}: output of function f should be a tuple: (output, aux) if has_aux is True")
                output, self.aux = output
        self.output = output
        self.outputs, self.structure = flatten(output)
        self.tracked = records and any([self._reaches_out(t) for t in self.outputs if isinstance(t, Tensor)])
        self.records = records

    def check_outputs(self, what):
        """Raises RuntimeError unless the function gave Tensors."""
        if not self.outputs or self.output is None:
            raise RuntimeError(f"{what}: Expected f to be a function that has non-empty output (got output = {self.output})")
        for t in self.outputs:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{what}: expected f(*primals) to return only tensors, got unsupported type {type(t)}")

    def check_real(self, what, tensors, which):
        """Raises RuntimeError for complex Tensors."""
        for i, t in enumerate(tensors):
            if isinstance(t, Tensor) and t.is_complex():
                raise RuntimeError(f"{what}: Expected all {which} to be real but received complex tensor at flattened input idx: {i}")

    def _reaches_out(self, t):
        """Whether a Tensor depends on what requires grad outside."""
        nodes = [edge_of(t)[0]]
        seen = {None}
        while nodes:
            node = nodes.pop()
            if node in seen:
                continue
            if self._flows_on.get(node, node._kind == LEAF):
                return True
            seen.add(node)
            if node not in self._flows_on:   # what lies beyond an input is known
                nodes += [n for n, _ in node._edges()]
        return False

    def given(self, t):
        """A Tensor as the caller gets it."""
        if not isinstance(t, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(t)}")
        return t if self.records and self._reaches_out(t) else t.detach()

    def back(self, outputs, grad_outputs=None, record=False, **options):
        """The gradients of all inputs."""
        found = recorded_grad(outputs, self.inputs, grad_outputs, create_graph=self.tracked or record, **options)
        return [OPS.zeros_like(t) if g is None else g for g, t in zip(found, self.inputs, strict=True)]

    def push(self):
        """A function of the inputs' tangents that gives those of the outputs, None for each that does not depend on the inputs."""
        dependent = [t for t in self.outputs if t.requires_grad]
        _, push = linearized(dependent, self.inputs)

        def of_all(tangents):
            record = is_grad_enabled() and (self.tracked or any([v.requires_grad for v in tangents]))
            found = iter(push(tangents, record))
            return [next(found) if t.requires_grad else None for t in self.outputs]
        return of_all


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that gives (the gradient, the value) of one that returns a 0-d Tensor.

    argnums: the argument, or a tuple of those, to differentiate with respect to; the gradient has its structure. has_aux: func returns
    (output, aux), and the result is (gradient, (value, aux)).
    Raises: RuntimeError for another output or argnums, ValueError for arguments that are no Tensors. Reference: torch.func.grad_and_value.
    """
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        what = "grad_and_value(f)(*args)"
        run = _Run(what, func, args, kwargs, argnums, has_aux)
        if not isinstance(run.output, Tensor):
            raise RuntimeError(f"{what}: Expected f(*args) to return a Tensor, got {type(run.output)}")
        if run.output.ndim:
            raise RuntimeError(f"{what}: Expected f(*args) to return a scalar Tensor, got tensor with {run.output.ndim} dims: use jacrev")
        found = unflatten(run.form, [run.given(g) for g in run.back(run.outputs)])
        value = run.given(run.output)
        return found, (value, tree_map(run.given, run.aux)) if has_aux else value
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
    what = "vjp(f, *primals)"
    run = _Run(what, func, primals, has_aux=has_aux)
    run.check_outputs(what)
    for t in run.outputs:
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError(f"{what}: All outputs of f must be floating-point or complex Tensors, got Tensor with dtype {t.dtype}")

    def vjp_fn(cotangents, retain_graph=True, create_graph=None):
        leaves, structure = flatten(cotangents)
        if structure != run.structure:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {structure}, primal output: {run.structure}")
        record = is_grad_enabled() if create_graph is None else create_graph
        found = run.back(run.outputs, leaves, record and any([v.requires_grad for v in leaves]), retain_graph=retain_graph)
        return unflatten(run.form, [run.given(g) for g in found])
    output = unflatten(run.structure, [run.given(t) for t in run.outputs])
    return (output, vjp_fn, tree_map(run.given, run.aux)) if has_aux else (output, vjp_fn)


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


def _pushed(run, push, tangents):
    """The outputs' tangents, in their structure, as the caller gets them."""
    found = [OPS.zeros_like(t) if g is None else g for g, t in zip(push(tangents), run.outputs, strict=True)]
    return unflatten(run.structure, [run.given(g) for g in found])


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False):
    """(func(*primals), J @ tangents): how the output changes along a direction.

    strict: an output that does not depend on the primals is a RuntimeError. has_aux: func returns (output, aux), and aux is a third result.
    Raises: RuntimeError for tangents that do not fit the primals. Reference: torch.func.jvp.
    """
    what = "jvp(f, primals, tangents)"
    tangents = _check_tangents(what, primals, tangents)
    run = _Run(what, func, primals, has_aux=has_aux)
    run.check_outputs(what)
    if strict and not all([t.requires_grad for t in run.outputs]):
        raise RuntimeError(f"{what}: The output of f is independent of the inputs. This is not allowed with strict=True.")
    found = _pushed(run, run.push(), tangents)
    output = unflatten(run.structure, [run.given(t) for t in run.outputs])
    return (output, found, tree_map(run.given, run.aux)) if has_aux else (output, found)


def linearize(func: Callable, *primals: Any):
    """(func(*primals), jvp_fn): jvp_fn(*tangents) gives J @ tangents, without running func again.

    Raises: RuntimeError for tangents that do not fit the primals. Reference: torch.func.linearize.
    """
    what = "linearize(f, *primals)"
    run = _Run(what, func, primals)
    run.check_outputs(what)
    push = run.push()
    return (unflatten(run.structure, [run.given(t) for t in run.outputs]),
            lambda *tangents: _pushed(run, push, _check_tangents(what, primals, tangents)))


def _jacobian(what, blocks, func, argnums, has_aux):
    """A function that gives the jacobian: per output, in its structure, the inputs' structure of `blocks(run)`."""
    @functools.wraps(func)
    def wrapper(*args):
        run = _Run(what, func, args, None, argnums, has_aux)
        run.check_outputs(what)
        run.check_real(what, flatten(args)[0], "inputs")
        run.check_real(what, run.outputs, "outputs")
        with enable_grad():
            found = [unflatten(run.form, [run.given(block) for block in of_output]) for of_output in blocks(run)]
        found = unflatten(run.structure, found)
        return (found, tree_map(run.given, run.aux)) if has_aux else found
    return wrapper


def _rows(run):
    """Blocks of a jacobian by a backward per element of the outputs."""
    for out in run.outputs:
        flat = out.reshape(-1)
        outputs = (flat,) if flat.numel() else ()
        found = recorded_grad(outputs, run.inputs, [basis(t) for t in outputs], create_graph=run.tracked, retain_graph=True,
                              is_grads_batched=True)
        yield [t.new_zeros((*out.shape, *t.shape)) if g is None else g.reshape((*out.shape, *t.shape))
               for g, t in zip(found, run.inputs, strict=True)]


def jacrev(func: Callable, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Callable:
    """A function that gives the jacobian, by a backward per element of the output: shape (*output.shape, *input.shape) per pair.

    argnums, has_aux: as in grad_and_value. chunk_size is accepted: one row is computed at a time.
    Raises: RuntimeError for complex Tensors; as grad_and_value. Reference: torch.func.jacrev.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian("jacrev", _rows, func, argnums, has_aux)


def jacfwd(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable:
    """A function that gives the jacobian, by pushing a direction per element of the input. func runs once, whatever `randomness` says.

    Raises: as jacrev. Reference: torch.func.jacfwd.
    """
    return _jacobian("jacfwd", lambda run: columns(run.outputs, run.inputs, run.tracked), func, argnums, has_aux)


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """A function that gives the matrix of second derivatives: jacfwd of jacrev. Reference: torch.func.hessian."""
    return jacfwd(jacrev(func, argnums), argnums)


# ------------------------------------------------------------------------------------------------------------------- vmap

def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable:
    """A function that applies func to each slice of its arguments and stacks the results: a loop, for ops have no batching rules yet.

    So it costs as many calls as there are slices. in_dims, out_dims: the dimension that is taken apart or made, or None, for all or in
    the arguments' or results' structure. randomness: random numbers are an "error", "different" for each slice, or the "same"; as errors
    they are noticed on the CPU, after the calls.
    Raises: ValueError for in_dims, out_dims or results that do not fit. Reference: torch.func.vmap.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
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
        drawn = _Drawn(randomness, leaves)
        found = []
        for k in range(sizes[0]):
            with drawn.slice(k):
                one = unflatten(form, [t if d is None else t.select(d, k) for t, d in zip(leaves, dims, strict=True)])
                found.append(flatten(func(*one, **kwargs)))
        drawn.check()
        structure = found[0][1]
        dims = spread(out_dims, structure)
        if dims is None:
            raise ValueError(f"vmap: out_dims={out_dims} is not compatible with the structure of `outputs`, {structure}")
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


class _Drawn:
    """Random numbers in the calls of a vmap."""

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
