"""`register_dataclass` against JAX's own."""

import dataclasses
import functools as ft
from collections import deque
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress._node import nodes
from twins import outcome, state

T = TypeVar("T")
static = ft.partial(dataclasses.field, metadata={"static": True})


def pair(define: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The same class registered by JAX and by treepress."""
    return (
        jtu.register_dataclass(define(), *args, **kwargs),
        treepress.register_dataclass(define(), *args, **kwargs),
    )


def fields_of(obj: Any) -> Any:
    return [(f.name, state(getattr(obj, f.name))) for f in dataclasses.fields(obj)]


def assert_same(theirs: Any, ours: Any) -> None:
    leaves, treedef = jax.tree.flatten(theirs)
    our_leaves, our_treedef = jax.tree.flatten(ours)
    assert state(leaves) == state(our_leaves)
    assert str(treedef) == str(our_treedef)
    paths, our_paths = (
        [path for path, _ in jtu.tree_flatten_with_path(obj)[0]] for obj in (theirs, ours)
    )
    assert paths == our_paths
    new_leaves = [object() for _ in leaves]
    again, our_again = treedef.unflatten(new_leaves), our_treedef.unflatten(new_leaves)
    assert type(our_again) is type(ours)
    assert fields_of(again) == fields_of(our_again)
    assert jax.tree.structure(our_again) == our_treedef


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"slots": True},
        {"frozen": True, "slots": True},
        {"kw_only": True},
        {"eq": False},
        {"frozen": True, "slots": True, "weakref_slot": True},
    ],
    ids=str,
)
def test_kinds_of_dataclasses(options: Any) -> None:
    def define() -> Any:
        @dataclasses.dataclass(**options)
        class Point:
            x: Any
            frame: Any = static()
            y: Any  # type: ignore[misc]
            n: Any = static(default=1)

        return Point

    values = {"x": object(), "y": [object(), None], "frame": "local"}
    theirs, ours = pair(define)
    assert_same(theirs(**values), ours(**values))
    if options.get("frozen"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            jax.tree.map(lambda x: x, ours(**values)).x = 1


def test_inherited_generic_and_own_init() -> None:
    def define() -> Any:
        @dataclasses.dataclass
        class Parent(Generic[T]):
            x: T
            frame: str = static()

        @dataclasses.dataclass
        class Child(Parent[int]):
            y: Any = 2
            calls: list[int] = dataclasses.field(default_factory=list, init=False)

            def __init__(self, x: Any, frame: str, y: Any = 2) -> None:
                self.x, self.frame, self.y, self.calls = x, frame, y, [1]

        return Child

    cls = treepress.register_dataclass(define())
    again = jax.tree.map(lambda x: x, cls(1, "local"))
    assert fields_of(again) == fields_of(cls(1, "local"))
    jax_cls = jtu.register_dataclass(define(), ["x", "y"], ["frame"], drop_fields=["calls"])
    our_cls = treepress.register_dataclass(
        define(), ["x", "y"], ["frame"], drop_fields=["calls"]
    )
    assert str(jax.tree.structure(jax_cls(1, "a"))) == str(
        jax.tree.structure(our_cls(1, "a"))
    )


def test_init_and_post_init_are_never_called() -> None:
    @treepress.register_dataclass
    @dataclasses.dataclass
    class Counted:
        x: Any
        length: Any = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            assert type(self.x) is float
            self.length = abs(self.x)

    counted = Counted(-3.0)
    assert jax.tree.leaves(counted) == [-3.0, 3.0]
    again = jax.tree.map(str, counted)
    assert (again.x, again.length) == ("-3.0", "3.0")
    assert jax.jit(lambda c: c)(counted).length == 3.0


def test_dropped_fields_get_their_defaults() -> None:
    for options in ({}, {"slots": True}):

        @treepress.register_dataclass(drop_fields=["cache", "n", "rest"])
        @dataclasses.dataclass(**options)
        class Cached:
            x: Any
            cache: Any = dataclasses.field(default_factory=dict)
            n: Any = 5
            rest: Any = dataclasses.field(init=False, repr=False)

        cached = Cached(1)
        cached.cache["k"] = 1
        cached.n = 6
        again, third = (jax.tree.map(lambda x: x, cached) for _ in range(2))
        assert (again.x, again.cache, again.n) == (1, {}, 5)
        assert again.cache is not third.cache
        assert not hasattr(again, "rest")
        assert treepress.describe(Cached).dynamic == ("x",)


def test_any_class_with_fields_given() -> None:
    class Plain:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    assert treepress.register_dataclass(Plain, ["x"], ["y"]) is Plain
    again = jax.tree.map(lambda x: x + 1, Plain(1, "y"))
    assert (again.x, again.y) == (2, "y")


def test_odd_names() -> None:
    names = ["self", "cls", "é", "_private", "new", "set", "class", "c0"]

    class Odd:
        pass

    treepress.register_dataclass(Odd, names, ["s0"])
    odd = Odd()
    for name in [*names, "s0"]:
        setattr(odd, name, name)
    assert jax.tree.leaves(odd) == names
    assert vars(jax.tree.map(lambda x: x, odd)) == vars(odd)
    assert [jtu.keystr(path) for path, _ in jtu.tree_flatten_with_path(odd)[0]] == [
        f".{name}" for name in names
    ]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_same_as_jax_on_generated_classes(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefghij"), unique=True))
    kinds = {name: data.draw(st.booleans()) for name in names}
    frozen, slots = data.draw(st.booleans()), data.draw(st.booleans())

    def define() -> Any:
        fields = [(n, Any, static() if kinds[n] else dataclasses.field()) for n in names]
        return dataclasses.make_dataclass("Made", fields, frozen=frozen, slots=slots)

    theirs, ours = pair(define)
    leaf = st.sampled_from([1, 1.5, "s", object()])
    values = [
        data.draw(
            leaf if kinds[n] else st.recursive(leaf, lambda c: st.lists(c, max_size=3))
        )
        for n in names
    ]
    assert_same(theirs(*values), ours(*values))
    assert_same(theirs(*values), ours(*values))
    # A field that is not set is an error with the same words.
    if names:
        for obj in (a := theirs(*values), b := ours(*values)):
            object.__delattr__(obj, names[-1])
        assert outcome(jax.tree.leaves, a) == outcome(jax.tree.leaves, b)


def test_transformations() -> None:
    @treepress.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: Any
        y: Any
        frame: str = static()

    p = Point(jnp.arange(3.0), jnp.ones(3), "local")
    out = jax.jit(lambda p: jax.tree.map(lambda a: 2 * a, p))(p)
    assert out.frame == "local"
    assert out.x.tolist() == [0.0, 2.0, 4.0]
    assert jax.vmap(lambda p: p.x + p.y, in_axes=(Point(0, None, "local"),))(p).shape == (
        3,
        3,
    )
    assert jax.grad(lambda p: (p.x * p.y).sum())(p).y.tolist() == [0.0, 1.0, 2.0]
    carry, _ = jax.lax.scan(
        lambda c, _: (jax.tree.map(lambda a: a + 1, c), None), p, None, 2
    )
    assert carry.y.tolist() == [3.0, 3.0, 3.0]


def some() -> type:
    return dataclasses.make_dataclass(
        "Some", ["a", "b", ("c", Any, dataclasses.field(init=False))]
    )


class Dict(dict):  # type: ignore[type-arg]
    pass


class Module(eqx.Module):
    a: Any


@pytest.mark.parametrize(
    ("cls", "args", "error", "message"),
    [
        (some()(1, 2), (), TypeError, "takes a class"),
        (None, (), TypeError, "takes a class"),
        (object, (), TypeError, "no dataclass"),
        (Module, (), TypeError, "FlatMixin.*treepress.accelerate"),
        (dataclasses.dataclass(Dict), (), TypeError, "written in C"),
        (
            dataclasses.dataclass(type("E", (Exception,), {})),
            (),
            TypeError,
            "written in C",
        ),
        (
            dataclasses.dataclass(type("D", (deque,), {})),
            (),
            TypeError,
            "written in C",
        ),
        (some(), (["a"], None), TypeError, "go together"),
        (some(), (None, ["a"]), TypeError, "go together"),
        (some(), (["a"], []), ValueError, "do not name b, c"),
        (some(), (["a", "b"], []), ValueError, "do not name c"),
        (some(), (["a", "b", "c"], ["d"]), ValueError, "no field d"),
        (some(), (None, None, ["z"]), ValueError, "no field z"),
        (some(), (["a", "b", "c"], ["a"]), ValueError, "a must be in only one"),
        (some(), (["a", "a", "b", "c"], []), ValueError, "a must be in only one"),
        (some(), ("abc", []), TypeError, "is a string"),
        (some(), (["a", 1], []), TypeError, "no string"),
    ],
)
def test_bad_input(cls: Any, args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        treepress.register_dataclass(cls, *args)
    if isinstance(cls, type) and cls is not Module:
        assert treepress.describe(cls).registered_by == "nobody"


def test_registering_twice_changes_nothing() -> None:
    cls = treepress.register_dataclass(some())
    before = treepress.describe(cls)
    with pytest.raises(ValueError, match="Some is registered with JAX already.*once"):
        treepress.register_dataclass(cls, ["a", "b"], ["c"])
    assert treepress.describe(cls) == before


def test_wrong_aux_or_children() -> None:
    cls = treepress.register_dataclass(some())
    unflatten = nodes[cls].functions.unflatten  # type: ignore[union-attr]
    assert unflatten([], [1, 2, 3]).b == 2
    with pytest.raises(ValueError, match=r"cannot unflatten a Some.*a, b, c"):
        unflatten((), (1, 2))
