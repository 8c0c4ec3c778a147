"""Pooling over the last one, two or three dimensions."""
from __future__ import annotations

from collections.abc import Sequence

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn.modules.module import Module

Ints = int | Sequence[int]


def _each(value: Ints, dims: int):
    return tuple(value) if hasattr(value, "__iter__") else (value,) * dims


class _MaxPoolNd(Module):
    pool = staticmethod(F.max_pool1d)

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1, return_indices: bool = False,
                 ceil_mode: bool = False):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride if stride is not None else kernel_size, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The maxima; with return_indices their places too."""
        return type(self).pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
                f"ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window over L of (N, C, L) or (C, L). Reference: torch.nn.MaxPool1d."""


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window over (H, W) of (N, C, H, W) or (C, H, W). Reference: torch.nn.MaxPool2d."""

    pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window over (D, H, W) of (N, C, D, H, W) or (C, D, H, W). Reference: torch.nn.MaxPool3d."""

    pool = staticmethod(F.max_pool3d)


class _MaxUnpoolNd(Module):
    unpool, dims = staticmethod(F.max_unpool1d), 1

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0):
        super().__init__()
        self.kernel_size = _each(kernel_size, self.dims)
        self.stride = _each(kernel_size if stride is None else stride, self.dims)
        self.padding = _each(padding, self.dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The input's elements at the places in `indices`, zeros elsewhere."""
        return type(self).unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """What MaxPool1d left, back at its places. Reference: torch.nn.MaxUnpool1d."""


class MaxUnpool2d(_MaxUnpoolNd):
    """What MaxPool2d left, back at its places. Reference: torch.nn.MaxUnpool2d."""

    unpool, dims = staticmethod(F.max_unpool2d), 2


class MaxUnpool3d(_MaxUnpoolNd):
    """What MaxPool3d left, back at its places. Reference: torch.nn.MaxUnpool3d."""

    unpool, dims = staticmethod(F.max_unpool3d), 3


class _AvgPoolNd(Module):

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The average of each window over L of (N, C, L) or (C, L). Reference: torch.nn.AvgPool1d."""

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True):
        super().__init__()
        self.kernel_size = _each(kernel_size, 1)
        self.stride = _each(stride if stride is not None else kernel_size, 1)
        self.padding = _each(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The averages."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolOfSeveral(_AvgPoolNd):
    pool = staticmethod(F.avg_pool2d)

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: int | None = None):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride if stride is not None else kernel_size, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The averages."""
        return type(self).pool(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                               self.divisor_override)


class AvgPool2d(_AvgPoolOfSeveral):
    """The average of each window over (H, W) of (N, C, H, W) or (C, H, W). Reference: torch.nn.AvgPool2d."""


class AvgPool3d(_AvgPoolOfSeveral):
    """The average of each window over (D, H, W) of (N, C, D, H, W) or (C, D, H, W). Reference: torch.nn.AvgPool3d."""

    pool = staticmethod(F.avg_pool3d)


class _LPPoolNd(Module):
    pool = staticmethod(F.lp_pool1d)

    def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return type(self).pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """The p-norm of each window over L of (N, C, L) or (C, L). Reference: torch.nn.LPPool1d."""


class LPPool2d(_LPPoolNd):
    """The p-norm of each window over (H, W) of (N, C, H, W) or (C, H, W). Reference: torch.nn.LPPool2d."""

    pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window over (D, H, W) of (N, C, D, H, W) or (C, D, H, W). Reference: torch.nn.LPPool3d."""

    pool = staticmethod(F.lp_pool3d)


class _AdaptiveAvgPoolNd(Module):
    pool = staticmethod(F.adaptive_avg_pool1d)

    def __init__(self, output_size: int | Sequence[int | None]):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """The averages."""
        return type(self).pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Averages, `output_size` of them over L of (N, C, L) or (C, L). Reference: torch.nn.AdaptiveAvgPool1d."""


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Averages, `output_size` of them over (H, W) of (N, C, H, W) or (C, H, W). Reference: torch.nn.AdaptiveAvgPool2d."""

    pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Averages, `output_size` of them over (D, H, W) of (N, C, D, H, W) or (C, D, H, W). Reference: torch.nn.AdaptiveAvgPool3d."""

    pool = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPoolNd(Module):
    pool = staticmethod(F.adaptive_max_pool1d)

    def __init__(self, output_size: int | Sequence[int | None], return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The maxima; with return_indices their places too."""
        return type(self).pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima, `output_size` of them over L of (N, C, L) or (C, L). Reference: torch.nn.AdaptiveMaxPool1d."""


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima, `output_size` of them over (H, W) of (N, C, H, W) or (C, H, W). Reference: torch.nn.AdaptiveMaxPool2d."""

    pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima, `output_size` of them over (D, H, W) of (N, C, D, H, W) or (C, D, H, W). Reference: torch.nn.AdaptiveMaxPool3d."""

    pool = staticmethod(F.adaptive_max_pool3d)
