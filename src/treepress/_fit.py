"""Which classes may be hot, which shall be, and which are."""

import functools
import warnings
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Final
from weakref import WeakSet

import equinox as eqx

from . import _construct, _reads, module
from ._equinox import Known
from ._methods import BoundMethod, Method
from ._node import INSTALL, nodes

READS: Final = ("__getattribute__", "__getattr__")

# The classes whose attributes are read through the slot.
hot: Final[WeakSet[type]] = WeakSet()

# Whether classes that only `install` has accelerated shall be hot.
install_choice = True


def choose(classes: Iterable[type], hot: bool | None) -> None:
    """Say of classes, and what derives from them, whether they shall be hot.

    None leaves it to their bases. `update` is to follow.
    """
    for cls in classes:
        if hot is None:
            module.hot_choices.pop(cls, None)
        else:
            module.hot_choices[cls] = hot


def is_hot(cls: type) -> bool:
    return cls in hot


def why_not(cls: type) -> str:
    """Why a class is not hot."""
    if is_hot(cls):
        return ""
    if eqx.Module not in cls.__mro__:
        return "it is no equinox.Module"
    if not _accelerated(cls):
        return "it is not accelerated"
    if not wanted(cls):
        return "hot=False was asked for"
    return unfit(cls)


def why_not_constructed(cls: type) -> str:
    """Why a class is not constructed by a kernel."""
    if eqx.Module in cls.__mro__ and _accelerated(cls) and wanted(cls):
        return unfit(cls, ("__getattribute__",)) or _construct.why_not(cls)
    return why_not(cls)


def _accelerated(cls: type) -> bool:
    node = nodes.get(cls)
    return module.FlatMixin in cls.__mro__ or (
        node is not None and node.functions is not None
    )


def wanted(cls: type) -> bool:
    if not _accelerated(cls):
        return False
    for base in cls.__mro__:
        if base in module.hot_choices:
            return module.hot_choices[base]
    node = nodes.get(cls)
    return install_choice or node is None or node.how != INSTALL


def shall(cls: type) -> bool:
    return (
        eqx.Module in cls.__mro__
        and cls is not eqx.Module
        and wanted(cls)
        and not unfit(cls)
    )


def may_construct(cls: type) -> bool:
    """Whether a class that is not hot may be constructed by a kernel all the same."""
    return wanted(cls) and not unfit(cls, ("__getattribute__",))


def unfit(cls: type, names: tuple[str, ...] = READS) -> str:
    """Why the attributes of a class are to be left alone."""
    reason = why_never()
    if not reason and vars(eqx.Module).get("__getattribute__") is not _reads.EQUINOX:
        reason = "equinox.Module has another __getattribute__ than it had"
    if reason:
        return reason
    for base in cls.__mro__:
        if base in (eqx.Module, object):
            continue
        for name in names:
            if name in vars(base):
                return f"{base.__qualname__} has a {name} of its own"
    for meta in type.mro(type(cls)):
        if meta is type(eqx.Module):
            break
        for name in ("__setattr__", "__delattr__"):
            if name in vars(meta):
                return f"its metaclass {meta.__qualname__} has a {name} of its own"
    return ""


def why_never() -> str:
    """Why bound methods cannot be made as Equinox makes them, with this Equinox."""
    return module.known if isinstance(module.known, str) else _compared(module.known)


@functools.cache
def _compared(known: Known) -> str:
    reason = ""
    if not isinstance(_reads.EQUINOX, FunctionType) or BoundMethod is None:
        reason = "Equinox makes bound methods in another way than it used to"
    elif not _reads.work(module.probe):
        reason = "this Python does not keep the slot of an attribute that is taken away"
    else:
        probe: Any = object.__new__(module.probe)
        getdict = known.getdict
        theirs = probe.method
        method = Method(vars(module.probe)["method"])
        method.owners.add(module.probe)
        ours = method.__get__(probe, module.probe)
        if type(theirs) is not type(ours) or [*getdict(theirs).items()] != [
            *getdict(ours).items()
        ]:
            reason = "Equinox's bound methods are not as treepress knows them"
    if reason:
        warnings.warn(
            f"treepress: {reason}. Attributes and methods of Modules are as fast as without "
            f"treepress.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason
