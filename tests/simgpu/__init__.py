"""Simulated CUDA devices for the tests: the real CuPy, on a HIP runtime written here that runs kernels on the CPU and checks them.

    python -m pytest -p tests.simgpu.plugin tests/simgpu tests/cuda        tests, with any fault found failing its test
    python -m tests.simgpu SCRIPT ARGUMENT...                                any program, and the Python processes it starts

Needed: Linux on x86_64, g++ 12 or later, the packages cupy-rocm-7-0 and cuda-pathfinder (instead of a CuPy for CUDA: the two cannot
be in one environment). CuPy's wheel for ROCm is the one that can be run this way, as it links to its runtime dynamically; above
that runtime both wheels have the same Python code, kernels and signatures.

    plugin.py           the pytest plugin
    runtime.py          builds and installs the runtime; what was found
    kernels.py          compiles kernel text and runs it without CuPy, under more checks (races between the threads of a kernel)
    hip.cpp, blas.h     the runtime: memory, streams, events, launches, matrix products
    order.h             which operation is ordered after which
    simt.h, simt.cpp    runs a kernel's threads and checks their accesses
    cuda_on_host.h      CUDA C++ for g++; include/ has the headers that kernels ask for

What no simulation shows: speed, FMA contraction, flushed denormals, spinning between blocks, cuRAND, FFT, solvers.
"""
