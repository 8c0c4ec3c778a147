"""autograd.profiler: what PyTorch's profile of the same program has in common with ours; then what ours promises."""
import json
import re
import threading
import time

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd import profiler
from autograd_gpu.autograd.graph import save_on_cpu
from autograd_gpu.autograd.profiler import profile, record_function
from autograd_gpu.engine.grad_mode import everywhere
from autograd_gpu.ops.namespace import REGISTRY

PROGRAMS = {}


def program(f):
    """A program over a module named torch: its operations and nodes are compared with those of PyTorch's profile."""
    PROGRAMS[f.__name__] = f
    return f


def leaves(torch, *shapes):
    return [torch.ones(*shape).requires_grad_() for shape in shapes]


@program
def a_layer(torch):
    x, w, b = leaves(torch, (4, 5), (6, 5), (6,))
    torch.nn.functional.linear(x, w, b).tanh().exp().sum().backward()


@program
def operators_and_methods(torch):
    x, y = leaves(torch, (3,), (3,))
    (x * y - y / x + x.relu()).sum().backward()


@program
def twice_differentiated(torch):
    x, = leaves(torch, (3,))
    g, = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    g.sum().backward()


@program
def named_blocks(torch):
    with torch.autograd.profiler.record_function("outer"):
        x, = leaves(torch, (3,))
        with torch.autograd.profiler.record_function("inner", "some arguments"):
            y = x.sin()
        y.sum().backward()


@program
def only_what_is_needed(torch):
    x, y = leaves(torch, (3,), (3,))
    torch.autograd.grad((x.sin() * y.cos()).sum(), x)


def nodes(torch, program):
    """The nodes that ran in backward, and what record_function named: (name, sequence number since the first)."""
    with torch.autograd.profiler.profile() as found:
        program(torch)
    events = [e for e in found.function_events if e.scope in (1, 7) and not e.name.startswith("autograd::")]
    first = min([e.sequence_nr for e in events if e.sequence_nr >= 0], default=0)
    return [(e.name, e.sequence_nr - first if e.sequence_nr >= 0 else -1) for e in events if "AccumulateGrad" not in e.name] + [
        sum("AccumulateGrad" in e.name for e in events)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nodes_as_pytorch_shows_them(name, oracle):
    assert nodes(torch, PROGRAMS[name]) == nodes(oracle, PROGRAMS[name])


def test_operations_as_pytorch_shows_them(oracle):
    def top(torch):
        x, w = leaves(torch, (4, 5), (5, 6))
        with torch.autograd.profiler.profile(record_shapes=True) as found:
            y = torch.nn.functional.linear(x, w.t())
            (y * 2).sin_().sum()
        return [(e.name, e.sequence_nr, [shape for shape in e.input_shapes if shape], [c.name for c in e.cpu_children])
                for e in found.function_events if e.cpu_parent is None or e.cpu_parent.name == "aten::linear"]
    ours, theirs = top(torch), top(oracle)
    assert [(name, shapes) for name, _, shapes, _ in ours] == [(name, shapes) for name, _, shapes, _ in theirs if name != "aten::to"]
    assert [e for e in ours if e[0] == "aten::linear"][0][3] == ["aten::t", "aten::matmul"]
    assert len({nr for _, nr, _, _ in ours}) == len({nr for _, nr, _, _ in theirs})


# ------------------------------------------------------------------------------------------------------------- the figures

def test_times_add_up():
    x, = leaves(torch, (3,))
    with profile() as found:
        with record_function("all"):
            with record_function("wait"):
                time.sleep(0.02)
            x.sin().sum().backward()
    events = {e.name: e for e in found.function_events}
    assert events["wait"].cpu_time_total >= 20_000 and events["wait"].cpu_parent is events["all"]
    assert events["all"].self_cpu_time_total < events["all"].cpu_time_total - 20_000
    assert found.self_cpu_time_total == pytest.approx(events["all"].cpu_time_total)
    for e in found.function_events:
        for child in e.cpu_children:
            assert e.time_range.start <= child.time_range.start <= child.time_range.end <= e.time_range.end and child.thread == e.thread
    average, = [a for a in found.key_averages() if a.key == "aten::sin"]
    assert average.count == 1 and average.cpu_time == average.cpu_time_total == events["aten::sin"].cpu_time_total
    assert found.total_average().count == len(found.function_events)


def test_each_saved_memory_counts_once():
    x, w = torch.ones(100).requires_grad_() * 1, torch.ones(100, requires_grad=True)
    with profile(profile_memory=True) as found:
        y = x * w                            # w is a leaf: it lives anyway
        z = y.sin() + y.cos()                # y once
        z[:50].exp()                         # its result
    saved = {e.name: e.saved for e in found.function_events if e.saved}
    assert saved == {"aten::mul": 400, "aten::sin": 400, "aten::exp": 200}
    assert found.total_average().saved == 1000
    with profile(profile_memory=True) as found, save_on_cpu():
        x.sin()
    assert [e.saved for e in found.function_events if e.name == "aten::sin"] == [400]


def test_averages_by_shape_and_the_table():
    x, y = leaves(torch, (3,), (2, 2))
    with profile(record_shapes=True, profile_memory=True) as found:
        x.sin(), y.sin(), y.sin(), x.exp()
    assert {(a.key, str(a.input_shapes)): a.count for a in found.key_averages(group_by_input_shape=True)} == {
        ("aten::sin", "[[3]]"): 1, ("aten::sin", "[[2, 2]]"): 2, ("aten::exp", "[[3]]"): 1}
    lines = found.key_averages().table(sort_by="count", row_limit=1).splitlines()
    assert lines[1].split()[0] == "Name" and "# of Calls" in lines[1] and "Self CPU %" in lines[1] and "Saved" in lines[1]
    assert lines[3].split()[0] == "aten::sin" and lines[3].split()[-1] == "3" and lines[5].startswith("Self CPU time total:")
    assert len({len(line) for line in lines[:5]}) == 1 and len(lines) == 6
    assert "aten:..." in found.table(max_name_column_width=8) and found.table(header="mine").startswith("mine\n")
    assert "Input Shapes" in found.table() and str(found) == found.table()
    with pytest.raises(AttributeError):
        found.table(sort_by="nothing")
    assert profile(enabled=False).__enter__() and torch.autograd.profiler.EventList().table() == ""


def test_a_trace(tmp_path):
    x, = leaves(torch, (3,))
    with profile(record_shapes=True) as found:
        x.sin().sum().backward()
    found.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [e for e in trace if e["ph"] == "X"]
    assert [e["name"] for e in calls][:2] == ["aten::sin", "aten::sum"] and all(e["dur"] >= 0 and e["ts"] >= 0 for e in calls)
    assert {e["args"]["name"] for e in trace if e["ph"] == "M"} == {"MainThread"}
    starts, ends = [[e for e in trace if e["ph"] == ph] for ph in "sf"]
    assert len(starts) == len(ends) == 2 and {e["id"] for e in starts} == {e["id"] for e in ends}
    assert all(s["ts"] < f["ts"] for s, f in zip(starts, ends, strict=True))


def test_every_thread_is_seen():
    def work():
        x, = leaves(torch, (3,))
        x.sin().sum().backward()
    with profile() as found:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(2)]
        for t in [*threads]:
            t.start()
        work()
        for t in threads:
            t.join()
    by_thread = {}
    for e in found.function_events:
        by_thread.setdefault(e.thread, []).append(e.name)
    assert len(by_thread) == 3 and len({tuple(names) for names in by_thread.values()}) == 1
    assert set(found.function_events._threads.values()) == {"MainThread", "worker 0", "worker 1"}


def test_lines_that_led_there(tmp_path):
    x, = leaves(torch, (3,))

    def inner():
        for _ in range(200):
            x.sin()
        x.cos(), x.sin()
    with profile(with_stack=True) as found:
        inner()
    line = inner.__code__.co_firstlineno
    event = found.function_events[0]
    assert event.stack[:2] == [f"{__file__}({line + 2}): inner", f"{__file__}({line + 5}): test_lines_that_led_there"]
    assert [(e.key, e.count, e.stack) for e in found.key_averages(group_by_stack_n=1)] == [
        ("aten::sin", 200, [f"{__file__}({line + 2}): inner"]), ("aten::cos", 1, [f"{__file__}({line + 3}): inner"]),
        ("aten::sin", 1, [f"{__file__}({line + 3}): inner"])]
    assert [(e.key, e.count, e.stack) for e in found.key_averages()] == [("aten::sin", 201, []), ("aten::cos", 1, [])]
    table = found.key_averages(group_by_stack_n=2).table(row_limit=1, max_src_column_width=20).splitlines()
    assert table[1].rstrip().endswith("Source Location")
    assert [row[-20:] for row in table[3:5]] == ["..." + stack[-17:] for stack in event.stack[:2]] and len(table) == 7
    assert "Source" not in found.key_averages().table()
    found.export_stacks(tmp_path / "stacks.txt")
    written = (tmp_path / "stacks.txt").read_text().splitlines()
    file = re.escape(__file__)
    wanted = rf".*;{file}\({line + 5}\):_test_lines_that_led_there;{file}\({line + 2}\):_inner \d+"
    assert any(re.fullmatch(wanted, row) for row in written)
    with pytest.raises(ValueError, match="metric should be one of"):
        found.export_stacks(tmp_path / "stacks.txt", "count")
    with profile() as without:
        inner()
    with pytest.raises(AssertionError, match="requires with_stack=True"):
        without.export_stacks(tmp_path / "stacks.txt")


def test_a_decorated_function_may_call_itself():
    @record_function("count down")
    def down(n):
        return n and down(n - 1)
    with profile() as found:
        down(3)
    assert [len(e.cpu_children) for e in found.function_events] == [1, 1, 1, 0]
    assert down(2) == 0                      # nothing is recorded now, nothing fails


# --------------------------------------------------------------------------------------------------------- and when it is off

def codes():
    """What the functions of the ops are now: their code, and what writes it."""
    return {function: (function.__code__, function.__globals__.get("build")) for function in profiler._functions()} | {
        f: (f.__code__, None) for f in (profiler._deliver.visit, profiler._deliver.accumulate)}


def test_nothing_is_left_behind():
    x, = leaves(torch, (3,))
    x.sin()
    fresh = [REGISTRY[name].function for name in ("arccosh", "erfinv")]
    before = codes()
    with pytest.raises(RuntimeError, match="must match"), profile():
        fresh[0](x + 1), x.sin(), torch.ones(2).add_(1)
        x + torch.ones(2)
    after = codes()
    for function, (code, build) in before.items():
        assert after[function][1] is build
        assert after[function][0] is code or code is profiler.FIRST_CALL and function.__code__.co_filename.startswith("<op ")
    assert not everywhere.profiled
    with profile() as found:                 # an op that is called for the first time is seen
        fresh[1](x * 0), fresh[1](x * 0)
    assert [e.name for e in found.function_events if e.name == "aten::erfinv"] == ["aten::erfinv"] * 2


def test_one_at_a_time():
    with profile() as outer:
        with pytest.raises(RuntimeError, match="running already"), profile():
            pass
        torch.ones(3).sin()
    assert [e.name for e in outer.function_events if e.name == "aten::sin"]
    with pytest.raises(RuntimeError, match="didn't finish running"):
        profile().key_averages()
    assert repr(profile()) == "<unfinished torch.autograd.profile>"


def test_what_is_compiled_meanwhile_is_not_watched():
    """A composite's body runs on arrays in an ordinary backward, with other globals: it must not keep the profiler's code."""
    names = [name for name, record in REGISTRY.items() if type(record).__name__ == "Composite"]
    with profile():
        made = [REGISTRY[name].on_arrays(np) for name in names]
    assert all("around" not in str(f.__code__.co_consts) and f.__code__.co_filename != profiler.__file__ for f in made)


def test_results_are_the_same():
    def work():
        x = torch.linspace(0.1, 1, 5).requires_grad_()
        y = (x.sin().mul_(2) @ torch.ones(5) + x.exp().sum(dim=0) - x[1:3].prod()) ** 2
        g, = torch.autograd.grad(y, x, create_graph=True)
        g.sum().backward()
        return g.tolist(), x.grad.tolist(), y.grad_fn.name(), str(y)
    before = work()
    with profile(record_shapes=True, profile_memory=True, with_stack=True):
        assert work() == before
    assert work() == before


def test_nvtx_without_cuda():
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    with pytest.raises(RuntimeError, match="emit_nvtx needs CuPy"), profiler.emit_nvtx():
        pass
    with profiler.emit_nvtx(enabled=False):
        torch.ones(2)
