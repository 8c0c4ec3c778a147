"""Modules on CUDA beside the same on the CPU: outputs, gradients, buffers; moved, copied and pickled."""
import copy
import pickle

import pytest

import autograd_gpu as torch
from tests.cuda.common import equal, gpu
from tests.parity import filled
from tests.test_modules import CALLS, MODULES, arguments, made

pytestmark = gpu
LAYERS = ["Linear(3, 2)", "Bilinear(2, 3, 4)", "Embedding(5, 3, padding_idx=-2)", "LayerNorm(3)", "RMSNorm(3)", "GroupNorm(2, 4)",
          "BatchNorm1d(3)", "InstanceNorm1d(3, affine=True, track_running_stats=True)", "PReLU(4)", "AlphaDropout(1.0)", "Dropout1d(0.0)",
          "Conv1d(2, 3, 3, padding=1)", "ConvTranspose2d(2, 3, 3, stride=2)", "Unfold(2)",
          "MultiheadAttention(4, 2)", "MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)",
          "TransformerEncoderLayer(4, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)",
          "RNN(3, 4, 2, 'relu', False, True, 0.0, True)", "GRU(3, 4, 2)", "GRUCell(3, 4)",
          "LSTM(3, 4, 2, batch_first=True, bidirectional=True, proj_size=2, dtype=torch.float64)"]


def ran(module, where, text):
    """The results by name, and the module itself."""
    module = copy.deepcopy(module).to(where)
    args = [a.detach().to(where).requires_grad_(a.requires_grad) for a in arguments(torch, MODULES[text], "float64")]
    out = CALLS.get(type(module).__name__, torch.nn.Module.__call__)(module, *[a * 1 if a.requires_grad else a for a in args])
    outs = out if isinstance(out, tuple) else (out,)
    sum((o * o).sum() for o in outs).backward()
    return {**{f"output {i}": o for i, o in enumerate(outs)}, **{f"d {i}": a.grad for i, a in enumerate(args) if a.requires_grad},
            **{"d " + n: p.grad for n, p in module.named_parameters()}, **dict(module.named_buffers())}, module


@pytest.mark.parametrize("text", LAYERS)
def test_module(text):
    module = filled(torch, made(torch, text)).double()
    on_cpu, _ = ran(module, "cpu", text)
    on_cuda, moved = ran(module, "cuda:0", text)
    assert on_cpu.keys() == on_cuda.keys()
    for what, t in on_cuda.items():
        equal(t, on_cpu[what], what)
    again = pickle.loads(pickle.dumps(moved))
    for (name, p), q in zip(moved.named_parameters(), again.parameters(), strict=True):
        assert type(p) is type(q) is torch.nn.Parameter and p.is_leaf and q.requires_grad
        equal(q, p.detach().cpu(), name)


def test_training_on_a_device():
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
        x, y = torch.randn(16, 4), torch.arange(16) % 2
    losses = []
    for _ in range(20):
        model.zero_grad()
        loss = torch.nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.5 * p.grad
        losses.append(loss.item())
    assert norm.is_cuda and losses[-1] < losses[0]
    assert {str(t.device) for t in model.cpu().state_dict().values()} == {"cpu"}


def test_packed_sequences():
    rnn, results = torch.nn.utils.rnn, []
    lstm = filled(torch, torch.nn.LSTM(3, 4, bidirectional=True)).double()
    for where in ("cpu", "cuda:0"):
        module = copy.deepcopy(lstm).to(where)
        x = [t.detach().to(where).requires_grad_() for t in arguments(torch, [("normal", n, 3) for n in (2, 4, 1)], "float64")]
        packed = rnn.pack_sequence(x, enforce_sorted=False)
        assert packed.batch_sizes.device.type == "cpu" and packed.data.device == packed.sorted_indices.device == torch.device(where)
        out, (h, c) = module(packed)
        padded, lengths = rnn.pad_packed_sequence(out, padding_value=0.5)
        (padded.square().sum() + (h * c).sum()).backward()
        assert lengths.tolist() == [2, 4, 1] and str(packed.cpu().data.device) == "cpu"
        results.append({"padded": padded, "h": h, "c": c, "d w": module.weight_hh_l0.grad, **{f"d {i}": t.grad for i, t in enumerate(x)}})
    for what, t in results[1].items():
        equal(t, results[0][what], what)
