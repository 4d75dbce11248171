"""Objects that a command line names, as `MODULE:NAME`, and instances of classes."""

import dataclasses
import importlib
import inspect
import types
import typing
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np


class Unusable(Exception):
    """What the user of a command can change; its text is one line."""


def find(text: str) -> Any:
    """The object that `MODULE:NAME` stands for; the name may have dots in it."""
    name, colon, attributes = text.partition(":")
    if not (name and colon and attributes):
        raise Unusable(
            f"{text!r} names nothing; write MODULE:NAME, as in equinox.nn:Linear"
        )
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Unusable(_failed(f"import {name}", error)) from error
        raise Unusable(f"there is no module {name}, here or installed") from error
    except (Exception, SystemExit) as error:
        raise Unusable(_failed(f"import {name}", error)) from error
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise Unusable(f"there is no {attributes} in {name}") from None
        except Exception as error:
            raise Unusable(_failed(f"{attributes} of {name}", error)) from error
    return found


def call(text: str, function: Any) -> Any:
    """Call without arguments what `text` named."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise Unusable(_failed(f"{text}()", error)) from error


def _failed(what: str, error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{what} failed with {type(error).__name__}{f': {said}' if said else ''}"


def instance_of(name: str, cls: Any) -> Any:
    """An instance of a class, made of values that the annotations of its fields tell."""
    hint = f"name what makes one: {name}=MODULE:FACTORY"
    if not takes_fields(cls):
        raise Unusable(f"no instance of {name} can be made from its fields; {hint}")
    try:
        annotations = typing.get_type_hints(cls)
    except Exception:
        annotations = {}
    values = {}
    for field in dataclasses.fields(cls):
        default = (field.default, field.default_factory)
        if not field.init or default != (dataclasses.MISSING, dataclasses.MISSING):
            continue
        annotation = annotations.get(field.name, field.type)
        value = _value(annotation, field.metadata.get("static", False))
        if value is _UNKNOWN:
            said = getattr(annotation, "__qualname__", None) or str(annotation)
            raise Unusable(
                f"no value for the field {field.name} of {name} is known, a {said}; {hint}"
            )
        values[field.name] = value
    try:
        return cls(**values)
    except Exception as error:
        raise Unusable(f"{_failed(f'{name} of simple values', error)}; {hint}") from error


_UNKNOWN: Final = object()
_SIMPLE: Final[dict[Any, Any]] = {
    **{bool: True, int: 1, float: 1.0, complex: 1j, str: "m", bytes: b"m"},
    **{type(None): None, tuple: (), list: [], dict: {}},
}


def _value(annotation: Any, static: bool) -> Any:
    """A value for a field, `_UNKNOWN` if its annotation is not simple."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        values = [_value(one, static) for one in typing.get_args(annotation)]
        known = [value for value in values if value is not _UNKNOWN]
        return known[0] if known else _UNKNOWN
    if origin is typing.Annotated:
        return _value(typing.get_args(annotation)[0], static)
    # jaxtyping's `Float[Array, "n"]` says so.
    annotation = getattr(annotation, "array_type", annotation)
    if annotation in (typing.Any, object):
        return "m" if static else jnp.ones(())
    if annotation in (jax.Array, jax.typing.ArrayLike):
        return jnp.ones(())
    if annotation is np.ndarray or origin is np.ndarray:
        return np.ones(())
    try:
        return _SIMPLE.get(annotation, _UNKNOWN)
    except TypeError:  # what cannot be hashed
        return _UNKNOWN


def takes_fields(cls: Any) -> bool:
    """Whether `cls(name=value, ...)` makes an instance of its fields."""
    if not dataclasses.is_dataclass(cls):
        return False
    try:
        _, *parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    except (TypeError, ValueError, NameError):
        return False
    return set(parameters) == {f.name for f in dataclasses.fields(cls) if f.init}
