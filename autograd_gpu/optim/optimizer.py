"""The base of all optimizers: parameter groups, state, hooks; and the step that those with an update rule share."""
from __future__ import annotations

import copy
import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from autograd_gpu import devices as _device
from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import Tensor, count_write, wrap
from autograd_gpu.engine.grad_mode import enable_grad, set_grad_enabled
from autograd_gpu.engine.node import HookDict, RemovableHandle
from autograd_gpu.optim.update import UpdateRule

_pre_hooks, _post_hooks = HookDict(), HookDict()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer; see Optimizer.register_step_pre_hook.

    Reference: torch.optim.optimizer.register_optimizer_step_pre_hook.
    """
    return RemovableHandle(_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer.

    Reference: torch.optim.optimizer.register_optimizer_step_post_hook.
    """
    return RemovableHandle(_post_hooks, hook)


class _Required:
    """The default of an option that each parameter group has to give."""

    def __repr__(self):
        return "<required parameter>"


required = _Required()


def _hooked(step):
    """A class's step with the hooks around it."""
    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        args = (self, *args)
        for hook in [*_pre_hooks.values(), *self._step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RuntimeError(f"{type(self).__name__}.step: a pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                                   f"{changed!r}")
            args, kwargs = changed
        found = step(*args, **kwargs)
        if self._opt_called is not None:
            self._opt_called = True
        for hook in [*self._step_post_hooks.values(), *_post_hooks.values()]:
            hook(self, args, kwargs)
        return found
    return wrapper


class Optimizer:
    """The base of optimizers: `param_groups`, a list of dictionaries of options with their "params", and `state` per parameter.

    `params`: Tensors, (name, Tensor) pairs, or dictionaries of which each is a group; `defaults`: what options a group does not give.
    Raises: TypeError for what is no collection of Tensors; ValueError for none, or for a Tensor that is no leaf.
    Reference: torch.optim.Optimizer.
    """

    _opt_called: bool | None = None          # whether step ran since a learning rate scheduler asked to know
    _step_watched: Any = None                # what an object had in place of its class's step then

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = _hooked(cls.step)

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor: put it "
                            "into a list")
        self.defaults = defaults
        self._make_hooks()
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hooks(self):
        self._step_pre_hooks, self._step_post_hooks = HookDict(), HookDict()
        self._state_dict_pre_hooks, self._state_dict_post_hooks = HookDict(), HookDict()
        self._load_state_dict_pre_hooks, self._load_state_dict_post_hooks = HookDict(), HookDict()

    def __getstate__(self):
        return {name: getattr(self, name) for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._make_hooks()

    def __repr__(self):
        groups = ["\n".join([f"Parameter Group {i}", *[f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]])
                  for i, group in enumerate(self.param_groups)]
        return "\n".join([f"{type(self).__name__} (", "\n\n".join(groups), ")"])

    # ------------------------------------------------------------------------------------------------------ parameters

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Raises: TypeError for what is no dictionary, a set, or no Tensor; ValueError for a Tensor that is no leaf, one that another group
        has, or a missing option.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but a set has another order in each run: "
                            "use a list instead")
        params = [params] if isinstance(params, Tensor) else list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names: some param names are missing")
            param_group["param_names"] = names
            params = [p for _, p in params]
        param_group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor: pass the leaf that it was computed from, or its detach()")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters: each step updates them several times",
                          stacklevel=3)
        for group in self.param_groups:
            if ("param_names" in group) != ("param_names" in param_group):
                raise ValueError("all optimizer param groups should be with/without names: this group is "
                                 f"{'with' if 'param_names' in param_group else 'without'}, those before are not")
        if {id(p) for group in self.param_groups for p in group["params"]} & {id(p) for p in params}:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters; with set_to_none=False fill them with zeros instead, in place."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients. `closure` computes the loss again and returns it; the step then returns it."""
        raise NotImplementedError(f"{type(self).__name__} has no step")

    # ----------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """{"state": per parameter, by its number, "param_groups": with those numbers}. It shares the tensors of the state.

        The layout is that of PyTorch.
        """
        for hook in [*self._state_dict_pre_hooks.values()]:
            hook(self)
        numbers: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            numbers.update({id(p): i for i, p in enumerate(group["params"], start)})
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]})
            start += len(group["params"])
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        found = {"state": state, "param_groups": groups}
        for hook in [*self._state_dict_post_hooks.values()]:
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state_dict, as copies: arrays, of PyTorch's tensors too, become Tensors on the parameter's device and of its dtype.

        Raises ValueError where its groups are not as large as these.
        """
        state_dict = dict(state_dict)
        for hook in [*self._load_state_dict_pre_hooks.values()]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups = copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError(f"loaded state dict has a different number of parameter groups: {len(groups)}, expected "
                             f"{len(self.param_groups)}")
        for i, (new, own) in enumerate(zip(groups, self.param_groups, strict=True)):
            if len(new["params"]) != len(own["params"]):
                raise ValueError(f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group "
                                 f"{i} has {len(new['params'])} parameters, expected {len(own['params'])}")
        params = dict(zip(chain(*[g["params"] for g in groups]), chain(*[g["params"] for g in self.param_groups]), strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _fitted(params[key], value)
            else:
                state[key] = value
        for new, own in zip(groups, self.param_groups, strict=True):
            new["params"] = own["params"]
            if "param_names" in own:
                new.setdefault("param_names", own["param_names"])
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in [*self._load_state_dict_post_hooks.values()]:
            hook(self)

    # ----------------------------------------------------------------------------------------------------------- hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; what it returns, unless None, are new (args, kwargs)."""
        return RemovableHandle(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return RemovableHandle(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before state_dict; with `prepend` ahead of the hooks that are there."""
        return _registered(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after state_dict; it may return another."""
        return _registered(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before load_state_dict; it may return another."""
        return _registered(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after load_state_dict."""
        return _registered(self._load_state_dict_post_hooks, hook, prepend)


def _registered(hooks, hook, prepend):
    handle = RemovableHandle(hooks, hook)
    if prepend:
        others = {key: h for key, h in hooks.items() if key != handle.id}
        for key in others:
            del hooks[key]
        hooks.update(others)
    return handle


def _fitted(param, value, key=None):
    """A value of a loaded state, copied: tensors and arrays on the parameter's device and, but for the number of steps, of its dtype."""
    if isinstance(value, dict):
        return {k: _fitted(param, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitted(param, v) for v in value)
    if isinstance(value, Tensor):
        array = value._array
    elif _device.is_array(value) or hasattr(value, "__array__"):
        array = value if _device.is_array(value) else np.asarray(value)
    else:
        return value
    if key in _NUMBERS:
        return wrap(np.array(_device.host(array)))
    where = param.device
    array = _device.copy(array, where)
    with _device.guard(where):
        kind = param._array.dtype
        return wrap(array.astype(kind if _dtype.category(kind) == "f" else array.dtype, order=_device.order_of(array)))


_NUMBERS = ("step", "mu_product")            # single numbers of a state; they stay in host memory


# ------------------------------------------------------------------------------------------- what update rules have in common

class RuleOptimizer(Optimizer):
    """An optimizer that updates each parameter from its own gradient and state alone, by `_rule`.

    `_operands(param, options)` counts the step and gives what of the state the rule writes to, and its numbers. The parameters of a
    group whose numbers are the same are updated together. With the option `differentiable` steps are recorded, so the parameters must
    not be leaves.
    """

    _rule: UpdateRule

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have a gradient. `closure` computes the loss again and returns it; the step then returns it."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        recorded = bool(self.defaults.get("differentiable"))
        with set_grad_enabled(recorded), np.errstate(all="ignore"):
            for group in self.param_groups:
                options = {name: value if recorded else as_number(value) for name, value in group.items()}
                together: dict[tuple, tuple[list, dict[str, Any]]] = {}
                for p in group["params"]:
                    grad = p.grad
                    if grad is None:
                        continue
                    written, numbers = self._operands(p, options)
                    together.setdefault((p.device, *numbers.values()), ([], numbers))[0].append((grad, p, *written))
                for rows, numbers in together.values():
                    (self._rule.recorded if recorded else self._rule)(rows, numbers)
        return loss

    def _operands(self, param, group) -> tuple[tuple[Tensor | None, ...], dict[str, Any]]:
        raise NotImplementedError


def as_number(option):
    """An option of a group; what is a number, or a pair of them, as Python's: those of NumPy would decide dtypes."""
    if isinstance(option, tuple):
        return tuple([as_number(o) for o in option])
    return float(option) if isinstance(option, (int, Tensor, np.generic)) and not isinstance(option, bool) else option


def number(value=0.0) -> Tensor:
    """A number of a state, such as that of the steps taken: a 0-d Tensor in host memory."""
    wide = _dtype.default() == np.float64
    return wrap(np.array(value, np.float64 if wide else np.float32))


def counted(state) -> float:
    """Count one step in a state; the number of steps."""
    t = state["step"]
    if not isinstance(t, Tensor):            # of a state that was saved with a Python number
        t = state["step"] = number(float(t))
    t._array += 1
    count_write(t)
    return t.item()


def zeros(param: Tensor, value: float = 0.0) -> Tensor:
    """A tensor of a state: like a parameter, filled with one value."""
    array = param._array
    with _device.guard(param.device):
        return wrap(_device.xp(array).full_like(array, value, order=_device.order_of(array)))


def check(options: dict[str, Any], **least: float) -> None:
    """Raise ValueError for an option, named as PyTorch does, that is less than its least value; a learning rate may be a Tensor."""
    lr = options["lr"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, but has shape {tuple(lr.shape)}")
    names = {"lr": "learning rate", "eps": "epsilon value"}
    for name, low in {"lr": 0.0, **least}.items():
        if not low <= options[name]:
            raise ValueError(f"Invalid {names.get(name, name + ' value')}: {options[name]}; it must not be less than {low:g}")
    for i, beta in enumerate(options.get("betas", ())):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}; it must be in [0, 1)")
    if options.get("fused") and options["differentiable"]:
        raise RuntimeError("`fused` does not support `differentiable`")
    if options.get("fused") and options.get("foreach"):
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def shared(group: dict[str, Any]) -> dict[str, Any]:
    """The numbers that every rule takes: weight decay, None where there is none, and whether to climb instead of descend."""
    return {"decay": group["weight_decay"] or None, "maximize": bool(group["maximize"])}
