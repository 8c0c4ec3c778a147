"""The graph as a picture: SVG, and text for Graphviz and Mermaid."""
from __future__ import annotations

import collections
import html
import os
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from autograd_gpu import dtypes as _dtype
from autograd_gpu.autograd.memory import Counted, line_of, nodes_of
from autograd_gpu.autograd.profiler_util import memory_text, shortened
from autograd_gpu.base import Tensor
from autograd_gpu.engine.node import AccumulateGrad, GradientEdge, Node, edge_of

FILLS = {"leaf": "#cfe5f7", "op": "#f2f2f2", "output": "#d3edd0"}
LETTER, LINE, PAD, GAP, RISE = 6.7, 15, 8, 18, 34          # sizes in pixels: of a letter and a line of text, of what is around boxes


class Box:
    """A leaf, operation or output in a picture: its lines of text, and the boxes that its inputs come from."""

    def __init__(self, kind: str, lines: list[str], inputs: list[Box]):
        self.kind, self.lines, self.inputs = kind, lines, inputs
        self.layer, self.x = 0, 0.0
        self.width = LETTER * max(map(len, lines), default=0) + 2 * PAD if lines else 2.0
        self.height = LINE * len(lines) + PAD


def _described(shape, dtype, device=None):
    return f"{tuple(shape)} {_dtype.of(dtype)}".replace("torch.", "") + (f" {device}" if device is not None else "")


def _inputs_of(node):
    """(shape, dtype) of each input of a node, None for one that the node does not know."""
    found: list[Any] = []
    for name in getattr(node, "_edge_names", ()):
        shape, dtype = getattr(node, f"{name}_shape", None), getattr(node, f"{name}_dtype", None)
        found += zip(shape, dtype, strict=True) if type(shape) is list else [None if dtype is None else (shape, dtype)]
    return found or [None if meta is None else meta[:2] for meta in getattr(node, "_inputs", ()) if meta is not None] or \
        [None] * len(node._edges())


def _results(nodes, tensors):
    """{node: {output number: its shape and dtype as text}}, as far as a node, those that read it, or the results of the graph know."""
    found: dict[Node, dict[int, str]] = collections.defaultdict(dict)
    for t in tensors:
        node, nr = edge_of(t)
        found[node][nr] = _described(t._array.shape, t._array.dtype)
    for node in nodes:
        for nr, meta in enumerate(getattr(node, "_result_meta", ())):
            if meta is not None:
                found[node][nr] = _described(*meta[:2])
        for (source, nr), meta in zip(node._edges(), _inputs_of(node), strict=False):
            if source is not None and meta is not None:
                found[source].setdefault(nr, _described(*meta))
    return found


def boxes(outputs: Any, params: Any = None) -> list[Box]:
    """The boxes of a graph, inputs first: leaves, operations, results."""
    named = {} if params is None else dict(params.items() if isinstance(params, Mapping) else params)
    names = {edge_of(t): name for name, t in named.items() if t._requires}
    nodes = nodes_of(outputs)                # leaves at the end
    several = isinstance(outputs, (list, tuple)) and not isinstance(outputs, GradientEdge)
    tensors = [t for t in (outputs if several else [outputs]) if isinstance(t, Tensor)]
    results, counted = _results(nodes, tensors), Counted()
    made: dict[Any, Box] = {}
    for node in [n for n in nodes if type(n) is AccumulateGrad]:
        t = node.variable
        made[node] = Box("leaf", [names.get((node, 0), "leaf"), _described(t._array.shape, t._array.dtype, t.device)], [])
    for node in [n for n in nodes if type(n) is not AccumulateGrad]:
        known, saved, line = sorted(results[node].items()), counted.of(node), line_of(node)
        lines = [node.name().rpartition("::")[2], *[names[node, nr] for nr, _ in known if (node, nr) in names]]
        lines += [text for _, text in known]
        if node._device.type == "cuda":
            lines[-1] += f" {node._device}"
        lines += [f"saves {memory_text(saved)}"] * bool(saved) + [shortened(line, 44)] * bool(line)
        made[node] = Box("op", lines, [made[source] for source, _ in node._edges() if source is not None])
    return [*made.values(), *[Box("output", [names.get(edge_of(t), "output"), _described(t._array.shape, t._array.dtype, t.device)],
                                  [made[edge_of(t)[0]]]) for t in tensors]]


# ------------------------------------------------------------------------------------------------------------------ layout

def laid_out(boxes: list[Box]) -> tuple[list[list[Box]], list[list[Box]]]:
    """(rows from top to bottom, chains): each box's place is set; a chain is an edge as the boxes that it goes through, of which those in
    rows between its ends are empty. Layers by the longest path, order in a row by the mean place of a box's neighbours (Sugiyama's method).
    """
    for box in boxes:
        box.layer = 1 + max([source.layer for source in box.inputs], default=-1)
    readers = collections.defaultdict(list)
    for box in boxes:
        for source in box.inputs:
            readers[source].append(box)
    for box in boxes:                        # a leaf goes right above the first that reads it
        if not box.inputs and readers[box]:
            box.layer = min([reader.layer for reader in readers[box]]) - 1
    rows: list[list[Box]] = [[] for _ in range(1 + max([box.layer for box in boxes]))]
    for box in boxes:
        rows[box.layer].append(box)
    chains = []
    for box in boxes:
        for source in box.inputs:
            chain = [source]
            for layer in range(source.layer + 1, box.layer):
                chain.append(Box("bend", [], [chain[-1]]))
                chain[-1].layer = layer
                rows[layer].append(chain[-1])
            chains.append([*chain, box])
    above, below = collections.defaultdict(list), collections.defaultdict(list)
    for chain in chains:
        for upper, lower in zip(chain, chain[1:], strict=False):
            below[upper].append(lower)
            above[lower].append(upper)
    for row in rows:
        _place(row)
    for _ in range(4):
        for neighbours, order in ((above, rows), (below, rows[::-1])):
            for row in order:
                for box in row:
                    if neighbours[box]:
                        box.x = statistics.fmean([other.x for other in neighbours[box]])     # the same in all versions of Python
                row.sort(key=lambda box: box.x)
                _place(row, wanted=[box.x for box in row])
    return rows, chains


def _place(row, wanted=None):
    """Set the boxes of a row side by side, as near as may be to where they are wanted: the mean of packing from the left and the right."""
    if wanted is None:
        wanted = [0.0] * len(row)
    left, right, edge = [], [], None
    for box, x in zip(row, wanted, strict=True):
        x = x if edge is None else max(x, edge + box.width / 2)
        left.append(x)
        edge = x + box.width / 2 + GAP
    edge = None
    for box, x in zip(row[::-1], wanted[::-1], strict=True):
        x = x if edge is None else min(x, edge - box.width / 2)
        right.append(x)
        edge = x - box.width / 2 - GAP
    for box, a, b in zip(row, left, right[::-1], strict=True):
        box.x = (a + b) / 2


def svg(boxes: list[Box]) -> str:
    """The picture as the text of an SVG."""
    rows, chains = laid_out(boxes)
    shift = GAP - min([box.x - box.width / 2 for row in rows for box in row])
    tops, heights, y = [], [max([box.height for box in row]) for row in rows], float(GAP)
    for height in heights:
        tops.append(y)
        y += height + RISE
    width = max([box.x + box.width / 2 for row in rows for box in row]) + shift + GAP
    height = y - RISE + GAP
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
             f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">',
             '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
             '<path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>',
             f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>']
    for chain in chains:
        x, y = chain[0].x + shift, tops[chain[0].layer] + chain[0].height
        path = f"M{x:.1f} {y:.1f}"
        for box in chain[1:]:
            to, top = box.x + shift, tops[box.layer]
            path += f" C{x:.1f} {(y + top) / 2:.1f} {to:.1f} {(y + top) / 2:.1f} {to:.1f} {top:.1f}"
            x, y = to, top
            if box.kind == "bend":           # straight past the boxes of its row
                y += heights[box.layer]
                path += f" V{y:.1f}"
        parts.append(f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#tip)"/>')
    for box in boxes:
        x, y = box.x + shift - box.width / 2, tops[box.layer]
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4" fill="{FILLS[box.kind]}" '
                     f'stroke="#999"/>')
        for i, line in enumerate(box.lines):
            weight = ' font-weight="bold"' if i == 0 else ""
            parts.append(f'<text x="{box.x + shift:.1f}" y="{y + LINE * (i + 1) - 1:.1f}" text-anchor="middle"{weight}>'
                         f'{html.escape(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


# -------------------------------------------------------------------------------------------------------------------- text

def dot(boxes: list[Box]) -> str:
    """The graph in Graphviz's language."""
    numbers = {box: i for i, box in enumerate(boxes)}
    lines = ['digraph {', '    node [shape=box, style="rounded,filled", fontname=monospace, fontsize=10];']
    for box, i in numbers.items():
        label = "\\n".join([line.replace("\\", "\\\\").replace('"', '\\"') for line in box.lines])
        lines.append(f'    n{i} [label="{label}", fillcolor="{FILLS[box.kind]}"];')
    lines += [f"    n{numbers[source]} -> n{i};" for box, i in numbers.items() for source in box.inputs]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(boxes: list[Box]) -> str:
    """The graph in Mermaid's language, which GitHub shows."""
    numbers = {box: i for i, box in enumerate(boxes)}
    lines = ["flowchart TB"]
    for box, i in numbers.items():
        label = "<br>".join([html.escape(line) for line in box.lines])
        lines.append(f'    n{i}["{label}"]:::{box.kind}')
    lines += [f"    n{numbers[source]} --> n{i}" for box, i in numbers.items() for source in box.inputs]
    lines += [f"    classDef {kind} fill:{fill},stroke:#999,color:#000" for kind, fill in FILLS.items()]
    return "\n".join(lines) + "\n"


FORMATS = {"svg": svg, "dot": dot, "mermaid": mermaid}
_SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid"}


class Drawing:
    """A graph as a picture: `str()` is its text in the format that was asked for; a notebook shows it."""

    def __init__(self, boxes: list[Box], format: str):
        self._boxes, self.format = boxes, format

    def __str__(self):
        return FORMATS[self.format](self._boxes)

    def _repr_svg_(self) -> str:
        return svg(self._boxes)

    def save(self, path) -> None:
        """Write it to a file, in the format of its suffix: .svg, .dot, .gv, .mmd or .mermaid. Raises ValueError for another."""
        suffix = os.path.splitext(os.fspath(path))[1]
        if suffix not in _SUFFIXES:
            raise ValueError(f"save: {suffix!r} is none of {', '.join(_SUFFIXES)}; str(drawing) gives the text for any file")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FORMATS[_SUFFIXES[suffix]](self._boxes))


def draw(outputs: Any, params: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None, format: str = "svg",
         limit: int = 500) -> Drawing:
    """The graph of some Tensors as a picture, from leaves down to results: nodes, what comes out of them, where, and what they save.

    params: names for leaves and other Tensors, such as model.named_parameters(). format: "svg", "dot" (Graphviz) or "mermaid". With
    `record_lines` nodes show their lines.
    Raises: ValueError for another format or a graph of more than `limit` nodes, RuntimeError for a Tensor that does not require grad.
    """
    if format not in FORMATS:
        raise ValueError(f"draw: format is one of {', '.join(FORMATS)}, not {format!r}")
    found = boxes(outputs, params)
    if len(found) > limit:
        raise ValueError(f"draw: the graph has {len(found)} nodes, more than limit={limit}: draw a part of it, or give a larger limit")
    return Drawing(found, format)
