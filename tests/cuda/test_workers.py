"""A backward over several CUDA devices: which thread runs what, that no contribution is lost, and how errors end it."""
import os
import subprocess
import sys
import threading
import time

import pytest

import autograd_gpu as torch
from tests import stress
from tests.cuda.common import cp, gpu, two_devices

pytestmark = [gpu, two_devices]
MAIN = threading.main_thread().name


class Note(torch.autograd.Function):
    """The identity; its backward notes where it runs."""

    @staticmethod
    def forward(ctx, x, log, act=None):
        ctx.log, ctx.act = log, act
        return x * 1

    @staticmethod
    def backward(ctx, g):
        ctx.log.append((str(g.device), threading.current_thread().name, torch.is_grad_enabled(), torch.cuda.current_device()))
        if ctx.act is not None:
            ctx.act()
        return g, None, None


def two_branches(log, act=None):
    """(leaves, a loss on cuda:0) of a graph on the CPU and both devices."""
    leaves = [torch.tensor([1.0, 2.0], device=d, requires_grad=True) for d in ("cpu", "cuda:0", "cuda:1")]
    parts = [Note.apply(Note.apply(x * 3, log), log, act if x.device.type == "cuda" and x.device.index == 1 else None) for x in leaves]
    return leaves, sum([p.to("cuda:0") for p in parts]).sum()


def test_each_device_has_its_worker_and_the_cpu_the_caller():
    log = []
    leaves, loss = two_branches(log)
    loss.backward()
    assert sorted(set(log)) == [("cpu", MAIN, False, 0), ("cuda:0", "autograd:cuda:0", False, 0), ("cuda:1", "autograd:cuda:1", False, 1)]
    assert len(log) == 6 and [x.grad.tolist() for x in leaves] == [[3.0, 3.0]] * 3
    assert [x.grad.device for x in leaves] == [x.device for x in leaves]


def test_a_graph_on_one_device_is_run_by_the_caller():
    log = []
    x = torch.ones(2, device="cuda:1", requires_grad=True)
    Note.apply(x, log).to("cpu").sum().backward()
    assert log == [("cuda:1", MAIN, False, 1)]
    with torch.autograd.set_multithreading_enabled(True):
        Note.apply(x, log).sum().backward()
    assert log[1:] == [("cuda:1", "autograd:cuda:1", False, 1)] and x.grad.tolist() == [2.0, 2.0]


def test_multithreading_can_be_switched_off():
    log = []

    @torch.autograd.set_multithreading_enabled(False)
    def run():
        assert not torch.autograd.is_multithreading_enabled()
        two_branches(log)[1].backward()
    assert torch.autograd.is_multithreading_enabled()
    run()
    assert {name for _, name, *_ in log} == {MAIN} and torch.autograd.is_multithreading_enabled()


def test_modes_of_the_caller_hold_in_the_workers():
    log, packed = [], []
    seen = []

    def act():
        packed.append(torch.ones(1).device)
        torch.ones(1, device="cuda:1", requires_grad=True) ** 2
    leaves, loss = two_branches(log, act)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(str(t.device)) or t, lambda t: t), torch.device("cuda:1"):
        grads = torch.autograd.grad(loss, leaves, create_graph=True)
    assert all([enabled for _, _, enabled, _ in log]) and all([g.requires_grad is False or g.grad_fn for g in grads])
    assert packed == [torch.device("cuda:1")] and "cuda:1" in seen


def test_hooks_and_captures():
    log = []
    leaves, loss = two_branches([])
    for x in leaves:
        x.register_hook(lambda g: log.append(str(g.device)) or g * 2)
        x.register_post_accumulate_grad_hook(lambda x: log.append(threading.current_thread().name))
    loss.backward(retain_graph=True)
    assert sorted(log) == sorted(["cpu", "cuda:0", "cuda:1", MAIN, "autograd:cuda:0", "autograd:cuda:1"])
    middle = leaves[2] * 3
    found = torch.autograd.grad((middle.to("cuda:0") * leaves[1] + leaves[0].to("cuda:0")).sum(), [middle, leaves[0], leaves[1]])
    assert [g.tolist() for g in found] == [[1.0, 2.0], [2.0, 2.0], [6.0, 12.0]]     # the leaves' hooks double


@pytest.mark.parametrize("error", [KeyError("worker"), KeyboardInterrupt("worker")])
def test_an_error_in_a_worker(error):
    def act():
        raise error
    leaves, loss = two_branches([], act)
    with pytest.raises(type(error), match="worker") as caught:
        loss.backward()
    names = []
    trace = caught.tb
    while trace:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "act" in names
    before = [None if x.grad is None else x.grad.tolist() for x in leaves]
    time.sleep(0.05)
    assert [None if x.grad is None else x.grad.tolist() for x in leaves] == before   # nothing arrives after the error
    leaves, loss = two_branches([])
    loss.backward()
    assert [x.grad.tolist() for x in leaves] == [[3.0, 3.0]] * 3


def test_an_error_in_the_caller_s_part():
    def act(g):
        raise ZeroDivisionError("caller")
    leaves, loss = two_branches([])
    leaves[0].register_hook(act)
    with pytest.raises(ZeroDivisionError, match="caller"):
        loss.backward()


def test_a_backward_inside_one_on_a_worker():
    inner = []

    def act():
        with torch.enable_grad():
            y = two_branches(inner)[1]
        y.backward()
    log = []
    leaves, loss = two_branches(log, act)
    loss.backward()
    assert [x.grad.tolist() for x in leaves] == [[3.0, 3.0]] * 3 and {name for _, name, *_ in inner} == {"autograd:cuda:1"}


def test_no_lock_is_held_while_user_code_runs():
    """Two nodes on two devices wait for each other, and for a backward of another thread."""
    barrier = threading.Barrier(3, timeout=20)
    x, y = (torch.ones(2, device=d, requires_grad=True) for d in ("cuda:0", "cuda:1"))
    loss = (Note.apply(x, [], barrier.wait) + Note.apply(y, [], barrier.wait).to("cuda:0")).sum()

    def other():
        (x * 2).sum().backward()
        barrier.wait()
    thread = threading.Thread(target=other)
    thread.start()
    loss.backward()
    thread.join()
    assert x.grad.tolist() == [3.0, 3.0] and y.grad.tolist() == [1.0, 1.0]


def test_a_lock_of_the_user_taken_in_backward():
    lock, log = threading.Lock(), []

    def act():
        with lock:
            log.append(threading.current_thread().name)

    def run():
        for _ in range(5):
            _, loss = two_branches([], act)
            with lock:
                pass
            loss.backward()
    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any([t.is_alive() for t in threads]) and len(log) == 15


def test_threads_over_shared_leaves_and_a_shared_trunk():
    leaves = [torch.tensor([1.0, 2.0], device=d, requires_grad=True) for d in ("cpu", "cuda:0", "cuda:1")]
    trunk = sum([(x * 2).to("cuda:1") for x in leaves])
    rounds, count = 5, 3

    def run():
        for _ in range(rounds):
            (trunk * 3).to("cuda:0").sum().backward(retain_graph=True)
    threads = [threading.Thread(target=run) for _ in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert [x.grad.tolist() for x in leaves] == [[6.0 * rounds * count] * 2] * 3


def test_a_stream_of_the_caller_s():
    used = []
    with cp.cuda.Device(1):
        stream = cp.cuda.Stream(non_blocking=True)
    with cp.cuda.Device(1), stream:
        leaves, loss = two_branches([], lambda: used.append(cp.cuda.get_current_stream().ptr))
        loss.backward()
        stream.synchronize()
    assert used == [stream.ptr] and leaves[2].grad.tolist() == [3.0, 3.0]


def test_a_forked_child_says_so():
    program = """
import os, autograd_gpu as torch
def run():
    a, b = (torch.ones(2, device=d, requires_grad=True) for d in ("cuda:0", "cuda:1"))
    return a, (a + (b * 2).to("cuda:0")).sum()
a, y = run()
y.backward()
assert a.grad.tolist() == [1.0, 1.0]
a, y = run()
child = os.fork()
if not child:
    try:
        y.backward()
    except RuntimeError as error:
        os._exit(7 if "spawn" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
y.backward()
"""
    start = [sys.executable, *(["-m", "tests.simgpu"] if "tests.simgpu.plugin" in sys.modules else []), "-c", program]
    done = subprocess.run(start, capture_output=True, text=True, env=os.environ, timeout=120)
    assert not done.returncode, done.stderr


def test_stress():
    """Some rounds of tests/stress.py; its own command runs ten thousand."""
    stress.main(25)
