"""Hooks on saved values and what is built on them: each program gives what it gives in PyTorch; then what only ours promises."""
import gc
import subprocess
import sys
import threading
import weakref

import pytest

import autograd_gpu
from autograd_gpu.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks
from tests.parity import result

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


def leaf(torch, n=2):
    return torch.arange(1.0, n + 1, dtype=torch.float64).requires_grad_()


def backward(y):
    y.sum().backward()


def hooks(torch, pack=lambda t: t, unpack=lambda t: t):
    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


# -------------------------------------------------------------------------------------------------------------- which hooks

@program
def integer_results(torch):
    log, x = [], leaf(torch, 4)
    with hooks(torch, lambda t: log.append((t.tolist(), t.requires_grad, t.is_leaf, t.grad_fn is None)) or t):
        y = x.max(0)[0] + x.sort()[0].sum() + x.topk(2)[0].sum()
    backward(y)
    return log, x.grad, x.sort()[0].grad_fn._saved_indices.requires_grad


@program
def numbers_in_recorded_gradients(torch):
    log = []
    for k in (2.0, 3, 2 + 1j):
        for f in (lambda x, k: x * k, lambda x, k: x / k, lambda x, k: k / x, lambda x, k: torch.sub(x, x * 2, alpha=k)):
            y = f(x := torch.ones(2, dtype=torch.complex128, requires_grad=True), k)
            with hooks(torch, lambda t: log.append(t.ndim) or t):
                torch.autograd.grad(y, x, torch.ones_like(y, requires_grad=True), create_graph=True)
            log.append(k)
    return log


@program
def nested_hooks(torch):
    log, x = [], leaf(torch)
    with hooks(torch, lambda t: log.append(1)):
        x.exp()
        with hooks(torch, lambda t: log.append(2)):
            x.exp()
        x.exp()
    x.exp()
    return log


@program
def hooks_of_this_thread_only(torch):
    log, x = [], leaf(torch)
    with hooks(torch, lambda t: log.append("packed") or t):
        thread = threading.Thread(target=x.exp)
        thread.start()
        thread.join()
    return log


@program
def disabled_hooks(torch):
    disable = torch.autograd.graph.disable_saved_tensors_hooks

    def message(enter):
        try:
            with enter():
                return "entered"
        except RuntimeError as error:
            return str(error)

    def in_thread():
        told = []
        thread = threading.Thread(target=lambda: told.append(message(lambda: hooks(torch))))
        thread.start()
        thread.join()
        return told
    told = []
    with disable("outer"):
        told.append(message(lambda: hooks(torch)))
        with disable("inner"):
            told += [message(lambda: hooks(torch)), message(torch.autograd.graph.save_on_cpu), in_thread(),
                     message(torch.autograd.graph.allow_mutation_on_saved_tensors)]
        told.append(message(lambda: hooks(torch)))
    with hooks(torch):
        told.append(message(lambda: disable("inside")))
    try:
        with disable("left by an exception"):
            raise KeyError
    except KeyError:
        told.append(message(lambda: hooks(torch)))
    decorated = disable("decorated")(lambda: message(lambda: hooks(torch)))
    return told, decorated(), message(lambda: hooks(torch)), result(lambda torch: disable(5).__enter__(), torch)


@program
def what_is_packed(torch):
    log = []
    x, m = leaf(torch, 4), leaf(torch, 4).reshape(2, 2)
    index = torch.tensor([[0, 1]])
    for run in (lambda: x.max(), lambda: m.max(0), lambda: m.min(1), lambda: m.gather(0, index), lambda: x * x, lambda: x * 2.0,
                lambda: torch.where(x > 2, x, x), lambda: x.prod(), lambda: x.detach() * 1, lambda: torch.cat([x, x]), lambda: x ** 3):
        log.append([])
        with hooks(torch, lambda t: log[-1].append((t.tolist(), str(t.dtype))) or t):
            run()
        log[-1].sort()
    return log


@program
def packed_indices(torch):
    x = leaf(torch, 4)
    with hooks(torch, lambda t: t.clone(), lambda t: 1 - t if t.dtype == torch.int64 else t):
        y = x.reshape(2, 2).max(0).values
    backward(y)
    return x.grad


@program
def hooks_with_recorded_work(torch):
    told, x = [], leaf(torch)

    def pack(t):
        told.append((torch.is_grad_enabled(), t.requires_grad))
        return t * 2

    def unpack(t):
        told.append((torch.is_grad_enabled(), t.requires_grad))
        return t / 2
    with hooks(torch, pack, unpack):
        y = x * x * x
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    backward(g)
    return told[:2], g, x.grad


@program
def hooks_while_a_gradient_is_recorded(torch):
    log, x = [], leaf(torch)
    y = (x ** 3).sum()
    with hooks(torch, lambda t: log.append("packed") or t, lambda t: t):
        g, = torch.autograd.grad(y, x, create_graph=True)
        torch.autograd.grad(y, x, retain_graph=True)
    return len(log) > 0, torch.autograd.grad(g.sum(), x)


# --------------------------------------------------------------------------------------------------------- one saved value

@program
def hooks_on_one_saved_value(torch):
    told, x = [], leaf(torch)
    y = x ** 3
    raw = y.grad_fn._raw_saved_self
    told += [raw.unpack() is x, raw.unpack_hook, raw.data.tolist()]

    def pack(t):
        told.append((t.requires_grad, t.grad_fn, torch.is_grad_enabled()))
        return t.tolist()
    raw.register_hooks(pack, lambda v: torch.tensor(v, dtype=torch.float64) * 2)
    told += [raw.data, raw.unpack(), y.grad_fn._saved_self, callable(raw.unpack_hook)]
    told.append(result(lambda torch: y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t), torch))
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    told += [g, torch.autograd.grad(g.sum(), x)]
    told.append(result(lambda torch: raw.register_hooks(lambda t: t, lambda t: t), torch))
    return told


@program
def hooks_on_what_is_no_tensor_any_more(torch):
    x = leaf(torch)
    told = []

    def refused(f):
        told.append(result(lambda torch: f(), torch))
    y = x * x
    raw = y.grad_fn._raw_saved_self
    for pack, unpack in ((5, 6), (lambda t: t, None)):
        refused(lambda: raw.register_hooks(pack, unpack))  # noqa: B023 - called at once
    refused(lambda: raw.register_hooks(lambda t: t))
    refused(lambda: (x * x).grad_fn._raw_saved_self.register_hooks(lambda t: t.mul_(2), lambda t: t))
    backward(y)
    refused(lambda: raw.register_hooks(lambda t: t, lambda t: t))
    refused(lambda: y.grad_fn._raw_saved_other.register_hooks(lambda t: t, lambda t: t))
    refused(lambda: y.grad_fn._saved_self)
    refused(raw.unpack)
    told.append(raw.data)
    z = x * torch.ones(2, dtype=torch.float64)
    told.append(z.grad_fn._saved_self)
    refused(lambda: z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t))
    refused(lambda: z.grad_fn._raw_saved_nonsense)
    with hooks(torch):
        z = x * x
    refused(lambda: z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t))
    (x * x).grad_fn._raw_saved_self.register_hooks(lambda t: 5, lambda t: t)
    refused(lambda: type(raw)())
    return [t if t != "TypeError" else "RuntimeError" for t in told]


@program
def hooks_on_a_saved_result(torch):
    told, x = [], leaf(torch)
    y = x.sqrt()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: told.append((t is y, t.requires_grad)) or t * 2, lambda t: t)
    saved = y.grad_fn._saved_result
    told += [saved.grad_fn is y.grad_fn, saved.requires_grad]
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    return told, result(lambda torch: torch.autograd.grad(g.sum(), x), torch) is not None


@program
def hooks_on_what_a_function_saved(torch):
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y, None)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y, none = ctx.saved_tensors
            return g * x * y
    x = leaf(torch)
    y = Saves.apply(x)
    first, second, third = y.grad_fn._raw_saved_tensors
    first.register_hooks(lambda t: t * 0 + 7, lambda t: t)
    second.register_hooks(lambda t: t * 10, lambda t: t)
    told = [result(lambda torch: third.register_hooks(lambda t: t, lambda t: t), torch), y.grad_fn.saved_tensors]
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    told += [g, torch.autograd.grad(g.sum(), x)]
    return told, result(lambda torch: y.grad_fn._raw_saved_tensors, torch)


@program
def which_raw_values_there_are(torch):
    x = leaf(torch, 4).reshape(2, 2)
    return [[n for n in dir(t.grad_fn) if n.startswith("_raw_saved")] for t in (x * x, x.exp(), x.max(0).values, x.sum(), x.prod(0))]


# ------------------------------------------------------------------------------------------------------------- save_on_cpu

@program
def saved_on_the_cpu(torch):
    x = leaf(torch)
    told = []
    for options in ({}, {"pin_memory": True}, {"pin_memory": False, "device_type": "cuda"}, {"device_type": "xpu"}):
        with torch.autograd.graph.save_on_cpu(**options):
            h = x * 2
            y = (h * h * x).sum()
            g, = torch.autograd.grad(y, x, create_graph=True)
            told += [y, g, torch.autograd.grad(g.sum(), x)]
    return told, isinstance(torch.autograd.graph.save_on_cpu(), torch.autograd.graph.saved_tensors_hooks)


# -------------------------------------------------------------------------------------------------- allow_mutation_on_saved

def mutation(run, after=lambda torch, context, loss: loss.backward()):
    def go(torch):
        x = leaf(torch)
        with torch.autograd.graph.allow_mutation_on_saved_tensors() as context:
            after(torch, context, run(torch, x, x * 1))
        return x.grad
    return go


def writes(*steps):
    def run(torch, x, h):
        y = (h ** 3).sum() + (h * h).sum()
        for step in steps:
            step(torch, h)
        return y + (h * h).sum()
    return run


MUTATIONS = {
    "once": writes(lambda torch, h: h.neg_()), "often": writes(*[lambda torch, h: h.mul_(2)] * 3), "never": writes(),
    "element": writes(lambda torch, h: h.__setitem__(0, 9.0)), "copy": writes(lambda torch, h: h.copy_(torch.ones(2))),
    "zero": writes(lambda torch, h: h.zero_()), "unrecorded": writes(lambda torch, h: h.detach().mul_(5)),
    "result": lambda torch, x, h: h.reciprocal().mul_(2).sum(),
    "itself": lambda torch, x, h: h.reciprocal_().mul_(h).add_(1).sum(), "shape": writes(lambda torch, h: h[:].unsqueeze_(0)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation(name, oracle):
    assert result(mutation(MUTATIONS[name]), autograd_gpu) == result(mutation(MUTATIONS[name]), oracle)


@program
def mutation_contexts(torch):
    allow = torch.autograd.graph.allow_mutation_on_saved_tensors
    once = MUTATIONS["once"]

    def sizes(torch, context, loss):
        told.append([len(context.cloned), len(context.original) > 0])
        loss.backward(retain_graph=True)
        loss.backward()
        context.clear()
        told.append([len(context.cloned), len(context.original)])

    def cleared(torch, context, loss):
        context.clear()
        loss.backward()

    def nested(torch, context, loss):
        with allow():
            pass
    told = []
    told += [result(mutation(once, f), torch) for f in (sizes, cleared, nested)]
    for run in (once, MUTATIONS["never"]):
        x = leaf(torch)
        with allow():
            y = run(torch, x, x * 1)
        told.append(result(lambda torch: y.backward(), torch))  # noqa: B023 - called at once
        with allow():
            told.append(result(lambda torch: y.backward(), torch))  # noqa: B023
    h = leaf(torch) * 1
    y = (h * h).sum()
    with allow():
        h.mul_(2)
        told.append(result(lambda torch: y.backward(), torch))
    return told


@program
def mutation_of_a_leaf(torch):
    x = leaf(torch)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = (x ** 2).sum()
        with torch.no_grad():
            x.sub_(0.5)
        y.backward()
    return x, x.grad


@program
def mutation_and_second_derivatives(torch):
    x = leaf(torch)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        h = x * 1
        y = (h ** 3).sum()
        h.neg_()
        g, = torch.autograd.grad(y, x, create_graph=True)
        return g, torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------ only ours

def overwrite(h):
    with autograd_gpu.no_grad():
        h.fill_(100.0)


@pytest.mark.parametrize("context", [
    save_on_cpu, lambda: save_on_cpu(pin_memory=True), lambda: saved_tensors_hooks(lambda t: t, lambda t: t)])
@pytest.mark.parametrize("use", [lambda h: h * h, lambda h: h.exp(), lambda h: h[:1] ** 2, lambda h: h.reshape(1, 2).max(1).values])
def test_a_write_to_what_stayed_where_it_was_is_noticed(context, use):
    for of_leaf in (False, True):
        x = leaf(autograd_gpu)
        h = x if of_leaf else x * 1
        with context():
            y = use(h)
        overwrite(y if y.grad_fn.name() == "ExpBackward0" else h)
        if y.grad_fn.name() != "MaxBackward0":                   # which saves indices only
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                backward(y)


def test_a_write_after_hooks_were_put_on_one_value_is_noticed():
    h = leaf(autograd_gpu) * 1
    y, z = h * h, h ** 3
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    overwrite(h)
    for out in (y, z):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.grad_fn._raw_saved_self.register_hooks(lambda t: t.clone(), lambda t: t)


def test_a_pack_hook_that_raised_leaves_the_value_as_it_was():
    x = leaf(autograd_gpu)
    y = x * x
    with pytest.raises(ZeroDivisionError):
        y.grad_fn._raw_saved_self.register_hooks(lambda t: 1 / 0, lambda t: t)
    backward(y)
    assert x.grad.tolist() == [2, 4]


def test_numbers_of_the_program_stay_what_they_are():
    x = leaf(autograd_gpu)
    y = x * 3.0
    with pytest.raises(RuntimeError, match="pack hook"):
        y.grad_fn._raw_saved_other.register_hooks(lambda t: t.mul_(2), lambda t: t)
    assert (x * 3.0).tolist() == [3, 6]


@pytest.mark.parametrize("part", [lambda h: h[1:], lambda h: h, lambda h: h.reshape(2, 1)])
@pytest.mark.parametrize("saved", [lambda h: h[1:], lambda h: h, lambda h: h.reshape(1, 2)])
def test_mutation_through_any_view(part, saved):
    x, want = leaf(autograd_gpu), leaf(autograd_gpu)
    (saved(want * 1) ** 2).sum().backward()
    with allow_mutation_on_saved_tensors():
        h = x * 1
        y = (saved(h) ** 2).sum()
        part(h).mul_(5)
        y.backward()
    assert x.grad.tolist() == want.grad.tolist()


def test_what_was_cloned_is_freed_with_its_graph():
    x = leaf(autograd_gpu)
    with allow_mutation_on_saved_tensors() as context:
        for _ in range(3):
            h = x * 1
            y = (h * h).sum()
            h.add_(1)
            assert len(context.cloned) == 1
            y.backward()
            assert len(context.cloned) == 0
            h.add_(1)
        assert len(context.cloned) == len(context.original) == 0


@pytest.mark.parametrize("context", [save_on_cpu, allow_mutation_on_saved_tensors])
def test_what_is_kept_makes_no_cycle(context):
    gc.collect()
    gc.disable()
    try:
        with context():
            x = leaf(autograd_gpu)
            y = (x * x).exp()
            dropped = [weakref.ref(t) for t in (x, y, y.grad_fn)]
            del x, y
            assert [r() for r in dropped] == [None] * 3
    finally:
        gc.enable()


SEVERAL_GRADIENTS = {
    "div": lambda F, a, b: a / b, "where": lambda F, a, b: autograd_gpu.where(a > b, a, b), "prelu": lambda F, a, b: F.prelu(a, b[:1]),
    "bce": lambda F, a, b: F.binary_cross_entropy_with_logits(a, b), "atan2": lambda F, a, b: autograd_gpu.atan2(a, b),
    "addcmul": lambda F, a, b: autograd_gpu.addcmul(a, a, b), "cosine": lambda F, a, b: F.cosine_similarity(a, b, 0),
}


@pytest.mark.parametrize("name", SEVERAL_GRADIENTS)
def test_a_value_is_unpacked_once_in_a_backward_whatever_gradients_use_it(name):
    a, b = autograd_gpu.tensor([0.3, 0.7], requires_grad=True), autograd_gpu.tensor([0.6, 0.2], requires_grad=True)
    log = []
    with saved_tensors_hooks(lambda t: (log.append("pack"), t)[1], lambda t: (log.append("unpack"), t)[1]):
        y = SEVERAL_GRADIENTS[name](autograd_gpu.nn.functional, a, b).sum()
    for create_graph in (True, False):
        packed = log.count("pack")
        del log[:]
        autograd_gpu.autograd.grad(y, [a, b], create_graph=create_graph, retain_graph=True)
        assert 0 < log.count("unpack") <= packed and "pack" not in log
        log += ["pack"] * packed


def test_every_saved_value_can_be_offloaded_without_a_change_of_the_program():
    """tests/offloaded.py stands for the package where a suite is run on values that were in host memory."""
    program = """
import threading
import tests.offloaded as torch
from tests.offloaded.autograd.graph import offload_report
def work():
    x = torch.ones(3, requires_grad=True)
    (x * x).exp().sum().backward()
    assert x.grad.tolist()[0] == 2 * torch.ones(1).exp().item()
work()
first = offload_report().stayed["leaf" if torch.cuda.is_available() else "cpu"]
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(first, sum(offload_report().stayed.values()))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, both = map(int, found.stdout.split())
    assert first > 0 and both == 2 * first, found.stderr
