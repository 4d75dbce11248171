"""`describe`: how a class is flattened, and why so."""

import dataclasses
import textwrap
import typing
from types import ModuleType
from typing import Any

import equinox as eqx
import jax.tree_util as jtu

from . import _backend, _fit, module
from ._node import Node, names_of, nodes
from ._swap import registry


@dataclasses.dataclass(frozen=True, repr=False)
class Description:
    """What `describe` returns; printing it gives all of it as text.

    Attributes:
        cls: the class described.
        registered_by: `"treepress"`, `"treepress.register_dataclass"`, `"its own
            procedures"`, `"equinox"`, `"jax"`, `"jax or another library"` or `"nobody"`.
        accelerated: whether kernels of ours flatten it.
        how: what had them put in: `"FlatMixin"`, `"register_dataclass"`, `"accelerate"` or
            `"install"`; empty if it is not accelerated.
        backend: `"compiled"` or `"python"`.
        kernel: the kernel's name, empty if there is none.
        rule: why this kernel.
        dynamic: the names of the children's fields, in order.
        static: the names of the fields in aux, in order.
        reason: why it is not accelerated, empty if it is.
        hot: whether its attributes are read and its methods bound as fast as those of a
            plain class.
        why_not_hot: why they are not, empty if they are.
        constructed: whether a kernel constructs its instances.
        why_not_constructed: why it does not, empty if it does.
        source: Python text that does what its flatten and unflatten do.
    """

    cls: type
    registered_by: str
    accelerated: bool
    how: str
    backend: str
    kernel: str
    rule: str
    dynamic: tuple[str, ...]
    static: tuple[str, ...]
    reason: str
    hot: bool
    why_not_hot: str
    constructed: bool
    why_not_constructed: str
    source: str

    def __str__(self) -> str:
        rows = {
            "registered by": self.registered_by,
            "accelerated": f"yes, by {self.how}"
            if self.accelerated
            else f"no: {self.reason}",
            "backend": self.backend,
            "kernel": f"{self.kernel}, since: {self.rule}",
            "procedures": self.rule,
            "dynamic": ", ".join(self.dynamic) or "no field",
            "static": ", ".join(self.static) or "no field",
            "attributes": _fast(self.why_not_hot),
            "methods": _fast(self.why_not_hot),
            "construction": _fast(self.why_not_constructed),
        }
        del rows["procedures" if self.kernel else "kernel"]
        if not self.rule:
            del rows["procedures"]
        lines = [f"{self.cls.__module__}.{self.cls.__qualname__}"]
        lines += [f"  {name + ':':<15}{value}" for name, value in rows.items()]
        if self.source:
            lines += ["  source:", textwrap.indent(self.source.rstrip(), "    ")]
        return "\n".join(lines)

    __repr__ = __str__


def describe(cls_or_instance: Any) -> Description:
    """Tell how a class is flattened and unflattened, and why so.

    Arguments:
        cls_or_instance: any class, or an instance of it.

    Returns:
        A `Description`, which prints well.

    Raises:
        TypeError: for a Python module.

    Cost: some microseconds; nothing is flattened.

    Example:
        >>> import equinox as eqx, jax, treepress
        >>> class Quantity(treepress.Module):
        ...     value: jax.Array
        ...     unit: str = eqx.field(static=True)
        >>> about = treepress.describe(Quantity)
        >>> about.registered_by, about.dynamic, about.static
        ('treepress', ('value',), ('unit',))
        >>> treepress.describe(eqx.nn.Linear).registered_by
        'equinox'
    """
    # `Quantity[int]` stands for the class that it is made of.
    cls = typing.get_origin(cls_or_instance) or cls_or_instance
    if isinstance(cls, ModuleType):
        raise TypeError(
            f"describe takes a class or an instance; got the module {cls.__name__}. Give one "
            f"of its classes (treepress.accelerated() lists those that are accelerated)"
        )
    if not isinstance(cls, type):
        cls = type(cls)
    try:
        node = nodes.get(cls)
    except TypeError:  # a class that cannot be hashed, so none of ours
        node = None
    if node is None:
        node = _foreign(cls)
    reason = node.reason
    if not reason and node.functions is None:
        reason = "it brings its own procedures, which are used as they are"
    why_not_constructed = _fit.why_not_constructed(cls)
    return Description(
        cls=cls,
        registered_by=node.registered_by,
        accelerated=node.functions is not None,
        how=node.how if node.functions is not None else "",
        backend=_backend.backend,
        kernel=node.kernel,
        rule=node.rule,
        dynamic=node.dynamic,
        static=node.static,
        reason=reason,
        hot=_fit.is_hot(cls),
        why_not_hot=_fit.why_not(cls),
        constructed=not why_not_constructed,
        why_not_constructed=why_not_constructed,
        source=node.source,
    )


def _fast(why_not: str) -> str:
    return f"as without treepress: {why_not}" if why_not else "fast"


def _foreign(cls: type) -> Node:
    """A class that did not pass through treepress."""
    if issubclass(cls, eqx.Module):
        if issubclass(cls, module.FlatMixin):
            reason = f"treepress does not see Equinox's classes being made ({module.known})"
        else:
            reason = (
                "treepress.FlatMixin is not among its bases, and neither accelerate nor "
                "install was asked for it, or deaccelerate took it back"
            )
            above = [
                base
                for base in cls.__mro__[1:]
                if base is not eqx.Module and base in nodes and nodes[base].functions
            ]
            if above:
                name = above[0].__qualname__
                reason += (
                    f"; its base {name} is accelerated: accelerate({name}, subclasses=True) "
                    f"takes what is below it too"
                )
        return Node("equinox", *names_of(dataclasses.fields(cls)), reason=reason)
    if cls in (tuple, list, dict, type(None)) or _is_named_tuple(cls):
        return Node("jax", reason="it is flattened by JAX in C++")
    if cls.__module__.partition(".")[0] == __name__.partition(".")[0] and is_node(cls):
        return Node(
            "treepress", reason="it is one of treepress's own, with functions of its own"
        )
    if is_node(cls):
        return Node(
            "jax or another library",
            reason="it is no equinox.Module, and was registered without treepress",
        )
    reason = "it is no pytree node"
    if issubclass(cls, module.FlatMixin):
        reason += ": FlatMixin works on subclasses of equinox.Module alone"
    elif dataclasses.is_dataclass(cls):
        reason += "; treepress.register_dataclass makes it one"
    return Node("nobody", reason=reason)


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_node(cls: type) -> bool:
    """Whether JAX takes instances of `cls` for nodes."""
    is_node = getattr(jtu.default_registry, "is_node", None)
    if is_node is not None:
        return bool(is_node(cls))
    # Older JAX tells of instances alone.
    return cls in registry() or _is_named_tuple(cls)
