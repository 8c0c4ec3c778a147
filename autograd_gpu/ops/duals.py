"""The views that forward mode makes of a tensor: one to be given a tangent, one without its tangent.

They share no tangent with what they are views of; of `own` see engine/forward_mode.py: apart.
"""
from __future__ import annotations

from autograd_gpu.ops.op import view as view_op


@view_op(node="ViewBackward0", method=False, function=False)
def dual_view(self, own: list):
    """The same tensor once more, to be given a tangent: forward_ad.make_dual."""
    return self[...]

dual_view.vjp(self=lambda grad: grad)


@view_op(node="torch::autograd::Identity", method=False, function=False)
def primal_view(self, own: list):
    """The same tensor once more, without its tangent: forward_ad.unpack_dual."""
    return self[...]

primal_view.vjp(self=lambda grad: grad)
