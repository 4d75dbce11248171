"""Attributes, methods and construction of hot classes."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from cases import EQUINOX, OURS, PLAIN, imported
from inplace import with_install
from timing import Call, call

import treepress

ATTRIBUTE: Final = "m.attribute"
METHOD: Final = "m.method"
METHOD_CALL: Final = "m.method(x)"
CONSTRUCT: Final = {n: f"construct, {n} fields" for n in (1, 3, 8)}
CONSTRUCT_OWN: Final = "construct, own __init__"
ADD: Final = "unxt: q + q, not jitted"
MULTIPLY: Final = "unxt: q * q, not jitted"
TRACE: Final = "unxt: trace of 100 operations"


class _Plain:
    def __init__(self) -> None:
        self.attribute = 1.0

    def method(self, x: Any) -> Any:
        return x


def body_of(body: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda space: space.update(body)


def hot() -> dict[str, dict[str, Call]]:
    """Instances of a class of each kind; the class of an unxt quantity is the same one."""
    objects: dict[str, Any] = {}
    for peer, base in ((EQUINOX, eqx.Module), (OURS, treepress.Module)):

        def method(self: Any, x: Any) -> Any:
            return x

        body: dict[str, Any] = {"__annotations__": {"attribute": Any}, "method": method}
        cls = types.new_class("Node", (base,), {}, body_of(body))
        objects[peer] = cls(1.0)
    objects[PLAIN] = _Plain()
    treepress.uninstall()
    assert not treepress.describe(objects[EQUINOX]).hot
    assert treepress.describe(objects[OURS]).hot
    calls = {
        case: {peer: call(function, obj) for peer, obj in objects.items()}
        for case, function in (
            (ATTRIBUTE, _attribute),
            (METHOD, _method),
            (METHOD_CALL, _method_call),
        )
    }
    classes: dict[str, Any] = {EQUINOX: eqx.Module, OURS: treepress.Module, PLAIN: object}
    for n, case in CONSTRUCT.items():
        names = [f"field{i}" for i in range(n)]
        calls[case] = {
            peer: call(_generated(base, names), *[1.0] * n)
            for peer, base in classes.items()
        }
    calls[CONSTRUCT_OWN] = {
        peer: call(_with_own_init(base), 1.0, 2.0) for peer, base in classes.items()
    }
    unxt = imported("unxt")
    if unxt is not None:
        q = unxt.Quantity(jnp.float32(2), "m")
        for case, function in ((ADD, _add), (MULTIPLY, _multiply), (TRACE, _trace)):
            calls[case] = {peer: call(function, q) for peer in (EQUINOX, OURS)}
    return with_install(calls)


def _generated(base: type, names: list[str]) -> Any:
    """A class whose `__init__` is generated from its fields."""
    body = {"__annotations__": dict.fromkeys(names, Any)}
    cls = types.new_class("Generated", (base,), {}, body_of(body))
    return dataclasses.dataclass(cls) if base is object else cls


def _with_own_init(base: Any) -> Any:
    class Own(base):  # type: ignore[misc]
        first: Any
        second: Any
        third: Any

        def __init__(self, first: Any, second: Any) -> None:
            self.first = first
            self.second = second
            self.third = first

    return Own


def _attribute(m: Any) -> Any:
    return m.attribute


def _method(m: Any) -> Any:
    return m.method


def _method_call(m: Any) -> Any:
    return m.method(1)


def _add(q: Any) -> Any:
    return q + q


def _multiply(q: Any) -> Any:
    return q * q


def _trace(q: Any) -> Any:
    # A function that JAX has not seen, or it would remember.
    return jax.make_jaxpr(lambda q: _hundred(q))(q)


def _hundred(q: Any) -> Any:
    for _ in range(100):
        q = q + q
    return q
