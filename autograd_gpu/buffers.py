"""Memory that programs on blocks of arrays use again and again."""
from __future__ import annotations

import functools
import math
import threading

import numpy as np

LINE = 64                                    # bytes of a cache line
_scratch = threading.local()                 # `buffers`: this thread's, while no program uses them


class Buffers(list):
    """Memory for blocks: whoever needs some takes it from the one before, so that the kernel need not make pages for each program."""

    def at(self, i, shape, dtype):
        """The i-th buffer, in a shape and dtype."""
        size = math.prod(shape) * dtype.itemsize
        if i == len(self):
            self.append(_aligned(size))
        elif self[i].size < size:
            self[i] = _aligned(size)
        return self[i][:size].view(dtype).reshape(shape)

    @functools.cached_property
    def others(self):
        """Those of a program that is run for a block of another's."""
        return Buffers()


def _aligned(size):
    """Memory that begins where a cache line does: to write across two of them takes twice as long."""
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start:start + size]


def buffered(function, *args):
    """function(buffers, *args) with this thread's buffers; with new ones where a finaliser runs inside of a program that has them."""
    buffers = _scratch.__dict__.pop("buffers", None) or Buffers()
    function(buffers, *args)
    _scratch.buffers = buffers
