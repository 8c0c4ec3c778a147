"""What does it cost to add up the gradients of a value with many uses?"""
import numpy as np

from bench.programs import measure, program

USES = 200


@program(lambda random: [random.random(256, np.float32)])
def fan_out(T, x):
    """One leaf of 256 numbers, used 200 times."""
    y = x * 0.5
    for _ in range(USES - 1):
        y = y + x * 0.5
    return y.sum()


@fan_out.by_hand
def fan_out(x):
    half = np.float32(0.5)
    y, one = x * half, np.ones_like(x)
    for _ in range(USES - 1):
        y = y + x * half
    g = one * half
    for _ in range(USES - 1):
        g += one * half
    return y.sum(), g


def test_fan_out(program, peer, benchmark):
    measure(program, peer, benchmark)
