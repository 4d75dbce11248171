"""`TreeDef`: what is left of a tree without its leaves."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

import jax

from . import _kinds
from ._backend import backend
from ._backend import tree_kernels as kernels
from ._filters import Plan, plan_of
from ._trouble import MOST_LEVELS, explain

# How many paths are remembered, all structures together.
MOST_PATHS: Final = 1 << 20

# Longer paths than this, in characters, may be those of a tree that is nested deep.
MOST_BUILTIN: Final = 300

_calls = itertools.count(1)


class TreeDef:
    """The structure of a tree that was partitioned: all of it but the leaves.

    Hashable, comparable and picklable; it can be closed over, or be a static argument of a
    jitted function. `jax.tree.unflatten(treedef, leaves)` takes it, with the leaves in the
    order of `paths`. `tree_partition` makes it, nothing else does.

    Two are equal if their structures and paths are, so those of partitions with another
    `simple` or `separator` are not. Only its attribute `treedef` can be equal to what
    `jax.tree.structure` gives. It can be pickled if the tree without its leaves can, and
    is not nested too deep for pickle.

    Attributes:
        paths: the path to each leaf, in order.
        treedef: the same as a `PyTreeDef` of JAX.
    """

    __slots__ = ("__weakref__", "_aux", "_shape", "_structure", "_treedef")

    def __init__(
        self, structure: "Structure", shape: tuple[Any, ...], aux: tuple[Any, ...]
    ) -> None:
        self._structure = structure
        self._shape = shape
        self._aux = aux
        self._treedef: Any = None

    @property
    def paths(self) -> tuple[str, ...]:
        return self._structure.paths

    @property
    def num_leaves(self) -> int:
        return len(self._structure.paths)

    @property
    def treedef(self) -> Any:
        if self._treedef is None:
            self._treedef = _structure_of(self._build([Leaf() for _ in self.paths]))
        return self._treedef

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put the tree together with other leaves.

        Arguments:
            leaves: as many as there are paths, in their order.

        Returns:
            the tree.

        Raises:
            ValueError: for another number of leaves.
        """
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"this tree has {self.num_leaves} leaves, got {len(leaves)}. Their paths, "
                f"in order: {listed(self.paths)}"
            )
        return self._build(leaves)

    def _build(self, leaves: list[Any]) -> Any:
        structure = self._structure
        if structure.builtin:
            if structure.treedef is None:
                blanks = [Leaf() for _ in structure.paths]
                structure.treedef = _structure_of(
                    kernels.build(self._shape, self._aux, blanks)
                )
            return structure.treedef.unflatten(leaves)
        if self._treedef is not None and backend == "python":
            return self._treedef.unflatten(leaves)
        return kernels.build(self._shape, self._aux, leaves)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef):
            return NotImplemented
        return self.paths == other.paths and bool(self.treedef == other.treedef)

    def __hash__(self) -> int:
        return hash(self.treedef)

    def __repr__(self) -> str:
        return f"TreeDef({self.treedef})"

    def __reduce__(self) -> tuple[Any, ...]:
        # As a tree with blanks for leaves, not as a PyTreeDef: one of a Module does not
        # survive pickling, since Equinox's sentinel comes back as another object.
        blank = self._build([Leaf() for _ in self.paths])
        return (treedef_of_blank, (blank, self._structure.style))


class Leaf:
    """Stands where a leaf was."""

    __slots__ = ()


def _structure_of(tree: Any) -> Any:
    # Without an `is_leaf`: were it to fail, too deep down the stack, JAX would never give
    # back the levels of recursion that it has counted.
    try:
        return jax.tree.structure(tree)
    except (RecursionError, SystemError) as error:
        raise RecursionError(
            "the tree is nested too deep for JAX to flatten it from here"
        ) from error


def take_apart(
    tree: Any, plan: Plan, is_leaf: Callable[[Any], bool] | None, style: tuple[bool, str]
) -> tuple[Any, TreeDef]:
    """The `Walk` over a tree, with the leaves, and the `TreeDef`."""
    walk = kernels.Walk(
        plan.chooser.current_entries(),
        plan.chooser.enter,
        _kinds.orders,
        _kinds.order,
        plan.tests,
        plan.as_bool,
        is_leaf,
        MOST_LEVELS,
        next(_calls),
        bool(plan.prefixes),
    )
    try:
        shape = walk.over(tree)
    except Exception as error:
        explain(error, walk, style)
        raise
    treedef = TreeDef(_structure(shape, style), shape, tuple(walk.aux))
    if backend == "python" and not treedef._structure.builtin and is_leaf is None:
        # For the interpreter JAX's own way back is the faster one, and asks for its own.
        treedef._treedef = jax.tree.structure(tree)
    return walk, treedef


def treedef_of_blank(blank: Any, style: tuple[bool, str]) -> TreeDef:
    """The `TreeDef` of a tree whose leaves are `Leaf()`."""
    return take_apart(blank, plan_of((), type(blank)), None, style)[1]


class Structure:
    """What all trees of one shape have in common: the paths to their leaves.

    Attributes:
        paths: the paths, in order.
        style: how they are written.
        index: the number of the leaf by its path.
        places: see `gather`.
        builtin: whether JAX is the fastest to build such a tree.
        treedef: what builds it then, made when it is first asked for.
    """

    __slots__ = ("_split", "builtin", "index", "paths", "places", "style", "treedef")

    def __init__(
        self, paths: tuple[str, ...], style: tuple[bool, str], shape: tuple[Any, ...]
    ) -> None:
        self.paths = paths
        self.style = style
        self.index = {path: i for i, path in enumerate(paths)}
        self.places: dict[str, Any] = {}
        # Not for what is nested deep: JAX recurses, and does not recover where it fails.
        levels = max(map(len, paths), default=len(shape))
        self.builtin: bool = levels <= MOST_BUILTIN and kernels.is_builtin(shape)
        self.treedef: Any = None
        # The owners of the leaves in the last call, and if in the one before too, `blanks`.
        self._split: tuple[list[int], list[Any] | None] = ([], None)

    def blanks(self, owners: list[int], count: int) -> list[Any]:
        """Dicts to copy when leaves are split: those of the owners, with None for leaves.

        Empty ones, if the last split was another. A dict grows by steps and is filled anew
        in each; a copy has its size at once.
        """
        seen, blanks = self._split
        if seen != owners or (blanks is not None and len(blanks) != count):
            self._split = (owners, None)
            return [{}] * count
        if blanks is None:
            blanks = [{} for _ in range(count)]
            kernels.split(self.paths, [None] * len(owners), owners, blanks)
            self._split = (owners, blanks)
        return blanks


_structures: dict[tuple[Any, ...], Structure] = {}
# What they weigh together, in paths or so.
_weight = 0


def _structure(shape: tuple[Any, ...], style: tuple[bool, str]) -> Structure:
    global _weight
    key = (style, shape)
    found = _structures.get(key)
    if found is None:
        paths = tuple(kernels.paths(shape, *style))
        found = Structure(paths, style, shape)
        if len(found.index) != len(paths):
            raise ValueError(_collision(paths))
        # Of a deep tree the paths are long.
        weight = 16 + len(paths) + sum(map(len, paths)) // 64
        if _weight + weight > MOST_PATHS:
            _structures.clear()
            _weight = 0
        _weight += weight
        _structures[key] = found
    return found


def _collision(paths: tuple[str, ...]) -> str:
    seen: dict[str, int] = {}
    for i, path in enumerate(paths):
        if path in seen:
            return (
                f"two leaves have the same path, {path!r}: the leaves number {seen[path]} "
                f"and {i} of the tree. Dict keys that print alike, or a separator that "
                f"occurs in a key, do that; rename a key, or leave `simple` out"
            )
        seen[path] = i
    raise AssertionError("no two paths are the same")


def listed(names: Iterable[Any]) -> str:
    """Names for an error message."""
    names = list(names)
    shown = ", ".join([repr(name) for name in names[:10]])
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")
