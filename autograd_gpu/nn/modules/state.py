"""state_dict and load_state_dict: a module's parameters and buffers by name, to keep and to load."""
from __future__ import annotations

import itertools
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.engine.node import HookDict, RemovableHandle
from autograd_gpu.nn.modules.hooks import add
from autograd_gpu.nn.parameter import Parameter

EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class HasState:
    """The part of Module that keeps and loads its state."""

    _version: int | None = 1                 # of a class's state, kept with it
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]
    _state_dict_pre_hooks: HookDict
    _state_dict_hooks: HookDict
    _load_state_dict_pre_hooks: HookDict
    _load_state_dict_post_hooks: HookDict

    def get_extra_state(self) -> Any:
        """State that is no parameter or buffer, for state_dict: a subclass may define it, along with set_extra_state."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called: a subclass overrides it")

    def set_extra_state(self, state: Any) -> None:
        """Take back what get_extra_state gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called: a subclass that has "
                           "get_extra_state defines it too")

    # ---------------------------------------------------------------------------------------------------------- hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call hook(module, prefix, keep_vars) before state_dict collects. Reference: torch.nn.Module.register_state_dict_pre_hook."""
        return add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata) after state_dict collected; it may change the dict, and returns None.

        Reference: torch.nn.Module.register_state_dict_post_hook.
        """
        def checked(*args):
            if hook(*args) is not None:
                raise RuntimeError("state_dict post-hook must return None: change the dict that it is given")
        return add(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook):
        """As register_state_dict_post_hook, where hook may return another dict."""
        return add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before loading.

        Reference: torch.nn.Module.register_load_state_dict_pre_hook.
        """
        return add(self._load_state_dict_pre_hooks, _Bound(hook, self))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        """As register_load_state_dict_pre_hook, where hook is given the module only if asked for."""
        return add(self._load_state_dict_pre_hooks, _Bound(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call hook(module, incompatible_keys) after loading; it may change the two lists of keys.

        Reference: torch.nn.Module.register_load_state_dict_post_hook.
        """
        return add(self._load_state_dict_post_hooks, hook)

    # --------------------------------------------------------------------------------------------------------- keeping

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Put this module's own parameters and persistent buffers into a dict."""
        buffers = {n: b for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set}
        for name, value in itertools.chain(self._parameters.items(), buffers.items()):
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not HasState.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def state_dict(self, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers of this module and those below it by their dotted names.

        The Tensors share the module's memory and are detached, unless `keep_vars`. Reference: torch.nn.Module.state_dict.
        """
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in tuple(self._state_dict_hooks.values()):
            changed = hook(self, destination, prefix, metadata)
            if changed is not None:
                destination = changed
        return destination

    # --------------------------------------------------------------------------------------------------------- loading

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Load this module's own state. A subclass may override it, for states of older versions."""
        for hook in tuple(self._load_state_dict_pre_hooks.values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        buffers = {n: b for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set}
        own = {n: t for n, t in itertools.chain(self._parameters.items(), buffers.items()) if t is not None}
        for name, t in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, t, key, state_dict[key], local_metadata.get("assign_to_params_buffers", False), error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA
        if type(self).set_extra_state is not HasState.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key != extra
                                and not self._knows(key[len(prefix):], own)]

    def _knows(self, rest, own):
        head, dot, _ = rest.partition(".")
        return head in self._modules if dot else rest in own

    def _load_one(self, name, t, key, given, assign, error_msgs):
        if not isinstance(given, Tensor):
            error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but '
                              f"received {type(given)}")
            return
        if t.ndim == 0 and given.ndim == 1:  # PyTorch before 0.4 had no 0-d tensors
            given = given[0]
        if given.shape != t.shape:
            error_msgs.append(f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in current "
                              f"model is {t.shape}.")
            return
        try:
            with no_grad():
                if not assign:
                    t.copy_(given)
                elif not isinstance(t, Parameter):
                    setattr(self, name, given)
                elif isinstance(given, Parameter):
                    setattr(self, name, given.requires_grad_(t.requires_grad))
                else:
                    setattr(self, name, Parameter(given, requires_grad=t.requires_grad))
        except Exception as error:           # told with the others, under the parameter's name
            error_msgs.append(f'While copying the parameter named "{key}", whose dimensions in the model are {t.size()} and whose '
                              f"dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}.")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy the values of a state_dict into this module and those below it; with `assign` its Tensors become the module's.

        Returns (missing_keys, unexpected_keys).
        Raises: TypeError for what is no mapping, RuntimeError for shapes that do not fit and, if `strict`, for keys that are missing or
        that the module does not have. Reference: torch.nn.Module.load_state_dict.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state: Any = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata
        _load(self, state, "", metadata, (strict, missing, unexpected, errors), assign)
        if strict and unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if strict and missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)


class _Bound:
    """A hook that is given a module first. Not functools.partial, so that a copy of the module has a hook on itself."""

    def __init__(self, hook, module):
        self.hook, self.module = hook, module

    def __call__(self, *args):
        return self.hook(self.module, *args)


def _load(module, state, prefix, metadata, report, assign):
    own = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        own["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, own, True, *report[1:])
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            _load(child, type(state)((k, v) for k, v in state.items() if k.startswith(below)), below, metadata, report, assign)
    keys = _IncompatibleKeys(*report[1:3])
    for hook in tuple(module._load_state_dict_post_hooks.values()):
        if hook(module, keys) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values: "
                                 "change the lists that they are given")


def _quoted(keys):
    return ", ".join(f'"{k}"' for k in keys)
