"""Matrix products."""
from __future__ import annotations

import numpy as np

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op


@op()
def mm(self, mat2):
    return np.matmul(self, mat2)

mm.vjp(self=lambda grad, mat2: F.mm(grad, F.conj(F.t(mat2))), mat2=lambda grad, self: F.mm(F.conj(F.t(self)), grad))


@op()
def mv(self, vec):
    return np.matmul(self, vec)

mv.vjp(self=lambda grad, vec: F.outer(grad, F.conj(vec)), vec=lambda grad, self: F.mv(F.conj(F.t(self)), grad))


@composite
def outer(self, vec2):
    return F.reshape(self, (-1, 1)) * vec2


@composite
def matmul(self, other):
    return F.mv(self, other) if other.ndim == 1 else F.mm(self, other)
