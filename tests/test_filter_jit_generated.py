"""Calls made at random, through `equinox.filter_jit` and `treepress.filter_jit`."""

import gc
import random
import sys
from collections import OrderedDict, namedtuple
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress import _calls
from twins import Failure, at_once, outcome

Point = namedtuple("Point", ["x", "y"])


class Plain(eqx.Module):
    array: Any
    other: Any
    unit: Any = eqx.field(static=True)

    def method(self, x: Any) -> Any:
        return x


class Fast(treepress.Module):
    array: Any
    other: Any
    unit: Any = eqx.field(static=True)

    @treepress.filter_jit
    def method(self, x: Any) -> Any:
        return x


# No two of these are equal, so that Equinox too takes each for another.
STATIC = [2, 3, 2.5, "a", "b", b"a", True, None, jnp.tanh, len, int, np.float32, -0.0, (1,)]
UNITS = [2, "m", "s", None, (1, ("a",)), frozenset([3]), ["no hash"], {"a": 1}, jnp.tanh]

arrays = st.sampled_from(
    [
        lambda: jnp.ones(2),
        lambda: jnp.ones(3),
        lambda: jnp.ones((), jnp.int32),
        lambda: jnp.asarray(1.0),
        lambda: np.ones(2, np.float32),
        lambda: np.float32(1),
    ]
)


def nodes(children: Any) -> Any:
    keys = st.sampled_from(["a", "b", "c"])
    modules: Any = st.sampled_from([Plain, Fast])
    return st.one_of(
        st.lists(children, max_size=3).map(lambda c: lambda: [x() for x in c]),
        st.lists(children, max_size=3).map(lambda c: lambda: tuple([x() for x in c])),
        st.dictionaries(keys, children, max_size=2).map(
            lambda c: lambda: {k: x() for k, x in c.items()}
        ),
        st.dictionaries(keys, children, max_size=2).map(
            lambda c: lambda: OrderedDict((k, x()) for k, x in c.items())
        ),
        st.dictionaries(keys, children, max_size=2).map(
            lambda c: lambda: treepress.Partition({k: x() for k, x in c.items()})
        ),
        st.tuples(children, children).map(lambda c: lambda: Point(c[0](), c[1]())),
        st.tuples(modules, children, children, st.sampled_from(UNITS)).map(
            lambda c: lambda: c[0](c[1](), c[2](), c[3])
        ),
        st.tuples(modules, children).map(lambda c: lambda: c[0](c[1](), 1, "m").method),
        children.map(lambda c: lambda: jtu.Partial(len, c())),
    )


trees = st.recursive(
    st.one_of(arrays, arrays, st.sampled_from(STATIC).map(lambda v: lambda: v)),
    nodes,
    max_leaves=5,
)
calls = st.tuples(
    st.lists(trees, max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "k", "z"]), trees, max_size=2),
)


def described(result: Any) -> Any:
    """What is compared of a result or an error."""
    if isinstance(result, Failure):
        return result[0] if result[0] is not TypeError else result
    leaves, treedef = jax.tree.flatten(result)
    return str(treedef), [
        (type(x), x.shape, x.dtype, x.weak_type, np.asarray(x).tolist(), x.is_deleted())
        if isinstance(x, jax.Array)
        else (type(x), repr(x))
        for x in leaves
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(calls, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=3, max_size=6),
    st.sampled_from(["none", "none", "all", "all-except-first"]),
)
def test_calls(made: Any, order: list[int], donate: Any) -> None:
    found = []
    for jit in (eqx.filter_jit, treepress.filter_jit):
        traced: list[None] = []

        def function(a: Any, b: Any = 7, *args: Any, k: Any = None, **kwargs: Any) -> Any:
            traced.append(None)  # noqa: B023
            whole = (a, b, args, k, kwargs)
            return whole, [2 * x for x in jax.tree.leaves(whole) if eqx.is_array(x)]

        jitted = jit(function, donate=donate)
        outcomes = []
        for number in order:
            args, kwargs = made[number % len(made)]
            given_args = [make() for make in args]
            given_kwargs = {name: make() for name, make in kwargs.items()}
            given_arrays = jax.tree.leaves((given_args, given_kwargs))
            result = outcome(lambda a, k: jitted(*a, **k), given_args, given_kwargs)  # noqa: B023
            outcomes.append(
                (
                    described(result),
                    len(traced),
                    [x.is_deleted() for x in given_arrays if isinstance(x, jax.Array)],
                )
            )
        found.append(outcomes)
    assert found[0] == found[1]


def test_threads() -> None:
    """One function, called from 8 threads, each with structures of its own and others'."""
    traced: list[Any] = []

    @treepress.filter_jit
    def function(tree: Any, value: Any) -> Any:
        traced.append(value)
        return jax.tree.map(lambda x: x + 1 if eqx.is_array(x) else x, tree), value

    def structure(number: int) -> Any:
        tree: Any = jnp.full(2, number, jnp.float32)
        for i in range(number % 4):
            tree = [tree, i] if number % 2 else {"a": tree, "b": Fast(tree, None, i)}
        return tree

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(150):
            number = choose.randrange(16)
            tree = structure(number)
            out, value = function(tree, number)
            assert value == number
            assert jax.tree.structure(out) == jax.tree.structure(tree)
            for x, y in zip(jax.tree.leaves(out), jax.tree.leaves(tree)):
                if eqx.is_array(x):
                    assert (np.asarray(x) == np.asarray(y) + 1).all()
                else:
                    assert x == y

    at_once(*[lambda seed=seed: work(seed) for seed in range(8)])
    # Those that come to the same structure at the same time may both trace it.
    assert set(traced) == set(range(16))
    before = len(traced)
    for number in range(16):
        function(structure(number), number)
    assert len(traced) == before


def test_memory() -> None:
    """Ten thousand structures, of which few may be kept."""
    resource = pytest.importorskip("resource")
    unit = 1024 if sys.platform == "darwin" else 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_calls, "MOST_ENTRIES", 64)
        filter_jit: Any = treepress.filter_jit
        jitted = filter_jit(lambda x, tree: x)
        # Lowered and compiled for few; to be looked up is what each is.
        calls, own = jitted._calls, jitted._own
        x = jnp.ones(2)

        def over(numbers: Any) -> int:
            for i in numbers:
                tree = [i, {str(i): i, "a": [i] * (i % 50)}]
                if i % 100 == 0:
                    jitted(x, tree)
                else:
                    calls.find(own, (x, tree), {})
            gc.collect()
            return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) // unit

        first = over(range(4000))
        last = over(range(4000, 10000))
        assert jitted._kept.cache.count <= 64
        assert len(jitted._calls.forms[2].recent) <= 4
        # In KiB. One that is kept takes some 10.
        assert last - first < 20_000
