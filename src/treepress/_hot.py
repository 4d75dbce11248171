"""Hot classes: attributes and methods of Modules at the speed of those of a plain class.

Equinox makes bound methods pytrees by a `__getattribute__` in Python, which every attribute
read goes through. A hot class reads attributes through the interpreter's own slot instead
(`_reads`), and descriptors (`_methods`) stand in the place of its functions (`_standing`).
Here classes are made hot and cold, and what is set on them later is followed.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx

from . import _construct, _node, _reads, _standing, _super, module
from ._fit import READS, hot, is_hot, may_construct, shall, unfit, wanted
from ._methods import OURS, BoundMethod, Inherited, is_magic, may_bind, standing_for
from ._node import with_subclasses


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
        chosen = {cls: None for cls in below if shall(cls)}
        cold = [cls for cls in below if cls not in chosen]
        if chosen:
            _hook()
        for cls in below:
            _standing.drop_strays(cls)
        for cls in chosen:
            _standing.stand(cls)
        for cls in chosen:
            _standing.own(cls)
        for cls in chosen:
            _standing.drop_unneeded(cls)
        new = {cls for cls in chosen if cls not in hot}
        functions: dict[type, Any] = {}
        if new or not hot.isdisjoint(cold):
            # Those that stay what they are too, hot or not: what is set on a class goes for
            # all below that have nothing of their own.
            for cls in below:
                if _own_reads(cls):
                    continue
                if cls in chosen:
                    functions[cls] = _reads.PLAIN
                elif cls in hot or not functions.keys().isdisjoint(cls.__mro__):
                    functions[cls] = _reads.EQUINOX
        _reads.set_reads(functions)
        hot.update(chosen)
        hot.difference_update(cold)
        # The descriptors stay theirs: a thread may have found one already.
        for cls in cold:
            _standing.take_out(cls)
        for cls in below:
            _node.read_by_slot(cls, cls in chosen)
            _construct.choose(cls, cls in chosen or may_construct(cls))
        _follow()


def _own_reads(cls: type) -> bool:
    return any(name in vars(cls) for name in READS)


def _follow() -> None:
    """Have BoundMethod be hot as long as any other class is, and the hook there."""
    if BoundMethod is None:
        return
    # What has FlatMixin stays hot; but of itself `treepress.Module` has no use for it.
    others = any(cls not in (BoundMethod, module.Module) for cls in hot)
    if others and not is_hot(BoundMethod) and not unfit(BoundMethod):
        _reads.set_reads({BoundMethod: _reads.PLAIN})
        hot.add(BoundMethod)
    elif not others:
        _construct.choose(module.Module, False)
        for cls in (BoundMethod, module.Module):
            if is_hot(cls) and (cls is module.Module or not wanted(cls)):
                _node.read_by_slot(cls, False)
                _reads.set_reads({cls: _reads.EQUINOX})
                hot.discard(cls)
        if not hot:
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
    with _node.lock:
        if isinstance(_standing.standing.get(cls, {}).get(name), Inherited):
            # It stands there for what is not there: so the error is that of any class.
            delattr(type(cls.__name__, (), {}), name)
        if is_hot(cls) and name in vars(cls) and _standing.is_needed(cls, name, gone=True):
            # In the place of what goes, in one step.
            value = Inherited(cls, name)
            value.home = cls
            _change(cls, name, functools.partial(_standing.put_in, cls, name), value)
        else:
            _standing.hand_on(cls, name)
            _change(cls, name, lambda _: _next(cls).__delattr__(name), None)


def _next(cls: Any) -> Any:
    return super(type(eqx.Module), cls)


def _change(cls: Any, name: str, change: Callable[[Any], None], value: Any) -> None:
    if is_magic(name) and name not in READS:
        change(value)
        _construct.forget(cls)
        return
    with _node.lock:
        put = _standing.standing.get(cls)
        if isinstance(value, OURS) and value.home is not cls:
            # It was read off another class.
            value = value.__wrapped__
        if is_hot(cls) and may_bind(name, value):
            value = standing_for(value)
            value.home = cls
        old = None if put is None else put.get(name)
        if isinstance(value, OURS):
            value.owners.update(_standing.finders(cls, name))
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
    if name in READS:
        # Python has looked anew at how their attributes are read.
        hot.difference_update(below)
        update([cls])
        return
    for one in below:
        if not is_hot(one):
            continue
        put = _standing.standing.setdefault(one, {})
        needed = _standing.is_needed(one, name)
        there = isinstance(put.get(name), Inherited)
        if needed and not there:
            _standing.put_in(one, name, Inherited(one, name))
        elif there and not needed:
            _standing.drop(one, name)
    for one in below:
        if is_hot(one):
            _standing.own(one, name)


def _new_class(cls: type) -> None:
    update([cls])


module.watchers.append(_new_class)
