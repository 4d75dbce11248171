import dataclasses
import inspect
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu
import pytest

import treepress
from treepress._node import getdict_of, unfit
from treepress.fallback.node import compile_functions
from twins import META, one_level, state


class Quantity(treepress.Module):
    value: Any
    unit: str = eqx.field(static=True)
    error: Any = None


def test_accelerated_class() -> None:
    about = treepress.describe(Quantity)
    assert about == treepress.describe(Quantity(1.0, "m"))
    assert about.accelerated
    assert about.registered_by == "treepress"
    assert about.backend == treepress.backend
    assert about.dynamic == ("value", "error")
    assert about.static == ("unit",)
    assert about.reason == ""
    assert about.rule
    text = str(about)
    assert text == repr(about)
    for part in (
        "Quantity",
        about.kernel,
        about.rule,
        "value, error",
        "unit",
        "def flatten(",
    ):
        assert part in text
    if treepress.backend == "compiled":
        assert about.kernel == "ModuleFlatten"
    else:
        assert about.kernel == "generated Python"


def test_kernel_is_chosen_by_the_number_of_fields() -> None:
    if treepress.backend != "compiled":
        pytest.skip("the Python backend has one kernel")
    from treepress.kernels.node import WIDE

    names = {}
    for n in (WIDE - 1, WIDE):
        annotations = {f"f{i}": Any for i in range(n)}
        cls = META("Wide", (treepress.Module,), {"__annotations__": annotations})
        names[n] = treepress.describe(cls).kernel
    assert names == {WIDE - 1: "ModuleFlatten", WIDE: "ModuleFlattenWide"}


def test_source_is_what_the_functions_do() -> None:
    about = treepress.describe(Quantity)
    keys = tuple(jtu.GetAttrKey(name) for name in about.dynamic)
    getdict = getdict_of(eqx.Module)
    (missing, *_) = Quantity._eqx_tree_flatten(Quantity(1.0, "m"))[1]
    functions = compile_functions(
        Quantity,
        about.source,
        keys,
        {"MISSING": missing, "read": getdict, "getdict": getdict, "unfit": unfit},
    )
    blank = object.__new__(Quantity)
    wrapped = Quantity(1.0, "m")
    getdict(wrapped)["__doc__"] = "documented"
    for quantity in (Quantity(1.0, "m"), blank, wrapped):
        assert state(functions.flatten(quantity)) == state(quantity._eqx_tree_flatten())
        children, aux = functions.flatten(quantity)
        assert [c for _, c in functions.flatten_with_keys(quantity)[0]] == list(children)
        assert state(functions.unflatten(aux, children)) == state(
            Quantity._eqx_tree_unflatten(aux, children)
        )
        assert one_level(quantity)[0] == state(children)


def test_getsource_of_generated_functions() -> None:
    if treepress.backend != "python":
        assert "def flatten(self)" in treepress.describe(Quantity).source
        pytest.skip("compiled functions have no source")
    for name in ("flatten", "flatten_with_keys", "unflatten"):
        text = inspect.getsource(getattr(Quantity, f"_eqx_tree_{name}"))
        assert text.startswith(f"def {name}(")
        assert text in treepress.describe(Quantity).source + "\n"


def test_traceback_shows_generated_source() -> None:
    import traceback

    if treepress.backend != "python":
        pytest.skip("compiled functions have no source")
    try:
        Quantity._eqx_tree_unflatten((), ())
    except ValueError as error:
        lines = "".join(traceback.format_exception(error))
    assert "raise unfit(cls, aux, children) from None" in lines


@dataclasses.dataclass
class Plain:
    a: int


class Point(NamedTuple):
    x: int


class NotAModule(treepress.FlatMixin):
    pass


@pytest.mark.parametrize(
    ("cls", "registered_by", "reason"),
    [
        (eqx.nn.Linear, "equinox", "not among its bases"),
        (Plain, "nobody", "register_dataclass makes it one"),
        (int, "nobody", "no pytree node"),
        (NotAModule, "nobody", "subclasses of equinox.Module alone"),
        (dict, "jax", "C++"),
        (Point, "jax", "C++"),
        (jtu.Partial, "jax or another library", "without treepress"),
    ],
)
def test_other_classes(cls: type, registered_by: str, reason: str) -> None:
    about = treepress.describe(cls)
    assert not about.accelerated
    assert about.registered_by == registered_by
    assert reason in about.reason
    assert about.cls is cls
    assert reason in str(about)


def test_a_python_module_is_refused() -> None:
    with pytest.raises(
        TypeError, match="got the module equinox.nn. Give one of its classes"
    ):
        treepress.describe(eqx.nn)


def test_plain_module_has_its_fields() -> None:
    about = treepress.describe(eqx.nn.Linear(1, 2, key=jax.random.key(0)))
    assert about.dynamic == ("weight", "bias")
    assert about.static == ("in_features", "out_features", "use_bias")


def test_treepress_own_nodes() -> None:
    for node in (treepress.Partition, treepress.filter_jit(lambda x: x)):
        about = treepress.describe(node)
        assert about.registered_by == "treepress"
        assert "treepress's own" in about.reason


def test_a_class_below_one_that_is_accelerated() -> None:
    class Above(eqx.Module):
        x: object

    class Below(Above):
        pass

    treepress.accelerate(Above)
    assert "accelerate(" in treepress.describe(Below).reason
    assert "subclasses=True" in treepress.describe(Below).reason
    treepress.deaccelerate(Above)
    assert "subclasses=True" not in treepress.describe(Below).reason
