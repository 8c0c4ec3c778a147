"""Differentiation, under torch.autograd's names."""
from autograd_gpu.autograd import anomaly_mode, forward_ad, function, functional, grad_mode, graph, profiler, variable
from autograd_gpu.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from autograd_gpu.autograd.function import Function
from autograd_gpu.autograd.grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from autograd_gpu.autograd.gradcheck import gradcheck, gradgradcheck
from autograd_gpu.autograd.variable import Variable
from autograd_gpu.backward import backward, grad
from autograd_gpu.engine.workers import is_multithreading_enabled

__all__ = ["Function", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "enforce_grad_layout_policy", "forward_ad",
           "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode",
           "is_multithreading_enabled", "no_grad", "profiler", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
           "variable"]
