"""The op families. Importing this package fills the registry."""
from autograd_gpu.ops import elementwise, linalg, reduce, shape  # noqa: F401
