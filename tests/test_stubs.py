"""The stubs are what the generator writes, and a type checker sees what they say."""
import pytest

from tests.make_stubs import PACKAGE, STUBS


@pytest.mark.parametrize("file", STUBS)
def test_stub_is_up_to_date(file):
    assert (PACKAGE / file).read_text(encoding="utf-8") == STUBS[file](), "run python -m tests.make_stubs"
