"""Programs over floating tensors, one or more for each op that is no elementwise one; test_ops.py and bench run each on two devices.

`PROGRAMS[name]` is (function, shapes of its operands). `VALUES` are programs without a derivative.
"""
import numpy as np

import autograd_gpu as torch

F = torch.nn.functional
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "complex64": 2e-6, "float64": 1e-9, "complex128": 1e-9}     # between two devices


def at(x, *numbers):
    """Integer indices on x's device."""
    return torch.tensor(numbers, device=x.device)


def written(f):
    """A program that writes into a copy of its first operand."""
    def program(x, *others):
        h = x * 1.0
        f(h, *others)
        return h
    return program


def put(index):
    def f(h, v):
        h[index(h) if callable(index) else index] = v
    return written(f)


PROGRAMS = {
    # reductions
    "sum": (lambda x: x.sum(), (3, 4)), "sum_dim": (lambda x: x.sum((0, 2), keepdim=True), (2, 3, 4)),
    "mean": (lambda x: x.mean(1), (3, 4)), "nansum": (lambda x: x.nansum(0), (3, 4)), "max": (lambda x: x.max(), (3, 4)),
    "max_dim": (lambda x: x.max(1).values, (3, 4)), "min_dim": (lambda x: x.min(0, keepdim=True)[0], (3, 4)),
    "amax": (lambda x: x.amax((0, 1)), (3, 4)), "amin": (lambda x: x.amin(1), (3, 4)),
    "aminmax": (lambda x: x.aminmax(dim=1).max - x.aminmax(dim=1).min, (3, 4)), "median": (lambda x: x.median(), (5,)),
    "median_dim": (lambda x: x.median(1).values, (3, 5)), "nanmedian": (lambda x: x.nanmedian(0).values, (5, 2)),
    "logsumexp": (lambda x: x.logsumexp(1), (3, 4)), "norm": (lambda x: x.norm(), (3, 4)), "norm_1": (lambda x: x.norm(1, 1), (3, 4)),
    "norm_3": (lambda x: x.norm(3, (0, 1)), (3, 4)), "norm_inf": (lambda x: x.norm(float("inf"), 0), (3, 4)),
    "prod": (lambda x: x.prod(), (5,)), "prod_dim": (lambda x: x.prod(1), (3, 4)), "var": (lambda x: x.var(1), (3, 4)),
    "std": (lambda x: x.std((0, 1), correction=0), (3, 4)), "var_mean": (lambda x: sum(torch.var_mean(x, 0)), (3, 4)),
    "std_mean": (lambda x: sum(torch.std_mean(x, 1)), (3, 4)), "cumsum": (lambda x: x.cumsum(1), (3, 4)),
    "cumprod": (lambda x: x.cumprod(0), (3, 4)), "nanmean": (lambda x: x.nanmean(0), (3, 4)),
    # shapes and parts
    "view": (lambda x: x.view(4, 3) * 2, (3, 4)), "reshape": (lambda x: x.t().reshape(-1) * 2, (3, 4)),
    "expand": (lambda x: x.expand(2, 3, 4) * 2, (3, 1)), "permute": (lambda x: x.permute(2, 0, 1) * 2, (2, 3, 4)),
    "transpose": (lambda x: x.transpose(0, 1).contiguous(), (3, 4)),
    "squeeze": (lambda x: x.squeeze().unsqueeze(-1) * x.squeeze(1).unsqueeze(0), (3, 1)),
    "flatten": (lambda x: x.flatten(1) * 2, (2, 3, 4)), "unflatten": (lambda x: x.unflatten(1, (2, 2)) * 2, (3, 4)),
    "movedim": (lambda x: x.movedim(0, 2) * 2, (2, 3, 4)), "select": (lambda x: x[1] * 2, (3, 4)),
    "slice": (lambda x: x[1:, ::2] * 2, (3, 4)), "ellipsis": (lambda x: x[..., None, -1] * 2, (2, 3, 4)),
    "diagonal": (lambda x: x.diagonal(1) * 2, (3, 4)), "diag": (lambda x: x.diag(), (3,)),
    "diag_embed": (lambda x: torch.diag_embed(x), (2, 3)), "tril": (lambda x: x.tril(), (3, 4)), "triu": (lambda x: x.triu(1), (3, 4)),
    "flip": (lambda x: x.flip(0, 1), (3, 4)), "roll": (lambda x: x.roll((1, 2), (0, 1)), (3, 4)),
    "repeat": (lambda x: x.repeat(2, 3), (3, 4)), "tile": (lambda x: x.tile(2), (3, 4)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), (3, 4)), "rot90": (lambda x: x.rot90(1), (3, 4)),
    "unfold": (lambda x: x.unfold(1, 2, 1) * 2, (3, 4)),
    "as_strided": (lambda x: x.as_strided((2, 3), (1, 2), 1) * 2, (8,)), "unbind": (lambda x: x.unbind(1)[1] * x.unbind(1)[0], (3, 4)),
    "split": (lambda x: x.split(2)[0] * x.split(2)[1], (4, 3)), "split_sizes": (lambda x: x.split([1, 3], 1)[1] * 2, (3, 4)),
    "chunk": (lambda x: x.chunk(2, 1)[1] * 2, (3, 4)), "narrow": (lambda x: x.narrow(1, 1, 2) * 2, (3, 4)),
    "clone": (lambda x: x.clone(), (3, 4)), "select_scatter": (lambda x, v: x.select_scatter(v, 1, 2), (3, 4), (3,)),
    "slice_scatter": (lambda x, v: x.slice_scatter(v, 0, 1, 3), (3, 4), (2, 4)),
    "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v), (3, 3), (3,)), "sum_to_size": (lambda x: x.sum_to_size(3, 1), (3, 4)),
    # joins
    "cat": (lambda x, y: torch.cat((x, y, x), 1), (3, 4), (3, 2)), "stack": (lambda x, y: torch.stack((x, y), 1), (3, 4), (3, 4)),
    "hstack": (lambda x, y: torch.hstack((x, y)), (3,), (2,)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij")[0] * 2, (3,), (2,)),
    "block_diag": (lambda x, y: torch.block_diag(x, y), (2, 3), (2, 2)),
    "cartesian_prod": (lambda x, y: torch.cartesian_prod(x, y), (3,), (2,)),
    # sorting
    "sort": (lambda x: x.sort(1, descending=True)[0], (3, 4)), "topk": (lambda x: x.topk(2, 0)[0], (3, 4)),
    # indices
    "index": (lambda x: x[at(x, 2, 0, 2)], (3, 4)), "index_two": (lambda x: x[at(x, 0, 2), at(x, 1, 1)], (3, 4)),
    "index_list": (lambda x: x[[0, 2], :, [1, 3]], (3, 2, 4)), "mask": (lambda x: x[x > 0], (3, 4)),
    "masked_select": (lambda x: x.masked_select(x > 0), (3, 4)), "index_select": (lambda x: x.index_select(1, at(x, 3, 1, 1)), (3, 4)),
    "gather": (lambda x: x.gather(1, at(x, [0, 3], [1, 1], [2, 2])), (3, 4)),
    "scatter": (lambda x, v: x.scatter(1, at(x, [0, 1], [1, 2], [2, 0]), v), (3, 4), (3, 2)),
    "scatter_add": (lambda x, v: x.scatter_add(1, at(x, [0, 0], [1, 2], [2, 0]), v), (3, 4), (3, 2)),
    "index_add": (lambda x, v: x.index_add(0, at(x, 0, 2, 0), v, alpha=2), (3, 4), (3, 4)),
    "index_copy": (lambda x, v: x.index_copy(1, at(x, 0, 2), v), (3, 4), (3, 2)),
    "index_fill": (lambda x: x.index_fill(0, at(x, 1), 2.0), (3, 4)),
    "index_put": (lambda x, v: x.index_put((at(x, 0, 2),), v, accumulate=True), (3, 4), (2, 4)),
    "take": (lambda x: x.take(at(x, 0, 5, 5)), (3, 4)),
    "take_along_dim": (lambda x: x.take_along_dim(at(x, [0], [1], [2]), 1), (3, 4)),
    "masked_scatter": (lambda x, v: x.masked_scatter(x.detach() > 0, v), (3, 4), (12,)),
    "masked_fill": (lambda x: x.masked_fill(x.detach() > 0, 0.5), (3, 4)), "where": (lambda x, y: torch.where(x > y, x, y), (3, 4), (4,)),
    "where_number": (lambda x: torch.where(x > 0, x, 0.0), (3, 4)),
    # products
    "mm": (lambda x, y: x @ y, (3, 4), (4, 2)), "mv": (lambda x, y: x @ y, (3, 4), (4,)), "dot": (lambda x, y: x @ y, (4,), (4,)),
    "bmm": (lambda x, y: torch.bmm(x, y), (2, 3, 4), (2, 4, 2)), "matmul_broadcast": (lambda x, y: x @ y, (2, 1, 3, 4), (3, 4, 2)),
    "matmul_transposed": (lambda x, y: x.t() @ y.t(), (4, 3), (2, 4)),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (2,), (3, 4), (4, 2)),
    "addmv": (lambda b, x, y: torch.addmv(b, x, y), (3,), (3, 4), (4,)),
    "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y), (2, 3, 2), (2, 3, 4), (2, 4, 2)),
    "outer": (lambda x, y: torch.outer(x, y), (3,), (4,)), "tensordot": (lambda x, y: torch.tensordot(x, y, 2), (2, 3, 4), (3, 4, 2)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), (2, 3, 4), (2, 2, 4)), "trace": (lambda x: x.trace(), (3, 3)),
    "kron": (lambda x, y: torch.kron(x, y), (2, 2), (2, 3)), "inner": (lambda x, y: torch.inner(x, y), (3, 4), (2, 4)),
    "vdot": (lambda x, y: torch.vdot(x, y), (4,), (4,)),
    # functional
    "softmax": (lambda x: F.softmax(x, 1), (3, 4)), "log_softmax": (lambda x: F.log_softmax(x, -1), (3, 4)),
    "linear": (lambda x, w, b: F.linear(x, w, b), (3, 4), (2, 4), (2,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)), "prelu": (lambda x, w: F.prelu(x, w), (3, 4), (1,)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (5, 3), (3,), (3,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (3, 4, 2), (4,), (4,)),
    "instance_norm": (lambda x: F.instance_norm(x), (2, 3, 4)), "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), (3, 4), (4,)),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), (5, 2), (5, 3), (4, 2, 3), (4,)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 3, 4), (2, 3, 4), (2, 3, 4)),
    "embedding": (lambda w: F.embedding(at(w, [0, 2], [2, 1]), w), (3, 4)), "normalize": (lambda x: F.normalize(x, dim=1), (3, 4)),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, dim=1), (3, 4), (3, 4)),
    "dropout_off": (lambda x: F.dropout(x, 0.5, training=False) * 2, (3, 4)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (3, 4)), "selu": (lambda x: F.selu(x), (3, 4)),
    "relu6": (lambda x: F.relu6(x), (3, 4)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding="same"), (2, 2, 7), (4, 2, 2), (4,)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, 2, 1, groups=2), (2, 4, 6, 5), (6, 2, 3, 2), (6,)),
    "conv3d": (lambda x, w: F.conv3d(x, w, dilation=2), (1, 2, 4, 3, 5), (3, 2, 2, 1, 2)),
    "conv_transpose2d": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), (2, 3, 3, 4), (3, 2, 3, 2), (2,)),
    "unfold_images": (lambda x: F.unfold(x, (2, 3), padding=1), (2, 2, 4, 4)),
    "fold": (lambda x: F.fold(x, 4, 2, stride=(1, 2)), (2, 8, 6)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (2, 3, 4, 4)), "max_pool2d_3": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 5, 5)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (2, 3, 4, 4)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (2, 3, 4, 5)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), (2, 3, 5)), "pad": (lambda x: F.pad(x, (1, 2, 1, 0)), (2, 3, 4)),
    "pad_reflect": (lambda x: F.pad(x, (1, 2, 1, 1), "reflect"), (2, 3, 4)), "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (4, 2, 3)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (1, 2, 3, 3)),
    "interpolate_bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 3, 3)),
    "glu": (lambda x: F.glu(x), (3, 4)), "pairwise_distance": (lambda x, y: F.pairwise_distance(x, y), (3, 4), (3, 4)),
    # losses
    "mse": (lambda x, y: F.mse_loss(x, y), (3, 4), (3, 4)), "l1": (lambda x, y: F.l1_loss(x, y, reduction="none"), (3, 4), (3, 4)),
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y), (3, 4), (3, 4)),
    "huber": (lambda x, y: F.huber_loss(x, y, reduction="sum"), (3, 4), (3, 4)),
    "bce": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (3, 4), (3, 4)),
    "bce_logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (3, 4), (3, 4)),
    "kl_div": (lambda x, y: F.kl_div(x, y.exp(), reduction="batchmean"), (3, 4), (3, 4)),
    "cross_entropy": (lambda x: F.cross_entropy(x, at(x, 1, 0, 3)), (3, 4)),
    "nll": (lambda x: F.nll_loss(x, at(x, 1, 0, 3), reduction="none"), (3, 4)),
    "cross_entropy_smoothed": (
        lambda x, w: F.cross_entropy(x, at(x, 1, 0, 3), weight=w.detach().abs(), label_smoothing=0.1) + w.sum(), (3, 4), (4,)),
    "nll_2d": (lambda x: F.nll_loss(x, at(x, [[0, 1]], [[2, 0]])), (2, 3, 1, 2)),
    # writes in place
    "add_": (written(lambda h, y: h.add_(y, alpha=2)), (3, 4), (4,)), "mul_": (written(lambda h, y: h.mul_(y)), (3, 4), (3, 4)),
    "zero_": (written(lambda h: h[0].zero_()), (3, 4)), "fill_": (written(lambda h: h[:, 1].fill_(2.0)), (3, 4)),
    "copy_": (written(lambda h, y: h[1:].copy_(y)), (3, 4), (4,)), "sub_view": (written(lambda h, y: h.t()[1].sub_(y)), (3, 4), (3,)),
    "masked_fill_": (written(lambda h: h.masked_fill_(h.detach() > 0, 0.5)), (3, 4)),
    "clamp_": (written(lambda h: h.clamp_(-0.5, 0.5)), (3, 4)),
    "index_add_": (written(lambda h, v: h.index_add_(0, at(h, 0, 2, 0), v)), (3, 4), (3, 4)),
    "inplace_chain": (written(lambda h: h.mul_(2).neg_().add_(1)), (3, 4)),
    "view_of_view": (written(lambda h, y: h.view(-1)[2:8].view(2, 3).mul_(y)), (3, 4), (3,)),
    "iadd": (written(lambda h, y: h.__iadd__(y)), (3, 4), (3, 4)), "set_row": (put(1), (3, 4), (4,)),
    "set_slice": (put((slice(None), slice(1, 3))), (3, 4), (3, 2)), "set_number": (written(lambda h: h.__setitem__(0, 5.0)), (3, 4)),
    "set_at": (put(lambda h: at(h, 0, 2)), (3, 4), (2, 4)), "set_mask": (written(lambda h: h.__setitem__(h.detach() > 0, 0.0)), (3, 4)),
    # beside numbers and small tensors
    "numbers": (lambda x: 2 / (x * 2 + 1) - 3 ** x + x ** 2, (3, 4)),
    "host_scalar": (lambda x: x * torch.tensor(2.0) + torch.tensor(3), (3, 4)), "to_copy": (lambda x: x.float().double() * 2, (3, 4)),
    "complex": (lambda x, y: (torch.complex(x, y) * (1 + 2j)).abs(), (3, 4), (3, 4)),
    "real_imag": (lambda x, y: torch.complex(x, y).exp().imag + torch.complex(x, y).conj().real, (3,), (3,)),
    "angle": (lambda x, y: torch.complex(x, y).angle(), (3,), (3,)),
    "chain": (lambda x, w, b: ((x @ w + b).tanh() * x.sum(1, keepdim=True)).logsumexp(0), (3, 4), (4, 2), (2,)),
    "zero_d": (lambda x, y: x * y.sum() + x, (), (3,)), "empty": (lambda x: x.sum() + (x * 2).sum(), (0, 3)),
}

VALUES = {
    "argmax": lambda x: x.argmax(1), "argmin": lambda x: x.argmin(), "all": lambda x: (x > 0).all(1), "any": lambda x: (x > 0).any(),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0), "nonzero": lambda x: (x > 0).nonzero(),
    "argwhere": lambda x: torch.argwhere(x > 0), "isfinite": lambda x: x.isfinite(), "isclose": lambda x: torch.isclose(x, x + 1e-9),
    "compare": lambda x: (x > 0) | (x == x) & ~(x < 0.5), "one_hot": lambda x: F.one_hot(x.argmax(1), 4), "sign": lambda x: x.sign(),
    "floor_divide": lambda x: x // 0.3, "integers": lambda x: (x * 10).int() % 3, "bits": lambda x: (x * 10).long() ^ 5,
    "shift": lambda x: (x * 10).abs().long() << 2, "zeros_like": lambda x: torch.zeros_like(x),
    "full_like": lambda x: torch.full_like(x, 2.5), "ones_like": lambda x: torch.ones_like(x, dtype=torch.int64),
    "nextafter": lambda x: torch.nextafter(x, x + 1), "heaviside": lambda x: torch.heaviside(x, x), "signbit": lambda x: x.signbit(),
    "half": lambda x: (x.half() * 3).exp().sum(1), "bool": lambda x: x.bool(), "max_indices": lambda x: x.max(0).indices,
    "mean_half": lambda x: x.half().mean(), "float_softmax": lambda x: F.softmax(x.float(), 0),
}


def operands(name):
    """The arrays on which a program of PROGRAMS is tried."""
    rng = np.random.default_rng(len(name))
    return [rng.standard_normal(shape) for shape in PROGRAMS[name][1:]]


def derivatives(program, arrays, where):
    """The result, the gradients and their own gradients, by name."""
    leaves = [torch.from_numpy(a.copy()).to(where).requires_grad_(a.dtype.kind == "f") for a in arrays]
    wanted = [t for t in leaves if t.requires_grad]
    found = {}
    y = program(*leaves)
    found["result"] = y
    weights = torch.from_numpy(np.linspace(0.5, 1.5, max(y.numel(), 1))[:y.numel()].reshape(y.shape)).to(where).to(y.dtype)
    loss = (y * weights).real.sum() if y.is_complex() else (y * weights).sum()
    first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    found |= {f"gradient {i}": g for i, g in enumerate(first) if g is not None}
    rest = [(g * g).sum() for g in first if g is not None and g.requires_grad]
    if rest:
        second = torch.autograd.grad(sum(rest), wanted, allow_unused=True)
        found |= {f"second gradient {i}": g for i, g in enumerate(second) if g is not None}
    return found
