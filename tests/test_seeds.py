"""The graph programs of the three introductory texts that this library was asked to run, with PyTorch's output as recorded.

`import torch` becomes `import autograd_gpu as torch`; nothing else changes.
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
    text = text.replace("import torch\n", f"import {module} as torch\n").replace("import torch.nn as", f"import {module}.nn as")
    code = compile(text, str(path), "exec")
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
