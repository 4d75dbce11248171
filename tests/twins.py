"""The same classes twice: under plain Equinox, and with our kernels.

Everything that JAX shows of an instance of the one must be so of the other.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

import treepress
from treepress import module

getdict = vars(eqx.Module)["__dict__"].__get__

# Called, it makes a Module class.
META: Any = type(eqx.Module)


class Mixed(treepress.FlatMixin, eqx.Module):
    pass


# How `twins` has the second of them accelerated: "FlatMixin", or in place by "accelerate".
how = "FlatMixin"


def twins(define: Callable[[type], Any]) -> tuple[Any, Any]:
    """Call `define` with a base class of each kind."""
    if how == "FlatMixin":
        return define(eqx.Module), define(treepress.Module)
    made: list[type] = []
    plain = define(eqx.Module)
    module.watchers.append(made.append)
    flat = define(eqx.Module)
    module.watchers.remove(made.append)
    treepress.accelerate(*made)
    assert made
    assert all(treepress.describe(cls).how == how for cls in made)
    return plain, flat


def state(obj: Any) -> Any:
    """All that an object holds, in order, with classes by their names."""
    if isinstance(obj, eqx.Module):
        items = [(name, state(value)) for name, value in getdict(obj).items()]
        return ("module", type(obj).__qualname__, items)
    if isinstance(obj, Failure):
        return obj
    if type(obj) in (list, tuple):
        return (type(obj), [state(item) for item in obj])
    if type(obj) is dict:
        return (dict, [(key, state(value)) for key, value in obj.items()])
    if hasattr(obj, "__origin__"):  # `Module[int]`, which differs between the twins
        return repr(obj)
    return Same(obj)


class Same:
    """Equal to what wraps the same object."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.obj is other.obj

    def __repr__(self) -> str:
        return f"Same({self.obj!r})"

    __hash__ = None  # type: ignore[assignment]


def one_level(obj: Any) -> Any:
    """What the registered functions return, by identity."""
    with_keys = jtu.default_registry.flatten_one_level_with_keys(obj)
    children, aux = jtu.default_registry.flatten_one_level(obj)
    assert type(children) is tuple
    assert type(aux) is tuple
    keyed, keyed_aux = with_keys
    return (
        state(children),
        state(aux),
        [(key, state(child)) for key, child in keyed],
        state(keyed_aux),
    )


def assert_twins(plain: Any, flat: Any) -> None:
    """`plain` and `flat`, built alike, are the same to JAX, down to their leaves."""
    assert state(plain) == state(flat)
    if isinstance(plain, eqx.Module):
        assert one_level(plain) == one_level(flat)
    for is_leaf in (None, lambda x: x is None, lambda x: isinstance(x, list)):
        leaves, treedef = jax.tree.flatten(plain, is_leaf=is_leaf)
        flat_leaves, flat_treedef = jax.tree.flatten(flat, is_leaf=is_leaf)
        assert state(leaves) == state(flat_leaves)
        assert str(treedef) == str(flat_treedef)
        assert treedef.num_nodes == flat_treedef.num_nodes
        paths, _ = jtu.tree_flatten_with_path(plain, is_leaf=is_leaf)
        flat_paths, with_path = jtu.tree_flatten_with_path(flat, is_leaf=is_leaf)
        assert [path for path, _ in paths] == [path for path, _ in flat_paths]
        assert with_path == flat_treedef
        new_leaves = [object() for _ in leaves]
        again = outcome(jax.tree.unflatten, treedef, new_leaves)
        flat_again = outcome(jax.tree.unflatten, flat_treedef, new_leaves)
        assert state(again) == state(flat_again)
        if not isinstance(again, Failure):
            assert type(flat_again) is type(flat)
            assert (jax.tree.structure(again) == treedef) == (
                jax.tree.structure(flat_again) == flat_treedef
            )


@contextlib.contextmanager
def in_threads(work: Callable[[], None], count: int) -> Iterator[None]:
    """Have threads do something over and over, in turns as short as can be."""
    stop = threading.Event()
    errors: list[Exception] = []

    def over_and_over() -> None:
        try:
            while not stop.is_set():
                work()
        except Exception as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=over_and_over) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors, errors[0]


class Failure(tuple):  # type: ignore[type-arg]
    """The error that a call ended with, for comparison."""


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return Failure((type(error), re.sub(" at 0x[0-9a-f]+", "", str(error))))


def at_once(*targets: Callable[[], None]) -> None:
    """Run these at once, and raise what they raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(targets))

    def guarded(target: Any) -> None:
        try:
            barrier.wait()
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
