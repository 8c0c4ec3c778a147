"""The kernels' text: what is traced, what it says, and, where NVRTC is installed, that it compiles for a real GPU.

That the text computes the right numbers is tested on the simulated runtime and on a GPU, by tests/test_cuda.py.
"""
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograd_gpu import dtypes as _dtype
from autograd_gpu import expression
from autograd_gpu.cuda import launch, nll, reduce, softmax
from autograd_gpu.ops.compile import PLAIN
from autograd_gpu.ops.kernels import fused
from autograd_gpu.ops.namespace import REGISTRY
from autograd_gpu.ops.op import Op
from tests.test_ops import ARGUMENTS, BOOLEAN

FLAT, STRIDED, FAR = ("flat",), ("strided", (), 3, "int"), ("strided", (), 1, "long long")


def kinds_of(record, names, dtype):
    """The kinds of a body's or formula's arguments, its plain ones as the tests of the ops call it."""
    for n in names:
        if n in BOOLEAN:
            yield np.dtype(bool)
        elif n in ("grad", "result") or record.roles.get(n, PLAIN) != PLAIN:
            yield dtype
        elif n in record.roles:
            value = ARGUMENTS.get(record.name, {}).get(n, record.defaults.get(n))
            yield type(value) if type(value) in (int, float) else value
        else:
            yield tuple


def programs(dtype):
    """(Fused, Program or None) for each elementwise body and formula of the registry."""
    dtype = np.dtype(dtype)
    for record in REGISTRY.values():
        if not isinstance(record, Op) or not record.is_elementwise:
            continue
        for name, f in fused(record, dict.fromkeys(["body", *[r + p for p in record.formulas for r in ("raw_", "wide_raw_")]])).items():
            if name.startswith("wide"):
                continue
            names = record.formula_parameters[name[4:]] if name != "body" else [n for n in record.parameters if n not in record.settled]
            yield f, f.program(tuple(kinds_of(record, names, dtype)))


@pytest.mark.parametrize("dtype, least", [("float32", 240), ("float64", 240), ("float16", 240), ("int64", 150), ("bool", 100)])
def test_what_can_be_traced_is(dtype, least):
    traced, refused = 0, {}
    for f, program in programs(dtype):
        if program is None:
            refused[f.name] = f.reasons
            assert all(f.reasons.values()), f.name
            continue
        traced += 1
        for layout in (FLAT, ("flat", tuple(program.arrays[:1])), STRIDED, FAR):
            source = program.source(*layout)
            assert "@" not in source and f'__global__ void __launch_bounds__(256) {f.name}_{layout[0]}(' in source
    assert traced >= least, sorted(refused)


def program(function, *kinds):
    return launch.Program("k", function, tuple(np.dtype(k) if isinstance(k, str) else k for k in kinds))


def test_equal_expressions_are_computed_once():
    s = program(lambda x, y: (x * y + 1) / (x * y + 1), "f4", "f4")
    assert [line for line in s.statements if "x0 * x1" in line] == s.statements[:1]
    assert s.dtype == np.float32 and len(s.statements) == 4


def test_numbers_are_arguments_and_half_is_computed_in_float():
    s = program(lambda x, alpha: x * alpha, "f2", float)
    text = s.source("flat")
    assert "double x1," in text and "const __half* __restrict__ p0," in text and "out[i] = (__half)(" in text
    assert s.dtype == np.float16 and not re.search(r"\b0\.\d", text.split("_flat(")[1])


@pytest.mark.parametrize("dtypes, result", [(("f4", "f8"), "f8"), (("i8", "f4"), "f8"), (("?", "f4"), "f4"), (("u1", "i1"), "i2")])
def test_promotion_is_numpys(dtypes, result):
    assert program(lambda x, y: x * y, *dtypes).dtype == np.dtype(result) == np.result_type(*dtypes)


@pytest.mark.parametrize("function", [lambda x: x if x > 0 else -x, lambda x: x.sum(), lambda x: np.add.reduce(x),
                                      lambda x: x.shape[0] * x], ids=["branch", "method", "reduction", "shape"])
def test_what_is_not_elementwise_is_refused(function):
    f = launch.Fused("k", function, None)
    assert f.program((np.dtype("f4"),)) is None and f.reasons


def test_the_input_itself_needs_no_kernel():
    s = program(lambda grad: grad, "f4")
    x = np.ones(3, np.float32)
    assert s(x) is x


arrays = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=200, deadline=None)
@given(arrays)
def test_a_walk_reads_the_same_elements_and_keeps_numpys_layout(rng):
    shape = tuple(rng.integers(1, 4, rng.integers(0, 5)).tolist())
    operands = []
    for _ in range(rng.integers(1, 4)):
        base = np.arange(4096.0).reshape(8, 8, 8, 8)
        order = rng.permutation(4)
        sizes = [slice(0, n if rng.random() < 0.7 else 1) for n in shape]
        view = base.transpose(order)[(*[0] * (4 - len(shape)), *sizes)]
        if rng.random() < 0.2:
            view = view.reshape(-1)[:1].reshape(())
        operands.append(view)
    order, sizes, strides = launch.walk(shape, operands)
    result = np.empty([shape[k] for k in order]).transpose([order.index(k) for k in range(len(shape))])
    by_numpy = [np.negative, np.add, np.clip][len(operands) - 1](*operands)
    if by_numpy.shape == shape:              # operands may all be of one element along an axis
        assert result.strides == by_numpy.strides
    index = np.arange(int(np.prod(shape, dtype=int)))
    for a, row in zip(operands, strides, strict=True):
        rest, offset = index, 0
        for n, s in zip(sizes[::-1], row[::-1], strict=True):
            offset, rest = offset + rest % n * s, rest // n
        memory = np.lib.stride_tricks.as_strided(a, (4096,), (8,))
        want = np.broadcast_to(a, shape).transpose(order).reshape(-1)
        np.testing.assert_array_equal(memory[offset] if a.size else want, want)


def test_offsets_past_32_bits_get_64():
    assert launch.index_type(100, [100], [[1]])[0] == "int"
    assert launch.index_type(2**31, [2**31], [[1]])[0] == "long long"
    assert launch.index_type(1000, [1000], [[3_000_000]])[0] == "long long"
    assert launch.index_type(1000, [1000], [[-3_000_000]])[0] == "long long"


@pytest.fixture(scope="module")
def nvrtc(pytestconfig):
    if pytestconfig.pluginmanager.has_plugin("tests.simgpu.plugin"):
        pytest.skip("NVRTC is simulated here")
    return pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC, through CuPy, is not installed",
                               exc_type=ImportError)


def compiled(nvrtc, source, arch, ptx=False):
    """A kernel's binary, or its PTX, with the options that CuPy compiles with. Raises AssertionError with the log."""
    core = pytest.importorskip("cupy._core.core", reason="CuPy for CUDA is not installed")
    made = nvrtc.createProgram(source, "kernel.cu", (), ())
    options = core.assemble_cupy_compiler_options(()) + ("-ftz=true", f"-arch={'compute' if ptx else 'sm'}_{arch}")
    try:
        nvrtc.compileProgram(made, options)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(made)) from None
    else:
        return nvrtc.getPTX(made) if ptx else nvrtc.getCUBIN(made)
    finally:
        nvrtc.destroyProgram(made)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_every_text_compiles_for_sm_80(nvrtc, dtype):
    if not hasattr(nvrtc, "getCUBIN") or nvrtc.getVersion() is None:
        pytest.skip("this CuPy is not for CUDA")
    count = 0
    for _, made in programs(dtype):
        if made is not None and made.same is None:
            for layout in (FLAT, STRIDED):
                assert compiled(nvrtc, made.source(*layout), 80)[:4] == b"\x7fELF"
                count += 1
    assert count > 200


def row_wise_texts(dtype):
    """The text of each reduction in each layout, of softmax and of the losses, for elements of a dtype: (name, text)."""
    floating, accumulated = dtype.kind != "i", reduce.computed(dtype)
    for op in reduce.STATES:
        if floating or op in ("sum", "prod", "max", "min"):
            result = accumulated if op == "moments" else dtype
            for layout, kept, reduced, index in (("packs", 1, 1, "int"), ("x", 2, 2, "int"), ("y", 2, 1, "long long")):
                yield f"{op} {layout}", reduce.kernel_source(op, layout, kept, reduced, dtype, result, index)
            yield f"{op} joined", reduce.joining_source(op, reduce.STATES[op], dtype, result)
    for name in softmax.RULES if floating else ():
        for along_x, width in ((True, 16 // dtype.itemsize), (True, 1), (False, 1)):
            yield f"{name} {along_x} {width}", softmax.along_source(name, along_x, width, dtype, "int")
    for reduction in range(3) if floating else ():
        for target in ("int64", "uint8"):
            yield f"nll {reduction} {target}", nll.nll_source("nll", dtype, dtype, np.dtype(target), "int", reduction)
            yield f"nll_backward {target}", nll.nll_source("nll_backward", dtype, dtype, np.dtype(target), "int")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64"])
def test_every_row_wise_text_compiles_for_sm_80(nvrtc, dtype):
    if dtype == "bfloat16" and _dtype.bfloat16 is None:
        pytest.skip("ml_dtypes is not installed")
    for name, text in row_wise_texts(np.dtype(getattr(_dtype, dtype))):
        assert "@" not in text, name
        assert compiled(nvrtc, text, 80)[:4] == b"\x7fELF", name


@pytest.mark.parametrize("make", [
    lambda d: reduce.kernel_source("sum", "packs", 1, 1, d, d, "int"), lambda d: softmax.along_source("softmax", True, 4, d, "int")])
def test_a_contiguous_row_is_read_16_bytes_at_a_time(nvrtc, make):
    ptx = compiled(nvrtc, make(np.dtype("f4")), 80, ptx=True)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert re.search(r"ld\.global(?:\.nc)?\.v4", ptx) and "shfl.sync" in ptx and "atom" not in ptx


def test_the_flat_layout_moves_16_bytes_at_a_time(nvrtc):
    ptx = compiled(nvrtc, program(lambda x, y: x * y, "f4", "f4").source("flat"), 80, ptx=True)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4", ptx)) >= 2 and re.search(r"st\.global\.v4", ptx)


def test_trace_and_numpy_agree_on_the_functions_they_have():
    for name in [*expression._SAME, *expression._OTHER, *expression._TEXT, *expression._INFIX]:
        assert isinstance(getattr(np, name), np.ufunc), name
