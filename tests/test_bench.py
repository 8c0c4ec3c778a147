"""The measurements on a GPU run through: on simulated devices in seconds; without a device they say why not."""
import json

import pytest

import autograd_gpu as torch
from bench.__main__ import main


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_why(capsys):
    assert main(["gpu"]) == 2
    assert torch.cuda.why_not_available() in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "cuda:99", "gpu"])
def test_a_device_that_is_none(device, capsys):
    assert main(["gpu", "--device", device]) == 2
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith("bench: ")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason=f"no CUDA device: {torch.cuda.why_not_available()}")
def test_all_of_it(tmp_path, capsys):
    assert main(["gpu", "--json", str(tmp_path / "gpu.json")]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert {"device", "driver", "CuPy", "date", "commit", "simulated"} <= found["about"].keys()
    assert found["parity"]["programs"] > 10 and not found["parity"]["different"]
    assert all(one["GB/s"] > 0 and one["of a copy"] > 0 for one in found["bandwidth"]["ops"].values())
    assert all(us > 0 for us in found["overhead"].values())
    assert "skipped" in found["digits"] or found["digits"]["accuracy"] > (0 if found["about"]["simulated"] else 0.97)
    assert ("the devices are simulated" in capsys.readouterr().out) == found["about"]["simulated"]
