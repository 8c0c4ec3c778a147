"""Adam and AdamW."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import RuleOptimizer, check, counted, shared, zeros
from autograd_gpu.optim.update import UpdateRule, directed


def moved(grad, param, exp_avg, exp_avg_sq, beta1, beta2, shrink, decay, maximize):
    """How the rules of Adam, NAdam and RAdam begin: weight decay of either kind, then both moments take in the gradient."""
    if shrink is not None:
        param = param * shrink
    grad = directed(grad, param, decay, maximize)
    return grad, param, beta1 * exp_avg + (1 - beta1) * grad, beta2 * exp_avg_sq + (1 - beta2) * (grad * grad)


@UpdateRule
def adam(grad, param, exp_avg, exp_avg_sq, largest, *, lr, beta1, beta2, root, eps, shrink, decay, maximize):
    """`lr` is corrected for the bias of the first moment, `root` is the correction of the second one's root."""
    grad, param, exp_avg, exp_avg_sq = moved(grad, param, exp_avg, exp_avg_sq, beta1, beta2, shrink, decay, maximize)
    if largest is not None:
        largest = np.maximum(largest, exp_avg_sq)
    size = np.sqrt(exp_avg_sq if largest is None else largest) / root + eps
    return param - lr * exp_avg / size, exp_avg, exp_avg_sq, largest


def decayed(group, lr: float) -> dict[str, Any]:
    """The numbers of weight decay, added to the gradient or, decoupled, to be taken off the parameter itself."""
    numbers = shared(group)
    decay = numbers["decay"]
    if decay is None or not group["decoupled_weight_decay"]:
        return {**numbers, "shrink": None}
    return {**numbers, "shrink": 1 - lr * decay, "decay": None}


class Adam(RuleOptimizer):
    """Steps by the running mean of gradients over the root of that of their squares, each corrected for having begun at 0.

    With `amsgrad` the largest mean of squares so far. `decoupled_weight_decay` makes it AdamW. `foreach`, `fused` and `capturable` are
    accepted and change nothing.
    Raises: ValueError for options out of range.
    Reference: torch.optim.Adam; Kingma and Ba 2014; Reddi, Kale and Kumar 2018 for amsgrad.
    """

    _rule = adam

    def __init__(self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False):
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        options = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
                       capturable=capturable, differentiable=differentiable, fused=fused,
                       decoupled_weight_decay=decoupled_weight_decay)
        check(options, eps=0.0, weight_decay=0.0)
        if not all([isinstance(b, float) for b in betas]) and not all([isinstance(b, Tensor) for b in betas]):
            raise ValueError(f"betas must be either both floats or both Tensors, got {betas}")
        options["betas"] = tuple([float(b) for b in betas])
        super().__init__(params, options)

    def _operands(self, param, group):
        state = self.state[param]
        if not state:
            state.update(step=0, exp_avg=zeros(param), exp_avg_sq=zeros(param))
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros(param)
        lr, (beta1, beta2), step = group["lr"], group["betas"], counted(state)
        return (state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"] if group["amsgrad"] else None), dict(
            lr=lr / (1 - beta1 ** step), beta1=beta1, beta2=beta2, root=math.sqrt(1 - beta2 ** step), eps=group["eps"],
            **decayed(group, lr))


class AdamW(Adam):
    """Adam whose weight decay takes lr * weight_decay of each parameter off it, and leaves the moments alone.

    Raises: ValueError for options out of range.
    Reference: torch.optim.AdamW; Loshchilov and Hutter 2017.
    """

    def __init__(self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:      # also where the state is one of Adam
            group["decoupled_weight_decay"] = True
