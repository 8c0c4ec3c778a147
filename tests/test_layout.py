"""How the source is laid out: who imports whom, how long files are, what a formula may say."""
import ast
import inspect
import re
import sys
from pathlib import Path

import pytest

import autograd_gpu  # noqa: F401 - fills the registry
from autograd_gpu.ops.namespace import REGISTRY

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autograd_gpu"
FILES = sorted(PACKAGE.rglob("*.py"))
LIMIT = 600

# Bottom first: a file imports only from lower layers, or from its own.
LAYERS = [
    ["size", "tree", "dtypes", "devices", "expression", "parallel", "bits", "buffers", "blocks", "rows", "cuda.*", "engine.grad_mode",
     "engine.anomaly_mode"],
    ["base", "generator"],
    ["cuda"],                                # a face, but Python runs it before any file of its folder: it must stay low
    ["engine"],
    ["ops.namespace"],
    ["ops.compile", "ops.views", "ops.out", "ops.kernels", "ops.fit", "ops.forward", "ops.runtime"],
    ["ops.op", "ops.inplace"],
    ["ops.*"],                               # the families
    ["ops"],
    ["backward", "text"],
    ["methods"],
    ["autograd", "func", "nn", "optim", "utils", "library", "linalg", "serialization",
     "unpickling"],
    ["api"],
    [""],                                    # autograd_gpu itself
]


def module_name(path):
    """The name below the package: "ops.op"; "ops" for ops/__init__.py, "" for the package's own."""
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return re.sub(r"\.?__init__$", "", name)


def layer(name):
    """The number of a module's layer. The most specific entry counts."""
    found = {pattern: i for i, patterns in enumerate(LAYERS) for pattern in patterns}
    if name in found:
        return found[name]
    head = name.split(".")[0]
    return found.get(head + ".*", found.get(head))


def imports(tree):
    """(line, module) of everything of the package that a file imports, a name imported from a package as its module if it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "autograd_gpu":
                    yield node.lineno, alias.name.removeprefix("autograd_gpu").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write absolute imports"
            if node.module.split(".")[0] == "autograd_gpu":
                inside = node.module.removeprefix("autograd_gpu").lstrip(".")
                for alias in node.names:
                    longer = f"{inside}.{alias.name}".lstrip(".")
                    path = PACKAGE.joinpath(*longer.split("."))
                    yield node.lineno, longer if path.with_suffix(".py").exists() or (path / "__init__.py").exists() else inside


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_every_file_has_a_layer():
    assert [str(p) for p in FILES if layer(module_name(p)) is None] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: module_name(p) or "autograd_gpu")
def test_imports_point_down(path):
    own = layer(module_name(path))
    assert [f"{path.name}:{line} imports {name!r}, a higher layer" for line, name in imports(parse(path)) if layer(name) > own] == []


FAMILIES = [p for p in sorted((PACKAGE / "ops").glob("*.py")) if LAYERS[layer(module_name(p))] == ["ops.*"]]


def test_families_reach_each_others_ops_by_name():
    """A family may take helpers of another, not its ops (those are F.<op>), and no two families need each other."""
    needs = {}
    for path in FAMILIES:
        needs[path.stem] = set()
        for node in parse(path).body:
            if isinstance(node, ast.ImportFrom) and (PACKAGE / "ops" / (node.module.rpartition(".")[2] + ".py")) in FAMILIES:
                needs[path.stem].add(node.module.rpartition(".")[2])
                for alias in node.names:
                    assert alias.name not in REGISTRY, f"{path.name}:{node.lineno} imports the op {alias.name}: write F.{alias.name}"
    while needs:
        free = [name for name, other in needs.items() if not other & needs.keys()]
        assert free, f"these families import each other: {sorted(needs)}"
        for name in free:
            del needs[name]


@pytest.mark.parametrize("path", FILES, ids=lambda p: module_name(p) or "autograd_gpu")
def test_file(path):
    text, tree = path.read_text(encoding="utf-8"), parse(path)
    assert len(text.splitlines()) <= LIMIT, f"{path.name} is longer than {LIMIT} lines: split it"
    if text.strip():
        assert ast.get_docstring(tree), f"{path.name} has no docstring"
    for node in ast.walk(tree):
        froms = [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in [a.name for a in node.names] if isinstance(node, ast.Import) else froms:
            top = name.split(".")[0]
            assert top != "torch", f"{path.name}:{node.lineno} imports PyTorch, which is only ever an oracle"
            if top in ("cupy", "cupyx"):
                assert module_name(path) == "devices", f"{path.name}:{node.lineno} imports CuPy"
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)):
            late = [n.lineno for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert late == [], f"{path.name}:{late} imports inside a function"


def test_the_tests_hide_no_package():
    assert str(ROOT / "tests") not in sys.path, "tests/cuda would hide the package cuda, which CuPy imports: keep tests/__init__.py"


def test_public_functions_say_what_they_do():
    missing = [name for name in autograd_gpu.__dict__ if not name.startswith("_") and inspect.isfunction(getattr(autograd_gpu, name))
               and not inspect.getdoc(getattr(autograd_gpu, name))]
    assert missing == []


def test_the_folder_of_the_tests_is_not_on_the_path():
    """Or its cuda/ hides the package of that name, CuPy cannot be imported, and everything that needs it is skipped."""
    assert str(ROOT / "tests") not in sys.path


# ----------------------------------------------------------------------------------------------------- the formula language

def formulas(tree):
    """The lambdas given to <op>.vjp(...), and the functions under @<op>.vjp_shared(...)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "vjp":
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.Lambda):
                    yield keyword.value
        elif isinstance(node, ast.FunctionDef) and any(
                isinstance(d, ast.Call) and isinstance(d.func, ast.Attribute) and d.func.attr == "vjp_shared"
                for d in node.decorator_list):
            yield node


def misuses(formula):
    """What a formula says that not all of its readers understand."""
    parameters = {a.arg for a in formula.args.args}
    conjugated = [n.func for n in ast.walk(formula) if isinstance(n, ast.Call) and _conjugates(n)]
    for node in ast.walk(formula):
        if isinstance(node, ast.Call):
            ours = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "F"
            plain = isinstance(node.func, ast.Name) and node.func.id in ("tuple", "range", "len")      # of shapes, not of values
            if not ours and not plain and not _conjugates(node) and not _decorates(formula, node):
                yield node.lineno, f"calls {ast.unparse(node.func)}: only F.<op> and x.conj() can be read on arrays and on Tensors"
        elif isinstance(node, ast.Name) and node.id in ("np", "sp", "cupy"):
            yield node.lineno, f"uses {node.id}"
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "F":
                if node.attr not in REGISTRY:
                    yield node.lineno, f"F.{node.attr} is no op"
            elif node.attr not in ("shape", "dtype", "ndim") and node not in conjugated and not _decorates(formula, node):
                yield node.lineno, f"reads .{node.attr}"
        elif isinstance(node, (ast.IfExp, ast.If, ast.BoolOp)):
            if isinstance(formula, ast.Lambda) or not _on_needs(node, formula):
                yield node.lineno, "branches: write F.where, or a composite that decides by plain arguments"
    if not parameters:
        yield formula.lineno, "has no parameter"


def _conjugates(call):
    """Whether it is x.conj(), which arrays, Tensors and symbols have: of real arrays it costs half of what F.conj does."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "conj" and not call.args and not call.keywords


def _decorates(formula, node):
    return any(node in ast.walk(d) for d in getattr(formula, "decorator_list", ()))


def _on_needs(node, function):
    """A shared formula may ask which gradients are needed: its first parameter."""
    needs = function.args.args[0].arg
    return not isinstance(node, ast.BoolOp) and any(isinstance(n, ast.Name) and n.id == needs for n in ast.walk(node.test))


@pytest.mark.parametrize("path", sorted((PACKAGE / "ops").glob("*.py")), ids=lambda p: p.stem)
def test_formulas_keep_to_their_language(path):
    wrong = [f"{path.name}:{line} {what}" for formula in formulas(parse(path)) for line, what in misuses(formula)]
    assert wrong == []


@pytest.mark.parametrize("source", [
    "x.vjp(self=lambda grad: np.sum(grad))", "x.vjp(self=lambda grad: grad.sum())", "x.vjp(self=lambda grad, dim: grad if dim else 0)",
    "x.vjp(self=lambda grad: F.no_such_op(grad))", "x.vjp(self=lambda grad: grad.T)", "x.vjp(self=lambda grad: grad and 0)",
    "x.vjp(self=lambda grad: grad.conj)", "x.vjp(self=lambda grad: grad.conj(0))"])
def test_the_check_finds_misuse(source):
    assert [w for f in formulas(ast.parse(source)) for w in misuses(f)]
