"""What is measured of `filter_jit`, against Equinox's and `jax.jit`.

    python benchmarks/jit.py [--quick]

measures that alone; `run.py` does it among the rest.
"""

import argparse
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from cases import EQUINOX, FLAT, MODULE, OURS, imported
from measure import Calls, Effort, Figures
from partition import accelerated, mlp
from progress import Progress
from timing import call

import treepress

ARRAY: Final = "one array"
QUANTITY: Final = "a Quantity in and out"
MODEL: Final = "model(x), MLP of 10 arrays"
IN_OUT: Final = "MLP in and out"
MANY: Final = "21 MLPs in and out"
STEP: Final = "training step with adam, batch 32"
DONATED: Final = "the same, donated"
# On classes that are not accelerated.
PLAIN: Final = ", plain classes"

# What the first call is measured of.
FIRST: Final = (IN_OUT, MANY, STEP)
ARRAYS: Final = (1, 3, 10, 30, 100, 300, 1000)
_ROUNDS: Final = 15

Function = Callable[..., Any]


class _Quantity(eqx.Module):
    value: jax.Array
    unit: str = eqx.field(static=True)

    def __mul__(self, other: Any) -> "_Quantity":
        return _Quantity(self.value * other, self.unit)


class _FlatQuantity(treepress.FlatMixin, _Quantity):
    def __mul__(self, other: Any) -> "_FlatQuantity":
        return _FlatQuantity(self.value * other, self.unit)


def _double(x: Any) -> Any:
    return x * 2


def _apply(model: Any, x: Any) -> Any:
    # Not what the model computes, which takes longer than all that is to be measured.
    return model.layers[0].weight[0, 0] * x


def _same(tree: Any) -> Any:
    return tree


def _flat(function: Function, arguments: tuple[Any, ...]) -> tuple[Function, list[Any]]:
    """The same as a function of the arrays, and the arrays."""
    leaves, treedef = jax.tree.flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if eqx.is_array(leaf)]

    def of_arrays(*arrays: Any) -> Any:
        whole = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            whole[i] = array
        out = function(*jax.tree.unflatten(treedef, whole))
        return [leaf for leaf in jax.tree.leaves(out) if eqx.is_array(leaf)]

    return of_arrays, [leaves[i] for i in places]


def _of_modules(
    function: Function, arguments: tuple[Any, ...]
) -> tuple[Function, tuple[Any, ...]]:
    """The same as `jax.jit` can have it: what is no array is taken out, the nodes stay."""
    arrays, rest = eqx.partition(arguments, eqx.is_array)

    def of_modules(*arrays: Any) -> Any:
        return eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array)

    return of_modules, arrays


def _row(function: Function, *plain: Any, ours: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Calls by each; `ours` are the same arguments with accelerated classes."""
    arguments = ours or plain
    flat, arrays = _flat(function, arguments)
    of_modules, modules = _of_modules(function, plain)
    return {
        EQUINOX: call(eqx.filter_jit(function), *plain),
        OURS: call(treepress.filter_jit(function), *arguments),
        FLAT: call(jax.jit(flat), *arrays),
        MODULE: call(jax.jit(of_modules), *modules),
    }


def calls() -> Calls:
    """The calls, after the first."""
    x = jnp.ones(3)
    plain = mlp(0)
    model = accelerated(plain)
    many = [mlp(seed) for seed in range(21)]
    found = {
        ARRAY: _row(_double, x),
        QUANTITY: _row(_double, _Quantity(x, "m"), ours=(_FlatQuantity(x, "m"),)),
        MODEL: _row(_apply, plain, x, ours=(model, x)),
        IN_OUT: _row(_same, plain, ours=(model,)),
        MANY: _row(_same, many, ours=(accelerated(many),)),
        QUANTITY + PLAIN: _row(_double, _Quantity(x, "m")),
        MODEL + PLAIN: _row(_apply, mlp(0), x),
        IN_OUT + PLAIN: _row(_same, mlp(0)),
    }
    training = _training(plain)
    if training is not None:
        step, *ours = _training(model) or ()
        found[STEP] = _row(*training, ours=tuple(ours))
        found[DONATED] = _donated(training, (step, *ours))
    return found


def _training(model: Any) -> tuple[Any, ...] | None:
    optax: Any = imported("optax")
    if optax is None:
        return None
    optimiser = optax.adam(1e-3)

    def loss(model: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    gradient: Any = eqx.filter_value_and_grad(loss)

    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = gradient(model, x, y)
        updates, state = optimiser.update(gradients, state)
        return eqx.apply_updates(model, updates), state, value

    state = optimiser.init(eqx.filter(model, eqx.is_array))
    return step, model, state, jnp.ones((32, 2)), jnp.ones((32, 2))


def _donated(plain: tuple[Any, ...], ours: tuple[Any, ...]) -> dict[str, Any]:
    """Each step gets what the one before returned."""
    step, model, state, x, y = ours

    def of_pair(data: Any, pair: Any) -> Any:
        model, state, value = step(*pair, *data)
        return (model, state), value

    def loop(jit: Any, trees: Any) -> Function:
        jitted = jit(of_pair, donate="all-except-first")
        pair = _copied(trees)

        def once(data: Any) -> Any:
            nonlocal pair
            pair, value = jitted(data, pair)
            return value

        return once

    flat, arrays = _flat(of_pair, ((x, y), (model, state)))
    jitted: Any = jax.jit(flat, donate_argnums=tuple(range(2, len(arrays))))
    held = _copied(arrays[2:])

    def flat_once(x: Any, y: Any) -> Any:
        nonlocal held
        *held, value = jitted(x, y, *held)
        return value

    return {
        EQUINOX: call(loop(eqx.filter_jit, plain[1:3]), (x, y)),
        OURS: call(loop(treepress.filter_jit, ours[1:3]), (x, y)),
        FLAT: call(flat_once, x, y),
    }


def _copied(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, tree)


def first_calls(effort: Effort) -> Figures:
    """The first call of a function that nobody knows: traced, compiled, run."""
    functions: dict[str, tuple[Any, ...]] = {
        IN_OUT: (_same, mlp(0)),
        MANY: (_same, [mlp(seed) for seed in range(21)]),
    }
    training = _training(mlp(0))
    if training is not None:
        functions[STEP] = training
    jits: dict[str, Any] = {EQUINOX: eqx.filter_jit, OURS: treepress.filter_jit}
    figures: Figures = {case: dict.fromkeys(jits, float("inf")) for case in functions}
    rounds = max(3, round(effort.scale * _ROUNDS))
    with Progress() as progress:
        for done in range(rounds):
            progress.show(done / rounds)
            for case, (function, *arguments) in functions.items():
                for peer, jit in jits.items():
                    fresh = _fresh(function)
                    start = perf_counter()
                    jax.tree.leaves(jit(fresh)(*arguments))[0].block_until_ready()
                    taken = perf_counter() - start
                    figures[case][peer] = min(figures[case][peer], taken)
    return figures


def _fresh(function: Function) -> Function:
    return lambda *arguments: function(*arguments)


def by_arrays(effort: Effort) -> Figures:
    """Modules of two arrays, in and out, by the number of arrays in all."""
    figures: Figures = {}
    with Progress() as progress:
        for done, count in enumerate(ARRAYS):
            progress.show(done / len(ARRAYS))
            pairs = [
                eqx.nn.Linear(1, 1, use_bias=count > 1, key=jax.random.key(i))
                for i in range(max(1, count // 2))
            ]
            row = _row(_same, pairs, ours=(accelerated(pairs),))
            figures |= effort.measure({str(count): row}, 0.3)
    return figures


def slope(figures: Figures, peer: str) -> float:
    """Seconds for each further array."""
    first, *_, last = figures
    return (figures[last][peer] - figures[first][peer]) / (int(last) - int(first))


def main() -> None:
    import report

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    effort = Effort(0.1 if parser.parse_args().quick else 1.0)
    print(
        f"backend: {treepress.backend}, jax {jax.__version__}, Python {sys.version[:6]}",
        flush=True,
    )
    results: dict[str, Figures] = {}
    for table in report.TABLES:
        if table.name == "filter_jit":
            results[table.name] = table.measure(effort)
            text = report.times_text(table.title, table.unit, results[table.name])
            print(text, flush=True)
    results["first"] = first_calls(effort)
    text = report.times_text("The first call", "ms", results["first"])
    print(f"\n{text}", flush=True)
    results["arrays"] = by_arrays(effort)
    print(f"\n{report.arrays_text(results['arrays'])}", flush=True)
    bars = [bar for bar in report.BARS if bar.table in results]
    print(f"\n{report.bars_text(bars, results)}")


if __name__ == "__main__":
    main()
