"""out=: where PyTorch writes a result into a given tensor, so does this; what it refuses is refused."""
import warnings

import pytest

import autograd_gpu
from tests.parity import plain

OPS = {
    "gather": lambda t, x, out: t.gather(x, 1, t.tensor([[0, 2], [1, 1]]), out=out),
    "index_select": lambda t, x, out: t.index_select(x, 1, t.tensor([2, 0]), out=out),
    "masked_select": lambda t, x, out: t.masked_select(x, x > 2, out=out),
    "cat": lambda t, x, out: t.cat([x, x], 1, out=out), "amax": lambda t, x, out: t.amax(x, 0, out=out),
    "amin": lambda t, x, out: t.amin(x, dim=(0, 1), keepdim=True, out=out),
    "arange": lambda t, x, out: t.arange(4, out=out), "arange_halves": lambda t, x, out: t.arange(0, 2, 0.5, out=out),
}
OUTS = {
    "empty": lambda t, x: t.empty(0), "another shape": lambda t, x: t.ones(7), "double": lambda t, x: t.empty(0, dtype=t.float64),
    "integers": lambda t, x: t.empty(0, dtype=t.int64), "half": lambda t, x: t.zeros(4).half(),
    "a view": lambda t, x: t.zeros(4, 6)[::2, ::3], "the input": lambda t, x: x,
    "part of the input": lambda t, x: x.view(-1)[:3], "one element": lambda t, x: t.zeros(1).expand(2, 2),
    "requires grad": lambda t, x: t.empty(0, requires_grad=True),
    "no tensor": lambda t, x: 3, "fits": lambda t, x: t.zeros(3),
}


@pytest.mark.parametrize(("op", "out"), [
    (op, out) for op in OPS for out in OUTS
    if not (op in ("amax", "amin") and "input" in out)           # PyTorch reads what it wrote
    and (op, out) != ("arange_halves", "part of the input")])    # PyTorch writes beyond the view
def test_out(op, out, oracle):
    def run(t):
        x = t.arange(6.0).reshape(2, 3)
        given = OUTS[out](t, x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = OPS[op](t, x, given)
            except Exception as error:
                return type(error).__name__
        return found is given, plain(found), plain(x), given._version > 0, [w.category for w in caught]
    assert run(autograd_gpu) == run(oracle)


def test_inputs_that_require_grad(oracle):
    for t in (autograd_gpu, oracle):
        x, out = t.ones(2, 3, requires_grad=True), t.empty(0)
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            t.cat([x, x], out=out)
        with t.no_grad():
            assert t.cat([x, x], out=out).shape == (4, 3) and not out.requires_grad
