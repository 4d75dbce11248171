"""One class measured as Equinox has it and as treepress has it, by turns.

Beside it stands an equal dataclass that JAX registers.
"""

import dataclasses
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu

from . import _named, _timing, _twins, inplace
from ._timing import Column, Progress, Row
from .description import Description, describe
from .module import FlatMixin
from .records import register_dataclass

EQUINOX: Final = "Equinox"
JAX: Final = "JAX"
OURS: Final = "treepress"
AS_IS: Final = "as it is"


class Subject(NamedTuple):
    """A class to be measured, and an instance of it."""

    name: str
    cls: type
    instance: Any
    # How the instance was made, in words; and what made it, if that can be called again.
    made: str
    factory: Any = None


@dataclasses.dataclass
class Table:
    """What was measured of one class: seconds by row and column."""

    subject: Subject
    nodes: int
    leaves: int
    meanings: dict[str, str]
    seconds: dict[str, dict[str, float]]
    # What is not as one might expect, a sentence each.
    notes: list[str]


def measure(subject: Subject, quick: bool, progress: Progress | None = None) -> Table:
    """The figures of one class. All classes are afterwards as they were before."""
    instance = subject.instance
    inside = _twins.classes_in(instance)
    notes: list[str] = []
    if isinstance(instance, eqx.Module):
        with _Switch([cls for cls in inside if issubclass(cls, eqx.Module)]) as switch:
            columns = list(_module_columns(subject, switch, notes))
            seconds = _timing.measure(columns, quick, progress)
    else:
        columns = list(_other_columns(subject, notes))
        seconds = _timing.measure(columns, quick, progress)
    meanings = {column.name: column.meaning for column in columns}
    leaves = len(jax.tree.leaves(instance))
    return Table(subject, sum(inside.values()), leaves, meanings, seconds, notes)


class _Switch:
    """Has Module classes be as Equinox has them, or as treepress has them.

    Those that are not accelerated are accelerated for the while; in the end all are what
    they were.
    """

    def __init__(self, classes: Sequence[type]) -> None:
        self.classes = classes
        self._resume: Callable[[], None] | None = None

    def __enter__(self) -> "_Switch":
        self.before = {cls: describe(cls).how for cls in self.classes}
        self.added = [
            cls
            for cls in self.classes
            if not describe(cls).accelerated and FlatMixin not in cls.__mro__
        ]
        with warnings.catch_warnings():
            # Of a class that cannot be accelerated; a note says so.
            warnings.simplefilter("ignore")
            if self.added:
                inplace.accelerate(*self.added)
        self.about = {cls: describe(cls) for cls in self.classes}
        return self

    def __exit__(self, *_: object) -> None:
        self.ours()
        # Those that cannot be accelerated are as they were.
        added = [cls for cls in self.added if self.about[cls].accelerated]
        if added:
            inplace.deaccelerate(*added)

    def ours(self) -> None:
        if self._resume is not None:
            self._resume()
            self._resume = None
        for cls, about in self.about.items():
            now = describe(cls)
            _check((now.accelerated, now.hot) == (about.accelerated, about.hot), now)

    def equinox(self) -> None:
        if self._resume is None:
            self._resume = inplace.suspend()
        for cls in self.classes:
            now = describe(cls)
            # Of a class with the mixin a twin is flattened.
            mixed = FlatMixin in cls.__mro__
            plain = (mixed or not now.accelerated) and not now.hot and not now.constructed
            _check(plain, now)


def _check(as_said: bool, about: Description) -> None:
    """Nothing else may be measured than what the column says."""
    if not as_said:
        raise RuntimeError(f"this is not what was to be measured: {about}")


def _module_columns(
    subject: Subject, switch: _Switch, notes: list[str]
) -> Iterator[Column]:
    instance = subject.instance
    cls = type(instance)
    mixed = [c for c in switch.classes if FlatMixin in c.__mro__]
    # Before the switch, which then takes them back too, should `install` be in force.
    twins = {c: _twins.of_equinox(c) for c in mixed}
    switch.equinox()
    assert not any(describe(twin).accelerated for twin in twins.values())
    methods = _methods(cls)
    meaning = "the class as Equinox has it"
    if mixed:
        meaning += "; flattened, one of the same fields without FlatMixin"
    rows = _tree_rows(_twins.rebuilt(instance, twins), notes, EQUINOX)
    rows |= _object_rows(subject, instance, methods)
    yield Column(EQUINOX, meaning, rows, switch.equinox)
    try:
        plain = {c: _twins.of_jax(c, methods if c is cls else {}) for c in switch.classes}
        twin = _twins.rebuilt(instance, plain)
        rows = _tree_rows(twin, notes, JAX)
    except Exception as error:
        notes.append(f"JAX: no equal dataclass can be made, {_said(error)}")
    else:
        rows |= _object_rows(subject._replace(cls=type(twin), factory=None), twin, methods)
        meaning = "an equal frozen dataclass, by jax.tree_util.register_dataclass"
        yield Column(JAX, meaning, rows, switch.equinox)
    switch.ours()
    about = switch.about[cls]
    for c, one in switch.about.items():
        if not one.accelerated:
            notes.append(f"{c.__qualname__} is not accelerated: {one.reason}")
    if not any(one.accelerated for one in switch.about.values()) and not about.hot:
        return
    if about.accelerated and not about.hot:
        notes.append(f"attributes and methods as without treepress: {about.why_not_hot}")
    if about.accelerated and not about.constructed:
        notes.append(f"construction as without treepress: {about.why_not_constructed}")
    how = switch.before[cls]
    if how:
        meaning = f"the class as it is, accelerated by {how}"
    elif cls in switch.added:
        meaning = "the class once treepress.accelerate is called for it"
        if len(switch.added) > 1:
            others = [c.__qualname__ for c in switch.added if c is not cls]
            meaning += f" and {', '.join(others)}"
    else:
        meaning = "the class as it is"
    rows = _tree_rows(instance, notes, OURS) | _object_rows(subject, instance, methods)
    yield Column(OURS, meaning, rows, switch.ours)


def _other_columns(subject: Subject, notes: list[str]) -> Iterator[Column]:
    """Of a node that is no Module: itself, and if it is a dataclass, what it could be."""
    instance = subject.instance
    cls = type(instance)
    found = _twins.fields_of(instance)
    registered = describe(cls).registered_by == "treepress.register_dataclass"
    own = AS_IS
    if found is not None:
        own = OURS if registered else JAX if _twins.is_jax_dataclass(cls) else AS_IS
    columns = {own: Column(own, "the class as it is", {}, _nothing)}
    trees = {own: instance}
    registers: dict[str, Any] = {JAX: jtu.register_dataclass, OURS: register_dataclass}
    for name, register in registers.items():
        if found is None or name == own:
            continue
        data, meta, dropped = found
        try:
            # A subclass: JAX lets no class be registered twice.
            twin: Any = types.new_class(
                cls.__name__, (cls,), {}, lambda space: space.update(__slots__=())
            )
            register(twin, data, meta, dropped)
            trees[name] = _twins.rebuilt(instance, {cls: twin})
            rows = _tree_rows(trees[name], notes, name)
        except Exception as error:
            notes.append(f"{name}: no equal class can be made, {_said(error)}")
        else:
            what = f"{register.__module__.partition('.')[0]}'s register_dataclass"
            columns[name] = Column(
                name, f"a subclass, registered by {what}", rows, _nothing
            )
    columns[own].rows.update(_tree_rows(instance, notes, own))
    for name in (AS_IS, JAX, OURS):
        if name in columns:
            yield columns[name]


def _nothing() -> None:
    """Nothing has to be changed for this column."""


# The rows.


def _tree_rows(tree: Any, notes: list[str], column: str) -> dict[str, Row]:
    leaves, treedef = jax.tree.flatten(tree)
    rows = {
        "flatten": _row(jax.tree.flatten, tree),
        "unflatten": _row(jax.tree.unflatten, treedef, leaves),
        "flatten with path": _row(jtu.tree_flatten_with_path, tree),
        "tree map": _row(jax.tree.map, _same, tree),
    }
    try:
        arrays = jax.tree.map(lambda leaf: leaf if _is_data(leaf) else None, tree)
        if jax.tree.leaves(arrays):
            jitted = jax.jit(_same)
            jitted(arrays)
            rows["jitted, in and out"] = _row(jitted, arrays)
    except Exception as error:
        notes.append(f"{column}: no jitted call, {_said(error)}")
    return rows


def _same(tree: Any) -> Any:
    return tree


def _is_data(leaf: Any) -> bool:
    return eqx.is_array_like(leaf)


def _row(function: Any, *arguments: Any) -> Row:
    names = {f"a{i}": argument for i, argument in enumerate(arguments)}
    return Row(f"function({', '.join(names)})", {"function": function, **names})


def _object_rows(
    subject: Subject, instance: Any, methods: dict[str, FunctionType]
) -> dict[str, Row]:
    """What an instance does that is no tree: attributes, methods, construction."""
    rows = {}
    cls: Any = type(instance)
    fields = dataclasses.fields(cls)
    if fields:
        rows[f"attribute .{fields[0].name}"] = Row(f"a.{fields[0].name}", {"a": instance})
    for name in methods:
        rows[f"method .{name}"] = Row(f"a.{name}", {"a": instance})
    own: Any = type(subject.instance)
    if _named.takes_fields(own) and _named.takes_fields(cls):
        values = {f.name: getattr(instance, f.name) for f in fields if f.init}
        try:
            cls(**values)
        except Exception:
            return rows
        given = ", ".join(f"{name}=given_{name}" for name in values)
        names = {f"given_{name}": value for name, value in values.items()}
        rows["construct"] = Row(f"cls({given})", {"cls": cls, **names})
    elif subject.factory is not None:
        rows[f"call {subject.made}"] = _row(subject.factory)
    return rows


def _methods(cls: type) -> dict[str, FunctionType]:
    """The first method of a class, for its name."""
    for base in cls.__mro__:
        if base is eqx.Module:
            break
        for name, value in vars(base).items():
            public = not name.startswith("_") or name == "__call__"
            if public and isinstance(value, FunctionType):
                return {name: value}
    return {}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
