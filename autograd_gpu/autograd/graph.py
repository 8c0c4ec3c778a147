"""The graph and what can be attached to it, under torch.autograd.graph's names."""
from __future__ import annotations

from autograd_gpu.engine.grad_mode import local
from autograd_gpu.engine.node import Node

__all__ = ["Node", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """Within the block, `pack_hook(tensor)` is called for each tensor saved for backward, and `unpack_hook` of what it returned
    when the value is needed. Blocks nest: the innermost pair is used.

    The version check stays alive: writing in place to a packed tensor makes its backward an error, unless the pack hook copied.
    Reference: torch.autograd.graph.saved_tensors_hooks.
    """

    def __init__(self, pack_hook, unpack_hook):
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError("saved_tensors_hooks: pack_hook and unpack_hook have to be callable")
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        state = local.state
        state.saved_hooks.append((self.pack_hook, self.unpack_hook))
        state.refresh()

    def __exit__(self, *exc_info):
        state = local.state
        state.saved_hooks.pop()
        state.refresh()
