"""A kernel that takes a whole tree apart in one call.

JAX flattens a tree by calling back for each node. A walk that stays in compiled code from
the root to the leaves is several times faster, and gives more: beside the leaves, who owns
each (the filter that its oldest ancestor satisfied), and the shape of the tree.
"""

from typing import Any, Final

from .shape import CUSTOM, DICT, LEAF, LIST, NAMED, NODE, TUPLE, Kind

# Who owns a leaf: the number of a filter, nobody yet, or the instance has to be asked.
NOBODY: Final = -1
ASK: Final = -2


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
        # The number of the filter that raised an error, or what else was asked.
        self.asked = NOBODY

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
            self.asked = ASK
            answer = self.is_leaf(obj)
            if answer is not False and self.as_bool(answer, -1):
                stop = True
            self.asked = NOBODY
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
        try:
            for test in self.tests:
                result = test(obj)
                if result is True or (result is not False and self.as_bool(result, i)):
                    return i
                i += 1
        except BaseException:
            self.asked = i
            raise
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
