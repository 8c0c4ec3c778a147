"""The kernels' text: what is traced, what it says, and, where NVRTC is installed, that it compiles for a real GPU.

That the text computes the right numbers is tested on the simulated runtime and on a GPU, by tests/cuda.
"""
import functools
import math
import operator
import re
from collections import Counter
from numbers import Number

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_gpu as torch
from autograd_gpu import expression
from autograd_gpu.cuda import bounds, launch, reduce, scatter, softmax
from autograd_gpu.cuda.source import kernel_text
from autograd_gpu.ops import kernels
from autograd_gpu.ops.namespace import REGISTRY
from tests import make_kernel_table, nvrtc
from tests.conftest import needs_bfloat16
from tests.kernel_texts import FAR, FLAT, FLOATS, LEAST, STRIDED, Text, programs, texts, update_programs
from tests.on_host import Noted, unreal


@pytest.mark.parametrize("dtype, least", [("float32", 320), ("float64", 320), ("float16", 320), ("complex64", 180),
                                          pytest.param("bfloat16", 320, marks=needs_bfloat16),
                                          ("int64", 280), ("bool", 240)])
def test_what_can_be_traced_is(dtype, least):
    traced, refused = 0, {}
    for f, program in programs(dtype):
        if program is None:
            refused[f.name] = f.reasons
            assert all(f.reasons.values()), f.name
            continue
        traced += 1
        if not program.stored:               # its results are arguments
            continue
        for layout in (FLAT, ("flat", tuple(program.arrays[:1])), STRIDED, FAR):
            source = program.source(*layout)
            assert "@" not in source and f'__global__ void {f.name}_{layout[0]}(' in source
    assert traced >= least, sorted(refused)


def program(function, *kinds):
    return launch.Program("k", function, tuple(np.dtype(k) if isinstance(k, str) else k for k in kinds))


def test_equal_expressions_are_computed_once():
    s = program(lambda x, y: (x * y + 1) / (x * y + 1), "f4", "f4")
    assert [line for line in s.statements if "x0 * x1" in line] == s.statements[:1]
    assert s.dtypes == [np.float32] and len(s.statements) == 4


def test_numbers_are_arguments_and_half_is_computed_in_float():
    s = program(lambda x, alpha: x * alpha, "f2", float)
    text = s.source("flat")
    assert "double x1," in text and "const __half* __restrict__ p0," in text and "out0[i] = (__half)(" in text
    assert s.dtypes == [np.float16] and not re.search(r"\b0\.\d", text.split("_flat(")[1])


@pytest.mark.parametrize("dtypes, result", [(("f4", "f8"), "f8"), (("i8", "f4"), "f8"), (("?", "f4"), "f4"), (("u1", "i1"), "i2")])
def test_promotion_is_numpys(dtypes, result):
    assert program(lambda x, y: x * y, *dtypes).dtypes[0] == np.dtype(result) == np.result_type(*dtypes)


@pytest.mark.parametrize("function", [lambda x: x if x > 0 else -x, lambda x: x.sum(), lambda x: np.add.reduce(x),
                                      lambda x: x.shape[0] * x], ids=["branch", "method", "reduction", "shape"])
def test_what_is_not_elementwise_is_refused(function):
    f = launch.Fused("k", function, None)
    assert f.program((np.dtype("f4"),)) is None and f.reasons


def test_the_input_itself_needs_no_kernel():
    s = program(lambda grad: grad, "f4")
    x = np.ones(3, np.float32)
    assert s(x) is x


def test_a_number_of_numpys_decides_dtypes_and_one_of_pythons_does_not():
    assert program(lambda x, y: x * y, "f4", float).dtypes == program(lambda x, y: x * y, "f4", int).dtypes == [np.float32]
    assert program(lambda x, y: x * y, "f4", np.float64).dtypes == [np.float64]
    assert program(lambda x, y: x * y, "i8", np.float32).dtypes == [np.float64]
    assert program(lambda x, y: x * y, "f2", np.float16).dtypes == [np.float16]
    assert program(lambda x, y: x * y, "f4", complex).dtypes == [np.complex64]


def test_isinstance_takes_a_number_of_the_kernel_for_one():
    def function(x, number):
        seen.append([isinstance(number, k) for k in (int, float, complex, Number)])
        return x * number
    seen = []
    for kind in (int, float, complex):
        program(function, "f4", kind)
    assert seen == [[True, False, False, True], [False, True, False, True], [False, False, True, True]]


def test_a_function_that_looks_at_its_numbers_is_compiled_for_their_values():
    f = launch.Fused("k", lambda x, n: x * n if n > 0 else -x, None)
    assert f.program((np.dtype("f4"), float)) is None and "branch" in f.reasons[np.dtype("f4"), float]
    assert "2.5" in f.program((np.dtype("f4"), 2.5)).source("flat") and "-x0" in f.program((np.dtype("f4"), -1.0)).source("flat")


def test_several_results_come_from_one_kernel_that_reads_each_operand_once():
    s = program(lambda grad, x, y: (grad * y, grad * x, grad), "f4", "f4", "f4")
    text = s.source("strided", (), 2, "int")
    assert s.given == [None, None, 0] and s.dtypes == [np.float32] * 3 and len(s.stored) == 2
    assert "out0[i]" in text and "out1[i]" in text and "out2" not in text
    assert [text.count(f"p{i}[o{i}]") for i in range(3)] == [1, 1, 1]


def test_there_is_a_program_for_each_set_of_gradients():
    record = REGISTRY["div"]
    gradients = kernels.fused(record)["raw_all"]
    both, places = gradients.together(["self", "other"])
    one, its_places = gradients.together(["self"])
    assert [record.all_parameters[i] for i in places] == ["grad", "other", "self"] and len(its_places) == 2
    assert both.name == "div_backward_self_other" and one.name == "div_backward_self"


@needs_bfloat16
def test_bfloat16_is_stored_as_such_and_computed_in_float():
    text = torch.cuda.kernel_source("mul", torch.bfloat16)
    assert text.startswith("#include <cuda_bf16.h>") and "const float v0 = (x0 * x1);" in text and "r0.at[k] = (__nv_bfloat16)(v0);" in text


def test_complex_numbers_are_those_of_cupy():
    text = torch.cuda.kernel_source("abs", "complex64")
    assert text.startswith("#include <cupy/complex.cuh>") and "float* __restrict__ out0" in text and "abs(x0)" in text


def test_the_table_of_what_is_no_kernel_is_up_to_date():
    assert make_kernel_table.PATH.read_text(encoding="utf-8") == make_kernel_table.written(), "run python -m tests.make_kernel_table"


def test_kernel_source():
    show = torch.cuda.kernel_source
    assert "tanh_flat(float* __restrict__ out0" in show("tanh", "float32")
    assert "tanh_strided(double*" in show("tanh", float, layout="strided")
    assert "out1" in show("mul", "float32", what="backward") and "out1" not in show("mul", "float32", what="self")
    assert "const float* __restrict__ p0" in show("mul", "int64", "float32") and "const long long* __restrict__ p0" in show("neg", "int64")
    assert "x0 * x0" in show("pow", "float32", exponent=2) and "exp(" in show("sigmoid", "int64")
    assert show(torch.exp, torch.float32) == show("exp_", "float32") == show(torch.Tensor.exp, "f4")
    assert show("mul", "float32", what="input") == show("mul", "float32", what="self")
    assert "int d0, int d1, int s0_0" in show("add", "float32", layout="strided")
    assert [line for line in show("tanh", "float32").splitlines() if line][-1] == "}"
    for name, what, kernel in (("sum", "forward", "reduce_sum("), ("var", "forward", "reduce_moments("), ("amax", "forward", "reduce_max("),
                               ("softmax", "backward", "softmax_backward("), ("nll_loss", "forward", "nll(")):
        for layout in ("flat", "strided"):
            assert f"void {kernel}" in show(name, "float16", what=what, layout=layout)
    for error, match, arguments, options in [
            (ValueError, "not the name", ("tanhh", "float32"), {}), (ValueError, "not the name", ("mm", "float32"), {}),
            (ValueError, "forward, backward, input", ("tanh", "float32"), {"what": "other"}),
            (ValueError, "flat", ("tanh", "float32"), {"layout": "round"}), (ValueError, "no kernel", ("add", "float32"), {"what": "self"}),
            (TypeError, "one dtype", ("tanh",), {}), (TypeError, "exponent", ("pow", "float32"), {}),
            (TypeError, "no plain parameter", ("tanh", "float32"), {"exponent": 2}),
            (TypeError, "such as.*'flat32'", ("tanh", "flat32"), {}), (ValueError, "not the name", ("sum", "int64"), {}),
            (NotImplementedError, "ndtri", ("ndtri", "float32"), {})]:
        with pytest.raises(error, match=match):
            show(*arguments, **options)


@pytest.mark.parametrize("text, want", [("self * T(2)", "x0 * float(2)"), ("selfish(self)", "selfish(x0)"),
                                        ("f(self, other)", "f(x0, x1)")])
def test_an_op_given_as_text(text, want):
    assert want in program(expression.written(text, ["self", "other"]), "f4", "f4").source("flat")


arrays = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=200, deadline=None)
@given(arrays)
def test_a_walk_reads_the_same_elements_and_keeps_numpys_layout(rng):
    shape = tuple(rng.integers(1, 4, rng.integers(0, 5)).tolist())
    operands = []
    for _ in range(rng.integers(1, 4)):
        order, gap = rng.permutation(len(shape)), rng.integers(0, 2)
        room = [max(n + gap, 2) for n in shape]
        base = np.arange(float(math.prod(room))).reshape([room[k] for k in order])
        view = base.transpose(np.argsort(order))[(*[slice(0, n if rng.random() < 0.7 else 1) for n in shape], ...)]
        view = view[(*[slice(None, None, -1 if rng.random() < 0.2 else 1) for _ in shape], ...)]
        if rng.random() < 0.2:
            view = view[(*[0] * view.ndim, ...)]
        operands.append((base, view))
    bases, operands = zip(*operands, strict=True)
    order, sizes, strides = launch.walk(shape, operands)
    result = np.empty([shape[k] for k in order]).transpose([order.index(k) for k in range(len(shape))])
    by_numpy = [np.negative, np.add, np.clip][len(operands) - 1](*operands)
    if by_numpy.shape == shape:              # operands may all be of one element along an axis
        assert [(s, t) for s, t, n in zip(result.strides, by_numpy.strides, shape, strict=True) if n > 1 and s != t] == []
    index = np.arange(int(np.prod(shape, dtype=int)))
    for base, a, row in zip(bases, operands, strides, strict=True):
        rest, offset = index, (a.ctypes.data - base.ctypes.data) // 8
        for n, s in zip(sizes[::-1], row[::-1], strict=True):
            offset, rest = offset + rest % n * s, rest // n
        np.testing.assert_array_equal(base.reshape(-1)[offset], np.broadcast_to(a, shape).transpose(order).reshape(-1))


@pytest.mark.parametrize(("index", "sizes", "strides"), [
    ("int", [100], [[1]]), ("long long", [2**31], [[1]]), ("long long", [1000], [[3_000_000]]), ("long long", [1000], [[-3_000_000]]),
    ("int", [1000, 1000], [[1_500_000, 1]]), ("long long", [1000, 1000], [[1_500_000, -1_500_000]]),             # both axes together
    ("int", [2**31 - 2**24 - 2], [[1]]), ("long long", [2**31 - 2], [[1]])])                   # and a step of the largest grid
def test_offsets_past_32_bits_get_64(index, sizes, strides):
    assert launch.index_type(math.prod(sizes), sizes, strides)[0] == index


@pytest.fixture
def noted(monkeypatch):
    """What kernels are made for NumPy arrays, and how they are launched: on_host.Noted."""
    found = Noted()
    found.install(monkeypatch)
    return found


@pytest.mark.parametrize(("layout", "operands"), [
    ("flat", [unreal((5,)), unreal((5,))]), ("flat", [unreal((3, 4, 5)), unreal((3, 4, 5))]),
    ("flat", [unreal((3, 4)), unreal(())]), ("flat", [unreal((3, 4)), unreal((1, 1))]),
    ("strided", [unreal((3, 4)), unreal((4,))]), ("strided", [unreal((3, 4)).T, unreal((4, 3))]),
    ("strided", [unreal((3, 4))[:, ::2], unreal((3, 2))]), ("strided", [unreal((8,))[1:], unreal((7,))])])      # not at 16 bytes
def test_operands_that_lie_alike_from_16_bytes_on_take_the_flat_layout(noted, layout, operands):
    program(lambda x, y: x * y, "f4", "f4")(*operands)
    assert [launch.name for launch in noted.launches] == [f"k_{layout}"]


@pytest.mark.parametrize(("width", "kinds"), [
    (4, ["f4", "f4"]), (4, ["f4"] * 4), (8, ["f2"] * 3), (16, ["i1", "i1"]), (2, ["f4", "f8"]), (2, ["f4", "f4", "f8"]),
    (4, ["?", "f4"]), (4, ["f4", "f2", "i1"]), (2, ["c8", "c8"]), (1, ["c16", "c16", "c16"])])
def test_16_bytes_of_the_widest_operand_go_together(width, kinds):
    text = program(lambda *values: functools.reduce(operator.mul, values), *kinds).source("flat")
    assert {int(n) for n in re.findall(r"\bPack<[^;]*?, (\d+)> [qr]\d", text)} == {width}


def test_a_number_that_is_an_argument_makes_no_new_kernel(noted):
    f = launch.Fused("k", lambda x, number: x * number, None)
    for number in range(40):
        f(unreal((5,)), number + 0.5)
    assert len(noted.kernels) == 1 and len(noted.launches) == 40


def test_16_values_of_a_number_that_is_looked_at_make_kernels(noted):
    left = []
    f = launch.Fused("k", lambda x, number: x * number if number > 0 else -x, lambda x, number: left.append(number))
    for number in [*range(1, 41)] * 2:
        f(unreal((5,)), number)
    assert len(noted.kernels) == 16 and left == [*range(17, 41)] * 2


CONTIGUOUS_ROWS = {
    "sum": lambda x: reduce.LAUNCHERS["sum"](x, 1), "sum of all": lambda x: reduce.LAUNCHERS["sum"](x),
    "softmax": lambda x: softmax.LAUNCHERS["softmax"](x, 1),
    "softmax_backward": lambda x: softmax.LAUNCHERS["softmax_backward"](x, x, 1)}


@pytest.mark.parametrize("op", CONTIGUOUS_ROWS)
def test_a_contiguous_row_is_read_16_bytes_at_a_time(compile_all, noted, op):
    CONTIGUOUS_ROWS[op](unreal((64, 1000)))
    ptx = nvrtc.compiled(noted.launches[0].text, nvrtc.MAIN)[1]
    assert re.search(r"ld\.global(?:\.nc)?\.v4", ptx) and "shfl.sync" in ptx and "atom" not in ptx


@pytest.mark.parametrize("given", [{}, LEAST], ids=["all options", "none"])
def test_the_arguments_of_an_update_fit_a_launch(given):
    for program in update_programs(np.dtype(np.float32), **given):
        assert program.table.itemsize + 8 * len(program.scalars) + 4 <= 4096, program.name
        assert program.most >= 64 and program.table.itemsize % 8 == 0 and not program.table["first_block"].itemsize % 8, program.name


def test_an_update_reads_its_pointers_from_the_arguments(compile_all):
    """Nothing is copied to a thread's own memory, though the place in the table is only known at run time."""
    for program in update_programs(np.dtype(np.float32)):
        assert ".local" not in nvrtc.compiled(program.source("group"), nvrtc.MAIN)[1], program.name


def test_trace_and_numpy_agree_on_the_functions_they_have():
    for name in [*expression._SAME, *expression._OTHER, *expression._TEXT, *expression._INFIX]:
        assert isinstance(getattr(np, name), np.ufunc), name


# ----------------------------------------------------------------------------------- for real GPUs, with NVRTC; see tests/nvrtc.py

@pytest.fixture(scope="module")
def compile_all(pytestconfig):
    """nvrtc.compile_all, which prints what it did."""
    reason = "NVRTC is simulated here" if pytestconfig.pluginmanager.has_plugin("tests.simgpu.plugin") else nvrtc.why_not()
    if reason:
        pytest.skip(reason)

    def run(several, arch):
        result = nvrtc.compile_all(several, arch)
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{result.line}")
        return result
    return run


@pytest.fixture(scope="module")
def on_main(compile_all):
    return compile_all(texts(), nvrtc.MAIN)


def test_every_text_compiles(on_main):
    assert on_main.failures == [] and len(on_main.kernels) > 5000


@pytest.mark.parametrize("arch", nvrtc.OTHERS)
def test_a_tenth_of_the_texts_compiles_for(compile_all, arch):
    some = nvrtc.tenth(texts())
    assert compile_all(some, arch).failures == [] and len(some) > 400


def test_no_kernel_spills_registers(on_main):
    assert [f"{text}: {k.spilled} bytes" for text, several in on_main.kernels.items() for k in several if k.spilled] == []


def test_the_flat_layout_moves_16_bytes_at_a_time(on_main):
    """Or as many as go with 16 of the widest operand: each operand by one access, for each kernel on floats."""
    narrow, seen = [], 0
    for text, several in on_main.kernels.items():
        if text.stores and text.dtype in [d.name for d in FLOATS]:
            kernel, = several
            seen += 16 in text.stores
            if Counter(text.loads) - kernel.loads or Counter(text.stores) - kernel.stores:
                narrow.append(f"{text}: wanted {text.loads} and {text.stores}, got {kernel}")
    assert narrow == [] and seen > 400


GOOD = program(lambda x, y: x * y, "f4", "f4").source("flat")


@pytest.mark.parametrize("fault, words", [
    (lambda s: s.replace("v0 = (x0 * x1)", "v0 = (x0 * no_such_name)"), "no_such_name"),
    (lambda s: s.replace("out0[i] = ", "p0[i] = "), "modifiable")], ids=["a name", "a write to an input"])
def test_a_text_that_does_not_compile_is_named(compile_all, fault, words):
    assert fault(GOOD) != GOOD
    several = [Text(n, "float32", "flat", s) for n, s in (("first", GOOD), ("planted", fault(GOOD)), ("last", GOOD))]
    (text, log), = compile_all(several, nvrtc.MAIN).failures
    assert text.name == "planted" and words in log


def test_texts_with_a_header_of_their_own_go_together():
    header = "#ifndef OWN_CUH\n#define OWN_CUH\n__device__ inline float own(float x) { return x; }\n#endif\n"
    prelude = kernel_text("prelude.cuh")
    whole = nvrtc.together([Text(n, "float32", "flat", GOOD.replace(prelude, prelude + header)) for n in ("first", "last")])
    assert whole.count("#undef OWN_CUH") == 2 and whole.count(prelude) == 1 and "text1_k_flat(" in whole


def test_narrow_accesses_and_spills_are_found(compile_all):
    prelude = kernel_text("prelude.cuh")
    head, own = GOOD.split(prelude)
    packs = f"{head}{prelude}template <class T, int N> struct Loose {{ T at[N]; }};\n" + own.replace("Pack<", "Loose<")
    crowded = GOOD.replace('extern "C" __global__ void', 'extern "C" __global__ void __launch_bounds__(1024, 2)').replace(
        "v0 = (x0 * x1)", "v0 = (tgammaf(x0) * erfinvf(x1) * (float)tgamma((double)x0) * (float)erfinv((double)x1))")
    found = compile_all([Text("packs", "float32", "flat", packs), Text("crowded", "float32", "flat", crowded),
                         Text("good", "float32", "flat", GOOD)], nvrtc.MAIN).kernels
    (packs,), (crowded,), (good,) = found.values()
    assert good.loads[16] >= 2 and good.stores[16] and not good.spilled
    assert not packs.loads[16] and not packs.stores[16] and crowded.spilled


def test_a_report_is_complete_before_the_host_can_see_it(compile_all):
    """The op, by which the host knows that there is a report, is written after a fence for the whole system, the rest before."""
    ptx = nvrtc.compiled(bounds.source(np.dtype(np.int64)), nvrtc.MAIN)[1]
    before, after = re.split(r"membar\.sys|fence\.\w+\.sys", ptx)
    assert len(re.findall(r"st\.global", before)) == 3 and len(re.findall(r"st\.global", after)) == 1


@pytest.mark.parametrize("dtype, instruction", [("f4", "add.f32"), ("f8", "add.f64"), ("f2", "add.f32"), ("c8", "add.f32"),
                                                ("i8", "add.u64"), ("i1", "add.u32"), ("?", "or.b32")])
def test_sums_are_native_atomics(compile_all, dtype, instruction):
    part = np.zeros((), dtype).real.dtype    # a complex number is added as two
    ptx = nvrtc.compiled(scatter.source("add", part, (np.dtype(np.int64),), 2, "int"), nvrtc.MAIN)[1]
    assert re.search(rf"(atom|red)\.global\.{re.escape(instruction)}", ptx)
