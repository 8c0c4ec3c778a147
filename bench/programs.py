"""A program that every peer runs, its floor by hand, and the rounds that time them.

Each file bench/test_*.py asks one question and holds its programs:

    @program(arrays, leaves=1)               # arrays(random): leaves, then inputs, as NumPy arrays
    def square(T, x, w):                     # in a peer's words T: a scalar, of which the gradient is taken
        return (x * x * w).sum()

    @square.by_hand                          # the floor: loss and gradients in NumPy
    def square(x, w): ...
"""
import importlib
import random
import statistics
import time
from functools import cache
from pathlib import Path
from unittest import SkipTest

import numpy as np

from bench.peers import FLOOR, OURS, TORCH, installed

PROGRAMS = {}                                # by name, in the order of their files
VARIANTS = 3                                 # so many sets of arrays are taken in turn
LEAST = 3                                    # rounds that are run whatever they take
ROUND = 10e-3                                # seconds: a peer repeats its step so often that a round takes as long


class Program:
    """What is run, and by whom. kind: gradients, training (and a step of gradient descent), forward or second_order."""
    def __init__(self, loss, arrays, leaves, kind, rate, only, without):
        self.loss, self.arrays, self.leaves, self.kind, self.rate = loss, arrays, leaves, kind, rate
        self.name, self.about = loss.__name__, " ".join(loss.__doc__.split())
        self.only, self.without = only, without

    def by_hand(self, floor):
        self.floor = floor
        return self

    def left_out(self, name):
        """Why a peer does not run this; None if it does."""
        if self.only and name not in self.only:
            return f"only for {', '.join(self.only)}"
        return self.without.get(name)

    def prepare(self, peer, kind=None):
        """run(i): step number i on one of the sets of arrays. Training changes its leaves, which are those of the first set."""
        kind = kind or self.kind
        step, sets = getattr(peer, kind)(self), []
        for seed in range(VARIANTS):
            arrays = self.arrays(np.random.default_rng(seed))
            sets.append(([peer.leaf(a) for a in arrays[:self.leaves]], [peer.array(a) for a in arrays[self.leaves:]]))
        if kind == "training":
            sets = [(sets[0][0], inputs) for _, inputs in sets]
        return lambda i: step(*sets[i % VARIANTS])

    def check(self, peer, run):
        """ValueError if two steps of a peer and of the floor differ by more than float32 and another order of adding explain."""
        floor = installed()[0][FLOOR]
        compare(self, peer, run, self.prepare(floor))
        if self.kind == "training":          # a wrong gradient is small beside a parameter
            compare(self, peer, *(self.prepare(p, "gradients") for p in (peer, floor)))


class Imports(Program):
    """A program that is the import of a library, in a process of its own."""
    def prepare(self, peer, kind=None):
        return lambda i: self.loss(peer)

    def check(self, peer, run):
        """It has no results."""


def program(arrays=None, leaves=1, kind="gradients", rate=0.01, only=(), without=None, cls=Program):
    """Decorator: the function's name and docstring are the program's. only, without: peers by name, {name: reason}."""
    def register(loss):
        made = PROGRAMS[loss.__name__] = cls(loss, arrays, leaves, kind, rate, only, without or {})
        return made
    return register


def load():
    """Fill PROGRAMS from every file of this folder."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"bench.{path.stem}")


def chosen(names):
    """The programs that are meant by names of programs or of files; all of them if there are no names."""
    load()
    found = []
    for name in names:
        own = [p for p in PROGRAMS.values() if name in (p.name, p.loss.__module__.removeprefix("bench.test_"))]
        if not own:
            raise SystemExit(f"bench: there is no program or file {name}; the programs are {', '.join(PROGRAMS)}")
        found += own
    return found or list(PROGRAMS.values())


def compare(program, peer, run, floor):
    """Two steps of a peer with two of the floor: the largest difference beside the largest number."""
    for i in range(2):
        got, want = [np.asarray(peer.number(a)) for a in run(i)], floor(i)
        for j, (a, b) in enumerate(zip(got, want, strict=True)):
            far = float(np.abs(a - b).max(initial=0)) if a.shape == b.shape else np.inf
            if not far <= 1e-3 * float(np.abs(b).max(initial=0)):
                raise ValueError(f"{program.name}: result {j} of {peer.name}, {a.shape}, is {far:.2g} away from that by hand, {b.shape}")


def prepared(program, names=None):
    """({peer: run}, {peer: why it is left out}) for one program; each peer's results are compared with the floor's first.

    What fails in another library leaves it out; it is no failure of ours.
    """
    runs, out = {}, {}
    found, missing = installed()
    for name, peer in found.items():
        reason = program.left_out(name) or (None if names is None or name in names else "not asked for")
        if reason is None:
            try:
                run = program.prepare(peer)
                program.check(peer, run)
                runs[name] = run
            except Exception as error:
                if name in (OURS, TORCH, FLOOR):
                    raise
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if reason:
            out[name] = reason
    return runs, out | missing


def several(peer, run, n, first):
    """Seconds per step of n steps."""
    start = time.perf_counter()
    for i in range(first, first + n):
        results = run(i)
    peer.wait(results)
    return (time.perf_counter() - start) / n


def step_time(peer, run):
    """Seconds of a step once caches are filled; of a long step, which cold caches do not change, its first time."""
    first = several(peer, run, 1, 0)
    return min([first, *(several(peer, run, 1, i) for i in range(int(ROUND / first)))])


def interleave(runs, budget, most):
    """{peer: seconds per step of each round}. A round runs every peer once, in an order drawn anew, so that ratios are of one time.

    The rounds end when the budget is used up, in seconds; the slow peers are in the first ones only.
    """
    peers, seconds, draw = installed()[0], {name: [] for name in runs}, random.Random(0)
    took = {name: step_time(peers[name], run) for name, run in runs.items()}
    n = {name: max(1, round(ROUND / t)) for name, t in took.items()}
    start = time.perf_counter()
    for k in range(most):
        order = [name for name in runs if k < LEAST or took[name] < 5 * statistics.median(took.values())]
        draw.shuffle(order)
        for name in order:
            seconds[name].append(several(peers[name], runs[name], n[name], k))
        if k + 1 >= LEAST and time.perf_counter() - start > budget:
            break
    return seconds


def reference():
    """What others are compared with: PyTorch, or the floor where it is not installed."""
    return TORCH if TORCH in installed()[0] else FLOOR


@cache
def beside(program):
    """(run, steps) of the reference: as many steps as fill a round."""
    peer = installed()[0][reference()]
    run = prepared(program, {peer.name})[0][peer.name]
    return run, max(1, round(ROUND / step_time(peer, run)))


def measure(program, peer, benchmark):
    """One peer's program in pytest-benchmark; each round is beside one of the reference, with as many steps."""
    runs, out = prepared(program, {peer})
    if peer not in runs:
        raise SkipTest(out[peer])
    peers, run, (other, n) = installed()[0], runs[peer], beside(program)
    others, first = [], iter(range(1_000_000))

    def setup():
        others.append(several(peers[reference()], other, n, next(first)))
    benchmark.group = f"{program.name}, {n} steps"
    benchmark.pedantic(lambda: several(peers[peer], run, n, next(first)), setup=setup, rounds=9, warmup_rounds=1)
    if benchmark.stats:                      # none with --benchmark-disable
        taken = [seconds / n / o for seconds, o in zip(benchmark.stats.stats.data, others[1:], strict=True)]
        benchmark.extra_info.update({"steps": n, f"time / {reference()}": statistics.median(taken)})
