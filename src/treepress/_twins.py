"""The same tree of other classes: what a node is compared with that cannot be both at once."""

import dataclasses
import types
from types import FunctionType
from typing import Any, Final

import equinox as eqx
import jax.tree_util as jtu

from ._swap import registry

_ABSENT: Final = object()


def is_jax_dataclass(cls: type) -> bool:
    # JAX tells of it nowhere; if not there, the class is shown in a column of its own.
    entry = registry().get(cls)
    name = getattr(getattr(entry, "to_iter", None), "__qualname__", "")
    return "register_dataclass" in name


Split = tuple[list[str], list[str], list[str]]


def fields_of(instance: Any) -> Split | None:
    """The data, meta and dropped fields of a node whose children are fields."""
    cls = type(instance)
    if not dataclasses.is_dataclass(cls):
        return None
    names = [field.name for field in dataclasses.fields(cls)]
    children: Any
    treedef: Any
    children, treedef = jtu.tree_flatten_with_path(
        instance, is_leaf=lambda x: x is not instance
    )
    data = []
    for (key,), child in children:
        name = getattr(key, "name", None)
        if name not in names or getattr(instance, name, _ABSENT) is not child:
            return None
        data.append(name)
    node = treedef.node_data()
    aux = node[1] if node is not None and isinstance(node[1], tuple) else ()
    rest = [name for name in names if name not in data]
    meta = [n for n in rest if any(getattr(instance, n, _ABSENT) is x for x in aux)]
    return data, meta, [name for name in rest if name not in meta]


def of_equinox(cls: Any) -> Any:
    """A Module class of the same fields, without FlatMixin."""
    fields = dataclasses.fields(cls)
    body: dict[str, Any] = {"__annotations__": {f.name: Any for f in fields}}
    for field in fields:
        body[field.name] = eqx.field(static=field.metadata.get("static", False))
    return types.new_class(
        cls.__name__, (eqx.Module,), {}, lambda space: space.update(body)
    )


def of_jax(cls: Any, methods: dict[str, FunctionType]) -> Any:
    """An equal dataclass that JAX knows."""
    fields = dataclasses.fields(cls)
    twin = dataclasses.make_dataclass(
        cls.__name__,
        [(f.name, Any, dataclasses.field(metadata=dict(f.metadata))) for f in fields],
        frozen=True,
        eq=False,
        namespace=dict(methods),
    )
    return jtu.register_dataclass(twin)


def rebuilt(tree: Any, twins: dict[type, Any]) -> Any:
    """The tree with the nodes of some classes as instances of their twins."""
    below = _below(tree)
    if below is None:
        return tree
    children, treedef = below
    changed = [rebuilt(child, twins) for child in children]
    if any(new is not old for new, old in zip(changed, children)):
        tree = treedef.unflatten(changed)
    twin = twins.get(type(tree))
    if twin is None:
        return tree
    made = object.__new__(twin)
    for field in dataclasses.fields(twin):
        object.__setattr__(made, field.name, getattr(tree, field.name))
    return made


def classes_in(tree: Any) -> dict[type, int]:
    """How many nodes of each class a tree has."""
    found: dict[type, int] = {}
    todo = [tree]
    while todo:
        node = todo.pop()
        below = _below(node)
        if below is not None:
            found[type(node)] = found.get(type(node), 0) + 1
            todo += below[0]
    return found


def _below(tree: Any) -> Any:
    """The children of a node and its treedef, or None of a leaf."""
    treedef: Any
    children, treedef = jtu.tree_flatten(tree, is_leaf=lambda x: x is not tree)
    # A node without children is no leaf.
    leaf = jtu.treedef_is_leaf(treedef) and treedef.num_leaves == 1
    return None if leaf else (children, treedef)
