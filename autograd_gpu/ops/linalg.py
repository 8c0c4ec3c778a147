"""Matrix products."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import refuse
from autograd_gpu.ops.shape import TRANSPOSED, is_viewable


def _check_dtypes(name, *arrays):
    """Raises RuntimeError unless the arrays are of one dtype of which there are products."""
    first = arrays[0].dtype
    for a in arrays[1:]:
        if a.dtype != first:
            raise RuntimeError(f"{name}: expected operands to have the same dtype, but got {_dtype.of(first)} and "
                               f"{_dtype.of(a.dtype)}: "
                               f"convert one of them with .to()")
    if first.kind == "b":
        raise NotImplementedError(f"{name}: not implemented for dtype torch.bool; convert the operands with .to()")


@composite(method=False, function=False)
def product(x, y):
    """The matrix product of arrays of one dtype, half precision added up in float32."""
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    return np.matmul(x, y)


@composite(method=False, function=False)
def scaled_back(grad, factor):
    """The gradient of x times a number."""
    return grad if factor == 1 else grad * (factor.conjugate() if isinstance(factor, complex) else factor)


# ------------------------------------------------------------------------------------------------------------------ the products

@op()
def mm(self, mat2):
    """The product of two matrices. Raises RuntimeError for other shapes or different dtypes. Reference: torch.mm."""
    if self.dtype is mat2.dtype and self.ndim == 2 and mat2.ndim == 2 and self.itemsize > 2:
        try:
            # dot is twice as fast on small matrices, but fills its result with zeros first
            return self.dot(mat2) if self.size + mat2.size < 1 << 14 else np.matmul(self, mat2)
        except ValueError:
            pass
    if self.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"mm: both operands must be matrices, got shapes {self.shape} and {mat2.shape}; matmul takes others")
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"mm: mat1 and mat2 shapes cannot be multiplied ({self.shape[0]}x{self.shape[1]} and "
                           f"{mat2.shape[0]}x{mat2.shape[1]}): transpose one of them if it is stored the other way round")
    _check_dtypes("mm", self, mat2)
    return F.product(self, mat2)

mm.vjp(self=lambda grad, mat2: F.mm(grad, F.t(mat2).conj()), mat2=lambda grad, self: F.mm(F.t(self).conj(), grad))


@op()
def mv(self, vec):
    """The product of a matrix and a vector. Raises RuntimeError for other shapes or different dtypes. Reference: torch.mv."""
    if self.dtype is vec.dtype and self.ndim == 2 and vec.ndim == 1 and self.itemsize > 2:
        try:
            return self.dot(vec)
        except ValueError:
            pass
    if self.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"mv: vector + matrix @ vector expected, got shapes {self.shape} and {vec.shape}")
    if self.shape[1] != vec.shape[0]:
        raise RuntimeError(f"mv: size mismatch, got shapes {self.shape} and {vec.shape}: the vector needs {self.shape[1]} elements")
    _check_dtypes("mv", self, vec)
    return F.product(self, vec)

mv.vjp(self=lambda grad, vec: F.outer(grad, vec.conj()), vec=lambda grad, self: F.mv(F.t(self).conj(), grad))


def _check_vectors(name, x, y):
    if x.ndim != 1 or y.ndim != 1:
        raise RuntimeError(f"{name}: 1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors of shapes {x.shape} and {y.shape}")
    if x.dtype != y.dtype:
        raise RuntimeError(f"{name}: expected both vectors to have same dtype, but found {_dtype.of(x.dtype)} and "
                           f"{_dtype.of(y.dtype)}")
    if x.shape != y.shape:
        raise RuntimeError(f"{name}: inconsistent tensor size, expected both shapes to be the same, but got {x.shape} and {y.shape}")
    _check_dtypes(name, x)


@op()
def dot(self, tensor):
    """The sum of the products of two vectors' elements. Raises RuntimeError for other shapes. Reference: torch.dot."""
    if self.dtype is tensor.dtype and self.ndim == 1 and tensor.ndim == 1 and self.itemsize > 2:
        try:
            return self.dot(tensor)
        except ValueError:
            pass
    _check_vectors("dot", self, tensor)
    return F.product(self, tensor)

dot.vjp(self=lambda grad, tensor: grad * tensor.conj(), tensor=lambda grad, self: grad * self.conj())


@op()
def vdot(self, other):
    """dot with the first vector conjugated. Reference: torch.vdot."""
    _check_vectors("vdot", self, other)
    return F.product(np.conjugate(self), other)

vdot.vjp(self=lambda grad, other: grad.conj() * other, other=lambda grad, self: grad * self)


@op()
def bmm(self, mat2):
    """The products of matrices pair by pair. Raises RuntimeError for other shapes or different dtypes. Reference: torch.bmm."""
    if self.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError(f"bmm: batch1 and batch2 must be 3D tensors, got shapes {self.shape} and {mat2.shape}")
    if self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm: shapes {self.shape} and {mat2.shape} do not fit: Expected size for first two dimensions of batch2 "
                           "tensor "
                           f"to be: [{self.shape[0]}, {self.shape[2]}] but got: [{mat2.shape[0]}, {mat2.shape[1]}]")
    _check_dtypes("bmm", self, mat2)
    return F.product(self, mat2)

bmm.vjp(self=lambda grad, mat2: F.bmm(grad, F.transpose(mat2, 1, 2).conj()),
        mat2=lambda grad, self: F.bmm(F.transpose(self, 1, 2).conj(), grad))


@composite(out=True)
def outer(input, vec2):
    """The products of each element of a vector with each of another. Raises RuntimeError for other shapes. Reference: torch.outer."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D arguments, but got {input.ndim}-D and {vec2.ndim}-D")
    return F.reshape(input, (-1, 1)) * vec2


@composite(out=True)
def ger(input, vec2):
    """outer under another name. Reference: torch.ger."""
    return F.outer(input, vec2)


@composite(out=True)
def matmul(input, other):
    """The matrix product, of vectors, matrices or broadcast batches of them; PyTorch's graph of mm, mv, dot or bmm with views.

    Raises: RuntimeError for shapes that do not fit or different dtypes. Reference: torch.matmul.
    """
    if not isinstance(other, Tensor):
        if not isinstance(input, Tensor):
            return F.product(input, other) if _device.is_array(input) else NotImplemented
        if not _device.is_array(other):
            return NotImplemented
        other = wrap(_device.plain(other))
    m, n = input._array.ndim, other._array.ndim
    if m == 2:
        if n == 2:
            return F.mm(input, other)
        if n == 1:
            return F.mv(input, other)
    if m == 1 and n == 1:
        return F.dot(input, other)
    if m == 0 or n == 0:
        raise RuntimeError(f"matmul: both arguments to matmul need to be at least 1D, but they are {m}D and {n}D: shapes "
                           f"{tuple(input.shape)} and {tuple(other.shape)}")
    if m == 1 and n == 2:
        return F.squeeze_product(F.mm(F.unsqueeze(input, 0), other), 0)
    if m >= 3 and n <= 2:
        return _folded(input, other)
    if n >= 3 and m <= 2 and (m == 1 or input.requires_grad):
        made = _folded(F.transpose(other, -1, -2), input if m == 1 else F.t(input))
        return made if m == 1 else F.contiguous(F.transpose(made, -1, -2))
    return _batched(input, other)


def _matmul(input, other):
    input = wrap(_device.plain(input)) if _device.is_array(input) else input
    made = REGISTRY["matmul"].operator(input, other) if isinstance(input, Tensor) else NotImplemented
    if made is NotImplemented:
        name, wrong = ("other", other) if isinstance(input, Tensor) else ("input", input)
        raise TypeError(f"matmul(): argument '{name}' must be Tensor, not {type(wrong).__name__}: {wrong!r:.80}")
    return made


_matmul.__name__, _matmul.__doc__ = "matmul", matmul.__doc__
REGISTRY["matmul"].function = _matmul        # the operator answers NotImplemented, the function raises


def _folded(input, other):
    """A batch times one matrix or vector: one product over all the batch's rows."""
    shape = tuple(input.shape)
    rows = math.prod(shape[:-1])
    if other.ndim == 1:
        return F.unsafe_view(F.mv(F.reshape(input, (rows, shape[-1])), other), shape[:-1])
    return F.unsafe_view(F.mm(F.reshape(input, (rows, shape[-1])), other), (*shape[:-1], other.shape[-1]))


def _batched(input, other):
    if input.ndim == 1:
        return F.squeeze_product(_batched(F.unsqueeze(input, 0), other), -2)
    x, y = tuple(input.shape), tuple(other.shape)
    batch = x[:-2] if x[:-2] == y[:-2] else F.broadcast_shapes(x[:-2], y[:-2])
    count = math.prod(batch)
    left = _in_one_batch(F.expand(input, (*batch, *x[-2:])), (count, *x[-2:]))
    right = _in_one_batch(F.expand(other, (*batch, *y[-2:])), (count, *y[-2:]))
    return F.unsafe_view(F.bmm(left, right), (*batch, x[-2], y[-1]))


def _in_one_batch(x, shape):
    """x with its batch as one dimension. Matrices that have to be copied stay transposed in memory if they were: a product takes both."""
    array = x._array
    if array.strides[-1] <= array.strides[-2] or is_viewable(array, shape):
        return F.reshape(x, shape)
    return F.unsafe_view(F.clone(x, memory_format=TRANSPOSED), shape)


@composite(method=False, function=False)
def rmatmul(input, other):
    """other @ input."""
    other = wrap(_device.plain(other)) if _device.is_array(other) else other
    return F.matmul(other, input) if isinstance(other, Tensor) else NotImplemented


@composite(out=True)
def inner(input, other):
    """The products of the last dimensions, summed. Reference: torch.inner."""
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {tuple(input.shape)} and "
                           f"{tuple(other.shape)}")
    return F.tensordot(input, other, ([-1], [-1]))


@composite(method=False, out=True)
def tensordot(a, b, dims=2):
    """The products of two tensors summed over pairs of dimensions: last with first ones, or as two lists say.

    Raises: RuntimeError where their sizes differ. Reference: torch.tensordot.
    """
    dims = dims.tolist() if isinstance(dims, Tensor) else dims
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > a.ndim or dims > b.ndim:
            raise RuntimeError(f"tensordot expects dims <= the number of dimensions of both, {a.ndim} and {b.ndim}, but got dims={dims}")
        dims = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    left, right = [(d,) if isinstance(d, int) else d for d in dims]
    left, right = [d % a.ndim for d in left], [d % b.ndim for d in right]
    x, y = tuple(a.shape), tuple(b.shape)
    if len(left) != len(right):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, got {left} and {right}")
    for i, j in zip(left, right, strict=True):
        if x[i] != y[j] and 1 in (x[i], y[j]):       # a size of 1 is broadcast: the other side is summed first
            a, b = (a, F.sum(b, (j,), True)) if x[i] == 1 else (F.sum(a, (i,), True), b)
            x, y = tuple(a.shape), tuple(b.shape)
        if x[i] != y[j]:
            raise RuntimeError(f"tensordot: contracted dimensions need to match, but first has size {x[i]} in dim {i} and second has "
                               "size "
                               f"{y[j]} in dim {j}: shapes {x} and {y}")
    rows, columns = [d for d in range(a.ndim) if d not in left], [d for d in range(b.ndim) if d not in right]
    k = 1
    for d in left:
        k *= x[d]
    size = (*[x[d] for d in rows], *[y[d] for d in columns])
    a, b = F.permute(a, (*rows, *left)), F.permute(b, (*right, *columns))
    if not size:
        return F.view(F.dot(*[t if t.ndim == 1 else F.reshape(t, (k,)) for t in (a, b)]), ())
    return F.view(F.mm(F.reshape(a, (_count(x, rows), k)), F.reshape(b, (k, _count(y, columns)))), size)


def _count(shape, dims):
    n = 1
    for d in dims:
        n *= shape[d]
    return n


# -------------------------------------------------------------------------------------------------------------- products and sums

def _add_scaled(name, self, product, beta, alpha):
    """beta * self + alpha * product, in the product's shape and dtype; with beta 0 what self holds does not count."""
    if self.dtype != product.dtype:
        raise RuntimeError(f"{name}: self must have the same dtype as the matrices, got {_dtype.of(self.dtype)} and "
                           f"{_dtype.of(product.dtype)}")
    if product.dtype.kind in "iu":
        alpha, beta = int(alpha), int(beta)
    shape, size = self.shape, product.shape
    if len(shape) > len(size) or any(n not in (1, m) for n, m in zip(shape[::-1], size[::-1], strict=False)):
        raise RuntimeError(f"{name}: the expanded size of the tensor {list(size)} must match the existing size {list(shape)}: shapes "
                           "do not "
                           f"fit")
    if alpha != 1:
        product = product * alpha
    if beta == 1:
        product = product + self
    elif beta != 0:
        product = product + self * beta
    return product


@op(inplace=True)
def addmm(self, mat1, mat2, *, beta: Number = 1, alpha: Number = 1):
    """beta * self + alpha * mat1 @ mat2. Raises RuntimeError for shapes or dtypes that do not fit. Reference: torch.addmm."""
    if self.itemsize == 2 and self.dtype.kind in "fV" and self.dtype == mat1.dtype == mat2.dtype:
        return F.addmm(*F.as_float32(self, mat1, mat2), beta=beta, alpha=alpha).astype(self.dtype)
    product = F.mm(mat1, mat2)
    if beta == 1 and alpha == 1 and self.dtype is product.dtype:
        try:
            return np.add(product, self, product)
        except ValueError:
            pass
    return _add_scaled("addmm", self, product, beta, alpha).astype(mat1.dtype, copy=False)

addmm.vjp(self=lambda grad, beta: F.scaled_back(grad, beta),
          mat1=lambda grad, mat2, alpha: F.scaled_back(F.mm(grad, F.t(mat2).conj()), alpha),
          mat2=lambda grad, mat1, alpha: F.scaled_back(F.mm(F.t(mat1).conj(), grad), alpha))


@composite(method=False, function=False)
def as_float32(*arrays):
    """The arrays in float32."""
    return [a.astype(np.float32) for a in arrays]


@op(inplace=True)
def addmv(self, mat, vec, *, beta: Number = 1, alpha: Number = 1):
    """beta * self + alpha * mat @ vec. Reference: torch.addmv."""
    if self.itemsize == 2 and self.dtype.kind in "fV" and self.dtype == mat.dtype == vec.dtype:
        return F.addmv(*F.as_float32(self, mat, vec), beta=beta, alpha=alpha).astype(self.dtype)
    return _add_scaled("addmv", self, F.mv(mat, vec), beta, alpha).astype(mat.dtype, copy=False)

addmv.vjp(self=lambda grad, beta: F.scaled_back(grad, beta),
          mat=lambda grad, vec, alpha: F.scaled_back(F.outer(grad, vec.conj()), alpha),
          vec=lambda grad, mat, alpha: F.scaled_back(F.mv(F.t(mat).conj(), grad), alpha))


@op(inplace=True)
def baddbmm(self, batch1, batch2, *, beta: Number = 1, alpha: Number = 1):
    """beta * self + alpha * batch1 @ batch2, pair by pair. Reference: torch.baddbmm."""
    if self.itemsize == 2 and self.dtype.kind in "fV" and self.dtype == batch1.dtype == batch2.dtype:
        return F.baddbmm(*F.as_float32(self, batch1, batch2), beta=beta, alpha=alpha).astype(self.dtype)
    return _add_scaled("baddbmm", self, F.bmm(batch1, batch2), beta, alpha).astype(batch1.dtype, copy=False)

baddbmm.vjp(self=lambda grad, beta: F.scaled_back(grad, beta),
            batch1=lambda grad, batch2, alpha: F.scaled_back(F.bmm(grad, F.transpose(batch2, 1, 2).conj()), alpha),
            batch2=lambda grad, batch1, alpha: F.scaled_back(F.bmm(F.transpose(batch1, 1, 2).conj(), grad), alpha))


@op(inplace=True)
def addbmm(self, batch1, batch2, *, beta: Number = 1, alpha: Number = 1):
    """beta * self + alpha times the sum of batch1 @ batch2 over the pairs. Reference: torch.addbmm."""
    if self.itemsize == 2 and self.dtype.kind in "fV" and self.dtype == batch1.dtype == batch2.dtype:
        return F.addbmm(*F.as_float32(self, batch1, batch2), beta=beta, alpha=alpha).astype(self.dtype)
    total = np.add.reduce(F.bmm(batch1, batch2), 0, batch1.dtype)
    return _add_scaled("addbmm", self, total, beta, alpha).astype(batch1.dtype, copy=False)

addbmm.vjp(self=lambda grad, beta: F.scaled_back(grad, beta),
           batch1=lambda grad, batch1_shape, batch2, alpha: F.scaled_back(F.bmm(
               F.expand(grad, (batch1_shape[0], *grad.shape)), F.transpose(batch2, 1, 2).conj()), alpha),
           batch2=lambda grad, batch2_shape, batch1, alpha: F.scaled_back(F.bmm(
               F.transpose(batch1, 1, 2).conj(), F.expand(grad, (batch2_shape[0], *grad.shape))), alpha))


@op(out=False)
def trace(self):
    """The sum of a matrix' diagonal. Raises RuntimeError for other shapes. Reference: torch.trace."""
    refuse("trace", self, "b")
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    if self.dtype.kind in "iu":
        return np.trace(self, dtype=np.int64)
    if self.itemsize == 2:
        return np.trace(self.astype(np.float32)).astype(self.dtype)
    return np.trace(self)

trace.vjp(self=lambda grad, self_shape: F.trace_backward(grad, self_shape))


@composite(method=False, function=False)
def trace_backward(grad, shape):
    """The gradient along the diagonal."""
    return F.diagonal_backward(F.expand(grad, (shape[0] if shape[0] < shape[1] else shape[1],)), shape, 0, 0, 1)


@composite(out=True)
def kron(input, other):
    """The Kronecker product: other times each element of input, side by side. Reference: torch.kron."""
    n = max(input.ndim, other.ndim)
    x = (1,) * (n - input.ndim) + tuple(input.shape)
    y = (1,) * (n - other.ndim) + tuple(other.shape)
    left = F.unsafe_view(input, tuple([m for k in x for m in (k, 1)]))
    right = F.unsafe_view(other, tuple([m for k in y for m in (1, k)]))
    return F.unsafe_view(left * right, tuple([i * j for i, j in zip(x, y, strict=True)]))


@op(inplace=True)
def addr(self, vec1, vec2, *, beta: Number = 1, alpha: Number = 1):
    """beta * self + alpha times the outer product of two vectors. Reference: torch.addr."""
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"addr: Expected 1-D arguments vec1 and vec2, but got shapes {vec1.shape} and {vec2.shape}")
    if self.itemsize == 2 and self.dtype.kind in "fV" and self.dtype == vec1.dtype == vec2.dtype:
        return F.addr(*F.as_float32(self, vec1, vec2), beta=beta, alpha=alpha).astype(self.dtype)
    product = F.outer(vec1, vec2)
    if product.dtype.kind in "biu" and (isinstance(alpha, float) or isinstance(beta, float)):
        raise RuntimeError(f"addr: For integral input tensors, argument alpha and beta must not be a floating point number, got {alpha} "
                           f"and {beta}")
    if product.dtype.kind == "b":
        return product & bool(alpha) | self & bool(beta)
    return _add_scaled("addr", self, product, beta, alpha).astype(product.dtype, copy=False)

addr.vjp(self=lambda grad, beta: F.scaled_back(grad, beta),
         vec1=lambda grad, vec2, alpha: F.scaled_back(F.mv(grad, vec2.conj()), alpha),
         vec2=lambda grad, vec1, alpha: F.scaled_back(F.mv(F.t(grad), vec1.conj()), alpha))


@composite(method=False, out=True)
def chain_matmul(*matrices):
    """The product of matrices, from left to right. Reference: torch.chain_matmul."""
    made = matrices[0]
    if made.ndim != 2:
        raise RuntimeError(f"chain_matmul: Tensor dimension is {made.ndim}, expected 2 instead: give matrices")
    for m in matrices[1:]:
        made = F.mm(made, m)
    return made


# ------------------------------------------------------------------------------------------------------------------------ einsum

def _labels(text, operand, name):
    """One operand's subscripts as a list of labels; "..." stands as that."""
    text = text.replace(" ", "")
    before, dots, after = text.partition("...")
    for c in before + after:
        if not c.isalpha():
            raise RuntimeError(f"einsum(): invalid subscript given at {operand}: {c!r} in {name!r}, subscripts must be in [a-zA-Z]")
    return [*before, *(["..."] if dots else []), *after]


def _parse(arguments):
    """(labels of each operand, labels of the result or None, operands)."""
    if not arguments:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                         "subscripts")
    if isinstance(arguments[0], str):
        equation, operands = arguments[0], arguments[1:]
        operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
        left, arrow, right = equation.partition("->")
        inputs = [_labels(part, f"operand {i}", equation) for i, part in enumerate(left.split(","))]
        output = _labels(right, "the output", equation) if arrow else None
    else:
        operands = [a for a in arguments[0::2] if isinstance(a, Tensor)]
        lists = [["..." if s is Ellipsis else int(s) for s in sub] for sub in arguments[1::2]]
        inputs, output = lists[:len(operands)], None
        if len(arguments) % 2:
            output = ["..." if s is Ellipsis else int(s) for s in arguments[-1]]
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    if len(inputs) != len(operands):
        raise RuntimeError(f"einsum(): {'more' if len(inputs) < len(operands) else 'fewer'} operands were provided than specified in "
                           "the "
                           f"equation: {len(operands)} for {len(inputs)}")
    return inputs, output, list(operands)


@composite(method=False)
def einsum(*arguments):
    """Sums of products of elements whose dimensions are named by letters: einsum("ij,jk->ik", x, y), or with lists of numbers.

    The operands are joined from left to right, each pair by one batched matrix product.
    Raises: RuntimeError for subscripts that do not fit the operands. Reference: torch.einsum.
    """
    inputs, output, operands = _parse(arguments)
    dots = 0
    for i, (labels, t) in enumerate(zip(inputs, operands, strict=True)):
        hidden = t.ndim - len(labels) + ("..." in labels)
        if hidden < 0 or hidden and "..." not in labels:
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(labels)}) does not match the number of "
                               f"dimensions ({t.ndim}) for operand {i}{'' if '...' in labels else ' and no ellipsis was given'}")
        dots = max(dots, hidden if "..." in labels else 0)
    spread = [("...", k) for k in range(dots)]
    inputs = [[m for s in labels for m in (spread[dots - (t.ndim - len(labels) + 1):] if s == "..." else [s])]
              for labels, t in zip(inputs, operands, strict=True)]
    count = {}
    for labels in inputs:
        for s in labels:
            count[s] = count.get(s, 0) + 1
    if output is None:
        named = [s for s in count if count[s] == 1 and not isinstance(s, tuple)]
        output = [*spread, *sorted(named, key=lambda s: (isinstance(s, int), s))]
    else:
        output = [m for s in output for m in (spread if s == "..." else [s])]
        for s in output:
            if s not in count:
                raise RuntimeError(f"einsum(): output subscript {s} does not appear in the equation for any input operand")
            if output.count(s) > 1:
                raise RuntimeError(f"einsum(): output subscript {s} appears more than once in the output")
    size = {}
    for i, (labels, t) in enumerate(zip(inputs, operands, strict=True)):
        for s, n in zip(labels, t.shape, strict=True):
            if size.get(s, 1) == 1:
                size[s] = n
            elif n not in (1, size[s]):
                raise RuntimeError(f"einsum(): subscript {s} has size {n} for operand {i} which does not broadcast with previously "
                                   "seen "
                                   f"size {size[s]}")
    order = [*output, *[s for s in count if s not in output]]
    last = {s: i for i, labels in enumerate(inputs) for s in labels}
    t = _aligned(operands[0], inputs[0], order, 0)
    for i, (other, labels) in enumerate(zip(operands, inputs, strict=True)):
        over = tuple([d for d, s in enumerate(order) if last[s] == i and s not in output])
        if i:
            other = _aligned(other, labels, order, i)
            t = _pair(t, other, over) if over else t * other
        elif over:
            t = F.sum(t, over)
        order = [s for d, s in enumerate(order) if d not in over]
    return t


def _aligned(t, labels, order, operand):
    """An operand with one dimension for each label, in order: the diagonal for a repeated one, size 1 for one it lacks."""
    labels = list(labels)
    for s in dict.fromkeys(labels):
        while labels.count(s) > 1:
            a = labels.index(s)
            b = labels.index(s, a + 1)
            if t.shape[a] != t.shape[b]:
                raise RuntimeError(f"einsum(): subscript {s} is repeated for operand {operand} but the sizes don't match, "
                                   f"{t.shape[b]} != "
                                   f"{t.shape[a]}")
            t = F.diagonal(t, 0, a, b)
            labels = [x for i, x in enumerate(labels) if i not in (a, b)] + [s]
    for s in order:
        if s not in labels:
            t, labels = F.unsqueeze(t, -1), [*labels, s]
    return F.permute(t, tuple([labels.index(s) for s in order]))


def _pair(x, y, over):
    """The sum over some dimensions of x * y, whose dimensions correspond: one batched matrix product."""
    both, left, right, inner = [], [], [], []
    for d, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)):
        if d in over:
            if m != 1 and n != 1:
                inner.append(d)
            elif m != 1:
                x = F.sum(x, (d,), True)
            elif n != 1:
                y = F.sum(y, (d,), True)
        else:
            (both if m != 1 and n != 1 else left if m != 1 else right).append(d)
    gone = [d for d in over if d not in inner]
    sx, sy = tuple(x.shape), tuple(y.shape)
    b, k, r, c = _count(sx, both), _count(sx, inner), _count(sx, left), _count(sy, right)
    made = F.bmm(F.reshape(F.permute(x, (*both, *left, *inner, *right, *gone)), (b, r, k)),
                 F.reshape(F.permute(y, (*both, *inner, *right, *left, *gone)), (b, k, c)))
    now = [*both, *left, *over, *right]
    made = F.view(made, tuple([1 if d in over else sy[d] if d in right else sx[d] for d in now]))
    made = F.permute(made, tuple([now.index(d) for d in range(len(now))]))
    return F.view(made, tuple([n for d, n in enumerate(made.shape) if d not in over]))
