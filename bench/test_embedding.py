"""What do reading rows of a table and adding gradients to them cost?"""
import numpy as np

from bench.programs import measure, program


@program(lambda random: (random.standard_normal((10_000, 64), np.float32), random.integers(0, 10_000, 4096)))
def embedding(T, table, index):
    """4096 rows of a table of 10,000 rows of 64 numbers, some of them more than once."""
    rows = T.embedding(index, table)
    return (rows * rows).sum()


@embedding.by_hand
def embedding(table, index):
    rows, g = table[index], np.zeros_like(table)
    np.add.at(g, index, 2 * rows)
    return np.vdot(rows, rows), g


def test_embedding(program, peer, benchmark):
    measure(program, peer, benchmark)
