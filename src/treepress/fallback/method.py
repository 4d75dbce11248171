"""`treepress.kernels.method` for the interpreter."""

from typing import Any

_new = object.__new__
_set = object.__setattr__


class Binder:
    """A descriptor in the place of a plain function, in the `__dict__` of its class."""

    # Out of the way of what a subclass copies from the function.
    __slots__ = ("bound", "function", "owners", "wrappers")

    def __init__(self, function: Any, bound: type, wrappers: tuple[str, ...]) -> None:
        self.function = function
        self.bound = bound
        self.wrappers = wrappers
        self.owners: set[type] = set()

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        function = self.function
        if obj is None:
            return function
        if type(obj) not in self.owners:
            return function.__get__(obj, owner)
        state = {"__func__": function, "__self__": obj}
        for name in self.wrappers:
            state[name] = getattr(function, name)
        bound: Any = _new(self.bound)
        _set(bound, "__dict__", state)
        return bound
