"""Schedules made of others."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from autograd_gpu.optim.lr_scheduler.base import LRScheduler, set_lr, values
from autograd_gpu.optim.lr_scheduler.plateau import ReduceLROnPlateau
from autograd_gpu.optim.optimizer import Optimizer


class _OfSchedulers(LRScheduler):
    """A schedule made of others, which belong to one optimizer."""

    def _check(self, optimizer, schedulers):
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name}: the scheduler at index {i} should have `optimizer` as its attribute")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler, whose step takes a metric: it is at index {i}")
            if optimizer is not scheduler.optimizer:
                raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but that of the "
                                 f"{type(scheduler).__name__} at index {i} is another")

    def state_dict(self):
        """Everything but the optimizer; of the schedulers, their state_dict."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict):
        """Go on where state_dict was called."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_OfSchedulers):
    """One schedule after the other, each from its milestone on; the first from 0.

    Raises: ValueError for a wrong number of milestones, or schedulers of several optimizers.
    Reference: torch.optim.lr_scheduler.SequentialLR.
    """

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1):
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
                             f"points, but got {len(schedulers)} schedulers and {len(milestones)} milestones")
        self._schedulers, self._milestones, self.last_epoch, self.optimizer = schedulers, milestones, last_epoch + 1, optimizer
        for group in optimizer.param_groups:                                 # as if no scheduler had taken its first step
            set_lr(group, group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Step the scheduler whose turn it is; at a milestone the next one begins."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler):
    """Count the first step of all schedulers inside back."""
    if hasattr(scheduler, "_schedulers"):
        for inner in scheduler._schedulers:
            _undo(inner)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class ChainedScheduler(_OfSchedulers):
    """Several schedules at once, each applied to what the one before gave. Raises ValueError where they are of several optimizers.

    Reference: torch.optim.lr_scheduler.ChainedScheduler.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        self._check(optimizer, schedulers)
        self._schedulers, self.optimizer, self._last_lr = schedulers, optimizer, values(optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Step all of them."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values(self.optimizer, "lr")
