"""`accelerate` and `install`: our kernels in the functions that Equinox registered.

Which classes are accelerated, and until when. How that is done with one class is in `_swap`.
"""

import contextlib
import dataclasses
import datetime
import functools
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakSet

import equinox as eqx

from . import _fit, _hot, _node, _swap, module
from ._given import module_classes
from ._node import ACCELERATE, INSTALL, Node, names_of, nodes, unusual, with_subclasses
from .description import is_node


class Accelerated(NamedTuple):
    """A class that our kernels flatten.

    Attributes:
        cls: the class.
        how: `"FlatMixin"`, `"register_dataclass"`, `"accelerate"` or `"install"`.
        since: when that was done, in UTC.
    """

    cls: type
    how: str
    since: datetime.datetime


# Of these, subclasses that are made later are accelerated too.
_roots: WeakSet[type] = WeakSet()
# Asked for before Equinox had registered them.
_awaited: WeakSet[type] = WeakSet()
_warned: WeakSet[type] = WeakSet()
_installed = False
_contexts = 0
# What `install` and contexts that are open have said of `hot`: the last word counts.
_choices: dict[object, bool] = {}

_busy = False
_later: list[Callable[[], None]] = []


def _alone(work: Callable[[], None]) -> None:
    """Do something that nothing may come between.

    The lock keeps other threads out. What this thread is made to do meanwhile, by a signal
    or a finaliser, is done afterwards.
    """
    global _busy
    with _node.lock:
        if _busy:
            _later.append(work)
            return
        _busy = True
        try:
            work()
            while _later:
                _later.pop(0)()
        finally:
            _busy = False


if hasattr(os, "register_at_fork"):

    def _after_fork() -> None:
        # It may have been another thread, which the child does not have.
        global _busy
        _busy = False

    os.register_at_fork(after_in_child=_after_fork)


def accelerate(*classes: Any, subclasses: bool = False, hot: bool | None = None) -> Any:
    """Have JAX flatten existing Module classes with treepress's kernels, in place.

    Leaves, key paths, treedefs and live instances are as before: treedefs made before are
    equal to those made after, and nothing that was jitted is compiled again. A class that
    was accelerated before, by whatever means, is left as it is.

    A class is left alone, with a warning, where it brings procedures of its own, defines
    `__getattribute__` or `__dict__`, or was registered in another way than treepress
    knows; `treepress.describe` says why.

    Arguments:
        classes: subclasses of `equinox.Module`, or modules and packages, which stand for
            all Module classes defined in them as far as they are imported. Without any, a
            decorator is returned.
        subclasses: whether their subclasses are accelerated too, those there are and
            those still to be made. (`unxt.Quantity` needs it: its instances are of
            subclasses, one for each dimension.)
        hot: False leaves their attributes, methods and construction as Equinox has them;
            True takes that back, and None leaves it as it is. Subclasses that are
            accelerated too follow, unless they say otherwise.

    Returns:
        what it was given: one class, or a tuple of several.

    Raises:
        TypeError: for what is no Module class. Nothing is changed then.
        ValueError: for a module that defines no Module class.

    Cost: some 0.2 ms for each class with compiled kernels, 1.3 ms without. A node is then
    flattened in 0.05 µs more than one of a class with `FlatMixin` (`make bench` shows both).

    Example:
        >>> import equinox as eqx, treepress
        >>> treepress.accelerate(eqx.nn.Linear)
        <class 'equinox.nn._linear.Linear'>
        >>> treepress.describe(eqx.nn.Linear).accelerated
        True
        >>> _ = treepress.deaccelerate(eqx.nn.Linear)

    That Equinox's functions can be changed in place was found in answer to Nathaniel
    Starkman's remark that a class cannot be registered again.
    """
    _check_hot(hot)
    if not classes:
        return functools.partial(accelerate, subclasses=subclasses, hot=hot)
    named = module_classes(ACCELERATE, classes)
    left: list[tuple[type, str]] = []

    def work() -> None:
        if subclasses:
            _roots.update(named)
        for cls in with_subclasses(named) if subclasses else named:
            reason = _take(cls, ACCELERATE)
            if reason:
                left.append((cls, reason))
        if hot is not None:
            _fit.choose(named, hot)
        _hot.update(named)

    _alone(work)
    _warn(left)
    return classes[0] if len(classes) == 1 else classes


def deaccelerate(*classes: Any, subclasses: bool = False) -> Any:
    """Take `accelerate`, or `install` for some classes, back.

    A class that is not accelerated is left as it is.

    Arguments:
        classes: as those of `accelerate`.
        subclasses: whether their subclasses are taken back too.

    Returns:
        what it was given: one class, or a tuple of several.

    Raises:
        TypeError: for what is no Module class, and for a class that is named itself and
            whose kernels were registered with JAX, by `FlatMixin`. Nothing is changed then.

    Cost: some microseconds for each class.

    Example:
        >>> import equinox as eqx, treepress
        >>> _ = treepress.accelerate(eqx.nn.Linear)
        >>> treepress.deaccelerate(eqx.nn.Linear)
        <class 'equinox.nn._linear.Linear'>
        >>> treepress.describe(eqx.nn.Linear).accelerated
        False
    """
    if not classes:
        raise TypeError("deaccelerate takes one class or more; got none")
    wanted = module_classes("deaccelerate", classes)
    for cls in module_classes(
        "deaccelerate", [c for c in classes if not isinstance(c, ModuleType)]
    ):
        if _is_mixed(cls):
            raise TypeError(
                f"{cls.__qualname__} cannot be taken back: JAX holds the kernels "
                f"themselves, and lets no class be registered again. Make the class "
                f"without {nodes[cls].how}"
            )
    wanted = [
        cls
        for cls in (with_subclasses(wanted) if subclasses else wanted)
        if not _is_mixed(cls)
    ]

    def work() -> None:
        for cls in wanted:
            _roots.discard(cls)
            _awaited.discard(cls)
            _give_back(cls)
        _fit.choose(wanted, None)
        _hot.update(wanted)

    _alone(work)
    return classes[0] if len(classes) == 1 else classes


def _check_hot(hot: object) -> None:
    if not (hot is None or isinstance(hot, bool)):
        raise TypeError(f"hot is {hot!r}; write True, False, or None to leave it as it is")


def _is_mixed(cls: type) -> bool:
    """Whether JAX holds our kernels themselves."""
    node = nodes.get(cls)
    if node is None or node.functions is None:
        return False
    return node.how not in (ACCELERATE, INSTALL)


def install(*, hot: bool | None = None) -> None:
    """Accelerate every Module class in the process, now and from now on.

    Meant for one line at the top of a program; `import treepress.auto` does the same. Calling
    it again accelerates what `deaccelerate` took back. A process that is forked has it too;
    one that is spawned has it if its own program says so.

    The classes that `accelerate` leaves alone are left alone; a warning is given for those
    that were registered in a way which treepress does not know.

    Arguments:
        hot: as that of `accelerate`, for the classes that have their kernels by this alone.

    Cost: that of `accelerate` for each class that exists, and for each one made later.

    Example:
        >>> import equinox as eqx, treepress
        >>> treepress.install()
        >>> treepress.describe(eqx.nn.Linear).accelerated
        True
        >>> treepress.uninstall()
    """
    _check_hot(hot)
    left: list[tuple[type, str]] = []

    def work() -> None:
        global _installed
        _installed = True
        _install(INSTALL, hot, left)

    _alone(work)
    _warn(left)


def uninstall() -> None:
    """Take `install` back: each function that it changed is what it was before.

    Classes that were accelerated by `accelerate` stay accelerated. Without `install` before
    it does nothing.

    Cost: some microseconds for each class.

    Example:
        >>> import equinox as eqx, treepress
        >>> treepress.install()
        >>> treepress.uninstall()
        >>> treepress.describe(eqx.nn.Linear).accelerated
        False
    """

    def work() -> None:
        global _installed
        _installed = False
        _uninstall()

    _alone(work)


@contextlib.contextmanager
def installed(*, hot: bool | None = None) -> Iterator[None]:
    """`install` for the time of a `with` statement.

    The last of several that overlap, in whichever threads, takes it back; and none where
    `install` itself was called.

    Arguments:
        hot: as that of `install`.

    Cost: that of `install` and `uninstall`.

    Example:
        >>> import equinox as eqx, treepress
        >>> with treepress.installed():
        ...     treepress.describe(eqx.nn.Linear).accelerated
        True
        >>> treepress.describe(eqx.nn.Linear).accelerated
        False
    """
    _check_hot(hot)
    begun = False
    context = object()
    left: list[tuple[type, str]] = []

    def enter() -> None:
        global _contexts
        nonlocal begun
        _contexts += 1
        begun = True
        _install(context, hot, left)

    def leave() -> None:
        global _contexts
        _contexts -= 1
        if not (_contexts or _installed):
            _uninstall()
        elif _choices.pop(context, None) is not None:
            _choose()

    try:
        _alone(enter)
        _warn(left)
        yield
    finally:
        if begun:
            _alone(leave)


def accelerated() -> list[Accelerated]:
    """The classes that treepress's kernels flatten, in the order in which that began.

    Returns:
        a list of `Accelerated`: the class, how, and since when.

    Cost: some microseconds for each class.

    Example:
        >>> import equinox as eqx, treepress
        >>> _ = treepress.accelerate(eqx.nn.Linear)
        >>> [(a.cls.__name__, a.how) for a in treepress.accelerated()][-1]
        ('Linear', 'accelerate')
        >>> _ = treepress.deaccelerate(eqx.nn.Linear)
    """
    with _node.lock:
        known = list(nodes.items())
    found = [
        Accelerated(cls, node.how, node.since)
        for cls, node in known
        if node.functions is not None
    ]
    return sorted(found, key=lambda one: one.since)


def suspend() -> Callable[[], None]:
    """Have all Module classes be as without treepress, and return what takes that back.

    So the same class can be measured both ways. Only of classes with `FlatMixin` JAX holds
    the kernels themselves, and goes on flattening them by these.
    """
    before: dict[type, Node] = {}
    choices: dict[type, bool] = {}

    def work() -> None:
        choices.update(module.hot_choices)
        for cls in with_subclasses([eqx.Module]):
            node = nodes.get(cls)
            if node is not None and node.functions is not None and not _is_mixed(cls):
                before[cls] = node
                _give_back(cls)
            if module.FlatMixin in cls.__mro__:
                module.hot_choices[cls] = False
        _hot.update([eqx.Module])

    def resume() -> None:
        module.hot_choices.clear()
        module.hot_choices.update(choices)
        for cls, node in before.items():
            _take(cls, node.how)
            nodes[cls] = dataclasses.replace(nodes[cls], how=node.how, since=node.since)
        _hot.update([eqx.Module])

    _alone(work)
    return lambda: _alone(resume)


def _install(who: object, hot: bool | None, left: list[tuple[type, str]]) -> None:
    if isinstance(module.known, str):
        # Said once already, when treepress was imported.
        return
    for cls in with_subclasses([eqx.Module]):
        reason = _take(cls, INSTALL)
        if reason:
            left.append((cls, reason))
    if hot is not None:
        _choices.pop(who, None)
        _choices[who] = hot
    _choose()


def _choose() -> None:
    _fit.install_choice = next(reversed(_choices.values()), True)
    _hot.update([eqx.Module])


def _uninstall() -> None:
    for cls, node in list(nodes.items()):
        if node.how == INSTALL:
            _give_back(cls)
    for cls in _swap.taken():
        # An interrupt came between.
        if cls not in nodes:
            _give_back(cls)
    _choices.clear()
    _choose()


def _new_class(cls: type) -> None:
    """What `module` calls when Equinox has registered a class."""
    left: list[tuple[type, str]] = []

    def work() -> None:
        how = ""
        if cls in _awaited or any(base in _roots for base in cls.__mro__[1:]):
            how = ACCELERATE
        elif _installed or _contexts:
            how = INSTALL
        _awaited.discard(cls)
        reason = _take(cls, how) if how else ""
        if reason:
            left.append((cls, reason))
        if how:
            _hot.update([cls])

    _alone(work)
    _warn(left)


module.watchers.append(_new_class)


def _warn(left: list[tuple[type, str]]) -> None:
    fresh = [(cls, reason) for cls, reason in left if cls not in _warned]
    _warned.update([cls for cls, _ in fresh])
    if not fresh:
        return
    cls, reason = fresh[0]
    others = ""
    if len(fresh) > 1:
        names = [cls.__qualname__ for cls, _ in fresh[1:]]
        others = (
            f" Neither {'are' if len(names) > 1 else 'is'} {', '.join(names[:10])}"
            f"{f' and {len(names) - 10} more' if len(names) > 10 else ''}: "
            f"treepress.describe says why."
        )
    module.warn(
        f"{cls.__qualname__} is not accelerated, and works as before: {reason}.{others}",
        RuntimeWarning,
    )


def _take(cls: type, how: str) -> str:
    """Put kernels in the functions of a class. Returns why they cannot be."""
    node = nodes.get(cls)
    if node is not None and node.functions is not None:
        if node.how == INSTALL and how == ACCELERATE:
            nodes[cls] = dataclasses.replace(node, how=how)
        return ""
    if node is not None and not node.how:
        # It has FlatMixin, and brings its own procedures, or was warned of.
        reason = node.reason or "it brings its own procedures"
        return reason if how == ACCELERATE else ""
    known = module.known
    if isinstance(known, str):
        return known
    if cls is module.probe:
        return ""
    if not is_node(cls):
        # `install` is in force when its turn comes.
        if how == ACCELERATE:
            _awaited.add(cls)
        return ""
    reason = unusual(cls, eqx.Module)
    put = reason or _swap.put_in(cls, known)
    if isinstance(put, str):
        names = names_of(dataclasses.fields(cls))
        nodes[cls] = Node("equinox", *names, how=how, reason=put)
        # Who installs has not chosen this class, and can do nothing about it.
        return "" if how == INSTALL and put is not _swap.OTHERWISE else put
    nodes[cls] = dataclasses.replace(
        put, registered_by="equinox", how=how, since=datetime.datetime.now(datetime.UTC)
    )
    return ""


def _give_back(cls: type) -> None:
    node = nodes.get(cls)
    # Others were left alone, or have FlatMixin.
    if _swap.give_back(cls) or (node is not None and node.how in (ACCELERATE, INSTALL)):
        nodes.pop(cls, None)
        _swap.forget(cls)
