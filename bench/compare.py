"""Compare two files of `run`: exit code 1 if a program became slower by more than the measured noise.

What is compared is the ratio to PyTorch (to the floor where one of the two files has no PyTorch), since seconds of two days are not
comparable. Noise is measured twice in each file: between its processes, as the range of their medians, and between all rounds, as their
quartiles. A program is slower if both say so: every process after is slower than every process before, and the lower quartile after
lies above the upper quartile before. Were nothing changed, five processes on each side would lie so in one of 252 cases.
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
    return min(medians[1]) > max(medians[0]) and spread(rounds[1])[0] > spread(rounds[0])[2]


def main(args):
    before, after = (json.loads(file.read_text(encoding="utf-8"))["visits"] for file in (args.before, args.after))
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
    if min(len(before), len(after)) < 3:
        print("fewer than three processes on a side: between processes hardly any noise is measured")
    return 1 if slower else 0
