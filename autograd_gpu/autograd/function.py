"""Operations of the user's own: forward and backward in Python, on Tensors."""
from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.autograd.function_jvp import push
from autograd_gpu.base import Tensor, count_write, version, wrap
from autograd_gpu.cuda import streams as _streams
from autograd_gpu.engine.forward_mode import unseen
from autograd_gpu.engine.grad_mode import everywhere, local, no_grad
from autograd_gpu.engine.inside import depend, refusal, refusing, remembering
from autograd_gpu.engine.node import ALWAYS, Node, edge_of, new_node, rare_of, stand_in
from autograd_gpu.engine.packing import SavedTensor, packing
from autograd_gpu.engine.saved import RELEASED, Packed, freed, list_item, own_result
from autograd_gpu.ops.fit import fit, fit_tensor
from autograd_gpu.ops.inplace import check_history
from autograd_gpu.ops.namespace import OPS
from autograd_gpu.ops.views import OTHERS, FunctionStep, refresh, set_history, unwritable

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]
_NOTHING = contextlib.nullcontext()


class _OwnResult:
    """A result of the node that saves it: to hold its Tensor would be a cycle."""

    __slots__ = ("_array", "_nr", "_counter")

    def __init__(self, t):
        self._array, self._nr, self._counter = t._array, t._nr, t._counter


class FunctionCtx(Node):
    """What forward and backward of a Function share, and the node of its results in the graph.

    Attributes of the user's own stay as they are; tensors needed in backward belong into `save_for_backward`, which watches for
    in-place writes and makes no cycles. Reference: torch.autograd.function.FunctionCtx.
    """

    __slots__ = ("_edge_list", "_outputs", "_result_meta", "_inputs", "_saved", "_saved_at", "_own", "_inside", "_kept", "needs_input_grad",
                 "materialize_grads", "to_save", "dirty_tensors", "non_differentiable", "saved_for_forward")
    _arity = 3
    _jointly = ALWAYS
    _function: Any = None                    # the class that the user wrote

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors, inputs and outputs above all, for `saved_tensors` in backward. A second call replaces the first.

        What is neither a Tensor nor None is a TypeError of `apply`.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `saved_tensors` in jvp."""
        if not all([t is None or isinstance(t, Tensor) for t in tensors]):
            raise AssertionError("save_for_forward expects all arguments to be tensors; keep anything else as an attribute of ctx")
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward has written to in place; they have to be among what it returns."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs need no gradient. Integers and bools never do."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None where no gradient arrived."""
        if not isinstance(value, bool):
            raise TypeError(f"set_materialize_grads(): argument 'value' must be bool, not {type(value).__name__}")
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What save_for_backward kept; in jvp, what save_for_forward was given.

        Raises RuntimeError where it was freed by a backward, or written to in place since.
        """
        if self.saved_for_forward:           # jvp is running
            return self.saved_for_forward
        if self._saved is RELEASED:
            raise freed(self)
        return tuple([self._unpack(i) for i in range(len(self._saved))])

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        """A SavedTensor for each of what save_for_backward kept. Raises RuntimeError where it was freed."""
        if self._saved is RELEASED:
            raise freed(self)
        return tuple([SavedTensor(self, "_saved", i, functools.partial(self._saved_tensor, i)) for i in range(len(self._saved))])

    def _saved_tensor(self, i):
        if self._saved is RELEASED:
            raise freed(self)
        return self._unpack(i)

    def _unpack(self, i):
        value, saved_at = self._saved[i], self._saved_at[i]
        if value is None:
            return None
        t = list_item(self, "tensors", value, saved_at)
        if type(value) is _OwnResult:
            return own_result(self, t._array, t._nr, t._counter)
        if type(value) is Packed and i in self._own:
            return own_result(self, t._array, value.edge[1], t._counter)
        elif type(value) is Packed and i in self._kept and local.state.graph_task is not None and local.state.enabled:
            t._node, t._requires = refusal(self._edge_list, self._title), True
        return t

    # ------------------------------------------------------------------------------------------------------ recording

    def _save(self, state):
        """Take over what save_for_backward was given, through the saved-tensor hooks of this thread where there are any."""
        self._own = []                       # the numbers of those that are this node's results
        for i, t in enumerate(self.to_save):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}: keep it as "
                                f"an attribute of ctx")
            if t is not None and self._is_own(t):
                version(t)
                self._own.append(i)
        self._kept = [i for i, t in enumerate(self.to_save) if t is not None and any([r() is t for r in self._inside])]
        self._saved_at = [0 if t is None or t._counter is None else t._counter.count for t in self.to_save]
        if state.saved_hooks and self.to_save:
            with packing(*state.saved_hooks[-1]) as pack:
                self._saved = tuple([t if t is None else self._packed(pack, t) for t in self.to_save])
        else:
            self._saved = tuple([_OwnResult(t) if i in self._own else t for i, t in enumerate(self.to_save)])
        self.to_save = ()

    def _is_own(self, t):
        """Whether a tensor is a result of this node: also an input that is a view, whose history leads here by its base's."""
        return t._node is self or t._view is not None and t._requires and any([t is d for d in self.dirty_tensors])

    def _packed(self, pack, t):
        if self._is_own(t):
            return pack(own_result(self, t._array, t._nr, t._counter), (None, t._nr), True, t._counter)
        if t._view is not None:              # forward may have written to it; one made in no_grad says so where a hook asks, as in PyTorch
            refresh(t, asked=unwritable(t._view) is OTHERS)
        return pack(t, edge_of(t), t._requires, version(t))

    def _values(self):
        return () if self._saved is RELEASED else self._saved

    def _release(self):
        self._saved = RELEASED

    # ------------------------------------------------------------------------------------------------------- backward

    def _apply(self, grad, keep):
        grads = [None if g is None else wrap(g.copy()) for g in ([grad] if self._outputs == 1 else grad)]
        return self._run(grads, keep, _fit)

    def _apply_tensors(self, grad, keep):
        grads = [None if g is None else stand_in(g, g._array.copy()) for g in ([grad] if self._outputs == 1 else grad)]
        with refusing(self._inside, self._edge_list, self._title):
            return self._run(grads, keep, _fit_recorded)

    def _run(self, grads, keep, fitted):
        """The user's backward, on gradients whose memory is its own; `fitted` makes one that it returned fit its input."""
        if self.materialize_grads:
            grads = [_zeros(*meta) if g is None and meta is not None else g for g, meta in zip(grads, self._result_meta, strict=True)]
        function = self._function
        backward = function.backward if function.vjp is Function.vjp else function.vjp
        if backward is function.vjp and function.backward is not Function.backward:
            raise RuntimeError(f"{function.__name__}: Implementing both 'backward' and 'vjp' for a custom Function is not allowed: keep "
                               f"one of them")
        results = backward(self, *grads)
        found = []
        for i, (g, meta) in enumerate(self._returned(results if isinstance(results, tuple) else (results,))):
            if g is None:
                found.append(None)
                continue
            if not isinstance(g, Tensor):
                raise RuntimeError(f"function {self._title}: expected Variable or None (got {type(g).__name__}) at index {i}")
            if self._edge_list[len(found)][0] is None:           # it goes nowhere, so it need not fit: the node's hooks see it
                meta = _meta(g)
            found.append(fitted(self._checked(g, i, *meta), *meta[:2]))
        if not keep:
            self._release()
        return tuple(found)

    def _returned(self, results):
        """(gradient, what its input was) for each argument of forward that was a Tensor."""
        inputs = self._inputs
        if len(results) < len(inputs) or any([g is not None for g in results[len(inputs):]]):
            raise RuntimeError(f"function {self._title} returned an incorrect number of gradients (expected {len(inputs)}, got "
                               f"{len(results)})")
        for i, (g, meta) in enumerate(zip(results, inputs, strict=False)):
            if meta is not None:
                yield g, meta
            elif g is not None:
                raise RuntimeError(f"function {self._title} returned a gradient different than None at position {i + 1}, but the "
                                   f"corresponding forward input was not a Variable")

    def _checked(self, g, i, shape, dtype, device):
        lead = g.ndim - len(shape)
        if lead < 0 or any([n not in (1, m) for n, m in zip(shape, g.shape[lead:], strict=True)]):
            raise RuntimeError(f"Function {self._title} returned an invalid gradient at index {i} - got {list(g.shape)} but expected shape "
                               f"compatible with {list(shape)}")
        if g.device != device:
            raise RuntimeError(f"Function {self._title} returned an invalid gradient at index {i} - expected device {device} but got "
                               f"{g.device}")
        if g._array.dtype.kind == "c" and dtype.kind != "c":
            raise RuntimeError(f"Function {self._title} returned an invalid gradient at index {i} - it is complex, the input is real: "
                               f"return its real part")
        return g


def _fit(t, shape, dtype):
    """A gradient that fits; a view, as the engine keeps no view for itself: what backward returned is its user's."""
    return fit(t._array, shape, dtype).view()


def _fit_recorded(t, shape, dtype):
    t = fit_tensor(t, shape, dtype)
    return stand_in(t, t._array.view())


def _zeros(shape, dtype, device):
    with _device.guard(device):
        return wrap(_device.module(device).zeros(shape, dtype))


def _meta(t):
    return t._array.shape, t._array.dtype, t.device


class Function:
    """An operation with a backward of your own: a subclass gives `forward` and `backward` as static methods; call it with `apply`.

    forward(ctx, *args) computes on Tensors, unrecorded, and returns Tensors (or one); backward(ctx, *grads) takes the gradient with
    respect to each output and returns one for each argument of forward, None for those that are no Tensors. In place of
    forward(ctx, *args) there may be forward(*args) and setup_context(ctx, inputs, output).

    A gradient may be of a shape that the input is broadcast to, and of another dtype: it is summed and cast. backward may write to the
    gradients it is given. Where it is itself made of differentiable operations, the Function can be differentiated to any order.
    Reference: torch.autograd.Function.
    """

    _node_class: type[FunctionCtx]
    generate_vmap_rule = False               # of PyTorch's vmap, as is the method below; a loop needs no rule

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        title = cls.__name__ + "Backward"
        cls._node_class = type(title, (FunctionCtx,), {"_title": title, "_function": cls, "__module__": cls.__module__, "__doc__": None})

    def __init__(self, *args, **kwargs):
        warnings.warn(f"{type(self).__name__} should not be instantiated: its methods are static, call {type(self).__name__}.apply",
                      DeprecationWarning, stacklevel=2)

    def __call__(self, *args, **kwargs):
        raise RuntimeError("autograd functions with a non-static forward method are not supported: make forward and backward static "
                           f"methods and call {type(self).__name__}.apply")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """forward(ctx, *args), or forward(*args) beside setup_context: the outputs. Runs unrecorded."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Called after a forward without ctx, with its arguments and what it returned."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients with respect to forward's arguments."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with "
                                  "backward mode AD.")

    vjp = backward                           # the same under another name

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs, from those of forward's arguments: zeros for a Tensor that has none (None where
        set_materialize_grads(False) was called), None for what is no Tensor. None stands for zero.

        That of an input that forward wrote to (mark_dirty) has to be written to in the same way, and returned; that of a view has to be the
        same view of the input's.
        """
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """A rule for batches, which PyTorch asks for. Never called here: vmap calls forward for each slice."""
        raise NotImplementedError("vmap of a custom autograd.Function has no rule: torch.func.vmap is a loop and needs none.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it if gradients are wanted. Arguments by name stand where forward's signature has them.

        Raises: RuntimeError where what was marked dirty may not be written to or is not returned.
        """
        state = local.state
        apart = cls.setup_context is not Function.setup_context
        if apart or kwargs:
            args = _bind(cls.forward, args, kwargs, 0 if apart else 1)
        inputs = [a for a in args if isinstance(a, Tensor)]
        for t in inputs:
            if t._view is not None:
                refresh(t)
        recorded = state.enabled and any([t._requires for t in inputs])          # in inference mode too, under enable_grad()
        edges = tuple([edge_of(t) for t in inputs]) if recorded else ()          # before forward, which may write to its inputs
        ctx = new_node(cls._node_class)
        ctx._edge_list = edges
        ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a._requires for a in args])
        ctx.materialize_grads = True
        ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ctx._saved = ctx.saved_for_forward = ()
        ctx._saved_at = []
        with remembering() if recorded else no_grad() as inside, unseen() if everywhere.levels else _NOTHING:
            if apart:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args)
            returned = _check_outputs(ctx, output if isinstance(output, tuple) else (output,), inputs)
        ctx._inputs = [_meta(a) if isinstance(a, Tensor) else None for a in args] if recorded else ()
        outputs = _attach(ctx, returned, inputs, recorded)
        if everywhere.levels:
            push(ctx, args, returned, outputs)
        if recorded:
            ctx._inside = _left(inside, outputs)
            ctx._save(state)
        elif state.inside is not None and not state.enabled:     # within another Function's forward
            depend([t for t in outputs if isinstance(t, Tensor) and t._array.dtype.kind in "fcV"], [edge_of(t) for t in inputs])
        ctx.dirty_tensors = ctx.non_differentiable = ctx.saved_for_forward = ()  # outputs among them would be cycles
        return tuple(outputs) if isinstance(output, tuple) else outputs[0]


def _left(inside, outputs):
    """What a forward computed from its inputs and somebody still has, outputs aside."""
    return [r for r in inside if r() is not None and not any([r() is t for t in outputs])]


def _bind(forward, args, kwargs, skipped):
    """The arguments of a call in the order of forward's signature, defaults included where it has no ctx."""
    bound = inspect.signature(functools.partial(forward, *(None,) * skipped)).bind(*args, **kwargs)
    if not skipped:
        bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"forward() got an unexpected keyword argument '{next(iter(bound.kwargs))}': its tensors are arguments by position")
    return bound.args


def _check_outputs(ctx, outputs, inputs):
    """What forward returned, where every dirty tensor has its version counted up."""
    for t in ctx.non_differentiable:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"mark_non_differentiable only accepts variable arguments, but got {type(t).__name__}: give it the Tensors "
                               f"that forward returns, one by one")
    for i, t in enumerate(ctx.dirty_tensors):
        if not isinstance(t, Tensor):
            raise RuntimeError(f"mark_dirty can only accept variables, but argument {i} is of type {type(t).__name__}: give it the Tensors "
                               f"that forward wrote to, one by one")
        if not any([t is o for o in outputs]):
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
                               "modified inplace must all be outputs of the Function.")
        if not any([t is i for i in inputs]):
            warnings.warn("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be "
                          "passed to ctx.mark_dirty().", stacklevel=4)
        count_write(t)
    return outputs


def _attach(ctx, outputs, inputs, recorded):
    """The outputs with ctx as their history, as far as they need one."""
    differentiable = [isinstance(t, Tensor) and t._array.dtype.kind in "fcV" and not any([t is o for o in ctx.non_differentiable])
                      for t in outputs]
    made = []
    for nr, t in enumerate(outputs):
        if not isinstance(t, Tensor):
            made.append(t)
            continue
        is_input = any([t is i for i in inputs])
        dirty = any([t is d for d in ctx.dirty_tensors])
        if not recorded or not differentiable[nr]:
            if not is_input and t._view is None:             # a view requires grad as its base does, as any made in no_grad
                t._requires, t._node = False, None
            elif is_input and t._requires:   # the input itself stays as it is
                t = t.detach()
            elif is_input and not dirty:
                t = OPS.alias(t)
                if t._view is not None:
                    t._view.step = FunctionStep(t._view.step)
        elif dirty and is_input:
            _rebase(ctx, t, nr, len(outputs), inputs)
        else:
            if is_input:
                with no_grad():
                    t = OPS.alias(t)
            if t._view is not None:
                t._view.step = FunctionStep(t._view.step)
                t._view.seen = version(t).count
            t._node, t._nr, t._requires = ctx, nr, True
        made.append(t)
    if recorded:
        devices = [t.device for t in (*made, *inputs) if isinstance(t, Tensor)]
        if any([d is not _device.CPU for d in devices]):
            rare_of(ctx).stream, ctx._rare.crosses = _streams.at(devices[0]), len(set(devices)) > 1
        ctx._outputs = len(outputs)
        ctx._result_meta = [_meta(t) if isinstance(t, Tensor) else None for t in made]
    return made


def _rebase(ctx, t, nr, count, inputs):
    """Make ctx the history of an input that forward wrote to."""
    check_history(t, ctx._title)
    t._grad = None
    if t._view is not None and count > 1:
        raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more "
                           "than one Tensor: clone() the input first, or return one Tensor")
    set_history(t, ctx, nr, next(i for i, other in enumerate(inputs) if other is t))


def once_differentiable(fn):
    """Decorates a backward that is not made of differentiable operations: a second derivative through it is an error, not silently wrong.

    Reference: torch.autograd.function.once_differentiable.
    """
    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with no_grad():
            results = fn(ctx, *args)
        if not local.state.records() or not any([isinstance(a, Tensor) and a.requires_grad for a in args]):
            return results
        several = isinstance(results, tuple)
        marked = []
        for t in results if several else (results,):
            if isinstance(t, Tensor):
                unseen, t = t.detach().requires_grad_(), t.detach()
                node = new_node(_Twice, t.device)
                node.n0, node.i0 = edge_of(unseen)
                t._node, t._nr, t._requires = node, 0, True
            marked.append(t)
        return tuple(marked) if several else marked[0]
    return wrapper


class _Twice(Node):
    """The history of what a once-differentiable backward returned."""

    __slots__ = ("n0", "i0")                 # a leaf that nobody has: no gradient that autograd.grad looks for lies behind it
    _arity = 1
    _title = "torch::autograd::Error"

    def _apply(self, grad, keep):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

    _apply_tensors = _apply


class InplaceFunction(Function):
    """A Function; the name is kept for programs that use it. Reference: torch.autograd.function.InplaceFunction."""
