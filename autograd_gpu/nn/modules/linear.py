"""Linear maps."""
from __future__ import annotations

import math
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.ops.creation import empty


class Identity(Module):
    """Gives its input; any arguments are taken. Reference: torch.nn.Identity."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input


class Linear(Module):
    """input @ weight.T + bias. weight: (out_features, in_features). Reference: torch.nn.Linear."""

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias evenly from +-1 / sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """(*, in_features) -> (*, out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """input1 @ weight[k] @ input2 + bias[k] for each output k. weight: (out, in1, in2). Reference: torch.nn.Bilinear."""

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias evenly from +-1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(*, in1), (*, in2) -> (*, out)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")
