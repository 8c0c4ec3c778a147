"""save_on_cpu on a device: values lie in host memory between forward and backward, once each, and gradients are the same."""
import gc
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu
from autograd_gpu.base import Version
from tests.cuda.common import cp, settled, two_devices

PINNED = pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])


def leaf(*shape, where="cuda:0"):
    return torch.linspace(-1.0, 2.0, int(np.prod(shape)), device=where).reshape(shape).detach().requires_grad_()


def used(where="cuda:0"):
    gc.collect()
    torch.cuda.synchronize(where)
    return torch.cuda.memory_allocated(where)


def program(x, w):
    h = (x @ w).tanh()
    return ((h * h).exp() * h.t()[:4].t()).sum() + h.max(0).values.sum()


@PINNED
def test_same_gradients(pinned):
    found = []
    for inside in (False, True):
        x, w = leaf(3, 4), leaf(4, 4)
        if inside:
            with save_on_cpu(pinned):
                y = program(x, w)
        else:
            y = program(x, w)
        y.backward()
        found.append([settled(x.grad), settled(w.grad), settled(y.detach())])
    for plain, saved in zip(*found, strict=True):
        np.testing.assert_array_equal(plain, saved)


@PINNED
def test_device_memory_is_free_between_forward_and_backward(pinned):
    x = leaf(300, 300)
    (x * 2).exp().sin().sum().backward()
    want, x.grad = settled(x.grad), None
    before = used()
    with save_on_cpu(pinned):
        y = (x * 2).exp()
        z = y.sin().sum()                    # y is saved by exp and by sin
    del y
    assert used() - before < 10_000
    z.backward()
    np.testing.assert_array_equal(settled(x.grad), want)


@PINNED
def test_one_copy_of_a_value_that_several_operations_save(pinned):
    x = leaf(8)
    h = x * 2
    with save_on_cpu(pinned):
        y = h.sin() + h.cos() + h.exp()
        kept = [node._raw_saved_self.data for node in (y.grad_fn.next_functions[0][0].next_functions[0][0],
                                                        y.grad_fn.next_functions[0][0].next_functions[1][0])]
        with torch.no_grad():
            h.add_(1)
        z = h.sin()
    assert kept[0] is kept[1]
    assert z.grad_fn._raw_saved_self.data is not kept[0]
    y.sum().backward()                       # from copies: the write after them does no harm
    h = settled(x.detach()) * 2
    np.testing.assert_allclose(settled(x.grad), 2 * (np.cos(h) - np.sin(h) + np.exp(h)), rtol=2e-5)


@PINNED
def test_other_values_at_the_same_address(pinned):
    x = leaf(8)
    with save_on_cpu(pinned):
        h = x * 2
        at, y = h.data_ptr(), h.sin()
        fives = h.detach() * 5
        h.data = torch.zeros(8, device="cuda:0")             # frees the memory of the values that were saved
        h.data = fives.clone()
        assert h.data_ptr() == at
        z = h.cos()
    (y + z).sum().backward()
    h = settled(x.detach()) * 2
    np.testing.assert_allclose(settled(x.grad), 2 * (np.cos(h) - np.sin(5 * h)), rtol=2e-5)


@PINNED
def test_the_id_of_a_counter_is_no_other_ones_while_what_was_packed_is_there(pinned):
    """A value is known by its counter's id: its node may be gone already while others run."""
    with save_on_cpu(pinned):
        h = leaf(8) * 2
        y = h.sin()
    packed, known = y.grad_fn._raw_saved_self.data, id(h._counter)
    del y, h
    assert packed is not None and known not in [id(v) for v in [Version() for _ in range(10_000)]]


@PINNED
def test_leaves_and_their_views_stay(pinned):
    x = leaf(4, 4)
    with save_on_cpu(pinned):
        y, z = x.sin(), x.t().sin()
    assert y.grad_fn._raw_saved_self.data.device == x.device and z.grad_fn._raw_saved_self.data._array.data.ptr == x.data_ptr()
    with torch.no_grad():
        x.mul_(2)
    for out in (y, z):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


@PINNED
def test_layouts_dtypes_and_no_elements(pinned):
    for make in (lambda x: x.t(), lambda x: x[::2], lambda x: x[:, :1].expand(4, 6), lambda x: x[:0], lambda x: x[1, 2], lambda x:
                 x.double(), lambda x: x.half(), lambda x: torch.complex(x, x)):
        x = leaf(4, 6)
        h = x * 3
        v = make(h)
        with save_on_cpu(pinned):
            y = v.sin()
        back = y.grad_fn._saved_self
        assert back.device == x.device and back.dtype == v.dtype and back.shape == v.shape and back.grad_fn is v.grad_fn
        np.testing.assert_array_equal(settled(back.detach()), settled(v.detach()))
        if v.t is not None and v.is_contiguous():
            assert back.is_contiguous()
        y.abs().sum().backward()
        assert x.grad is not None


@PINNED
def test_second_derivative(pinned):
    x = leaf(5)
    with save_on_cpu(pinned):
        y = (x * 2).exp().sum()
        g, = torch.autograd.grad(y, x, create_graph=True)
        gg, = torch.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(settled(gg), 4 * np.exp(2 * settled(x.detach())), rtol=1e-5)


@two_devices
@PINNED
def test_each_value_comes_back_to_its_device(pinned):
    x = leaf(5)
    with save_on_cpu(pinned):
        y = (x * 2).exp()
        z = (y.to("cuda:1") * 3).sin()
    assert y.grad_fn._saved_result.device.index == 0 and z.grad_fn._saved_self.device.index == 1
    z.sum().backward()
    e = np.exp(2 * settled(x.detach()).astype(np.float64))
    np.testing.assert_allclose(settled(x.grad), np.cos(3 * e) * 6 * e, rtol=1e-3)


def test_pinned_copies_are_ordered_over_streams_and_threads():
    x = leaf(1000)
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(cp.cuda.Stream.null.record())
        with save_on_cpu(pin_memory=True):
            y = (x * 2).exp().sum()
        done = stream.record()
    cp.cuda.get_current_stream().wait_event(done)
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    np.testing.assert_allclose(settled(x.grad), 2 * np.exp(2 * settled(x.detach())), rtol=1e-5)


def test_allow_mutation_clones_on_the_device():
    x = leaf(5)
    with allow_mutation_on_saved_tensors():
        h = x * 1
        y = (h * h).sum()
        h.exp_()
        y.backward()
    np.testing.assert_allclose(settled(x.grad), 2 * settled(x.detach()), rtol=1e-6)
