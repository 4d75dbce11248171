"""A kernel that puts a whole tree together in one call."""

from typing import Any, Final

from .shape import CUSTOM, DICT, KEYED, LIST, NAMED, NODE, NONE, TUPLE, Kind


class Frame:
    """A node that is being put together."""

    def __init__(self, kind: Kind, aux: Any, count: int) -> None:
        self.kind: Final = kind
        self.aux: Final = aux
        self.count: Final = count
        self.children: list[Any] = []


def build(shape: tuple[Any, ...], aux: tuple[Any, ...], given: list[Any]) -> Any:
    """Put a tree together from its shape, aux and leaves."""
    # Most nodes want a tuple of their children, and a slice of a tuple is one.
    leaves = tuple(given)
    # Not recursive, so that what could be taken apart can be put together.
    stack: list[Frame] = []
    value: Any = None
    at = 0
    at_aux = 0
    at_leaf = 0
    # Leaves that come before the next node.
    run = 0
    while True:
        if run == 0 and not isinstance(shape[at], Kind):
            length: int = shape[at]
            run = length
            at += 1
        if run:
            if not stack:
                return leaves[0]
            top = stack[len(stack) - 1]
            # Incomplete, or it would not be there.
            wanted = top.count - len(top.children)
            taken = run if run < wanted else wanted
            top.children.extend(leaves[at_leaf : at_leaf + taken])
            at_leaf += taken
            run -= taken
            if taken < wanted:
                continue
        else:
            kind: Kind = shape[at]
            at += 1
            code = kind.code
            own: Any = None
            count = 0
            if code == NODE or code == KEYED:
                count = kind.count
            elif code != NONE:
                added: Any = shape[at]
                at += 1
                if code == LIST or code == TUPLE or code == NAMED:
                    count = added
                elif code == CUSTOM:
                    count = len(added)
            if code == NODE or code == DICT or code == CUSTOM:
                own = aux[at_aux]
                at_aux += 1
                if code == DICT:
                    count = len(own)
            ready = count == 0
            if count and at < len(shape) and not isinstance(shape[at], Kind):
                following: int = shape[at]
                if following >= count:
                    # All children are leaves: no need to wait for them.
                    at += 1
                    run = following - count
                    ready = True
            if not ready:
                stack.append(Frame(kind, own, count))
                continue
            value = made(kind, own, leaves[at_leaf : at_leaf + count])
            at_leaf += count
            if not stack:
                return value
            top = stack[len(stack) - 1]
            top.children.append(value)
            if len(top.children) < top.count:
                continue
        if rise(stack):
            return stack.pop().children[0]


def rise(stack: list[Frame]) -> bool:
    """Finish the nodes that are complete.

    Whether that was all; the tree is then the only child of the only frame left.
    """
    while True:
        frame = stack.pop()
        value = made(frame.kind, frame.aux, tuple(frame.children))
        if not stack:
            frame.children = [value]
            stack.append(frame)
            return True
        frame = stack[len(stack) - 1]
        frame.children.append(value)
        if len(frame.children) < frame.count:
            return False


def made(kind: Kind, aux: Any, children: tuple[Any, ...]) -> Any:
    """A node of this kind."""
    code = kind.code
    if code == NODE:
        return kind.unflatten(aux, children)
    if code == LIST:
        return list(children)
    if code == TUPLE:
        return children
    if code == KEYED or code == DICT:
        keys: tuple[Any, ...] = kind.names if code == KEYED else aux
        mapping: dict[Any, Any] = {}
        for key, child in zip(keys, children):
            mapping[key] = child
        return mapping
    if code == NAMED:
        return kind.cls(*children)
    if code == NONE:
        return None
    return aux.unflatten(children)
