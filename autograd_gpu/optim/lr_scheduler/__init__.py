"""Learning rate schedules, under torch.optim.lr_scheduler's names."""
from autograd_gpu.optim.lr_scheduler.base import LRScheduler
from autograd_gpu.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from autograd_gpu.optim.lr_scheduler.cycles import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from autograd_gpu.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from autograd_gpu.optim.lr_scheduler.plateau import ReduceLROnPlateau


class _LRScheduler(LRScheduler):
    """LRScheduler's name in older programs, which derive from it."""


__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
           "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
           "SequentialLR", "StepLR"]
