"""Recurrent layers and cells, packed and padded sequences: outputs, gradients of two orders, states, errors, all as in PyTorch."""
import functools
import inspect
import itertools
import pickle
import sys
import warnings

import numpy as np
import pytest

import autograd_gpu
from autograd_gpu.autograd import gradcheck, gradgradcheck
from autograd_gpu.ops.namespace import OPS, REGISTRY
from tests.parity import data, result, said

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns or raises is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


# ---------------------------------------------------------------------------------------------------- every option, beside PyTorch

KINDS = {"LSTM": [{}, {"proj_size": 2}], "GRU": [{}], "RNN": [{}, {"nonlinearity": "relu"}]}
OPTIONS = [(kind, {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both, **more}, form)
           for kind, more_of in KINDS.items() for more in more_of for form in ("batched", "unbatched", "packed")
           for layers, bias, first, both in itertools.product((1, 2), (True, False), (True, False), (True, False))]
OPTIONS += [(kind, {"bidirectional": True}, form) for kind in KINDS for form in ("packed evenly", "packed, sorted")]
LENGTHS = {"packed": [2, 5, 5, 1], "packed evenly": [3, 3, 3], "packed, sorted": [4, 3, 1]}


def copied(ours, theirs):
    """Our module with the state of PyTorch's, which goes over as NumPy arrays."""
    ours.load_state_dict({name: autograd_gpu.tensor(t.numpy()) for name, t in theirs.state_dict().items()})
    return ours


def second_order(torch, module, form, given):
    """A layer's outputs and last states, the gradients of the input, hx and the parameters, and those of the gradients' squares."""
    rs, first, width = np.random.RandomState(1), module.batch_first, module.proj_size or 4
    n, steps = (len(LENGTHS[form]), max(LENGTHS[form])) if form in LENGTHS else (2, 5)
    shape = (steps, 3) if form == "unbatched" else (n, steps, 3) if first else (steps, n, 3)
    x = torch.tensor(rs.randn(*shape), requires_grad=True)
    count = module.num_layers * (2 if module.bidirectional else 1)
    states = [torch.tensor(rs.randn(count, *(() if form == "unbatched" else (n,)), k), requires_grad=True) for k in (width, 4)]
    states = states[:2 if module.mode == "LSTM" else 1] if given else []
    input = x
    if form in LENGTHS:
        input = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS[form], first, enforce_sorted=form != "packed")
    out, last = module(input, *([tuple(states) if module.mode == "LSTM" else states[0]] if states else []))
    if form in LENGTHS:
        assert isinstance(out, torch.nn.utils.rnn.PackedSequence) and out.batch_sizes is input.batch_sizes
        out, lengths = torch.nn.utils.rnn.pad_packed_sequence(out, first)
        assert lengths.tolist() == LENGTHS[form]
    last = list(last) if module.mode == "LSTM" else [last]
    loss = (out * out).sum() + sum((t ** 3).sum() for t in last)
    inputs = [x, *states, *module.parameters()]
    grads = torch.autograd.grad(loss, inputs, create_graph=True)
    return [out, *last, *grads, *torch.autograd.grad(sum((g * g).sum() for g in grads), inputs)]


@pytest.mark.parametrize("kind, options, form", OPTIONS, ids=lambda x: x if isinstance(x, str) else " ".join(map(str, x.values())))
def test_layers(kind, options, form, oracle):
    theirs = getattr(oracle.nn, kind)(3, 4, **options, dtype=oracle.float64)
    ours = copied(getattr(autograd_gpu.nn, kind)(3, 4, **options, dtype=autograd_gpu.float64), theirs)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()] and repr(ours) == repr(theirs)
    assert [[tuple(p.shape) for p in own] for own in ours.all_weights] == [[tuple(p.shape) for p in own] for own in theirs.all_weights]
    for given in (True, False) if ours.num_layers == 1 else (True,):
        with oracle.backends.mkldnn.flags(enabled=False):
            expected = second_order(oracle, theirs, form, given)
        for a, b in zip(second_order(autograd_gpu, ours, form, given), expected, strict=True):
            assert a.shape == b.shape and str(a.dtype) == str(b.dtype)
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9 * float(b.detach().abs().max()))


@pytest.mark.parametrize("text", ["RNN(3, 4)", "LSTM(3, 4, 2, bidirectional=True, proj_size=2)", "GRU(3, 4, 2, bias=False)",
                                  "LSTMCell(3, 4)", "GRUCell(3, 4)", "RNNCell(3, 4, nonlinearity='relu')"])
def test_a_state_goes_back_to_pytorch(text, oracle, close):
    ours, theirs = (eval(f"nn.{text}", {"nn": torch.nn}) for torch in (autograd_gpu, oracle))
    theirs.load_state_dict({name: oracle.tensor(t.numpy()) for name, t in ours.state_dict().items()})
    for torch, module in ((autograd_gpu, ours), (oracle, theirs)):
        out = module(data(torch, 5, 3))
        module.out = (out[0] if isinstance(out, tuple) else out).detach()
    close(ours.out, theirs.out)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind, dtype, oracle):
    if not hasattr(autograd_gpu, dtype):
        pytest.skip("ml_dtypes is not installed")
    found = []
    for torch in (oracle, autograd_gpu):
        module = getattr(torch.nn, kind)(3, 4, 2, bidirectional=True)
        rs = np.random.RandomState(0)
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(torch.tensor(rs.uniform(-0.5, 0.5, tuple(p.shape)).astype("float32")))
        module = module.to(getattr(torch, dtype))
        x = data(torch, 5, 2, 3).detach().to(getattr(torch, dtype)).requires_grad_()
        out, _ = module(x)
        out.sum().backward()
        assert out.dtype == x.grad.dtype == module.weight_hh_l1_reverse.grad.dtype == getattr(torch, dtype)
        found.append([t.detach().float().numpy() for t in (out, x.grad, *(p.grad for p in module.parameters()))])
    step = 2.0 ** (-10 if dtype == "float16" else -7)          # PyTorch rounds at each operation
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=4 * step, atol=4 * step * np.abs(theirs).max())


# ------------------------------------------------------------------------------------------------------------- the ops alone

def _operand(*shape):
    return autograd_gpu.tensor(np.random.RandomState(sum(shape)).randn(*shape) * 0.7, requires_grad=True)


STEPS = {"rnn": (lambda *a: OPS.rnn_steps(*a, False), [(2,), (2,), (2, 2)]),
         "relu": (lambda *a: OPS.rnn_steps(*a, True), [(2,), (2,), (2, 2)]),
         "lstm": (lambda g, h, c, w, *a: OPS.lstm_steps(g, h, c, w, None, *a), [(8,), (2,), (2,), (8, 2)]),
         "projected": (OPS.lstm_steps, [(8,), (1,), (2,), (8, 1), (1, 2)]), "gru": (OPS.gru_steps, [(6,), (2,), (6, 2), (6,)]),
         "gru without bias": (lambda g, h, w, *a: OPS.gru_steps(g, h, w, None, *a), [(6,), (2,), (6, 2)])}


@pytest.mark.parametrize("batch_sizes, reverse", [((1, 1), False), ((1, 1), True), ((2, 1), False), ((2, 1), True)])
@pytest.mark.parametrize("name", STEPS)
def test_derivatives_of_the_steps_backward_and_forward(name, batch_sizes, reverse):
    function, shapes = STEPS[name]
    rows = iter([sum(batch_sizes)] + [batch_sizes[0]] * 2)
    operands = [_operand(next(rows), *shape) if len(shape) == 1 and i < 3 else _operand(*shape) for i, shape in enumerate(shapes)]

    def run(*tensors):
        return function(*tensors, batch_sizes, reverse)
    assert gradcheck(run, operands, check_forward_ad=True)
    assert gradgradcheck(run, operands, check_fwd_over_rev=True)


def test_every_op_runs():
    """No user calls these ops by itself: tests/test_ops.py, which calls all that users do, leaves them to this file."""
    running = set()

    def profile(frame, event, _):
        if event == "call":
            running.add(frame.f_code)

    sys.setprofile(profile)
    try:
        for kind, form in itertools.product(KINDS, ("batched", "packed")):
            second_order(autograd_gpu, getattr(autograd_gpu.nn, kind)(3, 4, dtype=autograd_gpu.float64), form, True)
    finally:
        sys.setprofile(None)
    ours = [r for r in REGISTRY.values() if r.body.__module__ == "autograd_gpu.ops.recurrent"]
    assert len(ours) > 10 and [r.name for r in ours if r.body.__code__ not in running] == []


def test_what_is_not_wanted_is_not_computed():
    lstm, x = autograd_gpu.nn.LSTM(2, 3), _operand(4, 1, 2).detach().float()
    lstm.weight_hh_l0.requires_grad_(False)
    out, (h, c) = lstm(x)
    (c.sum() + out.sum() * 0).backward()                  # no gradient of h
    assert lstm.weight_hh_l0.grad is None and lstm.weight_ih_l0.grad.abs().sum() > 0
    x.requires_grad_()
    out, (h, c) = lstm(x)
    assert autograd_gpu.autograd.grad(c.sum(), [x])[0].shape == x.shape


def test_results_may_be_written_to(oracle, close):
    def run(torch, module):
        x, found = torch.tensor(np.random.RandomState(0).randn(5, 2, 3), requires_grad=True), []
        for k in (0, 1):
            outs = module(x) if hasattr(module, "num_layers") else module(x[0])
            outs = [outs] if hasattr(outs, "shape") else [outs[0], *outs[1]] if isinstance(outs[1], tuple) else outs
            outs[k % len(outs)].mul_(3)
            found += [*outs, *torch.autograd.grad(sum((t * t).sum() for t in outs), [x, *module.parameters()])]
        return found
    for kind, more in itertools.product(KINDS, ("(3, 4)", "(3, 4, 2)", "(3, 4, bidirectional=True)", "Cell(3, 4)")):
        if kind + more == "RNNCell(3, 4)":               # PyTorch's result is what it saved
            continue
        theirs, ours = (eval("nn." + kind + more, {"nn": torch.nn}).double() for torch in (oracle, autograd_gpu))
        for a, b in zip(run(autograd_gpu, copied(ours, theirs)), run(oracle, theirs), strict=True):
            close(a, b)


def test_numbers_that_are_not_finite():
    lstm = autograd_gpu.nn.LSTM(1, 1, bias=False)
    with autograd_gpu.no_grad():
        for p in lstm.parameters():
            p.fill_(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out, (h, c) = lstm(autograd_gpu.tensor([[[-1e4]], [[1e4]], [[float("nan")]]]))
    assert out.tolist()[:2] == [[[0.0]], [[np.float32(np.tanh(1)).item()]]] and np.isnan(out.tolist()[2][0][0])


# --------------------------------------------------------------------------------------------------------------------- cells

@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("text", ["LSTMCell(3, 4, {})", "GRUCell(3, 4, {})", "RNNCell(3, 4, {})", "RNNCell(3, 4, {}, 'relu')"])
def test_cells(text, bias, oracle, close):
    def run(torch, cell, shape, given):
        x = torch.tensor(np.random.RandomState(0).randn(*shape, 3), requires_grad=True)
        states = [torch.tensor(np.random.RandomState(k).randn(*shape, 4), requires_grad=True) for k in (1, 2)]
        states = states[:2 if "LSTM" in text else 1] if given else []
        out = cell(x, *([tuple(states) if "LSTM" in text else states[0]] if given else []))
        out = cell(x, out)
        outs = list(out) if "LSTM" in text else [out]
        inputs = [x, *states, *cell.parameters()]
        grads = torch.autograd.grad(sum((t ** 3).sum() for t in outs), inputs, create_graph=True)
        return [*outs, *grads, *torch.autograd.grad(sum((g * g).sum() for g in grads), inputs)]

    theirs, ours = (eval("nn." + text.format(bias), {"nn": torch.nn}).double() for torch in (oracle, autograd_gpu))
    copied(ours, theirs)
    assert repr(ours) == repr(theirs)
    for shape, given in itertools.product([(2,), (), (0,)], [True, False]):
        for a, b in zip(run(autograd_gpu, ours, shape, given), run(oracle, theirs, shape, given), strict=True):
            close(a, b)


def test_a_cell_step_by_step_gives_what_the_layer_does(close):
    for kind in KINDS:
        layer = getattr(autograd_gpu.nn, kind)(3, 4)
        cell = getattr(autograd_gpu.nn, kind + "Cell")(3, 4)
        cell.load_state_dict({name.removesuffix("_l0"): t for name, t in layer.state_dict().items()})
        x, state, found = _operand(6, 2, 3).float(), None, []
        for step in x:
            state = cell(step, state)
            found.append(state[0] if kind == "LSTM" else state)
        close(autograd_gpu.stack(found), layer(x)[0])


# ------------------------------------------------------------------------------------------------- sequences padded and packed

def shown(x):
    """What a program gave, PackedSequences part by part, and which of it has a history."""
    if isinstance(x, tuple) and hasattr(x, "batch_sizes"):
        return ["packed", *[shown(t) for t in x]]
    if hasattr(x, "detach"):
        return x.tolist(), tuple(x.shape), str(x.dtype), x.requires_grad
    return [shown(y) for y in x] if isinstance(x, (tuple, list)) else x


def rows(torch, *lengths, rest=(2,), start=0):
    count = sum(lengths) * int(np.prod(rest))
    values = torch.arange(start, start + count).float().view(sum(lengths), *rest)
    return [t.clone().requires_grad_() for t in values.split(list(lengths))]


@program
def packing(torch):
    rnn, found = torch.nn.utils.rnn, []
    for first, rest, lengths in itertools.product((False, True), ((2,), (), (2, 3)), ([5, 3, 3, 1], [2, 5, 3, 5], [1, 1, 1, 1])):
        x = torch.arange(4 * 5 * int(np.prod(rest))).float().view(*((4, 5) if first else (5, 4)), *rest).requires_grad_()
        for given in (lengths, torch.tensor(lengths), tuple(lengths)):
            packed = rnn.pack_padded_sequence(x, given, first, enforce_sorted=False)
        found += [packed, rnn.pad_packed_sequence(packed, first), rnn.pad_packed_sequence(packed, not first, -1.5, 6)]
        (padded, _), factors = rnn.pad_packed_sequence(packed, first), torch.arange(float(packed.data.numel())).view(packed.data.shape)
        grad, = torch.autograd.grad((packed.data * packed.data * factors).sum() + (padded * padded).sum(), x, create_graph=True)
        second, = torch.autograd.grad((grad * grad).sum(), x)
        found += [grad, second, rnn.unpack_sequence(packed)]
    return found


@program
def sorted_packing(torch):
    rnn, x = torch.nn.utils.rnn, rows(torch, 4, 3, 3)
    packed = rnn.pack_sequence(x)
    other = rnn.PackedSequence(packed.data, packed.batch_sizes, None, torch.tensor([2, 0, 1]))
    return packed, packed.sorted_indices, rnn.pad_packed_sequence(packed, True), rnn.pad_packed_sequence(other), rnn.unpack_sequence(other)


@program
def padding(torch):
    rnn, found = torch.nn.utils.rnn, []
    for first, side, rest in itertools.product((False, True), ("left", "right"), ((2,), (), (2, 2))):
        x = rows(torch, 3, 1, 4, rest=rest)
        out = rnn.pad_sequence(x, first, 0.5, side)
        grads = torch.autograd.grad((out ** 3).sum(), x, create_graph=True)
        found += [out, grads, torch.autograd.grad(sum((g * g).sum() for g in grads), x)]
        found += [rnn.unpad_sequence(rnn.pad_sequence(x, first), torch.tensor([3, 1, 4]), first)]
    numbers = [torch.tensor([1, 2]), torch.tensor([3])]
    return found, rnn.pad_sequence(numbers, padding_value=1.7), rnn.pad_sequence(torch.ones(2, 3)), rnn.pad_sequence(t for t in numbers), \
        rnn.pad_sequence([torch.ones(2), torch.ones(1).double()])


@program
def packed_sequence_objects(torch):
    rnn = torch.nn.utils.rnn
    packed = rnn.pack_sequence(rows(torch, 1, 3), enforce_sorted=False)
    made = rnn.PackedSequence(torch.ones(4, 2), torch.tensor([3, 1]), torch.tensor([2, 0, 1]))
    kinds = [getattr(packed, name)() for name in ("double", "float", "half", "long", "int", "short", "char", "byte")]
    again = pickle.loads(pickle.dumps(made))
    data, batch_sizes, sorted_indices, unsorted_indices = packed
    return packed, made, rnn.PackedSequence((torch.ones(4, 2), torch.tensor([3, 1]))), kinds, again, type(again).__name__, packed._fields, \
        packed.is_cuda, packed.to("cpu") is packed, packed.cpu() is packed, packed.to(torch.float64), repr(made), len(packed), \
        rnn.invert_permutation(torch.tensor([2, 0, 1])), rnn.invert_permutation(None), isinstance(packed, tuple), batch_sizes


@program
def packing_errors(torch):
    rnn, x = torch.nn.utils.rnn, torch.ones(5, 3, 2)
    pack, pad = rnn.pack_padded_sequence, rnn.pad_sequence
    sorted_words = "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True", "enforce_sorted=False"
    return [said(lambda: pack(x, [2, 5, 3]), *sorted_words), said(lambda: rnn.pack_sequence(rows(torch, 2, 3)), *sorted_words),
            said(lambda: pack(x, [5, 3, 0]), "Length of all samples has to be greater than 0"),
            said(lambda: pack(x, [5, 3]), "Expected `len(lengths)` to be equal to batch_size, but got 2 (batch_size=3)"),
            said(lambda: pack(x, [[5, 3, 1]]), "'lengths' argument should be a 1D CPU int64 tensor"),
            said(lambda: pack(x, torch.tensor([[5, 3, 1]])), "'lengths' argument should be a 1D CPU int64 tensor"),
            said(lambda: pack(torch.ones(5, 0, 2), torch.tensor([], dtype=torch.int64)), "Cannot pack empty tensors."[:-1]),
            said(lambda: pack(torch.ones(5), [1])), said(lambda: rnn.PackedSequence(torch.ones(2))),
            said(lambda: rnn.pad_packed_sequence(pack(x, [4, 3, 3]), total_length=3), "Expected total_length to be at least the length of "
                 "the longest sequence in input, but got total_length=3 and max sequence length being 4"),
            said(lambda: pad([]), "received an empty list of sequences"), said(lambda: rnn.pack_sequence([]), "received an empty list"),
            said(lambda: pad(5), "Expected iterable for input sequences, but got arg of type"), said(lambda: pad([x, x], False, 0, "up"),
                 "Expected padding_side to be one of left or right, but got up"),
            said(lambda: pad([torch.ones(3, 2), torch.ones(3, 3)])), said(lambda: pad([torch.tensor(1.0)]))]


def test_lengths_beyond_the_input():
    with pytest.raises(RuntimeError, match="greatest of lengths is 6, but the input has 5"):
        autograd_gpu.nn.utils.rnn.pack_padded_sequence(autograd_gpu.ones(5, 2, 1), [6, 1])


# -------------------------------------------------------------------------------------------------------------------- errors

BAD_OPTIONS = [{"dropout": 1.5}, {"dropout": -0.1}, {"dropout": True}, {"dropout": "a"}, {"hidden_size": 0}, {"num_layers": 0},
               {"input_size": 0}, {"proj_size": 2}, {"proj_size": 4}, {"proj_size": -1}, {"nonlinearity": "x"}, {"nonlinearity": "relu"},
               {"hidden_size": 4.0}, {"other": 1}, {"bias": 0}, {"batch_first": 1}, {"num_layers": 1.0}]
WORDS = ("dropout should be a number in range [0, 1]", "must be greater than zero", "only supported for LSTM, not RNN or GRU",
         "has to be smaller than hidden_size", "should be a positive integer or zero", "Unknown nonlinearity 'x'",
         "should be of type bool, got: int", "hidden_size should be of type int, got: float")


@program
def options_that_cannot_be(torch):
    made = [(getattr(torch.nn, kind), {"input_size": 3, "hidden_size": 4, **options}) for kind in KINDS for options in BAD_OPTIONS]
    return [said(functools.partial(cls, **options), *WORDS) for cls, options in made], \
        said(lambda: torch.nn.RNNBase("x", 3, 4), "Unrecognized RNN mode: x"), said(lambda: torch.nn.LSTM(3)), \
        said(lambda: torch.nn.RNNBase("GRU", 3, 4)(torch.ones(5, 3)), "is missing the required")


@program
def dropout_of_one_layer(torch):
    found = []
    for options in ({"dropout": 0.5}, {"dropout": 1}, {"dropout": 0.5, "num_layers": 2}, {}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = torch.nn.GRU(3, 4, **options)
        found.append((repr(made), [(w.category.__name__, "adds dropout after all but last recurrent layer" in str(w.message),
                                    w.filename == __file__ or torch.__name__ == "torch") for w in caught]))
    return found


@program
def inputs_that_do_not_fit(torch):
    found, t, f64 = [], torch.ones, torch.float64
    for kind in KINDS:
        m, both = getattr(torch.nn, kind)(3, 4), kind == "LSTM"
        inputs = [t(3), t(2, 2, 2, 3), t(5, 2, 4), t(5, 4), t(5, 2, 3, dtype=f64), t(5, 2, 3, dtype=torch.int64), t(0, 2, 3), t(0, 3)]
        words = ("Expected input to be 2D or 3D, got", "input.size(-1) must be equal to input_size. Expected 3",
                 "does not match weight dtype", "Expected sequence length to be larger than 0 in RNN")
        found += [said(functools.partial(m, x), *words) for x in inputs]
        states = [t(1, 3, 4), t(1, 4), t(2, 2, 4), t(1, 2, 5), t(1, 2, 4, dtype=f64)]
        words = ("Expected hidden", "size (1, 2, 4), got", "For batched 3-D input,", "should also be 3-D but got")
        found += [said(functools.partial(m, t(5, 2, 3), (h, h) if both else h), *words) for h in states]
        words = ("size (1, 1, 4), got", "For unbatched 2-D input,", "should also be 2-D but got")
        found += [said(functools.partial(m, t(5, 3), (h, h) if both else h), *words) for h in (t(1, 1, 4), t(2, 4))]
        packed = torch.nn.utils.rnn.pack_sequence([t(2, 3), t(1, 3)])
        found += [said(functools.partial(m, packed, (t(1, 3, 4),) * 2 if both else t(1, 3, 4)))]
        found += [tuple(m(t(5, 0, 3))[0].shape)]
    z, lstm = t(1, 2, 4), torch.nn.LSTM(3, 4)
    for hx in ((z, t(1, 2, 5)), z, t(2, 1, 2, 4), [z, z], (z,), (z, t(1, 4)), (None, None)):
        found.append(said(functools.partial(lstm, t(5, 2, 3), hx), "Expected hidden[1] size (1, 2, 4), got [1, 2, 5]", "(3-D, 2-D)"))
    return found, said(lambda: torch.nn.GRU(3, 4)(t(5, 2, 3), (z, z)))


@program
def cells_that_do_not_fit(torch):
    found, t = [], torch.ones
    for kind in KINDS:
        m, both = getattr(torch.nn, kind + "Cell")(3, 4), kind == "LSTM"
        words = ("Expected input to be 1D or 2D, got", "input has inconsistent input_size: got 4 expected 3", "to be 1D or 2D, got 3D",
                 "doesn't match hidden0 batch size 3", "hidden0 has inconsistent hidden_size: got 5, expected 4")
        found += [said(functools.partial(m, x), *words) for x in (t(2, 2, 3), t(()), t(2, 4), t(4), t(2, 3, dtype=torch.float64))]
        for x, h in ((t(2, 3), t(3, 4)), (t(2, 3), t(2, 5)), (t(2, 3), t(4)), (t(3), t(1, 4)), (t(2, 3), t(1, 2, 4)), (t(3), t(5)),
                     (t(2, 3), t(1, 4)), (t(2, 3), t(2, 4, dtype=torch.float64))):
            found.append(said(functools.partial(m, x, (h, h) if both else h), *words))
    cell, x = torch.nn.LSTMCell(3, 4), t(2, 3)
    for hx in (t(2, 4), (t(2, 4), t(2, 5)), (t(2, 4),), (t(2, 4), t(4)), (t(2, 4),) * 3):
        found.append(said(functools.partial(cell, x, hx), "must be tuple of Tensors", "hidden1 has inconsistent hidden_size",
                          "two hidden states", "hidden1 batch size 4"))
    odd = torch.nn.RNNCell(3, 4, nonlinearity="x")
    return found, repr(odd), said(lambda: odd(x), "Unknown nonlinearity: x")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    ours = result(PROGRAMS[name], autograd_gpu, shown)
    assert ours == result(PROGRAMS[name], oracle, shown) and not isinstance(ours, str)


# ------------------------------------------------------------------------------------------------------------------ in training

def test_dropout_between_layers():
    autograd_gpu.manual_seed(0)
    for kind in KINDS:
        module = getattr(autograd_gpu.nn, kind)(3, 50, 2, dropout=1.0)
        x = _operand(4, 2, 3).float()
        out, _ = module(x)
        out.sum().backward()
        assert not module.weight_ih_l1.grad.any() and not module.weight_ih_l0.grad.any() and module.bias_ih_l1.grad.any()
        module.dropout = 0.5
        first, second = module(x)[0], module(x)[0]
        assert not first.equal(second)
        autograd_gpu.manual_seed(1)
        first = module(x)[0]
        autograd_gpu.manual_seed(1)
        assert module(x)[0].equal(first)
        module.eval()
        assert module(x)[0].equal(module(x)[0])


def test_one_seed_gives_the_parameters_in_order():
    autograd_gpu.manual_seed(3)
    module = autograd_gpu.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    autograd_gpu.manual_seed(3)
    for p in module.parameters():
        assert p.equal(autograd_gpu.empty(p.shape).uniform_(-0.5, 0.5))
    autograd_gpu.manual_seed(3)
    module.reset_parameters()
    first, module = module, autograd_gpu.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    assert not first.weight_hr_l1.equal(module.weight_hr_l1) and module.flatten_parameters() is None


def test_parameters_are_read_when_they_are_needed(close):
    gru, x = autograd_gpu.nn.GRU(3, 4), _operand(5, 2, 3).float()
    given = {name: p.detach() * 2 for name, p in gru.named_parameters()}
    out, _ = autograd_gpu.func.functional_call(gru, given, (x,))
    gru.load_state_dict(given)
    close(out, gru(x)[0])
    gru.weight_hh_l0 = autograd_gpu.nn.Parameter(gru.weight_hh_l0.detach() * 0)
    assert gru.all_weights[0][1] is gru.weight_hh_l0 and not gru(x)[0].equal(out)


def test_the_signatures_are_pytorchs(oracle):
    for torch in (autograd_gpu, oracle):
        assert torch.nn.LSTM(3, 4, 2, False, True, 0.5, True, 2).proj_size == 2
    for name in ("RNNCell", "LSTMCell", "GRUCell", "RNNCellBase", "RNNBase"):
        ours, theirs = (list(inspect.signature(getattr(torch.nn, name)).parameters) for torch in (autograd_gpu, oracle))
        assert ours == theirs
    for name in oracle.nn.utils.rnn.__all__:
        ours, theirs = (list(inspect.signature(getattr(torch.nn.utils.rnn, name)).parameters) for torch in (autograd_gpu, oracle))
        assert ours == theirs


TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps on while the fox runs away over the hill. " * 3


def losses(torch, kind, state):
    """30 steps of a network that learns to guess the next letter; `state`: where it begins."""
    letters = sorted(set(TEXT))
    codes = torch.tensor([letters.index(c) for c in TEXT])
    embed, layer = torch.nn.Embedding(len(letters), 8), getattr(torch.nn, kind)(8, 24, 2, batch_first=True)
    model = torch.nn.ModuleList([embed, layer, torch.nn.Linear(24, len(letters))])
    if state:
        model.load_state_dict({name: torch.tensor(a) for name, a in state.items()})
    else:
        state.update({name: t.numpy().copy() for name, t in model.state_dict().items()})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hidden, found = None, []
    for step in range(30):
        at = [(31 * step + 50 * k) % (len(TEXT) - 21) for k in range(4)]
        x, y = (torch.stack([codes[a + more:a + more + 20] for a in at]) for more in (0, 1))
        out, hidden = layer(embed(x), hidden)
        hidden = tuple(h.detach() for h in hidden) if kind == "LSTM" else hidden.detach()
        loss = torch.nn.functional.cross_entropy(model[2](out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_model_learns_as_in_pytorch(kind, oracle):
    oracle.manual_seed(0)
    state = {}
    expected = losses(oracle, kind, state)
    found = losses(autograd_gpu, kind, state)
    assert expected[-1] < 0.8 * expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_sizes_that_do_not_fit_the_rows(kind, both, oracle):
    def run(torch, rows, batch_sizes):
        packed = torch.nn.utils.rnn.PackedSequence(torch.ones(rows, 3), torch.tensor(batch_sizes))
        return getattr(torch.nn, kind)(3, 5, bidirectional=both)(packed)

    for torch in (autograd_gpu, oracle):
        for batch_sizes in ([2, 2], [1, 2]):
            with pytest.raises(RuntimeError):
                run(torch, 3, batch_sizes)
    with pytest.raises(RuntimeError, match="sum up to its 4 rows"):    # PyTorch leaves rows out: the last, or in reverse the first
        run(autograd_gpu, 4, [2, 1])
