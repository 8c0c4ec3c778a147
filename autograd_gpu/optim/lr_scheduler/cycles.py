"""Schedules that go up and down: cosines, and cycles of the learning rate and the momentum."""
from __future__ import annotations

import math
from collections.abc import Callable

from autograd_gpu.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group, set_lr, values
from autograd_gpu.optim.lr_scheduler.factors import attributes
from autograd_gpu.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial learning rate to eta_min in T_max epochs, and back.

    Reference: torch.optim.lr_scheduler.CosineAnnealingLR; Loshchilov and Hutter 2016, without restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch):
        """1 + cos: from 2 to 0."""
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def _lrs(self):
        groups, epoch = self.optimizer.param_groups, self.last_epoch
        if self._is_initial:
            return values(self.optimizer, "lr")
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:                 # the height before was 0
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [group["lr"] + (lr - self.eta_min) * rise for lr, group in zip(self.base_lrs, groups, strict=True)]
        factor = self._height(epoch) / self._height(epoch - 1)
        return [factor * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self):
        return [self.eta_min + (lr - self.eta_min) * self._height(self.last_epoch) / 2 for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial learning rate to eta_min, again and again: in T_0 epochs, then in T_mult times as many each.

    step(epoch) takes fractions of epochs too. Raises ValueError for a T_0 below 1 or T_mult below 1.
    Reference: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts; Loshchilov and Hutter 2016.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min).__name__}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def _lrs(self):
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (lr - self.eta_min) * height / 2 for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one. Raises ValueError for one before 0."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_cur, self.T_i = epoch, self.T_0
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))         # restarts so far
            self.T_cur = epoch - self.T_0 * (self.T_mult ** n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult ** n
        self.last_epoch = math.floor(epoch) - 1
        self._update_lr()


class _WithMomentum(LRScheduler):
    """A schedule that cycles the momentum, or the first of the betas, against the learning rate."""

    def _begin_momentum(self, optimizer, low, high, last_epoch):
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled: pass cycle_momentum=False")
        self.use_beta1 = "betas" in optimizer.defaults
        if last_epoch == -1:
            for group, least, most in zip(optimizer.param_groups, low, high, strict=True):
                self._set_momentum(group, most)
                group["max_momentum"], group["base_momentum"] = most, least

    def _set_momentum(self, group, momentum):
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Up from base_lr to max_lr in step_size_up steps and down again, over and over; step is to be called after each batch.

    The height of cycle n is 1 ("triangular"), 2 ** (1 - n) ("triangular2"), or gamma ** step ("exp_range"), or what scale_fn says of the
    cycle or, by scale_mode, of the step.
    Raises: ValueError for an unknown mode. Reference: torch.optim.lr_scheduler.CyclicLR; Smith 2015.
    """

    def __init__(self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float], step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
                 base_momentum: float | list[float] = 0.8, max_momentum: float | list[float] = 0.9, last_epoch: int = -1):
        check_optimizer(optimizer)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_lr(group, lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if scale_fn is None:
            if mode not in ("triangular", "triangular2", "exp_range"):
                raise ValueError(f"mode is invalid and scale_fn is None: got {mode!r}, expected 'triangular', 'triangular2' or 'exp_range'")
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.mode, self.gamma, self.scale_mode, self._scale_fn_custom = mode, gamma, scale_mode, scale_fn
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
            self._begin_momentum(optimizer, self.base_momentums, self.max_momentums, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of a cycle, given its number or that of the step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma ** x

    def _lrs(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self):
        """Everything but the optimizer; of a scale_fn that is an object, what it holds."""
        function = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": None if function is None else attributes(function)}

    def load_state_dict(self, state_dict):
        """Go on where state_dict was called, with this scale_fn."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        if state_dict["_scale_fn_custom"] is not None:
            vars(self._scale_fn_custom).update(state_dict["_scale_fn_custom"])


class OneCycleLR(_WithMomentum):
    """One cycle: from max_lr / div_factor up to max_lr in the first pct_start of all steps, then down to the start / final_div_factor.

    With three_phase, down to where it began in as many steps, then further. step is to be called after each batch.
    Raises: ValueError for no number of steps, one step too many, or options out of range.
    Reference: torch.optim.lr_scheduler.OneCycleLR; Smith and Topin 2017.
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float | list[float] = 0.85, max_momentum: float | list[float] = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1):
        check_optimizer(optimizer)
        given = {"total_steps": total_steps} if total_steps is not None else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        if None in given.values():
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.total_steps = math.prod(given.values())
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        rise, end = pct_start * self.total_steps, self.total_steps - 1
        phases = [(rise - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                  (2 * pct_start * self.total_steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                  (end, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        if not three_phase:
            phases[1:] = [(end, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        self._schedule_phases = [dict(zip(("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum"), phase, strict=True))
                                 for phase in phases]
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
                start = most / div_factor
                group.update(initial_lr=start, max_lr=most, min_lr=start / final_div_factor)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, per_group("base_momentum", optimizer, base_momentum),
                                 per_group("max_momentum", optimizer, max_momentum), last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start, end, part):
        if self._anneal_func_type == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * part))

    def _lrs(self):
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        start, phase = 0.0, self._schedule_phases[0]
        for later in self._schedule_phases[1:]:
            if step <= phase["end_step"]:
                break
            start, phase = phase["end_step"], later
        part = (step - start) / (phase["end_step"] - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                self._set_momentum(group, self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], part))
        return [self._between(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in self.optimizer.param_groups]
