"""pytest -p tests.simgpu.plugin: two simulated CUDA devices; a fault found during a test fails it, unless it is marked `plants_faults`."""
import pytest

from tests.simgpu import runtime

_reason = runtime.why_not()
if _reason is None:
    runtime.install()
    import cupy  # noqa: F401 - now, before a test module can
    runtime.attach()


def pytest_report_header(config):
    return f"simulated CUDA: {_reason or 'two devices'}"


def pytest_sessionstart(session):
    if _reason:
        pytest.exit(f"-p tests.simgpu.plugin: {_reason}", returncode=4)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    runtime.take_findings()
    result = yield
    runtime.settle()
    found = runtime.take_findings()
    if found and not item.get_closest_marker("plants_faults"):
        pytest.fail("the simulated devices found: " + "; ".join(dict.fromkeys(found)), pytrace=False)
    return result
