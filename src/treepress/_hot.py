"""Hot classes: attributes and methods of Modules at the speed of those of a plain class.

Equinox makes bound methods pytrees by a `__getattribute__` in Python, which every attribute
read goes through. A hot class reads attributes through the interpreter's own slot instead,
and descriptors (`_methods`) stand in the place of its functions.
"""

import functools
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import equinox as eqx

from . import _construct, _node, _reads, _super, module
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
from ._node import INSTALL, nodes, with_subclasses

_READS: Final = ("__getattribute__", "__getattr__")

# The classes whose attributes are read through the slot.
_hot: Final[WeakSet[type]] = WeakSet()

# What stands in each class for its functions, by name.
_standing: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()

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


def update(classes: Iterable[type]) -> None:
    """Bring classes, and all below them, to what they shall be.

    At each moment other threads find Equinox's way to read attributes, or descriptors:
    these are put into all classes before any is hot, and taken out when none is any more.
    """
    with _node.lock:
        # Module itself keeps what is to be found behind what is put below it. Of a class
        # that is still being made we hear when it is.
        kept = (eqx.Module, module.probe)
        below = [
            cls
            for cls in with_subclasses(classes)
            if eqx.Module in cls.__mro__
            and cls not in kept
            and "__dataclass_fields__" in vars(cls)
        ]
        hot = {cls: None for cls in below if _shall(cls)}
        cold = [cls for cls in below if cls not in hot]
        if hot:
            _hook()
        for cls in below:
            _drop_strays(cls)
        for cls in hot:
            _stand(cls)
        for cls in hot:
            _own(cls)
        for cls in hot:
            _drop_unneeded(cls)
        new = {cls for cls in hot if cls not in _hot}
        functions: dict[type, Any] = {}
        if new or not _hot.isdisjoint(cold):
            # Those that stay what they are too, hot or not: what is set on a class goes for
            # all below that have nothing of their own.
            for cls in below:
                if _own_reads(cls):
                    continue
                if cls in hot:
                    functions[cls] = _reads.PLAIN
                elif cls in _hot or not functions.keys().isdisjoint(cls.__mro__):
                    functions[cls] = _reads.EQUINOX
        _reads.set_reads(functions)
        _hot.update(hot)
        _hot.difference_update(cold)
        # The descriptors stay theirs: a thread may have found one already.
        for cls in cold:
            _take_out(cls)
        for cls in below:
            _node.read_by_slot(cls, cls in hot)
            _construct.choose(cls, cls in hot or _may_construct(cls))
        _follow()


def _put(cls: type, name: str, value: Any) -> None:
    # Noted first, so that it can be taken back should an interrupt come between.
    _standing.setdefault(cls, {})[name] = value
    value.home = cls
    # Before other threads find it, for whom it does not own it is a plain method.
    value.owners.update(_finders(cls, name))
    # Not the metaclass's, which is ours.
    type.__setattr__(cls, name, value)


def _finders(cls: type, name: str) -> list[type]:
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


def _hand_on(cls: type, name: str) -> None:
    """Have what is behind an attribute of a class bind for those that find the attribute."""
    for one in _finders(cls, name):
        for base in one.__mro__[one.__mro__.index(cls) + 1 :]:
            if name in vars(base):
                value = vars(base)[name]
                if isinstance(value, OURS) and is_hot(one):
                    value.owners.add(one)
                break


def _drop(cls: type, name: str) -> None:
    """Take out what stands in a class for what it inherits."""
    _hand_on(cls, name)
    type.__delattr__(cls, name)
    del _standing[cls][name]


def _take_out(cls: type) -> None:
    for name, value in _standing.get(cls, {}).items():
        if vars(cls).get(name) is not value:
            continue
        if isinstance(value, (Method, Other)):
            type.__setattr__(cls, name, value.__wrapped__)
        else:
            type.__delattr__(cls, name)
    _standing.pop(cls, None)


def _drop_strays(cls: type) -> None:
    """Take out what stood for functions of another class, of whose `__dict__` this is made."""
    put = _standing.get(cls, {})
    for name, value in list(vars(cls).items()):
        if isinstance(value, OURS) and put.get(name) is not value:
            if isinstance(value, Inherited):
                type.__delattr__(cls, name)
            else:
                type.__setattr__(cls, name, value.__wrapped__)


def _stand(cls: type) -> None:
    """Put what has to stand for the functions of a class."""
    for name, value in list(vars(cls).items()):
        if may_bind(name, value):
            _put(cls, name, standing_for(value))
    put = _standing.setdefault(cls, {})
    for name in _needed(cls):
        if name not in put:
            _put(cls, name, Inherited(cls, name))


def _drop_unneeded(cls: type) -> None:
    """Take out what has not to stand in a class any more, now that others stand behind it."""
    needed = _needed(cls)
    for name, value in list(_standing[cls].items()):
        if isinstance(value, Inherited) and name not in needed:
            _drop(cls, name)


def _own(cls: type, only: str | None = None) -> None:
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


def is_hot(cls: type) -> bool:
    return cls in _hot


def why_not(cls: type) -> str:
    """Why a class is not hot."""
    if is_hot(cls):
        return ""
    if eqx.Module not in cls.__mro__:
        return "it is no equinox.Module"
    if not _accelerated(cls):
        return "it is not accelerated"
    if not _wanted(cls):
        return "hot=False was asked for"
    return unfit(cls)


def why_not_constructed(cls: type) -> str:
    """Why a class is not constructed by a kernel."""
    if eqx.Module in cls.__mro__ and _accelerated(cls) and _wanted(cls):
        return unfit(cls, ("__getattribute__",)) or _construct.why_not(cls)
    return why_not(cls)


def _accelerated(cls: type) -> bool:
    node = nodes.get(cls)
    return module.FlatMixin in cls.__mro__ or (
        node is not None and node.functions is not None
    )


def _wanted(cls: type) -> bool:
    if not _accelerated(cls):
        return False
    for base in cls.__mro__:
        if base in module.hot_choices:
            return module.hot_choices[base]
    node = nodes.get(cls)
    return install_choice or node is None or node.how != INSTALL


def _shall(cls: type) -> bool:
    return (
        eqx.Module in cls.__mro__
        and cls is not eqx.Module
        and _wanted(cls)
        and not unfit(cls)
    )


def _may_construct(cls: type) -> bool:
    """Whether a class that is not hot may be constructed by a kernel all the same."""
    return _wanted(cls) and not unfit(cls, ("__getattribute__",))


def unfit(cls: type, names: tuple[str, ...] = _READS) -> str:
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


def _own_reads(cls: type) -> bool:
    return any(name in vars(cls) for name in _READS)


def _follow() -> None:
    """Have BoundMethod be hot as long as any other class is, and the hook there."""
    if BoundMethod is None:
        return
    # What has FlatMixin stays hot; but of itself `treepress.Module` has no use for it.
    others = any(cls not in (BoundMethod, module.Module) for cls in _hot)
    if others and not is_hot(BoundMethod) and not unfit(BoundMethod):
        _reads.set_reads({BoundMethod: _reads.PLAIN})
        _hot.add(BoundMethod)
    elif not others:
        _construct.choose(module.Module, False)
        for cls in (BoundMethod, module.Module):
            if is_hot(cls) and (cls is module.Module or not _wanted(cls)):
                _node.read_by_slot(cls, False)
                _reads.set_reads({cls: _reads.EQUINOX})
                _hot.discard(cls)
        if not _hot:
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
    _change(cls, name, lambda new: _next(cls).__setattr__(name, new), value)


def _delete(cls: Any, name: str) -> None:
    _change(cls, name, lambda _: _next(cls).__delattr__(name), None, deleted=True)


def _next(cls: Any) -> Any:
    return super(type(eqx.Module), cls)


def _change(
    cls: Any,
    name: str,
    change: Callable[[Any], None],
    value: Any,
    deleted: bool = False,
) -> None:
    if is_magic(name) and name not in _READS:
        change(value)
        _construct.forget(cls)
        return
    with _node.lock:
        put = _standing.get(cls)
        if put is not None and isinstance(put.get(name), Inherited) and deleted:
            # It stands there for what is not there: so the error is that of any class.
            delattr(type(cls.__name__, (), {}), name)
        if isinstance(value, OURS) and value.home is not cls:
            # It was read off another class.
            value = value.__wrapped__
        if is_hot(cls) and may_bind(name, value):
            value = standing_for(value)
            value.home = cls
        if deleted and is_hot(cls) and name in vars(cls) and _is_needed(cls, name, True):
            # In the place of what goes, in one step.
            change = functools.partial(_put, cls, name)
            value = Inherited(cls, name)
        old = None if put is None else put.get(name)
        _hand_on(cls, name)
        if isinstance(value, OURS):
            value.owners.update(_finders(cls, name))
        change(value)
        _super.forget(cls)
        if put is not None:
            if old is not None and old is not value:
                old.owners.difference_update(with_subclasses([cls]))
            if isinstance(value, OURS):
                put[name] = value
            else:
                put.pop(name, None)
        _changed(cls, name)


def _changed(cls: type, name: str) -> None:
    """An attribute of a class is another one."""
    below = with_subclasses([cls])
    _construct.forget(cls)
    if name in _READS:
        # Python has looked anew at how their attributes are read.
        _hot.difference_update(below)
        update([cls])
        return
    for one in below:
        if not is_hot(one):
            continue
        put = _standing.setdefault(one, {})
        needed = _is_needed(one, name)
        there = isinstance(put.get(name), Inherited)
        if needed and not there:
            _put(one, name, Inherited(one, name))
        elif there and not needed:
            _drop(one, name)
    for one in below:
        if is_hot(one):
            _own(one, name)


def _needed(cls: type) -> set[str]:
    """The names of all that something has to stand for in a class that inherits it."""
    return {name for name in _inherited(cls) if _is_needed(cls, name)}


def _inherited(cls: type) -> set[str]:
    """The names of all that a class inherits and that may be a method."""
    return {
        name
        for base in cls.__mro__[1:]
        if base not in (eqx.Module, object)
        for name, value in list(vars(base).items())
        if isinstance(value, OURS) or may_bind(name, value)
    }


def _is_needed(cls: Any, name: str, gone: bool = False) -> bool:
    """Whether something has to stand in a class for what it inherits by this name.

    `gone`: once what the class itself has by it is gone.
    """
    # What an abstract variable is called must not be in the class, for subclasses to be made.
    if cls.__abstractvars__ or cls.__abstractclassvars__:
        return False
    own = name in vars(cls) and not isinstance(_standing[cls].get(name), Inherited)
    if own and not gone:
        return False
    above = [base for base in cls.__mro__ if name in vars(base) and base is not cls]
    if not above:
        return False
    value = vars(above[0])[name]
    if not (isinstance(value, OURS) or may_bind(name, value)):
        return False
    if not _shall(above[0]):
        return True
    # Else `super()` would find the very descriptor that an instance finds, and could not be
    # told from it.
    nearer = cls.__mro__[: cls.__mro__.index(above[0])]
    return any(name in _super.asked(base) for base in nearer)


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


def _new_class(cls: type) -> None:
    update([cls])


module.watchers.append(_new_class)
