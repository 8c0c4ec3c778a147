"""Devices: creation, copies and operands on several of them, what the outside world sees, current device and memory."""
import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from tests.cuda.common import cp, equal, gpu, settled, two_devices

pytestmark = gpu

# --------------------------------------------------------------------------------------------------------------- creation

@pytest.mark.parametrize("make", [
    lambda **k: torch.zeros(2, 3, **k), lambda **k: torch.ones(2, **k), lambda **k: torch.full((2,), 1.5, **k),
    lambda **k: torch.arange(5, **k), lambda **k: torch.arange(0, 1, 0.25, **k),
    lambda **k: torch.linspace(0, 1, 5, **k), lambda **k: torch.eye(3, **k),
    lambda **k: torch.tensor([[1.0, 2.0]], **k), lambda **k: torch.tensor(3, **k), lambda **k: torch.as_tensor([1, 2], **k),
    lambda **k: torch.tensor([True, False], **k)])
def test_creation(make):
    equal(make(device="cuda:0"), make(), "device=")
    with torch.device("cuda:0"):
        equal(make(), make(device="cpu"), "with device")
    torch.set_default_device("cuda:0")
    equal(make(), make(device="cpu"), "default device")


def test_uninitialised_and_like():
    x = torch.empty(2, 3, device="cuda:0")
    assert settled(x).shape == (2, 3)
    for t in (torch.zeros_like(x), torch.empty_like(x), torch.rand_like(x), torch.randn_like(x), x.new_zeros(2), x.new_tensor([1.0])):
        settled(t)
    assert torch.zeros_like(x, device="cpu").device.type == "cpu"


def test_random():
    for make in (lambda: torch.rand(1000, device="cuda:0"), lambda: torch.randn(1000, device="cuda:0"),
                 lambda: torch.randint(0, 9, (1000,), device="cuda:0"), lambda: torch.randperm(1000, device="cuda:0"),
                 lambda: torch.bernoulli(torch.full((1000,), 0.5, device="cuda:0")),
                 lambda: torch.nn.functional.dropout(torch.ones(1000, device="cuda:0"), 0.5),
                 lambda: torch.empty(1000, device="cuda:0").uniform_(), lambda: torch.empty(1000, device="cuda:0").normal_(1, 2),
                 lambda: torch.normal(torch.zeros(1000, device="cuda:0"), 1.0)):
        torch.manual_seed(1)
        first = settled(make())
        torch.manual_seed(1)
        np.testing.assert_array_equal(first, settled(make()))
        assert len(np.unique(first)) > 1
        assert (first != settled(make())).any()


# ----------------------------------------------------------------------------------------------------------- between devices

def test_copies_are_differentiable():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x.to("cuda:0")
    assert y.grad_fn.name() == "ToCopyBackward0" and y.device == torch.device("cuda:0") and x.to("cpu") is x and y.to("cuda:0") is y
    z = (y * y).cpu() * x
    z.sum().backward()
    assert z.device.type == "cpu" and x.grad.tolist() == [3.0, 12.0] and x.grad.device.type == "cpu"
    g, = torch.autograd.grad((x.cuda() ** 3).sum().cpu(), x, create_graph=True)
    h, = torch.autograd.grad(g.sum(), x)
    assert g.tolist() == [3.0, 12.0] and h.tolist() == [6.0, 12.0] and h.device.type == "cpu"
    both = x.to("cuda:0", torch.float64)
    assert both.dtype == torch.float64 and both.is_cuda
    both.sum().backward()
    assert x.grad.tolist() == [4.0, 13.0] and x.grad.dtype == torch.float32


@pytest.mark.parametrize(("to", "source"), [("cuda:0", "cpu"), ("cpu", "cuda:0"), ("cuda:0", "cuda:0"),
                                            pytest.param("cuda:0", "cuda:1", marks=two_devices)])
def test_copy_into(to, source):
    x = torch.tensor([1.0, 2.0, 3.0], device=source, requires_grad=True)
    h = torch.zeros(2, 3, device=to)
    h[0].copy_(x)
    assert h.device == torch.device(to)
    (h * h).sum().backward()
    assert h.tolist() == [[1, 2, 3], [0, 0, 0]] and x.grad.tolist() == [2, 4, 6] and x.grad.device == torch.device(source)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_fused_kernel_keeps_the_layout_of_its_operands(axes):
    x = torch.randn(4, 3, 2).permute(axes)
    y = torch.randn(x.shape[-1])
    for compute in lambda x, y: x * 2, lambda x, y: x + y, lambda x, y: (y.tanh() * x).exp():
        want, got = compute(x, y), compute(x.cuda(), y.cuda())
        assert got.stride() == want.stride() and torch.allclose(got.cpu(), want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool"])
def test_a_contiguous_view_may_begin_anywhere(dtype):
    x = (torch.arange(101) % 3).to(getattr(torch, dtype))
    for start in 1, 2, 4, 16:
        for compute in lambda x: x * 2, lambda x: x == x[0], lambda x: torch.where(x > 1, x, x.double()):
            equal(compute(x.cuda()[start:]), compute(x[start:]), f"from {start}")


def test_a_copy_keeps_layout_and_makes_no_alias():
    x = torch.arange(6.0).reshape(2, 3).t()
    y = x.cuda()
    assert y.stride() == x.stride() and y.cpu().stride() == x.stride()
    x[0, 0] = 9
    assert y[0, 0].item() == 0
    back = y.cpu()
    y[0, 1] = 7
    assert back[0, 1].item() == 3


@two_devices
@pytest.mark.parametrize("f", [
    lambda x, y: x + y, lambda x, y: x @ y, lambda x, y: torch.cat((x, y)), lambda x, y: torch.where(x > 0, x, y), lambda x, y: x.add_(y),
    lambda x, y: torch.lerp(x, x, y), lambda x, y: torch.nn.functional.mse_loss(x, y), lambda x, y: torch.stack((x, y)),
    lambda x, y: x == y, lambda x, y: torch.nn.functional.linear(x, y),
    lambda x, y: torch.addmm(x, x, y), lambda x, y: x.index_select(0, y.long()[0])])
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_operands_on_different_devices(f, other):
    x, y = torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2, device=other)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        f(x, y)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        f(y, x)


_F = torch.nn.functional


@two_devices
@pytest.mark.parametrize("f", [
    lambda x, y: _F.layer_norm(x, (2,), y[0]), lambda x, y: _F.layer_norm(x, (2,), None, y[0]), lambda x, y: torch.clamp(x, None, y),
    lambda x, y: _F.batch_norm(x, y[0], x[0], training=True), lambda x, y: _F.batch_norm(x, None, None, y[0], training=True),
    lambda x, y: _F.binary_cross_entropy(x, x, y), lambda x, y: _F.binary_cross_entropy_with_logits(x, x, None, pos_weight=y),
    lambda x, y: _F.nll_loss(x, x.long()[0], y[0]), lambda x, y: _F.cross_entropy(x, x.long()[0], y[0], label_smoothing=0.1),
    lambda x, y: _F.nll_loss(x[0], y.long()[0, 0]), lambda x, y: x.index_put((x.long()[0],), y),
    lambda x, y: x.index_put((x.long()[0],), y, True), lambda x, y: x.index_put((x.long()[0],), y[0, 0], True),
    lambda x, y: x.clone().index_put_((x > 0,), y[0, 0]), lambda x, y: x.clone().__setitem__(x.long(), y),
    lambda x, y: torch.stack((x[0, 0], y[0, 0])), lambda x, y: _F.embedding(y.long(), x, max_norm=1.0)])
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_optional_operands_and_values_on_different_devices(f, other):
    x, y = torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2, device=other)
    for a, b in (x, y), (y, x):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            f(a, b)


def test_indices_in_host_memory():
    x = torch.arange(6.0, device="cuda:0").reshape(3, 2)
    for key in torch.tensor([2, -3]), torch.tensor([True, False, True]), (slice(None), torch.tensor([1, 0])), np.array([0, 2]):
        w, on_cpu = x.clone().requires_grad_(), x.cpu().requires_grad_()
        equal(w[key].detach(), on_cpu[key], "x[key]")
        for t in w, on_cpu:
            (t[key] * t[key]).sum().backward()
        equal(w.grad, on_cpu.grad, "the gradient")
        y, on_cpu = x.clone(), x.cpu()
        y[key] = on_cpu[key] = 7
        equal(y, on_cpu, "x[key] = 7")
    i, v = torch.tensor([2, 0]), torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    m = torch.tensor([True, False, True])
    for accumulate in False, True:
        equal(x.index_put((i,), v, accumulate).detach(), x.cpu().index_put((i,), v.cpu(), accumulate), "index_put")
        equal(x.clone().index_put_((m,), v.detach(), accumulate), x.cpu().index_put((m,), v.cpu(), accumulate), "index_put_")
    x.index_put((torch.tensor([2, 0, 2]),), v, True).sum().backward()
    assert v.grad.tolist() == [3, 3]


@two_devices
@pytest.mark.parametrize("f", [
    lambda x, i: x[i], lambda x, i: x[i > 0], lambda x, i: x[0, i], lambda x, i: x.__setitem__(i, 0), lambda x, i: x.index_put((i,), x[0]),
    lambda x, i: x.index_put_((i,), x[0], True)])
def test_indices_on_another_device(f):
    for to, of in ("cuda:0", "cuda:1"), ("cpu", "cuda:0"):
        with pytest.raises(RuntimeError, match="on the same device"):
            f(torch.ones(2, 2, device=to), torch.tensor([1, 0], device=of))


def test_a_number_in_host_memory_goes_along():
    x = torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    s = torch.tensor(3.0, requires_grad=True)
    for y in (x * s, s * x, torch.where(x > 0, x * s, s)):
        settled(y.detach())
    (x * s).sum().backward()
    assert s.grad.item() == 3 and s.grad.device.type == "cpu" and x.grad.tolist() == [3, 3]
    x.detach().add_(torch.tensor(1.0))
    assert x.tolist() == [2, 3]
    both = torch.tensor([0, 1], device="cuda:0")
    for f in lambda: torch.clamp(x, s + 1), lambda: x.masked_fill(x > 0, s), lambda: x.index_fill(0, both, s), \
            lambda: torch.zeros_like(x).fill_(s):
        y = f()
        s.grad = None
        y.sum().backward()
        settled(y.detach())
        assert s.grad.item() == 2 and s.grad.device.type == "cpu"
    assert torch.zeros(2).fill_(x.detach()[0]).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="device"):
        torch.tensor(1.0).add_(x.detach().sum())
    with pytest.raises(RuntimeError, match="same device"):
        x * torch.tensor([1.0])


def test_a_leafs_gradient_is_on_its_device():
    x = torch.ones(2, device="cuda:0", requires_grad=True)
    with pytest.raises(RuntimeError, match="device"):
        x.grad = torch.ones(2)
    x.grad = torch.ones(2, device="cuda:0")
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="on cpu.*on cuda:0"):
        (x * 2).backward(torch.ones(2))


def devices_of_nodes(order):
    """Hooks that note on which device each node ran."""
    def watch(t, name):
        t.grad_fn.register_prehook(lambda grads: order.append((name, cp.cuda.Device().id, grads[0].device)) or None)
        return t
    return watch


@two_devices
def test_each_node_runs_under_its_own_device():
    order = []
    watch = devices_of_nodes(order)
    x = torch.ones(3, requires_grad=True)
    a = watch(x * 2, "cpu")
    b = watch(a.to("cuda:0") * 3, "cuda:0")
    c = watch(a.to("cuda:1") * 4, "cuda:1")
    d = watch(b.to("cuda:1") * c, "cuda:1")
    e = watch(d.cpu() + a, "cpu")
    e.sum().backward()
    assert len(order) == 5
    for name, current, device in order:
        assert device == torch.device(name) and (name == "cpu" or current == device.index)
    want = 2 * (2 * 2 * 12) + 2                               # of 12 a a + a, a = 2 x
    assert x.grad.tolist() == [want] * 3 and cp.cuda.Device().id == 0


@two_devices
def test_backward_in_a_thread_that_uses_another_device():
    x = torch.ones(3, device="cuda:1", requires_grad=True)
    y = (x * 2).exp().sum()
    seen = []

    def work():
        y.backward()
        seen.append(cp.cuda.Device().id)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0] and x.grad.device == torch.device("cuda:1")
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.full(3, 2 * np.exp(2)), rtol=1e-5)


@two_devices
def test_results_stay_on_the_second_device():
    x = torch.tensor([1.0, 2.0], device="cuda:1", requires_grad=True)
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda:1")
    for y in (x * 2, (w @ x).sum(), torch.softmax(x, 0), x.sum() + 1, torch.zeros_like(x), x[x > 1], x.double(), 2 - x):
        assert y.device == torch.device("cuda:1") and y._array.device.id == 1
    (w @ x).tanh().sum().backward()
    assert x.grad.device == torch.device("cuda:1")
    with torch.device("cuda:1"):
        assert torch.ones(2).device == torch.device("cuda:1") and torch.arange(3)._array.device.id == 1
    torch.cuda.set_device(1)
    try:
        assert torch.cuda.current_device() == 1 and torch.zeros(2, device="cuda").device == torch.device("cuda:1")
    finally:
        torch.cuda.set_device(0)


def test_work_goes_to_cupys_current_stream():
    x, stream, seen = torch.ones(1000, device="cuda:0", requires_grad=True), cp.cuda.Stream(non_blocking=True), []
    x.register_hook(lambda g: seen.append(cp.cuda.get_current_stream().ptr))
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        (x * x).exp().sum().backward()
        np.testing.assert_allclose(settled(x.grad), 2 * np.e, rtol=1e-6)
    assert seen == [stream.ptr]


# --------------------------------------------------------------------------------------------------------- the outside world

def test_text():
    x = torch.tensor([1.0, 2.5], device="cuda:0", requires_grad=True)
    assert repr(x) == "tensor([1.0000, 2.5000], device='cuda:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 5.], device='cuda:0', grad_fn=<MulBackward0>)"
    assert repr(torch.tensor(3, device="cuda:0")) == "tensor(3, device='cuda:0')"


def test_arrays_of_both_kinds():
    x = torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    with pytest.raises(TypeError, match="cuda:0.*cpu"):
        x.detach().numpy()
    with pytest.raises(TypeError, match="cuda:0.*cpu"):
        np.asarray(x.detach())
    with pytest.raises(RuntimeError, match="detach"):
        x.cupy()
    shared = x.detach().cupy()
    assert isinstance(shared, cp.ndarray) and shared.data.ptr == x._array.data.ptr
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(2).cupy()
    with pytest.raises(TypeError, match="as_tensor"):
        torch.from_numpy(shared)
    again = torch.as_tensor(shared)
    assert again.device == x.device and again._array.data.ptr == shared.data.ptr
    assert (x + shared).tolist() == [2, 4] and torch.tensor(shared).tolist() == [1, 2]


def test_cupy_takes_tensors():
    x = torch.arange(6.0, device="cuda:0").reshape(2, 3).t()
    w = torch.ones(2, device="cuda:0", requires_grad=True)
    for shared in cp.asarray(x), cp.from_dlpack(x):
        assert shared.data.ptr == x.data_ptr() and shared.shape == (3, 2) and shared.strides == (4, 12)
    np.testing.assert_array_equal(cp.asnumpy(cp.negative(x)), -settled(x))
    assert hasattr(x, "__cuda_array_interface__") and not hasattr(torch.ones(2), "__cuda_array_interface__")
    for refused in cp.asarray, cp.negative:
        with pytest.raises(RuntimeError, match="detach"):
            refused(w)
    with pytest.raises(BufferError, match="detach"):
        cp.from_dlpack(w)


def test_dlpack_on_a_device():
    for where in ["cuda:0", "cuda:1"][:torch.cuda.device_count()]:
        x = torch.arange(6.0, device=where).reshape(2, 3).t()
        for shared in torch.from_dlpack(x), torch.from_dlpack(x.cupy()), torch.from_dlpack(x, device=where, copy=False):
            assert shared.data_ptr() == x.data_ptr() and shared.device == x.device and shared.stride() == (1, 3)
        copied = torch.from_dlpack(x, copy=True)
        assert copied.data_ptr() != x.data_ptr() and copied.device == x.device
        back = torch.from_dlpack(x, device="cpu")
        equal(x, back, "on the CPU", where)
        with pytest.raises(ValueError, match="copy"):
            torch.from_dlpack(x, device="cpu", copy=False)
        with pytest.raises((BufferError, RuntimeError, ValueError)):
            np.from_dlpack(x)


def test_cupy_arrays_on_the_left():
    a, w = cp.asarray([1.0, 2.0], cp.float32), torch.ones(2, device="cuda:0", requires_grad=True)
    for t in w, torch.nn.Parameter(w.detach()):
        for y in (a * t, a + t, a / t, a - t, a ** t, a @ t):
            assert isinstance(y, torch.Tensor) and y.requires_grad and y.is_cuda
        assert isinstance(a == t, torch.Tensor) and isinstance(np.sin(t), torch.Tensor)
    (a * w).sum().backward()
    assert w.grad.tolist() == [1, 2]


def test_python_values():
    x = torch.tensor([1.5], device="cuda:0")
    assert x.item() == 1.5 and float(x) == 1.5 and int(x) == 1 and bool(x > 1) and x.tolist() == [1.5] and len(x) == 1
    assert [type(t.item()) for t in torch.arange(2, device="cuda:0")] == [int, int]
    assert torch.equal(x, x.clone()) and torch.allclose(x, x + 1e-9)


def test_copies_and_pickles_of_tensors():
    x = torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x.detach().requires_grad_()))):
        assert y.device == x.device and y.tolist() == [1, 2] and y.requires_grad and y._array.data.ptr != x._array.data.ptr


def test_hooks_get_tensors_of_the_device():
    x = torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g) or g * 10)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad))
    y.retain_grad()
    y.sum().backward()
    for t in (*seen, y.grad, x.grad):
        settled(t)
    assert x.grad.tolist() == [20, 20]
    with pytest.warns(UserWarning, match="create_graph"):
        (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.tolist() == [22, 24]


def test_versions_are_checked():
    x = torch.ones(2, device="cuda:0", requires_grad=True)
    h = x * 1
    y = h.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_shapes_that_do_not_fit():
    x, y = torch.ones(2, 3, device="cuda:0"), torch.ones(2, device="cuda:0")
    with pytest.raises(RuntimeError, match="size of tensor a.*must match"):
        x + y
    with pytest.raises(RuntimeError, match="mat|size|shape"):
        x @ y
    with pytest.raises(IndexError):
        x.sum(5)


def test_nothing_keeps_device_memory():
    x, rows = torch.ones(30, 4, device="cuda:0", requires_grad=True), torch.tensor([0, 5, 0], device="cuda:0")

    def used():
        x.grad = None
        ((x * x.t().contiguous().t()).softmax(1)[rows].half() / 3).sum().backward()
        gc.collect()
        return torch.cuda.memory_allocated(0)
    assert used() == used() == used()


@two_devices
def test_everything_on_the_second_device_while_the_first_is_current():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda:1", requires_grad=True)
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g))
    x.register_hook(lambda g: seen.append(g) or g * 2)
    y.retain_grad()
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    with pytest.warns(UserWarning, match="create_graph"):
        y.sum().backward(retain_graph=True, create_graph=True)
    seen += [y.grad, x.grad, copy.deepcopy(x.detach()), x.detach().clone(), x.detach().contiguous(), x.t().contiguous(), x.detach().float()]
    seen += [torch.ones_like(x), torch.rand_like(x), x.detach().new_zeros(2), x.detach() > 2, x.detach() == 3, x.detach().long() > 2]
    seen += [x[x > 2], x.double()]
    with torch.no_grad():
        x[0] = 1
        x[:, 1].add_(x[:, 0])
        x.clamp_(max=3).mul_(2.0)
    seen.append(x)
    cat = torch.cat([x, x[:0]])
    cat.sum().backward()
    a, b = x.unbind()
    a.sum().backward()
    seen += [cat, a, b, x.grad]
    for t in seen:
        assert t.device == torch.device("cuda:1") and t._array.device.id == 1
    repr(x)
    assert x.tolist() == [[2, 4], [6, 6]] and x.sum().item() == 18
    assert torch.equal(x.detach(), x.detach().clone()) and torch.allclose(x, x) and torch.tensor(x.detach()).device == x.device
    torch.manual_seed(0)
    rows = torch.tensor([1, 0], device="cuda:1")
    for t in (torch.bernoulli(x.detach() / 10), torch.bernoulli(x, 0.5), torch.normal(0.0, x.detach()), torch.multinomial(x.detach(), 1),
              torch.empty_like(x).uniform_(), torch.nn.functional.embedding(rows, x.detach(), max_norm=1.0)):
        assert t.device == x.device
    x.data.copy_(torch.tensor([[2.0, 4.0], [6.0, 6.0]]))
    assert torch.nn.functional.dropout(x, 0.5).device == torch.nn.functional.one_hot(x.detach().long()).device == x.device
    parts = torch.autograd.grad(x.sum() + (x * x).cpu().sum() + x.to("cuda:0").sum().to("cuda:1"), x)
    assert parts[0].device == x.device and parts[0].tolist() == [[12, 20], [28, 28]]      # x's hook doubles them
    torch.autograd.backward([x.sum(), x.cpu().sum(), x.to("cuda:0").sum()], inputs=[x])
    assert x.grad.device == x.device


def test_parameters():
    w = torch.nn.Parameter(torch.ones(2, 3, device="cuda:0"))
    y = torch.nn.functional.linear(torch.ones(1, 3, device="cuda:0"), w) + w.sum() * 2
    y.sum().backward()
    assert w.grad.tolist() == [[5, 5, 5]] * 2 and w.grad.is_cuda and (2 * w).is_cuda
    with torch.no_grad():
        w.sub_(w.grad)
    assert w.tolist() == [[-4, -4, -4]] * 2


def test_on_a_stream_of_the_users():
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = torch.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
        y = (x * 3 + torch.ones(2).cuda()).exp().log().sum()
        y.backward()
        (x * x).sum().backward()
        assert x.grad.tolist() == [5, 7]
        back = (x.detach() * 2).cpu()
    assert back.tolist() == [2, 4]


@two_devices
def test_devices_and_streams_of_two_threads():
    found = {}

    def work(d):
        with cp.cuda.Device(d), cp.cuda.Stream(non_blocking=True):
            w = torch.ones(3, device=f"cuda:{d}", requires_grad=True)
            for _ in range(5):
                (w * torch.tensor([1.0, 2.0, 3.0]).cuda(d)).tanh().sum().backward()
                with torch.no_grad():
                    w -= w.grad
                w.grad = None
            found[d] = w.tolist()
    threads = [threading.Thread(target=work, args=(d,)) for d in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found[0] == found[1] and len(found[0]) == 3


@two_devices
def test_a_copy_between_devices_on_streams_of_both():
    with cp.cuda.Device(1):
        there = cp.cuda.Stream(non_blocking=True)
    with cp.cuda.Stream(non_blocking=True):
        x = torch.arange(6.0).reshape(2, 3).t().cuda().requires_grad_()
        with cp.cuda.Device(1), there:
            y = x.to("cuda:1")
            assert y.stride() == (1, 3)
            z = (y * y).sum()
            z.backward()
        assert x.grad.tolist() == (2 * x.detach()).tolist()


# ------------------------------------------------------------------------------------------------------- devices and memory

@two_devices
def test_cuda_device_is_current_within_its_block():
    before = torch.cuda.current_device()
    with torch.cuda.device(1) as where:
        assert where == torch.device("cuda:1") and torch.cuda.current_device() == 1 and torch.ones(2, device="cuda").device.index == 1
        with torch.cuda.device("cuda:0"):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == before
    with pytest.raises(RuntimeError, match="does not exist"), torch.cuda.device(99):
        pass
    with pytest.raises(ValueError, match="cuda device"), torch.cuda.device("cpu"):
        pass


def test_properties_of_a_device():
    found = torch.cuda.get_device_properties("cuda:0")
    assert found.name == torch.cuda.get_device_name(0) and found.total_memory == torch.cuda.mem_get_info(0)[1]
    assert torch.cuda.get_device_capability() == (found.major, found.minor) > (5, 0) and found.warp_size == 32
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.cuda.get_device_properties(99)


def test_memory_statistics():
    gc.collect()
    start = torch.cuda.memory_allocated(0)
    torch.cuda.reset_peak_memory_stats(0)
    x = torch.zeros(1000, 1000, device="cuda:0")
    assert torch.cuda.memory_allocated("cuda:0") >= start + x.numel() * 4
    y = x + 1
    assert torch.cuda.memory_allocated(0) >= start + 2 * x.numel() * 4 and torch.cuda.memory_reserved(0) >= torch.cuda.memory_allocated(0)
    del x, y
    assert torch.cuda.memory_allocated(0) == start and torch.cuda.max_memory_allocated(0) >= start + 8_000_000
    torch.cuda.reset_peak_memory_stats(0)
    assert torch.cuda.max_memory_allocated(0) == start
    assert torch.cuda.memory_stats(0) == {"allocated_bytes.all.current": start, "allocated_bytes.all.peak": start,
                                          "reserved_bytes.all.current": torch.cuda.memory_reserved(0)}
    torch.cuda.empty_cache()
    free, whole = torch.cuda.mem_get_info(0)
    assert 0 < free <= whole


def test_a_gradient_is_not_the_memory_that_was_given():
    """Where a formula gives a view of it in other strides: of that, too, the engine has to see that it is one."""
    x = torch.ones(4, 2, device="cuda", requires_grad=True)
    given = torch.full((4,), 3j, dtype=torch.complex64, device="cuda")
    torch.view_as_complex(x).backward(given)
    given.zero_()
    assert x.grad.tolist() == [[0.0, 3.0]] * 4
