"""The kernels that ops are given on CuPy's arrays: traced from elementwise bodies and formulas, or written for the op."""
from __future__ import annotations

from autograd_gpu import expression
from autograd_gpu.cuda import nll, reduce, softmax
from autograd_gpu.cuda.launch import Fused
from autograd_gpu.ops.namespace import rebind

LAUNCHERS = reduce.LAUNCHERS | softmax.LAUNCHERS | nll.LAUNCHERS


def launched(name, plain):
    """A body on CuPy's arrays: the kernels written for it, or `plain`, CuPy's functions, for arguments that they do not cover."""
    launcher = LAUNCHERS.get(name)
    if launcher is None:
        return plain

    def function(*args, **options):
        found = launcher(*args, **options)
        return plain(*args, **options) if found is NotImplemented else found
    return function


def is_launched(formula):
    """Whether a formula is one call of a body with kernels of its own, which take half precision as it is."""
    return {"F"} < set(formula.__code__.co_names) <= {"F", *LAUNCHERS}


def fused(op, bodies):
    """{name in the op's compiled text: its kernel} for CuPy's arrays. `bodies`: the same names for CuPy's functions, or None each."""
    found = {}
    if op.is_elementwise:
        found["body"] = Fused(op.name, op.on_arrays(expression.FUNCTIONS), bodies["body"])
    for p, formula in ({} if op.vjp_all else op.formulas).items():
        traced = rebind(formula, expression.FUNCTIONS)
        for reader in ("raw", "wide_raw"):
            found[f"{reader}_{p}"] = Fused(f"{op.name}_backward_{p}", traced, bodies[f"{reader}_{p}"])
    return found
