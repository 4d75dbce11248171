"""The functions of flat arrays that a function is jitted as, one for each structure."""

import functools as ft
import inspect
import sys
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple

import jax
import jax.tree_util as jtu

from . import _runtime
from ._backend import tree_kernels as kernels
from ._locks import lock_of
from ._rules import is_array, learner
from ._trouble import MOST_LEVELS

# How many structures one function may have; which was not looked up for longest goes.
MOST_ENTRIES: Final = 4096
# How many forms of call one function may have, and how many functions that are no functions
# of Python's are known by their structure.
MOST_FORMS: Final = 1024
MOST_CACHES: Final = 4096


class Options(NamedTuple):
    """What else a function is jitted with."""

    names: tuple[str, str]
    donate_first: bool
    donate_rest: bool
    jit: dict[str, Any]

    def token(self) -> Any:
        """Equal for equal options."""
        leaves, treedef = jtu.tree_flatten(self.jit)
        types = tuple([type(leaf) for leaf in leaves])
        return (*self[:3], tuple(leaves), types, treedef)


class Cache:
    """The entries of one function, or of the functions of one structure."""

    def __init__(
        self,
        function: Callable[[tuple[Any, ...]], Any],
        fixed: int,
        signature: inspect.Signature,
        options: Options,
    ) -> None:
        # Gives the function when it is given its arrays, of which there are so many.
        self.function: Final = function
        self.fixed: Final = fixed
        self.signature: Final = signature
        self.options: Final = options
        self.buckets: dict[Any, list[Any]] = {}
        self.count = 0
        self.lock = lock_of(self, "lock")
        self.calls: dict[bool, Any] = {}

    def calls_of(self, quiet: bool) -> Any:
        """The kernel for calls that say nothing of donated buffers, or that do."""
        with self.lock:
            if quiet not in self.calls:
                hush = _runtime.quietly if quiet else None
                self.calls[quiet] = kernels.Calls(
                    self.fixed, hush, self.bind, self.look_up, careful, settle
                )
            return self.calls[quiet]

    def bind(self, forms: dict[Any, Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """What a new form of call does with its arguments."""
        names = list(kwargs)
        # Whatever the values, they go to the same places.
        bound = self.signature.bind(*args, **{name: _Value(name) for name in names})
        moved = tuple([value.name for value in bound.args[len(args) :]])
        form = kernels.Form(moved, tuple(sorted(bound.kwargs)), len(bound.args))
        if len(forms) >= MOST_FORMS:
            forms.clear()
        forms[(len(args), tuple(names)) if names else len(args)] = form
        return form

    def look_up(self, form: Any, given: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        """The entry for these arguments, and their arrays."""
        lesson = learner(True)
        patterns = []
        first = 0
        for number, obj in enumerate(given):
            try:
                patterns.append(lesson.learn(obj, 0))
            except (TypeError, RecursionError) as error:
                explain(error, argument(self, form, number), obj)
                raise
            if number == 0 and form.positional:
                first = len(lesson.arrays)
        token = (form.positional, form.names, *lesson.token)
        with self.lock:
            bucket = tuple(self.buckets.get(token, ()))
        for entry in bucket:
            if self.fits(entry, form, given):
                with self.lock:
                    # The last to go.
                    if token in self.buckets:
                        self.buckets[token] = self.buckets.pop(token)
                return entry, lesson.arrays
        entry = self.make(form, tuple(patterns), first, len(lesson.arrays))
        with self.lock:
            while self.count >= MOST_ENTRIES:
                self.count -= len(self.buckets.pop(next(iter(self.buckets))))
            self.buckets.setdefault(token, []).append(entry)
            self.count += 1
        return entry, lesson.arrays

    def fits(self, entry: Any, form: Any, given: tuple[Any, ...]) -> bool:
        """Whether an entry is for these arguments."""
        for number, (pattern, obj) in enumerate(zip(entry.patterns, given)):
            if not matches(pattern, obj, lambda: argument(self, form, number)):  # noqa: B023
                return False
        return True

    def make(self, form: Any, patterns: tuple[Any, ...], first: int, count: int) -> Any:
        flags = kernels.Flags()
        flags.token = _runtime.new_token()
        flat = flattened(self.function, self.fixed, first, patterns, form, flags)
        options = self.options
        flat.__name__, flat.__qualname__ = options.names
        donated: list[int] = []
        if options.donate_first:
            donated += range(first)
        if options.donate_rest:
            donated += range(first, self.fixed + count)
        jitted = jax.jit(flat, donate_argnums=tuple(donated), **options.jit)
        return kernels.CallEntry(patterns, first, form, jitted, flags)

    def entries(self) -> list[Any]:
        with self.lock:
            return [entry for bucket in self.buckets.values() for entry in bucket]

    def clear(self) -> None:
        with self.lock:
            self.buckets.clear()
            self.count = 0
            for calls in self.calls.values():
                calls.forms.clear()


class _Value:
    def __init__(self, name: str) -> None:
        self.name = name


def matches(pattern: Any, obj: Any, what: Callable[[], str]) -> bool:
    """Whether what is given is of this structure."""
    try:
        return bool(pattern.match(obj, []))
    except Exception as error:
        raise ValueError(
            f"a static value in {what()} cannot be compared with that of one before "
            f"({type(error).__name__}: {error}). Is an array held in a static field? Make "
            f"that field one that is not static, or give what it holds an __eq__ that "
            f"returns a bool"
        ) from error


def flattened(
    function: Callable[[tuple[Any, ...]], Any],
    fixed: int,
    first: int,
    patterns: tuple[Any, ...],
    form: Any,
    flags: Any,
) -> Any:
    """The function of flat arrays that `jax.jit` is given.

    It holds neither its entry nor the user's function, which would keep each other alive.
    """
    positional = form.positional
    names = form.names

    def flat(*arrays: Any) -> Any:
        __tracebackhide__ = True
        # Here Equinox, if an error comes up, ends the stack that it shows.
        __equinox_jit_id__ = flags.token  # noqa: F841
        fun = function(arrays[first : first + fixed])
        source = kernels.Source(arrays[:first] + arrays[first + fixed :])
        given = [pattern.make(source) for pattern in patterns]
        flags.plain = False
        out = fun(*given[:positional], **dict(zip(names, given[positional:])))
        # Not before: had it failed, there would be no trace.
        flags.fresh = True
        lesson = learner(False)
        try:
            pattern = lesson.learn(out, 0)
        except RecursionError as error:
            raise RecursionError(
                "the result of a jitted function is nested too deep"
            ) from error
        return {pattern: tuple(lesson.arrays)}

    return flat


def careful(entry: Any, arrays: list[Any], quiet: bool) -> Any:
    """Call an entry of which not all is known, or that may raise errors from the device."""
    __tracebackhide__ = True
    jitted = ft.partial(_runtime.quietly, entry.jitted) if quiet else entry.jitted
    with _runtime.Silence():
        try:
            out: dict[Any, Any] = jitted(*arrays)
        except Exception as error:
            settle(entry, arrays, None, error)
            raise
        settle(entry, arrays, out, None)
        return out


def settle(
    entry: Any, arrays: list[Any], out: dict[Any, Any] | None, error: BaseException | None
) -> None:
    """What is to be done after a call, if it has traced or may raise errors later."""
    __tracebackhide__ = True
    flags = entry.flags
    if out is None:
        assert error is not None
        _runtime.raise_readable(error, flags.token)
        return
    if flags.fresh:
        if getattr(jax.config, "jax_disable_jit", False):
            # Nothing was traced, the function itself has run.
            flags.fresh = False
            return
        # Others that come here in the meantime do the same.
        if _runtime.waits(entry.jitted, arrays):
            flags.waits = True
        flags.fresh = False
    if not flags.waits:
        flags.plain = True
        return
    try:
        for results in out.values():
            _runtime.wait(results)
    except Exception as later:
        _runtime.raise_readable(later, flags.token)
        raise


def explain(error: Exception, what: str, obj: Any) -> None:
    """Raise what says more of something that cannot be taken apart, if there is such."""
    if isinstance(error, RecursionError):
        if error.args and "maximum recursion depth" not in str(error):
            return
        raise RecursionError(
            f"{what} is nested too deep (more than {MOST_LEVELS} levels, or than Python's own "
            f"limit allows). Is a list or dict a part of itself?"
        ) from None
    for path, leaf in jtu.tree_flatten_with_path(obj)[0]:
        if is_array(leaf):
            continue
        try:
            hash(leaf)
        except TypeError as cause:
            where = what + (f", at {jtu.keystr(path)}," if path else "")
            raise ValueError(
                f"{where} is of type {type(leaf).__name__}, which has no hash ({cause}). What "
                f"is no array is static, and has to be hashed and compared to tell whether "
                f"the function was traced for it before. Use a type that can be hashed (a "
                f"frozenset for a set), an array, or a plain list, tuple or dict in the "
                f"place of a class derived from one, which JAX does not look into"
            ) from error


def argument(cache: Cache, form: Any, number: int) -> str:
    """An argument, as an error calls it."""
    name = cache.options.names[1]
    if number >= form.positional:
        return f"the argument {form.names[number - form.positional]!r} of {name}"
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for i, parameter in enumerate(cache.signature.parameters.values()):
        if parameter.kind not in kinds:
            return f"the argument number {number} of {name}"
        if i == number:
            return f"the argument {parameter.name!r} of {name}"
    return f"the argument number {number} of {name}"


_caches: Final[weakref.WeakKeyDictionary[FunctionType, dict[Any, Cache]]] = (
    weakref.WeakKeyDictionary()
)
# Of functions that are no functions of Python's, by their structure.
_others: Final[dict[Any, list[tuple[Any, Cache]]]] = {}
_lock = lock_of(sys.modules[__name__], "_lock")


def cache_of(function: Any, options: Options) -> Cache:
    """The cache of a function."""
    signature = inspect.signature(function)
    if type(function) is FunctionType:
        token = options.token()
        weak = weakref.ref(function)
        with _lock:
            caches = _caches.setdefault(function, {})
            if token not in caches:
                # It is there as long as somebody calls it.
                caches[token] = Cache(lambda _: weak(), 0, signature, options)
            return caches[token]
    lesson = learner(True)
    try:
        pattern = lesson.learn(function, 0)
    except (TypeError, RecursionError) as error:
        explain(error, f"the function {options.names[1]}", function)
        raise
    token = (options.token(), *lesson.token)
    count = len(lesson.arrays)
    with _lock:
        for other, cache in _others.get(token, ()):
            if matches(other, function, lambda: f"the function {options.names[1]}"):
                return cache
        cache = Cache(
            lambda arrays: pattern.make(kernels.Source(arrays)), count, signature, options
        )
        while len(_others) >= MOST_CACHES:
            _others.pop(next(iter(_others)))
        _others.setdefault(token, []).append((pattern, cache))
        return cache


def in_use() -> list[str]:
    """The names of the functions of which there are entries."""
    with _lock:
        caches = [cache for known in _caches.values() for cache in known.values()]
        caches += [cache for known in _others.values() for _, cache in known]
    return [cache.options.names[1] for cache in caches if cache.count]


def forget() -> None:
    """Have functions that are jitted from now on share nothing with older ones."""
    with _lock:
        _caches.clear()
        _others.clear()


# What `equinox.clear_caches()` does to Equinox's own.
if isinstance(_runtime.cache_clears, list):
    _runtime.cache_clears.append(forget)
