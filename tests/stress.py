"""Threads over shared leaves and trunks, on the CPU and on every CUDA device there is: no contribution is lost, and nothing hangs.

    python -m tests.stress --rounds 10000                        on the CPU, or on the GPUs of this machine too
    python -m tests.simgpu -m tests.stress --rounds 10000        on simulated devices

Each round draws a graph: branches on random devices from shared and from own leaves, over a trunk that all threads share and run again,
custom Functions whose backward takes a lock, runs a backward of its own, or raises. Several threads run it at once. What arrived in each
leaf is compared with what every thread knows it has sent there, exactly: all numbers are whole.
"""
import argparse
import faulthandler
import random
import sys
import threading
import time

import autograd_gpu as torch

LOCK = threading.Lock()


class Wrong(Exception):
    """What a backward raises on purpose."""


class Act(torch.autograd.Function):
    """The identity. Its backward does something besides."""

    @staticmethod
    def forward(ctx, x, act):
        ctx.act = act
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if ctx.act == "lock":
            with LOCK:
                g = g * 1
        elif ctx.act == "nested":
            with torch.enable_grad():
                inner = torch.ones(2, device=g.device, requires_grad=True)
                y = (Act.apply(inner * 2, "lock") * 3).sum()
            y.backward()
            assert inner.grad.tolist() == [6.0, 6.0]
        elif ctx.act == "raise":
            raise Wrong
        return g, None


def places():
    return ["cpu", *[f"cuda:{i}" for i in range(torch.cuda.device_count())]]


class Round:
    """Leaves that all threads share, and what was sent to each."""

    def __init__(self, seed, threads):
        rng = random.Random(seed)
        self.leaves = [torch.ones(2, device=rng.choice(places()), requires_grad=True) for _ in range(3)]
        self.sent = [0] * len(self.leaves)
        self.counting = threading.Lock()
        self.factors = [rng.randint(1, 4) for _ in self.leaves]
        where = rng.choice(places())
        self.trunk = sum([Act.apply(x * f, rng.choice(["", "lock"])).to(where) for x, f in zip(self.leaves, self.factors, strict=True)])
        self.seeds = [rng.random() for _ in range(threads)]
        self.errors = []

    def work(self, seed):
        try:
            self._work(random.Random(seed))
        except BaseException as error:       # told by the main thread
            self.errors.append(error)

    def _work(self, rng):
        for _ in range(3):
            k = rng.randrange(len(self.leaves))
            own, a, b = torch.ones(2, device=rng.choice(places()), requires_grad=True), rng.randint(1, 3), rng.randint(1, 3)
            act, where = rng.choice(["", "lock", "nested", "raise"]), rng.choice(places())
            branch = Act.apply((self.leaves[k] * a).to(own.device) * own, act).to(where)
            loss = (self.trunk.to(where) * b + branch).sum() if act != "raise" else branch.sum()
            try:
                loss.backward(retain_graph=True)
            except Wrong:
                assert act == "raise" and own.grad is None
                continue
            assert own.grad.tolist() == [a, a], own.grad
            with self.counting:
                self.sent[k] += a
                for i, f in enumerate(self.factors):
                    self.sent[i] += b * f

    def run(self):
        threads = [threading.Thread(target=self.work, args=(seed,), daemon=True) for seed in self.seeds]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
            if t.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise AssertionError("a thread hangs")
        if self.errors:
            raise self.errors[0]
        got = [None if x.grad is None else x.grad.tolist() for x in self.leaves]
        assert got == [[float(s)] * 2 if s else None for s in self.sent], (got, self.sent)


def main(rounds, seed=0, threads=4):
    """Run so many rounds. Raises AssertionError where one is wrong, naming its seed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)              # threads change places often
    try:
        for k in range(seed, seed + rounds):
            try:
                Round(k, threads).run()
            except BaseException as error:
                raise AssertionError(f"round {k}: {error!r}") from error
    finally:
        sys.setswitchinterval(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    start = time.perf_counter()
    main(options.rounds, options.seed, options.threads)
    seconds = time.perf_counter() - start
    print(f"{options.rounds} rounds of {options.threads} threads on {', '.join(places())}: nothing lost, {seconds:.0f} s")
