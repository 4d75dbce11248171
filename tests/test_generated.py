"""Module classes and trees made at random, under plain Equinox and with our kernels."""

from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from twins import META, Failure, assert_twins, getdict, one_level, outcome

NAMES = ["a", "b", "c", "value", "unit", "é", "class", "self", "_p", "__q", "state"]
WRAPPERS = ["__module__", "__name__", "__qualname__", "__doc__", "__annotations__"]
STATIC = [1, 1.0, True, 0.0, -0.0, float("nan"), "s", None, (1, "a"), int, len, [1], {}]

levels = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.tuples(
            st.sampled_from(["dynamic", "static"]),
            st.sampled_from(["required", "default", "factory", "property"]),
        ),
        max_size=5,
    ),
    min_size=1,
    max_size=3,
)


def make_class(
    base: type, spec: list[dict[str, tuple[str, str]]], mixin_last: bool
) -> type:
    """A class with a level of inheritance for each part of `spec`."""
    cls = base
    for depth, fields in enumerate(spec):
        namespace: dict[str, Any] = {
            "__annotations__": dict.fromkeys(fields, Any),
            "__module__": __name__,
            "__qualname__": f"Level{depth}",
            # One that sets nothing: instances are filled by hand.
            "__init__": lambda self: None,
        }
        for name, (kind, default) in fields.items():
            if default == "property":
                # Hides the field of the level above, if there is one.
                namespace[name] = property(lambda self: "hidden")
                del namespace["__annotations__"][name]
                continue
            keywords: dict[str, Any] = {"static": kind == "static", "kw_only": True}
            if default == "default":
                keywords["default"] = "default"
            elif default == "factory":
                keywords["default_factory"] = list
            namespace[name] = eqx.field(**keywords)
        bases: tuple[type, ...] = (cls,)
        if depth == 0 and base is treepress.Module:
            bases = (treepress.FlatMixin, eqx.Module)
            bases = bases[::-1] if mixin_last else bases
        cls = META(f"Level{depth}", bases, namespace)
    return cls


def fill(
    data: st.DataObject, classes: tuple[Any, Any], children: Any
) -> tuple[eqx.Module, eqx.Module]:
    """An instance of each class with the same fields set, in any order, to the same."""
    pair: tuple[Any, ...] = tuple(object.__new__(cls) for cls in classes)
    plain_fields = {f.name: f for f in classes[0].__dataclass_fields__.values()}
    names = data.draw(st.permutations(list(plain_fields)))
    kept = data.draw(st.sampled_from([len(names), len(names), max(0, len(names) - 1), 0]))
    extra = data.draw(
        st.lists(st.sampled_from([*WRAPPERS, "other"]), unique=True, max_size=2)
    )
    for name in [*names[:kept], *extra]:
        if name in extra or plain_fields[name].metadata.get("static", False):
            value = data.draw(st.sampled_from(STATIC))
            values = (value, value)
        else:
            values = children()
        for obj, value in zip(pair, values, strict=True):
            getdict(obj)[name] = value
    return pair


@pytest.mark.parametrize("how", ["FlatMixin", "accelerate"])
@settings(max_examples=100, deadline=None)
@given(levels, st.booleans(), st.data())
def test_same_as_equinox(
    how: str, spec: Any, mixin_last: bool, data: st.DataObject
) -> None:
    base = treepress.Module if how == "FlatMixin" else eqx.Module
    classes = (
        make_class(eqx.Module, spec, mixin_last),
        make_class(base, spec, mixin_last),
    )
    if how == "accelerate":
        treepress.accelerate(classes[1])
    assert treepress.describe(classes[1]).how == how

    def leaf() -> tuple[Any, Any]:
        obj = data.draw(st.sampled_from([object(), None, 1, 1.5]))
        return obj, obj

    def child() -> tuple[Any, Any]:
        kind = data.draw(
            st.sampled_from(["leaf", "leaf", "leaf", "list", "dict", "module"])
        )
        if kind == "module":
            return fill(data, classes, leaf)
        one, other = leaf()
        if kind == "list":
            return [one, (one,)], [other, (other,)]
        if kind == "dict":
            return {"k": one, "j": [one]}, {"k": other, "j": [other]}
        return one, other

    plain, flat = fill(data, classes, child)
    assert_twins(plain, flat)
    # A second instance of the class, so that what a kernel remembers is put to the test.
    plain_2, flat_2 = fill(data, classes, child)
    assert_twins(plain_2, flat_2)
    assert_twins(plain, flat)
    same = jax.tree.structure(plain) == jax.tree.structure(plain_2)
    assert (jax.tree.structure(flat) == jax.tree.structure(flat_2)) == same


@settings(max_examples=60, deadline=None)
@given(levels, st.data())
def test_tree_map_over_several_trees(spec: Any, data: st.DataObject) -> None:
    classes = make_class(eqx.Module, spec, False), make_class(treepress.Module, spec, False)

    def number() -> tuple[Any, Any]:
        n = data.draw(st.integers(0, 9))
        return n, n

    def pairs(one: Any, other: Any) -> Any:
        return one_level(jax.tree.map(lambda a, b: (a, b), one, other))

    (plain, flat), (plain_2, flat_2) = (fill(data, classes, number) for _ in range(2))
    one, other = outcome(pairs, plain, plain_2), outcome(pairs, flat, flat_2)
    if isinstance(one, Failure):
        assert one[0] is other[0]
    else:
        assert repr(one) == repr(other)
    paths = [
        [jtu.keystr(path) for path, _ in jtu.tree_flatten_with_path((obj, [obj]))[0]]
        for obj in (plain, flat)
    ]
    assert paths[0] == paths[1]
