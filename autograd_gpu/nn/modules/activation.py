"""Activations: a module per function of nn.functional."""
from __future__ import annotations

from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.ops.creation import empty


class _Inplace(Module):
    """What activations have in common that can write into their input."""

    inplace: bool

    def _options(self) -> str:
        return ""

    def extra_repr(self) -> str:
        return ", ".join([text for text in (self._options(), "inplace=True" if self.inplace else "") if text])


class _InplaceOnly(_Inplace):
    """Activations whose only option that is."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class ReLU(_InplaceOnly):
    """The input, 0 where it is negative. Reference: torch.nn.ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.relu(input, self.inplace)


class ReLU6(_InplaceOnly):
    """The input, kept between 0 and 6. Reference: torch.nn.ReLU6."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.relu6(input, self.inplace)


class SiLU(_InplaceOnly):
    """x * sigmoid(x). Reference: torch.nn.SiLU."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.silu(input, self.inplace)


class Mish(_InplaceOnly):
    """x * tanh(softplus(x)). Reference: torch.nn.Mish."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.mish(input, self.inplace)


class SELU(_InplaceOnly):
    """elu, scaled so that mean and variance stay 0 and 1. Reference: torch.nn.SELU."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.selu(input, self.inplace)


class Hardsigmoid(_InplaceOnly):
    """A sigmoid of straight lines. Reference: torch.nn.Hardsigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_InplaceOnly):
    """x * hardsigmoid(x). Reference: torch.nn.Hardswish."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class ELU(_Inplace):
    """The input, alpha * (exp(x) - 1) where it is negative. Reference: torch.nn.ELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.elu(input, self.alpha, self.inplace)

    def _options(self) -> str:
        return f"alpha={self.alpha}"


class CELU(_Inplace):
    """The input, alpha * (exp(x / alpha) - 1) where it is negative. Reference: torch.nn.CELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.celu(input, self.alpha, self.inplace)

    def _options(self) -> str:
        return f"alpha={self.alpha}"


class LeakyReLU(_Inplace):
    """The input, negative_slope times it where it is negative. Reference: torch.nn.LeakyReLU."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def _options(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Hardtanh(_Inplace):
    """The input, kept between two values. Raises AssertionError unless the first is smaller. Reference: torch.nn.Hardtanh."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        super().__init__()
        if max_val <= min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def _options(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Threshold(_Inplace):
    """The input where it is above a threshold, elsewhere a value. Reference: torch.nn.Threshold."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def _options(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)). Reference: torch.nn.Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)). Reference: torch.nn.LogSigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.logsigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent. Reference: torch.nn.Tanh."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x). Reference: torch.nn.Tanhshrink."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|). Reference: torch.nn.Softsign."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.softsign(input)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, x itself beyond the threshold. Reference: torch.nn.Softplus."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GELU(Module):
    """x times the normal distribution's share below x, or with "tanh" an approximation of it. Reference: torch.nn.GELU."""

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class _Shrink(Module):
    """What Hardshrink and Softshrink have in common."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """The input, 0 between -lambd and lambd. Reference: torch.nn.Hardshrink."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """The input moved towards 0 by lambd, as far as 0. Reference: torch.nn.Softshrink."""

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.softshrink(input, self.lambd)


class PReLU(Module):
    """The input, times a weight that is learned where it is negative: one for all, or one per channel. Reference: torch.nn.PReLU."""

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set each weight to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class _AlongDim(Module):
    """What the softmax modules have in common."""

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x) over its sum along a dimension. Reference: torch.nn.Softmax."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """softmax(-x). Reference: torch.nn.Softmin."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """log(softmax(x)). Reference: torch.nn.LogSoftmax."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W). Raises ValueError for other inputs. Reference: torch.nn.Softmax2d."""

    def forward(self, input: Tensor) -> Tensor:
        """The shape of the input."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class GLU(Module):
    """The first half of a dimension times the sigmoid of the second. Reference: torch.nn.GLU."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The gated half."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
