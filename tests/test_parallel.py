"""Several threads on large arrays: the same bits at any number, errors, forks, and no thread where none is needed."""
import itertools
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu import blocks, parallel
from autograd_gpu.blocks import LARGE
from autograd_gpu.buffers import buffered

COUNTS = (1, 2, 3, 7)
F = torch.nn.functional


@pytest.fixture(autouse=True)
def as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def in_a_process(program, **environment):
    """What a program prints in a process of its own, in which the variables of the environment that name a number of threads are these."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")} | environment
    done = subprocess.run([sys.executable, "-c", "import autograd_gpu as torch, os, threading\n" + program], env=env, timeout=120,
                          capture_output=True, text=True)
    assert not done.returncode and not done.stderr, done.stderr
    return done.stdout.split()


# -------------------------------------------------------------------------------------------------------------- how many threads

def test_the_number_is_what_was_set():
    for n in (3, np.int64(2), 1):
        assert torch.set_num_threads(n) is None
        assert torch.get_num_threads() == n and type(torch.get_num_threads()) is int


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", None, True, 2 ** 40])
def test_errors_are_pytorchs(value, oracle):
    torch.set_num_threads(2)
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        oracle.set_num_threads(value)
    with pytest.raises(type(theirs.value)) as ours:
        torch.set_num_threads(value)
    assert str(theirs.value) in str(ours.value)
    assert torch.get_num_threads() == 2


def test_it_takes_one_argument_by_position(oracle):
    for module in (oracle, torch):
        with pytest.raises(TypeError):
            module.set_num_threads()
        with pytest.raises(TypeError):
            module.set_num_threads(threads=2)


@pytest.mark.parametrize("environment", [{}, {"OMP_NUM_THREADS": "1"}, {"MKL_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "100000"},
                                         {"OMP_NUM_THREADS": "0"}, {"OMP_NUM_THREADS": "many"}])
def test_the_number_at_first(environment):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert in_a_process("print(torch.get_num_threads())", **environment) == [str(1 if "1" in environment.values() else cores)]


# ------------------------------------------------------------------------------------------------------------------ the same bits

@pytest.fixture
def small_blocks(monkeypatch):
    """So many blocks that each thread gets some, also of what is shared out only in long parts."""
    monkeypatch.setattr(blocks, "BLOCK", 1 << 13)


def at_each_count(function):
    """What a function returns with each number of threads, as bytes: asserted to be the same."""
    found = []
    for n in COUNTS:
        torch.set_num_threads(n)
        found.append([(a.shape, a.dtype, np.asarray(a.detach()).tobytes()) for a in function()])
    assert all([f == found[0] for f in found])


def elementwise(x, y):
    return torch.sigmoid(x * y) * torch.tanh(x) + (x * x + 1).sqrt() - y / (x.abs() + 1), x.exp() * 2, -x, y ** 3


def with_numbers(x, y):
    return 1 - x, 2 * y, x / 3, y + torch.tensor(2.5), x.clamp(-0.5, 0.5), torch.where(x > y, x, y), x.softmax(0)


def rows(x, y):
    x, y = x.reshape(-1, 37), y.reshape(-1, 37)
    m = x.mean(1, keepdim=True)
    h = (x - m) / (((x - m) ** 2).mean(1, keepdim=True) + 1e-5).sqrt()
    statistics = x.var(1), x.std((1,), keepdim=True), y.logsumexp(1), x.norm(dim=1), y.norm(3, 1), torch.linalg.vector_norm(x, np.inf, 1)
    return (h, torch.softmax(h, 1) * y, torch.log_softmax(y, -1), x.sum(0), x.sum((0, 1)), x * y[:1], *statistics,
            F.layer_norm(y, (37,), y[0], x[0]))


def along_others(x, y):
    x, y = x.reshape(37, -1, 4), y.reshape(37, -1, 4).transpose(0, 1)
    return x.sum(1), x.mean((0, 2)), y.sum(0), x.exp().sum(0, keepdim=True), torch.softmax(x, 1), x + x[:, :1], y * 2, y.sum(), y.norm()


@pytest.mark.parametrize(("function", "dtype"), [(elementwise, "complex64"), *itertools.product(
    [elementwise, with_numbers, rows, along_others], ["float32", "float64", "float16"])])
@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 5])
def test_results_and_gradients(small_blocks, function, size, dtype):
    """Of sizes around that at which blocks begin, and around whole blocks."""
    rng = np.random.default_rng(0)
    size -= size % 148 if function in (rows, along_others) else 0
    arrays = [(rng.standard_normal(size) + (1j if dtype == "complex64" else 0)).astype(dtype) for _ in range(2)]

    def run():
        leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
        results = function(*leaves)
        sum([(r.abs() if r.is_complex() else r).sum() for r in results]).backward()
        return [*results, *[x.grad for x in leaves]]
    at_each_count(run)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("whole", "row"), [
    ((1, 1024, 256), (1, 1024, 1)), ((4, 1025, 8, 8), (4, 1, 8, 8)), ((4, 1025, 64), (1, 1025, 64))])
def test_rows_longer_than_a_block_of_one_thread(whole, row, dtype):
    """Of broadcast operands: they are blocks as well, as for several threads."""
    rng = np.random.default_rng(0)
    x, y, g = (torch.tensor(rng.uniform(0.5, 2, s).astype(dtype)) for s in (whole, row, whole))

    def run():
        for f in (lambda x, y: torch.addcmul(x, y, x[0], value=3), torch.atan2, lambda x, y: torch.lerp(x, y, x), lambda x, y: x / y):
            leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            result = f(*leaves)
            yield from (result, *torch.autograd.grad(result, leaves, g))
    at_each_count(run)


@pytest.mark.parametrize("rows", [525, 263])
def test_a_last_block_of_one_row(rows):
    """Of arrays that do not lie in rows: NumPy adds up what is one row in another order."""
    n = 1000
    both = np.random.default_rng(0).standard_normal((2, 2 * rows, n)).astype("f4")

    def run():
        for x, g in ([torch.from_numpy(a[::2]) for a in both], [torch.from_numpy(np.asfortranarray(a[:rows])) for a in both]):
            leaf = x.detach().requires_grad_()
            for f in (lambda t: t.softmax(1), lambda t: t.log_softmax(1), lambda t: F.layer_norm(t, (n,))):
                y = f(leaf)
                yield from (y, *torch.autograd.grad(y, leaf, g))
            yield from (x.var(1), x.logsumexp(1), x.norm(dim=1), x.norm(1, 1), x.sum(1), x.mean(1))
    at_each_count(run)


def test_as_it_is_used():
    """With blocks of their real size."""
    x, y = (torch.rand(16 * blocks.BLOCK + LARGE + 7) for _ in range(2))
    at_each_count(lambda: (*elementwise(x, y), x * y, x.sum(), x[:-7].reshape(-1, 64).softmax(1), x[:-7].reshape(-1, 64).mean(1)))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_integers(small_blocks, dtype):
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.integers(0, 2 if dtype == "bool" else 100, 5 * LARGE // 4 + 3).astype(dtype)) for _ in range(2))
    at_each_count(lambda: (x & y, x == y, x < y, x.sum(), x.to(torch.float32), x | y, *(() if dtype == "bool" else (x * y, x + y, x - 3))))


@pytest.mark.parametrize("seed", range(20))
def test_reduced_has_the_bits_of_numpy(monkeypatch, seed):
    """Over any dimensions of any shape."""
    monkeypatch.setattr(blocks, "LARGE", 1 << 12)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 8)
    monkeypatch.setattr(blocks, "MANY", 1 << 20)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        shape = tuple(rng.choice([1, 2, 3, 5, 16, 17, 33, 64, 100, 257, 1000], rng.integers(1, 5)))
        if not 1 << 12 <= np.prod(shape) < 1 << 19:
            continue
        a = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(rng.choice(["f4", "f8"]))
        dim = tuple(rng.permutation(len(shape))[:rng.integers(0, len(shape) + 1)].tolist()) if rng.integers(0, 4) else None
        for function in (np.add, np.maximum):
            for keepdim in (False, True):
                want = np.asarray(function.reduce(a, dim, keepdims=keepdim))
                for n in COUNTS:
                    torch.set_num_threads(n)
                    got = np.asarray(blocks.reduced(function, a, dim, keepdim))
                    assert got.shape == want.shape and got.dtype == want.dtype and got.tobytes() == want.tobytes(), (shape, dim, n)


MANY_ROWS = {
    "rows": lambda x: x.sum(0), "columns of the transpose": lambda x: x.t().sum(1),
    "between others": lambda x: x[None, :, None].sum((0, 1)),
    "one number": lambda x: x[0, :1].expand(len(x)).sum(0, True), "without NaN": lambda x: x.nansum(0),
    "of each group": lambda x: x[:, None].mean((0, 1)), "so far": lambda x: x.cumsum(0),
    "from here": lambda x: torch.autograd.grad((y := x.clone().requires_grad_()).cumsum(0), y, x)[0],
    "one row": lambda x: x[:1].expand(x.shape).mean(0), "mean": lambda x: x.mean(0, True),
    "bias": lambda x: torch.autograd.grad((x + (b := torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True))).mul(x).sum(), b)[0],
    "factor": lambda x: torch.autograd.grad((x * (b := torch.ones(1, x.shape[1], dtype=x.dtype, requires_grad=True))).sum(), b)[0],
}


@pytest.mark.parametrize("shape", [(5000, 3), (20011, 4), (100_000, 16)])
@pytest.mark.parametrize("name", MANY_ROWS)
def test_the_error_of_a_sum_does_not_grow_with_the_number_of_rows(name, shape):
    """Constant rows, whose errors all go one way: added one to another they are wrong by 1e-5 to 1e-3, in PyTorch by 2e-7."""
    x = torch.full(shape, 0.1)
    expected = MANY_ROWS[name](x.double()).numpy()

    def run():
        found = MANY_ROWS[name](x)
        assert found.dtype == torch.float32 and np.allclose(found.numpy(), expected, 3e-6, 0)
        return [found]
    at_each_count(run)


@pytest.mark.parametrize("shape", [(5, 1, 52429), (7, 41000), (300, 1024)])
def test_softmax_of_rows_that_one_block_holds_one_or_several_of(shape):
    x, g = torch.rand(*shape[:-1], 2 * shape[-1])[..., ::2].requires_grad_(), torch.rand(*shape[:-1], 2 * shape[-1])

    def run():
        y = torch.softmax(x, -1)
        return [torch.autograd.grad(y, x, h, retain_graph=True)[0] for h in (g[..., ::2], g[..., :shape[-1]], g[:1, ..., :1].expand(shape))]
    at_each_count(run)


def test_gradients_added_up(small_blocks):
    """At a node, at a leaf, and to a .grad that is there."""
    x, g = (torch.rand(2, LARGE) for _ in range(2))

    def run():
        leaf = x.clone().requires_grad_()
        for _ in range(3):
            y = leaf * 2
            (y * y + y.sin() * y + leaf).backward(g)
        return leaf.grad,
    at_each_count(run)


def test_a_grad_that_overlaps_the_gradient(small_blocks):
    """Element i of what is added lies where element i + 1 of the sum goes."""
    values = torch.rand(LARGE + 1)

    def run():
        memory, leaf = values.clone(), torch.zeros(LARGE, requires_grad=True)
        leaf.grad = memory[1:]
        leaf.backward(memory[:-1])
        return leaf.grad,
    at_each_count(run)
    assert (run()[0] == values[1:] + values[:-1]).all()


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.1)])
def test_steps_of_optimizers(small_blocks, make):
    values = [torch.rand(n) for n in (LARGE + 3, 5, 3 * blocks.BLOCK)]

    def run():
        parameters = [v.clone().requires_grad_() for v in values]
        optimizer = make(parameters)
        for _ in range(3):
            for p in parameters:
                p.grad = p.detach().cos()
            optimizer.step()
        return parameters
    at_each_count(run)


# --------------------------------------------------------------------------------------------------------- the threads themselves

def test_every_part_is_done_once():
    for n in COUNTS:
        torch.set_num_threads(n)
        for size, unit, least in ((1, 1, 1), (10, 3, 1), (1000, 7, 2), (5, 10, 1), (64, 1, 64)):
            cut = parallel.cut(size, unit, least)
            assert [i for s in cut for i in range(size)[s]] == [*range(size)]
            assert all([s.start % unit == 0 and s.stop > s.start for s in cut]) and (n > 1 or len(cut) == 1)
            done = np.zeros(size, int)

            def part(s, done=done):
                done[s] += 1
            parallel.each(part, cut)
            assert (done == 1).all()


def test_several_threads_work():
    torch.set_num_threads(3)
    barrier, seen = threading.Barrier(3, timeout=60), set()

    def part(_):
        barrier.wait()                       # passes only if three threads are in it at once
        seen.add(threading.current_thread().name)
    parallel.each(part, [0, 1, 2])
    assert len(seen) == 3 and threading.current_thread().name in seen
    assert {n for n in seen if n.startswith("autograd:cpu:")} == seen - {threading.current_thread().name}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("own", [True, False])
def test_an_error_is_raised_in_the_caller(error, own):
    """Whether its own part raised it or that of another thread; the rest is left out, and the next job is done as ever."""
    torch.set_num_threads(3)
    caller, barrier, done = threading.current_thread(), threading.Barrier(3, timeout=60), []

    def part(i):
        if i < 3:
            barrier.wait()
            if (threading.current_thread() is caller) is own:
                raise error("part")
        else:
            time.sleep(0.001)
            done.append(i)
    with pytest.raises(error, match="part") as raised:
        parallel.each(part, [*range(1000)])
    assert raised.value.__traceback__ is not None and len(done) < 997
    finished = []
    parallel.each(finished.append, [*range(100)])
    assert sorted(finished) == [*range(100)]


def test_jobs_of_several_threads_and_inside_each_other():
    torch.set_num_threads(4)
    found = []

    def job():
        inner = []
        parallel.each(lambda i: parallel.each(lambda j: inner.append((i, j)), [*range(5)]), [*range(20)])
        found.append(sorted(inner))
    threads = [threading.Thread(target=job) for _ in range(8)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert found == [[(i, j) for i in range(20) for j in range(5)]] * 8


def test_arrays_are_not_kept():
    """A job that no worker ever got to holds nothing of what it was given."""
    everybody = max(2, len(parallel._workers) + 1)
    torch.set_num_threads(everybody)
    at_work, release = threading.Barrier(everybody + 1, timeout=60), threading.Event()
    busy = threading.Thread(target=lambda: parallel.each(lambda _: (at_work.wait(), release.wait(60)), [*range(everybody)]))
    busy.start()
    at_work.wait()
    kept = np.zeros(3)
    parallel.each(lambda i, a=kept: a.__setitem__(i, i), [0, 1, 2])      # all workers are busy: the caller does it all
    values, there = kept.tolist(), weakref.ref(kept)
    del kept
    assert values == [0, 1, 2] and there() is None
    release.set()
    busy.join(60)


def test_a_program_inside_of_another_has_other_buffers():
    """As where a finaliser runs an operation on large arrays in the midst of one."""
    seen = []

    def outer(buffers):
        a = buffers.at(0, (4,), np.dtype("f4"))
        a[:] = 1
        buffered(lambda inner: (seen.append(inner is not buffers), inner.at(0, (4,), a.dtype).fill(2)))
        seen.append(a.tolist() == [1] * 4)
        seen.append(buffers)
    buffered(outer)
    buffers = seen.pop()
    buffered(lambda again: seen.append(again is buffers))
    assert seen == [True] * 3


def test_numpy_stays_silent_in_workers():
    torch.set_num_threads(2)
    x = torch.full((4 * LARGE,), -1.0)
    with np.errstate(all="raise"):
        assert torch.isnan(x.log() * x.sqrt() / 0).all()


SOME = "x = torch.rand(1 << 21); y = (x.exp() * x).sum(); names = lambda: [t.name for t in threading.enumerate()[1:]]\n"


def test_threads_start_when_they_are_needed():
    program = ("torch.set_num_threads(2); x = torch.rand(1000, requires_grad=True); (x.exp() * x).softmax(0).sum().backward()\n"
               "print(threading.active_count())\n" + SOME + "print(*names())")
    assert in_a_process(program) == ["1", "autograd:cpu:1"]
    assert in_a_process(SOME + "print(*names())", OMP_NUM_THREADS="1") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_forked_child_has_threads_of_its_own():
    quiet = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"         # of fork beside threads, in Python 3.12
    program = quiet + "torch.set_num_threads(3)\n" + SOME + (
        "r, w = os.pipe(); child = os.fork()\n"
        "if not child:\n"
        "    before = names(); z = (x.exp() * x).sum()\n"
        "    os.write(w, f'{before} {len(names())} {z.item() == y.item()}'.encode()); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0; print(os.read(r, 1000).decode(), len(names()))")
    assert in_a_process(program)[-4:] == ["[]", "2", "True", "2"]


def test_a_process_ends_while_there_are_threads():
    program = "import atexit; torch.set_num_threads(3)\n" + SOME + "atexit.register(lambda: print((x.exp() * x).sum().item() == y.item()))"
    assert in_a_process(program) == ["True"]
    program = "import atexit; torch.set_num_threads(2); x = torch.ones(1 << 21); atexit.register(lambda: print((x + x).sum().item() > 0))"
    assert in_a_process(program) == ["True"]
