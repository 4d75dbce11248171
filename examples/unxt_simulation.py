"""A simulation in quantities of unxt: a planet goes round the sun for a year.

`treepress.auto` accelerates every Module of the program, unxt's too; nothing else in here
has to know of it.
"""

import jax
import jax.numpy as jnp
import quaxed.numpy as qnp
import unxt as u

import treepress.auto

MU = u.Quantity(4 * jnp.pi**2, "AU3 / yr2")
DAY = u.Quantity(1 / 365.25, "yr")


@jax.jit
def step(position, velocity):
    """Half a kick, a drift, half a kick."""
    velocity = velocity + DAY / 2 * pull(position)
    position = position + DAY * velocity
    velocity = velocity + DAY / 2 * pull(position)
    return position, velocity


def pull(position):
    return -MU * position / radius(position) ** 3


def radius(position):
    return qnp.sqrt(qnp.sum(position**2))


@jax.jit
def energy(position, velocity):
    return qnp.sum(velocity**2) / 2 - MU / radius(position)


def main():
    position = u.Quantity(jnp.array([1.0, 0.0]), "AU")
    velocity = u.Quantity(jnp.array([0.0, 2 * jnp.pi]), "AU / yr")
    start, before = position, energy(position, velocity)
    for day in range(366):
        if day % 73 == 0:
            x, y = position.ustrip("AU")
            print(f"day {day:3}: {x:+.3f} {y:+.3f} AU")
        position, velocity = step(position, velocity)
    drift = (energy(position, velocity) - before) / before
    away = jnp.sqrt(jnp.sum((position - start).ustrip("AU") ** 2))
    print(f"energy changed by {float(drift.ustrip('')):.1e} of itself")
    print(f"a year later {away:.3f} AU from the start, speed in {velocity.unit}")
    print(f"quantities are accelerated: {treepress.describe(position).accelerated}")
    assert abs(drift.ustrip("")) < 1e-4
    assert away < 0.02
    assert treepress.describe(position).accelerated


if __name__ == "__main__":
    main()
