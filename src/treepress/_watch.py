"""What a profile sees: hooks in the functions that flatten, read, bind, construct and call.

Hooks count, and measure some of what they count. What they cost themselves is added up, to be
taken off.
"""

import functools
import itertools
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple

import equinox as eqx

from . import _construct, _hot, _node, _reads, _swap, module
from ._equinox import Known
from ._hooks import (
    FILE,
    Hooks,
    as_installed,
    exclude,
    stub_of_any,
    stub_of_one,
    stub_of_reads,
)
from ._methods import BoundMethod
from ._node import nodes, with_subclasses
from ._sites import Sites

clock: Final = time.perf_counter_ns

# How many nodes of a class are all measured, each way; and of how many after these one is.
_ALL: Final = 1000
_STRIDE: Final = 16
# And of reading and setting attributes: a prime, so as not to fall into step with a loop.
_PRIME: Final = 17
# And how many of these times are kept.
_MOST: Final = 20_000

# How often Equinox's functions read the `__dict__` of what they flatten.
_DICTS: Final = 2

# After so many nodes of all classes they go the other of two ways. Not one by one, where each
# would find colder caches than it does alone. And as many as a prime, so that no loop of the
# program falls into step with it.
PHASE: Final = 1009


class Costs:
    """What hooks cost each time, in nanoseconds, beside what they measure."""

    clock = 0.0
    # Of a node, or of an attribute, that is not counted or not measured; of a `__dict__`.
    passed = 0.0
    read_passed = 0.0
    read_dict = 0.0
    measured = 0.0
    read = 0.0
    construct = 0.0


class Times:
    """How long something took, each time that it was measured."""

    def __init__(self) -> None:
        # The last ones, for a program may run for days.
        self.samples: deque[float] = deque(maxlen=_MOST)

    def mean(self) -> float:
        """In nanoseconds, without the longest hundredth: other programs, the collector."""
        if not self.samples:
            return 0.0
        kept = sorted(self.samples)[
            : max(1, len(self.samples) - len(self.samples) // 100 - 1)
        ]
        # Threads that wait for each other can make nonsense of what is taken off.
        return max(0.0, sum(kept) / len(kept))

    def median(self) -> float:
        """For what may hold anything else, now and then."""
        if not self.samples:
            return 0.0
        return max(0.0, sorted(self.samples)[len(self.samples) // 2])


def _net(taken: float, hooks: float) -> float:
    """What something took without hooks in it, which may have been slower when measured."""
    return max(taken - hooks, taken / 4)


def _runs_code(cls: type, name: str) -> bool:
    """Whether to read an attribute is to call a property or the like."""
    for base in cls.__mro__:
        if name in base.__dict__:
            found = type(base.__dict__[name])
            return found is not FunctionType and hasattr(found, "__get__")
    return False


class NodeWatch:
    """The nodes of one class: how many, and how long they take with each of two functions."""

    def __init__(self) -> None:
        self.flattened = 0
        self.unflattened = 0
        # How many of these went through a kernel.
        self.flattened_by_kernel = 0
        self.unflattened_by_kernel = 0
        self.flatten = (Times(), Times())
        self.unflatten = (Times(), Times())
        # Equinox's function and the kernel, where there are both.
        self.flatten_ways: tuple[Any, Any] | None = None
        self.unflatten_ways: tuple[Any, Any] | None = None
        self.accelerated = False
        self.reason = ""

    def accelerate(self) -> None:
        """From now on there are kernels, whose times are others; the counts go on."""
        self.accelerated = True
        self.flatten, self.unflatten = (Times(), Times()), (Times(), Times())
        self.flatten_ways = self.unflatten_ways = None
        self.flattened_by_kernel = self.unflattened_by_kernel = 0


class Events(NamedTuple):
    """How often, by class, what can be made faster was done."""

    flattened: Counter[type]
    unflattened: Counter[type]
    read: Counter[type]
    bound: Counter[type]
    constructed: Counter[type]
    # Those in what is constructed too.
    set: Counter[type]

    def since(self, before: "Events") -> "Events":
        return Events(*[now - then for now, then in zip(self, before)])


class Thread(threading.local):
    """Whether what a thread does is no doing of the program's."""

    paused = 0


class Watch:
    """All that is counted. One at a time is on."""

    def __init__(self) -> None:
        self.nodes: dict[type, NodeWatch] = {}
        self.reads: Counter[type] = Counter()
        self.bound: Counter[type] = Counter()
        self.constructed: Counter[type] = Counter()
        self.set: Counter[type] = Counter()
        self.read_times, self.bound_times, self.set_times = Times(), Times(), Times()
        self.sites = Sites()
        # What all hooks have cost, in nanoseconds.
        self.cost = 0.0
        self.thread = Thread()
        self.phase = 0
        self.left = PHASE
        # How long the program took for each of these, hooks taken off.
        self.phases: list[float] = []
        self._since = (0, 0.0)
        self.costs = Costs()
        self.binds = 0
        self.hooks = Hooks()
        self._known: Known | None = None

    def start(self) -> None:
        exclude()
        self._known = module.known if isinstance(module.known, Known) else None
        # Asked now: what they look at is about to change.
        hot = not _hot.why_never()
        constructs = not _construct.why_never()
        if self._known is not None:
            for cls in with_subclasses([eqx.Module]):
                self.watch_class(cls)
            module.watchers.append(self.watch_class)
            _swap.watchers.append(self._watch_kernels)
        self._watch_others()
        if hot:
            self._watch_reads()
        if hot and constructs:
            self._watch_sets()
            self._watch_construction()

    def stop(self) -> None:
        if self.watch_class in module.watchers:
            module.watchers.remove(self.watch_class)
        if self._watch_kernels in _swap.watchers:
            _swap.watchers.remove(self._watch_kernels)
        self.hooks.take_out()

    def events(self) -> Events:
        return Events(
            Counter({cls: watch.flattened for cls, watch in list(self.nodes.items())}),
            Counter({cls: watch.unflattened for cls, watch in list(self.nodes.items())}),
            self.reads.copy(),
            self.bound.copy(),
            self.constructed.copy(),
            self.set.copy(),
        )

    def forget(self, cls: type) -> None:
        """Count nothing of a class that was only there to be measured."""
        self.nodes.pop(cls, None)
        for counter in (self.reads, self.bound, self.constructed, self.set):
            del counter[cls]
        for times in (self.read_times, self.bound_times, self.set_times):
            times.samples.clear()
        self.sites.clear()
        self.cost = 0.0
        self._since = (clock(), 0.0)

    # Nodes

    def watch_class(self, cls: type) -> None:
        """Watch the nodes of a Module class."""
        begin = clock()
        with _node.lock:
            if cls not in self.nodes and cls is not module.probe:
                self._watch_class(cls)
        self.cost += clock() - begin

    def _watch_class(self, cls: type) -> None:
        assert self._known is not None
        watch = self.nodes[cls] = NodeWatch()
        node = nodes.get(cls)
        watch.accelerated = node is not None and node.functions is not None
        original = _node.originals.get(cls)
        if watch.accelerated and original is None:
            watch.reason = "JAX calls its kernels themselves, which are not watched"
            return
        held = original.held if original is not None else _swap.held_by(cls, self._known)
        if isinstance(held, str):
            watch.reason = held
            self._watch_registered(cls, watch)
            return
        kernels = None
        if not watch.accelerated and not _node.unusual(cls, eqx.Module):
            kernels = _swap.kernels_of(cls, self._known).functions
        added = original is None
        if added:

            def undo() -> None:
                now = nodes.get(cls)
                if now is None or now.functions is None:
                    _swap.forget(cls)

            self.hooks.then(undo)
            # So that `install` finds them, should it come meanwhile.
            _swap.note(cls, held, watched=True)
        self._put(watch, held, kernels)

    def _watch_kernels(self, cls: type) -> None:
        """Watch a class that the program accelerates: what was hooked is other code now."""
        watch, original = self.nodes.get(cls), _node.originals.get(cls)
        if watch is not None and original is not None:
            watch.accelerate()
            self._put(watch, original.held, None)

    def _put(self, watch: NodeWatch, held: _swap.Held, kernels: Any) -> None:
        flatten, keyed, unflatten = held
        state = unflatten.__reduce__()[2]
        theirs = functools.partial(unflatten.func, *unflatten.args, **unflatten.keywords)
        hook = self._unflattening(watch, kernels and kernels.unflatten, theirs)

        def undo() -> None:
            if unflatten.func is hook:
                _swap.set_state(unflatten, state)

        self.hooks.then(undo)
        reads = 0 if watch.accelerated else _DICTS
        for function, ours in (
            (flatten, kernels and kernels.flatten),
            (keyed, kernels and kernels.flatten_with_keys),
        ):
            self.hooks.put(function, self._flattening(watch, ours, reads), stub_of_one)
        _swap.set_state(unflatten, (hook, (), {}, unflatten.__dict__ or None))

    def _watch_others(self) -> None:
        """Watch the nodes of classes that are no Modules, as far as Python flattens them."""
        for cls in list(_swap.registry()):
            if cls not in self.nodes and eqx.Module not in getattr(cls, "__mro__", ()):
                node = nodes.get(cls)
                watch = NodeWatch()
                watch.accelerated = node is not None and node.functions is not None
                if self._watch_registered(cls, watch):
                    self.nodes[cls] = watch

    def _watch_registered(self, cls: type, watch: NodeWatch) -> bool:
        entry = _swap.registry().get(cls)
        there = False
        flatten = getattr(entry, "to_iter", None)
        if type(flatten) is FunctionType and flatten.__code__.co_filename != FILE:
            self.hooks.put(flatten, self._flattening(watch, None, 0), stub_of_any)
            there = True
        unflatten = getattr(entry, "from_iter", None)
        if type(unflatten) is FunctionType and unflatten.__code__.co_filename != FILE:

            def make(theirs: Any) -> Any:
                return self._unflattening(watch, None, theirs)

            self.hooks.put(unflatten, make, stub_of_any)
            there = True
        return there

    def _flattening(self, watch: NodeWatch, ours: Any, reads: int) -> Callable[[Any], Any]:
        def make(theirs: Any) -> Any:
            ways = (theirs, theirs if ours is None else as_installed(ours, theirs))
            if ours is not None and watch.flatten_ways is None:
                watch.flatten_ways = ways
            times, costs, by_kernel = watch.flatten, self.costs, int(ours is not None)
            # The hook in reading is passed then.
            dicts = (reads, 0 if by_kernel else reads)

            def flatten(obj: Any) -> Any:
                if self.thread.paused:
                    self.cost += costs.passed + reads * costs.read_dict
                    return theirs(obj)
                phase = self._next_phase()
                watch.flattened += 1
                watch.flattened_by_kernel += phase & by_kernel
                count = watch.flattened
                hooks = dicts[phase] * costs.read_dict
                if count > _ALL and count % _STRIDE:
                    self.cost += costs.passed + hooks
                    return ways[phase](obj)
                before = self.cost
                self.cost += hooks
                begin = clock()
                out = ways[phase](obj)
                end = clock()
                took = _net(end - begin, self.cost - before + costs.clock)
                times[phase].samples.append(took)
                weight = 1 if count <= _ALL else _STRIDE
                timed = not phase or not by_kernel
                self.sites.note(sys._getframe(), weight, took if timed else None)
                self.cost += costs.measured + (clock() - end)
                return out

            return _construct.unseen(flatten, flatten)

        return make

    def _unflattening(self, watch: NodeWatch, ours: Any, theirs: Any) -> Any:
        # In a partial, as `install` puts it in one.
        ways = (theirs, theirs if ours is None else functools.partial(ours))
        if ours is not None:
            watch.unflatten_ways = ways
        times, costs, by_kernel = watch.unflatten, self.costs, int(ours is not None)

        def unflatten(aux: Any, children: Any) -> Any:
            if self.thread.paused:
                self.cost += costs.passed
                return theirs(aux, children)
            phase = self._next_phase()
            watch.unflattened += 1
            watch.unflattened_by_kernel += phase & by_kernel
            count = watch.unflattened
            if count > _ALL and count % _STRIDE:
                self.cost += costs.passed
                return ways[phase](aux, children)
            before = self.cost
            begin = clock()
            out = ways[phase](aux, children)
            end = clock()
            times[phase].samples.append(_net(end - begin, self.cost - before + costs.clock))
            self.cost += costs.measured + (clock() - end)
            return out

        return _construct.unseen(unflatten, unflatten)

    def _next_phase(self) -> int:
        if not self.left:
            now, (then, cost) = clock(), self._since
            self.phases.append(now - then - (self.cost - cost))
            self._since = (now, self.cost)
            self.left = PHASE
            self.phase ^= 1
        self.left -= 1
        return self.phase

    # Attributes, methods and construction

    def _watch_reads(self) -> None:
        reads, times, costs = self.reads, self.read_times, self.costs
        numbers = itertools.count(1)

        def make(theirs: Any) -> Any:
            def read(obj: Any, name: str) -> Any:
                if self.thread.paused:
                    self.cost += costs.read_passed
                    return theirs(obj, name)
                self.cost += costs.read
                reads[type(obj)] += 1
                if next(numbers) % _PRIME:
                    return theirs(obj, name)
                before, binds = self.cost, self.binds
                begin = clock()
                out = theirs(obj, name)
                end = clock()
                if self.binds == binds and not _runs_code(type(obj), name):
                    times.samples.append(
                        _net(end - begin, self.cost - before + costs.clock)
                    )
                self.cost += clock() - end
                return out

            return _construct.unseen(read, theirs), theirs

        self.hooks.put(_reads.EQUINOX, make, stub_of_reads)

    def _watch_sets(self) -> None:
        sets, times, costs = self.set, self.set_times, self.costs
        numbers = itertools.count(1)

        def make(theirs: Any) -> Any:
            def assign(obj: Any, name: str, value: Any) -> Any:
                if self.thread.paused:
                    self.cost += costs.read_passed
                    return theirs(obj, name, value)
                self.cost += costs.read
                sets[type(obj)] += 1
                if next(numbers) % _PRIME:
                    return theirs(obj, name, value)
                before = self.cost
                begin = clock()
                theirs(obj, name, value)
                end = clock()
                times.samples.append(_net(end - begin, self.cost - before + costs.clock))
                self.cost += clock() - end

            # Warnings count frames up to the code that they are about.
            return _construct.unseen(assign, _construct.SETATTR)

        self.hooks.put(_construct.SETATTR, make, stub_of_any)

    def _watch_construction(self) -> None:
        constructed, bound, costs = self.constructed, self.bound, self.costs

        def make(theirs: Any) -> Any:
            def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
                self.cost += costs.construct
                if self.thread.paused:
                    return theirs(cls, *args, **kwargs)
                if cls is not BoundMethod:
                    constructed[cls] += 1
                    return theirs(cls, *args, **kwargs)
                bound[type(args[1]) if len(args) > 1 else cls] += 1
                self.binds += 1
                # What it reads is part of binding a method.
                self.thread.paused += 1
                before = self.cost
                begin = clock()
                try:
                    return theirs(cls, *args, **kwargs)
                finally:
                    self.thread.paused -= 1
                    took = _net(clock() - begin, self.cost - before + costs.clock)
                    self.bound_times.samples.append(took)

            # Warnings count frames up to the code that they are about.
            return _construct.unseen(construct, _construct.CALL)

        self.hooks.put(_construct.CALL, make, stub_of_any)
