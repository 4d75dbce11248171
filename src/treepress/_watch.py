"""What a profile sees of nodes that are flattened and unflattened, and of all else by others.

Hooks count, and measure some of what they count. What they cost themselves is added up, to be
taken off.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple

import equinox as eqx

from . import _construct, _fit, _node, _swap, module
from ._equinox import Known
from ._hooks import FILE, as_installed, exclude, stub_of_any, stub_of_one
from ._members import Members
from ._node import nodes, with_subclasses
from ._sites import Sites
from ._times import Account, Times, clock, net

# How many nodes of a class are all measured, each way; and of how many after these one is.
_ALL: Final = 1000
_STRIDE: Final = 16

# How often Equinox's functions read the `__dict__` of what they flatten.
_DICTS: Final = 2

# After so many nodes of all classes they go the other of two ways. Not one by one, where each
# would find colder caches than it does alone. And as many as a prime, so that no loop of the
# program falls into step with it.
PHASE: Final = 1009


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


class Watch(Account):
    """All that is counted. One at a time is on."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[type, NodeWatch] = {}
        self.members = Members(self)
        self.sites = Sites()
        self.phase = 0
        self.left = PHASE
        # How long the program took for each of these, hooks taken off.
        self.phases: list[float] = []
        self._since = (0, 0.0)
        self._known: Known | None = None

    def start(self) -> None:
        exclude()
        self._known = module.known if isinstance(module.known, Known) else None
        # Asked now: what they look at is about to change.
        hot = not _fit.why_never()
        constructs = not _construct.why_never()
        if self._known is not None:
            for cls in with_subclasses([eqx.Module]):
                self.watch_class(cls)
            module.watchers.append(self.watch_class)
            _swap.watchers.append(self._watch_kernels)
        self._watch_others()
        if hot:
            self.members.watch_reads()
        if hot and constructs:
            self.members.watch_construction()

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
            self.members.read.copy(),
            self.members.bound.copy(),
            self.members.constructed.copy(),
            self.members.set.copy(),
        )

    def forget(self, cls: type) -> None:
        """Count nothing of a class that was only there to be measured."""
        self.nodes.pop(cls, None)
        self.members.forget(cls)
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
        if original is None:

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
                took = net(end - begin, self.cost - before + costs.clock)
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
            times[phase].samples.append(net(end - begin, self.cost - before + costs.clock))
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
