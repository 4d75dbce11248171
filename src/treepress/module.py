"""`FlatMixin` and `Module`: Equinox Modules that are registered with our kernels."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import equinox as eqx
import jax
import jax.tree_util as jtu

from . import _equinox
from ._node import Node, module_node, nodes, unusual

FLATTEN: Final = "_eqx_tree_flatten"
FLATTEN_WITH_KEYS: Final = "_eqx_tree_flatten_with_keys"
UNFLATTEN: Final = "_eqx_tree_unflatten"


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

    Raises:
        TypeError: at the class statement, for a procedure of the wrong form.

    Cost: creating a class takes some 10 µs more with compiled kernels, 1 ms more without.
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

    # Here and not in a metaclass: a metaclass of ours could not be combined with those
    # that other libraries derive from Equinox's. Equinox hands on the keywords that it
    # does not know.
    def __init_subclass__(
        cls,
        *,
        flatten: Callable[[Any], tuple[Any, Any]] | None = None,
        unflatten: Callable[[Any, Any], Any] | None = None,
        flatten_with_keys: Callable[[Any], tuple[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
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
    if FlatMixin not in nodetype.__mro__:
        if nodetype.__name__ == "Probe" and nodetype.__module__ == _equinox.__name__:
            _caught.append(kwargs)
        jtu.register_pytree_with_keys(nodetype, *args, **kwargs)
        return
    own = _own_procedures(nodetype)
    if own is not None:
        _register_own(nodetype, own)
        return
    reason = _why_not(nodetype)
    if reason:
        warnings.warn(
            f"treepress: {reason}. It is registered by Equinox, correct and slower.",
            RuntimeWarning,
            stacklevel=4,
        )
        jtu.register_pytree_with_keys(nodetype, *args, **kwargs)
        nodes[nodetype] = Node("equinox", "", "", reason=reason)
        return
    assert isinstance(_known, _equinox.Known)
    fields = dataclasses.fields(nodetype)
    node = module_node(nodetype, fields, *_known)
    assert node.functions is not None
    jtu.register_pytree_with_keys(
        nodetype,
        flatten_with_keys=node.functions.flatten_with_keys,
        flatten_func=node.functions.flatten,
        unflatten_func=node.functions.unflatten,
    )
    exposed = {
        FLATTEN: node.functions.flatten,
        FLATTEN_WITH_KEYS: node.functions.flatten_with_keys,
        UNFLATTEN: staticmethod(node.functions.unflatten),
    }
    for name, value in exposed.items():
        setattr(nodetype, name, value)
    nodes[nodetype] = dataclasses.replace(node, exposed=exposed)


def _why_not(cls: type) -> str:
    if isinstance(_known, str):
        return f"{cls.__qualname__} cannot be accelerated: {_known}"
    return unusual(cls, eqx.Module)


def _definer(cls: type, name: str) -> type | None:
    """The class that defines a procedure for `cls`, other than by having kernels of ours."""
    for base in cls.__mro__:
        if name in vars(base):
            node = nodes.get(base)
            if node is None or vars(base)[name] is not node.exposed.get(name):
                return base
    return None


def _own_procedures(cls: type) -> dict[str, Any] | None:
    """The procedures that `cls` defines or inherits, if they are whole and fit it."""
    definers = {
        name: base
        for name in (UNFLATTEN, FLATTEN_WITH_KEYS, FLATTEN)
        if (base := _definer(cls, name)) is not None
    }
    if not definers:
        return None
    missing = []
    if UNFLATTEN not in definers:
        missing.append(UNFLATTEN)
    if FLATTEN not in definers and FLATTEN_WITH_KEYS not in definers:
        missing.append(f"{FLATTEN_WITH_KEYS} (or {FLATTEN})")
    if missing:
        _warn(
            f"{cls.__qualname__} defines {' and '.join(definers)}, but not "
            f"{' and '.join(missing)}. The automatic kernels are used. Define what is "
            f"missing, or nothing."
        )
        return None
    for name, definer in definers.items():
        _check_procedure(cls, name, vars(definer)[name])
    added = _added_fields(cls, tuple(definers.values()))
    if added:
        _warn(
            f"{cls.__qualname__} adds the fields {', '.join(added)} to a class with "
            f"flatten procedures of its own, which may not know of them. The automatic "
            f"kernels are used. If the procedures do carry these fields, say so by "
            f"defining them again in {cls.__qualname__}."
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
    bound = isinstance(raw, (classmethod, staticmethod))
    if not callable(raw) and not bound:
        raise TypeError(
            f"{cls.__qualname__}.{name} is a {type(raw).__name__}, which cannot be called. "
            f"Define it as "
            f"{'a staticmethod of (aux, children)' if name == UNFLATTEN else 'a method'}."
        )
    if name == UNFLATTEN and isinstance(raw, FunctionType):
        names = list(inspect.signature(raw).parameters)
        if len(names) != 2:
            raise TypeError(
                f"{cls.__qualname__}.{name} takes ({', '.join(names)}) and is neither a "
                f"classmethod nor a staticmethod. Write it as @classmethod of "
                f"(cls, aux, children), or as @staticmethod of (aux, children)."
            )


def _added_fields(cls: type, definers: tuple[type, ...]) -> list[str]:
    """The fields of `cls` that the procedures were not written for.

    They were written for the oldest Module class that has them all.
    """
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base) and all(
            issubclass(base, definer) for definer in definers
        ):
            known = {field.name for field in dataclasses.fields(base)}
            return [f.name for f in dataclasses.fields(cls) if f.name not in known]
    return []


def _register_own(cls: type, own: dict[str, Any]) -> None:
    unflatten, flatten = own[UNFLATTEN], own.get(FLATTEN)
    if FLATTEN_WITH_KEYS in own:
        jtu.register_pytree_with_keys(cls, own[FLATTEN_WITH_KEYS], unflatten, flatten)
    else:
        assert flatten is not None
        jtu.register_pytree_node(cls, flatten, unflatten)
    fields = dataclasses.fields(cls)
    nodes[cls] = Node(
        registered_by="its own procedures",
        kernel="",
        rule=f"{cls.__qualname__} defines {', '.join(own)}",
        dynamic=tuple([f.name for f in fields if not f.metadata.get("static", False)]),
        static=tuple([f.name for f in fields if f.metadata.get("static", False)]),
        source=_source_of(own),
    )


def _source_of(own: dict[str, Any]) -> str:
    texts = []
    for name, function in own.items():
        try:
            texts.append(inspect.cleandoc("\n" + inspect.getsource(function)))
        except (OSError, TypeError):
            texts.append(f"# the source of {name} cannot be found: {function!r}")
    return "\n\n".join(texts)


def _warn(message: str) -> None:
    # The class statement, seen from here: _own_procedures, _register, the metaclass.
    warnings.warn(f"treepress: {message}", UserWarning, stacklevel=5)


_caught: list[dict[str, Any]] = []


def _install() -> _equinox.Known | str:
    """Put the hook where Equinox registers, if all is as we know it."""
    known = _equinox.know()
    if isinstance(known, str):
        return known
    reason = _equinox.hook(_register)
    if reason:
        return reason
    probe = _equinox.make_probe()
    if not _caught:
        reason = "it registers its classes in another way than it used to"
    else:
        reason = _equinox.differs(known, probe, _caught[0])
    _caught.clear()
    if reason:
        _equinox.unhook()
        return reason
    return known


_known: Final = _install()
if isinstance(_known, str):
    warnings.warn(
        f"treepress: Equinox {eqx.__version__} with JAX {jax.__version__} is not as "
        f"treepress knows it ({_known}). Classes with FlatMixin are registered by Equinox "
        f"itself: correct, and no faster than without it. Another version of treepress "
        f"or of Equinox may help.",
        RuntimeWarning,
        stacklevel=2,
    )


class Module(FlatMixin, eqx.Module):
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
