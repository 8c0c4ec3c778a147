"""BatchNorm and InstanceNorm, which may keep running means and variances."""
from __future__ import annotations

import warnings
from typing import Any

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.normalization import _Affine
from autograd_gpu.ops.creation import ones, tensor, zeros


class _NormBase(_Affine):
    """What BatchNorm and InstanceNorm have in common: per channel weight, bias, running mean and running variance."""

    _version = 2                             # since num_batches_tracked is part of the state
    _dims: tuple[int, ...] = ()
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._register(num_features, affine, bias, device, dtype)
        track = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if track else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if track else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device, dtype=_dtype.int64) if track else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the running mean to zeros, the running variance to ones and the count of batches to 0."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)

    def reset_parameters(self) -> None:
        """reset_running_stats, the weight ones and the bias zeros."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input):
        if input.dim() not in self._dims:
            raise ValueError(f"expected {' or '.join(f'{n}D' for n in self._dims)} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}, "
                f"track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *report):
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats:
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *report)


class _BatchNorm(_NormBase):
    """Each channel brought to mean 0 and variance 1 over the batch."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input. In training, or without running values, the batch's own mean and variance are used."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:        # the mean of all batches
                factor = 1.0 / float(self.num_batches_tracked)
        own = self.training or self.running_mean is None and self.running_var is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keep else None, self.running_var if keep else None, self.weight, self.bias, own,
                            factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Each channel of (N, C) or (N, C, L) brought to mean 0 and variance 1 over the batch. Reference: torch.nn.BatchNorm1d."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel of (N, C, H, W) brought to mean 0 and variance 1 over the batch. Reference: torch.nn.BatchNorm2d."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Each channel of (N, C, D, H, W) brought to mean 0 and variance 1 over the batch. Reference: torch.nn.BatchNorm3d."""

    _dims = (5,)


class _InstanceNorm(_NormBase):
    """Each channel of each sample brought to mean 0 and variance 1."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) or (C, *), the shape of the input."""
        self._check_input_dim(input)
        unbatched = input.dim() == min(self._dims)
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={0 if unbatched else 1} to match num_features ({self.num_features}), but "
                                 f"got: {channels}.")
            warnings.warn(f"input's size at dim={0 if unbatched else 1} does not match num_features. num_features is not used because "
                          "affine=False", stacklevel=3)
        out = F.instance_norm(input.unsqueeze(0) if unbatched else input, self.running_mean, self.running_var, self.weight, self.bias,
                              self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum, self.eps)
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample of (N, C, L) or (C, L) brought to mean 0 and variance 1. Reference: torch.nn.InstanceNorm1d."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of (N, C, H, W) or (C, H, W) brought to mean 0 and variance 1. Reference: torch.nn.InstanceNorm2d."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample of (N, C, D, H, W) or (C, D, H, W) brought to mean 0 and variance 1. Reference: torch.nn.InstanceNorm3d.
    """

    _dims = (4, 5)
