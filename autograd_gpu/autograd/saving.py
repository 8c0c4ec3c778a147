"""What becomes of values saved for backward: packed by hooks, kept in host memory, cloned when they are written to."""
from __future__ import annotations

import contextlib
import numbers
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from autograd_gpu import devices as _device
from autograd_gpu.base import CudaTensor, Tensor, Version, version, wrap
from autograd_gpu.cuda.offload import Offloaded, Pinned, Store
from autograd_gpu.cuda.traffic import TRAFFIC
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.saved import constant


class saved_tensors_hooks:
    """Within the block, `pack_hook(tensor)` is called for each tensor saved for backward, and `unpack_hook` of what it returned
    when the value is needed. Blocks nest: the innermost pair is used.

    The version check stays alive: writing in place to a packed tensor makes its backward an error, unless the pack hook copied.
    Raises: TypeError for what cannot be called; RuntimeError inside disable_saved_tensors_hooks.
    Reference: torch.autograd.graph.saved_tensors_hooks.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError("saved_tensors_hooks: pack_hook and unpack_hook have to be callable")
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        state = local.state
        if state.disabled_hooks is not None:
            raise RuntimeError(state.disabled_hooks)
        state.saved_hooks.append((self.pack_hook, self.unpack_hook))
        state.refresh()

    def __exit__(self, *exc_info):
        state = local.state
        state.saved_hooks.pop()
        state.refresh()


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, entering saved_tensors_hooks is a RuntimeError with this message, as is entering the block inside of them.

    Blocks nest: the innermost message is used. Reference: torch.autograd.graph.disable_saved_tensors_hooks.
    """
    if not isinstance(error_message, str):
        raise TypeError(f"disable_saved_tensors_hooks(): argument 'error_message' must be str, not {type(error_message).__name__}")
    state = local.state
    if state.saved_hooks:
        raise RuntimeError(error_message)
    outer, state.disabled_hooks = state.disabled_hooks, error_message
    try:
        yield
    finally:
        state.disabled_hooks = outer


def _layout(array):
    """What tells one part of a memory from another."""
    address = array.ctypes.data if _device.of(array) is _device.CPU else array.data.ptr
    return address, array.shape, array.strides, array.dtype


class save_on_cpu(saved_tensors_hooks):
    """Within the block, CUDA tensors that are saved for backward are kept in host memory, and copied back when backward needs them.

    A value that several operations save, as it is or as a transposed or reshaped view, is copied once; a write that autograd does not
    see (`.data`, a kernel of your own) between the two has to be told by increment_version. What stays on its device: CPU tensors,
    parameters and other leaves that require grad with their views, whose memory lives on anyway, and what takes fewer than `min_bytes`;
    writing to them in place is an error in backward, as outside the block.

    pin_memory: copies go to page-locked memory, on streams of their own beside the computation, and the host does not wait for them;
    without CUDA it changes nothing. The memory is used again, and cuda.empty_cache() gives back what is free of it.
    prefetch: in backward, start to copy back what the next so many nodes with offloaded values saved, in the order in which they will
    run; 0 copies when a node needs it, as PyTorch does. It needs pin_memory.
    ahead_bytes: with pin_memory, how many bytes of values may be on the device only for their copies: at most so many each way, but at
    least one value. A value that does not fit makes the device, not the host, wait for an earlier one.
    device_type is accepted for programs that give it. `graph.offload_report()` says what was moved and what was hidden.
    Raises: ValueError for a negative number, or prefetch without pin_memory; TypeError for a prefetch that is no integer.
    Reference: torch.autograd.graph.save_on_cpu.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda", prefetch: int = 0, min_bytes: int = 0,
                 ahead_bytes: int = 1 << 28):
        if not isinstance(prefetch, numbers.Integral):
            raise TypeError(f"save_on_cpu: prefetch is a number of nodes, an int, not {type(prefetch).__name__}")
        for name, value in ("prefetch", prefetch), ("min_bytes", min_bytes), ("ahead_bytes", ahead_bytes):
            if value < 0:
                raise ValueError(f"save_on_cpu: {name} must not be negative, got {value}")
        if prefetch and not pin_memory:
            raise ValueError(f"save_on_cpu: prefetch={prefetch} needs pin_memory=True: without it the host waits for each copy")
        store = Store((lambda elements, counter: Pinned(elements, counter, prefetch, ahead_bytes)) if pin_memory else Offloaded)

        def pack(t):
            counter = version(t)
            stays = _why_it_stays(t, min_bytes)
            if stays is None:
                return store.put(t._array, counter)
            TRAFFIC.count(stays)
            return constant(t._array, counter)

        super().__init__(pack, _unpack)


def _why_it_stays(t, min_bytes):
    """Why save_on_cpu leaves a tensor where it is; None where it does not."""
    if t.device is _device.CPU:
        return "cpu"
    owner = t if t._view is None else t._view.base
    if owner._node is None and (owner._requires or type(owner) not in (Tensor, CudaTensor)):     # a Parameter may be frozen
        return "leaf"
    return "small" if t._array.nbytes < max(min_bytes, 1) else None


def _unpack(packed):
    if isinstance(packed, Tensor):
        return packed
    task = local.state.graph_task
    ahead = None if task is None or type(packed.whole) is not Pinned else task.ahead
    elements, counter = (packed.whole.fetch(), Version()) if ahead is None else ahead.elements(packed.whole)
    return constant(packed.over(elements), counter)


class _Saved:
    """Stands for a value that was saved; the context has its Tensor as long as a node, or somebody else, has this."""

    __slots__ = ("counter", "__weakref__")


class _Mutations:
    """What allow_mutation_on_saved_tensors gives: the values saved in its block, and the clones of those that were written to since."""

    def __init__(self):
        self.original: MutableMapping[_Saved, Tensor] = weakref.WeakKeyDictionary()
        self.cloned: MutableMapping[_Saved, Tensor] = weakref.WeakKeyDictionary()
        self._of_memory = {}                 # id of a counter: the values of its memory as it is now, by layout

    def clear(self) -> None:
        """Forget all values: what was recorded so far can no longer be differentiated."""
        self.original.clear()
        self.cloned.clear()
        self._of_memory.clear()

    def pack(self, t):
        counter = version(t)
        values = self._of_memory.setdefault(id(counter), weakref.WeakValueDictionary())
        layout = _layout(t._array)
        saved = values.get(layout)
        if saved is None:
            saved = values[layout] = _Saved()
            saved.counter = counter          # held, so that its id stays its own
            self.original[saved] = constant(t._array, counter)
        return saved

    def unpack(self, saved):
        found = self.cloned.get(saved)
        if found is None:
            found = self.original.get(saved)
        if found is None:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                                 "originally recorded, or after its clear(): run forward and backward in one block")
        return found

    def before_write(self, t):
        """Clone what is saved of the memory of t."""
        for saved in self._of_memory.pop(id(t._counter), {}).values():
            array = self.original.pop(saved)._array
            with _device.guard(_device.of(array)):
                self.cloned[saved] = wrap(array.copy(_device.order_of(array)))


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Mutations]:
    """Within the block a tensor saved for backward may be written to in place: it is cloned first, and backward uses the clone.

    Forward and backward have to run in the same block, and thread. Gives an object with what is saved, and its clear().
    Raises: RuntimeError where it is entered inside itself; AssertionError in a backward after the block.
    Reference: torch.autograd.graph.allow_mutation_on_saved_tensors.
    """
    state = local.state
    if state.before_write is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    values = _Mutations()
    with saved_tensors_hooks(values.pack, values.unpack):
        state.before_write = values.before_write
        try:
            yield values
        finally:
            state.before_write = None
            values.clear()
