"""What does a hook cost that does nothing? Beside tiny_chain of test_overhead.py, the same program without hooks."""
import numpy as np

from bench.peers import FLOOR, OURS, TORCH
from bench.programs import measure, program


def nothing(grad):
    """The hook."""


@program(lambda random: (random.random(8, np.float32) + 1, np.full(8, 1.01, np.float32)), only=(OURS, TORCH, FLOOR))
def hooks(T, x, b):
    """20 products of 8 numbers, with a hook on each result."""
    for _ in range(20):
        x = x * b
        T.hook(x, nothing)
    return x.sum()


@hooks.by_hand
def hooks(x, b):
    y, g = x, np.ones_like(x)
    for _ in range(20):
        y = y * b
    for _ in range(20):
        nothing(g)
        g = g * b
    return y.sum(), g


def test_hooks(program, peer, benchmark):
    measure(program, peer, benchmark)
