"""What a custom Function's forward computes and keeps: no constant to a second derivative, and nothing that seems recorded meanwhile."""
import pytest

import autograd_gpu
from autograd_gpu.engine.node import PRIME
from tests.test_function import leaf, scale


def kept_on_ctx(ctx, x):
    ctx.kept = x * 2
    return ctx.kept * ctx.kept


def kept_by_saving(ctx, x):
    kept = (x * 2).exp()
    ctx.save_for_backward(kept)
    return kept * 1


def kept_by_a_write(ctx, x):
    ctx.kept = autograd_gpu.zeros_like(x)
    ctx.kept[:] = x * 2
    return ctx.kept * ctx.kept


def kept_from_another_function(ctx, x):
    ctx.kept = [scale(autograd_gpu).apply(x, 2.0)]
    return ctx.kept[0] * ctx.kept[0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("forward", "backward"), [
    (kept_on_ctx, lambda ctx, g: g * 4 * ctx.kept), (kept_by_saving, lambda ctx, g: g * 2 * ctx.saved_tensors[0]),
    (kept_by_a_write, lambda ctx, g: g * 4 * ctx.kept), (kept_from_another_function, lambda ctx, g: g * 4 * ctx.kept[0])])
def test_a_second_derivative_through_what_forward_kept_is_refused(forward, backward, packed):
    """PyTorch takes it for a constant, silently."""
    torch = autograd_gpu
    Scale = scale(torch, lambda ctx, g: (backward(ctx, g), None), lambda ctx, x, k: forward(ctx, x))
    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t) if packed else torch.enable_grad():
        y = Scale.apply(x, 1.0)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="forward computed from its inputs"):
        g.sum().backward()
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == g.tolist()
    for t in [*vars(y.grad_fn).values()]:
        assert not getattr(t, "requires_grad", False)


def test_inside_forward_nothing_seems_recorded_whatever_the_number_of_the_node():
    """One node in so many is of a subclass of its own."""
    torch = autograd_gpu
    seen = set()

    def forward(ctx, x, k):
        for _ in range(2 * PRIME):
            y = x * 2
            y.mul_(2)
            seen.add((y.requires_grad, y.is_leaf, y.grad_fn))
            with pytest.raises(RuntimeError, match="does not require grad"):
                torch.autograd.grad(y.sum(), x)
        return x * 1
    scale(torch, forward=forward).apply(leaf(torch), 1.0)
    assert seen == {(False, True, None)}


def test_what_forward_kept_that_is_constant_is_differentiated_around():
    torch = autograd_gpu

    def forward(ctx, x, k):
        ctx.mask = (x > 1.5).to(x.dtype)
        ctx.save_for_backward(x)
        seen.append((ctx.mask.requires_grad, (x * 2).requires_grad, (x * 2).is_leaf, (x * 2).grad_fn))
        return x * x * ctx.mask
    seen = []
    x = leaf(torch)
    y = scale(torch, lambda ctx, g: (g * 2 * ctx.saved_tensors[0] * ctx.mask, None), forward).apply(x, 1.0)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [0.0, 2.0] and seen == [(False, False, True, None)]


def test_what_leaves_forward_is_a_plain_tensor():
    torch = autograd_gpu
    escaped = []

    def forward(ctx, x, k):
        escaped.extend([x * 2, x[:1], x.view(2)[1]])
        return x * 3
    x = leaf(torch)
    scale(torch, forward=forward).apply(x, 1.0)
    assert [(t.requires_grad, t.grad_fn) for t in escaped] == [(False, None), (True, None), (True, None)]
    assert not (escaped[0] * 2).requires_grad
