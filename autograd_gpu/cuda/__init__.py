"""CUDA devices, under torch.cuda's names."""
from autograd_gpu.device import device_count, why_no_cuda

__all__ = ["device_count", "is_available", "why_not_available"]


def is_available() -> bool:
    """Whether CUDA tensors can be made here. Never raises. Reference: torch.cuda.is_available."""
    return why_no_cuda() is None


def why_not_available() -> str | None:
    """None where CUDA is available, else the reason in words."""
    return why_no_cuda()
