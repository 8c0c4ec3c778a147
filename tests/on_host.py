"""NumPy arrays where cuda/*.py takes CuPy's: what it launches on them is run by g++'s kernels, or only noted. No device is needed."""
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from autograd_gpu import devices
from autograd_gpu.cuda import bounds, nll, overlap, reduce, scatter, softmax


class Array(np.ndarray):
    """A NumPy array that says where its memory is as CuPy's do."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def unreal(shape, dtype="f4"):
    """An array in C order, of any size, that nobody is going to read: its elements are all the same one."""
    dtype = np.dtype(dtype)
    strides = [dtype.itemsize * int(np.prod(shape[k + 1:], dtype=np.int64)) for k in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, strides).view(Array)


class Kernel:
    """A RawKernel: the call that launches it."""

    def __init__(self, call):
        self.call = call

    def compile(self):
        pass

    def __call__(self, grid, block, args):
        self.call(grid, block, args)


class OnHost:
    """Stands for CuPy; `kernel(text, name)` gives the call that launches it, `empty(shape, dtype)` a result."""

    ndarray, broadcast_to = Array, staticmethod(np.broadcast_to)
    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=lambda a, shape, strides: np.ndarray(shape, a.dtype, a, 0, strides)))

    def __init__(self, kernel, empty=unreal):
        self.kernel, self.empty = kernel, empty

    def RawKernel(self, text, name):
        return Kernel(self.kernel(text, name))

    def ascontiguousarray(self, a):
        return np.ascontiguousarray(a).view(Array)

    def install(self, monkeypatch):
        """For this test; no kernel made before or in it is found in the other's place."""
        monkeypatch.setattr(devices, "cupy", self)
        monkeypatch.setattr(devices, "reporter", lambda name: (np.zeros(5, np.int64), np.int32(1)))
        for module in (bounds, nll, overlap, reduce, scatter, softmax):
            for name, function in [*vars(module).items()]:
                if hasattr(function, "cache_clear"):
                    monkeypatch.setattr(module, name, function.__wrapped__)


class Launch(NamedTuple):
    """A launch that was noted."""

    text: str
    name: str
    args: tuple


class Noted(OnHost):
    """Runs nothing: `kernels` has the text of each kernel that was made, `launches` each Launch."""

    def __init__(self):
        self.kernels, self.launches = [], []

        def kernel(text, name):
            self.kernels.append(text)
            return lambda grid, block, args: self.launches.append(Launch(text, name, args))
        super().__init__(kernel)
