"""What the package's sources ask of CuPy, held against the CuPy that is installed: each name exists, each call fits its signature.

    python -m tests.cupy_names

It runs nothing, so it needs no GPU. In the body of an op `np` and `sp` are CuPy and cupyx.scipy once it runs on CUDA; elsewhere
CuPy is what `_device.cupy`, `_device.xp(...)` or a variable `xp` give. A method is looked up in ndarray where NumPy has one of its name.
"""
import ast
import functools
import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np

import autograd_gpu
from autograd_gpu.ops.namespace import REGISTRY

PACKAGE = Path(autograd_gpu.__file__).parent
_TYPE = re.compile(r"\b(?:str|int|bint|bool|object|tuple|size_t|Py_ssize_t|intptr_t|_ndarray_base|MemoryPointer|unsigned int) (?=\w)")
_OF_UFUNCS = {"out", "dtype", "casting", "where"}
_REFUSED = "is not supported yet"
_LISTS = {"copy", "sort", "index", "count"}  # also methods of lists, dicts and the like


def signature(function):
    """The signature, from the first line of the documentation where Cython gives no other; None where there is none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        pass
    found = re.match(r"[\w.]+\(([^\n]*?)\)(?: -> .*)?(?:\n|$)", (function.__doc__ or "").lstrip())
    if not found:
        return None
    text = re.sub(r"=<[^>]*>|=[A-Za-z_][\w.]*\.[\w.]+", "=None", _TYPE.sub("", found[1].replace("\\*", "*")))
    names: dict = {}
    try:
        exec(f"def function({text}): pass", names)
    except SyntaxError:
        return None
    made = inspect.signature(names["function"])
    if getattr(function, "__self__", None) is not None and next(iter(made.parameters), None) == "self":
        made = made.replace(parameters=list(made.parameters.values())[1:])
    return made


def lookup(root, names):
    """What a chain of attributes leads to. Raises AttributeError with the first that is missing."""
    found = root
    for i, name in enumerate(names):
        if not hasattr(found, name):
            try:
                importlib.import_module(".".join([root.__name__, *names[:i + 1]]))
            except ImportError:
                raise AttributeError(name) from None
        found = getattr(found, name)
    return found


def misfit(function, positional, keywords, bound=True):
    """Why a call does not fit, or None. `bound`: a method is of an object, not of its class."""
    if type(function).__name__ == "ufunc":
        unknown = set(keywords) - _OF_UFUNCS
        if unknown:
            return f"a ufunc of CuPy takes no {', '.join(sorted(unknown))}"
        return f"{positional} operands, it takes {function.nin}" if positional > function.nargs else None
    of = getattr(function, "__self__", None)
    if type(of).__name__ == "ufunc":
        try:
            function(*[None] * (2 if function.__name__ == "at" else 1))
        except NotImplementedError as error:
            return str(error)
        except Exception:                    # it got to look at its operands
            pass
    expected = signature(function)
    if expected is None:
        return None
    try:
        expected.bind(*[None] * (positional + (not bound)), **dict.fromkeys(keywords))
    except TypeError as error:
        return f"{error}; it is {getattr(function, '__name__', function)}{expected}"
    return None


class Checker:
    """Walks the sources; `uses` counts what was looked at, `problems` says what does not fit."""

    def __init__(self, cupy, scientific):
        self.cupy, self.scientific = cupy, scientific
        self.uses, self.problems = 0, []

    def file(self, path, bodies):
        """`bodies`: the first lines of the functions in it that are rebound."""
        self.path, self.bodies, self.aliases = path, bodies, {}
        self._visit(ast.parse(path.read_text(encoding="utf-8")), False)

    def _visit(self, node, in_body):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            self.aliases = {}
            lines = {node.lineno, *[d.lineno for d in getattr(node, "decorator_list", ())]}
            if lines & self.bodies:
                for outside in (*getattr(node, "decorator_list", ()), node.args):
                    self._visit(outside, in_body)
                inside = node.body if isinstance(node.body, list) else [node.body]
                self._visit(ast.Module(inside, []), True)
                return
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._remember(node.targets[0], node.value, in_body)
        elif isinstance(node, ast.If) and in_body and "np is numpy" in ast.unparse(node.test):
            self._visit(ast.Module(node.body, []), False)
            self._visit(ast.Module(node.orelse, []), True)
            return
        elif isinstance(node, ast.Try) and any("NotImplementedError" in ast.unparse(h.type) for h in node.handlers if h.type):
            before = self.problems
            self.problems = []
            self._visit(ast.Module(node.body, []), in_body)
            self.problems = before + [p for p in self.problems if not p.endswith(_REFUSED)]
            self._visit(ast.Module([*node.handlers, *node.orelse, *node.finalbody], []), in_body)
            return
        if isinstance(node, ast.Call):
            self._call(node, in_body)
        elif isinstance(node, ast.Attribute):
            self._names(node, in_body)
        for child in ast.iter_child_nodes(node):
            self._visit(child, in_body)

    def _remember(self, target, value, in_body):
        """A variable that holds CuPy, or something of it."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for t, v in zip(target.elts, value.elts, strict=True):
                self._remember(t, v, in_body)
        elif isinstance(target, ast.Name):
            self.aliases.pop(target.id, None)
            found = self._chain(value, in_body)
            if found:
                self.aliases[target.id] = found

    def _chain(self, node, in_body):
        """(module, its name here, attributes) for an expression that starts at CuPy; None for others."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and (node.value.id, node.attr) in (("_device", "cupy"), ("devices", "cupy")):
                return self.cupy, "cupy", names[::-1]
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function in ("xp", "_device.xp", "_device.module"):
                return self.cupy, f"{function}()", names[::-1]
        if isinstance(node, ast.Name):
            if node.id in self.aliases:
                module, name, before = self.aliases[node.id]
                return module, name, before + names[::-1]
            if node.id in ("xp", "cupy") or node.id == "np" and in_body:
                return self.cupy, node.id, names[::-1]
            if node.id == "sp" and in_body:
                return self.scientific, "sp", names[::-1]
        return None

    def _names(self, node, in_body):
        found = self._chain(node, in_body)
        if found and found[2]:
            self.uses += 1
            module, name, names = found
            try:
                lookup(module, names)
            except AttributeError as error:
                self.problems.append(f"{self.path.name}:{node.lineno}: {'.'.join([name, *names])}: CuPy has no {error}")

    def _call(self, node, in_body):
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return
        found = self._chain(node.func, in_body)
        bound = True
        if found:
            try:
                function = lookup(found[0], found[2])
            except AttributeError:           # said by _names
                return
            if not found[2] or inspect.isclass(function) and function.__module__ == "numpy":
                return
        elif isinstance(node.func, ast.Attribute) and hasattr(np.ndarray, node.func.attr) and not self._is_of_python(node.func):
            function, bound = getattr(self.cupy.ndarray, node.func.attr, None), False
            if function is None:
                self.problems.append(f"{self.path.name}:{node.lineno}: CuPy's arrays have no method {node.func.attr}")
                return
        else:
            return
        self.uses += 1
        why = misfit(function, len(node.args), [k.arg for k in node.keywords], bound)
        if why:
            self.problems.append(f"{self.path.name}:{node.lineno}: {ast.unparse(node)}: {why}")

    @staticmethod
    def _is_of_python(function):
        """Whether a method is of no array: of a module, of an op's namespace, or one that lists, dicts or all objects have too."""
        root = function.value
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id in ("F", "np", "sp", "math", "_device", "_dtype") or \
            function.attr in _LISTS or function.attr.startswith("__")


@functools.cache
def rebound():
    """{file: first lines of the bodies in it}."""
    found: dict = {}
    for record in REGISTRY.values():
        code = record.body.__code__
        found.setdefault(Path(code.co_filename), set()).add(code.co_firstlineno)
    return found


def check(paths=None):
    """A Checker that has seen these files, or the whole package."""
    cupy = importlib.import_module("cupy")
    checker = Checker(cupy, importlib.import_module("cupyx.scipy"))
    for path in paths or sorted(PACKAGE.rglob("*.py")):
        checker.file(path, rebound().get(path, set()))
    return checker


def main():
    checker = check()
    print("\n".join(checker.problems))
    print(f"{checker.uses} uses of CuPy, {len(checker.problems)} problems")
    sys.exit(bool(checker.problems))


if __name__ == "__main__":
    main()
