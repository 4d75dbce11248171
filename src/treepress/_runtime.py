"""Errors from the device: what Equinox does about those of `error_if`.

None of it is public API of Equinox. Where it is not as it was known, `reason` says so.
"""

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

import jax

try:
    from equinox import _jit as _equinox_jit
    from equinox._compile_utils import get_fn_names as _get_fn_names

    get_fn_names: Any = _get_fn_names

    EquinoxRuntimeError: Any = _equinox_jit.EquinoxRuntimeError
    JaxRuntimeError: Any = _equinox_jit.JaxRuntimeError
    _message: Any = _equinox_jit._on_error_msg
    _silence: Any = _equinox_jit._FilterCallback
    _ = _equinox_jit.last_error_info
    reason = ""
except (ImportError, AttributeError) as error:
    reason = str(error)
    EquinoxRuntimeError = JaxRuntimeError = RuntimeError

try:
    from equinox import _caches

    cache_clears: Any = _caches.cache_clears
except (ImportError, AttributeError):
    cache_clears = None


def names_of(function: Any) -> tuple[str, str]:
    names: tuple[str, str] = get_fn_names(function)
    return names


def new_token() -> bytes:
    return os.urandom(16)


_HERE: Final = f'File "{os.path.dirname(__file__)}'
_logger: Final = logging.getLogger("jax._src.callback")


class Silence:
    """No log of a callback that fails, since an error will tell of it."""

    def __enter__(self) -> None:
        self.filter = _silence()
        _logger.addFilter(self.filter)

    def __exit__(self, *_: object) -> None:
        _logger.removeFilter(self.filter)


class _Quiet(threading.local):
    """Whether warnings of donated buffers are not to be seen, and what a filter asks."""

    now = False

    def match(self, text: str) -> bool:
        return self.now and text.startswith("Some donated buffers were not usable")


_quiet: Final = _Quiet()
_filter: Final[Any] = ("ignore", _quiet, Warning, None, 0)
_mutated: Final[Any] = getattr(warnings, "_filters_mutated", None)


def quietly(function: Any, *arrays: Any) -> Any:
    """Call a function without warnings of donated buffers.

    `warnings.catch_warnings` is as slow as many a call of a jitted function, and not for use
    in threads. So there is one filter, which asks for the thread and stays where it is.
    """
    __tracebackhide__ = True
    filters: Any = warnings.filters
    if not filters or filters[0] is not _filter:
        # Later Python may have filters for each context.
        if _mutated is None or not isinstance(filters, list):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Some donated buffers were not")
                return function(*arrays)
        if _filter in filters:
            filters.remove(_filter)
        filters.insert(0, _filter)
        # Python remembers what it did with warnings before.
        _mutated()
    before = _quiet.now
    _quiet.now = True
    try:
        return function(*arrays)
    finally:
        _quiet.now = before


def trim(error: BaseException) -> None:
    """Take off a readable error what lies between the caller and the device."""
    if isinstance(error, EquinoxRuntimeError):
        error.__traceback__ = None


def raise_readable(error: BaseException, token: bytes) -> None:
    """Raise, if an error is what `error_if` made on the device, what can be read."""
    __tracebackhide__ = True
    if not isinstance(error, (JaxRuntimeError, ValueError)):
        return
    info = _equinox_jit.last_error_info
    if info is None or "_EquinoxRuntimeError: " not in str(error):
        return
    message, stack = info
    # From the innermost frame outwards, with the marks of jitted calls between.
    frames: list[str] = []
    for item in stack:
        if isinstance(item, str):
            # None of ours, which are there if JAX has it from a trace for another caller.
            if _HERE not in item:
                frames.append(item)
        elif item == token:
            break
    text = _message.format(msg=message, stack="".join(reversed(frames)))
    raise EquinoxRuntimeError(text) from None


def wait(arrays: tuple[Any, ...]) -> None:
    for array in arrays:
        if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer):
            array.block_until_ready()


def waits(jitted: Any, arrays: list[Any]) -> bool:
    """Whether an error of `error_if` may come from the device."""
    if isinstance(jitted, FunctionType):
        # What Equinox makes of `jax.jit` where EQX_ON_ERROR is "breakpoint".
        return True
    try:
        # Traced already, so this is found in JAX's cache.
        jaxpr = jitted.trace(*arrays).jaxpr
        return _may_raise(jaxpr, set())
    except Exception as error:
        _warn(error)
        return True


def _warn(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"treepress: JAX {jax.__version__} does not show what filter_jit traced, as it "
            f"used to ({error!r}). So each call waits for the device, as in Equinox: "
            f"correct, and slower. Another version of treepress or of JAX may help.",
            RuntimeWarning,
            stacklevel=2,
        )


_warned = False


def _may_raise(jaxpr: Any, seen: set[int]) -> bool:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if id(jaxpr) in seen:
        return False
    seen.add(id(jaxpr))
    for equation in jaxpr.eqns:
        primitive = equation.primitive
        if primitive.name == "pure_callback":
            if _is_equinox(equation.params):
                return True
        elif _is_opaque(primitive):
            return True
        for value in equation.params.values():
            for inner in _jaxprs(value):
                if _may_raise(inner, seen):
                    return True
    return False


def _jaxprs(value: Any) -> Iterator[Any]:
    if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _jaxprs(item)


def _is_equinox(params: dict[str, Any]) -> bool:
    """Whether a callback is that of `error_if`, as far as can be told."""
    callback = params.get("callback")
    function = getattr(callback, "callback_func", callback)
    module = getattr(function, "__module__", None)
    return module is None or module.split(".")[0] in ("equinox", "jax", "functools")


# Modules whose primitives run no functions but their own.
_CLEAR: Final = (
    "jax",
    "jaxlib",
    "equinox._unvmap",
    "equinox.internal._nontraceable",
    "equinox.internal._loop",
    "equinox.debug",
)


def _is_opaque(primitive: Any) -> bool:
    """Whether a primitive may run a function of which its parameters show nothing.

    Those of `equinox.internal.filter_primitive_def`, as linear solves are, and others that
    are defined by a function of anybody's.
    """
    impl = primitive.impl
    module = getattr(getattr(impl, "func", impl), "__module__", None) or ""
    return not f"{module}.".startswith(tuple(f"{name}." for name in _CLEAR))
