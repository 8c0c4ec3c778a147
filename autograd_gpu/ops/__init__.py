"""The op families. Importing this package fills the registry."""
from autograd_gpu.ops import activation, compare, elementwise, gather, index, linalg, loss, nn, parts, powers, random, reduce, shape, statistics, transcendental  # noqa: F401
