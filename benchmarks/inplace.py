"""Classes that nobody changed, with `treepress.install()` and without it.

The same class cannot be both at once. So it is installed or taken back before each batch, not
timed, and a few calls let the interpreter learn of its new code.
"""

from collections.abc import Callable
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import EQUINOX, MIXIN, OURS, RAW, imported, module_class, quantities
from timing import Call, call

import treepress

FLATTEN: Final = "jax.tree.flatten, 1000 Modules of 3 arrays"
UNFLATTEN: Final = "jax.tree.unflatten"
UNXT: Final = "jit, ten unxt.Quantity in and out"
ADAM: Final = "optax.adam on an MLP of 6 layers, a jitted step"
FILTER_JIT: Final = "eqx.filter_jit of that MLP"


def in_place() -> dict[str, dict[str, Call]]:
    return with_install({**_through_jax(), **_unxt(), **_training()})


def with_install(
    calls: dict[str, dict[str, Call]],
) -> dict[str, dict[str, Call]]:
    before: dict[str, Callable[[], None]] = {
        EQUINOX: treepress.uninstall,
        OURS: treepress.install,
    }
    return {
        case: {
            peer: c._replace(before=before[peer]) if peer in before else c
            for peer, c in row.items()
        }
        for case, row in calls.items()
    }


def _through_jax() -> dict[str, dict[str, Call]]:
    leaves = [np.zeros(()) for _ in range(3000)]
    trees = {}
    for peer, base in ((EQUINOX, eqx.Module), (MIXIN, treepress.Module)):
        cls = module_class(base, 3)
        trees[peer] = [cls(*leaves[i : i + 3], "m") for i in range(0, 3000, 3)]
    trees[OURS] = trees[EQUINOX]
    return {
        FLATTEN: {peer: call(jax.tree.flatten, tree) for peer, tree in trees.items()},
        UNFLATTEN: {
            peer: call(jax.tree.unflatten, jax.tree.structure(tree), leaves)
            for peer, tree in trees.items()
        },
    }


def _unxt() -> dict[str, dict[str, Call]]:
    classes = quantities()
    if classes is None:
        return {}
    plain, mixed = classes
    values = [jnp.float32(i) for i in range(10)]
    units = ["m", "s", "km / s", "kg", "rad"]
    row = {RAW: _compiled(_sums, values)}
    for peer, cls in ((EQUINOX, plain), (OURS, plain), (MIXIN, mixed)):
        row[peer] = _compiled(_sums, [cls(v, units[i % 5]) for i, v in enumerate(values)])
    return {UNXT: row}


def _sums(quantities: list[Any]) -> list[Any]:
    return [q + q for q in quantities]


def _compiled(function: Callable[..., Any], *arguments: Any) -> Call:
    function = jax.jit(function)
    function(*arguments)
    return call(function, *arguments)


def _training() -> dict[str, dict[str, Call]]:
    optax = imported("optax")
    if optax is None:
        return {}
    # Small, for it is the dispatch that is of interest.
    mlp = eqx.nn.MLP(4, 4, 4, 5, key=jax.random.key(0))
    assert len(mlp.layers) == 6
    x = jnp.ones((2, 4))
    arrays, static = eqx.partition(mlp, eqx.is_inexact_array)
    optimiser = optax.adam(1e-3)

    def loss(arrays: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(eqx.combine(arrays, static))(x) ** 2)

    def step(arrays: Any, state: Any, x: jax.Array) -> Any:
        updates, state = optimiser.update(jax.grad(loss)(arrays, x), state, arrays)
        return optax.apply_updates(arrays, updates), state

    state = optimiser.init(arrays)
    adam = _compiled(step, arrays, state, x)
    function = eqx.filter_jit(lambda model, x: model(x))
    function(mlp, x[0])
    filter_jit = call(function, mlp, x[0])
    # The same computations on the bare arrays, the structure being known.
    leaves: Any
    leaves, treedef = jax.tree.flatten((arrays, state))

    def raw_step(leaves: Any, x: jax.Array) -> Any:
        arrays, state = jax.tree.unflatten(treedef, leaves)
        return jax.tree.leaves(step(arrays, state, x))

    def raw_call(leaves: Any, x: jax.Array) -> Any:
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static)(
            x
        )

    return {
        ADAM: {RAW: _compiled(raw_step, leaves, x), EQUINOX: adam, OURS: adam},
        FILTER_JIT: {
            RAW: _compiled(raw_call, jax.tree.leaves(arrays), x[0]),
            EQUINOX: filter_jit,
            OURS: filter_jit,
        },
    }
