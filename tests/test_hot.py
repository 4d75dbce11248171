"""Hot classes: attributes and methods are what they are under Equinox, and fast."""

import abc
import copy
import doctest
import functools as ft
import inspect
import pickle
import pydoc
import re
import sys
import threading
import types
import typing
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress import _fit, _methods
from treepress._node import nodes
from twins import getdict, in_threads, outcome

T = TypeVar("T")


class HotModule(treepress.Module, hot=True):
    """What the classes of these tests derive from."""


BoundMethod: Any = _methods.BoundMethod


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    treepress.uninstall()


def both(define: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The classes of `define`, under Equinox and hot."""
    return define(eqx.Module), define(HotModule)


def shown(value: Any, obj: Any) -> Any:
    """All that there is to see of an attribute."""
    if type(value) is BoundMethod:
        state = getdict(value)
        assert state["__self__"] is obj
        function = state["__func__"]
        return (
            "a bound method",
            list(state),
            getattr(function, "__qualname__", type(function)),
            [state.get(n) for n in ("__module__", "__name__", "__doc__")],
            re.sub(" at 0x[0-9a-f]+", "", str(jax.tree.structure(value))),
        )
    if isinstance(value, types.MethodType):
        return ("a plain method", value.__self__ is obj, type(value.__func__))
    return (type(value), getattr(value, "__qualname__", None))


def assert_same(plain: Any, hot: Any) -> None:
    """Two instances show the same by every name that either of them has."""
    assert _fit.is_hot(type(hot)), _fit.why_not(type(hot))
    assert not _fit.is_hot(type(plain))
    names = set(dir(plain)) | set(dir(hot))
    for name in sorted(names):
        if name.startswith("_eqx_tree_"):
            continue
        if name.startswith("__") and name.endswith("__"):
            continue
        one, other = outcome(getattr, plain, name), outcome(getattr, hot, name)
        assert shown(one, plain) == shown(other, hot), name
        one = outcome(getattr, type(plain), name)
        other = outcome(getattr, type(hot), name)
        assert type(one) is type(other), name


class Mix:
    def mixed(self) -> str:
        """Of no Module."""
        return "mixed"

    @classmethod
    def made(cls) -> Any:
        return cls


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


class Descriptor:
    """As cached properties are: it writes to the instance's dict."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is None:
            return self
        getdict(obj)[self.name] = 5
        return 5


class Methodlike:
    """A callable that binds as functions do."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)


def wrapper(function: Any) -> Any:
    @ft.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


def define_everything(base: Any) -> Any:
    class Base(base, Generic[T]):  # type: ignore[misc]
        x: Any
        s: str = eqx.field(static=True, default="s")

        def of_base(self) -> Any:
            return self.x

        def hidden(self) -> str:
            return "base"

        def __private(self) -> str:
            return "private"

        def calls_private(self) -> str:
            return str(self.__private())

    class Everything(Mix, Base[int], Shape):
        call: Any = eqx.field(static=True, default=len)

        def method(self, y: Any = 0) -> Any:
            """A docstring."""
            return self.x + y

        def hidden(self) -> str:
            return "over " + super().hidden()

        def area(self) -> float:
            return 1.0

        def __call__(self) -> str:
            return "called"

        lambda_ = lambda self: self.x  # noqa: E731
        partial = ft.partialmethod(method, 3)
        wrapped = wrapper(method)
        jitted = jax.jit(method)
        filtered = eqx.filter_jit(method)
        custom = jax.custom_jvp(method)
        cached = Descriptor()
        like = Methodlike(method)
        builtin = len

        @ft.singledispatchmethod
        def single(self, arg: Any) -> str:
            return "any"

        @single.register
        def _(self, arg: int) -> str:
            return "int"

        @property
        def prop(self) -> Any:
            return self.method

        @staticmethod
        def static(y: int) -> int:
            return y

        @classmethod
        def of_class(cls) -> Any:
            return cls.__name__

        async def coroutine(self) -> None: ...

    return Everything


def test_everything_is_the_same() -> None:
    plain_cls, hot_cls = both(define_everything)
    plain, hot = plain_cls(jnp.arange(2.0)), hot_cls(jnp.arange(2.0))
    assert_same(plain, hot)
    for obj in (plain, hot):
        assert jnp.array_equal(obj.method(1), obj.x + 1)
        assert jnp.array_equal(obj.partial(), obj.x + 3)
        assert jnp.array_equal(obj.wrapped(1), obj.x + 1)
        assert jnp.array_equal(obj.jitted(1), obj.x + 1)
        assert jnp.array_equal(obj.filtered(1), obj.x + 1)
        assert jnp.array_equal(obj.like(), obj.x)
        assert obj.hidden() == "over base"
        assert obj.calls_private() == "private"
        assert (obj(), obj.mixed(), obj.made(), obj.static(3)) == (
            "called",
            "mixed",
            type(obj),
            3,
        )
        assert (obj.single(1), obj.single("")) == ("int", "any")
        assert obj.cached == getdict(obj)["cached"] == 5
    # What was read of them above is in their dicts now.
    assert_same(plain, hot)


def test_bound_methods_as_pytrees() -> None:
    class Model(HotModule):
        w: Any

        def apply(self, x: Any) -> Any:
            return self.w * x

    model = Model(jnp.arange(3.0))
    method: Any = model.apply
    assert type(method) is BoundMethod
    assert method == model.apply
    assert eqx.tree_equal(method, BoundMethod(Model.apply, model))
    assert jax.tree.structure(method) == jax.tree.structure(BoundMethod(Model.apply, model))
    assert jnp.array_equal(eqx.filter_jit(method)(2.0), 2 * model.w)
    assert jnp.array_equal(jax.jit(lambda f, x: f(x))(method, 2.0), 2 * model.w)
    assert jnp.array_equal(jax.vmap(method, in_axes=0)(jnp.ones(2))[1], model.w)
    assert jnp.array_equal(jax.tree.map(lambda x: x + 1, method)(1.0), model.w + 1)
    changed = eqx.tree_at(lambda f: f.__self__.w, method, jnp.ones(3))
    assert jnp.array_equal(changed(1.0), jnp.ones(3))
    assert jnp.array_equal(method.__wrapped__(2.0), 2 * model.w)
    assert hash(Model((1, 2)).apply) == hash(Model((1, 2)).apply)
    assert repr(method) == repr(BoundMethod(Model.apply, model))


def test_what_a_function_says_of_itself_is_read_anew() -> None:
    class Model(HotModule):
        def f(self) -> None: ...

    model = Model()
    assert model.f.__doc__ is None
    Model.f.__doc__ = "new"
    Model.f.__name__ = "other"
    assert (model.f.__doc__, model.f.__name__) == ("new", "other")  # type: ignore[comparison-overlap]
    assert getdict(model.f) == getdict(BoundMethod(Model.f, model))


def test_set_and_deleted_later() -> None:
    def define(base: Any) -> Any:
        class Base(base):  # type: ignore[misc]
            x: Any

            def f(self) -> str:
                return "base"

        class Below(Base):
            def f(self) -> str:
                return "below"

        Base.g = lambda self: "g"
        Below.h = jax.jit(lambda self: self.x)
        del Below.f
        Base.n = 3
        return Below

    plain, hot = (cls(1) for cls in both(define))
    assert_same(plain, hot)
    assert (hot.f(), hot.g(), hot.h(), hot.n) == ("base", "g", 1, 3)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        del type(hot).nothing
    with pytest.raises(AttributeError, match="'Below' object has no attribute 'nothing'"):
        hot.nothing  # noqa: B018


def test_a_base_that_is_not_hot() -> None:
    class Cold(eqx.Module):
        x: Any

        def f(self) -> str:
            return "f"

    class Hot(treepress.FlatMixin, Cold, Mix, hot=True):
        def g(self) -> str:
            return "g"

    class AlsoPlain(Cold, Mix):
        def g(self) -> str:
            return "g"

    AlsoPlain.__qualname__ = Hot.__qualname__
    hot: Any = Hot(1)
    for name in ("f", "g", "mixed"):
        assert type(getattr(hot, name)) is BoundMethod
    assert type(vars(Cold)["f"]) is types.FunctionType, "it was not touched"
    assert type(vars(Mix)["mixed"]) is types.FunctionType
    Cold.f = lambda self: "new"  # type: ignore[method-assign]
    Cold.later = lambda self: "later"  # type: ignore[attr-defined]
    assert (hot.f(), hot.later()) == ("new", "later")
    assert type(hot.later) is BoundMethod
    del Cold.later  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Hot' object has no attribute 'later'"):
        hot.later  # noqa: B018
    Mix.mixed_later = lambda self: "m"  # type: ignore[attr-defined]
    try:
        assert hot.mixed_later() == "m"
    finally:
        del Mix.mixed_later  # type: ignore[attr-defined]
    assert isinstance(Cold(1).f, BoundMethod)


def test_diamond() -> None:
    def define(base: Any) -> Any:
        class Top(Mix):
            def f(self) -> str:
                return "top"

        class Left(Top, base):  # type: ignore[misc]
            x: Any

        class Right(Top, eqx.Module):
            def f(self) -> str:
                return "right " + super().f()

        class Bottom(Left, Right):
            def g(self) -> str:
                return self.f()

        return Bottom

    plain, hot = (cls(1) for cls in both(define))
    assert_same(plain, hot)
    assert plain.g() == hot.g() == plain.f() == hot.f() == "right top"


def test_below_a_hot_class() -> None:
    class Base(eqx.Module):
        x: Any

        def f(self) -> str:
            return "base"

    class Old(Base):
        def f(self) -> str:
            return "old"

    def check(hot: bool) -> None:
        class New(Base):
            def f(self) -> str:
                return "new"

            def g(self) -> str:
                return "g"

        class Neither(Base): ...

        cls: Any
        for cls in (Old, New, Neither):
            obj = cls(1)
            assert type(obj.f) is BoundMethod
            assert _fit.is_hot(cls) is hot
            assert type(super(cls, obj).f) is types.MethodType or cls is Neither
        assert (Old(1).f(), New(1).g(), Neither(1).f()) == ("old", "g", "base")

    treepress.accelerate(Base)
    assert _fit.is_hot(Base)
    check(False)
    treepress.accelerate(Base, subclasses=True)
    check(True)
    treepress.deaccelerate(Base)
    assert not _fit.is_hot(Base)
    assert _fit.is_hot(Old)
    assert type(Base(1).f) is BoundMethod
    treepress.deaccelerate(Base, subclasses=True)
    check(False)


@pytest.mark.filterwarnings("ignore:.*has a __getattribute__ of its own:RuntimeWarning")
@pytest.mark.parametrize("name", ["__getattr__", "__getattribute__"])
def test_attribute_reads_of_its_own(name: str) -> None:
    def define(base: Any) -> Any:
        class Parent(base):  # type: ignore[misc]
            x: Any

            def f(self) -> str:
                return "f"

        def read(self: Any, attribute: str) -> Any:
            if attribute == "special":
                return "read"
            if name == "__getattr__":
                raise AttributeError(attribute)
            return eqx.Module.__getattribute__(self, attribute)

        class Own(Parent):
            def g(self) -> str:
                return "g"

        setattr(Own, name, read)

        class Below(Own):
            def h(self) -> str:
                return "h"

        return Parent, Own, Below

    plain, hot = both(define)
    assert _fit.is_hot(hot[0])
    for cls in hot[1:]:
        assert not _fit.is_hot(cls)
        assert f"Own has a {name} of its own" in treepress.describe(cls).why_not_hot
    for one, other in zip(plain, hot, strict=True):
        a, b = one(1), other(1)
        for attribute in ("f", "g", "h", "special", "x", "nothing"):
            shown_a, shown_b = (
                shown(outcome(getattr, obj, attribute), obj) for obj in (a, b)
            )
            assert shown_a == shown_b, attribute
    delattr(hot[1], name)
    assert _fit.is_hot(hot[2])
    assert type(hot[2](1).f) is type(hot[2](1).h) is BoundMethod


@pytest.mark.filterwarnings("ignore:.*has a __getattribute__ of its own:RuntimeWarning")
def test_attribute_reads_that_ask_the_hot_base() -> None:
    class Base(HotModule):
        def f(self) -> str:
            return "f"

    class Own(Base):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

        def g(self) -> str:
            return "g"

    class Below(Own, Mix):
        def h(self) -> str:
            return "h"

    for name in ("f", "g", "h", "mixed"):
        assert type(getattr(Below(), name)) is BoundMethod, name
    Below.later = lambda self: "later"  # type: ignore[attr-defined]
    assert type(Below().later) is BoundMethod
    with unittest.mock.patch.object(Base, "__getattribute__", object.__getattribute__):
        pass
    assert type(Base().f) is BoundMethod
    original = Base.__getattribute__
    Base.__getattribute__ = lambda self, name: original(self, name)  # type: ignore[method-assign]
    assert not _fit.is_hot(Base)
    assert type(Base().f) is BoundMethod
    del Base.__getattribute__
    assert _fit.is_hot(Base)


def test_threads_that_read_meanwhile() -> None:
    class Base(Mix, eqx.Module):
        def f(self) -> str:
            return "f"

    class Below(Base):
        def g(self) -> str:
            return "g"

    obj = Below()

    def read() -> None:
        for name in ("f", "g", "mixed"):
            assert type(getattr(obj, name)) is BoundMethod, name

    with in_threads(read, 2):
        for _ in range(100):
            treepress.accelerate(Base, subclasses=True)
            treepress.deaccelerate(Base, subclasses=True)


def test_not_asked_for() -> None:
    class Cold(HotModule, hot=False):
        x: Any

        def f(self) -> None: ...

    class Below(Cold):
        def g(self) -> None: ...

    class Again(Cold, hot=True):
        def g(self) -> None: ...

    assert [_fit.is_hot(cls) for cls in (Cold, Below, Again)] == [False, False, True]
    assert treepress.describe(Cold).accelerated
    about = treepress.describe(Cold)
    assert about.why_not_hot == about.why_not_constructed == "hot=False was asked for"
    assert "attributes:    as without treepress: hot=False was asked for" in str(about)
    about = treepress.describe(Again)
    assert (about.hot, about.constructed) == (True, True)
    assert "attributes:    fast" in str(about)
    for cls in (Cold, Below, Again):
        obj = cls(1)
        assert type(obj.f) is BoundMethod
    assert type(Below(1).g) is type(Again(1).g) is BoundMethod
    assert type(vars(Cold)["f"]) is types.FunctionType

    class Plain(eqx.Module):
        def f(self) -> None: ...

    assert treepress.describe(Plain).why_not_hot == "it is not accelerated"
    treepress.accelerate(Plain, hot=False)
    assert treepress.describe(Plain).accelerated
    assert not treepress.describe(Plain).hot
    with treepress.installed(hot=False):
        assert not treepress.describe(eqx.nn.Linear).hot
        assert not treepress.describe(eqx.nn.Linear).constructed
        assert treepress.describe(Again).hot
    with treepress.installed():
        assert treepress.describe(eqx.nn.Linear).hot
        assert not treepress.describe(Plain).hot


def test_what_is_no_choice() -> None:
    class Model(eqx.Module): ...

    for call in (
        lambda: treepress.accelerate(Model, hot="no"),  # type: ignore[arg-type]
        lambda: treepress.install(hot=1),  # type: ignore[arg-type]
        lambda: treepress.installed(hot="x").__enter__(),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="hot is .*; write True"):
            call()
    with pytest.raises(TypeError, match="Wrong: hot is 3; write True or False"):

        class Wrong(treepress.Module, hot=3): ...

    assert not treepress.describe(Model).accelerated


def test_a_package_taken_back_keeps_what_is_of_flat_mixin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = types.ModuleType("of_hot")
    code = "import treepress, equinox as eqx\nclass A(eqx.Module): ...\n"
    exec(code + "class B(treepress.Module, hot=True): ...\n", vars(package))
    monkeypatch.setitem(sys.modules, "of_hot", package)
    treepress.accelerate(package, hot=True)
    treepress.deaccelerate(package)
    assert not treepress.describe(package.A).hot
    assert treepress.describe(package.B).hot
    treepress.accelerate(package)
    with pytest.raises(TypeError, match="B cannot be taken back"):
        treepress.deaccelerate(package, package.B)
    assert treepress.describe(package.A).accelerated


def test_asked_for_once_is_enough() -> None:
    class Model(eqx.Module):
        def f(self) -> None: ...

    treepress.accelerate(Model, hot=False)
    treepress.accelerate(Model)
    assert not treepress.describe(Model).hot
    treepress.accelerate(Model, hot=True)
    assert treepress.describe(Model).hot
    treepress.install(hot=False)
    treepress.install()
    assert not treepress.describe(eqx.nn.MLP).hot
    treepress.uninstall()
    with treepress.installed():
        with treepress.installed(hot=False):
            assert not treepress.describe(eqx.nn.MLP).hot
        assert treepress.describe(eqx.nn.MLP).hot
    with treepress.installed(hot=False):
        with treepress.installed(hot=True):
            assert treepress.describe(eqx.nn.MLP).hot
        assert not treepress.describe(eqx.nn.MLP).hot
    assert not treepress.describe(eqx.nn.MLP).hot


def snapshot(cls: type) -> Any:
    return list(vars(cls).items())


def test_taken_back_attribute_for_attribute() -> None:
    class Base(Mix, eqx.Module):
        x: Any

        def f(self) -> None: ...

        g = jax.jit(lambda self: self.x)
        like = Methodlike(len)

    class Below(Base):
        def f(self) -> None: ...

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    meta = type(eqx.Module)
    classes = [Base, Below, eqx.nn.Linear, eqx.nn.MLP, BoundMethod, eqx.Module, Mix]
    before = [snapshot(cls) for cls in classes]
    treepress.install(hot=True)
    assert treepress.describe(Base).hot
    assert treepress.describe(BoundMethod).hot
    assert "__setattr__" in vars(meta)
    treepress.deaccelerate(eqx.nn.Linear)
    assert not treepress.describe(eqx.nn.Linear).hot
    assert snapshot(eqx.nn.Linear) == before[2]
    treepress.uninstall()
    after = [snapshot(cls) for cls in classes]
    for cls, one, other in zip(classes, before, after, strict=True):
        if cls is BoundMethod and treepress.describe(cls).hot:
            continue  # other classes of this process are hot
        assert one == other, cls


def test_tools_see_the_functions() -> None:
    class Model(HotModule):
        x: Any

        def method(self, y: "int" = 0) -> "str":
            """Says it.

            >>> 1 + 1
            2
            """
            return ""

        jitted = jax.jit(method)

    model = Model(1)
    assert inspect.isfunction(Model.method)
    assert Model.method is vars(Model)["method"].__wrapped__
    assert str(inspect.signature(Model.method)) == "(self, y: 'int' = 0) -> 'str'"
    assert str(inspect.signature(model.method)) == "(y: 'int' = 0) -> 'str'"
    assert str(inspect.signature(vars(Model)["method"])) == (
        "(self, y: 'int' = 0) -> 'str'"
    )
    assert "Says it" in inspect.getsource(Model.method)
    assert typing.get_type_hints(Model.method) == {"y": int, "return": str}
    assert dict(inspect.getmembers(Model, inspect.isfunction))["method"] is Model.method
    assert "method" in dir(model)
    assert "method" in dir(Model)
    text = pydoc.render_doc(Model, renderer=vars(pydoc)["plaintext"])
    assert "method(self, y: 'int' = 0) -> 'str'" in text
    assert "Says it." in text
    # As a finder of documentation that reads the source's objects does.
    assert inspect.getdoc(vars(Model)["method"]) == inspect.getdoc(Model.method)
    assert inspect.isroutine(vars(Model)["method"])


def test_doctest_finds_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    space = types.ModuleType("documented")
    code = '''
import equinox as eqx, jax, treepress
class Base(eqx.Module):
    """
    >>> 1
    1
    """
    def method(self):
        """
        >>> 2
        2
        """
    @jax.jit
    def jitted(self):
        """
        >>> 3
        3
        """
'''
    exec(code, vars(space))
    monkeypatch.setitem(sys.modules, "documented", space)
    finder = doctest.DocTestFinder()

    def found() -> Any:
        return [(t.name, len(t.examples), t.lineno) for t in finder.find(space)]

    before = found()
    assert len([1 for _, n, _ in before if n]) >= 2
    treepress.accelerate(space.Base, hot=True)
    assert treepress.describe(space.Base).hot
    assert found() == before


class Picklable(HotModule):
    x: Any

    def f(self) -> Any:
        return self.x

    def __check_init__(self) -> None: ...


def test_pickle_and_copy() -> None:
    obj = Picklable(3)
    for again in (
        pickle.loads(pickle.dumps(obj.f)),
        copy.copy(obj.f),
        copy.deepcopy(obj.f),
    ):
        assert type(again) is BoundMethod
        assert again() == 3
    assert pickle.loads(pickle.dumps(obj)).f() == 3
    assert copy.deepcopy(obj).f() == 3
    assert pickle.loads(pickle.dumps(Picklable.f)) is Picklable.f
    cloudpickle = pytest.importorskip("cloudpickle")

    class ByValue(HotModule):
        x: Any

        def f(self) -> Any:
            return self.x

    again = pickle.loads(cloudpickle.dumps(ByValue))
    assert type(again(4).f) is BoundMethod
    assert again(4).f() == 4


@pytest.mark.not_interpreted
def test_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    obj: Any = Picklable(3)
    before = snapshot(Picklable)

    def patched(self: Any) -> str:
        return "patched"

    with unittest.mock.patch.object(Picklable, "f", patched):
        assert obj.f() == "patched"
        assert type(obj.f) is BoundMethod
    assert obj.f() == 3
    with unittest.mock.patch.object(Picklable, "f") as fake:
        obj.f(1)
    fake.assert_called_once_with(1)
    with unittest.mock.patch.object(Picklable, "f", autospec=True) as fake:
        obj.f()
    assert fake.call_count == 1
    monkeypatch.setattr(Picklable, "f", lambda self: "monkey")
    assert obj.f() == "monkey"
    monkeypatch.undo()
    assert obj.f() == 3
    assert snapshot(Picklable) == before


def test_abstract_methods() -> None:
    class Shape(HotModule):
        @abc.abstractmethod
        def area(self) -> float: ...

    class Square(Shape):
        def area(self) -> float:
            return 1.0

    class Still(Shape):
        pass

    assert Square().area() == 1.0
    cls: Any
    for cls in (Shape, Still):
        with pytest.raises(TypeError, match="abstract"):
            cls()


def test_plum() -> None:
    plum = pytest.importorskip("plum")

    def define(base: Any) -> Any:
        dispatch = plum.Dispatcher()

        class Model(base):  # type: ignore[misc]
            x: Any

            @dispatch
            def f(self, y: int) -> str:
                return "int"

            @dispatch  # type: ignore[no-redef]
            def f(self, y: str) -> str:  # noqa: F811
                return "str"

        return Model

    plain, hot = (cls(1) for cls in both(define))
    assert type(plain.f) is type(hot.f)
    for obj in (plain, hot):
        assert (obj.f(1), obj.f("")) == ("int", "str")


def test_class_hooks_are_untouched() -> None:
    seen = []

    class Base(HotModule):
        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen.append(cls.__name__)

        def __class_getitem__(cls, item: Any) -> Any:
            return item

    class Below(Base): ...

    assert seen == ["Below"]
    below: Any = Below
    assert below[3] == 3


def test_super_reaches_the_next_method() -> None:
    def define(base: Any) -> Any:
        class A(base):  # type: ignore[misc]
            x: Any

            def f(self) -> str:
                return "A"

        class B(A):
            def f(self) -> str:
                return "B" + super().f()

        class C(B):
            def f(self) -> str:
                method = super().f
                return "C" + method()

        return C

    assert [cls(1).f() for cls in both(define)] == ["CBA", "CBA"]


def test_what_super_finds_is_a_plain_method() -> None:
    def define(base: Any) -> Any:
        class A(base):  # type: ignore[misc]
            x: Any

            def f(self, c: Any = None, y: Any = None) -> Any:
                return self.x, y

            def g(self) -> str:
                return "A"

        class B(A):
            kept: Any = None

            def __init__(self, x: Any) -> None:
                self.x = x
                self.kept = super().f

            def g(self) -> Any:
                return [super().g, super().f, super(B, self).f, self.f]  # noqa: UP008

            def scan(self) -> Any:
                return jax.lax.scan(super().f, self.x, jnp.ones(3))[0]

            def checkpoint(self) -> Any:
                return jax.checkpoint(lambda: super(B, self).f())()[0]

        class C(B):
            def f(self, c: Any = None, y: Any = None) -> Any:
                return super().f(c, y)

        return B, C

    plain, hot = both(define)
    for one, other in zip(plain, hot, strict=True):
        a, b = one(jnp.ones(())), other(jnp.ones(()))
        assert [type(m) for m in a.g()] == [type(m) for m in b.g()]
        assert [type(m) for m in b.g()] == [types.MethodType] * 3 + [BoundMethod]
        assert type(getdict(a)["kept"]) is type(getdict(b)["kept"]) is types.MethodType
        assert a.scan() == b.scan() == b.checkpoint() == 1
    assert "g" in vars(hot[0])
    assert "scan" not in vars(hot[1])


def test_a_base_taken_back() -> None:
    class A(eqx.Module):
        x: Any

        def f(self) -> Any:
            return self.x

    class B(A):
        pass

    take_back: Any
    for take_back in (
        lambda: treepress.deaccelerate(A),
        lambda: treepress.accelerate(A, hot=False),
    ):
        treepress.accelerate(A, B, hot=True)
        take_back()
        assert not _fit.is_hot(A)
        assert type(B(1).f) is type(A(1).f) is BoundMethod
        assert jax.tree.leaves(B(1.0).f) == [1.0]
    with treepress.installed():
        treepress.deaccelerate(eqx.nn.StatefulLayer)
        layer = eqx.nn.BatchNorm(1, "batch", mode="batch")
        assert type(layer.is_stateful) is BoundMethod


@pytest.mark.not_interpreted
def test_bound_by_hand() -> None:
    class Model(HotModule):
        def f(self) -> int:
            return 1

        partial = ft.partialmethod(f)

    model = Model()
    for name in ("f", "partial"):
        found = vars(Model)[name]
        for method in (found.__get__(model), found.__get__(model, Model)):
            assert method() == 1
        assert found.__get__(None, Model) is getattr(Model, name) or name == "partial"


@pytest.mark.not_interpreted
def test_attributes_of_a_function_do_no_harm() -> None:
    def function(self: Any) -> int:
        return 1

    names = ("renew", "owners", "function", "wrappers", "blanks", "last", "home", "bound")
    for name in names:
        setattr(function, name, "x")

    class Model(HotModule):
        f = function

    assert Model().f() == Model().f() == 1
    kept: Any = Model.f
    assert kept.renew == "x"


def test_a_descriptor_put_on_another_class() -> None:
    def define(base: Any) -> Any:
        class One(base):  # type: ignore[misc]
            def f(self) -> str:
                return "one"

        class Other(base):  # type: ignore[misc]
            pass

        Other.f = vars(One)["f"]
        Other.g = vars(One)["f"]
        Other.f = lambda self: "other"
        return One, Other

    plain, hot = both(define)
    for one, other in zip(plain, hot, strict=True):
        assert_same(one(), other())
        assert one().f() == other().f()


def test_autospec_of_what_a_mixin_has() -> None:
    class Model(Mix, HotModule):
        pass

    assert isinstance(inspect.getattr_static(Model, "mixed"), types.FunctionType)
    fake = unittest.mock.create_autospec(Model, instance=True)
    fake.mixed()
    fake.mixed.assert_called_once_with()


def test_threads_that_make_subclasses() -> None:
    class Base(HotModule):
        x: Any

        def f(self) -> Any:
            return self.x

    wrong: list[Any] = []

    def work() -> None:
        try:
            for i in range(30):

                class Below(Base):
                    def g(self) -> Any:
                        return self.f()

                if type(Below(i).g) is not BoundMethod or Below(i).g() != i:
                    wrong.append(i)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def equinox_reads(function: Callable[[], Any]) -> int:
    """How often Equinox's `__getattribute__` is called meanwhile."""
    count = 0
    code = eqx.Module.__getattribute__.__code__

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is code

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_attribute_reads_are_generic() -> None:
    class Model(HotModule):
        x: Any

        def f(self) -> None: ...

    plain = type("Plain", (eqx.Module,), {"__annotations__": {"x": Any}})(1)
    assert equinox_reads(lambda: plain.x) == 1
    model: Any = Model(1)
    assert equinox_reads(lambda: (model.x, model.f, model.f.__self__)) == 0
    # Nothing of that is to be seen.
    assert "__getattribute__" not in vars(Model)
    assert Model.__getattribute__ is eqx.Module.__getattribute__
    if treepress.backend == "compiled":
        (binder,) = [b for b in type(vars(Model)["f"]).__mro__ if b.__name__ == "Binder"]
        assert binder.__module__ == "treepress.kernels.method"
    assert _fit.is_hot(BoundMethod)


def test_flatten_never_asks_equinox() -> None:
    class Model(HotModule):
        x: Any
        y: Any

    class Cold(HotModule, hot=False):
        x: Any
        y: Any

    def flattened_by(cls: Any) -> Any:
        functions: Any = nodes[cls].functions
        obj = cls(1, 2)
        for flatten in functions[:2]:
            assert equinox_reads(ft.partial(flatten, obj)) == 0
            if treepress.backend == "compiled":
                assert flatten.slot == _fit.is_hot(cls)
        assert jax.tree.leaves(obj) == [1, 2]
        return _fit.is_hot(cls)

    model: Any = Model
    assert flattened_by(model)
    assert not flattened_by(Cold)
    model.__getattr__ = lambda self, name: name
    assert not flattened_by(model)
    del model.__getattr__
    assert flattened_by(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: treepress.uninstall(),
        lambda a, b: treepress.deaccelerate(eqx.Module),
        lambda a, b: treepress.install(hot=False),
        lambda a, b: treepress.accelerate(
            type("New", (eqx.Module,), {"__annotations__": {"x": Any}})
        ),
        lambda a, b: treepress.accelerate(a, hot=True),
    ],
)
def test_cold_below_a_hot_class(change: Callable[[Any, Any], Any]) -> None:
    class A(eqx.Module):
        x: Any

    class B(A):
        def f(self) -> Any:
            return self.x

    class C(B):
        def g(self) -> Any:
            return self.x

    treepress.accelerate(A)
    change(A, B)
    assert _fit.is_hot(A)
    for cls in (B, C):
        assert not _fit.is_hot(cls)
        assert type(cls(1).f) is BoundMethod
        assert equinox_reads(ft.partial(getattr, cls(1), "x")) >= 1
    assert type(C(1).g) is BoundMethod


# Of one change all are looked at, then one of so many.
MOST_LINES = 500


def test_methods_are_pytrees_at_each_moment() -> None:
    class Mixin:
        def f(self) -> str:
            return "mixin"

    class A(Mixin, eqx.Module):
        def g(self) -> str:
            return "a"

    class B(A): ...

    class Own(A):
        def g(self) -> str:
            return "own"

    class C(Own, B): ...

    treepress.accelerate(B, C)
    objects = [A(), B(), Own(), C()]
    moments = lines = 0

    def look() -> None:
        nonlocal moments
        moments += 1
        for obj in objects:
            for name in ("f", "g"):
                method = getattr(obj, name)
                assert type(method) is BoundMethod, (type(obj), name)
                assert method() in ("mixin", "a", "own", "new")

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(("_hot.py", "_standing.py", "inplace.py")):
            return None
        nonlocal lines
        if event == "line":
            lines += 1
            # There may be hundreds of classes, which other tests have made.
            if lines < MOST_LINES or lines % MOST_LINES == 0:
                look()
        return trace

    def new(self: Any) -> str:
        return "new"

    plain: Any = A
    steps: list[Callable[[], Any]] = [
        treepress.install,
        treepress.uninstall,
        lambda: treepress.accelerate(A),
        lambda: treepress.deaccelerate(A),
        lambda: treepress.accelerate(A),
        lambda: setattr(plain, "f", new),
        lambda: setattr(plain, "g", new),
        lambda: delattr(plain, "f"),
        lambda: treepress.deaccelerate(B),
        lambda: treepress.accelerate(B),
        lambda: treepress.deaccelerate(eqx.Module, subclasses=True),
    ]
    old = sys.gettrace()
    for step in steps:
        lines = 0
        sys.settrace(trace)
        try:
            step()
        finally:
            sys.settrace(old)
        look()
    assert moments > 500


def test_a_mixin_that_hides_the_dict_later() -> None:
    def define(base: Any) -> Any:
        class Mixin: ...

        class Model(Mixin, base):  # type: ignore[misc]
            x: Any
            y: Any

        return Model, Mixin

    leaves: list[Any] = []
    for model, mixin in both(define):
        obj = model(1, 2)
        for shown in ({"x": 10, "y": 20}, {"x": 10}, {}):

            def read(self: Any, name: str, shown: Any = shown) -> Any:
                return shown if name == "__dict__" else object.__getattribute__(self, name)

            mixin.__getattribute__ = read
            leaves.append(jax.tree.leaves(obj))
        del mixin.__getattribute__
        leaves.append(jax.tree.leaves(obj))
    assert leaves[:4] == [[10, 20], [10], [], [1, 2]]
    # Without a compiler it is not heard of.
    compiled = treepress.backend == "compiled"
    assert leaves[4:] == (leaves[:4] if compiled else 4 * [[1, 2]])


def test_what_is_not_there_cannot_be_deleted() -> None:
    class Mixin:
        def f(self) -> None: ...

    def define(base: Any) -> Any:
        return type("A", (Mixin, base), {})

    plain, hot = both(define)
    messages = []
    for cls in (plain, hot):
        with pytest.raises(AttributeError) as error:
            del cls.f
        messages.append(str(error.value))
        assert type(cls().f) is BoundMethod
    assert messages[0] == messages[1]


NAMES = ["f", "g", "h"]


def attribute(kind: str, label: str) -> Any:
    """An attribute of a class, which tells who defined it."""

    def function(self: Any, *args: Any) -> str:
        return label

    function.__qualname__ = function.__name__ = label
    made: dict[str, Callable[[], Any]] = {
        "function": lambda: function,
        "jit": lambda: jax.jit(function),
        "like": lambda: Methodlike(function),
        "partial": lambda: ft.partialmethod(function, 1),
        "static": lambda: staticmethod(function),
        "class": lambda: classmethod(function),
        "property": lambda: property(function),
        "value": lambda: label,
    }
    return made[kind]()


kinds = st.sampled_from(
    [
        "function",
        "function",
        "jit",
        "like",
        "partial",
        "static",
        "class",
        "property",
        "value",
    ]
)
bodies = st.dictionaries(st.sampled_from(NAMES), kinds, max_size=2)
# For each class: whether it is a Module, which of those before it are its bases, its body.
hierarchies = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 5), max_size=2), bodies),
    min_size=2,
    max_size=6,
)
changes = st.lists(
    st.tuples(
        st.sampled_from(["accelerate", "accelerate", "deaccelerate", "set", "delete"]),
        st.integers(0, 5),
        st.sampled_from(NAMES),
        kinds,
    ),
    max_size=6,
)


def make_hierarchy(spec: Any) -> list[Any]:
    classes: list[Any] = []
    for i, (is_module, bases, body) in enumerate(spec):
        above = [classes[b] for b in dict.fromkeys(bases) if b < len(classes)]
        if is_module and not any(issubclass(cls, eqx.Module) for cls in above):
            above.append(eqx.Module)
        space = {name: attribute(kind, f"{name} of {i}") for name, kind in body.items()}
        space |= {"__qualname__": f"Class{i}", "__module__": __name__}

        def fill(namespace: Any, space: Any = space) -> None:
            namespace.update(space)

        try:
            cls = types.new_class(f"Class{i}", tuple(above), {}, fill)
        except TypeError:  # no order of the bases
            cls = types.new_class(f"Class{i}", (eqx.Module,))
        classes.append(cls)
    return classes


def told(obj: Any, name: str) -> Any:
    value = outcome(getattr, obj, name)
    result = outcome(value) if callable(value) and not isinstance(value, type) else value
    return shown(value, obj), result


@settings(max_examples=150, deadline=None)
@given(hierarchies, changes)
def test_generated_hierarchies(spec: Any, steps: Any) -> None:
    plain, hot = make_hierarchy(spec), make_hierarchy(spec)
    before = [snapshot(cls) for cls in hot]
    touched = False

    def compare() -> None:
        for one, other in zip(plain, hot, strict=True):
            a, b = one(), other()
            for name in NAMES:
                assert told(a, name) == told(b, name), (one, name)
                in_class = [outcome(getattr, cls, name) for cls in (one, other)]
                assert type(in_class[0]) is type(in_class[1])

    for what, i, name, kind in steps:
        i %= len(hot)
        if what == "accelerate" and issubclass(hot[i], eqx.Module):
            treepress.accelerate(hot[i], hot=True)
            assert _fit.is_hot(hot[i])
        elif what == "deaccelerate" and issubclass(hot[i], eqx.Module):
            treepress.deaccelerate(hot[i])
        elif what == "set" and issubclass(hot[i], eqx.Module):
            touched = True
            for cls in (plain[i], hot[i]):
                setattr(cls, name, attribute(kind, f"{name} of {i}, later"))
        elif what == "delete" and issubclass(hot[i], eqx.Module) and name in vars(plain[i]):
            touched = True
            delattr(plain[i], name)
            delattr(hot[i], name)
        compare()
    for cls in hot:
        if issubclass(cls, eqx.Module):
            treepress.deaccelerate(cls)
    compare()
    if not touched:
        assert [snapshot(cls) for cls in hot] == before
