"""`python -m treepress bench`: what each part costs for classes that the user names."""

import dataclasses
import json
import os
import sys
import typing
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from . import _backend, _named
from ._compared import AS_IS, EQUINOX, JAX, OURS, Subject, Table, measure
from ._doctor import versions
from ._named import Unusable
from ._text import aligned, duration
from ._timing import Progress
from .description import is_node


def report(given: Sequence[str], as_json: bool, quick: bool) -> int:
    """Measure and print."""
    subjects = [_subject(text) for text in given] if given else _examples()
    progress = Progress(len(subjects))
    tables = []
    if not as_json:
        _print(_head())
    for subject in subjects:
        tables.append(measure(subject, quick, progress))
        progress.clear()
        if not as_json:
            _print("\n" + _text(tables[-1]))
    if as_json:
        whole = {**_versions(), "classes": [_as_data(table) for table in tables]}
        print(json.dumps(whole, indent=2))
    return 0


# What is to be measured.


def _examples() -> list[Subject]:
    class Example(eqx.Module):
        x: jax.Array
        y: jax.Array
        z: jax.Array
        unit: str = eqx.field(static=True)

        def norm(self) -> Any:
            return jnp.sqrt(self.x**2 + self.y**2 + self.z**2)

    one = jnp.ones(())
    key = jax.random.key(0)
    linear = eqx.nn.Linear(2, 3, key=key)
    mlp = eqx.nn.MLP(2, 3, 8, 2, key=key)
    return [
        Subject(
            "Example", Example, Example(one, one, one, "m"), "3 arrays, 1 static field"
        ),
        Subject("equinox.nn:Linear", eqx.nn.Linear, linear, "Linear(2, 3)"),
        Subject("equinox.nn:MLP", eqx.nn.MLP, mlp, "MLP(2, 3, 8, 2)"),
    ]


def _subject(text: str) -> Subject:
    """What `MODULE:CLASS` or `MODULE:CLASS=MODULE:FACTORY` stands for."""
    name, named, by = text.partition("=")
    found = _named.find(name)
    cls = typing.get_origin(found) or found
    if not isinstance(cls, type):
        raise Unusable(
            f"{name} is no class, but of type {type(found).__name__}; to measure an "
            f"instance, write MODULE:CLASS={name}"
        )
    factory = None
    if named:
        made = by
        instance = _named.find(by)
        if not isinstance(instance, cls):
            if not callable(instance):
                raise Unusable(
                    f"{by} is of type {type(instance).__name__}: neither a "
                    f"{cls.__qualname__} nor a function that makes one"
                )
            factory = instance
            made = f"{by}()"
            instance = _named.call(by, factory)
        if not isinstance(instance, cls):
            raise Unusable(
                f"{made} is of type {type(instance).__name__}, no {cls.__qualname__}"
            )
        _check_node(name, type(instance))
    else:
        _check_node(name, cls)
        instance = _named.instance_of(name, cls)
        made = "made from its annotations"
    return Subject(name, cls, instance, made, factory)


def _check_node(name: str, cls: type) -> None:
    if not is_node(cls):
        hint = ""
        if dataclasses.is_dataclass(cls):
            hint = "; treepress.register_dataclass makes it one"
        raise Unusable(f"{name} is no pytree node{hint}")


# What is printed.


def _versions() -> dict[str, Any]:
    return {
        **versions(),
        "backend": _backend.backend,
        "device": jax.default_backend(),
        "cores": os.cpu_count(),
    }


def _head() -> str:
    found = _versions()
    why = f" ({_backend.why_python})" if _backend.why_python else ""
    return (
        f"treepress {found['treepress']}, {found['backend']} backend{why}; "
        f"equinox {found['equinox']}; jax {found['jax']} on {found['device']}; "
        f"Python {found['python']}; {found['platform']}, {found['cores']} cores\n"
        f"Each figure is the least of many, all taken in turns, and of one instance: JAX's own "
        f"part of a call is\nno longer for a large tree, so there a class gains more. The "
        f"jitted function returns what it is given;\nmethods are bound, not called."
    )


def _text(table: Table) -> str:
    columns = list(table.meanings)
    ratios = [name for name in (EQUINOX, JAX, AS_IS) if name in columns and OURS in columns]
    lines = [
        f"{table.subject.name}, {table.subject.made}: {_count(table.nodes, 'node')}, "
        f"{_count(table.leaves, 'leaf', 'leaves')}"
    ]
    lines += [f"  {name:<10} {meaning}" for name, meaning in table.meanings.items()]
    lines += [f"  note: {note}" for note in table.notes]
    heads = ["", *columns, *[f"{name}/{OURS}" for name in ratios]]
    rows = []
    for name, times in table.seconds.items():
        row = [name, *[_time(times.get(column)) for column in columns]]
        row += [_ratio(times.get(column), times.get(OURS)) for column in ratios]
        rows.append(row)
    lines += aligned(heads, rows)
    return "\n".join(lines)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _ratio(theirs: float | None, ours: float | None) -> str:
    if theirs is None or ours is None or ours <= 0:
        return "-"
    return f"{theirs / ours:.1f}x"


def _as_data(table: Table) -> dict[str, Any]:
    return {
        "class": table.subject.name,
        "instance": table.subject.made,
        "nodes": table.nodes,
        "leaves": table.leaves,
        "columns": table.meanings,
        "seconds": table.seconds,
        "notes": table.notes,
    }


def _print(text: str) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("µ", "u").encode(encoding, "replace").decode(encoding)
    print(text, flush=True)
