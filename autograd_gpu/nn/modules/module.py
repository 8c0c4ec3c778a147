"""Module: parameters, buffers and submodules under names, and forward with its hooks."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from autograd_gpu import dtypes as _dtype
from autograd_gpu.base import CudaTensor, Tensor
from autograd_gpu.devices import Device
from autograd_gpu.engine.grad_mode import no_grad
from autograd_gpu.engine.node import HookDict, RemovableHandle
from autograd_gpu.nn.modules.hooks import (
    EVERY_MODULE,
    add,
    call,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from autograd_gpu.nn.modules.state import HasState
from autograd_gpu.nn.parameter import Buffer, Parameter
from autograd_gpu.ops.creation import empty_like

__all__ = ["Module", "register_module_buffer_registration_hook", "register_module_forward_hook", "register_module_forward_pre_hook",
           "register_module_full_backward_hook", "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]

M = TypeVar("M", bound="Module")


def typename(value: Any) -> str:
    """What an error calls a value: a plain tensor by the name of its dtype, else its class."""
    cls = type(value)
    if cls in (Tensor, CudaTensor):
        return value.type()
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def indented(text: str) -> str:
    """Text whose lines after the first begin with two spaces."""
    return text.replace("\n", "\n  ")


class Module(HasState):
    """What a network is built of: parameters, buffers and other modules, found by the names of the attributes they are assigned to.

    A subclass calls super().__init__() first, assigns them, and defines `forward`; calling the module runs forward and the hooks.
    Reference: torch.nn.Module.
    """

    forward: Callable[..., Any]

    def __init__(self, *args: Any, **kwargs: Any):
        if kwargs:
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if args:
            raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={},
            _forward_pre_hooks=HookDict(), _forward_pre_hooks_with_kwargs=set(), _forward_hooks=HookDict(),
            _forward_hooks_with_kwargs=set(), _forward_hooks_always_called=set(), _backward_pre_hooks=HookDict(),
            _backward_hooks=HookDict(), _state_dict_pre_hooks=HookDict(), _state_dict_hooks=HookDict(),
            _load_state_dict_pre_hooks=HookDict(), _load_state_dict_post_hooks=HookDict())

    # ------------------------------------------------------------------------------------------------------ registering

    def _check_name(self, kind, name, taken):
        """A name for something new of a kind. Raises TypeError or KeyError for one that cannot be."""
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in taken:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if not name:
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def _started(self, kind):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call: call super().__init__() first")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name. Raises: KeyError or TypeError for a name or value that cannot be, ValueError for a result of ops.

        Reference: torch.nn.Module.register_parameter.
        """
        self._started("parameter")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly: compute "
                             f"what depends on other tensors in forward()")
        self._parameters[name] = param if param is None else registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is no parameter under a name; unless `persistent`, state_dict leaves it out.

        Raises: KeyError or TypeError for a name or value that cannot be. Reference: torch.nn.Module.register_buffer.
        """
        self._started("buffer")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = registered("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name. Raises: KeyError or TypeError for a name or value that cannot be.

        Reference: torch.nn.Module.add_module.
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = registered("module", self, name, module)

    register_module = add_module

    # ------------------------------------------------------------------------------------------------------- attributes

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_modules" in own:
            if name in (found := own["_parameters"]) or name in (found := own["_modules"]) or name in (found := own["_buffers"]):
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _forget(self, name):
        """Drop whatever else is under a name that something new is assigned to."""
        for members in (self.__dict__, self._parameters, self._buffers, self._modules):
            members.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._started("parameters")
            if name not in own["_parameters"]:
                self._forget(name)
            self.register_parameter(name, value)
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._started("module")
            if name not in own["_modules"]:
                self._forget(name)
            self._modules[name] = registered("module", self, name, value)
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None expected)")
            self._modules[name] = registered("module", self, name, value)
        elif isinstance(value, Buffer):
            self._started("buffer")
            if name not in own["_buffers"]:
                self._forget(name)
            self.register_buffer(name, value, value.persistent)
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)")
            self._buffers[name] = registered("buffer", self, name, value)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._buffers, self._modules):
            if name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._modules, *self._buffers}
        return sorted([n for n in names if not n[0].isdigit()])      # those of Sequential are no attributes that one can write

    # ------------------------------------------------------------------------------------------------------ what it has

    def _members(self, of, prefix, recurse, remove_duplicate):
        """(name, member) of this module and those below it, where `of(module)` are a module's own."""
        seen = set()
        for path, module in self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]:
            for name, value in of(module).items():
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and those below it. Reference: torch.nn.Module.named_parameters."""
        yield from self._members(lambda module: module._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and those below it, each once. Reference: torch.nn.Module.parameters."""
        for _, value in self.named_parameters(recurse=recurse):
            yield value

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) of this module and those below it. Reference: torch.nn.Module.named_buffers."""
        yield from self._members(lambda module: module._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and those below it, each once. Reference: torch.nn.Module.buffers."""
        for _, value in self.named_buffers(recurse=recurse):
            yield value

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below. Reference: torch.nn.Module.named_children."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly below. Reference: torch.nn.Module.children."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module): this one and all below it. Reference: torch.nn.Module.named_modules."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it. Reference: torch.nn.Module.modules."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def get_submodule(self, target: str) -> Module:
        """The module under a dotted name. Raises AttributeError where there is none. Reference: torch.nn.Module.get_submodule."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def _get_member(self, target):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter under a dotted name. Raises AttributeError where there is none. Reference: torch.nn.Module.get_parameter."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Tensor:
        """The buffer under a dotted name. Raises AttributeError where there is none. Reference: torch.nn.Module.get_buffer."""
        module, name, value = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return value

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module under a dotted name; with `strict` there has to be one already.

        Raises: ValueError for no name or what is no module, AttributeError where the name leads nowhere.
        Reference: torch.nn.Module.set_submodule.
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    # --------------------------------------------------------------------------------------------------- for all of them

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call fn(module) for every module below this one, then for this one; returns it. Reference: torch.nn.Module.apply."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Change the memory of every parameter, its .grad and every buffer to that of fn(tensor); parameters stay the same objects."""
        for module in self.children() if recurse else ():
            module._apply(fn)
        with no_grad():
            for p in self._parameters.values():
                if p is not None:
                    p.data = fn(p)
                    if p.grad is not None:
                        p.grad.data = fn(p.grad)
            for name, b in self._buffers.items():
                if b is not None:
                    self._buffers[name] = fn(b)
        return self

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move to a device, and convert floating and complex parameters and buffers to a dtype; returns the module itself.

        Call it with a dtype, a device (and a dtype), a Tensor that has both, or by keyword.
        Raises: TypeError for a dtype that is neither floating nor complex. Reference: torch.nn.Module.to.
        """
        device, dtype = _target(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
        return self._apply(lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() or t.is_complex() else None))

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Move to a device without the values. Reference: torch.nn.Module.to_empty."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def cpu(self: M) -> M:
        """Move to host memory; returns the module itself. Reference: torch.nn.Module.cpu."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: M, device: Any = None) -> M:
        """Move to a CUDA device, by default the current one; returns the module itself. Reference: torch.nn.Module.cuda."""
        return self._apply(lambda t: t.cuda(device))

    def type(self: M, dst_type: Any) -> M:
        """Convert all parameters and buffers to a dtype; returns the module itself. Reference: torch.nn.Module.type."""
        return self._apply(lambda t: t.type(dst_type))

    def _floating_to(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: M) -> M:
        """Convert floating parameters and buffers to float32; returns the module itself. Reference: torch.nn.Module.float."""
        return self._floating_to(_dtype.float32)

    def double(self: M) -> M:
        """Convert floating parameters and buffers to float64; returns the module itself. Reference: torch.nn.Module.double."""
        return self._floating_to(_dtype.float64)

    def half(self: M) -> M:
        """Convert floating parameters and buffers to float16; returns the module itself. Reference: torch.nn.Module.half."""
        return self._floating_to(_dtype.float16)

    def bfloat16(self: M) -> M:
        """Convert floating parameters and buffers to bfloat16; returns the module itself. Reference: torch.nn.Module.bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def train(self: M, mode: bool = True) -> M:
        """Set `training` here and below, which Dropout and BatchNorm look at; returns the module.

        Raises: ValueError for a mode that is no bool. Reference: torch.nn.Module.train.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        """train(False). Reference: torch.nn.Module.eval."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Set whether gradients are tracked for all parameters; returns the module. Reference: torch.nn.Module.requires_grad_."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the .grad of all parameters, or fill it with zeros. Reference: torch.nn.Module.zero_grad."""
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                (p.grad.requires_grad_(False) if p.grad.grad_fn is None else p.grad.detach_()).zero_()

    # ------------------------------------------------------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks or EVERY_MODULE:
            return call(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def _forward_unimplemented(self, *args):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    forward = _forward_unimplemented

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call hook(module, args) before forward; what it returns, if anything, replaces the arguments.

        With `with_kwargs` it is hook(module, args, kwargs), which may return (args, kwargs). `prepend`: run it before the others.
        Reference: torch.nn.Module.register_forward_pre_hook.
        """
        handle = add(self._forward_pre_hooks, hook, prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs.add(handle.id)
        return handle

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Call hook(module, args, output) after forward; what it returns, if anything, replaces the output.

        With `with_kwargs` it is hook(module, args, kwargs, output). `prepend`: run it before the others. `always_call`: run it although
        forward raised. Reference: torch.nn.Module.register_forward_hook.
        """
        handle = add(self._forward_hooks, hook, prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs.add(handle.id)
        if always_call:
            self._forward_hooks_always_called.add(handle.id)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) when the gradients of the outputs are known; what it returns, if anything, replaces them.

        Reference: torch.nn.Module.register_full_backward_pre_hook.
        """
        return add(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known; what it returns, if anything, replaces
        grad_input. An input that is no Tensor has the gradient None.

        Reference: torch.nn.Module.register_full_backward_hook.
        """
        return add(self._backward_hooks, hook, prepend)

    # ----------------------------------------------------------------------------------------------------------- printing

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self) -> str:
        """What repr shows of the module itself; a subclass may define it. Reference: torch.nn.Module.extra_repr."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        below = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        if not below and len(own) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"


def _target(device=None, dtype=None, non_blocking=False, memory_format=None, tensor=None):
    """The arguments of Module.to as (device, dtype)."""
    if isinstance(device, Tensor):
        tensor, device = device, None
    if tensor is not None:
        return tensor.device, tensor.dtype
    if isinstance(device, _dtype.dtype):
        device, dtype = None, device
    if device is not None and not isinstance(device, (str, int, Device)):
        raise TypeError(f"to() received an invalid combination of arguments: expected a device, a dtype or a Tensor, got "
                        f"{type(device).__name__}")
    return device, dtype
