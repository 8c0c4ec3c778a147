"""Sorting, and the so many largest or smallest."""
from __future__ import annotations

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.reduce import dim_of

_CPU = np.ndarray                            # np in a body may be CuPy
_RESULTS = ("values", "indices")


@composite(method=False, function=False)
def order(name, self, dim, descending):
    """Where the elements of a dimension stand when they are sorted; equal ones keep their order. NaN is the largest."""
    d = dim_of(name, dim, self.ndim)
    if self.dtype.kind in ("cb" if name == "topk" else "c"):
        raise RuntimeError(f"{name} does not support {_dtype.of(self.dtype)}: convert the tensor first, with .to(dtype)")
    if not self.ndim:
        return np.zeros((), np.int64)
    x = self.astype(np.float32) if self.dtype.kind == "V" else self      # bfloat16 has no order of its own everywhere
    if not descending:
        return np.argsort(x, d, kind="stable")
    return self.shape[d] - 1 - np.flip(np.argsort(np.flip(x, d), d, kind="stable"), d)


@composite(method=False, function=False)
def in_order(self, at, dim):
    """The elements at places along a dimension, and the places."""
    return (np.take_along_axis(self, at, dim), at) if self.ndim else (self.copy(), at)


@op(node="Sort", digit=lambda stable: stable is not None, outputs=_RESULTS, differentiable=(True, False))
def sort(self, dim: int = -1, descending: bool = False, *, stable: bool = None):
    """A named tuple (values, indices): the elements along a dimension in order, and where each came from. NaN is the largest.

    Equal elements keep their order, whether `stable` or not. Raises RuntimeError for complex numbers. Reference: torch.sort.
    """
    return F.in_order(self, F.order("sort", self, dim, descending), dim)

sort.vjp(self=lambda grad, self_shape, indices, dim: F.gather_backward(grad, self_shape, dim, indices))


def _best(x, k, d, largest):
    """Where the k largest or smallest elements of a dimension stand, in order: only they are sorted."""
    x = x.astype(np.float32) if x.dtype.kind == "V" else x
    n = x.shape[d]
    found = np.argpartition(x, n - k if largest else k - 1, d)[(slice(None),) * d + (slice(n - k, n) if largest else slice(k),)]
    found = np.sort(found, d)
    return np.take_along_axis(found, F.order("topk", np.take_along_axis(x, found, d), d, largest), d)


@op(outputs=_RESULTS, differentiable=(True, False))
def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):
    """A named tuple (values, indices): the k largest elements along a dimension, or the smallest, in order.

    Of equal ones the first come first, but any of those may be taken of which there are more than are wanted.
    Raises: RuntimeError for a k that the dimension does not have, and for bools and complex numbers. Reference: torch.topk.
    """
    d = dim_of("topk", dim, self.ndim)
    if not 0 <= k <= (self.shape[d] if self.ndim else 1):
        raise RuntimeError(f"topk: selected index k out of range: {k} of {self.shape[d] if self.ndim else 1} elements")
    if self.__class__ is _CPU and self.ndim and 0 < 4 * k <= self.shape[d]:
        return F.in_order(self, _best(self, k, d, largest), d)
    at = F.order("topk", self, dim, largest)
    if not self.ndim:
        return F.in_order(self, at, dim) if k else (self.copy(), at)
    return F.in_order(self, at[(slice(None),) * d + (slice(k),)].copy("C"), d)

topk.vjp(self=lambda grad, self_shape, indices, dim: F.gather_backward(grad, self_shape, dim, indices))


@composite
def argsort(input, dim=-1, descending=False, *, stable=None):
    """Where the elements along a dimension stand when they are sorted; see sort. Reference: torch.argsort."""
    return F.sort(input, dim, descending, stable=stable)[1]


@composite(out=True)
def msort(input):
    """The elements along the first dimension in order. Reference: torch.msort."""
    return F.sort(input, 0)[0]
