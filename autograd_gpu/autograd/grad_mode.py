"""What is recorded and where a backward runs, in this thread, under torch.autograd.grad_mode's names."""
from autograd_gpu.engine.grad_mode import enable_grad, enforce_grad_layout_policy, inference_mode, no_grad, set_grad_enabled
from autograd_gpu.engine.workers import set_multithreading_enabled

__all__ = ["enable_grad", "enforce_grad_layout_policy", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]
