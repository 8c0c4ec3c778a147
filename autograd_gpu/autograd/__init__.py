"""Differentiation, under torch.autograd's names."""
from autograd_gpu.autograd import graph
from autograd_gpu.backward import backward, grad
from autograd_gpu.base import Tensor as Variable
from autograd_gpu.engine.grad_mode import enable_grad, no_grad, set_grad_enabled

__all__ = ["Variable", "backward", "enable_grad", "grad", "graph", "no_grad", "set_grad_enabled"]
