"""Programs in forward mode that run on PyTorch and on this package. See tests/test_forward_ad.py."""
from __future__ import annotations

import numpy as np
import pytest

import autograd_gpu


def flat(value):
    """What a program gave, as plain values that can be compared."""
    if hasattr(value, "detach"):
        return "tensor", str(value.dtype).rpartition(".")[2], tuple(value.shape), np.array(value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return [flat(v) for v in value]
    return value


def assert_same(got, want):
    if isinstance(want, list):
        assert len(got) == len(want), (got, want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif isinstance(want, tuple) and want and want[0] == "tensor":
        assert got[:3] == want[:3], (got, want)
        np.testing.assert_allclose(got[3], want[3], rtol=1e-6, atol=1e-7)
    else:
        assert got == want


def raised(f):
    """The name of the type of what f raises."""
    try:
        f()
    except Exception as error:               # its type is the result
        return type(error).__name__
    return "nothing"


class Api:
    """One of the two packages, with short names."""

    def __init__(self, torch):
        self.torch, self.fw = torch, torch.autograd.forward_ad
        self.dual, self.level = self.fw.make_dual, self.fw.dual_level

    def of(self, t):
        return self.fw.unpack_dual(t).tangent

    def tensor(self, *shape, turn=0, dtype="float64", grad=False):
        n = int(np.prod(shape))
        values = np.cos(np.arange(n) * 1.7 + turn).reshape(shape)
        if dtype.startswith("complex"):
            values = values + 1j * np.sin(np.arange(n) * 1.3 + turn).reshape(shape)
        return self.torch.tensor(values.tolist(), dtype=getattr(self.torch, dtype)).requires_grad_(grad)

    def pair(self, *shape, turn=0):
        return self.dual(self.tensor(*shape, turn=turn), self.tensor(*shape, turn=turn + 5))


def beside(programs):
    """A test of what each program, a function of an Api, gives on both."""
    @pytest.mark.parametrize("program", programs, ids=lambda f: f.__name__)
    def test(program, oracle):
        assert_same(flat(program(Api(autograd_gpu))), flat(program(Api(oracle))))
    return test
