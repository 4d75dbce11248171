"""`FlatMixin` and `Module`: Equinox Modules that are registered with our kernels."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Collection
from types import FunctionType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

import equinox as eqx
import jax
import jax.tree_util as jtu

from . import _equinox
from ._node import Node, module_node, names_of, nodes, remember, unusual

FLATTEN: Final = "_eqx_tree_flatten"
FLATTEN_WITH_KEYS: Final = "_eqx_tree_flatten_with_keys"
UNFLATTEN: Final = "_eqx_tree_unflatten"


# What Equinox registered each class with that was made since, and has no FlatMixin.
registered: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()

# Called with each class that was made since.
watchers: Final[list[Callable[[type], None]]] = []

# Whether a class, and what derives from it, shall be hot; the first in the MRO counts.
hot_choices: Final[WeakKeyDictionary[type, bool]] = WeakKeyDictionary()


class Registered:
    """Gives, of a class or an instance, the function that the class is registered with.

    On FlatMixin once, so that nothing is put on each class.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        node = nodes.get(owner)
        if node is not None and node.own and isinstance(known, _equinox.Known):
            # Reached by `super()` in procedures of the class's own.
            node = module_node(owner, dataclasses.fields(owner), *known)
        function = None if node is None else getattr(node.functions, self.name, None)
        if function is None:
            raise AttributeError(
                f"{owner.__qualname__} has no {self.name} function of treepress's: see "
                f"treepress.describe({owner.__qualname__})"
            )
        if instance is None or self.name == "unflatten":
            return function
        return MethodType(function, instance)


class FlatMixin:
    """Register an Equinox Module class with treepress's kernels.

    Put it among the bases of a Module class, in any order; the metaclass may be
    Equinox's or any that derives from it. The class and its subclasses behave as they
    would without it, only that JAX flattens and unflattens them faster.

    A class may bring procedures of its own, which are registered as they are. It defines

    - `_eqx_tree_unflatten(aux, children)`, a classmethod or staticmethod, and
    - `_eqx_tree_flatten_with_keys(self) -> (((key, child), ...), aux)` or
      `_eqx_tree_flatten(self) -> (children, aux)`, methods, or both,

    or gives the same as class keywords: `unflatten`, `flatten_with_keys`, `flatten`. With
    half of them missing, or in a subclass that adds fields to a class with procedures of
    its own, the automatic kernels are used and a warning says so.

    Arguments (class keywords):
        flatten: as `_eqx_tree_flatten`.
        unflatten: as `_eqx_tree_unflatten`; a plain function of `(aux, children)` will do.
        flatten_with_keys: as `_eqx_tree_flatten_with_keys`.
        hot: False leaves attributes, methods and construction as Equinox has them, in
            subclasses too that do not say otherwise.

    Raises:
        TypeError: at the class statement, for a procedure of the wrong form.

    Cost: creating a class takes some 0.2 ms more with compiled kernels, 0.7 ms more without.
    Per node, `make bench` prints what is gained.

    Example:
        >>> import equinox as eqx, jax, treepress
        >>> class Quantity(treepress.FlatMixin, eqx.Module):
        ...     value: jax.Array
        ...     unit: str = eqx.field(static=True)
        >>> jax.tree.leaves(Quantity(1.0, "m"))
        [1.0]

    The idea of a mixin with transpiled kernels, and the names of the procedures, are
    Nathaniel Starkman's, from the discussion of Equinox's pull request "perf: enable
    module flatten/unflatten fastpath".
    """

    __slots__ = ()

    _eqx_tree_flatten = Registered("flatten")
    _eqx_tree_flatten_with_keys = Registered("flatten_with_keys")
    _eqx_tree_unflatten = Registered("unflatten")

    # Here and not in a metaclass: a metaclass of ours could not be combined with those
    # that other libraries derive from Equinox's. Equinox hands on the keywords that it
    # does not know.
    def __init_subclass__(
        cls,
        *,
        flatten: Callable[[Any], tuple[Any, Any]] | None = None,
        unflatten: Callable[[Any, Any], Any] | None = None,
        flatten_with_keys: Callable[[Any], tuple[Any, Any]] | None = None,
        hot: bool | None = None,
        **kwargs: Any,
    ) -> None:
        try:
            super().__init_subclass__(**kwargs)
        except TypeError as error:
            if not kwargs or "takes no keyword arguments" not in str(error):
                raise
            raise TypeError(
                f"{cls.__qualname__} has unknown class keywords: {', '.join(kwargs)}. "
                f"FlatMixin knows flatten, unflatten, flatten_with_keys and hot; Equinox "
                f"knows strict"
            ) from None
        if hot is not None:
            if not isinstance(hot, bool):
                raise TypeError(f"{cls.__qualname__}: hot is {hot!r}; write True or False")
            hot_choices[cls] = hot
        if flatten is not None:
            setattr(cls, FLATTEN, flatten)
        if flatten_with_keys is not None:
            setattr(cls, FLATTEN_WITH_KEYS, flatten_with_keys)
        if unflatten is not None:
            if isinstance(unflatten, FunctionType):
                unflatten = staticmethod(unflatten)
            setattr(cls, UNFLATTEN, unflatten)


def _register(nodetype: type, *args: Any, **kwargs: Any) -> None:
    """What Equinox calls to register each Module class."""
    # By identity: a metaclass may define equality as it likes.
    if any(base is FlatMixin for base in nodetype.__mro__):
        _register_mixed(nodetype, *args, **kwargs)
    else:
        jtu.register_pytree_with_keys(nodetype, *args, **kwargs)
        registered[nodetype] = kwargs
    for watch in watchers:
        watch(nodetype)


def _register_mixed(nodetype: type, *args: Any, **kwargs: Any) -> None:
    """Register a class that has FlatMixin."""
    own = _own_procedures(nodetype)
    if own is not None:
        _register_own(nodetype, own)
        return
    fields = dataclasses.fields(nodetype)
    reason = unusual(nodetype, eqx.Module)
    if reason:
        warn(f"{reason}. It is registered by Equinox, correct and slower.", RuntimeWarning)
        jtu.register_pytree_with_keys(nodetype, *args, **kwargs)
        remember(nodetype, Node("equinox", *names_of(fields), reason=reason))
        return
    assert isinstance(known, _equinox.Known)
    node = module_node(nodetype, fields, *known)
    assert node.functions is not None
    jtu.register_pytree_with_keys(
        nodetype,
        flatten_with_keys=node.functions.flatten_with_keys,
        flatten_func=node.functions.flatten,
        unflatten_func=node.functions.unflatten,
    )
    remember(nodetype, node)


PROCEDURES: Final = (UNFLATTEN, FLATTEN_WITH_KEYS, FLATTEN)


def _definers(cls: type) -> dict[str, type]:
    """By procedure, the class that defines it for `cls`."""
    return {
        name: base
        for name in PROCEDURES
        for base in reversed(cls.__mro__)
        if base is not FlatMixin and name in vars(base)
    }


def _lacking(definers: Collection[str]) -> list[str]:
    """What it takes to make these procedures a whole."""
    lacking = []
    if UNFLATTEN not in definers:
        lacking.append(UNFLATTEN)
    if FLATTEN not in definers and FLATTEN_WITH_KEYS not in definers:
        lacking.append(f"{FLATTEN_WITH_KEYS} (or {FLATTEN})")
    return lacking


def _own_procedures(cls: type) -> dict[str, Any] | None:
    """The procedures that `cls` defines or inherits, if they are whole and fit it."""
    definers = _definers(cls)
    if not definers:
        return None
    lacking = _lacking(definers)
    new = any(name in vars(cls) for name in PROCEDURES)
    if lacking:
        if new:
            warn(
                f"{cls.__qualname__} defines {' and '.join(definers)}, but not "
                f"{' and '.join(lacking)}. The automatic kernels are used. Define what is "
                f"missing (or give it as a class keyword), or nothing."
            )
        return None
    for name, definer in definers.items():
        _check_procedure(cls, name, vars(definer)[name])
    added = {
        field: name
        for name, definer in definers.items()
        for field in _added_fields(cls, definer)
    }
    if added:
        # A class that inherits all from one that was warned of is not warned of again.
        parents = (nodes.get(base) for base in cls.__mro__[1:])
        if new or not any(p and set(added) <= {*p.dynamic, *p.static} for p in parents):
            warn(
                f"{cls.__qualname__} has the fields {', '.join(added)}, of which the "
                f"inherited {' and '.join(sorted(set(added.values())))} may not know. The "
                f"automatic kernels are used. If the procedures do carry these fields, say "
                f"so by defining them again in {cls.__qualname__}."
            )
        return None
    # As attributes of the class: methods are plain functions then, and a classmethod or
    # staticmethod is bound.
    return {name: _attribute(cls, name, definer) for name, definer in definers.items()}


def _attribute(cls: type, name: str, definer: type) -> Any:
    raw = vars(definer)[name]
    get = getattr(type(raw), "__get__", None)
    return raw if get is None else get(raw, None, cls)


def _check_procedure(cls: type, name: str, raw: object) -> None:
    """Refuse what cannot be called as JAX will call it."""
    if name == UNFLATTEN:
        wanted = (
            "a classmethod of (cls, aux, children) or a staticmethod of (aux, children)"
        )
        count = 3 if isinstance(raw, classmethod) else 2
    else:
        wanted = "a method of (self)"
        count = 1
    function = getattr(raw, "__func__", raw)
    fits = callable(function) or hasattr(type(raw), "__get__")
    if isinstance(raw, (classmethod, staticmethod)):
        fits = callable(function)
    if isinstance(raw, (classmethod, staticmethod)) and name != UNFLATTEN:
        fits = False
    if fits and isinstance(function, FunctionType):
        try:
            inspect.signature(function).bind(*[None] * count)
        except TypeError:
            fits = False
    if not fits:
        given = type(raw).__name__
        if isinstance(function, FunctionType):
            given += f" of ({', '.join(inspect.signature(function).parameters)})"
        raise TypeError(f"{cls.__qualname__}.{name} is a {given}. Write it as {wanted}.")


def _added_fields(cls: type, definer: type) -> list[str]:
    """The fields of `cls` that a procedure was not written for.

    It was written for the oldest Module class that has it and all others it takes.
    """
    for base in reversed(cls.__mro__):
        if (
            issubclass(base, definer)
            and dataclasses.is_dataclass(base)
            and not _lacking(_definers(base))
        ):
            old = {field.name for field in dataclasses.fields(base)}
            return [f.name for f in dataclasses.fields(cls) if f.name not in old]
    return []


def _register_own(cls: type, own: dict[str, Any]) -> None:
    unflatten, flatten = own[UNFLATTEN], own.get(FLATTEN)
    if FLATTEN_WITH_KEYS in own:
        jtu.register_pytree_with_keys(cls, own[FLATTEN_WITH_KEYS], unflatten, flatten)
    else:
        assert flatten is not None
        jtu.register_pytree_node(cls, flatten, unflatten)
    definers = _definers(cls)
    node = Node(
        "its own procedures",
        *names_of(dataclasses.fields(cls)),
        rule="; ".join([f"{name} of {definers[name].__qualname__}" for name in own]),
        source=_source_of(own),
        own=own,
    )
    remember(cls, node)


def _source_of(own: dict[str, Any]) -> str:
    texts = []
    for name, function in own.items():
        try:
            text = inspect.cleandoc("\n" + inspect.getsource(function))
        except (OSError, TypeError):
            text = f"# the source of {name} cannot be found"
        # Lambdas in one statement have one source.
        if text not in texts:
            texts.append(text)
    return "\n\n".join(texts)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of a class, where its class statement stands."""
    # Between here and there lie the `__new__` of Equinox's metaclass, and of any that
    # derives from it.
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if not (name.startswith("treepress.") or frame.f_code.co_name == "__new__"):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(f"treepress: {message}", category, stacklevel=level)


probe: type = object


def _install() -> _equinox.Known | str:
    """Put the hook where Equinox registers, if all is as we know it."""
    known = _equinox.know()
    if isinstance(known, str):
        return known
    reason = _equinox.hook(_register)
    if reason:
        return reason
    global probe
    probe = _equinox.make_probe()
    if probe not in registered:
        reason = "it registers its classes in another way than it used to"
    else:
        reason = _equinox.differs(known, probe, registered[probe])
    if reason:
        _equinox.unhook()
        return reason
    return known


known: Final = _install()
if isinstance(known, str):
    warnings.warn(
        f"treepress: Equinox {eqx.__version__} with JAX {jax.__version__} is not as "
        f"treepress knows it ({known}). Classes with FlatMixin are registered by Equinox "
        f"itself: correct, and no faster than without it. Another version of treepress "
        f"or of Equinox may help.",
        RuntimeWarning,
        stacklevel=2,
    )


# In this order instances have the same layout as those of `equinox.Module`, and can be made
# instances of its other subclasses by setting `__class__`.
class Module(eqx.Module, FlatMixin):
    """`equinox.Module` with `FlatMixin` in it.

    Arguments, behaviour and errors are those of `equinox.Module`; the class keywords and
    the cost are those of `FlatMixin`.

    Example:
        >>> import equinox as eqx, jax, treepress
        >>> class Quantity(treepress.Module):
        ...     value: jax.Array
        ...     unit: str = eqx.field(static=True)
        >>> jax.tree.map(lambda x: 2 * x, Quantity(1.0, "m")).value
        2.0
    """
