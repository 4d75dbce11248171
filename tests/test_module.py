"""A class with our kernels is to JAX and Equinox what it is without.

Each test that compares twins runs twice: the kernels come by FlatMixin, or in place.
"""

import abc
import collections
import dataclasses
import functools as ft
import pickle
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import treepress
import twins as twins_module
from treepress import _backend
from twins import META, assert_twins, getdict, one_level, outcome, state, twins

T = TypeVar("T")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "twins" in metafunc.function.__code__.co_names:
        metafunc.fixturenames.append("how")
        metafunc.parametrize("how", ["FlatMixin", "accelerate"], indirect=True)


@pytest.fixture
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins_module, "how", request.param)


class Quantity(treepress.Module):
    value: Any
    unit: str = eqx.field(static=True)


class Model(treepress.Module):
    weight: jax.Array
    bias: jax.Array | None
    inner: Quantity
    name: str = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> Any:
        return self.weight @ x * self.inner.value

    def scaled(self, factor: float) -> jax.Array:
        return self.weight * factor


def model() -> Model:
    return Model(jnp.ones((2, 3)), None, Quantity(jnp.array(2.0), "m"), "model")


def test_kernels_are_those_of_the_backend() -> None:
    functions = (
        Quantity._eqx_tree_flatten,
        Quantity._eqx_tree_flatten_with_keys,
        Quantity._eqx_tree_unflatten,
    )
    for function in functions:
        assert callable(function)
        if treepress.backend == "compiled":
            assert _backend.kernels is not None
            assert type(function).__module__ == _backend.kernels.__name__
        else:
            assert type(function).__name__ == "function"
    assert jtu.default_registry.flatten_one_level(Quantity(1.0, "m")) == (
        Quantity._eqx_tree_flatten(Quantity(1.0, "m"))
    )


def test_mixin_is_a_plain_class_without_slots() -> None:
    assert type(treepress.FlatMixin) is type
    assert treepress.FlatMixin.__slots__ == ()
    assert not hasattr(treepress.FlatMixin(), "__dict__")


def define_simple(base: type) -> Any:
    class Simple(base):  # type: ignore[misc]
        a: Any
        s: Any = eqx.field(static=True)
        b: Any = 3
        t: Any = eqx.field(static=True, default="t")

    return Simple


@pytest.mark.parametrize("order", ["first", "last"])
def test_bases_in_any_order(order: str) -> None:
    bases: tuple[type, ...] = (treepress.FlatMixin, eqx.Module)
    if order == "last":
        bases = bases[::-1]

    class Simple(*bases):  # type: ignore[misc]
        a: Any
        s: Any = eqx.field(static=True)
        b: Any = 3
        t: Any = eqx.field(static=True, default="t")

    Simple.__qualname__ = define_simple(eqx.Module).__qualname__
    assert treepress.describe(Simple).accelerated
    leaf = object()
    assert_twins(define_simple(eqx.Module)(leaf, "s"), Simple(leaf, "s"))


def test_quax_metaclass() -> None:
    quax: Any = pytest.importorskip("quax")
    ArrayValue: Any = quax.ArrayValue

    class Array(treepress.FlatMixin, ArrayValue):  # type: ignore[misc]
        array: jax.Array
        tag: str = eqx.field(static=True)

        def materialise(self) -> jax.Array:
            return self.array

        def aval(self) -> Any:
            return jax.core.ShapedArray(self.array.shape, self.array.dtype)

    assert type(Array) is not type(eqx.Module)
    assert treepress.describe(Array).accelerated
    x = Array(jnp.arange(3.0), "x")
    leaves, treedef = jax.tree.flatten(x)
    assert leaves[0] is x.array
    assert jax.tree.unflatten(treedef, leaves).tag == "x"
    doubled = quax.quaxify(jax.jit(lambda a: a + a))(x)
    np.testing.assert_array_equal(doubled, 2 * np.arange(3.0))


def test_metaclass_derived_from_equinoxs() -> None:
    class Meta(type(eqx.Module)):  # type: ignore[misc]
        def __new__(mcs, name: str, bases: Any, namespace: Any, **kwargs: Any) -> Any:
            return super().__new__(mcs, name, bases, namespace, **kwargs)

    class Made(treepress.FlatMixin, eqx.Module, metaclass=Meta):
        a: int

    assert treepress.describe(Made).accelerated
    assert jax.tree.leaves(Made(1)) == [1]


@pytest.mark.parametrize("values", [("s", "t"), (None, ()), (1, True), (0.0, -0.0)])
def test_static_values(values: tuple[Any, Any]) -> None:
    leaf = object()
    plain, flat = twins(define_simple)
    assert_twins(
        plain(leaf, values[0], leaf, values[1]), flat(leaf, values[0], leaf, values[1])
    )


def test_static_values_that_are_equal_are_not_mixed_up() -> None:
    nan = float("nan")
    values: list[Any] = [
        1,
        1.0,
        True,
        0.0,
        -0.0,
        0,
        False,
        nan,
        float("nan"),
        "",
        b"",
        (),
        (1,),
        (True,),
    ]
    for value in values + values[::-1]:
        quantity = Quantity(1.0, value)
        leaves, treedef = jax.tree.flatten(quantity)
        assert jax.tree.unflatten(treedef, leaves).unit is value
        (_, aux) = Quantity._eqx_tree_flatten(quantity)
        assert aux[1] is value
        (_, aux) = Quantity._eqx_tree_flatten_with_keys(quantity)
        assert aux[1] is value


def test_static_value_that_cannot_be_compared_or_hashed() -> None:
    def define(base: type) -> Any:
        class Static(base):  # type: ignore[misc]
            a: Any
            s: Any = eqx.field(static=True)

        return Static

    class Uncomparable:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("cannot compare")

    plain, flat = twins(define)
    actions = [
        lambda x: type(hash(jax.tree.structure(x))),
        lambda x: jax.jit(lambda y: y.a + 1)(x).tolist(),
        lambda x: jax.tree.structure(x) == jax.tree.structure(type(x)(x.a, Uncomparable())),
        lambda x: jax.tree.map(lambda a, b: a + b, x, x).a.tolist(),
    ]
    for value in ([1, 2], {"a": 1}, Uncomparable(), np.arange(3)):
        for action in actions:
            assert str(outcome(plain, value, action)) == str(outcome(flat, value, action))


def test_no_fields_and_only_static_fields() -> None:
    def empty(base: type) -> Any:
        class Empty(base):  # type: ignore[misc]
            pass

        return Empty

    def static(base: type) -> Any:
        class Static(base):  # type: ignore[misc]
            a: int = eqx.field(static=True)
            b: int = eqx.field(static=True)

        return Static

    assert_twins(*(cls() for cls in twins(empty)))
    assert_twins(*(cls(1, 2) for cls in twins(static)))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 200])
def test_many_fields(n: int) -> None:
    def define(base: type) -> Any:
        names = [f"field_{i}" for i in range(n)]
        return type(base)(
            "Wide",
            (base,),
            {
                "__annotations__": dict.fromkeys([*names, "s"], Any),
                "s": eqx.field(static=True),
                "__module__": __name__,
                "__qualname__": "Wide",
            },
        )

    values = [object() for _ in range(n)]
    assert_twins(*(cls(*values, "s") for cls in twins(define)))
    # With one field absent and another attribute in its place.
    pair = [cls(*values, "s") for cls in twins(define)]
    for obj in pair:
        del getdict(obj)[f"field_{n - 1}"]
    assert_twins(*pair)
    for obj in pair:
        getdict(obj)["other"] = 1
    assert_twins(*pair)


def test_names_that_generated_code_must_not_use() -> None:
    names = [
        "class",
        "é",
        "ﬁ",
        "self",
        "state",
        "MISSING",
        "cls",
        "c0",
        "key_0",
        "get",
        "__x",
    ]

    def define(base: type) -> Any:
        def init(self: Any, *values: Any) -> None:
            for name, value in zip(names, values, strict=True):
                object.__setattr__(self, name, value)

        return type(base)(
            "Odd",
            (base,),
            {
                "__annotations__": dict.fromkeys(names, Any),
                "cls": eqx.field(static=True),
                "__init__": init,
                "__qualname__": "Odd",
            },
        )

    values = [object() for _ in names]
    assert_twins(*(cls(*values) for cls in twins(define)))


def test_make_dataclass_on_a_module() -> None:
    cls = dataclasses.make_dataclass(
        "Made", [("a", int), ("ünï", int)], bases=(treepress.Module,), eq=False, repr=False
    )
    assert treepress.describe(cls).accelerated
    assert jtu.keystr(jtu.tree_flatten_with_path(cls(1, 2))[0][1][0]) == ".ünï"


def test_inheritance_that_adds_reorders_and_overrides() -> None:
    def define(base: type) -> Any:
        class Parent(base):  # type: ignore[misc]
            a: Any
            b: Any = eqx.field(static=True, default=2)
            c: Any = 3

        class Child(Parent):
            d: Any = 4
            a: Any = eqx.field(static=True, default=1)
            b: Any = 5

        return Parent, Child

    (plain_parent, plain), (flat_parent, flat) = twins(define)
    assert_twins(plain_parent(None), flat_parent(None))
    assert_twins(plain(), flat())
    assert treepress.describe(flat).dynamic == ("b", "c", "d")
    assert treepress.describe(flat).static == ("a",)


def test_diamond_and_a_plain_base() -> None:
    class Plain:
        extra = 1

        def method(self) -> int:
            return self.extra

    def define(base: type) -> Any:
        class Root(base):  # type: ignore[misc]
            a: Any

        class Left(Root):
            b: Any

        class Right(Root):
            c: Any

        class Both(Left, Right, Plain):
            d: Any

        return Both

    values = [object() for _ in range(4)]
    assert_twins(*(cls(*values) for cls in twins(define)))


def test_generic_and_abstract() -> None:
    def define(base: type) -> Any:
        class Abstract(base, Generic[T]):  # type: ignore[misc]
            a: T
            b: eqx.AbstractVar[int]
            c: eqx.AbstractClassVar[int]

            @abc.abstractmethod
            def method(self) -> int: ...

        class Concrete(Abstract[T]):
            b: int
            c: ClassVar[int] = 1

            def method(self) -> int:
                return 1

        return Abstract, Concrete

    (plain_abstract, plain), (flat_abstract, flat) = twins(define)
    assert_twins(plain(1, 2), flat(1, 2))
    # Made so, an instance has an __orig_class__, which is no field.
    assert_twins(plain[int](1, 2), flat[int](1, 2))
    for cls in (plain_abstract, flat_abstract):
        with pytest.raises(TypeError, match="abstract"):
            cls(1)
    with pytest.raises(TypeError, match="abstract"):
        flat_abstract._eqx_tree_unflatten((None,), (1,))


def test_property_hides_a_field() -> None:
    def define(base: type) -> Any:
        class Parent(base):  # type: ignore[misc]
            a: Any = eqx.field(init=False)
            b: Any

        class Child(Parent):
            @property
            def a(self) -> int:
                return 7

        return Child

    plain, flat = (cls(1) for cls in twins(define))
    assert_twins(plain, flat)
    assert flat.a == 7
    assert jax.tree.map(lambda x: x, flat).a == 7


def test_defaults_of_the_class_that_no_instance_has() -> None:
    def define(base: type) -> Any:
        class Default(base):  # type: ignore[misc]
            a: Any = 1
            s: Any = eqx.field(static=True, default=2)

        return Default

    blank = [object.__new__(cls) for cls in twins(define)]
    assert_twins(*blank)
    assert jax.tree.unflatten(*reversed(jax.tree.flatten(blank[1]))).a == 1


def test_flattened_inside_init() -> None:
    def define(base: type) -> Any:
        seen: list[Any] = []

        class Partly(base):  # type: ignore[misc]
            a: Any
            s: Any = eqx.field(static=True)
            b: Any

            def __init__(self, a: Any, s: Any, b: Any) -> None:
                for name, value in [("a", a), ("s", s), ("b", b)]:
                    seen.append((one_level(self), str(jax.tree.structure(self))))
                    setattr(self, name, value)
                seen.append((one_level(self), str(jax.tree.structure(self))))

        Partly.seen = seen
        return Partly

    plain, flat = twins(define)
    values = [object(), "s", object()]
    assert_twins(plain(*values), flat(*values))
    assert len(plain.seen) == 4
    assert plain.seen == flat.seen


def test_converters_checks_and_init_false() -> None:
    def define(base: type) -> Any:
        class Checked(base):  # type: ignore[misc]
            a: Any = eqx.field(converter=float)
            b: Any = eqx.field(init=False)
            checked: ClassVar[list[int]] = []

            def __post_init__(self) -> None:
                self.b = int(self.a)

            def __check_init__(self) -> None:
                self.checked.append(1)

        return Checked

    plain, flat = twins(define)
    (x, y) = plain(1), flat(1)
    assert x.a == y.a == 1.0
    assert x.b == y.b == 1
    leaf = object()
    x, y = (eqx.tree_at(lambda m: (m.a, m.b), m, (leaf, leaf)) for m in (x, y))
    assert_twins(x, y)
    assert flat.checked == [1]


def test_wrapper_attributes() -> None:
    def wrapped() -> None:
        """Documented."""

    def define(base: type) -> Any:
        class Wrapper(base):  # type: ignore[misc]
            fn: Any
            s: Any = eqx.field(static=True, default=1)

            @property
            def __wrapped__(self) -> Any:
                return self.fn

        return Wrapper

    plain: Any
    flat: Any
    plain, flat = (eqx.module_update_wrapper(cls(wrapped)) for cls in twins(define))
    assert flat.__doc__ == "Documented."
    assert_twins(plain, flat)
    again = jax.tree.map(lambda x: x, flat)
    assert again.__name__ == "wrapped"
    assert jax.tree.structure(again) == jax.tree.structure(flat)


def test_instance_made_by_object_new_and_frozen() -> None:
    assert_twins(*(object.__new__(cls) for cls in twins(define_simple)))
    quantity = jax.tree.map(lambda x: x, Quantity(1.0, "m"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        quantity.value = 2.0


def test_treedefs_compare_and_hash() -> None:
    one, same, other = (
        jax.tree.structure(Quantity(0.0, unit)) for unit in ("m", "".join(["m"]), "s")
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert str(one).endswith("'m')], [*]))")


def test_tree_map_with_several_trees_and_prefixes() -> None:
    x, y = Quantity(1.0, "m"), Quantity(2.0, "m")
    assert jax.tree.map(lambda a, b: a + b, x, y).value == 3.0
    with pytest.raises(ValueError, match="(?i)mismatch|metadata"):
        jax.tree.map(lambda a, b: a, x, Quantity(1.0, "s"))
    batched = Quantity(jnp.arange(6.0).reshape(2, 3), "m")
    axes = Quantity(0, "m")
    out = jax.vmap(lambda q: q.value.sum(), in_axes=(axes,))(batched)
    np.testing.assert_array_equal(out, [3.0, 12.0])


def test_transformations() -> None:
    m = model()
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(jax.jit(lambda m, x: m(x))(m, x), m(x))
    out = jax.jit(lambda m: eqx.tree_at(lambda m: m.inner.value, m, m.inner.value + 1))(m)
    assert type(out) is Model
    assert out.inner.value == 3.0
    assert out.inner.unit == "m"
    assert out.bias is None
    grads = jax.grad(lambda m: m(x).sum())(m)
    np.testing.assert_array_equal(grads.weight, np.tile(2 * np.arange(3.0), (2, 1)))

    def step(carry: Quantity, y: jax.Array) -> tuple[Quantity, Quantity]:
        return jax.tree.map(lambda v: v + y, carry), carry

    last, steps = jax.lax.scan(step, Quantity(jnp.array(0.0), "m"), jnp.arange(4.0))
    assert last.value == 6.0
    np.testing.assert_array_equal(steps.value, [0.0, 0.0, 1.0, 3.0])
    shape = jax.eval_shape(lambda m: m, m)
    assert shape.weight.shape == (2, 3)
    assert eqx.filter_jit(lambda m, s: (m, s))(m, "static")[1] == "static"


def test_bound_methods_are_pytrees() -> None:
    m = model()
    method = m.scaled
    assert len(jax.tree.leaves(method)) == 2
    np.testing.assert_array_equal(jax.jit(lambda f: f(2.0))(method), 2 * np.ones((2, 3)))
    # The kernels themselves are methods.
    children, _ = m._eqx_tree_flatten()
    assert children[0] is m.weight


def test_jit_does_not_retrace() -> None:
    traces = []

    @jax.jit
    def f(q: Quantity) -> Any:
        traces.append(1)
        return jax.tree.map(lambda v: v + 1, q)

    q = Quantity(jnp.array(0.0), "m")
    for _ in range(5):
        q = f(q)
    assert q.value == 5.0
    assert len(traces) == 1
    f(Quantity(jnp.array(0.0), "s"))
    assert len(traces) == 2


def test_pickle_and_copy() -> None:
    import copy

    q = Quantity(1.0, "m")
    jax.tree.flatten(q)
    for again in (pickle.loads(pickle.dumps(q)), copy.copy(q), copy.deepcopy(q)):
        assert getdict(again) == getdict(q)
        assert jax.tree.structure(again) == jax.tree.structure(q)
    partial = ft.partial(Quantity, unit="m")
    assert jax.tree.leaves(partial(2.0)) == [2.0]


def test_unflatten_takes_any_iterables_and_refuses_other_lengths() -> None:
    _, aux = Quantity._eqx_tree_flatten(Quantity(1.0, "m"))
    children: Any
    for children in ([2.0], (2.0,), iter([2.0])):
        assert Quantity._eqx_tree_unflatten(aux, children).value == 2.0
    assert Quantity._eqx_tree_unflatten(list(aux), (2.0,)).unit == "m"
    for bad_aux, children in [(aux, ()), (aux, (1.0, 2.0)), (aux[:1], (1.0,)), ((), ())]:
        with pytest.raises(ValueError, match=r"cannot unflatten a Quantity.*value.*unit"):
            Quantity._eqx_tree_unflatten(bad_aux, children)


def test_uncommon_children_and_leaves_in_unflatten() -> None:
    treedef = jax.tree.structure(model())
    out = jax.tree.unflatten(treedef, [None, (1, 2)])
    assert out.weight is None
    assert out.inner.value == (1, 2)


def test_a_descriptor_for_a_field_is_honoured() -> None:
    def define(base: type) -> Any:
        class Described(base):  # type: ignore[misc]
            a: Any
            s: Any = eqx.field(static=True)

        calls: list[Any] = []

        def setter(self: Any, value: Any) -> None:
            calls.append(value)
            getdict(self)["a"] = value

        Described.a = property(lambda self: getdict(self)["a"], setter)
        Described.calls = calls
        return Described

    pair = [cls(1, "s") for cls in twins(define)]
    assert_twins(*pair)
    assert type(pair[0]).calls[0] == type(pair[1]).calls[0] == 1
    assert len(type(pair[0]).calls) == len(type(pair[1]).calls) > 1


def test_slots_in_a_base() -> None:
    class Slotted:
        __slots__ = ("slot",)

    def define(base: type) -> Any:
        class WithSlot(Slotted, base):  # type: ignore[misc]
            a: Any

        return WithSlot

    pair = [cls(object()) for cls in (define(eqx.Module), define(treepress.Module))]
    for obj in pair:
        object.__setattr__(obj, "slot", 1)
    assert one_level(pair[0])[1:2] == one_level(pair[1])[1:2]
    assert jax.tree.leaves(pair[1]) == [pair[1].a]
    assert "__slots__" in treepress.describe(pair[1]).rule
    again = jax.tree.map(lambda x: x, pair[1])
    assert not hasattr(again, "slot")


@pytest.mark.parametrize("what", ["__getattribute__", "__dict__"])
def test_unusual_class_is_left_to_equinox(what: str) -> None:
    def getattribute(self: Any, name: str) -> Any:
        if name == "__dict__":
            return {"a": "changed"}
        return eqx.Module.__getattribute__(self, name)

    odd = (
        getattribute if what == "__getattribute__" else property(lambda s: {"a": "changed"})
    )
    namespace = {"__annotations__": {"a": Any}, what: odd}
    with pytest.warns(RuntimeWarning, match=what):
        flat = META("Odd", (treepress.Module,), dict(namespace))
    plain = META("Odd", (eqx.Module,), dict(namespace))
    about = treepress.describe(flat)
    assert not about.accelerated
    assert about.registered_by == "equinox"
    assert what in about.reason
    leaves = [jax.tree.leaves(object.__new__(cls)) for cls in (plain, flat)]
    assert leaves == [["changed"], ["changed"]]


def test_many_instances_at_once() -> None:
    tree = [{"q": Quantity(float(i), "m"), "rest": (i, None)} for i in range(1000)]
    leaves, treedef = jax.tree.flatten(tree)
    assert leaves[:4] == [0.0, 0, 1.0, 1]
    assert state(jax.tree.unflatten(treedef, leaves)) == state(tree)


def test_dict_of_another_class() -> None:
    def define(base: type) -> Any:
        class Simple(base):  # type: ignore[misc]
            a: Any
            s: Any = eqx.field(static=True)

        return Simple

    pair = [object.__new__(cls) for cls in twins(define)]
    for obj in pair:
        odd = collections.defaultdict(int, {"a": 1, "other": 2})
        object.__setattr__(obj, "__dict__", odd)
    assert_twins(*pair)
    assert "s" not in getdict(pair[1])

    class Full(dict[str, Any]):
        def __len__(self) -> int:
            return 2

    for obj in pair:
        object.__setattr__(obj, "__dict__", Full(a=1))
    assert_twins(*pair)


def test_cooperative_getattribute_is_left_to_equinox() -> None:
    class Base:
        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                return {"a": "changed"}
            return super().__getattribute__(name)

    with pytest.warns(RuntimeWarning, match="__getattribute__"):

        class Odd(treepress.Module, Base):
            a: Any

    assert jax.tree.leaves(object.__new__(Odd)) == ["changed"]


def test_copied_class_is_a_class_of_its_own() -> None:
    namespace = {
        key: value
        for key, value in vars(Quantity).items()
        if key not in ("__dict__", "__weakref__")
    }
    meta: Any = type(Quantity)
    Copy = meta("Copy", Quantity.__bases__, namespace)
    assert type(jax.tree.map(lambda x: x, Copy(1.0, "m"))) is Copy
    assert type(jax.tree.map(lambda x: x, Quantity(1.0, "m"))) is Quantity


def test_metaclass_with_equality_of_its_own() -> None:
    class Meta(type(eqx.Module)):  # type: ignore[misc]
        def __eq__(cls, other: object) -> Any:
            return "expression"

        def __hash__(cls) -> int:
            return id(cls)

    class Plain(eqx.Module, metaclass=Meta):
        a: int

    class Child(Plain):
        b: int = 0

    assert treepress.describe(Child).registered_by == "equinox"


@pytest.mark.parametrize("name", ["a\nraise SystemExit(9)", "\x00", "a\r\x0cb", "#"])
def test_any_string_is_a_name(name: str) -> None:
    def define(base: type) -> Any:
        def init(self: Any, value: Any) -> None:
            object.__setattr__(self, name, value)

        return type(base)(
            "Odd",
            (base,),
            {
                "__annotations__": {name: Any},
                "__init__": init,
                "__qualname__": name if "raise" in name else "Odd",
            },
        )

    leaf = object()
    assert_twins(*(cls(leaf) for cls in twins(define)))

    class Record:
        pass

    treepress.register_dataclass(Record, [name], [])
    record = Record()
    setattr(record, name, leaf)
    assert vars(jax.tree.map(lambda x: x, record)) == {name: leaf}


def test_a_name_of_another_string_class() -> None:
    class Name(str):
        pass

    cls = META("Odd", (treepress.Module,), {"__annotations__": {Name("a"): Any}})
    assert jax.tree.leaves(cls(1)) == [1]


def test_layout_is_that_of_a_module() -> None:
    class Other(eqx.Module):
        a: Any

    class Mine(treepress.Module):
        a: Any

    obj = Mine(1)
    object.__setattr__(obj, "__class__", Other)
    assert jax.tree.leaves(obj) == [1]


def test_pickled_by_value() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")

    class Fast(treepress.FlatMixin, eqx.nn.Linear):
        pass

    cls: Any = Fast
    fast = cls(2, 2, key=jax.random.key(0))
    again = pickle.loads(cloudpickle.dumps(fast))
    assert again.in_features == 2
    assert type(again).__name__ == "Fast"


def test_half_built_tuples_are_not_seen() -> None:
    import gc

    class Looking:
        def __init__(self) -> None:
            self.a = 1

        @property
        def b(self) -> int:
            # Touches every tuple there is; one that is empty inside ends the process.
            return sum(
                len([x for x in t if x is None])
                for t in gc.get_objects()
                if type(t) is tuple
            )

    treepress.register_dataclass(Looking, ["a", "b"], [])
    assert jax.tree.leaves(Looking())[0] == 1
    assert len(jtu.tree_flatten_with_path(Looking())[0]) == 2
