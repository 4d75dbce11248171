"""`tree_partition` and `tree_combine`: trees as flat mappings from paths to leaves."""

import difflib
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import jax.tree_util as jtu

from ._backend import tree_kernels as kernels
from ._filters import plan_of, with_prefixes
from .partition import Partition
from .treedef import Leaf, TreeDef, listed, take_apart, treedef_of_blank


def tree_partition(
    tree: Any,
    *filters: Any,
    is_leaf: Callable[[Any], bool] | None = None,
    simple: bool = False,
    separator: str = "",
) -> tuple[Any, ...]:
    """Split a tree into flat mappings from paths to leaves.

    A filter is asked at every node, leaves included, from the root down: the oldest
    ancestor of a leaf that satisfies a filter decides where the leaf goes, and at one node
    the first of the filters.

    Arguments:
        tree: any pytree.
        filters: each one

            - a type or a tuple of types, satisfied by its instances,
            - a predicate, called with the node, that returns a bool, or
            - a pytree of bools (or predicates on leaves) that is a prefix of `tree`, as
              `equinox.partition` takes. A bool stands for the node that it is at. (A
              callable Module is a predicate, unless it is of the type of `tree` and its
              leaves are bools or predicates.)
        is_leaf: as in `jax.tree.flatten`: nodes for which it holds are leaves.
        simple: paths of plain keys, `layers/0/weight` with `separator="/"`, as in
            `jax.tree_util.keystr`.
            Alone it puts nothing between two keys; then two leaves may have one path.
        separator: what is put between two keys of a path.

    Returns:
        `(treedef, *partitions)`: a `TreeDef`, then one `Partition` for each filter, and a
        last one for the leaves that none has claimed. Together they hold each leaf once.

    Raises:
        ValueError: if two leaves have the same path, if the keys of a dict cannot be
            sorted, or if a tree of bools does not fit.
        TypeError: if a filter is none of the above, or returns no bool.
        RecursionError: for a tree nested more than 1000 levels deep, or, on the Python
            backend, deeper than Python's own limit allows.

    Whatever a filter raises comes up as it is, with a note of the path at which it did.

    Cost: in compiled code some 0.1 µs for each leaf and each node; paths are made once for
    each structure. Predicates cost what they cost, at every node down to where one holds.
    A tree of bools costs some 3 µs for each leaf.
    `make bench` prints figures.

    Example:
        >>> import jax, jax.numpy as jnp, treepress
        >>> tree = {"a": jnp.zeros(2), "b": ["text", 3]}
        >>> treedef, arrays, text, rest = treepress.tree_partition(tree, jax.Array, str)
        >>> list(arrays), text, rest
        (["['a']"], Partition({"['b'][0]": 'text'}), Partition({"['b'][1]": 3}))
        >>> treepress.tree_combine(treedef, arrays, text, rest)["b"]
        ['text', 3]

    The rules are those of Inox (François Rozet), where partitions of this form come from.
    """
    if not (is_leaf is None or callable(is_leaf)):
        raise TypeError(
            f"is_leaf is of type {type(is_leaf).__name__}; give a function of a node, or None"
        )
    if not isinstance(separator, str):
        raise TypeError(f"separator is of type {type(separator).__name__}; give a string")
    if not isinstance(simple, bool):
        raise TypeError(f"simple is of type {type(simple).__name__}; give True or False")
    plan = plan_of(filters, type(tree))
    walk, treedef = take_apart(tree, plan, is_leaf, (simple, separator))
    structure = treedef._structure
    owners = walk.owners
    if plan.prefixes:
        owners = with_prefixes(tree, plan.prefixes, is_leaf, walk)
    blanks = structure.blanks(owners, len(filters) + 1)
    parts: list[Any] = [Partition(blank) for blank in blanks]
    kernels.split(structure.paths, walk.leaves, owners, parts)
    return (treedef, *parts)


def tree_combine(treedef: Any, *partitions: Mapping[str, Any]) -> Any:
    """Put a tree together again from its partitions.

    Arguments:
        treedef: what `tree_partition` returned first. (A `PyTreeDef` of JAX will do.)
        partitions: any number of mappings from paths to leaves, in any order, that hold
            each path of the tree once. The leaves may be others than before: tracers,
            shapes, None, whole trees.

    Returns:
        The tree. Only paths are compared: other leaves at the same paths are taken as they
        are.

    Raises:
        KeyError: if paths are missing, unknown, or given twice; all of them are named.
        TypeError: if an argument is no treedef or no mapping.

    Cost: in compiled code some 0.1 µs for each leaf and each node; the first time for a
    structure of builtin containers some 3 µs.

    Example:
        >>> import treepress
        >>> treedef, text, rest = treepress.tree_partition(["a", {"b": 1}], str)
        >>> rest["[1]['b']"] = 2
        >>> treepress.tree_combine(treedef, rest, text)
        ['a', {'b': 2}]
    """
    if not isinstance(treedef, TreeDef):
        treedef = _as_treedef(treedef)
    try:
        structure = treedef._structure
        leaves = kernels.gather(
            structure.index, structure.places, partitions, _BLANK, _PLAIN
        )
    except TypeError:
        error = _wrong(treedef, partitions)
        if error is None:
            raise
        raise error from None
    if leaves is None:
        raise _wrong(treedef, partitions) or PathError(
            "a mapping has another length than it has keys, or changes while it is read"
        )
    return treedef._build(leaves)


_BLANK: Final = object()
# Subclasses may be otherwise, and are asked for each key.
_PLAIN: Final[frozenset[Any]] = frozenset((dict, Partition))


def _as_treedef(treedef: Any) -> TreeDef:
    if not isinstance(treedef, jtu.PyTreeDef):
        raise TypeError(
            f"tree_combine takes the treedef that tree_partition returned first, and got "
            f"an object of type {type(treedef).__name__}; write tree_combine(treedef, "
            f"*partitions)"
        )
    blank = treedef.unflatten([Leaf() for _ in range(treedef.num_leaves)])
    return treedef_of_blank(blank, (False, ""))


def _wrong(treedef: TreeDef, partitions: tuple[Any, ...]) -> Exception | None:
    """The error for partitions that do not make up the tree, if that is what is wrong."""
    counts: dict[Any, int] = {}
    for number, partition in enumerate(partitions):
        if not isinstance(partition, Mapping):
            hint = ""
            if isinstance(partition, (list, tuple)):
                hint = "; write tree_combine(treedef, *partitions)"
            return TypeError(
                f"tree_combine takes mappings from paths to leaves; partitions[{number}] is "
                f"of type {type(partition).__name__}{hint}"
            )
        for key in partition:
            try:
                counts[key] = counts.get(key, 0) + 1
            except TypeError:
                return TypeError(
                    f"partitions[{number}] has a key of type {type(key).__name__}; keys "
                    f"are paths, which are strings"
                )
    known = treedef._structure.index
    missing = [path for path in known if path not in counts]
    unknown = [key for key in counts if key not in known]
    twice = [key for key, count in counts.items() if count > 1 and key in known]
    sentences = []
    if missing:
        sentences.append(f"missing: {listed(missing)}")
    if unknown:
        sentences.append(f"not in the tree: {listed(unknown)}")
        close = _closest(str(unknown[0]), missing or known)
        if len(missing) == len(known) > 1:
            sentences.append(
                "they are paths of another tree, or made with another `simple` or "
                "`separator`"
            )
        elif close:
            sentences.append(f"the path closest to {unknown[0]!r} is {close[0]!r}")
    if twice:
        sentences.append(f"given more than once: {listed(twice)}")
    return PathError("; ".join(sentences)) if sentences else None


def _closest(name: str, paths: Iterable[str]) -> list[str]:
    # Comparing takes long, and paths may be very many.
    alike = (path for path in paths if abs(len(path) - len(name)) <= 8)
    return difflib.get_close_matches(name, itertools.islice(alike, 1000), 1)


class PathError(KeyError):
    """A KeyError that prints its message as it is."""

    def __str__(self) -> str:
        return str(self.args[0])
