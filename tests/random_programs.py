"""Random programs, run step by step on PyTorch and on this package: python -m tests.random_programs --count 1000 --seed 0 --jobs 2.

A program is a list of steps, lines of Python over a pool of tensors, each in some `with` blocks. The pool on PyTorch's side decides
what is drawn next, so that most steps fit. After a step both sides are described and compared: what was raised, and all that a
program can see of each tensor. The same seed gives the same program. One that differs is shrunk, by leaving steps out, and printed as
a script.

What is not compared, or accepted, and why; each rule stands at one place below, under its number:

 1. Strides: not promised, nor which of ViewBackward0 and ReshapeAliasBackward0 a reshape leaves. A program ends where view() fits those
    of one side only, or reshape() or contiguous() copies on one.
 2. Names of nodes that a backward with create_graph recorded: the graph of a gradient is that of the formula as it is written here. Nor
    whether a gradient without elements requires grad: PyTorch makes some of zeros.
 3. What pack hooks are given: what a node saves is its formula's business, and save_on_cpu leaves leaves and their views where they are.
    So .data is written to, which no node notices, in leaves only, and in programs without save_on_cpu.
 4. PyTorch lets a hook that edits its gradient change other gradients that share the memory. Its hooks edit a copy.
 5. Under hooks that pack a tensor as it is, under save_on_cpu, and in a checkpoint, to what is not its argument, PyTorch does not notice
    writes. Where this package raises for one, the program ends. In a block that packs as it is nothing is written, as PyTorch packs what
    an in-place operation made, and that may be written to again.
 6. Writes to memory that elements share: this package refuses all, PyTorch some. A program ends where only one of them refuses. A tangent
    is such a write in PyTorch: it refuses some, of others it keeps one number for each place. Not drawn, but of what was expanded.
 7. Operands that overlap the written memory: PyTorch refuses or gives what the order of its loop gives. Such steps are not drawn.
 8. autograd.grad gives PyTorch's engine's own tensors: views, and one as several gradients. Programs take clones.
 9. What a failed step left behind: where something changed on PyTorch's side that did not on this one, the program ends.
10. _version is compared from where a tensor is first seen: some of PyTorch's operations and gradients begin at 1 or 2.
11. grad_fn of a real view of a complex tensor, and whether it has one: PyTorch rebuilds one by several nodes after a write, in
    inference mode by none. Nodes of matmul of more than two dimensions, which PyTorch chooses by strides: programs hide them behind two.
12. Inference tensors: detach() and .data of one, or a dual, are not drawn, a program ends where one requires grad (docs/design.md).
13. conj() is a view in PyTorch, evaluated lazily. Programs only compute with it, and write to .data of real numbers only.
14. A step with two faults: a view's lost history, or what may not be saved, beside arguments that do not fit; a dtype that the operation
    lacks beside shapes that do not fit. Either may be raised. Nothing is reduced of complex tensors without elements, which have
    nothing to order.
15. Internal errors of PyTorch's: assertions, and in the backward of where(complex, real), of view_as_real of nothing, and, in a dual
    level, of masked_scatter from a number, and of what meets its tensors of zeros.
16. Programs in which PyTorch crashes, run alone. What a reentrant checkpoint's function names is not written to: after a write of the
    checkpoint's own result its backward computes again what comes from itself, without end, in both packages.
17. Of inference tensors PyTorch's kernels give views of memory that no name has: such a base is not compared.
18. The sign of zeros, which PyTorch's vectorised and scalar loops make differently: angle and the root of complex numbers, which show it,
    are not drawn, copysign and reciprocal_ of none. A product and a sum, which they may round once: factors are powers of two, and complex
    numbers, whose products are such sums, are not compared by ==.
19. Indices that an operation gave and saved: .data lets a program write to them, and PyTorch's node finds them out of range. Not drawn.
20. Tangents: one of zeros may be None, and their graphs are those of the formulas as they are written here: whether one requires grad,
    what it saves, what of its gradient flows through the result. Programs use copies without a history, and take gradients of tangents
    for leaves, where there are no hooks. They end where only one side finds a write, a freed value, an inference tensor that it saves, or
    that a tensor has a tangent.
21. An in-place operation in which its tensor occurs a second time: PyTorch computes its tangent from what it has overwritten. Not drawn
    in a dual level.
22. In a dual level a checkpoint counts what tangents save, too: PyTorch's fails where the second run is not in one. After one there,
    nothing is written to or detached in place and what requires grad stays as it is, lest the second run's tangents save something else.
23. PyTorch has no tangents of some nodes' gradients, as silu's; that of logsumexp of no elements is NaN there, and so is the gradient of
    the tangent of a norm of zeros, of std of equal elements and of copysign of a zero. These are not drawn.
24. An in-place operation with a tensor of another dtype makes a tangent of that dtype in PyTorch, copy_ from one of another shape a tangent
    that is a view of that one's. Not drawn.
25. What a reentrant checkpoint's backward is given may require grad, where nothing is recorded: that is not compared.
26. The tangent of a power of a real and a complex number, where the real one's counts, has no imaginary part in PyTorch. Not drawn.
27. Tangents, with a history, of views that came with others or were taken in no_grad: after a write PyTorch raises when a view of one is
    taken, if at all, this package when its tangent is asked for; before one this package's are such views, too, which refuse writes,
    PyTorch's may come from as_strided. After a write to a tensor PyTorch may take the tangent of its view for a leaf, and refuse to write.
28. A write to an output that is not its node's first, where it retains its gradient: in PyTorch the first keeps that gradient, too.
29. Functions that jump, or whose gradients do, comparisons, places and extremes among them, where rounding decides: a program ends where
    such a function of what differs in its last bits gives something else.
"""
from __future__ import annotations

import argparse
import functools
import multiprocessing.pool
import re
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import autograd_gpu
from tests.random_steps import Draw
from tests.random_tools import array_of, tools

ROOT = Path(__file__).resolve().parents[1]
MEMORY = 8 << 30                             # bytes that a process may take, of addresses
TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4}


JUMPS = re.compile(r"floor|round|sign|fmod|(?<!soft)max|min|[<>]|==|%|//")             # rule 29


class Step(NamedTuple):
    """One line of a program; `blocks`, (number, text) of each `with` block around it; `look`: whether both sides are compared after it."""

    text: str
    blocks: tuple = ()
    look: bool = True


# ---------------------------------------------------------------------------------------------------------------- describing

def looks(side, t):
    """(what, how to see it), for all that a program can see of a tensor."""
    yield "values", lambda: array_of(t)
    yield "dtype", lambda: str(t.dtype).rpartition(".")[2]
    for what in ("requires_grad", "output_nr"):
        yield what, functools.partial(getattr, t, what)
    yield "is_leaf", lambda: "?" if is_real_view(t) else t.is_leaf
    yield "retains_grad", lambda: not is_real_view(t) and not t.is_leaf and t.retains_grad
    yield "_version", lambda: t._version - side.versions.setdefault(id(t), (t, t._version))[1]     # rule 10
    yield "_is_view", lambda: NAMELESS if side.base(t) is NAMELESS else side.base(t) is not None
    yield "is_inference", lambda: t.is_inference()
    yield "_base", lambda: side.base(t)
    yield "grad_fn", lambda: side.graph(t)
    yield "tangent", lambda: side.tangent(t)
    yield "grad", lambda: None if t.grad is None else (array_of(t.grad), t.grad.requires_grad and t.numel() > 0)                # rule 2


def is_real_view(t):
    """Whether a tensor is a real view of a complex one: rule 11."""
    return t._base is not None and t._base.dtype != t.dtype


def in_level(blocks):
    """Whether there is a dual level among blocks."""
    return any(text == "dual_level()" for _, text in blocks)


NAMELESS = object()                          # a base that nobody can see: rule 17


class Side:
    """One of the two packages, running a program."""

    def __init__(self, torch):
        self.torch = torch
        self.names = tools(torch)
        self.known = set(self.names)
        self.inferred = False                # whether there were inference tensors
        self.entered = []                    # ((number, text), context manager)
        self.versions = {}                   # id of a tensor: (the tensor, its version when it was first seen)
        self.recorded = []                   # (first, last) sequence numbers of what backwards with create_graph recorded

    def run(self, step, code):
        """What a step raised, or None."""
        try:
            self.move_to(step.blocks)
            self.names["old_grads"][:] = [t.grad for t in self.tensors() if t.requires_grad and t.is_leaf]        # rule 4
            graph = "create_graph=True" in step.text
            before = self.now() if graph else 0
            exec(code, self.names)
            if graph:
                self.recorded.append((before, self.now()))
        except Exception as error:           # its type is compared
            return error
        return None

    def now(self):
        """The number of the next node."""
        with self.torch.inference_mode(False), self.torch.enable_grad():
            return (self.torch.ones(1, requires_grad=True) * 1).grad_fn._sequence_nr()

    def move_to(self, blocks):
        """Leave and enter `with` blocks."""
        common = 0
        while common < min(len(blocks), len(self.entered)) and blocks[common] == self.entered[common][0]:
            common += 1
        while len(self.entered) > common:
            self.entered.pop()[1].__exit__(None, None, None)
        for block in blocks[common:]:
            manager = eval(block[1], self.names)
            manager.__enter__()
            self.inferred = self.inferred or "inference_mode" in block[1]
            self.entered.append((block, manager))

    def close(self):
        """Leave all blocks."""
        self.move_to(())
        self.torch.set_grad_enabled(True)

    def pool(self):
        """The program's own names."""
        return {name: value for name, value in self.names.items() if name not in self.known and name != "__builtins__"}

    def tensors(self):
        return [t for t in self.pool().values() if isinstance(t, self.torch.Tensor)]

    def base(self, t):
        """The names of a view's base; its shape if it has none."""
        base = t._base
        if base is None:
            return None
        named = [name for name, value in self.pool().items() if value is base]
        return named or (NAMELESS if self.inferred else tuple(base.shape))

    def graph(self, t):
        """Names of a tensor's node and of those that follow it."""
        if is_real_view(t):
            return "?"
        node = t.grad_fn
        if node is None:
            return None
        return self.title(node), [self.title(n) for n, _ in node.next_functions]

    def title(self, node):
        if node is None:
            return None
        number = node._sequence_nr()
        if any(first <= number <= last for first, last in self.recorded):         # rule 2
            return "?"
        return node.name().replace("ViewAsReal", "AsStrided").replace("ReshapeAlias", "View")          # rules 11, 1

    def tangent(self, t):
        """A tensor's tangent, zeros where it has none: rule 20."""
        if not in_level([block for block, _ in self.entered]):
            return None
        tangent = self.names["unpack_dual"](t).tangent
        return np.zeros(t.shape, complex) if tangent is None else array_of(tangent).astype(complex)

    def describe(self):
        """All that can be seen: {(name, what): value}."""
        found = {("seen", ""): self.names["seen"]}
        for name, value in self.pool().items():
            if not isinstance(value, self.torch.Tensor):
                if isinstance(value, (tuple, list, int, float, bool, type(None))):
                    found[name, "itself"] = value
                continue
            for what, look in looks(self, value):
                try:
                    found[name, what] = look()
                except Exception as error:
                    found[name, what] = type(error).__name__
        return found


def same(a, b, dtype=None):
    """Whether two descriptions agree, in the precision of a dtype, by default of each array's own."""
    if a is NAMELESS or b is NAMELESS:
        return True
    if np.ndarray in (type(a), type(b)):
        if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.size == 0 or (a == b).all():
            return True
        tolerance = TOLERANCE.get(a.dtype.name if dtype is None or a.dtype.kind not in "fc" else dtype)
        if tolerance is None:
            return False
        finite = np.isfinite(a)
        if (finite != np.isfinite(b)).any():
            return False
        if not finite.all() and a.dtype.kind != "c" and not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return False
        x, y = a[finite], b[finite]
        return x.size == 0 or bool(abs(x - y).max() <= tolerance * max(1, abs(x).max()))
    if type(a) in (tuple, list):
        return type(b) in (tuple, list) and len(a) == len(b) and all(same(x, y, dtype) for x, y in zip(a, b, strict=True))
    return a == b or isinstance(a, (float, complex)) and isinstance(b, (float, complex)) and same(np.array(a), np.array(b), dtype)


class Difference(NamedTuple):
    """Where two runs part: after which step, in what, and what each side shows."""

    at: int
    what: str
    theirs: object
    ours: object


def compare(at, theirs, ours, dtype=None):
    """The first difference between two descriptions."""
    wrong = [k for k in theirs.keys() | ours.keys() if k not in theirs or k not in ours or not same(theirs[k], ours[k], dtype)]
    if not wrong:
        return None
    key = min(wrong)
    return Difference(at, ".".join(key), theirs.get(key, "no such name"), ours.get(key, "no such name"))


# ------------------------------------------------------------------------------------------------------------------ running

class Accepted(Exception):
    """A difference that a rule allows: the program ends here."""


def lost_view(error):
    """Whether an error of this package's is about a view whose history is not known."""
    return any(words in str(error) for words in ("came with others", "created in no_grad"))


def judge_errors(at, steps, theirs, ours, names):
    """The difference in what the last of the steps raised; `names`: PyTorch's side's. Raises Accepted where a rule allows it."""
    internal = ["INTERNAL ASSERT", "Expected isFloatingType", "must have a last dimension with stride 1", "ZeroTensors are",
                "Something went unexpectedly wrong"]
    if "make_dual" not in steps[-1].text:
        internal.append("Trying to set a forward gradient that has a different size")
    if any(words in str(theirs) for words in internal):
        raise Accepted("15")
    packed = any("checkpoint" in s.text or any(text.startswith(("saving('same')", "save_on_cpu(")) for _, text in s.blocks) for s in steps)
    if packed and "modified by an inplace" in str(ours) and "modified by an inplace" not in str(theirs):
        raise Accepted("5")
    if type(theirs).__name__ == type(ours).__name__:
        return None
    one = str(ours if theirs is None else theirs) if None in (theirs, ours) else ""
    unlike = ("modified by an inplace", "second time") if ", True))" in steps[-1].text else ()
    if any(words in one for words in ("forward gradient at the same level", *unlike)):
        raise Accepted("20")
    if ours is None and "Inference tensors cannot be saved" in str(theirs) and in_level(steps[-1].blocks):
        raise Accepted("20")
    if in_level(steps[-1].blocks) and (ours is None and str(theirs).startswith("Output ") or theirs is None and lost_view(ours)):
        raise Accepted("27")
    if in_level(steps[-1].blocks) and ours is None and str(theirs).startswith("A view was created in no_grad") and not any(
            t.requires_grad for t in map(names.get, re.findall(r"\bt\d+", steps[-1].text)) if t is not None):
        raise Accepted("27")
    if in_level(steps[-1].blocks) and ours is None and "a leaf Variable that requires grad" in str(theirs) and not any(
            t.is_leaf and t.requires_grad for t in map(names.get, re.findall(r"\bt\d+", steps[-1].text)) if t is not None):
        raise Accepted("27")
    lost = str(theirs).startswith(("A view was created", "Output ", "Inference tensors cannot be saved"))
    unfit = any(words in str(theirs) for words in ("must match the size", "broadcast shape", "can't be cast"))
    unfit = unfit and isinstance(ours, NotImplementedError) or lost_view(ours) and isinstance(theirs, NotImplementedError)
    if None not in (theirs, ours) and (lost or unfit):
        raise Accepted("14")
    if "that does not support it" in str(theirs):
        raise Accepted("23")
    if "A different number of tensors was saved" in str(theirs) and any(
            "checkpoint" in s.text and in_level(s.blocks) for s in steps):
        raise Accepted("22")
    if any("view size" in str(e) for e in (theirs, ours)):
        raise Accepted("1")
    if any("single memory location" in str(e) for e in (theirs, ours)):
        raise Accepted("6")
    return Difference(at, "raises", repr(theirs)[:300], repr(ours)[:300])


class Run:
    """A program on both sides, a step at a time."""

    def __init__(self, oracle):
        self.sides = Side(oracle), Side(autograd_gpu)
        self.steps = []
        self.compared = 0                    # how many of them there were when the sides were last compared
        self.jumped = False                  # whether a function that jumps was given what differs in its last bits since then
        self.dtype = None                    # float32 once it occurs: what is computed from it is no more precise

    def take(self, step):
        """Run a step; the difference that shows after it, or None. Raises Accepted."""
        at, code = len(self.steps), compile(step.text, "<step>", "exec")
        self.steps.append(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.jumped = self.jumped or JUMPS.search(step.text) is not None and self.rounded(step.text)
            later = [(t, t._version) for t in self.sides[0].tensors() if t.output_nr and t.retains_grad and not t.is_inference()]
            theirs, ours = (side.run(step, code) for side in self.sides)
            if any(t._version != version for t, version in later):
                raise Accepted("28")
            if any(t._array.dtype in (np.float32, np.complex64) for t in self.sides[1].tensors()):
                self.dtype = "float32"
            if any(t.requires_grad and t.is_inference() for side in self.sides for t in side.tensors()):
                raise Accepted("12")
            found = judge_errors(at, self.steps, theirs, ours, self.sides[0].names)
            if found is None and (step.look or theirs is not None):
                found = compare(at, *(side.describe() for side in self.sides), self.dtype)
                if found is not None and theirs is not None and self.unchanged(step):
                    raise Accepted("9")
                lost = str(theirs).startswith(("A view was created", "Output ")) and lost_view(ours)
                if found is not None and in_level(step.blocks) and lost:
                    raise Accepted("27")
                if found is not None and found.what.endswith(".tangent") and "RuntimeError" in map(str, (found.theirs, found.ours)):
                    raise Accepted("27")
                if found is not None and self.jumped and found.what.rpartition(".")[2] in ("values", "tangent", "grad", "itself"):
                    raise Accepted("29")
                if found is not None and found.what.endswith("._base") and any("contiguous(" in s.text for s in self.steps):
                    raise Accepted("1")
                since = " ".join(s.text for s in self.steps[self.compared:])
                if found is not None and found.what.endswith(("._base", "._is_view", "._version", "is_inference")) and any(
                        word in since for word in ("reshape(", "flatten(", "contiguous(")):
                    raise Accepted("1")
                if found is not None and found.what.endswith(".grad_fn") and "contiguous(" in since and sum(
                        f is None or "CloneBackward0" in str(f) for f in (found.theirs, found.ours)) == 1:
                    raise Accepted("1")
                self.compared, self.jumped = len(self.steps), False
        return found

    def rounded(self, text):
        """Whether a tensor that a step names differs in its last bits."""
        pairs = [[side.names.get(name) for side in self.sides] for name in re.findall(r"\bt\d+", text)]
        return any(not np.array_equal(*map(array_of, pair), equal_nan=True) for pair in pairs if None not in pair)

    def unchanged(self, failed):
        """Whether a failed step left what differs as it was on this package's side."""
        theirs, now = (side.describe() for side in self.sides)
        self.sides[1].close()                # the run ends here; its modes are the thread's
        again = Side(autograd_gpu)
        try:
            for step in self.steps[:-1]:
                if again.run(step, compile(step.text, "<step>", "exec")) is not None or step.look:
                    again.describe()
            again.move_to(failed.blocks)
            before = again.describe()
            return before.keys() == now.keys() == theirs.keys() and all(
                same(before[k], now[k]) or same(theirs[k], now[k], self.dtype) for k in before)
        finally:
            again.close()

    def close(self):
        for side in self.sides:
            side.close()


def replay(oracle, steps):
    """The first difference of a program, or None."""
    run = Run(oracle)
    try:
        for i, step in enumerate(steps):
            found = run.take(step._replace(look=True) if i == len(steps) - 1 else step)
            if found is not None:
                return found
    except Accepted:
        return None
    finally:
        run.close()
    return None


def kind(difference):
    """What a difference is about, whatever the names."""
    what = difference.what.rpartition(".")[2]
    if what == "raises":
        return what, difference.theirs.partition("(")[0], difference.ours.partition("(")[0]
    return what


def shrink(oracle, steps, difference):
    """The steps that are needed for a difference of the same kind, and that difference."""
    wanted = kind(difference)
    steps = steps[:difference.at + 1]

    def attempt(candidate):
        nonlocal steps, difference
        found = replay(oracle, candidate)
        if found is not None and kind(found) == wanted:
            steps, difference = candidate[:found.at + 1], found
            return True
        return False

    changed = True
    while changed:
        changed = False
        size = max(1, len(steps) // 3)
        while size:
            i = len(steps) - size
            while i >= 0:
                if i + size <= len(steps) and attempt(steps[:i] + steps[i + size:]):
                    changed = True
                i -= size
            size //= 2
        for block in {b for s in steps for b in s.blocks}:
            changed |= attempt([s._replace(blocks=tuple(b for b in s.blocks if b != block)) for s in steps])
        quiet = [s._replace(look=False) for s in steps]
        if quiet != steps:
            attempt(quiet)
    return steps, difference


def script(oracle, steps, difference):
    """A program as a script that shows its difference."""
    sides = Side(oracle), Side(autograd_gpu)
    lines, open_blocks = ["import contextlib, sys, torch  # or: import autograd_gpu as torch",
                          "from tests.random_tools import tools", "globals().update(tools(torch))"], ()
    for step in steps:
        code = compile(step.text, "<step>", "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raised = [side.run(step, code) for side in sides]
        common = 0
        while common < min(len(open_blocks), len(step.blocks)) and open_blocks[common] == step.blocks[common]:
            common += 1
        lines += ["    " * i + f"with {step.blocks[i][1]}:" for i in range(common, len(step.blocks))]
        open_blocks = step.blocks
        text = step.text if raised == [None, None] else f"with contextlib.suppress(Exception): {step.text}"
        lines.append("    " * len(open_blocks) + text + ("  # looked at" if step.look else ""))
    for side in sides:
        side.close()
    return "\n".join([*lines, f"# {difference.what}", f"#   PyTorch:      {difference.theirs!r}", f"#   autograd_gpu: {difference.ours!r}"])


def program(oracle, seed, length=25):
    """The program of a seed. To draw it takes a run of its own, as looking at a tensor may change its history."""
    side = Side(oracle)
    draw = Draw(seed, side.names)
    steps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(length):
            step = Step(*draw.step())
            steps.append(step)
            side.run(step, compile(step.text, "<step>", "exec"))
        side.close()
    return steps


def check(oracle, seed, length):
    """A program of a seed as a script that shows its difference, shrunk; None if it shows none."""
    steps = program(oracle, seed, length)
    found = replay(oracle, steps)
    if found is None:
        return None
    steps, found = shrink(oracle, steps, found)
    return f"# seed {seed}\n{script(oracle, steps, found)}\n"


# ---------------------------------------------------------------------------------------------------------------- many of them

def work(how, seeds, length):
    """What a process of its own does: it names each seed, then says what differs. `how`: "check", or "draw" to run PyTorch alone."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))             # a program without an end ends
    import torch  # noqa: PLC0415 - the oracle, which only such a process loads
    torch.set_num_threads(1)
    for seed in seeds:
        print(f"@{seed}", flush=True)
        found = program(torch, seed, length) and None if how == "draw" else check(torch, seed, length)
        if found:
            print(found, flush=True)


def in_process(how, seeds, length):
    """(its exit status, the last seed it began, what differed) of a process that does the work."""
    options = {"--work": how, "--seed": seeds.start, "--count": len(seeds), "--length": length}
    command = [sys.executable, "-m", "tests.random_programs", *(str(x) for pair in options.items() for x in pair)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    lines = done.stdout.splitlines()
    begun = [int(line[1:]) for line in lines if line[:1] == "@"]
    if done.returncode > 0 or not begun:
        raise RuntimeError(done.stderr)
    return done.returncode, begun[-1], "\n".join(line for line in lines if line[:1] != "@")


def check_all(seeds, length=25):
    """What differs in the programs of some seeds, run in processes of their own, since PyTorch crashes in a few of them."""
    found = []
    while seeds:
        status, last, text = in_process("check", seeds, length)
        found.append(text)
        seeds = seeds[seeds.index(last) + 1:]
        if status and not in_process("draw", range(last, last + 1), length)[0]:          # rule 16
            found.append(f"# seed {last}: the process ended with status {status}\n")
    return "\n".join(text for text in found if text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    if options.work:
        return work(options.work, seeds, options.length)
    started, failures = time.time(), 0
    parts = [seeds[i:i + 100] for i in range(0, len(seeds), 100)]
    with multiprocessing.pool.ThreadPool(options.jobs) as pool:
        for found in pool.imap(functools.partial(check_all, length=options.length), parts):
            if found:
                failures += found.count("# seed ")
                print(found, flush=True)
    print(f"{options.count} programs from seed {options.seed}, {failures} differ, {time.time() - started:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
