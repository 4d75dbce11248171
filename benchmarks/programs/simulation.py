"""A simulation in units, without treepress: a spring, step by step, then jitted."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import unxt as u

STIFFNESS = u.Quantity(jnp.array(1.0), "1/s2")
DT = u.Quantity(jnp.array(0.01), "s")


def step(x: Any, v: Any) -> Any:
    v = v - STIFFNESS * x * DT
    return x + v * DT, v


def main(steps: int) -> None:
    x = u.Quantity(jnp.array([1.0, 0.0, 0.0]), "km")
    v = u.Quantity(jnp.array([0.0, 1.0, 0.0]), "km/s")
    for _ in range(steps):
        x, v = step(x, v)
    jitted = jax.jit(step)
    for _ in range(10 * steps):
        x, v = jitted(x, v)
    print(x, v)


main(int(sys.argv[1]))
