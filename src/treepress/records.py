"""`register_dataclass`: plain dataclasses as pytree nodes that unflatten fast."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any, TypeVar, overload

import equinox as eqx
import jax.tree_util as jtu

from ._node import interned, record_node, remember

_T = TypeVar("_T", bound=type)


@overload
def register_dataclass(
    cls: _T,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> _T: ...


@overload
def register_dataclass(
    *,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Callable[[_T], _T]: ...


def register_dataclass(
    cls: Any = MISSING,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a pytree node that is flattened and unflattened by our kernels.

    It takes the place of `jax.tree_util.register_dataclass`: the same arguments, the same
    leaves, key paths and treedefs. It differs in this:

    - Unflattening never calls `__init__` or `__post_init__`, as for Equinox's Modules, and
      so runs no converters or checks on what JAX puts in the place of leaves.
    - Hence a field with `init=False` is carried like any other. (JAX leaves it to
      `__post_init__`.)
    - A dropped field gets its default again, or the result of its default factory; without
      either it is left unset. (JAX fails then.)

    Arguments:
        cls: a dataclass of any kind (frozen, with slots, inherited, keyword only, with an
            `__init__` of its own), or any class if both lists of fields are given. Left
            out, a decorator is returned: `@register_dataclass(drop_fields=["cache"])`.
        data_fields: the names of the fields that are children. Left out together with
            `meta_fields`, it is every field that is not dropped and whose metadata do not
            say `static=True`.
        meta_fields: the names of the fields that are static, compared when treedefs are.
        drop_fields: the names of fields that are not carried at all.

    Returns:
        `cls` itself, so that this can be used as a decorator.

    Raises:
        TypeError: if `cls` is no class, is no dataclass and has no fields given, is an
            `equinox.Module`, derives from a class written in C such as `dict` or
            `Exception`, or if one of the lists is given and the other not.
        ValueError: if fields are missing, unknown, named twice, or `cls` is registered
            already.

    Cost: registering takes some 20 µs with compiled kernels, 1 ms without. Unflattening is
    several times faster than JAX's, flattening somewhat slower: see `make bench`.

    Example:
        >>> import dataclasses, jax, treepress
        >>> @treepress.register_dataclass
        ... @dataclasses.dataclass(frozen=True)
        ... class Point:
        ...     x: float
        ...     y: float
        ...     frame: str = dataclasses.field(metadata={"static": True})
        >>> jax.tree.map(lambda x: 10 * x, Point(1.0, 2.0, "local"))
        Point(x=10.0, y=20.0, frame='local')
    """
    if cls is MISSING:
        return partial(
            register_dataclass,
            data_fields=data_fields,
            meta_fields=meta_fields,
            drop_fields=drop_fields,
        )
    if not isinstance(cls, type):
        raise TypeError(f"register_dataclass takes a class, not a {type(cls).__name__}.")
    if issubclass(cls, eqx.Module):
        raise TypeError(
            f"{cls.__qualname__} is an equinox.Module, which Equinox has registered. Put "
            f"treepress.FlatMixin among its bases instead, or give it to "
            f"treepress.accelerate, if it is not your own."
        )
    _check_blank(cls)
    data, meta, dropped = _split(cls, data_fields, meta_fields, drop_fields)
    node = record_node(cls, data, meta, _defaults(cls, dropped))
    assert node.functions is not None
    try:
        jtu.register_pytree_with_keys(
            cls,
            node.functions.flatten_with_keys,
            node.functions.unflatten,
            node.functions.flatten,
        )
    except ValueError as error:
        raise ValueError(
            f"{cls.__qualname__} is registered with JAX already ({error}). That is for good: "
            f"register it once, by one of treepress and JAX."
        ) from None
    remember(cls, node)
    return cls


def _split(
    cls: type,
    data_fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    drop_fields: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of the data, meta and dropped fields, checked."""
    name = cls.__qualname__
    dropped = _names(name, "drop_fields", drop_fields)
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else None
    if data_fields is None or meta_fields is None:
        if data_fields is not None or meta_fields is not None:
            raise TypeError(
                f"{name}: data_fields and meta_fields go together; got {data_fields=} and "
                f"{meta_fields=}. Give both, or neither."
            )
        if fields is None:
            raise TypeError(
                f"{name} is no dataclass. Decorate it with @dataclasses.dataclass first, "
                f"or give both data_fields and meta_fields."
            )
        kept = [f for f in fields if f.name not in dropped]
        data_fields = [f.name for f in kept if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in kept if f.metadata.get("static", False)]
    data = _names(name, "data_fields", data_fields)
    meta = _names(name, "meta_fields", meta_fields)
    named = [*data, *meta, *dropped]
    twice = sorted({field for field in named if named.count(field) > 1})
    if twice:
        raise ValueError(
            f"{name}: {', '.join(twice)} must be in only one of data_fields, meta_fields "
            f"and drop_fields, and there once."
        )
    if fields is not None:
        known = [f.name for f in fields]
        missing = [field for field in known if field not in named]
        unknown = [field for field in named if field not in known]
        if missing:
            raise ValueError(
                f"{name}: data_fields and meta_fields do not name {', '.join(missing)}, "
                f"which would be lost (__init__ and __post_init__, which may set them, "
                f"are not called). Name them, or put them in drop_fields."
            )
        if unknown:
            raise ValueError(
                f"{name} has no field {', '.join(unknown)}. Its fields are "
                f"{', '.join(known) or 'none'}."
            )
    return data, meta, dropped


def _names(cls_name: str, argument: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f"{cls_name}: {argument} is a string; write [{names!r}].")
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{cls_name}: {argument} names a field {name!r}, no string.")
    return tuple([interned(name) for name in names])


def _defaults(cls: type, dropped: tuple[str, ...]) -> tuple[tuple[str, Any, bool], ...]:
    """Of the dropped fields that have one: name, default, whether that is a factory."""
    found: list[tuple[str, Any, bool]] = []
    for field in (
        dataclasses.fields(cls) if dropped and dataclasses.is_dataclass(cls) else ()
    ):
        if field.name not in dropped:
            continue
        if field.default is not dataclasses.MISSING:
            found.append((field.name, field.default, False))
        elif field.default_factory is not dataclasses.MISSING:
            found.append((field.name, field.default_factory, True))
    return tuple(found)


def _check_blank(cls: type) -> None:
    """Refuse a class of which `object.__new__` makes no instance."""
    try:
        object.__new__(cls)
    except TypeError as error:
        if inspect.isabstract(cls):
            return
        raise TypeError(
            f"{cls.__qualname__} derives from a class written in C that keeps state in no "
            f"field ({error}). Hold an instance of that class in a field instead, or use "
            f"jax.tree_util.register_pytree_with_keys."
        ) from None
