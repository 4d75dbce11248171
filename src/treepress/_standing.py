"""What stands in hot classes for their functions.

A descriptor binds for the classes that own it: those whose instances find it first. For
`super()`, which finds it further up, it does what the function does.
"""

from typing import Any, Final
from weakref import WeakKeyDictionary

import equinox as eqx

from . import _super
from ._fit import is_hot, shall
from ._methods import OURS, Inherited, Method, Other, may_bind, standing_for
from ._node import with_subclasses

# By class and name.
standing: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()


def put_in(cls: type, name: str, value: Any) -> None:
    """Have a descriptor stand in a class."""
    # Noted first, so that it can be taken back should an interrupt come between.
    standing.setdefault(cls, {})[name] = value
    value.home = cls
    # Before other threads find it, for whom it does not own it is a plain method.
    value.owners.update(finders(cls, name))
    # Not the metaclass's, which is ours.
    type.__setattr__(cls, name, value)


def finders(cls: type, name: str) -> list[type]:
    """A class and the hot ones below it that find by a name what stands in it, or would."""
    return [
        one
        for one in with_subclasses([cls])
        if one is cls
        or (
            is_hot(one)
            and not any(
                name in vars(base) for base in one.__mro__[: one.__mro__.index(cls)]
            )
        )
    ]


def hand_on(cls: type, name: str) -> None:
    """Have what is behind an attribute of a class bind for those that find the attribute."""
    for one in finders(cls, name):
        for base in one.__mro__[one.__mro__.index(cls) + 1 :]:
            if name in vars(base):
                value = vars(base)[name]
                if isinstance(value, OURS) and is_hot(one):
                    value.owners.add(one)
                break


def drop(cls: type, name: str) -> None:
    """Take out what stands in a class for what it inherits."""
    hand_on(cls, name)
    type.__delattr__(cls, name)
    del standing[cls][name]


def take_out(cls: type) -> None:
    """Put back what a class had."""
    for name, value in standing.get(cls, {}).items():
        if vars(cls).get(name) is not value:
            continue
        if isinstance(value, (Method, Other)):
            type.__setattr__(cls, name, value.__wrapped__)
        else:
            type.__delattr__(cls, name)
    standing.pop(cls, None)


def drop_strays(cls: type) -> None:
    """Take out what stood for functions of another class, of whose `__dict__` this is made."""
    put = standing.get(cls, {})
    for name, value in list(vars(cls).items()):
        if isinstance(value, OURS) and put.get(name) is not value:
            if isinstance(value, Inherited):
                type.__delattr__(cls, name)
            else:
                type.__setattr__(cls, name, value.__wrapped__)


def stand(cls: type) -> None:
    """Put what has to stand for the functions of a class."""
    for name, value in list(vars(cls).items()):
        if may_bind(name, value):
            put_in(cls, name, standing_for(value))
    put = standing.setdefault(cls, {})
    for name in _needed(cls):
        if name not in put:
            put_in(cls, name, Inherited(cls, name))


def drop_unneeded(cls: type) -> None:
    """Take out what has not to stand in a class any more, now that others stand behind it."""
    needed = _needed(cls)
    for name, value in list(standing[cls].items()):
        if isinstance(value, Inherited) and name not in needed:
            drop(cls, name)


def own(cls: type, only: str | None = None) -> None:
    """Have the descriptors that instances of a class find bind for them, and no others.

    What `super()` finds further up gives a plain method, as under Equinox. Of all names, or
    only of one.
    """
    seen = set()
    for base in cls.__mro__:
        if base is eqx.Module:
            continue
        space = vars(base)
        for name in list(space) if only is None else [only] if only in space else []:
            value = space.get(name)
            if isinstance(value, OURS):
                (value.owners.discard if name in seen else value.owners.add)(cls)
            seen.add(name)


def _needed(cls: type) -> set[str]:
    """The names of all that something has to stand for in a class that inherits it."""
    return {name for name in _inherited(cls) if is_needed(cls, name)}


def _inherited(cls: type) -> set[str]:
    """The names of all that a class inherits and that may be a method."""
    return {
        name
        for base in cls.__mro__[1:]
        if base not in (eqx.Module, object)
        for name, value in list(vars(base).items())
        if isinstance(value, OURS) or may_bind(name, value)
    }


def is_needed(cls: Any, name: str, gone: bool = False) -> bool:
    """Whether something has to stand in a class for what it inherits by this name.

    `gone`: once what the class itself has by it is gone.
    """
    # What an abstract variable is called must not be in the class, for subclasses to be made.
    if cls.__abstractvars__ or cls.__abstractclassvars__:
        return False
    own = name in vars(cls) and not isinstance(standing[cls].get(name), Inherited)
    if own and not gone:
        return False
    above = [base for base in cls.__mro__ if name in vars(base) and base is not cls]
    if not above:
        return False
    value = vars(above[0])[name]
    if not (isinstance(value, OURS) or may_bind(name, value)):
        return False
    if not shall(above[0]):
        return True
    # Else `super()` would find the very descriptor that an instance finds, and could not be
    # told from it.
    nearer = cls.__mro__[: cls.__mro__.index(above[0])]
    return any(name in _super.asked(base) for base in nearer)
