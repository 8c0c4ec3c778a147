"""What the engine promises about gradients, saved values and memory, beyond what the shared suites compare with PyTorch."""
import copy
import gc
import pickle
import threading
import warnings
import weakref

import numpy as np
import pytest

import autograd_gpu
import autograd_gpu as torch
from autograd_gpu.engine import grad_mode
from tests.parity import result, said


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(*values):
    return torch.tensor(list(values), requires_grad=True)


# ------------------------------------------------------------------------------------------------------------ ownership

def test_grads_never_alias():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    given = torch.tensor([1.0, 1.0])
    (a + b).backward(given)
    assert not np.shares_memory(a.grad.numpy(), b.grad.numpy())
    assert not np.shares_memory(a.grad.numpy(), given.numpy())
    a.grad.mul_(5)
    assert b.grad.tolist() == given.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("expanded", [lambda side: side.zeros(()).expand(3), lambda side: side.zeros(2, 1).expand(2, 3)[0]])
def test_a_grad_whose_elements_share_memory_is_not_added_to(expanded, oracle):
    for side in (torch, oracle):
        x = side.ones(3, requires_grad=True)
        x.grad = expanded(side)
        with pytest.raises(RuntimeError, match="more than one element .* refers to a single memory location"):
            (x * side.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert x.grad.tolist() == [0.0] * 3


def test_captured_gradients_never_alias():
    a = leaf(1.0, 2.0)
    h = a * 1.0
    b = h + 0.0
    for output in (b, b * 1.0):              # its own gradient passes on as it is, or one that a node made
        given = torch.ones(2)
        grads = torch.autograd.grad(output, [h, b, a], given, retain_graph=True)
        for i, g in enumerate(grads):
            g.mul_(10.0)
            assert given.tolist() == [1.0, 1.0]
            assert all(other.tolist() == [1.0, 1.0] for other in grads[i + 1:])


def test_an_input_that_is_there_twice_gets_one_tensor(oracle):
    for side in (torch, oracle):
        x = side.ones(2, requires_grad=True)
        first, between, second = side.autograd.grad((x * 2).sum(), (x, side.autograd.graph.get_gradient_edge(x), x))
        assert first is second is between
        used = (first * side.ones(2, requires_grad=True)).sum()
        second.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            used.backward()


def test_grad_is_laid_out_as_its_leaf():
    a = torch.tensor(np.asfortranarray(np.ones((3, 4))))
    a = torch.from_numpy(np.asfortranarray(np.ones((3, 4)))).requires_grad_()
    a.sum().backward()
    assert a.grad.numpy().flags.f_contiguous and a.grad.numpy().flags.writeable
    b = torch.ones(3, 4, requires_grad=True)
    b.t().sum(0).sum().backward()
    assert b.grad.is_contiguous()


def test_a_hook_that_edits_its_argument_changes_nobody_elses_gradient():
    a, b = leaf(1.0, 2.0), leaf(1.0, 2.0)
    given = torch.ones(2)
    a.register_hook(lambda g: g.mul_(0.0))
    (a + b).backward(given)
    assert a.grad.tolist() == [0.0, 0.0]
    assert b.grad.tolist() == given.tolist() == [1.0, 1.0]


def test_four_threads_lose_no_contribution():
    w = torch.zeros(1000, requires_grad=True)

    def work():
        for _ in range(100):
            (w * 1.0).sum().backward()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert w.grad.numpy().min() == w.grad.numpy().max() == 400.0


# ----------------------------------------------------------------------------------------------------------- saved values

def test_modified_input_is_named_with_op_shape_and_versions():
    a = leaf(1.0, 2.0)
    h = a * 1.0
    y = h.exp() * h
    h.add_(1.0)
    with pytest.raises(RuntimeError, match=r"MulBackward0.*'other'.*\(2,\).*modified by an inplace operation.*version 1; expected "
                       r"version 0"):
        y.sum().backward()
    assert a.grad is None


def test_modified_result():
    a = leaf(1.0, 2.0)
    y = a.exp()
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="ExpBackward0.*modified by an inplace operation"):
        y.sum().backward()


def test_version_check_stays_alive_under_saved_tensor_hooks():
    a = leaf(1.0, 2.0)
    h = a * 1.0
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        y = h * h
    h.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_pack_hook_may_not_edit_its_input():
    a = leaf(1.0, 2.0)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2.0), lambda t: t), torch.no_grad():
        pass
    h = a * 1.0
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().mul_(2.0), lambda t: t):
            h * h


def test_a_pack_hook_may_make_its_input_a_leaf():
    a = leaf(1.0, 2.0)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().requires_grad_(), lambda t: t):
        y = a * a.exp()
    y.sum().backward()
    np.testing.assert_allclose(a.grad, [2 * np.e, 3 * np.e ** 2], rtol=1e-6)


def test_unpacked_values_carry_their_history():
    a = leaf(0.5, 1.5)
    store = []

    def pack(t):
        store.append(t.detach().numpy().copy())
        return len(store) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda k: torch.from_numpy(store[k])):
        y = (a * a).tanh().exp().sum()
    g, = torch.autograd.grad(y, a, create_graph=True)
    h, = torch.autograd.grad(g.sum(), a)
    b = leaf(0.5, 1.5)
    g2, = torch.autograd.grad((b * b).tanh().exp().sum(), b, create_graph=True)
    h2, = torch.autograd.grad(g2.sum(), b)
    np.testing.assert_allclose(h.numpy(), h2.numpy(), rtol=1e-6)


def test_second_backward_says_what_to_do():
    a = leaf(1.0, 2.0)
    y = a.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="ExpBackward0.*second time.*retain_graph=True"):
        y.backward()
    with pytest.raises(RuntimeError, match="freed"):
        print(y.grad_fn.next_functions[0][0]._saved_result)
    assert a.grad.tolist() == pytest.approx([np.e, np.e ** 2])


def test_after_a_failed_backward_everything_works():
    a = leaf(1.0, 2.0)
    y = a * 2.0

    def stop(g):
        raise KeyError("stop")
    handle = y.register_hook(stop)
    with pytest.raises(KeyError, match="stop"):
        y.exp().sum().backward()
    assert a.grad is None and torch.is_grad_enabled()
    handle.remove()
    (y * 1.0).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]


# ------------------------------------------------------------------------------------------------------------------ modes

def test_a_mode_object_can_be_entered_while_it_is_entered():
    mode = torch.no_grad()
    with mode:
        with mode:
            assert not torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    off = torch.set_grad_enabled(False)
    with off:
        with off:
            pass
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_modes_are_per_thread():
    seen = []
    with torch.no_grad():
        t = threading.Thread(target=lambda: seen.append((torch.is_grad_enabled(), (leaf(1.0) * 2).requires_grad)))
        t.start()
        t.join()
    assert seen == [(True, True)]


def test_no_numpy_warning_escapes_in_any_thread():
    def work():
        x = torch.tensor([0.0, -1.0, 1e30], requires_grad=True)
        (x.log() + 1 / x + x * x + x.exp()).sum().backward()
    errors = []

    def guarded():
        try:
            work()
        except BaseException as e:
            errors.append(e)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        work()
        t = threading.Thread(target=guarded)
        t.start()
        t.join()
    assert not errors
    with np.errstate(all="raise"):
        work()
        with pytest.raises(FloatingPointError):
            np.float32(1) / np.float32(0)


def test_an_op_in_a_finaliser_inside_an_op(no_collector):
    """A body may allocate, the collector may run, a finaliser may use the library: the context is entered already then."""
    out = []
    grad_mode.quiet_run(lambda: grad_mode.local.state.run(lambda: out.append((torch.ones(2) * 3.0).tolist())))
    assert out == [[3.0, 3.0]]


# ----------------------------------------------------------------------------------------------------------------- memory

def test_graphs_die_with_their_tensors_without_the_collector(no_collector):
    a = leaf(0.5, 1.0)
    y = (a.exp().tanh() * a).sigmoid().sum()
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None
    g, = torch.autograd.grad((a.tanh() * a).sum(), a, create_graph=True)
    node = weakref.ref(g.grad_fn)
    del g
    assert node() is None
    h = a * 2.0
    h.retain_grad()
    z = (h * h).sum()
    z.backward()
    alive = weakref.ref(h)
    del h, z
    assert alive() is None
    alive = weakref.ref(a)
    del a
    assert alive() is None


def test_in_place_and_views_leave_no_cycle(no_collector):
    a = leaf(0.5, 1.0, 2.0)
    y = a * 2.0
    v = y[1:]
    v.mul_(3.0)
    y.add_(v.sum())
    y.sum().backward()
    alive = [weakref.ref(y), weakref.ref(v), weakref.ref(y.grad_fn)]
    del y, v
    assert [r() for r in alive] == [None, None, None]


def test_a_graph_of_million_nodes_in_a_small_stack(in_small_stack):
    def work():
        x = torch.ones(2, requires_grad=True)
        y = x
        for _ in range(1_000_000):
            y = y + 1.0
        y.sum().backward()
        del y
        found = x.grad.tolist()
        y = x.exp()
        for _ in range(100_000):
            y = y * y
        del y
        return found
    assert in_small_stack(work) == [1.0, 1.0]


def test_what_hooks_may_not_return():
    for register in (lambda x, z: z.grad_fn.register_hook(lambda given, grads: given[0]),
                     lambda x, z: z.grad_fn.register_prehook(lambda grads: grads[0]),
                     lambda x, z: x.register_post_accumulate_grad_hook(lambda t: 1)):
        x = torch.tensor([1.0], requires_grad=True)
        z = x * 2
        register(x, z)
        with pytest.raises(TypeError):
            z.backward()


def test_a_node_can_be_called():
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    for_x, for_w = (x * w).grad_fn(torch.tensor([1.0, 10.0]))
    assert for_x.tolist() == [3.0, 40.0] and for_w.tolist() == [1.0, 20.0] and for_x.grad_fn.name() == "MulBackward0"
    assert x.sin().grad_fn(torch.ones(2)).tolist() == pytest.approx([0.540302, -0.416147])


@pytest.mark.parametrize("grads", [lambda one: (), lambda one: (one, one), lambda one: (3,)], ids=["none", "two", "number"])
def test_a_node_is_called_with_one_gradient_per_result(grads, oracle):
    for module in (autograd_gpu, oracle):
        node = module.ones(2, requires_grad=True).sin().grad_fn
        given = grads(module.ones(2))
        with pytest.raises(TypeError, match="argument"):
            node(*given)


@pytest.mark.parametrize("leaf", [lambda t: t, lambda t: t.t(), lambda t: t[:, ::2]], ids=["whole", "transposed", "with gaps"])
def test_a_recorded_gradient_is_copied_in_the_layout_of_its_leaf(leaf, oracle):
    def run(torch):
        x = leaf(torch.ones(2, 3)).detach().requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cycle that create_graph makes
            (x * x * x.exp()).sum().backward(create_graph=True)
        return x.grad.grad_fn.name(), [None if n is None else n.name() for n, _ in x.grad.grad_fn.next_functions], x.grad.stride()
    assert run(autograd_gpu) == run(oracle)


def test_what_was_not_saved_is_none_after_the_backward_too(oracle):
    def run(torch):
        y = torch.ones(2, requires_grad=True) * 2.0
        before = y.grad_fn._saved_self
        y.sum().backward()
        return before, y.grad_fn._saved_self
    assert run(autograd_gpu) == run(oracle)


@pytest.mark.parametrize("place", ["tensor hook", "hook", "prehook", "leaf hook", "backward"])
def test_a_leaf_as_gradient_is_shown_as_a_leaf(place, oracle):
    def run(torch):
        seen, w, x = [], torch.tensor([2.0, 3.0], requires_grad=True), torch.ones(2, requires_grad=True)

        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                if place == "backward":
                    seen.append(grad)
                return grad
        y = Same.apply(x)
        register = {"tensor hook": y.register_hook, "hook": y.grad_fn.register_hook, "prehook": y.grad_fn.register_prehook,
                    "leaf hook": x.register_hook, "backward": lambda f: None}[place]
        register(lambda *grads: seen.append(grads[-1] if isinstance(grads[-1], torch.Tensor) else grads[-1][0]))
        torch.autograd.grad(y, x, w, create_graph=True)
        (seen[0] * seen[0]).sum().backward()
        return seen[0].is_leaf, seen[0].requires_grad, seen[0].grad_fn, w.grad.tolist()
    assert run(autograd_gpu) == run(oracle)


def hook(grad):                              # a function of the module can be pickled
    return grad * 2


@pytest.mark.parametrize("again", [copy.copy, lambda h: pickle.loads(pickle.dumps(h))], ids=["copy", "pickle"])
def test_a_handle_is_copied_with_its_hooks(again, oracle):
    def run(torch):
        x = torch.ones(2, requires_grad=True)
        handle = x.register_hook(hook)
        copied = again(handle)
        before = len(copied.hooks_dict_ref() or ())
        copied.remove()
        x.sum().backward()
        return before, x.grad.tolist()
    assert run(autograd_gpu) == run(oracle)


def test_a_copied_handle_of_several_hooks_removes_them(oracle):
    def run(torch):
        x, seen = torch.ones(2, requires_grad=True), []
        copy.copy(torch.autograd.graph.register_multi_grad_hook((x,), seen.append)).remove()
        x.sum().backward()
        return len(seen)
    assert run(autograd_gpu) == run(oracle) == 0


def test_a_leafs_gradient_in_another_dtype():
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t().requires_grad_()
    assert w.grad_dtype is torch.float32
    w.grad_dtype = torch.float64
    seen = []
    w.register_hook(lambda g: seen.append(g.dtype))
    for _ in range(2):
        (w * 0.1).sum().backward()
    assert w.grad.dtype is torch.float64 and seen == [torch.float64] * 2
    assert torch.autograd.grad((w * w).sum(), w, create_graph=True)[0].dtype is torch.float64
    with pytest.raises(RuntimeError, match="grad_dtype"):
        w.grad = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="already a gradient"):
        w.grad_dtype = torch.float16
    with pytest.raises(RuntimeError, match="leaf"):
        (w * 2).grad_dtype = torch.float64
    w.grad, w.grad_dtype = None, None
    w.grad = torch.ones(2, 2, dtype=torch.float16)
    assert w.grad_dtype is None


def test_variable_is_the_old_name_of_a_tensor(oracle):
    def run(torch):
        make, x, y = torch.autograd.Variable, torch.ones(2), torch.ones(2, requires_grad=True) * 2
        z = make(x, requires_grad=True)
        (z * 3).sum().backward()
        with torch.no_grad():
            z.add_(1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            old = make(x, volatile=True)
        refused = [said(lambda args=args: make(*args), "Variable data has to be a tensor", "floating point and complex")
                   for args in ([[1.0]], (torch.tensor([1, 2]), True))]
        return [x, x._version, z.grad, z is x, make(y), make(y).is_leaf, make(data=x, name="x"), old, len(seen), make(), *refused,
                isinstance(x, make), isinstance(3, make), issubclass(torch.Tensor, make), make is torch.autograd.variable.Variable,
                type(z) is torch.Tensor, hasattr(make, "backward")]
    assert result(run, torch) == result(run, oracle)
