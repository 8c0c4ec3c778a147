"""How near do elementwise operations on large arrays come to the bandwidth of memory?"""
import numpy as np

from bench.programs import measure, program


@program(lambda random: random.random((2, 1 << 20), np.float32))
def elementwise_large(T, x, w):
    """sigmoid, tanh, sqrt and products of a million numbers."""
    return (T.sigmoid(x * w) * T.tanh(x) + T.sqrt(x * x + 1)).sum()


@elementwise_large.by_hand
def elementwise_large(x, w):
    s = 1 / (1 + np.exp(-(x * w)))
    t, r = np.tanh(x), np.sqrt(x * x + 1)
    loss = (s * t + r).sum()
    g = (1 - s) * (t * w)
    g += 1 - t * t
    g *= s
    g += x / r
    return loss, g


def test_elementwise(program, peer, benchmark):
    measure(program, peer, benchmark)
