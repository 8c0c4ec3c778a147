"""Neural-network functions, under torch.nn's names."""
from autograd_gpu.nn import functional
from autograd_gpu.nn.parameter import Parameter

__all__ = ["Parameter", "functional"]
