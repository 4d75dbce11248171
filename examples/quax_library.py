"""A library on quax: numbers that carry their first derivative, with two lines of treepress.

quax puts a Module around the inputs and outputs of every primitive, and JAX takes each one
apart. The mixin has compiled kernels do that. Where treepress is not installed the library
works as before.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import quax

try:
    from treepress import FlatMixin
except ImportError:

    class FlatMixin:
        """Nothing, where there is no treepress."""


class Dual(FlatMixin, quax.ArrayValue):
    """A value, and how fast it changes with the variable called `of`."""

    value: jax.Array = eqx.field(converter=jnp.asarray)
    slope: jax.Array = eqx.field(converter=jnp.asarray)
    of: str = eqx.field(static=True)

    def aval(self):
        return jax.core.ShapedArray(self.value.shape, self.value.dtype)

    def materialise(self):
        raise ValueError("a Dual would lose its slope")


@quax.register(jax.lax.mul_p)
def _(x: Dual, y: Dual, **_):
    assert x.of == y.of
    return Dual(x.value * y.value, x.slope * y.value + x.value * y.slope, x.of)


@quax.register(jax.lax.add_p)
def _(x: Dual, y: Dual, **_):
    assert x.of == y.of
    return Dual(x.value + y.value, x.slope + y.slope, x.of)


@quax.register(jax.lax.sin_p)
def _(x: Dual, **_):
    return Dual(jnp.sin(x.value), jnp.cos(x.value) * x.slope, x.of)


def function(x):
    return jnp.sin(x * x) + x


def main():
    x = Dual(jnp.linspace(0.0, 1.0, 5), jnp.ones(5), "x")
    y = jax.jit(quax.quaxify(function))(x)
    expected = jax.vmap(jax.grad(function))(x.value)
    print(f"f(x)  {y.value}")
    print(f"f'(x) {y.slope}, in {y.of}")
    assert jnp.allclose(y.value, function(x.value))
    assert jnp.allclose(y.slope, expected)
    print("as jax.grad has it")
    print(
        f"flattened by {'treepress' if hasattr(Dual, '_eqx_tree_flatten') else 'Equinox'}"
    )


if __name__ == "__main__":
    main()
