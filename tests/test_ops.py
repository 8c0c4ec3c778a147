"""The loop over the registry: each op with each of its samples, in each form, dtype and order, and at the edges.

PyTorch says what is right where it is installed; elsewhere, and for complex derivatives that PyTorch lacks, finite differences do. An op
without a sample fails: samples are in tests/samples.py. tests/cuda/test_ops.py runs the same on CUDA.

What may differ from PyTorch:
 1. An error may be of a subclass of PyTorch's type; where a sample's sizes were changed, so that a call may be wrong in two ways, of any.
 2. What PyTorch raises for want of a kernel or of a derivative may work here: `MORE` in tests/loop.py has its words.
 3. NumPy has no complex32: the complex numbers of half precision are complex64, and none are views of it.
 4. An index past an empty dimension is an error here, always; PyTorch looks at no index where there is nothing to index.
 5. Which of equal elements comes first, where the sort is not stable.
 6. What was overwritten by an op without a derivative has a gradient of zero; in PyTorch that of a logical op's result goes through to it.
 7. A tangent is what the gradients say, at a kink or a pole, too; PyTorch has formulas of their own for some ops.
"""
import ast
import contextlib
import inspect
import itertools
import sys
import warnings

import numpy as np
import pytest

import autograd_gpu as torch
from autograd_gpu.autograd import forward_ad, gradcheck, gradgradcheck
from autograd_gpu.ops.namespace import OPS, REGISTRY, raw, rebind
from autograd_gpu.ops.op import Op, elementwise
from tests import loop, make_ops_page
from tests.conftest import needs_bfloat16
from tests.loop import CHANGES, DTYPES, Built, How, called, differences, outcome
from tests.samples import SECOND_NAMES, X, samples

ALL = samples()
UNSTABLE = {"topk", "argsort", "sort"}       # rule 5
LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not"}          # rule 6
ROUGH = dict.fromkeys(("celu", "F.hardsigmoid", "F.binary_cross_entropy"), {**loop.TOLERANCE, "float64": 1e-7})    # a float32 constant
ROUGH["addcdiv"] = {**loop.TOLERANCE, "float16": 1e-2, "bfloat16": 5e-2}        # PyTorch rounds the square to half precision

# Edges at which PyTorch's own answer is an accident: of an overflow in between, of a limit that its series lacks, of the sign of 0.
HUGE = {v for d in ("float32", "float64") for v in (float(np.finfo(d).max), -float(np.finfo(d).max))}
TINY = {float(np.finfo(d).smallest_subnormal) for d in ("float32", "float64")}
LEFT_OUT = {"add": HUGE, "sub": HUGE, "subtract": HUGE, "addcmul": HUGE,       # PyTorch rounds once, after multiplying and adding
            "polar": HUGE | TINY, "special.log_ndtr": HUGE | {-np.inf}, "lgamma": TINY, "mvlgamma": TINY | {0.0}, "polygamma": {np.inf}}
COPIES = {"chain_matmul", "Tensor.cuda"}     # a single matrix is passed on here
# Where inputs are strided, these keep the order of their dimensions, while PyTorch's results are in C order.
IN_ANOTHER_ORDER = {"F.logsigmoid", "Tensor.__rpow__", "pow", "float_power", "all", "any", "linalg.solve", "masked_fill", "mvlgamma",
                    "special.multigammaln", "Tensor.mvlgamma", "nanmedian"}
ON_CUDA = {"cuda", "copy_across", "index_put_across"}        # run by tests/cuda only
RECURRENT = {r.name for r in REGISTRY.values() if r.body.__module__ == "autograd_gpu.ops.recurrent"}     # run by tests/test_recurrent.py
NOT_FINITE = ("nan", "inf")
LEFT_OUT_CHANGES = {
    # LAPACK's own affair
    **dict.fromkeys(("linalg.inv", "linalg.solve", "linalg.cholesky", "linalg.eigh", "linalg.eigvalsh", "linalg.svd", "linalg.svdvals",
                     "norm", "inverse", "cholesky", "logdet"), NOT_FINITE),
    # PyTorch's derivative is 0 where the matrix is singular, its norm of nothing a constant
    **dict.fromkeys(("linalg.det", "det", "linalg.slogdet", "slogdet"), (*NOT_FINITE, "ties", "zeros")),
    **dict.fromkeys(("linalg.matrix_norm", "linalg.norm"), (*NOT_FINITE, "last empty", "first empty")),
    # NaN or inf: the order of the operations decides
    **dict.fromkeys(("F.batch_norm", "F.instance_norm", "bilinear", "chain_matmul", "var_mean", "std_mean", "Tensor.polygamma", "polygamma",
                     "special.log_ndtr", "F.binary_cross_entropy_with_logits"), ("inf",)),
    "F.group_norm": ("inf", "last empty"),   # PyTorch: NaN for a sum of nothing
    "block_diag": ("first empty",),          # PyTorch: the gradient of another place
    "pixel_unshuffle": ("last empty",),      # PyTorch: the input's own size
    "F.soft_margin_loss": ("inf",),          # PyTorch: inf / inf in its gradient
}
# Of tangents besides (rule 7): at what is equal to its bound, a quotient by 0, the mean of nothing, a p-norm of 0.
TANGENTS_LEFT_OUT = {
    **dict.fromkeys(("prelu", "fmax", "clamp", "clip", "polar", "F.gaussian_nll_loss", "atan2", "arctan2", "div", "divide", "true_divide"),
                    ("ties", "zeros")),
    **dict.fromkeys(("F.cross_entropy", "median", "nanmedian", "logsumexp", "var", "var_mean", "channel_shuffle", "pixel_unshuffle"),
                    ("last empty", "first empty")),
    **dict.fromkeys(("norm", "linalg.norm", "linalg.vector_norm", "pairwise_distance"), ("zeros", "last empty", "first empty")),
    "view_as_complex": ("first empty",),
}


def forms(name, sample):
    """In which forms PyTorch and this package have this call."""
    own = name.rpartition(".")[2]
    yield "function"
    if not name.startswith(("Tensor.", "F.", "linalg.")) and sample.args and isinstance(sample.args[0], X) and sample.before is None:
        if own in REGISTRY and REGISTRY[own].method:
            yield "method"
        if own in REGISTRY and hasattr(torch.Tensor, own + "_"):
            yield "in-place"


def unlike(oracle, name, sample, how):
    """What differs from PyTorch in one call, by the rules above."""
    want = outcome(oracle, name, sample, how)
    got = outcome(torch, name, sample, how)
    other = outcome(oracle, name, sample, how._replace(change="strided edges")) if how.change == "edges" else None
    if "result" in got and how.change in CHANGES[1:5]:
        if "result" in want or isinstance(got["result"], IndexError) and "empty" in how.change:
            return []
    if name in LOGICAL and how.form == "in-place":
        want, got = ({k: v for k, v in found.items() if not k.startswith("gradient")} for found in (want, got))
    if name in UNSTABLE and (how.dtype not in loop.FLOATING or how.change in ("ties", "zeros")):
        want, got = ({k: v for k, v in found.items() if k == "result 0" and name != "argsort"} for found in (want, got))
    if name in ("embedding", "F.embedding") and True in sample.args:             # PyTorch's second derivative forgets the frequencies
        want, got = ({k: v for k, v in found.items() if not k.startswith("second")} for found in (want, got))
    return differences(got, want, other, ROUGH.get(name))


def check(oracle, name, hows):
    found = []
    for n, sample in enumerate(ALL[name][1]):
        for how in hows(sample):
            found += [f"{name}, sample {n}, {how.dtype} {how.form} {how.change}: {text}" for text in unlike(oracle, name, sample, how)]
    assert not found, "\n" + "\n".join(found)


# ------------------------------------------------------------------------------------------------------------ beside PyTorch

@pytest.mark.parametrize("name", ALL)
def test_values_and_derivatives_in_each_form(name, oracle):
    def hows(sample):
        for form in forms(name, sample):
            yield How(form=form, orders=2 if form == "function" else 1)
        yield How("complex128", orders=2)
        yield How("float32", change="strided")
    check(oracle, name, hows)


@pytest.mark.parametrize("name", ALL)
def test_dtypes(name, oracle):
    check(oracle, name, lambda sample: [How(dtype) for dtype in DTYPES])


@pytest.mark.parametrize("name", ALL)
def test_sizes_and_values_at_the_edges(name, oracle):
    changes = [c for c in CHANGES[1:] if c not in LEFT_OUT_CHANGES.get(name, ())]
    check(oracle, name, lambda sample: [How(change=c) for c in changes])


@pytest.mark.parametrize("name", ALL)
def test_tangents(name, oracle):
    def hows(sample):
        for form in forms(name, sample):
            if not (name in LOGICAL and form == "in-place"):     # rule 6
                yield How(form=form, forward=True)
        yield How("complex128", forward=True)
        for change in CHANGES[1:-2]:
            if change not in (*LEFT_OUT_CHANGES.get(name, ()), *TANGENTS_LEFT_OUT.get(name, ())):
                yield How(change=change, forward=True)
        if sample.kwargs.get("dtype") is None:       # which PyTorch's tangents do not have
            yield How("float32", change="strided", forward=True)
            yield How("float16", forward=True)
    check(oracle, name, hows)


@pytest.mark.parametrize("name", ALL)
def test_which_results_have_a_tangent_where_one_operand_has(name, oracle):
    def found(module, sample, form, only):
        with contextlib.suppress(Exception), warnings.catch_warnings():      # other tests ask for errors
            warnings.simplefilter("ignore")
            return [t is not None for t in loop.tangents_of(module, Built(module, sample, How()), called(module, name, form), sample, only)]
    for sample in ALL[name][1]:
        for form in set(forms(name, sample)) - {"method"}:
            for only in range(len(Built(torch, sample, How()).operands)):
                want = found(oracle, sample, form, only)
                assert want is None or found(torch, sample, form, only) == want, (sample, form, only)


@pytest.mark.parametrize("name", [n for n, (r, _) in ALL.items() if isinstance(r, Op) and r.is_elementwise])
def test_elements_at_the_edges(name, oracle):
    left_out = frozenset(LEFT_OUT.get(name, ()))
    check(oracle, name, lambda sample: [How(d, change="edges", left_out=left_out) for d in ("float64", "float32")])


def layouts(module, name, sample, how):
    """Of each result: whether it is in C order, so that it can be viewed in any shape, and whether it lies in an operand's memory."""
    def array(t):
        return t.numpy(force=True)

    with contextlib.suppress(Exception), warnings.catch_warnings():     # where a call raises, other tests ask for what
        warnings.simplefilter("ignore")
        built = Built(module, sample, how)
        given = [array(t) for t in loop.flat((built.args, list(built.kwargs.values())), module.Tensor) if isinstance(t, module.Tensor)]
        results = loop.flat(built.call(called(module, name, "function"), sample), module.Tensor)
        return [(t.is_contiguous(), any(np.may_share_memory(array(t), a) for a in given))
                for t in results if isinstance(t, module.Tensor) and t.numel()]
    return None


@pytest.mark.parametrize("name", [n for n in ALL if n not in COPIES])
def test_memory_of_results(name, oracle):
    """In C order where PyTorch's are, so that `view` takes them, and in memory of their own where PyTorch's have it."""
    for n, sample in enumerate(ALL[name][1]):
        for dtype, change in itertools.product(("float32", "float16", "int64", "bool"), (None, "strided")):
            ours, theirs = (layouts(module, name, sample, How(dtype, change=change, orders=0)) for module in (torch, oracle))
            for (ordered, shared), (wanted, expected) in zip(ours or (), theirs or (), strict=bool(ours and theirs)):
                where = f"{name}, sample {n}, {dtype} {change}"
                assert ordered or not wanted or name in IN_ANOTHER_ORDER, f"{where}: not in C order"
                assert shared == expected, f"{where}: {'in an' if shared else 'not in any'} operand's memory"


@pytest.mark.parametrize("name", ALL)
def test_pytorch_has_it_in_the_same_forms(name, oracle):
    assert called(oracle, name, "function")
    own = name.rpartition(".")[2]
    if not name.startswith(("F.", "linalg.", "Tensor.", "special.")):
        for form in (own, own + "_"):
            assert hasattr(torch.Tensor, form) == hasattr(oracle.Tensor, form), form


# ------------------------------------------------------------------------------------------------------- without an oracle

def check_differences(name, function, samples):
    """First and second order, real and complex, projected at random."""
    checked = 0
    for sample in samples:
        for dtype in (torch.float64, torch.complex128):
            how = How(str(dtype).rpartition(".")[2])
            found, built = outcome(torch, name, sample, how, function), Built(torch, sample, how)
            if not found.get("recorded") or "gradient" in found or not all(t.isfinite().all() for t in built.operands):
                continue                     # an error, nothing to differentiate, or edges

            results = loop.flat(built.call(function, sample), torch.Tensor)
            kept = [n for n, r in enumerate(results) if isinstance(r, torch.Tensor) and r.requires_grad
                    and r.dtype.to_complex() is torch.complex128 and r.isfinite().all()]

            def f(*operands, built=built, sample=sample, kept=kept):
                results = loop.flat(built.call(function, sample, operands), torch.Tensor)
                return tuple([results[n] for n in kept])
            gradcheck(f, built.operands, fast_mode=True, check_forward_ad=True)
            gradgradcheck(f, built.operands, fast_mode=True, check_fwd_over_rev=True)
            checked += 1
    return checked


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("embedding", "F.embedding")])      # whose padding row has no gradient
def test_derivatives_are_differences(name):
    check_differences(name, called(torch, name, "function"), ALL[name][1])


def gradients_of(sample, function, how, places):
    """The gradients of the operands at some places, then those of their gradients for all operands: arrays or None."""
    built = Built(torch, sample, how)
    results = [r for r in loop.flat(built.call(function, sample), torch.Tensor) if isinstance(r, torch.Tensor) and r.requires_grad]
    ws = [loop.weights(torch, r, n) for n, r in enumerate(results)]
    inputs = [built.operands[i] for i in places]
    found = torch.autograd.grad(results, inputs, ws, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(results, inputs, ws, create_graph=True, allow_unused=True)
    seconds = [torch.autograd.grad(g, [*built.operands, *ws], loop.weights(torch, g, 0), retain_graph=True, allow_unused=True)
               if g is not None and g.requires_grad else () for g in again]
    return [[None if g is None else g.numpy(force=True) for g in (first, recorded, *others)]
            for first, recorded, others in zip(found, again, seconds, strict=True)]


@pytest.mark.parametrize("name", ALL)
def test_the_gradients_of_one_operand_are_those_that_it_has_among_others(name):
    """Nodes then run the formulas of some edges only: ops/runtime.py: partly."""
    function = called(torch, name, "function")
    for sample, dtype in itertools.product(ALL[name][1], ("float64", "float16", "complex128")):
        how = How(dtype, orders=2)
        missing = contextlib.suppress(*() if dtype == "float64" else (Exception,))             # not every op is of every dtype
        with missing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            count = len(Built(torch, sample, how).operands)
            if count > 1 and isinstance(outcome(torch, name, sample, how).get("gradient 0"), torch.Tensor):
                whole = gradients_of(sample, function, how, range(count))
                for i in range(count):
                    np.testing.assert_equal(gradients_of(sample, function, how, [i]), whole[i:i + 1])


def test_formulas_that_nobody_wants_are_not_run():
    @elementwise()
    def first_of_two(self, other):
        return self + other
    first_of_two.vjp(self=lambda grad: grad, other=lambda grad: grad.there_is_nothing)
    try:
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        result = OPS.first_of_two(x, y)
        for create_graph in (False, True):
            g, = torch.autograd.grad(result.sum(), x, retain_graph=True, create_graph=create_graph)
            assert g.tolist() == [1, 1, 1]
            result.sum().backward(inputs=[x], retain_graph=True)
            with pytest.raises(AttributeError, match="there_is_nothing"):
                torch.autograd.grad(result.sum(), y, retain_graph=True, create_graph=create_graph)
    finally:
        del REGISTRY["first_of_two"], OPS.first_of_two


# ------------------------------------------------------------------------------------------------------------- the registry

def test_every_op_has_samples():
    without = [name for name, (_, found) in ALL.items() if not found and name != "Tensor.cuda"]
    assert not without, f"give these a line in tests/samples.py: {without}"
    assert not {*SECOND_NAMES} - {*ALL}, "second names of nothing"


def _codes(record):
    """What an op's or composite's functions are made of."""
    return {f.__code__ for f in (record.body, getattr(record, "arrays", None)) if f}


def test_every_op_runs():
    """What users cannot call by itself, the parts of composites and formulas, is run by somebody's sample."""
    running = set()

    def profile(frame, event, _):
        if event == "call":
            running.add(frame.f_code)

    def run():
        for name, (_, found) in ALL.items():
            for sample in found:
                for how in (How(orders=2), How("complex128", orders=2), How("float16", orders=1), How("int64"), How(forward=True)):
                    outcome(torch, name, sample, how)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    elsewhere = {*ALL, *ON_CUDA, *RECURRENT}
    idle = sorted(r.name for r in REGISTRY.values() if not running & _codes(r) and r.name not in elsewhere)
    assert not idle, f"no sample runs {idle}: give those that use them one in tests/samples.py that does"


@needs_bfloat16
def test_the_page_is_what_the_ops_do():
    assert make_ops_page.PATH.read_text(encoding="utf-8") == make_ops_page.written(), "run `python -m tests.make_ops_page`"


@pytest.mark.parametrize("name, program", {
    "floor_divide": lambda x: x // 1, "heaviside": lambda x: torch.heaviside(x, torch.ones(2)), "remainder": lambda x: 2 % x}.items())
def test_an_op_without_a_derivative_says_so(name, program):
    x = torch.tensor([1.5, 2.5], requires_grad=True)
    with pytest.raises(RuntimeError, match=f"derivative.*{name}.*not implemented"):
        program(x).sum().backward()
    assert x.grad is None
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=f"forward AD with aten::{name}"):
        program(forward_ad.make_dual(x, x))


def test_every_name_that_formulas_and_composites_use_exists():
    """F.<name> is looked up when it runs: a misspelt one would show only there."""
    missing = set()
    for module in {r.body.__globals__["__name__"] for r in REGISTRY.values()}:
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "F":
                if node.attr not in REGISTRY:
                    missing.add((module, node.attr))
    assert not missing


def test_the_namespace_of_arrays_has_the_same_functions():
    x = np.array([0.3, 0.7])
    f = rebind(lambda x: F.tanh(x) + F.logsumexp(x, 0), np)        # noqa: F821 - bound by rebind
    want = OPS.tanh(torch.from_numpy(x)) + OPS.logsumexp(torch.from_numpy(x), 0)
    np.testing.assert_allclose(f(x), want.numpy())
    assert raw(np).tanh is np.tanh
