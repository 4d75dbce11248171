"""Where Equinox registers its Module classes, and what it registers them with.

None of this is public API of Equinox. So nothing is taken on trust: a small Module class
is made, what Equinox registers for it is caught, and our kernels are held against that on
instances of every sort. Should anything differ, treepress leaves Equinox alone.
"""

import copyreg
import enum
import functools as ft
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax.tree_util as jtu

from ._node import getdict_of, module_node

# The arguments with which Equinox calls `register_pytree_with_keys`, beside the class.
ARGUMENTS: Final = frozenset(["flatten_with_keys", "flatten_func", "unflatten_func"])

Register = Callable[..., None]


class Known(NamedTuple):
    """What the kernels need of Equinox."""

    missing: object
    wrappers: tuple[str, ...]
    getdict: Callable[[Any], Any]


class TreeUtil(ModuleType):
    """`jax.tree_util` as the code that makes Module classes sees it.

    Everything is the original's, at the time it is asked for, but
    `register_pytree_with_keys`.
    """

    register_pytree_with_keys: Register

    def __getattr__(self, name: str) -> Any:
        return getattr(jtu, name)


# `__getattr__` alone would make each use of `jtu` in `Module.__call__` some 200 ns slower,
# for every Module in the process. A property of a partial costs a quarter of that. (It is
# called with the instance, which `getattr` takes for its default and never needs.)
for _name in dir(jtu):
    if not _name.startswith("__"):
        setattr(TreeUtil, _name, property(ft.partial(getattr, jtu, _name)))


def hook(register: Register) -> str:
    """Have Equinox register its classes through `register`. Returns why it cannot be."""
    namespace = _namespace()
    # A treepress that was imported before (and dropped from sys.modules) left its own.
    used = namespace.get("jtu")
    if not isinstance(used, ModuleType) or used.__name__ != jtu.__name__:
        return f"{namespace.get('__name__')} has no jax.tree_util by the name of jtu"
    TreeUtil.register_pytree_with_keys = staticmethod(register)
    namespace["jtu"] = TreeUtil(jtu.__name__, jtu.__doc__)
    return ""


def unhook() -> None:
    """Take `hook` back."""
    if isinstance(_namespace().get("jtu"), TreeUtil):
        _namespace()["jtu"] = jtu


def _namespace() -> dict[str, Any]:
    """The global names of the code that makes Module classes."""
    new = type(eqx.Module).__new__
    namespace: dict[str, Any] = getattr(new, "__globals__", {})
    return namespace


def know() -> Known | str:
    """What the kernels need of Equinox, or what is missing."""
    try:
        from equinox._module._flatten import MISSING, WRAPPER_FIELD_NAMES
    except ImportError as error:
        return f"{error}"
    try:
        getdict = getdict_of(eqx.Module)
    except KeyError:
        return "equinox.Module has no __dict__ of its own"
    if not isinstance(MISSING, enum.Enum):
        # Equinox compares its sentinel by identity, and a copy of it, as pickle makes one,
        # is no sentinel any more. A string says: by this name, in the module of its class.
        copyreg.pickle(type(MISSING), lambda _: "MISSING")
    return Known(MISSING, tuple(WRAPPER_FIELD_NAMES), getdict)


def make_probe() -> type:
    """A Module class with fields of each kind, and a method."""

    class Probe(eqx.Module):
        first: object
        second: object = eqx.field(static=True)
        third: object
        fourth: object = eqx.field(static=True, default=None)

        def method(self, x: int = 0) -> int:
            """A docstring."""
            return x

    return Probe


def differs(known: Known, cls: type, registered: dict[str, Any]) -> str:
    """How our kernels for the probe differ from what Equinox registered for it."""
    if set(registered) != ARGUMENTS:
        return f"Equinox registers its classes with {sorted(registered)}"
    fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
    ours = module_node(cls, tuple(fields.values()), *known).functions
    assert ours is not None
    names = list(fields)
    wrapped = {name: object() for name in known.wrappers}
    all_set = {name: object() for name in names}
    states: list[dict[str, object]] = [
        all_set,
        {},
        {name: all_set[name] for name in names[1:]},
        {name: all_set[name] for name in reversed(names)},
        {**all_set, **wrapped},
        {**all_set, known.wrappers[0]: object(), "other": object()},
        {"other": object(), **{name: all_set[name] for name in names[1:]}},
        {"other": object(), **{name: all_set[name] for name in names[:-1]}},
    ]
    try:
        for state in states:
            instance: Any = object.__new__(cls)
            known.getdict(instance).update(state)
            theirs = registered["flatten_func"](instance)
            if not _same(theirs, ours.flatten(instance)):
                return "Equinox's flatten gives something else"
            if not _same(
                registered["flatten_with_keys"](instance), ours.flatten_with_keys(instance)
            ):
                return "Equinox's flatten_with_keys gives something else"
            children, aux = theirs
            old = known.getdict(registered["unflatten_func"](aux, children))
            new = known.getdict(ours.unflatten(aux, children))
            if not _same(tuple(old.items()), tuple(new.items())):
                return "Equinox's unflatten gives something else"
    except Exception as error:
        return f"Equinox's functions cannot be called as we know them: {error!r}"
    return ""


def _same(one: object, other: object) -> bool:
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (str, jtu.GetAttrKey)):
        return one == other
    return one is other
