"""Decompositions, inverse, determinant, solve and norms beside PyTorch's: values, first and second derivatives, errors."""
import numpy as np
import pytest

import autograd_gpu
from tests.parity import result

RNG = np.random.default_rng(7)
MATRICES = {
    "real": RNG.standard_normal((3, 3)), "batch": RNG.standard_normal((2, 3, 3)), "complex": RNG.standard_normal((3, 3, 2)) @ [1, 1j],
    "one": np.array([[2.0]]), "tall": RNG.standard_normal((4, 2)), "wide": RNG.standard_normal((2, 4)), "vector": np.ones(3),
    "integers": np.eye(2, dtype=np.int64), "empty": np.ones((0, 0)),
}


def hermitian(x):
    square = x @ x.mH if x.shape[-2] < x.shape[-1] else x.mH @ x         # of full rank
    return square + 3 * square.detach()


CALLS = {
    "inv": lambda t, x: t.linalg.inv(x), "det": lambda t, x: t.linalg.det(x), "x.det": lambda t, x: x.det(),
    "slogdet": lambda t, x: t.linalg.slogdet(x).logabsdet, "logdet": lambda t, x: x.logdet(), "inverse": lambda t, x: x.inverse(),
    "solve": lambda t, x: t.linalg.solve(x, x + 1), "solve_right": lambda t, x: t.linalg.solve(x, x * 2 + 1, left=False),
    "solve_vector": lambda t, x: t.linalg.solve(x, x[..., 0]), "cholesky": lambda t, x: t.linalg.cholesky(hermitian(x)),
    "cholesky_upper": lambda t, x: t.linalg.cholesky(hermitian(x), upper=True),
    "eigh": lambda t, x: (lambda e: e[0].sum() + (e[1].abs() ** 3).sum())(t.linalg.eigh(hermitian(x))),
    "eigh_upper": lambda t, x: t.linalg.eigvalsh(x, "U"), "eigh_other": lambda t, x: t.linalg.eigh(x, "X"),
    "svd": lambda t, x: (lambda e: (e[0].abs() ** 3).sum() + e[1].sum() + (e[2].abs() ** 3).sum())(t.linalg.svd(x, False)),
    "svd_full": lambda t, x: t.linalg.svd(x).S, "svd_u": lambda t, x: t.linalg.svd(x, full_matrices=False)[0].abs() ** 3,
    "svdvals": lambda t, x: t.linalg.svdvals(x), "phase": lambda t, x: t.linalg.svd(x, False).U.imag if x.is_complex() else x * x,
    **{f"norm_{o}": lambda t, x, o=o: t.linalg.norm(x, o) for o in (None, "fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2, 0.5)},
    "norm_dims": lambda t, x: t.linalg.norm(x, 1, (0, 1), True), "norm_dim": lambda t, x: t.linalg.norm(x, 3, 0),
    "matrix_norm": lambda t, x: t.linalg.matrix_norm(x, -1, keepdim=True), "same_dims": lambda t, x: t.linalg.matrix_norm(x, dim=(0, 0)),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_gradient_of_eigenvectors_is_hermitian(dtype, oracle):
    """So that a step along it leaves the matrix Hermitian. Only a leaf shows it: hermitian(x) takes that part of any gradient."""
    def run(torch):
        x = torch.from_numpy(MATRICES["real" if dtype == "float64" else "complex"])
        x = (x @ x.mH).requires_grad_()
        weight = torch.arange(9, dtype=torch.float64).reshape(3, 3)
        values, vectors = torch.linalg.eigh(x)
        first, = torch.autograd.grad((vectors.abs() * weight).sum() + values.sin().sum(), x, create_graph=True)
        return [np.array((g + 0).tolist()) for g in (first, *torch.autograd.grad((first.abs() ** 2).sum(), x))]
    ours, want = run(autograd_gpu), run(oracle)
    assert np.allclose(ours[0], ours[0].conj().T) and np.allclose(ours[1], ours[1].conj().T)
    for a, b in zip(ours, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "call"), [(m, c) for m in MATRICES for c in CALLS
                                               if not (m == "integers" and "eigh" in c or m == "empty" and "norm" in c)])
def test_values_and_derivatives(name, call, oracle):
    def run(torch):
        x = torch.from_numpy(MATRICES[name].copy())
        if x.is_floating_point() or x.is_complex():
            x.requires_grad_()
        y = CALLS[call](torch, x)
        told = [y.detach()]
        if x.requires_grad:
            first, = torch.autograd.grad(y.abs().sum(), x, create_graph=True)
            told.append(first.detach())
            told += torch.autograd.grad((first.abs() ** 2).sum(), x, allow_unused=True) if first.requires_grad else [None]
        return [None if t is None else [str(t.dtype), np.array((t + 0).tolist()).round(9) + 0] for t in told]
    ours, want = result(run, autograd_gpu), result(run, oracle)
    if isinstance(ours, str) or isinstance(want, str):
        assert ours == ("LinAlgError" if want == "_LinAlgError" else want)
        return
    for a, b in zip(ours, want, strict=True):
        if a is None or b is None:
            assert a is b or not np.any((a or b)[1])                 # no gradient, or zeros
        else:
            assert a[0] == b[0]
            np.testing.assert_allclose(a[1], b[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("matrix", "cofactors"), [
    (np.ones((3, 3)), np.zeros((3, 3))), (np.zeros((2, 2)), np.zeros((2, 2))), (np.array([[1.0, 2], [2, 4]]), [[4.0, -2], [-2, 1]]),
    (np.diag([1j, 2, 0]), np.diag([0, 0, -2j]))])
def test_singular_matrices(matrix, cofactors):
    torch = autograd_gpu
    x = torch.from_numpy(matrix.copy()).requires_grad_()
    for f in (torch.linalg.inv, lambda x: torch.linalg.solve(x, x), lambda x: torch.linalg.cholesky(-x)):
        with pytest.raises(torch.linalg.LinAlgError):
            f(x)
    for create_graph in (False, True):       # PyTorch gives 0 for the third
        gradient, = torch.autograd.grad(torch.linalg.det(x).real, x, create_graph=create_graph)
        np.testing.assert_allclose(gradient.detach().numpy(), cofactors, atol=1e-12)
