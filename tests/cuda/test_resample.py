"""Interpolation and moved pixels on CUDA beside the same on the CPU, with both derivatives."""
import pytest

import autograd_gpu as torch
from tests.cuda.common import gpu, same_on_both
from tests.test_pooling import drawn
from tests.test_resample import CASES, MOVED, SHAPES, moved

pytestmark = gpu


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_interpolate(case, dtype):
    dims, options = CASES[case]
    same_on_both(lambda x: torch.nn.functional.interpolate(x * x, **options), [drawn(*SHAPES[dims + 2]).astype(dtype)])


@pytest.mark.parametrize("name", MOVED)
def test_moved_pixels(name):
    shape, factor = MOVED[name]
    same_on_both(lambda x: moved(torch, name, factor)(x * x), [drawn(*shape)])
