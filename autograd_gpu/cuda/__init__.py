"""CUDA devices, under torch.cuda's names."""
from autograd_gpu.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
)
from autograd_gpu.devices import (
    current_device,
    device_count,
    get_device_name,
    set_device,
    synchronize,
    why_no_cuda,
)
from autograd_gpu.devices import on_cuda as device
from autograd_gpu.generator import manual_seed

__all__ = ["current_device", "device", "device_count", "empty_cache", "get_device_name", "is_available", "manual_seed", "manual_seed_all",
           "max_memory_allocated", "mem_get_info", "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device",
           "synchronize", "why_not_available"]

manual_seed_all = manual_seed


def is_available() -> bool:
    """Whether CUDA tensors can be made here. Never raises. Reference: torch.cuda.is_available."""
    return why_no_cuda() is None


def why_not_available() -> str | None:
    """None where CUDA is available, else the reason in words."""
    return why_no_cuda()
