"""What the filters of `tree_partition` are, and where trees of bools apply."""

import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from . import _kinds
from .description import is_node


class Plan:
    """Filters, sorted out."""

    __slots__ = ("chooser", "prefixes", "tests")

    def __init__(self, filters: tuple[Any, ...], root: type) -> None:
        by_type: list[Any] = []
        self.tests: tuple[Any, ...] = ()
        self.prefixes: dict[int, Any] = {}
        for number, filter_ in enumerate(filters):
            types_ = _types(filter_)
            if types_ is not None:
                by_type.append(types_)
                self.tests += (functools.partial(_is_instance, types_),)
            elif _is_prefix(filter_, number, root):
                by_type.append(())
                self.tests += (_never,)
                self.prefixes[number] = filter_
            else:
                by_type.append(None)
                self.tests += (filter_,)
        self.chooser = _kinds.chooser(tuple(by_type))

    @staticmethod
    def as_bool(result: Any, number: int) -> bool:
        """What a predicate returned, other than True and False."""
        if isinstance(result, (bool, np.bool_)):
            return bool(result)
        if number < 0:
            raise TypeError(f"is_leaf returned a {type(result).__name__}, no bool")
        raise TypeError(
            f"the filter number {number} returned a {type(result).__name__}, no bool. A "
            f"filter says of a node, which may be an array, whether it belongs; compare "
            f"what you mean with `is`, or reduce it to one bool"
        )


def _is_instance(types_: tuple[type, ...], obj: Any) -> bool:
    return isinstance(obj, types_)


def _never(obj: Any) -> bool:
    return False


def _types(filter_: Any) -> tuple[type, ...] | None:
    """The types that a filter consists of, if it is one of types."""
    if isinstance(filter_, types.GenericAlias):
        return None
    if isinstance(filter_, type):
        return (filter_,)
    parts: Any = ()
    if type(filter_) is tuple:
        parts = filter_
    elif isinstance(filter_, types.UnionType) or typing.get_origin(filter_) is typing.Union:
        parts = typing.get_args(filter_)
    found: tuple[type, ...] = ()
    for part in parts:
        inner = _types(part)
        if inner is None:
            return None
        found += inner
    # By far the most common predicate, and one that a type decides.
    if filter_ is eqx.is_array:
        return (jax.Array,)
    return found or None


def _is_prefix(filter_: Any, number: int, root: type) -> bool:
    """Whether a filter that is none of types is a tree of bools; if not, it is callable."""
    if isinstance(filter_, (bool, np.bool_)):
        return True
    given = type(filter_).__name__
    if typing.get_origin(filter_) is not None:
        raise TypeError(
            f"the filter number {number} is {filter_}, of which nothing is an instance; "
            f"give {typing.get_origin(filter_)} or a predicate"
        )
    if is_node(type(filter_)) or hasattr(filter_, "_fields"):
        leaves = jtu.tree_flatten_with_path(filter_)[0]
        if callable(filter_):
            # A predicate with a state, unless it is the like of the tree with bools in it.
            return (
                type(filter_) is root
                and bool(leaves)
                and all(isinstance(leaf, (bool, np.bool_)) for _, leaf in leaves)
            )
        for path, leaf in leaves:
            if not _is_flag(leaf):
                raise TypeError(
                    f"the filter number {number} is a tree, and at {jtu.keystr(path)!r} it "
                    f"has a {type(leaf).__name__}; its leaves must be bools or predicates"
                )
        return True
    if not callable(filter_):
        raise TypeError(
            f"the filter number {number} is a {given}; give a type, a tuple of types, a "
            f"predicate, or a tree of bools"
        )
    return False


def _is_flag(leaf: Any) -> bool:
    return isinstance(leaf, (bool, np.bool_)) or callable(leaf)


_plans: Final[dict[tuple[Any, ...], Plan]] = {}
_MOST_PLANS: Final = 64


def plan_of(filters: tuple[Any, ...], root: type) -> Plan:
    try:
        found = _plans.get(filters)
    except TypeError:  # unhashable
        return Plan(filters, root)
    if found is None:
        found = Plan(filters, root)
        # Types may be kept; a predicate might hold on to anything.
        if not found.prefixes and None not in found.chooser.filters:
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[filters] = found
    return found


def with_prefixes(
    tree: Any, prefixes: dict[int, Any], is_leaf: Callable[[Any], bool] | None, walk: Any
) -> list[int]:
    """The owners of the leaves, trees of bools taken into account.

    The walk has asked all other filters. Of all that claim a leaf the one wins that does so
    closest to the root, and among those the first.
    """
    claims = [
        (decided, owner) if owner >= 0 else (sys.maxsize, owner)
        for decided, owner in zip(walk.decided, walk.owners)
    ]
    for number, prefix in prefixes.items():
        flags, structure = jtu.tree_flatten_with_path(prefix)
        treedef: Any = structure
        try:
            subtrees = treedef.flatten_up_to(tree)
        except ValueError as error:
            error.add_note(
                f"treepress: the filter number {number} is no prefix of the tree"
            )
            raise
        i = 0
        for (path, flag), subtree in zip(flags, subtrees):
            for leaf in jax.tree.leaves(subtree, is_leaf=is_leaf):
                if isinstance(flag, (bool, np.bool_)):
                    claim, holds = (len(path), number), bool(flag)
                else:
                    try:
                        result = flag(leaf)
                        if result is not True and result is not False:
                            result = Plan.as_bool(result, number)
                    except Exception as error:
                        note = f"at number {i} of the leaves, with the filter {number}"
                        error.add_note(f"treepress: {note}")
                        raise
                    claim, holds = (walk.depths[i], number), result
                if holds:
                    claims[i] = min(claims[i], claim)
                i += 1
    return [owner for _, owner in claims]
