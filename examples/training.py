"""A training loop: a network learns a sine, and the step is called with the model itself.

`treepress.filter_jit` takes the place of `equinox.filter_jit`. Nothing is flattened or
partitioned outside of the step, and `donate="all"` lets it write over the model and the
state of the optimiser that it was given.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import treepress

optimiser = optax.adam(1e-2)


def loss_of(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@treepress.filter_jit(donate="all")
def step(model, state, x, y):
    loss, grads = eqx.filter_value_and_grad(loss_of)(model, x, y)
    updates, state = optimiser.update(grads, state)
    return eqx.apply_updates(model, updates), state, loss


def batch(key):
    x = jax.random.uniform(key, (64, 1), minval=-3.0, maxval=3.0)
    return x, jnp.sin(x)


def main():
    treepress.accelerate(eqx.nn.MLP, eqx.nn.Linear)
    model = eqx.nn.MLP(1, 1, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    losses = []
    for i, key in enumerate(jax.random.split(jax.random.key(1), 1001)):
        model, state, loss = step(model, state, *batch(key))
        losses.append(loss)
        if i % 200 == 0:
            print(f"step {i:4}: loss {loss:.5f}")

    x = jnp.linspace(-3, 3, 7)[:, None]
    error = jnp.max(jnp.abs(jax.vmap(model)(x) - jnp.sin(x)))
    print(f"farthest from the sine: {error:.3f}")
    print(f"times that the step was compiled: {step._cache_size()}")
    assert losses[-1] < losses[0] / 100
    assert error < 0.1


if __name__ == "__main__":
    main()
