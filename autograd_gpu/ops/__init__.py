"""The op families. Importing this package fills the registry."""
from autograd_gpu.ops import activation, compare, convert, elementwise, gather, index, linalg, loss, nn, parts, powers, random, reduce, shape, special, statistics, transcendental  # noqa: F401
