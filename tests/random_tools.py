"""What random programs call by name, for one of the two packages: hooks, Functions, blocks, and the like."""
from __future__ import annotations

import copy

import autograd_gpu


def array_of(t):
    """A tensor's values; the memory, where that holds them as they are."""
    if isinstance(t, autograd_gpu.Tensor):
        return t._array
    return t.numpy(force=True)


def tools(torch):
    """The names that steps use, for one of the two packages."""
    seen = []                                # (label, gradients) of each call of a hook
    old_grads = []                           # .grad of the tensors before the step
    ours = torch is autograd_gpu

    def told(x):
        if isinstance(x, tuple):
            return [told(y) for y in x]
        return x if x is None else (array_of(x).copy(), x.requires_grad and x.numel() > 0)         # rule 2

    def values(*tensors):
        return [None if t is None else array_of(t).copy() for t in tensors]

    def see(label):
        """A hook that returns nothing, of a tensor or a node."""
        return lambda *grads: seen.append((label, told(grads)))

    def scale(label, k):
        """A tensor's hook that returns a new gradient."""
        return lambda g: (seen.append((label, told(g))), g * k)[1]

    def edit(label, k):
        """A tensor's hook that writes to the gradient it is given."""
        def hook(g):
            seen.append((label, told(g)))
            if ours:
                g.mul_(k)
                return None
            return g.clone().mul_(k)         # rule 4
        return hook

    def edit_grad(label):
        """A hook after accumulation that writes to .grad."""
        def hook(t):
            seen.append((label, None if t.grad is None else told(t.grad)))
            if t.grad is not None:
                with torch.no_grad():
                    if not ours and not any(t.grad is g for g in old_grads):             # made by this backward: rule 4
                        t.grad.data = t.grad.data.clone()
                    t.grad.mul_(2)
        return hook

    def scale_inputs(label):
        """A node's hook that returns other gradients of its inputs."""
        return lambda ins, outs: (seen.append((label, told(outs))), tuple(None if g is None else g * 2 for g in ins))[1]

    def scale_outputs(label):
        """A node's prehook that returns other gradients."""
        return lambda outs: (seen.append((label, told(outs))), tuple(None if g is None else g * 3 for g in outs))[1]

    def weigh(*tensors):
        """A scalar that each element has another share in."""
        total = 0
        for i, t in enumerate(tensors):
            w = torch.arange(1, t.numel() + 1, dtype=torch.float64).reshape(t.shape) * 0.25 + i
            product = (t * w).sum()
            total = total + (product.real if product.is_complex() else product)
        return total

    def watch(label, t):
        """A tensor with a hook, if it can have one."""
        if t.requires_grad:
            t.register_hook(see(label))
        return t

    def noted(label, t):
        """A tensor, which is noted: what runs again shows."""
        seen.append((label, told(t)))
        return t

    def direction(t, k):
        """A tangent for a tensor."""
        return ((torch.arange(t.numel(), dtype=torch.float64) * 1.7 + k).cos().reshape(t.shape) * (1 - 2j * t.is_complex())).to(t.dtype)

    def tangent(t, recorded=False):
        """The tangent of a tensor as one that nobody else has; if recorded, as one that depends on all that the tensor depends on."""
        found = forward_ad.unpack_dual(t).tangent
        return (0 if found is None else found) + t * 0 if recorded else (0 if found is None else found.detach()) + t.detach() * 0

    def saving(how):
        """saved_tensors_hooks that pack a tensor as it is, or a copy of it."""
        pack = {"same": lambda t: t, "copy": lambda t: t.detach().clone()}[how]
        return torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)

    def grad(*args, **options):
        """autograd.grad, as tensors that nobody else has."""
        return tuple(None if g is None else g.clone() for g in torch.autograd.grad(*args, **options))      # rule 8

    forward_ad, Function = torch.autograd.forward_ad, torch.autograd.Function

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return 2 * g * x.conj()

        @staticmethod
        def jvp(ctx, t):
            x, = ctx.saved_tensors
            return 2 * t * x

    class Tanh(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * (1 - y * y).conj()

    class Dirty(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx, g):
            return g * 3

        @staticmethod
        def jvp(ctx, t):
            return t.mul_(3)

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t.view_as(t)

    class Flat(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape) * 2

        @staticmethod
        def jvp(ctx, t):
            return t.view(-1)

    class Two(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            count = (x * 0 + 1).detach()
            ctx.mark_non_differentiable(count)
            return x * y, count, x + 2 * y

        @staticmethod
        def backward(ctx, g, _, h):
            x, y = ctx.saved_tensors
            return (g * y.conj() + h).sum_to_size(x.shape), (g * x.conj() + 2 * h).sum_to_size(y.shape)

        @staticmethod
        def jvp(ctx, s, t):
            x, y = ctx.saved_tensors
            return s * y + x * t, None, s + 2 * t

    class Half(Function):
        """Gives no zeros, and no gradient to its second input."""
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            ctx.save_for_forward(x, y)
            return x * 0.5, y.clone()

        @staticmethod
        def backward(ctx, g, h):
            seen.append(("Half", values(g, h)))          # rule 25
            return None if g is None else g * 0.5, None

        @staticmethod
        def jvp(ctx, s, t):
            seen.append(("Half's jvp", values(s, t)))    # rule 20
            x, y = ctx.saved_tensors
            return torch.zeros_like(x) if s is None else s * 0.5, torch.zeros_like(y) if t is None else t.clone()

    graph, checkpoint = torch.autograd.graph, torch.utils.checkpoint
    made = (seen, see, scale, edit, edit_grad, scale_inputs, scale_outputs, watch, noted, weigh, grad, saving, graph.save_on_cpu,
            graph.disable_saved_tensors_hooks, checkpoint.checkpoint, checkpoint.checkpoint_sequential, forward_ad.dual_level,
            forward_ad.enter_dual_level, forward_ad.exit_dual_level, forward_ad.make_dual, forward_ad.unpack_dual, direction, tangent,
            Square, Tanh, Dirty, Same, Flat, Two, Half)
    names = {getattr(f, "__name__", "seen"): f for f in made}
    return dict(names, old_grads=old_grads, torch=torch, copy=copy)
