"""Reductions on CuPy's arrays by the kernels of kernels/reduce.cu: over any dimensions of any layout, read in place."""
from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.cuda.launch import ACCESS, BLOCK, REAL, geometry, geometry_words, headed, index_type, memory_order, merged
from autograd_gpu.cuda.source import filled, sections
from autograd_gpu.expression import HALF, TYPES

_BLOCKS = 1024                               # fill any GPU; a number of its own, so that a result does not depend on the GPU
_LEAST = 16                                  # elements that a thread should have before a row is given to several blocks
_INT64 = np.dtype(np.int64)

STATES = {"sum": "Total<false>", "mean": "Total<true>", "prod": "Product", "max": "Extreme<true>", "min": "Extreme<false>",
          "moments": "Moments", "logsumexp": "Exponentials<Acc>"}


# ----------------------------------------------------------------------------------------------------------------- the text

def computed(dtype):
    """The dtype in which a result of dtype is computed."""
    return np.dtype(np.float32) if dtype in HALF else dtype if dtype.kind == "f" or dtype == np.uint64 else _INT64


def source(body, given, result, state, index, **words):
    """A kernel's whole text: what every one starts with, reduce.cu's first part and `body`, for dtypes and a state."""
    words |= dict(input=REAL[given], loaded="float" if given in HALF else TYPES[given], computed=TYPES[computed(result)],
                  output=REAL[result], state=state, index=index, block=str(BLOCK))
    return headed(filled(sections("reduce.cu")[0] + body, words))


def kernel_source(op, layout, kept, reduced, given, result, index):
    """The text of a reduction over `reduced` dimensions of any strides, with `kept` other ones; layout "packs", "x" or "y"."""
    of_row, of_element = geometry_words(index, kept, [0], "row_"), geometry_words(index, reduced, [0])
    gathered = {"packs": "gathered_packs<State>(x + begin, end - begin, lane, lanes, none)"}
    words = dict(name=op, geometry=of_row["geometry"] + " " + of_element["geometry"], along_x="false" if layout == "y" else "true",
                 row_offset=of_row["offsets"], element_offset=of_element["offsets"],
                 gathered=gathered.get(layout, "gathered<State>(load, begin + lane, end, lanes, none)"))
    return source(sections("reduce.cu")[1], given, result, STATES[op], index, **words)


@functools.cache
def _kernel(op, *key):
    return _device.cupy.RawKernel(kernel_source(op, *key), f"reduce_{op}")


def joining_source(name, state, given, result):
    """The text that joins the states that several blocks left of a row."""
    return source(sections("reduce.cu")[2], given, result, state, "int", name=name)


@functools.cache
def _joining(name, *key):
    return _device.cupy.RawKernel(joining_source(name, *key), f"{name}_states")


# --------------------------------------------------------------------------------------------------------------- the launch

def power(n, most=BLOCK):
    """The power of two that is at least n, or `most`."""
    return min(1 << max(n - 1, 0).bit_length(), most)


def row_block(n, rows, along_x, width=1):
    """(block, rows of a block): how the threads of a block share rows of n elements, four to a thread or one access of `width`."""
    lanes = power(-(-n // max(width, 4)), BLOCK if along_x else BLOCK // power(rows, 32))
    return (lanes, BLOCK // lanes) if along_x else (BLOCK // lanes, lanes), BLOCK // lanes


class _Plan(NamedTuple):
    """How an array is reduced: all that follows from its shape, strides and dims."""
    made: tuple                              # the result's shape in memory
    back: tuple | None                       # its transposition to the result
    results: int
    n: int
    layout: tuple                            # "packs", "x" or "y"; how many dimensions are kept and reduced
    index_type: str
    block: tuple
    grid: tuple
    arguments: tuple


@functools.lru_cache(4096)
def _plan(shape, byte_strides, itemsize, dims, keepdim):
    strides = [0 if n == 1 else s // itemsize for n, s in zip(shape, byte_strides, strict=True)]
    kept = [k for k in range(len(shape)) if k not in dims]
    order = [kept[i] for i in memory_order(len(kept), [[strides[k] for k in kept]])]
    inner = [dims[i] for i in memory_order(len(dims), [[strides[k] for k in dims]])]
    sizes, [steps] = merged(shape, [strides], order)
    row_sizes, [row_steps] = merged(shape, [strides], inner)
    results, n = math.prod(sizes), math.prod(row_sizes)
    along_x = n == 1 or results == 1 or 0 < abs(row_steps[-1]) <= abs(steps[-1]) or not steps[-1]
    packs = along_x and len(row_sizes) == 1 and row_steps[0] == 1
    block, rows = row_block(n, results, along_x, ACCESS // itemsize if packs else 1)
    blocks = -(-results // rows)
    parts = max(min(_BLOCKS // max(blocks, 1), n // (_LEAST * (BLOCK // rows))), 1)
    part = -(-n // parts)
    index, kind = index_type(max(results, n), sizes + row_sizes, [steps + row_steps])
    arguments = (*geometry(kind, sizes, [steps]), *geometry(kind, row_sizes, [row_steps]), kind(results), kind(n), kind(part))
    made, back = _result_axes(shape, kept, order, dims, keepdim)
    layout = "packs" if packs else "x" if along_x else "y", len(sizes), len(row_sizes)
    return _Plan(made, back, results, n, layout, index, block, (blocks, -(-n // part) if part else 1), arguments)


def _result_axes(shape, kept, order, dims, keepdim):
    """The result's shape in memory, where its axes stand in the order of the operand's, and its transposition, if there is one."""
    if order == kept:
        return tuple([1 if k in dims else n for k, n in enumerate(shape) if keepdim or k not in dims]), None
    axes = [*dims, *order] if keepdim else order
    shown = [*range(len(shape))] if keepdim else kept
    return tuple([1 if k in dims else shape[k] for k in axes]), tuple([axes.index(k) for k in shown])


def reduced(op, x, dims, keepdim, result, *, identity=0, correction=0):
    """x reduced over dims, sorted and from 0, as an array of the dtype `result`; with op "moments" one of (variances, means)."""
    xp = _device.cupy
    p = _plan(x.shape, x.strides, x.itemsize, dims, keepdim)
    two = op == "moments"
    out = xp.empty((2, *p.made) if two else p.made, result)
    if p.results:
        number = computed(result).type
        last = number(identity), number(max(p.n - correction, 0))
        kernel = _kernel(op, *p.layout, x.dtype, result, p.index_type)
        if p.grid[1] == 1:
            kernel(p.grid, p.block, (out, x, None, *p.arguments, *last))
        else:
            states = xp.empty((p.results * p.grid[1] * 4,), number)          # four numbers are the longest state
            kernel(p.grid, p.block, (out, x, states, *p.arguments, *last))
            join(op, STATES[op], x.dtype, out, states, p.results, p.grid[1], last)
    if p.back is None:
        return out
    return out.transpose((0, *[k + 1 for k in p.back]) if two else p.back)


def join(name, state, given, out, states, results, parts, last):
    """Join the states that several blocks left of each row."""
    lanes = power(parts)
    kernel = _joining(name, state, given, out.dtype)
    kernel((-(-results * lanes // BLOCK),), (lanes, BLOCK // lanes), (out, states, np.int32(results), np.int32(parts), *last))


# ------------------------------------------------------------- the ops: bodies that answer NotImplemented to what is not covered

def covered(*arrays, kinds="biuf"):
    """Whether the kernels take such arrays."""
    return all([type(a) is _device.cupy.ndarray and a.dtype in REAL and (a.dtype.kind in kinds or a.dtype in HALF) for a in arrays])


def axes(dim, ndim) -> Any:
    """`dim` as a sorted tuple of dimensions from 0; None where it is none, which the op's own body puts in words."""
    if dim is None or dim == ():
        return (*range(ndim),)
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    if not all([type(d) is int and -ndim <= d < ndim for d in given]):
        return None
    found = {d % ndim for d in given}
    return tuple(sorted(found)) if len(found) == len(given) else None


def _accumulated(op, identity, x, dim, keepdim, dtype, exact):
    """A sum or product in its result's dtype, to which elements are converted first; `exact`: integers give int64, else nothing."""
    dims = axes(dim, getattr(x, "ndim", 0))
    if dims is None or not covered(x):
        return NotImplemented
    own = x.dtype if dtype is None else _dtype.to_numpy(dtype)
    if dtype is None and own.kind in "biu":
        own = _INT64
    if own not in REAL or own.kind == "b" or not exact and own.kind in "iu":
        return NotImplemented
    if x.dtype != own and (own in HALF or own.kind in "iu" and x.dtype.kind not in "biu"):
        x = x.astype(own)
    return reduced(op, x, dims, keepdim, own, identity=identity)


def _sum(self, dim=None, keepdim=False, dtype=None):
    return _accumulated("sum", 0, self, dim, keepdim, dtype, True)


def _prod(self, dim=None, keepdim=False, *, dtype=None):
    return NotImplemented if keepdim and dim is None or isinstance(dim, (tuple, list)) else \
        _accumulated("prod", 1, self, dim, keepdim, dtype, True)


def _mean(self, dim=None, keepdim=False, *, dtype=None):
    if dtype is None and getattr(self, "dtype", _INT64).kind in "biu":
        return NotImplemented
    return _accumulated("mean", 0, self, dim, keepdim, dtype, False)


def _reduced_loss(each, reduction, dtype):
    """losses' `reduced`: 1 the mean, 2 the sum."""
    if reduction == 0 or not covered(each, kinds="f") or dtype not in REAL:
        return NotImplemented
    return reduced("mean" if reduction == 1 else "sum", each, (*range(each.ndim),), False, np.dtype(dtype))


def _extreme(op):
    def function(self, dims, keepdim):
        d = axes(dims, getattr(self, "ndim", 0))
        if d is None or not covered(self) or any([self.shape[k] == 0 for k in d]):
            return NotImplemented
        number = computed(self.dtype)
        if number.kind == "f":
            identity = -math.inf if op == "max" else math.inf
        else:
            identity = np.iinfo(number).min if op == "max" else np.iinfo(number).max
        return reduced(op, self, d, keepdim, self.dtype, identity=identity)

    def whole(self, dim=None, keepdim=False, *, other=None):
        return function(self, None, False) if dim is None and other is None and not keepdim else NotImplemented
    return function, whole


def _variance(name, self, dim, correction):
    """`variance` of ops/statistics.py."""
    dims = axes(dim, self.ndim)
    if dims is None or not covered(self, kinds="f"):
        return NotImplemented
    found = reduced("moments", self, dims, True, computed(self.dtype), correction=correction)
    return found[0], found[1]


def _logsumexp(self, dim, keepdim=False):
    dims = axes(dim, self.ndim)
    if dims is None or not covered(self, kinds="f"):
        return NotImplemented
    return reduced("logsumexp", self, dims, keepdim, self.dtype, identity=-math.inf)


_largest, _max = _extreme("max")
_smallest, _min = _extreme("min")
LAUNCHERS = {"sum": _sum, "sum_of_any": _sum, "prod": _prod, "mean": _mean, "reduced": _reduced_loss, "largest": _largest, "max": _max,
             "smallest": _smallest, "min": _min, "variance": _variance, "logsumexp": _logsumexp}
"""{op or composite: what computes it on CuPy's arrays}; NotImplemented leaves it to the op's own body."""
