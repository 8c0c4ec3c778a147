"""Stochastic gradient descent."""
from __future__ import annotations

from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


@UpdateRule
def sgd(grad, param, buffer, *, lr, momentum, rate, nesterov, decay, maximize):
    """`rate`: what a gradient adds to the buffer."""
    grad = directed(grad, param, decay, maximize)
    if buffer is None:
        return param - lr * grad, None
    buffer = momentum * buffer + rate * grad
    return param - lr * (grad + momentum * buffer if nesterov else buffer), buffer


class SGD(RuleOptimizer):
    """Gradient descent, with momentum if asked for: b = momentum b + (1 - dampening) g, p = p - lr b, where the first b is g.

    With `nesterov`, p = p - lr (g + momentum b). `foreach` and `fused` are accepted and change nothing.
    Raises: ValueError for options out of range. Reference: torch.optim.SGD.
    """

    _rule = sgd

    def __init__(self, params: Any, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None):
        options = dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
                       foreach=foreach, differentiable=differentiable, fused=fused)
        check(options, momentum=0.0, weight_decay=0.0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def _operands(self, param, group):
        momentum, rate, buffer = group["momentum"], 1 - group["dampening"], None
        if momentum:
            buffer = self.state[param].get("momentum_buffer")
            if buffer is None:
                buffer, rate = zeros(param), 1.0
                self.state[param]["momentum_buffer"] = buffer
        return (buffer,), dict(lr=group["lr"], momentum=momentum, rate=rate, nesterov=bool(group["nesterov"]), **shared(group))
