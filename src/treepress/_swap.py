"""Our kernels in the functions that Equinox registered for a class, and back.

JAX lets no class be registered again. But what Equinox registers for a class can be given
another behaviour where it is: two Python functions, whose code can be replaced, and a
`functools.partial`, whose state can be set. JAX's registry is not touched, so treedefs and
the caches of jitted functions made before stay as good as they were.
"""

import contextlib
import dataclasses
import functools
import gc
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import jax.tree_util as jtu

from . import module
from ._equinox import Known
from ._hooks import calling, stub_of_one
from ._node import Node, module_node, names_of, originals


class Held(NamedTuple):
    """The functions that JAX holds for a class, as Equinox made them."""

    flatten: FunctionType
    flatten_with_keys: FunctionType
    unflatten: "functools.partial[Any]"


class Original(NamedTuple):
    """What was in these functions before."""

    held: Held
    flatten: CodeType
    flatten_with_keys: CodeType
    unflatten: tuple[Any, ...]


# The kernels that each class had. They are kept: one may be running, called by a
# `functools.partial`, which holds no reference to what it calls.
_kernels: Final[WeakKeyDictionary[type, list[Node]]] = WeakKeyDictionary()

# Told of each class that has got kernels.
watchers: Final[list[Callable[[type], None]]] = []

# Those of which `originals` has no more than what a profile has put hooks around.
_watched: Final[WeakSet[type]] = WeakSet()

OTHERWISE: Final = "it is registered with functions that are not as Equinox makes them"


def put_in(cls: type, known: Known) -> Node | str:
    """Put kernels in the functions of a class. Returns these, or why that cannot be."""
    original = originals.get(cls)
    held = held_by(cls, known) if original is None else original.held
    if isinstance(held, str):
        return held
    node = kernels_of(cls, known)
    functions = node.functions
    assert functions is not None
    flatten, keyed, unflatten = held
    if original is None:
        note(cls, held)
    _watched.discard(cls)
    # Each is one assignment, so that threads that flatten meanwhile see the old or the new.
    flatten.__code__ = calling(stub_of_one, functions.flatten, flatten, _FILE)
    keyed.__code__ = calling(stub_of_one, functions.flatten_with_keys, keyed, _FILE)
    set_state(unflatten, (functions.unflatten, (), {}, unflatten.__dict__ or None))
    for watch in watchers:
        watch(cls)
    return node


def give_back(cls: type) -> bool:
    """Make the functions of a class what they were. Whether they were anything else.

    It can be done again, should an interrupt come between, until `forget` is called.
    """
    original = originals.get(cls)
    if original is None:
        return False
    flatten, keyed, unflatten = original.held
    set_state(unflatten, original.unflatten)
    keyed.__code__ = original.flatten_with_keys
    flatten.__code__ = original.flatten
    return True


def note(cls: type, held: Held, watched: bool = False) -> None:
    """Keep what is in the functions of a class, to be given back."""
    flatten, keyed, unflatten = held
    if watched:
        _watched.add(cls)
    state: Any = unflatten.__reduce__()[2]
    originals[cls] = Original(held, flatten.__code__, keyed.__code__, state)


def forget(cls: type) -> None:
    originals.pop(cls, None)
    _watched.discard(cls)


def taken() -> list[type]:
    """The classes in whose functions kernels may be."""
    return [cls for cls in list(originals) if cls not in _watched]


def kernels_of(cls: type, known: Known) -> Node:
    """The kernels of a class, those that it had before if they fit."""
    fields = dataclasses.fields(cls)
    made = _kernels.setdefault(cls, [])
    for node in made:
        if (node.dynamic, node.static) == names_of(fields):
            return node
    made.append(module_node(cls, fields, *known))
    return made[-1]


# Typeshed does not know it.
set_state: Final[Any] = functools.partial.__setstate__  # type: ignore[attr-defined]


# Where the code is from that treepress, this copy of it or another, puts into functions.
_FILE: Final = "<treepress kernel>"


def held_by(cls: type, known: Known) -> Held | str:
    """The functions that Equinox registered for a class, or why they are not known.

    Three ways to them were compared. Of a class that was made after treepress was imported,
    the hook has kept them. `gc.get_referents` of JAX's registry shows the flatten and
    unflatten functions of all classes but none that gives keys, and on jaxlib 0.4 nothing.
    So for classes that are older the functions themselves are made to tell: they are
    called, through JAX, with an instance whose `__dict__` looks at who asks for its length.
    That finds what JAX calls, and nothing else. Only the partial leaves no trace there;
    it is read from the registry that JAX keeps in Python, or what the gc shows of the
    other.
    """
    if _is_taken(cls):
        return "another copy of treepress has accelerated it"
    made = module.registered.get(cls)
    if made is not None:
        flatten, keyed = made["flatten_func"], made["flatten_with_keys"]
        unflatten = made["unflatten_func"]
    else:
        try:
            flatten, keyed = _flatten_functions(cls)
        except Exception as error:
            return (
                f"its flatten functions cannot be called as treepress knows them: {error!r}"
            )
        unflatten = _unflatten_function(cls)
    dynamic, static = names_of(dataclasses.fields(cls))
    named = list(dict.fromkeys([*dynamic, *known.wrappers, *static]))
    for function in (flatten, keyed):
        if not (type(function) is FunctionType and _texts(function) == named):
            return OTHERWISE
    if not (
        type(unflatten) is functools.partial
        and len(unflatten.args) == 1
        and unflatten.args[0] is cls
        and not unflatten.keywords
        and type(unflatten.func) is FunctionType
        and _texts(unflatten.func) == named
    ):
        return OTHERWISE
    return Held(flatten, keyed, unflatten)


def _texts(function: FunctionType) -> list[str]:
    """The names that a generated function mentions: those of the fields, in their order."""
    # The first of the constants is the docstring.
    texts = [text for text in function.__code__.co_consts[1:] if type(text) is str]
    return list(dict.fromkeys(texts))


class _Asked(dict[str, Any]):
    """A `__dict__` that remembers the function which asks for its length."""

    function: Any = None

    def __len__(self) -> int:
        frame = sys._getframe(1)
        function = frame.f_globals.get(frame.f_code.co_name)
        if getattr(function, "__code__", None) is frame.f_code:
            self.function = function
        return 0


def _flatten_functions(cls: type) -> tuple[Any, Any]:
    """What JAX calls to flatten an instance of `cls`, without and with keys."""
    # Made as another class, where the layout allows it: so there is one of an abstract class
    # too, and no `__del__` that meets an empty instance.
    obj: Any = object.__new__(module.probe)
    try:
        _set_class(obj, cls)
    except TypeError:
        obj = object.__new__(cls)
    found = []
    try:
        for flatten in (jtu.tree_flatten, jtu.tree_flatten_with_path):
            asked = _Asked()
            object.__setattr__(obj, "__dict__", asked)
            flatten(obj, is_leaf=lambda x: x is not obj)
            found.append(asked.function)
    finally:
        with contextlib.suppress(TypeError):
            _set_class(obj, module.probe)
    return found[0], found[1]


# Not `setattr`, since a class may define `__class__`.
_set_class: Final[Any] = vars(object)["__class__"].__set__


def _is_taken(cls: type) -> bool:
    """Whether another copy of treepress has its kernels there."""
    mixin = (module.FlatMixin.__name__, module.FlatMixin.__module__)
    if any((base.__name__, base.__module__) == mixin for base in cls.__mro__):
        return True
    code = getattr(getattr(_entry(cls), "to_iter", None), "__code__", None)
    return getattr(code, "co_filename", "") == _FILE


def _unflatten_function(cls: type) -> Any:
    """What JAX calls to unflatten an instance of `cls`, or None."""
    entry = _entry(cls)
    if entry is not None:
        return entry.from_iter
    for function in gc.get_referents(jtu.default_registry):
        if type(function) is functools.partial and function.args == (cls,):
            return function
    return None


def _entry(cls: type) -> Any:
    """What JAX's registry in Python has of a class, None should there be no such thing."""
    return registry().get(cls)


def registry() -> dict[type, Any]:
    """JAX's registry in Python, empty should there be no such thing."""
    return getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
