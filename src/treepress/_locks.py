"""Locks that a forked child finds free, whichever thread held them, which it does not have."""

import os
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary

_names: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()


def lock_of(holder: Any, name: str) -> Any:
    """A new lock, to be kept by a module or an object under this name.

    A thread may take it twice: a signal handler or a finaliser may come between.
    """
    _names[holder] = name
    return threading.RLock()


def _renew() -> None:
    for holder, name in list(_names.items()):
        setattr(holder, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
