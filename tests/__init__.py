"""A package, so that pytest puts the root on Python's path, not this folder: its cuda/ would hide the package `cuda`, which CuPy needs."""
