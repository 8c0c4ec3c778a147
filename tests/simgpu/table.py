"""What each op costs on a CUDA device, counted on simulated ones: the table of docs/kernel_costs.md.

    python -m tests.simgpu tests/simgpu/table.py > docs/kernel_costs.md
"""
import numpy as np

import autograd_gpu as torch
from autograd_gpu.ops.namespace import REGISTRY
from tests.cuda.programs import PROGRAMS
from tests.samples import ELEMENTWISE, call, operands_for
from tests.simgpu import runtime

N = 4096
HEAD = """# What each op costs on a CUDA device

Counted on [simulated devices](design.md#cuda-without-a-gpu), float32, by `python -m tests.simgpu tests/simgpu/table.py`: operations
are kernels, copies and fills; bytes are those of device memory that they read and write, as a multiple of the least that is possible,
which is each operand and each result once. Backward counts the op's own node, with the gradients of all its inputs wanted; its
least is the incoming gradient, what the formulas name of the operands and the result, and the gradients.
"""


def counted(f):
    """(the result, operations, bytes)"""
    before = runtime.counts()
    result = f()
    after = runtime.counts()
    return result, after["operations"] - before["operations"], after["bytes_moved"] - before["bytes_moved"]


def size(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def elementwise_row(name):
    """(name, forward operations, bytes over the least, backward operations, bytes over the least); the last two None without a node."""
    record = REGISTRY[name]
    operands = {n: torch.from_numpy(a).to("cuda:0") for n, a in operands_for(record, np.random.default_rng(1), (N,), np.float32).items()}
    for n, x in operands.items():
        x.requires_grad_(n in record.edges and x.is_floating_point())
    call(record, operands)                   # compiles
    y, forward, moved = counted(lambda: call(record, operands))
    row = name, forward, moved / size(y, *operands.values())
    if y.grad_fn is None:                    # the operand itself
        return (*row, None, None)
    node, grad = y.grad_fn, torch.ones_like(y)
    node._apply(grad._array, True)
    grads, backward, moved = counted(lambda: node._apply(grad._array, True))
    grads = [torch.as_tensor(g) for g in (grads if isinstance(grads, tuple) else (grads,)) if g is not None]
    made = node._record                       # overloads divert to ops of their own
    named = {n for p in made.edges for n in (made.formula_parameters[p] if not made.vjp_all else made.all_parameters)}
    read = [operands.get(n) for n in named if n in operands] + [y] * ("result" in named) + [grad] * ("grad" in named)
    least = size(*read, *[g for g in grads if not any(g._array is a for a in (grad._array,))])
    return (*row, backward, moved / least if least else 1.0)


def program_row(name):
    """(name, forward operations, backward operations)"""
    program, *shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    leaves = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to("cuda:0").requires_grad_() for shape in shapes]
    torch.autograd.grad(program(*leaves).sum(), leaves, allow_unused=True)
    y, forward, _ = counted(lambda: program(*leaves))
    weight = torch.ones_like(y)
    _, backward, _ = counted(lambda: torch.autograd.grad(y, leaves, weight, allow_unused=True))
    return name, forward, backward


def number(x):
    return "" if x is None else f"{x:.2f}".rstrip("0").rstrip(".") if isinstance(x, float) else str(x)


def written(elementwise, programs):
    """The text of the file, of elementwise_row and program_row of all names."""
    at_least = [r for r in elementwise if r[2] < 1.02 and (r[4] is None or r[4] < 1.02)]
    return "\n".join([
        HEAD, f"## Elementwise ops\n\n{len(at_least)} of {len(elementwise)} at the minimum, forward and backward; "
        "of masked_fill_value the value's gradient is a sum.\n",
        "| op | forward: operations | bytes / least | backward: operations | bytes / least |\n|---|---|---|---|---|",
        *["| " + " | ".join(map(number, row)) + " |" for row in elementwise],
        "\n## Other ops\n\nThe programs of `tests/cuda/programs.py`: operations forward and backward.\n",
        "| program | forward | backward |\n|---|---|---|", *["| " + " | ".join(map(number, row)) + " |" for row in programs], ""])


if __name__ == "__main__":
    print(written([elementwise_row(n) for n in ELEMENTWISE], [program_row(n) for n in PROGRAMS]), end="")
