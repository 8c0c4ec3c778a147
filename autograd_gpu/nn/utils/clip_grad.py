"""Gradients kept from growing too large. `foreach` is accepted for programs that give it."""
from __future__ import annotations

from collections.abc import Iterable

from autograd_gpu.base import Tensor
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.ops.creation import tensor
from autograd_gpu.ops.namespace import OPS as F


def _listed(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters):
    return [p.grad for p in _listed(parameters) if p.grad is not None]


@no_grad()
def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of tensors as if they were one vector, on the device of the first.

    Raises: RuntimeError for NaN or infinity, if asked for, which makes the host wait for a GPU.
    Reference: torch.nn.utils.get_total_norm.
    """
    found = _listed(tensors)
    if not found:
        return tensor(0.0)
    norm_type = float(norm_type)
    norms = [F.linalg_vector_norm(t, norm_type).to(found[0].device) for t in found]
    total = F.linalg_vector_norm(F.stack(norms), norm_type)
    if error_if_nonfinite and not F.isfinite(total):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped: "
                           "look for the NaN or infinity, or set `error_if_nonfinite=False` to scale by it anyway")
    return total


@no_grad()
def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Multiply the .grad of parameters by max_norm / total_norm where that is below 1. Reference: torch.nn.utils.clip_grads_with_norm_."""
    scale = F.clamp_max(float(max_norm) / (total_norm + 1e-6), 1.0)      # no look at the value: the host need not wait for a GPU
    for g in _grads(parameters):
        g.mul_(scale.to(g.device))


@no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scale the .grad of parameters so that the norm of all together is at most max_norm; returns the norm before.

    Raises: RuntimeError for NaN or infinity, if asked for. Reference: torch.nn.utils.clip_grad_norm_.
    """
    parameters = _listed(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Keep each element of the .grad of parameters between -clip_value and clip_value. Reference: torch.nn.utils.clip_grad_value_."""
    for g in _grads(parameters):
        g.clamp_(-float(clip_value), float(clip_value))
