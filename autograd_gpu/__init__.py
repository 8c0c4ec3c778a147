"""PyTorch's autograd for NumPy and CuPy arrays: `import autograd_gpu as torch`."""
from autograd_gpu import autograd, cuda, linalg, nn
from autograd_gpu.api import *  # noqa: F403

__version__ = "0.1.0"
