"""as_strided: values, first and second derivatives and history rewriting as in PyTorch, over inputs of every layout."""
import numpy as np
import pytest

import autograd_gpu
from tests.parity import result

INPUTS = {
    "leaf": lambda x: x, "whole": lambda x: x * 1, "part": lambda x: (x * 1)[3:20], "transposed": lambda x: (x * 1).view(4, 6).t(),
    "stepped": lambda x: (x * 1).view(4, 6)[1:, ::2], "expanded": lambda x: (x * 1)[:4, None].expand(4, 3),
    "unfolded": lambda x: (x * 1).unfold(0, 4, 2), "scalar": lambda x: (x * 1)[5],
    "imaginary": lambda x: (x * (1 + 2j)).imag, "last imaginary": lambda x: (x * (1 + 2j))[23].imag,
}
WALKS = [((), ()), ((3,), (2,)), ((2,), (0,)), ((3, 2), (1, 1)), ((2, 3), (4, 1)), ((2, 2, 2), (1, 0, 3)), ((1, 4), (7, 5)), ((30,), (1,)),
         ((2,), (-1,)), ((2, 2), (1,)), ((-1,), (1,))]


def leaf(torch):
    return torch.arange(24.0, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("offset", [None, 0, 5, -1])
@pytest.mark.parametrize(("size", "stride"), WALKS)
@pytest.mark.parametrize("name", INPUTS)
def test_values_and_derivatives(name, size, stride, offset, oracle):
    def run(torch):
        x = leaf(torch)
        h = INPUTS[name](x)
        y = h.as_strided(size, stride) if offset is None else torch.as_strided(h, size, stride, offset)
        g, = torch.autograd.grad((y ** 3).sum(), x, create_graph=True)
        return y, y.grad_fn.name(), y._is_view(), g.detach(), *torch.autograd.grad((g * g).sum(), x)
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize(("size", "stride"), [w for w in WALKS if w not in (((2,), (0,)), ((3, 2), (1, 1)), ((2, 2, 2), (1, 0, 3)))])
@pytest.mark.parametrize("name", [n for n in INPUTS if n not in ("leaf", "expanded", "unfolded", "imaginary", "last imaginary")])
def test_writes_through_it(name, size, stride, oracle):
    def run(torch):
        x = leaf(torch)
        h = INPUTS[name](x)
        v = h.as_strided(size, stride, 1)
        v.mul_(3)
        (h ** 2).sum().backward()
        return h, v, x.grad
    assert result(run, autograd_gpu) == result(run, oracle)


def test_memory_is_shared_and_bounded():
    torch = autograd_gpu
    a = np.arange(6.0)
    v = torch.from_numpy(a)[2:].as_strided((2,), (2,), 1)
    v[:] = 9
    assert a.tolist() == [0, 9, 2, 9, 4, 5] and v._base is not None
    with pytest.raises(RuntimeError, match="out of bounds for storage of 6 elements"):
        torch.from_numpy(a).as_strided((4,), (2,))
    if hasattr(torch, "bfloat16"):
        assert torch.ones(4).bfloat16().as_strided((2, 2), (2, 1)).dtype == torch.bfloat16


@pytest.mark.parametrize("name", INPUTS)
def test_offsets(name, oracle):
    def run(torch):
        h = INPUTS[name](leaf(torch))
        return [t.storage_offset() for t in (h, h[..., None], h.t() if h.ndim == 2 else h, h[2:, ...] if h.ndim else h, h.clone())]
    assert result(run, autograd_gpu) == result(run, oracle)
