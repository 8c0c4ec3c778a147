"""Linear algebra of square matrices and decompositions, over any number of batch dimensions.

The derivatives do not depend on what a decomposition leaves open, the phase of a singular or an eigenvector, as long as what is made of
it does not: Townsend 2016, "Differentiating the Singular Value Decomposition"; Giles 2008, "An extended collection of matrix
derivative results for forward and reverse mode algorithmic differentiation".
"""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import refuse
from autograd_gpu.ops.shape import wrap_dim


class LinAlgError(RuntimeError):
    """A matrix that is singular, or not positive-definite. Reference: torch.linalg.LinAlgError."""


def check_matrices(name, a, square=True, error=RuntimeError):
    """Raises RuntimeError unless an array holds matrices, square ones if so asked, and `error` unless they are floating."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, got {a.ndim}")
    if square and a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")
    if a.dtype.kind not in "fc":
        raise error(f"{name}: Expected a floating point or complex tensor as input. Got {_dtype.of(a.dtype)}")
    if a.dtype.itemsize == 2:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {_dtype.of(a.dtype)}")


def _solved(name, what, function, *arguments):
    """What a function of NumPy gives. Raises LinAlgError where it found the matrix singular, or what else `what` says."""
    try:
        return function(*arguments)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name}: {what} ({error})") from None


_DIVERGED = "The algorithm failed to converge because the input matrix is ill-conditioned or contains non-finite values"


# --------------------------------------------------------------------------------------------------------- inverse and determinant

@op(method=False, function=False, node="LinalgInvExBackward0", out=True)
def linalg_inv(self):
    """The inverse. Raises: RuntimeError for what is not square or not floating, LinAlgError for a singular matrix.

    Reference: torch.linalg.inv; derivative: Giles 2008, section 2.2.3.
    """
    check_matrices("linalg.inv", self)
    return _solved("linalg.inv", "The inversion could not be completed because the input matrix is singular", np.linalg.inv, self)

linalg_inv.vjp(self=lambda grad, result: -(F.mH(result) @ (grad @ F.mH(result))))


@op(method=False, function=False, out=True)
def linalg_det(self):
    """The determinant, of shape (...). Raises RuntimeError for what is not square or not floating.

    Reference: torch.linalg.det; the derivative is the matrix of cofactors, also of a singular matrix.
    """
    check_matrices("linalg.det", self)
    return np.linalg.det(self)

linalg_det.vjp(self=lambda grad, self, result: grad[..., None, None] * F.cofactors(self))


@op(method=False, function=False)
def cofactors(self):
    """The conjugate matrix of cofactors, det(A)^* A^-H, which singular matrices have too. Its derivative needs an inverse."""
    if self.shape[-1] == 1:
        return np.ones_like(self)
    u, s, vh = _solved("linalg.det", _DIVERGED, np.linalg.svd, self)
    ones = np.ones_like(s[..., :1])
    before = np.concatenate((ones, s[..., :-1]), -1)
    after = np.concatenate((s[..., 1:], ones), -1)
    others = np.cumprod(before, -1) * np.flip(np.cumprod(np.flip(after, -1), -1), -1)
    return np.conjugate(np.linalg.det(u) * np.linalg.det(vh))[..., None, None] * ((u * others[..., None, :]) @ vh)

cofactors.vjp(self=lambda grad, self: F.cofactors_backward(grad, self))


@composite(method=False, function=False)
def cofactors_backward(grad, self):
    """The gradient of what is det(A)^* A^-H."""
    if self.shape[-1] == 1:
        return F.zeros_like(self)
    inverse = F.linalg_inv(self)
    turned, adjoint = F.mH(grad), F.mH(inverse)
    trace = F.sum(turned * inverse.conj(), (-2, -1), True)
    return F.linalg_det(self).conj()[..., None, None] * (trace * adjoint - adjoint @ (turned @ adjoint))


@op(method=False, function=False, outputs=("sign", "logabsdet"), accepts_none=True, out=True)
def linalg_slogdet(A):
    """A named tuple (sign, logabsdet): det(A) = sign * exp(logabsdet). Raises RuntimeError as linalg.det.

    Reference: torch.linalg.slogdet.
    """
    check_matrices("linalg.slogdet", A)
    return tuple(np.linalg.slogdet(A))

linalg_slogdet.vjp(A=lambda grad_sign, grad_logabsdet, A, sign: F.slogdet_backward(grad_sign, grad_logabsdet, A, sign))


@composite(method=False, function=False)
def slogdet_backward(grad_sign, grad_logabsdet, A, sign):
    """The gradient of both: only a complex sign has one, its phase."""
    total = grad_logabsdet
    if grad_sign is not None and sign.dtype.kind == "c":
        phase = F.imag(grad_sign * sign.conj()) * 1j
        total = phase if total is None else total + phase
    if total is None:
        return None
    return total[..., None, None] * F.mH(F.inverse_or_inf(A))


def _inverse_or_inf(linalg, a):
    try:
        return linalg.inv(a)
    except np.linalg.LinAlgError:            # of one matrix: the others have an inverse
        u, s, vh = linalg.svd(a)
        return np.conjugate(np.swapaxes(vh, -2, -1)) / s[..., None, :] @ np.conjugate(np.swapaxes(u, -2, -1))


@op(method=False, function=False)
def inverse_or_inf(self):
    """The inverse; of a singular matrix what dividing by its singular values gives."""
    return _inverse_or_inf(np.linalg, self)

inverse_or_inf.vjp(self=lambda grad, result: -(F.mH(result) @ (grad @ F.mH(result))))


# -------------------------------------------------------------------------------------------------------------------------- solve

@op(method=False, function=False, node="LinalgSolveExBackward0")
def solve_matrices(A, B):
    """X in A X = B, of matrices."""
    check_matrices("linalg.solve", A)
    return _solved("linalg.solve", "The solver failed because the input matrix is singular", np.linalg.solve, A, B)


@solve_matrices.vjp_shared("A", "B")
def _solve_backward(needs, grad, A, result):
    g = F.solve_matrices(F.mH(A), grad)
    return -(g @ F.mH(result)) if needs[0] else None, g if needs[1] else None


@composite(method=False, function=False, out=True)
def linalg_solve(A, B, *, left=True):
    """X in A X = B, or in X A = B unless `left`. B is a matrix of shape (..., n, k), or a vector of A's shape without its last dimension.

    Raises: RuntimeError for shapes or dtypes that do not fit, LinAlgError for a singular A. Reference: torch.linalg.solve.
    """
    check_matrices("linalg.solve", A._array)
    if A.dtype is not B.dtype:
        raise RuntimeError(f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A.dtype} and B of type {B.dtype}")
    vector = B.ndim == 1 or A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1])
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
                           "linalg.solve is equivalent to B / A.squeeze(-1)")
    matrix = F.unsqueeze(B, -1) if vector else B
    if matrix.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({A.shape[-2]}x{A.shape[-1]} and {matrix.shape[-2]}x{matrix.shape[-1]})")
    if left:
        found = F.solve_matrices(A, matrix)
    else:
        found = F.transpose(F.solve_matrices(F.transpose(A, -2, -1), F.transpose(matrix, -2, -1)), -2, -1)
    return F.squeeze(found, -1) if vector else found


# ----------------------------------------------------------------------------------------------------------------- decompositions

@op(method=False, function=False, node="LinalgCholeskyExBackward0", out=True)
def linalg_cholesky(self, *, upper: bool = False):
    """The lower triangular L with L L^H = A, or U = L^H if `upper`; the other triangle of A is not read.

    Raises: RuntimeError for what is not square or not floating, LinAlgError where A is not positive-definite.
    Reference: torch.linalg.cholesky; derivative: Murray 2016, "Differentiation of the Cholesky decomposition".
    """
    check_matrices("linalg.cholesky", self)
    a = np.conjugate(np.swapaxes(self, -2, -1)) if upper else self
    found = _solved("linalg.cholesky", "The factorization could not be completed because the input is not positive-definite",
                    np.linalg.cholesky, a)
    return np.conjugate(np.swapaxes(found, -2, -1)) if upper else found

linalg_cholesky.vjp(self=lambda grad, result, upper: F.cholesky_backward(grad, result, upper))


@composite(method=False, function=False)
def cholesky_backward(grad, factor, upper):
    """The gradient with respect to the whole matrix, made Hermitian."""
    if upper:
        grad, factor = F.mH(grad), F.mH(factor)
    inner = F.tril(F.mH(factor) @ grad)
    inner = inner - F.diag_embed(F.diagonal(inner, 0, -2, -1)) / 2
    half = F.solve_matrices(F.mH(factor), inner)
    whole = F.mH(F.solve_matrices(F.mH(factor), F.mH(half)))
    return (whole + F.mH(whole)) / 2


@op(method=False, function=False, outputs=("eigenvalues", "eigenvectors"), accepts_none=True, out=True)
def linalg_eigh(self, UPLO: str = "L"):
    """A named tuple (eigenvalues, eigenvectors) of Hermitian matrices, of which only one triangle is read. Eigenvalues ascend.

    Raises: RuntimeError for what is not square or not floating, or another UPLO; from backward if what was made of complex
    eigenvectors depends on their phase.
    Reference: torch.linalg.eigh; derivative: Giles 2008, section 3.1. It is not finite where eigenvalues are equal.
    """
    check_matrices("linalg.eigh", self, error=NotImplementedError)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return tuple(_solved("linalg.eigh", _DIVERGED, np.linalg.eigh, self, UPLO.upper()))

linalg_eigh.vjp(self=lambda grad_eigenvalues, grad_eigenvectors, eigenvalues, eigenvectors:
                F.eigh_backward(grad_eigenvalues, grad_eigenvectors, eigenvalues, eigenvectors))


@composite(method=False, function=False)
def gaps(x):
    """x_j - x_i, and 1 on the diagonal: what a decomposition's derivative divides by."""
    return x[..., None, :] - x[..., :, None] + F.diag_embed(F.ones_like(x))


@composite(method=False, function=False)
def eigh_backward(grad_values, grad_vectors, values, vectors):
    """The gradient from both results, or from one. It is Hermitian, as the matrix is: what turns the vectors is skew."""
    if grad_vectors is None:
        return (vectors * grad_values[..., None, :]) @ F.mH(vectors)
    turned = F.mH(vectors) @ grad_vectors
    turn = F.diagonal(turned, 0, -2, -1)
    F.check_phase("eigh", turn)
    turned = turned - F.diag_embed(turn)
    inner = (turned - F.mH(turned)) / (2 * F.gaps(values))
    if grad_values is not None:
        inner = inner + F.diag_embed(grad_values)
    return vectors @ (inner @ F.mH(vectors))


@composite(method=False, function=False)
def check_phase(name, diagonal):
    """Raises RuntimeError where a loss depends on the phase of complex vectors: its gradient turns them."""
    array = diagonal._array if isinstance(diagonal, Tensor) else diagonal
    if array.dtype.kind == "c" and array.size and not np.allclose(array.imag, 0, atol=1e-2 * max(1.0, float(np.abs(array).max()))):
        raise RuntimeError(f"linalg_{name}_backward: The singular or eigenvectors in the complex case are specified up to multiplication "
                           f"by e^(i phi). The specified loss function depends on this quantity, so it is ill-defined.")


@op(method=False, function=False, node="LinalgSvdBackward0", outputs=("U", "S", "Vh"), accepts_none=True, out=True)
def linalg_svd(A, full_matrices: bool = True):
    """A named tuple (U, S, Vh) with A = U diag(S) Vh; S descends. Without full_matrices U and Vh have min(m, n) columns and rows.

    Raises: RuntimeError for what is not a floating matrix; from backward if what was made of complex vectors depends on their phase.
    Reference: torch.linalg.svd; derivative: Townsend 2016. It is not finite where singular values are equal, or 0 in a matrix that
    is not square.
    """
    check_matrices("linalg.svd", A, square=False)
    return tuple(_solved("linalg.svd", _DIVERGED, np.linalg.svd, A, full_matrices))

linalg_svd.vjp(A=lambda grad_U, grad_S, grad_Vh, U, S, Vh: F.svd_backward(grad_U, grad_S, grad_Vh, U, S, Vh))


@composite(method=False, function=False)
def svd_backward(grad_u, grad_s, grad_vh, u, s, vh):
    """The gradient from the three results, or from some."""
    k = s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    if grad_u is None and grad_vh is None:
        return (u * grad_s[..., None, :]) @ vh
    grad_u = None if grad_u is None else grad_u[..., :k]
    grad_v = None if grad_vh is None else F.mH(grad_vh[..., :k, :])
    v, row, column = F.mH(vh), s[..., None, :], s[..., :, None]
    by_u = None if grad_u is None else F.mH(u) @ grad_u
    by_v = None if grad_v is None else F.mH(v) @ grad_v
    turn = F.diagonal(by_v if by_u is None else by_u if by_v is None else by_u + by_v, 0, -2, -1)
    F.check_phase("svd", turn)
    gap = F.gaps(s * s)
    inner = None if grad_s is None else F.diag_embed(grad_s)
    for turned, factor in ((by_u, row), (by_v, column)):
        if turned is not None:
            skew = (turned - F.mH(turned)) / gap * factor
            skew = skew - F.diag_embed(F.diagonal(skew, 0, -2, -1))
            inner = skew if inner is None else inner + skew
    if u.dtype.kind == "c" and by_u is not None:
        inner = inner + F.diag_embed(F.imag(F.diagonal(by_u, 0, -2, -1)) / s * 1j)
    found = u @ (inner @ vh)
    if grad_u is not None and u.shape[-2] > k:
        part = grad_u / row
        found = found + (part - u @ (F.mH(u) @ part)) @ vh
    if grad_v is not None and vh.shape[-1] > k:
        part = F.mH(grad_v / row)
        found = found + u @ (part - (part @ v) @ vh)
    return found


@composite(method=False, function=False, out=True)
def linalg_eigvalsh(A, UPLO="L"):
    """The eigenvalues of Hermitian matrices; see linalg.eigh. Reference: torch.linalg.eigvalsh."""
    return F.linalg_eigh(A, UPLO)[0]


@composite(method=False, function=False, out=True)
def linalg_svdvals(A, *, driver=None):
    """The singular values; see linalg.svd. Reference: torch.linalg.svdvals."""
    return F.linalg_svd(A, False)[1]


# --------------------------------------------------------------------------------------------------------------------------- norms

@composite(method=False, function=False, out=True)
def linalg_matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm of matrices over two dimensions: "fro", "nuc", inf, -inf, 1, -1, 2 or -2.

    Raises: RuntimeError for another order, fewer than two dimensions, or dims that are not two. Reference: torch.linalg.matrix_norm.
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if A.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions")
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple, got {dims}")
    row, column = (wrap_dim(d, A.ndim, "linalg.matrix_norm") for d in dims)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different, got {dims}")
    if ord == "fro":
        return F.linalg_vector_norm(A, 2, (row, column), keepdim, dtype=dtype)
    largest = F.amax if A.shape[row] * A.shape[column] else F.sum        # of nothing it is 0
    if ord == "nuc" or isinstance(ord, (int, float)) and abs(ord) == 2:
        A = A if dtype is None else A.to(dtype)
        values = F.linalg_svdvals(F.permute(A, (*[d for d in range(A.ndim) if d not in (row, column)], row, column)))
        found = F.sum(values, -1) if ord == "nuc" else largest(values, -1) if ord == 2 else F.amin(values, -1)
        if keepdim:
            for d in sorted((row, column)):
                found = F.unsqueeze(found, d)
        return found
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    over, then = (row, column) if abs(ord) == 1 else (column, row)
    sums = F.linalg_vector_norm(A, 1, over, True, dtype=dtype)
    found = largest(sums, then, True) if ord > 0 else F.amin(sums, then, True)
    return found if keepdim else F.squeeze(found, (row, column))


@composite(method=False, function=False, out=True)
def linalg_norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """A vector's or a matrix's norm: over one dimension linalg.vector_norm, over two linalg.matrix_norm; without `ord` the 2-norm of all.

    Raises: RuntimeError for an `ord` given with an input of more than two dimensions and no `dim`. Reference: torch.linalg.norm.
    """
    dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if dims is not None and len(dims) not in (1, 2) and ord is not None:
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if ord is None:
        if dims is None:
            found = F.linalg_vector_norm(F.flatten(A), 2, (0,), False, dtype=dtype)
            return F.reshape(found, (1,) * A.ndim) if keepdim else found
        return F.linalg_vector_norm(A, 2, dims, keepdim, dtype=dtype)
    if dims is None and A.ndim not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                           f"{A.ndim}D.")
    if (A.ndim if dims is None else len(dims)) == 2:
        return F.linalg_matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: Order {ord} not supported for vectors: it is a matrix's")
    return F.linalg_vector_norm(A, ord, dims, keepdim, dtype=dtype)


# ------------------------------------------------------------------------------------------------------------- torch's own names

@composite
def det(input):
    """The determinant; see linalg.det. Reference: torch.det."""
    return F.linalg_det(input)


@composite(out=True)
def slogdet(input):
    """(sign, logabsdet); see linalg.slogdet. Reference: torch.slogdet."""
    return F.linalg_slogdet(input)


@composite
def logdet(input):
    """The logarithm of the determinant, NaN where that is negative. Reference: torch.logdet."""
    sign, size = F.linalg_slogdet(input)
    return F.log(sign) + size if sign.is_complex() else F.where(sign == -1, math.nan, size)


@composite(out=True)
def inverse(input):
    """The inverse; see linalg.inv. Reference: torch.inverse."""
    return F.linalg_inv(input)


@composite(out=True)
def cholesky(input, upper=False):
    """The Cholesky factor; see linalg.cholesky. Reference: torch.cholesky."""
    refuse("cholesky", input._array, "biu")
    return F.linalg_cholesky(input, upper=upper)
