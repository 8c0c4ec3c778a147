"""The measurements on a GPU run through: on simulated devices in seconds; without a device they say why not."""
import json
import math
from xml.etree import ElementTree

import pytest

import autograd_gpu as torch
from bench import offload
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


def test_the_schedule_of_offloading_needs_no_device(capsys):
    assert main(["offload"]) == 0
    assert "computed, not measured" in capsys.readouterr().out


def test_the_picture_in_the_docs_is_the_schedules():
    text = offload.svg(offload.table(offload.Rates()))
    assert offload.PICTURE.read_text(encoding="utf-8") == text, "write it again: python -m bench offload --picture"
    assert len(ElementTree.fromstring(text).findall("{*}polyline")) == 12 and "not a measurement" in text


@pytest.mark.parametrize("name", offload.NETS)
def test_what_a_schedule_has_to_obey(name):
    net = offload.NETS[name]()
    for link in (4e6, 2.4e7, 4.5e8):
        rates = offload.Rates(link=link)
        steps = [offload.schedule(net, rates, prefetch)[0] for prefetch in (0, 1, 4, 16)]
        blocking, computing, copying = offload.schedule(net, rates, None)
        assert steps == sorted(steps, reverse=True) and blocking > steps[0]
        assert steps[-1] >= max(computing, copying / 2) and blocking == computing + copying
    free = offload.schedule(net, offload.Rates(link=math.inf), 0)[0]
    assert computing < free < 1.08 * computing           # the copies on the device


@pytest.mark.skipif(not torch.cuda.is_available(), reason=f"no CUDA device: {torch.cuda.why_not_available()}")
@pytest.mark.gpu
def test_the_schedule_at_a_devices_rates(capsys):
    assert main(["offload", "--device", "cuda:0"]) == 0
    assert "computed, not measured" in capsys.readouterr().out
