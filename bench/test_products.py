"""What do chains of matrix products cost beyond BLAS?"""
import numpy as np

from bench.programs import measure, program


def chain(*sizes):
    def arrays(random):
        return [random.standard_normal((n, m), np.float32) / np.float32(n ** 0.5) for n, m in zip(sizes, sizes[1:], strict=False)]
    return arrays


def gradients_of(*matrices):
    """Of the sum of the square of their product."""
    products = [matrices[0]]
    for m in matrices[1:]:
        products.append(products[-1] @ m)
    g, grads = 2 * products[-1], []
    for left, m in zip(products[-2::-1], matrices[:0:-1], strict=True):
        grads.append(left.T @ g)
        g = g @ m.T
    return np.vdot(products[-1], products[-1]), g, *grads[::-1]


@program(chain(256, 256, 256, 256, 256), leaves=4)
def matmul_chain(T, a, b, c, d):
    """The product of four matrices of 256 by 256."""
    y = a @ b @ c @ d
    return (y * y).sum()


@program(chain(16, 16, 16, 16, 16), leaves=4)
def matmul_chain_small(T, a, b, c, d):
    """The product of four matrices of 16 by 16."""
    y = a @ b @ c @ d
    return (y * y).sum()


for one in (matmul_chain, matmul_chain_small):
    one.by_hand(gradients_of)


def test_products(program, peer, benchmark):
    measure(program, peer, benchmark)
