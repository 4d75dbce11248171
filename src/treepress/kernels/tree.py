"""The kernels of whole trees, in one place."""

from .build import build
from .mapping import PartitionFlatten, PartitionUnflatten, gather, split
from .shape import (
    CUSTOM,
    DICT,
    KEYED,
    LEAF,
    LIST,
    NAMED,
    NODE,
    NONE,
    TUPLE,
    Kind,
    is_builtin,
    paths,
)
from .walk import ASK, NOBODY, Entry, Order, Walk

__all__ = [
    "ASK",
    "CUSTOM",
    "DICT",
    "KEYED",
    "LEAF",
    "LIST",
    "NAMED",
    "NOBODY",
    "NODE",
    "NONE",
    "TUPLE",
    "Entry",
    "Kind",
    "Order",
    "PartitionFlatten",
    "PartitionUnflatten",
    "Walk",
    "build",
    "gather",
    "is_builtin",
    "paths",
    "split",
]
