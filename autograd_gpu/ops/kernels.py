"""The programs that the registry makes of elementwise bodies and formulas: kernels for CuPy's arrays, blocks for large ones of NumPy."""
from __future__ import annotations

from autograd_gpu import expression
from autograd_gpu.blocks import Blocked, steps
from autograd_gpu.cuda.launch import Fused
from autograd_gpu.ops.namespace import REGISTRY, rebind


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


def in_blocks(op):
    """The inputs whose formulas make several passes over the elements, which large arrays get as one."""
    return () if op.vjp_all else tuple([p for p, formula in op.formulas.items() if steps(formula, REGISTRY) > 1])


def blocked(op, functions):
    """{name in the op's compiled text: its function for what is large or of half precision}, for NumPy's arrays."""
    found = {}
    if op.wide_body:
        found["apart_body"] = Blocked(op.on_arrays(expression.FUNCTIONS), functions["body"])
    for p in in_blocks(op):
        found[f"wide_raw_{p}"] = Blocked(rebind(op.formulas[p], expression.FUNCTIONS), functions[f"wide_raw_{p}"])
    return found
