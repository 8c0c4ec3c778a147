"""CUDA graphs: work of a device that is captured once and run again by one call, on the same memory.

A capture takes what CuPy lets it take: kernels, and copies between arrays of the device. Its arrays come from a pool of its own, which
lives as long as the graph; so a replay finds the memory that it writes to, and nobody else's is there.
"""
from __future__ import annotations

import gc
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.cuda.streams import Stream, StreamContext, as_stream, captures, current_stream, synchronize

_MODES = ("global", "thread_local", "relaxed")
_NOT = ("A graph takes kernels and copies between arrays of its device. It does not take what calls cuBLAS, cuSOLVER or cuRAND (matrix "
        "products and what is made of them: matmul, linear, convolutions, attention; solvers; random numbers), copies from or to host "
        "memory (tensor(), .to(), .cpu(), save_on_cpu), nor what lets the host wait (.item(), x[mask], synchronize()). Compute that before "
        "the block, or after it")


def graph_pool_handle() -> Any:
    """A pool of memory that captures may share, for `pool=`. Raises RuntimeError without CUDA. Reference: torch.cuda.graph_pool_handle."""
    _device.cuda_device(None)
    return _device.cupy.cuda.MemoryPool()


def is_current_stream_capturing() -> bool:
    """Whether work that is put on the current stream is captured. Reference: torch.cuda.is_current_stream_capturing."""
    return _device.why_no_cuda() is None and current_stream().is_capturing()


class CUDAGraph:
    """Work that was captured, to be replayed. Inputs are written to the tensors that it reads, results read where it left them.

    Numbers that are no tensors are as they were in the capture. Reference: torch.cuda.CUDAGraph.
    """

    def __init__(self):
        self._graph = self._pool = self._stream = None           # CuPy's graph and pool; the stream of a capture that is going on
        self._kept: list[Any] = []           # memory that was dropped while something was captured: the graph may use it

    def capture_begin(self, pool=None, capture_error_mode: str = "relaxed") -> None:
        """Capture what is put on the current stream from now on, in this thread. `pool`: memory shared with other graphs.

        capture_error_mode is accepted: meanwhile memory may have to be taken from the driver, which CUDA allows in its relaxed mode only.
        Raises: RuntimeError on the default stream, or where this object has a graph already; ValueError for another mode, TypeError for
        another pool.
        Reference: torch.cuda.CUDAGraph.capture_begin.
        """
        if capture_error_mode not in _MODES:
            raise ValueError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}")
        if self._graph is not None or self._stream is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance, or "
                               "call reset()")
        stream = current_stream()
        if stream.cuda_stream in (0, 1):
            raise RuntimeError("CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on "
                               "the default stream.)")
        pool = graph_pool_handle() if pool is None else pool
        if not isinstance(pool, _device.cupy.cuda.MemoryPool):
            raise TypeError(f"capture_begin(): argument 'pool' must be what graph_pool_handle() or a graph's pool() gives, not "
                            f"{type(pool).__name__}")
        stream._cupy.begin_capture()
        self._pool, self._stream = pool, stream
        self._allocator = _device.cupy.cuda.using_allocator(pool.malloc)
        self._allocator.__enter__()
        captures.append(self._kept)

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError where there is none, or it took something that cannot be captured.

        Reference: torch.cuda.CUDAGraph.capture_end.
        """
        stream, self._stream = self._stream, None
        if stream is None:
            raise RuntimeError("CUDAGraph.capture_end: nothing is being captured into this graph: call capture_begin() first")
        captures.remove(self._kept)
        self._allocator.__exit__(None, None, None)
        try:
            with _device.guard(stream.device):
                self._graph = stream._cupy.end_capture()
        except RuntimeError as error:
            self.reset()
            raise RuntimeError(f"CUDAGraph: what was done cannot be captured ({error}). {_NOT}") from error
        self._device = stream.device

    def replay(self) -> None:
        """Run it on the current stream. Raises RuntimeError where nothing was captured. Reference: torch.cuda.CUDAGraph.replay."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with _device.guard(self._device):
            self._graph.launch()

    def reset(self) -> None:
        """Drop the graph and its hold on the memory. Reference: torch.cuda.CUDAGraph.reset."""
        self._graph = self._pool = None
        self._kept = []

    def pool(self) -> Any:
        """The pool of its memory, for `pool=` of another one's capture. Reference: torch.cuda.CUDAGraph.pool."""
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool


class graph:
    """A block whose work is not run but captured into a CUDAGraph, on a stream of its own unless one is given.

    pool, capture_error_mode: as in CUDAGraph.capture_begin.
    Raises: RuntimeError from the block, naming the operation, where it does what cannot be captured.
    Reference: torch.cuda.graph.
    """

    _streams: dict[int, Stream] = {}         # by device

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "relaxed"):
        where = _device.cuda_device(None)
        if stream is None and where.index not in self._streams:
            self._streams[where.index or 0] = Stream(where)
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = self._streams[where.index or 0] if stream is None else as_stream("graph", stream)
        self._block = StreamContext(self.capture_stream)

    def __enter__(self):
        synchronize(self.capture_stream.device)                  # what is used was made before; as much memory as can be is free
        gc.collect()
        self._block.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._block.__exit__(None, None, None)
            raise

    def __exit__(self, kind, error, trace):
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if error is None:
                raise
        finally:
            self._block.__exit__(kind, error, trace)
        if error is not None:
            self.cuda_graph.reset()
            if isinstance(error, (RuntimeError, NotImplementedError)) and (
                    "captur" in str(error) or type(error).__name__ == "CUBLASError"):
                raise RuntimeError(f"cuda.graph: {_operation(trace)} cannot be captured ({error}). {_NOT}") from error


def _operation(trace):
    """The name of the innermost op that a traceback goes through."""
    name = "the block"
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        name = file[4:-1] if file.startswith("<op ") else name
        trace = trace.tb_next
    return name
