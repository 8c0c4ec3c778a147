"""Modules and parameters in a row, in a list or in a dict."""
from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autograd_gpu.base import Tensor
from autograd_gpu.nn.modules.module import Module, indented, typename
from autograd_gpu.nn.parameter import Parameter


def _place(index: Any, length: int) -> int:
    """An index that counts from 0. Raises IndexError for one out of range."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


class _Row(Module):
    """What modules that are named by their place have in common."""

    def _fill(self, modules):
        """Hold these modules and no others."""
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)
        return self

    def _of(self, modules):
        """An object of this class that holds these modules."""
        return type(self)()._fill(modules)

    def __getitem__(self, index: Any) -> Any:
        modules = list(self._modules.values())
        if isinstance(index, slice):
            return self._of(modules[index])
        return modules[_place(index, len(modules))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[_place(index, len(self))], module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self._modules.values())
        del modules[index if isinstance(index, slice) else _place(index, len(modules))]
        self._fill(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __iadd__(self, other: Iterable[Module]) -> Any:
        return self.extend(other)

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: Any) -> Module:
        """Take a module out and return it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Row):
    """Modules that run one after the other, each on what the one before gave.

    Made of modules or of a dict of them by name. Reference: torch.nn.Sequential.
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], dict) else [(str(i), m) for i, m in enumerate(args)]
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        """The last module's result."""
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")
        return Sequential(*itertools.chain.from_iterable([self] * times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        return self.extend(list(self * times)[len(self):])

    def insert(self, index: int, module: Module) -> Sequential:
        """Put a module before the one at an index. Raises IndexError for one out of range."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        return self._fill(modules)


class ModuleList(_Row):
    """Modules in a list. Reference: torch.nn.ModuleList."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _of(self, modules):
        return type(self)(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add modules at the end; returns the list. Raises TypeError for what cannot be iterated over."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        return super().extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at an index."""
        modules = list(self)
        modules.insert(index, module)
        self._fill(modules)

    def __repr__(self) -> str:
        lines = []
        first = 0
        for text, run in itertools.groupby([repr(module) for module in self]):
            count = len(list(run))
            lines.append(f"({first}): {indented(text)}" if count == 1 else
                         f"({first}-{first + count - 1}): {count} x {indented(text)}")
            first += count
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{self._get_name()}()"


def _pairs(kind, source):
    """(key, value) of a mapping or of pairs. Raises TypeError or ValueError for what is neither."""
    if isinstance(source, (Mapping, ModuleDict, ParameterDict)):
        return list(source.items())
    if not isinstance(source, Iterable):
        raise TypeError(f"{kind}.update should be called with an iterable of key/value pairs, but got {type(source).__name__}")
    found = []
    for i, pair in enumerate(source):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{kind} update sequence element #{i} should be Iterable; is {type(pair).__name__}")
        key_value: Any = tuple(pair)
        if len(key_value) != 2:
            raise ValueError(f"{kind} update sequence element #{i} has length {len(key_value)}; 2 is required")
        found.append(key_value)
    return found


class ModuleDict(Module):
    """Modules in a dict, in the order they were put there. Reference: torch.nn.ModuleDict."""

    def __init__(self, modules: Any = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take a module out and return it."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """(name, module) pairs."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Take in the modules of a mapping or of (name, module) pairs. Raises TypeError or ValueError for anything else."""
        for name, module in _pairs("ModuleDict", modules):
            self[name] = module


def _as_parameter(value):
    """A Tensor as a Parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(key, value, dtype):
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {typename(value)}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.shape)
    return f"  ({key}): {kind} containing: [{dtype(value)} of size {size}{f' ({value.device})' if value.is_cuda else ''}]"


class ParameterList(Module):
    """Parameters in a list; a Tensor put there becomes a Parameter, and anything else may be there too. Reference: torch.nn.ParameterList.
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_place(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_place(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; returns the list."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end; returns the list. Raises TypeError for what cannot be iterated over, or a single Tensor."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join([_described(i, value, lambda t: t.dtype) for i, value in enumerate(self)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """Parameters in a dict; a Tensor put there becomes a Parameter, and anything else may be there too. Reference: torch.nn.ParameterDict.
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _checked(key):
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a string (type is '{type(key).__name__}').")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._checked(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[self._checked(key)] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[self._checked(key)]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __or__(self, other: Any) -> ParameterDict:
        return ParameterDict({**dict(self.items()), **dict(_pairs("ParameterDict", other))})

    def __ror__(self, other: Any) -> ParameterDict:
        return ParameterDict({**dict(_pairs("ParameterDict", other)), **dict(self.items())})

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A dict of its own with the same parameters."""
        return ParameterDict(dict(self.items()))

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key, or the default."""
        return self[key] if key in self else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under a key, which is the default if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take everything out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a value out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last key and value out and return them."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    @classmethod
    def fromkeys(cls, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict with a value under each of some keys."""
        return cls(dict.fromkeys(keys, default))

    def keys(self) -> Iterable[str]:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(key, value) pairs."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Take in the values of a mapping or of (key, value) pairs. Raises TypeError or ValueError for anything else."""
        pairs = _pairs("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=lambda pair: pair[0])             # as in PyTorch, where this is older than the order of dicts
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join([_described(key, value, lambda t: t.type()) for key, value in self.items()])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
