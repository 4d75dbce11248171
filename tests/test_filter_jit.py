"""`treepress.filter_jit`: what `equinox.filter_jit` does, and where it does otherwise."""

import copy
import dataclasses
import functools as ft
import gc
import inspect
import math
import os
import subprocess
import sys
import warnings
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.extend
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from jax.interpreters import ad, mlir

import treepress
from treepress import _calls, _runtime
from treepress.jit import Jitted

X = jnp.arange(3.0)


class Traces:
    """A function, and how often it was traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.count = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return function(*args, **kwargs)

        counted.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        self.function = counted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def same(one: Any, other: Any) -> bool:
    """Whether two trees are the same, static values by their types too."""
    ones, others = jtu.tree_leaves_with_path(one), jtu.tree_leaves_with_path(other)
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    for (_, a), (_, b) in zip(ones, others):
        if type(a) is not type(b):
            return False
        if eqx.is_array(a):
            if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a, b):
                return False
            if a.weak_type != b.weak_type:
                return False
        elif a is not b and (a != b or repr(a) != repr(b)):
            return False
    return True


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    name: Any = eqx.field(static=True, default="linear")

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight * x + self.bias

    def shifted(self, x: jax.Array, by: float = 1.0) -> jax.Array:
        """A docstring."""
        return self.weight * x + by

    @treepress.filter_jit
    def jitted(self, x: jax.Array, *, times: int = 1) -> jax.Array:
        return times * self.weight * x

    @treepress.filter_jit(donate="all-except-first")
    def donating(self, x: jax.Array) -> jax.Array:
        return self.weight * x


@pytest.fixture
def linear() -> Linear:
    return Linear(2 * jnp.ones(3), jnp.ones(3))


# What can be jitted.


def test_a_function() -> None:
    def double(x: jax.Array) -> jax.Array:
        """Twice."""
        return 2 * x

    jitted = treepress.filter_jit(double)
    assert same(jitted(X), 2 * X)
    assert jitted.__name__ == "double"
    assert jitted.__doc__ == "Twice."
    assert jitted.__wrapped__ is double  # type: ignore[attr-defined]
    assert jitted.__module__ == __name__
    assert jitted.__qualname__ == double.__qualname__
    assert inspect.signature(jitted) == inspect.signature(double)


def test_a_decorator() -> None:
    @treepress.filter_jit
    def double(x: jax.Array) -> jax.Array:
        return 2 * x

    @treepress.filter_jit(donate="all")
    def triple(x: jax.Array) -> jax.Array:
        return 3 * x

    assert same(double(X), 2 * X)
    assert same(triple(jnp.array(X)), 3 * X)


def test_a_method(linear: Linear) -> None:
    assert same(linear.jitted(X), 2 * X)
    assert same(linear.jitted(X, times=2), 4 * X)
    assert isinstance(linear.jitted, eqx.Partial)
    assert isinstance(Linear.jitted, Jitted)
    assert Linear.jitted.__name__ == "jitted"
    # A pytree, with the instance in it.
    assert jax.tree.leaves(linear.jitted)[0] is linear.weight
    doubled = jax.tree.map(lambda x: 2 * x, linear.jitted)
    assert same(doubled(X), 4 * X)
    with pytest.raises(TypeError, match="times"):
        eqx.Partial(linear.jitted, times=2)(X, times=3)


@pytest.mark.parametrize("hot", [False, True])
def test_a_method_of_an_accelerated_class(hot: bool) -> None:
    class Fast(treepress.Module, hot=hot):
        weight: jax.Array

        @treepress.filter_jit
        def __call__(self, x: jax.Array) -> jax.Array:
            return self.weight * x

    assert same(Fast(X)(X), X * X)
    assert same(treepress.filter_jit(Fast(X))(X), X * X)


def test_a_bound_method(linear: Linear) -> None:
    jitted = treepress.filter_jit(linear.shifted)
    assert same(jitted(X), 2 * X + 1.0)
    assert same(jitted(X, by=2.0), 2 * X + 2.0)
    assert jitted.__doc__ == "A docstring."


def test_a_module(linear: Linear) -> None:
    jitted = treepress.filter_jit(linear)
    assert same(jitted(X), linear(X))
    assert jitted.__wrapped__ == linear  # type: ignore[attr-defined]
    # Its arrays are leaves, and can be changed.
    assert [id(leaf) for leaf in jax.tree.leaves(jitted)] == [
        id(linear.weight),
        id(linear.bias),
    ]
    assert same(jax.tree.map(lambda x: 2 * x, jitted)(X), 2 * linear(X))


def test_modules_of_one_structure_share_traces() -> None:
    calls = 0

    class Scale(eqx.Module):
        factor: jax.Array
        name: str = eqx.field(static=True, default="one")

        def __call__(self, x: jax.Array) -> jax.Array:
            nonlocal calls
            calls += 1
            return self.factor * x

    for factor in (1.0, 2.0, 3.0):
        assert same(treepress.filter_jit(Scale(jnp.array(factor)))(X), factor * X)
    assert calls == 1
    treepress.filter_jit(Scale(jnp.array(1.0), "other"))(X)
    assert calls == 2


def test_wrappers_of_one_function_share_traces() -> None:
    traces = Traces(lambda x: x)
    for _ in range(3):
        treepress.filter_jit(traces.function)(X)
    treepress.filter_jit(traces.function, inline=True)(X)
    assert traces.count == 2


def test_a_partial() -> None:
    jitted = treepress.filter_jit(eqx.Partial(lambda a, b, c: a + b * c, X, c=3))
    assert same(jitted(X), X + X * 3)
    moved = eqx.tree_at(lambda p: jax.tree.leaves(p)[0], jitted, 2 * X)
    assert same(moved(X), 2 * X + X * 3)
    assert same(treepress.filter_jit(ft.partial(lambda a, b: a - b, X))(X), X - X)
    assert same(treepress.filter_jit(jtu.Partial(lambda a, b: a - b, X))(X), X - X)


def test_another_transformation(linear: Linear) -> None:
    def loss(model: Linear, x: jax.Array) -> jax.Array:
        return model(x).sum()

    make: Any
    for make in (eqx.filter_grad, eqx.filter_value_and_grad):
        assert same(
            treepress.filter_jit(make(loss))(linear, X),
            eqx.filter_jit(make(loss))(linear, X),
        )
    for make in (
        eqx.filter_vmap,
        eqx.filter_checkpoint,
        eqx.filter_jit,
        treepress.filter_jit,
    ):
        assert same(treepress.filter_jit(make(lambda x: 2 * x))(X), 2 * X)


def test_what_has_no_name() -> None:
    class Callable_:
        def __call__(self, x: Any) -> Any:
            return 2 * x

    assert same(treepress.filter_jit(Callable_())(X), 2 * X)
    assert repr(treepress.filter_jit(Callable_())).startswith("filter_jit(test_what")
    # A type, a built-in.
    assert same(treepress.filter_jit(Linear)(X, X), Linear(X, X))
    assert treepress.filter_jit(math.prod)((2, 3)) == 6


# Arguments.


@treepress.filter_jit
def every(
    a: Any, /, b: Any, c: Any = 3, *args: Any, d: Any, e: Any = 5, **kwargs: Any
) -> Any:
    return a, b, c, args, d, e, kwargs


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {"d": 4}),
        ((X, X), {"d": X}),
        ((X,), {"b": X, "d": 1}),
        ((X,), {"d": 1, "b": X, "c": 7}),
        ((X,), {"d": 1, "c": 7, "b": X}),
        ((X, 2, 3, X, 5, X), {"d": 4, "e": X}),
        ((X, 2), {"d": 4, "z": X, "a": X, "f": None}),
        (((X, [X, {"k": X}]), None), {"d": (), "e": {}}),
    ],
)
def test_forms_of_call(args: Any, kwargs: Any) -> None:
    unjitted = every.__wrapped__  # type: ignore[attr-defined]
    for _ in range(3):
        assert same(every(*args, **kwargs), unjitted(*args, **kwargs))
        assert same(every(*args, **kwargs), eqx.filter_jit(unjitted)(*args, **kwargs))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {}),
        ((1, 2), {}),
        ((1, 2), {"d": 1, "b": 3}),
        ((), {"a": 1, "b": 2, "d": 3}),
    ],
)
def test_wrong_calls(args: Any, kwargs: Any) -> None:
    unjitted = every.__wrapped__  # type: ignore[attr-defined]
    with pytest.raises(TypeError) as theirs:
        eqx.filter_jit(unjitted)(*args, **kwargs)
    with pytest.raises(TypeError) as ours:
        every(*args, **kwargs)
    assert str(ours.value) == str(theirs.value)


def test_arguments_that_are_called_self() -> None:
    @treepress.filter_jit
    def function(self: Any, args: Any, kwargs: Any, fun: Any = 1) -> Any:
        return self, args, kwargs, fun

    assert function(self=1, args=2, kwargs=3, fun=4) == (1, 2, 3, 4)


def test_jax_and_numpy_arrays_are_traced() -> None:
    seen: list[Any] = []

    @treepress.filter_jit
    def function(*args: Any) -> Any:
        seen.extend(args)
        return args

    scalars = (np.float32(1), np.int32(2), np.bool_(True))
    out = function(X, np.ones(2), *scalars, np.ones(2).view(np.matrix))
    assert all(isinstance(arg, jax.core.Tracer) for arg in seen)
    assert all(isinstance(arg, jax.Array) for arg in out)
    count = len(seen)
    function(np.zeros(3, np.float32), jnp.ones(2), *scalars, jnp.ones((1, 2)))
    assert len(seen) <= 2 * count


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, 1 + 0j),
        (0, 0.0, -0.0, False),
        ((1,), (1.0,), (True,)),
        ("a", b"a"),
        (frozenset([1]), frozenset([True])),
        (0j, -0j, complex(0.0, -0.0)),
    ],
)
def test_static_values_by_type(values: Any) -> None:
    traces = Traces(lambda x, value: (x, value))
    jitted = treepress.filter_jit(traces.function)
    for _ in range(3):
        for value in values:
            out = jitted(X, value)[1]
            assert type(out) is type(value)
            assert repr(out) == repr(value)
    assert traces.count == len(values)


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0.0, -0.0),
        ((1, (2,)), (1.0, (2,)), (1, (True,))),
        ([1], [1.0]),
        ({"a": 1}, {"a": True}),
        ({1: 1}, {True: 1}),
    ],
)
@pytest.mark.parametrize("base", [eqx.Module, treepress.Module])
def test_static_fields_by_type(values: Any, base: Any) -> None:
    class Holds(base):  # type: ignore[misc]
        array: jax.Array
        value: Any = eqx.field(static=True)

    traces = Traces(lambda x: x)
    jitted = treepress.filter_jit(traces.function)
    for _ in range(3):
        for value in values:
            assert repr(jitted(Holds(X, value)).value) == repr(value)
            assert repr(jitted(Holds(X, copy.copy(value))).value) == repr(value)
    assert traces.count == len(values)


def test_keys_of_dicts_by_type() -> None:
    traces = Traces(lambda x: x)
    jitted = treepress.filter_jit(traces.function)
    for _ in range(2):
        for key in (1, True, 1.0, "a", (1,), (True,)):
            assert repr(list(jitted({key: X}))) == repr([key])
    assert traces.count == 6
    jitted({"b": 1, "a": X})
    jitted({"a": X, "b": 1})
    assert traces.count == 7


def test_nan_by_identity() -> None:
    traces = Traces(lambda x, value: value)
    jitted = treepress.filter_jit(traces.function)
    nan = float("nan")
    for _ in range(3):
        assert jitted(X, nan) is nan
    assert traces.count == 1
    other = float("nan")
    assert jitted(X, other) is other
    assert traces.count == 2


def test_equal_values_share_a_trace() -> None:
    traces = Traces(lambda x, value: value)
    jitted = treepress.filter_jit(traces.function)
    for _ in range(3):
        jitted(X, "".join(["a", "b"]))
        jitted(X, float("1.5"))
        jitted(X, int("100000"))
        jitted(X, (int("100000"), "".join(["a", "b"])))
    assert traces.count == 4


def test_a_hash_that_changes() -> None:
    class Mutable:
        value = 1

        def __hash__(self) -> int:
            return self.value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Mutable) and self.value == other.value

    # What Equinox does depends on how many calls are cached.
    traces = Traces(lambda x, value: x)
    mutable = Mutable()
    jitted = treepress.filter_jit(traces.function)
    jitted(X, mutable)
    jitted(X, mutable)
    mutable.value = 2
    jitted(X, mutable)
    assert traces.count == 2


def test_static_fields_without_a_hash() -> None:
    counts = []
    for jit in (eqx.filter_jit, treepress.filter_jit):
        traces = Traces(lambda m, x: m.bias)
        jitted = jit(traces.function)
        names = ["a"]
        jitted(Linear(X, X, names), X)
        jitted(Linear(X, X, ["a"]), X)
        jitted(Linear(X, X, ["b"]), X)
        # By identity, so nobody sees that it has changed.
        jitted(Linear(X, X, names), X)
        names.append("b")
        jitted(Linear(X, X, names), X)
        counts.append(traces.count)
    assert counts == [2, 2]


@pytest.mark.parametrize("kind", [OrderedDict, defaultdict])
def test_a_module_whose_dict_is_of_another_class(kind: Any) -> None:
    class Odd(treepress.Module):
        x: Any

        def __init__(self, x: Any) -> None:
            state = kind()
            state["x"] = x
            object.__setattr__(self, "__dict__", state)

    traces = Traces(lambda odd: odd)
    jitted = treepress.filter_jit(traces.function)
    for _ in range(3):
        assert jitted(Odd(X)).x.shape == X.shape
    assert traces.count == 1


def test_an_array_of_a_class_without_a_module() -> None:
    class Sub(np.ndarray):
        pass

    Sub.__module__ = None  # type: ignore[assignment]
    out = treepress.filter_jit(lambda x: x)(np.ones(2).view(Sub))
    assert out.shape == (2,)


@dataclasses.dataclass(frozen=True)
class Setting:
    value: Any


class Counted:
    """Equality that is a number."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> Any:
        return int(isinstance(other, Counted) and self.value == other.value)

    def __hash__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "values",
    [
        (np.float64(1.5), np.float64(1.5), np.float64(2.5)),
        (np.int64(1), np.int64(1), np.int64(2)),
        (Setting(np.float64(1.5)), Setting(np.float64(1.5)), Setting(np.float64(2.5))),
        (Counted(1), Counted(1), Counted(2)),
        (Setting(Counted(1)), Setting(Counted(1)), Setting(Counted(2))),
    ],
)
@pytest.mark.parametrize("place", ["field", "leaf", "nested"])
def test_equality_that_is_no_bool(values: Any, place: str) -> None:
    def given(value: Any) -> Any:
        if place == "leaf":
            return X, value
        return Linear(X, X, value if place == "field" else (value, [value]))

    counts = []
    for jit in (eqx.filter_jit, treepress.filter_jit):
        traces = Traces(lambda tree: X)
        jitted = jit(traces.function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers of NumPy's in static fields
            for value in (*values, *values):
                jitted(given(value))
        counts.append(traces.count)
    assert counts[0] == counts[1]
    assert counts[1] == 2 or isinstance(values[0], np.generic)


def test_a_static_field_that_cannot_be_compared() -> None:
    for jit in (eqx.filter_jit, treepress.filter_jit):
        jitted = jit(lambda m, x: m.bias)
        array = np.arange(3)
        for _ in range(2):
            jitted(Linear(X, X, array), X)
            if jit is treepress.filter_jit:
                # For Equinox this alone is an error.
                jitted(Linear(X, X, "other"), X)
        with pytest.raises(ValueError, match="compar|equality"):
            jitted(Linear(X, X, np.arange(3)), X)
    treepress.filter_jit(Linear(X, X, np.arange(3)))
    with pytest.raises(
        ValueError, match="a static value in the function .*Linear cannot be"
    ):
        treepress.filter_jit(Linear(X, X, np.arange(3)))


def test_arguments_without_a_hash() -> None:
    @treepress.filter_jit
    def function(x: Any, *args: Any, y: Any = None) -> Any:
        return x

    message = "the argument 'x' of .*function is of type set, which has no hash"
    with pytest.raises(ValueError, match=message):
        function({1})
    with pytest.raises(
        ValueError, match=r"the argument number 2 of .* at \['a'\]\[1\], is"
    ):
        function(X, X, {"a": [X, bytearray()]})
    with pytest.raises(
        ValueError, match=r"the argument 'y' of .* at \[0\], is of type set"
    ):
        function(X, y=({1},))
    with pytest.raises(ValueError, match="Non-hashable"):
        eqx.filter_jit(function.__wrapped__)({1})  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no hash"):
        treepress.filter_jit(eqx.Partial(function, {1}))


def test_keys_that_cannot_be_sorted() -> None:
    for jit in (eqx.filter_jit, treepress.filter_jit):
        with pytest.raises(ValueError, match="sort"):
            jit(lambda x: x)({1: X, "a": X})


def test_trees_that_are_nested_too_deep() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError, match="the argument 'x' .* nested too deep"):
        treepress.filter_jit(lambda x: x)(endless)
    with pytest.raises(RecursionError, match="result .* nested too deep"):
        treepress.filter_jit(lambda x: endless)(X)


def test_deep_trees_and_deep_statics() -> None:
    deep: Any = X
    value: Any = 1
    for _ in range(100):
        deep = [deep]
    for _ in range(300):
        value = (value,)
    jitted = treepress.filter_jit(lambda x: x)
    assert same(jitted(deep), deep)
    assert jitted(Linear(X, X, value)).name is value
    out = jitted(Linear(X, X, (value, 1)))
    assert out.name[0] is value


# Results.

Point = namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: None,
        lambda x: (),
        lambda x: 1,
        lambda x: "text",
        lambda x: [x, 1, None, (x, {"b": x, "a": 2.0})],
        lambda x: Point(x, 3),
        lambda x: OrderedDict([("b", x), ("a", jnp.tanh)]),
        lambda x: {1: x, 2: [1]},
        lambda x: Linear(x, x, "other"),
        lambda x: Linear(x, x, ["no", "hash"]),
        lambda x: Linear(x, x).shifted,
        lambda x: (jnp.ones(2), np.ones(2), 3 * x),
        lambda x: treepress.filter_jit(Linear(x, x))(x),
        lambda x: {1, 2},
        lambda x: jtu.Partial(jnp.add, x),
        lambda x: treepress.Partition({"b": x, "a": 1}),
    ],
)
def test_results(make: Any) -> None:
    for _ in range(3):
        ours = treepress.filter_jit(make)(X)
        assert same(ours, eqx.filter_jit(make)(X))


def test_a_result_whose_structure_depends_on_shapes() -> None:
    @treepress.filter_jit
    def function(x: jax.Array) -> Any:
        return {"even": x, "n": len(x)} if len(x) % 2 == 0 else [x, len(x)]

    for _ in range(3):
        assert same(function(jnp.ones(2)), {"even": jnp.ones(2), "n": 2})
        assert same(function(jnp.ones(3)), [jnp.ones(3), 3])
        assert same(function(jnp.ones(5)), [jnp.ones(5), 5])


def test_a_module_without_all_its_fields() -> None:
    class Late(eqx.Module):
        first: Any
        second: Any = eqx.field(static=True)

    jitted = treepress.filter_jit(lambda m: m)
    for values in ({"first": X}, {"second": 2}, {}, {"first": X, "second": 3}):
        for _ in range(2):
            late = object.__new__(Late)
            vars(late).update(values)
            out = jitted(late)
            again = jax.tree.map(lambda x: x, late)
            assert {name: type(value) for name, value in vars(out).items()} == {
                name: type(value) for name, value in vars(again).items()
            }


# Donation.


@pytest.mark.parametrize("donate", ["all", "all-except-first", "warn", "warn-except-first"])
def test_donation(donate: Any) -> None:
    for jit in (eqx.filter_jit, treepress.filter_jit):

        @jit(donate=donate)
        def function(a: Any, b: Any, *, c: Any) -> Any:
            return a + 1, [b[0] + 1, 2], c + 1

        a, b, c = jnp.ones(3), [jnp.ones(4), 2], jnp.ones(5)
        for _ in range(3):
            old: Any = (a, b[0], c)
            a, b, c = function(a, b, c=c)
            first = "first" not in donate
            assert [x.is_deleted() for x in old] == [first, True, True]


def test_donation_by_keywords() -> None:
    @treepress.filter_jit(donate="all-except-first")
    def function(a: Any, b: Any) -> Any:
        return a + 1, b + 1

    a, b = jnp.ones(3), jnp.ones(4)
    function(b=b, a=a)
    assert (a.is_deleted(), b.is_deleted()) == (False, True)


def test_donation_of_a_module(linear: Linear) -> None:
    x = jnp.ones(3)
    assert same(linear.donating(x), 2 * jnp.ones(3))
    assert x.is_deleted()
    assert not linear.weight.is_deleted()
    for jit in (eqx.filter_jit, treepress.filter_jit):
        for donate in ("all", "all-except-first", "none"):
            model = Linear(jnp.ones(3), jnp.ones(3))
            both = eqx.Partial(lambda m, x: (m, x), model)
            jit(both, donate=donate)(x := jnp.ones(4))
            assert model.weight.is_deleted() == (donate != "none")
            assert x.is_deleted() == (donate == "all")


@pytest.mark.parametrize(("donate", "expected"), [("all", 0), ("warn", 1)])
def test_warnings_of_donated_buffers(donate: Any, expected: int) -> None:
    for jit in (eqx.filter_jit, treepress.filter_jit):
        jitted = jit(lambda x: x.sum(), donate=donate)
        for shape in (3, 4):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                jitted(jnp.ones(shape))
            assert len([w for w in caught if "donated" in str(w.message)]) == expected


def test_a_wrong_word_for_donation() -> None:
    with pytest.raises(ValueError, match=r"donate is \[\]; it is one of 'all', "):
        treepress.filter_jit(print, donate=[])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="donate is 'some'; it is one of 'all', "):
        treepress.filter_jit(lambda x: x, donate="some")  # type: ignore[call-overload]


# Arguments of jax.jit.


def test_arguments_of_jit() -> None:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return x

    jitted = treepress.filter_jit(function, inline=True, keep_unused=True)
    assert same(jitted(X, X), X)
    assert "inline=True" in str(jax.make_jaxpr(jitted)(X, X)) or "pjit" not in str(
        jax.make_jaxpr(jitted)(X, X)
    )
    with pytest.raises(TypeError, match="no_such_thing"):
        treepress.filter_jit(function, no_such_thing=1)


@pytest.mark.parametrize(
    "name",
    [
        *("static_argnums", "static_argnames", "donate_argnums"),
        *("in_shardings", "out_shardings", "default", "args"),
    ],
)
def test_refused_arguments_of_jit(name: str) -> None:
    keywords: Any = {name: 0}
    for jit in (eqx.filter_jit, treepress.filter_jit):
        with pytest.raises(ValueError, match=name):
            jit(lambda x: x, **keywords)


def test_names_in_the_lowered_code() -> None:
    def with_a_name(x: jax.Array) -> jax.Array:
        return x

    assert "jit_with_a_name" in treepress.filter_jit(with_a_name).lower(X).as_text()  # type: ignore[attr-defined]


# Ahead of time.


def test_lower_and_compile(linear: Linear) -> None:
    traces = Traces(lambda m, x, *, k=2: {"out": m(x) * k, "k": k})
    jitted: Any = treepress.filter_jit(traces.function)
    lowered = jitted.lower(linear, X)
    assert "stablehlo" in lowered.as_text()
    assert {"as_text", "compile", "lowered"} <= set(dir(lowered))
    assert isinstance(lowered.lowered, jax.stages.Lowered)
    assert lowered.out_info["out"].shape == (3,)
    compiled = lowered.compile()
    assert isinstance(compiled.compiled, jax.stages.Compiled)
    assert isinstance(compiled.as_text(), str)
    assert same(compiled(linear, X), {"out": linear(X) * 2, "k": 2})
    assert same(compiled(linear, x=X), {"out": linear(X) * 2, "k": 2})
    jitted(linear, X)
    assert traces.count == 1
    with pytest.raises(
        TypeError, match="was compiled for 2 positional arguments, of whose 3"
    ):
        compiled(linear, 1)
    with pytest.raises(TypeError, match="by keyword"):
        compiled(linear, X, k=X)
    with pytest.raises(TypeError, match="missing a required argument"):
        compiled(linear)
    with pytest.raises(AttributeError):
        compiled._nothing  # noqa: B018


def test_lower_and_compile_a_module(linear: Linear) -> None:
    jitted: Any = treepress.filter_jit(linear)
    assert same(jitted.lower(X).compile()(X), linear(X))


@pytest.mark.skipif(not hasattr(jax.jit(lambda: None), "trace"), reason="an old JAX")
def test_trace(linear: Linear) -> None:
    filter_jit: Any = treepress.filter_jit
    jitted = filter_jit(lambda m, x: [m(x), 1])
    traced = jitted.trace(linear, X)
    assert isinstance(traced.traced, jax.stages.Traced)
    assert len(traced.jaxpr.in_avals) >= 3
    assert traced.out_info[1] == 1
    assert same(traced.lower().compile()(linear, X), [linear(X), 1])


def test_cache_size() -> None:
    filter_jit: Any = treepress.filter_jit
    jitted = filter_jit(lambda x, y=1: x)
    assert jitted._cache_size() == 0
    jitted(X)
    jitted(X)
    assert jitted._cache_size() == 1
    jitted(X, 2)
    jitted(jnp.ones(4), 2)
    assert jitted._cache_size() == 3
    jitted.clear_cache()
    assert jitted._cache_size() == 0
    assert same(jitted(X), X)


# Inside and around other transformations.


def quadratic(tree: Any, x: jax.Array) -> Any:
    return {"y": tree["a"] * x * x, "text": "static"}


def test_inside_of_others() -> None:
    jitted = treepress.filter_jit(quadratic)
    tree = {"a": jnp.array(2.0), "b": "static"}

    def y(x: jax.Array) -> Any:
        return jitted(tree, x)["y"]

    assert same(jax.jit(y)(X), 2 * X * X)
    assert same(jax.vmap(y)(X), 2 * X * X)
    assert same(jax.grad(lambda x: y(x).sum())(X), 4 * X)
    assert same(jax.jvp(y, (X,), (X,))[1], 4 * X * X)
    assert same(jax.jacfwd(y)(X), jnp.diag(4 * X))
    assert same(jax.checkpoint(y)(X), 2 * X * X)
    assert same(jax.grad(lambda x: jax.checkpoint(y)(x).sum())(X), 4 * X)
    assert same(jax.lax.scan(lambda c, x: (c, y(x)), 0, X)[1], 2 * X * X)
    assert same(jax.lax.cond(True, y, lambda x: x, X), 2 * X * X)
    assert jax.eval_shape(y, X).shape == (3,)
    assert "mul" in str(jax.make_jaxpr(y)(X))
    for make in (eqx.filter_jit, eqx.filter_vmap, eqx.filter_checkpoint):
        assert same(make(y)(X), 2 * X * X)
    assert same(eqx.filter_grad(lambda x: y(x).sum())(X), 4 * X)
    assert eqx.filter_eval_shape(jitted, tree, X)["text"] == "static"
    assert same(eqx.filter_closure_convert(y, X)(X), 2 * X * X)


def test_around_others() -> None:
    def jit(function: Any) -> Any:
        return treepress.filter_jit(function)

    def square(x: jax.Array) -> jax.Array:
        return x * x

    assert same(jit(jax.jit(square))(X), X * X)
    assert same(jit(jax.vmap(square))(X), X * X)
    assert same(jit(jax.grad(lambda x: square(x).sum()))(X), 2 * X)
    assert same(jit(jax.checkpoint(square))(X), X * X)
    assert same(
        jit(lambda x: jax.lax.scan(lambda c, y: (c + y, c), x[0], x))(X)[0], X.sum()
    )
    assert same(jit(eqx.filter_vmap(square))(X), X * X)
    assert same(jit(jit(square))(X), X * X)
    assert jit(lambda x: jax.eval_shape(square, x).shape)(X) == (3,)


def test_export() -> None:
    export = pytest.importorskip("jax.export")
    pytest.importorskip("flatbuffers")
    jitted = treepress.filter_jit(quadratic)
    function = jax.jit(lambda a, x: jitted({"a": a, "b": 1}, x)["y"])
    exported = export.export(function)(jnp.array(2.0), X)
    again = export.deserialize(exported.serialize())
    assert same(again.call(jnp.array(2.0), X), 2 * X * X)


def test_a_jitted_function_as_an_argument(linear: Linear) -> None:
    jitted = treepress.filter_jit(linear)
    apply = treepress.filter_jit(lambda f, x: f(x))
    for _ in range(2):
        assert same(apply(jitted, X), linear(X))
        assert same(jax.jit(lambda f, x: f(x))(jitted, X), linear(X))
    stacked = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), jitted)
    assert same(
        jax.vmap(lambda f, x: f(x), in_axes=(0, None))(stacked, X),
        jnp.stack([linear(X), 2 * linear(X)]),
    )


def test_a_function_whose_arrays_were_taken_out(linear: Linear) -> None:
    arrays, rest = eqx.partition(treepress.filter_jit(linear), eqx.is_array)
    assert jax.tree.leaves(rest) == []
    assert same(eqx.combine(arrays, rest)(X), linear(X))
    with pytest.raises(TypeError, match="has 0 of its 2 arrays"):
        rest(X)


def test_copies(linear: Linear) -> None:
    for function in (linear, lambda x: 2 * x):
        jitted = treepress.filter_jit(function, inline=True)
        for again in (copy.copy(jitted), copy.deepcopy(jitted)):
            assert same(again(jnp.array(X)), function(X))
        again = cloudpickle.loads(cloudpickle.dumps(jitted))
        assert same(again(jnp.array(X)), function(X))
        assert repr(again) == repr(jitted)


def ahead_of_time(function: Any, donate: Any) -> Any:
    jitted: Any = treepress.filter_jit(function, donate=donate)
    return lambda *args: jitted.lower(*args).compile()(*args)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("donate", ["all", "all-except-first", "warn", "warn-except-first"])
def test_arrays_of_the_function_are_donated_in_equinox_order(donate: Any) -> None:
    class Model(eqx.Module):
        w: jax.Array

        def __call__(self, x: jax.Array, *rest: jax.Array) -> jax.Array:
            return x * self.w + sum(rest)

        def method(self, x: jax.Array, y: Any = None) -> jax.Array:
            return x * self.w

    def deleted(filter_jit: Any, pick: Any, *shape: int) -> Any:
        model = Model(jnp.ones(2))
        given = [jnp.arange(2.0) for _ in shape]
        out = filter_jit(pick(model), donate=donate)(*given)
        assert same(out, pick(Model(jnp.ones(2)))(*[jnp.arange(2.0) for _ in shape]))
        return [x.is_deleted() for x in (model.w, *given)]

    for pick in (
        lambda model: model,
        lambda model: model.method,
        lambda model: jax.tree_util.Partial(lambda w, x, *y: x * w, model.w),
    ):
        for shape in ((0,), (0, 0)):
            one = deleted(eqx.filter_jit, pick, *shape)
            assert deleted(treepress.filter_jit, pick, *shape) == one
            assert deleted(ahead_of_time, pick, *shape) == one


# Errors from the device.


def checked(x: jax.Array) -> Any:
    return eqx.error_if(x, x.sum() > 100, "much too big"), "static"


def raised(function: Callable[[], Any]) -> str:
    with pytest.raises(_runtime.EquinoxRuntimeError) as error:
        jax.block_until_ready(function())
    assert "much too big" in str(error.value)
    return str(error.value)


def test_errors_from_the_device(caplog: Any) -> None:
    jitted = treepress.filter_jit(checked)
    # At the first call, and when it was called before without an error.
    text = raised(lambda: jitted(100 * X))
    assert "return eqx.error_if" in text
    assert "_calls.py" not in text
    assert same(jitted(X), (X, "static"))
    for _ in range(3):
        assert raised(lambda: jitted(100 * X)) == text
    # A second shape.
    assert same(jitted(jnp.ones(2)), (jnp.ones(2), "static"))
    raised(lambda: jitted(100 * jnp.ones(2)))
    assert "pure_callback failed" not in caplog.text


def test_errors_from_the_device_have_no_frames_of_ours() -> None:
    def run() -> str:
        # Another function each time, of which JAX knows the part that raises.
        return raised(lambda: treepress.filter_jit(lambda x: checked(x)[0])(100 * X))

    for _ in range(3):
        assert os.path.dirname(treepress.__file__) not in run()


def hidden(function: Any) -> Any:
    """A primitive that shows nothing of the function it runs."""
    primitive = jax.extend.core.Primitive("hidden")
    primitive.def_impl(function)
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    ad.primitive_jvps[primitive] = lambda xs, ts: (primitive.bind(*xs), ts[0])
    return primitive.bind


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: lambda x: jax.vmap(f)(x[None]),
        lambda f: lambda x: jax.jit(f)(x),
        lambda f: lambda x: treepress.filter_jit(f)(x),
        lambda f: lambda x: eqx.filter_jit(f)(x),
        lambda f: lambda x: jax.lax.scan(lambda c, y: (f(c), y), x, x)[0],
        lambda f: lambda x: jax.lax.cond(x[0] < 1e9, f, lambda x: x, x),
        lambda f: (
            lambda x: jax.lax.while_loop(
                lambda c: c[1] < 2, lambda c: (f(c[0]), c[1] + 1), (x, 0)
            )
        ),
        jax.checkpoint,
        lambda f: lambda x: eqxi.noinline(f)(x),
        lambda f: lambda x: hidden(f)(x),
        lambda f: lambda x: jax.grad(lambda x: (f(x) ** 2).sum())(x),
    ],
)
def test_errors_from_deep_within(wrap: Any) -> None:
    jitted = treepress.filter_jit(wrap(lambda x: checked(x)[0]))
    for _ in range(2):
        jax.block_until_ready(jitted(X))
        raised(lambda: jitted(100 * X))


def test_an_error_that_first_came_up_within_another_trace() -> None:
    jitted = treepress.filter_jit(checked)
    jax.eval_shape(lambda x: jitted(x)[0], X)
    jax.jit(lambda x: jitted(x)[0])(X)
    raised(lambda: jitted(100 * X))


def test_who_waits() -> None:
    waited: list[Any] = []

    def spy(arrays: Any) -> None:
        waited.append(arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_runtime, "wait", spy)
        plain = treepress.filter_jit(lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x))
        callback = treepress.filter_jit(
            lambda x: jax.pure_callback(lambda x: x, jax.eval_shape(lambda x: x, x), x)
        )
        printing = treepress.filter_jit(lambda x: (jax.debug.callback(lambda: None), x))
        for _ in range(3):
            plain(X)
            callback(X)
            printing(X)
        assert not waited
        checks = treepress.filter_jit(checked)
        for _ in range(3):
            checks(X)
        assert len(waited) == 3


def test_what_jax_does_not_show() -> None:
    class Opaque:
        def trace(self, *args: Any) -> Any:
            raise AttributeError("trace")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_runtime, "_warned", False)
        with pytest.warns(RuntimeWarning, match="each call waits for the device"):
            assert _runtime.waits(Opaque(), [])
        assert _runtime.waits(Opaque(), [])


def test_an_equinox_that_is_not_known() -> None:
    from treepress import jit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_runtime, "reason", "nothing is as it was")
        patch.setattr(jit, "_stepped", False)
        with pytest.warns(
            RuntimeWarning, match="treepress.filter_jit is equinox.filter_jit"
        ):
            stepped = treepress.filter_jit(lambda x: x)
        assert type(stepped) is type(eqx.filter_jit(lambda x: x))
        treepress.filter_jit(lambda x: x)


def test_errors_of_a_trace() -> None:
    @treepress.filter_jit
    def function(x: Any, fail: Any) -> Any:
        if fail:
            raise KeyError("mine")
        return x

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            function(X, True)
        assert same(function(X, False), X)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        function(X, X[0])


# What jax.jit heeds.


def counts(steps: Callable[[Any], None]) -> list[int]:
    """How often each of the two traces in the same steps."""
    found = []
    for jit in (eqx.filter_jit, treepress.filter_jit):
        traces = Traces(lambda x: [x + 1, "static"])
        steps(jit(traces.function))
        found.append(traces.count)
    return found


def test_keys_and_their_arrays() -> None:
    traces = Traces(lambda key, y: [key, y])
    jitted = treepress.filter_jit(traces.function)
    for seed in range(3):
        key = jax.random.key(seed)
        assert jitted(key, 1)[0].dtype == key.dtype
    assert traces.count == 1


def test_disable_jit() -> None:
    def steps(jitted: Any) -> None:
        jitted(X)
        with jax.disable_jit():
            assert same(jitted(X), [X + 1, "static"])
            assert same(jitted(X), [X + 1, "static"])
        assert same(jitted(X), [X + 1, "static"])

    ours, theirs = counts(steps)
    assert ours == theirs == 3


def test_x64() -> None:
    experimental: Any = jax.experimental
    if not hasattr(experimental, "enable_x64"):
        pytest.skip("this JAX has no such context")

    def steps(jitted: Any) -> None:
        for _ in range(2):
            jitted(np.ones(3))
            with experimental.enable_x64():
                assert jitted(np.ones(3))[0].dtype == np.float64

    ours, theirs = counts(steps)
    assert ours == theirs


def test_other_contexts() -> None:
    def steps(jitted: Any) -> None:
        for _ in range(2):
            jitted(X)
            with jax.default_matmul_precision("highest"):
                jitted(X)

    ours, theirs = counts(steps)
    assert ours == theirs


def test_transfer_guard() -> None:
    jitted = treepress.filter_jit(lambda x, y: [x + y, 1])
    y = jnp.array(X)
    jitted(X, y)
    with jax.transfer_guard("disallow"):
        jitted(X, y)
        with pytest.raises(Exception, match="isallow"):
            jitted(X, np.ones(3, np.float32))


def test_clear_caches() -> None:
    def steps(jitted: Any) -> None:
        jitted(X)
        jax.clear_caches()
        jitted(X)
        eqx.clear_caches()
        jitted(X)

    ours, theirs = counts(steps)
    assert ours == theirs


def test_weak_types() -> None:
    def steps(jitted: Any) -> None:
        for x in (jnp.asarray(1.0), jnp.array(1.0, jnp.float32), jnp.asarray(2.0)):
            assert jitted(x)[0].weak_type == x.weak_type

    ours, theirs = counts(steps)
    assert ours == theirs


def test_committed_arrays_and_shardings() -> None:
    device = jax.devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]), "x")
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    def steps(jitted: Any) -> None:
        for _ in range(2):
            for x in (X, jax.device_put(X, device), jax.device_put(X, sharding)):
                out = jitted(x)[0]
                assert out.committed == x.committed
                assert out.sharding.is_equivalent_to(x.sharding, 1)

    ours, theirs = counts(steps)
    assert ours == theirs


def test_default_device() -> None:
    jitted = treepress.filter_jit(lambda x: x + 1)
    with jax.default_device(jax.devices()[0]):
        assert same(jitted(X), X + 1)


# What is kept.


def test_arrays_are_not_kept() -> None:
    jitted = treepress.filter_jit(lambda m, x, *, y: (m, [x, y]))
    model = Linear(jnp.ones(3), jnp.ones(3))
    x, y = jnp.ones(3), np.ones(3)
    out = jitted(model, x, y=y)
    references = [weakref.ref(a) for a in (model.weight, x, y, out[0].weight, out[1][0])]
    del model, x, y, out
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


def test_functions_are_not_kept() -> None:
    def make() -> Any:
        big = np.ones(1000)

        def function(x: Any, y: Any = 1) -> Any:
            return x + big.sum(), y

        jitted = treepress.filter_jit(function)
        jitted(X)
        jitted(X, 2)
        return weakref.ref(big), weakref.ref(function)

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_tracers_are_not_kept() -> None:
    with jax.checking_leaks():
        jitted = treepress.filter_jit(lambda x: [x, 1])
        jax.jit(lambda x: jitted(x)[0])(X)
        jitted(X)


@pytest.fixture
def few() -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_calls, "MOST_ENTRIES", 8)
        patch.setattr(_calls, "MOST_FORMS", 8)
        patch.setattr(_calls, "MOST_CACHES", 8)
        yield 8


def test_few_structures_are_kept(few: int) -> None:
    traces = Traces(lambda *args, **kwargs: args)
    jitted: Any = treepress.filter_jit(traces.function)
    for i in range(3 * few):
        jitted(X, i)
        jitted(X, 0)
    cache = jitted._kept.cache
    assert cache.count <= few
    assert len(cache.entries()) == cache.count
    # What is looked up is kept.
    assert traces.count == 3 * few
    for i in range(3 * few):
        jitted(*[0] * i)
        jitted(**{f"k{i}": 0})
    assert len(jitted._calls.forms) <= few


def test_few_functions_are_kept(few: int) -> None:
    for i in range(3 * few):
        treepress.filter_jit(eqx.Partial(lambda x, y: x, i))
    assert len(_calls._others) <= few


def test_the_size_of_the_cache_under_breakpoints() -> None:
    code = (
        "import jax.numpy as jnp, treepress\n"
        "jitted = treepress.filter_jit(lambda x: x)\n"
        "jitted(jnp.ones(2))\n"
        "print(jitted._cache_size())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "EQX_ON_ERROR": "breakpoint"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, treepress
from jax.sharding import Mesh, NamedSharding, PartitionSpec

class Box(eqx.Module):
    value: jax.Array
    unit: str = eqx.field(static=True)

traces = {}

def made(jit):
    def scaled(box, by):
        traces[jit] += 1
        return Box(box.value * by, box.unit), box.value.sum()
    traces[jit] = 0
    return jit(scaled)

theirs, ours = made(eqx.filter_jit), made(treepress.filter_jit)

def compare(value):
    (box, total), (box2, total2) = [f(Box(value, "m"), 2.0) for f in (theirs, ours)]
    assert box.value.sharding == box2.value.sharding
    assert box.value.committed == box2.value.committed
    assert np.array_equal(box.value, box2.value) and total == total2
    assert total.sharding == total2.sharding and total.committed == total2.committed
    assert len(set(traces.values())) == 1, traces

devices = jax.devices()
assert len(devices) == 4
mesh = Mesh(np.array(devices), ("x",))
x = jnp.arange(8.0)
values = [
    x,
    jax.device_put(x, devices[1]),
    jax.device_put(x, devices[2]),
    jax.device_put(x, NamedSharding(mesh, PartitionSpec("x"))),
    jax.device_put(x, NamedSharding(mesh, PartitionSpec())),
    np.arange(8.0, dtype=np.float32),
]
for _ in range(3):
    for value in values:
        compare(value)
with jax.default_device(devices[3]):
    for value in values:
        compare(value)
    assert ours(Box(values[-1], "m"), 2.0)[0].value.devices() == {devices[3]}
messages = []
for f in (theirs, ours):
    try:
        f(Box(values[1], "m"), values[2])
    except ValueError as error:
        messages.append(str(error)[:60])
assert len(messages) == 2 and messages[0] == messages[1], messages
print("alike")
"""


def test_several_devices() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEVICES], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alike\n"
