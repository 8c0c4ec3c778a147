"""Schedules that multiply the learning rate by a factor, or by what functions say."""
from __future__ import annotations

import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from autograd_gpu.optim.lr_scheduler.base import LRScheduler, values
from autograd_gpu.optim.optimizer import Optimizer

_Function = Callable[[int], float]


class _ByFactor(LRScheduler):
    """A schedule that multiplies by `_factor()` at each epoch; the product of all so far is `_product()`."""

    def _lrs(self):
        factor = self._factor()
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self):
        product = self._product()
        return [lr * product for lr in self.base_lrs]


class StepLR(_ByFactor):
    """Multiply by gamma every step_size epochs. Reference: torch.optim.lr_scheduler.StepLR."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        return self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else 1.0

    def _product(self):
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_ByFactor):
    """Multiply by gamma at each of the milestones. Reference: torch.optim.lr_scheduler.MultiStepLR."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        return self.gamma ** self.milestones[self.last_epoch]

    def _product(self):
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(_ByFactor):
    """A constant factor for the first total_iters epochs.

    Raises ValueError for one outside of [0, 1]. Reference: torch.optim.lr_scheduler.ConstantLR.
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        return self.factor if self.last_epoch == 0 else 1.0 / self.factor if self.last_epoch == self.total_iters else 1.0

    def _product(self):
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(_ByFactor):
    """A factor that goes from start_factor to end_factor in a line, within total_iters epochs.

    Raises ValueError for a start outside of (0, 1] or an end outside of [0, 1]. Reference: torch.optim.lr_scheduler.LinearLR.
    """

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1):
        if not 0 < start_factor <= 1:
            raise ValueError(f"Starting multiplicative factor expected to be greater than 0 and less or equal to 1, got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def _product(self):
        return self.start_factor + (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(_ByFactor):
    """Multiply by gamma at each epoch. Reference: torch.optim.lr_scheduler.ExponentialLR."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        return 1.0 if self._is_initial else self.gamma

    def _product(self):
        return self.gamma ** self.last_epoch


class PolynomialLR(_ByFactor):
    """(1 - epoch / total_iters) ** power. Reference: torch.optim.lr_scheduler.PolynomialLR."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self):
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        left, before = [1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1)]
        return (left / before) ** self.power

    def _product(self):
        return (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power


class _ByFunctions(LRScheduler):
    """A schedule by functions of the epoch, one per group. Of a function's state, its attributes are saved if it is an object."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        count = len(optimizer.param_groups)
        self.optimizer, self.lr_lambdas = optimizer, list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Everything but the optimizer; of the functions, what those that are objects hold."""
        return {**super().state_dict(), "lr_lambdas": [attributes(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict):
        """Go on where state_dict was called, with these functions."""
        vars(self).update({name: value for name, value in state_dict.items() if name != "lr_lambdas"})
        for function, held in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            vars(function).update(held or {})


def attributes(function):
    """What an object that is called holds; None for a function."""
    return None if isinstance(function, types.FunctionType) else dict(vars(function))


class LambdaLR(_ByFunctions):
    """The initial learning rate times lr_lambda(epoch). Reference: torch.optim.lr_scheduler.LambdaLR."""

    def __init__(self, optimizer: Optimizer, lr_lambda: _Function | Sequence[_Function], last_epoch: int = -1):
        super().__init__(optimizer, lr_lambda, last_epoch)

    def _lrs(self):
        return [lr * function(self.last_epoch) for function, lr in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunctions):
    """Multiply by lr_lambda(epoch) at each epoch. Raises TypeError for what is no function.

    Reference: torch.optim.lr_scheduler.MultiplicativeLR.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: _Function | Sequence[_Function], last_epoch: int = -1):
        for function in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def _lrs(self):
        if self._is_initial:
            return values(self.optimizer, "lr")
        return [group["lr"] * function(self.last_epoch)
                for function, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)]
