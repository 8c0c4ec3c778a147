"""Neural-network functions, under torch.nn's names."""
from autograd_gpu.nn import functional

__all__ = ["functional"]
