"""CUDA devices, under torch.cuda's names, and the text of the kernels."""
import importlib
from typing import Any

from autograd_gpu.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from autograd_gpu.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from autograd_gpu.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)
from autograd_gpu.devices import (
    current_device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    set_device,
    why_no_cuda,
)
from autograd_gpu.devices import on_cuda as device
from autograd_gpu.generator import manual_seed

__all__ = ["CUDAGraph", "Event", "ExternalStream", "Stream", "StreamContext", "current_device", "current_stream", "default_stream",
           "device", "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties", "graph",
           "graph_pool_handle", "is_available", "is_current_stream_capturing", "kernel_source", "manual_seed", "manual_seed_all",
           "max_memory_allocated", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "reset_peak_memory_stats",
           "set_device", "set_stream", "stream", "synchronize", "why_not_available"]

manual_seed_all = manual_seed


def is_available() -> bool:
    """Whether CUDA tensors can be made here. Never raises. Reference: torch.cuda.is_available."""
    return why_no_cuda() is None


def why_not_available() -> str | None:
    """None where CUDA is available, else the reason in words."""
    return why_no_cuda()


def kernel_source(op: Any, *dtypes: Any, what: str = "forward", layout: str = "flat", **parameters: Any) -> str:
    """The CUDA text that runs an op: kernel_source("tanh", "float32"), or kernel_source(torch.mul, "float32", what="backward").

    `op`: an elementwise op or one that rows have a kernel for (sum, softmax ...), by its name or as the function. `dtypes`: one per
    tensor, or one for all. `what`: "forward", the name of an input for its gradient, or "backward" for those of all inputs. `layout`:
    "flat" for contiguous operands, "strided" for others, shown with two dimensions. `parameters`: values of the op's plain parameters,
    where it needs them. Needs no GPU.
    Raises: ValueError for an op, `what` or `layout` that there is not, or where there is nothing to compute, TypeError for wrong dtypes
    or parameters, NotImplementedError where CuPy's functions run the op instead, saying why.
    """
    source = importlib.import_module("autograd_gpu.ops.kernels").source      # late: Python runs this file before any other in its folder
    return source(op, dtypes, what, layout, parameters)
