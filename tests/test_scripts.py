"""Training scripts as people write them for PyTorch: with its import changed they give PyTorch's losses, from the same weights."""
import re
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def loaded(path, module):
    """The names that a script defines, where it imports another module for torch."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^import torch$", f"import {module} as torch", text)
    text = re.sub(r"(?m)^(import|from) torch\b", rf"\1 {module}", text)
    names = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), names)
    return names


def built(script):
    models = script["build"]()
    return models if isinstance(models, tuple) else (models,)


def parted(text):
    """A text without its numbers, and these."""
    number = r"\d+\.\d+"
    return re.sub(number, "", text), [float(n) for n in re.findall(number, text)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_the_losses_are_pytorchs(path, oracle, capsys):
    theirs, ours = loaded(path, "torch"), loaded(path, "autograd_gpu")
    oracle.manual_seed(0)
    models, copies = built(theirs), built(ours)
    for model, copy in zip(models, copies, strict=True):
        state = {name: value.numpy() for name, value in model.state_dict().items()}
        copy.load_state_dict({name: autograd_gpu.tensor(array) for name, array in state.items()})
        assert repr(copy) == repr(model)
    expected = theirs["train"](*models)
    words, numbers = parted(capsys.readouterr().out)
    found = ours["train"](*copies)
    assert len(found) >= 50 and expected[-1] != expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    ours_words, ours_numbers = parted(capsys.readouterr().out)
    assert ours_words == words
    np.testing.assert_allclose(ours_numbers, numbers, rtol=0.01)
