"""`tree_partition` and `tree_combine`."""

import collections
import collections.abc
import dataclasses
import difflib
import functools as ft
import io
import json
import multiprocessing
import operator
import pickle
import re
import sys
import threading
import weakref
from typing import Any, ClassVar, NamedTuple, Optional, Union

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress import _backend, _kinds
from treepress import treedef as structures
from twins import outcome, state


class Point(NamedTuple):
    x: Any
    y: Any


class Flat(treepress.Module):
    a: Any
    s: Any = eqx.field(static=True, default=1)
    b: Any = None


class Plain(eqx.Module):
    a: Any
    s: Any = eqx.field(static=True, default=1)
    b: Any = None


@treepress.register_dataclass
@dataclasses.dataclass
class Record:
    a: Any
    b: Any = None
    s: Any = dataclasses.field(default=1, metadata={"static": True})


@jtu.register_pytree_node_class
class Custom:
    """A node without keys."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> Any:
        return self.children, "aux"

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        assert aux == "aux"
        return cls(*children)


class Unregistered:
    pass


def cache_size(jitted: Any) -> Any:
    return jitted._cache_size()


def assert_same(one: Any, other: Any) -> None:
    """The same structure with the same objects for leaves."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert state(jax.tree.leaves(one)) == state(jax.tree.leaves(other))


def join(treedef: Any, *parts: Any) -> Any:
    return treepress.tree_combine(treedef, *parts)


@pytest.mark.not_interpreted
def test_kernels_are_those_of_the_backend() -> None:
    compiled = not isinstance(vars(_backend.tree_kernels.Walk)["over"], type(lambda: 0))
    assert compiled == (treepress.backend == "compiled")


# --- the three examples of the discussion -------------------------------------------------


def test_more_than_two_partitions() -> None:
    keys = iter(jax.random.split(jax.random.key(0), 4))
    model = {
        "linear": eqx.nn.Linear(2, 3, key=next(keys)),
        "conv": [eqx.nn.Conv2d(1, 2, 3, key=next(keys)), eqx.nn.LayerNorm(3)],
    }
    treedef, linear, conv, other = treepress.tree_partition(
        model, eqx.nn.Linear, eqx.nn.Conv2d
    )
    assert list(linear) == ["['linear'].weight", "['linear'].bias"]
    assert list(conv) == ["['conv'][0].weight", "['conv'][0].bias"]
    assert list(other) == ["['conv'][1].weight", "['conv'][1].bias"]
    again = join(treedef, other, conv, linear)
    assert_same(again, model)


def seed_tree(n: int) -> Any:
    tree: Any = None
    for i in range(n):
        tree = {
            "child": tree,
            "index": i,
            "array": jnp.ones(i + 1),
            "meta": ("irrelevant", "information"),
        }
    return tree


def test_nested_dicts_of_the_discussion() -> None:
    tree = seed_tree(20)
    treedef, arrays, other = treepress.tree_partition(tree, jax.Array)
    assert len(arrays) == 20
    assert len(other) == 60
    assert "['child']['child']['meta'][1]" in other
    assert_same(join(treedef, arrays, other), tree)


# --- what filters are ---------------------------------------------------------------------


def test_no_filter() -> None:
    treedef, everything = treepress.tree_partition([1, {"a": 2}])
    assert everything == {"[0]": 1, "[1]['a']": 2}
    assert join(treedef, everything) == [1, {"a": 2}]


def test_one_leaf_has_the_empty_path() -> None:
    treedef, text, rest = treepress.tree_partition("x", str)
    assert (text, rest) == ({"": "x"}, {})
    assert join(treedef, text) == "x"
    assert treepress.tree_partition(None)[1:] == ({},)


def test_oldest_ancestor_decides_and_first_filter_wins() -> None:
    tree = [Plain([1, "a"]), ("b", Plain("c"))]
    _, modules, text, rest = treepress.tree_partition(tree, Plain, str)
    assert list(modules) == ["[0].a[0]", "[0].a[1]", "[1][1].a"]
    assert list(text) == ["[1][0]"]
    assert rest == {}
    _, first, second, _ = treepress.tree_partition(tree, eqx.Module, Plain)
    assert len(first) == 3
    assert second == {}
    _, whole, _ = treepress.tree_partition(tree, list)
    assert len(whole) == 4


@pytest.mark.parametrize(
    "filter_", [(int, str), int | str, lambda x: type(x) in (int, str)]
)
def test_kinds_of_filters(filter_: Any) -> None:
    _, chosen, rest = treepress.tree_partition([1, "a", 2.0, [None]], filter_)
    assert chosen == {"[0]": 1, "[1]": "a"}
    assert rest == {"[2]": 2.0}


def test_predicates_are_asked_from_the_root_down() -> None:
    asked: list[Any] = []

    def filter_(node: Any) -> bool:
        asked.append(node)
        return isinstance(node, tuple)

    tree = {"a": (1, [2]), "b": [3]}
    treepress.tree_partition(tree, filter_)
    assert asked == [tree, (1, [2]), [3], 3]


def test_prefix_of_bools() -> None:
    tree = {"a": [1, 2], "b": (3, {"c": 4}), "d": None}
    flags = {"a": True, "b": (False, True), "d": None}
    _, chosen, rest = treepress.tree_partition(tree, flags)
    assert chosen == {"['a'][0]": 1, "['a'][1]": 2, "['b'][1]['c']": 4}
    assert rest == {"['b'][0]": 3}
    _, chosen, rest = treepress.tree_partition(tree, True)
    assert len(chosen) == 4
    _, chosen, rest = treepress.tree_partition(
        tree, {"a": lambda x: x > 1, "b": False, "d": None}
    )
    assert chosen == {"['a'][1]": 2}
    # Beside other filters: what is closer to the root wins, then what comes first.
    _, ints, flagged, rest = treepress.tree_partition(tree, int, flags)
    assert ints == {"['b'][0]": 3}
    assert len(flagged) == 3
    _, tuples, flagged, rest = treepress.tree_partition(tree, tuple, flags)
    assert list(tuples) == ["['b'][0]", "['b'][1]['c']"]
    _, flagged, tuples, rest = treepress.tree_partition(tree, {**flags, "b": True}, tuple)
    assert tuples == {}
    with pytest.raises(ValueError, match="(?s).*") as caught:
        treepress.tree_partition(tree, {"a": True})
    assert "filters[0] is no prefix" in str(caught.value)


def test_a_module_of_bools_is_a_prefix_even_if_it_can_be_called() -> None:
    mlp = eqx.nn.MLP(1, 1, 2, 1, key=jax.random.key(0))
    flags = jax.tree.map(lambda _: False, mlp)
    flags = eqx.tree_at(lambda m: m.layers[0].weight, flags, True)
    _, chosen, _ = treepress.tree_partition(mlp, flags)
    assert list(chosen) == [".layers[0].weight"]


def test_a_tree_of_bools_beside_is_leaf() -> None:
    def is_none(x: Any) -> bool:
        return x is None

    tree = {"a": None, "b": 1, "c": 2, "d": [None, 3]}
    mask = {"a": None, "b": True, "c": False, "d": True}
    _, chosen, rest = treepress.tree_partition(tree, mask, is_leaf=is_none)
    assert chosen == {"['b']": 1, "['d'][0]": None, "['d'][1]": 3}
    assert rest == {"['a']": None, "['c']": 2}
    ours = eqx.partition(tree, mask, is_leaf=is_none)
    assert ours[0] == {"a": None, "b": 1, "c": None, "d": [None, 3]}

    for flag in (True, lambda x: True):
        with pytest.raises(ValueError, match=r"deeper than the leaf at \"\['a'\]\""):
            treepress.tree_partition(
                {"a": [1, 2], "c": 3},
                {"a": [flag, flag], "c": False},
                is_leaf=lambda x: isinstance(x, list),
            )


def test_a_callable_module_of_bools_and_predicates() -> None:
    mlp = eqx.nn.MLP(1, 1, 2, 1, key=jax.random.key(0))
    mask = eqx.tree_at(
        lambda m: m.layers[0], jax.tree.map(lambda _: False, mlp), eqx.is_array
    )
    _, chosen, _ = treepress.tree_partition(mlp, mask)
    assert list(chosen) == [".layers[0].weight", ".layers[0].bias"]
    identity = eqx.nn.Identity()
    assert treepress.tree_partition(identity, identity)[1:] == ({}, {})


def test_an_inner_misfit_is_named() -> None:
    tree = {"a": [1, {"b": 2}], "m": Plain(3)}
    for mask, message in [
        ({"a": [True, {"c": True}], "m": True}, r"\['a'\]\[1\]\" it has 1 child.*'b'.*'c'"),
        ({"a": [True, [True]], "m": True}, r"\['a'\]\[1\]\" it has a node of type list"),
        ({"a": True}, r"at the root it has 1 children and the tree 2; .*\['m'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            treepress.tree_partition(tree, mask)


def test_a_bound_method_is_a_predicate() -> None:
    class Chooser(eqx.Module):
        wanted: Any

        def choose(self, node: Any) -> bool:
            return node is self.wanted

    _, chosen, _ = treepress.tree_partition([1, 2, 3], Chooser(2).choose)
    assert chosen == {"[1]": 2}


@pytest.mark.parametrize(
    ("filter_", "error", "message"),
    [
        (3, TypeError, r"filters\[0\] is an object of type int"),
        ([1], TypeError, r"at '\[0\]' it has an object of type int"),
        ([int, float], TypeError, r"at '\[0\]' it has the type int.*in a tuple"),
        (None, TypeError, r"filters\[0\] is an object of type NoneType; give a type"),
        (lambda x: x, TypeError, "returned <class 'list'>, no bool"),
        (lambda x: None, TypeError, "returned <class 'NoneType'>"),
        ([True, True], ValueError, r"has 2 children and the tree 1; .* has \[1\]"),
        ((True,), ValueError, "at the root it has a node of type tuple, the tree .* list"),
    ],
)
def test_filters_that_are_none(filter_: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        treepress.tree_partition([jnp.ones(2)], filter_)


def test_filter_results() -> None:
    _, chosen, _ = treepress.tree_partition([1, 2], lambda x: np.bool_(x == 1))
    assert chosen == {"[0]": 1}
    tree = {"a": [0, jnp.ones(2)]}
    with pytest.raises(TypeError, match=r"filters\[1\] returned a jax.Array") as caught:
        treepress.tree_partition(
            tree, lambda x: False, lambda x: isinstance(x, jax.Array) and x > 0
        )
    assert caught.value.__notes__ == [
        "treepress: filters[1], at \"['a'][1]\" in the tree; filters are asked at inner nodes "
        "too"
    ]


def test_filter_that_raises_has_the_path_added() -> None:
    def filter_(node: Any) -> bool:
        if node == 3:
            raise KeyError("mine")
        return False

    for tree, path in [
        ([1, {"a": (2, 3)}], "[1]['a'][1]"),
        (Flat([Plain(2), Plain(3)]), ".a[1].a"),
        (Point(collections.OrderedDict(z=1, y=2), 3), ".y"),
        (Custom(1, [3]), "[<flat index 1>][0]"),
    ]:
        with pytest.raises(KeyError, match="mine") as caught:
            treepress.tree_partition(tree, filter_)
        assert caught.value.__notes__ == [
            f"treepress: filters[0], at {path!r} in the tree; filters are asked at inner "
            f"nodes too"
        ]
    with pytest.raises(KeyError) as caught:
        treepress.tree_partition(3, filter_)
    (note,) = caught.value.__notes__
    assert note.startswith("treepress: filters[0], at the root")
    with pytest.raises(KeyError) as caught:
        treepress.tree_partition([3], lambda x: False, is_leaf=filter_)
    assert caught.value.__notes__ == ["treepress: is_leaf, at '[0]' in the tree"]


def test_is_leaf() -> None:
    tree = [1, (2, 3), None, {"a": (4,)}]
    for is_leaf in (lambda x: isinstance(x, tuple), lambda x: x is None):
        treedef, leaves = treepress.tree_partition(tree, is_leaf=is_leaf)
        assert list(leaves.values()) == jax.tree.leaves(tree, is_leaf=is_leaf)
        assert treedef.treedef == jax.tree.structure(tree, is_leaf=is_leaf)
        assert join(treedef, leaves) == tree
    _, none, _ = treepress.tree_partition(
        tree, lambda x: x is None, is_leaf=lambda x: x is None
    )
    assert none == {"[2]": None}


# --- types and values that a filter tells apart -------------------------------------------


def test_type_that_decides_and_type_that_does_not() -> None:
    class Proxy:
        def __init__(self, of: Any) -> None:
            object.__setattr__(self, "of", of)

        @property  # type: ignore[misc]
        def __class__(self: Any) -> Any:
            return type(self.of)

    tree = [Proxy(1), Proxy("a"), Proxy(1)]
    for _ in range(2):
        _, ints, _ = treepress.tree_partition(tree, int)
        assert list(ints) == ["[0]", "[2]"]


def test_abc_registered_later() -> None:
    import abc

    class Abstract(abc.ABC):  # noqa: B024
        pass

    class One:
        pass

    for _ in range(2):
        assert treepress.tree_partition([One()], Abstract)[1] == {}
    Abstract.register(One)
    assert len(treepress.tree_partition([One()], Abstract)[1]) == 1


def test_protocol_is_asked_each_time() -> None:
    from typing import Protocol, runtime_checkable

    @runtime_checkable
    class Named(Protocol):
        name: str

    one, other = Unregistered(), Unregistered()
    one.name = "x"  # type: ignore[attr-defined]
    for tree, paths in [([one, other], ["[0]"]), ([other, one], ["[1]"])]:
        assert list(treepress.tree_partition(tree, Named)[1]) == paths


def test_type_registered_later() -> None:
    class Late:
        def __init__(self, x: Any) -> None:
            self.x = x

    tree = [Late(1)]
    for _ in range(2):
        assert list(treepress.tree_partition(tree)[1]) == ["[0]"]
    jtu.register_pytree_node(Late, lambda late: ((late.x,), None), lambda _, c: Late(*c))
    for _ in range(2):
        assert list(treepress.tree_partition(tree)[1].values()) == [1]


def test_tracers() -> None:
    @jax.jit
    def f(tree: Any) -> Any:
        treedef, arrays, rest = treepress.tree_partition([tree, "s", 1], jax.Array)
        assert list(arrays) == ["[0]['a']", "[0]['b'].a"]
        assert list(rest) == ["[1]", "[2]"]
        return join(treedef, {k: v + 1 for k, v in arrays.items()}, rest)[0]

    out = f({"a": jnp.zeros(2), "b": Flat(jnp.ones(()))})
    assert out["b"].a == 2.0
    assert cache_size(f) == 1


def test_static_values_are_not_mixed_up() -> None:
    values = [1, 1.0, True, 0.0, -0.0, 0, False, float("nan"), "1"]
    for value in values + values[::-1]:
        for cls in (Flat, Plain, Record):
            treedef, leaves = treepress.tree_partition([cls(value, s=value), {value: 1}])
            again = join(treedef, leaves)
            assert again[0].s is value
            assert again[0].a is value
            assert next(iter(again[1])) is value
            assert f"[1][{value!r}]" in leaves


# --- paths --------------------------------------------------------------------------------

TREES: dict[str, Any] = {
    "leaf": 1,
    "none": None,
    "empty": [[], {}, (), None],
    "builtin": {"b": [1, (2, None)], "a": {"c": 3}},
    "int keys": {2: 1, 1: [2]},
    "float keys": {1.5: 1, 0.5: 2},
    "tuple keys": {(1, "a"): 1, (0, "b"): 2},
    "namedtuple": Point(1, [Point(2, None)]),
    "ordered": collections.OrderedDict(z=1, a=(2,)),
    "default": collections.defaultdict(list, {"b": 1, "a": [2]}),
    "modules": [Flat(1, b=[Plain(2)]), Plain(Flat(3), s="x")],
    "record": Record([1], Record(2)),
    "custom": Custom(1, [Custom(2)]),
    "partial": jtu.Partial(print, 1, key=[2]),
    "bound": Flat(1).__eq__,
    "mlp": eqx.nn.MLP(2, 2, 3, 2, key=jax.random.key(0)),
    "shared": eqx.nn.Shared(
        [eqx.nn.Linear(1, 1, key=jax.random.key(0))] * 2,
        lambda pair: pair[1].weight,
        lambda pair: pair[0].weight,
    ),
    "state": eqx.nn.State(eqx.nn.BatchNorm(2, "b")),
    "partition": treepress.Partition({"z": 1, "a": [2]}),
    "same twice": [twice := [1, 2], twice],
    "unregistered": [Unregistered(), {1, 2}, range(3)],
    "half set": object.__new__(Flat),
}


@pytest.mark.parametrize("name", TREES)
def test_paths_and_structure_are_those_of_jax(name: str) -> None:
    tree = TREES[name]
    treedef, everything = treepress.tree_partition(tree)
    structure: Any
    paths, structure = jtu.tree_flatten_with_path(tree)
    assert list(everything) == [jtu.keystr(path) for path, _ in paths]
    assert state(list(everything.values())) == state([leaf for _, leaf in paths])
    assert treedef.treedef == structure
    assert treedef.num_leaves == structure.num_leaves
    again = join(treedef, everything)
    assert jax.tree.structure(again) == structure
    assert state(jax.tree.leaves(again)) == state(jax.tree.leaves(tree))
    try:
        expected = [jtu.keystr(path, simple=True, separator="/") for path, _ in paths]
    except TypeError:  # an older JAX
        return
    assert list(treepress.tree_partition(tree, simple=True, separator="/")[1]) == expected


def test_flax_struct() -> None:
    struct = pytest.importorskip("flax.struct")

    @struct.dataclass
    class State:
        params: Any
        name: str = struct.field(pytree_node=False)

    cls: Any = State
    tree = [cls({"w": 1}, "n")]
    treedef, leaves = treepress.tree_partition(tree)
    assert list(leaves) == [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(tree)[0]]
    assert join(treedef, leaves) == tree


def test_simple_keys_that_collide() -> None:
    tree = {"a/b": 1, "a": {"b": 2}}
    assert len(treepress.tree_partition(tree)[1]) == 2
    with pytest.raises(ValueError, match="'a/b'.*number 0 and 1"):
        treepress.tree_partition(tree, simple=True, separator="/")


def test_keys_that_print_alike() -> None:
    @ft.total_ordering
    class Key:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return self.n

        def __eq__(self, other: Any) -> Any:
            return self.n == other.n

        def __lt__(self, other: Any) -> Any:
            return self.n < other.n

        def __repr__(self) -> str:
            return "Key"

    with pytest.raises(ValueError, match=r"same path, '\[Key\]'"):
        treepress.tree_partition({Key(1): 1, Key(2): 2})


def test_keys_equal_to_strings_have_their_own_paths() -> None:
    for key in (np.str_("a"), "a", np.str_("a")):
        treedef, leaves = treepress.tree_partition({key: 1})
        assert list(leaves) == [f"[{key!r}]"]
        assert type(next(iter(join(treedef, leaves)))) is type(key)


def test_keys_that_cannot_be_sorted() -> None:
    with pytest.raises(ValueError, match="cannot be sorted") as caught:
        treepress.tree_partition([{"x": {1: 1, "a": 2}}])
    assert caught.value.__notes__ == ["treepress: at \"[0]['x']\" in the tree"]
    tree = collections.OrderedDict([(1, 1), ("a", 2)])
    assert list(treepress.tree_partition(tree)[1]) == ["[1]", "['a']"]


def test_insertion_order_of_dicts_does_not_matter() -> None:
    one, other = {"b": 1, "a": 2, "c": 3}, {"c": 3, "a": 2, "b": 1}
    treedef, leaves = treepress.tree_partition(one)
    other_treedef, other_leaves = treepress.tree_partition(other)
    assert treedef == other_treedef
    assert list(leaves) == list(other_leaves) == ["['a']", "['b']", "['c']"]


def module_of(cls: type, child: Any) -> Any:
    """An instance without `__init__`, which would recurse over the child."""
    module: Any = object.__new__(cls)
    object.__setattr__(module, "a", child)
    return module


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: [x],
        lambda x: {"a": x},
        lambda x: (x, 1),
        ft.partial(module_of, Plain),
        ft.partial(module_of, Flat),
        Custom,
    ],
    ids=["list", "dict", "tuple", "plain", "flat", "custom"],
)
def test_ten_thousand_levels(wrap: Any) -> None:
    tree: Any = 1
    for _ in range(10_000):
        tree = wrap(tree)
    # Not `pytest.raises`, which would print the tree should this fail.
    try:
        treepress.tree_partition(tree, int)
    except RecursionError as error:
        message = str(error)
    else:
        message = "no error"
    assert "nested too deep" in message
    assert "1000 levels" in message


def test_a_few_hundred_levels_are_fine() -> None:
    tree: Any = 1
    for _ in range(200):
        tree = [tree]
    treedef, leaves = treepress.tree_partition(tree)
    assert join(treedef, leaves) == tree


# --- combine ------------------------------------------------------------------------------


def test_combine_takes_other_leaves() -> None:
    treedef, leaves = treepress.tree_partition({"a": 1, "b": Flat(2)})
    for leaf in (None, (1, 2), jax.ShapeDtypeStruct((), "float32"), object()):
        assert join(treedef, dict.fromkeys(leaves, leaf))["b"].a is leaf


def test_combine_takes_any_mappings() -> None:
    import types

    treedef, leaves = treepress.tree_partition([1, 2, 3])
    parts = [
        types.MappingProxyType({"[1]": 5}),
        collections.ChainMap({"[2]": 6}),
        {"[0]": 4},
    ]
    assert join(treedef, *parts) == [4, 5, 6]
    assert join(treedef, {}, leaves) == [1, 2, 3]


def test_combine_says_what_is_wrong() -> None:
    tree = {"weights": [1, 2], "bias": 3}
    treedef, leaves = treepress.tree_partition(tree)
    before = dict(leaves)
    with pytest.raises(KeyError, match=r"missing: \"\['bias'\]\", \"\['weights'\]\[0\]\""):
        join(treedef, {"['weights'][1]": 1})
    with pytest.raises(
        KeyError, match=r"not in the tree: .*closest to .* is \"\['bias'\]\""
    ):
        join(treedef, {"['bais']": 1, "['weights'][0]": 1, "['weights'][1]": 1})
    with pytest.raises(KeyError, match=r"given more than once: \"\['bias'\]\""):
        join(treedef, leaves, {"['bias']": 1})
    with pytest.raises(KeyError, match=r"missing.*not in the tree.*given more than once"):
        join(treedef, {"['bias']": 1, "x": 1}, {"['bias']": 1})
    treedef, many = treepress.tree_partition(list(range(25)))
    with pytest.raises(KeyError, match="and 15 more"):
        join(treedef)
    for wrong in ([1], None, 3):
        with pytest.raises(TypeError, match=r"partitions\[1\] is of type"):
            join(treedef, many, wrong)
    with pytest.raises(TypeError, match="takes the treedef"):
        join("x", many)
    with pytest.raises((KeyError, TypeError), match="not in the tree|mappings"):
        join(treedef, many, {(): 1})
    assert leaves == before


def test_combine_with_a_treedef_of_jax() -> None:
    tree = [1, Flat(2)]
    _, leaves = treepress.tree_partition(tree)
    assert_same(join(jax.tree.structure(tree), leaves), tree)


def test_tree_changed_after_partition() -> None:
    tree = {"a": [1, 2]}
    treedef, leaves = treepress.tree_partition(tree)
    tree["a"].append(3)
    tree["b"] = [4]
    assert join(treedef, leaves) == {"a": [1, 2]}


# --- the treedef --------------------------------------------------------------------------


def test_treedef() -> None:
    tree = [1, Flat(2, s="s")]
    treedef, _ = treepress.tree_partition(tree)
    same, _, _ = treepress.tree_partition([3, Flat("x", s="s")], int)
    other, _ = treepress.tree_partition([1, Flat(2, s="t")])
    assert treedef == same
    assert hash(treedef) == hash(same)
    assert treedef != other
    assert treedef != 1
    assert len({treedef, same, other}) == 2
    assert jax.tree.unflatten(treedef, [5, 6])[1].a == 6
    assert str(treedef.treedef) in repr(treedef)
    assert treedef.paths == ("[0]", "[1].a")
    for leaves in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"has 2 leaves.*'\[0\]', '\[1\].a'"):
            treedef.unflatten(leaves)


def test_treedef_as_static_argument_and_closed_over() -> None:
    treedef, arrays, rest = treepress.tree_partition({"a": jnp.ones(2), "n": 3}, jax.Array)
    traces = []

    @ft.partial(jax.jit, static_argnums=0)
    def f(treedef: Any, arrays: Any) -> Any:
        traces.append(1)
        tree = join(treedef, arrays, rest)
        return tree["a"] * tree["n"]

    again, _, _ = treepress.tree_partition({"a": jnp.ones(2), "n": 3}, jax.Array)
    for t in (treedef, again):
        assert f(t, arrays).tolist() == [3.0, 3.0]
    assert len(traces) == 1


def load_and_join(pickled: bytes) -> bytes:
    treedef, leaves = pickle.loads(pickled)
    tree = treepress.tree_combine(treedef, leaves)
    return pickle.dumps(
        (treedef.paths, jax.tree.leaves(tree), treedef == pickle.loads(pickled)[0])
    )


def test_treedef_in_another_process() -> None:
    tree = [Flat(1, s="s"), Plain((2, None)), Record({"a": 3}), Point(4, Custom(5))]
    treedef, leaves = treepress.tree_partition(tree)
    again = pickle.loads(pickle.dumps(treedef))
    assert again == treedef
    assert hash(again) == hash(treedef)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        paths, out, equal = pickle.loads(
            pool.apply(load_and_join, (pickle.dumps((treedef, leaves)),))
        )
    assert (paths, out, equal) == (treedef.paths, [1, 2, 3, 4, 5], True)
    styled = treepress.tree_partition(tree, simple=True, separator="/")[0]
    assert pickle.loads(pickle.dumps(styled)).paths == styled.paths


# --- partitions ---------------------------------------------------------------------------


def test_partition_is_a_dict() -> None:
    _, p = treepress.tree_partition({"b": 1, "a": 2})
    assert isinstance(p, dict)
    assert type(p) is treepress.Partition
    assert p == {"['a']": 2, "['b']": 1}
    assert p == {"['a']": 2, "['b']": 1}
    assert json.loads(json.dumps(p)) == p
    assert type(dict(p)) is dict
    for merged in (p | {"c": 3}, {"c": 3} | p):
        assert type(merged) is treepress.Partition
        assert len(merged) == 3
    p |= {"c": 3}
    assert type(p) is treepress.Partition
    assert jax.tree.leaves(p) == [2, 1, 3]
    assert type(p.copy()) is treepress.Partition


def test_partition_is_flattened_in_order_and_always_right() -> None:
    p = treepress.Partition({"z": 1, "a": 2})
    assert jax.tree.leaves(p) == [1, 2]
    structure = jax.tree.structure(p)
    edits: list[Any] = [
        lambda: p.__setitem__("z", 5),
        lambda: p.__setitem__("m", 3),
        lambda: p.__delitem__("a"),
        lambda: p.update(b=1),
        lambda: p.pop("b"),
        lambda: dict.__setitem__(p, "q", 7),
        lambda: dict.pop(p, "z"),
        lambda: p.setdefault("z", 8),
        lambda: p.popitem(),
        lambda: p.clear(),
    ]
    for edit in edits:
        edit()
        leaves, treedef = jax.tree.flatten(p)
        assert leaves == list(p.values())
        again = jax.tree.unflatten(treedef, leaves)
        assert type(again) is treepress.Partition
        assert list(again.items()) == list(p.items())
        assert (treedef == structure) == (list(p) == ["z", "a"])


def test_partition_treedef_is_compared_by_identity() -> None:
    _, p = treepress.tree_partition({"a": 1, "b": 2})
    one, other = (jtu.default_registry.flatten_one_level(p)[1] for _ in range(2))
    assert one is other
    again = jax.tree.map(lambda x: x, p)
    assert jtu.default_registry.flatten_one_level(again)[1] is one


def test_partition_key_paths() -> None:
    p = treepress.Partition({".a[0]": 1})
    ((path, _),) = jtu.tree_flatten_with_path(p)[0]
    assert path == (jtu.DictKey(".a[0]"),)


def test_partition_and_plain_dict_do_not_match() -> None:
    p = treepress.Partition({"a": 1})
    with pytest.raises(ValueError, match="(?i)partition"):
        jax.tree.map(lambda a, b: a, p, {"a": 1})
    assert jax.tree.map(lambda a, b: a + b, p, treepress.Partition({"a": 1})) == {"a": 2}


class Restricted(pickle.Unpickler):
    """Loads arrays and partitions, and no other class or function."""

    ALLOWED = (
        "treepress.partition",
        "numpy",
        "jax._src.array",
        "jax._src.dtypes",
        "jaxlib",
        "ml_dtypes",
    )

    def find_class(self, module: str, name: str) -> Any:
        assert module.startswith(self.ALLOWED), (module, name)
        if module == "treepress.partition":
            assert name == "Partition"
        return super().find_class(module, name)


def test_partition_pickles_as_plain_data() -> None:
    model = [Plain(jnp.arange(3.0)), eqx.nn.Linear(1, 1, key=jax.random.key(0))]
    _, arrays, _ = treepress.tree_partition(model, jax.Array)
    again = Restricted(io.BytesIO(pickle.dumps(arrays))).load()
    assert type(again) is treepress.Partition
    assert list(again) == list(arrays)
    assert again["[0].a"].tolist() == [0.0, 1.0, 2.0]
    assert jax.tree.structure(again) == jax.tree.structure(arrays)


def test_partition_in_safetensors(tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.flax")
    model = eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0))
    treedef, arrays, rest = treepress.tree_partition(
        model, jax.Array, simple=True, separator="/"
    )
    assert "layers/0/weight" in arrays
    safetensors.save_file(arrays, tmp_path / "model.safetensors")
    loaded = safetensors.load_file(tmp_path / "model.safetensors")
    again = join(treedef, loaded, rest)
    assert eqx.tree_equal(again, model)


# --- under JAX's transformations ----------------------------------------------------------


def test_transformations() -> None:
    model = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    treedef, arrays, rest = treepress.tree_partition(model, jax.Array)

    def loss(arrays: Any, x: Any) -> Any:
        return join(treedef, arrays, rest)(x).sum()

    x = jnp.ones(2)
    expected = loss(arrays, x)
    np.testing.assert_allclose(jax.jit(loss)(arrays, x), expected, rtol=1e-6)
    grads = jax.jit(jax.grad(loss))(arrays, x)
    assert type(grads) is treepress.Partition
    assert list(grads) == list(arrays)
    out = jax.vmap(loss, in_axes=(None, 0))(arrays, jnp.ones((4, 2)))
    assert out.shape == (4,)
    axes = treepress.Partition(dict.fromkeys(arrays, 0))
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), arrays)
    assert jax.vmap(loss, in_axes=(axes, None))(stacked, x).shape == (2,)

    def step(carry: Any, x: Any) -> Any:
        grads = jax.grad(loss)(carry, x)
        return jax.tree.map(lambda a, g: a - 0.1 * g, carry, grads), loss(carry, x)

    last, losses = jax.lax.scan(step, arrays, jnp.ones((5, 2)))
    assert losses[-1] < losses[0]
    assert jax.tree.structure(last) == jax.tree.structure(arrays)


def test_optax() -> None:
    optax = pytest.importorskip("optax")
    model = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    treedef, arrays, rest = treepress.tree_partition(model, jax.Array)
    mask = treepress.Partition({path: path.endswith("bias") for path in arrays})
    optimizer = optax.chain(optax.masked(optax.adam(0.1), mask), optax.scale(0.5))

    @jax.jit
    def step(arrays: Any, opt_state: Any) -> Any:
        grads = jax.grad(lambda a: join(treedef, a, rest)(jnp.ones(2)).sum())(arrays)
        updates, opt_state = optimizer.update(grads, opt_state, arrays)
        return optax.apply_updates(arrays, updates), opt_state

    opt_state = optimizer.init(arrays)
    for _ in range(2):
        arrays, opt_state = step(arrays, opt_state)
    assert type(arrays) is treepress.Partition
    assert cache_size(step) == 1


# --- caches -------------------------------------------------------------------------------


def test_paths_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Kernels:
        def __getattr__(self, name: str) -> Any:
            return getattr(_backend.tree_kernels, name)

        def paths(self, *args: Any) -> Any:
            made.append(1)
            return _backend.tree_kernels.paths(*args)

    monkeypatch.setattr(structures, "kernels", Kernels())
    keys = [f"made_once_{i}" for i in range(3)]
    for value in range(5):
        treepress.tree_partition([dict.fromkeys(keys, value), Flat(value, s=value)])
    assert len(made) == 1


def test_caches_are_bounded_and_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "MOST_PATHS", 500)
    for i in range(100):
        treepress.tree_partition([0] * i)
    assert sum(len(s.paths) for s in structures._structures.values()) <= 500

    class Leaf:
        pass

    array, static, leaf, filtered = (Leaf() for _ in range(4))
    wanted = ft.partial(operator.is_, filtered)
    tree = [
        Plain(leaf, s=static),
        Flat(leaf, s=static),
        {"a": array},
        Record(array, s=static),
    ]
    treedef, *parts = treepress.tree_partition(tree, str, wanted)
    join(treedef, *parts)
    watched = [weakref.ref(x) for x in (array, static, leaf, filtered)]
    del array, static, leaf, filtered, tree, treedef, parts, wanted
    import gc

    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


def test_threads() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(300):
                tree = [Flat([seed, i], s=i % 3), {f"k{(seed + i) % 50}": i, "a": (seed,)}]
                treedef, ints, rest = treepress.tree_partition(tree, int)
                assert rest == {}
                assert list(ints) == [
                    jtu.keystr(path) for path, _ in jtu.tree_flatten_with_path(tree)[0]
                ]
                assert_same(join(treedef, ints), tree)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert errors == []


# --- generated trees and filters ----------------------------------------------------------

LEAVES = [1, 1.5, True, "s", None, np.ones(2), Unregistered(), len]


def trees() -> st.SearchStrategy[Any]:
    def extend(children: Any) -> Any:
        few = st.lists(children, max_size=3)
        return st.one_of(
            few,
            few.map(tuple),
            st.dictionaries(st.sampled_from("abcd"), children, max_size=3),
            st.dictionaries(st.integers(0, 5), children, max_size=3),
            st.builds(Point, children, children),
            few.map(lambda c: collections.OrderedDict(zip("zya", c))),
            st.builds(
                lambda a, b, s: Flat(a, s, b), children, children, st.sampled_from("st")
            ),
            st.builds(
                lambda a, b, s: Plain(a, s, b), children, children, st.sampled_from("st")
            ),
            st.builds(Record, children, children),
            few.map(lambda c: Custom(*c)),
        )

    return st.recursive(st.sampled_from(LEAVES), extend, max_leaves=12)


FILTERS: dict[str, Any] = {
    "int": int,
    "bool or str": (bool, str),
    "array": np.ndarray,
    "list": list,
    "tuple": tuple,
    "module": eqx.Module,
    "flat": Flat,
    "custom": Custom,
    "not": lambda x: False,
    "all": lambda x: True,
    "leaf int": lambda x: type(x) is int,
    "dict with a": lambda x: isinstance(x, dict) and "a" in x,
}


def by_inox(tree: Any, filters: list[Any], is_leaf: Any) -> list[dict[str, Any]]:
    """The rules of Inox, step by step."""
    tests = [
        (lambda x, f=f: isinstance(x, f)) if isinstance(f, (type, tuple)) else f
        for f in filters
    ]
    parts: list[dict[str, Any]] = [{} for _ in range(len(filters) + 1)]

    def stop(x: Any) -> bool:
        return any(t(x) for t in tests) or (is_leaf is not None and is_leaf(x))

    for path, node in jtu.tree_flatten_with_path(tree, is_leaf=stop)[0]:
        number = next((i for i, t in enumerate(tests) if t(node)), len(filters))
        for rest, leaf in jtu.tree_flatten_with_path(node, is_leaf=is_leaf)[0]:
            parts[number][jtu.keystr((*path, *rest))] = leaf
    return parts


@settings(max_examples=300, deadline=None)
@given(
    trees(),
    st.lists(st.sampled_from(sorted(FILTERS)), max_size=3),
    st.sampled_from([None, lambda x: isinstance(x, tuple), lambda x: x is None]),
)
def test_generated(tree: Any, names: list[str], is_leaf: Any) -> None:
    filters = [FILTERS[name] for name in names]
    treedef, *parts = treepress.tree_partition(tree, *filters, is_leaf=is_leaf)
    expected = by_inox(tree, filters, is_leaf)
    assert [list(p) for p in parts] == [list(p) for p in expected]
    for part, other in zip(parts, expected):
        assert state(list(part.values())) == state(list(other.values()))
    structure = jax.tree.structure(tree, is_leaf=is_leaf)
    assert treedef.treedef == structure
    leaves = [object() for _ in treedef.paths]
    values = dict(zip(treedef.paths, leaves))
    again = join(treedef, *[{path: values[path] for path in part} for part in parts])
    expected_tree = jax.tree.unflatten(structure, leaves)
    assert_same(again, expected_tree)
    assert re.sub(" at 0x[0-9a-f]+", "", repr(again)) == re.sub(
        " at 0x[0-9a-f]+", "", repr(expected_tree)
    )
    # Once more, now that everything is remembered.
    _, *again_parts = treepress.tree_partition(tree, *filters, is_leaf=is_leaf)
    assert [list(p) for p in again_parts] == [list(p) for p in parts]


@settings(max_examples=150, deadline=None)
@given(
    trees(), st.sampled_from([eqx.is_array, eqx.is_array_like, lambda x: type(x) is int])
)
def test_leaves_are_those_of_equinox(tree: Any, filter_: Any) -> None:
    # On leaves alone: on nodes `is_array_like` says what it likes.
    def on_leaves(x: Any) -> bool:
        return bool(jtu.all_leaves([x])) and bool(filter_(x))

    chosen, rest = eqx.partition(tree, filter_)
    treedef, ours, our_rest = treepress.tree_partition(tree, on_leaves)
    assert state(jax.tree.leaves(chosen)) == state(list(ours.values()))
    assert state(jax.tree.leaves(rest)) == state(list(our_rest.values()))
    assert_same(eqx.combine(chosen, rest), join(treedef, ours, our_rest))


@settings(max_examples=100, deadline=None)
@given(trees(), st.data())
def test_prefixes_of_bools_are_those_of_equinox(tree: Any, data: st.DataObject) -> None:
    def cut(x: Any) -> bool:
        return data.draw(st.booleans())

    flags = jax.tree.map(lambda _: data.draw(st.booleans()), tree, is_leaf=cut)
    chosen, rest = outcome(eqx.partition, tree, flags), None
    if isinstance(chosen, tuple) and len(chosen) == 2 and not isinstance(chosen[0], type):
        chosen, rest = chosen
        _, ours, our_rest = treepress.tree_partition(tree, flags)
        assert state(jax.tree.leaves(chosen)) == state(list(ours.values()))
        assert state(jax.tree.leaves(rest)) == state(list(our_rest.values()))


def test_parity_with_inox() -> None:
    inox = pytest.importorskip("inox.tree")
    model = [eqx.nn.MLP(2, 2, 3, 2, key=jax.random.key(0)), {"n": 1, "text": ["a", 2.0]}]
    for tree in (model, seed_tree(10)):
        for filters in ([], [jax.Array], [eqx.nn.Linear, jax.Array], [callable, str, int]):
            treedef, *parts = inox.partition(tree, *filters)
            ours, *our_parts = treepress.tree_partition(tree, *filters)
            assert our_parts == parts
            assert [list(p) for p in our_parts] == [list(p) for p in parts]
            assert ours.treedef == treedef


# --- found by trying to break it ----------------------------------------------------------


def test_a_node_that_contains_itself() -> None:
    node = Custom()
    node.children = (node,)
    with pytest.raises(RecursionError, match="nested too deep"):
        treepress.tree_partition(node)
    # The process is none the worse for it.
    assert len(repr(treepress.tree_partition([[[1]]]))) > 0
    assert jax.tree.leaves([[1]]) == [1]
    node.children = ()


def test_flattening_may_happen_while_names_are_made() -> None:
    class Key(str):
        def __hash__(self) -> int:
            jax.tree.leaves(treepress.Partition({"inner": 1}))
            return 1

    done = []
    thread = threading.Thread(
        target=lambda: done.append(jax.tree.leaves(treepress.Partition({Key("a"): 1}))),
        daemon=True,
    )
    thread.start()
    thread.join(20)
    assert done == [[1]]


def test_keys_that_are_equal_are_not_mixed_up() -> None:
    partition: Any = treepress.Partition
    kept = []
    for key in (1, True, 1.0, "k", np.str_("k"), 0.0, -0.0, "k"):
        p = partition({key: 1})
        kept.append(jax.tree.structure(p))
        (again,) = jax.tree.map(lambda x: x, p)
        assert type(again) is type(key)
        assert repr(again) == repr(key)
    p = partition({1: 5})
    jax.tree.leaves(p)
    p.clear()
    p[True] = 3
    assert next(iter(jax.tree.map(lambda x: x, p))) is True


def test_what_is_remembered_of_combinations_is_bounded() -> None:
    treedef, p = treepress.tree_partition(list(range(50)))
    items = list(p.items())
    for i in range(50):
        assert join(treedef, dict(items[:i]), dict(items[i:])) == list(range(50))
    assert len(treedef._structure.places) <= 4


def test_dicts_with_the_same_first_key_are_not_mixed_up() -> None:
    class Text(str):
        __slots__ = ()

    made = "".join(["gue", "ss"])
    for _ in range(3):
        for keys in (
            ["guess", "b", "c"],
            ["guess", "c", "b"],
            ["guess", "b", "d"],
            ["guess", "b"],
            ["guess", Text("b"), "c"],
            [Text("guess"), "b", "c"],
            [made, "b", "c"],
            ["guess"],
            [],
        ):
            tree = [{key: f"{key}{i}" for i, key in enumerate(keys)}, 1]
            treedef, text, rest = treepress.tree_partition(tree, str)
            paths = [jtu.keystr(path) for path, _ in jtu.tree_flatten_with_path(tree)[0]]
            assert [*text, *rest] == paths == list(treedef.paths)
            assert [*text.values(), *rest.values()] == jax.tree.leaves(tree)
            again = treepress.tree_combine(treedef, text, rest)
            assert again == tree
            assert list(map(type, again[0])) == list(map(type, sorted(keys)))


def test_choices_that_take_turns_are_not_mixed_up() -> None:
    tree = [1, "a", 2.0, "b", [3], {}]
    for filters in [(int,), (str,), (int,), (int,), (int,), (int, str), (int, str)] * 3:
        treedef, *parts = treepress.tree_partition(tree, *filters)
        leaves = jax.tree.leaves(tree)
        for cls, part in zip(filters, parts):
            assert list(part.values()) == [x for x in leaves if isinstance(x, cls)]
        assert list(parts[-1].values()) == [x for x in leaves if not isinstance(x, filters)]
        assert join(treedef, *parts) == tree
        for part in parts:
            part["added"] = 1
            part.pop("[0]", None)


def test_callable_pytrees_are_predicates() -> None:
    class M(eqx.Module):
        w: Any

        def pred(self, x: Any) -> bool:
            return isinstance(x, int)

    is_int = M(None).pred
    for filter_ in (M(jnp.ones(2)).pred, M(True).pred, is_int, jtu.Partial(is_int)):
        assert treepress.tree_partition({"a": 1, "b": "x"}, filter_)[1] == {"['a']": 1}


def test_treedef_of_instances_with_more_than_fields_is_pickled() -> None:
    import copy
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class G(eqx.Module, Generic[T]):
        w: T

    globals()["G"] = G
    G.__qualname__ = "G"
    for module in (G[int](1), object.__new__(Plain)):
        treedef, _ = treepress.tree_partition(module)
        assert pickle.loads(pickle.dumps(treedef)) == treedef
        assert copy.deepcopy(treedef) == treedef
    del globals()["G"]


def test_is_leaf_is_asked_as_jax_asks() -> None:
    tree = {"a": [1, {"b": Plain(3)}], "c": None}
    asked: Any = [[], []]
    jax.tree.leaves(tree, is_leaf=lambda x: asked[0].append(x))
    treepress.tree_partition(tree, is_leaf=lambda x: bool(asked[1].append(x)))
    assert state(asked[1]) == state(asked[0])
    with pytest.raises(TypeError, match="is_leaf returned <class 'int'>, no bool"):
        treepress.tree_partition(tree, is_leaf=lambda x: 1)  # type: ignore[arg-type, return-value]


def test_a_class_of_its_own_opinion() -> None:
    class P:
        def __init__(self, cls: type) -> None:
            self.cls = cls

        def __getattribute__(self, name: str) -> Any:
            if name == "__class__":
                return object.__getattribute__(self, "cls")
            return object.__getattribute__(self, name)

    _, ints, _ = treepress.tree_partition([P(int), P(str), P(int)], int)
    assert list(ints) == ["[0]", "[2]"]


def test_odd_mappings() -> None:
    class Odd(collections.abc.Mapping):  # type: ignore[type-arg]
        def __init__(self, length: int) -> None:
            self.length = length

        def __len__(self) -> int:
            return self.length

        def __iter__(self) -> Any:
            return iter(["[0]"])

        def __getitem__(self, key: str) -> Any:
            raise TypeError("mine")

    treedef, _ = treepress.tree_partition([1])
    with pytest.raises(TypeError, match="mine"):
        join(treedef, Odd(1))
    with pytest.raises(KeyError, match="another length"):
        join(treedef, Odd(2))


def test_recursion_error_of_a_filter_is_its_own() -> None:
    def endless(x: Any) -> bool:
        return endless(x)

    with pytest.raises(RecursionError) as caught:
        treepress.tree_partition([1], endless)
    assert "nested too deep" not in str(caught.value)
    (note,) = caught.value.__notes__
    assert note.startswith("treepress: filters[0], at the root")


@pytest.mark.parametrize(
    "filter_",
    [Union[int, str], Optional[str], (int, (str, float)), (int, str | bytes)],  # noqa: UP007, UP045
)
def test_filters_that_isinstance_takes(filter_: Any) -> None:
    assert len(treepress.tree_partition(["a", 1.5j], filter_)[1]) == 1


def test_parametrised_types_are_refused() -> None:
    for filter_ in (list[int], dict[str, int]):
        with pytest.raises(TypeError, match="of which nothing is an instance"):
            treepress.tree_partition([1], filter_)


def test_subclass_of_partition() -> None:
    class Mine(treepress.Partition):
        pass

    again = jax.tree.map(lambda x: x + 1, Mine(b=1, a=2))
    assert type(again) is Mine
    assert list(again.items()) == [("b", 2), ("a", 3)]
    weakref.ref(again)


@pytest.mark.not_interpreted
@pytest.mark.parametrize("levels", [250, 400, 700, 960])
def test_nested_deep_far_down_the_stack(levels: int) -> None:
    tree: Any = 1
    for _ in range(levels):
        tree = [tree]

    def below(frames: int, function: Any) -> Any:
        return function() if frames == 0 else below(frames - 1, function)

    def usable() -> int:
        def deeper(n: int) -> int:
            try:
                return deeper(n + 1)
            except RecursionError:
                return n

        return deeper(0)

    before = usable()
    try:
        treedef, part = treepress.tree_partition(tree, int)[:2]
    except RecursionError:
        assert treepress.backend == "python"
        return
    for frames in (1, before // 3, before * 2 // 3, before - 150):
        again = below(frames, lambda: treepress.tree_combine(treedef, part))
        while isinstance(again, list):
            (again,) = again
        assert again == 1
        try:
            below(frames, lambda: hash(treedef))
        except RecursionError as error:
            assert "too deep for JAX" in str(error)  # noqa: PT017
        # JAX keeps the count of levels where a function that it calls fails.
        assert abs(usable() - before) < 20


def test_a_wrong_key_in_a_large_tree_is_soon_reported() -> None:
    tree = [{"a": i, "b": str(i)} for i in range(50_000)]
    treedef, ints, rest = treepress.tree_partition(tree, int)
    compared = 0
    original = difflib.get_close_matches

    def count(name: str, paths: Any, *args: Any) -> Any:
        nonlocal compared
        paths = list(paths)
        compared += len(paths)
        return original(name, paths, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difflib, "get_close_matches", count)
        wrong = dict(ints)
        wrong["[7]['c']"] = wrong.pop("[7]['a']")
        with pytest.raises(KeyError, match=r"missing.*closest to \"\[7\]\['c'\]\" is"):
            treepress.tree_combine(treedef, wrong, rest)
        with pytest.raises(KeyError, match="another `simple` or `separator`"):
            treepress.tree_combine(treedef, {f"{k}/x/y/z/0": v for k, v in ints.items()})
    assert 0 < compared <= 2000


def test_combine_of_dicts_with_an_order_or_values_of_their_own() -> None:
    class Sorted(dict[str, Any]):
        def __iter__(self) -> Any:
            return iter(sorted(dict.keys(self)))

    class Lazy(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return dict.__getitem__(self, key)()

    tree = {"b": 1, "a": 2}
    treedef, part, _ = treepress.tree_partition(tree, int)
    assert treepress.tree_combine(treedef, Sorted({"['b']": 1, "['a']": 2})) == tree
    lazy = Lazy({path: lambda value=value: value for path, value in part.items()})
    assert treepress.tree_combine(treedef, lazy) == tree


def test_wrong_arguments_are_told_what_to_write() -> None:
    treedef, ints, rest = treepress.tree_partition([1, "a"], int)
    with pytest.raises(TypeError, match=r"write tree_combine\(treedef, \*partitions\)"):
        treepress.tree_combine(treedef, [ints, rest])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write tree_combine\(treedef, \*partitions\)"):
        treepress.tree_combine((treedef, ints, rest))
    with pytest.raises(TypeError, match="is_leaf is of type int"):
        treepress.tree_partition([1], is_leaf=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="separator is of type NoneType"):
        treepress.tree_partition([1], separator=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="simple is of type int; give True or False"):
        treepress.tree_partition([1], simple=1)  # type: ignore[arg-type]
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError, match=r"filters\[0\] is nested too deep"):
        treepress.tree_partition([1], loop)


def test_class_variables_are_no_children() -> None:
    class WithVariable(eqx.Module):
        x: Any
        shared: ClassVar[int] = 3

    kind = _kinds.kind_of(WithVariable)
    assert kind.names == ("x",)
    assert treepress.tree_partition(WithVariable(1))[1] == {".x": 1}
