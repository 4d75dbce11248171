"""Patterns: the structure of a tree, to be held against the next tree, and to make trees.

A structure that was seen before is not worth describing again. So a pattern does not: it
goes through a tree, looks whether each node is what it was, and collects the arrays on its
way. It ends at the first difference. With arrays it makes a tree of that structure.

Static values are told apart by type and equality: 1, 1.0 and True are three values, and so
are 0.0 and -0.0, inside of tuples too.
"""

from typing import Any, Final

from .shape import DICT, LEAF, LIST, NAMED, NODE, NONE, TUPLE, Kind

# What a pattern is, where it is no node.
ARRAY: Final = 1
STATIC: Final = 2
OTHER: Final = 0

# Of these types the value is all there is, and never changes.
PLAIN: Final = frozenset([bool, int, float, complex, str, bytes, type(None)])
# Of these, equality of two is all there is to ask.
SIMPLE: Final = frozenset([bool, int, str, bytes])

# Static values that are nested deeper are compared by `==` alone.
DEEP: Final = 100


# Not of type `object`: what two of those are compared by mypyc takes to be a bool, and raises
# an error for what is not, as for NumPy's.
def alike(a: Any, b: Any, depth: int) -> bool:
    """Whether two static values are the same: by identity, or by type and equality."""
    if a is b:
        return True
    cls = type(a)
    if cls is not type(b):
        return False
    if cls in SIMPLE or depth > DEEP:
        return bool(a == b)
    if cls is tuple or cls is list:
        # Copies, since what is compared may be changed by what compares.
        ones = tuple(a)
        others = tuple(b)
        if len(ones) != len(others):
            return False
        for one, other in zip(ones, others):  # noqa: SIM110
            if not alike(one, other, depth + 1):
                return False
        return True
    if cls is float or cls is complex:
        return bool(a == b) and repr(a) == repr(b)
    if cls is dict:
        return alike_dicts(a, b, depth)
    if cls is set or cls is frozenset:
        return alike_dicts(dict.fromkeys(a), dict.fromkeys(b), depth)
    return bool(a == b)


def alike_dicts(a: Any, b: Any, depth: int) -> bool:
    if len(a) != len(b):
        return False
    keys: dict[Any, Any] = {}
    for key in list(b):
        keys[key] = key
    for key in list(a):
        if key not in keys or not alike(key, keys[key], depth + 1):
            return False
        if not alike(a[key], b[key], depth + 1):
            return False
    return True


class Source:
    """Arrays that a tree is made with, in order."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items: Final = items
        self.at = 0


class Pattern:
    """What one node or leaf has to be."""

    def __init__(self, code: int, cls: Any) -> None:
        self.code: Final = code
        self.cls: Final = cls

    def __repr__(self) -> str:
        # As the key of what a jitted function returns, it is in what JAX says of that.
        return "the result"

    def match(self, obj: object, found: list[Any]) -> bool:
        """Whether `obj` is of this structure; its arrays are added to `found`."""
        raise NotImplementedError

    def make(self, source: Source) -> object:
        """A tree of this structure."""
        raise NotImplementedError


class Array(Pattern):
    """An array, of this type or of any other."""

    def __init__(self, cls: Any, is_array: Any) -> None:
        super().__init__(ARRAY, cls)
        self.is_array: Final = is_array

    def match(self, obj: object, found: list[Any]) -> bool:
        if type(obj) is self.cls or self.is_array(obj):
            found.append(obj)
            return True
        return False

    def make(self, source: Source) -> object:
        at = source.at
        source.at = at + 1
        return source.items[at]


class Static(Pattern):
    """A leaf that is no array."""

    def __init__(self, value: object, same: Any) -> None:
        super().__init__(STATIC, type(value))
        self.value: Final = value
        # None for types of which identity or `alike` decides. For all others it asks what
        # else it takes.
        self.same: Final = same

    def match(self, obj: object, found: list[Any]) -> bool:
        if self.same is not None:
            return type(obj) is self.cls and bool(self.same(obj, self.value))
        return obj is self.value or alike(obj, self.value, 0)

    def make(self, source: Source) -> object:
        return self.value


class Nothing(Pattern):
    """None, which is a node without children."""

    def __init__(self) -> None:
        super().__init__(OTHER, type(None))

    def match(self, obj: object, found: list[Any]) -> bool:
        return obj is None

    def make(self, source: Source) -> object:
        return None


class Parent(Pattern):
    """A node with children."""

    def __init__(self, cls: Any, children: tuple[Pattern, ...]) -> None:
        super().__init__(OTHER, cls)
        self.children: Final = children
        self.count: Final = len(children)
        flat = True
        for child in children:
            if child.code != ARRAY:
                flat = False
        self.flat: Final = flat

    def match_all(self, children: tuple[Any, ...], found: list[Any]) -> bool:
        for child, pattern in zip(children, self.children):
            # The most common leaf, without a call.
            if pattern.code == ARRAY and type(child) is pattern.cls:
                found.append(child)
            elif not pattern.match(child, found):
                return False
        return True

    def make_all(self, source: Source) -> tuple[Any, ...]:
        if self.flat:
            at = source.at
            source.at = at + self.count
            return source.items[at : at + self.count]
        made: list[Any] = []
        for pattern in self.children:
            if pattern.code == ARRAY:
                at = source.at
                source.at = at + 1
                made.append(source.items[at])
            else:
                made.append(pattern.make(source))
        return tuple(made)


class Sequence(Parent):
    """A tuple, a list or a named tuple."""

    def __init__(self, code: int, cls: Any, children: tuple[Pattern, ...]) -> None:
        super().__init__(cls, children)
        self.sort: Final = code

    def match(self, obj: object, found: list[Any]) -> bool:
        if type(obj) is not self.cls:
            return False
        items: Any = obj
        # Of a list a copy; of what derives from tuple, what JAX takes for its children.
        members = tuple(items)
        return len(members) == self.count and self.match_all(members, found)

    def make(self, source: Source) -> object:
        children = self.make_all(source)
        if self.sort == TUPLE:
            return children
        if self.sort == LIST:
            return list(children)
        return self.cls(*children)


class Dict(Parent):
    """A dict with these keys, which are sorted."""

    def __init__(self, keys: tuple[Any, ...], children: tuple[Pattern, ...]) -> None:
        super().__init__(dict, children)
        self.keys: Final = keys
        self.types: Final[dict[Any, Any]] = {}
        plain = True
        for key in keys:
            self.types[key] = key
            if type(key) is not str:
                plain = False
        self.plain: Final = plain

    def match(self, obj: object, found: list[Any]) -> bool:
        if type(obj) is not dict:
            return False
        mapping: dict[Any, Any] = obj
        if len(mapping) != self.count:
            return False
        types = self.types
        for key in mapping:
            if key not in types:
                return False
            if not self.plain and not alike(key, types[key], 0):
                return False
        children: list[Any] = []
        for key in self.keys:
            children.append(mapping[key])
        return self.match_all(tuple(children), found)

    def make(self, source: Source) -> object:
        made: dict[Any, Any] = {}
        for key, child in zip(self.keys, self.make_all(source)):
            made[key] = child
        return made


class Node(Parent):
    """A node that a function takes apart, and another puts together."""

    def __init__(
        self,
        cls: Any,
        children: tuple[Pattern, ...],
        aux: object,
        flatten: Any,
        unflatten: Any,
        given: object,
    ) -> None:
        super().__init__(cls, children)
        self.aux: Final = aux
        self.flatten: Final = flatten
        self.unflatten: Final = unflatten
        # What `unflatten` wants in the place of aux.
        self.given: Final = given

    def match(self, obj: object, found: list[Any]) -> bool:
        if type(obj) is not self.cls:
            return False
        pair: tuple[Any, Any] = self.flatten(obj)
        children: Any = pair[0]
        members: tuple[Any, ...] = tuple(children)
        return (
            len(members) == self.count
            and alike(pair[1], self.aux, 0)
            and self.match_all(members, found)
        )

    def make(self, source: Source) -> object:
        return self.unflatten(self.given, self.make_all(source))


class Fields(Node):
    """A Module that has all its fields and nothing else, read without being taken apart."""

    def __init__(
        self,
        cls: Any,
        children: tuple[Pattern, ...],
        aux: tuple[Any, ...],
        unflatten: Any,
        read: Any,
        dynamic: tuple[Any, ...],
        static: tuple[Any, ...],
    ) -> None:
        super().__init__(cls, children, aux, None, unflatten, aux)
        self.read: Final = read
        self.dynamic: Final = dynamic
        self.static: Final = static
        self.values: Final[tuple[Any, ...]] = aux[1:]
        self.all: Final = len(dynamic) + len(static)

    def match(self, obj: object, found: list[Any]) -> bool:
        if type(obj) is not self.cls:
            return False
        maybe: Any = self.read(obj)
        if type(maybe) is not dict:
            return False
        state: dict[Any, Any] = maybe
        if len(state) != self.all:
            return False
        for name, value in zip(self.static, self.values):
            other = state.get(name, state)
            if other is not value and (other is state or not alike(other, value, 0)):
                return False
        for name, pattern in zip(self.dynamic, self.children):
            child = state.get(name, state)
            if pattern.code == ARRAY and type(child) is pattern.cls:
                found.append(child)
            elif child is state or not pattern.match(child, found):
                return False
        return True


class Learner:
    """Learns the pattern of a tree."""

    def __init__(self, rules: Any, limit: int, hashed: bool) -> None:
        # What is known of types, and what to ask.
        self.rules: Final = rules
        self.kinds: Final[dict[Any, Kind]] = rules.kinds
        self.array: Final[Any] = rules.array
        self.is_array: Final[Any] = rules.is_array
        self.limit: Final = limit
        # Whether static leaves have to be hashable.
        self.hashed: Final = hashed
        self.arrays: list[Any] = []
        # Equal for trees of one structure; of others, mostly different.
        self.token: list[Any] = []

    def learn(self, obj: object, depth: int) -> Pattern:
        cls = type(obj)
        if cls is self.array:
            self.arrays.append(obj)
            self.token.append(ARRAY)
            return Array(cls, self.is_array)
        known = self.kinds.get(cls)
        if known is None:
            kind: Kind = self.rules.kind(cls)
        else:
            kind = known
        code = kind.code
        if code == LEAF:
            return self.leaf(obj)
        # Compiled code that recurses would overflow the stack and crash the process.
        if depth >= self.limit:
            raise RecursionError
        self.token.append(cls)
        if code == NONE:
            return Nothing()
        if code == LIST or code == TUPLE or code == NAMED:
            items: Any = obj
            children = self.children(tuple(items), depth)
            return Sequence(code, cls, children)
        if code == DICT:
            mapping: dict[Any, Any] = obj  # type: ignore[assignment]
            keys: tuple[Any, ...] = self.rules.keys(mapping)
            self.token.append(keys)
            values: list[Any] = []
            for key in keys:
                values.append(mapping[key])
            return Dict(keys, self.children(tuple(values), depth))
        if code == NODE:
            pair: tuple[Any, Any] = kind.flatten(obj)
            members: tuple[Any, ...] = pair[0]
            self.mark(pair[1], 0)
            patterns = self.children(members, depth)
            aux: tuple[Any, ...] = pair[1]
            fields = self.rules.fields(kind, obj, members, aux)
            if fields is not None:
                names: tuple[Any, Any, Any] = fields
                return Fields(
                    cls, patterns, aux, kind.unflatten, names[0], names[1], names[2]
                )
            return Node(cls, patterns, aux, kind.flatten, kind.unflatten, aux)
        taken: tuple[Any, Any, Any, Any, Any] = self.rules.custom(obj)
        self.mark(taken[1], 0)
        patterns = self.children(tuple(taken[0]), depth)
        return Node(cls, patterns, taken[1], taken[2], taken[3], taken[4])

    def children(self, members: tuple[Any, ...], depth: int) -> tuple[Pattern, ...]:
        self.token.append(len(members))
        patterns: list[Pattern] = []
        for member in members:
            patterns.append(self.learn(member, depth + 1))
        return tuple(patterns)

    def leaf(self, obj: object) -> Pattern:
        if self.is_array(obj):
            self.arrays.append(obj)
            self.token.append(ARRAY)
            return Array(self.array, self.is_array)
        cls = type(obj)
        self.token.append(cls)
        if cls in PLAIN:
            self.token.append(obj)
            return Static(obj, None)
        if not self.hashed:
            return Static(obj, None)
        # Its hash; an error, if it has none.
        self.token.append(hash(obj))
        return Static(obj, self.rules.same(obj))

    def mark(self, value: object, depth: int) -> None:
        """Add a static value to the token, as far as its type is known."""
        cls = type(value)
        self.token.append(cls)
        if cls in PLAIN:
            self.token.append(value)
        elif cls is tuple and depth < DEEP:
            values: tuple[Any, ...] = value  # type: ignore[assignment]
            self.token.append(len(values))
            for item in values:
                self.mark(item, depth + 1)


def tree_of(pattern: Pattern, arrays: tuple[Any, ...]) -> object:
    """A tree of this structure, with these arrays."""
    if pattern.code == ARRAY:
        return arrays[0]
    if isinstance(pattern, Node) and pattern.flat:
        return pattern.unflatten(pattern.given, arrays)
    return pattern.make(Source(arrays))
