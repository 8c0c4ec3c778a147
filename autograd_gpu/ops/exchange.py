"""Memory shared with other libraries: NumPy's and CuPy's arrays, their array interfaces and DLPack."""
from __future__ import annotations

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu.base import Tensor, wrap
from autograd_gpu.cuda.streams import as_stream, current, keep
from autograd_gpu.engine.grad_mode import local
from autograd_gpu.ops.creation import check_shareable, method, public
from autograd_gpu.ops.namespace import OPS, REGISTRY


@method
def numpy(self, *, force=False):
    """The NumPy array behind a CPU tensor, sharing its memory; with `force`, also of a tracked or CUDA tensor, detached or copied.

    Raises: RuntimeError for a tensor that requires grad, TypeError for one on a CUDA device.
    Reference: torch.Tensor.numpy.
    """
    if force:
        return self.detach().cpu()._array
    if self.requires_grad and local.state.enabled:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if type(self._array) is not np.ndarray:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
                        f"first.")
    return self._array


@method
def cupy(self):
    """The CuPy array behind a CUDA tensor, sharing its memory.

    Raises: RuntimeError for a tensor that requires grad, TypeError for one on the CPU.
    """
    if self.requires_grad and local.state.enabled:
        raise RuntimeError("Can't call cupy() on Tensor that requires grad. Use tensor.detach().cupy() instead.")
    if type(self._array) is np.ndarray:
        raise TypeError("can't convert a cpu tensor to cupy. Use Tensor.cuda() to copy the tensor to a device first.")
    return self._array


@method
def __array__(self, dtype=None, copy=None):
    array = self.numpy()
    array = array if dtype is None else array.astype(dtype, copy=bool(copy))
    return array.copy() if copy and dtype is None else array


def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
    """NumPy's functions and NumPy operands on the left: the op of the ufunc's name, recorded."""
    name = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method != "__call__" or kwargs or name not in REGISTRY:
        return NotImplemented
    inputs = [x if isinstance(x, Tensor) or not _device.is_array(x) else wrap(_device.plain(x)) for x in inputs]
    return REGISTRY[name].function(*inputs)


_UFUNCS = {"multiply": "mul", "subtract": "sub", "true_divide": "div", "divide": "div", "negative": "neg", "absolute": "abs",
           "power": "pow", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
           "greater_equal": "ge", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctan2": "atan2", "conjugate": "conj"}


class _ArrayUfunc:
    """NumPy looks the method up on the class. CuPy asks a CUDA tensor itself, which has to answer None: then operators are left to it."""

    def __get__(self, t, cls):
        on_cuda = t is not None and type(t._array) is not np.ndarray
        return None if on_cuda else __array_ufunc__.__get__(t, cls)


method(_ArrayUfunc(), "__array_ufunc__")


def __cuda_array_interface__(self):
    """Where a CUDA tensor's memory is and how it is laid out: what CuPy, Numba and others share it by.

    Raises: AttributeError for a tensor on the CPU, so that hasattr is False, RuntimeError for one that requires grad.
    Reference: torch.Tensor.__cuda_array_interface__.
    """
    if type(self._array) is np.ndarray:
        raise AttributeError("Can't get __cuda_array_interface__ on a cpu tensor. Use Tensor.cuda() to copy the tensor to a device first.")
    if self.requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Tensor that requires grad. Use tensor.detach() instead.")
    with _device.guard(self.device):         # it names the stream that is current there
        return self._array.__cuda_array_interface__


method(property(__cuda_array_interface__), "__cuda_array_interface__")


@method
def record_stream(self, stream):
    """Say that a stream other than the one that was current when the tensor was made uses its memory, which is held until that has passed.

    What is on the stream when the last array over the memory is dropped is waited for, by nobody but who would use the memory again.
    Raises: NotImplementedError for a tensor on the CPU, TypeError for what is no stream. Reference: torch.Tensor.record_stream.
    """
    if type(self._array) is np.ndarray:
        raise NotImplementedError("record_stream: only the memory of a CUDA device is handed out by stream; this tensor is on the CPU")
    with _device.guard(self.device):
        keep(self._array, as_stream("record_stream", stream))


@method
def __dlpack_device__(self):
    """(DLPack's number of the kind of device, index). Reference: torch.Tensor.__dlpack_device__."""
    return self._array.__dlpack_device__()


@method
def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule of the tensor's memory, for another library's from_dlpack.

    stream: the consumer's, by its pointer; it waits for what the current stream has by now. None is the default one, -1: no order is made.
    Raises: BufferError for a tensor that requires grad, or that the array behind it refuses, TypeError for a stream that is no pointer.
    Reference: torch.Tensor.__dlpack__.
    """
    if stream is not None and type(stream) is not int:
        raise TypeError(f"stream must be ``int`` or ``none``, not {type(stream).__name__}: pass the stream's pointer, .cuda_stream")
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    options = {"stream": None if stream == -1 and not self.is_cuda else stream, "max_version": max_version, "dl_device": dl_device,
               "copy": copy}
    with _device.guard(self.device):
        return self._array.__dlpack__(**{name: value for name, value in options.items() if value is not None})


@public
def from_dlpack(ext_tensor, *, device=None, copy=None) -> Tensor:
    """A Tensor over another library's memory, on the device where that is; a copy if `copy`, or on a `device` if it is not there.

    Raises: TypeError for what does not speak DLPack, BufferError or ValueError for memory that cannot be shared, among it that of a tensor
    that requires grad, and where copy=False cannot be done. Reference: torch.from_dlpack.
    """
    if not hasattr(ext_tensor, "__dlpack__") or not hasattr(ext_tensor, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: expected an object with __dlpack__ and __dlpack_device__, not {type(ext_tensor).__name__}: give the "
                        "tensor itself, as a capsule does not say where its memory is")
    array = _device.from_dlpack(ext_tensor)
    if type(array) is not np.ndarray:
        keep(array, current(array.device.id))    # its owner would not wait for what is done with it here
    check_shareable("from_dlpack", array)
    t = wrap(array)
    where = t.device if device is None else _device.resolve(device)
    if where is not t.device:
        if copy is False:
            raise ValueError(f"from_dlpack: cannot move the memory from {t.device} to {where} without a copy; leave copy=False out")
        return OPS.to(t, device=where)
    return OPS.clone(t) if copy else t
