"""RMSprop."""
from __future__ import annotations

from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


@UpdateRule
def rmsprop(grad, param, square_avg, grad_avg, buffer, *, lr, alpha, eps, momentum, decay, maximize):
    """`grad_avg`: None unless centered; `buffer`: None without momentum."""
    grad = directed(grad, param, decay, maximize)
    square_avg = alpha * square_avg + (1 - alpha) * (grad * grad)
    size = square_avg
    if grad_avg is not None:
        grad_avg = alpha * grad_avg + (1 - alpha) * grad
        size = size - grad_avg * grad_avg
    size = np.sqrt(size) + eps
    if buffer is None:
        return param - lr * grad / size, square_avg, grad_avg, None
    buffer = momentum * buffer + grad / size
    return param - lr * buffer, square_avg, grad_avg, buffer


class RMSprop(RuleOptimizer):
    """Steps by the gradient over the root of the running mean of its squares; `centered`: over the running standard deviation.

    `foreach` and `capturable` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.RMSprop; Graves 2013, equations 38 to 45, for the centered one.
    """

    _rule = rmsprop

    def __init__(self, params: Any, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False):
        options = dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay, capturable=capturable,
                       foreach=foreach, maximize=maximize, differentiable=differentiable)
        check(options, eps=0.0, momentum=0.0, weight_decay=0.0, alpha=0.0)
        super().__init__(params, options)

    def _operands(self, param, group):
        state, momentum = self.state[param], group["momentum"]
        if not state:
            state.update(step=0, square_avg=zeros(param))
            if momentum:
                state["momentum_buffer"] = zeros(param)
            if group["centered"]:
                state["grad_avg"] = zeros(param)
        counted(state)
        grad_avg, buffer = state["grad_avg"] if group["centered"] else None, state["momentum_buffer"] if momentum else None
        return (state["square_avg"], grad_avg, buffer), dict(lr=group["lr"], alpha=group["alpha"], eps=group["eps"], momentum=momentum,
                                                             **shared(group))
