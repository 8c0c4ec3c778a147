"""One visit to every program, in a process of its own: python -m bench.visit writes what it timed to the standard output, as JSON."""
import argparse
import json
import sys

from bench import threads  # noqa: F401 - before what imports NumPy
from bench.peers import installed
from bench.programs import chosen, interleave, prepared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    args = parser.parse_args()
    found = {}
    for program in chosen(args.names):
        runs, out = prepared(program)
        found[program.name] = {"about": program.about, "seconds": interleave(runs, args.seconds, args.rounds), "left out": out}
        print(f"{program.name}: {', '.join(runs)}", file=sys.stderr)
    peers, missing = installed()
    print(json.dumps({"versions": {name: peer.version for name, peer in peers.items()}, "missing": missing, "programs": found}))


if __name__ == "__main__":
    main()
