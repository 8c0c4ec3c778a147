"""How bodies, formulas and composites reach the ops: by name, through a namespace for one kind of operand."""
from __future__ import annotations

import types

from autograd_gpu.devices import as_numpy

REGISTRY: dict[str, object] = {}             # name: Op or Composite
OPS = types.ModuleType("F")                  # the ops on Tensors, recording
_raw: dict[object, types.ModuleType] = {}    # NumPy or CuPy: the ops as plain functions on its arrays


def raw(module) -> types.ModuleType:
    """The ops as plain functions on the arrays of NumPy or CuPy: nothing recorded, nothing checked."""
    if module not in _raw:
        _raw[module] = types.ModuleType("F")
    return _raw[module]


def _names(code):
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _fill(namespace, module, code):
    """Put the ops that a function's code names into a raw namespace, so that each is an ordinary attribute when it runs."""
    for name in _names(code):
        record = REGISTRY.get(name)
        if record is not None and not hasattr(namespace, name):
            setattr(namespace, name, None)                       # a function may name itself
            setattr(namespace, name, record.on_arrays(module))


def rebind(function, module=None, **names):
    """The same code with other globals. With a module, `np` is that module and `F` the ops on its arrays."""
    if module is not None:
        names.update(np=as_numpy(module), F=raw(module))
        _fill(names["F"], module, function.__code__)
    clone = types.FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__,
                               function.__defaults__, function.__closure__)
    clone.__kwdefaults__ = function.__kwdefaults__
    return clone
