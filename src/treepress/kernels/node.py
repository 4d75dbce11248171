"""Kernels that flatten one node, and put it back.

An instance of one of these classes is made per registered class and handed to JAX as its
flatten or unflatten function; mypyc gives instances with `__call__` a vectorcall, so
calling one costs no more than calling a C function.

A *Module* here is an Equinox Module: its state is the instance `__dict__`, an absent
field flattens to the sentinel `missing`, and attributes that are no fields travel in the
first slot of `aux`. A *record* is any other dataclass: its state is what `getattr` gives,
and an absent field is an error.
"""

from itertools import repeat, starmap
from operator import itemgetter
from typing import Any, Final

# Names are strings, and so are the keys of an instance's `__dict__`. Typed as `str` mypyc
# would check each one at each use.
Names = tuple[Any, ...]
State = dict[Any, object]

# From this many fields on `itemgetter`, one C loop over borrowed names, beats the loop
# that mypyc makes of a generator expression.
WIDE: Final = 8

# The types of static values that may be remembered between calls. A remembered value
# outlives its Module, which must not matter: so no type here can hold on to anything, and
# texts must be short.
PLAIN: Final = frozenset([str, bytes, int, float, complex, bool, type(None)])
SHORT: Final = 256


class ModuleFlatten:
    """`flatten(module) -> (children, aux)`, for a class of few fields.

    The subclasses read the children in other ways. They derive from a class that has
    `__call__` itself since mypyc lays out a class by whether it has a vectorcall: one that
    has, below a base that has not, reads the fields of its base from the wrong places.
    """

    def __init__(
        self,
        dynamic: Names,
        static: Names,
        wrappers: Names,
        missing: object,
        read: Any,
        getdict: Any,
    ) -> None:
        self.dynamic: Final = dynamic
        self.wrappers: Final = wrappers
        self.missing: Final = missing
        self.count: Final = len(dynamic) + len(static)
        self.read: Final = read
        self.getdict: Final = getdict
        # `None` stands for the slot of the wrapper attributes.
        self.slots: Final[Names] = (None, *static)
        # The aux given last, where it may be remembered; replaced whole, never changed,
        # so that threads see one or the other. At first one that fits no instance.
        self.last: tuple[object, ...] = (missing,) * (1 + len(static))
        self.remember = True
        self.single: Final[Any] = static[0] if len(static) == 1 else None
        # Whether attributes of the class are read through the interpreter's slot, which
        # then is the shortest way to the `__dict__`. Any other is as right.
        self.slot = False

    def __call__(self, obj: Any) -> tuple[object, object]:
        try:
            # Not a dict, hence a TypeError, for an instance without any attribute. A dict
            # of another class, set as a whole, may have its own ideas of `d[name]`. When
            # Python ends there is nothing left to be imported, which `read` may do.
            state: State = obj.__dict__ if self.slot else self.read(obj)
            if len(state) == self.count and type(state) is dict:
                children = tuple(state[name] for name in self.dynamic)
                last = self.last
                if self.single is not None:
                    # The most common case, without a loop.
                    if last[1] is state[self.single]:
                        return children, last
                    return children, self.new_aux(state)
                return children, self.aux(state)
        except (KeyError, TypeError, ImportError):
            pass
        odd = self.odd_state(obj)
        return tuple(self.odd_children(odd)), self.odd_aux(odd)

    def aux(self, state: State) -> tuple[object, ...]:
        """The aux of an instance that has all its fields and nothing else."""
        last = self.last
        for name, value in zip(self.slots, last):
            # By identity, never by equality: 1, 1.0 and True are equal, and the value
            # that comes back must be the one that went in.
            if name is not None and state[name] is not value:
                return self.new_aux(state)
        return last

    def new_aux(self, state: State) -> tuple[object, ...]:
        missing = self.missing
        aux = tuple(missing if name is None else state[name] for name in self.slots)
        if self.remember:
            for value in aux:
                if value is not missing and not small(value):
                    self.remember = False
                    # Nor need what was remembered before.
                    self.last = (missing,) * len(aux)
                    return aux
            self.last = aux
        return aux

    def odd_state(self, obj: Any) -> Any:
        """The state of any instance: fields may be unset, wrapper attributes set."""
        # Any: of a State mypyc would take the length by itself.
        return obj.__dict__ if self.slot else self.getdict(obj)

    def odd_children(self, state: Any) -> list[object]:
        return values_of(state, self.dynamic, self.missing)

    def odd_aux(self, state: Any) -> tuple[object, ...]:
        missing = self.missing
        aux: list[object] = [missing]
        # Equinox asks for the number of entries alone; so does this, to give the same
        # aux for an instance that lacks a field and has another attribute instead.
        if len(state) != self.count:
            aux[0] = tuple(values_of(state, self.wrappers, missing))
        aux.extend(values_of(state, self.slots[1:], missing))
        return tuple(aux)


def values_of(state: Any, names: Names, missing: object) -> list[object]:
    # By `append`, as in `attributes`: the dict may be one of another class, with a `get` of
    # its own.
    found: list[object] = []
    for name in names:
        found.append(state.get(name, missing))
    return found


class ModuleFlattenWide(ModuleFlatten):
    """`flatten(module) -> (children, aux)`, for a class of many fields."""

    def __init__(
        self,
        dynamic: Names,
        static: Names,
        wrappers: Names,
        missing: object,
        read: Any,
        getdict: Any,
    ) -> None:
        super().__init__(dynamic, static, wrappers, missing, read, getdict)
        self.pick: Final[Any] = itemgetter(*dynamic)

    def __call__(self, obj: Any) -> tuple[object, object]:
        try:
            state: State = obj.__dict__ if self.slot else self.read(obj)
            if len(state) == self.count and type(state) is dict:
                return self.pick(state), self.aux(state)
        except (KeyError, TypeError, ImportError):
            pass
        odd = self.odd_state(obj)
        return tuple(self.odd_children(odd)), self.odd_aux(odd)


class ModuleFlattenWithKeys(ModuleFlatten):
    """`flatten_with_keys(module) -> (((key, child), ...), aux)`."""

    def __init__(
        self,
        dynamic: Names,
        static: Names,
        wrappers: Names,
        missing: object,
        read: Any,
        getdict: Any,
        keys: tuple[object, ...],
    ) -> None:
        super().__init__(dynamic, static, wrappers, missing, read, getdict)
        self.keyed: Final[tuple[tuple[object, object], ...]] = tuple(
            list(zip(keys, dynamic))
        )

    def __call__(self, obj: Any) -> tuple[object, object]:
        try:
            state: State = obj.__dict__ if self.slot else self.read(obj)
            if len(state) == self.count and type(state) is dict:
                # By `append`, as in `attributes`: a pair that is made may have the garbage
                # collector run, and that anybody's code.
                pairs: list[object] = []
                for kn in self.keyed:
                    pairs.append((kn[0], state[kn[1]]))
                return tuple(pairs), self.aux(state)
        except (KeyError, TypeError, ImportError):
            pass
        odd = self.odd_state(obj)
        keyed: list[object] = []
        for kn, child in zip(self.keyed, self.odd_children(odd)):
            keyed.append((kn[0], child))
        return tuple(keyed), self.odd_aux(odd)


class ModuleUnflatten:
    """`unflatten(aux, children) -> module`, without `__init__`, as Equinox does."""

    def __init__(
        self,
        cls: type,
        dynamic: Names,
        static: Names,
        wrappers: Names,
        missing: object,
        getdict: Any,
        unfit: Any,
    ) -> None:
        self.cls: Final = cls
        self.dynamic: Final = dynamic
        self.slots: Final[Names] = (None, *static)
        self.single: Final[Any] = static[0] if len(static) == 1 else None
        self.wrappers: Final = wrappers
        self.missing: Final = missing
        self.getdict: Final = getdict
        self.unfit: Final = unfit
        self.blanks: Final[Any] = blanks(cls)

    def __call__(self, aux: object, children: object) -> object:
        if not (isinstance(aux, tuple) and isinstance(children, tuple)):
            return self.other(aux, children)
        # Assigned once: at each use of a narrowed argument mypyc checks its type again.
        data: tuple[object, ...] = children
        meta: tuple[object, ...] = aux
        if len(data) != len(self.dynamic) or len(meta) != len(self.slots):
            return self.other(aux, children)
        missing = self.missing
        for obj in self.blanks:
            # In Equinox's order (children, wrapper attributes, static values), which
            # `vars(module)` shows. `object.__setattr__` is spelt out since mypyc makes a
            # direct C call of that alone.
            for name, child in zip(self.dynamic, data):
                if child is not missing:
                    object.__setattr__(obj, name, child)
            if meta[0] is not missing:
                self.wrap(obj, meta[0])
            if self.single is not None:
                # The most common case, without a loop.
                if meta[1] is not missing:
                    object.__setattr__(obj, self.single, meta[1])
                return obj
            for name, value in zip(self.slots, meta):
                if name is not None and value is not missing:
                    object.__setattr__(obj, name, value)
            return obj
        raise AssertionError("blanks never ends")

    def wrap(self, obj: object, values: Any) -> None:
        state: State = self.getdict(obj)
        for name, value in zip(self.wrappers, values):
            state[name] = value

    def other(self, aux: Any, children: Any) -> object:
        """Take any iterables of the right lengths, refuse others."""
        aux = tuple(aux)
        children = tuple(children)
        if len(children) != len(self.dynamic) or len(aux) != len(self.slots):
            raise self.unfit(self.cls, aux, children)
        return self(aux, children)


def small(value: object) -> bool:
    """Whether a static value may be remembered."""
    if type(value) not in PLAIN:
        return False
    return not isinstance(value, (str, bytes)) or len(value) <= SHORT


def blanks(cls: type) -> Any:
    """An endless iterator of instances of `cls` that nobody initialised.

    `next` of it calls `object.__new__` with an argument tuple made once: the cheapest way
    to an instance that a caller without access to `tp_alloc` has.
    """
    return starmap(object.__new__, repeat((cls,)))


class RecordFlatten:
    """`flatten(record) -> (children, aux)`."""

    def __init__(self, data: Names, meta: Names) -> None:
        self.data: Final = data
        self.meta: Final = meta

    def __call__(self, obj: object) -> tuple[object, object]:
        return attributes(obj, self.data), attributes(obj, self.meta)


class RecordFlattenWithKeys(RecordFlatten):
    """`flatten_with_keys(record) -> (((key, child), ...), aux)`."""

    def __init__(self, data: Names, meta: Names, keys: tuple[object, ...]) -> None:
        super().__init__(data, meta)
        self.keys: Final = keys

    def __call__(self, obj: object) -> tuple[object, object]:
        children = attributes(obj, self.data)
        keyed: list[object] = []
        for key, child in zip(self.keys, children):
            keyed.append((key, child))
        return tuple(keyed), attributes(obj, self.meta)


def attributes(obj: object, names: Names) -> tuple[object, ...]:
    # By `append`: of a generator or comprehension mypyc makes a tuple or list of full length
    # first, empty inside. Reading an attribute may run any code, and code that meets such a
    # thing (`gc.get_objects()` finds it) crashes the process.
    found: list[object] = []
    for name in names:
        found.append(getattr(obj, name))
    return tuple(found)


class RecordUnflatten:
    """`unflatten(aux, children) -> record`, without `__init__`."""

    def __init__(
        self,
        cls: type,
        data: Names,
        meta: Names,
        defaults: tuple[tuple[str, Any, bool], ...],
        unfit: Any,
    ) -> None:
        self.cls: Final = cls
        self.data: Final = data
        self.meta: Final = meta
        # Of fields that are not carried: name, default, and whether that is a factory.
        self.defaults: Final = defaults
        self.unfit: Final = unfit
        self.blanks: Final[Any] = blanks(cls)

    def __call__(self, aux: object, children: object) -> object:
        if not (isinstance(aux, tuple) and isinstance(children, tuple)):
            return self.other(aux, children)
        data: tuple[object, ...] = children
        meta: tuple[object, ...] = aux
        if len(data) != len(self.data) or len(meta) != len(self.meta):
            raise self.unfit(self.cls, aux, children)
        for obj in self.blanks:
            for name, child in zip(self.data, data):
                object.__setattr__(obj, name, child)
            for name, value in zip(self.meta, meta):
                object.__setattr__(obj, name, value)
            for name, value, factory in self.defaults:
                object.__setattr__(obj, name, value() if factory else value)
            return obj
        raise AssertionError("blanks never ends")

    def other(self, aux: Any, children: Any) -> object:
        """Take any iterables."""
        return self(tuple(aux), tuple(children))
