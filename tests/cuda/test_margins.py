"""The gate, the distance, the norm of neighbours and the losses of pairs on CUDA beside the same on the CPU, with both derivatives."""
import pytest

import autograd_gpu as torch
from tests.cuda.common import gpu, same_on_both
from tests.test_margins import CALLS, LOSSES, F, values

pytestmark = gpu
PROGRAMS = [(n, o) for n, found in CALLS.items() for o in found]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_gates_and_norms(name, options, dtype):
    same_on_both(lambda x: getattr(torch.nn.functional, name)(x, **options), [values(F, (4, 6, 4), 1).astype(dtype)])


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    kinds, *several = LOSSES[name]
    for options in several:
        same_on_both(lambda *x, options=options: getattr(torch.nn.functional, name)(*x, **options),
                     [values(kind, shape, k) for k, (kind, *shape) in enumerate(kinds)])


def test_pairwise_distance():
    same_on_both(torch.pairwise_distance, [values(F, (3, 4), 1), values(F, (3, 4), 2)])
