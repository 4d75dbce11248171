"""What a profile makes of its counts: findings in seconds, and what would be saved."""

import dataclasses
import linecache
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx

from . import _calls, _construct, _fit, _node, module
from ._dispatch import TWIN, Calls, FunctionWatch
from ._rates import Rates, Ways, fields_set, saved_of
from ._text import duration
from ._watch import PHASE, Events, Watch

# How many classes a note names.
_MOST_NAMED = 5


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
        calls: how many there were that returned.
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


@dataclasses.dataclass(eq=False, repr=False)
class Found:
    wall: float
    overhead: float
    classes: tuple[ClassProfile, ...]
    functions: tuple[FunctionProfile, ...]
    sites: tuple[SiteProfile, ...]
    saving: Saving
    installing: float
    notes: tuple[str, ...]


def estimate(watch: Watch, calls: Calls, elapsed: int) -> Found:
    rates = Rates(watch)
    events = watch.events()
    by_class = rates.of(events)
    in_nodes, others = saved_of(rates.nodes(events)), saved_of(rates.others(events))
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
            saved = factor * saved_of(rates.nodes(each.events))
            saved += saved_of(rates.others(each.events))
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
            count * watch.sites.mean((code, line, via)) / 1e9,
        )
        for (code, line, via), count in list(watch.sites.counts.items())
    ]
    sites.sort(key=lambda each: -each.total)
    saving = Saving(
        max(0.0, install / 1e9),
        max(0.0, dispatch),
        max(0.0, (install - inside) / 1e9) + max(0.0, dispatch),
    )
    return Found(
        wall / 1e9,
        watch.cost / 1e9,
        tuple(classes),
        tuple(functions),
        tuple(sites),
        saving,
        rates.installing() / 1e9,
        (*_beside(factor, in_nodes), *_notes(watch, calls)),
    )


def nothing(watch: Watch, elapsed: int, error: BaseException) -> Found:
    """What is left where something that was found cannot be made sense of."""
    note = f"nothing could be worked out: {error!r:.200}"
    wall = max(0.0, elapsed - watch.cost)
    return Found(
        wall / 1e9, watch.cost / 1e9, (), (), (), Saving(0.0, 0.0, 0.0), 0.0, (note,)
    )


def _saved_meanwhile(watch: Watch, rates: Rates) -> float:
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


def _class_profile(
    watch: Watch, events: Events, rates: Rates, cls: type, ways: Ways
) -> ClassProfile:
    node = watch.nodes.get(cls)
    return ClassProfile(
        f"{cls.__module__}.{cls.__qualname__}",
        node is not None and node.accelerated,
        events.flattened[cls],
        events.unflattened[cls],
        rates.flatten(cls).theirs / 1e9 if events.flattened[cls] else 0.0,
        rates.unflatten(cls).theirs / 1e9 if events.unflattened[cls] else 0.0,
        max(0, events.read[cls] - events.bound[cls] - fields_set(events, cls)),
        events.bound[cls],
        events.constructed[cls],
        max(0, events.set[cls] - fields_set(events, cls)),
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
    overhead = faster = waited = saved = hidden = 0.0
    if each.twin is None:
        traced = not steady and each.calls > 1
        why = "it was traced at every call" if traced else "it was called too few times"
        if each.raised and not each.calls:
            why = f"each of its {each.raised} calls raised an error"
        reason = reason or why
    else:
        theirs, ours, flat = each.twin.takes()
        overhead, faster = max(0.0, theirs - flat), max(0.0, ours - flat)
        saved = steady * (theirs - ours)
        # While the device computes, the next call can be prepared, and all that lies between.
        waited = max(0.0, call - theirs)
        hidden = steady * _free(each) * min(waited, each.between.median() + _next(each))
    return FunctionProfile(
        each.name,
        each.where,
        each.calls,
        each.traces,
        call / 1e9,
        overhead / 1e9,
        faster / 1e9,
        waited / 1e9,
        saved / 1e9,
        hidden / 1e9,
        reason,
    )


def _free(each: FunctionWatch) -> float:
    """The part of its calls after which the program does something else than to wait."""
    count = each.followed.total()
    return 1 - each.waits / count if count else 0.0


def _next(each: FunctionWatch) -> float:
    """What the next call of any function would take."""
    known = [
        (other.twin.takes()[1], count)
        for other, count in each.followed.items()
        if other.twin is not None
    ]
    total = sum(count for _, count in known)
    return sum(took * count for took, count in known) / total if total else 0.0


def _beside(factor: float, in_nodes: float) -> Iterator[str]:
    """What of the saving is not in the table of classes, or less than what is."""
    more = (factor - 1) * in_nodes / 1e9
    if abs(more) > 0.1 * abs(in_nodes) / 1e9:
        yield (
            f"install() is told from how long the program takes while kernels have their "
            f"turn, which saves {duration(abs(more))} {'more' if more > 0 else 'less'} than "
            f"the nodes of the classes add up to"
        )


def _notes(watch: Watch, calls: Calls) -> Iterator[str]:
    if isinstance(module.known, str):
        yield f"Modules are not watched: {module.known}"
    elif _fit.why_never():
        yield f"attributes, methods and construction are not watched: {_fit.why_never()}"
    elif _construct.why_never():
        yield f"construction and methods are not watched: {_construct.why_never()}"
    if calls.reason:
        yield f"equinox.filter_jit is not watched: {calls.reason}"
    ours = [name for name in _calls.in_use() if name != TWIN]
    if ours:
        yield f"not counted: calls of treepress.filter_jit ({_listed(ours)})"
    unseen = [
        cls.__qualname__
        for cls, node in watch.nodes.items()
        if node.accelerated and node.reason and cls.__module__.split(".")[0] != "treepress"
    ]
    if unseen:
        yield f"not counted, since JAX calls their kernels itself: {_listed(unseen)}"


def _listed(names: list[str]) -> str:
    left = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")
