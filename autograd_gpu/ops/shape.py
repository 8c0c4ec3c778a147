"""Views and other changes of shape."""
from __future__ import annotations

import numpy as np

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op, view as view_op


@view_op(varargs="size")
def view(self, size: Size):
    return self.reshape(size)

view.vjp(self=lambda grad, self_shape: F.reshape(grad, self_shape))


@composite
def reshape(self, *shape):
    shape = shape[0] if len(shape) == 1 and type(shape[0]) is not int else shape
    return F.view(self, shape)


@view_op(varargs="size")
def expand(self, size: Size):
    n = len(size) - self.ndim
    if self.flags.c_contiguous:
        st = (0,) * n + tuple([0 if a == 1 and b != 1 else s for a, b, s in zip(self.shape, size[n:], self.strides)])
        return np.ndarray(size, self.dtype, self, 0, st)
    return np.broadcast_to(self, size)

expand.vjp(self=lambda grad, self_shape: F.sum_to_size(grad, self_shape))


@op(varargs="size")
def sum_to_size(self, size: Size):
    lead = self.ndim - len(size)
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(size) if n == 1 and self.shape[i + lead] != 1)
    return np.add.reduce(self, axes, keepdims=True).reshape(size) if axes else self.reshape(size)

sum_to_size.vjp(self=lambda grad, self_shape: F.expand(grad, self_shape))


@view_op()
def t(self):
    return self.T

t.vjp(self=lambda grad: F.t(grad))


@view_op()
def slice(self, dim: int = 0, start: int = None, end: int = None, step: int = 1):
    return self[(_slice(None),) * dim + (_slice(start, end, step),)]

_slice = __builtins__["slice"]

slice.vjp(self=lambda grad, self_shape, dim, start, end, step: F.slice_backward(grad, self_shape, dim, start, end, step))


@op(node="SliceBackwardBackward0", method=False)
def slice_backward(grad_output, input_sizes: Size, dim: int, start: int, end: int, step: int):
    z = np.zeros(input_sizes, grad_output.dtype)
    z[(_slice(None),) * dim + (_slice(start, end, step),)] = grad_output
    return z

slice_backward.vjp(grad_output=lambda grad, dim, start, end, step: F.slice(grad, dim, start, end, step))


@composite(method=False)
def getitem(self, key):
    if type(key) is _slice:
        return F.slice(self, 0, key.start, key.stop, 1 if key.step is None else key.step)
    raise NotImplementedError
