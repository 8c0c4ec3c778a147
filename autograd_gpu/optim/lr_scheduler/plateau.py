"""A schedule that follows a metric."""
from __future__ import annotations

import math
import warnings
from typing import Any

from autograd_gpu.optim.lr_scheduler.base import EPOCH, LRScheduler, check_optimizer, set_lr, values
from autograd_gpu.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Multiply by factor where a metric has not become better for more than `patience` epochs; then wait for `cooldown` epochs.

    Better: below ("min") or above ("max") the best so far, by a `threshold` that is relative ("rel") or absolute ("abs").
    Raises: ValueError for a factor of 1 or more, or an unknown mode. Reference: torch.optim.lr_scheduler.ReduceLROnPlateau.
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | list[float] = 0, eps: float = 1e-8):
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown! Expected 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown! Expected 'rel' or 'abs'")
        several = isinstance(min_lr, (list, tuple))
        if several and len(min_lr) != len(optimizer.param_groups):
            raise ValueError(f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}")
        self.factor, self.optimizer, self.default_min_lr = factor, optimizer, None if several else min_lr
        self.min_lrs = list(min_lr) if several else [min_lr] * len(optimizer.param_groups)
        self.patience, self.cooldown, self.eps, self.last_epoch = patience, cooldown, eps, 0
        self._last_lr = values(optimizer, "lr")
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self):
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs are not counted at the moment."""
        return self.cooldown_counter > 0

    def _is_better(self, a, best):
        sign = 1 if self.mode == "max" else -1
        return sign * a > sign * (best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold)

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell the metric of an epoch."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        better = self._is_better(current, self.best)
        if better:
            self.best = current
        self.num_bad_epochs = 0 if better else self.num_bad_epochs + 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = values(self.optimizer, "lr")

    def _reduce_lr(self):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(f"The number of param groups in the `optimizer` ({len(groups)}) differs from when `ReduceLROnPlateau` "
                                   f"was initialized ({len(self.min_lrs)}): set `min_lrs` to one value per group")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            lr = max(before * self.factor, least)
            if before - lr > self.eps:
                set_lr(group, lr)
