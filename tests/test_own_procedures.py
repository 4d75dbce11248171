"""Classes that bring flatten procedures of their own."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import pytest

import treepress
from twins import META


class Own(treepress.Module):
    value: Any
    unit: str = eqx.field(static=True)

    def _eqx_tree_flatten(self) -> Any:
        return (self.value,), ("own", self.unit)

    def _eqx_tree_flatten_with_keys(self) -> Any:
        return ((jtu.DictKey("own"), self.value),), ("own", self.unit)

    @classmethod
    def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any:
        self = object.__new__(cls)
        object.__setattr__(self, "value", children[0])
        object.__setattr__(self, "unit", aux[1])
        return self


def keystrs(tree: Any) -> list[str]:
    return [jtu.keystr(path) for path, _ in jtu.tree_flatten_with_path(tree)[0]]


def test_all_three() -> None:
    own = Own(1.0, "m")
    leaves, treedef = jax.tree.flatten(own)
    assert leaves == [1.0]
    assert "('own', 'm')" in str(treedef)
    assert keystrs(own) == ["['own']"]
    again = jax.tree.unflatten(treedef, [2.0])
    assert (type(again), again.value, again.unit) == (Own, 2.0, "m")
    about = treepress.describe(Own)
    assert about.registered_by == "its own procedures"
    assert not about.accelerated
    assert "('own', self.unit)" in about.source.replace('"', "'")


def test_flatten_with_keys_and_unflatten_alone() -> None:
    class Keyed(treepress.Module):
        value: Any

        def _eqx_tree_flatten_with_keys(self) -> Any:
            return ((jtu.DictKey("k"), self.value),), "aux"

        @staticmethod
        def _eqx_tree_unflatten(aux: Any, children: Any) -> Any:
            return Keyed(*children)

    assert keystrs(Keyed(1)) == ["['k']"]
    assert jax.tree.map(lambda x: x + 1, Keyed(1)).value == 2
    assert "aux" in str(jax.tree.structure(Keyed(1)))


def test_flatten_and_unflatten_alone() -> None:
    class Unkeyed(treepress.Module):
        value: Any

        def _eqx_tree_flatten(self) -> Any:
            return (self.value,), None

        # Called with the class: a plain function of these two is as good as static.
        def _eqx_tree_unflatten(aux: Any, children: Any) -> Any:
            return Unkeyed(*children)

    assert keystrs(Unkeyed(1)) == ["[<flat index 0>]"]
    assert jax.tree.map(lambda x: x + 1, Unkeyed(1)).value == 2


def test_class_keywords() -> None:
    class Keywords(
        treepress.Module,
        flatten=lambda self: ((self.value,), "keywords"),
        unflatten=lambda aux, children: Keywords(*children),
        flatten_with_keys=lambda self: (((jtu.DictKey("k"), self.value),), "keywords"),
    ):
        value: Any

    assert keystrs(Keywords(1)) == ["['k']"]
    assert "keywords" in str(jax.tree.structure(Keywords(1)))
    assert jax.tree.map(lambda x: x + 1, Keywords(1)).value == 2

    class Mixed(
        treepress.FlatMixin, eqx.Module, unflatten=classmethod(lambda c, a, b: c(*b))
    ):
        value: Any

        def _eqx_tree_flatten(self) -> Any:
            return (self.value,), None

    assert type(jax.tree.map(lambda x: x, Mixed(1))) is Mixed


def test_class_keywords_beside_equinoxs() -> None:
    class Keywords(
        treepress.Module,
        flatten=lambda self: ((), None),
        unflatten=lambda aux, children: None,
        strict=True,
    ):
        pass

    assert treepress.describe(Keywords).registered_by == "its own procedures"


@pytest.mark.parametrize(
    ("defined", "missing"),
    [
        (["unflatten"], "_eqx_tree_flatten_with_keys (or _eqx_tree_flatten)"),
        (["flatten"], "_eqx_tree_unflatten"),
        (["flatten", "flatten_with_keys"], "_eqx_tree_unflatten"),
    ],
)
def test_partial_definition_warns_and_falls_back(defined: list[str], missing: str) -> None:
    keywords = {name: lambda *args: 1 / 0 for name in defined}
    with pytest.warns(UserWarning, match="but not") as caught:

        class Partial(treepress.Module, **keywords):
            value: Any

    assert f"but not {missing}." in str(caught[0].message)
    assert caught[0].filename == __file__
    assert treepress.describe(Partial).accelerated
    assert jax.tree.map(lambda x: x + 1, Partial(1)).value == 2


def test_subclass_without_new_fields_inherits_them() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Child(Own):
            def method(self) -> int:
                return 1

    child = jax.tree.map(lambda x: x + 1, Child(1, "m"))
    assert type(child) is Child
    assert keystrs(child) == ["['own']"]


def test_subclass_with_new_fields_gets_kernels_and_a_warning() -> None:
    with pytest.warns(UserWarning, match="has the fields extra"):

        class Child(Own):
            extra: Any

    child = Child(1, "m", 2)
    assert jax.tree.leaves(child) == [1, 2]
    assert keystrs(child) == [".value", ".extra"]
    assert treepress.describe(Child).accelerated

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Grandchild(Child):
            pass

    assert jax.tree.leaves(Grandchild(1, "m", 2)) == [1, 2]


@pytest.mark.parametrize("redefined", ["_eqx_tree_flatten", "_eqx_tree_flatten_with_keys"])
def test_subclass_with_new_fields_that_redefines_half(redefined: str) -> None:
    with pytest.warns(UserWarning, match="has the fields extra"):
        Child = META(
            "Child",
            (Own,),
            {"__annotations__": {"extra": Any}, redefined: lambda self: 1 / 0},
        )
    assert jax.tree.leaves(jax.tree.map(lambda x: x, Child(1, "m", 2))) == [1, 2]


def test_halves_from_two_levels_make_a_whole() -> None:
    with pytest.warns(UserWarning, match="but not _eqx_tree_unflatten"):

        class Half(treepress.Module):
            def _eqx_tree_flatten(self: Any) -> Any:
                return (self.value,), "half"

    class Whole(Half):
        value: Any

        @classmethod
        def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls(*children)

    assert treepress.describe(Whole).registered_by == "its own procedures"
    assert "half" in str(jax.tree.structure(Whole(1)))
    assert Half._eqx_tree_flatten(Whole(1)) == ((1,), "half")


def test_subclass_with_new_fields_may_say_that_they_are_known() -> None:
    class Child(Own):
        extra: Any

        _eqx_tree_flatten = Own._eqx_tree_flatten
        _eqx_tree_flatten_with_keys = Own._eqx_tree_flatten_with_keys
        _eqx_tree_unflatten = vars(Own)["_eqx_tree_unflatten"]

    assert jax.tree.leaves(Child(1, "m", 2)) == [1]


def test_procedures_from_a_plain_base() -> None:
    class Procedures:
        def _eqx_tree_flatten(self) -> Any:
            return tuple(vars(self).values()), tuple(vars(self))

        @classmethod
        def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any:
            self = object.__new__(cls)
            for name, child in zip(aux, children, strict=True):
                object.__setattr__(self, name, child)
            return self

    class Base(Procedures, treepress.Module):
        a: Any

    assert treepress.describe(Base).registered_by == "its own procedures"
    assert jax.tree.map(lambda x: x + 1, Base(1)).a == 2


def test_automatic_kernels_do_not_count_as_own() -> None:
    class Parent(treepress.Module):
        a: Any

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Child(Parent):
            b: Any

    assert jax.tree.leaves(Child(1, 2)) == [1, 2]
    assert treepress.describe(Child).accelerated
    assert Child._eqx_tree_flatten is not Parent._eqx_tree_flatten


@pytest.mark.parametrize(
    ("procedures", "message"),
    [
        (
            {"unflatten": lambda cls, aux, children: None},
            "staticmethod of .cls, aux, child",
        ),
        ({"unflatten": 1}, "is a int"),
        ({"unflatten": classmethod(lambda aux, children: None)}, "classmethod of .aux, ch"),
        ({"flatten": lambda: None}, "a function of ... Write it as a method"),
        ({"flatten": classmethod(lambda self: None)}, "is a classmethod"),
        ({"flatten_with_keys": lambda self, other: None}, "function of .self, other"),
    ],
)
def test_wrong_forms_are_refused(procedures: dict[str, Any], message: str) -> None:
    right = {
        "flatten": lambda self: ((), None),
        "unflatten": lambda aux, children: None,
    }
    with pytest.raises(TypeError, match=message):

        class Wrong(treepress.Module, **{**right, **procedures}):
            pass


def test_unbound_unflatten_in_the_class_body_is_refused() -> None:
    with pytest.raises(TypeError, match="Write it as a classmethod"):

        class Unbound(treepress.Module):
            def _eqx_tree_flatten(self) -> Any: ...

            def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any: ...


def test_misspelt_class_keyword() -> None:
    with pytest.raises(TypeError, match=r"flaten.*FlatMixin knows flatten, unflatten"):

        class Misspelt(treepress.Module, flaten=None):
            pass


def test_warning_points_at_the_class_statement_below_another_metaclass() -> None:
    ArrayValue: Any = pytest.importorskip("quax").ArrayValue
    with pytest.warns(UserWarning, match="but not") as caught:

        class Half(treepress.FlatMixin, ArrayValue):  # type: ignore[misc]
            def _eqx_tree_flatten(self) -> Any: ...

            def materialise(self) -> Any: ...

            def aval(self) -> Any: ...

    assert caught[0].filename == __file__


def test_a_module_without_the_mixin_is_none_of_our_business() -> None:
    class Plain(eqx.Module):
        value: Any

        def _eqx_tree_flatten(self) -> Any:
            raise AssertionError

        _eqx_tree_unflatten = None

    assert jax.tree.leaves(Plain(1)) == [1]


def test_super_gives_the_automatic_kernels_of_the_class() -> None:
    class Counted(treepress.Module):
        value: Any

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Child(Counted):
            calls = []  # noqa: RUF012

            def _eqx_tree_flatten(self) -> Any:
                self.calls.append(1)
                return super()._eqx_tree_flatten()

            @classmethod
            def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any:
                return super()._eqx_tree_unflatten(aux, children)

    child = jax.tree.map(lambda x: x + 1, Child(1))
    assert type(child) is Child
    assert child.value == 2
    assert Child.calls == [1]
