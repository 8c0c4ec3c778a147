"""What a checkpoint's second run meets: random numbers that are drawn again, memory that is freed, every operator, threads."""
import gc
import threading
import weakref

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.generator import Repeatable
from autograd_gpu.utils import checkpoint as ours
from tests.cuda.programs import PROGRAMS as OPERATORS
from tests.test_checkpoint import leaf


def dropped(x, preserve, use_reentrant):
    masks = []

    def f(t):
        y = autograd_gpu.nn.functional.dropout(t * 1.0, 0.5)
        masks.append((y != 0).tolist())
        return y * y
    y = ours.checkpoint(f, x, use_reentrant=use_reentrant, preserve_rng_state=preserve, **({} if use_reentrant else {"early_stop": False}))
    return y, masks


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_random_numbers_are_drawn_again(use_reentrant):
    x = autograd_gpu.ones(200, requires_grad=True)
    autograd_gpu.manual_seed(5)
    y, masks = dropped(x, True, use_reentrant)
    between = autograd_gpu.get_rng_state()
    y.sum().backward()
    assert masks[0] == masks[1] and autograd_gpu.get_rng_state().equal(between)
    autograd_gpu.manual_seed(5)              # the forward draws what it draws without a checkpoint
    assert (autograd_gpu.nn.functional.dropout(x, 0.5) != 0).tolist() == masks[0]
    y, masks = dropped(x, False, use_reentrant)
    y.sum().backward()
    assert masks[0] != masks[1]


def test_seeds_set_inside_do_not_outlive_the_second_run():
    def f(t):
        autograd_gpu.manual_seed(3)
        return (t * autograd_gpu.rand(2)).exp()
    x = autograd_gpu.ones(2, requires_grad=True)
    y = ours.checkpoint(f, x, use_reentrant=False)
    autograd_gpu.manual_seed(9)
    before = autograd_gpu.get_rng_state()
    y.sum().backward()
    assert autograd_gpu.get_rng_state().equal(before) and autograd_gpu.initial_seed() == 9
    assert x.grad.tolist() == y.detach().mul(autograd_gpu.rand(2, generator=autograd_gpu.Generator().manual_seed(3))).tolist()


def test_repeated_numbers_nest():
    drawn = []

    def draw():
        outer = Repeatable()
        drawn.append(autograd_gpu.rand(3).tolist())
        with outer.again():
            assert autograd_gpu.rand(3).tolist() == drawn[-1]
        drawn.append(autograd_gpu.rand(3).tolist())
    outer = Repeatable()
    with outer.first():
        draw()
    for _ in range(2):
        with outer.again():
            draw()
    assert drawn[:2] == drawn[2:4] == drawn[4:]


def test_what_is_saved_inside_is_freed_and_so_is_the_rest_after_backward():
    made = []

    def f(t):
        y = t.exp()
        made.append(weakref.ref(y))
        return y.sin().cos()
    x = leaf(autograd_gpu)
    h = x * 2
    gc.disable()
    try:
        y = ours.checkpoint(f, h, use_reentrant=False)
        assert made[0]() is None
        held, frame = weakref.ref(h), weakref.ref(y.grad_fn.next_functions[0][0])
        del h
        assert held() is not None
        y.sum().backward()
        del y
        assert [r() for r in made] == [None, None] and held() is None and frame() is None
    finally:
        gc.enable()


def test_values_of_a_backward_that_failed_are_freed():
    x, made = leaf(autograd_gpu), []

    def f(t):
        y = t.exp()
        made.append(weakref.ref(y._array.base if y._array.base is not None else y))
        return y.sin().exp()
    y = ours.checkpoint(f, x, use_reentrant=False)
    y.register_hook(lambda g: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            y.sum().backward(retain_graph=True)
    gc.collect()
    assert all(r() is None for r in made)


def test_the_function_cannot_catch_the_end_of_its_run():
    log = []

    def f(t):
        try:
            t = t.exp()
        except Exception:
            log.append("caught")
        return t.sin()
    x = leaf(autograd_gpu)
    ours.checkpoint(f, x, use_reentrant=False).sum().backward()
    assert log == [] and np.allclose(x.grad.numpy(), np.cos(np.exp(x.detach().numpy())) * np.exp(x.detach().numpy()))


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_program_of_the_device_tests(name):
    f, *shapes = OPERATORS[name]
    rng = np.random.RandomState(0)
    operands = [autograd_gpu.tensor(rng.rand(*shape) + 0.1, requires_grad=True) for shape in shapes]
    found = []
    for run in (f, lambda *xs: ours.checkpoint(f, *xs, use_reentrant=False)):
        y = run(*operands)
        grads = autograd_gpu.autograd.grad(y, operands, autograd_gpu.ones_like(y), create_graph=True, allow_unused=True)
        total = sum([(g * g).sum() for g in grads if g is not None and g.requires_grad])
        more = autograd_gpu.autograd.grad(total, operands, allow_unused=True) if isinstance(total, autograd_gpu.Tensor) else ()
        found.append([None if g is None else g.tolist() for g in (y, *grads, *more)])
    assert str(found[0]) == str(found[1])


def test_threads_share_a_checkpointed_graph():
    x = leaf(autograd_gpu)
    y = ours.checkpoint(lambda t: t.exp().sin().exp(), x, use_reentrant=False).sum()
    expected, = autograd_gpu.autograd.grad(y, x, retain_graph=True)
    found = []

    def work():
        for _ in range(30):
            found.append(autograd_gpu.autograd.grad(y, x, retain_graph=True)[0].tolist())
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 120 and all(g == expected.tolist() for g in found)
