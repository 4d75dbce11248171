"""`treepress.kernels.caller` for the interpreter."""

from typing import Any


class Caller:
    """A function as `filter_jit` made it."""

    def __init__(self, own: tuple[Any, ...], calls: Any, trim: Any) -> None:
        self._own = own
        self._calls = calls
        self._trim = trim

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return self._calls.call(self._own, args, kwargs)
        except BaseException as error:
            self._trim(error)
            raise
