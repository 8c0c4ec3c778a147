"""Imported before NumPy is, this makes it and its peers use one thread."""
import os

from bench import ONE_THREAD

os.environ.update(ONE_THREAD)
