"""python -m tests.simgpu SCRIPT ARGUMENT...: run a program on simulated devices. It fails too if they found a fault in it."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.simgpu import runtime
from tests.simgpu.kernels import HERE


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    reason = runtime.why_not()
    if reason:
        sys.exit(f"tests.simgpu: {reason}")
    root = str(HERE.parent.parent)
    paths = [str(HERE / "site"), root, os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "findings"
        env = dict(os.environ, SIMGPU_ROOT=root, SIMGPU_REPORT=str(report), PYTHONPATH=os.pathsep.join(p for p in paths if p))
        code = subprocess.run([sys.executable, *sys.argv[1:]], env=env).returncode
        found = report.read_text().splitlines() if report.exists() else []
    for line in dict.fromkeys(found):
        print(f"the simulated devices found: {line}", file=sys.stderr)
    sys.exit(code or bool(found))


if __name__ == "__main__":
    main()
