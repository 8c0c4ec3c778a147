"""Differentiation, under torch.autograd's names."""
from autograd_gpu.autograd import function, graph
from autograd_gpu.autograd.function import Function
from autograd_gpu.autograd.gradcheck import gradcheck, gradgradcheck
from autograd_gpu.backward import backward, grad
from autograd_gpu.base import Tensor as Variable
from autograd_gpu.engine.grad_mode import enable_grad, no_grad, set_grad_enabled
from autograd_gpu.engine.workers import is_multithreading_enabled, set_multithreading_enabled

__all__ = ["Function", "Variable", "backward", "enable_grad", "function", "grad", "gradcheck", "gradgradcheck", "graph",
           "is_multithreading_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]
