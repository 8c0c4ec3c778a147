"""Each test of this folder runs for every program of its file and every peer that is installed, on one thread."""
from bench import threads  # noqa: F401 - before what imports NumPy
from bench.peers import installed
from bench.programs import PROGRAMS


def pytest_generate_tests(metafunc):
    if "peer" in metafunc.fixturenames:
        own = [p for p in PROGRAMS.values() if p.loss.__module__ == metafunc.module.__name__]
        cases = [(p, peer) for p in own for peer in installed()[0] if p.left_out(peer) is None]
        metafunc.parametrize("program, peer", cases, ids=[f"{p.name}-{peer}" for p, peer in cases])
