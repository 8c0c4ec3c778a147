"""Helpers around training, under torch.utils' names."""
from autograd_gpu.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
