"""The text of kernels/ as cuda/*.py fill it in and launch it, run on NumPy arrays under the checks of simulated devices.

It is right past 2^31 elements and, that of elementwise.cu, under any schedule, where each fault planted in it or in its launch is found.
Needs g++, no CuPy.
"""
import mmap
import re

import numpy as np
import pytest

from autograd_gpu.cuda import launch, nll, overlap, reduce, scatter, softmax
from autograd_gpu.ops.convolution import Walk, block
from tests.on_host import Array, OnHost
from tests.simgpu.kernels import KernelError, Module, why_not

if why_not():
    pytest.skip(why_not(), allow_module_level=True)
pytestmark = pytest.mark.plants_faults
f32 = np.dtype(np.float32)
NORESERVE = 0x4000                           # Linux' MAP_NORESERVE, which Python's mmap does not name before 3.13


def sparse(shape, dtype):
    """Zeros that take memory only where they are touched."""
    n, dtype = int(np.prod(shape, dtype=np.int64)), np.dtype(dtype)
    memory = mmap.mmap(-1, n * dtype.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    return np.frombuffer(memory, dtype, n).reshape(shape).view(Array)


def running(monkeypatch, plant=None, arguments=None, blocks=None, **options):
    """Have launches run on the host. `plant` changes a kernel's text, `arguments` what it is launched with, `blocks` says which blocks
    of a grid are run; `options` as of a Kernel's call.
    """
    def kernel(source, name):
        text = plant(source) if plant else source
        assert text != source or not plant, "the fault is not planted: the text has changed"
        made = Module(text)[name]

        def call(grid, block, args):
            some = {"blocks": blocks(grid)} if blocks else {}
            made(grid, block, arguments(args) if arguments else args, **some, **options)
        return call

    def empty(shape, dtype):
        out = sparse(shape, dtype)
        if out.size < 1 << 20 and not blocks:
            out.view(np.uint8)[...] = 0xFF   # NaN: whoever reads what was not written sees it
        return out
    OnHost(kernel, empty).install(monkeypatch)


def run(monkeypatch, function, arrays, **options):
    """The Program of a function on these arrays."""
    running(monkeypatch, **options)
    return launch.Program("k", function, tuple([a.dtype for a in arrays]))(*arrays)


# ------------------------------------------------------------------------------------------------------- right, and wrong on purpose

def normal(*shape, seed=0):
    x = sparse(shape, f32)
    x[...] = np.random.default_rng(seed).standard_normal(shape)
    return x


LAYOUTS = {"flat": lambda: (normal(5003), normal(5003, seed=1)), "strided": lambda: (normal(37, 29).T, normal(37))}


def compute(x, y):
    return x * y + 1


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_text_is_right_under_any_schedule(monkeypatch, layout, seed):
    arrays = LAYOUTS[layout]()
    np.testing.assert_array_equal(run(monkeypatch, compute, arrays, seed=seed), compute(*map(np.asarray, arrays)))


def replaced(*pairs):
    def plant(source):
        for old, new in pairs:
            assert old in source, f"the fault cannot be planted: {old!r} is not in the text"
            source = source.replace(old, new)
        return source
    return {"plant": plant}


def given(change):
    return {"arguments": change}


def exchanged(args):
    """The strides of the first operand the other way round."""
    *others, a, b, c, d, n = args
    return *others, b, a, c, d, n


VALUES = "Arrays are not equal"
FAULTS = {
    "the rest has no bound": ("flat", replaced(("i < n; i += step", "i < n + 1; i += step")), "out-of-bounds"),
    "a pack too many": ("flat", replaced(("p < n / 4", "p <= n / 4")), "out-of-bounds"),
    "a pack too few": ("flat", replaced(("p < n / 4", "p + 1 < n / 4")), VALUES),
    "the rest begins late": ("flat", replaced(("n / 4 * 4 + first", "n / 4 * 4 + 1 + first")), VALUES),
    "every block does all": ("flat", replaced(("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")), "data race .write after write"),
    "the step of another grid": ("flat", replaced(("gridDim.x * blockDim.x", "blockDim.x")), "data race .write after write"),
    "two threads, one element": ("flat", replaced(("out0[i] =", "out0[i / 2 * 2] =")), "data race"),
    "one lane for all": ("flat", replaced(("q1.at[k]", "q1.at[0]")), VALUES),
    "another operand": ("flat", replaced(("(p1)[p]", "(p0)[p]")), VALUES),
    "wide dtype": ("flat", given(lambda a: (a[0], a[1].astype(float), *a[2:])), "argument 1 is an array of float64"),
    "narrow result": ("flat", given(lambda a: (a[0].astype(np.float16), *a[1:])), "argument 0 is an array of float16"),
    "narrow count": ("flat", given(lambda a: (*a[:-1], np.int32(a[-1]))), "argument 3 is a 4-byte int32"),
    "no count": ("flat", given(lambda a: a[:-1]), "3 arguments given"),
    "between two packs": ("flat", given(lambda a: (a[0], a[1][1:], *a[2:])), "misaligned 16-byte access"),
    "a short operand": ("flat", given(lambda a: (a[0], a[1][:4000].copy().view(Array), *a[2:])), "out-of-bounds|outside any"),
    "no bound": ("strided", replaced(("i < (Index)n", "i < (Index)n + 1")), "out-of-bounds"),
    "strides exchanged in the text": ("strided", replaced(("c * s0_0;", "c * t;"), ("c * s0_1;", "c * s0_0;"), ("c * t;", "c * s0_1;")),
                                      f"out-of-bounds|{VALUES}"),
    "strides exchanged at the launch": ("strided", given(exchanged), f"out-of-bounds|{VALUES}"),
    "broadcast along the wrong axis": ("strided", replaced(("o1 += c * s1_1", "o1 += c * s1_0")), f"out-of-bounds|{VALUES}"),
    "size of another axis": ("strided", replaced(("rest % d1; rest /= d1", "rest % d0; rest /= d0")), f"out-of-bounds|{VALUES}"),
    "two threads, one element, strided": ("strided", replaced(("out0[i] =", "out0[i / 2 * 2] =")), "data race"),
    "geometry in 64 bits": ("strided", given(lambda a: (*a[:3], *map(np.int64, a[3:]))), "argument 3 is a 8-byte int64"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(monkeypatch, fault):
    layout, options, words = FAULTS[fault]
    arrays = LAYOUTS[layout]()
    with pytest.raises((KernelError, AssertionError)) as caught:
        np.testing.assert_array_equal(run(monkeypatch, compute, arrays, **options), compute(*map(np.asarray, arrays)))
    assert re.search(words, str(caught.value)) and "planted" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- past 2^31 elements

FAR = {
    "flat": lambda: (sparse(4 * (2**31 + 70_000) + 3, f32),),            # packs past 2^31, and a rest past 2^33
    "steps": lambda: (sparse(3 * 2**30, f32)[::3],),
    "backwards": lambda: (sparse(2**31 + 70_001, f32)[::-1],),
    "just below": lambda: (sparse(2**31 - 2, f32)[::-1],),               # the last step would go past it
    "transposed": lambda: (sparse((50_000, 50_001), f32).T, sparse(50_000, f32)),
    "outer": lambda: (sparse((60_000, 1), f32), sparse(60_001, f32)),
}
BLOCKS = [0, 1, launch.MAX_GRID - 1]


def elements(n, width):
    """The numbers of the elements that BLOCKS have to compute in a full grid: those of whole packs, then the rest one by one."""
    threads = (np.array(BLOCKS)[:, None] * launch.BLOCK + np.arange(launch.BLOCK)).ravel()
    rounds = np.arange(n // width // (launch.BLOCK * launch.MAX_GRID) + 1)[:, None] * (launch.BLOCK * launch.MAX_GRID)
    packs = (threads + rounds).ravel()
    packs = packs[packs < n // width]
    rest = n // width * width + threads
    return np.concatenate([(packs[:, None] * width + np.arange(width)).ravel(), rest[rest < n]])


def far(monkeypatch, case, **options):
    """(what these blocks computed, what they should have): each of their operands' elements has a value of its own."""
    arrays = FAR[case]()
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    order = launch.walk(shape, arrays)[0]
    at = elements(int(np.prod(shape, dtype=np.int64)), 4 if case == "flat" else 1)
    assert at.max() > 2**31 or case in ("steps", "just below")
    places: list = [None] * len(shape)
    for axis, index in zip(order, np.unravel_index(at, [shape[k] for k in order]), strict=True):
        places[axis] = index
    operands = []
    for k, a in enumerate(arrays):
        own = tuple([0 if n == 1 else p for n, p in zip(a.shape, places[len(shape) - a.ndim:], strict=True)])
        a[own] = np.arange(len(at)) + k      # float32 holds them
        operands.append(np.asarray(a[own]))
    function = (lambda x: x * 2 + 1) if len(arrays) == 1 else lambda x, y: x * 2 - y
    out = run(monkeypatch, function, arrays, check=1, blocks=lambda grid: BLOCKS, **options)
    return np.asarray(out[tuple(places)]), function(*operands)


@pytest.mark.parametrize("case", FAR)
def test_elements_past_32_bits(monkeypatch, case):
    got, want = far(monkeypatch, case)
    np.testing.assert_array_equal(got, want)


def in_32_bits(source):
    """The arithmetic of a kernel's body in int; its parameters as they were."""
    start = source.index("{", source.index('extern "C"'))
    return source[:start] + source[start:].replace("long long", "int")


@pytest.mark.parametrize("case", FAR)
def test_32_bits_would_be_too_few(monkeypatch, case):
    with pytest.raises((KernelError, AssertionError), match=f"out-of-bounds|outside any|{VALUES}"):
        np.testing.assert_array_equal(*far(monkeypatch, case, plant=in_32_bits))


# ------------------------------------------------------------------------------- past 2^31 elements: what is written for its ops

def ends(grid):
    """The first and the last block."""
    return sorted({0, int(np.prod(grid, dtype=np.int64)) - 1})


def last(shape, values, at, dtype=f32):
    """Zeros but for these values."""
    x = sparse(shape, dtype)
    x[at] = values
    return x


def far_sum_of_rows():
    x = last((2**29 + 1, 4), [1, 2, 3, 4], -1)
    return reduce.LAUNCHERS["sum"](x, 1)[-1], 10


def far_sum_of_columns():
    x = last((5, 2**29 + 257), [1, 2, 3, 4, 5], (slice(None), -1))
    return reduce.LAUNCHERS["sum"](x, 0)[-1], 15


def far_sum_of_a_view():
    x = last((2**29 + 257, 4), [1, 2, 3], (-1, slice(1, None)))
    return reduce.LAUNCHERS["sum"](x[:, 1:], 1)[-1], 6


def far_sum_of_steps():
    x = last(3 * 2**30, [1, 2], [0, -3])
    return reduce.LAUNCHERS["sum"](x[::3]), 3


def far_softmax_of_rows():
    x = last((2**29 + 1, 4), [1, 2, 3, 4], -1)
    return softmax.LAUNCHERS["softmax"](x, 1)[-1], np.exp([1, 2, 3, 4]) / np.exp([1, 2, 3, 4]).sum()


def far_softmax_of_columns():
    x = last((4, 2**29 + 257), [1, 2, 3, 4], (slice(None), -1))
    return softmax.LAUNCHERS["softmax"](x, 0)[:, -1], np.exp([1, 2, 3, 4]) / np.exp([1, 2, 3, 4]).sum()


def far_nll():
    x, target = last((2**30 + 1, 2), [3, 5], -1), last(2**30 + 1, 1, -1, np.int64)
    return nll.LAUNCHERS["nll_value"](x, target, None, 0, -100)[-1], -5


def far_nll_backward():
    grad, target = last(2**30 + 1, 7, -1), last(2**30 + 1, 1, -1, np.int64)
    return nll.LAUNCHERS["nll_loss_backward"](grad, target, None, (2**30 + 1, 2), 0, -100)[-1], [0, -7]


def far_scatter():
    out = last(2**31 + 9, 1, 2**31 + 5, np.int32)
    scatter.at("add", "test", out, (np.array([2**31 + 5, 4]),), np.array([2, 3], np.int32))
    return out[[2**31 + 5, 4]], [3, 3]


def far_overlap():
    found = last((2**20 + 2**14, 1, 2, 1023), [3, 5], (-1, 0, slice(None), -1))
    walk = Walk((2,), (1,), (0,), (1,))
    return overlap.LAUNCHERS["overlapped"](found, block(walk, (1024,), (1023,), slice(None), slice(0, 1023)), walk)[-1, 0, -2:], [3, 5]


FAR_OPS = [far_sum_of_rows, far_sum_of_columns, far_sum_of_a_view, far_sum_of_steps, far_softmax_of_rows, far_softmax_of_columns, far_nll,
           far_nll_backward, far_scatter, far_overlap]


@pytest.mark.parametrize("case", FAR_OPS)
def test_ops_past_32_bits(monkeypatch, case):
    running(monkeypatch, blocks=ends, check=1)
    np.testing.assert_allclose(*case(), rtol=1e-6)


@pytest.mark.parametrize("case", FAR_OPS)
def test_32_bits_would_be_too_few_for_ops(monkeypatch, case):
    running(monkeypatch, blocks=ends, check=1)
    for module in (nll, overlap, reduce, scatter, softmax):
        monkeypatch.setattr(module, "index_type", lambda n, sizes, strides: ("int", np.int32))
    with pytest.raises((KernelError, AssertionError, OverflowError), match="out-of-bounds|outside any|out of bounds for int32|Not equal"):
        np.testing.assert_allclose(*case(), rtol=1e-6)
