"""Convolutions, unfold and fold on CUDA beside the same on the CPU: values, both derivatives, blocks, dtypes, errors, one kernel."""
import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.ops import convolution
from tests.conftest import needs_bfloat16
from tests.cuda.common import gpu, same_on_both, settled
from tests.test_convolution import CALLS, case, drawn

pytestmark = gpu
F = torch.nn.functional


def compared(seed, dtype):
    """The convolution that is drawn for a seed, of its operands over 4, so that they differ by rounding only."""
    name, shapes, options = case(seed)
    arrays = [(drawn(*s, seed=seed + i) / 4).astype(dtype) for i, s in enumerate(shapes)]
    try:
        getattr(F, name)(*map(torch.from_numpy, arrays), **options)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="convolution"):
            getattr(F, name)(*[torch.from_numpy(a).to("cuda") for a in arrays], **options)
        return
    same_on_both(lambda *operands: getattr(F, name)(*operands, **options), arrays)


@pytest.mark.parametrize("seed", range(24))
def test_values_and_derivatives(seed):
    compared(seed, "float64")


@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_blocks_give_the_same(seed, monkeypatch):
    monkeypatch.setattr(convolution, "BOUND", 400)
    compared(seed, "float64")


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", pytest.param("bfloat16", marks=needs_bfloat16), "complex64"])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_dtype(name, dtype):
    made = CALLS[name][1]["transpose" in name]
    operands = [torch.tensor(drawn(*s, dtype="complex64" if dtype[0] == "c" else "int64", seed=i)).to(getattr(torch, dtype))
                for i, s in enumerate((*CALLS[name], (made,)))]
    def run(where):
        found = [t.to(where).requires_grad_(dtype[0] not in "iu") for t in operands]
        out = getattr(F, name)(*found)
        if not out.requires_grad:
            return [out]
        return [out, *torch.autograd.grad(out, found, torch.ones_like(out))]
    if name == "conv_transpose2d" and dtype == "uint8":
        with pytest.raises(NotImplementedError, match="not implemented for"):
            run("cuda")
        return
    for ours, expected in zip(run("cuda"), run("cpu"), strict=True):
        settled(ours)
        assert ours.dtype == expected.dtype
        if dtype[0] == "c":
            ours, expected = torch.view_as_real(ours.detach()), torch.view_as_real(expected.detach())
        ours, expected = ours.detach().cpu().double().numpy(), expected.detach().double().numpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-2 if "float" in dtype else 1e-5)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float64", "complex128"])
def test_unfold_and_fold(dtype):
    x = torch.tensor(drawn(2, 3, 5, 6, dtype="complex128" if dtype[0] == "c" else "float64") * 2).to(getattr(torch, dtype))
    def run(where):
        columns = F.unfold(x.to(where), (2, 3), (2, 1), (0, 1), (1, 2))
        return columns.cpu(), F.fold(columns, (5, 6), (2, 3), (2, 1), (0, 1), (1, 2)).cpu()
    for ours, expected in zip(run("cuda"), run("cpu"), strict=True):
        assert ours.dtype == expected.dtype and (ours == expected).all()


def test_operands_on_two_devices_are_an_error():
    with pytest.raises(RuntimeError, match="same device"):
        F.conv1d(torch.ones(1, 1, 3, device="cuda"), torch.ones(1, 1, 2))
