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
import threading
import weakref
from collections import Counter
from types import FunctionType
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from . import _construct
from ._hooks import stub_of_any
from ._rules import is_array
from ._times import Times, clock
from ._watch import Events, Watch
from .jit import filter_jit

# After which calls twins are called: the first ones, then one of so many as went before.
_SPARSE: Final = 16
_MOST_WRAPPERS: Final = 1000

# Not the program's.
_chance: Final = random.Random(0)


class FunctionWatch:
    """The calls of one function of `equinox.filter_jit`."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self.where = where
        self.calls = 0
        # How many more there were.
        self.raised = 0
        self.traces = 0
        # Of the calls that traced nothing.
        self.nanoseconds = 0.0
        # From the end of a call to the beginning of the next, of this function or another;
        # whether something was read from the device, so waited for, in between; and which
        # functions came next, how often.
        self.between = Times()
        self.waits = 0
        self.followed: Counter[FunctionWatch] = Counter()
        self.twin: Twin | None = None
        self.reason = ""
        self.next = 1
        # What was counted in some calls that traced nothing.
        self.sampled = 0
        self.events: Events | None = None


# What the functions that are called for comparison are called.
TWIN: Final = "a twin for a profile"


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
                    (leaf != 0).astype(jnp.float32)
                    for leaf in jtu.tree_leaves((args, kwargs))
                    if is_array(leaf) and _is_number(leaf)
                ),
                jnp.zeros((), jnp.float32),
            )
            made = [total if kind else leaf for kind, leaf in zip(kinds, results)]
            return jtu.tree_unflatten(treedef, made)

        same.__qualname__ = TWIN

        def flat(*arrays: Any) -> Any:
            total = sum(
                ((leaf != 0).astype(jnp.float32) for leaf in arrays if _is_number(leaf)),
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

    def takes(self) -> tuple[float, float, float]:
        """What a call takes each way, in nanoseconds.

        The middle of all, for there are few, and one that something else came into may be as
        long as all others together.
        """
        theirs, ours, flat = [times.median() for times in self.times]
        return theirs, ours, flat

    def run(self, watch: Watch) -> None:
        turns = [0, 1, 2]
        _chance.shuffle(turns)
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
        # No cast, which may be warned of.
        zero = np.zeros((), leaf.dtype)
        return jax.device_put(zero) if isinstance(leaf, jax.Array) else zero

    return jtu.tree_map(small, tree)


class Last(threading.local):
    """The last call of a thread: the function, when it ended, the cost and the waits then."""

    call: tuple[FunctionWatch, int, float, int] | None = None


class Calls:
    """The hook in the function by which Equinox makes all calls of `filter_jit`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.functions: dict[tuple[str, str], FunctionWatch] = {}
        self._wrappers: dict[int, tuple[weakref.ref[Any], FunctionWatch]] = {}
        self._last = Last()
        self.reason = ""
        # How often the program waited for the device, as far as that can be seen.
        self.waits = 0

    def start(self) -> None:
        function = getattr(sys.modules.get("equinox._jit"), "_call", None)
        if type(function) is not FunctionType:
            self.reason = "Equinox calls what it jits in another way than it used to"
            return
        self.watch.hooks.put(function, self._make, stub_of_any)
        with jax.transfer_guard("allow"):
            array: Any = type(jnp.zeros(()))
        value = getattr(getattr(array, "_value", None), "fget", None)
        for function in (value, getattr(array, "item", None), jax.block_until_ready):
            if type(function) is FunctionType:
                self.watch.hooks.put(function, self._make_waiting, stub_of_any)
        # It is not written in Python. Neither is what NumPy reads arrays by, which cannot be
        # seen without being in the way.
        with contextlib.suppress(AttributeError, TypeError):
            self.watch.hooks.replace(array, "block_until_ready", self._make_waiting)

    def _make_waiting(self, theirs: Any) -> Any:
        def wait(*args: Any, **kwargs: Any) -> Any:
            if not self.watch.thread.paused:
                self.waits += 1
            return theirs(*args, **kwargs)

        return _construct.unseen(wait, wait)

    def _make(self, theirs: Any) -> Any:
        watch, last = self.watch, self._last
        # What Equinox itself jits for `error_if`, which stays as it is.
        errors = sys.modules.get("equinox._errors")
        own = getattr(errors, "branched_error_if_impl_jit", None)

        def call(wrapper: Any, is_lower: Any, args: Any, kwargs: Any) -> Any:
            if is_lower or watch.thread.paused or wrapper is own:
                return theirs(wrapper, is_lower, args, kwargs)
            entered = clock()
            before = watch.cost
            watch.thread.paused += 1
            try:
                found = self._found(wrapper)
                cached = wrapper._cached
                size = _size(cached)
            finally:
                watch.thread.paused -= 1
            if last.call is not None:
                previous, end, cost, waits = last.call
                previous.between.samples.append(entered - end - (before - cost))
                previous.followed[found] += 1
                previous.waits += waits != self.waits
            sampled = found.calls >= found.next
            events = watch.events() if sampled else None
            begin = clock()
            watch.cost = before + (begin - entered)
            before = watch.cost
            try:
                out = theirs(wrapper, is_lower, args, kwargs)
            except BaseException:
                found.raised += 1
                raise
            end = clock()
            took = end - begin - (watch.cost - before)
            found.calls += 1
            if _size(cached) != size:
                found.traces += 1
            else:
                found.nanoseconds += took
                if events is not None:
                    self._sample(found, wrapper, args, kwargs, out, events)
            # All of that, but for what hooks have added themselves.
            now = clock()
            watch.cost += now - end
            last.call = (found, now, watch.cost, self.waits)
            return out

        return _construct.unseen(call, call)

    def clear(self) -> None:
        """Forget all, since JAX may keep code that leads here."""
        self.functions.clear()
        self._wrappers.clear()
        self._last.call = None

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
        counted = watch.events().since(before)
        cost = watch.cost
        watch.thread.paused += 1
        try:
            if _is_traced((args, kwargs, out)):
                return
            found.next = found.calls + 1 + found.calls // _SPARSE
            if found.reason:
                return
            found.sampled += 1
            if found.events is None:
                found.events = counted
            else:
                for total, more in zip(found.events, counted):
                    total.update(more)
            with jax.transfer_guard("allow"):
                if found.twin is None:
                    found.twin = Twin(wrapper.__wrapped__, args, kwargs, out)
                found.twin.run(watch)
        except Exception as error:  # of whatever is in there
            found.reason = f"its arguments have no twin ({error!r:.100})"
            found.twin = None
        finally:
            watch.thread.paused -= 1
            watch.cost = cost

    def _found(self, wrapper: Any) -> FunctionWatch:
        known = self._wrappers.get(id(wrapper))
        if known is not None and known[0]() is wrapper:
            return known[1]
        name, where = _name(wrapper)
        found = self.functions.setdefault((name, where), FunctionWatch(name, where))
        if len(self._wrappers) >= _MOST_WRAPPERS:
            self._wrappers.clear()
        # Another may have its id once it is gone.
        self._wrappers[id(wrapper)] = (weakref.ref(wrapper), found)
        return found


def _name(wrapper: Any) -> tuple[str, str]:
    """What a function is called, and where it stands, as far as it tells."""
    function = None
    try:
        function = wrapper.__wrapped__
        for _ in range(100):
            inner = getattr(function, "__wrapped__", None)
            if inner is None and isinstance(function, functools.partial):
                inner = function.func
            if inner is None:
                break
            function = inner
        code = getattr(function, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        return getattr(function, "__qualname__", None) or type(function).__qualname__, where
    except Exception:  # of anybody's attributes
        return type(function).__qualname__, ""


def _size(cached: Any) -> int:
    try:
        return int(cached._cache_size())
    except Exception:  # as under EQX_ON_ERROR=breakpoint
        return 0


def _is_traced(tree: Any) -> bool:
    """Whether a call is part of a trace, in which nothing of ours may be."""
    clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)
    if clean is not None and not clean():
        return True
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jtu.tree_leaves(tree))
