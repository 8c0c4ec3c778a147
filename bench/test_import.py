"""How long does the import take, Python's start included?"""
import subprocess
import sys

from bench.programs import Imports, measure, program


@program(cls=Imports, without={"JAX eager": "the same import as JAX jit's"})
def imports(peer):
    """A Python process that only imports the library."""
    subprocess.run([sys.executable, "-c", f"import {peer.imports}"], check=True)
    return []


def test_import(program, peer, benchmark):
    measure(program, peer, benchmark)
