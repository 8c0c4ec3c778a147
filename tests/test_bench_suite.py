"""The benchmarks run through and say what they found; nothing here asks how long anything took."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import compare
from bench.__main__ import main
from bench.peers import FLOOR, OURS, TORCH, installed
from bench.programs import PROGRAMS, chosen

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of every program but the imports, which compares each one's results with those written by hand."""
    path, names = tmp_path_factory.mktemp("bench") / "run.json", [p.name for p in chosen([]) if p.name != "imports"]
    assert main(["run", *names, "--visits", "1", "--rounds", "2", "--seconds", "0", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert len(found["visits"]) == 1
    path.write_text(json.dumps(found | {"visits": found["visits"] * 3}))         # comparing asks for three processes
    return path


def test_imports():
    program, = chosen(["imports"])
    assert program.prepare(installed()[0][OURS])(0) == []


def test_a_wrong_gradient_is_found(monkeypatch):
    program = {p.name: p for p in chosen(["embedding"])}["embedding"]
    floor = program.floor
    monkeypatch.setattr(program, "floor", lambda *arrays: (floor(*arrays)[0], floor(*arrays)[1] * 1.01))
    ours = installed()[0][OURS]
    with pytest.raises(ValueError, match="embedding: result 1 of autograd_gpu, .* away from that by hand"):
        program.check(ours, program.prepare(ours))


def test_pytest_runs_the_files():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "bench", "--benchmark-disable", "-k", "tiny_chain or hooks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_what_a_run_holds(run):
    visit = json.loads(run.read_text())["visits"][0]
    assert list(visit["programs"]) == [name for name in PROGRAMS if name != "imports"]
    assert {OURS, FLOOR} <= visit["versions"].keys()
    for one in visit["programs"].values():
        assert {OURS, FLOOR} <= one["seconds"].keys()
        assert len(one["seconds"][OURS]) == 2 and min(map(min, one["seconds"].values())) > 0


def test_the_report(run, tmp_path):
    memory = tmp_path / "memory.json"
    assert main(["memory", "embedding", "--json", str(memory)]) == 0
    one = json.loads(memory.read_text())["memory"]["embedding"]
    rows, table = 4096 * 64 * 4, 10_000 * 64 * 4
    assert rows <= one[OURS]["kept"] < 1.1 * rows and table < one[OURS]["peak"]
    if TORCH in one:
        assert rows <= one[TORCH]["kept"] < 1.1 * rows and table < one[TORCH]["peak"]
    page = tmp_path / "page.md"
    assert main(["report", str(run), str(memory), "--out", str(page)]) == 0
    text = page.read_text()
    assert "| `tiny_chain` | **" in text and "| `embedding` | " in text.partition("## Memory")[2]
    assert "Python " + sys.version.split()[0] in text and "page.svg" in text
    drawing = page.with_suffix(".svg").read_text()
    assert drawing.startswith("<svg") and "tiny_mixed" in drawing


def test_compare_fails_where_it_became_slower_than_the_noise(run, tmp_path, capsys):
    slower = tmp_path / "slower.json"
    found = json.loads(run.read_text())
    for visit in found["visits"]:
        visit["programs"]["embedding"]["seconds"][OURS] = [1000 * s for s in visit["programs"]["embedding"]["seconds"][OURS]]
    slower.write_text(json.dumps(found))
    assert main(["compare", str(run), str(run)]) == 0
    assert main(["compare", str(slower), str(run)]) == 0
    assert "faster" in capsys.readouterr().out
    assert main(["compare", str(run), str(slower)]) == 1
    assert [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if "**slower**" in line] == ["`embedding`"]


def test_noise_between_processes_and_between_rounds_counts():
    before = [[1.0, 1.1, 1.2], [1.1, 1.2, 1.3], [1.3, 1.4, 1.5]]
    assert compare.apart(before, [[1.8, 1.9, 2.0]] * 3)
    assert not compare.apart(before, [[1.2, 1.3, 1.4], [9, 9, 9], [9, 9, 9]])          # one process is as before
    assert not compare.apart(before, [[1.8, 1.9, 2.0], [9, 9, 9], [9, 9, 9]])          # the processes after differ by more than the gap
    assert not compare.apart(before, [[1.0, 1.9, 1.9], [1.0, 1.9, 1.9], [1.0, 1.9, 2.0]])      # rounds overlap


def test_compare_asks_for_three_processes(run, tmp_path):
    short = tmp_path / "short.json"
    found = json.loads(run.read_text())
    short.write_text(json.dumps(found | {"visits": found["visits"][:2]}))
    with pytest.raises(SystemExit, match="three"):
        main(["compare", str(run), str(short)])


def test_names(capsys):
    assert [p.name for p in chosen(["depth", "mlp"])] == ["deep", "mlp"]
    assert len(chosen([])) == len(PROGRAMS)
    with pytest.raises(SystemExit, match="no program or file atention"):
        main(["run", "atention"])
    with pytest.raises(SystemExit, match="tiny_no_grad: only a step of forward and backward"):
        main(["memory", "tiny_no_grad"])
