"""Bytes of a step, ours beside PyTorch's: the peak, and what the forward pass keeps for the backward pass.

Ours are counted by tracemalloc, to which NumPy reports its arrays; PyTorch's by the allocations and frees in its profiler's trace.
"""
import gc
import json
import tempfile
import tracemalloc
from itertools import accumulate
from pathlib import Path

import numpy as np

from bench.peers import OURS, TORCH, installed
from bench.programs import chosen
from bench.report import memory_table

NAMES = ["mlp", "mlp_large", "cnn", "transformer", "attention", "convolution", "elementwise_large", "reduce_norm", "matmul_chain",
         "embedding"]


def arguments(parser):
    parser.add_argument("names", nargs="*", help=f"programs, or files as in `attention`; {', '.join(NAMES)} if none is given")
    parser.add_argument("--json", type=Path, help="where to write the figures")


class Step:
    """A step in two halves, so that what lies between them can be looked at."""
    def __init__(self, program, peer):
        arrays = program.arrays(np.random.default_rng(0))
        self.program, self.peer = program, peer
        self.leaves, self.inputs = [peer.leaf(a) for a in arrays[:program.leaves]], [peer.array(a) for a in arrays[program.leaves:]]

    def forward(self):
        self.loss = self.program.loss(self.peer.words, *self.leaves, *self.inputs)

    def backward(self):
        self.loss.backward()
        with self.peer.module.no_grad():
            for x in self.leaves:
                if self.program.kind == "training":
                    x -= self.program.rate * x.grad
                x.grad = None
        del self.loss


def by_tracemalloc(step):
    """Peak and kept bytes, beyond those allocated before the step."""
    tracemalloc.start()
    try:
        step.forward()
        step.backward()
        gc.collect()
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        step.forward()
        kept = tracemalloc.get_traced_memory()[0] - start
        step.backward()
        return {"peak": tracemalloc.get_traced_memory()[1] - start, "kept": kept}
    finally:
        tracemalloc.stop()


def by_profiler(step, torch):
    """Peak and kept bytes, from PyTorch's own trace of its allocations."""
    step.forward()
    step.backward()
    forward, backward = allocations(step.forward, torch), allocations(step.backward, torch)
    kept = sum(forward)
    return {"peak": max(accumulate(forward + backward)), "kept": kept}


def allocations(run, torch):
    """Bytes of each allocation, negative for what is freed, in the order of time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    return [e["args"]["Bytes"] for e in sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])]


def main(args):
    peers, found = installed()[0], {}
    programs = {p.name: p for p in chosen(args.names or NAMES)}
    if bad := [p.name for p in programs.values() if p.kind not in ("gradients", "training")]:
        raise SystemExit(f"bench: {', '.join(bad)}: only a step of forward and backward is looked at")
    for name in programs:
        found[name] = {OURS: by_tracemalloc(Step(programs[name], peers[OURS]))}
        if TORCH in peers:
            found[name][TORCH] = by_profiler(Step(programs[name], peers[TORCH]), peers[TORCH].module)
    if args.json:
        args.json.write_text(json.dumps({"memory": found}) + "\n", encoding="utf-8")
    print(memory_table(found))
    return 0
