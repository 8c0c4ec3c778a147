"""Tensors from data, from nothing and at random: expressions evaluated under PyTorch and here, and what no oracle can tell."""
import pickle
import threading

import numpy as np
import pytest

import autograd_gpu as torch
from tests.parity import result

DATA = """
tensor([]) | tensor(True) | tensor([True, 2]) | tensor([True, 2.5]) | tensor([1, 2j]) | tensor(range(3)) | tensor((1, 2))
tensor(None) | tensor('a') | tensor(['a']) | tensor({}) | tensor(object()) | tensor([[], []]) | tensor([[[]]])
tensor([1, [2]]) | tensor([[1, 2], [3]]) | tensor([[1], 2]) | tensor([[1, 2], 3])
tensor(2**63) | tensor([2**64]) | tensor(300, dtype=uint8) | tensor(-1, dtype=uint8) | tensor(-1., dtype=uint8) | tensor(200, dtype=int8)
tensor(1e40) | tensor(1e40, dtype=float16) | tensor(2.7, dtype=int64) | tensor([-2.7], dtype=int32)
tensor(float('nan'), dtype=int64) | tensor(float('inf'), dtype=int64) | tensor(float('nan'), dtype=bool) | tensor(2j, dtype=float32)
tensor(np.float64(2.5)) | tensor(np.float32(2.5)) | tensor(np.float16(2.5)) | tensor([np.float64(2.5)]) | tensor([np.float32(2.5)])
tensor([np.int32(2)]) | tensor(np.int32(2)) | tensor([np.int32(2), 2.5]) | tensor([np.float64(2), 2.5]) | tensor([np.bool_(True)])
tensor([np.array([1., 2.]), np.array([1., 2.])]) | tensor([np.array([1, 2], np.int32)]) | tensor(np.array(['a']))
tensor([tensor(1.)]) | tensor([tensor(1., dtype=float64)]) | tensor([tensor(1, dtype=int32), 2.5]) | tensor([tensor([1., 2.])])
tensor([tensor([1.])]) | tensor([tensor(1j, dtype=complex128)]) | tensor(np.array([1.], np.longdouble))
tensor(1, requires_grad=True) | tensor(1., requires_grad=True) | tensor([1, 2], dtype=float)
as_tensor([1, 2.5]) | as_tensor(np.float64(2)) | as_tensor(np.arange(3)[::-1]) | as_tensor(np.ones(2), dtype=float32)
from_numpy(np.arange(3)[::-1]) | from_numpy([1]) | from_numpy(np.array(['a'])) | from_numpy(np.float32(2)) | from_numpy(np.eye(2))
asarray([1, 2], copy=False) | asarray(np.ones(2), copy=False, dtype=float32) | asarray(3.5) | asarray(np.ones(2), copy=True)
asarray(ones(2, requires_grad=True)) | asarray([1.], requires_grad=True) | asarray(ones(2, requires_grad=True) * 2)
asarray(ones(2, requires_grad=True) * 2, requires_grad=False) | asarray(ones(2, requires_grad=True), requires_grad=False)
scalar_tensor(3) | scalar_tensor(3, dtype=int64) | tensor(ones(2, requires_grad=True) * 2)
"""

NOTHING = """
zeros(2, 3) | zeros((2, 3)) | zeros([2]) | zeros(size=(2,)) | zeros(()) | zeros() | zeros(2.5) | zeros('a') | zeros(True) | zeros(-1)
zeros(2, dtype=int64) | zeros(2, requires_grad=True) | zeros(2, requires_grad=True, dtype=int64) | zeros(2, layout=strided)
ones(2, 3) | ones(2, dtype=bool) | ones(0) | empty(0, 2) | zeros(3, dtype=complex64) | ones(2, dtype=float16)
full((2,), 1) | full((2,), 1.) | full((2,), True) | full((2,), 1j) | full((2,), tensor(2)) | full((2,), tensor([2, 3]))
full((2,), 300, dtype=uint8) | full((2,), 2.7, dtype=int64) | full(2, 1) | full((2,), 'a') | full((-2,), 1)
full((2,), 1, requires_grad=True) | full((2,), 1., requires_grad=True) | full_like(ones(2), 5) | full_like(ones(2, dtype=int64), 5.5)
arange(5) | arange(5.) | arange(1, 2.5, .5) | arange(0, 5, 0) | arange(5, 0) | arange(5, 0, -2) | arange(5, 0, -3) | arange(0)
arange(3, dtype=float16) | arange(3, dtype=complex64) | arange(3, dtype=bool) | arange(tensor(3)) | arange(float('nan'))
arange(float('inf')) | arange(0, 1, .1) | arange(start=1, end=3) | arange(end=3) | arange(1, 3, requires_grad=True) | arange(True)
arange(1, 3., requires_grad=True) | arange(0.5, 3, dtype=int64) | arange(0.5, 3, 1.5, dtype=int64) | arange(0, 3, 0.5, dtype=int64)
arange('a') | arange() | arange(2**53, 2**53 + 3) | arange(1, 2, 0.3, dtype=float64) | arange(10, 0, -2.5)
linspace(0, 1, 5) | linspace(0, 1, 1) | linspace(0, 1, 0) | linspace(0, 1, -1) | linspace(0, 1) | linspace(0, 10, 4, dtype=int64)
linspace(-3, 3, 4, dtype=int64) | linspace(0, 1j, 3) | linspace(0, 5, 3) | linspace(tensor(0.), tensor(1.), 3) | linspace(3, -3, 7)
logspace(0, 2, 3) | logspace(0, 2, 3, base=2) | logspace(0, 2, 3, 2.) | logspace(-1, 1, 3)
eye(2) | eye(2, 3) | eye(3, 2) | eye(0) | eye(-1) | eye(2, -1) | eye(2.) | eye(2, dtype=bool) | eye(2, requires_grad=True)
ones_like(3) | ones_like(ones(2, dtype=int64), requires_grad=True) | ones_like(ones(2), dtype=float64, requires_grad=True)
zeros_like(ones(2, 3)) | zeros_like(ones(2, dtype=bool)) | empty_like(ones(0, 2)) | zeros_like(ones(2, requires_grad=True))
tril_indices(3, 3) | tril_indices(2, 4, 1) | triu_indices(2, 4, 1) | triu_indices(4, 2, -1) | tril_indices(-1, 2)
ones(2).new_zeros(2, 3) | ones(2).new_zeros((2, 3), dtype=int64) | ones(2, dtype=int32).new_tensor([1.5]) | ones(2).new_ones([3])
ones(2).new_tensor(ones(2, requires_grad=True))
ones(2, dtype=float64).new_tensor([1.5], dtype=float16) | ones(2).new_ones(size=[3])
ones(2, dtype=int32).new_full((2,), 2.5) | ones(2, dtype=int32).new_full((2,), 2, requires_grad=True) | ones(2).new_empty((0, 2))
ones(2).new_ones(3, requires_grad=True)
"""

QUESTIONS = """
is_tensor(3) | is_tensor(ones(2)) | is_floating_point(3) | is_floating_point(ones(2)) | is_complex(ones(2)) | numel(ones(2, 3))
is_nonzero(tensor(2)) | is_nonzero(ones(2)) | result_type(1, 1.5) | result_type(ones(2, dtype=int64), 1.5) | result_type('a', 1)
ones(2, 3).nelement() | ones(2, 3).ndimension() | ones(1).get_device() | tensor(0.).is_nonzero() | ones(2).is_nonzero()
ones(1).is_signed() | ones(1, dtype=uint8).is_signed() | ones(1, dtype=bool).is_signed() | ones(1, dtype=complex64).is_signed()
1 in ones(2) | ones(2) in ones(2) | 2. in ones(2) | np.float32(1) in ones(2) | 'a' in ones(2) | None in ones(2) | [1] in ones(2)
Size([1, 2]) + (3,) | (3,) + Size([1, 2]) | Size([1, 2]) + [3] | Size([1, 2]) * 2 | 2 * Size([1, 2]) | Size([1, 2])[0:1] | Size()
Size([1, 2]) == (1, 2) | Size((1.5,)) | Size([tensor(2)]) | Size([1, 2]).numel() | Size([1, np.int64(2)]) | Size(['a']) | Size(3)
"""

RANDOM = """
rand(3, dtype=int64) | randn(3, dtype=int64) | rand(-1)
randint(0, (2,)) | randint(5, 2, (2,)) | randint(0, 5, 2) | randint(2.5, (2,))
randint(0, 300, (2,), dtype=uint8) | randperm(-1) | randperm(5.5) | normal(0, 1) | normal(0., -1., (2,)) | rand() | rand_like(3)
normal(zeros(2), -ones(2)) | bernoulli(ones(2) * 2) | bernoulli(ones(2, dtype=int64)) | ones(2).uniform_(2, 1)
ones(2, dtype=int64).uniform_() | ones(2, dtype=int64).normal_() | ones(2, dtype=int64).random_(5, -5)
multinomial(ones(3), 5) | multinomial(zeros(3), 2) | multinomial(ones(2, 2, 3), 2) | multinomial(ones(3), 0)
multinomial(-ones(3), 1)
multinomial(ones(3, dtype=int64), 1) | manual_seed('a')
manual_seed(2**64) | rand_like(ones(2, dtype=int64)) | rand(2, generator=3)
randint(4, 5, (2, 2)) | randint(4, 5, (2,), dtype=float32, requires_grad=True) | bernoulli(ones(2))
bernoulli(zeros(2, dtype=float64))
multinomial(tensor([0., 1., 0.]), 3, replacement=True) | multinomial(tensor([[0., 1.], [1., 0.]]), 1) | zeros(3).bernoulli_(1)
normal(ones(2), zeros(2)) | normal(ones(2, requires_grad=True), zeros(2)) | normal(ones(2, requires_grad=True), 0.)
normal(1., zeros(2, requires_grad=True)) | bernoulli(ones(2, requires_grad=True)) | (zeros(2, requires_grad=True) + 1).random_(3, 4)
(zeros(2, requires_grad=True) + 1).bernoulli_(1.) | (zeros(2, requires_grad=True) + 1).bernoulli_(ones(2)) | randint_like(ones(2), 1)
(zeros(2, requires_grad=True) + 1).normal_(3., 0.) | (zeros(2, requires_grad=True) + 1).uniform_(2, 2)
zeros(2, requires_grad=True).normal_() | (zeros(2, requires_grad=True) + 1).random_(1) | randint(high=1, size=(2,))
randint(low=3, high=4, size=(2,)) | randint(0, high=1, size=(2,))
"""


def evaluate(module, expression):
    """The text of an expression's value, or the type of its error, a subclass reduced to what PyTorch raises."""
    try:
        return repr(eval(expression, {**vars(module), "np": np, "float": float, "range": range}))
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("expression", [e.strip() for text in (DATA, NOTHING, QUESTIONS, RANDOM)
                                        for e in text.strip().replace("\n", " | ").split(" | ")])
def test_as_pytorch(oracle, expression):
    assert evaluate(torch, expression) == evaluate(oracle, expression)


# ------------------------------------------------------------------------------------------------------------------ data

def test_memory_is_shared_or_copied_as_named():
    array = np.zeros(3, np.float32)
    shared, copied = torch.from_numpy(array), torch.tensor(array)
    same = torch.as_tensor(array)
    array[0] = 1
    assert shared.tolist() == same.tolist() == [1, 0, 0] and copied.tolist() == [0, 0, 0]
    assert torch.asarray(array, copy=True).tolist() == [1, 0, 0] and torch.as_tensor(shared) is shared
    array[1] = 2
    assert torch.asarray(array, copy=False).numpy() is array


def test_tensor_takes_what_from_numpy_cannot_share():
    assert torch.tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert torch.tensor(np.array([1, 2], ">i4")).tolist() == [1, 2]
    for unfit in (np.arange(3)[::-1], np.array([1, 2], ">i4")):
        with pytest.raises(ValueError, match="from_numpy"):
            torch.from_numpy(unfit)


def test_order_of_dimensions_is_kept():
    x = torch.tensor(np.arange(6.0).reshape(2, 3).T)
    assert x.stride() == torch.zeros_like(x).stride() == torch.full_like(x, 1).stride() == (1, 3)


def test_as_tensor_keeps_history():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    torch.as_tensor(x * 2, dtype=torch.float64).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_zeros_like_in_a_formula_and_on_tensors():
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    (g,) = torch.autograd.grad(torch.bernoulli((x * x).clone()).sum(), x, create_graph=True)
    assert g.tolist() == [0, 0]


# ---------------------------------------------------------------------------------------------------------------- random

def draws(device, generator=None):
    kw = {"device": device, "generator": generator}
    made = torch.rand(3, **kw), torch.randn(2, 2, **kw), torch.randint(100, (5,), **kw), torch.randperm(9, **kw)
    return [x.tolist() for x in made]


def test_one_element_without_dimensions(device):
    for dtype in (torch.float16, torch.float32, torch.float64, torch.complex64):
        for made in (torch.rand((), dtype=dtype, device=device), torch.randn((), dtype=dtype, device=device),
                     torch.normal(1.0, 2.0, (), dtype=dtype, device=device), torch.zeros((), dtype=dtype, device=device).normal_(),
                     torch.full((), 2, dtype=dtype, device=device)):
            assert made.shape == () and made.dtype is dtype and _is_array(made)
    made = torch.randint(5, (), device=device), torch.bernoulli(torch.full((), 0.5, device=device)), torch.randint_like(made, 3)
    assert all(t.shape == () and _is_array(t) for t in made)


def _is_array(t):
    return hasattr(t._array, "strides") and not isinstance(t._array, np.generic)


def test_a_seed_repeats_the_run(device):
    torch.manual_seed(7)
    first = draws(device)
    torch.manual_seed(8)
    assert draws(device) != first
    torch.manual_seed(7)
    assert draws(device) == first
    generator = torch.Generator(device=device)
    assert draws(device, generator.manual_seed(3)) == draws(device, generator.manual_seed(3)) != first
    assert torch.initial_seed() == 7 and generator.initial_seed() == 3


def test_the_state_can_be_kept():
    torch.manual_seed(1)
    torch.randint(5, (3,))                   # leaves half a word in the stream
    state = torch.get_rng_state()
    first = draws("cpu")
    torch.set_rng_state(state)
    assert draws("cpu") == first
    with pytest.raises(TypeError):
        torch.set_rng_state([1, 2])
    with pytest.raises(RuntimeError):
        torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_moments(device, dtype):
    torch.manual_seed(0)
    dtype = getattr(torch, dtype)
    uniform = torch.rand(100_000, dtype=dtype, device=device).cpu().numpy()
    normal = torch.randn(100_000, dtype=dtype, device=device).cpu().numpy()
    assert uniform.dtype == normal.dtype == dtype
    for part in (uniform.real, uniform.imag) if dtype.is_complex else (uniform,):
        part = part.astype(np.float64)
        assert 0 <= part.min() and part.max() < 1 and abs(part.mean() - 0.5) < 5e-3 and abs(part.var() - 1 / 12) < 2e-3
    wide = normal.astype(np.complex128)
    assert abs(wide.mean()) < 2e-2 and abs((abs(wide) ** 2).mean() - 1) < 2e-2


def test_distributions(device):
    torch.manual_seed(0)
    n = 60_000
    zeros = torch.zeros(n, device=device)
    assert sorted(set(torch.randint(-2, 3, (n,), device=device).tolist())) == [-2, -1, 0, 1, 2]
    assert sorted(torch.randperm(50, device=device).tolist()) == list(range(50))
    assert abs(torch.bernoulli(zeros + 0.25).cpu().numpy().mean() - 0.25) < 1e-2
    assert abs(zeros.clone().exponential_(2.0).cpu().numpy().mean() - 0.5) < 1e-2
    between = zeros.clone().uniform_(-1, 3).cpu().numpy()
    assert between.min() >= -1 and between.max() < 3 and abs(between.mean() - 1) < 3e-2
    for replacement in (True, False):
        rows = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]], device=device).cpu().numpy()
        many = torch.tensor(np.repeat(rows, n // 10, 0), device=device)
        found = torch.multinomial(many, 1 if not replacement else 5, replacement).cpu().numpy()
        first = found[: n // 10].ravel()
        assert set(first) == {0, 2} and abs((first == 2).mean() - 0.75) < 2e-2
        assert set(found[n // 10:].ravel()) == {0, 1}


def test_threads_share_a_generator_without_repeats():
    generator = torch.Generator().manual_seed(5)
    found = []

    def work():
        for _ in range(200):
            found.append(torch.rand(1, dtype=torch.float64, generator=generator).item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = torch.rand(800, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).tolist()
    assert sorted(found) == sorted(expected)


def test_a_draw_in_place_counts_and_stops_the_gradient():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    version = y._version
    y.normal_()
    assert y._version == version + 1
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


# ------------------------------------------------------------------------------------------------------- by the type's name

@pytest.mark.parametrize("make", [
    lambda t: t.Tensor([1, 2]), lambda t: t.Tensor(2, 3).shape, lambda t: t.Tensor(), lambda t: t.Tensor(t.Size([2])).shape,
    lambda t: t.Tensor((2, 3)), lambda t: t.Tensor(3.5), lambda t: t.Tensor(True), lambda t: t.Tensor("ab"), lambda t: t.Tensor(-1),
    lambda t: t.Tensor([[1.5, 2], [3, 4]]), lambda t: t.Tensor(np.ones(2)), lambda t: t.Tensor(np.int64(3)).shape, lambda t: t.Tensor([]),
    lambda t: t.Tensor(t.ones(2, dtype=t.float64)), lambda t: t.Tensor(t.ones(2, requires_grad=True)), lambda t: t.Tensor(2, [3]),
    lambda t: t.FloatTensor(t.ones(2, dtype=t.float64)), lambda t: t.LongTensor([1.7, 2]), lambda t: t.LongTensor(range(3)),
    lambda t: t.BoolTensor([[1, 0]]), lambda t: t.DoubleTensor(3, 2).dtype == t.float64, lambda t: t.ones(2).type(t.LongTensor),
    lambda t: [isinstance(t.ones(2), kind) for kind in (t.FloatTensor, t.LongTensor, t.Tensor)], lambda t: str(t.FloatTensor),
    lambda t: t.ones(2).new(2, 3).shape, lambda t: t.ones(2).long().new([1.5]), lambda t: t.ones(2).new(),
    lambda t: t.LongTensor.dtype is t.long])
def test_tensors_by_the_name_of_their_type(make, oracle):
    assert result(make, torch) == result(make, oracle)


def test_what_is_shared(oracle):
    def program(t):
        a, b = np.ones(2, np.float32), t.ones(2)
        x, y = t.Tensor(a), t.Tensor(b)
        a[0], b[0] = 5, 7
        return x, y
    assert result(program, torch) == result(program, oracle)


def test_a_subclass_is_made_of_data():
    class Named(torch.Tensor):
        pass
    x = Named([1.0, 2.0])
    x.name = "x"
    assert type(x) is Named and type(Named(torch.ones(3))) is Named and x.tolist() == [1, 2] and type(x * 2) is torch.Tensor
    assert pickle.loads(pickle.dumps(torch.FloatTensor)) is torch.FloatTensor


def test_arrays_of_numpys_subclasses(tmp_path):
    """Memory of a file, say: its Tensors are over arrays of NumPy's own class, which operations ask for."""
    np.arange(6, dtype=np.float32).tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", np.float32, "r+")
    x = torch.ones(6, requires_grad=True)
    for t in (torch.as_tensor(mapped), torch.from_numpy(mapped), torch.tensor(mapped), torch.asarray(mapped), x * mapped, x + mapped,
              torch.maximum(x, mapped), torch.zeros(6).copy_(mapped), torch.eye(6) @ mapped, torch.arange(6.0)[mapped.astype(np.int64)]):
        assert type(t._array) is np.ndarray and t[1:].clone().shape == (5,)
    t = torch.asarray(mapped, copy=False)
    t[0] = 7
    assert mapped[0] == 7
    t[1:3] = mapped[3:5]
    assert mapped.tolist() == [7, 3, 4, 3, 4, 5]
    assert type(torch.as_tensor(np.matrix([[1.0, 2.0]]))._array) is np.ndarray
