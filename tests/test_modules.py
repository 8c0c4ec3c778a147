"""Every module class: with PyTorch's state it gives PyTorch's outputs and gradients; its initial values are distributed as there."""
import copy
import inspect
import pickle
import re

import numpy as np
import pytest

import autograd_gpu
from tests.module_cases import CALLS, CASES, F, N, P, U
from tests.parity import filled

MODULES = {
    "Linear(3, 2)": [(F, 4, 3)], "Linear(3, 2, bias=False)": [(F, 3)], "Linear(3, 2, dtype=torch.float64)": [(F, 2, 5, 3)],
    "Bilinear(2, 3, 4)": [(F, 5, 2), (F, 5, 3)], "Bilinear(2, 3, 1, bias=False)": [(F, 2, 5, 2), (F, 2, 5, 3)],
    "Identity(3, a=2)": [(F, 2)], "Flatten()": [(F, 2, 3, 2)], "Unflatten(1, (2, 3))": [(F, 2, 6)],
    "Embedding(5, 3)": [(N, 4)], "Embedding(5, 3, padding_idx=-2)": [(N, 4, 4)], "Embedding(5, 3, max_norm=1.0)": [(N, 4)],
    "Embedding(5, 3, scale_grad_by_freq=True, norm_type=1.0)": [(N, 9)],
    "LayerNorm(3)": [(F, 4, 3)], "LayerNorm((2, 3), eps=0.1, bias=False)": [(F, 4, 2, 3)],
    "LayerNorm([3], elementwise_affine=False)": [(F, 4, 3)], "RMSNorm(3)": [(F, 4, 3)], "RMSNorm((4, 3), eps=0.1)": [(F, 2, 4, 3)],
    "RMSNorm(3, elementwise_affine=False)": [(F, 4, 3)], "GroupNorm(2, 4)": [(F, 3, 4, 5)],
    "GroupNorm(4, 4, affine=False)": [(F, 3, 4, 2, 2)], "GroupNorm(1, 4, eps=0.1, bias=False)": [(F, 3, 4)],
    "BatchNorm1d(3)": [(F, 4, 3)], "BatchNorm1d(3, momentum=None)": [(F, 4, 3, 2)], "BatchNorm1d(3, affine=False)": [(F, 4, 3)],
    "BatchNorm1d(3, track_running_stats=False)": [(F, 4, 3)], "BatchNorm2d(2, eps=0.1, momentum=0.5)": [(F, 3, 2, 2, 3)],
    "BatchNorm3d(2, bias=False)": [(F, 3, 2, 2, 2, 1)], "InstanceNorm1d(3)": [(F, 2, 3, 4)],
    "InstanceNorm1d(3, affine=True, track_running_stats=True)": [(F, 2, 3, 4)], "InstanceNorm2d(3, affine=True)": [(F, 3, 4, 2)],
    "InstanceNorm3d(2)": [(F, 2, 2, 2, 2, 2)],
    "Conv1d(2, 3, 3, padding=1)": [(F, 4, 2, 6)], "Conv1d(2, 4, [2], stride=2, dilation=2, groups=2, bias=False)": [(F, 2, 6)],
    "Conv2d(2, 3, (3, 2), padding='same')": [(F, 2, 2, 4, 5)],
    "Conv2d(1, 2, 3, 2, padding='valid', dtype=torch.float64)": [(F, 2, 1, 5, 6)],
    "Conv2d(2, 2, 3, padding=(2, 1), padding_mode='reflect')": [(F, 2, 2, 4, 5)],
    "Conv2d(2, 2, (2, 3), padding='same', padding_mode='circular')": [(F, 2, 2, 4, 5)],
    "Conv3d(2, 2, 2, padding=1, padding_mode='replicate')": [(F, 1, 2, 3, 2, 4)],
    "ConvTranspose1d(2, 3, 3, 2, 1, 1)": [(F, 2, 2, 4)], "ConvTranspose2d(2, 3, 3, stride=2)": [(F, 2, 2, 3, 4)],
    "ConvTranspose3d(2, 4, 2, groups=2, bias=False, dilation=2)": [(F, 2, 2, 3, 2)], "Unfold(2)": [(F, 2, 3, 3, 4)],
    "Unfold((2, 1), 2, (1, 0), (1, 3))": [(F, 3, 3, 4)], "Fold((3, 4), 2)": [(F, 2, 8, 6)], "Fold(4, (2, 3), 1, 1, (2, 1))": [(F, 6, 12)],
    **{f"{name}()": [(F, 3, 4)] for name in (
        "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Hardtanh", "Hardsigmoid", "Hardswish", "Hardshrink", "Softshrink",
        "Tanhshrink", "Softplus", "Softsign", "LogSigmoid", "Sigmoid", "Tanh", "LeakyReLU", "PReLU")},
    "GELU('tanh')": [(F, 5)], "Threshold(0.1, 2.0)": [(F, 5)], "PReLU(4)": [(F, 3, 4)], "Hardtanh(-0.5, 0.2)": [(F, 5)],
    "Softplus(2, 0.5)": [(F, 5)], "ELU(0.5)": [(F, 5)], "LeakyReLU(0.3)": [(F, 5)], "Softshrink(0.1)": [(F, 5)],
    "Softmax(1)": [(F, 3, 4)], "LogSoftmax(-1)": [(F, 3, 4)], "Softmin(0)": [(F, 3, 4)], "Softmax2d()": [(F, 2, 3, 2, 2)],
    "Softmax()": [(F, 3, 4)], "CELU(0.5)": [(F, 5)], "Hardshrink(0.1)": [(F, 5)],
    "L1Loss()": [(F, 3, 2), (F, 3, 2)], "MSELoss(reduction='sum')": [(F, 3), (F, 3)], "SmoothL1Loss(beta=0.5)": [(F, 9), (F, 9)],
    "HuberLoss('none', 0.5)": [(F, 9), (F, 9)], "BCELoss()": [(U, 4), (U, 4)], "BCELoss(torch.tensor([1.0, 2.0]))": [(U, 3, 2), (U, 3, 2)],
    "BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0]))": [(F, 3, 2), (U, 3, 2)],
    "KLDivLoss(reduction='batchmean')": [(F, 3, 2), (U, 3, 2)], "KLDivLoss(log_target=True)": [(F, 3, 2), (F, 3, 2)],
    "NLLLoss(ignore_index=1)": [(F, 6, 5), (N, 6)], "CrossEntropyLoss()": [(F, 6, 5), (N, 6)],
    "CrossEntropyLoss(torch.tensor([1.0, 2, 3, 4, 5]), label_smoothing=0.1)": [(F, 6, 5), (N, 6)],
    "CosineSimilarity()": [(F, 3, 4), (F, 3, 4)],
    "Dropout(0.0)": [(F, 3)], "Dropout1d(0.0)": [(F, 3, 2)], "Dropout2d(0.0)": [(F, 2, 3, 2, 2)], "Dropout3d(0.0)": [(F, 2, 3, 2, 2)],
    "AlphaDropout(0.0)": [(F, 3)], "FeatureAlphaDropout(0.0)": [(F, 3, 2)], "Dropout(1.0)": [(F, 3)], "AlphaDropout(1.0)": [(F, 3)],
    "Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))": [(F, 2, 3)], "Module()": [(F, 2, 3)],
    "ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.ReLU()])": [(F, 2, 3)],
    "ModuleDict({'b': torch.nn.Linear(3, 4), 'a': torch.nn.PReLU()})": [(F, 2, 3)],
    "ParameterList([torch.ones(3), torch.zeros(1)])": [(F, 2, 3)],
    "ParameterDict({'b': torch.ones(3), 'a': torch.nn.Parameter(torch.zeros(1))})": [(F, 2, 3)],
    "MultiheadAttention(4, 2)": [(F, 5, 3, 4), (F, 6, 3, 4), (F, 6, 3, 4)],
    "MultiheadAttention(4, 2, batch_first=True, bias=False)": [(F, 3, 5, 4), (F, 3, 6, 4), (F, 3, 6, 4)],
    "MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)": [(F, 5, 4), (F, 6, 4), (F, 6, 4)],
    "MultiheadAttention(4, 2, kdim=3, vdim=2)": [(F, 5, 3, 4), (F, 6, 3, 3), (F, 6, 3, 2)],
    "TransformerEncoderLayer(4, 2, 8, dropout=0.0)": [(F, 5, 3, 4)],
    "TransformerEncoderLayer(4, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)": [(F, 5, 3, 4)],
    "TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0), 2, torch.nn.LayerNorm(4))": [(F, 5, 3, 4)],
    **CASES,
}


def chain(module, x):
    for layer in module.values() if hasattr(module, "values") else module:
        x = layer(x)
    return x


CALLS = CALLS | {                            # those that have no forward of their own
    "Module": lambda m, x: m.inner(x * m.weight + m.shift), "ModuleList": chain, "ModuleDict": chain,
    "ParameterList": lambda m, x: x * m[0] + m[1], "ParameterDict": lambda m, x: x * m["b"] + m["a"]}


def test_every_class_has_a_case():
    nn = autograd_gpu.nn
    classes = {name for name, value in vars(nn).items() if inspect.isclass(value) and issubclass(value, nn.Module)}
    assert classes == {re.match(r"\w+", text)[0] for text in MODULES}


def arguments(torch, kinds, dtype):
    rs = np.random.RandomState(5)
    draw = {F: lambda s: rs.randn(*s).astype(dtype), N: lambda s: rs.randint(0, 5, s), U: lambda s: rs.uniform(0.1, 0.9, s).astype(dtype),
            P: lambda s: rs.permutation(np.prod(s)).reshape(s)}         # PyTorch writes twice named places in any order
    return [torch.tensor(draw[kind](shape), requires_grad=kind in (F, U)) for kind, *shape in kinds]


def made(torch, text):
    module = eval("torch.nn." + text, {"torch": torch})
    if type(module) is torch.nn.Module:
        module.weight = torch.nn.Parameter(torch.ones(3))
        module.register_buffer("shift", torch.ones(3))
        module.register_buffer("other", torch.arange(3), persistent=False)
        module.inner = torch.nn.Linear(3, 2)
    return module


def ran(torch, module, kinds):
    """What two calls give, and the gradients and buffers after them."""
    dtype = "float64" if "float64" in str(next(module.parameters(), torch.tensor(0.0)).dtype) else "float32"
    args = arguments(torch, kinds, dtype)
    call, found = CALLS.get(type(module).__name__), []
    for _ in range(2):
        given = [a * 1 if a.requires_grad else a for a in args]
        out = call(module, *given) if call else module(*given)
        outs = [o for o in out if o is not None] if isinstance(out, tuple) else [out]
        sum((o * o).sum() for o in outs).backward()
        found += outs
    return (found, [a.grad for a in args], {n: p.grad for n, p in module.named_parameters()},
            dict(module.named_buffers()), outs[0].grad_fn.name())


def same(close, ours, theirs):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list):
        for a, b in zip(ours, theirs, strict=True):
            same(close, a, b)
    elif theirs is None or isinstance(theirs, (str, int)):
        assert ours == theirs
    else:
        close(ours, theirs)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("text", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_a_module_with_pytorchs_state(text, mode, oracle, close):
    theirs, ours = made(oracle, text), made(autograd_gpu, text)
    if text.startswith(("Multi", "Transformer")):
        theirs, ours = theirs.double(), ours.double()
    filled(oracle, theirs)
    state = theirs.state_dict()
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert repr(ours.load_state_dict({k: autograd_gpu.tensor(v.numpy()) for k, v in state.items()})) == "<All keys matched successfully>"
    assert repr(ours) == repr(theirs) and dict(ours.state_dict()._metadata) == dict(state._metadata)
    same(close, dict(ours.state_dict()), dict(state))
    theirs.train(mode == "train"), ours.train(mode == "train")
    first, second = ran(autograd_gpu, ours, MODULES[text]), ran(oracle, theirs, MODULES[text])
    for a, b in zip(first[:-1], second[:-1], strict=True):
        same(close, a, b)
    other = text.startswith(("Multi", "Transformer", "RNN", "LSTM", "GRU"))      # PyTorch leaves out the batch's graph where it can, and
    assert other or first[-1] == second[-1]                                      # fuses attention; here the steps of a recurrence are one
    again = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
    assert repr(again) == repr(ours) and all(p.grad is None for p in again.parameters())
    same(close, dict(again.state_dict()), dict(ours.state_dict()))


ENOUGH = 2000                                # numbers to compare two distributions by


def initial_values(torch, text):
    """{name: an array with as many rows as modules were made, ENOUGH elements in all if they are random}."""
    torch.manual_seed(0)
    first, second = ({n: t.detach().numpy() for n, t in made(torch, text).state_dict().items()} for _ in range(2))
    drawn = {n: [first[n], second[n]] for n in first}
    smallest = min([a.size for n, a in first.items() if (a != second[n]).any()], default=ENOUGH)
    for _ in range(ENOUGH // smallest):
        for n, t in made(torch, text).state_dict().items():
            drawn[n].append(t.detach().numpy())
    return {n: np.stack(arrays) for n, arrays in drawn.items()}


@pytest.mark.parametrize("text", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_initial_values_are_distributed_as_in_pytorch(text, oracle):
    ours, theirs = initial_values(autograd_gpu, text), initial_values(oracle, text)
    assert list(ours) == list(theirs)
    for a, b in zip(ours.values(), theirs.values(), strict=True):
        assert a.dtype == b.dtype and a.shape[1:] == b.shape[1:]
        if (b == b[0]).all():
            assert (a == b[0]).all()
            continue
        same_everywhere = (b == b[0]).reshape(len(b), -1).all(0)     # the padding of an Embedding
        assert ((a == a[0]).reshape(len(a), -1).all(0) == same_everywhere).all()
        a, b = a.reshape(len(a), -1)[:, ~same_everywhere], b.reshape(len(b), -1)[:, ~same_everywhere]
        shares = [0.02, 0.2, 0.5, 0.8, 0.98]
        np.testing.assert_allclose(np.quantile(a, shares), np.quantile(b, shares), atol=0.25 * b.std())
        assert abs(np.abs(a).max() / np.abs(b).max() - 1) < 0.3
