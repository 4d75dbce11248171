"""What calls of `equinox.filter_jit` cost beside what they compute, and what ours would.

The two cannot be compared on the program's own functions, which would have to be traced again.
So each gets a twin: of the same structure with scalars for arrays, and nothing to compute.
Now and then, right after a call of the program, so with caches as cold as they are there, the
twin is called by `equinox.filter_jit`, by `treepress.filter_jit`, and flat by `jax.jit`.
"""

import contextlib
import functools
import random
import sys
import time
import weakref
from types import FunctionType
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ._rules import is_array
from ._watch import Events, Times, Watch, stub_of_any
from .jit import filter_jit

clock: Final = time.perf_counter_ns

# After which calls twins are called: the first ones, then one of so many as went before.
_SPARSE: Final = 16
_MOST_WRAPPERS: Final = 1000


class FunctionWatch:
    """The calls of one function of `equinox.filter_jit`."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self.where = where
        self.calls = 0
        self.traces = 0
        # Of the calls that traced nothing.
        self.nanoseconds = 0.0
        # From the end of a call to the beginning of the next, and whether something was read
        # from the device, so waited for, in between.
        self.between = Times()
        self.waits = 0
        self.last: tuple[int, float, int] | None = None
        self.twin: Twin | None = None
        self.reason = ""
        self.next = 1
        # What was counted in some calls that traced nothing.
        self.sampled = 0
        self.events: Events | None = None


class Twin:
    def __init__(self, function: Any, args: Any, kwargs: Any, out: Any) -> None:
        # A function with arrays in it, as a Module, is one more argument.
        first = function if any(map(is_array, jtu.tree_leaves(function))) else None
        given = _small(((first, *args), kwargs))
        leaves, treedef = jtu.tree_flatten(out)
        kinds = [is_array(leaf) for leaf in leaves]
        # No array of the program is kept.
        results = [None if kind else leaf for kind, leaf in zip(kinds, leaves)]

        def same(*args: Any, **kwargs: Any) -> Any:
            total = sum(
                (
                    leaf.astype(jnp.float32)
                    for leaf in jtu.tree_leaves((args, kwargs))
                    if is_array(leaf) and _is_number(leaf)
                ),
                jnp.zeros((), jnp.float32),
            )
            made = [total if kind else leaf for kind, leaf in zip(kinds, results)]
            return jtu.tree_unflatten(treedef, made)

        def flat(*arrays: Any) -> Any:
            total = sum(
                (leaf.astype(jnp.float32) for leaf in arrays if _is_number(leaf)),
                jnp.zeros((), jnp.float32),
            )
            return tuple([total for kind in kinds if kind])

        small, named = given
        arrays = [leaf for leaf in jtu.tree_leaves(given) if is_array(leaf)]
        self.ways: Final[tuple[Any, ...]] = (
            functools.partial(eqx.filter_jit(same), *small, **named),
            functools.partial(filter_jit(same), *small, **named),
            functools.partial(jax.jit(flat), *arrays),
        )
        self.times: Final = (Times(), Times(), Times())
        for way in self.ways:
            for _ in range(3):
                _wait(way())

    def run(self, watch: Watch) -> None:
        turns = [0, 1, 2]
        random.shuffle(turns)
        for turn in turns:
            before = watch.cost
            begin = clock()
            out = self.ways[turn]()
            took = clock() - begin - (watch.cost - before)
            self.times[turn].samples.append(took)
            _wait(out)


def _wait(out: Any) -> None:
    for leaf in jtu.tree_leaves(out):
        if isinstance(leaf, jax.Array):
            leaf.block_until_ready()


def _is_number(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.number) or array.dtype == jnp.bool_


def _small(tree: Any) -> Any:
    """A tree with scalars for its arrays."""

    def small(leaf: Any) -> Any:
        if not is_array(leaf) or not _is_number(leaf):
            return leaf
        if isinstance(leaf, jax.Array):
            return jnp.zeros((), leaf.dtype)
        return leaf.ravel()[:1].reshape(())[...] if leaf.size else leaf

    return jtu.tree_map(small, tree)


class Calls:
    """The hook in the function by which Equinox makes all calls of `filter_jit`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.functions: dict[tuple[str, str], FunctionWatch] = {}
        self._wrappers: dict[int, tuple[weakref.ref[Any], FunctionWatch]] = {}
        self.reason = ""
        # How often the program waited for the device, as far as that can be seen.
        self.waits = 0

    def start(self) -> None:
        function = getattr(sys.modules.get("equinox._jit"), "_call", None)
        if type(function) is not FunctionType:
            self.reason = "Equinox calls what it jits in another way than it used to"
            return
        self.watch.put(function, self._make, stub_of_any)
        array: Any = type(jnp.zeros(()))
        value = getattr(getattr(array, "_value", None), "fget", None)
        for function in (value, getattr(array, "item", None), jax.block_until_ready):
            if type(function) is FunctionType:
                self.watch.put(function, self._make_waiting, stub_of_any)
        # These are not written in Python. NumPy reads arrays by their buffers.
        with contextlib.suppress(AttributeError, TypeError):
            self.watch.replace(array, "block_until_ready", self._make_waiting)
        for name in ("array", "asarray"):
            self.watch.replace(np, name, functools.partial(self._make_waiting, of=array))

    def _make_waiting(self, theirs: Any, of: Any = object) -> Any:
        def wait(*args: Any, **kwargs: Any) -> Any:
            if not self.watch.paused and args and isinstance(args[0], of):
                self.waits += 1
            return theirs(*args, **kwargs)

        return wait

    def _make(self, theirs: Any) -> Any:
        watch = self.watch

        def call(wrapper: Any, is_lower: Any, args: Any, kwargs: Any) -> Any:
            if is_lower or watch.paused:
                return theirs(wrapper, is_lower, args, kwargs)
            entered = clock()
            before = watch.cost
            watch.paused += 1
            try:
                found = self._found(wrapper)
                cached = wrapper._cached
                size = _size(cached)
            finally:
                watch.paused -= 1
            if found.last is not None:
                end, cost, waits = found.last
                found.between.samples.append(entered - end - (before - cost))
                found.waits += waits != self.waits
            sampled = found.calls >= found.next
            events = watch.events() if sampled else None
            begin = clock()
            watch.cost = before + (begin - entered)
            before = watch.cost
            out = theirs(wrapper, is_lower, args, kwargs)
            end = clock()
            took = end - begin - (watch.cost - before)
            found.calls += 1
            if _size(cached) != size:
                found.traces += 1
            else:
                found.nanoseconds += took
                if events is not None and not _is_traced(out):
                    self._sample(found, wrapper, args, kwargs, out, events)
            # All of that, but for what hooks have added themselves.
            now = clock()
            watch.cost += now - end
            found.last = (now, watch.cost, self.waits)
            return out

        return call

    def _sample(
        self,
        found: FunctionWatch,
        wrapper: Any,
        args: Any,
        kwargs: Any,
        out: Any,
        before: Events,
    ) -> None:
        watch = self.watch
        found.next = found.calls + 1 + found.calls // _SPARSE
        if found.reason:
            return
        counted = watch.events().since(before)
        found.sampled += 1
        if found.events is None:
            found.events = counted
        else:
            for total, more in zip(found.events, counted):
                total.update(more)
        cost = watch.cost
        watch.paused += 1
        try:
            if found.twin is None:
                found.twin = Twin(wrapper.__wrapped__, args, kwargs, out)
            found.twin.run(watch)
        except Exception as error:  # of whatever is in there
            found.reason = f"its arguments have no twin ({error!r:.100})"
            found.twin = None
        finally:
            watch.paused -= 1
            watch.cost = cost

    def _found(self, wrapper: Any) -> FunctionWatch:
        known = self._wrappers.get(id(wrapper))
        if known is not None and known[0]() is wrapper:
            return known[1]
        function = wrapper.__wrapped__
        while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
            inner = getattr(function, "__wrapped__", None) or function.func
            if inner is function:
                break
            function = inner
        code = getattr(function, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        found = self.functions.setdefault((name, where), FunctionWatch(name, where))
        if len(self._wrappers) >= _MOST_WRAPPERS:
            self._wrappers.clear()
        # Another may have its id once it is gone.
        self._wrappers[id(wrapper)] = (weakref.ref(wrapper), found)
        return found


def _size(cached: Any) -> int:
    try:
        return int(cached._cache_size())
    except Exception:  # as under EQX_ON_ERROR=breakpoint
        return 0


def _is_traced(out: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jtu.tree_leaves(out))
