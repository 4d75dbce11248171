"""Construction of Modules by kernels: what Equinox does for each instance, worked out once.

Equinox's metaclass looks through the arguments of each call, keeps a set of the instances
that are being initialised, and afterwards reads each field and its metadata. For a class that
is to be constructed fast, a kernel does that of it which matters to this class. All warnings
and errors stay Equinox's own: what may lead to one is left to it.
"""

import abc
import contextlib
import dataclasses
import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import Any, Final, Generic, Protocol

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from . import _generated, _node, module
from ._backend import construct_kernels as kernels
from ._generated import is_missing

try:
    from equinox._filters import is_array, is_array_like, is_inexact_array_like
    from equinox._module import _module as theirs
    from equinox._module._better_abstract import BetterABCMeta
    from equinox._module._prebuilt import BoundMethod

    _names: Any = (
        theirs._has_dataclass_init,
        theirs._currently_initialising._dict,
        theirs._transform_types,
        theirs._MSG_FIELD_INIT_FALSE,
        theirs.is_abstract_module,
    )
    _fault = ""
except (ImportError, AttributeError) as error:
    _fault = f"Equinox has no longer what the kernels stand in for ({error})"

_META: Final[Any] = type(eqx.Module)
CALL: Final[Any] = vars(_META).get("__call__")
SETATTR: Final[Any] = vars(eqx.Module).get("__setattr__")
_NEW: Final[Any] = vars(eqx.Module).get("__new__")

# All that these functions of Equinox's speak of. Should it be anything else, they do what the
# kernels know nothing of.
_SPOKEN_OF: Final = {
    "__call__": """AttributeError KeyError TypeError _MSG_FIELD_INIT_FALSE __call__ __dict__
        __mro__ __setattr__ _abstract_module_registry _currently_initialising
        _has_dataclass_init _warn_jax_transformed_function any dataclasses fields get getattr
        init is_abstract_module is_array is_inexact_array_like jtu metadata name object
        remove super tree_leaves tree_map warn warnings""",
    "__setattr__": """FrozenInstanceError WRAPPER_FIELD_NAMES __setattr__
        _currently_initialising _error_method_assignment _module_info
        _warn_jax_transformed_function dataclasses names_set object type""",
    "__new__": "__new__ _currently_initialising add super",
    "abstract __call__": """TypeError __abstractclassvars__ __abstractvars__ __call__
        __name__ len set super""",
}

# Where the code says it is from that stands in for these: see `unseen`.
_FILE: Final = "<treepress, for warnings as if importlib._bootstrap>"

_ABSENT: Final = object()

Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]

# By class, what constructs it. Not weak: the look-up is a good part of the whole, and JAX
# keeps the classes for good.
_plans: Final[dict[type, Plan]] = {}
# By class, what tells whether bases have changed that we do not hear of.
_guards: Final[dict[type, Callable[[], bool]]] = {}
# By class, the names that its `__init__` may set.
_settable: Final[dict[Any, frozenset[Any]]] = {}
# For each class why a kernel cannot construct it, as far as that is known.
_reasons: Final[dict[type, str]] = {}


def choose(cls: type, fast: bool) -> None:
    """Have a class be constructed by a kernel, or by Equinox."""
    with _node.lock:
        if fast and not why_never():
            if cls not in _plans:
                _settable[cls] = frozenset(
                    [_node.interned(f.name) for f in dataclasses.fields(cls)]
                ) | frozenset(_wrappers())
                _plans[cls] = _PENDING
                _hook()
        elif cls in _plans:
            del _plans[cls], _settable[cls]
            _reasons.pop(cls, None)
            _guards.pop(cls, None)
            if not _plans:
                _unhook()


def forget(cls: type) -> None:
    """An attribute of a class is another one: look at it, and at those below it, anew."""
    if not _plans:
        return
    with _node.lock:
        for one in _node.with_subclasses([cls]):
            if one in _plans:
                _plans[one] = _PENDING
                _reasons.pop(one, None)


def why_not(cls: type) -> str:
    """Why a class is not constructed by a kernel; empty if it is."""
    plan = _plans.get(cls)
    if plan is None:
        return why_never() or "it is left to Equinox"
    if plan is _PENDING:
        _ready(cls)
    return _reasons.get(cls, "")


@functools.cache
def why_never() -> str:
    """Why no class can be constructed by a kernel, with this Equinox."""
    reason = _fault or (module.known if isinstance(module.known, str) else "")
    if getattr(getattr(CALL, "__code__", None), "co_filename", "") == _FILE:
        return "another copy of treepress constructs Modules"
    if not reason:
        functions = {
            "__call__": CALL,
            "__setattr__": SETATTR,
            "__new__": _NEW,
            "abstract __call__": vars(BetterABCMeta).get("__call__"),
        }
        for name, function in functions.items():
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if code is None or {*code.co_names} != {*_SPOKEN_OF[name].split()}:
                reason = f"Equinox's {name} of Modules is not the one that treepress knows"
    if not reason and not _static_message():
        reason = "Equinox warns of static arrays in another way than it used to"
    if reason:
        warnings.warn(
            f"treepress: {reason}. Modules are constructed as fast as without treepress.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason


def _wrappers() -> tuple[str, ...]:
    assert not isinstance(module.known, str)
    return module.known.wrappers


@functools.cache
def _static_message() -> str:
    """What Equinox says of arrays in static fields."""
    for constant in CALL.__code__.co_consts:
        if isinstance(constant, str) and "being set as static" in constant:
            return constant
    return ""


def _ready(cls: type) -> Plan:
    """Work out what constructs a class, for as long as nothing changes."""
    with _node.lock:
        plan = _plan(cls)
        foreign = [
            base
            for base in cls.__mro__
            if eqx.Module not in base.__mro__ and base not in _UNCHANGING
        ]
        if cls in _plans:
            _plans[cls] = plan
            _guards.pop(cls, None)
            if foreign:
                seen = _looks(cls, foreign)
                _guards[cls] = lambda: _looks(cls, foreign) != seen
    return plan


def _looks(cls: Any, bases: list[type]) -> list[Any]:
    found = [cls.__init__]
    for base in bases:
        space = vars(base)
        found += [space.get(name) for name in _LOOKED_AT]
    return found


_LOOKED_AT: Final = ("__new__", "__check_init__", "__setattr__", "__post_init__")
_UNCHANGING: Final = frozenset(
    [object, module.FlatMixin, Generic, Hashable, Protocol, abc.ABC]
)


def _never(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kernels.NOT_DONE


# Stands where it is still to be worked out what constructs a class.
_PENDING: Final[Plan] = functools.partial(_never)


def _plan(cls: Any) -> Plan:
    """What constructs a class."""
    reason = unfit(cls)
    if reason:
        _reasons[cls] = reason
        return _never
    _reasons.pop(cls, None)
    fields = dataclasses.fields(cls)
    checks = tuple(
        vars(base)["__check_init__"]
        for base in cls.__mro__
        if "__check_init__" in vars(base)
    )
    blanks = itertools.starmap(object.__new__, itertools.repeat((cls,)))
    if sets_its_fields(cls):
        return kernels.Construct(  # type: ignore[no-any-return]
            _rules,
            blanks,
            tuple([_node.interned(f.name) for f in fields]),
            tuple([_ABSENT if is_missing(f.default) else f.default for f in fields]),
            _ABSENT,
            tuple([i for i, f in enumerate(fields) if not f.kw_only]),
            tuple(
                [
                    (i, _node.interned(f.name), f.metadata.get("converter"), _is_static(f))
                    for i, f in enumerate(fields)
                    if f.metadata.get("converter") is not None or _is_static(f)
                ]
            ),
            checks,
        )
    return kernels.ConstructOwn(  # type: ignore[no-any-return]
        _rules,
        blanks,
        cls.__init__,
        bool(theirs._has_dataclass_init[cls]),
        tuple(
            [
                (
                    _node.interned(f.name),
                    f.metadata.get("converter"),
                    _is_static(f),
                    bool(f.init),
                )
                for f in fields
            ]
        ),
        checks,
    )


def unfit(cls: Any) -> str:
    """Why a class is better constructed by Equinox."""
    if theirs.is_abstract_module(cls):
        return "it is abstract"
    if vars(eqx.Module).get("__new__") is not _NEW:
        return "equinox.Module has another __new__ than it had"
    # Below Module or above it: Module's own calls the next.
    if any("__new__" in vars(b) for b in cls.__mro__ if b not in (eqx.Module, object)):
        return "it has a __new__ of its own"
    if cls not in theirs._has_dataclass_init:
        return "Equinox does not know how it is initialised"
    if not isinstance(cls.__init__, FunctionType):
        return "its __init__ is no plain function"
    return ""


def _is_static(field: "dataclasses.Field[Any]") -> bool:
    return bool(field.metadata.get("static", False))


def sets_its_fields(cls: Any) -> bool:
    """Whether a kernel can take the place of `__init__`."""
    return (
        bool(theirs._has_dataclass_init[cls])
        and vars(eqx.Module).get("__setattr__") in (SETATTR, _our_setattr)
        and not any(
            type(f.default) in theirs._transform_types for f in dataclasses.fields(cls)
        )
        and not any(
            "__setattr__" in vars(base)
            for base in cls.__mro__
            if base not in (eqx.Module, object)
        )
        and _generated.sets_fields(cls)
    )


# Types that are leaves for good, no arrays, and no functions.
_PLAIN: Final = frozenset([bool, int, float, complex, str, bytes, type, type(None)])
# And those that may be arrays.
_leaves: Final[set[Any]] = {*_PLAIN, np.ndarray}


def _odd(value: Any) -> bool:
    """Whether Equinox may warn of an argument, or of something in it."""
    if isinstance(value, jax.Array):
        # Of a tracer it depends on what is traced; nor is there an end to these types.
        if not isinstance(value, jax.core.Tracer):
            _leaves.add(type(value))
        return False
    transforms = theirs._transform_types
    return any(
        type(leaf) in transforms and _is_warned_of(leaf) for leaf in jtu.tree_leaves(value)
    )


def _is_warned_of(function: Any) -> bool:
    """Whether a function wraps something with arrays in it."""
    while True:
        try:
            function = function.__wrapped__
        except AttributeError:
            return False
        if any(map(is_array_like, jtu.tree_leaves(function))):
            return True


def _warn_static(value: Any) -> None:
    if any(map(is_array, jtu.tree_leaves(value))):
        _warn(_static_message())


def _warn_uninitialised(value: Any) -> None:
    if any(map(is_inexact_array_like, jtu.tree_leaves(value))):
        _warn(theirs._MSG_FIELD_INIT_FALSE)


def _warn(message: str) -> None:
    """Warn of the code that constructs a Module."""
    # On the Python backend the kernel has frames of its own.
    level = 1
    frame = sys._getframe()
    while frame.f_code is not _our_call.__code__:
        assert frame.f_back is not None
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


@contextlib.contextmanager
def initialising() -> Iterator[Callable[[Any], Any]]:
    """Gives what makes instances whose attributes may be set, as long as this is open."""
    made = []

    def blank(cls: Any) -> Any:
        instance = object.__new__(cls)
        theirs._currently_initialising.add(instance)
        made.append(instance)
        return instance

    try:
        yield blank
    finally:
        for instance in made:
            theirs._currently_initialising.remove(instance)


def _call(cls: Any, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    plan = _plans.get(cls)
    if plan is not None:
        # Here, not in a function that calls the plan: a frame more or less is seen by
        # whoever warns with a `stacklevel`.
        if plan is _PENDING or (cls in _guards and _guards[cls]()):
            plan = _ready(cls)
        made = plan(args, kwargs)
        if made is not kernels.NOT_DONE:
            return made
    return CALL(cls, *args, **kwargs)


def _assign(self: Any, name: str, value: Any) -> None:
    if not _set(self, name, value):
        SETATTR(self, name, value)


def unseen(function: Any, original: Any) -> Any:
    """A function that stands in for another, and that `warnings` takes no notice of.

    Equinox's warnings count stack frames up to the code that they are about. Frames of the
    import machinery are not counted, which are told by their file's name.
    """
    code = function.__code__
    new = FunctionType(
        code.replace(
            co_filename=_FILE,
            co_name=original.__name__,
            co_qualname=original.__qualname__,
        ),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(new, original)
    del new.__wrapped__  # type: ignore[attr-defined]
    return new


if not _fault:
    _rules: Final[Any] = kernels.Rules(
        theirs._currently_initialising._dict,
        _leaves,
        _PLAIN,
        _odd,
        _warn_static,
        _warn_uninitialised,
    )
    _set: Final[Any] = kernels.Assign(
        _settable,
        theirs._currently_initialising._dict,
        BoundMethod,
        frozenset(theirs._transform_types),
        _is_warned_of,
    )
    _our_call: Final = unseen(_call, CALL)
    _our_setattr: Final = unseen(_assign, SETATTR)


def _hook() -> None:
    if vars(_META).get("__call__") is CALL:
        type.__setattr__(_META, "__call__", _our_call)
    if vars(eqx.Module).get("__setattr__") is SETATTR:
        type.__setattr__(eqx.Module, "__setattr__", _our_setattr)


def _unhook() -> None:
    if vars(_META).get("__call__") is _our_call:
        type.__setattr__(_META, "__call__", CALL)
    if vars(eqx.Module).get("__setattr__") is _our_setattr:
        type.__setattr__(eqx.Module, "__setattr__", SETATTR)
