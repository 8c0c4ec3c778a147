"""The op families. Importing this package fills the registry."""
from autograd_gpu.ops import activation, compare, elementwise, index, linalg, nn, random, reduce, shape  # noqa: F401
