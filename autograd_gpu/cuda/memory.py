"""What CuPy's memory pool holds, under torch.cuda's names. Figures are of one device, in bytes."""
from __future__ import annotations

from autograd_gpu import devices
from autograd_gpu.cuda.streams import let_go

_peaks: dict[int, int] = {}                  # device index: the most that was used, once somebody asked for it to be counted


def memory_allocated(device=None) -> int:
    """How much the arrays on a device use. Raises RuntimeError without CUDA. Reference: torch.cuda.memory_allocated."""
    with devices.on_cuda(device):
        return devices.cupy.get_default_memory_pool().used_bytes()


def memory_reserved(device=None) -> int:
    """How much the pool has taken from the driver, freed blocks that it keeps included.

    Raises RuntimeError without CUDA. Reference: torch.cuda.memory_reserved.
    """
    with devices.on_cuda(device):
        return devices.cupy.get_default_memory_pool().total_bytes()


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, all) memory of a device, of all programs together. Raises RuntimeError without CUDA. Reference: torch.cuda.mem_get_info."""
    with devices.on_cuda(device):
        return devices.cupy.cuda.runtime.memGetInfo()


def empty_cache() -> None:
    """Give the pool's free blocks, of all devices, back to the driver. Without CUDA nothing happens. Reference: torch.cuda.empty_cache."""
    let_go()
    for index in range(devices.device_count()):
        with devices.on_cuda(index):
            devices.cupy.get_default_memory_pool().free_all_blocks()


def reset_peak_memory_stats(device=None) -> None:
    """Count the peak of a device from here on; from the first call on, each allocation costs a little more.

    Raises RuntimeError without CUDA. Reference: torch.cuda.reset_peak_memory_stats.
    """
    with devices.on_cuda(device) as where:
        if not _peaks:
            devices.cupy.cuda.set_allocator(_counting(devices.cupy.cuda.get_allocator()))
        _peaks[where.index] = devices.cupy.get_default_memory_pool().used_bytes()


def max_memory_allocated(device=None) -> int:
    """The most that memory_allocated has been since reset_peak_memory_stats, which has to be called first: CuPy counts no peak itself.

    Raises RuntimeError where it was not, or without CUDA. Reference: torch.cuda.max_memory_allocated.
    """
    with devices.on_cuda(device) as where:
        if where.index not in _peaks:
            raise RuntimeError(f"cuda.max_memory_allocated: no peak is counted on {where} yet: call cuda.reset_peak_memory_stats() first")
        return _peaks[where.index]


def memory_stats(device=None) -> dict[str, int]:
    """The figures of a device's pool under PyTorch's keys: bytes that arrays use and that the pool holds, the peak where it is counted.

    Raises RuntimeError without CUDA. Reference: torch.cuda.memory_stats.
    """
    with devices.on_cuda(device) as where:
        found = {"allocated_bytes.all.current": memory_allocated(where), "reserved_bytes.all.current": memory_reserved(where)}
        return found | ({"allocated_bytes.all.peak": _peaks[where.index]} if where.index in _peaks else {})


def _counting(allocator):
    """The allocator in use, which notes the peak from now on."""
    pool = devices.cupy.get_default_memory_pool()

    def allocate(size):
        block = allocator(size)
        index = block.device_id
        if index in _peaks:
            _peaks[index] = max(_peaks[index], pool.used_bytes())
        return block
    return allocate
