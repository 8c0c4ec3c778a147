"""Every name and call of CuPy in the sources exists in the CuPy that is installed; no GPU is needed."""
import pytest

from tests import cupy_names

pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)


def test_the_package_asks_only_for_what_cupy_has():
    checker = cupy_names.check()
    assert checker.problems == [] and checker.uses > 1000


PLANTED = {
    "a name": ("np.einsum_path(self, x)", "CuPy has no einsum_path"),
    "a name below": ("np.linalg.vector_norm(x)", "CuPy has no vector_norm"),
    "a function of scipy": ("sp.special.spherical_jn(1, x)", "CuPy has no spherical_jn"),
    "a keyword": ("np.concatenate((x, x), dim=1)", "unexpected keyword argument 'dim'"),
    "a keyword of a ufunc": ("np.add(x, x, order='C')", "takes no order"),
    "too many operands": ("np.exp(x, x, x)", "3 operands"),
    "a keyword of a method": ("x.astype(x.dtype, device=1)", "unexpected keyword argument 'device'"),
    "too few arguments": ("x.reshape(3).astype()", "missing a required argument"),
    "a method": ("x.setflags()", "no method setflags"),
    "a method of a ufunc": ("np.maximum.reduce(x)", "is not supported yet"),
    "by xp": ("xp.zeros((3,), shape=2)", "multiple values for argument 'shape'"),
    "by a function": ("_device.xp(x).array(x, like=x)", "unexpected keyword argument 'like'"),
    "by a variable": ("random.Generatr(1)", "CuPy has no Generatr"),
}
BODY = """
def body(self, x):
    random = np.random
    y = np.add(x, x, dtype=x.dtype) + x.sum(axis=0, keepdims=True)
    try:
        np.maximum.reduce(y)
    except NotImplementedError:
        y.max()
    if np is numpy:
        np.einsum_path(y)
    return {}
"""


def test_methods_are_looked_at_outside_of_bodies_too(tmp_path):
    path = tmp_path / "planted.py"
    path.write_text("def launched(values):\n    return values.astype(float, kopy=False)\n")
    problem, = cupy_names.check([path]).problems
    assert "unexpected keyword argument 'kopy'" in problem


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault, tmp_path, monkeypatch):
    text, words = PLANTED[fault]
    path = tmp_path / "planted.py"
    monkeypatch.setattr(cupy_names, "rebound", lambda: {path: {2}})
    path.write_text(BODY.format("x"))
    assert cupy_names.check([path]).problems == []
    path.write_text(BODY.format(text))
    problem, = cupy_names.check([path]).problems
    assert problem.startswith("planted.py:11: ") and words in problem
