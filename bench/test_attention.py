"""What does attention cost, forward and backward?"""
import numpy as np

from bench import by_hand
from bench.programs import measure, program

BATCH, TIME, WIDTH, HEADS = 8, 64, 128, 4


def arrays(random):
    weights = random.standard_normal((4, WIDTH, WIDTH), np.float32) / np.float32(WIDTH ** 0.5)
    return random.standard_normal((BATCH, TIME, WIDTH), np.float32), *weights


@program(arrays, leaves=5)
def attention(T, x, wq, wk, wv, wo):
    """Four heads of 32 over 64 places, a batch of 8, with the projections in and out."""
    q, k, v = (T.swapaxes((x @ w).reshape((BATCH, TIME, HEADS, WIDTH // HEADS)), 1, 2) for w in (wq, wk, wv))
    a = T.softmax(q @ T.swapaxes(k, 2, 3) * (WIDTH // HEADS) ** -0.5, -1)
    y = T.swapaxes(a @ v, 1, 2).reshape((BATCH, TIME, WIDTH)) @ wo
    return (y * y).mean()


@attention.by_hand
def attention(*leaves):
    y, gradient = by_hand.attention(*leaves, HEADS)
    return np.vdot(y, y) / y.size, *gradient(y * np.float32(2 / y.size))


def test_attention(program, peer, benchmark):
    measure(program, peer, benchmark)
