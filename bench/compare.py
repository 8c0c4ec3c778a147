"""Compare two files of `run`: exit code 1 if a program became slower by more than the measured noise.

What is compared is the ratio to PyTorch (to the floor where one of the two files has no PyTorch), since seconds of two days are not
comparable. Noise is measured in each file between its processes, as the range of their medians, and between rounds, as their quartiles. A
program is slower if both say so: the gap between the slowest process before and the fastest after is wider than either range, and the lower
quartile after lies above the upper quartile before. Three processes on each side are the least. Were nothing changed and noise normal, one
program in 250 would be called slower with three processes, one in 3,000 with four and one in 40,000 with five. What is found depends on the
noise: of the figures of docs/benchmarks.md, with three processes, a fifth more time is found in 6 programs of 20, two fifths more in 12.
"""
import json
import statistics
from pathlib import Path

from bench.peers import FLOOR, OURS, TORCH
from bench.report import names_of, number, peers_of, ratios, spread, table


def arguments(parser):
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)


def apart(low, high):
    """Whether the ratios `high`, lists by process, lie above `low` by more than the noise of both."""
    rounds = [[r for one in visits for r in one] for visits in (low, high)]
    medians = [[statistics.median(one) for one in visits] for visits in (low, high)]
    noise = max(max(m) - min(m) for m in medians)
    return min(medians[1]) - max(medians[0]) > noise and spread(rounds[1])[0] > spread(rounds[0])[2]


def main(args):
    before, after = (json.loads(file.read_text(encoding="utf-8"))["visits"] for file in (args.before, args.after))
    if min(len(before), len(after)) < 3:
        raise SystemExit("bench: the noise between processes is measured from three on, in each file: python -m bench run --visits 3")
    reference = TORCH if all(TORCH in peers_of(visits) for visits in (before, after)) else FLOOR
    rows, slower = [], []
    for name in names_of(before):
        a, b = (ratios(visits, name, OURS, reference) for visits in (before, after))
        if not a or not b:
            rows.append([f"`{name}`", "", "", "not in both"])
            continue
        verdict = "**slower**" if apart(a, b) else "faster" if apart(b, a) else "within the noise"
        slower += [name] if verdict == "**slower**" else []
        rows.append([f"`{name}`", *(number(statistics.median(r for one in visits for r in one)) for visits in (a, b)), verdict])
    print(table(["program", f"ours / {reference} before", "after", "verdict"], rows))
    return 1 if slower else 0
