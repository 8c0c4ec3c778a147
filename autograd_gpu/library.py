"""Operations of your own, written as the library's are: see docs/extending.md. `F` holds all operations by name, for formulas."""
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise, op, view

__all__ = ["F", "composite", "elementwise", "op", "view"]
