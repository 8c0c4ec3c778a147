"""Files of tensors on CUDA: written from the host, put back where they lay or where map_location says."""
import io
import struct

import pytest

import autograd_gpu as torch
from tests.cuda.common import equal, gpu, two_devices
from tests.test_serialization import archived, at_home, read, records, sharing, written

pytestmark = gpu


def tensors(where):
    x = torch.arange(12.0, device=where).reshape(3, 4)
    return {"whole": x, "transposed": x.t(), "piece": x[1:, ::2], "number": x[1, 2], "windows": x.reshape(-1).unfold(0, 4, 4),
            "expanded": x[0, :1].expand(3), "empty": x[:0], "bool": x > 3, "half": x.half(), "complex": x * 1j,
            "unsigned": torch.tensor([40000], dtype=torch.uint16, device=where), "leaf": x.detach().clone().requires_grad_(),
            "parameter": torch.nn.Parameter(x.clone()), "permuted": x.reshape(3, 2, 2).permute(2, 0, 1).clone()}


def check(found, where):
    for name, t in tensors("cpu").items():
        if where != "cpu":
            equal(found[name], t, name, where)
        assert found[name].tolist() == t.tolist() and found[name].dtype is t.dtype and str(found[name].device) == where
        assert found[name].requires_grad == t.requires_grad and type(found[name]).__name__ == type(t).__name__
        if t.numel():
            assert found[name].stride() == t.stride(), name


@pytest.mark.parametrize("weights_only", [True, False])
def test_there_and_back(weights_only):
    data = written(torch, tensors("cuda:0"))
    check(read(torch, data, weights_only=weights_only), "cuda:0")
    check(read(torch, data, "cpu"), "cpu")
    check(read(torch, written(torch, read(torch, data))), "cuda:0")


@pytest.mark.parametrize("map_location", [
    "cuda:0", "cuda", torch.device("cuda", 0), {"cpu": "cuda:0"}, lambda storage, location: storage.cuda(),
    lambda storage, location: storage.cuda(0)], ids=str)
def test_from_the_cpu_to_the_device(map_location):
    check(read(torch, written(torch, tensors("cpu")), map_location), "cuda:0")


@two_devices
def test_from_device_to_device():
    data = written(torch, tensors("cuda:1"))
    check(read(torch, data), "cuda:1")
    check(read(torch, data, {"cuda:1": "cuda:0"}), "cuda:0")
    check(read(torch, data, lambda storage, location: storage.cpu()), "cpu")
    check(read(torch, written(torch, tensors("cuda:0")), lambda storage, location: storage.cuda(1)), "cuda:1")
    both = read(torch, written(torch, [torch.ones(2, device="cuda:1"), torch.zeros(2), torch.ones(2, device="cuda:0")]))
    assert [str(t.device) for t in both] == ["cuda:1", "cpu", "cuda:0"]


def test_one_memory_is_written_once_and_shared_again():
    def views(x):
        return [x, x.t(), x[1:, 2], x.detach().reshape(-1)[:2], x.as_strided((2,), (5,), 1), torch.nn.Parameter(x)]
    x = torch.arange(12.0, device="cuda:0").reshape(3, 4)
    data = written(torch, views(x))
    assert [name for name in records(data) if name.startswith("data/")] == ["data/0"] and len(records(data)["data/0"]) == 48
    expected = sharing(views(torch.arange(12.0).reshape(3, 4)))
    for _ in range(2):
        found = read(torch, data)
        data = written(torch, found)
        assert [name for name in records(data) if name.startswith("data/")] == ["data/0"]
        assert sharing(found) == expected


def test_a_device_that_is_not_here():
    with pytest.raises(RuntimeError, match=r"CUDA device 7 but torch\.cuda\.device_count\(\) is"):
        read(torch, at_home(b"cuda:7"))
    assert read(torch, at_home(b"cuda:7"), {"cuda:7": "cuda:0"})[0].is_cuda


def test_the_other_byte_order():
    data = records(written(torch, [torch.tensor([1, 258], dtype=torch.uint16), torch.tensor([1.5])]))
    other = archived(data | {"byteorder": b"big", "data/0": struct.pack(">HH", 1, 258), "data/1": struct.pack(">f", 1.5)})
    assert [t.tolist() for t in read(torch, other, "cuda:0")] == [[1, 258], [1.5]]


def test_training_goes_on():
    def run(where):
        model = torch.nn.Linear(3, 2).to(where)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.arange(float(p.numel())).reshape(p.shape).sin())
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def steps(model, optimizer, n):
        for _ in range(n):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3, device=model.weight.device)).square().sum()
            loss.backward()
            optimizer.step()
        return loss.item()
    model, optimizer = run("cuda:0")
    steps(model, optimizer, 2)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    expected = steps(model, optimizer, 2)
    for where, map_location in (("cuda:0", None), ("cpu", "cpu")):
        file.seek(0)
        again, other = run(where)
        found = torch.load(file, map_location)
        again.load_state_dict(found["model"])
        other.load_state_dict(found["optimizer"])
        assert steps(again, other, 2) == pytest.approx(expected, rel=1e-5)
