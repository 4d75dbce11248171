"""Checkpoints with safetensors: arrays under readable names, the rest from the code.

`tree_partition` gives a flat mapping from paths to arrays, which is what safetensors saves.
A model that is built anew by the same code says where each array belongs.
"""

import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from safetensors.flax import load_file, save_file

import treepress


def build(key: jax.Array) -> Any:
    return {
        "encoder": eqx.nn.MLP(4, 8, 16, 1, key=key),
        "norm": eqx.nn.LayerNorm(8),
        "rate": 0.1,
    }


def apply(model: Any, x: jax.Array) -> Any:
    return model["rate"] * model["norm"](model["encoder"](x))


def split(model: Any) -> Any:
    """The treedef, the arrays by their paths, and all else."""
    return treepress.tree_partition(model, jax.Array, simple=True, separator="/")


def save(path: Path, model: Any) -> None:
    _, arrays, _ = split(model)
    save_file(arrays, path)


def load(path: Path, like: Any) -> Any:
    """The arrays of a file in a model of the same structure."""
    treedef, arrays, rest = split(like)
    loaded = load_file(path)
    # Names that are missing or too many are an error of this.
    model = treepress.tree_combine(treedef, loaded, rest)
    for name, array in arrays.items():
        if loaded[name].shape != array.shape:
            raise ValueError(f"{name} is {loaded[name].shape} there, {array.shape} here")
    return model


def main() -> None:
    trained, fresh = build(jax.random.key(0)), build(jax.random.key(1))
    x = jnp.arange(4.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        save(path, trained)
        for name, array in sorted(load_file(path).items()):
            print(f"{name:<32} {array.dtype}{list(array.shape)}")
        loaded = load(path, fresh)
        assert not jnp.allclose(apply(fresh, x), apply(trained, x))
        assert jnp.array_equal(apply(loaded, x), apply(trained, x))
        assert jax.tree.structure(loaded) == jax.tree.structure(fresh)
        print("what was loaded computes what was saved")

        def refused(arrays: dict[str, jax.Array], kind: type[Exception]) -> str:
            save_file(arrays, path)
            try:
                load(path, fresh)
            except kind as error:
                return str(error)
            raise AssertionError("what does not fit was taken")

        named = load_file(path)
        renamed = {name.replace("norm/", "ln/"): named[name] for name in named}
        print(f"with other names: {refused(renamed, KeyError)}")
        fewer = {name: named[name] for name in named if name != "norm/bias"}
        print(f"with one left out: {refused(fewer, KeyError)}")
        shorter = named | {"norm/bias": jnp.zeros(3)}
        print(f"with another shape: {refused(shorter, ValueError)}")


if __name__ == "__main__":
    main()
