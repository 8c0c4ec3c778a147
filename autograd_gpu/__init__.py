"""PyTorch's autograd for NumPy and CuPy arrays: `import autograd_gpu as torch`."""
import importlib
from typing import TYPE_CHECKING

from autograd_gpu import autograd, cuda, func, linalg, nn, serialization
from autograd_gpu.api import *  # noqa: F403
from autograd_gpu.func import vmap

if TYPE_CHECKING:
    from autograd_gpu import optim, utils

__version__ = "0.1.0"


def __getattr__(name):
    """Parts of the package that are imported at their first use."""
    if name in ("optim", "utils"):
        return importlib.import_module(f"autograd_gpu.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
