"""RAdam."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.adam import decayed, moved
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, zeros
from autograd_gpu.optim.update import UpdateRule


@UpdateRule
def radam(grad, param, exp_avg, exp_avg_sq, *, lr, rectified, beta1, beta2, eps, shrink, decay, maximize):
    """`lr` is corrected for the bias of the first moment; `rectified` is None while the variance cannot be told yet."""
    grad, param, exp_avg, exp_avg_sq = moved(grad, param, exp_avg, exp_avg_sq, beta1, beta2, shrink, decay, maximize)
    step = lr * exp_avg
    if rectified is not None:
        step = step * rectified / (np.sqrt(exp_avg_sq) + eps)
    return param - step, exp_avg, exp_avg_sq


class RAdam(RuleOptimizer):
    """Adam that follows the mean of gradients alone for the first steps, and then less and less, until their variance is known.

    `foreach` and `capturable` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.RAdam; Liu et al. 2019, algorithm 2.
    """

    _rule = radam

    def __init__(self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False):
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                       decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable)
        check(options, eps=0.0, weight_decay=0.0)
        super().__init__(params, options)

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            state.update(step=0, exp_avg=zeros(param), exp_avg_sq=zeros(param))
        lr, (beta1, beta2), step = group["lr"], group["betas"], counted(state)
        correction = 1 - beta2 ** step
        longest = 2 / (1 - beta2) - 1                                         # the paper's rho, in the limit and now
        length = longest - 2 * step * beta2 ** step / correction
        rectified = None
        if length > 5:
            rectified = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction)
        return (state["exp_avg"], state["exp_avg_sq"]), dict(lr=lr / (1 - beta1 ** step), rectified=rectified, beta1=beta1, beta2=beta2,
                                                             eps=group["eps"], **decayed(group, lr))
