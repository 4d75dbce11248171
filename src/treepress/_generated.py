"""The `__init__` that `dataclasses` generates, told from all others."""

import dataclasses
import functools
import operator
from types import FunctionType
from typing import Any, Final


def sets_fields(cls: Any) -> bool:
    """Whether `__init__` is what `dataclasses` makes to set the fields, and nothing else."""
    init: Any = vars(cls).get("__init__")
    everything = cls.__dataclass_fields__.values()
    fields = dataclasses.fields(cls)
    return (
        type(init) is FunctionType
        and not hasattr(init, "__wrapped__")
        and not hasattr(cls, "__post_init__")
        and not any(getattr(f, "_field_type", None) is _INITVAR for f in everything)
        and all(f.init and is_missing(f.default_factory) for f in fields)
        and not any(_is_data_descriptor(cls, f.name) for f in fields)
        and _code(init) == _code(_reference(tuple([_form(f) for f in fields])))
        and _same_defaults(init, fields)
    )


def is_missing(value: object) -> bool:
    return value is dataclasses.MISSING


def _form(field: "dataclasses.Field[Any]") -> tuple[str, bool, bool]:
    return field.name, is_missing(field.default), bool(field.kw_only)


@functools.lru_cache(maxsize=1024)
def _reference(forms: tuple[tuple[str, bool, bool], ...]) -> Any:
    """The `__init__` that `dataclasses` makes for fields of these forms."""
    fields = [
        (name, Any, dataclasses.field(kw_only=kw_only))
        if required
        else (name, Any, dataclasses.field(default=None, kw_only=kw_only))
        for name, required, kw_only in forms
    ]
    made = dataclasses.make_dataclass("Reference", fields, repr=False, eq=False)
    return vars(made)["__init__"]


def _code(function: Any) -> tuple[Any, ...]:
    code = function.__code__
    names = (code.co_names, code.co_varnames, code.co_consts, code.co_freevars)
    return (code.co_code, code.co_argcount, code.co_kwonlyargcount, *names)


def _same_defaults(init: Any, fields: tuple["dataclasses.Field[Any]", ...]) -> bool:
    given = [f for f in fields if not is_missing(f.default)]
    plain = [f.default for f in given if not f.kw_only]
    named = {f.name: f.default for f in given if f.kw_only}
    defaults = init.__defaults__ or ()
    keyed = init.__kwdefaults__ or {}
    return (
        len(plain) == len(defaults)
        and all(map(operator.is_, plain, defaults))
        and keyed.keys() == named.keys()
        and all(keyed[name] is named[name] for name in named)
    )


_INITVAR: Final = getattr(dataclasses, "_FIELD_INITVAR", None)


def _is_data_descriptor(cls: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in vars(base):
            kind = type(vars(base)[name])
            return hasattr(kind, "__set__") or hasattr(kind, "__delete__")
    return False
