"""Padding on CUDA beside the same on the CPU, with both derivatives."""
import numpy as np
import pytest

import autograd_gpu as torch
from tests.cuda.common import gpu, same_on_both
from tests.test_padding import CASES

pytestmark = gpu


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("mode", "shape", "widths"), CASES)
def test_padding(mode, shape, widths, dtype):
    x = np.asarray(np.random.RandomState(0).randn(*shape), dtype)
    same_on_both(lambda x: torch.nn.functional.pad(x * x, widths, mode), [x])
