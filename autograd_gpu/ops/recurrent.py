"""The recurrences of nn.RNN, nn.LSTM and nn.GRU: one op for all time steps, whose derivative is written with ops.

The rows of all steps lie one after the other, batch_sizes[t] of them at step t, never more than at the step before, as in a PackedSequence.
What the input adds to the gates is there already, for all steps; `reverse` goes from the last step to the first. A sequence that ends
sooner keeps its last state, one that begins later, in reverse, its first.
"""
from __future__ import annotations

import itertools

import numpy as np

from autograd_gpu.ops.namespace import OPS as F
from autograd_gpu.ops.op import composite, op
from autograd_gpu.ops.operands import floating
from autograd_gpu.ops.reduce import accumulator


def _walk(batch_sizes, reverse):
    """(step, its rows, how many they are) in the order in which the steps are taken."""
    walk = [(t, slice(end - n, end), n) for t, (n, end) in enumerate(zip(batch_sizes, itertools.accumulate(batch_sizes), strict=True))]
    return walk[::-1] if reverse else walk


def _wide(name, gates, *others):
    """The operands in the dtype that sums are formed in."""
    floating(name, gates.dtype)
    wide = accumulator(gates.dtype)
    return [None if a is None else a.astype(wide, copy=False) for a in (gates, *others)]


_MANY = 8                                    # steps whose faster products make up for a copy of the weight in another order


@composite(method=False, function=False)
def states_before(start, states, batch_sizes, reverse):
    """The states that the steps began with, of those that they ended with."""
    n, rows = batch_sizes[0], states.shape[0]
    if batch_sizes[-1] == n:
        return F.cat([states[n:], start]) if reverse else F.cat([start, states[:rows - n]])
    parts, made = F.split_with_sizes(states, batch_sizes), []
    for t, n in enumerate(batch_sizes):
        if not reverse:
            made.append((parts[t - 1] if t else start)[:n])
            continue
        later = batch_sizes[t + 1] if t + 1 < len(batch_sizes) else 0
        made += [parts[t + 1]] if later else []
        made += [start[later:n]] if later < n else []
    return F.cat(made)


@composite(method=False, function=False)
def carried(new, old):
    """The first rows of old, as many as there are, replaced."""
    n = new.shape[0]
    return new if n == old.shape[0] else F.cat([new, old[n:]])


@composite(method=False, function=False)
def steps_of(values, batch_sizes):
    """The rows of each step; None for each where there are none."""
    return [None] * len(batch_sizes) if values is None else F.split_with_sizes(values, batch_sizes)


@composite(method=False, function=False)
def quarters_of(values, batch_sizes):
    """The four parts of the rows of each step, as one tuple for each; of None where there are none."""
    if values is None:
        return [(None,) * 4] * len(batch_sizes)
    return list(zip(*[F.split_with_sizes(part, batch_sizes) for part in F.chunk(values, 4, 1)], strict=True))


@composite(method=False, function=False)
def plus(x, y):
    """x + y, where y may be None."""
    return x if y is None else x + y


# --------------------------------------------------------------------------------------------------------------------- RNN

@op(method=False, function=False, outputs=("result", "result1"), accepts_none=True)
def rnn_steps(gates, hx, weight, batch_sizes: Size, reverse: bool, relu: bool):
    """h = tanh or relu of gates[t] + h @ weight.T at each step: all h, and the last of each sequence."""
    own = gates.dtype
    gates, h, weight = _wide("rnn", gates, hx, weight)
    weight = np.ascontiguousarray(weight.T) if len(batch_sizes) >= _MANY else weight.T
    out = np.empty((len(gates), h.shape[1]), gates.dtype)
    uneven = batch_sizes[-1] != len(h)
    h = h.copy() if uneven else h
    for _, rows, n in _walk(batch_sizes, reverse):
        new = np.matmul(h[:n], weight, out=out[rows])
        new += gates[rows]
        new = np.maximum(new, 0, out=new) if relu else np.tanh(new, out=new)
        if uneven:
            h[:n] = new
        else:
            h = new
    return out.astype(own, copy=False), h.astype(own)


@rnn_steps.vjp_shared("gates", "hx", "weight")
def _rnn_gradients(needs, grad_result, grad_result1, hx, weight, result, batch_sizes, reverse, relu):
    return F.rnn_steps_backward(needs, grad_result, grad_result1, hx, weight, result, batch_sizes, reverse, relu)


@composite(method=False, function=False)
def rnn_steps_backward(needs, grad, grad_state, hx, weight, result, batch_sizes, reverse, relu):
    """The gradients of rnn_steps."""
    outs, grads = F.steps_of(result, batch_sizes), F.steps_of(grad, batch_sizes)
    carry = F.zeros_like(hx) if grad_state is None else grad_state
    made = [None] * len(batch_sizes)
    for t, _, n in reversed(_walk(batch_sizes, reverse)):
        d = F.plus(carry[:n], grads[t])
        made[t] = d = F.relu_backward(d, outs[t], 0) if relu else d * (1 - outs[t] * outs[t])
        carry = F.carried(F.mm(d, weight), carry)
    to_gates = F.cat(made)
    to_weight = F.mm(F.t(to_gates), F.states_before(hx, result, batch_sizes, reverse)) if needs[2] else None
    return to_gates, carry if needs[1] else None, to_weight


# -------------------------------------------------------------------------------------------------------------------- LSTM

@op(method=False, function=False, outputs=("result", "result1", "result2", "result3", "result4"), hidden=("result3", "result4"),
    accepts_none=True)
def lstm_steps(gates, hx, cx, weight, projection: Tensor | None, batch_sizes: Size, reverse: bool):
    """All h, the last h and c of each sequence, and, for the derivative, all gates and all c.

    With i, f, o the sigmoids and g the tanh of the parts of gates[t] + h @ weight.T, in the order i, f, g, o: c = f * c + i * g and
    h = o * tanh(c), or that @ projection.T. Reference: torch.nn.LSTM.
    """
    own, width = gates.dtype, cx.shape[1]
    gates, h, c, weight, projection = _wide("lstm", gates, hx, cx, weight, projection)
    weight = np.ascontiguousarray(weight.T) if len(batch_sizes) >= _MANY else weight.T
    out, cells, acts = (np.empty((len(gates), k), gates.dtype) for k in (h.shape[1], width, 4 * width))
    uneven = batch_sizes[-1] != len(h)
    h, c = (h.copy(), c.copy()) if uneven else (h, c)
    for _, rows, n in _walk(batch_sizes, reverse):
        a = np.matmul(h[:n], weight, out=acts[rows])
        a += gates[rows]
        g = np.tanh(a[:, 2 * width:3 * width])
        np.negative(a, out=a)
        np.exp(a, out=a)
        a += 1
        np.reciprocal(a, out=a)
        a[:, 2 * width:3 * width] = g
        new = np.multiply(a[:, width:2 * width], c[:n], out=cells[rows])
        new += np.multiply(g, a[:, :width], out=g)
        if projection is None:
            state = np.tanh(new, out=out[rows])
            state *= a[:, 3 * width:]
        else:
            state = np.matmul(np.multiply(np.tanh(new, out=g), a[:, 3 * width:], out=g), projection.T, out=out[rows])
        if uneven:
            h[:n], c[:n] = state, new
        else:
            h, c = state, new
    return out.astype(own, copy=False), h.astype(own), c.astype(own), acts.astype(own, copy=False), cells.astype(own, copy=False)


@lstm_steps.vjp_shared("gates", "hx", "cx", "weight", "projection")
def _lstm_gradients(needs, grad_result, grad_result1, grad_result2, grad_result3, grad_result4, hx, cx, weight, projection, result,
                    result3, result4, batch_sizes, reverse):
    return F.lstm_steps_backward(needs, grad_result, grad_result1, grad_result2, grad_result3, grad_result4, hx, cx, weight, projection,
                                 result, result3, result4, batch_sizes, reverse)


@composite(method=False, function=False)
def lstm_steps_backward(needs, grad, grad_state, grad_cell, grad_acts, grad_cells, hx, cx, weight, projection, result, acts, cells,
                        batch_sizes, reverse):
    """The gradients of lstm_steps."""
    tanhs, before = F.tanh(cells), F.states_before(cx, cells, batch_sizes, reverse)
    all_acts, all_tanhs, all_before = F.quarters_of(acts, batch_sizes), F.steps_of(tanhs, batch_sizes), F.steps_of(before, batch_sizes)
    to_acts, to_cells, grads = F.quarters_of(grad_acts, batch_sizes), F.steps_of(grad_cells, batch_sizes), F.steps_of(grad, batch_sizes)
    carry = F.zeros_like(hx) if grad_state is None else grad_state
    cell = F.zeros_like(cx) if grad_cell is None else grad_cell
    made, outer = [None] * len(batch_sizes), [None] * len(batch_sizes)
    for t, _, n in reversed(_walk(batch_sizes, reverse)):
        i, f, g, o = all_acts[t]
        to_i, to_f, to_g, to_o = to_acts[t]
        outer[t] = d = F.plus(carry[:n], grads[t])
        d = d if projection is None else F.mm(d, projection)
        c = F.plus(cell[:n] + d * o * (1 - all_tanhs[t] * all_tanhs[t]), to_cells[t])
        made[t] = F.cat([F.plus(c * g, to_i) * (i * (1 - i)), F.plus(c * all_before[t], to_f) * (f * (1 - f)),
                         F.plus(c * i, to_g) * (1 - g * g), F.plus(d * all_tanhs[t], to_o) * (o * (1 - o))], 1)
        carry, cell = F.carried(F.mm(made[t], weight), carry), F.carried(c * f, cell)
    to_gates = F.cat(made)
    to_weight = F.mm(F.t(to_gates), F.states_before(hx, result, batch_sizes, reverse)) if needs[3] else None
    to_projection = F.mm(F.t(F.cat(outer)), tanhs * F.chunk(acts, 4, 1)[3]) if needs[4] else None
    return to_gates, carry if needs[1] else None, cell if needs[2] else None, to_weight, to_projection


# --------------------------------------------------------------------------------------------------------------------- GRU

@op(method=False, function=False, outputs=("result", "result1", "result2"), hidden=("result2",), accepts_none=True)
def gru_steps(gates, hx, weight, bias: Tensor | None, batch_sizes: Size, reverse: bool):
    """All h, the last h of each sequence, and, for the derivative, r, z, n and what r is multiplied by, for all steps.

    With x and y the parts of gates[t] and h @ weight.T + bias, in the order r, z, n: r and z are the sigmoids of x + y, n is
    tanh(x + r * y) and h = (1 - z) * n + z * h. Reference: torch.nn.GRU.
    """
    own, width = gates.dtype, hx.shape[1]
    gates, h, weight, bias = _wide("gru", gates, hx, weight, bias)
    weight = np.ascontiguousarray(weight.T) if len(batch_sizes) >= _MANY else weight.T
    out, acts = (np.empty((len(gates), k), gates.dtype) for k in (width, 4 * width))
    uneven = batch_sizes[-1] != len(h)
    h = h.copy() if uneven else h
    for _, rows, n in _walk(batch_sizes, reverse):
        y, a, x = h[:n] @ weight, acts[rows], gates[rows]
        y = y if bias is None else np.add(y, bias, out=y)
        q = a[:, 3 * width:] = y[:, 2 * width:]
        s = np.add(x[:, :2 * width], y[:, :2 * width], out=a[:, :2 * width])
        np.negative(s, out=s)
        np.exp(s, out=s)
        s += 1
        np.reciprocal(s, out=s)
        q *= s[:, :width]
        q += x[:, 2 * width:]
        new = np.tanh(q, out=a[:, 2 * width:3 * width])
        state = np.subtract(h[:n], new, out=out[rows])
        state *= s[:, width:]
        state += new
        if uneven:
            h[:n] = state
        else:
            h = state
    return out.astype(own, copy=False), h.astype(own), acts.astype(own, copy=False)


@gru_steps.vjp_shared("gates", "hx", "weight", "bias")
def _gru_gradients(needs, grad_result, grad_result1, grad_result2, hx, weight, result, result2, batch_sizes, reverse):
    return F.gru_steps_backward(needs, grad_result, grad_result1, grad_result2, hx, weight, result, result2, batch_sizes, reverse)


@composite(method=False, function=False)
def gru_steps_backward(needs, grad, grad_state, grad_acts, hx, weight, result, acts, batch_sizes, reverse):
    """The gradients of gru_steps."""
    before, all_acts = F.states_before(hx, result, batch_sizes, reverse), F.quarters_of(acts, batch_sizes)
    all_before, to_acts, grads = F.steps_of(before, batch_sizes), F.quarters_of(grad_acts, batch_sizes), F.steps_of(grad, batch_sizes)
    carry = F.zeros_like(hx) if grad_state is None else grad_state
    inner, outer = [None] * len(batch_sizes), [None] * len(batch_sizes)
    for t, _, n in reversed(_walk(batch_sizes, reverse)):
        r, z, new, q = all_acts[t]
        to_r, to_z, to_new, to_q = to_acts[t]
        d = F.plus(carry[:n], grads[t])
        x = F.plus(d * (1 - z), to_new) * (1 - new * new)
        rz = [F.plus(x * q, to_r) * (r * (1 - r)), F.plus(d * (all_before[t] - new), to_z) * (z * (1 - z))]
        inner[t], outer[t] = F.cat([*rz, F.plus(x * r, to_q)], 1), F.cat([*rz, x], 1)
        carry = F.carried(F.mm(inner[t], weight) + d * z, carry)
    inner = F.cat(inner)
    return (F.cat(outer) if needs[0] else None, carry if needs[1] else None, F.mm(F.t(inner), before) if needs[2] else None,
            F.sum(inner, (0,)) if needs[3] else None)


# -------------------------------------------------------------------------------------------------------- packed sequences

@op(node="PackPaddedSequenceBackward0", method=False, function=False, linear=True)
def packed_rows(self, indices):
    """The rows of a tensor at indices, each of which is there once at most."""
    return self[indices]

packed_rows.vjp(self=lambda grad, indices, self_shape: F.padded_rows(grad, indices, self_shape, 0))


@op(method=False, function=False)
def padded_rows(self, indices, size: Size, value: Number):
    """A tensor of a size with given rows at indices, and a number elsewhere."""
    out = np.full(size, value, self.dtype)
    out[indices] = self
    return out

padded_rows.vjp(self=lambda grad, indices: F.packed_rows(grad, indices))
