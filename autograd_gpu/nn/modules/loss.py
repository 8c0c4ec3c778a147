"""Losses: a module per loss of nn.functional."""
from __future__ import annotations

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.ops.loss import reduction_name


class _Loss(Module):
    """What all losses have in common. size_average and reduce are PyTorch's old way to say the reduction."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_name(type(self).__name__, reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """What losses with a weight have in common: it is a buffer."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|. Reference: torch.nn.L1Loss."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target) ** 2. Reference: torch.nn.MSELoss."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The absolute difference, rounded off to a parabola below beta. Reference: torch.nn.SmoothL1Loss."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Half the square of the difference up to delta, a line from there. Reference: torch.nn.HuberLoss."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
    """target * (log target - input). Reference: torch.nn.KLDivLoss."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                 log_target: bool = False):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum, the sum over the batch's size or the elements."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """The cross entropy of probabilities and truths, both from 0 to 1. Reference: torch.nn.BCELoss."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of sigmoid(input) and truths; pos_weight weighs the true ones. Reference: torch.nn.BCEWithLogitsLoss."""

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", pos_weight: Tensor | None = None):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.binary_cross_entropy_with_logits(input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class NLLLoss(_WeightedLoss):
    """Minus the log-probability of the class that is right. Reference: torch.nn.NLLLoss."""

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """nll_loss of log_softmax, or the cross entropy with probabilities. Reference: torch.nn.CrossEntropyLoss."""

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean, the sum or the elements."""
        return F.cross_entropy(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
                               label_smoothing=self.label_smoothing)
