"""Parameters as one vector, and back."""
from __future__ import annotations

from collections.abc import Iterable

from autograd_gpu.base import Tensor
from autograd_gpu.ops.namespace import OPS as F


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of parameters as one vector, recorded. Raises TypeError where they are not on one device.

    Reference: torch.nn.utils.parameters_to_vector.
    """
    found = list(parameters)
    _check_devices(found)
    return F.cat([p.reshape(-1) for p in found])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Let parameters be parts of a vector, one after the other, sharing its memory.

    Raises: TypeError for what is no Tensor, or parameters that are not on one device. Reference: torch.nn.utils.vector_to_parameters.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    found = list(parameters)
    _check_devices(found)
    start = 0
    for p in found:
        p.data = vec[start:start + p.numel()].view(p.shape).data
        start += p.numel()


def _check_devices(parameters):
    if len({p.device for p in parameters}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
