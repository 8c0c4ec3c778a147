"""torch.nn.functional's names for the package's ops."""
from __future__ import annotations

from autograd_gpu import ops as _ops  # noqa: F401 - fills the registry
from autograd_gpu.ops.inplace import inplace as _inplace
from autograd_gpu.ops.namespace import OPS as _OPS
from autograd_gpu.ops.namespace import REGISTRY as _REGISTRY

_SAME = (
    # activations
    "gelu", "softplus", "logsigmoid", "softsign", "hardshrink", "softshrink", "tanhshrink", "sigmoid", "tanh", "glu", "prelu",
    # linear, normalisation, embedding
    "linear", "bilinear", "layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "one_hot", "pad",
    "cosine_similarity", "pairwise_distance", "local_response_norm",
    # dropout of channels, attention
    "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "scaled_dot_product_attention",
    "multi_head_attention_forward",
    # losses
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
    "nll_loss", "cross_entropy", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "gaussian_nll_loss", "poisson_nll_loss", "soft_margin_loss", "multilabel_soft_margin_loss",
    "multi_margin_loss",
    # convolution
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold",
    # pooling
    *(f"{name}{n}d{rest}" for n in (1, 2, 3) for name, rest in (
        ("max_pool", ""), ("max_pool", "_with_indices"), ("avg_pool", ""), ("adaptive_avg_pool", ""), ("adaptive_max_pool", ""),
        ("adaptive_max_pool", "_with_indices"), ("max_unpool", ""), ("lp_pool", ""))),
    # images
    "interpolate", "upsample", "upsample_nearest", "upsample_bilinear", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
)
_RENAMED = {"softmax": "softmax_function", "log_softmax": "log_softmax_function", "softmin": "softmin_function",
            "dropout": "dropout_function", "embedding": "embedding_lookup", "unfold": "unfold_function"}
_WITH_INPLACE = {"relu6": 0, "leaky_relu": 1, "elu": 1, "selu": 0, "celu": 1, "silu": 0, "mish": 0, "hardtanh": 2, "hardsigmoid": 0,
                 "hardswish": 0, "threshold": 2}      # how many arguments stand before `inplace`

globals().update({name: getattr(_OPS, name) for name in _SAME if hasattr(_OPS, name)})
for _name in set(_SAME) & set(globals()):
    if not _REGISTRY[_name].is_function:     # found here only, by a pickle too
        globals()[_name].__module__ = __name__
globals().update({name: getattr(_OPS, op) for name, op in _RENAMED.items()})
_relu, relu_ = _OPS.relu, _inplace(_REGISTRY["relu"])


def relu(input, inplace=False):
    """The input, 0 where it is negative; with `inplace` written into it. Reference: torch.nn.functional.relu."""
    return relu_(input) if inplace else _relu(input)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the classes that `logits` are of, relaxed: softmax((logits + noise) / tau), the noise being Gumbel's.

    The smaller tau, the nearer the sample is to one class. With `hard` it is one class, as a vector of 0 and 1, and the gradient is the
    relaxed one's. `eps` is without effect. Formula: Jang, Gu, Poole 2017. Reference: torch.nn.functional.gumbel_softmax.
    """
    noise = -_OPS.zeros_like(logits).exponential_().log()
    relaxed = _OPS.softmax((logits + noise) / tau, dim)
    if not hard:
        return relaxed
    picked = relaxed.detach().argmax(dim, True)
    return _OPS.zeros_like(logits).scatter(dim, picked, 1.0) - relaxed.detach() + relaxed


def _with_inplace(name, before):
    plain, written = getattr(_OPS, name), _inplace(_REGISTRY[name])

    def function(input, *args, inplace=False, **kwargs):
        if len(args) > before:
            *args, inplace = args
        return written(input, *args, **kwargs) if inplace else plain(input, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{plain.__doc__}\n\n    With `inplace` the result is written into the input."
    return {name: function, name + "_": written}


for _name, _before in _WITH_INPLACE.items():
    if hasattr(_OPS, _name):
        globals().update(_with_inplace(_name, _before))

__all__ = [name for name in globals() if not name.startswith("_") and name != "annotations"]
