"""Flatten and unflatten functions as Python source, one set per class.

The text is what `treepress.describe(cls).source` shows, on both backends; on the Python
backend it is also what runs. What the functions do is told in `treepress.kernels.node`.
"""

import keyword
import linecache
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple


class Functions(NamedTuple):
    flatten: Callable[[Any], tuple[Any, Any]]
    flatten_with_keys: Callable[[Any], tuple[Any, Any]]
    unflatten: Callable[[Any, Any], Any]


def module_source(
    cls: type, dynamic: tuple[str, ...], static: tuple[str, ...], wrappers: tuple[str, ...]
) -> str:
    """The functions for an Equinox Module, whose state is its `__dict__`.

    Field names appear as strings only, so that any name will do.
    """
    n = len(dynamic) + len(static)
    children = [f"state[{name!a}]" for name in dynamic]
    aux = ["MISSING", *(f"state[{name!a}]" for name in static)]
    odd_children = [f"get({name!a}, MISSING)" for name in dynamic]
    odd_aux = ["wrapped", *(f"get({name!a}, MISSING)" for name in static)]
    return f"""\
{_header(cls, dynamic, static)}
# MISSING             stands for an absent field
# read, getdict       give self.__dict__, `read` None or the like where that is empty
# WRAPPERS            attributes that are no fields, carried in the first slot of aux
WRAPPERS = {wrappers!r}


def flatten(self):
    try:
        state = read(self)  # self.__dict__
        if len(state) == {n} and type(state) is dict:
            return {_tuple(children)}, {_tuple(aux)}
    except (KeyError, TypeError, ImportError):
        pass
    get = getdict(self).get
    wrapped = wrapper_attributes(self)
    return {_tuple(odd_children)}, {_tuple(odd_aux)}


def flatten_with_keys(self):
    try:
        state = read(self)
        if len(state) == {n} and type(state) is dict:
            return {_tuple(_keyed(children))}, {_tuple(aux)}
    except (KeyError, TypeError, ImportError):
        pass
    get = getdict(self).get
    wrapped = wrapper_attributes(self)
    return {_tuple(_keyed(odd_children))}, {_tuple(odd_aux)}


def wrapper_attributes(self):
    state = getdict(self)
    if len(state) == {n}:
        return MISSING
    return tuple([state.get(name, MISSING) for name in WRAPPERS])


def unflatten(aux, children):
{_unpack(dynamic, ("wrapped", *_variables("s", static)))}
    self = new(cls)
{_assign("c", dynamic, "MISSING")}\
    if wrapped is not MISSING:
        getdict(self).update(zip(WRAPPERS, wrapped))
{_assign("s", static, "MISSING")}\
    return self
"""


def record_source(
    cls: type,
    data: tuple[str, ...],
    meta: tuple[str, ...],
    defaults: tuple[tuple[str, Any, bool], ...],
) -> str:
    """The functions for a dataclass that is no Module, whose state is its attributes."""
    fill = "".join(
        f"    set(self, {name!a}, default_{i}{'()' if factory else ''})\n"
        for i, (name, _, factory) in enumerate(defaults)
    )
    children = [_attribute(name) for name in data]
    aux = _tuple([_attribute(name) for name in meta])
    return f"""\
{_header(cls, data, meta)}


def flatten(self):
    return {_tuple(children)}, {aux}


def flatten_with_keys(self):
    return {_tuple(_keyed(children))}, {aux}


def unflatten(aux, children):
{_unpack(data, _variables("s", meta))}
    self = new(cls)
{_assign("c", data)}{_assign("s", meta)}{fill}\
    return self
"""


def compile_functions(
    cls: type, source: str, keys: tuple[object, ...], namespace: Mapping[str, object]
) -> Functions:
    """Run the text, so that tracebacks, debuggers and `inspect.getsource` show it."""
    filename = _comment(f"<treepress {cls.__module__}.{cls.__qualname__} {next(_serial)}>")
    names = dict(
        namespace,
        __name__=cls.__module__,
        cls=cls,
        new=object.__new__,
        set=object.__setattr__,
        **{f"key_{i}": key for i, key in enumerate(keys)},
    )
    exec(compile(source, filename, "exec"), names)
    # An entry without a modification time is one that linecache never drops.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    made = []
    for name in Functions._fields:
        function: Any = names[name]
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        made.append(function)
    return Functions(*made)


_serial = count(1)


def _header(cls: type, dynamic: tuple[str, ...], static: tuple[str, ...]) -> str:
    return f"""\
# {_comment(f"{cls.__module__}.{cls.__qualname__}")}
# children: {_comment(", ".join(dynamic)) or "none"}
# aux: {_comment(", ".join(static)) or "none"}
#
# key_0, key_1, ...   the GetAttrKey of each child
# new, set            object.__new__, object.__setattr__
# cls                 the class
# unfit               makes the error for what does not fit"""


def _comment(text: str) -> str:
    # A name may be any string, and must not end the line that it stands in.
    return text if text.isprintable() else ascii(text)


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _keyed(items: list[str]) -> list[str]:
    return [f"(key_{i}, {item})" for i, item in enumerate(items)]


def _attribute(name: str) -> str:
    # In generated code an identifier is normalised (NFKC) and a private one is not
    # mangled; a name that would change, or is a keyword, is read by `getattr` instead.
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return f"self.{name}" if plain else f"getattr(self, {name!a})"


def _variables(letter: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{letter}{i}" for i in range(len(names)))


def _unpack(dynamic: tuple[str, ...], aux: tuple[str, ...]) -> str:
    return f"""\
    try:
        {_tuple(list(_variables("c", dynamic)))} = children
        {_tuple(list(aux))} = aux
    except ValueError:
        raise unfit(cls, aux, children) from None"""


def _assign(letter: str, names: tuple[str, ...], missing: str = "") -> str:
    lines = []
    for variable, name in zip(_variables(letter, names), names):
        if missing:
            lines.append(f"    if {variable} is not {missing}:")
            lines.append(f"        set(self, {name!a}, {variable})")
        else:
            lines.append(f"    set(self, {name!a}, {variable})")
    return "".join(line + "\n" for line in lines)
