"""Layers, losses and attention: loaded with PyTorch's state they give PyTorch's outputs and gradients; init and utils as in PyTorch."""
import copy
import pickle

import numpy as np
import pytest

import autograd_gpu
from tests.module_cases import CASES
from tests.parity import data, filled, linear, result, said

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns or raises is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


# ------------------------------------------------------------------------------------------------- modules and their state

F, N, U = "normal", "integers", "between 0 and 1"
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
    **{f"{name}()": [(F, 3, 4)] for name in (
        "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Hardtanh", "Hardsigmoid", "Hardswish", "Hardshrink", "Softshrink",
        "Tanhshrink", "Softplus", "Softsign", "LogSigmoid", "Sigmoid", "Tanh", "LeakyReLU", "PReLU")},
    "GELU('tanh')": [(F, 5)], "Threshold(0.1, 2.0)": [(F, 5)], "PReLU(4)": [(F, 3, 4)], "Hardtanh(-0.5, 0.2)": [(F, 5)],
    "Softplus(2, 0.5)": [(F, 5)], "ELU(0.5)": [(F, 5)], "LeakyReLU(0.3)": [(F, 5)], "Softshrink(0.1)": [(F, 5)],
    "Softmax(1)": [(F, 3, 4)], "LogSoftmax(-1)": [(F, 3, 4)], "Softmin(0)": [(F, 3, 4)], "Softmax2d()": [(F, 2, 3, 2, 2)],
    "Softmax()": [(F, 3, 4)],
    "L1Loss()": [(F, 3, 2), (F, 3, 2)], "MSELoss(reduction='sum')": [(F, 3), (F, 3)], "SmoothL1Loss(beta=0.5)": [(F, 9), (F, 9)],
    "HuberLoss('none', 0.5)": [(F, 9), (F, 9)], "BCELoss()": [(U, 4), (U, 4)], "BCELoss(torch.tensor([1.0, 2.0]))": [(U, 3, 2), (U, 3, 2)],
    "BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0]))": [(F, 3, 2), (U, 3, 2)],
    "KLDivLoss(reduction='batchmean')": [(F, 3, 2), (U, 3, 2)], "KLDivLoss(log_target=True)": [(F, 3, 2), (F, 3, 2)],
    "NLLLoss(ignore_index=1)": [(F, 6, 5), (N, 6)], "CrossEntropyLoss()": [(F, 6, 5), (N, 6)],
    "CrossEntropyLoss(torch.tensor([1.0, 2, 3, 4, 5]), label_smoothing=0.1)": [(F, 6, 5), (N, 6)],
    "CosineSimilarity()": [(F, 3, 4), (F, 3, 4)],
    "Dropout(0.0)": [(F, 3)], "Dropout1d(0.0)": [(F, 3, 2)], "Dropout2d(0.0)": [(F, 2, 3, 2, 2)], "Dropout3d(0.0)": [(F, 2, 3, 2, 2)],
    "AlphaDropout(0.0)": [(F, 3)], "FeatureAlphaDropout(0.0)": [(F, 3, 2)], "Dropout(1.0)": [(F, 3)], "AlphaDropout(1.0)": [(F, 3)],
    "Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))": [(F, 2, 3)],
    "MultiheadAttention(4, 2)": [(F, 5, 3, 4), (F, 6, 3, 4), (F, 6, 3, 4)],
    "MultiheadAttention(4, 2, batch_first=True, bias=False)": [(F, 3, 5, 4), (F, 3, 6, 4), (F, 3, 6, 4)],
    "MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)": [(F, 5, 4), (F, 6, 4), (F, 6, 4)],
    "MultiheadAttention(4, 2, kdim=3, vdim=2)": [(F, 5, 3, 4), (F, 6, 3, 3), (F, 6, 3, 2)],
    "TransformerEncoderLayer(4, 2, 8, dropout=0.0)": [(F, 5, 3, 4)],
    "TransformerEncoderLayer(4, 2, 8, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)": [(F, 5, 3, 4)],
    "TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0), 2, torch.nn.LayerNorm(4))": [(F, 5, 3, 4)],
    **CASES,
}


def arguments(torch, kinds, dtype):
    rs = np.random.RandomState(5)
    draw = {F: lambda s: rs.randn(*s).astype(dtype), N: lambda s: rs.randint(0, 5, s), U: lambda s: rs.uniform(0.1, 0.9, s).astype(dtype)}
    return [torch.tensor(draw[kind](shape), requires_grad=kind != N) for kind, *shape in kinds]


def made(torch, text):
    return eval("torch.nn." + text, {"torch": torch})


def ran(torch, module, kinds):
    """What two calls give, and the gradients and buffers after them."""
    dtype = "float64" if "float64" in str(next(module.parameters(), torch.tensor(0.0)).dtype) else "float32"
    args = arguments(torch, kinds, dtype)
    found = []
    for _ in range(2):
        out = module(*[a * 1 if a.requires_grad else a for a in args])
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
    assert repr(ours.load_state_dict({k: autograd_gpu.tensor(v.numpy()) for k, v in state.items()})) == "<All keys matched successfully>"
    assert repr(ours) == repr(theirs) and dict(ours.state_dict()._metadata) == dict(state._metadata)
    same(close, dict(ours.state_dict()), dict(state))
    theirs.train(mode == "train"), ours.train(mode == "train")
    first, second = ran(autograd_gpu, ours, MODULES[text]), ran(oracle, theirs, MODULES[text])
    for a, b in zip(first[:-1], second[:-1], strict=True):
        same(close, a, b)
    attention = text.startswith(("Multi", "Transformer"))        # PyTorch leaves out the batch's graph where it can, and fuses
    assert attention or first[-1] == second[-1]
    again = pickle.loads(pickle.dumps(copy.deepcopy(ours)))
    assert repr(again) == repr(ours) and all(p.grad is None for p in again.parameters())
    same(close, dict(again.state_dict()), dict(ours.state_dict()))


INPLACE = ["ReLU", "ReLU6", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardtanh", "Hardsigmoid", "Hardswish", "LeakyReLU"]


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_activations(name, oracle):
    def run(torch):
        x = data(torch, 6)
        y = x * 1
        module = getattr(torch.nn, name)(inplace=True)
        out = module(y)
        out.sum().backward()
        return out is y, repr(module), x.grad.mul(1000).round()
    assert result(run, autograd_gpu) == result(run, oracle)


@pytest.mark.parametrize("name", ["Linear(50, 40)", "Bilinear(30, 4, 5)", "Embedding(400, 5)", "MultiheadAttention(40, 4)",
                                  "MultiheadAttention(40, 4, kdim=8, add_bias_kv=True)", "PReLU()", "BatchNorm1d(4)", "LayerNorm(5)"])
def test_initial_values_are_distributed_as_in_pytorch(name, oracle):
    theirs, ours = made(oracle, name), made(autograd_gpu, name)
    for (key, a), (other, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        a, b = a.detach().numpy(), b.detach().numpy()
        assert key == other and a.shape == b.shape and a.dtype == b.dtype
        if a.size > 100:
            assert abs(a.mean() - b.mean()) <= 0.4 * b.std() and abs(a.std() - b.std()) <= 0.4 * b.std()
        assert (a.std() == 0) == (b.std() == 0) and (a.std() or (a == b).all())
        assert a.size < 1000 or abs(np.abs(a).max() / np.abs(b).max() - 1) < 0.5


# --------------------------------------------------------------------------------------------------- init, utils, attention

@program
def calculated_gains(torch):
    gain = torch.nn.init.calculate_gain
    return [gain(n) for n in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu")], gain("leaky_relu", 0.3), said(
        lambda: gain("x"), "Unsupported nonlinearity x"), said(lambda: gain("leaky_relu", "a"), "not a valid number")


@program
def fixed_initial_values(torch):
    init, t = torch.nn.init, torch.empty
    w = t(2, 3, requires_grad=True)
    return (init.constant_(w, 3.5), init.ones_(w).sum(), init.zeros_(w), init.eye_(t(3, 4)), init.dirac_(t(4, 2, 3), 2),
            init.dirac_(t(2, 3, 2, 2)),
            init.constant_(w, 1) is w, [said(f) for f in (
                lambda: init.eye_(t(3)), lambda: init.dirac_(t(3, 3)), lambda: init.dirac_(t(3, 3, 3), 2),
                lambda: init.xavier_uniform_(t(3)),
                lambda: init.kaiming_uniform_(t(3)), lambda: init.kaiming_normal_(t(3, 3), mode="x"), lambda: init.orthogonal_(t(3)),
                lambda: init.sparse_(t(3), 0.5))])


@program
def clipping(torch):
    u, found = torch.nn.utils, []
    for norm in (2.0, 1, float("inf"), 0.5):
        a, b = data(torch, 4), data(torch, 2, 2, seed=2)
        (a.sum() * 3 + (b * b).sum()).backward()
        found += [u.clip_grad_norm_([a, b, data(torch, 1)], 1.5, norm).mul(1000).round(), a.grad.mul(1000).round(),
                  b.grad.mul(1000).round()]
    u.clip_grad_value_([a, b], 0.1)
    found += [a.grad.clone(), b.grad.clone(), u.clip_grad_norm_([], 1.0), u.get_total_norm([torch.ones(4)]),
              u.clip_grad_norm_(a, 100.0).shape]
    u.clip_grads_with_norm_(a, 1.0, torch.tensor(2.0))
    found.append(a.grad.mul(1000).round())
    a.grad[0] = float("nan")
    return found, said(lambda: u.clip_grad_norm_(a, 1.0, error_if_nonfinite=True), "non-finite")


@program
def parameters_as_a_vector(torch):
    m, u = linear(torch), torch.nn.utils
    v = u.parameters_to_vector(m.parameters())
    other = torch.arange(6.0)
    u.vector_to_parameters(other, m.parameters())
    other.add_(1)
    return v, m.weight, m.bias, said(lambda: u.vector_to_parameters([1], m.parameters())), m.weight.requires_grad


@program
def attention_masks(torch):
    F, found = torch.nn.functional, []
    q, k, v = (data(torch, 2, 2, n, 4, seed=n) for n in (3, 5, 5))
    masks = [None, torch.ones(3, 5) > 0, torch.tensor(np.random.RandomState(0).rand(2, 1, 3, 5) > 0.5),
             torch.tensor(np.random.RandomState(0).randn(3, 5).astype("float32")), torch.zeros(3, 5) > 0]
    for mask in masks:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        g = torch.autograd.grad(out.sin().sum(), (q, k, v))
        found += [t.detach().mul(1e4).round() for t in (out, *g)]
    found.append(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3).detach().mul(1e4).round())
    found.append(F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True).detach().mul(1e4).round())
    return [t + 0 for t in found], said(
        lambda: F.scaled_dot_product_attention(q[0], k[0], v[0], masks[1], is_causal=True), "is_causal=True")


@program
def multihead_masks(torch):
    m, found = filled(torch, torch.nn.MultiheadAttention(4, 2)), []
    q, k = data(torch, 3, 2, 4), data(torch, 5, 2, 4, seed=2)
    upper = torch.ones(3, 5).triu(1) > 0
    padding = torch.tensor([[False] * 5, [False, True, True, False, False]])
    for mask in (None, upper, torch.zeros(3, 5), upper.expand(4, 3, 5)):
        for pad in (None, padding):
            for weights in (True, False):
                out, w = m(q, k, k, attn_mask=mask, key_padding_mask=pad, need_weights=weights, average_attn_weights=False)
                found += [out.detach().mul(1e3).round(), None if w is None else w.detach().mul(1e3).round()]
    one = m(q[:, 0], k[:, 0], k[:, 0], attn_mask=upper, key_padding_mask=padding[1])
    x = data(torch, 3, 2, 4)
    return found, [t.detach().mul(1e3).round() for t in (*one, *m(x, x, x))], [said(f) for f in (
        lambda: m(q[0, 0], k, k), lambda: m(q, k[0], k), lambda: m(q, k, k, padding[0]), lambda: m(q[..., :3], k, k),
        lambda: m(q, k, q), lambda: m(q, k, k, attn_mask=torch.zeros(2, 5)), lambda: m(q, k, k, is_causal=True))]


@program
def encoder_masks(torch):
    layer = filled(torch, torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True))
    m = torch.nn.TransformerEncoder(layer, 2)
    x = data(torch, 2, 3, 4)
    mask, padding = torch.ones(3, 3).triu(1) > 0, torch.tensor([[False, False, True], [False] * 3])
    outs = [m(x), m(x, mask), m(x, mask, padding), m(x, src_key_padding_mask=padding), m(x, mask, is_causal=True)]
    return [o.detach().mul(1e3).round() + 0 for o in outs], said(lambda: torch.nn.TransformerEncoderLayer(4, 2, activation="x"),
        "relu/gelu")


@program
def other_errors(torch):
    nn, x = torch.nn, torch.ones(2, 5)
    return [said(f, *words) for f, *words in (
        (lambda: nn.Linear(2, 3)(x), "cannot be multiplied"), (lambda: nn.LayerNorm(3)(x), "Given normalized_shape=[3], expected input"),
        (lambda: nn.BatchNorm1d(3)(x), "should contain 5 elements not 3"),
        (lambda: nn.BatchNorm1d(3)(x[0]), "expected 2D or 3D input (got 1D"),
        (lambda: nn.BatchNorm2d(5)(x), "expected 4D input"), (lambda: nn.BatchNorm1d(5)(x[:1]), "more than 1 value per channel"),
        (lambda: nn.GroupNorm(3, 4), "must be divisible by num_groups"), (lambda: nn.GroupNorm(2, 4)(x), "to be divisible by num_groups"),
        (lambda: nn.GroupNorm(1, 4)(x), "Expected weight to be a vector"), (lambda: nn.GroupNorm(1, 4)(x[0]), "at least 2 dimensions"),
        (lambda: nn.InstanceNorm1d(3, affine=True)(torch.ones(2, 4, 5)), "to match num_features (3)"),
        (lambda: nn.InstanceNorm1d(3)(torch.ones(2, 3, 1)), "more than 1 spatial element"), (lambda: nn.InstanceNorm1d(3)(x[0])),
        (lambda: nn.functional.instance_norm(torch.ones(1, 2, 3), use_input_stats=False), "to be defined when use_input_stats is false"),
        (lambda: nn.RMSNorm(3)(x), "Given normalized_shape=[3]"), (lambda: nn.functional.rms_norm(x.long(), (5,))),
        (lambda: nn.Dropout(1.5), "has to be between 0 and 1"), (lambda: nn.Dropout1d()(x[0]), "Expected 2D or 3D input"),
        (lambda: nn.functional.alpha_dropout(x, 2.0), "has to be between 0 and 1"),
        (lambda: nn.Bilinear(0, 1, 2), "in1_features must be > 0"),
        (lambda: nn.Bilinear(5, 4, 2)(x, x), "input2 size does not match weight size: got 5 but expected 4"),
        (lambda: nn.Bilinear(5, 5, 2)(x, x[:1]), "do not match at dim 0: got 2 and 1"), (lambda: nn.Bilinear(5, 5, 2)(x, x[0])),
        (lambda: nn.Embedding(3, 2, padding_idx=5), "Padding_idx must be within"),
        (lambda: nn.Embedding.from_pretrained(x[0]), "2-dimensional"),
        (lambda: nn.Unflatten(1, 3), "must be a tuple of ints"), (lambda: nn.Unflatten(1, (2, "a")), "element of type str at pos 1"),
        (lambda: nn.MultiheadAttention(5, 2), "must be divisible by num_heads"), (lambda: nn.MultiheadAttention(0, 2), "greater than 0"),
        (lambda: nn.Hardtanh(1, 0), "must be greater than"), (lambda: nn.Softmax2d()(x), "expected input to be 3D or 4D"),
        (lambda: nn.MSELoss(reduction="x")(x, x), "not a valid value for reduction"), (lambda: nn.HuberLoss(delta=0.0)(x, x)))]


@program
def mixed_dtypes(torch):
    F, d = torch.nn.functional, {"f": torch.float32, "d": torch.float64, "h": torch.float16, "b": torch.bfloat16}
    found = []
    for pair in ("ff", "fd", "df", "hf", "bf", "fh", "hb"):
        x, w = torch.ones(4, 3, dtype=d[pair[0]]), torch.ones(3, dtype=d[pair[1]])
        for f in (lambda x, w: F.layer_norm(x, (3,), w, w), lambda x, w: F.group_norm(x, 1, w, w), lambda x, w: F.prelu(x, w),
                  lambda x, w: F.batch_norm(x, None, None, w, w, True), lambda x, w: F.rms_norm(x, (3,), w),
                  lambda x, w: F.batch_norm(x, w.clone(), w.clone(), training=True), lambda x, w: F.bilinear(x, x, w.expand(2, 3, 3))):
            found.append(said(lambda f=f, x=x, w=w: f(x, w)) or str(f(x, w).dtype))
    return found


@program
def layers_in_half_precision(torch):
    found = []
    for dtype in (torch.float16, torch.bfloat16):
        for name, args, shape in (("Linear", (3, 2), (4, 3)), ("LayerNorm", (3,), (4, 3)), ("RMSNorm", (3,), (4, 3)),
                                  ("GroupNorm", (1, 3), (4, 3)), ("BatchNorm1d", (3,), (4, 3)), ("GELU", (), (4, 3))):
            module = filled(torch, getattr(torch.nn, name)(*args)).to(dtype)
            y = module(data(torch, *shape).detach().to(dtype))
            found += [str(y.dtype), y.detach().float().mul(8).round() + 0, [str(b.dtype) for b in module.buffers()]]
    return found


@program
def pretrained(torch):
    table = torch.arange(6.0).reshape(3, 2)
    frozen, free = torch.nn.Embedding.from_pretrained(table), torch.nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0)
    table.add_(1)
    free(torch.tensor([0, 1, 1])).sum().backward()
    return frozen(torch.tensor([0, 2])), frozen.weight.requires_grad, free.weight.grad, repr(free), frozen.num_embeddings


@program
def old_reduction_flags(torch):
    return [torch.nn.MSELoss(size_average=a, reduce=b).reduction for a in (None, True, False) for b in (None, True, False)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, oracle):
    assert result(PROGRAMS[name], autograd_gpu) == result(PROGRAMS[name], oracle)


# ------------------------------------------------------------------------------------------------------------- by itself

@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("name, shape", [("Dropout", (40000,)), ("Dropout1d", (4000, 5, 3)), ("Dropout1d", (9000, 3)),
                                         ("Dropout2d", (4000, 5, 2, 2)),
                                         ("Dropout3d", (4000, 5, 1, 2, 2)), ("AlphaDropout", (40000,)),
                                         ("FeatureAlphaDropout", (4000, 5, 3))])
def test_dropout_drops_its_share(name, shape, p):
    autograd_gpu.manual_seed(0)
    x = autograd_gpu.ones(shape)
    module = getattr(autograd_gpu.nn, name)(p)
    out = module(x).numpy()
    low, high = np.unique(out.round(4))
    assert abs((out == out.min()).mean() - p) < 0.03 and (low == 0) == ("Alpha" not in name) and high > 1
    if name not in ("Dropout", "AlphaDropout"):      # a channel as a whole
        flat = out.reshape(-1, shape[-1]) if name == "Dropout1d" or "Feature" in name else out.reshape(*shape[:2], -1).reshape(-1, 4)
        assert (flat.min(1) == flat.max(1)).all()
    if "Alpha" in name:
        normal = module(autograd_gpu.randn(shape)).numpy()
        assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert (module.eval()(x).numpy() == 1).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)])
def test_orthogonal(shape):
    w = autograd_gpu.nn.init.orthogonal_(autograd_gpu.empty(shape, dtype=autograd_gpu.float64), gain=2).numpy().reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] < w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


def test_sparse_and_truncated():
    autograd_gpu.manual_seed(0)
    w = autograd_gpu.nn.init.sparse_(autograd_gpu.empty(10, 4), 0.25).numpy()
    assert ((w == 0).sum(0) == 3).all()
    t = autograd_gpu.nn.init.trunc_normal_(autograd_gpu.empty(20000), 0.5, 2.0, -1.0, 1.5).numpy()
    assert t.min() >= -1 and t.max() <= 1.5 and abs(t.mean() - 0.28) < 0.02


def test_a_seed_repeats_a_network():
    made = []
    for _ in range(2):
        autograd_gpu.manual_seed(3)
        made.append(autograd_gpu.nn.TransformerEncoderLayer(4, 2, 8).state_dict())
    assert all((made[0][k] == made[1][k]).all() for k in made[0])


def test_new_ops_have_second_derivatives():
    torch, F = autograd_gpu, autograd_gpu.nn.functional
    rs = np.random.RandomState(0)
    x, y, w, b = (torch.tensor(rs.randn(*s), requires_grad=True) for s in ((2, 4, 3), (2, 4, 2), (2, 3, 2), (4,)))
    assert torch.autograd.gradgradcheck(lambda x, b: F.group_norm(x, 2, b, b), (x, b))
    assert torch.autograd.gradgradcheck(F.bilinear, (x, y, w))
    assert torch.autograd.gradgradcheck(lambda x: F.rms_norm(x, (3,)), (x,))
    assert torch.autograd.gradgradcheck(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (x,))
