"""Writes in place: what happens to the history, and what is refused. PyTorch's results are written out."""
import numpy as np
import pytest

import autograd_gpu as torch
from tests.parity import plain, result, said


def leaf(*values):
    return torch.tensor(list(values), requires_grad=True)


def test_an_operation_without_a_derivative_cuts_the_history():
    x = leaf(0.5, 0.7)
    y = x * 1
    y.gt_(0.6)
    assert y.grad_fn.name() == "GtBackward0" and y.tolist() == [0.0, 1.0]
    (y * torch.tensor([2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    x.grad = None
    y = x * 1
    y[0:1].gt_(0.1)
    (y * torch.tensor([2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]


def test_a_view_of_a_leaf_that_is_a_view():
    a = torch.zeros(3)
    v = a.view(3)
    v.requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        v[0:1].mul_(2)
    with torch.no_grad():
        v[0:1].add_(2)
    (v * 3).sum().backward()
    assert v.is_leaf and v.grad.tolist() == [3.0, 3.0, 3.0] and a.tolist() == [2.0, 0.0, 0.0]


def test_an_integer_tensor_stays_undifferentiable():
    x = leaf(1.5, 2.5)
    b = torch.zeros(3, dtype=torch.int64)
    b[0] = x[1]
    assert b.tolist() == [2, 0, 0] and not b.requires_grad


def test_retain_grad_of_a_view_survives_writes_through_the_base_and_itself():
    for write in (lambda h, v: h.mul_(3), lambda h, v: v.mul_(3)):
        x = torch.ones(4, requires_grad=True)
        h = x * 1
        v = h[:2]
        v.retain_grad()
        write(h, v)
        v.sum().backward()
        assert v.grad.tolist() == [1.0, 1.0] and x.grad.tolist() == [3.0, 3.0, 0.0, 0.0]


def test_double_backward_through_a_write_that_saved_its_result():
    x = leaf(0.5, 0.7)
    y = x * 1
    y[0:1].exp_()
    g, = torch.autograd.grad((y ** 2).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == pytest.approx([10.873127, 2.0])


@pytest.mark.parametrize("hooked", [False, True])
def test_double_backward_with_respect_to_a_view_that_was_written_to(hooked):
    for name, slope in (("exp_", lambda v: 4 * v), ("sqrt_", lambda v: 0 * v), ("sin_", lambda v: 2 * (1 - v * v) ** 0.5)):
        x = leaf(0.3, 0.6)
        v = (x * 1)[:]
        getattr(v, name)()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t) if hooked else torch.enable_grad():
            loss = (v * v).sum()
        g, = torch.autograd.grad(loss, x, create_graph=True)         # 2 v v', and v' is v or 1 / 2v, or does not name v
        found, = torch.autograd.grad(g.sum(), v)
        assert found.tolist() == pytest.approx(slope(v.detach()).tolist(), abs=1e-6), name


def test_a_refused_write_changes_nothing():
    a = torch.zeros(3, 2)
    w = torch.ones(2, requires_grad=True)
    rows = a.unbind(0)
    with pytest.raises(RuntimeError, match="multiple views"):
        rows[0].copy_(w)
    assert a.tolist() == [[0.0, 0.0]] * 3 and a._version == 0 and not a.requires_grad
    assert (rows[1] * 2).tolist() == [0.0, 0.0]
    b = torch.ones(2)
    with pytest.raises(RuntimeError, match="broadcast"):
        b.add_(torch.ones(3, 2))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int64).add_(1.5)
    assert b.tolist() == [1.0, 1.0] and b._version == 0


def test_gradients_of_a_sum_can_be_written_to():
    x = torch.tensor(1.7, requires_grad=True)
    g, = torch.autograd.grad(x.sum(), x, create_graph=True)
    g.mul_(2)
    assert g.item() == 2.0
    h, = torch.autograd.grad(x.sum(), x)
    assert h.item() == 1.0


def test_views_made_in_no_grad():
    x = leaf(1.0, 2.0, 3.0)
    with torch.no_grad():
        y = x.view(-1)
    assert y.requires_grad and y.is_leaf
    h = x * 1
    with torch.no_grad():
        v = h[:2]
    with pytest.raises(RuntimeError, match="no_grad"):
        v.mul_(2)
    h.mul_(2)
    with pytest.raises(RuntimeError, match="no_grad"):
        _ = v.grad_fn


def test_second_backward_through_a_write_into_a_view():
    w = leaf(1.0)
    y = torch.zeros(2)
    y[0:1] = w
    s = y.sum()
    s.backward()
    with pytest.raises(RuntimeError, match="second time"):
        s.backward()
    assert w.grad.tolist() == [1.0]


def test_copies_of_expanded_and_permuted_tensors_are_laid_out_as_in_pytorch():
    w = torch.ones(3, requires_grad=True)
    b = w.expand(2, 3).clone()
    b.flatten().mul_(2)
    b.reshape(-1)[0] = 100.0
    b.sum().backward()
    assert b.tolist() == [[100.0, 2.0, 2.0], [2.0, 2.0, 2.0]] and w.grad.tolist() == [2.0, 4.0, 4.0]
    x = torch.ones(2, 3).t()
    assert x.clone().stride() == x.stride() and torch.zeros_like(x).stride() == x.stride()
    assert torch.cat([x, x]).is_contiguous() and torch.stack([x, x]).is_contiguous()
    assert torch.arange(8.0).reshape(1, 2, 4)[:, :, torch.tensor([0, 2])].is_contiguous()


def test_flip_is_laid_out_as_its_input(oracle):
    def program(torch):
        x = torch.arange(24).reshape(2, 3, 4)
        inputs = [x, x.mT, x.permute(2, 0, 1), x[:, :1].expand(2, 3, 4), x[:, ::2], x[..., 1]]
        return [(t.flip(d).stride(), t.flip(d).tolist()) for t in inputs for d in (0, -1, (0, 1))]
    assert program(torch) == program(oracle)


def test_flip_never_shares_memory():
    x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    y = x * 1
    f = y.flip(0)
    f.mul_(5)
    assert y.tolist() == [[1.0, 2.0, 3.0]]
    (y * f).sum().backward()
    assert x.grad.tolist() == [[10.0, 20.0, 30.0]]


@pytest.mark.parametrize("f", [torch.relu, torch.nn.functional.leaky_relu, torch.nn.functional.hardtanh,
                               torch.nn.functional.softshrink, torch.nn.functional.hardshrink])
def test_gradients_of_piecewise_linear_functions_can_be_differentiated(f):
    x = leaf(2.0, -3.0, 0.7)
    g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    (g ** 2).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_0d_results_of_several_outputs_and_retained_grads_stay_arrays():
    x = leaf(2.0, 3.0)
    a, b = x.unbind(0)
    g = torch.autograd.grad(a * a + a * b, [a, b])
    assert [t.item() for t in g] == [7.0, 2.0] and str(g[0].device) == "cpu"
    x = torch.tensor(2.0, requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.backward(retain_graph=True)
    y.backward()
    assert y.grad.numpy() == 2.0


def test_views_whose_elements_share_memory_add_their_gradients_up():
    b = torch.zeros(3, requires_grad=True)
    rows = b.expand(4, 3)
    seen = []
    for _ in range(2):
        b.grad = None
        (rows * rows + rows).sum().backward()
        seen.append(b.grad.tolist())
        with torch.no_grad():
            b.sub_(0.1 * b.grad)
    assert seen[0] == [4.0] * 3 and seen[1] == pytest.approx([0.8] * 3)
    x = torch.ones(4, requires_grad=True)
    h = x * 1
    v = h.unfold(0, 2, 1)
    h.mul_(2)
    weights = torch.tensor([[1.0, 2], [3, 4], [5, 6]])
    (v * weights).sum().backward()
    assert x.grad.tolist() == [2.0, 10.0, 18.0, 12.0]
    x.grad = None
    h = x * 1
    v = h.unfold(0, 2, 1)
    h.mul_(2)
    g, = torch.autograd.grad((v * v * weights).sum(), x, create_graph=True)
    second, = torch.autograd.grad(g.sum(), x)
    assert second.tolist() == [8.0, 40.0, 72.0, 48.0]


@pytest.mark.parametrize("view", [
    lambda h: h.unfold(0, 2, 1).imag, lambda h: h.expand(3, *h.shape).real, lambda h: h.t().unfold(1, 3, 1)[1:].real,
    lambda h: h.unfold(1, 2, 1), lambda h: torch.view_as_real(h)[:, 0].expand(2, 4, 2),
    lambda h: torch.view_as_real(h.expand(2, *h.shape))])
@pytest.mark.parametrize("real", [False, True])
def test_views_of_parts_of_complex_numbers_that_share_memory_add_their_gradients_up(view, real):
    def loss(v):
        y = v * v * (torch.arange(v.numel()) + 1).reshape(v.shape)
        return torch.view_as_real(y).sum() if y.is_complex() else y.sum()

    def gradients(rewritten):
        x = torch.randn(4, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
        h = x * 1 if real else torch.view_as_complex(x) * 1
        if rewritten:
            v = view(torch.view_as_complex(h) if real else h)
            h.mul_(2)
        else:
            v = view(torch.view_as_complex(h * 2) if real else h * 2)
        first, = torch.autograd.grad(loss(v), x, retain_graph=True)
        g, = torch.autograd.grad(loss(v), x, create_graph=True)
        return first, g, *torch.autograd.grad(loss(g), x)
    for got, expected in zip(gradients(True), gradients(False), strict=True):
        assert torch.allclose(got, expected)


def test_fill_through_an_expanded_view_is_refused_where_it_is_recorded():
    x = torch.ones(3, requires_grad=True)
    v = (x * 1).expand(2, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        v.fill_(torch.tensor(2.0, requires_grad=True))


def test_an_infinite_gradient_of_max_reaches_only_the_largest():
    x = leaf(0.0, -1.0, -2.0)
    x.max().sqrt().backward()
    assert x.grad.tolist() == [float("inf"), 0.0, 0.0]


def test_comparisons_in_place_have_an_edge_to_the_other_operand():
    w = leaf(1.0, 2.0)
    y = torch.zeros(2)
    y.lt_(w)
    (y * w * w).sum().backward()
    assert y.grad_fn.name() == "LtBackward1" and w.grad.tolist() == [2.0, 4.0]
    y = torch.zeros(2)
    y.logical_or_(w)
    assert not y.requires_grad


def test_split_views_can_be_read_after_their_base_was_updated():
    x = torch.ones(4, requires_grad=True)
    a, b = x.split(2)
    with torch.no_grad():
        x.mul_(2)
        assert (a * 2).tolist() == [4.0, 4.0] and a.clone().tolist() == [2.0, 2.0]
    assert a.requires_grad
    with pytest.raises(RuntimeError, match="multiple views"):
        a * 2


def test_a_view_made_in_no_grad_has_no_gradient_of_its_own():
    x = leaf(1.0, 2.0)
    with torch.no_grad():
        v = x[:1]
    (v * 3).sum().backward()
    assert v.grad is None and x.grad is None


def test_prehooks_see_only_differentiable_results():
    x = torch.ones(2, 3, requires_grad=True)
    v = x.min(1)[0]
    v.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    v.sum().backward()
    assert x.grad.sum().item() == 4.0


def test_views_of_views_without_end(in_small_stack):
    def run():
        x = torch.ones(4, requires_grad=True)
        base = x * 1
        v = base
        for i in range(20001):               # 40 times as many as are linked; odd, so that the last one is a matrix
            v = v.view(2, 2) if i % 2 == 0 else v.view(4)
        assert len(v._view.steps) == 20001 and v._view.base is base
        v[0].mul_(3)
        base.sum().backward()
        return x.grad.tolist()
    assert in_small_stack(run) == [3.0, 3.0, 1.0, 1.0]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_hooks_of_a_write_see_no_gradient_of_a_base_without_history(graph, recorded, oracle):
    def run(torch):
        x = torch.ones(2, requires_grad=True)
        base = torch.ones(2, 2, requires_grad=recorded) * 2
        base[0].copy_(x)
        seen = []
        base.grad_fn.register_hook(lambda inputs, outputs: seen.append([g if g is None else g.detach() for g in (*inputs, *outputs)]))
        (base * base).sum().backward(create_graph=graph)
        return [*seen, x.grad.detach()]
    assert result(run, torch) == result(run, oracle)


@pytest.mark.parametrize("graph", [False, True])
def test_a_freed_write_that_no_gradient_reaches_is_no_error(graph, oracle):
    def run(torch):
        class Second(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.set_materialize_grads(False)
                return x * 2, y * 3

            @staticmethod
            def backward(ctx, g, h):
                return g, None
        x = torch.ones(2, requires_grad=True) + torch.ones(2)
        x[:1].sigmoid_()
        x.sum().backward()
        second = Second.apply(torch.ones(2, requires_grad=True), x)[1]
        return [result(lambda _: second.sum().backward(create_graph=graph), torch), result(lambda _: x.sum().backward(), torch)]
    assert run(torch) == run(oracle) == [None, "RuntimeError"]


@pytest.mark.parametrize("name", ["logical_not_", "logical_and_"])
def test_what_autograd_does_not_see_is_still_a_write(name):
    """Memory that elements share, or that is read-only, is not written to; the history stays."""
    args = () if name == "logical_not_" else (torch.ones(3),)
    array = np.ones(3)
    array.flags.writeable = False
    for t in (torch.ones(1).expand(3), torch.from_numpy(array)):
        with pytest.raises(RuntimeError, match="single memory location|read-only"):
            getattr(t, name)(*args)
    y = torch.ones(3, requires_grad=True) * 1
    assert getattr(y, name)(*args) is y and y.grad_fn.name() == "MulBackward0" and y._version == 1


@pytest.mark.parametrize("change", [lambda t: t.t_(), lambda t: t.transpose_(0, 1), lambda t: t.squeeze_(), lambda t: t.unsqueeze_(0)])
@pytest.mark.parametrize("part", [lambda h: h, lambda h: h[:, 1:]], ids=["whole", "view"])
def test_a_shape_changed_in_no_grad(change, part, oracle):
    """A tensor that is no view keeps the history of the old shape, and where that does not fit its backward raises; a leaf is one still."""
    def run(torch):
        x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        h = part(x * 2)
        w = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        with torch.no_grad():
            change(h)
            change(w)
        (w * w).sum().backward()
        found = [h.requires_grad, h.is_leaf, h.grad_fn.name(), w.is_leaf, w.grad.tolist()]
        try:
            (h * h).sum().backward()
        except RuntimeError:
            return found
        return [*found, x.grad.tolist()]
    assert run(torch) == run(oracle)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_a_comparison_with_what_requires_grad(name, oracle):
    def written(torch):
        w = torch.ones(2, requires_grad=True)
        t, u = torch.zeros(2), w * 2
        getattr(t, name + "_")(w)
        getattr(u, name + "_")(1.5)
        (t * 3).sum().backward()
        return t.requires_grad, t.grad_fn.name(), u.grad_fn.name(), t.tolist(), w.grad.tolist()
    assert written(torch) == written(oracle)


def test_numbers_are_copied():
    t = torch.ones(2, dtype=torch.int64)
    assert t.copy_(2.5).tolist() == [2, 2] and t.copy_(True).tolist() == [1, 1] and t._version == 2
    x = leaf(1.0, 2.0)
    y = x * 1
    y.copy_(3)
    assert y.tolist() == [3.0, 3.0] and y.grad_fn.name() == "torch::autograd::CopyBackwards"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_an_imaginary_number_is_not_written_into_real_memory(dtype):
    t = torch.ones(2, dtype=dtype)
    for write in (lambda: t.__setitem__(0, 1j), lambda: t.fill_(2 + 1j), lambda: t.masked_fill_(t > 0, 1j)):
        with pytest.raises(RuntimeError, match="without overflow"):
            write()
    t[0] = 2 + 0j
    assert t.tolist() == [2.0, 1.0] and t._version == 1


@pytest.mark.parametrize("looked", [False, True])
def test_a_view_taken_before_a_sibling_s_write_was_recorded(oracle, looked):
    def program(torch):
        base = torch.zeros(2, 3)
        first, second = base[0], base[1]
        second.add_(torch.ones(3, requires_grad=True))
        if looked:
            assert first.grad_fn is not None
        return said(lambda: first.sin_(), "a leaf Variable that requires grad is being used"), first._version, base.grad_fn.name()
    assert program(torch) == program(oracle)
    assert (program(torch)[0] is None) == looked


@pytest.mark.parametrize("key", [(0,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_gradients_of_repeated_negative_and_broadcast_indices_add_up(oracle, key):
    def program(torch):
        x = torch.tensor(np.random.RandomState(0).randn(3, 4, 5), requires_grad=True)
        at = [torch.tensor([[0, -1, 1, 1]]), torch.tensor([[2, 2, 0, -3]]).mT, torch.tensor([[1, 1, -5, 3]])]
        indices = tuple(at[d] if d in key else slice(None) for d in range(3))
        y = x[indices]
        (y * y).sum().backward()
        z = torch.zeros(3, 4, 5, dtype=torch.float64)
        z[indices] += 1
        return plain(y), plain(x.grad), plain(z)
    ours, theirs = program(torch), program(oracle)
    np.testing.assert_allclose(ours[1][0], theirs[1][0], rtol=1e-12)
    assert ours[0] == theirs[0] and ours[2] == theirs[2]


def test_indices_out_of_range_are_refused_where_they_are_added_to():
    out = torch.zeros(3, 4)
    for row, column in ((3, 0), (0, 4), (-4, 0), (0, -5)):
        with pytest.raises(IndexError, match="out of bounds"):
            out.index_put_((torch.tensor([0, row]), torch.tensor([0, column])), torch.ones(2), accumulate=True)
    assert out.abs().sum() == 0


@pytest.mark.parametrize("hooked", [False, True])
def test_a_hook_on_a_view_that_lost_its_history(oracle, hooked):
    def program(torch):
        first, second = (torch.ones(2, requires_grad=True) * 1).split(1)
        if hooked:
            first.register_hook(lambda g: g)
        with torch.no_grad():
            second.mul_(2)
        return said(lambda: first.register_hook(lambda g: g), "multiple views")
    assert program(torch) == program(oracle)
    assert (program(torch) is None) == hooked


def test_log_softmax_of_a_number_is_a_positive_zero(oracle):
    def program(torch):
        return [(1 / torch.tensor(x).log_softmax(0)).item() for x in (-2.0, 0.0, 2.0)]
    assert program(torch) == program(oracle)
