"""autograd_gpu with every saved value offloaded, as a module under test: where a suite names the implementation, name this one.

All of a program runs inside save_on_cpu(pin_memory=True, prefetch=OFFLOAD_PREFETCH, default 2), in each of its threads, with hooks of its
own inside of that. A suite about the behaviour of saved values then asks it of values that were in host memory:

    python -m tests.simgpu run.py --impl tests.offloaded --only saved_tensors_hooks --device cuda:0
"""
import os
import sys

import autograd_gpu
from autograd_gpu.autograd import graph
from autograd_gpu.engine import grad_mode

_hooks = graph.save_on_cpu(pin_memory=True, prefetch=int(os.environ.get("OFFLOAD_PREFETCH", "2")))


class State(grad_mode.State):
    """A thread's modes, from the beginning inside the block."""

    __slots__ = ()

    def __init__(self):
        super().__init__()
        self.saved_hooks.append((_hooks.pack_hook, _hooks.unpack_hook))
        self.refresh()


grad_mode.State = State
_hooks.__enter__()                           # of this thread, whose modes were there before
sys.modules[__name__] = autograd_gpu
for name, module in list(sys.modules.items()):
    if name.startswith("autograd_gpu."):
        sys.modules[__name__ + name.removeprefix("autograd_gpu")] = module
