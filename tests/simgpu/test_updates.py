"""kernels/group.cu on simulated devices: right under the checks, and each fault planted in its text or its launch is found."""
import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.cuda import update
from autograd_gpu.optim.adam import adam
from autograd_gpu.optim.update import UpdateRule
from tests.simgpu import runtime

if not runtime.active():
    pytest.skip("the simulated devices are not installed: run with -p tests.simgpu.plugin, in an environment with cupy-rocm-7-0",
                allow_module_level=True)
pytestmark = pytest.mark.plants_faults
CHUNK = update.CHUNK


def tensors(where, seed, offset=0):
    """Of all sizes that matter; `offset`: how many elements behind a multiple of 16 bytes they begin."""
    rng = np.random.RandomState(seed)
    return [torch.tensor(rng.rand(n + offset), dtype=torch.float32, device=where)[offset:]
            for n in (CHUNK + 1, 1, 2 * CHUNK, 7, CHUNK - 1)]


def updated(where, offset=0):
    """What a rule of its own kernels makes of four tensors each."""
    rule = UpdateRule(adam.__wrapped__)
    grads, params, first, second = [tensors(where, seed, offset) for seed in range(4)]
    rows = [(*row, None) for row in zip(grads, params, first, second, strict=True)]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "root": 0.5, "eps": 1e-8, "shrink": None, "decay": 0.1, "maximize": False}
    with runtime.faults():
        rule(rows, numbers)
    return [t.cpu().numpy() for row in rows for t in row[:4]]


def compare(offset=0):
    for ours, theirs in zip(updated("cuda:0", offset), updated("cpu", offset), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offset", [0, 1])
def test_the_text_is_right(offset):
    compare(offset)


VALUES, ANY = "Not equal", "outside|out-of-bounds|race|Not equal"
AT, SIZE = "void* at[@operands@][@most@];", "long long size[@most@];"
FAULTS = {
    "the next tensor": (("own = middle; else", "own = middle + 1 < count ? middle + 1 : middle; else"), 0, ANY),
    "a block too late": (("<= (int)blockIdx.x", "< (int)blockIdx.x"), 0, ANY),
    "the last one is never found": (("end = count", "end = count - 1"), 0, ANY),
    "every block does the first chunk": (("((int)blockIdx.x - tensors.first_block[own])", "0"), 0, f"race|{VALUES}"),
    "a chunk has no end": (("rest < @chunk@ ? rest : @chunk@", "rest"), 0, f"race|{VALUES}"),
    "a tensor has no end": (("rest < @chunk@ ? rest : @chunk@", "@chunk@"), 0, "outside|out-of-bounds|freed"),
    "packs wherever they lie": (("(@addresses@) % @access@ ? 0 : n / @width@", "n / @width@"), 1, "misaligned"),
    "the rest is left out": (("n / @width@;", "n / @width@; if (n < @width@) return;"), 0, VALUES),
    "one thread more": (("step = blockDim.x", "step = blockDim.x - 1"), 0, f"race|{VALUES}"),
    "narrow sizes": (("long long size[", "int size["), 0, "argument 0"),
    "fields in another order": ((f"{AT}\n  {SIZE}", f"{SIZE}\n  {AT}"), 0, "outside|out-of-bounds|misaligned"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    (old, new), offset, words = FAULTS[fault]
    text = update.kernel_text("group.cu")
    assert text.count(old) == 1
    monkeypatch.setattr(update, "kernel_text", lambda name: text.replace(old, new))
    with pytest.raises(Exception, match=words):
        compare(offset)
