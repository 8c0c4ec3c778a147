"""Checkpoints: values, gradients, how often the function runs, hooks, modes and errors as in PyTorch."""
import contextlib
import inspect
import warnings

import pytest

import autograd_gpu
from autograd_gpu.utils import checkpoint as ours
from tests.parity import result

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def leaf(torch, *values):
    return torch.tensor(values or (0.5, -0.25), dtype=torch.float64, requires_grad=True)


def call(torch, f, *args, **options):
    return torch.utils.checkpoint.checkpoint(f, *args, **{"use_reentrant": False, **options})


def rounded(*tensors):
    return [None if t is None else [round(v, 9) for v in t.detach().reshape(-1).tolist()] for t in tensors]


@program
def nested_checkpoints_and_how_often_each_runs(torch):
    log, x = [], leaf(torch)

    def inner(t):
        log.append("inner")
        return t.exp().sin()

    def middle(t):
        log.append("middle")
        return call(torch, inner, t * 2).exp()

    def outer(t):
        log.append("outer")
        return call(torch, middle, t.sin()).cos()
    y = call(torch, outer, x)
    n = len(log)
    y.sum().backward()
    return n, log, rounded(y, x.grad)


@program
def nested_without_early_stop(torch):
    log, x = [], leaf(torch)

    def inner(t):
        log.append("inner")
        return t.exp().sin()

    def outer(t):
        log.append("outer")
        t = call(torch, inner, t * 2, early_stop=False).exp()
        log.append("tail")
        return t * 1
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        call(torch, outer, x).sum().backward()
    return log, rounded(x.grad)


@program
def a_setting_of_early_stop_beats_the_argument(torch):
    found = []
    for setting in (None, True, False):
        for argument in (True, False):
            log, x = [], leaf(torch)

            def f(t, log=log):
                t = t.exp()
                log.append(1)
                return t
            with torch.utils.checkpoint.set_checkpoint_early_stop(setting) if setting is not None else contextlib.nullcontext():
                y = call(torch, f, x, early_stop=argument)
            y.sum().backward()
            found.append(len(log))
    return found


@program
def second_derivatives(torch):
    log, x = [], leaf(torch)

    def f(t):
        log.append(1)
        return (t.exp() * t.sin()).tanh()
    g, = torch.autograd.grad(call(torch, f, x).sum(), x, create_graph=True)
    h, = torch.autograd.grad(g.sum(), x, create_graph=True)
    k, = torch.autograd.grad(h.sum(), x)
    return rounded(g, h, k), len(log)


@program
def partial_backwards_run_it_again(torch):
    log, x, w = [], leaf(torch), leaf(torch, 2.0, 3.0)

    def f(t, w):
        log.append(1)
        a = (t * w).exp()
        b = (t - w).sin()
        return a, b
    a, b = call(torch, f, x, w)
    first = torch.autograd.grad(a.sum(), [x, w])
    second = torch.autograd.grad(b.sum(), [x, w])
    return rounded(*first, *second), len(log)


@program
def only_some_inputs(torch):
    x, w = leaf(torch), leaf(torch, 2.0, 3.0)
    y = call(torch, lambda t, u: (t * u).exp(), x, w).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    y.backward(inputs=[w])
    return rounded(*first, w.grad), x.grad


@program
def a_backward_inside(torch):
    log, x = [], leaf(torch)

    def f(t):
        log.append(1)
        y = t.sin()
        z = y.cos()
        g, = torch.autograd.grad(z.sum(), t, retain_graph=True)
        return z.exp() * g
    y = call(torch, f, x)
    n = len(log)
    y.sum().backward()
    return n, len(log), rounded(y, x.grad)


@program
def a_backward_inside_that_frees(torch):
    x = leaf(torch)

    def f(t):
        y = t.sin()
        g, = torch.autograd.grad(y.cos().sum(), t)
        return t.cos() * g
    out = []
    for stop in (True, False):
        with torch.utils.checkpoint.set_checkpoint_early_stop(stop):
            y = call(torch, f, x)
        y.sum().backward()
        out.append(rounded(y, x.grad))
    return out


@program
def an_input_written_to_afterwards(torch):
    w = leaf(torch)
    x = w * 1
    y = call(torch, lambda t: (t.sin() * 2).exp(), x)
    x.add_(1.0)
    y.sum().backward()


@program
def an_input_detached_afterwards(torch):
    found = []
    for detached in ("afterwards", "inside"):
        for packs in (False, True):
            x, w = leaf(torch), leaf(torch, 1.5, 2.5)
            y = x * 2
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t) if packs else torch.enable_grad():
                z = call(torch, lambda a, b, detached=detached: (a.detach_() if detached == "inside" else a) * b, y, w)
            if detached == "afterwards":
                y.detach_()
            try:
                found.append(rounded(*torch.autograd.grad(z.sum(), w)))
            except RuntimeError as error:
                found.append([type(error).__name__, "detached in-place" in str(error)])
    return found


@program
def writing_inside(torch):
    x = leaf(torch)

    def f(t):
        y = t.exp()
        y.mul_(2.0)
        z = y.sin()
        z.add_(1.0)
        return z * y
    y = call(torch, f, x)
    y.sum().backward()
    return rounded(y, x.grad)


@program
def views_and_inplace_on_the_input(torch):
    w = leaf(torch, 1.0, 2.0, 3.0, 4.0)
    x = w * 1

    def f(t):
        t[:2].mul_(3.0)
        return t.sin()
    y = call(torch, f, x)
    y.sum()
    return rounded(y), result(lambda torch: y.sum().backward(), torch)


@program
def used_twice_with_retain_graph(torch):
    log, x = [], leaf(torch)

    def f(t):
        log.append(1)
        return t.exp().sin().exp()
    y = call(torch, f, x).sum()
    for keep in (True, True, False):
        y.backward(retain_graph=keep)
    return len(log), rounded(x.grad), result(lambda torch: y.backward(), torch)


@program
def functions_of_ones_own_inside(torch):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t, k):
            ctx.save_for_backward(t, t * k)
            return t * t * k

        @staticmethod
        def backward(ctx, g):
            t, tk = ctx.saved_tensors
            return 2 * tk * g + 0 * t, None
    x = leaf(torch)
    y = call(torch, lambda t: Square.apply(t.sin(), 3.0).exp(), x)
    y.sum().backward()
    return rounded(y, x.grad)


@program
def saved_tensors_read_twice(torch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx, g):
            a, = ctx.saved_tensors
            b, = ctx.saved_tensors
            return (a + b) * g
    x = leaf(torch)
    y = call(torch, lambda t: Twice.apply(t.sin()), x)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return type(error).__name__, "unpacked" in str(error)


@program
def inside_other_hooks(torch):
    log, x = [], leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append("pack"), t)[1], lambda t: (log.append("unpack"), t)[1]):
        y = call(torch, lambda t: t.exp().sin(), x)
    y.sum().backward()
    return log, rounded(x.grad)


@program
def hooks_inside_of_it(torch):
    log, x = [], leaf(torch)

    def f(t):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append("pack"), t)[1], lambda t: (log.append("unpack"), t)[1]):
            y = t.exp()
        return y.sin()
    y = call(torch, f, x)
    n = len(log)
    y.sum().backward()
    return n, log, rounded(x.grad)


@program
def while_hooks_are_disabled(torch):
    with torch.autograd.graph.disable_saved_tensors_hooks("none today"):
        call(torch, lambda t: t.exp(), leaf(torch))


@program
def without_grad_mode(torch):
    log, x = [], leaf(torch)

    def contexts():
        log.append("asked")
        return contextlib.nullcontext(), contextlib.nullcontext()
    with torch.no_grad():
        y = call(torch, lambda t: t.exp(), x, context_fn=contexts)
    return y.requires_grad, log


@program
def grad_mode_changed_inside(torch):
    x = leaf(torch)

    def f(t):
        with torch.no_grad():
            k = t.exp()
        return t.sin() * k
    y = call(torch, f, x)
    with torch.no_grad():
        y.backward(torch.ones(2, dtype=torch.float64))
    return rounded(x.grad)


@program
def nothing_that_needs_a_gradient(torch):
    x = torch.tensor([1.0, 2.0])
    return call(torch, lambda t: t.exp() * 0, x)


@program
def nothing_saved(torch):
    x = leaf(torch)
    y = call(torch, lambda t: (t + 1).view(2, 1), x)
    y.sum().backward()
    return y, x.grad


@program
def results_of_all_kinds(torch):
    x = leaf(torch)
    a, (b, c), d = call(torch, lambda t: (t.exp(), [t.sin(), 3], {"k": t.cos()}), x)
    (a + b + d["k"]).sum().backward()
    return rounded(x.grad), c


@program
def the_input_itself(torch):
    x = leaf(torch)
    y = call(torch, lambda t: t, x)
    return y is x, y.requires_grad


@program
def tensors_in_keyword_arguments_and_lists(torch):
    x, w = leaf(torch), leaf(torch, 2.0, 3.0)
    y = call(torch, lambda several, scale: (several[0] * several[1]).exp() * scale, [x, w], scale=w)
    y.sum().backward()
    return rounded(y, x.grad, w.grad)


@program
def an_error_in_the_function(torch):
    call(torch, lambda t: t.exp() / t.missing, leaf(torch))


@program
def an_error_in_the_second_run(torch):
    runs, x = [], leaf(torch)

    def f(t):
        runs.append(1)
        if len(runs) == 2:
            raise KeyError("second")
        return t.exp().sin()
    y = call(torch, f, x).sum()
    first = result(lambda torch: y.backward(retain_graph=True), torch)
    y.backward()
    return first, len(runs), rounded(x.grad)


@program
def a_context_that_suppresses(torch):
    call(torch, lambda t: 1 / 0, leaf(torch), context_fn=lambda: (contextlib.suppress(ZeroDivisionError), contextlib.nullcontext()))


def counted(torch, second, **options):
    runs = []

    def f(t):
        runs.append(1)
        return second(t) if len(runs) > 1 else t.exp().sin().exp()
    call(torch, f, leaf(torch), **options).sum().backward()


DIFFERENT = {
    "fewer": (lambda t: t.exp(), {}), "more": (lambda t: t.exp().sin().exp().exp(), {"early_stop": False}),
    "more_but_stopped": (lambda t: t.exp().sin().exp().exp(), {}), "dtype": (lambda t: t.float().exp().sin().exp(), {}),
    "dtype_unchecked": (lambda t: t.float().exp().sin().exp(), {"determinism_check": "none"}),
    "shape": (lambda t: t[:1].exp().sin().exp(), {}),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_second_run_that_saves_something_else(name, oracle):
    second, options = DIFFERENT[name]
    found = [result(lambda torch: counted(torch, second, **options), torch) for torch in (autograd_gpu, oracle)]
    assert found[0] == found[1]


# ----------------------------------------------------------------------------------------------------------- the reentrant one

@program
def reentrant(torch):
    log, x, w = [], leaf(torch), leaf(torch, 2.0, 3.0)

    def f(t, w, k):
        log.append(torch.is_grad_enabled())
        return (t * w).exp() * k, None, t.detach(), 5
    y, nothing, constant, five = call(torch, f, x, w, 2, use_reentrant=True)
    (y * constant).sum().backward()
    return log, nothing, five, constant.requires_grad, type(y.grad_fn).__name__, rounded(y, x.grad, w.grad)


@program
def reentrant_nested(torch):
    log, x = [], leaf(torch)

    def inner(t):
        log.append("inner")
        return t.exp().sin()

    def outer(t):
        log.append("outer")
        return call(torch, inner, t * 2, use_reentrant=True).cos()
    call(torch, outer, x, use_reentrant=True).sum().backward()
    return log, rounded(x.grad)


@program
def reentrant_with_parameters_in_the_closure(torch):
    x, w = leaf(torch), leaf(torch, 2.0, 3.0)
    call(torch, lambda t: (t * w).exp(), x, use_reentrant=True).sum().backward()
    return rounded(x.grad, w.grad)


@program
def reentrant_inside_grad(torch):
    x = leaf(torch)
    torch.autograd.grad(call(torch, lambda t: t.exp(), x, use_reentrant=True).sum(), x)


@program
def reentrant_with_inputs(torch):
    x = leaf(torch)
    call(torch, lambda t: t.exp(), x, use_reentrant=True).sum().backward(inputs=[x])


@program
def reentrant_without_a_result_that_needs_it(torch):
    x = leaf(torch)
    call(torch, lambda t: t.detach(), x, use_reentrant=True).sum().backward()


@program
def reentrant_twice(torch):
    x = leaf(torch)
    y = call(torch, lambda t: t.exp().sin(), x, use_reentrant=True).sum()
    y.backward(retain_graph=True)
    y.backward()
    return rounded(x.grad)


ARGUMENTS = {
    "keyword": {"use_reentrant": True, "scale": 2}, "context": {"use_reentrant": True, "context_fn": lambda: (None, None)},
    "debug": {"use_reentrant": True, "debug": True}, "both": {"debug": True, "context_fn": lambda: (None, None)},
    "check": {"determinism_check": "all"}, "unknown": {"scale": 2}}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_do_not_fit(name, oracle):
    def run(torch):
        call(torch, lambda t: t.exp(), leaf(torch), **ARGUMENTS[name])
    assert result(run, autograd_gpu) == result(run, oracle) in ("ValueError", "TypeError")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


def test_detach_variable(oracle):
    def run(torch):
        x = leaf(torch)
        a, b, c = torch.utils.checkpoint.detach_variable((x * 2, x.detach(), "s"))
        return a, b, c, a.is_leaf, result(lambda torch: torch.utils.checkpoint.detach_variable([x]), torch)
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("segments", [1, 2, 3, 5, 6, 0])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_sequential(segments, use_reentrant, oracle):
    def run(torch):
        log, x = [], leaf(torch)

        def step(k):
            return lambda t: (log.append(k), (t * k).sin())[1]
        y = torch.utils.checkpoint.checkpoint_sequential([step(k) for k in range(1, 6)], segments, x, use_reentrant=use_reentrant)
        y.sum().backward()
        return log, rounded(y, x.grad)
    assert result(run, autograd_gpu) == result(run, oracle)


def test_sequential_says_what_is_wrong():
    x = leaf(autograd_gpu)
    with pytest.raises(ValueError, match="Unexpected keyword arguments"):
        ours.checkpoint_sequential([lambda t: t], 1, x, use_reentrant=False, scale=3)
    with pytest.warns(UserWarning, match="use_reentrant"):
        ours.checkpoint_sequential([lambda t: t * 2] * 2, 2, x)


def test_warnings(oracle):
    found = []
    for torch in (autograd_gpu, oracle):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.utils.checkpoint.checkpoint(lambda t: t.exp(), leaf(torch))
            call(torch, lambda t: t.exp(), leaf(torch).detach(), use_reentrant=True)
            torch.utils.checkpoint.checkpoint_sequential([lambda t: t.exp()], 1, leaf(torch))
        found.append([(w.category.__name__, "use_reentrant" in str(w.message), "requires_grad=True" in str(w.message)) for w in caught])
        assert torch is oracle or {w.filename for w in caught if "use_reentrant" in str(w.message)} == {__file__}
    assert found[0] == found[1] and len(found[0]) == 3


def test_names_and_parameters_are_those_of_pytorch(oracle):
    theirs = oracle.utils.checkpoint
    assert set(ours.__all__) <= set(theirs.__all__)
    for name in ("checkpoint", "checkpoint_sequential", "set_checkpoint_early_stop", "detach_variable", "noop_context_fn"):
        parameters = [list(inspect.signature(getattr(module, name)).parameters) for module in (ours, theirs)]
        assert parameters[0] == parameters[1]


def test_a_dual_made_in_no_grad_keeps_its_tangent_under_hooks():
    """It requires grad, and no node is behind it: that does not make it a result of the node that saved it."""
    torch, seen = autograd_gpu, []
    forward_ad = torch.autograd.forward_ad

    def f(x):
        seen.append(forward_ad.unpack_dual(x).tangent is not None)
        return x.sin() * x
    x = torch.ones(3, requires_grad=True)
    with forward_ad.dual_level():
        z = x * 1
        with torch.no_grad():
            v = forward_ad.make_dual(z, torch.ones(3))
        assert v.requires_grad and v.grad_fn is None
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            out = ours.checkpoint(f, v, use_reentrant=False)
        (out * x).sum().backward()
    assert seen == [True, True]
