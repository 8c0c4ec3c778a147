"""The graph programs of the three introductory texts that this library was asked to run, with PyTorch's output as recorded.

`import torch` becomes `import autograd_gpu as torch`; nothing else changes. Still to come, as they need nn and optim: the multi-head
model, the two losses on one Linear, the generator with its discriminator and the SGD loop.
Record again with `python tests/test_seeds.py` where PyTorch is installed.
"""
import contextlib
import io
import re
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "seeds").glob("*.py"))


def output(path, module):
    """What a program prints, without addresses."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("import torch\n")
    code = compile(text.replace("import torch\n", f"import {module} as torch\n", 1), str(path), "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": path.stem})
    return re.sub(r" at 0x[0-9a-f]+", "", out.getvalue())


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_prints_what_pytorch_prints(path):
    assert output(path, "autograd_gpu") == path.with_suffix(".txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for program in PROGRAMS:
        program.with_suffix(".txt").write_text(output(program, "torch"), encoding="utf-8")
