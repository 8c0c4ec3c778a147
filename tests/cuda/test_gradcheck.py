"""gradcheck of CUDA tensors: the same verdicts as on the CPU."""
import pytest

import autograd_gpu as torch
from tests.cuda.common import gpu
from tests.cuda.programs import PROGRAMS, operands

pytestmark = gpu


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.saved_tensors[0] ** 2 * g


class Wrong(Cube):
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0].detach() ** 2 * g


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_right_and_wrong(check, fast):
    x = torch.tensor([[0.5, 1.0], [-0.3, 2.0]], dtype=torch.float64, device="cuda:0", requires_grad=True)
    z = torch.complex(x, x.flip(0)).detach().requires_grad_()
    values = x.tolist()
    assert check(lambda x, z: (x @ x, x.sum(), z * z.conj() * x, x.cpu() * 2), (x, z), fast_mode=fast)
    assert check(Cube.apply, x, fast_mode=fast)
    assert not check(Wrong.apply, x, fast_mode=fast, raise_exception=False)
    assert x.tolist() == values and x.grad is None


@pytest.mark.parametrize("name", ["softmax", "index_add_", "layer_norm", "nll", "view_of_view", "complex"])
def test_programs(name):
    inputs = [torch.from_numpy(a).to("cuda:0").requires_grad_() for a in operands(name)]
    assert torch.autograd.gradcheck(PROGRAMS[name][0], inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(PROGRAMS[name][0], inputs, fast_mode=True)
