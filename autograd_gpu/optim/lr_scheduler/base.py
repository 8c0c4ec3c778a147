"""What schedules of the learning rate have in common."""
from __future__ import annotations

import warnings
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.optim.optimizer import Optimizer

EPOCH = ("The epoch parameter of scheduler.step() is deprecated: step the scheduler once per epoch instead. With it the closed form of "
          "the schedule is used, where there is one")


def copied(value):
    """A value of an option; a Tensor's, which steps change in place, as it is now."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def values(optimizer, name):
    return [copied(group[name]) for group in optimizer.param_groups]


def set_lr(group, lr):
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(lr))
    else:
        group["lr"] = lr


def per_group(name, optimizer, value):
    """A value for each group: the ones of a list, or one for all."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [copied(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups, but has {len(value)} values for {count} groups")
    return [copied(v) for v in value]


def check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """The base of schedules. `step()`, to be called once per epoch after the optimizer's, sets each group's "lr" to what `get_lr` gives.

    `last_epoch`: the epoch before the next one, -1 to begin.
    Raises: TypeError for what is no optimizer; KeyError where it is to go on with one that has no "initial_lr".
    Reference: torch.optim.lr_scheduler.LRScheduler.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0: "
                               f"load the optimizer's state first, or begin with last_epoch=-1")
        self.base_lrs: list[Any] = values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if optimizer._opt_called is None:
            optimizer._opt_called, optimizer._step_watched = False, vars(optimizer).get("step")
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where state_dict was called. The optimizer's own state has to be loaded after a scheduler is made for it."""
        vars(self).update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates of the groups as the last step left them."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rates of this epoch, from those of the one before: for step. Schedules of one's own define it."""
        if not self._get_lr_called_within_step:
            warnings.warn("get_lr computes a next learning rate: to get the last one, please use `get_last_lr()`.", stacklevel=2)
        return self._lrs()

    def _lrs(self):
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch. Warns where the optimizer has not stepped yet."""
        if self._step_count == 1:
            if vars(self.optimizer).get("step") is not self.optimizer._step_watched:
                warnings.warn("Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization: make sure "
                              "to call `optimizer.step()` before `lr_scheduler.step()`.", stacklevel=2)
            elif not self.optimizer._opt_called:
                warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`: call them in the opposite order, or the "
                              "first value of the learning rate schedule is skipped.", stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
            lrs = closed() if closed else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            set_lr(group, lr)
        self._last_lr = values(self.optimizer, "lr")
