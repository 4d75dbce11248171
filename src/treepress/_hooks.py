"""Hooks in functions where they are: by another code, which whoever holds them calls."""

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

# Where the code says it is from: as for `_construct.unseen`.
FILE: Final = "<treepress, watching, for warnings as if importlib._bootstrap>"


class Hooks:
    """Hooks that are put in one after the other, and taken out again.

    How is known before each is put in, and until it is out, for an interrupt may come between.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, function: Any, make: Callable[[Any], Any], stub: Any) -> None:
        """Put a hook into a function; `make` is given what the function was."""
        before = function.__code__
        original = _copy(function)
        code = calling(stub, make(original), function, FILE)

        def undo() -> None:
            # Not if another has put something else there since.
            if function.__code__ is code:
                function.__code__ = before

        self._undo.append(undo)
        function.__code__ = code

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put a hook in the place of something that is not written in Python."""
        before = getattr(owner, name)
        hook = make(before)
        hook.__name__, hook.__doc__ = name, before.__doc__
        # By its module and name it is pickled.
        hook.__module__ = getattr(before, "__module__", None) or hook.__module__
        hook.__qualname__ = getattr(before, "__qualname__", None) or name

        def undo() -> None:
            if getattr(owner, name) is hook:
                setattr(owner, name, before)

        self._undo.append(undo)
        setattr(owner, name, hook)

    def then(self, undo: Callable[[], None]) -> None:
        """Something else that is to be taken back, when its turn comes; maybe twice."""
        self._undo.append(undo)

    def take_out(self) -> None:
        while self._undo:
            self._undo[-1]()
            self._undo.pop()


def stub_of_one(obj: Any) -> Any:
    target: Any = "target"
    return target(obj)


def stub_of_reads(one: Any, other: Any) -> Any:
    """Of two targets the second is for `__dict__`: what flattens reads that, and often."""
    target: Any = "target"
    if other == "__dict__":
        return target[1](one, other)
    return target[0](one, other)


def stub_of_any(*args: Any, **kwargs: Any) -> Any:
    target: Any = "target"
    return target(*args, **kwargs)


def calling(stub: Any, target: Any, function: FunctionType, file: str) -> CodeType:
    """The code of a stub, to be put into a function, that calls a target.

    The target is one of its constants.
    """
    code: CodeType = stub.__code__
    return code.replace(
        co_consts=tuple([target if x == "target" else x for x in code.co_consts]),
        co_name=function.__name__,
        co_qualname=function.__qualname__,
        co_filename=file,
        # A function has as many as it was made with.
        co_freevars=function.__code__.co_freevars,
    )


def as_installed(kernel: Any, function: Any) -> FunctionType:
    """A function that calls a kernel as `install` has it called."""
    code = calling(stub_of_one, kernel, function, FILE)
    return FunctionType(code, {}, function.__name__, None, function.__closure__)


def _copy(function: Any) -> Any:
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def exclude() -> None:
    """Have JAX and Equinox leave what is ours out of the stacks that they show."""
    trace = sys.modules.get("jax._src.traceback_util")
    register, paths = (
        getattr(trace, name, None) for name in ("register_exclusion", "_exclude_paths")
    )
    if register is not None and "<treepress" not in (paths or ()):
        register("<treepress")
