"""What an installation holds: a wheel, an editable install and the checkout itself all find the kernels."""
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import autograd_gpu
from autograd_gpu.cuda import source

ROOT = Path(__file__).parent.parent
READ = """if True:
    import autograd_gpu
    from autograd_gpu.cuda.source import kernel_text
    text = kernel_text("prelude.cuh")
    assert "AUTOGRAD_GPU_PRELUDE_CUH" in text
    x = autograd_gpu.tensor([3.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [6.0]
    print(autograd_gpu.__file__)
"""


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=240, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed (extra test)")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    found, = folder.glob("*.whl")
    return found


def test_wheel_holds_the_package_and_the_kernels(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tree = {str(p.relative_to(ROOT)) for p in (ROOT / "autograd_gpu").rglob("*.py")} | {"autograd_gpu/py.typed"}
    kernels = {f"autograd_gpu/{p.relative_to(ROOT)}" for p in (ROOT / "kernels").rglob("*") if p.is_file()}
    assert tree | kernels <= names
    assert {n.split("/")[0] for n in names} == {"autograd_gpu", f"autograd_gpu-{autograd_gpu.__version__}.dist-info"}


def test_kernels_are_found_from_a_wheel(wheel, tmp_path):
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target",
        tmp_path / "site", wheel)
    where = run(sys.executable, "-c", READ, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    assert where.startswith(str(tmp_path / "site"))


def test_kernels_are_found_from_an_editable_install(tmp_path):
    """An editable install is a line in a .pth file that puts the checkout on the path."""
    pytest.importorskip("hatchling", reason="hatchling, which makes the editable install, is not installed (extra test)")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
        "--disable-pip-version-check", "--target", tmp_path / "site", "--editable", ROOT)
    program = f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n" + READ
    where = run(sys.executable, "-c", program, cwd=tmp_path, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert where.startswith(str(ROOT))


def test_kernels_are_found_in_the_checkout():
    assert "AUTOGRAD_GPU_PRELUDE_CUH" in source.kernel_text("prelude.cuh")
    with pytest.raises(FileNotFoundError, match="none.cu"):
        source.kernel_text("none.cu")


def test_importing_costs_little_and_needs_neither_scipy_nor_torch():
    program = ("import sys, autograd_gpu; "
               "print([m for m in ('scipy', 'torch', 'ml_dtypes.missing', 'sklearn', 'matplotlib') if m in sys.modules])")
    assert run(sys.executable, "-c", program, cwd=ROOT).strip() == "[]"


def test_version_is_told_once():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{autograd_gpu.__version__}"' in text
