"""What ops are given on CuPy's arrays, kernels traced from elementwise bodies and formulas or written for the op; and NumPy's blocks."""
from __future__ import annotations

from types import MappingProxyType

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu import expression
from autograd_gpu.blocks import Blocked
from autograd_gpu.cuda import nll, overlap, reduce, softmax
from autograd_gpu.cuda.launch import ACCESS, Fused, Gradients
from autograd_gpu.expression import is_number, kind_of
from autograd_gpu.ops.compile import PLAIN, public
from autograd_gpu.ops.namespace import REGISTRY, rebind

LAUNCHERS = reduce.LAUNCHERS | softmax.LAUNCHERS | nll.LAUNCHERS | overlap.LAUNCHERS


def launched(name, plain):
    """A body on CuPy's arrays: the kernels written for it, or `plain`, CuPy's functions, for arguments that they do not cover."""
    if name not in LAUNCHERS:
        return plain

    def function(*args, **options):
        found = LAUNCHERS[name](*args, **options)
        return plain(*args, **options) if found is NotImplemented else found
    return function


def is_launched(formula):
    """Whether a formula is one call of a body with kernels of its own, which take half precision as it is."""
    return {"F"} < set(formula.__code__.co_names) <= {"F", *LAUNCHERS}


def fused(op, bodies=MappingProxyType({})):
    """{name in the op's compiled text: its kernel} for CuPy's arrays. `bodies`: the same names for CuPy's functions."""
    found = {}
    if op.is_elementwise:
        found["body"] = Fused(op.name, op.on_arrays(expression.FUNCTIONS), bodies.get("body"), mixes=bool(op.promotes))
    if op.vjp_all:
        return found
    for reader in ("raw", "wide_raw"):
        formulas = {p: Fused(f"{op.name}_backward_{p}", rebind(formula, expression.FUNCTIONS), bodies.get(f"{reader}_{p}"))
                    for p, formula in op.formulas.items()}
        found |= {f"{reader}_{p}": f for p, f in formulas.items()}
        if op.fuses_gradients:
            places = {p: [op.all_parameters.index(n) for n in names] for p, names in op.formula_parameters.items()}
            found[f"{reader}_all"] = Gradients(f"{op.name}_backward", formulas, places)
    return found


def blocked(op, functions):
    """{name in the op's compiled text: its function for what is large or of half precision}, for NumPy's arrays."""
    found = {}
    if op.is_elementwise:
        found["apart_body"] = Blocked(op.on_arrays(expression.FUNCTIONS), functions["apart_body"])
    for p in op.in_blocks:
        found[f"wide_raw_{p}"] = Blocked(rebind(op.formulas[p], expression.FUNCTIONS), functions[f"wide_raw_{p}"])
    return found


def program(op, dtypes, what="forward", **parameters):
    """(Fused, Program or None): an elementwise op's forward, or the gradient of an input, or of all of them ("backward").

    `dtypes`: NumPy's, one per tensor or one for all. `parameters`: values of plain parameters; the others have their defaults.
    """
    kernels = fused(op)
    tensors = [p for p in op.parameters if op.roles[p] != PLAIN]
    given = dict(zip(tensors, dtypes if len(dtypes) > 1 else dtypes * len(tensors), strict=True))
    values = {p: v for p, v in {**op.defaults, **parameters}.items() if p not in given}
    kinds = given | _promoted(op, given) | {p: kind_of(v) for p, v in values.items()}
    names = [p for p in op.parameters if p not in op.settled]
    forward = _traced(kernels["body"], names, kinds, values, tuple([p for p in names if p in op.keyword_only]))
    if what == "forward":
        return kernels["body"], forward
    result = forward.dtypes[0] if forward else kinds[tensors[0]]
    kinds |= {"grad": result, "result": result} | given
    if what == "backward" and len(op.edges) == 1:
        what, = op.edges
    if what != "backward":
        return kernels[f"raw_{what}"], _traced(kernels[f"raw_{what}"], op.formula_parameters[what], kinds, values)
    together, places = kernels["raw_all"].together(op.edges)
    return together, _traced(together, [op.all_parameters[i] for i in places], kinds, values)


def _traced(kernel, names, kinds, values, keywords=()):
    """A kernel's Program for arguments of these names: for all numbers or, where the function looks at them, for those in `values`."""
    kinds = {n: kinds.get(n, tuple) for n in names}
    return kernel.program(tuple(kinds.values()), keywords) or kernel.program(
        tuple([values[n] if is_number(k) else k for n, k in kinds.items()]), keywords)


def _promoted(op, given):
    """The dtypes that the body gets for its operands' dtypes."""
    found = {p: given[p] for p in op.promotes}
    if op.to_float:
        found = {p: d if _dtype.category(d) in "fc" else _dtype.default() for p, d in (found or given).items()}
    return dict.fromkeys(found, _dtype.result_of([(d, 2) for d in found.values()])) if op.promotes else found


def source(given, dtypes, what, layout, parameters):
    """What cuda.kernel_source answers."""
    name = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    name = name if name in REGISTRY else name.removesuffix("_")
    if layout not in ("flat", "strided"):
        raise ValueError(f"kernel_source: layout must be 'flat' or 'strided', got {layout!r}")
    try:
        found = [_dtype.to_numpy(d) for d in dtypes]
    except TypeError:
        raise TypeError(f"kernel_source: dtypes are such as 'float32' or torch.float32, got {', '.join(map(repr, dtypes))}") from None
    op = REGISTRY.get(name)
    if getattr(op, "is_elementwise", False):
        return _elementwise(op, found, what, layout, parameters)
    if len(found) == 1 and (name, what) in _ROW_WISE and found[0].kind in "fV":
        return _ROW_WISE[name, what](found[0], layout == "flat")
    raise ValueError(f"kernel_source: {name!r} is not the name of an elementwise op; of others there is the kernel for one floating dtype "
                     f"of {', '.join([n if w == 'forward' else f'{n} ({w})' for n, w in _ROW_WISE])}")


def _elementwise(op, dtypes, what, layout, parameters):
    name, edges = op.name, {public(p): p for p in op.edges}
    known = ["forward", *(["backward"] if edges else []), *edges]
    what = edges.get(what, what)
    if what not in (*known, *op.edges):
        raise ValueError(f"kernel_source: what must be one of {', '.join(known)} for {name!r}, got {what!r}")
    tensors = [p for p in op.parameters if op.roles[p] != PLAIN]
    if len(dtypes) not in (1, len(tensors)):
        raise TypeError(f"kernel_source: {name!r} takes one dtype, or one for each of {', '.join(tensors)}, got {len(dtypes)}")
    lacking = [p for p in op.parameters if p not in (*tensors, *op.defaults, *parameters)]
    unknown = [p for p in parameters if p not in op.parameters or p in tensors]
    if lacking or unknown:
        raise TypeError(f"kernel_source: {name!r} " + (f"needs a value for {', '.join(lacking)}" if lacking else
                                                      f"has no plain parameter {', '.join(unknown)}"))
    kernel, found = program(op, dtypes, what, **parameters)
    if found is None:
        raise NotImplementedError(f"kernel_source: {name!r} is run by CuPy's functions: {[*kernel.reasons.values()][-1]}")
    if not found.stored:
        raise ValueError(f"kernel_source: there is no kernel for {what!r} of {name!r}: it gives what it is given")
    return found.source(layout, (), 2, "int") if layout == "strided" else found.source(layout)


def _reduction(state):
    return lambda dtype, flat: reduce.kernel_source(state, *(("packs", 1, 1) if flat else ("x", 2, 2)), dtype,
                                                    reduce.computed(dtype) if state == "moments" else dtype, "int")


def _along(rule):
    return lambda dtype, flat: softmax.along_source(rule, flat, ACCESS // dtype.itemsize if flat else 1, dtype, "int")


def _loss(name):
    return lambda dtype, flat: nll.nll_source(name, dtype, dtype, np.dtype(np.int64), "int")


_ROW_WISE = {(op, "forward"): _reduction(state) for op, state in {
    "sum": "sum", "mean": "mean", "prod": "prod", "max": "max", "amax": "max", "min": "min", "amin": "min", "var": "moments",
    "logsumexp": "logsumexp"}.items()} | {
    ("softmax", "forward"): _along("softmax"), ("softmax", "backward"): _along("softmax_backward"),
    ("log_softmax", "forward"): _along("log_softmax"), ("log_softmax", "backward"): _along("log_softmax_backward"),
    ("nll_loss", "forward"): _loss("nll"), ("nll_loss", "backward"): _loss("nll_backward")}
"""{(op, what): (dtype, whether rows lie together) -> the text of the kernel written for it}."""
