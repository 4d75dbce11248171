"""How the attributes of a class are read: through the interpreter's slot, or by Equinox."""

import gc
import operator
from collections import deque
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, Final

import equinox as eqx

PLAIN: Final = object.__getattribute__
EQUINOX: Final[Any] = vars(eqx.Module).get("__getattribute__")


def set_reads(functions: dict[type, Any]) -> None:
    """Have the attributes of classes be read by these functions.

    A class keeps the slot that belongs to a `__getattribute__` when that is taken from its
    `__dict__` behind its back. So nothing is left there to be seen, copied or pickled, and
    anything that makes Python look again (a change to a base, a subclass) finds Equinox's
    function: slower, and right.
    """
    steps: list[Callable[[], Any]] = []
    for cls, function in functions.items():
        steps.append(partial(type.__setattr__, cls, "__getattribute__", function))
    for cls in functions:
        steps.append(partial(_dict_of(cls).pop, "__getattribute__", None))
        # Python remembers what it found in the MRO, until an attribute is set. This one is
        # there already.
        abstract = vars(cls)["__abstractmethods__"]
        steps.append(partial(type.__setattr__, cls, "__abstractmethods__", abstract))
    # In one go, without a bytecode in between: so no other thread and no interrupt comes
    # between either, to find a `__dict__` that grows while it iterates over it.
    deque(map(operator.call, steps), maxlen=0)


def _dict_of(cls: type) -> dict[str, Any]:
    """The dict behind the `__dict__` of a class."""
    (found,) = gc.get_referents(vars(cls))
    assert type(found) is dict
    return found


def work(probe_class: type) -> bool:
    """Whether that works in this Python, tried on a class with a method."""
    probe: Any = object.__new__(probe_class)
    try:
        results = []
        for function in (PLAIN, EQUINOX):
            set_reads({probe_class: function})
            results.append(type(probe.method) is MethodType)
    except Exception:  # whatever it is, it shall not be done then
        return False
    return results == [True, False] and "__getattribute__" not in vars(probe_class)
