"""Hot classes: attributes and methods of Modules at the speed of those of a plain class.

Equinox makes bound methods pytrees by a `__getattribute__` in Python, which every attribute
read goes through. In a hot class that is `object.__getattribute__` again, which the interpreter
has a slot for, and descriptors (`_methods`) stand in the place of its functions.
"""

import functools
import warnings
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

import equinox as eqx

from . import _node, module
from ._equinox import Known
from ._methods import (
    OURS,
    BoundMethod,
    Inherited,
    Method,
    Other,
    is_magic,
    may_bind,
    standing_for,
)
from ._node import with_subclasses

_PLAIN: Final = object.__getattribute__

# What was put into each class: for a hot one a `__getattribute__` and what stands for its
# functions; for one below a hot class that is not to be hot its own `__getattribute__`.
_put: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()


def choose(classes: Iterable[type], hot: bool | None) -> None:
    """Say of classes, and what derives from them, whether they shall be hot.

    None leaves it to their bases.
    """
    classes = list(classes)
    with _node.lock:
        for cls in classes:
            if hot is None:
                module.hot_choices.pop(cls, None)
            else:
                module.hot_choices[cls] = hot
        update(classes)


def update(classes: Iterable[type]) -> None:
    """Bring classes, and all below them, to what was chosen.

    At each moment other threads find Equinox's `__getattribute__`, or all descriptors: these
    are put into all classes before any is hot, and taken out when none is any more.
    """
    with _node.lock:
        # Module itself keeps what is to be found behind what is put below it.
        kept = (eqx.Module, module.probe)
        below = [cls for cls in with_subclasses(classes) if cls not in kept]
        hot = [cls for cls in below if _shall(cls)]
        cold = [cls for cls in below if eqx.Module in cls.__mro__ and not _shall(cls)]
        for cls in cold:
            if is_hot(cls):
                _put_into(cls, {"__getattribute__": _EQUINOX})
        for cls in cold:
            _take_out(cls)
        if hot:
            _hook()
        for cls in hot:
            _put_into(cls, _standins(cls))
        for cls in cold:
            if any(_shall(base) for base in cls.__mro__[1:]):
                # A `__getattribute__` of its own may ask that of a hot base.
                own = _standins(cls) if _reads_itself(cls) else {}
                _put_into(cls, {**own, **_mask(cls)})
        for cls in hot:
            _put_into(cls, {"__getattribute__": _PLAIN})
        _follow()


def _reads_itself(cls: type) -> bool:
    return any(
        _raw(base, "__getattribute__") is not None
        for base in cls.__mro__
        if base not in (eqx.Module, object)
    )


def _put_into(cls: type, new: dict[str, Any]) -> None:
    # Noted first, so that it can be taken back should an interrupt come between.
    _put.setdefault(cls, {}).update(new)
    for name, value in new.items():
        # Not the metaclass's, which is ours.
        type.__setattr__(cls, name, value)


def _take_out(cls: type) -> None:
    put = _put.get(cls, {})
    # `__getattribute__` last.
    for name in sorted(put, key=lambda name: name == "__getattribute__"):
        value = put[name]
        if vars(cls).get(name) is not value:
            continue
        if isinstance(value, (Method, Other)):
            type.__setattr__(cls, name, value.__wrapped__)
        else:
            type.__delattr__(cls, name)
    _put.pop(cls, None)


def _standins(cls: type) -> dict[str, Any]:
    """What has to stand for the functions of a class, as far as nothing does yet."""
    new: dict[str, Any] = {}
    for name, value in list(vars(cls).items()):
        if may_bind(name, value):
            new[name] = standing_for(value)
    seen = set(vars(cls))
    for base in cls.__mro__[1:]:
        hot = _shall(base)
        for name, value in list(vars(base).items()):
            if name not in seen and not hot and may_bind(name, value):
                new[name] = Inherited(cls, name)
            seen.add(name)
    return new


def _mask(cls: type) -> dict[str, Any]:
    """The `__getattribute__` that a class would have, were none of its bases hot."""
    for base in cls.__mro__:
        value = _raw(base, "__getattribute__")
        if value is not None:
            return {} if base is cls else {"__getattribute__": value}
    return {}


def chosen(cls: type) -> bool | None:
    return module.hot_choices.get(cls)


def is_hot(cls: type) -> bool:
    return _put.get(cls, {}).get("__getattribute__") is _PLAIN


def why_not(cls: type) -> str:
    """Why a class is not hot."""
    if is_hot(cls):
        return ""
    if eqx.Module not in cls.__mro__:
        return "it is no equinox.Module"
    if not _wanted(cls):
        return "it was not asked for"
    return _unfit(cls)


def _wanted(cls: type) -> bool:
    return next(
        (module.hot_choices[base] for base in cls.__mro__ if base in module.hot_choices),
        False,
    )


def _shall(cls: type) -> bool:
    return (
        eqx.Module in cls.__mro__
        and cls is not eqx.Module
        and _wanted(cls)
        and not _unfit(cls)
    )


def _unfit(cls: type) -> str:
    """Why the attributes of a class are to be left alone."""
    reason = _checked()
    if not reason and vars(eqx.Module).get("__getattribute__") is not _EQUINOX:
        reason = "equinox.Module has another __getattribute__ than it had"
    if reason:
        return reason
    for base in cls.__mro__:
        if base in (eqx.Module, object):
            continue
        for name in ("__getattribute__", "__getattr__"):
            if _raw(base, name) is not None:
                return f"{base.__qualname__} has a {name} of its own"
    return ""


_EQUINOX: Final[Any] = vars(eqx.Module).get("__getattribute__")


def _raw(cls: type, name: str) -> Any:
    """An attribute as it was before us, of this very class."""
    value = vars(cls).get(name)
    if value is not None and _put.get(cls, {}).get(name) is value:
        return None if name == "__getattribute__" else getattr(value, "__wrapped__", None)
    return value


def _follow() -> None:
    """Have BoundMethod be hot as long as any other class is, and the hook there."""
    if BoundMethod is None:
        return
    others = any(is_hot(cls) for cls in list(_put) if cls is not BoundMethod)
    if others and not is_hot(BoundMethod) and not _unfit(BoundMethod):
        _put_into(BoundMethod, {"__getattribute__": _PLAIN})
    elif not others:
        if not _wanted(BoundMethod):
            _take_out(BoundMethod)
        if not _put:
            _unhook()


def _hook() -> None:
    """Learn of attributes that are set on a class later."""
    meta = type(eqx.Module)
    if "__setattr__" not in vars(meta):
        meta.__setattr__ = _set  # type: ignore[method-assign]
        meta.__delattr__ = _delete  # type: ignore[method-assign]


def _unhook() -> None:
    meta = type(eqx.Module)
    if vars(meta).get("__setattr__") is _set:
        del meta.__setattr__, meta.__delattr__


def _set(cls: Any, name: str, value: Any) -> None:
    if is_magic(name) and name not in ("__getattribute__", "__getattr__"):
        super(type(eqx.Module), cls).__setattr__(name, value)
        return
    with _node.lock:
        if name == "__getattribute__" and value is _PLAIN and cls in _put:
            # What was read off a hot class is set again: it had none of its own.
            if _raw(cls, name) is not None:
                super(type(eqx.Module), cls).__delattr__(name)
            _changed(cls, name)
            return
        if _stood_for(cls) and may_bind(name, value):
            value = standing_for(value)
        super(type(eqx.Module), cls).__setattr__(name, value)
        put = _put.get(cls)
        if put is not None:
            put.pop(name, None)
            if isinstance(value, OURS):
                put[name] = value
        _changed(cls, name)


def _delete(cls: Any, name: str) -> None:
    with _node.lock:
        super(type(eqx.Module), cls).__delattr__(name)
        _put.get(cls, {}).pop(name, None)
        if not is_magic(name) or name in ("__getattribute__", "__getattr__"):
            _changed(cls, name)


def _stood_for(cls: type) -> bool:
    """Whether descriptors stand for the functions of a class."""
    return cls in _put and cls is not BoundMethod and (is_hot(cls) or _reads_itself(cls))


def _changed(cls: type, name: str) -> None:
    """An attribute of a class is another one."""
    if name in ("__getattribute__", "__getattr__"):
        update([cls])
        return
    for below in with_subclasses([cls]):
        if not _stood_for(below):
            continue
        put = _put[below]
        needed = _is_needed(below, name)
        there = isinstance(put.get(name), Inherited)
        if needed and not there:
            _put_into(below, {name: Inherited(below, name)})
        elif there and not needed:
            type.__delattr__(below, name)
            del put[name]


def _is_needed(cls: type, name: str) -> bool:
    """Whether something has to stand for what a class inherits by this name."""
    if name in vars(cls) and not isinstance(_put[cls].get(name), Inherited):
        return False
    for base in cls.__mro__[1:]:
        if name in vars(base):
            return not _shall(base) and may_bind(name, vars(base)[name])
    return False


def _checked() -> str:
    """Why bound methods cannot be made as Equinox makes them, with this Equinox."""
    return module.known if isinstance(module.known, str) else _compared(module.known)


@functools.cache
def _compared(known: Known) -> str:
    reason = ""
    if not isinstance(_EQUINOX, FunctionType) or BoundMethod is None:
        reason = "Equinox makes bound methods in another way than it used to"
    else:
        probe: Any = object.__new__(module.probe)
        getdict = known.getdict
        theirs = probe.method
        ours = Method(vars(module.probe)["method"]).__get__(probe, module.probe)
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


def _new_class(cls: type) -> None:
    update([cls])


module.watchers.append(_new_class)
