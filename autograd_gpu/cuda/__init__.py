"""CUDA devices, under torch.cuda's names."""
from autograd_gpu.devices import (
    current_device,
    device_count,
    get_device_name,
    set_device,
    synchronize,
    why_no_cuda,
)
from autograd_gpu.generator import manual_seed

__all__ = ["current_device", "device_count", "get_device_name", "is_available", "manual_seed", "manual_seed_all", "set_device",
           "synchronize", "why_not_available"]

manual_seed_all = manual_seed


def is_available() -> bool:
    """Whether CUDA tensors can be made here. Never raises. Reference: torch.cuda.is_available."""
    return why_no_cuda() is None


def why_not_available() -> str | None:
    """None where CUDA is available, else the reason in words."""
    return why_no_cuda()
