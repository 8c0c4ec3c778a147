"""Random graphs over two CUDA devices and three streams of each: gradients equal the CPU's, and on simulated devices nothing is unordered.

    python -m tests.simgpu -m tests.random_streams --count 1000 --seed 0          simulated devices, which find what no event orders
    python -m tests.random_streams --count 1000 --seed 0                          two GPUs: values only
    python -m tests.simgpu -m tests.random_streams --count 1000 --prefetch 2      with all saved values in host memory
    python -m tests.simgpu -m tests.random_streams --count 1000 --threads 4       four graphs at a time, on the same streams

Each step of a graph runs on a stream that is drawn with it. The user's duty is done as in PyTorch: a stream waits for those that made its
operands, and record_stream tells whose memory it uses. What backward does by itself is the library's. It is called on a stream that is
drawn too: with or without given gradients, several times on a kept graph, recorded, for some inputs, by one thread or by workers, through
checkpoints, Functions, hooks on gradients and hooks on what is saved.
"""
import argparse
import contextlib
import functools
import random
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import autograd_gpu as torch
from autograd_gpu.autograd.graph import save_on_cpu, saved_tensors_hooks
from autograd_gpu.utils.checkpoint import checkpoint
from tests.simgpu import runtime

SIZE = 37
DEVICES, STREAMS = 2, 3


class Scale(torch.autograd.Function):
    """2x, with a backward that reads what it saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2 + x.detach() * 0


def packed(x):
    with saved_tensors_hooks(lambda t: t.detach() * 1, lambda t: t):
        return x.sin() * x


def halve(x):
    x.grad.mul_(0.5)


OPS = [
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y.sin(), lambda x, y: torch.where(x > y, x, y), lambda x, y: x.addcmul(x, y),
    lambda x, y: torch.stack((x, y)).sum(0), lambda x, y: x.clone().mul_(y), lambda x, y: x.clone()[:SIZE].add_(y), lambda x, y: x + x,
    lambda x, y: x, lambda x, y: x.tanh(), lambda x, y: x[:, None].expand(SIZE, 3).mean(1), lambda x, y: torch.cat((x[5:], y[:5])),
    lambda x, y: Scale.apply(x), lambda x, y: packed(x) + y, lambda x, y: x.exp().log1p() * y.detach(),
    lambda x, y: checkpoint(lambda x, y: (x * y).sin() * x, x, y, use_reentrant=False)]
WAYS = ("backward", "backward", "grad", "create_graph", "inputs")


class Graph:
    """What a seed draws. A place is (device, number of its stream); 0 is the default stream."""

    def __init__(self, seed):
        rng = random.Random(seed)

        def place():
            return rng.randrange(DEVICES), rng.randrange(STREAMS)
        self.leaves = [(place(), rng.randrange(1000)) for _ in range(rng.randint(1, 3))]
        self.steps = []                      # (op, or None for a move; its operands; its place)
        homes = [home[0] for home, _ in self.leaves]             # the device of each value so far
        for _ in range(rng.randint(3, 14)):
            i = max(rng.randrange(len(homes)), rng.randrange(len(homes)))
            op = rng.choice((*range(len(OPS)), None, None))
            where = place() if op is None else (homes[i], rng.randrange(STREAMS))
            j = rng.choice([k for k, home in enumerate(homes) if home == homes[i]])
            self.steps.append((op, i, j, where))
            homes.append(where[0])
        made = range(len(self.leaves), len(homes))
        self.roots = sorted({made[-1], *rng.sample(made, rng.randint(0, 2))})
        self.retained = rng.choice((None, rng.choice(made)))
        self.caller, self.way, self.runs = place(), rng.choice(WAYS), rng.choice((1, 1, 2))
        self.given, self.hooked = rng.random() < 0.5, rng.random() < 0.3
        self.threads = rng.choice((None, None, True, False))
        self.waits = {k for k in made if rng.random() < 0.2}     # values in whose backward the host waits, as a GPU may be as far by then


@functools.cache
def stream(device, number):
    """One of a device's streams, the same for all graphs."""
    return torch.cuda.Stream(device) if number else torch.cuda.default_stream(device)


class Places:
    """Streams for a graph's places, and where each tensor was made; with cuda=False nothing but the CPU."""

    def __init__(self, cuda):
        self.cuda, self.made = cuda, {}
        self.streams = {(d, s): stream(d, s) for d in range(DEVICES) for s in range(STREAMS)} if cuda else {}

    def device(self, place):
        return f"cuda:{place[0]}" if self.cuda else "cpu"

    @contextlib.contextmanager
    def on(self, place):
        """Work at a place."""
        with self.streams[place] if self.cuda else contextlib.nullcontext():
            yield

    def use(self, *tensors):
        """Have the current streams of the tensors' devices use them."""
        for t in tensors:
            if self.cuda:
                stream = torch.cuda.current_stream(t.device)
                stream.wait_stream(self.made[id(t)][1])
                t.record_stream(stream)

    def note(self, t, place):
        """A tensor was made at a place; it is kept, so that its id stays its own."""
        if self.cuda:
            self.made.setdefault(id(t), (t, self.streams[place]))
        return t


def run(graph, cuda):
    """What a program sees of a graph's gradients, as arrays."""
    places = Places(cuda)
    values = []
    for place, seed in graph.leaves:
        numbers = np.random.default_rng(seed).uniform(0.2, 1.5, SIZE)
        with places.on(place):
            values.append(places.note(torch.tensor(numbers, device=places.device(place), requires_grad=True), place))
    leaves = list(values)
    for x in leaves if graph.hooked else ():
        x.register_hook(lambda g: g * 2)
        x.register_post_accumulate_grad_hook(halve)
    for op, i, j, place in graph.steps:
        x, y = values[i], values[j]
        with places.on(place):
            places.use(x, y)
            made = x.to(places.device(place)) * 1 if op is None else OPS[op](x, y)
        values.append(places.note(made, place))
    for k in graph.waits if cuda else ():
        if values[k].requires_grad:
            values[k].register_hook(lambda g: [torch.cuda.synchronize(d) for d in range(DEVICES)] and None)
    if graph.retained is not None:
        values[graph.retained].retain_grad()
    found = []
    threads = contextlib.nullcontext() if graph.threads is None else torch.autograd.set_multithreading_enabled(graph.threads)
    with places.on(graph.caller), threads:
        roots = [values[k] for k in graph.roots]
        places.use(*roots, *leaves)
        if graph.given:
            grads = [torch.full((SIZE,), 0.5 + k, dtype=torch.float64, device=t.device) for k, t in enumerate(roots)]
        else:
            roots, grads = [t.sum() for t in roots], None
        for again in reversed(range(graph.runs)):
            if graph.way in ("grad", "create_graph"):
                out = torch.autograd.grad(roots, leaves, grads, retain_graph=again > 0 or None, create_graph=graph.way == "create_graph",
                                          allow_unused=True)
            else:
                torch.autograd.backward(roots, grads, retain_graph=again > 0, inputs=leaves[:1] if graph.way == "inputs" else None)
                out = [x.grad for x in leaves]
            found += [None if g is None else g * 1 for g in out]
        recorded = [g.sum() for g in out if g is not None and g.requires_grad]
        if recorded:
            out = torch.autograd.grad(recorded, leaves, allow_unused=True)
            found += [None if g is None else g * 1 for g in out]
        if graph.retained is not None:
            found.append(values[graph.retained].grad * 1 if values[graph.retained].grad is not None else None)
            values[graph.retained].grad = None
        del out, recorded                    # the last references to what backward gave, before the host waits
        for x in leaves:
            x.grad = None
        return [None if g is None else g.detach().cpu().numpy() for g in found]


def compared(seed, prefetch=None):
    """How the gradients of a seed's graph differ from the CPU's: None, or in words. With `prefetch` all that is saved is offloaded."""
    graph = Graph(seed)
    with contextlib.nullcontext() if prefetch is None else save_on_cpu(pin_memory=True, prefetch=prefetch):
        want = run(graph, cuda=False)
        try:
            got = run(graph, cuda=True)
        except RuntimeError as error:
            return f"{error}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if (a is None) != (b is None) or a is not None and not np.allclose(a, b, rtol=1e-9, atol=1e-12):
            return f"gradient {i}: {a}, not {b}"
    return None


def differences(seeds, prefetch=None, threads=1):
    """["seed 7: what is wrong"], and what simulated devices found: after each graph, or, with several threads, at the end."""
    seeds, found = list(seeds), []
    for some in ([seed] for seed in seeds) if threads == 1 else (seeds,):
        try:
            with runtime.faults() if runtime.active() else contextlib.nullcontext(), ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(compared, some, [prefetch] * len(some)))
            found += [f"seed {seed}: {what}" for seed, what in zip(some, results, strict=True) if what]
        except RuntimeError as error:
            found.append(f"seed {some[0]}{'' if threads == 1 else ' and on'}: {error}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prefetch", type=int, help="run inside of save_on_cpu(pin_memory=True, prefetch=...)")
    parser.add_argument("--threads", type=int, default=1, help="how many graphs run at a time")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    wrong = differences(range(options.seed, options.seed + options.count), options.prefetch, options.threads)
    print("\n".join([*wrong, f"{options.count} graphs, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
