"""Adagrad."""
from __future__ import annotations

from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, number, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


@UpdateRule
def adagrad(grad, param, total, *, lr, eps, decay, maximize):
    grad = directed(grad, param, decay, maximize)
    total = total + grad * grad
    return param - lr * grad / (np.sqrt(total) + eps), total


class Adagrad(RuleOptimizer):
    """Steps by the gradient over the root of the sum of its squares so far, with a rate of lr / (1 + steps so far * lr_decay).

    `foreach` and `fused` are accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.Adagrad; Duchi, Hazan and Singer 2011.
    """

    _rule = adagrad

    def __init__(self, params: Any, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: bool | None = None):
        options = dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
                       foreach=foreach, maximize=maximize, differentiable=differentiable, fused=fused)
        check(options, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=0.0)
        super().__init__(params, options)
        for group in self.param_groups:      # as in PyTorch, where the others' state waits for the first step
            for p in group["params"]:
                self._begin(p, self.state[p])

    def _begin(self, param, state):
        value = self.defaults["initial_accumulator_value"]
        state.update(step=number(), sum=zeros(param, complex(value, value) if param.is_complex() else value))

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            self._begin(param, state)
        steps = counted(state)
        return (state["sum"],), dict(lr=group["lr"] / (1 + (steps - 1) * group["lr_decay"]), eps=group["eps"], **shared(group))
