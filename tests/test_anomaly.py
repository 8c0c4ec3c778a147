"""Anomaly mode: each program gives the errors and warnings that it gives in PyTorch; and what only ours shows."""
import re
import threading
import traceback
import warnings

import pytest

import autograd_gpu
from tests.parity import plain

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns, raises and warns of is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


@pytest.fixture(autouse=True)
def _off():
    """No test leaves anomaly mode on."""
    yield
    autograd_gpu.autograd.set_detect_anomaly(False)


def seen(f, torch):
    """(a program's result or error, its warnings), file names, addresses and lines of other files left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = plain(f(torch))
        except Exception as error:
            found = type(error).__name__, re.findall(r"'(\w+)' returned nan values in its (\d+)th output|division by zero", str(error))
    return found, [(w.category.__name__, told(str(w.message))) for w in caught]


def told(message):
    """What a warning says: its first words, the node it names, and the lines of this file that it shows."""
    node = re.search(r"(?:Error detected in|induced by) ([\w:]+)", message)
    what = [w for w in ("Anomaly Detection has been enabled", "No forward pass information available", "Error detected in",
                        "Traceback of forward call that caused the error", "Previous calculation was induced by",
                        "Traceback of forward call that induced the previous calculation") if w in message]
    inner = [line for line in re.findall(r'File ".*test_anomaly.py", line (\d+)', message)]
    return what, node and node[1], inner


def ones(torch, n=1):
    return torch.ones(n, dtype=torch.float64, requires_grad=True)


def nan_loss(w):
    return (w * 0).sqrt().mul(0).sum()


# ----------------------------------------------------------------------------------------------------------- NaN found

@program
def nan(torch):
    with torch.autograd.detect_anomaly():
        nan_loss(ones(torch)).backward()


@program
def nan_in_grad(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        torch.autograd.grad(nan_loss(w), w)


@program
def forward_outside(torch):
    loss = nan_loss(ones(torch))
    with torch.autograd.set_detect_anomaly(True):
        loss.backward()


@program
def backward_outside(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        loss = nan_loss(w)
    loss.backward()
    return sorted(loss.grad_fn.metadata), str(w.grad.tolist())


@program
def no_check(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        nan_loss(w).backward()
    return str(w.grad.tolist())


@program
def infinity(torch):
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        w.sqrt().sum().backward()
    return w.grad


@program
def first_of_two(torch):
    a, b = ones(torch), torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        ((a * 0) / b).nansum().backward()


@program
def second_of_two(torch):
    a, b = ones(torch), torch.zeros(1, dtype=torch.float64, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (a.detach() * 0 / b).sum().backward()


@program
def one_of_many(torch):
    a, b = ones(torch, 2), ones(torch, 2)
    with torch.autograd.set_detect_anomaly(True):
        y = torch.cat([a, b])
        y.backward(torch.tensor([1.0, 1.0, float("nan"), 1.0], dtype=torch.float64))


@program
def of_a_complex_gradient(torch):
    w = torch.ones(1, dtype=torch.complex128, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (w * 2).backward(torch.tensor([complex(0.0, float("nan"))], dtype=torch.complex128))


@program
def given(torch):
    with torch.autograd.set_detect_anomaly(True):
        ones(torch).exp().sum().backward(torch.tensor(float("nan"), dtype=torch.float64))


@program
def given_to_a_leaf(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        w.backward(torch.tensor([float("nan")], dtype=torch.float64))
    return str(w.grad.tolist())


@program
def masked(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        torch.where(w > 2, w, (w * 0).sqrt() * float("inf")).sum().backward()


@program
def from_a_hook(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch).exp()
        y.register_hook(lambda g: g * float("nan"))
        y.sum().backward()


@program
def from_a_post_hook(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch).exp()
        y.grad_fn.register_hook(lambda results, grads: (results[0] * float("nan"),))
        y.sum().backward()


@program
def from_a_leaf_hook(torch):
    """What a leaf gets is no result of a node."""
    w = ones(torch)
    w.register_hook(lambda g: g * float("nan"))
    with torch.autograd.set_detect_anomaly(True):
        w.exp().sum().backward()
    return str(w.grad.tolist())


@program
def after_a_write_to_a_view(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch, 2) * 0
        y[:1].sqrt_()
        y.sum().mul(0).backward()


def function(torch, backward):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return backward(ctx, g), None
    return Bad


@program
def from_a_function(torch):
    with torch.autograd.set_detect_anomaly(True):
        function(torch, lambda ctx, g: g * float("nan")).apply(ones(torch), 3).sum().backward()


# ------------------------------------------------------------------------------------------------------- errors explained

@program
def function_that_raises(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = function(torch, lambda ctx, g: 1 / 0).apply(ones(torch), 3)
        y.sum().backward()


@program
def hook_that_raises(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch).exp()
        y.register_hook(lambda g: 1 / 0)
        y.sum().backward()


@program
def prehook_that_raises(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch).exp()
        y.grad_fn.register_prehook(lambda g: 1 / 0)
        y.sum().backward()


@program
def post_hook_that_raises(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch).exp()
        y.grad_fn.register_hook(lambda a, b: 1 / 0)
        y.sum().backward()


@program
def leaf_hook_that_raises(torch):
    w = ones(torch)
    w.register_hook(lambda g: 1 / 0)
    with torch.autograd.set_detect_anomaly(True):
        w.exp().sum().backward()


@program
def post_accumulate_hook_that_raises(torch):
    w = ones(torch)
    w.register_post_accumulate_grad_hook(lambda t: 1 / 0)
    with torch.autograd.set_detect_anomaly(True):
        w.exp().sum().backward()


@program
def modified(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch, 2).exp()
        y.add_(1)
        y.sum().backward()


@program
def freed(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = ones(torch, 2).exp().sum()
        y.backward()
        y.backward()


@program
def error_outside(torch):
    with torch.autograd.set_detect_anomaly(True):
        y = function(torch, lambda ctx, g: 1 / 0).apply(ones(torch), 3)
    y.sum().backward()


@program
def second_order(torch):
    """The node at fault was made by another's backward: that one's lines follow."""
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        def root(ctx, g):
            x, = ctx.saved_tensors
            return g * (x * 0).sqrt()
        y = function(torch, root).apply(w, 3)
        g, = torch.autograd.grad(y.sum(), w, create_graph=True)
        g.sum().backward()


@program
def inner_backward_that_raises(torch):
    def inner(ctx, g):
        with torch.enable_grad():
            y = function(torch, lambda ctx, g: 1 / 0).apply(ones(torch), 1)
            y.sum().backward()
    with torch.autograd.set_detect_anomaly(True):
        function(torch, inner).apply(ones(torch), 3).sum().backward()


# ------------------------------------------------------------------------------------------------------------- metadata

@program
def metadata(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        y = w.exp()
        x = w * 2
        x[:1].mul_(3)
        f = function(torch, lambda ctx, g: g).apply(w, 3)
        v = x[0]
        several = torch.max(x, 0)[0]
    z = w.exp()
    return [sorted(t.grad_fn.metadata) for t in (y, x, f, v, several, z)], sorted(y.grad_fn.next_functions[0][0].metadata)


@program
def metadata_lines(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        def make(t):
            return t.exp()
        y = make(w)
    lines = y.grad_fn.metadata["traceback_"]
    return [line.splitlines()[1].strip() for line in lines[-2:]], all(type(line) is str for line in lines)


@program
def parents(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        y = (w * w).sum()
        g, = torch.autograd.grad(y, w, create_graph=True)
        after = w * 2
    return g.grad_fn.metadata["parent_"].name(), sorted(after.grad_fn.metadata)


@program
def with_hooks_on_what_is_saved(torch):
    with torch.autograd.set_detect_anomaly(True), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = ones(torch).exp()
    return sorted(y.grad_fn.metadata)


@program
def under_no_grad(torch):
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True), torch.no_grad():
        off = w * 2
        with torch.enable_grad():
            on = w * 2
    return off.requires_grad, sorted(on.grad_fn.metadata)


# ------------------------------------------------------------------------------------------------------------- switches

@program
def switches(torch):
    found = []

    def note():
        found.append((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))
    note()
    with torch.autograd.set_detect_anomaly(True):
        note()
        with torch.autograd.set_detect_anomaly(False):
            note()
        note()
        with torch.autograd.detect_anomaly(check_nan=False):
            note()
            with torch.autograd.detect_anomaly():
                note()
            note()
        note()
    note()
    torch.autograd.set_detect_anomaly(True, False)
    note()
    torch.set_anomaly_enabled(False)
    note()
    try:
        with torch.autograd.detect_anomaly():
            raise KeyError
    except KeyError:
        note()
    return found


@program
def other_threads(torch):
    found = []
    ready, on = threading.Event(), threading.Event()

    def work():
        w = ones(torch)
        before = sorted((w * 2).grad_fn.metadata)
        ready.set()
        on.wait()
        found.append((before, torch.is_anomaly_enabled(), sorted((w * 2).grad_fn.metadata)))
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with torch.autograd.set_detect_anomaly(True):
        on.set()
        thread.join()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


WRONG = {"none": lambda torch: torch.autograd.set_detect_anomaly(None), "number": lambda torch: torch.autograd.set_detect_anomaly(1),
         "nothing": lambda torch: torch.autograd.set_detect_anomaly(), "text": lambda torch: torch.set_anomaly_enabled("on"),
         "check": lambda torch: torch.set_anomaly_enabled(True, None), "decorator": lambda torch: torch.autograd.detect_anomaly()(len)}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use(name, oracle):
    assert seen(WRONG[name], autograd_gpu) == seen(WRONG[name], oracle)
    assert not autograd_gpu.is_anomaly_enabled()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert seen(PROGRAMS[name], autograd_gpu) == seen(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------- only ours

def message(f):
    """The text of the RuntimeError that a call raises."""
    with warnings.catch_warnings(), pytest.raises(RuntimeError) as caught:
        warnings.simplefilter("ignore")
        f()
    return str(caught.value)


def test_the_line_that_wrote_is_named():
    torch = autograd_gpu

    def spoil(write):
        w = torch.ones(2, requires_grad=True)
        y = w.exp()
        write(y)
        y.sum().backward()
    for write in (lambda y: y.add_(1), lambda y: y.__setitem__(0, 5.0), lambda y: y[1:].mul_(3), lambda y: y.detach().zero_()):
        assert "set_detect_anomaly(True)" in message(lambda: spoil(write))       # noqa: B023 - called at once
        with torch.autograd.set_detect_anomaly(True):
            text = message(lambda: spoil(write))                                 # noqa: B023
        assert "for write in (lambda y: y.add_(1)" in text and "test_anomaly.py" in text and "/autograd_gpu/" not in text


def test_the_program_alone_is_shown():
    """No line of this package, wherever the user's own lines are among them."""
    torch = autograd_gpu
    w = ones(torch)
    with torch.autograd.set_detect_anomaly(True):
        g, = torch.autograd.grad(function(torch, lambda ctx, g: g * ctx.saved_tensors[0]).apply(w, 3).sum(), w, create_graph=True)
    lines = "".join(g.grad_fn.metadata["traceback_"])
    assert "autograd_gpu/" not in lines and "g * ctx.saved_tensors[0]" in lines and "create_graph=True)" in lines


def test_a_warning_points_at_the_backward_call():
    torch = autograd_gpu
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="SqrtBackward0") as caught, pytest.raises(RuntimeError):
        nan_loss(ones(torch)).backward()
    assert [w.filename for w in caught] == [__file__]
    assert traceback.linecache.getline(__file__, caught[0].lineno).strip() == "nan_loss(ones(torch)).backward()"


def test_one_object_inside_itself():
    """PyTorch switches anomaly mode off where the inner block ends."""
    torch = autograd_gpu
    with pytest.warns(UserWarning, match="Anomaly"):
        mode = torch.autograd.detect_anomaly()
    with mode:
        with mode:
            pass
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


def test_switched_on_in_a_hook():
    """What the mode is when a backward ends is what it is after."""
    torch = autograd_gpu
    w = ones(torch)
    y = w.exp()
    y.register_hook(lambda g: torch.autograd.set_detect_anomaly(True) and None)
    y.sum().backward()
    assert list((w * 2).grad_fn.metadata) == ["traceback_"]
    torch.autograd.set_detect_anomaly(False)
    assert list((w * 2).grad_fn.metadata) == []
