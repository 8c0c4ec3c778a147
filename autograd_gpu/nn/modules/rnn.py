"""Recurrent layers and their cells. All time steps of a layer are one op (ops/recurrent.py); the input's product is one for all steps."""
from __future__ import annotations

import itertools
import math
import numbers
import warnings
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn import functional as F
from autograd_gpu.nn import init
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.nn.parameter import Parameter
from autograd_gpu.nn.utils.rnn import PackedSequence
from autograd_gpu.ops.creation import empty, zeros
from autograd_gpu.ops.namespace import OPS

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _drawn(module, hidden_size):
    """Draw all parameters of a module evenly from +-1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


def _in_order(states, indices):
    """States with the sequences of a batch in another order, or as they are."""
    return states if indices is None else [t.index_select(1, indices) for t in states]


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common. mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".

    Raises: TypeError or ValueError for options that cannot be. Reference: torch.nn.RNNBase.
    """

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        self._check_options(dropout)
        self._all_weights: list[list[str]] = []
        out_size, directions = proj_size or hidden_size, 2 if bidirectional else 1
        for layer in range(num_layers):
            width = input_size if layer == 0 else out_size * directions
            rows = GATES[mode] * hidden_size
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out_size)}
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                names = {f"{kind}_l{layer}{suffix}": shape for kind, shape in shapes.items()}
                for name, shape in names.items():
                    setattr(self, name, Parameter(empty(*shape, device=device, dtype=dtype)))
                self._all_weights.append(list(names))
        self.reset_parameters()

    def _check_options(self, dropout: Any) -> None:
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout should be a number in range [0, 1] representing the probability of an element being zeroed, got "
                             f"{dropout!r}")
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn(f"dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater "
                          f"than 1, but got dropout={dropout} and num_layers={self.num_layers}", stacklevel=4)
        for name, kind in (("hidden_size", int), ("bias", bool), ("batch_first", bool)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(getattr(self, name)).__name__}")
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero, got {getattr(self, name)}")
        if self.proj_size < 0:
            raise ValueError(f"proj_size should be a positive integer or zero to disable projections, got {self.proj_size}")
        if self.proj_size >= self.hidden_size:
            raise ValueError(f"proj_size has to be smaller than hidden_size, got {self.proj_size} and {self.hidden_size}")
        if self.mode not in GATES:
            raise ValueError(f"Unrecognized RNN mode: {self.mode}: it is one of {', '.join(GATES)}")

    def reset_parameters(self) -> None:
        """Draw all parameters evenly from +-1 / sqrt(hidden_size)."""
        _drawn(self, self.hidden_size)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: for programs that call it."""

    def extra_repr(self) -> str:
        shown = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        others = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([str(self.input_size), str(self.hidden_size), *others])

    # ---------------------------------------------------------------------------------------------------------- running

    def _step_states(self, hx):
        """The states given to forward, as a list. Of h here, of h and c in LSTM."""
        return [hx]

    def _widths(self):
        """The width of each kind of state."""
        return [self.hidden_size]

    def _layer(self, gates, states, names, batch_sizes, reverse):
        """A direction of a layer: (all h, the last states as a list)."""
        raise NotImplementedError

    def _run(self, input, hx):
        """(what forward gives, the last states as a list)."""
        packed = isinstance(input, PackedSequence)
        data, name = input.data if packed else input, type(self).__name__
        if not packed and data.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {data.dim()}D instead")
        batched = packed or data.dim() == 3
        states = None if hx is None else self._step_states(hx)
        if states is not None and not packed:
            self._check_dims(states, batched)
        self._check_data(name, data, packed)
        if packed:
            batch_sizes = tuple(input.batch_sizes.tolist())
            n = batch_sizes[0]
            if sum(batch_sizes) != len(data) or any([later > sooner for sooner, later in itertools.pairwise(batch_sizes)]):
                raise RuntimeError(f"{name}: the batch_sizes of a PackedSequence must not increase, and must sum up to its {len(data)} "
                                   f"rows, got {list(batch_sizes)}: make it by pack_padded_sequence")
        else:
            turned = data.transpose(0, 1) if batched and self.batch_first else data
            length, n = turned.shape[0], turned.shape[1] if batched else 1
            batch_sizes = (n,) * length
            data = turned.reshape(length * n, self.input_size)
        count = len(self._all_weights)
        if states is None:
            given = [[zeros(n, width, dtype=data.dtype, device=data.device)] * count for width in self._widths()]
        else:
            states = states if batched else [t.unsqueeze(1) for t in states]
            self._check_states(states, n, data)
            given = [t.unbind(0) for t in _in_order(states, input.sorted_indices if packed else None)]
        if not batch_sizes:
            raise RuntimeError(f"{name}: Expected sequence length to be larger than 0 in RNN, got an input of {tuple(input.shape)}")
        data, last = self._layers(data, given, batch_sizes)
        if packed:
            return PackedSequence(data, *input[1:]), _in_order(last, input.unsorted_indices)
        if not batched:
            return data, [t.squeeze(1) for t in last]
        out = data.reshape(length, n, data.shape[1])
        return out.transpose(0, 1) if self.batch_first else out, last

    def _layers(self, data, states, batch_sizes):
        """All layers, on the rows of all time steps: (all h of the last layer, the last states of all)."""
        directions = 2 if self.bidirectional else 1
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(self.num_layers):
            outs = []
            for k in range(layer * directions, (layer + 1) * directions):
                out, ends = self._layer(data, [t[k] for t in states], self._all_weights[k], batch_sizes, k % directions == 1)
                outs.append(out)
                for found, end in zip(last, ends, strict=True):
                    found.append(end)
            data = outs[0] if directions == 1 else OPS.cat(outs, 1)
            if self.dropout and layer + 1 < self.num_layers:
                data = F.dropout(data, self.dropout, self.training)
        data = data.clone() if directions == 1 else data         # what the steps have saved nobody is to write to
        return data, [OPS.stack(ends) if len(ends) > 1 else ends[0].unsqueeze(0) for ends in last]

    def _gates(self, data, names, joined):
        """What the input adds to the gates: one product for all time steps. joined: with both biases."""
        weight = getattr(self, names[0])
        if not self.bias:
            return F.linear(data, weight)
        return F.linear(data, weight, getattr(self, names[2]) + getattr(self, names[3]) if joined else getattr(self, names[2]))

    # --------------------------------------------------------------------------------------------------------- checking

    def _check_dims(self, states, batched):
        """Raises RuntimeError unless given states have a dimension for the batch if the input has one."""
        wanted, found = 3 if batched else 2, [t.dim() for t in states]
        if found != [wanted] * len(found):
            what = "hx" if len(found) == 1 else "hx and cx"
            shown = f"{found[0]}-D tensor" if len(found) == 1 else f"({found[0]}-D, {found[1]}-D) tensors"
            raise RuntimeError(f"{type(self).__name__}: For {'' if batched else 'un'}batched {wanted}-D input, {what} should also be "
                               f"{wanted}-D but got {shown}")

    def _check_data(self, name, data, packed):
        dtype = getattr(self, self._all_weights[0][0]).dtype
        if data.dtype != dtype:
            raise ValueError(f"{name}: RNN input dtype ({data.dtype}) does not match weight dtype ({dtype}). Convert input: "
                             f"input.to({dtype}), or convert model: model.to({data.dtype})")
        if packed and data.dim() != 2:
            raise RuntimeError(f"{name}: the data of a PackedSequence must have 2 dimensions, got {data.dim()}")
        if data.shape[-1] != self.input_size:
            raise RuntimeError(f"{name}: input.size(-1) must be equal to input_size. Expected {self.input_size}, got {data.shape[-1]}")

    def _check_states(self, states, n, data):
        """Raises RuntimeError unless given states are of the sizes and the dtype that they have to be."""
        for i, (t, width) in enumerate(zip(states, self._widths(), strict=True)):
            wanted = len(self._all_weights), n, width
            if tuple(t.shape) != wanted:
                raise RuntimeError(f"{type(self).__name__}: Expected hidden{f'[{i}]' if len(states) > 1 else ''} size {wanted}, got "
                                   f"{list(t.shape)}")
            if t.dtype != data.dtype:
                raise RuntimeError(f"{type(self).__name__}: input and hidden state must have the same dtype, but got {data.dtype} and "
                                   f"{t.dtype}")


def _only_in_lstm(proj_size):
    if proj_size is not None:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh) at each time step, or relu by `nonlinearity`, in num_layers layers.

    `batch_first`: input and output are (batch, length, *). `dropout`: of what each layer but the last gives. `bidirectional`: a second
    one goes from the end of the sequence to its beginning; both results lie side by side.
    Raises: TypeError or ValueError for options that cannot be. Reference: torch.nn.RNN.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int | None = None,
                 device: Any = None, dtype: Any = None):
        _only_in_lstm(proj_size)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(h of the last layer at all time steps, the last h of each layer and direction).

        Shape: (length, batch, input_size) -> (length, batch, directions * hidden_size) and (num_layers * directions, batch, hidden_size),
        as hx is, zeros by default; without the batch for an input without it. Of a PackedSequence a PackedSequence.
        Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes.
        """
        out, last = self._run(input, hx)
        return out, last[0]

    def _layer(self, gates, states, names, batch_sizes, reverse):
        out, last = OPS.rnn_steps(self._gates(gates, names, True), states[0], getattr(self, names[1]), batch_sizes, reverse,
                                  self.mode == "RNN_RELU")
        return out, [last]


class LSTM(RNNBase):
    """c = f * c + i * g and h = o * tanh(c) at each time step, in num_layers layers.

    i, f, g, o are the parts of W_ih x + b_ih + W_hh h + b_hh, after sigmoid, sigmoid, tanh, sigmoid. `proj_size`: h is W_hr (o * tanh(c))
    of that size. Other options as in RNN.
    Raises: TypeError or ValueError for options that cannot be. Reference: torch.nn.LSTM; Hochreiter, Schmidhuber 1997; Sak et al. 2014.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)

    def forward(self, input: Tensor | PackedSequence,
                hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """(h of the last layer at all time steps, (the last h, the last c) of each layer and direction).

        Shape: as in RNN; hx is (h, c), and where there is proj_size, h is of that size.
        Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes, TypeError or IndexError for hx that is no pair.
        """
        out, (h, c) = self._run(input, hx)
        return out, (h, c)

    def _step_states(self, hx):
        if isinstance(hx, Tensor):           # PyTorch takes its parts, where there are two
            kind = TypeError if hx.dim() and len(hx) > 1 else IndexError
            raise kind(f"LSTM: hx must be a tuple of two Tensors (h_0, c_0), got one Tensor of shape {tuple(hx.shape)}")
        return [hx[0], hx[1]]

    def _widths(self):
        return [self.proj_size or self.hidden_size, self.hidden_size]

    def _layer(self, gates, states, names, batch_sizes, reverse):
        out, h, c = OPS.lstm_steps(self._gates(gates, names, True), *states, getattr(self, names[1]),
                                   getattr(self, names[-1]) if self.proj_size else None, batch_sizes, reverse)
        return out, [h, c]


class GRU(RNNBase):
    """h = (1 - z) * n + z * h at each time step, in num_layers layers.

    r and z are sigmoids of parts of W_ih x + b_ih + W_hh h + b_hh, n is tanh of the last part, in which what h gives is multiplied by r.
    Options as in RNN.
    Raises: TypeError or ValueError for options that cannot be. Reference: torch.nn.GRU; Cho et al. 2014.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int | None = None, device: Any = None, dtype: Any = None):
        _only_in_lstm(proj_size)
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(h of the last layer at all time steps, the last h of each layer and direction).

        Shape: as in RNN. Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes.
        """
        out, last = self._run(input, hx)
        return out, last[0]

    def _layer(self, gates, states, names, batch_sizes, reverse):
        out, last = OPS.gru_steps(self._gates(gates, names, False), states[0], getattr(self, names[1]),
                                  getattr(self, names[3]) if self.bias else None, batch_sizes, reverse)
        return out, [last]


# ------------------------------------------------------------------------------------------------------------------- cells

class RNNCellBase(Module):
    """What the cells have in common: one time step of one layer. Reference: torch.nn.RNNCellBase."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size

        def new(*shape):
            return Parameter(empty(*shape, device=device, dtype=dtype))

        self.weight_ih, self.weight_hh = new(rows, input_size), new(rows, hidden_size)
        self.register_parameter("bias_ih", new(rows) if bias else None)
        self.register_parameter("bias_hh", new(rows) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters evenly from +-1 / sqrt(hidden_size)."""
        _drawn(self, self.hidden_size)

    def extra_repr(self) -> str:
        shown = {"bias": True, "nonlinearity": "tanh"}
        others = [f"{name}={value}" for name, default in shown.items() if (value := self.__dict__.get(name, default)) != default]
        return ", ".join([str(self.input_size), str(self.hidden_size), *others])

    def _prepared(self, input, states, names):
        """Input and states with a batch, zeros for states that are None. Raises ValueError or RuntimeError for dimensions and sizes."""
        name = type(self).__name__
        for what, t in (("input", input), *zip(names, states, strict=True)):
            if t is not None and t.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {t.dim()}D instead")
        if input.dim() == 1:
            input, *states = (t if t is None else t.unsqueeze(0) for t in (input, *states))
        n, width = input.shape
        if width != self.input_size:
            raise RuntimeError(f"{name}: input has inconsistent input_size: got {width} expected {self.input_size}")
        for i, t in enumerate(states):
            if t is not None and t.shape[-1] != self.hidden_size:
                raise RuntimeError(f"{name}: hidden{i} has inconsistent hidden_size: got {t.shape[-1]}, expected {self.hidden_size}")
            if t is not None and tuple(t.shape) != (n, self.hidden_size):
                raise RuntimeError(f"{name}: Input batch size {n} doesn't match hidden{i} batch size {t.shape[0]}: hidden{i} has to be "
                                   f"{(n, self.hidden_size)}, got {tuple(t.shape)}")
            if t is not None and t.dtype != input.dtype:
                raise RuntimeError(f"{name}: input and hidden state must have the same dtype, but got {input.dtype} and {t.dtype}")
        return input, [zeros(n, self.hidden_size, dtype=input.dtype, device=input.device) if t is None else t for t in states]

    def _gates(self, input, joined):
        """What the input adds to the gates. joined: with both biases."""
        bias = self.bias_ih if self.bias_hh is None or self.bias_ih is None or not joined else self.bias_ih + self.bias_hh
        return F.linear(input, self.weight_ih, bias)


class RNNCell(RNNCellBase):
    """tanh(W_ih x + b_ih + W_hh h + b_hh), or relu by `nonlinearity`. Reference: torch.nn.RNNCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
                 dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size), (batch, hidden_size) -> (batch, hidden_size), hx zeros by default; or all without the batch.

        Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes, RuntimeError for an unknown nonlinearity.
        """
        x, (h,) = self._prepared(input, [hx], ["hidden"])
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"RNNCell: Unknown nonlinearity: {self.nonlinearity}: it is \"tanh\" or \"relu\"")
        _, h = OPS.rnn_steps(self._gates(x, True), h, self.weight_hh, (x.shape[0],), False, self.nonlinearity == "relu")
        return h if input.dim() == 2 else h.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c). Reference: torch.nn.LSTMCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(batch, input_size), ((batch, hidden_size), the same) -> as hx is, zeros by default; or all without the batch.

        Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes, TypeError for one Tensor as hx.
        """
        if isinstance(hx, Tensor):
            raise TypeError(f"LSTMCell: hx must be tuple of Tensors (h, c), got one Tensor of shape {tuple(hx.shape)}")
        if hx is not None and len(hx) != 2:
            raise RuntimeError(f"LSTMCell: expects two hidden states (h, c), got {len(hx)}")
        x, states = self._prepared(input, [None, None] if hx is None else list(hx), ["hx[0]", "hx[1]"])
        _, h, c = OPS.lstm_steps(self._gates(x, True), *states, self.weight_hh, None, (x.shape[0],), False)
        return (h, c) if input.dim() == 2 else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of a GRU. Reference: torch.nn.GRUCell."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size), (batch, hidden_size) -> (batch, hidden_size), hx zeros by default; or all without the batch.

        Raises: ValueError or RuntimeError for other dimensions, sizes or dtypes.
        """
        x, (h,) = self._prepared(input, [hx], ["hidden"])
        _, h = OPS.gru_steps(self._gates(x, False), h, self.weight_hh, self.bias_hh, (x.shape[0],), False)
        return h if input.dim() == 2 else h.squeeze(0)
