"""Time every program on every peer that is installed, one thread each unless told otherwise.

A visit is a process that checks each program's results and then times its rounds; there are several, since memory and hashing fall out
differently in each process. What is written is every round's seconds per step.
"""
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from bench import environment
from bench.programs import chosen
from bench.report import show

ROOT = Path(__file__).parent.parent


def arguments(parser):
    parser.add_argument("names", nargs="*", help="programs, or files as in `overhead`; all of them if none is given")
    parser.add_argument("--json", type=Path, help="where to write every round's seconds")
    parser.add_argument("--threads", type=int, default=1, help="of each library (%(default)s)")
    parser.add_argument("--visits", type=int, default=5, help="processes (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="at most, for each program in a visit (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="after which no round begins, three are always run (%(default)s)")


def about(threads):
    """The machine, the commit and the day, so that a figure can be compared with another."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"), "commit": commit or None,
            "machine": platform.platform(), "processor": models[0].partition(": ")[2] if models else platform.machine(),
            "cores": os.cpu_count(), "Python": platform.python_version(), "threads": threads}


def visit(names, seconds, rounds, threads):
    command = [sys.executable, "-m", "bench.visit", *names, "--seconds", str(seconds), "--rounds", str(rounds)]
    start, cpu = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment(threads), stdout=subprocess.PIPE, text=True, check=True)
    used = sum(os.times()[2:4]) - sum(cpu[2:4])
    return json.loads(done.stdout) | {"on a core": used / (time.perf_counter() - start)}


def main(args):
    names, found = [p.name for p in chosen(args.names)], about(args.threads) | {"visits": []}
    for _ in range(args.visits):
        found["visits"].append(visit(names, args.seconds, args.rounds, args.threads))
    if args.json:
        args.json.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(show(found["visits"]))
    return 0
