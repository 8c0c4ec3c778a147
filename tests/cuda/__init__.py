"""Tests of CUDA tensors: python -m pytest -p tests.simgpu.plugin tests/cuda runs them on simulated devices, without the plugin on a GPU."""
