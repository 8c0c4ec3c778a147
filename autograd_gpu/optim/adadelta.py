"""Adadelta."""
from __future__ import annotations

from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


@UpdateRule
def adadelta(grad, param, square_avg, acc_delta, *, lr, rho, eps, decay, maximize):
    grad = directed(grad, param, decay, maximize)
    square_avg = rho * square_avg + (1 - rho) * (grad * grad)
    delta = np.sqrt(acc_delta + eps) / np.sqrt(square_avg + eps) * grad
    acc_delta = rho * acc_delta + (1 - rho) * (delta * delta)
    return param - lr * delta, square_avg, acc_delta


class Adadelta(RuleOptimizer):
    """Steps by the gradient times the root of the running mean of squared steps over that of squared gradients.

    `foreach` and `capturable` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.Adadelta; Zeiler 2012, algorithm 1.
    """

    _rule = adadelta

    def __init__(self, params: Any, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False):
        options = dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable, foreach=foreach,
                       differentiable=differentiable)
        check(options, eps=0.0, weight_decay=0.0)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}; it must be in [0, 1]")
        super().__init__(params, options)

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            state.update(step=0, square_avg=zeros(param), acc_delta=zeros(param))
        counted(state)
        return (state["square_avg"], state["acc_delta"]), dict(lr=group["lr"], rho=group["rho"], eps=group["eps"], **shared(group))
