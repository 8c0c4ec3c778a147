"""What does an operation on a few numbers cost, forward and backward?"""
import numpy as np

from bench.programs import measure, program


def few(random):
    return random.random(8, np.float32) + 1, np.full(8, 1.01, np.float32)


@program(few)
def tiny_chain(T, x, b):
    """20 products of 8 numbers, and their gradient."""
    for _ in range(20):
        x = x * b
    return x.sum()


@tiny_chain.by_hand
def tiny_chain(x, b):
    y, g = x, np.ones_like(x)
    for _ in range(20):
        y = y * b
    for _ in range(20):
        g = g * b
    return y.sum(), g


@program(few, kind="forward")
def tiny_no_grad(T, x, b):
    """20 products of 8 numbers with nothing recorded."""
    for _ in range(20):
        x = x * b
    return x


@tiny_no_grad.by_hand
def tiny_no_grad(x, b):
    for _ in range(20):
        x = x * b
    return [x]


@program(lambda random: [random.random((3, 4), np.float32)])
def tiny_mixed(T, x):
    """Views, a reduction, indexing and transcendental functions of 12 numbers."""
    y = T.swapaxes(T.exp(x) + T.sin(x), 0, 1)
    z = T.tanh(T.sum(y[1:3] * y[0:2], 0))
    return z.mean() + (x.reshape((-1,))[::2] * 0.5).sum()


@tiny_mixed.by_hand
def tiny_mixed(x):
    e = np.exp(x)
    y = (e + np.sin(x)).T
    u, v = y[1:3], y[0:2]
    z = np.tanh((u * v).sum(0))
    loss = z.mean() + (x.reshape(-1)[::2] * np.float32(0.5)).sum()
    g = (1 - z * z) / np.float32(3)
    gy = np.zeros_like(y)
    gy[1:3] = g * v
    gy[0:2] += g * u
    gx = gy.T * (e + np.cos(x))
    gx.reshape(-1)[::2] += np.float32(0.5)
    return loss, gx


def test_overhead(program, peer, benchmark):
    measure(program, peer, benchmark)
