"""Kernels that construct an instance of a Module class, and set its attributes meanwhile.

What Equinox does for each instance that depends on the class alone was found out once, and is
handed in. A kernel that meets anything which may end in a warning or an error of Equinox's
gives `NOT_DONE` back, before anything is done, and Equinox has its way.
"""

from typing import Any, Final

Names = tuple[Any, ...]

# Stands for an instance that was not made.
NOT_DONE: Final[object] = object()


class Rules:
    """What is the same for all classes."""

    def __init__(
        self,
        initialising: dict[int, Any],
        leaves: set[Any],
        plain: frozenset[Any],
        odd: Any,
        warn_static: Any,
        warn_uninitialised: Any,
    ) -> None:
        self.initialising: Final = initialising
        # Types that need no look inside; and those that are no arrays either.
        self.leaves: Final = leaves
        self.plain: Final = plain
        self.odd: Final[Any] = odd
        self.warn_static: Final[Any] = warn_static
        self.warn_uninitialised: Final[Any] = warn_uninitialised

    def any_odd(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether Equinox may warn of an argument. (Defaults it does not look at.)"""
        leaves = self.leaves
        for value in args:
            if type(value) not in leaves and self.odd(value):
                return True
        if kwargs:
            for value in kwargs.values():
                if type(value) not in leaves and self.odd(value):
                    return True
        return False


class Construct:
    """`construct(args, kwargs) -> module`, for a class whose `__init__` sets its fields.

    It takes the place of that `__init__`, which `dataclasses` has generated.
    """

    def __init__(
        self,
        rules: Rules,
        blanks: Any,
        names: Names,
        defaults: tuple[object, ...],
        absent: object,
        order: tuple[int, ...],
        steps: tuple[tuple[int, Any, Any, bool], ...],
        checks: tuple[Any, ...],
    ) -> None:
        self.rules: Final = rules
        self.blanks: Final[Any] = blanks
        self.names: Final = names
        self.count: Final = len(names)
        self.defaults: Final = defaults
        self.absent: Final = absent
        # The places of the fields that can be given without their names.
        self.order: Final = order
        self.straight: Final = len(order) == len(names)
        index: dict[Any, int] = {}
        for name in names:
            index[name] = len(index)
        self.index: Final = index
        # Of a field that has a converter or is static: place, name, converter, static.
        self.steps: Final = steps
        self.checks: Final = checks

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        values = args
        if kwargs or not self.straight or len(args) != self.count:
            bound = self.bind(args, kwargs)
            if bound is None:
                return NOT_DONE
            values = tuple(bound)
        if self.rules.any_odd(args, kwargs):
            return NOT_DONE
        for obj in self.blanks:
            for name, value in zip(self.names, values):
                object.__setattr__(obj, name, value)
            if self.steps:
                self.finish(obj, values)
            for check in self.checks:
                check(obj)
            return obj
        raise AssertionError("blanks never ends")

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The value of each field; None if the arguments do not fit."""
        if len(args) > len(self.order):
            return None
        absent = self.absent
        values = list(self.defaults)
        given = [False] * self.count
        for place, value in zip(self.order, args):
            values[place] = value
            given[place] = True
        for name, value in kwargs.items():
            found = self.index.get(name)
            if found is None:
                return None
            at: int = found
            if given[at]:
                return None
            values[at] = value
        for value in values:
            if value is absent:
                return None
        return values

    def finish(self, obj: object, values: tuple[Any, ...]) -> None:
        for place, name, converter, static in self.steps:
            value = values[place]
            if converter is not None:
                value = converter(value)
                object.__setattr__(obj, name, value)
            if static and type(value) not in self.rules.plain:
                self.rules.warn_static(value)


class ConstructOwn:
    """`construct(args, kwargs) -> module`, for a class with an `__init__` of any kind."""

    def __init__(
        self,
        rules: Rules,
        blanks: Any,
        init: Any,
        generated: bool,
        fields: tuple[tuple[Any, Any, bool, bool], ...],
        checks: tuple[Any, ...],
    ) -> None:
        self.rules: Final = rules
        self.blanks: Final[Any] = blanks
        self.init: Final[Any] = init
        self.generated: Final = generated
        # Name, converter, whether static, whether an argument of `__init__`.
        self.fields: Final = fields
        self.checks: Final = checks

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        if self.generated and self.rules.any_odd(args, kwargs):
            return NOT_DONE
        for obj in self.blanks:
            key = id(obj)
            initialising = self.rules.initialising
            initialising[key] = obj
            try:
                result = self.init(obj, *args, **kwargs)
            finally:
                initialising.pop(key, None)
            if result is not None:
                raise TypeError(
                    f"__init__() should return None, not '{type(result).__name__}'"
                )
            for name, converter, static, init in self.fields:
                self.finish(obj, name, converter, static, init)
            for check in self.checks:
                check(obj)
            return obj
        raise AssertionError("blanks never ends")

    def finish(
        self, obj: object, name: Any, converter: Any, static: bool, init: bool
    ) -> None:
        try:
            given = getattr(obj, name)
        except AttributeError as error:
            failure = TypeError(f"Field {name!r} was not initialized.")
            # Compiled code forgets it in `raise ... from`.
            failure.__cause__ = error
            raise failure  # noqa: B904
        value = given
        if converter is not None:
            value = converter(getattr(obj, name))
            object.__setattr__(obj, name, value)
        if static and type(value) not in self.rules.plain:
            self.rules.warn_static(getattr(obj, name))
        if not init:
            self.rules.warn_uninitialised(given)


class Assign:
    """`assign(module, name, value) -> bool`: whether it was set.

    Else it is not for `__init__` to set it, or it may be something that Equinox warns of.
    """

    def __init__(
        self,
        names: dict[Any, frozenset[Any]],
        initialising: dict[int, Any],
        bound_method: type,
        transforms: frozenset[Any],
        warned_of: Any,
    ) -> None:
        # By class, the attributes that may be set.
        self.names: Final = names
        self.initialising: Final = initialising
        self.bound_method: Final[Any] = bound_method
        self.transforms: Final = transforms
        self.warned_of: Final[Any] = warned_of

    def __call__(self, obj: object, name: Any, value: Any) -> bool:
        names = self.names.get(type(obj))
        if names is None or name not in names or id(obj) not in self.initialising:
            return False
        cls = type(value)
        if cls is self.bound_method:
            return False
        if cls in self.transforms and self.warned_of(value):
            return False
        object.__setattr__(obj, name, value)
        return True
