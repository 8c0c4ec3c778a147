"""Reductions: sums, extremes, statistics."""
from __future__ import annotations

import numpy as np

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op


@op(node="Sum", digit=lambda dim: dim is not None)
def sum(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    """The sum over `dim` (a number, several, or all)."""
    if dim.__class__ is list:
        dim = tuple(dim)
    return np.add.reduce(self, dim, keepdims=keepdim)

sum.vjp(self=lambda grad, self_shape, dim, keepdim: F.spread(grad, self_shape, dim, keepdim))


@composite(method=False)
def spread(grad, shape, dim, keepdim):
    """The gradient of a reduction at each element of what was reduced."""
    if dim is not None and not keepdim:
        dims = (dim,) if type(dim) is int else dim
        dims = [d % len(shape) for d in dims]
        grad = F.reshape(grad, tuple([1 if i in dims else n for i, n in enumerate(shape)]))
    return F.expand(grad, shape)


@op(node="Mean", digit=lambda dim: dim is not None)
def mean(self, dim: Dims = None, keepdim: bool = False, *, dtype: DType = None):
    total = np.add.reduce(self, dim, keepdims=keepdim)
    return total / (self.size // max(total.size, 1))

mean.vjp(self=lambda grad, self_shape, dim, keepdim: F.spread(grad / F.count(self_shape, dim), self_shape, dim, keepdim))


@composite(method=False)
def count(shape, dim):
    n = 1
    for i in (shape if dim is None else [shape[d] for d in ((dim,) if type(dim) is int else dim)]):
        n *= i
    return n


@op(node="MaxBackward1")
def max_all(self):
    return np.maximum.reduce(self, None)

max_all.vjp(self=lambda grad, self, result: F.evenly(grad, self == result))


@composite(method=False)
def evenly(grad, mask):
    return mask * (grad / F.sum(mask))


@composite
def max(self, dim=None, keepdim=False):
    return F.max_all(self)
