"""Imported before NumPy is, this makes it and its peers use one thread, or as many as BENCH_THREADS says."""
import os

from bench import environment

os.environ.update(environment(int(os.environ.get("BENCH_THREADS", "1"))))
