"""The kernels of whole trees, in one place."""

from .build import build
from .call import Calls, Flags, Form, tree
from .call import Entry as CallEntry
from .mapping import PartitionFlatten, PartitionUnflatten, gather, split
from .pattern import (
    Learner,
    Pattern,
    Source,
    alike,
    tree_of,
)
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
    "CallEntry",
    "Calls",
    "Entry",
    "Flags",
    "Form",
    "Kind",
    "Learner",
    "Order",
    "PartitionFlatten",
    "PartitionUnflatten",
    "Pattern",
    "Source",
    "Walk",
    "alike",
    "build",
    "gather",
    "is_builtin",
    "paths",
    "split",
    "tree",
    "tree_of",
]
