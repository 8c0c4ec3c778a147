"""Write docs/ops.md: what each op takes and gives, found by calling it with its samples.

Run `python -m tests.make_ops_page`; tests/test_ops.py checks that the file is what it writes.
"""
from __future__ import annotations

import inspect
from pathlib import Path

import autograd_gpu as torch
from autograd_gpu.ops import kernels
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op
from tests.loop import DTYPES, How, outcome
from tests.make_kernel_table import traced
from tests.samples import samples

PATH = Path(__file__).parent.parent / "docs" / "ops.md"
GROUPS = {"b": ("bool",), "i": ("uint8", "int32", "int64"), "h": ("float16", "bfloat16"), "f": ("float32", "float64"),
          "c": ("complex64", "complex128")}
HEAD = """# Every op

Found by calling each op with its samples, by `python -m tests.make_ops_page`; [how](design.md#add-an-op).

- **op**: under torch, `F.` torch.nn.functional, `linalg.` and `Tensor.` as in PyTorch, which has all of them under the same name
  (`special.`: as torch.special, not public yet). Parameters are PyTorch's.
- **forms**: m a method of Tensor, _ an in-place method, o takes `out=`.
- **forward**, **backward**: b bool, i integers, h float16 and bfloat16, f float32 and float64, c complex64 and complex128; lower case in
  brackets where only some of them. A dtype counts if one of the samples gives a result, or a gradient.
- **orders**: how often it can be differentiated: 0, 1 or any number of times (∞).
- **CUDA**: kernel: one kernel of this package forward, and one for the gradients, in float32 or int64; forward: only the forward is one;
  rows: kernels written for rows; CuPy: CuPy's functions, one kernel per operation; view: nothing moves; ops: made of other ops.
  Every op runs on NumPy arrays on the CPU.

"""
TABLE = "| op | forms | forward | backward | orders | CUDA |\n|---|---|---|---|---|---|"


def _dtypes(works):
    """The letters of the dtypes that work."""
    found = ""
    for letter, names in GROUPS.items():
        there = [n for n in names if works.get(n)]
        found += letter if len(there) == len(names) else f"({', '.join(there)})" if there else ""
    return found


def _signature(name, record):
    body = record.body if record else getattr(torch, name, None)
    parameters = inspect.signature(body).parameters.values() if body else []
    shown, star = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        default = "" if p.default is p.empty else f"={p.default!r}"
        shown.append({p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + ("input" if p.name == "self" else p.name) + default)
    return f"`{name}({', '.join(shown)})`".replace("|", "\\|")


def _forms(name, record):
    own = name.rpartition(".")[2].rstrip("_")
    method = not name.startswith(("F.", "linalg.", "special.")) and hasattr(torch.Tensor, own)
    faces = () if name.startswith(("linalg.", "special.")) else (torch.Tensor, torch.nn.functional)
    in_place = any(hasattr(face, own + "_") for face in faces)
    out = record is not None and "out" in inspect.signature(record.body).parameters
    return "m" * method + "_" * in_place + "o" * out


def _on_cuda(record, forwards, gradients):
    if not isinstance(record, Op):
        return "ops"
    if record.is_view:
        return "view"
    if record.is_elementwise and record.name in forwards:
        return "kernel" if record.name in gradients or not record.edges else "forward"
    return "rows" if (record.name, "forward") in kernels.LAUNCHERS else "CuPy"


def _row(name, record, given, forwards, gradients):
    forward, backward, orders = {}, {}, 0
    for dtype in DTYPES:
        for sample in given:
            found = outcome(torch, name, sample, How(dtype, orders=2 if dtype == "float32" else 1))
            forward[dtype] = forward.get(dtype) or "result" not in found
            differentiated = any(k.startswith("gradient ") and g is not None for k, g in found.items())
            backward[dtype] = backward.get(dtype) or differentiated
            orders = max(orders, 2 if differentiated and "second" not in found else int(differentiated))
    cells = (_signature(name, record), _forms(name, record), _dtypes(forward), _dtypes(backward), ("0", "1", "∞")[orders],
             _on_cuda(record, forwards, gradients))
    return "| " + " | ".join(cells) + " |"


def written():
    """The text of the page."""
    kernel = {(record.name, what) for dtype in ("float32", "int64") for record, what, _, program in traced(dtype) if program is not None}
    forwards = {name for name, what in kernel if what == "forward"}
    gradients = {name for name in forwards if all((name, edge) in kernel for edge in REGISTRY[name].edges)}
    families = {}
    for name, (record, given) in samples().items():
        family = record.body.__globals__["__name__"].rpartition(".")[2] if record else "random"
        families.setdefault(family, []).append((name, record, given))
    parts = ["\n".join([f"## {family}\n\n{TABLE}", *[_row(*op, forwards, gradients) for op in ops]])
             for family, ops in sorted(families.items())]
    return HEAD + "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")
