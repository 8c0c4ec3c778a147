"""What the compiled functions of ops call: operands made alike, gradients made to fit, errors put in words."""
from __future__ import annotations

import functools

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import INFERENCE, LINKS, CudaTensor, Tensor, Version, View, mark, version, wrap
from autograd_gpu.blocks import LARGE
from autograd_gpu.cuda.streams import here
from autograd_gpu.engine.anomaly_mode import note
from autograd_gpu.engine.grad_mode import everywhere, local, quiet_run, run_apart
from autograd_gpu.engine.inside import depend
from autograd_gpu.engine.node import ALWAYS, PRIME, Node, Rare, edge_of, leaf_node, next_seq, unlinking
from autograd_gpu.engine.packing import SavedTensor, pack_inputs, pack_results
from autograd_gpu.engine.saved import NEVER, RELEASED, freed, list_item, own_result, saved_aux, saved_input, saved_result
from autograd_gpu.expression import is_mixed
from autograd_gpu.ops.compile import partly_source
from autograd_gpu.ops.fit import HALF, fit, fit_tensor, widen, widened
from autograd_gpu.ops.forward import dual
from autograd_gpu.ops.kernels import blocked, fused, is_launched
from autograd_gpu.ops.namespace import OPS, rebind
from autograd_gpu.ops.out import into
from autograd_gpu.ops.views import inference_view, refresh, unrecorded, view_outputs
from autograd_gpu.parallel import notice_large

nd = np.ndarray
_scalars: dict[tuple, Tensor] = {}           # Python numbers as Tensors; emptied when it is full


class WrappedNumber:
    """Marks, in the slot of a leaf's hooks, a 0-d Tensor made of a Python number: it never decides a dtype, no hook packs it."""


# ------------------------------------------------------------------------------------------------------------- operands

def number(value, dtype):
    """A Tensor over a Python number, of the dtype that it has beside a tensor of `dtype`."""
    key = (value, type(value), dtype)
    found = _scalars.get(key)
    if found is not None:
        return found
    level = _dtype.category(dtype)
    if isinstance(value, complex):
        own = dtype if level == "c" else np.result_type(dtype if level == "f" else _dtype.default(), np.complex64)
    elif isinstance(value, float):
        own = dtype if level in "fc" else _dtype.default()
    elif isinstance(value, bool):
        own = dtype
    else:
        own = dtype if level != "b" else np.dtype(np.int64)
    array = np.array(value)
    if array.dtype == object:
        raise OverflowError(f"value cannot be converted to type {_dtype.of(own)} without overflow: {value}")
    t = wrap(run_apart(array.astype, own))
    t._hooks = WrappedNumber
    t._counter = None                        # no inference tensor: it may be used again where something is recorded
    lasting = own is dtype and value == value            # not where it depends on the default dtype
    if lasting and (value != 0 or type(value) is int) and (own.kind not in "iu" or t._array == array):
        if len(_scalars) >= 1000:                        # 0.0 and -0.0 would be one key; a number that wraps is looked at each time
            _scalars.clear()
        _scalars[key] = t
    return t


ELSEWHERE = object()                         # what lift answers where the other build of the op has to run


def lift_soft(op, x, y):
    """Two operands of an operator as Tensors; NotImplemented where one is of a type that only its own class may know."""
    if type(x) is Tensor:
        kind = type(y)
        if kind is float or kind is int:
            found = _scalars.get((y, kind, x._array.dtype))
            if found is not None:
                return x, found
    elif type(y) is Tensor:
        kind = type(x)
        if kind is float or kind is int:
            found = _scalars.get((x, kind, y._array.dtype))
            if found is not None:
                return found, y
    pair = _pair(op, x, y)
    return ELSEWHERE if pair is not NotImplemented and elsewhere(*pair) else pair


def _pair(op, x, y):
    """Two operands as Tensors, on whatever devices they are."""
    pair = _as_tensor(x, y, op.to_float), _as_tensor(y, x, op.to_float)
    if pair[0] is None or pair[1] is None:
        return NotImplemented
    if op.name in _SUBTRACTIONS and (type(x) is bool or type(y) is bool):
        raise RuntimeError(_NO_BOOL)
    return _comparable(x, y, *pair) if not op.edges and op.name in _ORDERS else pair


_SUBTRACTIONS = frozenset(("sub", "sub_scaled", "rsub_tensors"))
_NO_BOOL = "sub: Subtraction with a bool is not supported: use ^ (logical_xor) for two bools, ~ to invert a mask, or convert with .to()"
_NO_NEGATION = "neg: Negation, -, of a bool is not supported: use ~ (logical_not) to invert a mask, or convert it with .to()"
_ORDERS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def _comparable(x, y, a, b):
    """Operands of a comparison, both in int64 where a number does not fit into the other's integers: it would wrap and lie."""
    if type(x) is int and b._array.dtype.kind in "iu" and _wraps(x, a._array.dtype):
        return wrap(np.array(x)), OPS.to_copy(b, np.dtype(np.int64))
    if type(y) is int and a._array.dtype.kind in "iu" and _wraps(y, b._array.dtype):
        return OPS.to_copy(a, np.dtype(np.int64)), wrap(np.array(y))
    return a, b


def _wraps(value, dtype):
    return not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def _as_tensor(value, beside, to_float=False):
    """An operand as a Tensor: a number takes its dtype from the Tensor beside it. None for an unknown type.

    Its array is in host memory always: on a device it becomes an argument of the kernel. `to_float`: beside integers it becomes the
    default float at once, so that it need not fit into theirs.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (int, float, complex)) and isinstance(beside, Tensor):
        dtype = beside._array.dtype
        return number(value, _dtype.default() if to_float and dtype.kind in "iu" else dtype)
    return wrap(_device.plain(value)) if _device.is_array(value) else None


def lift(op, x, y):
    """Two operands of a function as Tensors. Raises TypeError for what is neither a Tensor, an array nor a number."""
    lifted = lift_soft(op, x, y)
    if lifted is NotImplemented:
        name, wrong = ("input", x) if _as_tensor(x, y) is None else ("other", y)
        raise TypeError(f"{op.name}(): argument '{name}' must be Tensor, an array or a number beside a Tensor, not "
                        f"{type(wrong).__name__}: {wrong!r:.80}")
    return lifted


def lift_all(op, *operands):
    """Three or more operands as Tensors; see lift."""
    lifted = _all(op, operands)
    return ELSEWHERE if elsewhere(*lifted) else lifted


def _all(op, operands):
    """Three or more operands as Tensors, on whatever devices they are."""
    tensors = [o for o in operands if isinstance(o, Tensor)]
    if not tensors:
        raise TypeError(f"{op.name}(): one of the operands must be a Tensor, got {', '.join(type(o).__name__ for o in operands)}")
    anchor = next((t for t in tensors if t._array.dtype.kind != "b"), tensors[0])
    lifted = [_as_tensor(o, anchor) for o in operands]
    if any(t is None for t in lifted):
        raise TypeError(f"{op.name}(): operands must be Tensors, arrays or numbers, got {', '.join(type(o).__name__ for o in operands)}")
    return lifted


def as_list(op, tensors):
    """The argument of an op on a sequence of tensors. Raises TypeError unless it is one."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{op.name}(): expected a list or tuple of Tensors, got {type(tensors).__name__}")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{op.name}(): expected a list or tuple of Tensors, got {type(tensors).__name__} with a {type(t).__name__}")
        if t._view is not None:
            refresh(t)
    return tensors


def not_tensor(op, name, value):
    """A value given where a Tensor belongs: an array is taken as one. Raises TypeError for anything else."""
    if _device.is_array(value):
        return wrap(_device.plain(value))
    raise TypeError(f"{op.name}(): argument '{name}' must be Tensor, not {type(value).__name__}")


def promote(a, b):
    """Two arrays in the dtype that PyTorch gives their combination."""
    found = _dtype.result_of([(a.dtype, 2 if a.ndim else 1), (b.dtype, 2 if b.ndim else 1)])
    return run_apart(a.astype, found, copy=False), run_apart(b.astype, found, copy=False)


def promote_float(a, b):
    """promote for an op on floats: integers become the default float before they could wrap in each other's dtype."""
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return to_float(a), to_float(b)
    return promote(a, b)


def promote_no_bool(a, b):
    """promote for subtraction, which is not defined for bools."""
    if a.dtype.kind == "b" or b.dtype.kind == "b":
        raise RuntimeError(_NO_BOOL)
    return promote(a, b)


def promote_all(*arrays):
    """Arrays in the dtype that PyTorch gives their combination."""
    found = _dtype.result_of([(a.dtype, 2 if a.ndim else 1) for a in arrays])
    return [run_apart(a.astype, found, copy=False) for a in arrays]


def to_float(a):
    """An array of integers or bools in the default floating dtype; others as they are."""
    return a.astype(_dtype.default(), _device.order_of(a)) if a.dtype.kind in "biu" else a


def unpack_varargs(value):
    """x.view((2, 3)) as x.view(2, 3)."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    return (value,)


# ------------------------------------------------------------------------------------------------------- running a body

def recover(op, error, body, arguments, options):
    """After a body raised: run it again if only its context was taken, else say what was wrong with the operands."""
    if isinstance(error, RuntimeError) and str(error).startswith("cannot enter context"):
        return run_apart(body, *arguments, **options)
    arrays = [a for a in arguments if _device.is_array(a)]
    if isinstance(error, TypeError) and (op.name in _SUBTRACTIONS or op.name == "neg") and all([a.dtype.kind == "b" for a in arrays]):
        raise RuntimeError(_NO_NEGATION if op.name == "neg" else _NO_BOOL) from None
    if isinstance(error, OverflowError):
        raise RuntimeError(f"{op.name}: value cannot be converted to the operands' type without overflow: {error}") from None
    if isinstance(error, TypeError) and any([words in str(error) for words in ("ufunc", "not supported", "Wrong type")]) or \
            type(error).__name__ == "CompileException":          # of a function of CuPy that C++ has not for this type
        raise NotImplementedError(f"{op.name}: not implemented for {', '.join(str(_dtype.of(a.dtype)) for a in arrays)}: "
                           f"convert the operands first, with .to(dtype)") from None
    if isinstance(error, ValueError) and "broadcast" in str(error):
        raise RuntimeError(_no_broadcast(op, arrays)) from None
    raise error.with_traceback(None) if type(error) in (IndexError, RuntimeError, ValueError, TypeError) else error


def _no_broadcast(op, arrays):
    shapes = [a.shape for a in arrays]
    for i, x in enumerate(shapes):
        for y in shapes[i + 1:]:
            for k in range(1, min(len(x), len(y)) + 1):
                if x[-k] != y[-k] and 1 not in (x[-k], y[-k]):
                    at = max(len(x), len(y)) - k
                    return (f"{op.name}: The size of tensor a ({x[-k]}) must match the size of tensor b ({y[-k]}) at "
                            f"non-singleton dimension {at}; the shapes are {x} and {y}: reshape one of them, or give it a "
                            f"dimension of size 1 there")
    return f"{op.name}: shapes {', '.join(map(str, shapes))} cannot be broadcast together"


def in_float32(body, *arguments, **options):
    """A body of several operations on half-precision arrays: computed in float32, rounded once."""
    half = next((a.dtype for a in arguments if _device.is_array(a) and a.dtype in HALF), None)    # None: 16-bit integers
    data = body(*[widen(a) for a in arguments], **options)
    if half is None:
        return data
    if type(data) is tuple:
        return tuple([d.astype(half) if d.dtype == np.float32 else d for d in data])
    return data.astype(half) if data.dtype == np.float32 else data


def wide_body(op, body):
    """The body in float32, for half precision. One that takes operands of several dtypes as they are may want to tell them apart."""
    if op.promotes or not op.is_elementwise:
        return functools.partial(in_float32, body)

    def function(*arguments, **options):
        mixed = is_mixed([a.dtype for a in arguments if _device.is_array(a)])
        return body(*arguments, **options) if mixed else in_float32(body, *arguments, **options)
    return function


def elsewhere(*operands):
    """Whether any of the operands is on a CUDA device."""
    for t in operands:
        if isinstance(t, Tensor) and type(t._array) is not nd:
            return True
    return False


def never(*operands):
    """elsewhere, in the build of an op for CUDA."""
    return False


def cuda_device(operands):
    """The device of the first Tensor on CUDA, in lists too; a Parameter may be one without being a CudaTensor."""
    return next(t.device for t in _flat(operands) if isinstance(t, Tensor) and type(t._array) is not nd)


def common_device(op, operands):
    """The CUDA device of an op's operands. Raises RuntimeError where they are on several devices.

    A 0-d operand of an elementwise op may be in host memory.
    """
    arrays = [t._array if isinstance(t, Tensor) else t for t in _flat(operands)]
    places = {_device.of(a): None for a in arrays if _device.is_array(a) and not (op.is_elementwise and _is_number(a))}
    if len(places) > 1:
        raise RuntimeError(f"{op.name}: Expected all tensors to be on the same device, but found at least two devices, "
                           f"{' and '.join(sorted(map(str, places)))}: move one of them with .to()")
    return next(iter(places))


def _flat(operands):
    return [t for o in operands for t in (o if isinstance(o, (list, tuple)) else (o,))]


def _is_number(array):
    """Whether an array is an argument of a kernel: 0-d in host memory."""
    return type(array) is nd and not array.ndim


def _gather(operands):
    """Operands for kernels: a 0-d CPU tensor that needs a gradient is moved to the device."""
    return [OPS.to(t, cuda_device(operands)) if t._requires and _is_number(t._array) else t for t in operands]


def lift_on_cuda(op, x, y):
    """lift in the build of an op for CUDA."""
    return _gather(_pair(op, x, y))


def lift_all_on_cuda(op, *operands):
    """lift_all in the build of an op for CUDA."""
    return _gather(_all(op, operands))


# ------------------------------------------------------------------------------------------------------------ gradients

def all_none(grads):
    """Whether no gradient arrived for any of a node's results."""
    for g in grads:
        if g is not None:
            return False
    return True


def unreached(node, keep):
    """What a node does that runs although no gradient reaches it: it looks whether what it saved may still be used, as PyTorch's do."""
    op = node._record
    for name in (*op.saved_inputs, *op.saved_results, *op.saved_aux):
        shown(node, name)
    if not keep:
        node._release()


def partly(node, wanted, tensors, grad, keep):
    """What a node gives in a backward that wants the gradients of some of its edges only, a flag each: None for the others.

    As in PyTorch all that was saved is looked at, but their formulas are not run. `tensors`: of _apply_tensors, not _apply.
    """
    names = type(node)._apply.__globals__
    name = "_apply_tensors_partly" if tensors else "_apply_partly"
    if name not in names:
        exec(compile(partly_source(node._record, node._on_cuda), f"<op {node._record.name}>", "exec"), names)
    return names[name](node, grad, keep, wanted)


def is_half(grads):
    """Whether the gradients are of half precision."""
    g = next(g for g in grads if g is not None)
    return (g._array if type(g) is Tensor else g).itemsize == 2


def materialize(node, grads, without):
    """Zeros where no gradient arrived for one of several results. `without`: the numbers of those that have no history."""
    like = next(g for g in grads if g is not None)
    zeros = _device.xp(like).zeros
    return [zeros(*meta) if g is None and i not in without else g for i, (g, meta) in enumerate(zip(grads, node._result_meta, strict=True))]


def materialize_tensors(node, grads, without):
    """materialize on Tensors."""
    like = next(g for g in grads if g is not None)
    zeros = _device.xp(like._array).zeros
    return [wrap(zeros(*meta)) if g is None and i not in without else g
            for i, (g, meta) in enumerate(zip(grads, node._result_meta, strict=True))]


def listed(value):
    """What is left of a saved list."""
    return () if value is RELEASED else value


def saved_list(node, name):
    """The Tensors of a saved list, each checked."""
    value = getattr(node, "s_" + name)
    if value is RELEASED:
        raise freed(node)
    return [list_item(node, name, t, k) for t, k in zip(value, getattr(node, "k_" + name), strict=True)]


def shown(node, name):
    """What a node's `_saved_<name>` gives: a saved tensor, checked, or a plain value."""
    op = node._record
    if name in op.saved_inputs:
        value = getattr(node, "s_" + name)
        if isinstance(value, tuple):
            return tuple(saved_list(node, name))
        if value is None or not hasattr(node, "k_" + name):      # nothing was saved, whatever a backward has put there since
            return None
        if value is RELEASED:
            raise freed(node)
        counter = value._counter
        return value if counter is None or counter.count == getattr(node, "k_" + name) else saved_input(node, name)
    if name in op.saved_results:
        counter, nr = getattr(node, "c_" + name), op.output_names.index(name)
        fresh = counter.count == getattr(node, "k_" + name)
        return own_result(node, getattr(node, "s_" + name), nr, counter) if fresh else saved_result(node, name, nr)
    if name in op.saved_aux:
        value = getattr(node, "s_" + name)
        if not _device.is_array(value):
            value = saved_aux(node, name)
        return wrap(value) if _device.is_array(value) else value
    value = getattr(node, name)
    return (value,) if type(value) is int and op.annotations.get(name) == "Dims" else value


def raw_saved(node, name):
    """What a node's `_raw_saved_<name>` gives: a SavedTensor, or one for each Tensor of a list."""
    slot = "s_" + name
    if name not in node._record.saved_inputs or not isinstance(getattr(node, slot), tuple):
        return SavedTensor(node, slot, None, functools.partial(shown, node, name))
    return tuple([SavedTensor(node, slot, i, functools.partial(_list_value, node, name, i)) for i in range(len(getattr(node, slot)))])


def _list_value(node, name, i):
    if getattr(node, "s_" + name) is RELEASED:
        raise freed(node)
    return list_item(node, name, getattr(node, "s_" + name)[i], getattr(node, "k_" + name)[i])


# ----------------------------------------------------------------------------------------------------------- recording

def any_requires(tensors):
    """Whether any of the Tensors needs a gradient."""
    for t in tensors:
        if t._requires:
            return True
    return False


def attach_list(node, outs):
    """Make a node the history of any number of results."""
    node._result_meta = tuple([(t._array.shape, t._array.dtype) for t in outs])
    for i, t in enumerate(outs):
        t._node, t._nr, t._requires = node, i, True


def on_stream():
    """The Rare of a node recorded on a CUDA device: it runs on the stream that is current there now."""
    found = Rare()
    found.stream = here()
    return found


def rare(node, state, op, outs, arguments, aux):
    """What a recording does besides, when something rare is on in this thread."""
    if state.saved_hooks and state.enabled:
        pack_inputs(node, state)             # before the tangents save theirs: a checkpoint counts what is saved, in order
    if everywhere.levels:
        dual(op, outs, arguments, aux, node)
    if not state.enabled:                    # a custom Function's forward is running
        depend([t for t in outs if t._node is node], node._edges())
        if op.is_view:
            for t in outs:
                t._view.step = unrecorded(t._view.step)
        return
    if everywhere.noting:
        note(node)
    if state.saved_hooks:
        pack_results(node, state)


def unusual(op, outs, arguments, aux):
    """What an op does besides that is not recorded, while some thread is in inference mode or a dual level is entered."""
    if not op.is_view:
        for t in outs:
            mark(t)
    if everywhere.levels:
        dual(op, outs, arguments, aux)


def with_aux(op, data):
    """What a body with aux values returned, checked: a floating one would be a constant to a second derivative."""
    if type(data) is not tuple or len(data) != op.given:
        raise TypeError(f"{op.name}: the body has to return a tuple of {op.given}: its result and {', '.join(op.aux)}; got "
                        f"{type(data).__name__}")
    for name, value in zip(op.aux, data[-len(op.aux):], strict=True):
        if _device.is_array(value) and value.dtype.kind in "fcV":
            raise TypeError(f"{op.name}: aux value {name!r} is {value.dtype}; only integers and bools can be saved as they are, a floating "
                            f"value has to be a hidden output with a derivative of its own")
    return data


_COMMON = {
    f.__name__: f for f in (
        lift_all, as_list, not_tensor, promote, promote_all, to_float, unpack_varargs, recover, run_apart, elsewhere, fit, fit_tensor,
        all_none, unreached, partly, is_half, materialize, materialize_tensors, listed, saved_list, any_requires, attach_list, view_outputs,
        refresh, rare, unusual, shown, raw_saved, with_aux, into, wrap, version, edge_of, leaf_node, unlinking, own_result, saved_input,
        saved_result, saved_aux)
} | dict(
    ALWAYS=ALWAYS, LARGE=LARGE, LINKS=LINKS, next_seq=next_seq, quiet_run=quiet_run, ELSEWHERE=ELSEWHERE, T=Tensor, Tensor=Tensor, nd=nd,
    new=object.__new__, asarray=np.asarray, Node=Node, Version=Version, View=View,
    INFERENCE=INFERENCE, everywhere=everywhere, notice_large=notice_large, mark=mark, inference_view=inference_view,
    unrecorded=unrecorded, PRIME=PRIME, NO_EDGE=(None, 0), RELEASED=RELEASED, NEVER=NEVER, local=local, WrappedNumber=WrappedNumber,
    f32=np.dtype(np.float32), f64=np.dtype(np.float64), F=OPS)


_ON_CUDA = dict(elsewhere=never, lift=lift_on_cuda, lift_all=lift_all_on_cuda, T=CudaTensor, on_stream=on_stream)


def bindings(op, module, soft=False):
    """The names that a compiled op uses. `soft`: an operator, which answers NotImplemented to unknown operands."""
    names = dict(_COMMON, op=op, body=op.on_arrays(np), lift=lift_soft if soft else lift, digit=op.digit,
                 result_type=op.result_type)
    if op.to_float:
        names["promote"] = promote_float
    elif op.name in _SUBTRACTIONS:
        names["promote"] = promote_no_bool
    formulas = {"all": op.vjp_all} if op.vjp_all else op.formulas
    for p, formula in formulas.items():
        for reader, bound in (("raw", rebind(formula, module)), ("tensor", rebind(formula, F=OPS))):
            alone = module is not np and reader == "raw" and is_launched(formula)
            names[f"{reader}_{p}"], names[f"wide_{reader}_{p}"] = bound, bound if alone else widened(bound)
    if module is np:
        names.update(blocked(op, names | dict(apart_body=wide_body(op, names["body"]) if op.wide_body else names["body"])))
    if module is not np:
        names.update(_ON_CUDA, nd=module.ndarray, asarray=module.asarray, body=op.on_arrays(module))
        names.update(fused(op, _bodies_on_cuda(op, names)))
    return names


def _bodies_on_cuda(op, names):
    """The op's functions on CuPy's arrays, under the names of its compiled text; of half precision computed in float32."""
    body = names["body"]
    if not op.wide_body:
        return names

    in_float = wide_body(op, body)

    def wide(*args, **options):
        half = any([getattr(a, "dtype", None) in HALF for a in args])
        return in_float(*args, **options) if half else body(*args, **options)
    return names | {"body": wide}
