"""The simulated devices themselves: right programs run and give NumPy's results, each planted fault is found."""
import contextlib
import functools
import queue
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from tests.simgpu import kernels, runtime
from tests.simgpu.kernels import HERE, KernelError, Module

if not runtime.active():
    pytest.skip("the simulated devices are not installed: run with -p tests.simgpu.plugin, in an environment with cupy-rocm-7-0",
                allow_module_level=True)
cp = pytest.importorskip("cupy")
cupyx = pytest.importorskip("cupyx")
ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.plants_faults
Device, Stream = cp.cuda.Device, cp.cuda.Stream
TEXT = (HERE / "sample.cu").read_text()
INSTANCES = ("add_strided<float,3>", "multiply_packed<float,4>", "sum_rows<float>", "sum_rows<double>", "add_rows_at<double,long long>",
             "silu<__half>", "silu<__nv_bfloat16>")
i32, i64, f32 = np.int32, np.int64, np.float32


@functools.cache
def module(*without):
    return Module(TEXT, INSTANCES, [f"-DWITHOUT_{w}" for w in without])


def rng():
    return np.random.default_rng(0)


def normal(*shape, dtype=f32):
    return rng().standard_normal(shape).astype(dtype)


# ------------------------------------------------------------------------------------------- kernels alone, on NumPy arrays

def layout(*arrays):
    strides = [[s // a.itemsize for s in a.strides] for a in arrays]
    return np.frombuffer(np.array([*arrays[0].shape, *sum(strides, [])], i64).tobytes(), np.dtype((np.void, 96)))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_strides_and_broadcasting(seed):
    a, b = np.broadcast_to(normal(7, 1, 33), (7, 5, 33)), np.broadcast_to(normal(5, 33), (7, 5, 33))
    out = np.empty((7, 33, 5), f32).transpose(0, 2, 1)
    module()["add_strided<float,3>"]((3,), (64,), (out, a, b, layout(out, a, b), i64(out.size)), seed=seed)
    np.testing.assert_array_equal(out, a + b)


def test_packed_accesses_are_coalesced():
    a, b, out = normal(1003), normal(1003) + 1, np.empty(1003, f32)
    kernel = module()["multiply_packed<float,4>"]
    kernel((2,), (128,), (out, a, b, i64(1003)), check=3)
    np.testing.assert_array_equal(out, a * b)
    assert kernel.stats["sectors"] * 32 < 1.2 * kernel.stats["bytes"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reduction_does_not_depend_on_the_schedule(dtype):
    x, results = normal(9, 1000, dtype=dtype), []
    for seed in (0, 1, 5):
        out = np.full(9, np.nan, dtype)
        module()["sum_rows<float>" if dtype is f32 else "sum_rows<double>"]((4,), (160,), (x, out, i32(9), i32(1000)), seed=seed)
        results.append(out)
    np.testing.assert_allclose(results[0], x.sum(1), rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(results[0], r) for r in results)


def test_shared_memory_atomics_and_votes():
    x, out = normal(512), np.empty(512, f32)
    module()["reverse_blocks"]((4,), (128,), (x, out), shared_mem=512)
    np.testing.assert_array_equal(out, x.reshape(4, 128)[:, ::-1].ravel())
    rows, at, sums = rng().integers(-9, 9, (400, 17)).astype(float), rng().integers(-20, 20, 400), np.zeros((20, 17))
    module()["add_rows_at<double,long long>"]((5,), (128,), (sums, rows, at, i64(400), i32(17), i32(20)), seed=3)
    want = np.zeros((20, 17))
    np.add.at(want, at, rows)
    np.testing.assert_array_equal(sums, want)
    flag, values = np.zeros(1, i32), np.ones(1000, f32)
    for value, expected in ((1, 0), (np.nan, 1)):
        values[777] = value
        module()["any_infinite"]((4,), (256,), (values, flag, i64(1000)))
        assert flag[0] == expected


@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "__half"), (ml_dtypes.bfloat16, "__nv_bfloat16")])
def test_half_precision_rounds_once(dtype, name):
    x = normal(1003, dtype=dtype)
    out = np.empty_like(x)
    module()[f"silu<{name}>"]((8,), (128,), (x, out, i64(1003)))
    v = x.astype(f32)
    want = (v / (1 + np.exp(-v))).astype(dtype)
    assert np.abs(out.view(np.int16).astype(int) - want.view(np.int16)).max() <= 1         # in units of the last place


def planted(name, grid, block, args, *without, shared_mem=0):
    return lambda: module(*without)[name]((grid,), (block,), args(), shared_mem=shared_mem)


def three(n=1003):
    return normal(n), normal(n), np.empty(n, f32)


def frozen():
    x = np.empty(4, f32)
    x.flags.writeable = False
    return x


def onto_itself():
    a, out = np.broadcast_to(normal(33), (7, 5, 33)), np.empty(33, f32)
    return out, a, a, layout(np.broadcast_to(out, (7, 5, 33)), a, a), i64(a.size)


def scatter(at):
    return np.zeros((20, 17)), np.ones((400, 17)), np.full(400, at), i64(400), i32(17), i32(20)


PACKED, ROWS, AT = "multiply_packed<float,4>", "sum_rows<float>", "add_rows_at<double,long long>"
FAULTS = {
    "misaligned vector": (planted(PACKED, 2, 128, lambda: (*(a[1:] for a in three()), i64(1002))), "misaligned 16-byte access"),
    "past the end": (planted(PACKED, 2, 128, lambda: (*three(), i64(1011))), "out-of-bounds"),
    "wrong dtype": (planted(PACKED, 2, 128, lambda: (*three()[:2], np.empty(1003), i64(1003))), "argument 2 is an array of float64"),
    "wrong scalar": (planted(PACKED, 2, 128, lambda: (*three(), i32(1003))), "argument 3 is a 4-byte int32"),
    "argument missing": (planted(PACKED, 2, 128, three), "3 arguments given, 4 wanted"),
    "read-only": (planted("scale", 1, 4, lambda: (frozen(), normal(4), f32(2), i32(4))), "holds read-only"),
    "result onto itself": (planted("add_strided<float,3>", 3, 64, onto_itself), "data race (write after write) on global memory"),
    "no barrier": (planted("reverse_blocks", 4, 128, lambda: three(512)[1:], "BARRIER", shared_mem=512), "data race", "shared"),
    "no last barrier": (planted(ROWS, 4, 160, lambda: (normal(9, 1000), np.empty(9, f32), i32(9), i32(1000)), "LAST_BARRIER"),
                        "data race", "shared"),
    "little shared memory": (planted("reverse_blocks", 4, 128, lambda: three(512)[1:], shared_mem=256),
                             "past the end of 256 bytes of shared memory"),
    "no atomics": (planted(AT, 5, 128, lambda: scatter(3), "ATOMICS"), "data race", "global"),
    "index out of range": (planted(AT, 5, 128, lambda: scatter(20)), "out-of-bounds"),
    "barrier divergence": (planted("split_barrier", 1, 32, lambda: (normal(32),)), "barrier divergence"),
    "lane that left": (planted("lane_left", 1, 32, lambda: (np.zeros(32, i32),)), "which has exited"),
    "deadlock": (planted("barrier_for_some", 1, 32, lambda: (normal(32),)), "deadlock"),
    "block too large": (planted("scale", 1, 2000, lambda: (normal(4), normal(4), f32(2), i32(4))), "invalid launch configuration"),
    "does not compile": (lambda: Module("__global__ void k(float* p) { p = 1.0; }", ["k"]), "g++ failed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_kernel_fault_is_found(name):
    run, *words = FAULTS[name]
    with pytest.raises(KernelError) as caught:
        run()
    assert all(w in str(caught.value) for w in words), str(caught.value)


# ------------------------------------------------------------------------------------- the real CuPy on the simulated devices

@functools.cache
def scale():
    return cp.RawKernel(TEXT, "scale")


def offload(wait=True, wait_back=True, keep=True, host_sync=True, touch=False):
    """Compute, copy to page-locked memory on a stream of its own, copy back, compute: with all waits, or without one."""
    compute, copying = Stream(non_blocking=True), Stream(non_blocking=True)
    with compute:
        x, y = cp.arange(1000, dtype=f32), cp.empty(1000, f32)
        scale()((8,), (128,), (y, x, f32(2), i32(1000)))
        computed = compute.record()
    if wait:
        copying.wait_event(computed)
    host = cupyx.empty_pinned((1000,), f32)
    y.get(stream=copying, out=host, blocking=False)
    copied = copying.record()
    if keep:
        compute.wait_event(copied)
    del y
    if host_sync:
        copied.synchronize()
        assert host[3] == 6
    else:
        assert np.isnan(host).all()          # nobody has waited: nothing can be there yet
    with copying:
        z = cp.empty(1000, f32)
        z.set(host, stream=copying)
    back = copying.record()
    if touch:
        host[0] = 5
    if wait_back:
        compute.wait_event(back)
    with compute:
        assert float((z + 1).sum()) == 2 * sum(range(1000)) + 1000
    copying.wait_event(compute.record())


@pytest.mark.parametrize("host_sync", [True, False])
def test_offloading_with_all_waits(host_sync):
    with runtime.faults():
        offload(host_sync=host_sync)


NO_ORDER = "no event, stream or host wait orders them"


@pytest.mark.parametrize(("left_out", "words"), [
    ({"wait": False}, NO_ORDER), ({"wait_back": False}, NO_ORDER), ({"touch": True}, "pinned host memory was changed"),
    ({"keep": False, "host_sync": False}, "was freed while stream")], ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_a_missing_wait_is_found(left_out, words):
    with pytest.raises(Exception, match=words), runtime.faults():
        offload(**left_out)


def reads_past_the_end():
    scale()((8,), (128,), (cp.empty(1000, f32), cp.zeros(999, f32), f32(2), i32(1000)))


def reads_freed_memory():
    x, out = cp.zeros(1000, f32), cp.empty(1000, f32)
    address = x.data.ptr
    del x
    gone = cp.ndarray((1000,), f32, cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(address, 4000, None, 0), 0))
    scale()((8,), (128,), (out, gone, f32(2), i32(1000)))


def crosses_devices():
    a = cp.ones(4)
    with Device(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")      # CuPy's own: it enables access to the other device
        return a + 1


def races():
    one, two = Stream(non_blocking=True), Stream(non_blocking=True)
    x = cp.zeros(100)
    Device(0).synchronize()
    with one:
        x += 1
    with two:
        x += 1


def races_in_a_graph():
    """Only its launch is wrong: x is read where a branch of the graph that nothing waits for writes it."""
    one, two = Stream(non_blocking=True), Stream(non_blocking=True)
    x = cp.zeros(100)
    Device(0).synchronize()
    one.begin_capture()
    two.wait_event(one.record())
    with two:
        x += 1
    with one:
        graph = one.end_capture()
        assert not runtime.take_findings()
        graph.launch()
        return cp.multiply(x, 2)


def waits_for_what_is_not_captured():
    one, two = Stream(non_blocking=True), Stream(non_blocking=True)
    one.begin_capture()
    try:
        one.wait_event(two.record())
    finally:
        with contextlib.suppress(RuntimeError):
            one.end_capture()


def asks_for_an_event_of_a_capture():
    one = Stream(non_blocking=True)
    one.begin_capture()
    try:
        one.record().synchronize()
    finally:
        with pytest.raises(RuntimeError, match="previous error during capture"):
            one.end_capture()


def adds_without_atomics():
    kernel = cp.RawModule(code=TEXT, options=("-DWITHOUT_ATOMICS",), name_expressions=[AT]).get_function(AT)
    kernel((1,), (32,), (cp.zeros((20, 17)), cp.ones((4, 17)), cp.full(4, 3), i64(4), i32(17), i32(20)))


def reads_before_a_barrier():
    kernel = cp.RawModule(code=TEXT, options=("-DWITHOUT_BARRIER",)).get_function("reverse_blocks")
    kernel((1,), (128,), (cp.zeros(128, f32), cp.zeros(128, f32)), shared_mem=512)


def loads_misaligned_packs():
    a = cp.ones(101, f32)[1:]
    cp.RawModule(code=TEXT, name_expressions=[PACKED]).get_function(PACKED)((1,), (32,), (cp.empty(100, f32), a, a, i64(100)))


def launches_on_another_device():
    with Device(1):
        s = Stream()
    scale().kernel((1,), (4,), (cp.empty(4, f32), cp.empty(4, f32), f32(2), i32(4)), stream=s)


def records_on_another_device():
    with Device(1):
        event = cp.cuda.Event()
    event.record(Stream.null)


@pytest.mark.parametrize(("run", "words"), [
    (reads_past_the_end, "out-of-bounds read, 4 bytes past the end of a 3996-byte array"),
    (reads_freed_memory, "scale: (out-of-bounds|access)"),
    (crosses_devices, NO_ORDER), (races, NO_ORDER), (races_in_a_graph, NO_ORDER), (waits_for_what_is_not_captured, "uncaptured work"),
    (asks_for_an_event_of_a_capture, "capturing stream"), (adds_without_atomics, "data race.*global"),
    (reads_before_a_barrier, "data race.*shared"), (loads_misaligned_packs, "misaligned 16-byte access"),
    (launches_on_another_device, "belongs to another device"), (records_on_another_device, "another device")],
    ids=lambda x: getattr(x, "__name__", ""))
def test_device_fault_is_found(run, words):
    with pytest.raises(Exception, match=words), runtime.faults():
        run()


@pytest.mark.parametrize(("args", "words"), [
    (lambda: (cp.empty(8, f32), cp.ones(8), f32(2), i32(8)), "argument 1 is an array of float64"),
    (lambda: (cp.empty(8, f32), cp.ones(8, f32), 2.0, i32(8)), "argument 2 is a 8-byte float64"),
    (lambda: (cp.empty(8, f32), cp.ones(8, f32), f32(2), 8), "argument 3 is a 8-byte int64"),
    (lambda: (cp.empty(8, f32), cp.ones(8, f32), f32(2)), "3 arguments given")])
def test_wrong_arguments_of_a_raw_kernel(args, words):
    for kernel in (scale(), cp.RawModule(code=TEXT).get_function("scale")):
        with pytest.raises(KernelError, match=words):
            kernel((1,), (8,), args())


def test_findings_that_raise_nowhere_are_kept():
    home, user = Stream(non_blocking=True), Stream(non_blocking=True)
    with home:
        x = cp.zeros(100)
    user.wait_event(home.record())
    with user:
        y = x + 1
    runtime.take_findings()
    del x                                    # home may hand it out again while user reads it
    assert "freed while stream" in " ".join(runtime.take_findings())
    assert runtime.take_findings() == [] and y is not None


def test_a_worker_thread_per_device():
    jobs, done = [queue.Queue(), queue.Queue()], {}

    def work(d):
        with Device(d), Stream(non_blocking=True) as s:
            for event, a, finished in iter(jobs[d].get, None):
                s.wait_event(event)
                done[d] = (a * 2).sum(axis=0), s.record()
                finished.set()
    workers = [threading.Thread(target=work, args=(d,)) for d in (0, 1)]
    for w in workers:
        w.start()
    with runtime.faults():
        for d in (0, 1):
            with Device(d), Stream(non_blocking=True) as main:
                a, finished = cp.arange(12.0).reshape(3, 4), threading.Event()
                jobs[d].put((main.record(), a, finished))
                finished.wait()
                result, event = done.pop(d)
                main.wait_event(event)
                assert result.device.id == d and result.get().tolist() == [24, 30, 36, 42]
                jobs[d].put(None)
        for w in workers:
            w.join()


def test_memory_runs_out_and_devices_may_not_see_each_other():
    library = runtime.install()
    pool = cp.get_default_memory_pool()
    try:
        library.simgpu_limit(1 << 20)
        pool.free_all_blocks()
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(1 << 30, np.int8)       # more than what is held, and given up then, has
        library.simgpu_peers(0)
        assert not cp.cuda.runtime.deviceCanAccessPeer(0, 1)
    finally:
        library.simgpu_limit(1 << 34)
        library.simgpu_peers(1)


X = normal(4, 5, 6)
SAME = {
    "add": lambda xp, x: x + x, "exp": lambda xp, x: xp.exp(x), "where": lambda xp, x: xp.where(x > 0, x, 0),
    "sum": lambda xp, x: x.sum(axis=(0, 2)), "var": lambda xp, x: x.var(axis=1), "argmax": lambda xp, x: x.argmax(-1),
    "matmul": lambda xp, x: xp.matmul(x, xp.swapaxes(x, 1, 2)), "einsum": lambda xp, x: xp.einsum("bij,bkj->bik", x, x),
    "half": lambda xp, x: (x.astype(np.float16) * 2).sum(0, dtype=f32), "complex": lambda xp, x: (x * (1 + 2j)).conj(),
    "index": lambda xp, x: x[xp.asarray([0, 2]), :, xp.asarray([1, 3])], "mask": lambda xp, x: x[x > 0],
    "cumsum": lambda xp, x: xp.cumsum(x, 1), "sort": lambda xp, x: xp.sort(x, -1), "argsort": lambda xp, x: xp.argsort(x, 1),
    "pad": lambda xp, x: xp.pad(x, 1), "empty": lambda xp, x: x[:0] @ xp.ones((6, 0), f32),
}


@pytest.mark.parametrize("name", SAME)
def test_cupy_gives_numpys_results(name):
    with runtime.faults():
        got, want = cp.asnumpy(SAME[name](cp, cp.asarray(X))), np.asarray(SAME[name](np, X))
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-2 if name == "half" else 1e-5, atol=1e-5)


def test_bfloat16():
    x = X.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal((cp.asarray(x) * cp.asarray(x)).get().view(np.uint16), (x * x).view(np.uint16))


FAULTY = """
import cupy as cp
def run():
    home, user = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with home:
        x = cp.zeros(100)
    user.wait_event(home.record())
    with user:
        y = x + 1
    del x
"""


@pytest.mark.parametrize(("command", "ending"), [
    (["-m", "pytest", "-q", "-p", "tests.simgpu.plugin", "-p", "no:cacheprovider"], "def test_run():\n    run()"),
    (["-m", "tests.simgpu"], "run()")])
def test_a_finding_makes_the_whole_fail(tmp_path, command, ending):
    path = tmp_path / "test_faulty.py"
    path.write_text(FAULTY + ending)
    done = subprocess.run([sys.executable, *command, str(path)], cwd=HERE.parent.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "was freed while stream" in done.stdout + done.stderr
    path.write_text((FAULTY + ending).replace("del x", "user.synchronize()"))
    done = subprocess.run([sys.executable, *command, str(path)], cwd=HERE.parent.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_counts():
    x = cp.ones(3)
    before = runtime.counts()
    y = x + x
    between = runtime.counts()
    assert float(y[0]) == 2 and runtime.counts()["host_waits"] > between["host_waits"] == before["host_waits"]
    assert between["operations"] == before["operations"] + 1


def test_the_cache_keeps_what_was_compiled():
    text = "extern \"C\" __global__ void kept(float* p) { *p = 1; }"
    assert Module(text).path == Module(text).path and Module(text).path.is_relative_to(kernels.cache_folder())
