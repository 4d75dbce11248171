"""The same node as each of the peers has it: some arrays, and one static field, `unit`."""

import dataclasses
import functools
import importlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import equinox as eqx
import jax
import jax.tree_util as jtu
import reference
from equinox._module._flatten import (
    MISSING,
    WRAPPER_FIELD_NAMES,
    generate_flatten_functions,
)

import treepress

# The peers, as the tables name them.
EQUINOX: Final = "Equinox"
OURS: Final = "treepress"
BY_HAND: Final = "by hand"
C: Final = "C"
TUPLE: Final = "tuple"
DICT: Final = "dict"
JAX_DATACLASS: Final = "jax dataclass"
OUR_DATACLASS: Final = "our dataclass"
FLAX: Final = "flax.struct"
RAW: Final = "raw arrays"
OWN: Final = "own procedures"
MIXIN: Final = "FlatMixin"
PLAIN: Final = "plain class"
INOX: Final = "Inox"
FLATTEN: Final = "jax.tree.flatten"
SPLIT: Final = "flatten, split"
FILTERS: Final = "filters alone"
FLAT: Final = "jit, flat arrays"
MODULE: Final = "jit, Modules"

LEGEND: Final = {
    EQUINOX: "equinox.Module",
    OURS: "treepress.Module",
    BY_HAND: "plain class, jax.tree_util.register_pytree_with_keys_class",
    C: "the C reference: for direct calls on the same class, else registered with JAX for "
    "a frozen dataclass",
    TUPLE: "tuple of the arrays, no static field",
    DICT: "dict of the arrays, no static field",
    JAX_DATACLASS: "jax.tree_util.register_dataclass",
    OUR_DATACLASS: "treepress.register_dataclass",
    FLAX: "flax.struct.dataclass",
    RAW: "the arrays alone",
    OWN: "treepress.Module with _eqx_tree_* written for it by hand",
    MIXIN: "beside treepress.install(): the same fields in a class with FlatMixin",
    PLAIN: "a class that is no Module",
    INOX: "inox.tree.partition, inox.tree.combine",
    SPLIT: "jax.tree.flatten, then tree_partition of the flat list of leaves",
    FLAT: "jax.jit of the same function of flat arrays",
    MODULE: "jax.jit given the Modules, what is no array taken out by hand",
    FILTERS: "each node shown to the predicates, until one holds, in a loop",
}

# Makes a node of as many arrays as the class has fields, and a unit.
Maker = Callable[[Sequence[Any], Any], Any]

REFERENCE: Final = reference.load()


class Unit:
    """What stands in an aux in real code: compared by value, in Python."""

    def __init__(self, name: str, **powers: int) -> None:
        self.name = name
        self.powers = tuple(sorted(powers.items()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unit):
            return NotImplemented
        return self.name == other.name and self.powers == other.powers

    def __hash__(self) -> int:
        return hash((self.name, self.powers))


def field_names(count: int) -> tuple[str, ...]:
    # Interned, as those that a class statement would give; padded, since a dict node sorts
    # its keys.
    return tuple([sys.intern(f"x{i:02}") for i in range(count)])


def makers(count: int) -> dict[str, Maker]:
    """Each peer's node of `count` arrays and a unit, of classes made for this caller.

    A kernel learns what the static values of its class are like, so two tables must not
    share it.
    """
    names = field_names(count)
    found: dict[str, Maker] = {
        EQUINOX: _called(module_class(eqx.Module, count)),
        OURS: _called(module_class(treepress.Module, count)),
        BY_HAND: _called(_by_hand(names)),
        TUPLE: lambda values, unit: tuple(values),
        DICT: lambda values, unit: dict(zip(names, values, strict=True)),
        JAX_DATACLASS: _called(
            jax.tree_util.register_dataclass(_dataclass(names), list(names), ["unit"])
        ),
        OUR_DATACLASS: _called(treepress.register_dataclass(_dataclass(names))),
    }
    struct = imported("flax.struct")
    if struct is not None:
        found[FLAX] = _called(
            struct.dataclass(_blank(names, struct.field(pytree_node=False)))
        )
    if not isinstance(REFERENCE, str):
        found[C] = _called(_in_c(names, REFERENCE))
    return found


def _called(cls: type) -> Maker:
    return lambda values, unit: cls(*values, unit)


def imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _blank(names: tuple[str, ...], unit: Any) -> type:
    """A class with annotations for a dataclass decorator; `unit` marks the static field."""
    annotations = {**dict.fromkeys(names, Any), "unit": Any}
    body = {"__annotations__": annotations, "__module__": __name__, "unit": unit}
    return type("Node", (), body)


def _dataclass(names: tuple[str, ...]) -> type:
    unit = dataclasses.field(metadata={"static": True})
    return dataclasses.dataclass(frozen=True)(_blank(names, unit))


def module_class(base: type, count: int) -> Any:
    """A subclass of an Equinox Module class with `count` arrays and a unit."""
    names = field_names(count)
    body = {
        "__annotations__": {**dict.fromkeys(names, jax.Array), "unit": Any},
        "__module__": __name__,
        "unit": eqx.field(static=True),
    }
    return types.new_class("Node", (base,), exec_body=lambda space: space.update(body))


# As fast as one can write it: nothing is made anew that could be made once.
_TEMPLATE: Final = """
class Node:
    def __init__(self, {names}, unit):
        {assign}
        self.unit = unit

    def tree_flatten(self):
        return ({attributes},), self.unit

    def tree_flatten_with_keys(self):
        return ({pairs},), self.unit

    @classmethod
    def tree_unflatten(cls, aux, children):
        {names}, = children
        return cls({names}, aux)
"""


def _by_hand(names: tuple[str, ...]) -> type:
    text = _TEMPLATE.format(
        names=", ".join(names),
        assign="; ".join(f"self.{name} = {name}" for name in names),
        attributes=", ".join(f"self.{name}" for name in names),
        pairs=", ".join(f"(key_{name}, self.{name})" for name in names),
    )
    space: dict[str, Any] = {f"key_{name}": jtu.GetAttrKey(name) for name in names}
    space["__name__"] = __name__
    exec(text, space)
    cls: type = jtu.register_pytree_with_keys_class(space["Node"])
    return cls


def _in_c(names: tuple[str, ...], made: reference.Reference) -> type:
    cls = _dataclass(names)
    flatten, flatten_with_keys, unflatten = c_functions(cls, names, made)
    jtu.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


Functions = tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]


def c_functions(cls: type, names: tuple[str, ...], made: reference.Reference) -> Functions:
    """Flatten, flatten_with_keys and unflatten of the C reference."""
    common = (names, ("unit",), tuple(WRAPPER_FIELD_NAMES), MISSING)
    keys = tuple([jtu.GetAttrKey(name) for name in names])
    return (
        made.flatten(*common),
        made.flatten_with_keys(*common, keys),
        made.unflatten(cls, *common),
    )


def equinox_functions(cls: Any) -> Functions:
    """Flatten, flatten_with_keys and unflatten as Equinox generates and registers them."""
    flatten, flatten_with_keys, unflatten = generate_flatten_functions(
        cls, dataclasses.fields(cls)
    )
    return flatten, flatten_with_keys, functools.partial(unflatten, cls)


def our_functions(cls: Any) -> Functions:
    """Flatten, flatten_with_keys and unflatten as treepress registers them."""
    return cls._eqx_tree_flatten, cls._eqx_tree_flatten_with_keys, cls._eqx_tree_unflatten


class Own(treepress.Module):
    """A Module with procedures of its own: no thought of absent fields and wrappers."""

    x00: jax.Array
    unit: Any = eqx.field(static=True)

    def _eqx_tree_flatten(self) -> tuple[Any, Any]:
        # An attribute read of a Module is slow; one read of all of them less so.
        state = self.__dict__
        return (state["x00"],), state["unit"]

    def _eqx_tree_flatten_with_keys(self) -> tuple[Any, Any]:
        state = self.__dict__
        return ((jtu.GetAttrKey("x00"), state["x00"]),), state["unit"]

    @classmethod
    def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> "Own":
        self = object.__new__(cls)
        (x00,) = children
        object.__setattr__(self, "x00", x00)
        object.__setattr__(self, "unit", aux)
        return self


def quantities() -> tuple[Any, Any] | None:
    """`unxt.Quantity` and a subclass of it that has FlatMixin, if unxt is installed."""
    unxt = imported("unxt")
    if unxt is None:
        return None
    flat = types.new_class(
        "FlatQuantity",
        (treepress.FlatMixin, unxt.Quantity),
        exec_body=lambda space: space.update(__module__=__name__),
    )
    # In unxt 1 a Quantity has its dimension as a parameter of the class.
    if getattr(unxt.Quantity, "parametric", False):
        flat = importlib.import_module("plum").parametric(flat)
    return unxt.Quantity, flat
