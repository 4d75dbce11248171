"""What is measured: one function per table, each giving calls to be timed."""

import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from cases import (
    BY_HAND,
    EQUINOX,
    INOX,
    JAX_DATACLASS,
    OURS,
    OWN,
    RAW,
    REFERENCE,
    TUPLE,
    C,
    Functions,
    Own,
    Unit,
    c_functions,
    equinox_functions,
    field_names,
    makers,
    module_class,
    our_functions,
    quantities,
)
from timing import LEAST_ROUNDS, Call, call, interleave

import treepress

# Case, then peer, then a call, or the seconds that it takes.
Calls = dict[str, dict[str, Call]]
Figures = dict[str, dict[str, float]]


class Effort(NamedTuple):
    """How long to measure, and whom."""

    # 1.0 for a full run.
    scale: float
    # None for everybody.
    peers: Collection[str] | None = None

    def measure(self, calls: Calls, each: float, rounds: int | None = None) -> Figures:
        """The times of all calls, after `each` seconds for every one.

        Where calls take so long that even the fewest rounds of a quick run are too many,
        `rounds` says how many these are in a full run.
        """
        kept = [
            (case, peer, c)
            for case, row in calls.items()
            for peer, c in row.items()
            if self.peers is None or peer in self.peers
        ]
        least = LEAST_ROUNDS if rounds is None else max(1, round(self.scale * rounds))
        seconds = self.scale * each * len(kept)
        times = interleave([c for _, _, c in kept], seconds, least)
        figures: Figures = {}
        for (case, peer, _), taken in zip(kept, times, strict=True):
            figures.setdefault(case, {})[peer] = taken
        return figures


# Measured again with the Python backend, in a process of its own.
PYTHON_PEERS: Final = frozenset([EQUINOX, OURS, RAW, TUPLE, INOX])

FIELDS: Final = (1, 3, 8, 32)
NODES: Final = 1000

# Cases that are asked for by name.
TEN: Final = "ten quantities in and out"
TEN_UNXT: Final = "jit, ten in and out"


def direct() -> Calls:
    """The functions called as JAX calls them, on one instance of one class."""
    calls: Calls = {}
    cases: list[tuple[int, Any, str]] = [(count, "m", "") for count in FIELDS]
    # A static value of a class that the kernels do not know to be harmless, so that they
    # may not remember it.
    cases.append((3, Unit("metre", m=1), ", unit an object"))
    for count, unit, more in cases:
        names = field_names(count)
        cls = module_class(treepress.Module, count)
        # Not ours, which is hot: its attributes are faster for Equinox's functions too.
        plain = module_class(eqx.Module, count)
        values = [*[object() for _ in names], unit]
        functions: dict[str, Functions] = {
            EQUINOX: equinox_functions(plain),
            OURS: our_functions(cls),
        }
        if not isinstance(REFERENCE, str):
            functions[C] = c_functions(cls, names, REFERENCE)
        nodes = {peer: cls(*values) for peer in functions} | {EQUINOX: plain(*values)}
        _check_alike(functions, nodes)
        fields = f"{count} field{'s' if count > 1 else ''}{more}"
        for peer, (flatten, flatten_with_keys, unflatten) in functions.items():
            node = nodes[peer]
            children, aux = flatten(node)
            rows = {
                f"flatten, {fields}": call(flatten, node),
                f"unflatten, {fields}": call(unflatten, aux, children),
                f"flatten_with_keys, {fields}": call(flatten_with_keys, node),
            }
            if count == 3:
                # What flatten gets to see in a loop: instances just made.
                rows[f"unflatten, then flatten, {fields}"] = call(
                    _there_and_back, flatten, unflatten, aux, children
                )
            for case, c in rows.items():
                calls.setdefault(case, {})[peer] = c
    return calls


def _there_and_back(flatten: Any, unflatten: Any, aux: Any, children: Any) -> Any:
    return flatten(unflatten(aux, children))


def _check_alike(functions: Mapping[str, Functions], nodes: Mapping[str, Any]) -> None:
    """All give the same, or their times mean nothing."""
    given = []
    for peer, (flatten, flatten_with_keys, unflatten) in functions.items():
        node = nodes[peer]
        children, aux = flatten(node)
        state = list(vars(unflatten(aux, children)).items())
        given.append((children, aux, flatten_with_keys(node), state))
    assert all(one == given[0] for one in given), given


def through_jax() -> Calls:
    """JAX's functions on a list of many nodes of three arrays and a unit."""
    trees = _trees(NODES, 3, ["m"])
    # The kernels remember the aux that they gave last. Here that never helps.
    turns = _trees(NODES, 3, ["m", "s"], (EQUINOX, OURS, BY_HAND, C))
    return {
        "jax.tree.flatten": _each(trees, jax.tree.flatten),
        "jax.tree.unflatten": {
            peer: call(jax.tree.unflatten, jax.tree.structure(tree), jax.tree.leaves(tree))
            for peer, tree in trees.items()
        },
        "tree_flatten_with_path": _each(trees, jtu.tree_flatten_with_path),
        "jax.tree.map": _each(trees, jax.tree.map, _same),
        "jax.tree.flatten, two units by turns": _each(turns, jax.tree.flatten),
    }


def _same(leaf: Any) -> Any:
    return leaf


def _each(
    trees: Mapping[str, Any], function: Callable[..., Any], *before: Any
) -> dict[str, Call]:
    return {peer: call(function, *before, tree) for peer, tree in trees.items()}


def _trees(
    nodes: int, fields: int, units: list[Any], peers: Collection[str] | None = None
) -> dict[str, list[Any]]:
    """Each peer's list of nodes, all of the same leaves."""
    leaves = [np.zeros(()) for _ in range(nodes * fields)]
    trees = {
        peer: [
            make(leaves[i * fields : (i + 1) * fields], units[i % len(units)])
            for i in range(nodes)
        ]
        for peer, make in makers(fields).items()
        if peers is None or peer in peers
    }
    for peer, tree in trees.items():
        assert list(map(id, jax.tree.leaves(tree))) == list(map(id, leaves)), peer
    return trees


def jitted() -> Calls:
    """A jitted function of ten quantities that returns ten: one array and a unit each."""
    values = [jnp.float32(i) for i in range(10)]
    names = ["metre", "second", "kilogram", "radian", "kelvin"]
    units = [Unit(name, **{name: 1}) for name in names]
    # As if the units had been read from text anew: JAX has to compare them, in Python.
    others = [Unit(name, **{name: 1}) for name in names]
    function = jax.jit(_doubled)
    made = makers(1)
    calls: Calls = {}
    for case, later in ((TEN, units), ("the same, units equal, not identical", others)):
        row = {RAW: _traced(function, values, values)}
        for peer in (EQUINOX, OURS, BY_HAND, JAX_DATACLASS, C):
            make = made.get(peer)
            if make is not None:
                first, then = (
                    [make([v], us[i % len(us)]) for i, v in enumerate(values)]
                    for us in (units, later)
                )
                row[peer] = _traced(function, first, then)
        calls[case] = row
    return calls


def _doubled(tree: Any) -> Any:
    return jax.tree.map(lambda x: x + x, tree)


def _traced(function: Callable[..., Any], first: Any, then: Any) -> Call:
    """A call that is compiled already, for `first`."""
    function(first)
    return call(function, then)


def overhead() -> Calls:
    """The example of Equinox's pull request for own procedures, in five rows.

    A jitted call of a small function on one object, which it returns.
    """
    value = jnp.float32(1)
    unit = Unit("metre", m=1)
    function = jax.jit(_doubled)
    made = makers(1)
    objects = {
        RAW: value,
        BY_HAND: made[BY_HAND]([value], unit),
        EQUINOX: made[EQUINOX]([value], unit),
        OWN: Own(value, unit),
        OURS: made[OURS]([value], unit),
    }
    return {
        "jitted call, one object": {
            peer: _traced(function, x, x) for peer, x in objects.items()
        }
    }


def unxt_workloads() -> Calls:
    """Ten real quantities, with the mixin and without it."""
    classes = quantities()
    if classes is None:
        return {}
    values = [jnp.float32(i) for i in range(10)]
    units = ["m", "s", "km / s", "kg", "rad"]
    trees: dict[str, list[Any]] = {RAW: values}
    for peer, cls in zip((EQUINOX, OURS), classes, strict=True):
        trees[peer] = [cls(v, units[i % len(units)]) for i, v in enumerate(values)]
    function = jax.jit(_sums)
    return {
        TEN_UNXT: {peer: _traced(function, tree, tree) for peer, tree in trees.items()},
        "jax.tree.map": _each(trees, jax.tree.map, _same),
        "jax.lax.scan, ten carried": _each(trees, _scan),
    }


def _sums(quantities: list[Any]) -> list[Any]:
    return [q + q for q in quantities]


def _step(carry: list[Any], _: None) -> tuple[list[Any], None]:
    return _sums(carry), None


def _scan(carry: list[Any]) -> Any:
    return jax.lax.scan(_step, carry, None, length=4)


def imports(effort: Effort) -> Figures:
    """What `import treepress` takes after `import equinox`, and then `install()`.

    The best of some processes. The garbage of what was imported before is collected first:
    the collection would fall into one import or the other by chance, and takes longer.
    """
    code = (
        "from gc import collect\nfrom time import perf_counter as t\n"
        "a = t()\nimport equinox\nb = t()\ncollect()\n"
        "c = t()\nimport treepress\nd = t()\n"
        "treepress.install()\ne = t()\nprint(b - a, d - c, e - d)"
    )
    taken = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(max(2, round(5 * effort.scale)))
    ]
    before, ours, install = (min(map(float, column)) for column in zip(*taken, strict=True))
    return {
        "import": {EQUINOX: before, OURS: ours},
        "treepress.install()": {EQUINOX: before, OURS: install},
    }


def by_fields() -> Calls:
    """Flatten and unflatten 100 nodes, by the number of arrays in a node."""
    return {str(fields): _round_trips(100, fields) for fields in (1, 2, 4, 8, 16, 32, 64)}


def by_nodes() -> Calls:
    """Flatten and unflatten nodes of three arrays, by their number."""
    return {str(nodes): _round_trips(nodes, 3) for nodes in (1, 10, 100, 1000, 10000)}


def _round_trips(nodes: int, fields: int) -> dict[str, Call]:
    trees = _trees(nodes, fields, ["m"], (TUPLE, EQUINOX, OURS, BY_HAND, C))
    return _each(trees, _round_trip)


def _round_trip(tree: Any) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    return jax.tree.unflatten(treedef, leaves)
