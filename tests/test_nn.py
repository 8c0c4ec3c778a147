"""Layers and attention where they are asked for something rare; nn.init and nn.utils: all as in PyTorch."""
import numpy as np
import pytest

import autograd_gpu
from tests.parity import data, filled, linear, result, said

PROGRAMS = {}


def program(f):
    """A program over a module named torch; what it returns or raises is compared with PyTorch's."""
    PROGRAMS[f.__name__] = f
    return f


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
def empty_batches(torch):
    found = []
    for affine in (True, False):
        m, x = filled(torch, torch.nn.BatchNorm1d(3, affine=affine)), torch.zeros(0, 3, requires_grad=True)
        y = m(x)
        y.sum().backward()
        found += [y, x.grad, *m.buffers(), [p.grad for p in m.parameters()]]
    return found, torch.nn.functional.batch_norm(torch.zeros(0, 3), None, None, None, data(torch, 3), True)


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
def running_values_no_longer_kept(torch):
    m, x = torch.nn.BatchNorm1d(2), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    m(x)
    m.track_running_stats = False
    return [t.detach().mul(1e4).round() for t in (m(x), m.eval()(x), *m.buffers())]


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


@pytest.mark.parametrize("torch", ["oracle", "ours"])
def test_gumbel_softmax_draws_classes_by_their_probabilities(torch, request):
    torch = autograd_gpu if torch == "ours" else request.getfixturevalue("oracle")
    torch.manual_seed(0)
    gumbel_softmax = torch.nn.functional.gumbel_softmax
    drawn = gumbel_softmax(torch.tensor([0.0, 1.0, -100.0], dtype=torch.float64).expand(4000, 3), hard=True)
    assert np.allclose(drawn.mean(0).tolist(), [0.2689, 0.7311, 0], atol=0.03) and np.isin(drawn.round(decimals=9).tolist(), [0, 1]).all()
    x = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)
    for hard in (False, True):
        y = gumbel_softmax(x, 0.5, hard, dim=0)
        assert np.allclose(y.detach().sum(0).tolist(), 1)
        grad, = torch.autograd.grad(y[0].sum(), x)
        assert np.allclose(grad.sum(0).tolist(), 0) and (grad[0] > 0).all()


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
