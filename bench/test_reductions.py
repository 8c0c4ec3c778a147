"""What do sums over rows cost, and what is made of them: norms and softmax?"""
import numpy as np

from bench.programs import measure, program

ROWS, COLUMNS = 1024, 1024


@program(lambda random: random.standard_normal((2, ROWS, COLUMNS), np.float32))
def reduce_norm(T, x, w):
    """Rows of 1024 numbers are centred and scaled, then a softmax."""
    centred = x - T.mean(x, 1, keepdim=True)
    h = centred / T.sqrt(T.mean(centred * centred, 1, keepdim=True) + 1e-5)
    return (T.softmax(h, 1) * w).sum()


@reduce_norm.by_hand
def reduce_norm(x, w):
    h = x - x.mean(1, keepdims=True)
    deviation = np.sqrt(np.einsum("ij,ij->i", h, h)[:, None] / COLUMNS + np.float32(1e-5)).astype(np.float32)
    h /= deviation
    s = h - h.max(1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(1, keepdims=True)
    g = w - np.einsum("ij,ij->i", s, w)[:, None]
    g *= s
    loss = np.vdot(s, w)
    g -= g.mean(1, keepdims=True) + h * (np.einsum("ij,ij->i", g, h)[:, None] / np.float32(COLUMNS))
    g /= deviation
    return loss, g


@program(lambda random: random.standard_normal((2, ROWS, COLUMNS), np.float32))
def sums(T, x, w):
    """Sums of a million numbers along each dimension and over all of them."""
    return (T.sum(x * w, 0) * T.sum(x, 1)).sum() + x.sum()


@sums.by_hand
def sums(x, w):
    rows, columns = np.einsum("ij,ij->j", x, w), x.sum(1)
    g = w * columns
    g += (rows + np.float32(1))[:, None]
    return np.dot(rows, columns) + columns.sum(), g


def test_reductions(program, peer, benchmark):
    measure(program, peer, benchmark)
