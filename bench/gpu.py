"""What a GPU does: whether its numbers are the CPU's, bandwidth beside a copy, time per op, a real job; in under six minutes.

Exit code 0, 1 where CUDA's numbers are not the CPU's, 2 where there is no device, which the message explains.
On simulated devices it runs too, on small arrays, and says that the figures are of a simulation: they are no measurement.
"""
import contextlib
import datetime
import io
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import autograd_gpu as torch
from autograd_gpu.devices import cupy as cp
from tests.cuda.programs import PROGRAMS, TOLERANCE, derivatives, operands

ROOT = Path(__file__).parent.parent
F = torch.nn.functional


def arguments(parser):
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (%(default)s)")
    parser.add_argument("--json", type=Path, help="where to write the figures")


def main(args):
    try:
        device = torch.zeros(1, device=args.device).device
    except RuntimeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if device.type != "cuda":
        print(f"bench: {device} is no CUDA device", file=sys.stderr)
        return 2
    with torch.device(device):
        torch.cuda.set_device(device)
        found = measure(device)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"figures: {args.json}")
    return 1 if found["parity"]["different"] else 0


def measure(device):
    """Every figure, printed as it comes."""
    simulated = "simulated" in torch.cuda.get_device_name(device)
    found = {"about": about(device, simulated)}
    for key, value in found["about"].items():
        print(f"{key}: {value}")
    if simulated:
        print("the devices are simulated and so are the figures: they say only that everything runs")
    found["parity"] = parity(device, 12 if simulated else None)
    found["bandwidth"] = bandwidth(device, 1 << (12 if simulated else 26), 1 if simulated else 5)
    found["overhead"] = overhead(device, 2 if simulated else 200)
    found["digits"] = digits(device, ["--epochs", "1", "--batch", "700", "--hidden", "8"] if simulated else [])
    return found


def about(device, simulated):
    """The machine, the versions and the day, so that a figure can be compared with another."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(device), "simulated": simulated, "machine": platform.platform(),
        "processor": platform.processor() or platform.machine(), "driver": cp.cuda.runtime.driverGetVersion(),
        "runtime": cp.cuda.runtime.runtimeGetVersion(), "compute capability": cp.cuda.Device(device.index).compute_capability,
        "memory": cp.cuda.Device(device.index).mem_info[1], "CuPy": cp.__version__, "NumPy": np.__version__,
        "Python": platform.python_version(), "commit": commit or None,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def parity(device, most=None):
    """The tests' programs on both devices: results, gradients, their gradients."""
    different, worst, names = {}, 0.0, list(PROGRAMS)[:most]
    for name in names:
        arrays = operands(name)
        on_cpu, on_cuda = (derivatives(PROGRAMS[name][0], arrays, where) for where in ("cpu", device))
        for what, t in on_cpu.items():
            want, got = t.detach().numpy(), on_cuda[what].detach().cpu().numpy()
            tolerance = TOLERANCE.get(want.dtype.name, 0)
            if got.dtype != want.dtype or got.shape != want.shape or not np.allclose(got, want, tolerance, tolerance, equal_nan=True):
                different[f"{name}: {what}"] = f"{got.dtype} {got.tolist()} instead of {want.dtype} {want.tolist()}"
            elif want.size and want.dtype.kind in "fc":
                worst = max(worst, float(np.nanmax(np.abs(got - want), initial=0)))
    print(f"parity: {len(names)} programs, {len(different)} different, farthest {worst:.1e}")
    return {"programs": len(names), "different": different, "farthest": worst}


def seconds(run, rounds):
    """The median time of a run, of work that the host need not wait for: a round is as many runs as take 20 ms."""
    run()                                    # compiles
    cp.cuda.Device().synchronize()

    def several(n):
        start = time.perf_counter()
        for _ in range(n):
            run()
        cp.cuda.Device().synchronize()
        return (time.perf_counter() - start) / n
    n = max(1, int(0.02 / several(1)))
    return statistics.median([several(n) for _ in range(rounds)])


def bandwidth(device, n, rounds):
    """GB/s of bytes read and written, and their ratio to a copy on the device. n: float32 numbers per operand."""
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    row, column = x[:1 << (n.bit_length() // 2)], y[:n // (1 << (n.bit_length() // 2))].reshape(-1, 1)
    square = x.reshape(column.numel(), row.numel())
    source, target = x.cupy(), cp.empty(n, np.float32)
    leaf = torch.randn(n, device=device, requires_grad=True)
    smooth = F.silu(leaf)
    runs = {                                 # name: (how many arrays of n are read and written, what to run)
        "copy": (2, lambda: target.data.copy_from_device_async(source.data, source.nbytes)), "x * y": (3, lambda: x * y),
        "tanh": (2, lambda: x.tanh()), "gelu": (2, lambda: F.gelu(x)), "lerp": (3, lambda: torch.lerp(x, y, 0.3)),
        "x > y": (2.25, lambda: x > y), "broadcast": (1, lambda: row * column),
        "beside a transposed": (3, lambda: square.t() * y.reshape(square.shape)),
        "backward of silu": (3, lambda: torch.autograd.grad(smooth, leaf, x, retain_graph=True)), "x.add_(y)": (3, lambda: x.add_(y))}
    found = {}
    for name, (arrays, run) in runs.items():
        speed = arrays * 4 * n / seconds(run, rounds) / 1e9
        found[name] = {"GB/s": speed, "of a copy": speed / found["copy"]["GB/s"] if found else 1.0}
        print(f"bandwidth: {name}: {speed:.3g} GB/s, {found[name]['of a copy']:.2f} of a copy")
    return {"numbers": n, "ops": found}


def overhead(device, rounds):
    """Microseconds of the host per op on one number, CuPy's own beside it."""
    x, leaf = torch.ones(1, device=device), torch.ones(1, device=device, requires_grad=True)
    array, length = x.cupy(), 20

    def chain():
        y = leaf
        for _ in range(length):
            y = y.tanh()
        return y
    runs = {"CuPy's x * x": (1, lambda: array * array), "x * x": (1, lambda: x * x), "x.tanh()": (1, lambda: x.tanh()),
            "x.sum()": (1, lambda: x.sum()), "recorded tanh": (length, chain),
            "tanh and its backward": (length, lambda: torch.autograd.grad(chain(), leaf))}
    found = {}
    for name, (ops, run) in runs.items():
        run()
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) / ops)
            cp.cuda.Device().synchronize()   # between rounds, so that no full queue is measured
        found[name] = statistics.median(times) * 1e6
        print(f"overhead: {name}: {found[name]:.1f} us")
    return found


def digits(device, options):
    """examples/digits.py: its accuracy and seconds; where its packages are missing, the reason."""
    try:
        from examples.digits import main  # noqa: PLC0415 - it needs the extra `examples`
    except SystemExit as error:
        print(f"digits: skipped: {error}")
        return {"skipped": str(error)}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        accuracy = main(["--device", str(device), "--out", f"{folder}/digits.png", *options])
    taken = time.perf_counter() - start
    print(f"digits: {accuracy:.2%} right after {taken:.1f} s")
    return {"accuracy": accuracy, "seconds": taken, "output": said.getvalue().splitlines()}
