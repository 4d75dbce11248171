"""A kernel that binds a function of a Module class to an instance.

Equinox makes a bound method a pytree: a `BoundMethod`, itself a Module, whose `__init__` reads
the names and the docstring off the function. Its state is the same for all instances but for
one entry, so it can be copied.
"""

from typing import TYPE_CHECKING, Any, Final

from .node import Names, State, blanks

# The compiler looks for the decorator by its name, and nothing is left of it at run time. (So
# this file runs compiled alone; in Python there is `treepress.fallback.method`.)
if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Binder:
    """A descriptor in the place of a plain function, in the `__dict__` of its class."""

    def __init__(self, function: Any, bound: type, wrappers: Names) -> None:
        self.function: Final[Any] = function
        self.wrappers: Final = wrappers
        self.blanks: Final[Any] = blanks(bound)
        # The classes for whose instances it makes BoundMethods.
        self.owners: Final[set[Any]] = set()
        # The state of the BoundMethod made last but for its `__self__`, and of that the
        # values that are read off the function. Both are replaced whole, never changed.
        self.last: tuple[State, tuple[Any, ...]] = ({}, ())

    def __get__(self, obj: Any, owner: Any) -> Any:
        function = self.function
        if obj is None:
            return function
        # Not `owner`, which is a null pointer in compiled code if it was not given.
        cls = type(obj)
        if cls not in self.owners:
            return function.__get__(obj, cls)
        last = self.last
        values = last[1]
        if not values:
            last = renewed(self)
        else:
            for name, value in zip(self.wrappers, values):
                if getattr(function, name) is not value:
                    last = renewed(self)
                    break
        state = last[0].copy()
        state["__self__"] = obj
        for bound in self.blanks:
            object.__setattr__(bound, "__dict__", state)
            return bound
        raise AssertionError("blanks never ends")


# No method, for a function may have an attribute of any name, and its stand-in has it too.
def renewed(binder: Binder) -> tuple[State, tuple[Any, ...]]:
    # In the order in which `BoundMethod.__init__` sets them.
    state: State = {"__func__": binder.function, "__self__": None}
    values: list[Any] = []
    for name in binder.wrappers:
        value = getattr(binder.function, name)
        values.append(value)
        state[name] = value
    binder.last = (state, tuple(values))
    return binder.last
