"""The Module classes that arguments stand for, and what to write instead of what is none."""

import dataclasses
import typing
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import equinox as eqx

from ._node import ACCELERATE, nodes, with_subclasses
from .description import Description, describe


def module_classes(caller: str, given: Iterable[Any]) -> list[type]:
    """The Module classes that arguments stand for; raises before anything is changed."""
    found: list[type] = []
    for one in given:
        if isinstance(one, ModuleType):
            found += _defined_in(one)
            continue
        cls = typing.get_origin(one) or one
        if not isinstance(cls, type):
            hint = (
                f"; its class is {type(one).__qualname__}" if _is_module(type(one)) else ""
            )
            raise TypeError(
                f"{caller} takes subclasses of equinox.Module, and Python modules; got an "
                f"instance of {type(one).__qualname__}{hint}"
            )
        node = nodes.get(cls)
        if not _is_module(cls) and (node is None or node.functions is None):
            if caller != ACCELERATE:
                raise TypeError(
                    f"{cls.__qualname__} cannot be taken back: it is no equinox.Module"
                )
            raise TypeError(f"{cls.__qualname__} cannot be accelerated: {_instead(cls)}")
        found.append(cls)
    return found


def _is_module(cls: type) -> bool:
    return eqx.Module in cls.__mro__


def _instead(cls: type) -> str:
    """Why a class that is no Module cannot be accelerated, and what can be done."""
    about: Description = describe(cls)
    if about.registered_by == "jax":
        return "JAX flattens it in C++ as it is"
    if about.registered_by == "nobody":
        if dataclasses.is_dataclass(cls):
            return "JAX does not know it. Register it with treepress.register_dataclass"
        return (
            "it is no pytree node. Make it a subclass of treepress.Module, or a dataclass "
            "for treepress.register_dataclass"
        )
    return (
        "it is no equinox.Module but registered by other means, and JAX lets no class be "
        "registered again. Where the class is made, use treepress.register_dataclass in "
        "the place of what registers it now, if it is a dataclass"
    )


def _defined_in(package: ModuleType) -> list[type]:
    name = package.__name__
    found = [
        cls
        for cls in with_subclasses([eqx.Module])
        if f"{cls.__module__}.".startswith(f"{name}.")
    ]
    if not found:
        raise ValueError(
            f"no subclass of equinox.Module is defined in {name} or what is imported of its "
            f"submodules; import the module that defines it, or give the class itself"
        )
    return found
