"""`out=`: which functions take it, and what it does, as in PyTorch."""
import inspect
import warnings

import numpy as np
import pytest

import autograd_gpu

CASES = {
    "plain": lambda torch, a, empty: torch.add(a, a, out=empty(3)),
    "is_out": lambda torch, a, empty: [torch.exp(a, out=o) is o for o in [empty(3)]],
    "version": lambda torch, a, empty: [torch.exp(a, out=o)._version for o in [empty(3), empty(0)]],
    "empty": lambda torch, a, empty: torch.add(a, a, out=empty(0)),
    "resized": lambda torch, a, empty: torch.add(a, a, out=empty(5)),
    "wider": lambda torch, a, empty: torch.add(a, 1, out=empty(3, dtype=torch.float64)),
    "narrower": lambda torch, a, empty: torch.add(a, 1, out=empty(3, dtype=torch.int64)),
    "complex_to_real": lambda torch, a, empty: torch.mul(a, 1j, out=empty(3)),
    "integers_to_floats": lambda torch, a, empty: torch.add(a.long(), 1, out=empty(3)),
    "a_comparison": lambda torch, a, empty: torch.lt(a, 1, out=empty(3, dtype=torch.int64)),
    "another_dtype": lambda torch, a, empty: torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=empty(2, 2, dtype=torch.float64)),
    "in_the_dtype_of_out": lambda torch, a, empty: [
        f(a * 1.1, 0, out=empty(0, dtype=getattr(torch, d))) for d in ("float64", "float16", "int64")
        for f in (torch.sum, torch.prod, torch.cumsum, torch.cumprod)],
    "a_mean": lambda torch, a, empty: [f(a, 0, out=empty((), dtype=torch.float64)) for f in (torch.mean, torch.nansum)],
    "told_another_dtype": lambda torch, a, empty: torch.sum(a, 0, dtype=torch.float64, out=empty(())),
    "joined": lambda torch, a, empty: [f([a, a], out=empty(0, dtype=torch.float64)) for f in (torch.cat, torch.stack, torch.hstack)],
    "wider_than_logsumexp": lambda torch, a, empty: torch.logsumexp(a, 0, out=empty((), dtype=torch.float64)),
    "no_tensor": lambda torch, a, empty: torch.add(a, a, out="a"),
    "none": lambda torch, a, empty: torch.add(a, a, out=None),
    "an_operand": lambda torch, a, empty: [torch.mul(a, 2, out=a), a],
    "a_view": lambda torch, a, empty: [[torch.mul(a, 2, out=z[:, 0]), z] for z in [torch.zeros(3, 2)]],
    "expanded": lambda torch, a, empty: torch.add(a, a, out=empty(1).expand(3)),
    "a_part_of_an_operand": lambda torch, a, empty: torch.add(a[:2], 1, out=a[1:]),
    "beside_an_operand": lambda torch, a, empty: [[torch.add(z[:, 0], 1, out=z[:, 1]), z] for z in [torch.zeros(3, 2)]],
    "over_what_it_picks_from": lambda torch, a, empty: torch.gather(a, 0, torch.tensor([0, 1, 1]), out=a),
    "over_what_it_joins": lambda torch, a, empty: torch.cat([a[:1], a[1:]], out=a),
    "over_what_it_sums": lambda torch, a, empty: torch.sum(a, 0, out=a[0]),
    "expanded_for_an_index": lambda torch, a, empty: torch.gather(a, 0, torch.tensor([0, 1, 1]), out=empty(1).expand(3)),
    "requires_grad": lambda torch, a, empty: torch.add(a.requires_grad_(), 1, out=empty(3)),
    "out_requires_grad": lambda torch, a, empty: torch.add(a, 1, out=empty(3).requires_grad_()),
    "a_list_requires_grad": lambda torch, a, empty: torch.cat([a, a.clone().requires_grad_()], out=empty(6)),
    "in_no_grad": lambda torch, a, empty: torch.no_grad()(lambda: torch.add(a.requires_grad_(), 1, out=empty(3)))(),
    "a_dimension": lambda torch, a, empty: torch.sum(a, 0, out=empty(())),
    "by_other_names": lambda torch, a, empty: torch.cumsum(a, dim=0, out=empty(3)),
    "keyword_only": lambda torch, a, empty: torch.add(a, a, alpha=2, out=empty(3)),
    "two": lambda torch, a, empty: torch.max(a.reshape(1, 3), 1, out=(empty(1), empty(1, dtype=torch.int64))),
    "two_wrong_dtypes": lambda torch, a, empty: torch.max(a.reshape(1, 3), 1, out=(empty(1), empty(1))),
    "one_of_two": lambda torch, a, empty: torch.sort(a, out=empty(3)),
    "sorted": lambda torch, a, empty: torch.sort(a, descending=True, out=(empty(0), empty(0, dtype=torch.int64))),
    "a_list": lambda torch, a, empty: torch.stack([a, a], out=empty(2, 3)),
    "a_vector_product": lambda torch, a, empty: torch.matmul(a, a, out=empty(())),
    "second_names": lambda torch, a, empty: [torch.multiply(a, a, out=empty(3)), torch.arcsin(a / 4, out=empty(3))],
    "composed": lambda torch, a, empty: [torch.std(a, 0, out=empty(())), torch.norm(a, out=empty(())), torch.clip(a, 0, 1, out=empty(3))],
    "linalg": lambda torch, a, empty: [torch.linalg.inv(torch.eye(2) * 2, out=empty(0)), torch.linalg.norm(a, out=empty(()))],
    "linalg_several": lambda torch, a, empty: torch.linalg.slogdet(torch.eye(2) * 2, out=(empty(0), empty(0))),
    "made": lambda torch, a, empty: [torch.zeros(3, out=a), torch.arange(4, out=empty(4)), a],
    "made_of_the_dtype_of_out": lambda torch, a, empty: torch.eye(2, out=empty(0, dtype=torch.int64)),
    "made_of_another_dtype": lambda torch, a, empty: torch.zeros(3, out=a, dtype=torch.float64),
    "drawn": lambda torch, a, empty: torch.rand(2, 3, out=empty(2, 3)).shape,
    "drawn_from": lambda torch, a, empty: torch.multinomial(a, 2, out=empty(0, dtype=torch.int64)).shape,
    "method": lambda torch, a, empty: a.add(a, out=empty(3)),
}


def outcome(torch, case):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = CASES[case](torch, torch.arange(3.0), torch.empty)
        except Exception as error:
            return type(error)
    return repr(found).replace("_out(", "("), [w.category for w in seen]


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case):
    torch = pytest.importorskip("torch")
    assert outcome(autograd_gpu, case) == outcome(torch, case)


def test_what_it_says():
    a = autograd_gpu.arange(3.0)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation, but one of the arguments requires grad"):
        autograd_gpu.add(a.clone().requires_grad_(), 1, out=a)
    with pytest.raises(RuntimeError, match="result type .*float32 can't be cast to the desired output type .*int64"):
        autograd_gpu.add(a, 1, out=autograd_gpu.empty(3, dtype=autograd_gpu.int64))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype .*float32, but got .*float64 instead"):
        autograd_gpu.mm(autograd_gpu.eye(2), autograd_gpu.eye(2), out=autograd_gpu.empty(0, dtype=autograd_gpu.float64))
    with pytest.warns(UserWarning, match=r"was resized since it had shape \[2\], which does not match the required output shape \[3\]"):
        autograd_gpu.add(a, 1, out=autograd_gpu.empty(2))
    with pytest.raises(RuntimeError, match="view"):          # PyTorch writes beyond it, over its base
        autograd_gpu.add(a, 1, out=autograd_gpu.zeros(3)[:2])


def test_a_failed_call_leaves_out_as_it_was():
    a, out = autograd_gpu.arange(3.0), autograd_gpu.zeros(1)
    wrong = autograd_gpu.zeros(1)
    with pytest.raises(RuntimeError):
        autograd_gpu.max(a.reshape(1, 3), 1, out=(out, wrong))
    assert out.tolist() == [0.0] and out._version == 0


def test_the_memory_is_written_to():
    array = np.zeros(3)
    autograd_gpu.exp(autograd_gpu.zeros(3, dtype=autograd_gpu.float64), out=autograd_gpu.from_numpy(array))
    assert array.tolist() == [1.0, 1.0, 1.0]


def arguments(torch):
    """Argument lists of which nearly every function takes one."""
    x, n = torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.int64)
    row, at = x[0], torch.zeros(2, dtype=torch.int64)
    return [(x,), (x, x), (x, 0), (x, x, x), ([x, x],), (x, 0, x), (x, 0, n), (x, 0, at), (x, [1]), (2,), (0, 1, 3), (x, 1, 1),
            (x, 0, n, x), (x, x > 0), (x, 0, at, x), (x, x, 0), (x, at), (x > 0, x, x), (0, 2), (1, x), (x, row), (row, row),
            (x[:, :1], x), (x[None], x[None]), (x, x[None], x[None]), (row, x, row), (x, row, row), (n, n), (n,), (torch.eye(2),),
            (0, 3, (2,)), ((2,), 1.0), (x + 3, 2), (x, x > 0, 1.0), (x, 0, at, 1.0), (x, (at,), row), (x, row, 0, 0)]


def takes_out(torch, function):
    """Whether PyTorch's function takes out=: found by calling it; None where it takes none of the arguments above."""
    found = None
    for args in arguments(torch):
        try:
            function(*args)
        except Exception:
            continue
        found = False
        for out in (torch.empty(0), *[(torch.empty(0),) * k for k in (2, 3)]):
            try:
                function(*args, out=out)
            except TypeError as error:
                if any(word in str(error) for word in ("unexpected keyword", "no keyword", "invalid combination", "invalid keyword")):
                    continue
            except Exception:
                pass
            return True
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_same_functions_take_it():
    torch = pytest.importorskip("torch")
    modules = {"": (autograd_gpu, torch), "linalg.": (autograd_gpu.linalg, torch.linalg)}
    pairs = {prefix + name: (getattr(ours, name), getattr(theirs, name)) for prefix, (ours, theirs) in modules.items()
             for name in dir(ours) if inspect.isfunction(getattr(ours, name)) and hasattr(theirs, name)}
    found = {name: (has_out(ours), takes_out(torch, theirs)) for name, (ours, theirs) in pairs.items()}
    assert {name: pair for name, pair in found.items() if pair[0] is not pair[1] and pair[1] is not None} == {}
    assert sum(theirs is True for _, theirs in found.values()) > 200


def has_out(function):
    """Whether our function has a parameter out; the package's, of an op that was not yet called, says so in its record."""
    record = getattr(function, "record", None)
    return "out" in inspect.signature(function).parameters if record is None else record.out
