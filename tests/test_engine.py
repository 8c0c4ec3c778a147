"""The engine alone: toy nodes, no op is imported."""
import threading

import numpy as np
import pytest

from autograd_gpu.base import wrap
from autograd_gpu.engine.node import Node, leaf_node, new_node, rare_of
from autograd_gpu.engine.run import run
from autograd_gpu.engine.task import ABSENT, GraphTask, explore


class Toy(Node):
    """Multiplies its gradient by `factor` for each edge and notes that it ran."""

    __slots__ = ("_edge_list", "label", "factor", "log", "released")
    _arity = 3
    _title = "Toy"

    def _apply(self, grad, keep):
        self.log.append(self.label)
        if not keep:
            self._release()
        return tuple(None if grad is None else grad * self.factor for _ in self._edge_list)

    def _release(self):
        self.released = True


def toy(label, log, *inputs, factor=1.0, stream=None, kind=Toy):
    node = new_node(kind)
    node._edge_list = tuple((n, 0) for n in inputs)
    node.label, node.factor, node.log, node.released = label, factor, log, False
    if stream is not None:
        rare_of(node).stream = stream
    return node


class Place:
    """An invented stream, that knows which of its kind are current."""

    current = []

    def __enter__(self):
        self.current.append(self)

    def __exit__(self, *exc_info):
        assert self.current.pop() is self


def leaf():
    t = wrap(np.zeros(2))
    t._requires = True
    return t


def backward(root, keep=True, **kw):
    run(GraphTask(keep, False, **kw), [(root, 0, np.ones(2))])


def test_newest_ready_node_first():
    log = []
    x = leaf()
    a = toy("a", log, leaf_node(x))
    b = toy("b", log, leaf_node(x))
    c = toy("c", log, a)
    root = toy("root", log, a, b, c)
    backward(root)
    assert log == ["root", "c", "b", "a"]
    assert x._grad._array.tolist() == [3.0, 3.0]


def test_a_node_waits_for_all_its_gradients():
    log = []
    x = leaf()
    shared = toy("shared", log, leaf_node(x))
    left, right = toy("left", log, shared, factor=2.0), toy("right", log, shared, factor=3.0)
    backward(toy("root", log, left, right))
    assert log.count("shared") == 1
    assert x._grad._array.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("places", [1, 2, 5])
def test_a_graph_on_any_number_of_streams_runs_newest_first(places):
    """A chain that changes stream at every node, with a side branch, on one thread; each node runs on its own."""
    log, x = [], leaf()
    streams = [Place() for _ in range(places)]

    class On(Toy):
        __slots__ = ()

        def _apply(self, grad, keep):
            assert Place.current == [self._stream]
            return super()._apply(grad, keep)

    node = leaf_node(x)
    for i in range(20):
        side = toy(f"side{i}", log, leaf_node(x), stream=streams[(i + 1) % places], kind=On)
        node = toy(i, log, node, side, stream=streams[i % places], kind=On)
    task = GraphTask(True, False)
    run(task, [(node, 0, np.ones(2))])
    assert log == [name for i in reversed(range(20)) for name in (i, f"side{i}")] and not Place.current
    assert x._grad._array.tolist() == [21.0, 21.0]


def test_accumulate_grad_runs_ahead_of_ready_nodes():
    log, x = [], leaf()

    class Watch(Toy):
        __slots__ = ()

        def _apply(self, grad, keep):
            log.append(("leaf has", None if x._grad is None else x._grad._array.tolist()))
            return super()._apply(grad, keep)

    old = new_node(Watch)
    old._edge_list, old.label, old.factor, old.log = ((leaf_node(leaf()), 0),), "old", 1.0, log
    root = toy("root", log, old, leaf_node(x))
    backward(root)
    assert log == ["root", ("leaf has", [1.0, 1.0]), "old"]


def test_release_unless_kept():
    log, x = [], leaf()
    node = toy("n", log, leaf_node(x))
    backward(node)
    assert not node.released
    backward(node, keep=False)
    assert node.released


def test_an_error_leaves_no_trace_and_keeps_its_type():
    log, x, y = [], leaf(), leaf()

    class Breaks(Toy):
        __slots__ = ()

        def _apply(self, grad, keep):
            raise ZeroDivisionError("on purpose")

    bad = new_node(Breaks)
    bad._edge_list, bad.label, bad.factor, bad.log = ((leaf_node(x), 0),), "bad", 1.0, log
    root = toy("root", log, bad, leaf_node(y))
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        backward(root)
    good = toy("good", log, leaf_node(x))
    backward(good)
    assert x._grad._array.tolist() == [1.0, 1.0]


def test_only_what_is_needed_runs():
    log, x, y = [], leaf(), leaf()
    a, b = toy("a", log, leaf_node(x)), toy("b", log, leaf_node(y))
    root = toy("root", log, a, b)
    key = (leaf_node(y), 0)
    task = GraphTask(True, False, captures={key: None})
    run(task, [(root, 0, np.ones(2))])
    assert log == ["root", "b"]
    assert task.captures[key].tolist() == [1.0, 1.0]
    assert x._grad is None and y._grad is None


def test_dependencies_count_every_edge():
    log, x = [], leaf()
    a = toy("a", log, leaf_node(x), leaf_node(x))
    root = toy("root", log, a, a, leaf_node(x))
    buffers = {}
    assert explore([(root, 0, None)], buffers) == ({root: 1, a: 2, leaf_node(x): 3}, [root, a])
    assert buffers == {leaf_node(x): ABSENT}


def test_no_gradient_is_not_zero_gradient():
    log, x = [], leaf()

    class Nothing(Toy):
        __slots__ = ()

        def _apply(self, grad, keep):
            return (None,)

    node = new_node(Nothing)
    node._edge_list, node.label, node.factor, node.log = ((leaf_node(x), 0),), "none", 1.0, log
    backward(node)
    assert x._grad is None


def test_gradients_that_meet_never_write_into_the_callers_array():
    log, x = [], leaf()
    a = toy("a", log, leaf_node(x))
    given = np.ones(2)
    run(GraphTask(True, False), [(a, 0, given), (a, 0, given), (leaf_node(x), 0, given)])
    assert given.tolist() == [1.0, 1.0]
    assert x._grad._array.tolist() == [3.0, 3.0]
    assert not np.shares_memory(x._grad._array, given)


def test_many_threads_lose_no_contribution():
    x = leaf()
    acc = leaf_node(x)

    def work():
        for _ in range(300):
            run(GraphTask(True, False), [(acc, 0, np.ones(2))])
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x._grad._array.tolist() == [1200.0, 1200.0]


def test_a_chain_of_100_000_nodes_runs_and_is_dropped_in_a_small_stack(in_small_stack):
    def work():
        log, x = [], leaf()
        node = leaf_node(x)
        for _ in range(100_000):
            node = toy("n", log, node)
        backward(node)
        del node
        return x._grad._array.tolist()
    assert in_small_stack(work) == [1.0, 1.0]
