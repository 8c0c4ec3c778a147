"""Train a network whose saved values do not fit into the memory of the device.

    python -m examples.offload

CuPy's pool is given a limit that holds the model, its optimizer and six of the network's values. Plain training runs out of memory in the
first forward; inside save_on_cpu the same steps run. The picture shows the memory in use after each layer of one step.
Needs a CUDA device; `python -m tests.simgpu -m examples.offload --layers 12 --width 32 --batch 512` runs it on a simulated one.
"""
import argparse
import contextlib
import gc
import sys
from pathlib import Path

import autograd_gpu as torch
from autograd_gpu import nn
from autograd_gpu.autograd.graph import offload_report, save_on_cpu
from autograd_gpu.devices import cupy as cp


class Net(nn.Module):
    """Linear maps with tanh between them, and a residual connection around every second."""

    def __init__(self, layers, width):
        super().__init__()
        self.first, self.last = nn.Linear(2, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x, seen=lambda: None):
        """The network's value at each point; calls `seen` after each layer."""
        h = self.first(x).tanh()
        for layer in self.layers:
            h = h + layer(h).tanh() * 0.5
            seen()
        return self.last(h)


def arguments(argv):
    """The program's arguments."""
    parser = argparse.ArgumentParser(prog="examples.offload", description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("offload.svg"), help="the picture (%(default)s)")
    return parser.parse_args(argv)


def step(net, optimizer, x, y, context, memory):
    """One step of training inside a context; notes the memory in use. Returns the loss."""
    def seen():
        memory.append(torch.cuda.memory_allocated())
    with context:
        prediction = net(x, seen)
        loss = (prediction - y).square().mean()
    del prediction
    handles = [layer.weight.register_post_accumulate_grad_hook(lambda p: seen()) for layer in net.layers]
    loss.backward()
    for handle in handles:
        handle.remove()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    seen()
    return loss.detach()


def main(argv=None):
    """Fail without, train with; returns (first loss, last loss, peak of each kind)."""
    args = arguments(argv)
    reason = torch.cuda.why_not_available()
    if reason:
        sys.exit(f"examples.offload: {reason}")
    torch.manual_seed(0)
    with torch.device("cuda"):
        net = Net(args.layers, args.width)
        x = torch.rand(args.batch, 2) * 2 - 1
        y = (3 * x[:, :1]).sin() * x[:, 1:]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()                         # makes the optimizer's state
    value = 4 * args.batch * args.width
    pool = cp.get_default_memory_pool()
    fixed = torch.cuda.memory_allocated()
    limit = fixed + 6 * value + 2 * 4 * args.width ** 2 + (1 << 16)
    pool.free_all_blocks()
    before = pool.get_limit()
    pool.set_limit(size=limit)
    print(f"model, optimizer and data: {fixed:,} bytes; {args.layers} layers save at least {2 * args.layers * value:,}; limit {limit:,}")
    curves, losses = {"without": [], "with save_on_cpu": []}, []
    try:
        try:
            step(net, optimizer, x, y, contextlib.nullcontext(), curves["without"])
            print("without save_on_cpu: it fits")
        except MemoryError as error:         # CuPy's is one
            print(f"without save_on_cpu: out of memory after {len(curves['without'])} layers ({str(error).splitlines()[0]})")
        gc.collect()                         # what the failed step left
        pool.free_all_blocks()
        offload_report(reset=True)
        for k in range(args.steps):
            context = save_on_cpu(pin_memory=True, prefetch=2, ahead_bytes=value)
            memory = curves["with save_on_cpu"] if not k else []
            losses.append(step(net, optimizer, x, y, context, memory))
    finally:
        pool.set_limit(size=before)
    losses = [loss.item() for loss in losses]
    print(f"with save_on_cpu: loss {losses[0]:.4f} to {losses[-1]:.4f} in {args.steps} steps")
    print(offload_report())
    args.out.write_text(picture(curves, limit), encoding="utf-8")
    print(f"picture: {args.out}")
    return losses[0], losses[-1], {name: max(values, default=0) for name, values in curves.items()}


def picture(curves, limit):
    """An SVG of memory in use over one step."""
    width, height, left, top = 560, 240, 60, 30
    most, longest = 1.05 * limit, max(len(values) for values in curves.values()) - 1
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + left + 20} {height + top + 50}" font-family="sans-serif" '
             f'font-size="12"><rect width="100%" height="100%" fill="white"/>']
    at = lambda value: top + height * (1 - value / most)
    lines.append(f'<line x1="{left}" x2="{left + width}" y1="{at(limit):.1f}" y2="{at(limit):.1f}" stroke="#b0413e" '
                 f'stroke-dasharray="6 4"/><text x="{left + width}" y="{at(limit) - 6:.1f}" text-anchor="end" fill="#b0413e">limit, '
                 f'{limit / 2**20:.4g} MiB</text>')
    for values, colour in zip(curves.values(), ("#d98e04", "#3a7ca5"), strict=True):
        points = " ".join(f"{left + width * k / max(longest, 1):.1f},{at(v):.1f}" for k, v in enumerate(values))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if values and len(values) <= longest:
            lines.append(f'<circle cx="{points.split()[-1].split(",")[0]}" cy="{at(values[-1]):.1f}" r="4" fill="{colour}"/>')
    for k, (name, colour) in enumerate(zip(curves, ("#d98e04", "#3a7ca5"), strict=True)):
        lines.append(f'<text x="{left + 10 + 150 * k}" y="{top + height + 38}" fill="{colour}">{name}</text>')
    lines.append(f'<line x1="{left}" x2="{left + width}" y1="{top + height}" y2="{top + height}" stroke="#333"/>'
                 f'<text x="{left + width / 2}" y="{top + height + 18}" text-anchor="middle">layers of one step, forward, then '
                 f'backward</text>'
                 f'<text x="{left}" y="{top - 10}">bytes in use on the device</text></svg>\n')
    return "\n".join(lines)


if __name__ == "__main__":
    main()
