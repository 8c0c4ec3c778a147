"""The kernels that the registry makes: each elementwise body and formula as a traced program."""
from __future__ import annotations

from autograd_gpu import expression
from autograd_gpu.cuda.launch import Fused
from autograd_gpu.ops.namespace import rebind


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
