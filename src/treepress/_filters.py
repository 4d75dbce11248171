"""What the filters of `tree_partition` are, and where trees of bools apply."""

import functools
import sys
import types
import typing
from collections.abc import Callable, Iterator
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
        given = "a jax.Array" if isinstance(result, jax.Array) else f"{type(result)}"
        if number < 0:
            raise TypeError(f"is_leaf returned {given}, no bool")
        raise TypeError(
            f"filters[{number}] returned {given}, no bool. A filter says of a node, which "
            f"may be an array, whether it belongs; compare "
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
    name = f"filters[{number}]"
    if typing.get_origin(filter_) is not None:
        raise TypeError(
            f"{name} is {filter_}, of which nothing is an instance; give "
            f"{typing.get_origin(filter_)} or a predicate"
        )
    whole = filter_ is not None or root is type(None)
    if whole and (is_node(type(filter_)) or hasattr(filter_, "_fields")):
        try:
            leaves = jtu.tree_flatten_with_path(filter_)[0]
        except (RecursionError, SystemError) as error:
            raise RecursionError(
                f"{name} is nested too deep for a tree of bools. Is it a part of itself?"
            ) from error
        faults = [(path, leaf) for path, leaf in leaves if not _is_flag(leaf)]
        if callable(filter_) and (faults or type(filter_) is not root):
            # A predicate with a state: it is not the like of the tree with bools in it.
            return False
        for path, leaf in faults:
            if isinstance(leaf, type):
                raise TypeError(
                    f"{name} is a tree, and at {jtu.keystr(path)!r} it has the type "
                    f"{leaf.__qualname__}. Types are taken as a filter of their own, or "
                    f"several of them in a tuple; in a tree of bools write "
                    f"`lambda x: isinstance(x, {leaf.__qualname__})`"
                )
            raise TypeError(
                f"{name} is a tree, and at {jtu.keystr(path)!r} it has an object of type "
                f"{type(leaf).__name__}; its leaves must be bools or predicates"
            )
        return True
    if not callable(filter_):
        raise TypeError(
            f"{name} is an object of type {type(filter_).__name__}; give a type, a tuple of "
            f"types, a predicate, or a tree of bools"
        )
    return False


def _is_flag(leaf: Any) -> bool:
    return isinstance(leaf, (bool, np.bool_)) or (
        callable(leaf) and not isinstance(leaf, type)
    )


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
    leaves = jtu.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]
    for number, prefix in prefixes.items():
        for i, path, flag in _flags_of_leaves(tree, leaves, prefix, number, is_leaf):
            if isinstance(flag, (bool, np.bool_)):
                claim, holds = (len(path), number), bool(flag)
            else:
                where, leaf = leaves[i]
                try:
                    result = flag(leaf)
                    if result is not True and result is not False:
                        result = Plan.as_bool(result, number)
                except Exception as error:
                    error.add_note(
                        f"treepress: filters[{number}], at {jtu.keystr(where)!r} in the tree"
                    )
                    raise
                claim, holds = (walk.depths[i], number), result
            if holds:
                claims[i] = min(claims[i], claim)
    return [owner for _, owner in claims]


def _flags_of_leaves(
    tree: Any,
    leaves: list[tuple[Any, Any]],
    prefix: Any,
    number: int,
    is_leaf: Callable[[Any], bool] | None,
) -> Iterator[tuple[int, Any, Any]]:
    """The leaves that a tree of bools has an entry for: number, path of the entry, entry."""
    flags, structure = jtu.tree_flatten_with_path(prefix)
    treedef: Any = structure
    try:
        subtrees = treedef.flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(
            f"the tree of bools filters[{number}] is no prefix of the tree: "
            f"{_misfit(prefix, tree) or error}"
        ) from None
    counts = [len(jax.tree.leaves(subtree, is_leaf=is_leaf)) for subtree in subtrees]
    i = 0
    for (path, flag), count in zip(flags, counts):
        n = len(path)
        while count:
            where = leaves[i][0]
            if where[:n] == path:
                yield i, path, flag
                count -= 1
            elif where == path[: len(where)]:
                raise ValueError(
                    f"the tree of bools filters[{number}] goes deeper than the leaf at "
                    f"{jtu.keystr(where)!r}, which is one by is_leaf; give one bool there"
                )
            # Otherwise a leaf where the tree of bools has None, or the like.
            i += 1


def _misfit(prefix: Any, tree: Any, path: str = "") -> str:
    """Where and how a tree of bools does not fit."""
    if not is_node(type(prefix)) and not hasattr(prefix, "_fields"):
        return ""
    where = f"at {path!r}" if path else "at the root"
    if type(prefix) is not type(tree):
        hint = ""
        if path == "" and isinstance(prefix, (list, tuple)):
            hint = ". (Several filters are given one by one; several types, in a tuple)"
        return (
            f"{where} it has a node of type {type(prefix).__name__}, the tree one of type "
            f"{type(tree).__name__}{hint}"
        )
    children, keys, treedef = _kinds.one_level(prefix)
    others, other_keys, other_treedef = _kinds.one_level(tree)
    if keys != other_keys:
        mine, its = ({key for key, _ in ks} for ks in (keys, other_keys))
        return (
            f"{where} it has {len(mine)} children and the tree {len(its)}; one of them alone "
            f"has {', '.join(sorted(mine ^ its)[:10])}"
        )
    for child, other, (key, _) in zip(children, others, keys):
        found = _misfit(child, other, path + key)
        if found:
            return found
    if treedef != other_treedef:
        return f"{where} the static parts of the two nodes differ"
    return ""
