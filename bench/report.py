"""Write a Markdown page and a chart of what was measured, as ratios of time and of bytes.

Several files are visits of one run, or a file of `run` and one of `memory`.
"""
import json
import math
import statistics
from pathlib import Path
from xml.sax.saxutils import escape

from bench.peers import FLOOR, OURS, PEERS, TORCH

COLOURS = dict(zip(PEERS, ("#c22f2f", "#222222", "#888888", "#2f6fc2", "#7fb0e8", "#2f9e5a", "#b07fd0"), strict=True))


def arguments(parser):
    parser.add_argument("files", nargs="+", type=Path, help="written by `run --json` and `memory --json`")
    parser.add_argument("--out", type=Path, help="the page; its chart lies beside it, with the ending .svg (without: only print the table)")


def ratios(visits, name, peer, reference):
    """Each round's ratio of a peer's time to the reference's, by visit. A slow peer is in the first rounds only."""
    programs = [v["programs"][name]["seconds"] for v in visits if name in v["programs"]]
    return [[a / b for a, b in zip(s[peer], s[reference], strict=False)] for s in programs if peer in s and reference in s]


def spread(values):
    """Lower quartile, median, upper quartile."""
    values = sorted(values)
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def pooled(visits, name, peer, reference):
    found = [r for one in ratios(visits, name, peer, reference) for r in one]
    return spread(found) if found else None


def number(x):
    return f"{x:.0f}" if x >= 99.5 else f"{x:.1f}" if x >= 9.95 else f"{x:.2f}" if x >= 0.0995 else f"{x:.3f}"


def cell(found, quartiles=True):
    if found is None:
        return ""
    low, middle, high = map(number, found)
    return f"**{middle}** ({low}–{high})" if quartiles else middle


def table(head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def names_of(visits):
    return list(dict.fromkeys(name for v in visits for name in v["programs"]))


def peers_of(visits):
    ran = {peer for v in visits for p in v["programs"].values() for peer in p["seconds"]}
    return [peer for peer in PEERS if peer in ran]


def show(visits):
    """The table of ratios: ours to the reference and to the floor with quartiles, then each other peer to the reference."""
    peers = peers_of(visits)
    reference = TORCH if TORCH in peers else FLOOR
    others = [p for p in peers if p not in (OURS, reference)]
    head = ["program", f"ours / {reference}", *([f"ours / {FLOOR}"] if reference != FLOOR else []), *(f"{p} / {reference}" for p in others)]
    rows, columns = [], [[] for _ in head[1:]]
    for name in names_of(visits):
        found = [pooled(visits, name, OURS, reference), *([pooled(visits, name, OURS, FLOOR)] if reference != FLOOR else []),
                 *(pooled(visits, name, p, reference) for p in others)]
        for column, one in zip(columns, found, strict=True):
            column += [one[1]] if one else []
        rows.append([f"`{name}`", *(cell(one, i < len(head) - 1 - len(others)) for i, one in enumerate(found))])
    rows.append(["geometric mean of those run", *(number(statistics.geometric_mean(c)) if c else "" for c in columns)])
    return table(head, rows)


def chart(visits):
    """An SVG: a line for each program, a mark for each peer at its median ratio to the reference, a bar over its quartiles."""
    peers, names = peers_of(visits), names_of(visits)
    reference = TORCH if TORCH in peers else FLOOR
    found = {(n, p): pooled(visits, n, p, reference) for n in names for p in peers}
    ends = [math.log10(q) for one in found.values() if one for q in one]
    low, high = math.floor(min(ends)), max(1, math.ceil(max(ends)))
    left, width, top, line = 160, 640, 60, 24
    bottom = top + line * len(names)

    def x(ratio):
        return left + width * (math.log10(ratio) - low) / (high - low)
    title = f"Time beside that of {reference}, on a logarithmic scale; a bar covers the middle half of the rounds"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{bottom + 40}" font-family="sans-serif"'
           ' font-size="12">', '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="18">{escape(title)}</text>']
    for i, peer in enumerate(peers):
        at = left + i * (width + 30) / len(peers)
        out.append(f'<circle cx="{at:.0f}" cy="36" r="5" fill="{COLOURS[peer]}"/><text x="{at + 9:.0f}" y="40">{escape(peer)}</text>')
    for power in range(low, high + 1):
        at, colour = x(10 ** power), "#000" if power == 0 else "#ccc"
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top - 8}" y2="{bottom}" stroke="{colour}"/>'
                   f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0 ** power:g}</text>')
    for i, name in enumerate(names):
        y = top + line * i + line / 2
        out.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
                   f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#eee"/>')
        for peer in reversed(peers):         # ours on top
            if found[name, peer]:
                a, b, c = map(x, found[name, peer])
                out.append(f'<line x1="{a:.1f}" x2="{c:.1f}" y1="{y}" y2="{y}" stroke="{COLOURS[peer]}" stroke-width="3"/>'
                           f'<circle cx="{b:.1f}" cy="{y}" r="{6 if peer == OURS else 4}" fill="{COLOURS[peer]}"/>')
    return "\n".join([*out, "</svg>", ""])


def memory_table(memory):
    """Bytes of a training step, ours and PyTorch's where it is installed."""
    def cells(one, key):
        yield f"{one[OURS][key] / 2**20:.2f}"
        if TORCH in one:
            yield from (f"{one[TORCH][key] / 2**20:.2f}", number(one[OURS][key] / one[TORCH][key]))
    beside = ["PyTorch's", "ratio"] if all(TORCH in one for one in memory.values()) else []
    return table(["program", "peak, ours (MiB)", *beside, "kept for backward, ours (MiB)", *beside],
                 [[f"`{name}`", *cells(one, "peak"), *cells(one, "kept")] for name, one in memory.items()])


PAGE = """\
# Benchmarks

Written by `python -m bench report`. A figure is the ratio of two times that were taken side by side: the median of all rounds, in
brackets the quartiles. Below 1, the first of the two is faster. There are no seconds, since the machine was shared and noisy; a ratio is
less so, but not free of noise: 0.95 is not to be told from 1.05. **On a GPU nothing was measured.**

- Day and commit: {when}.
- Machine: {processor}, {cores} cores, shared with other work; {machine}.
  The processes were on a core for {share} of the time.
- Versions: Python {python}; {versions}.
- Threads: {threads} for each library. Rounds: {rounds} for each program, over {visits} processes. In a round every library runs once, in an
  order drawn anew, with other arrays from step to step. A library that takes five times the median of all is in three rounds of a process.
- Before anything is timed, results and gradients are compared with those written by hand in NumPy. These are the floor too: what a library
  without any overhead of its own would take on NumPy. It is plain NumPy, without blocks, so that a library can be below it, and its
  formulas are simplified by hand (that of `hessian_vector` far), which no library here but JAX jit does.
- JAX jit compiles before it is timed, and folds `deep` and `fan_out` into a few operations. JAX eager does not compile. float32 throughout,
  but MyGrad makes float64 of an array beside a Python number.

```sh
pip install -e '.[bench]'               # and what it is to be compared with: pip install torch jax autograd mygrad
python -m bench run --json run.json && python -m bench memory --json memory.json
python -m bench report run.json memory.json --out docs/benchmarks.md
python -m bench compare before.json run.json         # fails if a program became slower by more than the noise
```

## Time

{table}

![The same as a chart]({chart})

{programs}
"""
MEMORY = """
## Memory

MiB of one step after a first one, beyond its parameters and inputs. Ours are those that Python's `tracemalloc` counts: NumPy's arrays and
every Python object, the graph's among them. PyTorch's are those that its profiler reports: tensors, not the graph's nodes. Neither counts
what BLAS allocates, nor PyTorch's what oneDNN does for a convolution, where ours counts its patches. Kept for backward: what the forward
pass leaves allocated.

{table}
"""


def page(runs, memory, chart_name):
    """The whole page, in Markdown."""
    first, visits = runs[0], [v for run in runs for v in run["visits"]]
    each = {name: [v["programs"][name] for v in visits if name in v["programs"]] for name in names_of(visits)}
    rounds = [sum(len(p["seconds"][OURS]) for p in ran) for ran in each.values()]
    shares = [v["on a core"] for v in visits]
    missing = {peer for v in visits for peer in v["missing"]}
    notes = [f"- `{name}`: {ran[0]['about']}" for name, ran in each.items()]
    notes += sorted({f"- Not run: {peer} on `{name}`: {reason}." for name, ran in each.items() for p in ran
                     for peer, reason in p["left out"].items()
                     if peer not in missing and not reason.startswith("only for") and not any(peer in q["seconds"] for q in ran)})
    notes += [f"- Not installed: {peer}." for peer in PEERS if peer in missing]
    text = PAGE.format(
        **{key: first[key] for key in ("processor", "cores", "machine", "threads")}, python=first["Python"],
        when="; ".join(f"{run['date']}, {run['commit']}" for run in runs),
        share=f"{min(shares):.0%} to {max(shares):.0%}", versions=", ".join(f"{n} {v}" for n, v in visits[0]["versions"].items()),
        rounds=f"{min(rounds)} to {max(rounds)}", visits=max(map(len, each.values())), table=show(visits), chart=chart_name,
        programs="\n".join(notes))
    return text + (MEMORY.format(table=memory_table(memory)) if memory else "")


def main(args):
    found = [json.loads(file.read_text(encoding="utf-8")) for file in args.files]
    runs, memory = [f for f in found if "visits" in f], {n: one for f in found for n, one in f.get("memory", {}).items()}
    if args.out and runs:
        drawing = args.out.with_suffix(".svg")
        drawing.write_text(chart([v for run in runs for v in run["visits"]]), encoding="utf-8")
        args.out.write_text(page(runs, memory, drawing.name), encoding="utf-8")
    for text in ([show([v for run in runs for v in run["visits"]])] if runs else []) + ([memory_table(memory)] if memory else []):
        print(text)
    return 0
