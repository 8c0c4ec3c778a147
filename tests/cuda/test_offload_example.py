"""The example that trains what does not fit, on a small network."""
import re
from xml.etree import ElementTree

import tests.cuda.common  # noqa: F401 - skips without a device
from examples import offload


def test_it_fails_without_and_trains_with(tmp_path, capsys):
    picture = tmp_path / "memory.svg"
    small = re.search(r"-m examples\.offload (--.*?)`", offload.__doc__)[1].split()
    first, last, peaks = offload.main([*small, "--steps", "6", "--out", str(picture)])
    said = capsys.readouterr().out
    assert last < 0.9 * first and peaks["with save_on_cpu"] < peaks["without"]
    assert "without save_on_cpu: out of memory after" in said and "copies out" in said
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
