"""Benchmarks: python -m bench run, report, compare, memory, gpu; see docs/benchmarks.md."""


def environment(threads):
    """The environment in which NumPy, PyTorch, JAX and this package use so many threads. They read it when they are imported."""
    found = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "BENCH_THREADS"), str(threads))
    return found | {"JAX_PLATFORMS": "cpu"} | (
        {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"} if threads == 1 else {})
