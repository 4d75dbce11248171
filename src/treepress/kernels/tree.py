"""Kernels that take a whole tree apart in one call, and put it back.

JAX flattens a tree by calling back for each node. A walk that stays in compiled code from
the root to the leaves is several times faster, and gives more: beside the leaves, who owns
each (the filter that its oldest ancestor satisfied), and the *shape* of the tree, a tuple
that is equal for two trees just if the paths to their leaves are.

A shape lists the nodes from the root down, each as its `Kind` followed by what an instance
adds to that (the length of a list, keys of a dict), and the leaves between two nodes as
their number. What else a node needs to be put together again stands in a second list, `aux`.
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

# Who owns a leaf: the number of a filter, nobody yet, or the instance has to be asked.
NOBODY: Final = -1
ASK: Final = -2


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


class Entry:
    """What a walk does at objects of one type, for one choice of filters."""

    def __init__(self, kind: Kind, owner: int, call: int) -> None:
        self.kind: Final = kind
        self.code: Final = kind.code
        self.flatten: Final = kind.flatten
        self.owner: Final = owner
        # A type without a registration may get one. So for such a type, but those of which
        # we know better, it is looked up again in each call; this is the last of them.
        self.call = call


class Order:
    """An order in which the keys of dicts of one kind were inserted."""

    def __init__(self, given: tuple[Any, ...], kind: Kind) -> None:
        self.given: Final = given
        self.kind: Final = kind
        places: dict[Any, int] = {}
        for key in given:
            places[key] = len(places)
        # Where in `given` the sorted keys are; nothing if that is sorted.
        self.places: Final[tuple[int, ...]] = (
            () if given == kind.names else tuple([places[key] for key in kind.names])
        )


class Walk:
    """One walk over one tree."""

    def __init__(
        self,
        entries: dict[Any, Entry],
        enter: Any,
        orders: dict[Any, Order],
        order: Any,
        tests: tuple[Any, ...],
        as_bool: Any,
        is_leaf: Any,
        limit: int,
        call: int,
        track: bool,
    ) -> None:
        self.entries: Final = entries
        self.enter: Final = enter
        self.orders: Final = orders
        self.order: Final = order
        self.tests: Final = tests
        self.as_bool: Final = as_bool
        self.is_leaf: Final = is_leaf
        self.limit: Final = limit
        self.call: Final = call
        self.leaves: list[Any] = []
        self.owners: list[int] = []
        self.shape: list[Any] = []
        self.aux: list[Any] = []
        # Leaves since the last node.
        self.run = 0
        # If asked for: how deep each leaf lies, and how deep each that has an owner got it.
        self.track: Final = track
        self.depths: list[int] = []
        self.decided: list[int] = []
        self.decided_at = 0

    def over(self, tree: object) -> tuple[Any, ...]:
        """Walk over `tree`; returns its shape."""
        self.visit(tree, NOBODY, 0)
        if self.run:
            self.shape.append(self.run)
            self.run = 0
        return tuple(self.shape)

    def visit(self, obj: object, owner: int, depth: int) -> None:
        entry = self.entries.get(type(obj))
        if entry is None or (entry.call >= 0 and entry.call != self.call):
            fresh: Entry = self.enter(obj, self.call)
            entry = fresh
        if owner < 0:
            owner = entry.owner
            if owner == ASK:
                owner = self.ask(obj)
            self.decided_at = depth
        stop = entry.code == LEAF
        if self.is_leaf is not None:
            # Of leaves too, as JAX does.
            answer = self.is_leaf(obj)
            if answer is not False and self.as_bool(answer, -1):
                stop = True
        if not stop:
            self.descend(obj, entry, owner, depth)
            return
        self.leaves.append(obj)
        self.owners.append(owner)
        self.run += 1
        if self.track:
            self.depths.append(depth)
            self.decided.append(self.decided_at)

    def descend(self, obj: object, entry: Entry, owner: int, depth: int) -> None:
        """Visit the children of a node."""
        # Compiled code that recurses would overflow the stack and crash the process.
        if depth >= self.limit:
            raise RecursionError
        if self.run:
            self.shape.append(self.run)
            self.run = 0
        depth += 1
        code = entry.code
        if code == DICT:
            mapping: dict[Any, Any] = obj  # type: ignore[assignment]
            self.visit_all(self.values(mapping, entry.kind), owner, depth)
            return
        self.shape.append(entry.kind)
        if code == NODE:
            pair: tuple[Any, Any] = entry.flatten(obj)
            self.aux.append(pair[1])
            self.visit_all(pair[0], owner, depth)
        elif code == LIST:
            items: list[Any] = obj  # type: ignore[assignment]
            # A copy: the length in the shape must be that of what is visited.
            members = tuple(items)
            self.shape.append(len(members))
            self.visit_all(members, owner, depth)
        elif code == TUPLE or code == NAMED:
            fixed: tuple[Any, ...] = obj  # type: ignore[assignment]
            self.shape.append(len(fixed))
            self.visit_all(fixed, owner, depth)
        elif code == CUSTOM:
            triple: tuple[Any, Any, Any] = entry.flatten(obj)
            self.shape.append(triple[1])
            self.aux.append(triple[2])
            self.visit_all(triple[0], owner, depth)

    def visit_all(self, children: tuple[Any, ...], owner: int, depth: int) -> None:
        if self.track or self.is_leaf is not None:
            for child in children:
                self.visit(child, owner, depth)
            return
        # What `visit` does, without the call.
        entries = self.entries
        leaves = self.leaves
        owners = self.owners
        for child in children:
            entry = entries.get(type(child))
            if entry is None or entry.call >= 0:
                self.visit(child, owner, depth)
                continue
            own = owner
            if own < 0:
                own = entry.owner
                if own == ASK:
                    own = self.ask(child)
            if entry.code == LEAF:
                leaves.append(child)
                owners.append(own)
                self.run += 1
            else:
                self.descend(child, entry, own, depth)

    def ask(self, obj: object) -> int:
        """The first filter that `obj` satisfies."""
        i = 0
        for test in self.tests:
            result = test(obj)
            if result is True or (result is not False and self.as_bool(result, i)):
                return i
            i += 1
        return NOBODY

    def values(self, mapping: dict[Any, Any], odd: Kind) -> tuple[Any, ...]:
        """The values of a dict in the order of the sorted keys, as JAX has them."""
        values = list(mapping.values())
        # Mostly the keys are the very strings of a dict before that had the same first key.
        # Nothing else can run from here to the end of the loop.
        order: Order | None = None
        i = 0
        for key in mapping:
            if order is None:
                # By type, since a key may be equal to a string and have another path.
                if type(key) is not str:
                    break
                order = self.orders.get(key)
                if order is None or len(order.given) != len(values):
                    break
            if key is not order.given[i]:
                break
            i += 1
        if order is None or i < len(values):
            return self.look_up(mapping, odd)
        self.shape.append(order.kind)
        places = order.places
        return tuple([values[place] for place in places]) if places else tuple(values)

    def look_up(self, mapping: dict[Any, Any], odd: Kind) -> tuple[Any, ...]:
        """The same for a dict of which nothing is known."""
        given: tuple[Any, ...] = tuple(mapping)
        order: Order | None = None
        plain = True
        for key in given:
            if type(key) is not str:
                plain = False
                break
        if plain:
            order = self.orders.get(given)
        keys: tuple[Any, ...] = ()
        if order is None:
            found = self.order(given, plain)
            if isinstance(found, Order):
                order = found
            else:
                # The sorted keys, and what stands for them in the shape.
                pair: tuple[Any, Any] = found
                keys = pair[0]
                self.shape.append(odd)
                self.shape.append(pair[1])
                self.aux.append(keys)
        if order is not None:
            keys = order.kind.names
            self.shape.append(order.kind)
            if given:
                self.orders[given[0]] = order
        values: list[Any] = []
        for key in keys:
            values.append(mapping[key])
        return tuple(values)


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


def split(
    names: tuple[str, ...], leaves: list[Any], owners: list[int], parts: list[Any]
) -> None:
    """Put each leaf by its path into the mapping of its owner, the last for no owner."""
    last = parts[len(parts) - 1]
    for name, leaf, owner in zip(names, leaves, owners):
        if owner < 0:
            last[name] = leaf
        else:
            parts[owner][name] = leaf


def gather(
    index: dict[str, int], known: dict[Any, Any], mappings: tuple[Any, ...], blank: object
) -> Any:
    """The leaves in order, or None where the mappings do not hold each path just once.

    `known` remembers, by the first of them, keys that came before, and where they belong.
    """
    count = 0
    for mapping in mappings:
        count += len(mapping)
    if count != len(index):
        return None
    leaves: list[Any] = [blank] * count
    for mapping in mappings:
        keys = tuple(mapping)
        if isinstance(mapping, dict):
            values = tuple(mapping.values())
        else:
            # By `append`, as in `node.attributes`.
            got: list[Any] = []
            for key in keys:
                got.append(mapping[key])
            values = tuple(got)
        if len(keys) != len(values):
            return None
        places: list[Any] = []
        same: Any = known.get(keys[0]) if keys else None
        if same is not None and same[0] == keys:
            places = same[1]
        else:
            for key in keys:
                place = index.get(key)
                if place is None:
                    return None
                places.append(place)
            if keys:
                # Enough for two choices of what goes where.
                if len(known) >= 2 * len(mappings):
                    known.clear()
                known[keys[0]] = (keys, places)
        for i, value in zip(places, values):
            at: int = i
            if leaves[at] is not blank:
                return None
            leaves[at] = value
    return leaves


class PartitionFlatten:
    """`flatten(partition) -> (leaves, names)`."""

    def __init__(self, intern: Any) -> None:
        self.intern: Final = intern

    def __call__(self, partition: Any) -> tuple[object, object]:
        # The keys are looked at each time, since a dict can be edited without its class
        # being told. By identity: a key may be equal to another and not the same, as 1 and
        # True. The leaves are handed out as they are in the dict: JAX iterates over them
        # once.
        try:
            pair: tuple[tuple[Any, ...], Any] = partition._known
            known = pair[0]
            if len(known) == len(partition):
                i = 0
                for key in partition:
                    if key is not known[i]:
                        break
                    i += 1
                if i == len(known):
                    return partition.values(), pair[1]
        except AttributeError:
            pass
        seen = tuple(partition)
        names = self.intern(seen)
        partition._known = (seen, names)
        return partition.values(), names


class PartitionUnflatten:
    """`unflatten(names, leaves) -> partition`."""

    def __init__(self, cls: Any) -> None:
        self.cls: Final = cls

    def __call__(self, names: Any, leaves: Any) -> object:
        keys: tuple[Any, ...] = names.keys
        partition = self.cls()
        i = 0
        for leaf in leaves:
            partition[keys[i]] = leaf
            i += 1
        partition._known = (keys, names)
        return partition
