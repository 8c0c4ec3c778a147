"""Losses of pairs and margins, the gate and the norm of neighbouring channels beside PyTorch: values, derivatives, errors."""
import itertools

import numpy as np
import pytest

import autograd_gpu
from tests.parity import said
from tests.test_pooling import agree, twice

F, SIGN, SURE = "normal", "1 or -1", "positive"
LOSSES = {
    "margin_ranking_loss": ([(F, 5), (F, 5), (SIGN, 5)], {}, {"margin": 0.7}),
    "hinge_embedding_loss": ([(F, 9), (SIGN, 9)], {}, {"margin": 0.3}),
    "cosine_embedding_loss": ([(F, 6, 3), (F, 6, 3), (SIGN, 6)], {}, {"margin": 0.2}),
    "triplet_margin_loss": ([(F, 4, 3), (F, 4, 3), (F, 4, 3)], {}, {"margin": 2.0, "p": 3.0, "swap": True}),
    "triplet_margin_with_distance_loss": ([(F, 4, 3), (F, 4, 3), (F, 4, 3)], {}, {"swap": True, "margin": 0.5}),
    "gaussian_nll_loss": ([(F, 4, 3), (F, 4, 3), (SURE, 4, 1)], {}, {"full": True, "eps": 0.9}),
    "poisson_nll_loss": ([(SURE, 6), (SURE, 6)], {}, {"log_input": False, "full": True}),
    "soft_margin_loss": ([(F, 6), (SIGN, 6)], {}, {}), "multilabel_soft_margin_loss": ([(F, 4, 3), (SURE, 4, 3)], {}, {})}
CALLS = {
    "glu": [{"dim": 0}, {"dim": -3}, {"dim": 1}], "local_response_norm": [{"size": 2}, {"size": 3, "alpha": 0.5, "beta": 0.6, "k": 2.0}]}


def values(kind, shape, seed):
    rs = np.random.RandomState(seed)
    return {F: rs.randn(*shape), SIGN: rs.choice([1.0, -1.0], shape), SURE: rs.uniform(0.3, 3.0, shape)}[kind]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, reduction, oracle, close):
    kinds, *several = LOSSES[name]
    arrays = [values(kind, shape, k) for k, (kind, *shape) in enumerate(kinds)]
    for options, at in itertools.product(several, range(len(kinds) if kinds[-1][0] == F else len(kinds) - 1)):
        def run(torch, options=options, at=at):
            others = [torch.tensor(a) for a in arrays]
            f = getattr(torch.nn.functional, name)
            return twice(torch, lambda x: f(*others[:at], x, *others[at + 1:], reduction=reduction, **options), arrays[at])
        agree(close, run(autograd_gpu), run(oracle))


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, found in CALLS.items() for o in found])
def test_gates_and_norms(name, options, oracle, close):
    for dtype, shape in itertools.product(["float64", "float32"], [(4, 6, 4), (2, 4, 4, 3)]):
        agree(close, *[twice(torch, lambda x, torch=torch: getattr(torch.nn.functional, name)(x, **options), values(F, shape, 1), dtype)
                       for torch in (autograd_gpu, oracle)])


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_pairwise_distance(p, oracle, close):
    for keepdim in (False, True):
        agree(close, *[twice(torch, lambda x, torch=torch, keepdim=keepdim: torch.pairwise_distance(
            x, torch.tensor(values(F, (3, 4), 2)), p, 1e-3, keepdim), values(F, (3, 4), 1)) for torch in (autograd_gpu, oracle)])


REFUSED = {
    "margins of other dimensions": (lambda f, one: f.margin_ranking_loss(one(3), one(3), one(3, 1)), "same dimension"),
    "several targets": (lambda f, one: f.cosine_embedding_loss(one(3, 2), one(3, 2), one(3, 2)), "multi-target not supported"),
    "one target for rows": (lambda f, one: f.cosine_embedding_loss(one(3, 2), one(3, 2), one()), "0D target tensor expects 1D input"),
    "triplets of other dimensions": (lambda f, one: f.triplet_margin_loss(one(3), one(3, 2), one(3, 2)), "same number of dimensions"),
    "negative margin": (lambda f, one: f.triplet_margin_loss(one(3, 2), one(3, 2), one(3, 2), margin=-1.0), "must be greater than 0"),
    "negative variance": (lambda f, one: f.gaussian_nll_loss(one(3), one(3), -one(3)), "negative entry"),
    "variance of another size": (lambda f, one: f.gaussian_nll_loss(one(3), one(3), one(2)), "incorrect size"),
    "reduction": (lambda f, one: f.soft_margin_loss(one(3), one(3), reduction="most"), "not a valid value for reduction"),
    "odd halves": (lambda f, one: f.glu(one(2, 3)), "Halving dimension must be even, but dimension 1 is size 3"),
    "gate of a number": (lambda f, one: f.glu(one()), "does not support scalars"),
    "no such dimension": (lambda f, one: f.glu(one(4), 2), "out of range"),
    "gate of integers": (lambda f, one: f.glu(one(4).long()), "not implemented for"),
    "channels without places": (lambda f, one: f.local_response_norm(one(2, 3), 2), "Expected 3D or higher")}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what, oracle):
    f, word = REFUSED[what]
    found = [said(lambda torch=torch: f(torch.nn.functional, lambda *shape: torch.ones(shape)), word) for torch in (autograd_gpu, oracle)]
    assert found[0] == found[1] and found[0][1] == [True]


def test_multi_margin_loss(oracle, close):
    for p, weighted, reduction in itertools.product([1, 2], [False, True], ["mean", "none"]):
        def run(torch, p=p, weighted=weighted, reduction=reduction):
            weight = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64) if weighted else None
            x = torch.tensor(values(F, (3, 4), 1), requires_grad=True)
            y = torch.nn.functional.multi_margin_loss(x, torch.tensor([0, 2, 3]), p, 0.7, weight, reduction=reduction)
            return y.detach(), *torch.autograd.grad((y * y).sum(), x)              # PyTorch has no second derivative
        for a, b in zip(run(autograd_gpu), run(oracle), strict=True):
            close(a, b)
    for torch in (autograd_gpu, oracle):
        f = torch.nn.functional.multi_margin_loss
        assert f(torch.tensor([1.0, 2.0]), torch.tensor(1)).shape == ()
        with pytest.raises(ValueError, match="only p == 1 and p == 2"):
            f(torch.ones(2, 3), torch.tensor([0, 1]), 3)
        with pytest.raises(RuntimeError, match="target tensor should be 1-D with size equal to"):
            f(torch.ones(2, 3), torch.tensor([0, 1, 2]))
