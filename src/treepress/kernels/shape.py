"""Shapes: what two trees have in common if the paths to their leaves are the same.

A shape is a tuple that lists the nodes of a tree from the root down, each as its `Kind`
followed by what an instance adds to that (the length of a list, keys of a dict), and the
leaves between two nodes as their number. Two shapes are equal just if the paths are.

What else a node needs to be put together again stands in a second list, `aux`.
"""

from typing import Any, Final

# What a node is.
LEAF: Final = 0
NONE: Final = 1
TUPLE: Final = 2
LIST: Final = 3
DICT: Final = 4
NAMED: Final = 5
# Taken apart by a kernel of ours: a Module or a dataclass.
NODE: Final = 6
# Anything else that is registered with JAX, which takes it apart.
CUSTOM: Final = 7
# In a shape, a dict whose keys are strings that are remembered, as the names of its kind;
# any other is a DICT, its keys in the shape and in aux.
KEYED: Final = 8


class Kind:
    """A type of node. There is one for each type, so that shapes compare by identity.

    Dicts with the same strings for keys are a type of their own.
    """

    def __init__(
        self, code: int, cls: Any, names: tuple[str, ...], flatten: Any, unflatten: Any
    ) -> None:
        self.code: Final = code
        self.cls: Final = cls
        # Of the children, where the type decides them.
        self.names: Final = names
        self.count: Final = len(names)
        self.flatten: Final = flatten
        self.unflatten: Final = unflatten


def paths(shape: tuple[Any, ...], simple: bool, separator: str) -> list[str]:
    """The path to each leaf, as `jax.tree_util.keystr` writes it.

    Of a shape that ends too soon, the last is the path to where it ends.
    """
    found: list[str] = []
    # Paths to what comes next, the very next one last; and whether it is the root.
    todo: list[str] = [""]
    root = True
    at = 0
    run = 0
    while todo:
        prefix = todo.pop()
        if run == 0:
            if at == len(shape):
                found.append(prefix)
                return found
            item = shape[at]
            at += 1
            if isinstance(item, Kind):
                kind: Kind = item
                if kind.code == NONE:
                    continue
                keys: list[str] = []
                if kind.code == NODE or kind.code == NAMED:
                    for name in kind.names:
                        keys.append(name if simple else "." + name)
                elif kind.code == KEYED:
                    for name in kind.names:
                        keys.append(name if simple else f"[{name!r}]")
                if kind.code != NODE and kind.code != KEYED:
                    if at == len(shape):
                        found.append(prefix)
                        return found
                    added = shape[at]
                    at += 1
                    if kind.code == LIST or kind.code == TUPLE:
                        count: int = added
                        for i in range(count):
                            keys.append(str(i) if simple else f"[{i}]")
                    elif kind.code != NAMED:
                        # Pairs of a key in full and the simple form of it.
                        pairs: tuple[tuple[str, str], ...] = added
                        for pair in pairs:
                            keys.append(pair[1] if simple else pair[0])
                start = prefix if root else prefix + separator
                root = False
                keys.reverse()
                for text in keys:
                    todo.append(start + text)
                continue
            length: int = item
            run = length
        root = False
        run -= 1
        found.append(prefix)
    return found


def is_builtin(shape: tuple[Any, ...]) -> bool:
    """Whether a tree of this shape consists of containers that JAX itself builds fastest.

    Its treedef follows from the shape then.
    """
    for item in shape:
        if isinstance(item, Kind):
            code = item.code
            if code == NODE or code == CUSTOM or code == NAMED or code == DICT:
                return False
    return True
