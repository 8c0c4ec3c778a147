"""Layers in NumPy with their gradients, written for speed: what the floors of several programs share.

Each returns its result and a function from the gradient of the result to those of its arguments.
"""
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def linear(x, weight, bias):
    """x @ weight + bias for x of two dimensions."""
    y = x @ weight
    y += bias
    return y, lambda g: (g @ weight.T, x.T @ g, g.sum(0))


def relu(x):
    """Overwrites x."""
    np.maximum(x, 0, out=x)
    return x, lambda g: g * (x > 0)


def cross_entropy(x, target):
    """The mean over rows; overwrites x."""
    rows = np.arange(len(x))
    x -= x.max(1, keepdims=True)
    e = np.exp(x)
    total = e.sum(1, keepdims=True)
    loss = (np.log(total[:, 0]) - x[rows, target]).mean()

    def gradient():
        g = e / total
        g[rows, target] -= 1
        g /= np.float32(len(x))
        return g
    return loss, gradient


def layer_norm(x, weight, bias):
    """Over the last dimension."""
    h = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((h * h).mean(-1, keepdims=True) + np.float32(1e-5))
    h /= deviation

    def gradient(g):
        rows = tuple(range(g.ndim - 1))
        gh, gw, gb = g * weight, (g * h).sum(rows), g.sum(rows)
        gh -= gh.mean(-1, keepdims=True) + h * (gh * h).mean(-1, keepdims=True)
        gh /= deviation
        return gh, gw, gb
    return h * weight + bias, gradient


def attention(x, wq, wk, wv, wo, heads):
    """Of all heads; x: (batch, time, width)."""
    batch, time, width = x.shape
    rows, scale = x.reshape(-1, width), np.float32((width // heads) ** -0.5)

    def split(y):
        return y.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3)

    def join(y):
        return y.transpose(0, 2, 1, 3).reshape(-1, width)
    q, k, v = (split(rows @ w) for w in (wq, wk, wv))
    a = q @ k.swapaxes(-1, -2)
    a *= scale
    a -= a.max(-1, keepdims=True)
    np.exp(a, out=a)
    a /= a.sum(-1, keepdims=True)
    heard = join(a @ v)

    def gradient(g):
        g = g.reshape(-1, width)
        gwo, gh = heard.T @ g, split(g @ wo.T)
        ga, gv = gh @ v.swapaxes(-1, -2), join(a.swapaxes(-1, -2) @ gh)
        ga *= a
        ga -= a * ga.sum(-1, keepdims=True)
        ga *= scale
        gq, gk = join(ga @ k), join(ga.swapaxes(-1, -2) @ q)
        gx = gq @ wq.T
        gx += gk @ wk.T
        gx += gv @ wv.T
        return gx.reshape(x.shape), rows.T @ gq, rows.T @ gk, rows.T @ gv, gwo
    return (heard @ wo).reshape(x.shape), gradient


def conv2d(x, weight):
    """A product of matrices for each image; square kernels, stride 1, no padding."""
    n, channels, size, _ = x.shape
    out, _, k, _ = weight.shape
    m = size - k + 1
    patches = np.ascontiguousarray(sliding_window_view(x, (k, k), (2, 3)).transpose(0, 1, 4, 5, 2, 3)).reshape(n, channels * k * k, m * m)

    def gradient(g, needs_x=True):
        g = g.reshape(n, out, m * m)
        gw = (g @ patches.swapaxes(1, 2)).sum(0).reshape(weight.shape)
        if not needs_x:
            return None, gw
        gp, gx = (weight.reshape(out, -1).T @ g).reshape(n, channels, k, k, m, m), np.zeros_like(x)
        for i in range(k):
            for j in range(k):
                gx[:, :, i:i + m, j:j + m] += gp[:, :, i, j]
        return gx, gw
    return (weight.reshape(out, -1) @ patches).reshape(n, out, m, m), gradient


def max_pool2d(x):
    """Of squares of 2 by 2."""
    n, channels, height, width = x.shape
    squares = x.reshape(n, channels, height // 2, 2, width // 2, 2)
    result = squares.max(3).max(4)

    def gradient(g):
        first = squares == result[:, :, :, None, :, None]            # ties: all of them; behind relu they are zeros, which pass nothing on
        return (first * g[:, :, :, None, :, None]).reshape(x.shape)
    return result, gradient
