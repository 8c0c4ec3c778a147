"""What does a convolution cost, forward and backward?"""
import numpy as np

from bench import by_hand
from bench.programs import measure, program


def arrays(random):
    return random.standard_normal((16, 16, 28, 28), np.float32), random.standard_normal((32, 16, 3, 3), np.float32) / np.float32(12)


@program(arrays, leaves=2)
def convolution(T, x, weight):
    """16 images of 16 channels and 28 by 28 points, 32 kernels of 3 by 3."""
    y = T.conv2d(x, weight)
    return (y * y).sum()


@convolution.by_hand
def convolution(x, weight):
    y, gradient = by_hand.conv2d(x, weight)
    return np.vdot(y, y), *gradient(2 * y)


def test_convolution(program, peer, benchmark):
    measure(program, peer, benchmark)
