"""How tensors print: as PyTorch's do, to the character."""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor
from autograd_gpu.engine.forward_mode import tangents


@dataclasses.dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {"default": _Options(), "short": _Options(precision=2, edgeitems=2), "full": _Options(threshold=math.inf)}
_options = _Options()


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Set how tensors print, in all threads.

    precision: digits after the point. threshold: more elements than this are summarised, to `edgeitems` at each end of each
    dimension. linewidth: characters per line. profile: "default", "short" or "full", before the others apply. sci_mode: always
    (True), never (False), or where the numbers ask for it (None, which is set again by every call that does not name it).
    Raises: ValueError for an unknown profile. Reference: torch.set_printoptions.
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"set_printoptions: profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
    start = _options if profile is None else _PROFILES[profile]
    given: dict[str, Any] = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options = dataclasses.replace(start, sci_mode=sci_mode, **{k: v for k, v in given.items() if v is not None})


# --------------------------------------------------------------------------------------------------------------- numbers

class _Plain:
    """Integers and bools."""

    def __init__(self, values, options):
        self.width = max([len(str(v)) for v in values.ravel().tolist()], default=1)

    def __call__(self, value):
        return str(value).rjust(self.width)


class _Real:
    """Floats: all of them as integers with a point, with digits after it, or in scientific notation.

    Which one, and the common width, is decided by the values that are finite and not 0; inf, nan and zeros only follow.
    """

    def __init__(self, values, options):
        values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
        self.digits, self.whole, self.scientific, self.width = options.precision, True, False, 1
        if not values.size:
            return
        size = np.abs(values)
        least, most = size.min(), size.max()
        self.whole = bool((values == np.ceil(values)).all())
        self.scientific = options.sci_mode
        if self.scientific is None:
            self.scientific = bool(most / least > 1000 or most > 1e8 or least < 1e-4)
        self.width = max(len(self._text(v)) for v in values.tolist())

    def _text(self, value):
        if self.scientific:
            return f"{value:.{self.digits}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{self.digits}f}"

    def __call__(self, value):
        return self._text(value).rjust(self.width)


class _Complex:
    """Complex numbers: real and imaginary parts each have a format of their own."""

    def __init__(self, values, options):
        self.real, self.imag = _Real(values.real, options), _Real(values.imag, options)
        self.width = self.real.width + self.imag.width + 1       # and the j

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


def _format(values, options):
    kind = _dtype.category(values.dtype)
    return {"f": _Real, "c": _Complex}.get(kind, _Plain)(values, options)


# ---------------------------------------------------------------------------------------------------------------- arrays

def _edges(array, edge):
    """The part of an array that a summary shows: `edge` elements from each end of each dimension."""
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            head = (slice(None),) * axis
            xp = _device.xp(array)
            array = xp.concatenate([array[(*head, slice(edge))], array[(*head, slice(n - edge, None))]], axis)
    return array


def _with_gap(parts, n, edge, mark):
    """The parts of one dimension, of n elements, with a mark where elements are left out."""
    return parts if len(parts) == n else [*parts[:edge], mark, *parts[edge:]]


def _lines(values, shape, depth, text, options):
    """Nested lists of numbers as text; `shape` is what it was before a summary left elements out."""
    if not shape:
        return text(values)
    edge = options.edgeitems
    if len(shape) > 1:
        parts = _with_gap([_lines(v, shape[1:], depth + 1, text, options) for v in values], shape[0], edge, "...")
        return "[" + ("," + "\n" * (len(shape) - 1) + " " * (depth + 1)).join(parts) + "]"
    parts = _with_gap([text(v) for v in values], shape[0], edge, " ..." if edge else "...")
    per_line = max(1, (options.linewidth - depth) // (text.width + 2))
    rows = [", ".join(parts[i:i + per_line]) for i in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (depth + 1)).join(rows) + "]"


def _contents(array, depth):
    options = _options
    if not array.size:
        return "[]"
    shape = array.shape
    if array.size > options.threshold:
        array = _edges(array, options.edgeitems)
    array = _device.copy(array, _device.CPU)
    if _dtype.category(array.dtype) == "f" and array.itemsize == 2:
        array = array.astype(np.float32)
    with np.errstate(all="ignore"):
        return _lines(array.tolist(), shape, depth, _format(array, options), options)


_PLAIN_NAMES = ("Tensor", "Parameter", "Buffer", "_TemporaryBuffer")       # CudaTensor calls itself Tensor; nn is a layer above


def _history(t):
    """What the text says about the tensor's graph, if anything."""
    try:
        node = t.grad_fn
    except RuntimeError:                     # a view whose history can no longer be told
        return "grad_fn=<Invalid>"
    if node is not None:
        return f"grad_fn=<{node.name().rsplit('::', 1)[-1]}>"
    return "requires_grad=True" if t.requires_grad else None


def tensor(t: Tensor, contents: str | None = None) -> str:
    """The text of a tensor; `contents` takes the place of its numbers."""
    array: Any = t._array  # type: ignore[attr-defined]
    dtype, default = _dtype.of(array.dtype), _dtype.get_default_dtype()
    start = "tensor(" if type(t).__name__ in _PLAIN_NAMES else type(t).__name__ + "("
    notes = []
    if t.device.type != "cpu":
        notes.append(f"device='{t.device}'")
    if not array.size:
        if array.ndim != 1:
            notes.append(f"size={tuple(array.shape)}")
        shown = dtype == default             # no element tells the dtype
    else:
        if not _options.edgeitems:
            notes.append(f"size={tuple(array.shape)}")
        shown = dtype in (default, default.to_complex(), _dtype.int64, _dtype.bool)
    if not shown:
        notes.append(f"dtype={dtype}")
    notes += [_history(t), *[f"tangent={tangent}" for tangent in tangents(t)]]
    text = start + (_contents(array, len(start)) if contents is None else contents)
    last = len(text) - text.rfind("\n") + 1
    for note in notes:
        if note is None:
            continue
        if last + len(note) + 2 > _options.linewidth:
            text += ",\n" + " " * len(start) + note
            last = len(start) + len(note)
        else:
            text += ", " + note
            last += len(note) + 2
    return text + ")"
