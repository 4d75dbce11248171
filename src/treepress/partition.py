"""`tree_partition` and `tree_combine`: trees as flat mappings from paths to leaves."""

import difflib
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import jax
import jax.tree_util as jtu

from . import _kinds
from ._backend import backend
from ._backend import tree_kernels as kernels
from ._filters import plan_of, with_prefixes

# Nested deeper than this, a tree is refused: compiled code that recurses has only the C
# stack, 512 KiB for a thread on some systems, and overflowing that ends the process.
MOST_LEVELS: Final = 1000

# How many paths are remembered, all structures together.
MOST_PATHS: Final = 1 << 20

_calls = itertools.count(1)


class Partition(dict[str, Any]):
    """A mapping from paths to leaves, in the order of the tree, that JAX flattens fast.

    It is a dict in every way: edit it, merge it with `|`, compare it with a dict, save it.
    For JAX it is a node of its own kind, whose children are the values in the order of
    insertion (a dict's are sorted by key, at each call) and whose key paths are `DictKey`s.
    Pickling it involves this class, its keys and its values, and nothing of the tree.

    `jax.tree.map` over a Partition and a plain dict is an error in JAX, since they are
    nodes of different types; write `Partition(plain)`, or `dict(partition)`. So it is for
    the masks and labels of optax and for the `in_axes` of `jax.vmap`. Two Partitions match
    if they have the same keys in the same order.

    Arguments:
        as those of `dict`.

    Cost: flattening takes some 0.1 µs and 10 ns for each key.

    Example:
        >>> import jax, treepress
        >>> p = treepress.Partition({"b": 1, "a": 2})
        >>> jax.tree.leaves(p)
        [1, 2]
        >>> jax.tree.map(lambda x: 10 * x, p)
        Partition({'b': 10, 'a': 20})
    """

    __slots__ = ("__weakref__", "_known")

    # The keys as JAX saw them last, and what stands for them.
    _known: tuple[tuple[str, ...], "Names"]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register(cls)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),))

    def copy(self) -> "Partition":
        return type(self)(self)

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        return type(self)(dict.__or__(self, other))

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        return type(self)(dict.__or__(other, self))


class Names:
    """The keys of partitions, as JAX carries them in treedefs.

    There is one object for the same keys, so that treedefs compare them by identity.
    """

    __slots__ = ("__weakref__", "keys")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return repr(list(self.keys))

    def __reduce__(self) -> tuple[Any, ...]:
        return (names_of, (self.keys,))


_names: WeakValueDictionary[tuple[Any, ...], Names] = WeakValueDictionary()
# One that a thread may take twice: a signal handler or a finaliser may flatten too.
_names_lock = threading.RLock()


def names_of(keys: tuple[str, ...]) -> Names:
    """The object that stands for these keys."""
    # Keys that are equal need not be the same: 1 and True.
    plain = all(type(key) is str for key in keys)
    token = keys if plain else (keys, tuple([(type(key), repr(key)) for key in keys]))
    names = Names(keys)
    # Locked, for there must never be two that are equal.
    with _names_lock:
        return _names.setdefault(token, names)


class TreeDef:
    """The structure of a tree that was partitioned: all of it but the leaves.

    Hashable, comparable and picklable; it can be closed over, or be a static argument of a
    jitted function. `jax.tree.unflatten(treedef, leaves)` takes it, with the leaves in the
    order of `paths`.

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
            # Leaves may be what JAX takes for nodes, where `is_leaf` said so.
            leaves = [Leaf() for _ in self.paths]
            self._treedef = jax.tree.structure(self._build(leaves), is_leaf=_is_blank)
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
                f"in order: {_listed(self.paths)}"
            )
        return self._build(leaves)

    def _build(self, leaves: list[Any]) -> Any:
        structure = self._structure
        if structure.builtin:
            if structure.treedef is None:
                blanks = [Leaf() for _ in structure.paths]
                tree = kernels.build(self._shape, self._aux, blanks)
                structure.treedef = jax.tree.structure(tree, is_leaf=_is_blank)
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
        return (_load_treedef, (blank, self._structure.style))


class Leaf:
    """Stands where a leaf was."""

    __slots__ = ()


def _is_blank(x: Any) -> bool:
    return type(x) is Leaf


def _load_treedef(blank: Any, style: tuple[bool, str]) -> TreeDef:
    treedef, *_ = tree_partition(blank, simple=style[0], separator=style[1])
    assert isinstance(treedef, TreeDef)
    return treedef


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
        self.builtin: bool = kernels.is_builtin(shape)
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
              `equinox.partition` takes. A bool stands for the node that it is at.
        is_leaf: as in `jax.tree.flatten`: nodes for which it holds are leaves.
        simple: paths of plain keys, `layers/0/weight` with `separator="/"`, as in
            `jax.tree_util.keystr`.
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
        Whatever a filter raises, with a note of the path at which it did.

    Cost: in compiled code some 0.1 µs for each leaf and each node; paths are made once for
    each structure. Predicates cost what they cost, at every node down to where one holds.
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
    plan = plan_of(filters, type(tree))
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
        _explain(error, walk, (simple, separator))
        raise
    structure = _structure(shape, (simple, separator))
    owners = walk.owners
    if plan.prefixes:
        owners = with_prefixes(tree, plan.prefixes, is_leaf, walk)
    blanks = structure.blanks(owners, len(filters) + 1)
    parts: list[Any] = [Partition(blank) for blank in blanks]
    kernels.split(structure.paths, walk.leaves, owners, parts)
    treedef = TreeDef(structure, shape, tuple(walk.aux))
    if backend == "python" and not structure.builtin and is_leaf is None:
        # For the interpreter JAX's own way back is the faster one, and asks for its own.
        treedef._treedef = jax.tree.structure(tree, is_leaf=is_leaf)
    return (treedef, *parts)


def tree_combine(treedef: Any, *partitions: Mapping[str, Any]) -> Any:
    """Put a tree together again from its partitions.

    Arguments:
        treedef: what `tree_partition` returned first. (A `PyTreeDef` of JAX will do.)
        partitions: any number of mappings from paths to leaves, in any order, that hold
            each path of the tree once. The leaves may be others than before: tracers,
            shapes, None, whole trees.

    Returns:
        The tree.

    Raises:
        KeyError: if paths are missing, unknown, or given twice; all of them are named.
        TypeError: if an argument is no treedef or no mapping.

    Cost: in compiled code some 0.1 µs for each leaf and each node.

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
        leaves = kernels.gather(
            treedef._structure.index, treedef._structure.places, partitions, _BLANK
        )
    except TypeError:
        error = _wrong(treedef, partitions)
        if error is None:
            raise
        raise error from None
    if leaves is None:
        raise _wrong(treedef, partitions) or Keys(
            "a mapping has another length than it has keys, or changes while it is read"
        )
    return treedef._build(leaves)


_BLANK: Final = object()


def _as_treedef(treedef: Any) -> TreeDef:
    if not isinstance(treedef, jtu.PyTreeDef):
        raise TypeError(
            f"tree_combine takes the treedef that tree_partition returned first, not a "
            f"{type(treedef).__name__}"
        )
    blank = treedef.unflatten([Leaf() for _ in range(treedef.num_leaves)])
    return _load_treedef(blank, (False, ""))


def _wrong(treedef: TreeDef, partitions: tuple[Any, ...]) -> Exception | None:
    """The error for partitions that do not make up the tree, if that is what is wrong."""
    counts: dict[Any, int] = {}
    for number, partition in enumerate(partitions):
        if not isinstance(partition, Mapping):
            return TypeError(
                f"tree_combine takes mappings from paths to leaves; the partition number "
                f"{number} is a {type(partition).__name__}"
            )
        for key in partition:
            try:
                counts[key] = counts.get(key, 0) + 1
            except TypeError:
                return TypeError(
                    f"the partition number {number} has a {type(key).__name__} for a key; "
                    f"keys are paths, which are strings"
                )
    known = treedef._structure.index
    missing = [path for path in known if path not in counts]
    unknown = [key for key in counts if key not in known]
    twice = [key for key, count in counts.items() if count > 1 and key in known]
    sentences = []
    if missing:
        sentences.append(f"missing: {_listed(missing)}")
    if unknown:
        sentences.append(f"not in the tree: {_listed(unknown)}")
        close = difflib.get_close_matches(str(unknown[0]), missing or list(known), 1, 0.0)
        if close:
            sentences.append(f"the path closest to {unknown[0]!r} is {close[0]!r}")
    if twice:
        sentences.append(f"given more than once: {_listed(twice)}")
    return Keys("; ".join(sentences)) if sentences else None


class Keys(KeyError):
    """A KeyError that prints its message as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


def _listed(names: Iterable[Any]) -> str:
    names = list(names)
    shown = ", ".join([repr(name) for name in names[:10]])
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _explain(error: Exception, walk: Any, style: tuple[bool, str]) -> None:
    """Add to an error where in the tree it came up."""
    shape = (*walk.shape, walk.run) if walk.run else tuple(walk.shape)
    path = kernels.paths(shape, *style)[-1]
    if isinstance(error, RecursionError) and _is_ours(error):
        raise RecursionError(
            f"the tree is nested too deep (more than {MOST_LEVELS} levels, or than Python's "
            f"own limit allows), at {path[:40]}...{path[-40:]}. Is a list or dict a part "
            f"of itself? If not, keep what repeats in a list, or stop at a node by is_leaf"
        ) from None
    where = f"at {path!r} in the tree" if path else "at the root"
    error.add_note(f"treepress: {where}")


def _is_ours(error: RecursionError) -> bool:
    """Whether the walk went too deep, and not a filter."""
    if not error.args:
        return True
    # On the Python backend the interpreter's own limit is met first, by whatever is called
    # from far down in the walk.
    walking = 0
    frame = error.__traceback__
    while frame is not None:
        walking += frame.tb_frame.f_code.co_name in ("visit", "visit_all", "visit_dict")
        frame = frame.tb_next
    return walking > 100


def _flatten_with_keys(partition: Partition) -> tuple[Any, Any]:
    leaves, names = _flatten(partition)
    return tuple([(jtu.DictKey(key), leaf) for key, leaf in zip(names.keys, leaves)]), names


_flatten = kernels.PartitionFlatten(names_of)


def _register(cls: type) -> None:
    jtu.register_pytree_with_keys(
        cls, _flatten_with_keys, kernels.PartitionUnflatten(cls), _flatten
    )


_register(Partition)
