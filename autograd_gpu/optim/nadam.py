"""NAdam."""
from __future__ import annotations

from typing import Any

import numpy as np

from autograd_gpu.base import Tensor, count_write
from autograd_gpu.optim.adam import decayed, moved
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, number, zeros
from autograd_gpu.optim.update import UpdateRule


@UpdateRule
def nadam(grad, param, exp_avg, exp_avg_sq, *, now, ahead, beta1, beta2, correction, eps, shrink, decay, maximize):
    """`now` and `ahead`: how far to go along the gradient and along its running mean."""
    grad, param, exp_avg, exp_avg_sq = moved(grad, param, exp_avg, exp_avg_sq, beta1, beta2, shrink, decay, maximize)
    size = np.sqrt(exp_avg_sq / correction) + eps
    return param - now * grad / size - ahead * exp_avg / size, exp_avg, exp_avg_sq


class NAdam(RuleOptimizer):
    """Adam with Nesterov momentum, whose momentum grows from beta1 / 2 towards beta1 as `momentum_decay` says.

    `foreach` and `capturable` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.NAdam; Dozat 2016.
    """

    _rule = nadam

    def __init__(self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False):
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                       decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
                       differentiable=differentiable)
        check(options, eps=0.0, weight_decay=0.0, momentum_decay=0.0)
        super().__init__(params, options)

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            state.update(step=0, mu_product=number(1.0), exp_avg=zeros(param), exp_avg_sq=zeros(param))
        lr, (beta1, beta2), step, mu_product = group["lr"], group["betas"], counted(state), state["mu_product"]
        mu, mu_next = [beta1 * (1 - 0.5 * 0.96 ** (k * group["momentum_decay"])) for k in (step, step + 1)]
        mu_product._array *= mu
        count_write(mu_product)
        product = mu_product.item()
        return (state["exp_avg"], state["exp_avg_sq"]), dict(
            now=lr * (1 - mu) / (1 - product), ahead=lr * mu_next / (1 - product * mu_next), beta1=beta1, beta2=beta2,
            correction=1 - beta2 ** step, eps=group["eps"], **decayed(group, lr))
