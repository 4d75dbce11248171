"""What each type is to a walk over a tree: a leaf, a container, a node of ours, another's."""

import abc
import dataclasses
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from ._backend import tree_kernels as kernels
from ._equinox import Known
from ._node import module_node, nodes, unusual
from .description import is_node
from .module import known

# Types that are leaves now and for ever. Any other type without a registration may get one.
LEAVES: Final = frozenset(
    [
        *(bool, int, float, complex, str, bytes, type, np.ndarray),
        *(types.FunctionType, types.BuiltinFunctionType, type(jax.jit(lambda: None))),
        *(jax.custom_jvp, jax.custom_vjp),
    ]
)

# Bounds: a program makes few classes and few choices of filters; one that makes them
# without end must not keep them all.
MOST_TYPES: Final = 4096
MOST_CHOOSERS: Final = 64
# On the keys of dicts, all dicts together.
MOST_KEYS: Final = 1 << 16

_kinds: Final[dict[type, Any]] = {}
leaf: Final = kernels.Kind(kernels.LEAF, object, (), None, None)


def kind_of(cls: type) -> Any:
    """The `Kind` of a type, the same each time for all but leaf types."""
    kind = _kinds.get(cls)
    if kind is None:
        kind = _new_kind(cls)
        if kind is not leaf:
            if len(_kinds) >= MOST_TYPES:
                _kinds.clear()
            kind = _kinds.setdefault(cls, kind)
    return kind


def _new_kind(cls: type) -> Any:
    if cls in _BUILTIN:
        return kernels.Kind(_BUILTIN[cls], cls, (), None, None)
    node = nodes.get(cls)
    if node is None and _is_plain_module(cls):
        # Equinox's own functions are slow; those of a kernel return the same.
        assert isinstance(known, Known)
        node = module_node(cls, dataclasses.fields(cls), *known)
    if node is not None and node.functions is not None:
        return kernels.Kind(
            kernels.NODE,
            cls,
            node.dynamic,
            node.functions.flatten,
            node.functions.unflatten,
        )
    if is_node(cls):
        return kernels.Kind(kernels.CUSTOM, cls, (), one_level, None)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return kernels.Kind(kernels.NAMED, cls, tuple(cls._fields), None, None)
    return leaf


_BUILTIN: Final[dict[type, int]] = {
    type(None): kernels.NONE,
    tuple: kernels.TUPLE,
    list: kernels.LIST,
    dict: kernels.DICT,
}


def _is_plain_module(cls: type) -> bool:
    """Whether Equinox registered `cls` with the functions that our kernels stand in for."""
    return (
        isinstance(known, Known)
        and issubclass(cls, eqx.Module)
        and not unusual(cls, eqx.Module)
        and is_node(cls)
    )


def one_level(obj: Any) -> tuple[tuple[Any, ...], Any, Any]:
    """The children of a node of any kind, their keys, and a treedef that rebuilds it."""
    # A node for JAX at the first question, which is asked of `obj`, and leaves from there on
    # (not "whatever is not `obj`": a node may contain itself).
    answers = iter((False,))
    pairs, treedef = jtu.tree_flatten_with_path(obj, is_leaf=lambda _: next(answers, True))
    keys = []
    for path, _ in pairs:
        (key,) = path
        keys.append((jtu.keystr((key,)), simple_key(key)))
    return tuple([child for _, child in pairs]), tuple(keys), treedef


def simple_key(key: Any) -> str:
    """A key without brackets, as `keystr(simple=True)` of later JAX writes it."""
    for name in ("name", "key", "idx"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


# By the keys of a dict as they were inserted, and for a quick guess by the first of them.
orders: Final[dict[Any, Any]] = {}
_keyed: Final[dict[tuple[str, ...], Any]] = {}
# Of both together, in keys. Threads may lose a little of it, which does no harm.
_weight = 0


def in_order(keys: Iterable[Any]) -> tuple[Any, ...]:
    """The keys of a dict as JAX sorts them."""
    try:
        return tuple(sorted(keys))
    except TypeError as error:
        raise ValueError(
            f"the keys of a dict cannot be sorted ({error}); JAX flattens a dict in the "
            f"order of its keys. Use keys of one type, or a collections.OrderedDict"
        ) from error


def order(given: tuple[Any, ...], plain: bool) -> Any:
    """The `Order` of a dict's keys, or the keys sorted and what stands for them in a shape."""
    global _weight
    keys = in_order(given)
    if not plain or len(keys) > MOST_KEYS:
        # Paths tell keys by their repr, and the shape must tell what paths tell.
        return keys, tuple([(f"[{key!r}]", str(key)) for key in keys])
    weight = 16 + len(keys)
    if _weight + weight > MOST_KEYS:
        orders.clear()
        _keyed.clear()
        _weight = 0
    _weight += weight
    # Dicts with the same keys have the same shape, whatever the order of insertion.
    kind = kernels.Kind(kernels.KEYED, dict, keys, None, None)
    found = kernels.Order(given, _keyed.setdefault(keys, kind))
    orders[given] = found
    return found


class Chooser:
    """Filters, with what is known of them by type."""

    def __init__(self, filters: tuple[Any, ...]) -> None:
        # A type, a tuple of types, or None for what has to be asked with each object.
        self.filters: Final = filters
        self.entries: dict[type, Any] = {}
        self.token = abc.get_cache_token()

    def current_entries(self) -> dict[type, Any]:
        """The entries, none of which an `ABC.register` has made wrong since."""
        token = abc.get_cache_token()
        if token != self.token:
            self.entries = {}
            self.token = token
        return self.entries

    def enter(self, obj: Any, call: int) -> Any:
        cls = type(obj)
        entry = self.entries.get(cls)
        if entry is not None and not is_node(cls):
            # A leaf type, as before.
            entry.call = call
            return entry
        kind = kind_of(cls)
        lasting = kind is not leaf or cls in LEAVES or _is_array(obj)
        entry = kernels.Entry(kind, self._owner(obj), -1 if lasting else call)
        if len(self.entries) >= MOST_TYPES:
            self.entries.clear()
        self.entries[cls] = entry
        return entry

    def _owner(self, obj: Any) -> int:
        for i, types_ in enumerate(self.filters):
            if types_ is None:
                return int(kernels.ASK)
            for wanted in types_:
                if not _type_decides(type(obj), wanted):
                    return int(kernels.ASK)
            if isinstance(obj, types_):
                return i
        return int(kernels.NOBODY)


_type_instancecheck: Final[Callable[..., bool]] = type.__instancecheck__
_abc_instancecheck: Final[Callable[..., bool]] = abc.ABCMeta.__instancecheck__


def _is_array(obj: Any) -> bool:
    return isinstance(obj, jax.Array) and not isinstance(obj, jax.core.Tracer)


def _type_decides(cls: type, wanted: Any) -> bool:
    """Whether `isinstance(x, wanted)` is the same for all `x` of this type."""
    if wanted is jax.Array:
        # Of a tracer it depends on what is traced.
        return not issubclass(cls, jax.core.Tracer)
    if type(wanted).__instancecheck__ not in (_type_instancecheck, _abc_instancecheck):
        return False
    # isinstance believes what an object says of its __class__.
    return not any(
        "__class__" in vars(base) or "__getattribute__" in vars(base)
        for base in cls.__mro__
        if base is not object and base is not eqx.Module
    )


_choosers: Final[dict[tuple[Any, ...], Chooser]] = {}


def chooser(filters: tuple[Any, ...]) -> Chooser:
    found = _choosers.get(filters)
    if found is None:
        if len(_choosers) >= MOST_CHOOSERS:
            _choosers.clear()
        found = _choosers.setdefault(filters, Chooser(filters))
    return found
