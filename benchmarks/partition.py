"""What is measured of `tree_partition` and `tree_combine`, against their peers."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from cases import EQUINOX, FILTERS, FLATTEN, INOX, OURS, SPLIT, TUPLE, imported
from measure import Calls, Effort, Figures
from timing import call

import treepress

# Cases that are asked for by name, each one with `partition, ` or `combine, ` before it.
ACCELERATED: Final = "MLP of accelerated Modules, 10 arrays"
PLAIN: Final = "MLP of plain Modules, 10 arrays"
MANY: Final = "21 such MLPs in a list"
NESTED: Final = "100 nested dicts"
STATIC: Final = "1 array, 100,000 static leaves"
LAYERS: Final = "two types, a model of 50 layers"
PREDICATES: Final = "three predicates, 1,000 leaves"

# Of the walk over whole trees.
WALKS: Final = ("accelerated Modules, 21 MLPs", "plain Modules, 21 MLPs", NESTED)

LEAVES: Final = (10, 100, 1000, 10_000, 100_000, 1_000_000)
# Inox takes a minute for a million.
_MOST_INOX: Final = 10_000


_inox: Final[Any] = imported("inox.tree")


class Case(NamedTuple):
    """A tree and filters for it, with what each peer makes of them."""

    tree: Any
    filters: tuple[Any, ...]
    # Peer, then `(treedef, *partitions)`, or as many trees as Equinox makes.
    parts: dict[str, tuple[Any, ...]]


def _case(tree: Any, *filters: Any) -> Case:
    parts = {OURS: treepress.tree_partition(tree, *filters)}
    if filters == (jax.Array,):
        parts[EQUINOX] = eqx.partition(tree, eqx.is_array)
    if _inox is not None:
        parts[INOX] = _inox.partition(tree, *filters)
    _check_alike(tree, parts)
    return Case(tree, filters, parts)


def _check_alike(tree: Any, parts: dict[str, tuple[Any, ...]]) -> None:
    """All give the same, or their times mean nothing."""
    ours = [[*map(id, part.values())] for part in parts[OURS][1:]]
    treedef: Any
    leaves, treedef = jax.tree.flatten(tree)
    assert sum(map(len, ours)) == len(leaves)
    for peer, given in parts.items():
        if peer == EQUINOX:
            assert [[*map(id, jax.tree.leaves(part))] for part in given] == ours, peer
        else:
            assert [[*map(id, part.values())] for part in given[1:]] == ours, peer
            names = [[*part] for part in given[1:]]
            assert names == [[*part] for part in parts[OURS][1:]], peer
        again, structure = jax.tree.flatten(_COMBINE[peer](*given))
        assert [*map(id, again)] == [*map(id, leaves)], peer
        assert structure == treedef, peer


_COMBINE: Final[dict[str, Callable[..., Any]]] = {
    OURS: treepress.tree_combine,
    EQUINOX: eqx.combine,
    INOX: getattr(_inox, "combine", None),  # type: ignore[dict-item]
}


def _both(name: str, case: Case) -> Calls:
    """Partition and combine, by each peer that offers this."""
    tree, filters = case.tree, case.filters
    partition = {
        OURS: call(treepress.tree_partition, tree, *filters),
        EQUINOX: call(eqx.partition, tree, eqx.is_array),
    }
    if _inox is not None:
        partition[INOX] = call(_inox.partition, tree, *filters)
    order = [peer for peer in (EQUINOX, INOX, OURS) if peer in case.parts]
    return {
        f"partition, {name}": {peer: partition[peer] for peer in order},
        f"combine, {name}": {p: call(_COMBINE[p], *case.parts[p]) for p in order},
    }


def partitions() -> Calls:
    """Partition and combine, trees of up to a thousand leaves."""
    predicates = _case(_tensors(), *_of_rank)
    calls = {
        **_both(ACCELERATED, _case(accelerated(mlp(0)), jax.Array)),
        **_both(PLAIN, _case(mlp(0), jax.Array)),
        **_both(MANY, _case([*map(mlp, range(21))], jax.Array)),
        **_both(NESTED, _nested()),
        **_both(LAYERS, _case(_layers(), eqx.nn.Linear, eqx.nn.Conv)),
        **_both(PREDICATES, predicates),
    }
    # What no way to partition by these can do without.
    nodes = list(_nodes(predicates.tree))
    calls[f"partition, {PREDICATES}"][FILTERS] = call(_ask, nodes, predicates.filters)
    return calls


def static() -> Calls:
    """Partition and combine, one array and very many static leaves."""
    return _both(STATIC, _static())


def jitted() -> Calls:
    """Jitted calls on the arrays of the two examples."""
    return {
        f"jitted call, {NESTED}": _jitted(_nested(), _indexed),
        f"jitted call, {STATIC}": _jitted(_static(), _array),
    }


def _jitted(case: Case, function: Callable[[Any], Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for peer in (EQUINOX, INOX, OURS):
        if peer not in case.parts:
            continue
        *treedef, arrays, rest = case.parts[peer]
        row[peer] = _compiled(functools.partial(_of, function, peer, treedef, rest), arrays)
    treedef, arrays, rest = case.parts[OURS]
    names = tuple(arrays)
    row[TUPLE] = _compiled(
        lambda values: function(
            treepress.tree_combine(treedef, dict(zip(names, values, strict=True)), rest)
        ),
        tuple(arrays.values()),
    )
    return row


def _of(
    function: Callable[[Any], Any], peer: str, treedef: list[Any], rest: Any, arrays: Any
) -> Any:
    return function(_COMBINE[peer](*treedef, arrays, rest))


def _compiled(function: Callable[[Any], Any], arrays: Any) -> Any:
    function = jax.jit(function)
    function(arrays)
    return call(function, arrays)


def walks() -> Calls:
    """A walk of our own over the whole tree, and JAX's flatten with a split after it."""
    plain = [*map(mlp, range(21))]
    trees = (accelerated(plain), plain, _nested().tree)
    return {
        case: {
            FLATTEN: call(jax.tree.flatten, tree),
            SPLIT: call(_flatten_and_split, tree),
            OURS: call(treepress.tree_partition, tree, jax.Array),
        }
        for case, tree in zip(WALKS, trees, strict=True)
    }


def _flatten_and_split(tree: Any) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    # Of a flat list the walk is the split.
    return treedef, treepress.tree_partition(leaves, jax.Array)


def by_leaves(effort: Effort) -> Figures:
    """Partition and combine a tree, by the number of its leaves; a quick run ends sooner."""
    figures: Figures = {}
    for count in LEAVES if effort.scale >= 1 else LEAVES[:-1]:
        tree = grown(count)
        row = {
            EQUINOX: call(_there_and_back_by_equinox, tree),
            OURS: call(_there_and_back, tree),
        }
        if _inox is not None and count <= _MOST_INOX:
            row[INOX] = call(_there_and_back_by_inox, tree)
        # One by one: all of these trees at once are too many for the caches of anybody.
        figures |= effort.measure({str(count): row}, 0.2, 2)
    return figures


def _there_and_back(tree: Any) -> Any:
    return treepress.tree_combine(*treepress.tree_partition(tree, jax.Array))


def _there_and_back_by_equinox(tree: Any) -> Any:
    return eqx.combine(*eqx.partition(tree, eqx.is_array))


def _there_and_back_by_inox(tree: Any) -> Any:
    return _inox.combine(*_inox.partition(tree, jax.Array))


# Trees.


def mlp(seed: int) -> Any:
    return eqx.nn.MLP(2, 2, 8, 4, key=jax.random.key(seed))


_flat: Final[dict[type, Any]] = {}


def accelerated(tree: Any) -> Any:
    """The same with each Module an instance of a subclass that has FlatMixin."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(accelerated, tree))
    if not isinstance(tree, eqx.Module):
        return tree
    cls: Any = type(tree)
    if cls not in _flat:
        body = {"__module__": __name__}
        _flat[cls] = type(cls)(f"Flat{cls.__name__}", (treepress.FlatMixin, cls), body)
    made = object.__new__(_flat[cls])
    for name, value in vars(tree).items():
        object.__setattr__(made, name, accelerated(value))
    return made


@functools.cache
def _nested() -> Case:
    """The first example of the discussion, as written there."""
    tree: Any = None

    for i in range(100):
        tree = {
            "child": tree,
            "index": i,
            "array": jax.numpy.ones(i + 1),
            "meta": ("irrelevant", "information"),
        }

    return _case(tree, jax.Array)


def _indexed(tree: Any) -> Any:
    total: Any = 0

    while tree:
        total = total + tree["array"][tree["index"]]
        tree = tree["child"]

    return total


@functools.cache
def _static() -> Case:
    """Its second example."""
    tree = {
        "array": jax.numpy.ones(()),
        "meta": list(range(100000)),
    }

    return _case(tree, jax.Array)


def _array(tree: Any) -> Any:
    return tree["array"]


def _layers() -> Any:
    """50 layers: 20 linear, 20 convolutions, 10 others."""
    layers: list[Any] = []
    for key in jax.random.split(jax.random.key(0), 10):
        linear, conv, again, last = jax.random.split(key, 4)
        layers += [
            eqx.nn.Linear(4, 4, key=linear),
            eqx.nn.Conv2d(2, 2, 3, key=conv),
            eqx.nn.LayerNorm(4),
            eqx.nn.Linear(4, 4, key=again),
            eqx.nn.Conv2d(2, 2, 3, key=last),
        ]
    return eqx.nn.Sequential(layers)


def _tensors() -> Any:
    """100 dicts of nine arrays, three of each rank up to 2, and a string."""
    return [
        {
            **{f"x{rank}{i}": jnp.ones((2,) * rank) for rank in range(3) for i in range(3)},
            "name": f"block {block}",
        }
        for block in range(100)
    ]


_of_rank: Final = (
    lambda x: getattr(x, "ndim", None) == 2,
    lambda x: getattr(x, "ndim", None) == 1,
    lambda x: getattr(x, "ndim", None) == 0,
)


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list):
        return
    for child in tree:
        yield from _nodes(child)


def _ask(nodes: list[Any], filters: tuple[Callable[[Any], bool], ...]) -> None:
    """Ask the filters what a partition has to ask them, and do nothing with it."""
    for node in nodes:
        for holds in filters:
            if holds(node):
                break


def grown(count: int) -> Any:
    """Nested dicts, ten in each, of `count` leaves: lists of arrays, lists of ints."""
    # A million arrays would take a minute to make.
    arrays = itertools.cycle([jnp.float32(i) for i in range(100)])
    return _grown(count, arrays, itertools.count())


def _grown(count: int, arrays: Iterator[Any], numbers: Iterator[int]) -> Any:
    if count == 10:
        return {
            "weights": list(itertools.islice(arrays, 5)),
            "sizes": list(itertools.islice(numbers, 5)),
        }
    return {f"part{i}": _grown(count // 10, arrays, numbers) for i in range(10)}
