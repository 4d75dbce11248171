"""Construction by kernels: the same instances, warnings and errors as under Equinox."""

import abc
import dataclasses
import functools as ft
import inspect
import pickle
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress import _construct
from twins import META, getdict, in_threads, outcome

T = TypeVar("T")
WRAPPED = jax.vmap(eqx.nn.Linear(1, 1, key=jax.random.key(0)))


def both(define: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The classes of `define`, as Equinox constructs them and as we do."""
    plain, ours = define(eqx.Module), define(treepress.Module)
    assert not treepress.describe(plain).constructed
    return plain, ours


def made(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All that there is to see of a construction."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        obj = outcome(lambda: cls(*args, **kwargs))
    said = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
    if isinstance(obj, eqx.Module):
        return "made", [(k, shown(v)) for k, v in getdict(obj).items()], said
    return "failed", obj, said


def shown(value: Any) -> Any:
    if isinstance(value, (jax.Array, np.ndarray)):
        return type(value), value.dtype, value.tolist()
    if isinstance(value, eqx.Module):
        return type(value).__name__, [(k, shown(v)) for k, v in getdict(value).items()]
    return value


def assert_same(
    define: Callable[[Any], Any], *args: Any, by_kernel: bool = True, **kwargs: Any
) -> Any:
    """What both classes give for the same arguments; returns it."""
    plain, ours = both(define)
    reason = treepress.describe(ours).why_not_constructed
    assert (reason == "") is by_kernel, reason
    one, other = made(plain, args, kwargs), made(ours, args, kwargs)
    assert one == other
    return other


def simple(base: Any) -> Any:
    class Simple(base):  # type: ignore[misc]
        x: Any
        y: Any = 2
        z: Any = dataclasses.field(default="z", kw_only=True)
        u: Any = eqx.field(static=True, default="m")

    return Simple


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((1, 2, 3), {}),
        ((1,), {"u": 5, "y": 6}),
        ((), {"x": 1}),
        ((1,), {"z": 3}),
        ((), {}),
        ((1, 2, 3, 4), {}),
        ((1,), {"x": 2}),
        ((1,), {"other": 2}),
        ((jnp.ones(2), np.ones(2)), {}),
        (({"a": [1, (2, None)]},), {}),
        (({1: 2, "a": 3},), {}),
        ((jax.nn.relu, jnp.tanh), {"u": jax.nn.relu}),
        ((jax.jit(lambda x: x),), {}),
        ((WRAPPED,), {}),
        (([jax.jit(ft.partial(jnp.add, jnp.ones(2)))],), {}),
        ((1, 2, jnp.ones(2)), {}),
        ((1, 2), {"u": [np.ones(2)]}),
        ((1, 2), {"u": eqx.nn.Identity()}),
        ((1, 2), {"u": eqx.nn.Linear(1, 1, key=jax.random.key(0))}),
    ],
)
def test_arguments(args: Any, kwargs: Any) -> None:
    assert_same(simple, *args, **kwargs)


def test_kernels_are_those_of_the_backend() -> None:
    cls = simple(treepress.Module)
    cls(1)
    kernel = type(_construct._plans[cls])
    backend = "kernels" if treepress.backend == "compiled" else "fallback"
    assert (kernel.__name__, kernel.__module__) == (
        "Construct",
        f"treepress.{backend}.construct",
    )
    assert type(_construct._set).__module__ == kernel.__module__


def test_inside_of_transformations() -> None:
    plain, ours = both(simple)
    for cls in (plain, ours):
        out = jax.jit(lambda x, cls=cls: cls(x, [x]).x + 1)(1.0)
        assert float(out) == 2.0
        grads = jax.grad(lambda x, cls=cls: cls(x, x).y ** 2)(3.0)
        assert float(grads) == 6.0


def test_converters_and_checks() -> None:
    seen: list[Any] = []

    def define(base: Any) -> Any:
        class Above(base):  # type: ignore[misc]
            x: Any = eqx.field(converter=jnp.asarray)

            def __check_init__(self) -> None:
                seen.append(("above", self.x.shape))

        class Below(Above):
            y: Any = eqx.field(converter=str, static=True, default=3)
            w: Any = eqx.field(converter=np.asarray, static=True, default=0)

            def __check_init__(self) -> None:
                seen.append(("below", self.y))
                if self.y == "bad":
                    raise ValueError("it is bad")

        return Below

    state = assert_same(define, [1, 2])
    assert "being set as static" in state[2][0][1]
    assert seen == [("below", "3"), ("above", (2,))] * 2
    assert_same(define, [1, 2], y="bad")
    assert_same(define, "no array")


@pytest.mark.parametrize(
    "case", ["sets", "lacks", "raises", "returns", "method", "other", "wrapped", "frozen"]
)
def test_an_init_of_its_own(case: str) -> None:
    def define(base: Any) -> Any:
        class Own(base):  # type: ignore[misc]
            x: Any
            f: Any = None
            u: Any = eqx.field(static=True, default=1)

            def __init__(self, x: Any, *, u: Any = 5) -> None:
                self.x = x
                self.u = u
                if case == "lacks":
                    object.__delattr__(self, "x")
                if case == "raises":
                    raise RuntimeError("no")
                if case == "method":
                    self.f = self.method
                if case == "other":
                    self.something = 1
                if case == "wrapped":
                    self.f = WRAPPED
                if case == "frozen":
                    outer = self

                    class Inner(eqx.Module):
                        y: int

                        def __init__(self) -> None:
                            self.y = 1
                            self.y = 2

                    outer.x = Inner().y
                    outer.u = "s"
                if case == "returns":
                    return 5  # type: ignore[return-value]

            def method(self) -> None: ...

        return Own

    result = assert_same(define, 1)
    assert_same(define, 1, u=jnp.ones(1))
    assert_same(define)
    assert (result[0] == "made") is (case in ("sets", "wrapped", "frozen"))
    if case == "sets":
        obj = define(treepress.Module)(1)
        for name in ("x", "u", "new"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"'{name}'"):
                setattr(obj, name, 1)


@pytest.mark.parametrize(
    "case",
    ["post_init", "initvar", "factory", "init=False", "descriptor", "setattr", "new"],
)
def test_generated_inits_of_other_kinds(case: str) -> None:
    def define(base: Any) -> Any:
        space: dict[str, Any] = {"__annotations__": {"x": Any}, "__module__": __name__}
        if case == "post_init":
            space["__annotations__"]["y"] = Any
            space["y"] = dataclasses.field(init=False, default=0.5)
            space["__post_init__"] = lambda self: setattr(self, "y", self.x)
        if case == "initvar":
            space["__annotations__"]["y"] = dataclasses.InitVar[int]
            space["y"] = 3
            space["__post_init__"] = lambda self, y: setattr(self, "x", y)
        if case == "factory":
            space["__annotations__"]["y"] = Any
            space["y"] = dataclasses.field(default_factory=lambda: jnp.ones(2))
        if case == "init=False":
            space["__annotations__"]["y"] = Any
            space["y"] = eqx.field(init=False)
        if case == "descriptor":
            space["x"] = property(lambda self: 5, lambda self, value: None)
        if case == "setattr":

            def __setattr__(self: Any, name: str, value: Any) -> None:
                eqx.Module.__setattr__(self, name, (value,))

            space["__setattr__"] = __setattr__
        if case == "new":
            space["__new__"] = lambda cls, *a, **k: eqx.Module.__new__(cls)
        return META("Odd", (base,), space)

    assert_same(define, 1.0, by_kernel=case != "new")
    assert_same(define, jnp.ones(2), by_kernel=case != "new")
    assert_same(define, by_kernel=case != "new")


def test_abstract_classes() -> None:
    def with_method(base: Any) -> Any:
        class Abstract(base):  # type: ignore[misc]
            @abc.abstractmethod
            def f(self) -> None: ...

        return Abstract

    def with_var(base: Any) -> Any:
        class Abstract(base):  # type: ignore[misc]
            x: eqx.AbstractVar[int]

        return Abstract

    def with_class_var(base: Any) -> Any:
        class Abstract(base):  # type: ignore[misc]
            x: eqx.AbstractClassVar[int]

        return Abstract

    def by_keyword(base: Any) -> Any:
        class Abstract(base, is_abstract=True): ...  # type: ignore[misc, call-arg]

        return Abstract

    for define in (with_method, with_var, with_class_var, by_keyword):
        assert assert_same(define, by_kernel=False)[0] == "failed"
    cls = with_method(treepress.Module)
    cls.f = lambda self: None
    abc.update_abstractmethods(cls)
    assert type(cls()) is cls


def test_changes_to_a_class_are_heeded() -> None:
    def define(base: Any) -> Any:
        class Above(base):  # type: ignore[misc]
            x: Any

        class Below(Above):
            y: Any = 1

        return Below

    def checked(cls: Any) -> Any:
        def __check_init__(self: Any) -> None:
            raise ValueError("checked")

        cls.__mro__[1].__check_init__ = __check_init__

    def replaced(cls: Any) -> Any:
        def __init__(self: Any, value: Any) -> None:
            self.x = value
            self.y = [value]

        cls.__init__ = __init__

    def again(cls: Any) -> Any:
        del cls.__mro__[1].__check_init__

    def decorated(cls: Any) -> Any:
        inner = cls.__init__

        @ft.wraps(inner)
        def __init__(self: Any, *args: Any) -> None:
            inner(self, *args)

        cls.__init__ = __init__

    def newly(cls: Any) -> Any:
        cls.__new__ = lambda cls, *args: eqx.Module.__new__(cls)

    plain, ours = both(define)
    for change in (checked, again, replaced, decorated, newly):
        for cls in (plain, ours):
            change(cls)
        assert made(plain, (1,), {}) == made(ours, (1,), {})
        assert made(plain, (1, 2), {}) == made(ours, (1, 2), {})


def test_changes_to_a_base_that_is_no_module() -> None:
    def define(base: Any) -> Any:
        class Mix:
            def __init__(self, x: Any) -> None:
                self.x = x

        class Model(Mix, base):  # type: ignore[misc]
            x: Any

        return Model

    def other_init(self: Any, x: Any) -> None:
        self.x = [x]

    def __check_init__(self: Any) -> None:
        raise ValueError("checked")

    plain, ours = both(define)
    for name, value in (("__init__", other_init), ("__check_init__", __check_init__)):
        for cls in (plain, ours):
            cls(1) if name == "__init__" else None
            setattr(cls.__mro__[1], name, value)
        assert made(plain, (1,), {}) == made(ours, (1,), {})
    for cls in (plain, ours):
        del cls.__mro__[1].__check_init__
    assert made(plain, (1,), {}) == made(ours, (1,), {})


@pytest.mark.filterwarnings("ignore:.*has a __getattribute__ of its own:RuntimeWarning")
@pytest.mark.parametrize("kind", ["mixin", float, str])
def test_a_new_behind_module(kind: Any) -> None:
    class New:
        def __new__(cls, *args: Any) -> Any:
            obj = super().__new__(cls)
            object.__setattr__(obj, "tag", 7)
            return obj

    def define(base: Any) -> Any:
        class Model(base, New if kind == "mixin" else kind):  # type: ignore[misc]
            x: Any

        return Model

    assert_same(define, 1, by_kernel=False)


@pytest.mark.parametrize("how", ["replaced", "swapped", "defaults", "code"])
def test_an_init_like_that_of_dataclasses(how: str) -> None:
    def define(base: Any) -> Any:
        class Model(base):  # type: ignore[misc]
            x: Any
            y: Any = 2

        space: dict[str, Any] = {}
        body = (
            "self.x = y; self.y = x" if how == "swapped" else "self.x = x * 10; self.y = y"
        )
        exec(f"def __init__(self, x, y=5):\n    {body}", space)
        if how == "defaults":
            Model.__init__.__defaults__ = (9,)
        elif how == "code":
            Model.__init__.__code__ = space["__init__"].__code__
        else:
            Model.__init__ = space["__init__"]  # type: ignore[method-assign]
        return Model

    assert_same(define, 1)


def test_changes_to_equinox_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = simple(treepress.Module)
    seen: list[str] = []
    new, assign = eqx.Module.__new__, eqx.Module.__setattr__

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append("new")
        return new(cls)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        seen.append(name)
        assign(self, name, value)

    monkeypatch.setattr(eqx.Module, "__new__", staticmethod(__new__))
    cls(1)
    assert seen == ["new"]
    monkeypatch.undo()
    monkeypatch.setattr(eqx.Module, "__setattr__", __setattr__)
    cls(1)
    assert seen == ["new", "x", "y", "z", "u"]
    monkeypatch.undo()
    cls(1)
    assert len(seen) == 5


def test_errors_have_their_cause() -> None:
    class Model(treepress.Module):
        x: Any

        def __init__(self) -> None: ...

    with pytest.raises(TypeError, match="Field 'x' was not initialized.") as error:
        Model()
    assert isinstance(error.value.__cause__, AttributeError)


def test_warnings_of_its_own_are_where_they_were_before() -> None:
    def converter(x: Any) -> Any:
        warnings.warn("converted", stacklevel=2)
        return x

    class Model(treepress.Module):
        x: Any = eqx.field(converter=converter)

        def __check_init__(self) -> None:
            warnings.warn("checked", stacklevel=2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            Model(1)
    places = [(w.filename, w.lineno) for w in caught]
    assert len(places) == 6
    assert len(set(places[::2])) == len(set(places[1::2])) == 1


def test_defaults_are_not_looked_into() -> None:
    @jtu.register_pytree_node_class
    class Odd:
        def tree_flatten(self) -> Any:
            raise RuntimeError("flattened")

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any: ...

    odd = Odd()

    def define(base: Any) -> Any:
        class Model(base):  # type: ignore[misc]
            x: Any = odd
            y: Any = 1

        return Model

    assert_same(define, y=2)
    assert assert_same(define, odd)[0] == "failed"


def test_instances_are_what_they_were() -> None:
    class Box(treepress.Module, Generic[T]):
        x: T

        def double(self) -> Any:
            return 2 * self.x  # type: ignore[operator]

    box = Box[int](1)
    assert type(box) is Box
    assert getdict(box) == {"x": 1, "__orig_class__": Box[int]}
    assert Box(2) == Box(2)
    assert hash(Box(2)) == hash(Box(2))
    assert repr(Box(2)).endswith("Box(x=2)")
    assert jax.tree.structure(Box(2)) == jax.tree.structure(Box(3))
    assert str(inspect.signature(Box)) == "(x: ~T) -> None"
    assert inspect.signature(META.__call__) == inspect.signature(_construct.CALL)
    assert pickle.loads(pickle.dumps(Picklable([1]))) == Picklable([1])


class Picklable(treepress.Module):
    x: Any


def test_nothing_is_kept_of_an_init_that_fails() -> None:
    class Fails(treepress.Module):
        x: Any

        def __init__(self) -> None:
            self.x = 1
            raise RuntimeError("no")

    initialising = vars(_construct)["theirs"]._currently_initialising._dict
    before = len(initialising)
    with pytest.raises(RuntimeError):
        Fails()
    assert len(initialising) == before


def test_threads() -> None:
    cls = simple(treepress.Module)
    other = simple(eqx.Module)

    class Own(treepress.Module):
        x: Any

        def __init__(self, x: Any) -> None:
            self.x = x

    def work() -> None:
        assert getdict(cls(1, u="s"))["u"] == "s"
        assert Own(3).x == 3
        assert other(4).x == 4

    with in_threads(work, 3):
        for i in range(100):
            cls.__check_init__ = lambda self: None
            Own.later = i  # type: ignore[attr-defined]
            treepress.accelerate(other)
            treepress.deaccelerate(other)


def test_taken_back() -> None:
    plain = simple(eqx.Module)
    treepress.accelerate(plain)
    assert treepress.describe(plain).constructed
    assert vars(META)["__call__"] is not _construct.CALL
    treepress.accelerate(plain, hot=False)
    assert not treepress.describe(plain).constructed
    assert plain(1).x == 1
    treepress.accelerate(plain, hot=True)
    treepress.deaccelerate(plain)
    assert not treepress.describe(plain).constructed
    assert plain not in _construct._settable


def test_what_equinox_does_itself_has_not_changed() -> None:
    assert _construct.why_never() == ""


FIELD = st.fixed_dictionaries(
    {},
    optional={
        "default": st.sampled_from([0, "text", None, (1, 2), jax.nn.relu]),
        "converter": st.sampled_from([str, jnp.asarray, lambda x: [x]]),
        "static": st.booleans(),
        "kw_only": st.booleans(),
        "init": st.sampled_from([True, True, False]),
    },
)
VALUE = st.sampled_from([1, 2.0, "m", None, [3, {"a": 4}], np.float32(1), jnp.ones(1)])


class Text(str):
    """A name that is no plain string."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


@pytest.mark.parametrize("own", [False, True])
def test_names_in_the_dict_are_plain_strings(own: bool) -> None:
    space: dict[str, Any] = {
        "__annotations__": {Text("x"): Any, Text("y"): Any},
        "__module__": __name__,
    }
    if own:
        space["y"] = eqx.field(converter=abs)
        space["__post_init__"] = lambda self: None
    cls: Any = META("Named", (treepress.Module,), space)
    assert [type(name) for name in vars(cls(1, 2))] == [str, str]


@pytest.mark.parametrize("init", [1, "x", np.True_])
def test_init_of_a_field_that_is_no_bool(init: Any) -> None:
    class Own(treepress.Module):
        x: Any = eqx.field(init=init)

        def __init__(self, x: Any) -> None:
            self.x = x

    assert treepress.describe(Own).constructed
    assert Own(1).x == 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(FIELD, max_size=4),
    st.sampled_from(["", "own", "checks", "below"]),
    st.lists(VALUE, max_size=4),
    st.dictionaries(st.sampled_from(["f0", "f1", "f2", "f3", "g"]), VALUE, max_size=3),
)
def test_generated_classes(fields: Any, kind: str, args: Any, kwargs: Any) -> None:
    names = [f"f{i}" for i in range(len(fields))]

    def define(base: Any) -> Any:
        space: dict[str, Any] = {
            "__annotations__": dict.fromkeys(names, Any),
            "__module__": __name__,
            "__qualname__": "Made",
        }
        for name, field in zip(names, fields, strict=True):
            space[name] = eqx.field(**field)
        if kind == "own":

            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
                    setattr(self, name, value)

            space["__init__"] = __init__
        if kind == "checks":
            space["__check_init__"] = lambda self: [str(x) for x in vars(self).values()]
        cls = META("Made", (base,), space)
        if kind == "below":
            cls = META("Made", (cls,), {"__module__": __name__, "__qualname__": "Made"})
        return cls

    try:
        define(eqx.Module)
    except TypeError:  # a field without a default after one with
        return
    plain, ours = both(define)
    for cls in (plain, ours):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome(lambda cls=cls: cls(*args, **kwargs))
    assert made(plain, tuple(args), kwargs) == made(ours, tuple(args), kwargs)
