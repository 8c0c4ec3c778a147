"""Elementwise ops move no byte twice on a CUDA device, forward and backward; docs/kernel_costs.md."""
import functools
from pathlib import Path

import pytest

from tests.cuda.programs import PROGRAMS
from tests.samples import ELEMENTWISE
from tests.simgpu import runtime

if not runtime.active():
    pytest.skip("the simulated devices are not installed: run with -p tests.simgpu.plugin, in an environment with cupy-rocm-7-0",
                allow_module_level=True)

from tests.simgpu import table  # noqa: E402 - needs a device

elementwise_row = functools.cache(table.elementwise_row)

SEVERAL = {"masked_fill_value"}              # the value's gradient is a sum


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_one_kernel_and_the_least_bytes(name):
    _, forward, moved, backward, moved_back = elementwise_row(name)
    if name not in SEVERAL:
        assert forward <= 1 and moved < 1.02
        assert backward is None or backward <= 1 and moved_back < 1.02


def test_the_table_is_up_to_date():
    rows = [elementwise_row(n) for n in ELEMENTWISE], [table.program_row(n) for n in PROGRAMS]
    assert (Path(__file__).parents[2] / "docs" / "kernel_costs.md").read_text(encoding="utf-8") == table.written(*rows), table.__doc__
