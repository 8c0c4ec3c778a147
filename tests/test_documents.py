"""The programs of the documents run as they are printed, and print what the comment behind says. The pictures are what is drawn."""
import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.make_pictures import PICTURES

DOCS = Path(__file__).parent.parent / "docs"


def programs(name):
    """The Python of a document, in one piece: later parts use names of earlier ones."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S))


@pytest.mark.parametrize("name", ["functional.md", "profiler.md", "recurrent.md", "saving.md", "seeing.md"])
def test_programs_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)              # they write files
    source, names, checked = programs(name), {}, 0
    lines = source.splitlines()
    for statement in ast.parse(source).body:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module([statement], []), name, "exec"), names)
        said = lines[statement.end_lineno - 1].partition("#")[2].strip()
        if printed.getvalue() and said:
            assert printed.getvalue().strip() == said
            checked += 1
    assert checked


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_up_to_date(name):
    assert (DOCS / name).read_text(encoding="utf-8") == str(PICTURES[name]()), "run python -m tests.make_pictures"
