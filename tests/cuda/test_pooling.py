"""Pooling on CUDA beside the same on the CPU, with both derivatives."""
import pytest

import autograd_gpu as torch
from tests.cuda.common import equal, gpu, same_on_both
from tests.test_pooling import CASES, call, drawn, special

pytestmark = gpu


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", [c for c in CASES if c[0] != "3"] + ["3d max (3, 2, 1) 1", "3d avg (3, 2, 1)", "3d adaptive_avg 5"])
def test_pooling(case, dtype):
    dims, name, args = CASES[case]
    same_on_both(lambda x: call(torch, name, *args)(x * x), [drawn(2, 3, *[6] * dims).astype(dtype)])


@pytest.mark.parametrize(("name", "args"), [("max_pool2d", (3, 1, 1)), ("adaptive_max_pool2d", (4,))])
def test_places_of_ties_and_nan(name, args):
    x = torch.tensor(special(2, 3, 6, 6))
    for on_cuda, on_cpu in zip(*[call(torch, name, *args, return_indices=True)(x.to(where)) for where in ("cuda:0", "cpu")], strict=True):
        equal(on_cuda, on_cpu, name)


def test_unpooling():
    def program(x):
        y, places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
        return torch.nn.functional.max_unpool2d(y * y, places, 2)
    same_on_both(program, [drawn(2, 3, 6, 6)])
