"""When save_on_cpu hides its copies: a computed schedule of a training step, not a measurement.

A node takes as long as its arithmetic or its memory traffic, whichever is longer, at rates that are given, or measured on a device. The
rules of the copies are those of autograd_gpu/cuda/offload.py and engine/ahead.py: three queues (computation, out, back), a bound on the
bytes that wait, values fetched some nodes ahead. The host takes no time.
"""
import dataclasses
from pathlib import Path

import numpy as np

import autograd_gpu as torch
from autograd_gpu.devices import cupy as cp
from bench import gpu

PICTURE = Path(__file__).parent.parent / "docs" / "offload.svg"
LINKS = [4, 6, 8, 12, 16, 24, 32, 48, 64, 100, 200, 450]     # GB/s to the host: PCIe 3 gives about 12, 4 24, 5 50, NVLink-C2C 450
WAYS = {"on the same stream": None, "prefetch=0": 0, "prefetch=2": 2, "prefetch=8": 8}


@dataclasses.dataclass
class Rates:
    """What a device does in a millisecond: floating-point operations, bytes of its memory, bytes from and to the host."""

    flops: float = 1e11                      # 100 TFLOP/s
    memory: float = 2e9                      # 2 TB/s
    link: float = 2.5e7                      # 25 GB/s


@dataclasses.dataclass
class Node:
    """An operation: floating-point operations and bytes of its forward (its backward takes twice both), the values that it saves."""

    flops: float
    bytes: float
    saved: tuple[int, ...]                   # numbers of values
    late: bool                               # whether the first half of its backward needs none: the gradient for a map's input


class Net:
    """Nodes in order and the sizes of values. Each method adds an operation on the latest value, of so many elements of 2 bytes."""

    def __init__(self, elements):
        self.nodes, self.sizes = [], [2 * elements]

    def add(self, flops, elements, saves_input=True, saves_result=False, linear=None):
        """An operation with a result of so many elements. linear: whether it is a linear map; by default, what has arithmetic is."""
        before = len(self.sizes) - 1
        self.sizes.append(2 * elements)
        saved = [before] * saves_input + [before + 1] * saves_result
        self.nodes.append(Node(flops, self.sizes[before] + self.sizes[-1], tuple(saved),
                               bool(flops) if linear is None else linear))
        return self


def mlp(layers=20, width=4096, batch=8192):
    """Linear maps, each followed by a relu, which saves its result."""
    net = Net(batch * width)
    for _ in range(layers):
        net.add(2 * batch * width * width, batch * width).add(0, batch * width, saves_input=False, saves_result=True)
    return net


def cnn(batch=64):
    """Convolutions of 3 x 3 with batch normalisation and relu, four stages of four: channels double as the picture's sides halve."""
    side, channels = 56, 64
    net = Net(batch * 3 * side * side)
    inputs = 3
    for _ in range(4):
        elements = batch * channels * side * side
        for _ in range(4):
            net.add(2 * elements * inputs * 9, elements).add(0, elements).add(0, elements, saves_input=False, saves_result=True)
            inputs = channels
        side, channels = side // 2, channels * 2
    return net


def transformer(layers=12, width=1024, length=1024, batch=8):
    """Layers of attention and of a map to four times the width and back, with normalisations, attention kept as one operation."""
    rows = batch * length
    net = Net(rows * width)
    for _ in range(layers):
        net.add(0, rows * width).add(6 * rows * width * width, 3 * rows * width)
        net.add(4 * rows * length * width, rows * width, linear=False)
        net.add(2 * rows * width * width, rows * width).add(0, rows * width)
        net.add(8 * rows * width * width, 4 * rows * width).add(0, 4 * rows * width).add(8 * rows * width * width, rows * width)
    return net


NETS = {"MLP": mlp, "CNN": cnn, "transformer": transformer}


def schedule(net, rates, prefetch, ahead=1 << 28):
    """(ms of a step, ms of it that is computation, ms that copies take). prefetch None: copies on the stream that computes."""
    times = [max(n.flops / rates.flops, n.bytes / rates.memory) for n in net.nodes]
    copy = [size / rates.link for size in net.sizes]
    there = sorted({v for n in net.nodes for v in n.saved})
    computing, copying = 3 * sum(times), 2 * sum(copy[v] for v in there)
    if prefetch is None:
        return computing + copying, computing, copying
    now = out = back = 0.0
    left, held = {}, {}                      # value: when it has left; those whose copies wait on the device, with that
    for node, time in zip(net.nodes, times, strict=True):
        now += time
        for v in node.saved:
            if v in left:
                continue
            held = {w: end for w, end in held.items() if end > now}
            while held and sum(net.sizes[w] for w in held) + net.sizes[v] > ahead:
                oldest = min(held, key=held.get)
                now = max(now, held.pop(oldest))
            now += 2 * net.sizes[v] / rates.memory           # the copy on the device
            out = held[v] = left[v] = max(out, now) + copy[v]
    places = [n.saved for n in reversed(net.nodes)]
    coming = {}
    for at, (node, time) in enumerate(zip(reversed(net.nodes), reversed(times), strict=True)):
        wanted = {v: k for k, saved in reversed(list(enumerate(_next(places, at, prefetch)))) for v in saved}
        coming = {v: end for v, end in coming.items() if v in wanted}
        for v, distance in sorted(wanted.items(), key=lambda pair: pair[1]):
            if v in coming:
                continue
            if distance and sum(net.sizes[w] for w in coming) + net.sizes[v] > ahead:
                break
            back = coming[v] = max(back, now, left[v]) + copy[v]
        early = time if node.late else 0
        now = max([now + early, *(coming[v] for v in places[at])]) + 2 * time - early
    return now, computing, copying


def _next(places, at, prefetch):
    """What the node at a place saved, and the next `prefetch` of those that saved something."""
    found = [places[at]]
    for saved in places[at + 1:]:
        if len(found) > prefetch:
            break
        if saved:
            found.append(saved)
    return found


def measured(device):
    """The rates of a CUDA device."""
    n = 256 if "simulated" in torch.cuda.get_device_name(device) else 8192
    x = cp.ones((n, n), np.float16)
    y, pinned = cp.empty_like(x), cp.cuda.alloc_pinned_memory(x.nbytes)
    per_ms = [amount / (1000 * gpu.seconds(run, 5)) for amount, run in (
        (2 * n ** 3, lambda: x @ x), (2 * x.nbytes, lambda: cp.copyto(y, x)),
        (x.nbytes, lambda: x.data.copy_to_host_async(pinned.ptr, x.nbytes)))]
    return Rates(*per_ms)


def table(rates):
    """{net: {way: [step's time / time of its computation, by link]}}"""
    return {name: {way: [step / computing for step, computing, _ in (
        schedule(make(), dataclasses.replace(rates, link=link * 1e6), prefetch) for link in LINKS)]
        for way, prefetch in WAYS.items()} for name, make in NETS.items()}


def hidden_from(net, rates, prefetch=8, most=1.05):
    """The slowest link, in GB/s, at which a step takes no more than that of its computation alone; None where none of LINKS does."""
    for link in LINKS:
        step, computing, _ = schedule(net, dataclasses.replace(rates, link=link * 1e6), prefetch)
        if step <= most * computing:
            return link
    return None


def arguments(parser):
    parser.add_argument("--device", help="cuda or cuda:N, whose rates are measured; else they are stated ones")
    parser.add_argument("--picture", action="store_true", help=f"write {PICTURE.name}")


def main(args):
    rates = Rates()
    if args.device is not None:
        device = gpu.cuda_device(args.device)
        if device is None:
            return 2
        rates = measured(device)
    print(f"computed, not measured: {rates.flops / 1e9:.3g} TFLOP/s, {rates.memory / 1e6:.4g} GB/s of memory; a step's time in that of "
          f"its computation alone")
    found = table(rates)
    for name, ways in found.items():
        total = sum(NETS[name]().sizes) / 1e9
        link = hidden_from(NETS[name](), rates)
        where = f"from {link} GB/s on" if link else "at none of these links"
        print(f"\n{name}, {total:.1f} GB of values; hidden (5 %) with prefetch=8 {where}")
        print("  link, GB/s        " + "".join(f"{link:>7}" for link in LINKS))
        for way, values in ways.items():
            print(f"  {way:18}" + "".join(f"{v:>7.2f}" for v in values))
    if args.picture:
        PICTURE.write_text(svg(found), encoding="utf-8")
        print(f"\npicture: {PICTURE}")
    return 0


# ---------------------------------------------------------------------------------------------------------------- the picture

COLOURS = ["#b0413e", "#d98e04", "#3a7ca5", "#2f6b4f"]
WIDTH, HEIGHT, TOP, LEFT, MOST = 240, 190, 46, 44, 4.0


def svg(found):
    """A panel per net: over the link's speed, a step's time in that of its computation alone."""
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {len(found) * (WIDTH + LEFT) + 20} {HEIGHT + TOP + 78}" '
             f'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']

    def text(x, y, what, anchor="middle", more=""):
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{what}</text>')

    def height(value):
        return TOP + HEIGHT * (1 - (min(value, MOST) - 1) / (MOST - 1))

    for i, (name, ways) in enumerate(found.items()):
        left = LEFT + i * (WIDTH + LEFT)
        across = [left + WIDTH * k / (len(LINKS) - 1) for k in range(len(LINKS))]
        text(left + WIDTH / 2, TOP - 12, name, more=' font-size="13" font-weight="bold"')
        for value in (1, 2, 3, 4):
            lines.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{height(value):.1f}" y2="{height(value):.1f}" stroke="#ddd"/>')
            text(left - 6, height(value) + 4, f"{value}", "end")
        for x, link in zip(across, LINKS, strict=True):
            text(x, TOP + HEIGHT + 15, link, more=' font-size="9"')
        for colour, values in zip(COLOURS, ways.values(), strict=True):
            points = " ".join(f"{x:.1f},{height(v):.1f}" for x, v in zip(across, values, strict=True))
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        text(left + WIDTH / 2, TOP + HEIGHT + 32, "link between host and device, GB/s")
    text(10, 16, "Computed schedule, not a measurement: time of a training step, 1 = its computation alone", "start")
    for k, (way, colour) in enumerate(zip(WAYS, COLOURS, strict=True)):
        x, y = LEFT + k * 190, TOP + HEIGHT + 56
        lines.append(f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>')
        text(x + 28, y, way, "start")
    return "\n".join([*lines, "</svg>"]) + "\n"
