"""The example that trains on real digits: its arguments, its output, its picture."""
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def digits():
    for module in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(module, reason=f"{module} is not installed (extra examples)")
    return importlib.import_module("examples.digits")


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "examples.digits", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=240)


@pytest.mark.parametrize("arguments", [
    ["--epochs", "0"], ["--epochs", "many"], ["--batch", "-3"], ["--lr", "nan"], ["--lr", "0"], ["--hidden", "1.5"], ["--seed", "-1"],
    ["--device", "gpu"], ["--device", "cuda:99"], ["--out", "/no/such/folder/x.png"], ["--out", "picture.txt"], ["--out", "/proc/x.png"],
    ["--out", "/"],
    ["--unknown"], ["something"]])
def test_a_bad_argument_is_one_line_and_exit_code_2(digits, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        digits.arguments(arguments)
    out, err = capsys.readouterr()
    line, = err.splitlines()
    assert caught.value.code == 2 and arguments[-1].lstrip("-") in line and not out


def test_the_program_ends_with_exit_code_2(digits):
    done = run("--lr", "nan")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout


def test_it_learns_and_draws(digits, tmp_path):
    picture = tmp_path / "digits.png"
    done = run("--device", "cpu", "--out", str(picture))
    assert done.returncode == 0, done.stderr
    assert "device: cpu (as asked for)" in done.stdout
    assert float(re.search(r"test accuracy: ([\d.]+)%", done.stdout)[1]) >= 97
    assert re.search(r"time per epoch: \d+ ms", done.stdout) and "training" in done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000


def test_the_device_is_explained(digits, tmp_path):
    done = run("--epochs", "1", "--out", str(tmp_path / "x.png"))
    assert done.returncode == 0 and re.match(r"device: (cpu \(no GPU: .+\)|cuda:\d+ \(.+\))\n", done.stdout)


def test_the_convolutional_network_learns(digits, capsys):
    found = importlib.import_module("examples.digits_cnn").main(["--device", "cpu", "--epochs", "3"])
    out = capsys.readouterr().out
    assert found >= 0.9 and "Conv2d(1, 16, kernel_size=(3, 3)" in out and f"test accuracy: {found:.2%}" in out
