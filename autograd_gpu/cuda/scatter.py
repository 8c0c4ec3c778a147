"""ufunc.at on CUDA, for every dtype: values added to, or multiplied with, the elements that index arrays name, however many meet."""
from __future__ import annotations

import functools
import operator

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.cuda.launch import BLOCK, REAL, geometry, geometry_words, grid, headed, index_type, walk
from autograd_gpu.cuda.source import filled, kernel_text
from autograd_gpu.expression import TYPES

_NARROW = {"b": np.int32, "i": np.int32, "u": np.uint32, "f": np.float32, "V": np.float32}     # what fewer than 32 bits are worked out in
_OPERATIONS = {"add": (operator.add, 0), "multiply": (operator.mul, 1)}


def _as_strided(array, shape, strides):
    return _device.cupy.lib.stride_tricks.as_strided(array, shape, strides)


def at(operation, name, out, key, values, wraps=True):
    """np.add.at or np.multiply.at (by `operation`) on CuPy's arrays: into `out`, at a key of index arrays, masks and full slices.

    An index out of range is left out, and reported as the op's of this name. `wraps`: negative ones count from the end.
    """
    key = [part for k in key for part in ([k] if isinstance(k, slice) or k.dtype.kind != "b" else k.nonzero())]
    dims = [d for d, k in enumerate(key) if not isinstance(k, slice)]
    others = [d for d in range(out.ndim) if d not in dims]
    common = np.broadcast_shapes(*[key[d].shape for d in dims])
    before = dims[0] if dims and dims[-1] - dims[0] == len(dims) - 1 else 0        # as NumPy: index arrays that are apart come first
    axes = [*others[:before], *[None] * len(common), *others[before:]]
    shape = (*[out.shape[d] for d in others[:before]], *common, *[out.shape[d] for d in others[before:]])
    indices = [key[d].reshape((*key[d].shape, *[1] * (len(others) - before))) for d in dims]
    _scatter(operation, name, out, axes, shape, dict(zip(dims, indices, strict=True)), values, wraps)


def along(operation, name, out, dim, index, values):
    """`at` with an index along one dimension that stays in place along the others; out may be larger there. None counts from the end."""
    _scatter(operation, name, out, [None if d == dim else d for d in range(out.ndim)], index.shape, {dim: index}, values, False)


def _scatter(operation, name, out, axes, shape, indices, values, wraps):
    """Into `out`, over `shape`, whose dimensions are each one of out's or, None, of the index arrays alone; `indices`: {dimension: array}.

    Numbers of fewer than 32 bits, for which there are no atomics, are worked out in 32 and rounded once.
    """
    xp = _device.cupy
    values = xp.broadcast_to(values.astype(out.dtype, copy=False), shape)
    if not values.size:
        return
    if out.dtype.kind == "c":
        if operation != "add":
            raise NotImplementedError(f"{name}: not implemented for {_dtype.of(out.dtype)} on a CUDA device, as in PyTorch")
        indices = {d: i[..., None] for d, i in indices.items()}
        return _scatter(operation, name, _parts(out), [*axes, out.ndim], (*shape, 2), indices, _parts(values), wraps)
    if out.itemsize >= 4:
        return _launch(operation, name, out, axes, indices, values, wraps)
    combine, neutral = _OPERATIONS[operation]
    work = xp.full(out.shape, neutral, _work_dtype(out.dtype))
    _launch(operation, name, work, axes, indices, values, wraps)
    out[...] = combine(out.astype(work.dtype), work)


def _parts(z):
    """The real and imaginary parts of a complex array, as its last dimension."""
    return _as_strided(z.real, (*z.shape, 2), (*z.strides, z.itemsize // 2))


def _work_dtype(dtype):
    return np.dtype(_NARROW[dtype.kind]) if dtype.itemsize < 4 else dtype


def _launch(operation, name, out, axes, indices, values, wraps):
    target = _as_strided(out, values.shape, [0 if d is None else out.strides[d] for d in axes])
    _, sizes, rows = walk(values.shape, [target, values, *indices.values()])
    bounds, steps = [out.shape[d] for d in indices], [out.strides[d] // out.itemsize for d in indices]
    reach = [[*rows[0], *steps], *[[*row, *[0] * len(steps)] for row in rows[1:]]]
    index, kind = index_type(values.size, [*sizes, *bounds], reach)
    kernel = _kernel(operation, values.dtype, tuple([i.dtype for i in indices.values()]), len(sizes), index)
    address, number = _device.reporter(name)
    places = [x for d, size, step in zip(indices, bounds, steps, strict=True) for x in (np.int32(d), np.int64(size), kind(step))]
    kernel(grid(values.size), (BLOCK,), (target, values, *indices.values(), address, number, np.bool_(wraps),
                                         *geometry(kind, sizes, rows), *places, np.int64(values.size)))


def source(operation, dtype, index_dtypes, ndim, index):
    """The text of the kernel for values of a dtype, index arrays of some, over ndim dimensions."""
    stored, work = REAL[dtype], TYPES[_work_dtype(dtype)]
    arrays = range(len(index_dtypes))
    words = geometry_words(index, ndim, range(2 + len(arrays)))
    words["geometry"] += " " + " ".join(f"int dim{k}, long long n{k}, {index} t{k}," for k in arrays)
    words |= {
        "operation": operation, "target": work, "value": stored, "computed": "bool" if dtype.kind == "b" else work, "index": index,
        "indices": " ".join(f"const {TYPES[d]}* __restrict__ i{k}," for k, d in zip(arrays, index_dtypes, strict=True)),
        "places": " ".join(f"const long long j{k} = ag_place(i{k}[o{k + 2}], n{k}, wraps, report, op, dim{k}); "
                           f"if (j{k} < 0) continue; o0 += ({index})j{k} * t{k};" for k in arrays)}
    return headed(kernel_text("bounds.cuh") + filled(kernel_text("scatter.cu"), words))


@functools.cache
def _kernel(operation, *kinds):
    return _device.cupy.RawKernel(source(operation, *kinds), f"scatter_{operation}")
