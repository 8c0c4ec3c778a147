"""dtypes under PyTorch's names, and PyTorch's promotion rules, which are not NumPy's."""
from __future__ import annotations

import builtins

import numpy as np

try:
    from ml_dtypes import bfloat16 as _bfloat16
    from ml_dtypes import finfo as _bfloat16_limits  # NumPy's own refuses bfloat16
except ImportError:                      # the `bfloat16` extra
    _bfloat16 = None


class dtype:
    """A scalar type. NumPy and CuPy accept it wherever they take a dtype, and it equals the NumPy dtype or type it stands for.

    Printed as `torch.float32`, which under `import autograd_gpu as torch` is how it is written.
    Reference: torch.dtype.
    """

    __slots__ = ("name", "dtype", "kind", "itemsize", "is_floating_point", "is_complex", "is_signed")

    def __init__(self, name: str, numpy_type, kind: str):
        self.name = name
        self.dtype = np.dtype(numpy_type)        # the attribute by which np.dtype(self) finds it
        self.kind = kind                         # b, i, f or c, in the order of promotion
        self.itemsize = self.dtype.itemsize
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_signed = self.dtype.kind not in "bu"

    def __repr__(self):
        return "torch." + self.name

    def __eq__(self, other):
        if isinstance(other, dtype):
            return self is other
        if isinstance(other, np.dtype) or isinstance(other, type) and issubclass(other, np.generic):
            return self.dtype == other
        return NotImplemented                # not np.dtype(other): that takes None for float64

    def __hash__(self):
        return hash(self.dtype)

    def __reduce__(self):
        return of, (self.dtype,)

    def to_real(self) -> dtype:
        """The dtype of the real part."""
        return of(np.zeros((), self.dtype).real.dtype)

    def to_complex(self) -> dtype:
        """The complex dtype whose parts have this one's precision; float16 gives complex64, as NumPy has no half complex."""
        return of(np.result_type(self.dtype, np.complex64)) if self.kind in "fc" else complex64


bool = dtype("bool", np.bool_, "b")
uint8 = dtype("uint8", np.uint8, "i")
uint16 = dtype("uint16", np.uint16, "i")
uint32 = dtype("uint32", np.uint32, "i")
uint64 = dtype("uint64", np.uint64, "i")
int8 = dtype("int8", np.int8, "i")
int16 = short = dtype("int16", np.int16, "i")
int32 = int = dtype("int32", np.int32, "i")
int64 = long = dtype("int64", np.int64, "i")
float16 = half = dtype("float16", np.float16, "f")
float32 = float = dtype("float32", np.float32, "f")
float64 = double = dtype("float64", np.float64, "f")
complex64 = cfloat = dtype("complex64", np.complex64, "c")
complex128 = cdouble = dtype("complex128", np.complex128, "c")
bfloat16 = dtype("bfloat16", _bfloat16, "f") if _bfloat16 else None

ALL = [d for d in (bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64,
                   complex64, complex128) if d is not None]
_OF = {d.dtype: d for d in ALL}
_PYTHON = {builtins.bool: bool, builtins.int: int64, builtins.float: float64, builtins.complex: complex128}
_default = np.dtype(np.float32)


def of(numpy_dtype) -> dtype:
    """The dtype that stands for a NumPy dtype. Raises TypeError for one PyTorch does not have."""
    try:
        return _OF[numpy_dtype]
    except KeyError:
        raise TypeError(f"dtype {numpy_dtype} has no counterpart here; the dtypes are {', '.join(d.name for d in ALL)}: "
                        f"convert the array first, with array.astype(...)") from None


def to_numpy(d) -> np.dtype:
    """The NumPy dtype of a dtype given in any form: ours, NumPy's, a scalar type, or Python's bool, int, float, complex."""
    if type(d) is dtype:
        return d.dtype
    if d is None:
        raise TypeError("dtype: expected a dtype, got None")
    d = _PYTHON.get(d, d) if isinstance(d, type) else d
    return of(np.dtype(d).newbyteorder("=")).dtype


def category(d: np.dtype) -> str:
    """b, i, f or c: the level that decides promotion."""
    kind = d.kind
    return kind if kind in "bifc" else "i" if kind == "u" else "f"     # ml_dtypes' bfloat16 has kind V


_BARE = tuple(np.dtype(d) for d in (np.uint16, np.uint32, np.uint64))
_ORDER = {"b": 0, "i": 1, "f": 2, "c": 3}
_promoted: dict[tuple[np.dtype, np.dtype], np.dtype] = {}


def promote_numpy(a: np.dtype, b: np.dtype) -> np.dtype:
    """promote_types on NumPy dtypes: a higher category wins as it is (int64 with float32 is float32, unlike NumPy's float64)."""
    try:
        return _promoted[a, b]
    except KeyError:
        pass
    ca, cb = category(a), category(b)
    if a != b and "f" not in (ca, cb) and (a in _BARE or b in _BARE):
        raise RuntimeError(f"promotion of {of(a)} with {of(b)} is not supported, as PyTorch has none for "
                           f"unsigned types above uint8: convert one of the tensors with .to()")
    if ca == cb or {ca, cb} == {"f", "c"}:
        if _bfloat16 and a != b and np.dtype(_bfloat16) in (a, b):       # NumPy promotes it with few others
            other = a if b == np.dtype(_bfloat16) else b
            found = np.dtype(np.float32) if other == np.float16 else other
        else:
            found = np.promote_types(a, b)
    else:
        found = a if _ORDER[ca] > _ORDER[cb] else b
    _promoted[a, b] = found
    return found


def result_of(operands) -> np.dtype:
    """The promoted dtype of [(numpy dtype, rank)]; rank 2: has dimensions, 1: 0-d tensor, 0: Python number.

    Lower ranks count only when their category is higher than all of those above them.
    Reference: torch.result_type, "Type Promotion" in the documentation of torch tensor attributes.
    """
    best: np.dtype | None = None
    for rank in (2, 1, 0):
        found: np.dtype | None = None
        for d, r in operands:
            if r == rank:
                d = d if rank or category(d) not in "fc" else _default if category(d) == "f" else _complex_of(_default)
                found = d if found is None else promote_numpy(found, d)
        best = found if best is None else best if found is None else _outranked(best, found)
    assert best is not None
    return best


def _outranked(higher: np.dtype, lower: np.dtype) -> np.dtype:
    """The dtype where operands of a lower rank meet those of a higher, which keep theirs within their category."""
    ch, cl = category(higher), category(lower)
    if cl == "c" != ch:
        return _complex_of(higher) if ch == "f" else lower
    return promote_numpy(higher, lower) if ch == "b" or (ch == "i" and cl in "fc") else higher


def _complex_of(real: np.dtype) -> np.dtype:
    return of(real).to_complex().dtype


def get_default_dtype() -> dtype:
    """The floating dtype that Python floats become."""
    return of(_default)


def set_default_dtype(d) -> None:
    """Make `d` the dtype of new floating tensors. Raises TypeError unless it is a floating dtype."""
    global _default
    if d is builtins.float:
        raise TypeError("set_default_dtype: invalid dtype object: give torch.float32 or torch.float64 instead of Python's float")
    found = to_numpy(d)
    if category(found) != "f":
        raise TypeError(f"set_default_dtype: only floating dtypes can be the default, got {of(found)}")
    _default = found


def default() -> np.dtype:
    """The default floating dtype as NumPy's."""
    return _default


def promote_types(type1, type2) -> dtype:
    """The smallest dtype at least as large as both, in PyTorch's order. Reference: torch.promote_types."""
    return of(promote_numpy(to_numpy(type1), to_numpy(type2)))


def can_cast(from_, to) -> builtins.bool:
    """Whether PyTorch's rules let an in-place result of one dtype be written into another.

    Only a fall in category is refused: complex to real, floating to integer, integer to bool. Reference: torch.can_cast.
    """
    return _ORDER[category(to_numpy(from_))] <= _ORDER[category(to_numpy(to))]


class _Limits:
    _shown: tuple[str, ...]
    dtype: str
    bits: builtins.int

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name):g}" for name in self._shown)
        return f"{type(self).__name__}({fields}, dtype={self.dtype})"


class finfo(_Limits):
    """Limits of a floating dtype, or of the parts of a complex one; the default dtype if none is given.

    Raises TypeError for other dtypes. Reference: torch.finfo.
    """
    _shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, type=None):
        d = to_numpy(type) if type is not None else _default
        if category(d) not in "fc":
            raise TypeError(f"torch.finfo() requires a floating point input type, got {of(d)}. Use torch.iinfo to handle it")
        d = of(d).to_real().dtype if d.kind == "c" else d
        info = _bfloat16_limits(d) if d.kind == "V" else np.finfo(d)
        self.dtype = of(d).name
        self.bits = info.bits
        self.resolution = 10.0 ** -info.precision
        for name in self._shown[1:]:
            setattr(self, name, getattr(info, name).item())


class iinfo(_Limits):
    """Limits of an integer dtype. Raises TypeError for other dtypes. Reference: torch.iinfo."""
    _shown = ("min", "max")

    def __init__(self, type):
        d = to_numpy(type)
        if d.kind == "b":
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if d.kind not in "iu":
            raise TypeError(f"torch.iinfo() requires an integer input type, got {of(d)}. Use torch.finfo to handle it")
        info = np.iinfo(d)
        self.dtype = of(d).name
        self.bits, self.min, self.max = info.bits, info.min, info.max
