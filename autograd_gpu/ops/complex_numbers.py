"""Complex numbers: their parts, conjugates, angles, and what is made of parts."""
from __future__ import annotations

import math

import numpy as np

from autograd_gpu import dtypes as _dtype
from autograd_gpu.ops.compile import ITSELF
from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, elementwise, view
from autograd_gpu.ops.operands import of_tensors

_REAL = "isinstance(input, Tensor) and input._array.dtype.kind != 'c'"


@elementwise(inplace=False, divert={_REAL: ITSELF, "isinstance(input, Tensor) and input._hooks is WrappedNumber": "conj_number"},
             out=False)
def conj(self):
    """The complex conjugate; a real tensor as it is. Reference: torch.conj."""
    return np.conjugate(self) if self.dtype.kind == "c" else self

conj.vjp(self=lambda grad: F.conj(grad))


@composite(method=False, function=False)
def conj_number(self):
    """The conjugate of a Python number: of a real one that number, which no hook packs; of a complex one a tensor, as in PyTorch."""
    return F.conj_physical(self) if self._array.imag else self


@elementwise(divert={_REAL: ITSELF})
def conj_physical(self):
    """The complex conjugate. Reference: torch.conj_physical."""
    return np.conjugate(self) if self.dtype.kind == "c" else self

conj_physical.vjp(self=lambda grad: F.conj(grad))


@composite
def resolve_conj(input):
    """The tensor itself: conjugates are computed at once here. Reference: torch.resolve_conj."""
    return input


@composite
def resolve_neg(input):
    """The tensor itself: negatives are computed at once here. Reference: torch.resolve_neg."""
    return input


@view(method=False)
def view_as_real(self):
    """A view of a complex tensor as real, its parts in a new last dimension. Reference: torch.view_as_real."""
    if self.dtype.kind != "c":
        raise RuntimeError(f"view_as_real: is only supported for complex tensors, got {_dtype.of(self.dtype)}")
    return np.lib.stride_tricks.as_strided(self.real, (*self.shape, 2), (*self.strides, self.itemsize // 2))

view_as_real.vjp(self=lambda grad: F.complex(F.select(grad, -1, 0), F.select(grad, -1, 1)))


@view(method=False)
def view_as_complex(self):
    """A view of pairs in the last dimension as complex numbers. Reference: torch.view_as_complex."""
    if self.dtype.kind != "f" or self.itemsize < 4:
        raise RuntimeError(f"view_as_complex: is only supported for floating tensors of 32 or 64 bits, got {_dtype.of(self.dtype)}")
    if not self.ndim or self.shape[-1] != 2:
        raise RuntimeError(f"view_as_complex: Tensor must have a last dimension of size 2, got shape {self.shape}")
    if self.size and (self.strides[-1] != self.itemsize or any(s % (2 * self.itemsize) for s in self.strides[:-1])):
        raise RuntimeError(f"view_as_complex: Tensor must have a last dimension with stride 1, and even strides else, got "
                           f"{[s // self.itemsize for s in self.strides]}: call contiguous() first")
    return self.view(np.result_type(self.dtype, np.complex64))[..., 0]

view_as_complex.vjp(self=lambda grad: F.view_as_real(grad))


@composite(method=False, arrays=lambda input: input.real)
def real(input):
    """The real part, as a view; a real tensor as it is. Reference: torch.real."""
    return F.select(F.view_as_real(input), -1, 0) if input.dtype.kind == "c" else input


@composite(method=False, arrays=lambda input: input.imag)
def imag(input):
    """The imaginary part, as a view. Raises RuntimeError for a real tensor. Reference: torch.imag."""
    if input.dtype.kind != "c":
        raise RuntimeError("imag: is not implemented for tensors with non-complex dtypes: a real tensor has no imaginary part")
    return F.select(F.view_as_real(input), -1, 1)


def _check_parts(name, a, b):
    """Raises RuntimeError unless both parts of a complex number are of one floating dtype."""
    if a.dtype.kind != "f" or a.dtype != b.dtype:
        raise RuntimeError(f"{name}: Expected both inputs to be Half, Float or Double tensors of one dtype, but got "
                           f"{_dtype.of(a.dtype)} and {_dtype.of(b.dtype)}: convert one of them, with .to(dtype)")


@elementwise(method=False, inplace=False, promote=[], divert=of_tensors("complex", "real", "imag"))
def complex(real, imag):
    """real + imag * i. Raises RuntimeError unless both are of one floating dtype. Reference: torch.complex."""
    _check_parts("complex", real, imag)
    real, imag = np.broadcast_arrays(real, imag)
    out = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    out.real, out.imag = real, imag
    return out

complex.vjp(real=lambda grad, real: F.real(grad), imag=lambda grad, imag: F.imag(grad))


@elementwise(method=False, inplace=False, promote=[], domain=(0.1, 2), divert=of_tensors("polar", "abs", "angle"))
def polar(abs, angle):
    """The complex number of a radius and an angle; errors as complex. Reference: torch.polar."""
    _check_parts("polar", abs, angle)
    return F.complex(abs * np.cos(angle), abs * np.sin(angle))

polar.vjp(abs=lambda grad, result: F.real(grad * F.conj(F.sgn(result))),
          angle=lambda grad, result: F.real(grad * F.conj(result) * -1j))


@elementwise(inplace=False, to_float=True)
def angle(self):
    """The angle of a complex number; of real ones 0 or pi. Reference: torch.angle."""
    if self.dtype.kind == "c":
        return np.arctan2(self.imag, self.real)
    return np.where(np.isnan(self), self, np.where(self < 0, self.dtype.type(math.pi), self.dtype.type(0)))

angle.vjp(self=lambda grad, self: F.angle_grad(grad, self))


@composite(method=False, function=False)
def angle_grad(grad, self):
    """The turn across the radius; zero at 0 and for real numbers."""
    if self.dtype.kind != "c":
        return F.no_gradient(grad)
    return F.where(self == 0, 0, grad * 1j / F.conj(self))
