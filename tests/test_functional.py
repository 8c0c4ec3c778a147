"""torch.autograd.functional and is_grads_batched: each call on PyTorch and on this package."""
import itertools

import pytest

import autograd_gpu
from tests.parity import result, said


def told(x):
    """What a program returned as values: without the names of nodes, as PyTorch's batching leaves others behind."""
    if hasattr(x, "detach"):
        return x.detach().resolve_conj().tolist() if x.is_complex() and hasattr(x, "resolve_conj") else x.tolist(), \
            tuple(x.shape), str(x.dtype), x.requires_grad
    if isinstance(x, dict):
        return {k: told(v) for k, v in x.items()}
    return [*map(told, x)] if isinstance(x, (tuple, list)) else x


def same(ours, theirs):
    """Whether two outcomes agree; floats to 1e-9."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, (float, complex)) and isinstance(theirs, (float, complex)):
        return ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True)
    return str(ours).replace("autograd_gpu", "torch") == str(theirs)


def values(x):
    """Without history: whether one is left depends on how PyTorch batches, and its forward mode does not detach what it gives back."""
    return [values(y) for y in x] if isinstance(x, (tuple, list)) else x.detach()


def check(program, oracle, name):
    ours, theirs = result(program, autograd_gpu, told), result(program, oracle, told)
    assert same(ours, theirs), f"{name}:\n{ours}\nPyTorch:\n{theirs}"


def tensors(torch, *shapes, dtype="float64", requires_grad=False):
    made = []
    for i, shape in enumerate(shapes):
        n = 1
        for size in shape:
            n *= size
        made.append((torch.arange(1.0, n + 1, dtype=getattr(torch, dtype)).reshape(shape) / (3 + i)).requires_grad_(requires_grad))
    return tuple(made) if len(made) > 1 else made[0]


ONE, TWO = [(3,)], [(2, 2), (3,)]
FUNCTIONS = {                                # name: (shapes of its inputs, shapes of its outputs, the function of torch and the inputs)
    "square": (ONE, [(3,)], lambda torch, x: x * x * x),
    "scalar": (ONE, [()], lambda torch, x: (x ** 3).sum() * x[0]),
    "one element": (ONE, [(1,)], lambda torch, x: (x ** 2).sum().reshape(1)),
    "matrix": (ONE, [(3, 3)], lambda torch, x: x.sin()[:, None] * x),
    "two outputs": (ONE, [(), (3,)], lambda torch, x: (x.prod(), x.exp())),
    "two inputs": (TWO, [(2, 2)], lambda torch, x, y: x.exp() * y.prod()),
    "scalar of two": (TWO, [()], lambda torch, x, y: (x ** 2).sum() * (y ** 3).sum()),
    "two by two": (TWO, [(3,), (2,)], lambda torch, x, y: (y * x.sum(), x.cos().sum(0))),
    "unused": (TWO, [(2, 2)], lambda torch, x, y: x ** 2),
    "linear": (ONE, [()], lambda torch, x: (2 * x).sum()),
    "constant": (ONE, [(2,)], lambda torch, x: torch.ones(2, dtype=torch.float64)),
    "constant element": (ONE, [()], lambda torch, x: torch.ones((), dtype=torch.float64)),
    "partly constant": (ONE, [(3,), (2,)], lambda torch, x: (x * 2, torch.ones(2, dtype=torch.float64))),
    "0-d": ([()], [(2,)], lambda torch, x: torch.stack([x, x ** 2])),
    "0-d to 0-d": ([()], [()], lambda torch, x: x.sin()),
    "one element in": ([(1,)], [()], lambda torch, x: (x ** 3).sum()),
    "a number": (ONE, [()], lambda torch, x: 1.0),
    "a list": (ONE, [()], lambda torch, x: [x]),
    "a tuple of one": (ONE, [()], lambda torch, x: (x.sum(),)),
    "nothing recorded": (ONE, [(3,)], lambda torch, x: x.detach() ** 2),
    "integers": (ONE, [(3,)], lambda torch, x: x.long()),
}
OPTIONS = [dict(zip(("create_graph", "strict"), values, strict=True)) for values in itertools.product((False, True), repeat=2)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tracked", [False, True])
def test_products_with_vectors(name, tracked, oracle):
    shapes, outputs, f = FUNCTIONS[name]

    def of(transform, options, v):
        def program(torch):
            x = tensors(torch, *shapes, requires_grad=tracked)
            given = None if v is None else tensors(torch, *v)
            return getattr(torch.autograd.functional, transform)(lambda *a: f(torch, *a), x, given, **options)
        return program
    for transform, options in itertools.product(("vjp", "jvp", "vhp", "hvp"), OPTIONS):
        for v in (outputs if transform == "vjp" else shapes, None, [(4,)], [(3,), (3,), (3,)]):
            check(of(transform, options, v), oracle, (name, transform, options, v))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tracked", [False, True])
def test_matrices(name, tracked, oracle):
    shapes, _, f = FUNCTIONS[name]

    def compare(transform, look=lambda found: found, **options):
        check(lambda torch: look(getattr(torch.autograd.functional, transform)(
            lambda *a: f(torch, *a), tensors(torch, *shapes, requires_grad=tracked), **options)), oracle, (name, transform, options))
    for options in OPTIONS:
        for transform in ("jacobian", "hessian"):
            compare(transform, **options)
            compare(transform, values, vectorize=True, **options)
        for vectorize in (False, True):
            compare("jacobian", values, vectorize=vectorize, strategy="forward-mode", **options)
            compare("hessian", values, vectorize=vectorize, outer_jacobian_strategy="forward-mode", **options)


PROGRAMS = {
    "another strategy": lambda torch: torch.autograd.functional.jacobian(lambda x: x, tensors(torch, (2,)), strategy="backward"),
    "another outer strategy": lambda torch: torch.autograd.functional.hessian(
        lambda x: x.sum(), tensors(torch, (2,)), outer_jacobian_strategy="backward"),
    "inputs in a list": lambda torch: torch.autograd.functional.vjp(lambda x: x, [tensors(torch, (2,))]),
    "forward mode, recorded": lambda torch: recorded(torch),
    "an input without elements": lambda torch: torch.autograd.functional.jacobian(
        lambda a, b: (a * 2, a.sum() + b.sum()), (tensors(torch, (2,)), torch.ones(0, dtype=torch.float64))),
    "an input without elements, in forward mode": lambda torch: values(torch.autograd.functional.jacobian(
        lambda a, b: (a * 2, a.sum() + b.sum()), (tensors(torch, (2,)), torch.ones(0, dtype=torch.float64)), strategy="forward-mode",
        vectorize=True)),
    "a v that is no tensor": lambda torch: torch.autograd.functional.vjp(lambda x: x, tensors(torch, (2,)), [1.0, 2.0]),
    "a v that requires grad": lambda torch: torch.autograd.functional.vjp(
        lambda x: x ** 2, tensors(torch, (2,)), tensors(torch, (2,), requires_grad=True), create_graph=True),
    "third derivatives": lambda torch: torch.autograd.functional.jacobian(
        lambda x: torch.autograd.functional.hessian(lambda y: (y ** 4).sum(), x, create_graph=True), tensors(torch, (2,))),
    "float32": lambda torch: torch.autograd.functional.jacobian(lambda x: x.double() ** 2, tensors(torch, (2,), dtype="float32")),
    "complex": lambda torch: torch.autograd.functional.jacobian(lambda x: x * x, tensors(torch, (2,), dtype="complex128"), vectorize=True),
    "complex, one by one": lambda torch: torch.autograd.functional.jacobian(lambda x: x * x, tensors(torch, (2,), dtype="complex128")),
    "complex vjp": lambda torch: torch.autograd.functional.vjp(
        lambda x: x * x * 1j, tensors(torch, (2,), dtype="complex128"), tensors(torch, (2,), dtype="complex128")),
    "complex jvp": lambda torch: torch.autograd.functional.jvp(
        lambda x: x * x * 1j, tensors(torch, (2,), dtype="complex128"), tensors(torch, (2,), dtype="complex128")),
    "inputs keep their gradients": lambda torch: keeps(torch),
}


def keeps(torch):
    x = tensors(torch, (2,), requires_grad=True)
    torch.autograd.functional.jacobian(lambda t: (t ** 2).sum(), x)
    before = x.grad
    torch.autograd.functional.hvp(lambda t: (t ** 3).sum(), x, x.detach(), create_graph=True)[1].sum().backward()
    return before, x.grad


def recorded(torch):
    x = tensors(torch, (2,), requires_grad=True)
    made = torch.autograd.functional.jacobian(lambda t: t ** 3, x, vectorize=True, strategy="forward-mode")
    return torch.autograd.grad(made.sum(), x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, oracle):
    check(PROGRAMS[name], oracle, name)


@pytest.mark.parametrize("torch", ["ours", "theirs"])
def test_what_errors_say(torch, oracle):
    torch = autograd_gpu if torch == "ours" else oracle
    F, x, y = torch.autograd.functional, *tensors(torch, (2,), (3,))
    for call, words in [
            (lambda: F.jacobian(lambda t: 5.0, x), ["outputs of the user-provided function", "jacobian", "Tensor or a tuple of Tensors"]),
            (lambda: F.vjp(lambda t: t, (x, 5)), ["inputs", "vjp", "the value at index 1 has type"]),
            (lambda: F.vjp(lambda t: t, x), ["v can only be None", "single Tensor with a single element"]),
            (lambda: F.vjp(lambda t: t, x, y), ["v has invalid size", "should be", "but got"]),
            (lambda: F.jvp(lambda s, t: t, (x, y), (x, x)), ["Entry 1 in v has invalid size"]),
            (lambda: F.jvp(lambda s, t: t, (x, y), x), ["v is a tuple of invalid length: should be 2 but got 1"]),
            (lambda: F.jvp(lambda t: t, x, (x, x)), ["v should contain a single Tensor"]),
            (lambda: F.jacobian(lambda s, t: s, (x, y), strict=True), ["Output 0", "is independent of input 1", "in strict mode"]),
            (lambda: F.vjp(lambda t: torch.ones(1), x, strict=True), ["Output 0", "does not require gradients", "strict mode"]),
            (lambda: F.hessian(lambda t: t, x), ["hessian", "should contain a single element"]),
            (lambda: F.vhp(lambda t: (t.sum(), t.sum()), x, x), ["vhp", "should return a single Tensor"]),
            (lambda: F.hvp(lambda t: t.sum() * 2, x, x, strict=True), ["jacobian of the user-provided", "input 0", "independent"]),
            (lambda: F.jacobian(lambda t: t, x, strict=True, vectorize=True), ["strict=True", "not supported together"]),
            (lambda: F.jacobian(lambda t: t, x, strategy="forward-mode"), ["vectorize=True"])]:
        _, found = said(call, *words)
        assert all(found), (words, found)


# --------------------------------------------------------------------------------------------------------- is_grads_batched

def batched(outputs, grads, **options):
    def program(torch):
        x = tensors(torch, (2,), requires_grad=True)
        unused = torch.ones(1, dtype=torch.float64, requires_grad=True)
        given = grads(torch)
        return torch.autograd.grad(outputs(x), [x, unused] if options.get("allow_unused") is not None or options.get("materialize_grads")
                                   else x, given, is_grads_batched=True, **options)
    return program


BATCHED = {
    "rows": batched(lambda x: x * x, lambda torch: torch.eye(2, dtype=torch.float64)),
    "of one element": batched(lambda x: (x * x).sum(), lambda torch: tensors(torch, (4,))),
    "two outputs": batched(lambda x: [x * x, x.sum()], lambda torch: list(tensors(torch, (3, 2), (3,)))),
    "without a batch": batched(lambda x: x * x, lambda torch: tensors(torch, (2,))),
    "another shape": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 3))),
    "0-d": batched(lambda x: x * x, lambda torch: tensors(torch, ())),
    "of no rows": batched(lambda x: x * x, lambda torch: torch.ones(0, 2, dtype=torch.float64)),
    "other sizes": batched(lambda x: [x * x, x * 2], lambda torch: list(tensors(torch, (3, 2), (2, 2)))),
    "none": batched(lambda x: x * x, lambda torch: None),
    "a word": batched(lambda x: x * x, lambda torch: "a"),
    "too few": batched(lambda x: [x * x, x * 2], lambda torch: [tensors(torch, (2, 2))]),
    "another dtype": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2), dtype="float32")),
    "complex for real": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2), dtype="complex128")),
    "unused": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2)), allow_unused=True),
    "unused, not allowed": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2)), allow_unused=False),
    "materialized": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2)), materialize_grads=True),
    "recorded": batched(lambda x: x * x, lambda torch: tensors(torch, (3, 2)), create_graph=True),
    "linear, recorded": batched(lambda x: x * 2, lambda torch: tensors(torch, (3, 2), requires_grad=True), create_graph=True),
    "linear": batched(lambda x: x * 2, lambda torch: tensors(torch, (3, 2), requires_grad=True)),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients(name, oracle):
    check(BATCHED[name], oracle, name)


@pytest.mark.parametrize("options", [{}, dict(vectorize=True), dict(vectorize=True, strategy="forward-mode")])
def test_nothing_to_differentiate_has_an_empty_jacobian(options):
    """PyTorch raises, but by forward mode."""
    x = tensors(autograd_gpu, (2,))
    for f, t, shape in ((lambda t: t[:0] * 2, x, (0, 2)), (lambda t: t * 2, x[:0], (0, 0))):
        found = autograd_gpu.autograd.functional.jacobian(f, t, **options)
        assert found.shape == shape and found.dtype == x.dtype


def test_a_batch_frees_the_graph_with_its_last_row():
    x = tensors(autograd_gpu, (2,), requires_grad=True)
    y = x * x
    autograd_gpu.autograd.grad(y, x, autograd_gpu.eye(2, dtype=autograd_gpu.float64), is_grads_batched=True)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
