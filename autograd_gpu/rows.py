"""Rows of matrices on the CPU: normalisation in blocks that stay in the cache, of float32 or float64 in C's order; rows added at indices.

What rows have in common, a mean, a factor, is a column of one number each; what columns have in common is a single row.
"""
from __future__ import annotations

import numpy as np

from autograd_gpu import parallel
from autograd_gpu.blocks import BLOCK, LARGE, LONG, MANY, ONES, SHORT, add_columns
from autograd_gpu.buffers import buffered
from autograd_gpu.devices import scientific

_PLAIN = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64, np.dtype(np.float32): np.float32,
          np.dtype(np.float64): np.float64}  # a dtype's numbers, one or two for each
WIDE, OFTEN = 8, 1 << 14                     # width of a row, and elements of all, from which on a sparse product adds faster; measured
NARROW, ENOUGH = 32, 512                     # width of rows up to which extremes are found among columns, elements from which on; measured
NEAR = 1e-4                                  # a variance over the mean's square from which on the mean's own rounding error counts


def _blocks(x):
    """(number, slice) of each block of x's rows."""
    rows = max(1, BLOCK // max(x.shape[1], 1))
    return [(i, slice(start, start + rows)) for i, start in enumerate(range(0, len(x), rows))]


def _each(part, x):
    """part(buffers, number, slice) for each block of x's rows, by several threads if it is large."""
    if x.size < LARGE:
        buffered(lambda buffers: [part(buffers, *block) for block in _blocks(x)])
    else:
        parallel.each(lambda block: buffered(part, *block), _blocks(x))


def _by_columns(x, part):
    """The sums over blocks of what part(buffers, slice) makes of them: a matrix each, whose columns are summed, in one row."""
    found = np.empty((len(_blocks(x)), x.shape[1]), x.dtype)
    _each(lambda buffers, i, s: add_columns(part(buffers, s), found[i]), x)
    out = np.empty((1, x.shape[1]), x.dtype)
    add_columns(found, out[0])
    return out


def _by_rows(x, part):
    """What part(buffers, slice) gives for blocks: a number for each row, in one column."""
    out = np.empty((len(x), 1), x.dtype)

    def put(buffers, _, s):
        out[s, 0] = part(buffers, s)
    _each(put, x)
    return out


def _sum(a, large):
    """The sum of each row."""
    n = a.shape[1]
    if n > SHORT:
        return np.add.reduce(a, 1)
    return np.einsum("ij->i", a) if large else a.dot(ONES[a.dtype][:n])      # BLAS has threads of its own


def _dot(a, b):
    """The product of each row of a with that of b."""
    if a.shape[1] <= LONG:
        return np.einsum("ij,ij->i", a, b)
    return np.add.reduce([np.einsum("ij,ij->i", a[:, i:i + LONG], b[:, i:i + LONG]) for i in range(0, a.shape[1], LONG)], 0)


def _of(values, s):
    """A block's part of what its rows or columns have in common."""
    return values if len(values) == 1 else values[s]


def _off(buffers, x, mean, s):
    """A block less its means, in the first buffer."""
    block = x[s]
    return np.subtract(block, _of(mean, s), buffers.at(0, block.shape, x.dtype))


def sums(x, mean=None, columns=False):
    """The sum of each row, or column, of x or x - mean."""
    if columns:
        return _by_columns(x, lambda buffers, s: x[s] if mean is None else _off(buffers, x, mean, s))
    return _by_rows(x, lambda buffers, s: _sum(x[s] if mean is None else _off(buffers, x, mean, s), x.size >= LARGE))


def products(x, mean, other=None, columns=False):
    """The sum of each row, or column, of (x - mean) * other, or of (x - mean) squared."""
    def by_columns(buffers, s):
        off = _off(buffers, x, mean, s)
        return np.multiply(off, off if other is None else other[s], off)

    def by_rows(buffers, s):
        off = _off(buffers, x, mean, s)
        return _dot(off, off if other is None else other[s])
    return _by_columns(x, by_columns) if columns else _by_rows(x, by_rows)


def moments(sums, products, n):
    """The mean and variance of n numbers each, from the sums of x or x - mean, and of its square, as functions of the mean."""
    mean = sums() / n
    var = products(mean) / n
    if (var <= NEAR * mean * mean).any():
        mean += sums(mean) / n
        var = products(mean) / n
    return mean, var


def scaled(x, mean, factor, shift, out):
    """out = (x - mean) * factor + shift."""
    def part(_, __, s):
        made = np.subtract(x[s], _of(mean, s), out[s])
        made *= _of(factor, s)
        if shift is not None:
            made += _of(shift, s)
    _each(part, x)


def combined(grad, factor, x, mean, slope, shift, out):
    """out = grad * factor + (x - mean) * slope + shift."""
    def part(buffers, _, s):
        made = np.subtract(x[s], _of(mean, s), out[s])
        made *= _of(slope, s)
        made += _of(shift, s)
        made += np.multiply(grad[s], _of(factor, s), buffers.at(0, made.shape, x.dtype))
    _each(part, x)


def layer_norm(x, weight, bias, out, eps):
    """out = (x - mean) * rstd * weight + bias: each row brought to mean 0 and variance 1. Returns (mean, rstd).

    weight and bias: a row, or None.
    """
    n, large = x.shape[1], x.size >= LARGE
    mean, rstd = np.empty((len(x), 1), x.dtype), np.empty((len(x), 1), x.dtype)

    def part(_, __, s):
        m, r = mean[s], rstd[s]
        np.divide(_sum(x[s], large)[:, None], n, m)
        made = np.subtract(x[s], m, out[s])
        var = _dot(made, made)[:, None] / n
        if (var <= NEAR * m * m).any():
            more = _sum(made, large)[:, None] / n
            made -= more
            m += more
            var = _dot(made, made)[:, None] / n
        np.reciprocal(np.sqrt(np.add(var, eps, r), r), r)
        made *= r
        if weight is not None:
            made *= weight
        if bias is not None:
            made += bias
    _each(part, x)
    return mean, rstd


def layer_norm_backward(grad, x, mean, rstd, weight, to_x, to_weight, to_bias):
    """The gradients of layer_norm, in the last three arguments: of x, and of weight and bias, a row each; None for one that is not wanted.

    Reference: Ba et al., "Layer Normalization", 2016.
    """
    n, large = x.shape[1], x.size >= LARGE
    products, grads = (None if to is None else np.empty((len(_blocks(x)), n), x.dtype) for to in (to_weight, to_bias))

    def part(buffers, i, s):
        g, r, off = grad[s], rstd[s], _off(buffers, x, mean, s)
        if products is not None:
            product = np.multiply(g, off, buffers.at(1, g.shape, x.dtype))
            if len(product) < MANY:
                r[:, 0].dot(product, products[i])
            else:
                product *= r
                add_columns(product, products[i])
        if grads is not None:
            add_columns(g, grads[i])
        if to_x is not None:
            made = to_x[s]
            if weight is not None:
                g = np.multiply(g, weight, made)
            of_mean, slope = _sum(g, large)[:, None] / n, _dot(g, off)[:, None] / n
            slope *= r * r
            off *= slope
            off += of_mean
            np.subtract(g, off, made)
            made *= r
    _each(part, x)
    for found, to in ((products, to_weight), (grads, to_bias)):
        if to is not None:
            add_columns(found, to[0])


def extreme(function, x, dims, keepdim):
    """function.reduce(x, dims, keepdims=keepdim), for np.maximum or np.minimum.

    NumPy makes a loop of each row. Short rows are quicker as columns, longer ones of floating numbers by the places of their extremes.
    """
    dim = dims[0] if type(dims) is tuple and len(dims) == 1 else dims
    by_rows = type(dim) is int and x.ndim and dim % x.ndim == x.ndim - 1 and x.flags.c_contiguous
    if not by_rows or x.size < ENOUGH or x.dtype.kind not in "fiu" or x.dtype.kind != "f" and x.shape[-1] > NARROW // 2:
        return function.reduce(x, dims, None, None, keepdim)
    rows = x.reshape(-1, x.shape[-1])
    if x.size < LARGE:
        found = _extreme(function, rows)
    else:
        found = np.empty(len(rows), x.dtype)

        def part(block):
            found[block[1]] = _extreme(function, rows[block[1]])
        parallel.each(part, _blocks(rows))
    return found.reshape(*x.shape[:-1], 1) if keepdim else found.reshape(x.shape[:-1])


def _extreme(function, rows):
    if rows.shape[1] <= NARROW:
        return function.reduce(rows.T.copy(), 0)
    places = rows.argmax(1) if function is np.maximum else rows.argmin(1)
    return rows[np.arange(len(rows)), places]


def _is_much(values):
    """Whether a product with a sparse matrix adds rows faster."""
    return values.size >= OFTEN and values.shape[1] >= WIDE and values.dtype in _PLAIN


def _product(order, ends, values):
    """A matrix whose rows are sums of rows of `values`, those that `order` has between one of `ends` and the next."""
    plain = _PLAIN[values.dtype]
    ones = scientific(np).sparse.csr_array((np.ones(len(order), plain), order, ends), (len(ends) - 1, len(order)))
    made = ones @ np.ascontiguousarray(values).view(plain)
    return made if plain is values.dtype.type else made.view(values.dtype)


def _add_one_by_one(out, index, values):
    width = values.shape[1]
    places = index if width == 1 else (index[:, None] * width + np.arange(width)).reshape(-1)
    np.add.at(out.reshape(-1), places, values.reshape(-1).astype(out.dtype, copy=False))


def added_up(index, values, n):
    """A matrix of n rows, each the sum of those of `values` at whose place `index` has its number, none of them negative."""
    if not _is_much(values):
        out = np.zeros((n, values.shape[1]), values.dtype)
        _add_one_by_one(out, index, values)
        return out
    return _product(np.argsort(index, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(index, minlength=n)))), values)


def add_at(out, index, values):
    """out[index] += values for the rows of matrices in C's order; an index that occurs several times gets them all, none is negative."""
    if not _is_much(values) or values.dtype != out.dtype:
        _add_one_by_one(out, index, values)
        return
    order = np.argsort(index, kind="stable")
    found = index[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    out[found[starts]] += _product(order, np.append(starts, len(index)), values)
