"""A training loop as others write it, without treepress: an MLP and Adam."""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


def main(steps: int) -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    model = eqx.nn.MLP(8, 1, 32, 3, key=keys[0])
    x = jax.random.normal(keys[1], (32, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))
    optimiser = optax.adam(1e-3)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        @eqx.filter_value_and_grad
        def loss(model: Any) -> Any:
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        value, gradients = loss(model)  # type: ignore[no-untyped-call]
        updates, state = optimiser.update(gradients, state)
        return eqx.apply_updates(model, updates), state, value

    for number in range(steps):
        model, state, value = step(model, state, x, y)
        if number % 1000 == 0:
            print(number, float(value))
    print(steps, float(value))


main(int(sys.argv[1]))
