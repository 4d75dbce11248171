"""`filter_jit`: a jitted function whose calls cost what its arrays cost."""

import enum
import functools as ft
import warnings
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, overload

import equinox as eqx
import jax
import jax.tree_util as jtu

from . import _calls, _runtime
from ._backend import caller_kernels
from ._rules import is_array
from .stages import Lowered, Traced, arrays_of

P = ParamSpec("P")
T = TypeVar("T")

Donate = Literal["all", "all-except-first", "warn", "warn-except-first", "none"]

# By the word: whether the first argument is donated, whether the others are, and whether
# warnings of what could not be are not to be seen.
_DONATE: Final = {
    "all": (True, True, True),
    "all-except-first": (False, True, True),
    "warn": (True, True, False),
    "warn-except-first": (False, True, False),
    "none": (False, False, False),
}

# Arguments of jax.jit that say which of the arguments are static, donated or where.
_REFUSED: Final = (
    "static_argnums",
    "static_argnames",
    "donate_argnums",
    "in_shardings",
    "out_shardings",
    # Those of an Equinox of long ago.
    *("default", "fn", "args", "kwargs", "out"),
)

Caller: Any = caller_kernels.Caller
_state: Final = vars(eqx.Module)["__dict__"].__get__


class _Array(enum.Enum):
    # Stands for an array among the leaves of a function.
    ARRAY = 0


_ARRAY: Final = _Array.ARRAY


class Jitted(Caller):  # type: ignore[misc]
    """A function as `filter_jit` returns it: a pytree, with the function's arrays in it."""

    def __init__(self, own: tuple[Any, ...], kept: "Kept", names: dict[str, Any]) -> None:
        super().__init__(own, kept.calls, _runtime.trim)
        self._kept = kept
        self.__dict__.update(names)

    @property
    def __wrapped__(self) -> Any:
        leaves, treedef = self._kept.static
        whole = [b if a is _ARRAY else a for a, b in zip(leaves, self._own)]
        return jtu.tree_unflatten(treedef, whole)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = object.__new__(Bound)
        _state(bound).update(func=self, args=(instance,), keywords={})
        return bound

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """Lower the function for these arguments, as `jax.jit(...).lower` does."""
        jitted, arrays, what = self._stage(args, kwargs)
        return Lowered(jitted.lower(*arrays), *what)

    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """Trace the function for these arguments, as `jax.jit(...).trace` does."""
        jitted, arrays, what = self._stage(args, kwargs)
        return Traced(jitted.trace(*arrays), *what)

    def _stage(self, args: Any, kwargs: Any) -> Any:
        own, calls = self._own, self._calls
        entry, arrays = calls.find(own, args, kwargs)
        where, _ = arrays_of(*calls.given(args, kwargs))
        return entry.jitted, arrays, (own, calls, where, entry.first)

    def _cache_size(self) -> int:
        """How many calls are cached of this function, as `jax.jit(...)._cache_size()`."""
        # Where EQX_ON_ERROR is "breakpoint" Equinox makes functions without it of them.
        sizes = [getattr(e.jitted, "_cache_size", None) for e in self._kept.cache.entries()]
        return sum([size() for size in sizes if size is not None])

    def clear_cache(self) -> None:
        """Forget all that is cached of this function."""
        self._kept.cache.clear()

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if not isinstance(other, Jitted):
            return NotImplemented
        return eqx.tree_equal(self, other)

    def __hash__(self) -> int:
        return hash((self._kept.static[0], self._kept.donate))

    def __repr__(self) -> str:
        cache = self._kept.cache
        return f"filter_jit({cache.options.names[1]}, donate={self._kept.donate!r})"

    def __reduce__(self) -> Any:
        jitkwargs = self._kept.cache.options.jit
        return _again, (self.__wrapped__, self._kept.donate, jitkwargs)

    def __copy__(self) -> "Jitted":
        return self


class Kept(NamedTuple):
    """What a jitted function is beside its arrays."""

    # Leaves and a treedef.
    static: tuple[tuple[Any, ...], Any]
    donate: Donate
    cache: Any
    calls: Any


def _flatten(jitted: Jitted) -> Any:
    names = {name: vars(jitted)[name] for name in _NAMES if name in vars(jitted)}
    return jitted._own, (jitted._kept, names)


def _flatten_with_keys(jitted: Jitted) -> Any:
    children, aux = _flatten(jitted)
    return tuple([(jtu.SequenceKey(i), child) for i, child in enumerate(children)]), aux


def _unflatten(aux: Any, children: Any) -> Jitted:
    return Jitted(tuple(children), *aux)


jtu.register_pytree_with_keys(Jitted, _flatten_with_keys, _unflatten, _flatten)

_NAMES: Final = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


class Bound(eqx.Partial):  # type: ignore[type-arg]
    """What a jitted function is as a method: a Partial with the instance in it."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        state = _state(self)
        return state["func"](*state["args"], *args, **kwargs, **state["keywords"])


def _again(function: Any, donate: Donate, jitkwargs: dict[str, Any]) -> Any:
    return filter_jit(function, donate=donate, **jitkwargs)


class _Nothing(enum.Enum):
    # Stands for an argument that was left out; this is how `help` shows it.
    NOTHING = 0

    def __repr__(self) -> str:
        return "..."


_NOTHING: Final[Any] = _Nothing.NOTHING


@overload
def filter_jit(
    *, donate: Donate = "none", **jitkwargs: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


@overload
def filter_jit(
    fun: Callable[P, T], *, donate: Donate = "none", **jitkwargs: Any
) -> Callable[P, T]: ...


def filter_jit(fun: Any = _NOTHING, *, donate: Donate = "none", **jitkwargs: Any) -> Any:
    """Jit a function, as `equinox.filter_jit` does, at the cost of its arrays.

    All JAX and NumPy arrays in the arguments are traced, and so are those in the function,
    if it is a Module, a bound method, a Partial or the like. Everything else is static: the
    function is traced anew for each value of it. A call that is like one before takes its
    arguments apart in compiled code, looks up nothing but what `jax.jit` looks up for the
    same arrays, and puts the result together in compiled code.

    Arguments:
        fun: the function, or anything else that can be called. Left out, a decorator is
            returned.
        donate: which arrays are donated, those in `fun` among the rest: `"all"`;
            `"all-except-first"`, all but those in the first argument; `"warn"` and
            `"warn-except-first"`, the same with JAX's warnings of buffers that could not be
            used; or `"none"`.
        jitkwargs: handed on to `jax.jit`; but for those that say which arguments are static,
            donated by number, or where (`in_shardings`, `out_shardings`), which are refused.

    Returns:
        the jitted function: a pytree, whose leaves are the arrays in `fun`; as a method, it
        binds. It has `lower`, `trace`, `clear_cache` and `_cache_size` as one of `jax.jit`
        has (a bound method has not: `Class.method.lower(instance, ...)`). What is compiled
        ahead of time keeps the static values that it was lowered for, and does not compare.

    Raises:
        ValueError: if an argument is given that is refused, and, in a call, for a static
            value that has no hash or cannot be compared.

    It differs from `equinox.filter_jit` in this:

    - A call does not wait for the device, unless what it calls has an `equinox.error_if` in
      it; so an error of any other callback comes up where the result is used.
    - Static values are told apart by type, and 0.0 from -0.0: 1 and 1.0 are two traces, where
      Equinox has one that returns for both what it was given first. (Not so inside of objects
      that have an `__eq__` of their own.)
    - At most 4096 structures are kept of a function. They are freed with it if it is a plain
      function; anything else that can be called is kept, as by Equinox, 4096 of them at most.
    - An error for a static value without a hash names the argument, and is raised when `fun`
      itself has such a value, not only when it is called.
    - The function returned is no Module, and its name is no leaf of it. Without the arrays
      that were taken out of it (`equinox.partition`) it cannot be called.
    - An `equinox.error_if` shows the frames inside of the jitted function alone; Equinox
      adds, from the second call on, those of the caller that had it traced. Both show those
      of another caller where JAX had the same `error_if` in its cache from there.
    - Arguments and results may be nested 1000 levels deep; without a compiler half of that.
    - An array in a static field is compared to what else is there by its type first: where
      Equinox fails to compare it with a string, it is another structure.
    - With `donate="all"` or `"all-except-first"` a filter stays at the front of
      `warnings.filters`. It silences warnings of donated buffers in such calls alone.

    Cost: a call takes a third to three quarters more than one of `jax.jit` on flat arrays: in
    one run 17.1 µs for 12.5 with a single array, 25.4 for 14.6 with a model of 10 arrays, 43 for
    33 with that in and out. `make bench` prints it.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, treepress
        >>> @treepress.filter_jit
        ... def scaled(model, x, *, by=2):
        ...     return by * jax.vmap(model)(x)
        >>> model = eqx.nn.Linear(3, 4, key=jax.random.key(0))
        >>> scaled(model, jnp.ones((5, 3))).shape
        (5, 4)
        >>> scaled(model, jnp.ones((5, 3)), by=3).shape
        (5, 4)
    """
    if fun is _NOTHING:
        return ft.partial(filter_jit, donate=donate, **jitkwargs)
    refused = [name for name in _REFUSED if name in jitkwargs]
    if refused:
        raise ValueError(
            f"filter_jit decides by itself what is static and where arrays are, so it takes "
            f"no {', '.join(refused)}. Use `donate` to donate arrays, and jax.jit for the "
            f"rest"
        )
    if not (isinstance(donate, str) and donate in _DONATE):
        raise ValueError(
            f"donate is {donate!r}; it is one of {', '.join(map(repr, _DONATE))}"
        )
    if _runtime.reason:
        _step_aside()
        return eqx.filter_jit(fun, donate=donate, **jitkwargs)
    if jitkwargs:
        # Here, not in the first call, an argument that JAX does not know is an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is said when it is used
            jax.jit(lambda: None, **jitkwargs)
    first, rest, quiet = _DONATE[donate]
    names = _runtime.names_of(fun)
    options = _calls.Options(names, first, rest, jitkwargs)
    cache = _calls.cache_of(fun, options)
    leaves, treedef = jtu.tree_flatten(fun)
    arrays = [is_array(leaf) for leaf in leaves]
    own = tuple([leaf if a else None for a, leaf in zip(arrays, leaves)])
    static = tuple([_ARRAY if a else leaf for a, leaf in zip(arrays, leaves)])
    kept = Kept((static, treedef), donate, cache, cache.calls_of(quiet))
    known = {name: getattr(fun, name) for name in _NAMES if hasattr(fun, name)}
    return Jitted(own, kept, known)


def _step_aside() -> None:
    global _stepped
    if not _stepped:
        _stepped = True
        warnings.warn(
            f"treepress: Equinox {eqx.__version__} is not as treepress knows it "
            f"({_runtime.reason}). treepress.filter_jit is equinox.filter_jit: correct, and "
            f"no faster. Another version of treepress or of Equinox may help.",
            RuntimeWarning,
            stacklevel=3,
        )


_stepped = False
