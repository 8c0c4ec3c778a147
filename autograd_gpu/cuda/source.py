"""The CUDA text of kernels/, wherever the package was installed from."""
from __future__ import annotations

import functools
import pathlib
import re

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = (_PACKAGE / "kernels", _PACKAGE.parent / "kernels")            # in a wheel; beside the package, in a checkout


@functools.cache
def kernel_text(name: str) -> str:
    """The text of a file of kernels/, by its name: kernel_text("prelude.cuh").

    Raises FileNotFoundError where no such file is installed, naming the folders that were searched.
    """
    for folder in FOLDERS:
        path = folder / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"kernel_text: there is no file {name!r} in {' or '.join(str(f) for f in FOLDERS)}: install the package "
                            f"again, from a wheel or from a whole checkout")


@functools.cache
def sections(name: str) -> list[str]:
    """A file of kernels/ in parts: what its kernels share, then each kernel, from the comment above it on."""
    return re.split(r'(?<=\n\n)(?=(?://.*\n)*extern "C")', kernel_text(name))


def filled(text: str, words: dict[str, str]) -> str:
    """A text with its words between at signs filled in; lines of what stands for one are indented as the word was."""
    return re.sub(r"( *)@(\w+)@", lambda found: found[1] + words[found[2]].replace("\n", "\n" + found[1]), text)
