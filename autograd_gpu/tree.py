"""Nested tuples, lists and dictionaries as a list of what is in them and the structure around it."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Structure(NamedTuple):
    """What a nested value is built of: a container's type, its keys if it is a dictionary, and what it contains; a leaf has no type."""

    kind: Any
    keys: tuple | None
    parts: tuple[Structure, ...]

    def fill(self, leaves: Iterator) -> Any:
        """The value of this structure with the next of `leaves` in its places."""
        if self.kind is None:
            return next(leaves)
        values = [part.fill(leaves) for part in self.parts]
        if self.keys is not None:
            return self.kind(zip(self.keys, values, strict=True))
        return self.kind._make(values) if hasattr(self.kind, "_fields") else self.kind(values)

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind is None else sum([part.leaves for part in self.parts])

    def __str__(self):
        inner = ", ".join([str(part) if self.keys is None else f"{key!r}: {part}" for key, part in
                           zip(self.keys or self.parts, self.parts, strict=True)])
        return "*" if self.kind is None else f"{self.kind.__name__}({inner})"


LEAF = Structure(None, None, ())


def flatten(value: Any) -> tuple[list, Structure]:
    """(the leaves, the structure) of tuples, named tuples, lists and dictionaries in each other. Anything else, also None, is a leaf."""
    kind = type(value)
    if kind in (dict, OrderedDict):
        keys, parts = tuple(value), list(value.values())
    elif kind in (tuple, list) or isinstance(value, tuple) and hasattr(kind, "_fields"):
        keys, parts = None, list(value)
    else:
        return [value], LEAF
    found = [flatten(part) for part in parts]
    return [leaf for leaves, _ in found for leaf in leaves], Structure(kind, keys, tuple([structure for _, structure in found]))


def unflatten(structure: Structure, leaves) -> Any:
    """flatten undone."""
    return structure.fill(iter(leaves))


def tree_map(function: Callable, value: Any) -> Any:
    """The value with a function applied to its leaves."""
    leaves, structure = flatten(value)
    return unflatten(structure, [function(leaf) for leaf in leaves])


def spread(prefix: Any, structure: Structure) -> list | None:
    """For each leaf of a structure what a nested value says of it, which may be one leaf for a whole part; None where they do not match."""
    if flatten(prefix)[1] == LEAF:
        return [prefix] * structure.leaves
    parts, own = (list(prefix.values()), tuple(prefix)) if isinstance(prefix, dict) else (list(prefix), None)
    if type(prefix) is not structure.kind or own != structure.keys or len(parts) != len(structure.parts):
        return None
    found: list[Any] = []
    for part, inner in zip(parts, structure.parts, strict=True):
        leaves = spread(part, inner)
        if leaves is None:
            return None
        found += leaves
    return found
