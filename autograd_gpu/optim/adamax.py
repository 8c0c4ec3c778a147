"""Adamax."""
from __future__ import annotations

from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


@UpdateRule
def adamax(grad, param, exp_avg, exp_inf, *, lr, beta1, beta2, eps, decay, maximize):
    """`lr` is corrected for the bias of the first moment."""
    grad = directed(grad, param, decay, maximize)
    exp_avg = beta1 * exp_avg + (1 - beta1) * grad
    exp_inf = np.maximum(beta2 * exp_inf, np.absolute(grad) + eps)
    return param - lr * exp_avg / exp_inf, exp_avg, exp_inf


class Adamax(RuleOptimizer):
    """Adam with the largest gradient so far, which fades, in place of the root of the mean of squares.

    `foreach` and `capturable` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.Adamax; Kingma and Ba 2014, section 7.1.
    """

    _rule = adamax

    def __init__(self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False):
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
                       differentiable=differentiable, capturable=capturable)
        check(options, eps=0.0, weight_decay=0.0)
        super().__init__(params, options)

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            state.update(step=0, exp_avg=zeros(param), exp_inf=zeros(param))
        (beta1, beta2), step = group["betas"], counted(state)
        return (state["exp_avg"], state["exp_inf"]), dict(lr=group["lr"] / (1 - beta1 ** step), beta1=beta1, beta2=beta2, eps=group["eps"],
                                                          **shared(group))
