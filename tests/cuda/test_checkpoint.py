"""Checkpoints on a device: what is drawn there is drawn again, memory is given back, workers share what was computed."""
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.utils.checkpoint import checkpoint
from tests.cuda.common import two_devices
from tests.cuda.test_save_on_cpu import used


def masks_of(use_reentrant, nested=False, where="cuda:0"):
    masks = []

    def drop(t):
        y = torch.nn.functional.dropout(t, 0.5)
        masks.append((y != 0).tolist())
        return y

    def f(t):
        h = drop(t * 1.0)
        h = checkpoint(lambda t: drop(t).exp(), h, use_reentrant=use_reentrant) if nested else h
        h = drop(h)
        return (h * h).sum().exp()
    x = torch.ones(64, device=where).requires_grad_()
    y = checkpoint(f, x / 64, use_reentrant=use_reentrant)
    count = len(masks)
    torch.nn.functional.dropout(x, 0.5)
    y.backward()
    return masks, count


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_random_numbers_are_drawn_again(use_reentrant):
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        masks, count = masks_of(use_reentrant)
        assert masks[:count] == masks[count:] and masks[0] != masks[1]
        found.append(masks)
    assert found[0] == found[1]              # a seed repeats them
    masks, count = masks_of(use_reentrant)
    assert masks[:count] != found[0][:count]


def test_random_numbers_of_nested_checkpoints_are_drawn_again():
    masks, count = masks_of(False, nested=True)
    first, inner, last = masks[:count]
    again = masks[count:]
    assert again[:3] == [first, inner, last] and again[3:] in ([], [inner])


def test_streams_go_on_after_it():
    torch.manual_seed(5)
    want = [torch.rand(3, device="cuda:0").tolist() for _ in range(2)]
    torch.manual_seed(5)
    found = [torch.rand(3, device="cuda:0").tolist()]
    x = torch.ones(3, device="cuda:0").requires_grad_()
    y = checkpoint(lambda t: (t * torch.rand(3, device="cuda:0")).exp(), x, use_reentrant=False)
    found.append(torch.rand(3, device="cuda:0").tolist())
    y.sum().backward()
    assert found == want


def test_a_device_that_is_first_drawn_from_inside_is_an_error(monkeypatch):
    monkeypatch.setattr("autograd_gpu.generator._defaults", {torch.device("cpu"): torch.default_generator})
    x = torch.ones(3).requires_grad_()
    with pytest.raises(RuntimeError, match="first drawn on cuda:0"):
        checkpoint(lambda t: (t.cuda() * torch.rand(3, device="cuda:0")).exp(), x, use_reentrant=False)


def test_what_another_thread_first_draws_meanwhile_is_no_error(monkeypatch):
    monkeypatch.setattr("autograd_gpu.generator._defaults", {torch.device("cpu"): torch.default_generator})

    def f(t):
        thread = threading.Thread(target=lambda: torch.rand(3, device="cuda:0"))
        thread.start()
        thread.join()
        return t.exp()
    x = torch.ones(3).requires_grad_()
    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert x.grad[0].item() == pytest.approx(np.e)


def test_memory_of_what_is_saved_inside_is_given_back():
    x = torch.ones(1 << 12, device="cuda:0").requires_grad_()

    def f(t):
        for _ in range(8):
            t = t.sin()
        return t
    before = used()
    plain = f(x)
    kept = used() - before
    del plain
    y = checkpoint(f, x, use_reentrant=False)
    assert used() - before < kept / 4
    y.sum().backward()
    want = f(x.detach().cpu().requires_grad_())
    np.testing.assert_allclose(y.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-6)
    del y
    assert used() - before <= x.grad.nbytes + 512


@two_devices
def test_workers_of_two_devices_share_one_run():
    runs = []

    def f(a, b):
        runs.append(1)
        return a.sin().exp(), b.sin().exp()
    a, b = [torch.full((5,), 0.5, device=where).requires_grad_() for where in ("cuda:0", "cuda:1")]
    for k in range(1, 6):
        y, z = checkpoint(f, a, b, use_reentrant=False)
        (y.sum() + z.sum().to("cuda:0")).backward()
        assert len(runs) == 2 * k
    want = 5 * np.cos(0.5) * np.exp(np.sin(0.5))
    for t in (a, b):
        np.testing.assert_allclose(t.grad.cpu().numpy(), want, rtol=1e-6)
