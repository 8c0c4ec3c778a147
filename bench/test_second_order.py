"""What does a derivative of a derivative cost?"""
import numpy as np

from bench.programs import measure, program

N = 64


def arrays(random):
    x, v = random.standard_normal((2, N), np.float32)
    return x, random.standard_normal((N, N), np.float32) / np.float32(8), v


@program(arrays, kind="second_order")
def hessian_vector(T, x, a):
    """The product of the Hessian of sum(tanh(a x)^2), 64 numbers, with a vector."""
    t = T.tanh(a @ x)
    return (t * t).sum()


@hessian_vector.by_hand
def hessian_vector(x, a, v):
    t = np.tanh(a @ x)
    slope = 1 - t * t
    return [a.T @ (2 * slope * (slope - 2 * t * t) * (a @ v))]


def test_second_order(program, peer, benchmark):
    measure(program, peer, benchmark)
