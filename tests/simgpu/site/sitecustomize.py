"""Python reads this file when it starts, where its folder is on PYTHONPATH: simulated CUDA devices in processes that a program starts."""
import os
import sys

if os.environ.get("SIMGPU_ROOT") and "cupy" not in sys.modules:
    sys.path.insert(0, os.environ["SIMGPU_ROOT"])          # where tests.simgpu is
    try:
        from tests.simgpu import runtime
        runtime.install()
        import cupy  # noqa: F401
        runtime.attach()
    finally:
        sys.path.remove(os.environ["SIMGPU_ROOT"])
