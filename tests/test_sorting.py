"""sort, topk and argsort beside PyTorch's: values, indices, derivatives, dtypes, ties, NaN, errors."""
import pytest

import autograd_gpu
from tests.parity import result

nan, inf = float("nan"), float("inf")
ROWS = [[3.0, 1.0, 2.0, 1.0], [nan, inf, -inf, 0.0], [1.0, nan, 1.0, nan], [-0.0, 0.0, 5.0, 5.0]]
CALLS = {
    "sort": lambda x: x.sort(), "sort_0": lambda x: x.sort(0), "descending": lambda x: x.sort(-1, True),
    "stable": lambda x: x.sort(stable=True, dim=0, descending=True), "argsort": lambda x: x.argsort(1, descending=True),
    "msort": lambda x: x.msort(), "no_dim": lambda x: x.sort(2), "topk_too_many": lambda x: x.topk(5), "topk_negative":
    lambda x: x.topk(-1), "topk_none": lambda x: x.topk(0),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_indices(name, dtype, oracle):
    def run(torch):
        rows = ROWS if dtype.startswith("float") else [[3, 1, 2, 1], [0, 7, 7, 0]]
        found = CALLS[name](torch.tensor(rows).to(getattr(torch, dtype)))
        return [str(t) for t in found] if isinstance(found, tuple) else str(found)
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("f", [lambda x: x.sort(0, descending=True)[0], lambda x: x.sort(stable=True).values, lambda x: x.topk(2)[0],
                               lambda x: x.topk(2, 0, largest=False).values, lambda x: x[0, 0].sort()[0] * x[0, 1].topk(1)[0]])
def test_derivatives(f, oracle):
    def run(torch):
        x = torch.tensor([[3.0, 1.5, 2.0], [0.5, 7.0, 6.0]], dtype=torch.float64, requires_grad=True)
        y = f(x)
        g, = torch.autograd.grad((y ** 3).sum(), x, create_graph=True)
        return y, g.detach(), *torch.autograd.grad((g * g).sum(), x)
    assert result(run, autograd_gpu) == result(run, oracle)
