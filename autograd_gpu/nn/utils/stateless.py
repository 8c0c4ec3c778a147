"""Modules called with other parameters and buffers than their own."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn.modules.module import Module
from autograd_gpu.ops.namespace import OPS

__all__ = ["functional_call", "stack_module_state"]


def _joined(dictionaries):
    """One dictionary of several. Raises ValueError for anything else, and for a name that is in two."""
    if isinstance(dictionaries, dict):
        return dictionaries
    if not isinstance(dictionaries, Sequence):
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dictionaries)}")
    if not all([isinstance(d, dict) for d in dictionaries]):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for d in dictionaries for name in d]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {name: t for d in dictionaries for name, t in d.items()}


def _members(module):
    """{dotted name: parameter or buffer}, with all names of those that are shared."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def _with_tied(members, given):
    """`given`, also under the other names of what the module has under several. Raises ValueError where these differ."""
    names: dict[Tensor, list[str]] = {}
    for name, t in members.items():
        names.setdefault(t, []).append(name)
    whole = dict(given)
    for tied in names.values():
        values = {given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(tied)}, which are tied. Consider using "
                             f"tie_weights=False")
        whole.update(dict.fromkeys(tied, values.pop()) if values else {})
    return whole


_MISSING: Any = object()                     # in the place of a tensor where a module has nothing under a name


def _exchange(module, name, t):
    """Put a tensor under a dotted name of a module; returns what was there. Raises AttributeError or TypeError where none can be."""
    path, _, own = name.rpartition(".")
    holder = module.get_submodule(path)
    for members in (holder._parameters, holder._buffers):
        if own in members:
            before, members[own] = members[own], t
            return before
    before = getattr(holder, own, _MISSING)
    if not (before is None or before is _MISSING or isinstance(before, Tensor)):
        raise TypeError(f"attribute `{own}`: {before!r} is not an instance of torch.Tensor")
    if t is _MISSING:
        delattr(holder, own)
    else:
        setattr(holder, own, t)
    return before


def functional_call(module: Module, parameter_and_buffer_dicts, args: Any = None, kwargs: dict[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with other tensors in the place of its parameters and buffers, by their dotted names, for this call.

    Several dictionaries are joined. tie_weights: one under several names is replaced under all of them. strict: all have to be given,
    and nothing else. What the module writes to or puts in the place of a tensor, the dictionary shows afterwards.
    Raises: ValueError for dictionaries that cannot be joined and for tied tensors that differ, RuntimeError by strict, TypeError for
    what is no Tensor. Reference: torch.func.functional_call.
    """
    given = _joined(parameter_and_buffer_dicts)
    members = _members(module)
    wanted = _with_tied(members, given) if tie_weights else given
    if strict and wanted.keys() != members.keys():
        told = [f"{what} key(s): {', '.join(map(repr, names))}." for what, names in (
            ("Unexpected", [n for n in wanted if n not in members]), ("Missing", [n for n in members if n not in wanted])) if names]
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}: {' '.join(told)}")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = {}
    try:
        for name, t in wanted.items():
            if not (t is None or isinstance(t, Tensor)):
                raise TypeError(f"{t!r} is not an instance of torch.Tensor")
            before[name] = _exchange(module, name, t)
        return module(*args, **kwargs or {})
    finally:
        after = {name: _exchange(module, name, t) for name, t in before.items()}
        given.update({name: t for name, t in after.items() if name in given})


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of modules of one class, each stacked under its name: for functional_call under vmap. All are new leaves.

    Raises: RuntimeError for no modules, or ones that differ in class, in training mode, or in what requires grad.
    Reference: torch.func.stack_module_state.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(members):
        return {name: _stacked_leaf(name, [m[name] for m in members]) for name in members[0]}
    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])


def _stacked_leaf(name, tensors):
    flags = {t.requires_grad for t in tensors}
    if len(flags) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return OPS.stack([t.detach() for t in tensors]).requires_grad_(flags.pop())
