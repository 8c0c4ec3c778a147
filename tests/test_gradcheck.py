"""gradcheck and gradgradcheck: the verdicts and error types of PyTorch, on right, wrong and odd functions; and what only ours promises."""
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.autograd.gradcheck import GradcheckError
from tests.cuda import programs

DOCUMENT = Path(__file__).parent.parent / "docs" / "gradcheck.md"


def real(torch, *shape, dtype="float64", low=0.3):
    """A leaf of different numbers from `low` up."""
    n = int(np.prod(shape))
    return torch.tensor(np.linspace(low, low + 1, n).reshape(shape).tolist(), dtype=getattr(torch, dtype)).requires_grad_()


def complex_(torch, *shape, dtype="complex128", low=0.3):
    numbers = np.linspace(low, low + 1, int(np.prod(shape))).reshape(shape)
    return torch.tensor((numbers - 0.4j * numbers[::-1]).tolist(), dtype=getattr(torch, dtype)).requires_grad_()


def custom(torch, forward, backward, saved=True, materialize=True):
    """A Function of one tensor: backward(x, gradient of each output)."""
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if saved:
                ctx.save_for_backward(x)
            ctx.set_materialize_grads(materialize)
            return forward(x)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*ctx.saved_tensors, *grads)
    return Custom.apply


def verdict(torch, check, f, inputs, **options):
    """True or False, or the name of the type that was raised."""
    try:
        return getattr(torch.autograd, check)(f, inputs, **options)
    except Exception as error:               # its type is the verdict
        return type(error).__name__


def drifting(torch, by=1e-7):
    calls = [0]

    def backward(g):
        calls[0] += 1
        return g * (2 + by * calls[0])
    return custom(torch, lambda x: x * 2, backward, saved=False)


def in_place(x):
    y = x.clone()
    y.mul_(2).add_(x)
    y[0] = 5.0
    return y * y


def view_written(x):
    y = x * 1
    y[1:].mul_(y[:-1].clone())
    return y


def unmaterialized(torch, backward):
    return custom(torch, lambda x: x.clone(), backward, saved=False, materialize=False)


def two_outputs_unmaterialized(torch, backward):
    return custom(torch, lambda x: (x * 2, x * 3), backward, saved=False, materialize=False)


def hooked(x, hook):
    y = x * x
    y.register_hook(hook)
    return y.sin()


def derivative(torch, create_graph):
    def f(x):
        return torch.autograd.grad((x ** 3).sum(), x, create_graph=create_graph)[0] * x
    return f


def stateful():
    calls = []

    def f(x):
        calls.append(x)
        return x * len(calls)
    return f


def only_some_none(a, b):
    return 2 * (a if a is not None else 0 * b) + 3 * (b if b is not None else 0 * a) if a is not None or b is not None else None


def refuses_none(*grads):
    if any(g is None for g in grads):
        raise RuntimeError("no gradient")
    return sum(k * g for k, g in zip((1, 3), grads, strict=False)) if len(grads) == 1 else 2 * grads[0] + 3 * grads[1]


FUNCTIONS = {
    # right
    "sin": lambda t: (lambda x: x.sin() * x, (real(t, 3),)),
    "not_a_tuple": lambda t: (lambda x: x ** 3, real(t, 3)),
    "list": lambda t: (lambda x, y: [x * y, x.sum()], [real(t, 2), real(t, 2, low=1.0)]),
    "matmul": lambda t: (lambda a, b: a @ b, (real(t, 2, 3), real(t, 3, 2))),
    "broadcast": lambda t: (lambda a, b: (a * b).exp(), (real(t, 2), real(t, 3, 1))),
    "zero_dimensional": lambda t: (lambda x: x.exp(), (real(t),)),
    "empty": lambda t: (lambda x: x.exp(), (real(t, 0, 2),)),
    "empty_output": lambda t: (lambda x: x[:0] * 2, (real(t, 2),)),
    "strided_input": lambda t: (lambda x: x.exp(), (real(t, 2, 3).detach().t().requires_grad_(),)),
    "gap_in_memory": lambda t: (lambda x: x.exp(), (real(t, 2, 4).detach()[:, ::2].requires_grad_(),)),
    "no_leaf": lambda t: (lambda x: x.exp(), (real(t, 3) * 2,)),
    "view_of_a_leaf": lambda t: (lambda x: x.exp(), (real(t, 4)[1:3],)),
    "same_tensor_twice": lambda t: (lambda x, y: x * x * y, (real(t, 2),) * 2),
    "closure": lambda t: (lambda x: (lambda _: x * x, (x,)))(real(t, 2)),
    "constant_input": lambda t: (lambda x, y: (x * y).sum(), (real(t, 2), real(t, 2).detach())),
    "numbers_and_text": lambda t: (lambda x, k, s: x * k, (real(t, 2), 3, "s")),
    "unused_input": lambda t: (lambda x, y: x * x, (real(t, 2), real(t, 2))),
    "several_outputs": lambda t: (lambda x: (x.sin(), x ** 2, x.sum()), (real(t, 2),)),
    "output_is_input": lambda t: (lambda x: x, (real(t, 2),)),
    "output_is_view": lambda t: (lambda x: (x[:1], x.view(2, 1)), (real(t, 2),)),
    "output_twice": lambda t: (lambda x: (lambda y: (y, y))(x * x), (real(t, 2),)),
    "one_output_constant": lambda t: (lambda x: (x * x, x.detach() * 3), (real(t, 2),)),
    "integer_output": lambda t: (lambda x: (x * x, x.argmax()), (real(t, 2),)),
    "in_place": lambda t: (in_place, (real(t, 3),)),
    "view_written": lambda t: (view_written, (real(t, 3),)),
    "relu_beside_the_kink": lambda t: (t.relu, (real(t, 3, low=-0.7),)),
    "constant": lambda t: (lambda x: t.zeros(2, dtype=t.float64), (real(t, 2),)),
    "integers_only": lambda t: (lambda x: x.long(), (real(t, 2),)),
    "custom": lambda t: (custom(t, lambda x: x.sin(), lambda x, g: g * x.cos()), (real(t, 2),)),
    "softmax": lambda t: (lambda x: x.log_softmax(1), (real(t, 2, 3),)),
    "where": lambda t: (lambda x: t.where(x > 0.5, x * x, -x), (real(t, 4),)),
    "unmaterialized_and_ready": lambda t: (two_outputs_unmaterialized(t, only_some_none), (real(t, 2),)),
    "watching_hook": lambda t: (lambda x: hooked(x, lambda g: None), (real(t, 2),)),
    "gradient_inside": lambda t: (derivative(t, True), (real(t, 2),)),
    # wrong
    "editing_hook": lambda t: (lambda x: hooked(x, lambda g: g * 1.5), (real(t, 2),)),
    "detached_gradient_inside": lambda t: (derivative(t, False), (real(t, 2),)),
    "stateful": lambda t: (stateful(), (real(t, 2),)),
    "leaks_a_little": lambda t: (custom(t, lambda x: x * 2, lambda x, g: g * 2 + 1e-9), (real(t, 2),)),
    "graph_of_before": lambda t: (lambda x: (lambda y: (lambda _: y, (x,)))(x * x))(real(t, 2)),
    "wrong_factor": lambda t: (custom(t, lambda x: x.sin(), lambda x, g: g * x.cos() * 1.1), (real(t, 2),)),
    "wrong_second_output": lambda t: (lambda f: (lambda x: (x, f(x)), (real(t, 2),)))(custom(t, lambda x: x * 2, lambda x, g: g * 3)),
    "wrong_second_input": lambda t: (lambda f: (lambda x, y: x * f(y), (real(t, 2), real(t, 2))))(
        custom(t, lambda x: x * 2, lambda x, g: g * 3)),
    "wrong_in_one_element": lambda t: (custom(t, lambda x: x * 2, lambda x, g: g * t.tensor([2.0, 2.0, 2.5])), (real(t, 3),)),
    "wrong_and_antisymmetric": lambda t: (custom(t, lambda x: x * 1, lambda x, g: g + 5 * t.stack((g[1], -g[0]))), (real(t, 2),)),
    "straight_through": lambda t: (custom(t, lambda x: x.round(), lambda x, g: g), (real(t, 2),)),
    "kink": lambda t: (t.abs, (t.zeros(1, dtype=t.float64, requires_grad=True),)),
    "detached": lambda t: (lambda x: x.detach() * 2, (real(t, 2),)),
    "partly_detached": lambda t: (lambda x: x * x.detach(), (real(t, 2),)),
    "written_behind_autograd": lambda t: (lambda x: (lambda y: (y.data.mul_(2), y)[1])(x * 1), (real(t, 2),)),
    "ignores_its_gradient": lambda t: (custom(t, lambda x: x.clone(), lambda x, g: t.ones_like(x)), (real(t, 1),)),
    "drifting": lambda t: (drifting(t), (real(t, 1),)),
    "refuses_none": lambda t: (unmaterialized(t, refuses_none), (real(t, 2),)),
    "fails_at_none": lambda t: (unmaterialized(t, lambda g: g * 1), (real(t, 2),)),
    "one_for_none": lambda t: (unmaterialized(t, lambda g: t.ones(2, dtype=t.float64) if g is None else g * 1), (real(t, 2),)),
    "refuses_one_none": lambda t: (two_outputs_unmaterialized(t, refuses_none), (real(t, 2),)),
    "no_second_derivative": lambda t: (custom(t, lambda x: x ** 3, lambda x, g: g * 3 * x.detach() ** 2), (real(t, 2),)),
    "nan": lambda t: (lambda x: x * float("nan"), (real(t, 2),)),
    "infinite": lambda t: (lambda x: x * float("inf"), (real(t, 2),)),
    # complex
    "square": lambda t: (lambda z: z * z, (complex_(t, 2),)),
    "holomorphic": lambda t: (lambda z: (z.exp(), z.sin() / z), (complex_(t, 2),)),
    "modulus": lambda t: (lambda z: (z * z.conj()).real, (complex_(t, 2),)),
    "conjugate": lambda t: (lambda z: z.conj() * z.abs(), (complex_(t, 2),)),
    "real_to_complex": lambda t: (lambda x: x * (1 + 2j) + x * x, (real(t, 2),)),
    "complex_and_real": lambda t: (lambda z, x: (z * x, x.sum(), z.imag * x), (complex_(t, 2), real(t, 2))),
    "complex_matmul": lambda t: (lambda a, b: a @ b, (complex_(t, 2, 2), complex_(t, 2, 2))),
    "complex_constant": lambda t: (lambda x: (x * x, x.detach() * 2j), (real(t, 2),)),
    "complex_zero_dimensional": lambda t: (lambda z: z * z, (complex_(t, 1)[0],)),
    "not_conjugated": lambda t: (custom(t, lambda z: z * 2j, lambda z, g: g * 2j), (complex_(t, 2),)),
    "imaginary_part_lost": lambda t: (custom(t, lambda z: z * z, lambda z, g: (g * 2 * z.conj()).real + 0j), (complex_(t, 2),)),
    "wrong_real_part": lambda t: (custom(t, lambda x: x * (1 + 1j), lambda x, g: 2 * g.real + g.imag), (real(t, 2),)),
    "complex_detached": lambda t: (lambda z: z.detach() * 2, (complex_(t, 2),)),
    # refused
    "no_gradient_wanted": lambda t: (lambda x: x * 2, (real(t, 2).detach(),)),
    "no_input": lambda t: (lambda: 2, ()),
    "nested": lambda t: (lambda x: x[0] * 2, ((real(t, 2),),)),
    "expanded": lambda t: (lambda x: x * 2, (real(t, 1).expand(3),)),
    "expanded_to_one": lambda t: (lambda x: x * 2, (real(t, 1).expand(1),)),
    "in_place_on_a_leaf": lambda t: (lambda x: x.mul_(2), (real(t, 2),)),
    "shape_depends_on_values": lambda t: (lambda x: x[x > 0.5], (t.tensor([0.5, 1.0], dtype=t.float64).requires_grad_(),)),
    "returns_none": lambda t: (lambda x: None, (real(t, 2),)),
    "raises": lambda t: (lambda x: {}["absent"], (real(t, 2),)),
    "no_function": lambda t: (3, (real(t, 2),)),
    # too narrow for the default step
    "float32": lambda t: (lambda x: x * x, (real(t, 2, dtype="float32", low=100),)),
    "complex64": lambda t: (lambda x: x * x, (complex_(t, 2, dtype="complex64", low=100),)),
}
WITHOUT_OUTPUTS = {"constant", "integers_only", "detached", "complex_detached"}      # PyTorch's gradgradcheck then calls f with nothing


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_verdicts(name, check, oracle):
    for options in ({}, {"fast_mode": True, "raise_exception": False}, {"check_undefined_grad": False},
                    {"fast_mode": True, "eps": 1e-2, "atol": 1e-2, "nondet_tol": 1e-3}):
        oracle.manual_seed(0)                # its gradgradcheck draws the gradients, and may miss a fault in few elements
        ours, theirs = (verdict(torch, check, *FUNCTIONS[name](torch), **options) for torch in (autograd_gpu, oracle))
        if check == "gradgradcheck" and name in WITHOUT_OUTPUTS:
            theirs = True if theirs == "TypeError" else theirs
        assert ours == theirs, options


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_signatures(name, oracle):
    ours, theirs = (inspect.signature(getattr(torch.autograd, name)).parameters.values() for torch in (autograd_gpu, oracle))
    assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs]


def test_names(oracle):
    """torch.autograd.gradcheck is the function; the module of that name is imported from."""
    for torch in (autograd_gpu, oracle):
        module = importlib.import_module(f"{torch.__name__}.autograd.gradcheck")
        assert torch.autograd.gradcheck is module.gradcheck and torch.autograd.gradgradcheck is module.gradgradcheck
        assert {"gradcheck", "gradgradcheck"} <= set(torch.autograd.__all__) and issubclass(module.GradcheckError, RuntimeError)
        assert not hasattr(torch.autograd, "GradcheckError")


@pytest.mark.parametrize("options", [
    {"check_backward_ad": False}, {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
    {"check_batched_forward_grad": True}])
def test_options_that_contradict_each_other(options, oracle):
    for torch in (autograd_gpu, oracle):
        with pytest.raises(AssertionError, match=r"check_forward_ad or check_backward_ad|=True requires check_"):
            torch.autograd.gradcheck(torch.sin, real(torch, 2), **options)


@pytest.mark.parametrize("options", [
    {"check_rev_over_rev": False}, {"check_rev_over_rev": False, "check_fwd_over_rev": True},
    {"check_rev_over_rev": False, "check_fwd_over_rev": True, "check_undefined_grad": False, "check_batched_grad": True}])
def test_options_of_gradgradcheck_that_contradict_each_other(options, oracle):
    for torch in (autograd_gpu, oracle):
        with pytest.raises(AssertionError, match=r"check_fwd_over_rev or check_rev_over_rev|=True requires check_"):
            torch.autograd.gradgradcheck(torch.sin, real(torch, 2), **options)


MESSAGES = {
    "wrong_factor": "Jacobian mismatch for output 0 with respect to input 0,\nnumerical:.*\nanalytical:",
    "wrong_second_output": "Jacobian mismatch for output 1 with respect to input 0", "detached": "function expected to be zero",
    "wrong_second_input": "Jacobian mismatch for output 0 with respect to input 1", "not_conjugated": "imaginary part of complex outputs",
    "wrong_real_part": "While considering the real part of complex outputs only, Jacobian mismatch", "drifting": "nondeterminism",
    "ignores_its_gradient": "backward not multiplied by grad_output|mismatch", "no_gradient_wanted": "at least one input tensor to require",
    "refuses_none": "handle undefined output grads", "one_for_none": "to be undefined or zero", "expanded": "non-overlapping",
    "shape_depends_on_values": "to return outputs with the same shape",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name, oracle):
    for torch in (autograd_gpu, oracle):
        f, inputs = FUNCTIONS[name](torch)
        for fast in (False, True):
            with pytest.raises(Exception, match=re.compile(MESSAGES[name], re.S)):
                torch.autograd.gradcheck(f, inputs, fast_mode=fast)


def test_double_precision_is_asked_for(oracle):
    for torch in (autograd_gpu, oracle):
        with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double precision"):
            torch.autograd.gradcheck(lambda x, y: y * 2, (real(torch, 2), real(torch, 2, dtype="float32")), raise_exception=False)


def test_grad_outputs_that_are_given(oracle):
    for torch in (autograd_gpu, oracle):
        x, g = real(torch, 2, 3), real(torch, 2, 3)
        assert torch.autograd.gradgradcheck(lambda x: x ** 3, x, g)
        assert torch.autograd.gradgradcheck(lambda x: (x ** 3, x[0, :2] ** 2), (x,), [g, torch.ones(2, dtype=torch.float64)])
        with pytest.raises(RuntimeError):
            torch.autograd.gradgradcheck(lambda x: (x ** 3, x), (x,), [g])


# ------------------------------------------------------------------------------------------------------------ ours alone

torch = autograd_gpu


@pytest.mark.parametrize("name", sorted(programs.PROGRAMS.keys() - {"to_copy", "cross_entropy_smoothed"}))     # rounded, detached
@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_our_ops(name, check):
    inputs = [torch.from_numpy(a).requires_grad_() for a in programs.operands(name)]
    assert check(programs.PROGRAMS[name][0], inputs) and check(programs.PROGRAMS[name][0], inputs, fast_mode=True)


@pytest.mark.parametrize("strided", [False, True])
def test_grad_outputs_that_are_made(strided, monkeypatch):
    monkeypatch.setattr(importlib.import_module("autograd_gpu.autograd.gradcheck"), "gradcheck", lambda f, inputs, **options: inputs[1:])

    def made():
        return torch.autograd.gradgradcheck(lambda x: (x * x, x.argmax(), x.sum(), x * 2j), real(torch, 20, 3),
                                            gen_non_contig_grad_outputs=strided)
    torch.manual_seed(1)
    first, state = made(), torch.default_generator.get_state()
    torch.manual_seed(2)
    assert not torch.equal(state, torch.default_generator.get_state())
    assert all(torch.equal(a, b) for a, b in zip(first, made(), strict=True))
    assert [(tuple(g.shape), g.dtype) for g in first] == [((20, 3), torch.float64), ((), torch.float64), ((20, 3), torch.complex128)]
    for g in first:
        assert g.requires_grad and g.is_leaf and g.is_contiguous() is (not strided or g.numel() == 1)
    assert first[0].min() < -0.5 and first[0].max() > 0.5 and first[0].abs().max() <= 1


@pytest.mark.parametrize("fast", [False, True])
def test_what_is_checked_stays_as_it_was(fast):
    x, z = real(torch, 3), complex_(torch, 2)
    values, state = (x.tolist(), z.tolist()), torch.default_generator.get_state()
    calls = []

    def f(x, z):
        calls.append((x.tolist(), z.tolist()))
        if len(calls) == stop:
            raise KeyError("stop")
        return x * x, z * z
    for stop in (0, 2, 3, 4, 9):             # what f raises leaves nothing changed either
        calls.clear()
        assert verdict(torch, "gradcheck", f, (x, z), fast_mode=fast) == ("KeyError" if stop else True)
        assert (x.tolist(), z.tolist()) == values and x.grad is None and z.grad is None and x._version == z._version == 0
    assert torch.equal(state, torch.default_generator.get_state())
    assert any(c != values for c in calls)


@pytest.mark.parametrize("fast", [False, True])
def test_batches(fast, oracle):
    """A batch of gradients is a loop here, PyTorch's another program; both are asked for in the same way."""
    for torch_ in (torch, oracle):
        x = real(torch_, 2)
        assert torch_.autograd.gradcheck(torch_.sin, x, check_batched_grad=True, fast_mode=fast)
        assert torch_.autograd.gradcheck(torch_.sin, x, check_batched_forward_grad=True, check_forward_ad=True, fast_mode=fast)
        assert torch_.autograd.gradgradcheck(torch_.sin, x, check_batched_grad=True, fast_mode=fast)


@pytest.mark.filterwarnings("ignore:gradcheck. Input #0")
def test_fast_mode_shows_the_jacobians():
    f = custom(torch, lambda x: x * 2, lambda x, g: g * 3)
    for inputs in (real(torch, 2), real(torch, 2).detach()), (real(torch, 2, dtype="float32"), real(torch, 2).detach()):
        with pytest.raises(GradcheckError, match=r"(?s)random vectors.*differ too.*numerical:tensor\(\[\[.*analytical:tensor\(\[\[3"):
            torch.autograd.gradcheck(lambda x, y: f(x) * y / y, inputs, fast_mode=True)


def test_the_document():
    code, = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    exec(code, {})
