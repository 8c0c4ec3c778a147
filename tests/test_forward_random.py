"""Random programs in a dual level, on PyTorch and on this package: views, writes in place, no_grad, then gradients and their tangents.

`python -m tests.test_forward_random FIRST LAST` runs the programs of these seeds. What is not drawn, as PyTorch gets it wrong: an in-place
operation in which its tensor occurs a second time, whose tangent PyTorch computes from what it has overwritten.
"""
import contextlib
import random
import re
import sys

import numpy as np
import pytest

import autograd_gpu
from tests.duals import Api

VIEWS = ["{a}.t()", "{a}[0]", "{a}[1:]", "{a}[:, 1]", "{a}.view(-1)", "{a}.unsqueeze(0)", "{a}[..., None].squeeze(0)",
         "{a}.transpose(0, -1)", "{a}.diagonal()", "{a}.unbind(0)[1]", "{a}.chunk(2)[0]", "{a}.select(-1, 0)",
         "{a}.expand(2, *{a}.shape)[0]", "{a}.narrow(0, 0, 1)", "{a}[:, ::2]", "{a}.detach()", "primal({a})", "{a}.view_as({a})",
         "{a}.reshape(-1)", "{a}.split(1)[0]", "{a}.data", "{a}.swapaxes(0, 1)", "{a}.as_strided((2,), (1,))"]
RESULTS = ["{a}.sin()", "{a}.exp()", "{a}.tanh()", "{a} * {b}", "{a} + {b}", "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])",
           "{a}.clone()", "dual({a}, {k})", "dual({a}.detach().clone(), {k})", "new((3, 3), {k})", "new((2, 3), {k})", "{a}.sum(0)",
           "{a} @ {b}", "torch.where({a} > 0, {a}, {b})", "torch.stack([{a}, {a} * 2])", "{a}.amax(0)", "{a}[[0, 1, 0]]",
           "new((3, 3), 3, True) * 1", "torch.zeros_like({a})", "{a}.cumsum(0)"]
WRITES = ["{a}.mul_({b})", "{a}.add_({b})", "{a}.copy_({b})", "{a}.zero_()", "{a}.sin_()", "{a}.exp_()", "{a}[0] = {b}",
          "{a}[1:] = {b}[0]", "{a}[..., 0] = 2.0", "{a}.mul_(1.5)", "{a}.masked_fill_({a} > 0.3, 0.5)", "{a}.fill_(0.7)",
          "{a}.clamp_(-0.5, 0.5)", "{a}.data.mul_(2.0)", "{a}.copy_(primal({b}))", "{a}.detach().mul_(2.0)", "{a}.detach().add_({b})",
          "{a}.square_()"]
UNLIKE = ("single memory location", "view size", "lost its history", "A view was created in no_grad")      # what ends a program


class Side:
    """One of the two packages with its pool of tensors, p."""

    def __init__(self, torch):
        api = self.api = Api(torch)
        self.torch, self.of = torch, api.of
        self.leaves = [api.dual(api.tensor(3, 3, turn=k, grad=True), api.tensor(3, 3, turn=k + 5)) for k in (1, 2)]
        self.p = [self.leaves[0] * 1, self.leaves[1].sin()]
        self.names = {"torch": torch, "p": self.p, "primal": lambda t: api.fw.unpack_dual(t).primal,
                      "dual": lambda t, k: api.dual(t, api.tensor(*t.shape, turn=k + 20)),
                      "new": lambda shape, k, grad=False: api.tensor(*shape, turn=k, grad=grad)}

    def run(self, text, recorded):
        """What a step raises, or None. A step that gives nothing new gives the first tensor again."""
        try:
            with contextlib.nullcontext() if recorded else self.torch.no_grad():
                if " = " in text or re.search(r"_\(.*\)$", text) and not text.startswith("new"):
                    exec(text, self.names)
                else:
                    self.p.append(eval(text, self.names))
        except Exception as error:           # its type is compared
            return error
        return None

    def values(self):
        """What can be seen of each tensor."""
        return [[_array(t), _array(self.of(t)), t.requires_grad] for t in self.p]

    def gradients(self):
        """Of what each tensor was computed from, and their tangents."""
        found = []
        for t in self.p:
            try:
                gs = self.torch.autograd.grad((t * t).sum(), self.leaves, allow_unused=True, retain_graph=True)
                found.append([[_array(g), g is not None and _array(self.of(g))] for g in gs])
            except RuntimeError as error:
                found.append(type(error).__name__)
        return found


def _array(t):
    return None if t is None else np.array(t.tolist())


def draw(rng, pool):
    """The text of a step on some of the tensors, and whether it is recorded."""
    templates = rng.choices([VIEWS, RESULTS, WRITES], [4, 3, 3])[0]
    a, b = rng.choices(range(len(pool)), k=2)
    if templates is WRITES and pool[a].untyped_storage().data_ptr() == pool[b].untyped_storage().data_ptr():
        b = None
    text = rng.choice([t for t in templates if b is not None or "{b}" not in t])
    return text.format(a=f"p[{a}]", b=f"p[{b}]", k=rng.randrange(9)), rng.random() < 0.8


def unlike(got, want):
    """Whether descriptions differ; None is a gradient or a tangent of zeros."""
    if isinstance(want, list):
        return len(got) != len(want) or any(unlike(a, b) for a, b in zip(got, want, strict=True))
    if isinstance(got, np.ndarray) or isinstance(want, np.ndarray):
        got, want = (np.zeros(()) if x is None or x is False else x for x in (got, want))
        return got.shape != want.shape and got.any() | want.any() or not np.allclose(got, want, 1e-7, 1e-9, equal_nan=True)
    return got != want


def difference(oracle, seed, length=14):
    """The steps of a program after which something differs, and what; None if nothing does."""
    rng = random.Random(seed)
    looks, steps = rng.random() < 0.5, []    # to look at a tangent may make it
    with oracle.autograd.forward_ad.dual_level(), autograd_gpu.autograd.forward_ad.dual_level():
        theirs, ours = Side(oracle), Side(autograd_gpu)
        for n in range(length):
            step = draw(rng, theirs.p)
            steps.append(step)
            errors = [side.run(*step) for side in (theirs, ours)]
            if any(words in str(e) for e in errors for words in UNLIKE):
                return None
            if (errors[0] is None) != (errors[1] is None):
                return steps, errors
            if errors[0] is not None:
                return None
            if looks or n == length - 1:
                try:
                    seen = theirs.values(), ours.values()
                except RuntimeError:         # a view made in no_grad has lost its history
                    return None
                for k, (b, a) in enumerate(zip(*seen, strict=True)):
                    if unlike(a, b):
                        return steps, k, b, a
        for k, (b, a) in enumerate(zip(theirs.gradients(), ours.gradients(), strict=True)):
            if unlike(a, b):
                return steps, f"gradients of {k}", b, a
    return None


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_programs(first, oracle):
    assert [found for seed in range(first, first + 25) if (found := difference(oracle, seed))] == []


if __name__ == "__main__":
    import torch  # noqa: ICN001 - the oracle
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        if found := difference(torch, number):
            print(number, *found, sep="\n    ")
