"""What stands for the functions of hot classes: descriptors that bind them as Equinox does.

Equinox lets Python bind a function, and makes of that a `BoundMethod`, which is a pytree.
These give the `BoundMethod` at once.
"""

import functools
import operator
from types import FunctionType, MethodType
from typing import Any, Final

import jax

try:
    from equinox._module import _prebuilt
except ImportError:
    _prebuilt = None  # type: ignore[assignment]

from . import _backend, module
from ._equinox import Known

BoundMethod: Any = getattr(_prebuilt, "BoundMethod", None)

Binder: Any = _backend.method_kernels.Binder


class StandIn:
    """What is put into the `__dict__` of a class in the place of `__wrapped__`.

    `owners` are the classes for whose instances it binds as Equinox does. For all others it
    does what `__wrapped__` does: for `super()`, which looks further up, and for subclasses
    that read their attributes in Equinox's way.
    """

    __slots__ = ()

    __wrapped__: Any
    owners: set[type]
    # The class that it was made for.
    home: type | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Tools ask by isinstance what it is, and read the code of a function then.
        try:
            return type(object.__getattribute__(self, "__wrapped__"))
        except AttributeError:
            return type(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__wrapped__"), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self) -> Any:
        # A class that is pickled by value is one with plain functions, and can be read
        # where there is no treepress.
        return operator.getitem, ((self.__wrapped__,), 0)


class Method(StandIn, Binder):  # type: ignore[misc]
    """Stands for a plain function, or one that `jax.jit` made of it."""

    def __init__(self, function: Any) -> None:
        assert isinstance(module.known, Known)
        super().__init__(function, BoundMethod, module.known.wrappers)
        # For doctest, pydoc and others that look into the `__dict__` of the class.
        functools.update_wrapper(self, function)


class Other(StandIn):
    """Stands for any other descriptor that may give a method."""

    def __init__(self, descriptor: Any) -> None:
        self.__wrapped__ = descriptor
        self.owners = set()
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(descriptor, name):
                setattr(self, name, getattr(descriptor, name))

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        descriptor = self.__wrapped__
        out = type(descriptor).__get__(descriptor, obj, owner)
        return _as_pytree(out, obj) if type(obj) in self.owners else out


class Inherited(StandIn):
    """Stands in a hot class for what it inherits from one that is not hot.

    That class is not touched: it may be anybody's, and no Module.
    """

    def __init__(self, cls: type, name: str) -> None:
        self.cls = cls
        self.name = name
        self.owners = set()

    @property
    def __wrapped__(self) -> Any:
        return getattr(super(self.cls, self.cls), self.name)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__doc__

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        try:
            if obj is None:
                return getattr(super(self.cls, owner), self.name)
            out = getattr(super(self.cls, obj), self.name)
            return _as_pytree(out, obj) if type(obj) in self.owners else out
        except AttributeError as error:
            if error.name != self.name or type(error.obj) is not super:
                raise
            cls = type(obj) if owner is None else owner
            what = f"{cls.__name__!r} object"
            if obj is None:
                what = f"type object {cls.__name__!r}"
            raise AttributeError(
                f"{what} has no attribute {self.name!r}",
                name=self.name,
                obj=cls if obj is None else obj,
            ) from None


OURS: Final = (Method, Other, Inherited)


def _as_pytree(out: Any, obj: Any) -> Any:
    """What Equinox's `__getattribute__` makes of an attribute that was found."""
    if isinstance(out, MethodType) and out.__self__ is obj:
        function: Any = object.__getattribute__(out, "__func__")
        if type(function) is FunctionType:
            method = Method(function)
            method.owners.add(type(obj))
            return method.__get__(obj, type(obj))
        return BoundMethod(function, obj)
    return out


def is_magic(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"


_INERT: Final = (staticmethod, classmethod, property, type, *OURS)


def may_bind(name: str, value: Any) -> bool:
    """Whether an attribute of a class may come out of an instance as a method."""
    if is_magic(name) or isinstance(value, _INERT):
        return False
    cls = type(value)
    if cls is FunctionType:
        return True
    get = getattr(cls, "__get__", None)
    if get is None or hasattr(cls, "__set__") or hasattr(cls, "__delete__"):
        return False
    # Those of Equinox's transformations give a Partial.
    return not str(getattr(get, "__module__", "")).startswith(("equinox.", "treepress."))


_PJIT: Final = type(jax.jit(lambda: None))


def standing_for(value: Any) -> Any:
    if type(value) is FunctionType:
        return Method(value)
    inner = value
    while type(inner) is _PJIT:
        inner = getattr(inner, "__wrapped__", None)
    wrappers = module.known.wrappers if isinstance(module.known, Known) else ()
    if type(inner) is FunctionType and all(hasattr(value, name) for name in wrappers):
        return Method(value)
    return Other(value)
