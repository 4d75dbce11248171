"""What treepress knows of each class that it registered, and how a class gets its kernels."""

import dataclasses
import datetime
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, GetSetDescriptorType
from typing import Any, Final
from weakref import WeakKeyDictionary

from jax.tree_util import GetAttrKey

from ._backend import kernels, why_python
from ._locks import lock_of
from .fallback.node import (
    Functions,
    compile_functions,
    module_source,
    record_source,
)


@dataclasses.dataclass(frozen=True)
class Node:
    """How a class was registered."""

    registered_by: str
    dynamic: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    kernel: str = ""
    rule: str = ""
    functions: Functions | None = None
    source: str = ""
    reason: str = ""
    # What had the kernels put in, and when; `treepress.accelerated` shows it.
    how: str = ""
    since: datetime.datetime = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC)
    )
    # Procedures of the class's own, by name.
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# How a class came to its kernels, beside by what its author wrote.
ACCELERATE: Final = "accelerate"
INSTALL: Final = "install"

# What follows, and all else that says which class is accelerated, is changed under this.
lock = lock_of(sys.modules[__name__], "lock")

# Every class that passed through here. JAX keeps its registered classes for good, so weak
# keys only matter for a class whose registration failed.
nodes: Final[WeakKeyDictionary[type, Node]] = WeakKeyDictionary()


# What `inplace` changed, by class: beside `nodes`, to be there as long as these.
originals: Final[WeakKeyDictionary[type, Any]] = WeakKeyDictionary()


def with_subclasses(classes: Iterable[type]) -> list[type]:
    """The classes and all below them, each once, a class before those below it."""
    found: dict[int, type] = {}
    todo = list(classes)[::-1]
    while todo:
        cls = todo.pop()
        if id(cls) not in found:
            found[id(cls)] = cls
            # Not `cls.__subclasses__`, which a class may define.
            todo.extend(reversed(type.__subclasses__(cls)))
    # By the length of the MRO, since a class may be below several of these.
    return sorted(found.values(), key=lambda cls: len(cls.__mro__))


def remember(cls: type, node: Node) -> None:
    with lock:
        nodes[cls] = node


def unfit(cls: type, aux: Any, children: Any) -> ValueError:
    """The error for an `unflatten` that was given what no `flatten` of the class returns."""
    node = nodes.get(cls)
    expected = ""
    if node is not None:
        expected = (
            f": its children are {_listed(node.dynamic)}, its aux carries "
            f"{_listed(node.static)}"
        )
    return ValueError(
        f"cannot unflatten a {cls.__qualname__} from {_length(children)} children and "
        f"{_length(aux)} entries of aux{expected}. Give it the aux and as many children "
        f"as its flatten returned."
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "nothing"


def _length(values: Any) -> str:
    try:
        return str(len(values))
    except TypeError:
        return "another number of"


def names_of(
    fields: Iterable["dataclasses.Field[Any]"],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the dynamic and of the static fields of a Module class."""
    dynamic = [interned(f.name) for f in fields if not f.metadata.get("static", False)]
    static = [interned(f.name) for f in fields if f.metadata.get("static", False)]
    return tuple(dynamic), tuple(static)


def interned(name: str) -> str:
    """The name as a plain string that is found in an instance's dict by identity."""
    return sys.intern(str.__str__(name))


def attribute_keys(names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple([GetAttrKey(name) for name in names])


def module_node(
    cls: type,
    fields: tuple["dataclasses.Field[Any]", ...],
    missing: object,
    wrappers: tuple[str, ...],
    getdict: Callable[[Any], Any],
) -> Node:
    """Kernels for an Equinox Module class, chosen by what the class is."""
    dynamic, static = names_of(fields)
    read, read_rule = _reader(cls, dynamic + static, getdict)
    keys = attribute_keys(dynamic)
    source = module_source(cls, dynamic, static, wrappers)
    if kernels is None:
        functions = compile_functions(
            cls,
            source,
            keys,
            {"MISSING": missing, "read": read, "getdict": getdict, "unfit": unfit},
        )
        kernel = "generated Python"
        rule = f"{why_python}; {read_rule}"
    else:
        common = (dynamic, static, wrappers, missing, read, getdict)
        # itemgetter of a single name gives no tuple; WIDE is far above that.
        wide = len(dynamic) >= kernels.WIDE
        flatten = kernels.ModuleFlattenWide if wide else kernels.ModuleFlatten
        functions = Functions(
            flatten(*common),
            kernels.ModuleFlattenWithKeys(*common, keys),
            kernels.ModuleUnflatten(
                cls, dynamic, static, wrappers, missing, getdict, unfit
            ),
        )
        kernel = flatten.__name__
        rule = (
            f"{'at least' if wide else 'fewer than'} {kernels.WIDE} dynamic fields; "
            f"{read_rule}, or as an attribute while the class is hot"
        )
    return Node(
        registered_by="treepress",
        how="FlatMixin",
        kernel=kernel,
        rule=rule,
        dynamic=dynamic,
        static=static,
        functions=functions,
        source=source,
    )


def read_by_slot(cls: type, slot: bool) -> None:
    """Say whether the attributes of a class are read through the interpreter's slot."""
    node = nodes.get(cls)
    if kernels is not None and node is not None and node.functions is not None:
        for kernel in node.functions[:2]:
            if isinstance(kernel, kernels.ModuleFlatten):
                kernel.slot = slot


def record_node(
    cls: type,
    data: tuple[str, ...],
    meta: tuple[str, ...],
    defaults: tuple[tuple[str, Any, bool], ...],
) -> Node:
    """Kernels for a dataclass that is no Module.

    `defaults` are of fields not carried: name, default, and whether that is a factory.
    """
    keys = attribute_keys(data)
    source = record_source(cls, data, meta, defaults)
    if kernels is None:
        values = {f"default_{i}": default[1] for i, default in enumerate(defaults)}
        functions = compile_functions(cls, source, keys, {"unfit": unfit, **values})
        kernel = "generated Python"
        rule = why_python
    else:
        functions = Functions(
            kernels.RecordFlatten(data, meta),
            kernels.RecordFlattenWithKeys(data, meta, keys),
            kernels.RecordUnflatten(cls, data, meta, defaults, unfit),
        )
        kernel = "RecordFlatten"
        rule = "a dataclass that is no Module"
    return Node(
        registered_by="treepress.register_dataclass",
        how="register_dataclass",
        kernel=kernel,
        rule=rule,
        dynamic=data,
        static=meta,
        functions=functions,
        source=source,
    )


def getdict_of(cls: type) -> Callable[[Any], Any]:
    """What gives the `__dict__` of an instance without asking its `__getattribute__`."""
    getdict: Callable[[Any], Any] = vars(cls)["__dict__"].__get__
    return getdict


def _reader(
    cls: type, names: tuple[str, ...], getdict: Callable[[Any], Any]
) -> tuple[Callable[[Any], Any], str]:
    """How the kernels get at the `__dict__` of an instance.

    `object.__getstate__` gives the very `__dict__` of an instance whose class has no
    slots, and is the fastest way to it that avoids `Module.__getattribute__`: it is
    called without making a tuple of its argument, which `__dict__.__get__` is not.
    For an instance without attributes it gives None.
    """
    if not names:
        return getdict, "read by __dict__.__get__, since there are no fields"
    if any(_slots(base) for base in cls.__mro__):
        return getdict, "read by __dict__.__get__, since a base has __slots__"
    if not _getstate_gives_dict():
        return getdict, "read by __dict__.__get__, since this Python's __getstate__ copies"
    return _getstate, "read by object.__getstate__"


_getstate: Final[Callable[[Any], Any]] = object.__getstate__  # type: ignore[attr-defined,unused-ignore]


def _slots(base: type) -> bool:
    slots = vars(base).get("__slots__", ())
    return bool([slots] if isinstance(slots, str) else list(slots))


def _getstate_gives_dict() -> bool:
    class Probe:
        pass

    probe = Probe()
    probe.__dict__["field"] = None
    return _getstate(probe) is probe.__dict__


_getattribute: Final[Any] = object.__getattribute__


def _plain(self: Any, name: str) -> Any:
    return object.__getattribute__(self, name)


def _is_plain(function: Any) -> bool:
    """Whether a `__getattribute__` only does what that of `object` does, as one of quax's."""
    if type(function) is not FunctionType or "object" in function.__globals__:
        return False
    code, plain = function.__code__, _plain.__code__
    return (code.co_code, code.co_names) == (plain.co_code, plain.co_names)


def unusual(cls: type, base: type) -> str:
    """Why the instances of `cls`, a subclass of `base`, cannot be read by our kernels."""
    for parent in cls.__mro__:
        # In any base: Equinox's calls that of the next class.
        own = vars(parent).get("__getattribute__", _getattribute)
        theirs = vars(base).get("__getattribute__")
        if own is not theirs and own is not _getattribute and not _is_plain(own):
            return (
                f"{parent.__qualname__} has a __getattribute__ of its own, which may "
                f"change what the __dict__ of {cls.__qualname__} shows"
            )
    for parent in cls.__mro__:
        own = vars(parent).get("__dict__")
        if own is not None and not isinstance(own, GetSetDescriptorType):
            return f"{parent.__qualname__} defines __dict__"
    return ""
