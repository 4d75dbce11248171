"""A kernel that is called as a function is, and hands on what it is given.

A method of a class in Python would take, for each call, as long as all else that is done.
"""

from typing import TYPE_CHECKING, Any, Final

from .call import Calls

# As in `method`: so in Python there is `treepress.fallback.caller`.
if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """A function as `filter_jit` made it."""

    def __init__(self, own: tuple[Any, ...], calls: Calls, trim: Any) -> None:
        # The arrays of the function itself, and None where it has none.
        self._own: Final[tuple[Any, ...]] = own
        self._calls: Final[Calls] = calls
        self._trim: Final[Any] = trim

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._calls.call(self._own, args, kwargs)
        except BaseException as error:
            self._trim(error)
            raise
