"""Benchmarks: python -m bench run, report, compare, memory, gpu; see docs/benchmarks.md."""

# The environment in which NumPy, PyTorch and JAX use one thread. They read it when they are imported.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NPROC": "1", "JAX_PLATFORMS": "cpu",
              "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
