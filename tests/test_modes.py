"""Inference mode: each program gives what it gives in PyTorch, values, flags, gradients and errors; and what only ours promises."""
import copy
import gc
import pickle
import threading
import warnings

import numpy as np
import pytest

import autograd_gpu
from tests.parity import plain, result

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def tensors(torch):
    """A leaf, a result and a plain tensor made in normal mode, and an inference tensor."""
    w = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        k = torch.tensor([3.0, 4.0], dtype=torch.float64)
    return w, w * 1, torch.ones(2, dtype=torch.float64), k


def kind(t):
    return t.is_inference(), t.requires_grad, t.is_leaf, t._is_view(), t.tolist()


def error(f):
    """The type of what a call raises, and which of PyTorch's words are in its text."""
    try:
        t = f()
        return kind(t) if hasattr(t, "is_inference") else "no error"
    except Exception as e:
        words = ("Inference tensors cannot be saved for backward", "Inplace update to inference tensor outside InferenceMode",
                 "created in inference mode", "Inference tensors do not track version counter",
                 "Setting requires_grad=True on inference tensor outside InferenceMode", "leaf Variable that requires grad")
        return type(e).__name__, [w for w in words if w in str(e)]


# ------------------------------------------------------------------------------------------------------------ the mode

@program
def switches(torch):
    seen = []

    def note():
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    note()
    with torch.inference_mode():
        note()
        with torch.inference_mode(False):
            note()
            with torch.inference_mode(mode=True):
                note()
            note()
        note()
        with torch.enable_grad():
            note()
            with torch.no_grad():
                note()
        torch.set_grad_enabled(True)
        note()
    note()
    with torch.no_grad():
        with torch.inference_mode(False):
            note()
        note()
        with torch.inference_mode():
            note()
        note()
    note()
    return seen


@program
def decorators(torch):
    @torch.inference_mode
    def bare():
        return torch.is_inference_mode_enabled()

    @torch.inference_mode()
    def called(depth=2):
        return [torch.is_inference_mode_enabled()] + (called(depth - 1) if depth else [])

    @torch.inference_mode(mode=False)
    def off():
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    with torch.inference_mode():
        inside = off()
    return bare(), called(), off(), inside, torch.is_inference_mode_enabled(), bare.__name__


@program
def generators(torch):
    @torch.inference_mode()
    def steps():
        got = yield torch.is_inference_mode_enabled(), torch.ones(1).is_inference()
        try:
            yield got, torch.is_inference_mode_enabled()
        except KeyError:
            yield "caught", torch.is_inference_mode_enabled()
        return 5
    g = steps()
    seen = [next(g), torch.is_inference_mode_enabled(), g.send(3), torch.is_grad_enabled(), g.throw(KeyError())]
    try:
        next(g)
    except StopIteration as stop:
        seen.append(stop.value)
    return seen, torch.is_inference_mode_enabled()


@program
def after_an_exception(torch):
    @torch.inference_mode()
    def fails():
        raise KeyError
    for f in (fails, fails):
        with pytest.raises(KeyError):
            f()
    with pytest.raises(ValueError), torch.inference_mode(), torch.inference_mode(False):
        raise ValueError
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.ones(1).is_inference()


@program
def another_thread(torch):
    seen = []
    with torch.inference_mode():
        thread = threading.Thread(target=lambda: seen.append(
            (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.ones(1).is_inference(), (torch.ones(1) * 2).is_inference())))
        thread.start()
        thread.join()
    return seen


@program
def one_object_used_twice(torch):
    mode = torch.inference_mode()
    seen = []
    for _ in range(2):
        with mode:
            seen.append(torch.is_inference_mode_enabled())
        seen.append(torch.is_inference_mode_enabled())
    return seen


# ------------------------------------------------------------------------------------------------- what is made inside

@program
def made_inside(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        p = torch.tensor([1.0, 2.0]).requires_grad_()
        made = [w * 2, n + 1, k * k, w.exp(), k.sum(), torch.zeros(2), torch.arange(2), torch.from_numpy(np.ones(2)), n.clone(), k.clone(),
                torch.stack([w, n]), torch.cat([w, n]), n == 1, w.argmax(), torch.ones(2, requires_grad=True), p, p * 2,
                torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(n), torch.as_tensor([1.0]), *torch.max(w, 0), *torch.min(n, 0),
                n.to(torch.float32), torch.zeros_like(n), n.new_zeros(1)]
    return [kind(t) for t in made]


@program
def aliases_made_inside(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        made = [n[1:], w[1:], h[1:], k[1:], n.detach(), w.detach(), k.detach(), n.data, k.data, w.view(2), w.view_as(w), n.expand(2, 2),
                *n.split(1), *h.unbind(), *k.split(1), n.t(), n.contiguous(), n.to(torch.float64), k.view(2, 1)[0]]
    return [kind(t) for t in made]


@program
def enable_grad_inside_records_nothing(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode(), torch.enable_grad():
        made = [w * 2, w[1:], torch.ones(2), w.exp().sum(), *w.split(1)]
    return [kind(t) for t in made]


@program
def mode_false_inside_records(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode(), torch.inference_mode(False):
        y = (w * 2).sum()
        made = [w * 2, torch.ones(2), k[1:], n[1:]]
        y.backward()
    return [kind(t) for t in made], w.grad, w.grad.is_inference()


@program
def numbers_beside_tensors(torch):
    """The Tensor made of a number in inference mode may serve later, where something is recorded."""
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        w * 7.5 + 3
    y = (w * 7.5 + 3).sum()
    y.backward()
    return y, w.grad


@program
def written_inside(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        w.add_(1)
        w[0] = 5.0
        h.mul_(2)
        n.add_(w)
        n[1:].mul_(3)
        k.add_(1)
        k[0] = 9.0
        k[1:].zero_()
        k.copy_(n)
        k.unsqueeze_(0)
    return [kind(t) for t in (w, h, n, k)], w._version, h._version, n._version


@program
def write_inside_spoils_what_was_saved(torch):
    w, h, n, k = tensors(torch)
    y = (h * h).sum()
    with torch.inference_mode():
        h.add_(1)
    return error(lambda: y.backward())


@program
def copies(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        inside = [copy.deepcopy(t) for t in (w, n, k)]
    return [kind(t) for t in (*inside, copy.deepcopy(k), pickle.loads(pickle.dumps(k)))]


# --------------------------------------------------------------------------------------------------- inference tensors outside

@program
def is_inference(torch):
    w, h, n, k = tensors(torch)
    return torch.is_inference(k), torch.is_inference(w), error(lambda: torch.is_inference(1)), error(lambda: torch.is_inference())


@program
def versions(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        v = n[1:]
    return error(lambda: k._version), error(lambda: k[0]._version), v._version


@program
def aliases(torch):
    w, h, n, k = tensors(torch)
    return [kind(t) for t in (k[1:], k.view(2, 1), k.detach(), k.data, *k.split(1), k.to(torch.float64), k.detach_(), k.contiguous(), k.t(),
                              torch.nn.Parameter(k, requires_grad=False))], k[1:]._base


@program
def results(torch):
    w, h, n, k = tensors(torch)
    return [kind(t) for t in (k + 1, k * k, k.clone(), k == 1, k.sum(), torch.cat([k, k]), *torch.max(k, 0), n.mul_(k))]


@program
def nothing_saved(torch):
    w, h, n, k = tensors(torch)
    y = torch.stack([w + k, w - k]).sum() + torch.cat([w, k]).sum() + (k - w).sum() + torch.where(k > 3, w, k).sum()
    y.backward()
    return kind(y), w.grad


SAVING = {
    "mul": lambda torch, w, k: w * k, "dot": lambda torch, w, k: w.dot(k), "div": lambda torch, w, k: w / k,
    "index": lambda torch, w, k: w[k.long() * 0], "matmul": lambda torch, w, k: w.reshape(1, 2) @ k.reshape(2, 1),
    "pow": lambda torch, w, k: w ** k, "in_place": lambda torch, w, k: (w * 1).mul_(k), "addcmul": lambda torch, w, k: w.addcmul(w, k),
    "under_no_grad": lambda torch, w, k: torch.no_grad()(lambda: w * k)(), "clone": lambda torch, w, k: w * k.clone(),
    "not_needed": lambda torch, w, k: w.detach() * k, "lerp": lambda torch, w, k: torch.lerp(w, w, k),
    "where": lambda torch, w, k: torch.where(torch.inference_mode()(lambda: k > 3)(), w, w), "fill": lambda torch, w, k: (w * 1).fill_(2.0),
    "masked_fill": lambda torch, w, k: w.masked_fill(torch.inference_mode()(lambda: k > 3)(), 0.0),
    "copy": lambda torch, w, k: (w * 1).copy_(k), "set_item": lambda torch, w, k: (w * 1).__setitem__(0, k[0]),
    "gather": lambda torch, w, k: w.gather(0, torch.inference_mode()(lambda: k.long() * 0)()),
}


@pytest.mark.parametrize("name", SAVING)
def test_saving(name, oracle):
    def run(torch):
        w, h, n, k = tensors(torch)
        return error(lambda: SAVING[name](torch, w, k))
    assert plain(run(autograd_gpu)) == plain(run(oracle))


def saves(torch):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x
    return Product


@program
def saved_by_a_function(torch):
    w, h, n, k = tensors(torch)
    f = saves(torch).apply
    found = [error(lambda: f(w, k)), error(lambda: f(k, k)), error(lambda: f(w, n))]
    with torch.inference_mode():
        found += [error(lambda: f(w, k)), error(lambda: f(w, n))]
    return found


@program
def seen_by_saved_tensors_hooks(torch):
    w, h, n, k = tensors(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return error(lambda: w * k)


def identity(torch):
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g
    return Identity


@program
def function_that_returns_its_input(torch):
    w, h, n, k = tensors(torch)
    f = identity(torch).apply
    with torch.inference_mode():
        inside = [kind(f(w)), kind(f(k)), f(w) is w, f(k) is k]
    return inside, kind(f(k))


@program
def function_that_writes(torch):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2
    w, h, n, k = tensors(torch)
    outside = error(lambda: Double.apply(k))
    with torch.inference_mode():
        return outside, kind(Double.apply(k)), kind(Double.apply(n)), kind(Double.apply(h))


WRITES = {
    "add": lambda torch, k: k.add_(1), "zero": lambda torch, k: k.zero_(), "fill": lambda torch, k: k.fill_(2.0),
    "set_item": lambda torch, k: k.__setitem__(0, 1.0), "view": lambda torch, k: k[1:].add_(1), "copy": lambda torch, k: k.copy_(k * 2),
    "under_no_grad": lambda torch, k: torch.no_grad()(lambda: k.add_(1))(), "exp": lambda torch, k: k.exp_(),
    "index_put": lambda torch, k: k.index_put_((torch.tensor([0]),), k[:1] * 2), "clamp": lambda torch, k: k.clamp_(0.0, 1.0),
    "scatter": lambda torch, k: k.scatter_(0, torch.tensor([0]), 1.0),
    "inside": lambda torch, k: torch.inference_mode()(lambda: k.add_(1))(),
    "iadd": lambda torch, k: k.__iadd__(1), "detached_view": lambda torch, k: k.detach()[1:].add_(1),
    "clone": lambda torch, k: k.clone().add_(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name, oracle):
    """The error comes after the write, as in PyTorch."""
    def run(torch):
        w, h, n, k = tensors(torch)
        return error(lambda: WRITES[name](torch, k)), kind(k)
    assert plain(run(autograd_gpu)) == plain(run(oracle))


@program
def requires_grad(torch):
    w, h, n, k = tensors(torch)

    def assign(value):
        k.requires_grad = value
    found = [error(lambda: k.requires_grad_()), error(lambda: k.requires_grad_(False)), error(lambda: assign(True)),
             error(lambda: assign(False)), error(lambda: torch.nn.Parameter(k)), error(lambda: k.detach().requires_grad_())]
    with torch.inference_mode():
        made = torch.ones(2).requires_grad_()
        found += [kind(k.requires_grad_()), kind(k * 2)]
    return found, kind(made), kind(made.requires_grad_(False)), error(lambda: made.requires_grad_())


@program
def a_leaf_made_inside(torch):
    with torch.inference_mode():
        w = torch.ones(2, requires_grad=True)
    (w + 1).sum().backward()
    return kind(w), w.grad, kind(w[1:]), error(lambda: w.add_(1)), kind(w + 1), kind(w * 2)


@program
def views_made_inside(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        of_n, of_h, of_w = n[1:], h[1:], w[1:]
        parts = h.split(1)
    n.add_(1)
    found = [kind(of_n), kind(of_n * 2), kind(of_h * 2), kind(of_w * 2), of_h.grad_fn, of_h._base is h, kind(parts[0])]
    (of_w * 3).sum().backward()
    return found, w.grad, kind(of_n.add_(1)), error(lambda: of_n.add_(w[1:])), error(lambda: of_h.add_(1)), error(lambda: of_w.add_(1))


@program
def views_made_inside_of_what_is_written_later(torch):
    w, h, n, k = tensors(torch)
    with torch.inference_mode():
        v = h[1:]
    h.add_(1)
    return error(lambda: v.grad_fn), error(lambda: v * 2), v.tolist()


@program
def data(torch):
    w, h, n, k = tensors(torch)
    n.data = k
    first = kind(n)
    k.data = torch.zeros(2, dtype=torch.float64)
    return first, kind(k)


# -------------------------------------------------------------------------------------------------------------- backward

@program
def backward_inside(torch):
    w, h, n, k = tensors(torch)
    y, z = (w * w).sum(), (w * 3).sum()
    with torch.inference_mode():
        y.backward(retain_graph=True)
        found = [kind(w.grad), kind(torch.autograd.grad(z, w, retain_graph=True)[0]), error(lambda: (w * 2).sum().backward()),
                 kind(torch.autograd.grad(y, w, create_graph=True)[0])]
        y.backward()
        found.append(w.grad.tolist())
    return found, error(lambda: z.backward()), w.grad


@program
def inference_tensors_as_gradients(torch):
    w, h, n, k = tensors(torch)
    (w * 3).backward(k)
    first = kind(w.grad)
    y = w * w
    found = [kind(torch.autograd.grad(y, w, k, retain_graph=True)[0]), error(lambda: torch.autograd.grad(y, w, k, create_graph=True))]
    with torch.inference_mode():
        w.grad = torch.ones(2, dtype=torch.float64)
    return first, found, error(lambda: (w * 3).sum().backward())


@program
def function_with_inference_mode_in_backward(torch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with torch.inference_mode():
                return g * 2
    w, h, n, k = tensors(torch)
    Twice.apply(w).sum().backward()
    return w.grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------- only ours

def test_one_object_inside_itself():
    """PyTorch stays in inference mode for good."""
    torch = autograd_gpu
    mode = torch.inference_mode()
    with mode:
        with mode:
            assert torch.is_inference_mode_enabled()
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled() and not torch.ones(1).is_inference()


@pytest.mark.parametrize("mode", [None, 0, 1, "yes"])
def test_a_mode_that_is_no_bool(mode):
    with pytest.raises(TypeError, match="bool"):
        autograd_gpu.inference_mode(mode)


def test_a_leaf_made_inside_is_recorded_by_every_operation():
    """PyTorch records some operations on it and others not."""
    torch = autograd_gpu
    with torch.inference_mode():
        w = torch.ones(2, requires_grad=True)
    (w.sum() + (w + 1).sum()).backward()
    assert w.grad.tolist() == [2, 2]


def test_threads_do_not_see_each_others_inference_mode():
    torch, barrier, wrong = autograd_gpu, threading.Barrier(4), []

    def work(inferring):
        w = torch.ones(2, requires_grad=True)
        barrier.wait()
        for _ in range(200):
            with torch.inference_mode(inferring):
                made = [torch.ones(1), w * 2, torch.ones(2) + 1, *torch.max(w, 0)]
            wrong.extend(t for t in made if t.is_inference() is not inferring)
            if (w * 2).is_inference() or not (w * 2).requires_grad:
                wrong.append(w)
    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_failed_record_leaves_nothing_behind():
    torch = autograd_gpu
    w, h, n, k = tensors(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="saved for backward"):
            h.mul_(k)
    gc.collect()
    assert h.tolist() == [1, 2] and h._version == 0
    h.sum().backward()
    assert w.grad.tolist() == [1, 1]


@pytest.mark.parametrize("enable", [True, False])
def test_the_layout_of_gradients(enable, oracle):
    def program(torch):
        x = torch.ones(2, 3, 4).permute(2, 0, 1).requires_grad_()
        with torch.autograd.enforce_grad_layout_policy(enable):
            (x * 2).sum().backward()
        y = torch.ones(2, 3, 4).permute(2, 0, 1).requires_grad_()
        decorated = torch.autograd.enforce_grad_layout_policy(enable)(lambda: (y * 2).sum().backward())
        decorated()
        z = torch.ones(2, 3, 4).permute(2, 0, 1).requires_grad_()
        (z * 2).sum().backward()
        torch.autograd.enforce_grad_layout_policy(enable)
        w = torch.ones(2, 3, 4).permute(2, 0, 1).requires_grad_()
        (w * 2).sum().backward()
        torch.autograd.enforce_grad_layout_policy()
        return [tuple(t.grad.stride()) for t in (x, y, z, w)]
    assert program(autograd_gpu) == program(oracle)


@pytest.mark.parametrize("name", ["grad_mode.set_multithreading_enabled", "grad_mode.enforce_grad_layout_policy",
                                  "grad_mode.set_grad_enabled", "graph.set_override_stale_capture_stream",
                                  "graph.set_warn_on_accumulate_grad_stream_mismatch"])
def test_what_is_no_bool_is_refused(name, oracle):
    def program(torch):
        module, function = name.split(".")
        switch = getattr(getattr(torch.autograd, module), function)
        entered = type(switch(True).__enter__()).__name__ if module == "grad_mode" else None
        return entered, [error(lambda value=value: switch(value)) for value in (1, "True", None)]
    assert program(autograd_gpu) == program(oracle)
