"""What treepress gains you: the same code on the same classes, with and without the mixin.

A model of `equinox.nn` layers, and `unxt` quantities; `filter_jit` is Equinox's and ours. The
results are checked to be equal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from timing import call, interleave

import treepress

Make = Callable[[type], type]


def plain(cls: type) -> type:
    return cls


def mixed(cls: type) -> type:
    """The class with the mixin added."""
    return type(cls)(
        f"Flat{cls.__name__}", (treepress.FlatMixin, cls), {"__module__": __name__}
    )


def layered_model(make: Make) -> Any:
    """Residual blocks of real equinox layers."""
    linear, norm = make(eqx.nn.Linear), make(eqx.nn.LayerNorm)

    class Block(eqx.Module):
        norm: Any
        up: Any
        down: Any

        def __call__(self, x: jax.Array) -> jax.Array:
            hidden: jax.Array = self.down(jax.nn.gelu(self.up(self.norm(x))))
            return x + hidden

    class Tower(eqx.Module):
        blocks: list[Any]

        def __call__(self, x: jax.Array) -> jax.Array:
            for block in self.blocks:
                x = block(x)
            return x

    block = make(Block)
    keys = jax.random.split(jax.random.key(0), (8, 2))
    return make(Tower)(
        [
            block(norm(16), linear(16, 32, key=up), linear(32, 16, key=down))
            for up, down in keys
        ]
    )


def quantity_class(make: Make) -> type:
    """unxt's `Quantity`, as the unxt for this Python has it."""
    import unxt

    cls = make(unxt.Quantity)
    if make is mixed and any("Parametric" in base.__name__ for base in cls.__mro__):
        # In unxt 1 a class of quantities is parametrised by its dimension, and a subclass
        # has to say so again, mixin or not.
        from plum import parametric

        cls = parametric(cls)
    return cls


def quantities(make: Make) -> list[Any]:
    cls = quantity_class(make)
    return [cls(jnp.arange(3.0) + i, "m" if i % 2 else "km") for i in range(10)]


def _train_step(model: Any, x: jax.Array, y: jax.Array) -> Any:
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(arrays: Any) -> jax.Array:
        out = jax.vmap(eqx.combine(arrays, static))(x)
        return jnp.mean((out - y) ** 2)

    grads = jax.grad(loss)(arrays)
    return jax.tree.map(lambda a, g: a - 0.01 * g, arrays, grads)


train_step = jax.jit(_train_step)


@jax.jit
def move(positions: Any) -> Any:
    return jax.tree.map(lambda x: 1.5 * x, positions)


def cases() -> dict[str, Callable[[Make], Callable[[], Any]]]:
    """By name: what makes, for classes with or without the mixin, the call to measure."""
    x = jnp.ones((4, 16))

    def flatten(make: Make) -> Callable[[], Any]:
        model = layered_model(make)
        return lambda: jax.tree.leaves(model)

    def tree_map(make: Make) -> Callable[[], Any]:
        model = layered_model(make)
        return lambda: jax.tree.map(lambda leaf: leaf, model)

    def step(make: Make) -> Callable[[], Any]:
        model = layered_model(make)
        model = eqx.filter(model, eqx.is_array)
        return lambda: train_step(model, x, x)

    def filtered(make: Make) -> Callable[[], Any]:
        model = layered_model(make)
        jit = eqx.filter_jit if make is plain else treepress.filter_jit
        filtered_step = jit(_train_step)
        return lambda: filtered_step(model, x, x)

    def q_map(make: Make) -> Callable[[], Any]:
        positions = quantities(make)
        return lambda: jax.tree.map(lambda leaf: leaf, positions)

    def q_jit(make: Make) -> Callable[[], Any]:
        positions = quantities(make)
        return lambda: move(positions)

    return {
        "model of 8 blocks: jax.tree.leaves": flatten,
        "model of 8 blocks: jax.tree.map": tree_map,
        "model of 8 blocks: jitted training step": step,
        "model of 8 blocks: the step by filter_jit": filtered,
        "10 unxt quantities: jax.tree.map": q_map,
        "10 unxt quantities: jitted function, in and out": q_jit,
    }


def check_equal(one: Any, other: Any) -> None:
    """Leaf for leaf, with paths."""
    paths, other_paths = (
        jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (one, other)
    )
    assert len(paths) == len(other_paths)
    for (path, leaf), (other_path, other_leaf) in zip(paths, other_paths, strict=True):
        assert path == other_path, (path, other_path)
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(other_leaf))


def main() -> None:
    print(
        f"treepress {treepress.__version__} ({treepress.backend} kernels), "
        f"equinox {eqx.__version__}, jax {jax.__version__}, "
        f"Python {sys.version.split()[0]}\n"
    )
    print(f"{'':<50}{'Equinox':>12}{'treepress':>12}{'gain':>8}")
    for name, case in cases().items():
        calls = {"equinox": case(plain), "treepress": case(mixed)}
        check_equal(calls["equinox"](), calls["treepress"]())
        before, after = (
            1e6 * seconds for seconds in interleave([call(c) for c in calls.values()], 4.0)
        )
        print(f"{name:<50}{before:>9.1f} µs{after:>9.1f} µs{before / after:>7.1f}x")
    print("\nThe results of each pair were equal, leaf for leaf.")
    print("How a class is flattened, and why so: print(treepress.describe(cls))")


if __name__ == "__main__":
    main()
