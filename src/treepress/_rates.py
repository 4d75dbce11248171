"""What each thing that is counted takes, with Equinox and with treepress."""

import dataclasses
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import equinox as eqx

from . import _construct, _fit, _node, module
from ._times import Times, clock
from ._watch import PHASE, Events, Watch
from .inplace import accelerate, deaccelerate

# From how many on, each way, times say enough.
_ENOUGH: Final = 30
# And what the standard error of a mean may be, as a part of it.
_UNSURE: Final = 0.1
# How often kernels are put into a class, to see how long that takes.
_PUT_IN: Final = 5


class Ways(NamedTuple):
    """What something takes with Equinox and with treepress, in nanoseconds."""

    theirs: float
    ours: float

    def plus(self, more: "Ways", count: int = 1) -> "Ways":
        return Ways(self.theirs + count * more.theirs, self.ours + count * more.ours)


def _add(total: dict[type, Ways], cls: type, count: int, ways: Ways) -> None:
    total[cls] = total.get(cls, Ways(0.0, 0.0)).plus(ways, count)


class Rates:
    """What each thing takes, with and without: nodes as measured in the program itself."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._nodes: dict[tuple[str, type], Ways] = {}
        self._ways: dict[tuple[str, int, bool], Ways] = {}

    def flatten(self, cls: type) -> Ways:
        watch = self.watch.nodes[cls]

        def ratio() -> float:
            if watch.flatten_ways is None:
                return 1.0
            instance = _instance(cls)
            if instance is None:
                return 1.0
            theirs, ours = [least(partial(way, instance)) for way in watch.flatten_ways]
            return ours / theirs

        return self._node("flatten", cls, watch.flatten, ratio)

    def unflatten(self, cls: type) -> Ways:
        watch = self.watch.nodes[cls]

        def ratio() -> float:
            if watch.flatten_ways is None or watch.unflatten_ways is None:
                return 1.0
            instance = _instance(cls)
            if instance is None:
                return 1.0
            children, aux = watch.flatten_ways[0](instance)
            ways = watch.unflatten_ways
            theirs, ours = [least(partial(way, aux, children)) for way in ways]
            return ours / theirs

        return self._node("unflatten", cls, watch.unflatten, ratio)

    def _node(
        self,
        what: str,
        cls: type,
        times: tuple[Times, Times],
        ratio: Callable[[], float],
    ) -> Ways:
        """As measured in the program; where few were, what one tells of the other."""
        key = (what, cls)
        if key not in self._nodes:
            theirs, ours = times
            if min(len(theirs.samples), len(ours.samples)) >= _ENOUGH:
                self._nodes[key] = Ways(theirs.mean(), ours.mean())
            elif len(theirs.samples) >= len(ours.samples):
                self._nodes[key] = Ways(theirs.mean(), theirs.mean() * ratio())
            else:
                self._nodes[key] = Ways(ours.mean() / ratio(), ours.mean())
        return self._nodes[key]

    def read(self) -> Ways:
        _, hot = self._compared("read", 3, False, lambda cls: _reading(cls(1.0, 1.0, 1.0)))
        return Ways(max(hot, self.watch.members.read_times.mean()), hot)

    def bound(self) -> Ways:
        _, hot = self._compared("bound", 3, False, lambda cls: _binding(cls(1.0, 1.0, 1.0)))
        # It was read, and a `BoundMethod` was made.
        theirs = self.watch.members.bound_times.mean() + self.read().theirs
        return Ways(max(hot, theirs), hot)

    def set(self) -> Ways:
        with _construct.initialising() as initialised:
            _, hot = self._compared("set", 3, False, lambda cls: _setting(initialised(cls)))
        return Ways(max(hot, self.watch.members.set_times.mean()), hot)

    def constructed(self, cls: Any) -> Ways:
        count = len(dataclasses.fields(cls))
        values = [1.0] * count
        own = not _construct.sets_its_fields(cls)
        return self._compared("constructed", count, own, lambda cls: lambda: cls(*values))

    def installing(self) -> float:
        """What it takes to put kernels into the classes that have none, in nanoseconds."""
        watches = self.watch.nodes.values()
        count = sum(watch.flatten_ways is not None for watch in list(watches))
        if not count:
            return 0.0
        _, cls = pair(3, own=False)
        took = []
        for _ in range(_PUT_IN):
            begin = clock()
            try:
                accelerate(cls)
                took.append(clock() - begin)
            finally:
                deaccelerate(cls)
        return count * min(took)

    def _compared(
        self, what: str, count: int, own: bool, make: Callable[[Any], Callable[[], Any]]
    ) -> Ways:
        """What a class of so many fields takes for something, and an accelerated one."""
        key = (what, count, own)
        if key not in self._ways:
            plain, hot = pair(count, own)
            accelerate(hot)
            try:
                self._ways[key] = Ways(least(make(plain)), least(make(hot)))
            finally:
                deaccelerate(hot)
        return self._ways[key]

    def of(self, events: Events) -> dict[type, Ways]:
        """What these took in nanoseconds, by class, and what they would take."""
        total = self.nodes(events)
        for cls, ways in self.others(events).items():
            total[cls] = ways.plus(total.get(cls, Ways(0.0, 0.0)))
        return total

    def nodes(self, events: Events) -> dict[type, Ways]:
        """That of flattening and unflattening."""
        total: dict[type, Ways] = {}
        for counts, rate in (
            (events.flattened, self.flatten),
            (events.unflattened, self.unflatten),
        ):
            for cls, count in counts.items():
                if count:
                    _add(total, cls, count, rate(cls))
        return total

    def others(self, events: Events) -> dict[type, Ways]:
        """That of attributes, methods and construction."""
        total: dict[type, Ways] = {}
        for cls, count in events.read.items():
            # Those that bound a method are counted there; and those in what is constructed.
            count -= events.bound.get(cls, 0) + fields_set(events, cls)
            if count > 0:
                _add(total, cls, count, self._if_hot(cls, self.read()))
        for cls, count in events.set.items():
            # The others are part of what is constructed.
            count -= fields_set(events, cls)
            if count > 0:
                _add(total, cls, count, self._if_set(cls, self.set()))
        for cls, count in events.bound.items():
            if count:
                _add(total, cls, count, self._if_hot(cls, self.bound()))
        for cls, count in events.constructed.items():
            if count:
                _add(total, cls, count, self._if_constructed(cls, self.constructed(cls)))
        return total

    def of_phases(self) -> float | None:
        """What kernels save for each node, with all that follows from it, if it can be told.

        Beside the node itself: JAX compares treedefs, and is done with it where aux is the
        same object. So the program is quicker as a whole while kernels have their turn.
        """
        phases = self.watch.phases
        gained = sorted(theirs - ours for theirs, ours in zip(phases[::2], phases[1::2]))
        # Whatever else went on in a few of them.
        kept = gained[len(gained) // 10 : len(gained) - len(gained) // 10]
        if len(kept) < _ENOUGH:
            return None
        mean = sum(kept) / len(kept)
        spread = (sum((each - mean) ** 2 for each in kept) / len(kept)) ** 0.5
        if mean <= 0 or spread / len(kept) ** 0.5 > _UNSURE * mean:
            return None
        return mean / PHASE

    @staticmethod
    def _if_hot(cls: type, ways: Ways) -> Ways:
        if _fit.unfit(cls) or _node.unusual(cls, eqx.Module):
            return Ways(ways.theirs, ways.theirs)
        return ways

    @staticmethod
    def _if_set(cls: type, ways: Ways) -> Ways:
        if _node.unusual(cls, eqx.Module) or _construct.why_never():
            return Ways(ways.theirs, ways.theirs)
        return ways

    @staticmethod
    def _if_constructed(cls: type, ways: Ways) -> Ways:
        if _construct.unfit(cls) or _node.unusual(cls, eqx.Module):
            return Ways(ways.theirs, ways.theirs)
        return ways


def _instance(cls: Any) -> Any:
    """An instance with something in each field, made without the class's doing."""
    assert not isinstance(module.known, str)
    try:
        instance = object.__new__(cls)
    except TypeError:  # an abstract class
        return None
    names = [field.name for field in dataclasses.fields(cls)]
    module.known.getdict(instance).update(dict.fromkeys(names))
    return instance


def _reading(instance: Any) -> Callable[[], Any]:
    return lambda: instance.x0


def _setting(instance: Any) -> Callable[[], Any]:
    def work() -> None:
        instance.x0 = 1.0

    return work


def _binding(instance: Any) -> Callable[[], Any]:
    return lambda: instance.method


_pairs: dict[tuple[int, bool], tuple[Any, Any]] = {}


def pair(count: int, own: bool) -> tuple[Any, Any]:
    """Two classes of so many fields. They are kept, since JAX keeps its classes for good."""
    if (count, own) not in _pairs:
        names = [f"x{i}" for i in range(count)]
        made = []
        meta: Any = type(eqx.Module)
        for name in ("Plain", "Hot"):
            space: dict[str, Any] = {
                "__annotations__": dict.fromkeys(names, Any),
                "__module__": __name__,
                "method": lambda self: None,
            }
            if own:
                space["__init__"] = _own_init(names)
            made.append(meta(name, (eqx.Module,), space))
        _pairs[count, own] = made[0], made[1]
    return _pairs[count, own]


def _own_init(names: list[str]) -> Any:
    lines = "".join(f"    self.{name} = {name}\n" for name in names) or "    pass\n"
    space: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n{lines}", space)
    return space["__init__"]


def least(work: Callable[[], Any], rounds: int = 150, number: int = 10) -> float:
    """The nanoseconds that something takes, the least of several rounds."""
    return min(timeit.repeat(work, repeat=rounds, number=number)) / number * 1e9


def fields_set(events: Events, cls: Any) -> int:
    """How many attributes were set on what Equinox constructed, about."""
    constructed = events.constructed.get(cls, 0)
    return constructed * len(dataclasses.fields(cls)) if constructed else 0


def saved_of(ways: Mapping[type, Ways]) -> float:
    return sum(each.theirs - each.ours for each in ways.values())
