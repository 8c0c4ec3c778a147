"""Custom Functions: each program gives what it gives in PyTorch, values, flags, gradients and errors; and what only ours promises."""
import gc
import weakref

import numpy as np
import pytest

import autograd_gpu
from tests.parity import result

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def scale(torch, backward=None, forward=None):
    """A Function of one tensor and one constant; forward and backward may be replaced."""
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            return x * k if forward is None else forward(ctx, x, k)

        @staticmethod
        def backward(ctx, *grads):
            return (grads[0] * ctx.k, None) if backward is None else backward(ctx, *grads)
    return Scale


def leaf(torch, n=2):
    return torch.arange(1.0, n + 1, dtype=torch.float64).requires_grad_()


RETURNED = {
    "list": lambda g: [g, None], "trailing_nones": lambda g: (g, None, None, None), "number": lambda g: (3.0, None),
    "too_few": lambda g: (g,), "too_many": lambda g: (g, None, g), "for_a_constant": lambda g: (g, g), "text": lambda g: "a",
    "larger": lambda g: (g.expand(3, 2), None), "empty": lambda g: (g[:0], None), "complex": lambda g: (g * 1j, None),
    "integers": lambda g: (g.long(), None), "none": lambda g: (None, None), "bare_none": lambda g: None,
    "smaller": lambda g: (g[:1], None), "more_dimensions": lambda g: (g.reshape(2, 1), None),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_backward_returns(name, oracle):
    def run(torch):
        x = leaf(torch)
        scale(torch, lambda ctx, g: RETURNED[name](g)).apply(x, 2.0).sum().backward()
        return x.grad
    assert result(run, autograd_gpu) == result(run, oracle)


FORWARDS = {
    "dirty": lambda ctx, x, k: (ctx.mark_dirty(x), x.mul_(k))[1],
    "dirty_not_written": lambda ctx, x, k: (ctx.mark_dirty(x), x)[1],
    "dirty_not_returned": lambda ctx, x, k: (ctx.mark_dirty(x), x * 1)[1],
    "dirty_and_more": lambda ctx, x, k: (ctx.mark_dirty(x), (x.mul_(k), x * 2))[1],
    "dirty_no_input": lambda ctx, x, k: (lambda y: (ctx.mark_dirty(y), y)[1])(x * k),
    "dirty_view_returned": lambda ctx, x, k: (ctx.mark_dirty(x), x.mul_(k).view(-1))[1],
    "dirty_not_differentiable": lambda ctx, x, k: (ctx.mark_dirty(x), ctx.mark_non_differentiable(x), x.mul_(k))[2],
    "written_not_marked": lambda ctx, x, k: x.mul_(k),
    "itself": lambda ctx, x, k: x,
    "itself_not_differentiable": lambda ctx, x, k: (ctx.mark_non_differentiable(x), x)[1],
    "twice_itself": lambda ctx, x, k: (x, x),
    "a_view": lambda ctx, x, k: x[:1],
    "several_views": lambda ctx, x, k: (x[:1], x[1:]),
    "view_of_something_new": lambda ctx, x, k: (x * k)[:1],
    "other_types": lambda ctx, x, k: (x * k, None, 5, "a", x.long()),
    "list": lambda ctx, x, k: [x * k, x],
    "nothing": lambda ctx, x, k: None,
    "tuple_of_one": lambda ctx, x, k: (x * k,),
    "the_same_twice": lambda ctx, x, k: (lambda y: (y, y))(x * k),
    "half": lambda ctx, x, k: x.half() * k,
    "saved_number": lambda ctx, x, k: (ctx.save_for_backward(x, k), x * k)[1],
    "dirty_a_number": lambda ctx, x, k: (ctx.mark_dirty(3), x * k)[1],
    "dirty_a_list": lambda ctx, x, k: (ctx.mark_dirty([x]), x)[1],
    "not_differentiable_a_number": lambda ctx, x, k: (ctx.mark_non_differentiable(3), x * k)[1],
    "not_differentiable_a_list": lambda ctx, x, k: (ctx.mark_non_differentiable([x]), x * k)[1],
    "materialize_a_number": lambda ctx, x, k: (ctx.set_materialize_grads(0), x * k)[1],
    "saved_number_for_forward": lambda ctx, x, k: (ctx.save_for_forward(k), x * k)[1],
    "a_leaf_of_its_own": lambda ctx, x, k: (x * k).requires_grad_(),
    "saved_none": lambda ctx, x, k: (ctx.save_for_backward(x, None), x * k)[1],
}
INPUTS = {
    "leaf": lambda torch: leaf(torch), "computed": lambda torch: leaf(torch) * 1, "view": lambda torch: (leaf(torch, 3) * 1)[:2],
    "view_of_leaf": lambda torch: leaf(torch, 3)[:2], "untracked": lambda torch: torch.ones(2), "one_of_several": lambda torch:
    (leaf(torch, 4) * 1).split(2)[0], "untracked_view": lambda torch: torch.ones(3)[:2],
}


def ran(torch, forward, make, after):
    """Apply a Function to an input, do something with what it gave, and tell everything about both."""
    x = make(torch)
    before = x._version
    Scale = scale(torch, lambda ctx, g, *rest: (g.sum() * torch.ones(2), None), forward)
    made = Scale.apply(x, 2.0)
    y = made[0] if isinstance(made, tuple) else made
    told = [y is x, x._version - before, made, x]
    if hasattr(y, "_is_view"):
        told += [y._is_view(), y.is_leaf, y.data_ptr() == x.data_ptr()]
        told.append(after(torch, x, y))
    return told


def add_in_place(torch, x, y):
    y.add_(1)
    return y, x


def add_to_the_input(torch, x, y):
    with torch.no_grad():
        x.add_(1)
    return y, x


def backward(torch, x, y):
    y.sum().backward()
    return y


@pytest.mark.parametrize("after", [lambda torch, x, y: None, add_in_place, add_to_the_input, backward])
@pytest.mark.parametrize("make", INPUTS)
@pytest.mark.parametrize("forward", FORWARDS)
def test_what_forward_returns(forward, make, after, oracle):
    def run(torch):
        return ran(torch, FORWARDS[forward], INPUTS[make], after)

    def run_unrecorded(torch):
        with torch.no_grad():
            return ran(torch, FORWARDS[forward], INPUTS[make], after)
    assert result(run, autograd_gpu) == result(run, oracle)
    assert result(run_unrecorded, autograd_gpu) == result(run_unrecorded, oracle)


@program
def keyword_arguments(torch):
    class Apart(torch.autograd.Function):
        @staticmethod
        def forward(x, k=2, flag=True):
            return x * k if flag else x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.inputs = inputs[1:]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.inputs[0], None, None
    x = leaf(torch)
    return [Apart.apply(x), Apart.apply(flag=False, x=x), Apart.apply(x, 3).grad_fn.inputs, Apart.apply(x, 4).grad_fn.needs_input_grad]


@program
def forward_records_a_write_to_its_input(torch):
    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                x.mul_(3)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * 5
    x = leaf(torch)
    y = x * 1
    out = Writes.apply(y)
    (out.sum() + y.sum()).backward()
    return x.grad, out.grad_fn.next_functions[0][0].name(), y.grad_fn.name()


@program
def forward_computes_what_requires_no_gradient(torch):
    class Many(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            for _ in range(600):             # one node in 251 is of a subclass
                assert not (x * 2).requires_grad_(False).requires_grad
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2
    x = leaf(torch)
    Many.apply(x).sum().backward()
    return x.grad


@program
def a_gradient_is_none_where_not_materialized(torch):
    seen = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append([a, b])
            return b
    x = leaf(torch)
    Two.apply(x)[1].sum().backward()
    return seen, x.grad


@program
def backward_may_write_to_its_gradient(torch):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.mul_(0.5)
    x = leaf(torch)
    (Halved.apply(x) * 3).sum().backward()
    return x.grad


@program
def once_differentiable_twice(torch):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2
    x = leaf(torch)
    g, = torch.autograd.grad((Cube.apply(x) ** 2).sum(), x, create_graph=True)
    told = [g, torch.autograd.grad((g * x).sum(), x)]
    try:
        g.sum().backward()
    except RuntimeError as error:
        told.append("trying to differentiate twice" in str(error))
    g, = torch.autograd.grad((Cube.apply(x) ** 2).sum(), x, create_graph=True)
    told.append([f is None for f in torch.autograd.grad(g, x, torch.ones_like(g), allow_unused=True)])
    try:
        g.backward(torch.ones_like(g))       # the root is the node that refuses
    except RuntimeError as error:
        told.append("trying to differentiate twice" in str(error))
    return told


@program
def saved_outputs_have_the_node_as_history(torch):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y, x)
            return y

        @staticmethod
        def backward(ctx, g):
            y, x = ctx.saved_tensors
            return g * y
    x = leaf(torch)
    y = Exp.apply(x)
    orders = [y]
    for _ in range(3):
        y, = torch.autograd.grad(y.sum(), x, create_graph=True)
        orders.append(y)
    return orders


@program
def a_write_to_a_saved_output(torch):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]
    y = Exp.apply(leaf(torch))
    z = y * 1
    with torch.no_grad():
        y.add_(1)
    z.sum().backward()


@program
def saved_values_are_freed(torch):
    Scale = scale(torch, lambda ctx, g: (g * ctx.saved_tensors[0], None), lambda ctx, x, k: (ctx.save_for_backward(x), x * k)[1])
    y = Scale.apply(leaf(torch), 2.0)
    y.sum().backward()
    return y.grad_fn.saved_tensors


@program
def saved_tensor_hooks_see_what_is_saved(torch):
    seen = []

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            y = x * k
            ctx.save_for_backward(x, y, None, torch.ones_like(x) + 1)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y, nothing, other = ctx.saved_tensors
            return g * (x + y + other), None
    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.tolist()) or t.detach().clone(), lambda t: t):
        y = Both.apply(x, 2.0)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    return seen, g, torch.autograd.grad(g.sum(), x)


@program
def errors_in_forward(torch):
    def forward(ctx, x, k):
        raise KeyError("forward")
    try:
        scale(torch, forward=forward).apply(leaf(torch), 2.0)
    except KeyError:
        return torch.is_grad_enabled()


@program
def a_view_made_in_no_grad(torch):
    told = []
    for base in (torch.ones(4), leaf(torch, 4), leaf(torch, 4) * 1):
        for take in (lambda x: x[:2], lambda x: x.split(2)[0], lambda x: x.view(2, 2)[0], lambda x: x.unbind()[0]):
            with torch.no_grad():
                v = take(base)
            again = v.view(-1) if v.ndim else v
            told.append([v.requires_grad, v.is_leaf, v._is_view()])
            for write in (lambda v: v.add_(1), lambda v: v.mul_(torch.ones(1)[0].requires_grad_())):
                for target in (v, again):
                    told.append(result(lambda _, w=write, t=target: w(t), torch))
    return told


@program
def a_view_made_in_forward_that_needs_no_gradient(torch):
    kept = []

    def forward(ctx, x, k):
        kept.extend([(x * k)[:1], *(x * k).split(1), (x * k).view(-1)])
        ctx.mark_non_differentiable(kept[-1])
        return x * k, kept[-1]
    scale(torch, forward=forward).apply(leaf(torch), 2.0)
    return [result(lambda _, v=v: v.mul_(leaf(torch)[0]), torch) for v in kept]


@program
def nothing_saved_is_freed_too(torch):
    counts = []

    def backward(ctx, g):
        counts.append(len(ctx.saved_tensors))
        return g, None
    y = scale(torch, backward=backward).apply(leaf(torch), 2.0)
    return [result(lambda _, keep=keep: y.sum().backward(retain_graph=keep), torch) for keep in (True, False, False)], counts


@program
def a_dirty_view_beside_another_output(torch):
    class AddTwice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.mark_dirty(a)
            return a.add_(b), b * 2

        @staticmethod
        def backward(ctx, ga, gb):
            return ga, ga + gb * 2
    b = leaf(torch)

    def run(a):
        sum(y.sum() for y in AddTwice.apply(a, b)).backward()
        return b.grad
    return [result(lambda _, a=a: run(a), torch) for a in (torch.ones(2), torch.ones(3)[1:], (b * 1)[:2], (b * 1)[:1])]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_pytorch(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------ ours alone

def test_what_backward_writes_and_returns_is_its_own():
    torch = autograd_gpu
    kept = []

    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            g.zero_()
            kept.append(ctx.saved_tensors[0])
            return ctx.saved_tensors[0]
    for create_graph in (False, True):
        x, z = leaf(torch), leaf(torch)
        grads = torch.autograd.grad((Careless.apply(x) + z).sum(), (x, z), create_graph=create_graph)
        assert [g.tolist() for g in grads] == [[1.0, 2.0], [1.0, 1.0]]
        assert not np.shares_memory(grads[0].detach().numpy(), x.detach().numpy())
    x = leaf(torch)
    Careless.apply(x).sum().backward()
    x.grad.zero_()
    assert x.tolist() == [1.0, 2.0]


def test_a_dirty_second_argument_that_is_a_view():
    """PyTorch takes the first argument's gradient for the view's."""
    torch = autograd_gpu

    class AddTo(torch.autograd.Function):
        @staticmethod
        def forward(ctx, b, a):
            ctx.mark_dirty(a)
            return a.add_(b)

        @staticmethod
        def backward(ctx, g):
            return g * 10, g * 100
    a, b = leaf(torch, 3), leaf(torch, 1)
    h = a * 1
    AddTo.apply(b, h[:1])
    first, second = torch.autograd.grad(h.sum(), (a, b), create_graph=True)
    assert first.tolist() == [100.0, 1.0, 1.0] and second.tolist() == [10.0]
    h.sum().backward()
    assert a.grad.tolist() == [100.0, 1.0, 1.0] and b.grad.tolist() == [10.0]


def test_the_user_owns_the_names_on_ctx():
    torch = autograd_gpu
    names = ["name", "seq", "device", "outputs", "apply", "edges", "record", "arity", "release", "saved", "inputs", "title", "x"]

    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            for i, n in enumerate(names):
                setattr(ctx, n, i)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * sum([getattr(ctx, n) for n in names])
    x = leaf(torch)
    Named.apply(x).sum().backward()
    assert x.grad.tolist() == [78.0, 78.0]


def test_no_cycles():
    torch = autograd_gpu

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]
    gc.collect()
    gc.disable()
    try:
        x = leaf(torch)
        y = Saves.apply(x)
        node, saved = weakref.ref(y.grad_fn), weakref.ref(y)
        y.sum().backward()
        assert y.grad_fn is node()
        del y
        assert node() is None and saved() is None
    finally:
        gc.enable()


def test_a_functions_class_can_be_freed():
    torch = autograd_gpu
    functions = []

    def use():
        Scale = scale(torch)
        for _ in range(300):                 # some of these nodes unlink
            Scale.apply(leaf(torch), 2.0).sum().backward()
        functions.append(weakref.ref(Scale))
    use()
    gc.collect()
    assert functions[0]() is None


def test_a_long_chain(in_small_stack):
    torch = autograd_gpu
    Scale = scale(torch)

    def run():
        x = leaf(torch)
        y = x
        for _ in range(20_000):
            y = Scale.apply(y, 1.0)
        y.sum().backward()
        return x.grad.tolist()
    assert in_small_stack(run) == [1.0, 1.0]


@pytest.mark.parametrize("words, marked", [("mark_dirty can only accept variables, but argument", lambda ctx: ctx.mark_dirty(3)),
                                           ("mark_non_differentiable only accepts variable", lambda ctx: ctx.mark_non_differentiable(3))])
def test_what_is_marked_has_to_be_a_tensor(words, marked, oracle):
    for torch in (autograd_gpu, oracle):
        with pytest.raises(RuntimeError, match=words):
            scale(torch, forward=lambda ctx, x, k: (marked(ctx), x * k)[1]).apply(leaf(torch), 2.0)


def test_forward_may_use_an_inference_tensor(oracle):
    def run(torch):
        with torch.inference_mode():
            w = torch.full((2,), 3.0, dtype=torch.float64)
        x = leaf(torch)
        scale(torch, forward=lambda ctx, x, k: x * w).apply(x, 3.0).sum().backward()
        return x.grad.tolist()
    assert run(autograd_gpu) == run(oracle)


def test_forward_may_differentiate_with_respect_to_what_it_computed(oracle):
    def run(torch):
        def forward(ctx, x, k):
            z = (x * k).requires_grad_()
            with torch.enable_grad():
                (z * z).sum().backward()
            return x * z.grad
        y = scale(torch, forward=forward).apply(leaf(torch), 2.0)
        return y.tolist(), y.requires_grad
    assert run(autograd_gpu) == run(oracle)


def test_instances_are_refused():
    torch = autograd_gpu
    Scale = scale(torch)
    with pytest.warns(DeprecationWarning, match="instantiated"):
        f = Scale()
    with pytest.raises(RuntimeError, match="static"):
        f(leaf(torch))
