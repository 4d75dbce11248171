"""What patterns have to know of types, values and JAX's registry."""

import functools as ft
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.tree_util as jtu
import numpy as np

from . import _backend, _kinds
from ._backend import tree_kernels as kernels
from ._equinox import Known
from ._trouble import MOST_LEVELS
from .description import is_node
from .module import known

try:
    from jax._src.array import ArrayImpl as array
except ImportError:
    # None is of this type. Arrays are still known, and found more slowly.
    class array:  # type: ignore[no-redef]
        pass


_ARRAYS: Final[set[type]] = {array, np.ndarray}

kinds: Final[dict[type, Any]] = dict.fromkeys(_kinds.LEAVES, _kinds.leaf)


def kind(cls: type) -> Any:
    """The `Kind` of a type that is not among `kinds`."""
    found = _kinds.kind_of(cls)
    if found is not _kinds.leaf:
        if len(kinds) >= _kinds.MOST_TYPES:
            kinds.clear()
            kinds.update(dict.fromkeys(_kinds.LEAVES, _kinds.leaf))
        kinds[cls] = found
    return found


def is_array(obj: Any) -> bool:
    """Whether `obj` is a leaf that is traced."""
    cls = type(obj)
    if cls in _ARRAYS:
        return True
    if issubclass(cls, jax.core.Tracer):
        # Of a tracer it depends on what is traced.
        return isinstance(obj, jax.Array)
    if not isinstance(obj, (jax.Array, np.ndarray, np.generic)) or is_node(cls):
        return False
    # JAX and NumPy make no nodes of their arrays.
    if str(cls.__module__).split(".")[0] in ("jax", "jaxlib", "numpy"):
        _ARRAYS.add(cls)
    return True


keys: Final = _kinds.in_order


def same(obj: Any) -> Callable[[Any, Any], bool] | None:
    """What a static leaf is compared by, if not by identity or `alike` alone."""
    if type(obj) in _kinds.LEAVES:
        return None
    return ft.partial(_same, hash(obj))


def _same(value_hash: int, obj: Any, value: Any) -> bool:
    # By the hash that it had, as in the cache of jax.jit: it may have changed since. And a
    # type without a registration may have got one.
    return (
        hash(obj) == value_hash
        and not is_node(type(obj))
        and bool(kernels.alike(obj, value, 0))
    )


def fields(kind: Any, obj: Any, children: tuple[Any, ...], aux: tuple[Any, ...]) -> Any:
    """How to read a Module's fields, or None where its kernel has to be called."""
    if _backend.kernels is None or not isinstance(known, Known):
        return None
    flatten = kind.flatten
    if not isinstance(flatten, _backend.kernels.ModuleFlatten):
        return None
    missing = known.missing
    # None for the wrapper attributes, no field unset.
    if any(child is missing for child in children):
        return None
    if aux[0] is not missing or any(value is missing for value in aux[1:]):
        return None
    try:
        state = flatten.read(obj)
    except TypeError:
        return None
    # A dict of another class has ideas of its own of what it holds.
    if type(state) is not dict:
        return None
    return flatten.read, flatten.dynamic, flatten.slots[1:]


def custom(obj: Any) -> tuple[Any, Any, Any, Any, Any]:
    """A node of another's: children, aux, how to get these, and how to put it together."""
    children, _, treedef = _kinds.one_level(obj)
    pair = _one_level(obj)
    if pair is None or not _identical(tuple(pair[0]), children):
        # JAX has no such function, or one that gives something else.
        return children, treedef, _with_treedef, jtu.tree_unflatten, treedef
    return children, pair[1], _one_level, jtu.tree_unflatten, treedef


def _identical(ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(ones) == len(others) and all(map(lambda a, b: a is b, ones, others))


_one_level: Final = getattr(jtu.default_registry, "flatten_one_level", lambda obj: None)


def _with_treedef(obj: Any) -> tuple[Any, Any]:
    children, _, treedef = _kinds.one_level(obj)
    return children, treedef


class Rules:
    """This module, as a learner has it."""

    kinds = kinds
    array = array
    kind = staticmethod(kind)
    is_array = staticmethod(is_array)
    keys = staticmethod(keys)
    same = staticmethod(same)
    fields = staticmethod(fields)
    custom = staticmethod(custom)


def learner(hashed: bool) -> Any:
    """What learns patterns: of arguments, which have to be hashable, or of results."""
    return kernels.Learner(Rules, MOST_LEVELS, hashed)
