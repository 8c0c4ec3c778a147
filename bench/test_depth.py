"""What does each node of a deep graph cost?"""
import numpy as np

from bench.programs import measure, program

DEPTH = 1000


@program(lambda random: [random.random(4, np.float32)])
def deep(T, x):
    """1000 sums, one after the other, of 4 numbers."""
    for _ in range(DEPTH):
        x = x + 1.0
    return x.sum()


@deep.by_hand
def deep(x):
    y, g, one = x, np.ones_like(x), np.float32(1)
    for _ in range(DEPTH):
        y = y + one
    return y.sum(), g


def test_depth(program, peer, benchmark):
    measure(program, peer, benchmark)
