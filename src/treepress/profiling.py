"""`profile`: where the pytree time of a program goes, and what treepress would save of it."""

import dataclasses
import json
import linecache
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax

from . import _backend, _construct, _hot, _node, _swap, module
from ._dispatch import Calls, FunctionWatch
from ._version import __version__
from ._watch import PHASE, Events, Times, Watch, clock
from .inplace import accelerate, deaccelerate

_running = threading.Lock()


class ClassProfile(NamedTuple):
    """What the instances of one class took, in seconds where nothing else is said.

    Attributes:
        name: with its module.
        accelerated: whether treepress's kernels flattened it in this run.
        flattened: how many nodes were.
        unflattened: how many nodes were.
        flatten: for a node.
        unflatten: for a node.
        read: how many attributes were, by Equinox.
        bound: how many methods were, by Equinox.
        constructed: how many instances were, by Equinox.
        set: how many attributes were set on instances that Equinox did not construct.
        total: all of these together.
        faster: what all of these would take after `treepress.install()`.
        reason: why it would not be accelerated, or was not watched.
    """

    name: str
    accelerated: bool
    flattened: int
    unflattened: int
    flatten: float
    unflatten: float
    read: int
    bound: int
    constructed: int
    set: int
    total: float
    faster: float
    reason: str


class FunctionProfile(NamedTuple):
    """The calls of one function of `equinox.filter_jit`, in seconds where nothing else is said.

    Attributes:
        name: of the function.
        where: its file and line.
        calls: how many there were.
        traces: how many of these traced it.
        call: one of the others, with what it computes.
        overhead: of that, what is not computing: beyond a call of `jax.jit` on flat arrays.
        faster: what that would be with `treepress.filter_jit`.
        waited: how long Equinox waits for the device in a call, which ours do not.
        saved: in all calls, of the overhead.
        hidden: in all calls, of the waiting: what the program would do meanwhile, where
            it does not wait itself.
        reason: why it is not known.
    """

    name: str
    where: str
    calls: int
    traces: int
    call: float
    overhead: float
    faster: float
    waited: float
    saved: float
    hidden: float
    reason: str


class SiteProfile(NamedTuple):
    """A line of the program that Modules were flattened for.

    Attributes:
        where: its file and line.
        text: the line itself.
        via: what of JAX or Equinox it calls, empty for a jitted function.
        nodes: how many, about.
        total: how many seconds that took, about.
    """

    where: str
    text: str
    via: str
    nodes: int
    total: float


class Saving(NamedTuple):
    """What a program would take less, in seconds.

    Attributes:
        install: with `treepress.install()`.
        filter_jit: with `treepress.filter_jit` in the place of Equinox's.
        both: with both.
    """

    install: float
    filter_jit: float
    both: float


@dataclasses.dataclass(frozen=True)
class _Found:
    wall: float
    overhead: float
    classes: tuple[ClassProfile, ...]
    functions: tuple[FunctionProfile, ...]
    sites: tuple[SiteProfile, ...]
    saving: Saving
    notes: tuple[str, ...]


class Profile:
    """What `profile` found. `print` shows it as a table, and so does a notebook.

    Attributes:
        wall: how many seconds the program took, without what profiling added.
        overhead: how many seconds profiling added, as far as it knows.
        classes: a `ClassProfile` each, what took longest first.
        functions: a `FunctionProfile` for each function of `equinox.filter_jit`.
        sites: a `SiteProfile` for each line that flattened Modules, the worst first.
        saving: what `install` and `filter_jit` would save.
        notes: what could not be seen.
        versions: of all that matters.
    """

    def __init__(self) -> None:
        self._found: _Found | None = None
        self._watch = Watch()
        self._calls = Calls(self._watch)
        self._begin: int | None = None
        self.versions: dict[str, str] = {
            "treepress": f"{__version__} ({_backend.backend})",
            "equinox": eqx.__version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
            "platform": platform.system(),
        }

    def __enter__(self) -> "Profile":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to watch, as `with` does.

        Raises:
            RuntimeError: where it has begun before, or another profile is being made.
        """
        if self._begin is not None:
            raise RuntimeError("a profile is made once; call treepress.profile() again")
        if not _running.acquire(blocking=False):
            raise RuntimeError(
                "another profile is being made; there is one at a time in a process"
            )
        try:
            _start(self._watch, self._calls)
        except BaseException:
            self._watch.stop()
            _running.release()
            raise
        self._begin = clock()

    def stop(self) -> bool:
        """End it, as the end of `with` does. Whether it had begun, and not ended yet."""
        if self._begin is None or self._found is not None:
            return False
        elapsed = clock() - self._begin
        watch, calls = self._watch, self._calls
        try:
            watch.stop()
            try:
                self._found = _estimate(watch, calls, elapsed)
            except Exception as error:  # what the program raises is not to be hidden
                self._found = _nothing(watch, elapsed, error)
        finally:
            # A second time, should an interrupt have come between.
            watch.stop()
            if self._found is None:
                self._found = _nothing(watch, elapsed, KeyboardInterrupt())
            # What they hold is the program's.
            calls.clear()
            self._watch = Watch()
            self._calls = Calls(self._watch)
            _running.release()
        return True

    def __getattr__(self, name: str) -> Any:
        if name in _Found.__dataclass_fields__:
            if self._found is None:
                raise AttributeError(f"the profile has no {name} before it has ended")
            return getattr(self._found, name)
        raise AttributeError(f"a profile has no attribute {name!r}")

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data, times in seconds."""
        return {
            "versions": self.versions,
            "wall": self.wall,
            "overhead": self.overhead,
            "saving": self.saving._asdict(),
            "classes": [each._asdict() for each in self.classes],
            "functions": [each._asdict() for each in self.functions],
            "sites": [each._asdict() for each in self.sites],
            "notes": list(self.notes),
        }

    def to_json(self, path: "str | Path | None" = None) -> str:
        """All of it as JSON, which is also written to a file if one is named."""
        return _written(json.dumps(self.as_dict(), indent=2) + "\n", path)

    def to_html(self, path: "str | Path | None" = None) -> str:
        """A page with a plot that needs no network, also written to a file if one is named."""
        from ._report import page

        return _written(page(self), path)

    def __str__(self) -> str:
        if self._found is None:
            return "a treepress profile that has not ended"
        from ._report import text

        return text(self)

    def __repr__(self) -> str:
        if self._found is None:
            return "<treepress profile, not ended>"
        return f"<treepress profile of {self.wall:.3g} s>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_Found.__dataclass_fields__})

    def _repr_html_(self) -> str:
        from ._report import body

        return body(self) if self._found is not None else str(self)


def _written(text: str, path: "str | Path | None") -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def profile() -> Profile:
    """Find out where the pytree time of a program goes, and what treepress would save.

    While the `with` block runs, Module classes are watched in place: how many nodes JAX
    flattens and unflattens, how many attributes are read, methods bound and instances
    constructed, and the calls of `equinox.filter_jit`. Nodes of classes that could be
    accelerated go through Equinox's functions and treepress's kernels by chance, so that both
    are measured in the program itself. Afterwards everything is as it was.

    Returns:
        a `Profile`, to be used with `with`; what it found is there when the block has ended.

    Raises:
        RuntimeError: where another profile is being made in this process.

    Cost: some 0.3 ms for each Module class that there is at the start, and some 0.1 to 0.5 µs
    for each thing that is counted, which are added up and taken off. Each function of
    `equinox.filter_jit` gets a twin that is compiled three times, and is called with every
    sixteenth of its calls.

    Example:
        >>> import equinox as eqx, jax, treepress
        >>> model = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
        >>> with treepress.profile() as p:
        ...     for _ in range(100):
        ...         _ = jax.tree.leaves(model)
        >>> [(c.name, c.flattened) for c in p.classes if c.flattened == 100]
        [('equinox.nn._mlp.MLP', 100)]
        >>> p.saving.install > 0
        True
    """
    return Profile()


# Estimates: by counts, and by what each thing takes with and without.


def _start(watch: Watch, calls: Calls) -> None:
    probe = _Probe()
    before = probe.costs(watch, hooked=False)
    watch.start()
    calls.start()
    after = probe.costs(watch, hooked=True)
    costs = watch.costs
    costs.clock = _cost_of_clock()
    costs.passed = max(0.0, after["passed"] - before["passed"])
    costs.measured = costs.passed + 2 * costs.clock
    costs.read = max(0.0, after["read"] - before["read"])
    costs.construct = max(0.0, after["construct"] - before["construct"])
    watch.forget(probe.cls)


class _Probe:
    """Something to do often, to see what the hooks cost."""

    def __init__(self) -> None:
        self.cls, _ = _twins(2, own=False)
        self.instance = self.cls(1.0, 2.0)
        known = module.known
        held = _swap.held_by(self.cls, known) if not isinstance(known, str) else known
        self.held = held if isinstance(held, _swap.Held) else None

    def costs(self, watch: Watch, hooked: bool) -> dict[str, float]:
        instance = self.instance
        costs = {
            "read": least(lambda: instance.x0),
            "construct": least(lambda: self.cls(1.0, 2.0)),
            "passed": 0.0,
        }
        if self.held is not None:
            held = self.held
            watch.thread.paused += 1
            costs["passed"] = least(lambda: held.flatten(instance))
            watch.thread.paused -= 1
        return costs


def least(work: Callable[[], Any], rounds: int = 150, number: int = 10) -> float:
    """The nanoseconds that something takes, the least of several rounds."""
    times = []
    for _ in range(rounds):
        begin = clock()
        for _ in range(number):
            work()
        times.append((clock() - begin) / number)
    return min(times)


def _cost_of_clock() -> float:
    return min(-(clock() - clock()) for _ in range(1000))


# From how many on, each way, times say enough.
_ENOUGH: Final = 30
# And what the standard error of a mean may be, as a part of it.
_UNSURE: Final = 0.1


class _Ways(NamedTuple):
    """What something takes with Equinox and with treepress, in nanoseconds."""

    theirs: float
    ours: float

    def plus(self, more: "_Ways", count: int = 1) -> "_Ways":
        return _Ways(self.theirs + count * more.theirs, self.ours + count * more.ours)


def _add(total: dict[type, _Ways], cls: type, count: int, ways: _Ways) -> None:
    total[cls] = total.get(cls, _Ways(0.0, 0.0)).plus(ways, count)


class _Rates:
    """What each thing takes, with and without: nodes as measured in the program itself."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._nodes: dict[tuple[str, type], _Ways] = {}
        self._ways: dict[tuple[str, int, bool], _Ways] = {}

    def flatten(self, cls: type) -> _Ways:
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

    def unflatten(self, cls: type) -> _Ways:
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
    ) -> _Ways:
        """As measured in the program; where few were, what one tells of the other."""
        key = (what, cls)
        if key not in self._nodes:
            theirs, ours = times
            if min(len(theirs.samples), len(ours.samples)) >= _ENOUGH:
                self._nodes[key] = _Ways(theirs.mean(), ours.mean())
            elif len(theirs.samples) >= len(ours.samples):
                self._nodes[key] = _Ways(theirs.mean(), theirs.mean() * ratio())
            else:
                self._nodes[key] = _Ways(ours.mean() / ratio(), ours.mean())
        return self._nodes[key]

    def read(self) -> _Ways:
        _, hot = self._compared("read", 3, False, lambda cls: _reading(cls(1.0, 1.0, 1.0)))
        return _Ways(max(hot, self.watch.read_times.median()), hot)

    def bound(self) -> _Ways:
        _, hot = self._compared("bound", 3, False, lambda cls: _binding(cls(1.0, 1.0, 1.0)))
        # It was read, and a `BoundMethod` was made.
        theirs = self.watch.bound_times.mean() + self.read().theirs
        return _Ways(max(hot, theirs), hot)

    def set(self) -> _Ways:
        with _construct.initialising() as initialised:
            _, hot = self._compared("set", 3, False, lambda cls: _setting(initialised(cls)))
        return _Ways(max(hot, self.watch.set_times.median()), hot)

    def constructed(self, cls: Any) -> _Ways:
        count = len(dataclasses.fields(cls))
        values = [1.0] * count
        own = not _construct.sets_its_fields(cls)
        return self._compared("constructed", count, own, lambda cls: lambda: cls(*values))

    def _compared(
        self, what: str, count: int, own: bool, make: Callable[[Any], Callable[[], Any]]
    ) -> _Ways:
        """What a class of so many fields takes for something, and an accelerated one."""
        key = (what, count, own)
        if key not in self._ways:
            plain, hot = _twins(count, own)
            accelerate(hot)
            try:
                self._ways[key] = _Ways(least(make(plain)), least(make(hot)))
            finally:
                deaccelerate(hot)
        return self._ways[key]

    def of(self, events: Events) -> dict[type, _Ways]:
        """What these took in nanoseconds, by class, and what they would take."""
        total = self.nodes(events)
        for cls, ways in self.others(events).items():
            total[cls] = ways.plus(total.get(cls, _Ways(0.0, 0.0)))
        return total

    def nodes(self, events: Events) -> dict[type, _Ways]:
        """That of flattening and unflattening."""
        total: dict[type, _Ways] = {}
        for counts, rate in (
            (events.flattened, self.flatten),
            (events.unflattened, self.unflatten),
        ):
            for cls, count in counts.items():
                if count:
                    _add(total, cls, count, rate(cls))
        return total

    def others(self, events: Events) -> dict[type, _Ways]:
        """That of attributes, methods and construction."""
        total: dict[type, _Ways] = {}
        for cls, count in events.read.items():
            # Those that bound a method are counted there; and those in what is constructed.
            count -= events.bound.get(cls, 0) + _fields_set(events, cls)
            if count > 0:
                _add(total, cls, count, self._if_hot(cls, self.read()))
        for cls, count in events.set.items():
            # The others are part of what is constructed.
            count -= _fields_set(events, cls)
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
    def _if_hot(cls: type, ways: _Ways) -> _Ways:
        if _hot.unfit(cls) or _node.unusual(cls, eqx.Module):
            return _Ways(ways.theirs, ways.theirs)
        return ways

    @staticmethod
    def _if_set(cls: type, ways: _Ways) -> _Ways:
        if _node.unusual(cls, eqx.Module) or _construct.why_never():
            return _Ways(ways.theirs, ways.theirs)
        return ways

    @staticmethod
    def _if_constructed(cls: type, ways: _Ways) -> _Ways:
        if _construct.unfit(cls) or _node.unusual(cls, eqx.Module):
            return _Ways(ways.theirs, ways.theirs)
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


_twin_classes: dict[tuple[int, bool], tuple[Any, Any]] = {}


def _twins(count: int, own: bool) -> tuple[Any, Any]:
    """Two classes of so many fields. They are kept, since JAX keeps its classes for good."""
    if (count, own) not in _twin_classes:
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
        _twin_classes[count, own] = made[0], made[1]
    return _twin_classes[count, own]


def _own_init(names: list[str]) -> Any:
    lines = "".join(f"    self.{name} = {name}\n" for name in names) or "    pass\n"
    space: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n{lines}", space)
    return space["__init__"]


def _estimate(watch: Watch, calls: Calls, elapsed: int) -> _Found:
    rates = _Rates(watch)
    events = watch.events()
    by_class = rates.of(events)
    in_nodes, others = _saved(rates.nodes(events)), _saved(rates.others(events))
    count = events.flattened.total() + events.unflattened.total()
    each_node = rates.of_phases()
    if each_node is None:
        factor, meanwhile = 1.0, _saved_meanwhile(watch, rates)
    else:
        factor = each_node * count / in_nodes if in_nodes > 0 else 1.0
        meanwhile = each_node * PHASE * (len(watch.phases) // 2)
    wall = max(0.0, elapsed - watch.cost + meanwhile)
    classes = [
        _class_profile(watch, events, rates, cls, ways) for cls, ways in by_class.items()
    ]
    classes.sort(key=lambda each: -each.total)
    functions, inside = [], 0.0
    for each in list(calls.functions.values()):
        functions.append(_function_profile(each))
        if each.events is not None and each.sampled:
            saved = factor * _saved(rates.nodes(each.events))
            saved += _saved(rates.others(each.events))
            inside += saved / each.sampled * (each.calls - each.traces)
    functions.sort(key=lambda each: -each.overhead * each.calls)
    install = factor * in_nodes + others
    dispatch = sum(each.saved + each.hidden for each in functions)
    sites = [
        SiteProfile(
            f"{code.co_filename}:{line}",
            linecache.getline(code.co_filename, line).strip(),
            via,
            count,
            count * _mean(watch.site_times.get((code, line, via))) / 1e9,
        )
        for (code, line, via), count in list(watch.sites.items())
    ]
    sites.sort(key=lambda each: -each.total)
    saving = Saving(
        max(0.0, install / 1e9),
        max(0.0, dispatch),
        max(0.0, (install - inside) / 1e9) + max(0.0, dispatch),
    )
    return _Found(
        wall / 1e9,
        watch.cost / 1e9,
        tuple(classes),
        tuple(functions),
        tuple(sites),
        saving,
        tuple(_notes(watch, calls)),
    )


def _fields_set(events: Events, cls: Any) -> int:
    """How many attributes were set on what Equinox constructed, about."""
    constructed = events.constructed.get(cls, 0)
    return constructed * len(dataclasses.fields(cls)) if constructed else 0


def _nothing(watch: Watch, elapsed: int, error: BaseException) -> _Found:
    """What is left where something that was found cannot be made sense of."""
    note = f"nothing could be worked out: {error!r:.200}"
    wall = max(0.0, elapsed - watch.cost)
    return _Found(wall / 1e9, watch.cost / 1e9, (), (), (), Saving(0.0, 0.0, 0.0), (note,))


def _saved_meanwhile(watch: Watch, rates: _Rates) -> float:
    """What kernels have saved already, in the nodes that went through them."""
    saved = 0.0
    for cls, node in watch.nodes.items():
        if node.flattened_by_kernel:
            ways = rates.flatten(cls)
            saved += node.flattened_by_kernel * (ways.theirs - ways.ours)
        if node.unflattened_by_kernel:
            ways = rates.unflatten(cls)
            saved += node.unflattened_by_kernel * (ways.theirs - ways.ours)
    return saved


def _mean(timed: tuple[int, float] | None) -> float:
    return timed[1] / timed[0] if timed else 0.0


def _saved(ways: Mapping[type, _Ways]) -> float:
    return sum(each.theirs - each.ours for each in ways.values())


def _class_profile(
    watch: Watch, events: Events, rates: _Rates, cls: type, ways: _Ways
) -> ClassProfile:
    node = watch.nodes.get(cls)
    return ClassProfile(
        f"{cls.__module__}.{cls.__qualname__}",
        node is not None and node.accelerated,
        events.flattened[cls],
        events.unflattened[cls],
        rates.flatten(cls).theirs / 1e9 if events.flattened[cls] else 0.0,
        rates.unflatten(cls).theirs / 1e9 if events.unflattened[cls] else 0.0,
        max(0, events.read[cls] - events.bound[cls] - _fields_set(events, cls)),
        events.bound[cls],
        events.constructed[cls],
        max(0, events.set[cls] - _fields_set(events, cls)),
        ways.theirs / 1e9,
        ways.ours / 1e9,
        _reason(cls, node),
    )


def _reason(cls: type, node: Any) -> str:
    if node is not None and node.reason:
        return str(node.reason)
    if eqx.Module not in cls.__mro__:
        return "it is no equinox.Module"
    return _node.unusual(cls, eqx.Module)


def _function_profile(each: FunctionWatch) -> FunctionProfile:
    steady = each.calls - each.traces
    call = each.nanoseconds / steady if steady else 0.0
    reason = each.reason
    if each.twin is None:
        reason = reason or "it was called too few times"
        return FunctionProfile(
            each.name,
            each.where,
            each.calls,
            each.traces,
            call / 1e9,
            0,
            0,
            0,
            0,
            0,
            reason,
        )
    theirs, ours, flat = [times.mean() for times in each.twin.times]
    # While the device computes, the next call can be prepared, and all that lies between.
    waited = max(0.0, call - theirs)
    between = each.between.median()
    followed = len(each.between.samples)
    free = 1 - each.waits / followed if followed else 0.0
    hidden = free * min(waited, ours + between)
    return FunctionProfile(
        each.name,
        each.where,
        each.calls,
        each.traces,
        call / 1e9,
        max(0.0, theirs - flat) / 1e9,
        max(0.0, ours - flat) / 1e9,
        waited / 1e9,
        steady * (theirs - ours) / 1e9,
        steady * hidden / 1e9,
        reason,
    )


def _notes(watch: Watch, calls: Calls) -> Iterator[str]:
    if isinstance(module.known, str):
        yield f"Modules are not watched: {module.known}"
    elif _hot.why_never():
        yield f"attributes, methods and construction are not watched: {_hot.why_never()}"
    if calls.reason:
        yield f"equinox.filter_jit is not watched: {calls.reason}"
    unseen = [
        cls.__qualname__
        for cls, node in watch.nodes.items()
        if node.accelerated and node.reason and cls.__module__.split(".")[0] != "treepress"
    ]
    if unseen:
        shown = ", ".join(unseen[:5])
        more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
        yield f"not counted, since JAX calls their kernels itself: {shown}{more}"
