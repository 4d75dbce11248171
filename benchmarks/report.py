"""The tables, and what was asked of the figures in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import hot
import inplace
import jit
import measure
import partition
from cases import (
    BY_HAND,
    EQUINOX,
    FLAT,
    INOX,
    MIXIN,
    MODULE,
    OURS,
    PLAIN,
    RAW,
    SPLIT,
    TUPLE,
    C,
)
from measure import FIELDS, TEN, TEN_UNXT, Calls, Effort, Figures

# Table, then case, then peer, then seconds.
Results = Mapping[str, Figures]


class Table(NamedTuple):
    name: str
    title: str
    unit: Literal["ns", "µs", "ms"]
    calls: Callable[[], Calls]
    # How many seconds each call gets in a full run.
    each: float = 0.5
    # See `Effort.measure`.
    rounds: int | None = None
    # Peers so slow that they are not measured again beside the Python backend.
    once: frozenset[str] = frozenset()

    def measure(self, effort: Effort) -> Figures:
        if effort.peers is not None:
            effort = effort._replace(peers=frozenset(effort.peers) - self.once)
        return effort.measure(self.calls(), self.each, self.rounds)


TABLES: Final = (
    Table(
        "direct", "Called directly: one node, some fields and a unit", "ns", measure.direct
    ),
    Table(
        "jax",
        f"Through JAX: {measure.NODES} nodes of 3 arrays and a unit, in a list",
        "µs",
        measure.through_jax,
        0.8,
    ),
    Table("jit", "A jitted call, ten quantities in and out", "µs", measure.jitted, 0.8),
    Table(
        "overhead",
        "The example of the pull request: a jitted call, one object in and out",
        "µs",
        measure.overhead,
        1.0,
    ),
    Table(
        "unxt",
        "unxt: ten of Quantity, and of a subclass of it with FlatMixin",
        "µs",
        measure.unxt_workloads,
        1.0,
    ),
    Table(
        "in place",
        "Classes that nobody changed, without and with treepress.install()",
        "µs",
        inplace.in_place,
        2.0,
    ),
    Table("hot", "Attributes, methods and construction", "µs", hot.hot, 1.0),
    Table("partition", "Partition and combine", "µs", partition.partitions, 0.35),
    Table(
        "static",
        "Partition and combine, very many static leaves",
        "ms",
        partition.static,
        1.0,
        rounds=3,
        once=frozenset([INOX]),
    ),
    Table(
        "calls",
        "A jitted call on the arrays of the two examples",
        "µs",
        partition.jitted,
        0.7,
    ),
    Table("filter_jit", "filter_jit: a call after the first", "µs", jit.calls, 1.5),
    Table(
        "walk",
        "Whole trees taken apart: by JAX, by JAX and then split, by our walk",
        "µs",
        partition.walks,
    ),
)

SWEEPS: Final = (
    Table("fields", "By the number of fields", "µs", measure.by_fields, 0.3),
    Table("nodes", "By the number of nodes", "µs", measure.by_nodes, 0.3),
)

_SCALES: Final = {"ns": 1e9, "µs": 1e6, "ms": 1e3}


class Bar(NamedTuple):
    """What is asked of treepress in one case.

    faster: how many times as fast as `against`.
    within: how many times as slow as `against`, at most.
    removed: the share of the overhead of `against` over raw arrays that is gone.
    seconds: how long, at most.

    `of` is the case of which the time of `against` is, if not the same.
    """

    table: str
    case: str
    against: str
    kind: Literal["faster", "within", "removed", "seconds"]
    least: float
    aim: float | None = None
    of: str = ""

    def value(self, figures: Figures) -> float | None:
        """What was measured, None if it was not."""
        times = figures.get(self.case, {})
        others = figures.get(self.of or self.case, {})
        if OURS not in times or self.against not in others:
            return None
        ours, theirs = times[OURS], others[self.against]
        if self.kind == "faster":
            return theirs / ours
        if self.kind == "within":
            return ours / theirs
        if self.kind == "removed":
            return (theirs - ours) / (theirs - times[RAW])
        return ours

    def met(self, value: float, asked: float) -> bool:
        # As precise as it is printed, and no finer than the measurement.
        if self.kind in ("faster", "removed"):
            return round(value, 2) >= asked
        return round(value, _digits(asked)) <= asked

    def verdict(self, value: float) -> str:
        if not self.met(value, self.least):
            return "NOT MET"
        if self.aim is not None and self.met(value, self.aim):
            return "aim met"
        return "met"

    def show(self, value: float | None) -> str:
        if value is None:
            return ""
        if self.kind == "removed":
            return f"{value:.0%}"
        if self.kind == "seconds":
            return f"{value * 1e3:.1f} ms"
        return f"{value:.{_digits(value)}f}x"


def _digits(ratio: float) -> int:
    """How many digits after the point it is printed with."""
    return 2 if ratio >= 0.1 else 4


# treepress with the Python backend, as a peer.
PYTHON: Final = "in Python"

# What the measured value is.
_VALUES: Final = {
    "faster": "{peer} / treepress",
    "within": "treepress / {peer}",
    "removed": "removed of {peer}'s overhead",
    "seconds": "on top of {peer}",
}


def _partition_bars(
    case: str,
    equinox: tuple[float, ...] | None,
    inox: tuple[float, ...],
    aims: tuple[float, ...],
    table: str = "partition",
    of: str = "",
) -> list[Bar]:
    """What is asked of partition and combine; the aims, against Equinox if it offers it."""
    bars = []
    for what, i in (("partition", 0), ("combine", 1)):
        for against, least in ((EQUINOX, equinox), (INOX, inox)):
            if least is not None and i < len(least):
                aim = None if against == INOX and equinox is not None else aims[i]
                source = of and f"{what}, {of}"
                name = f"{what}, {case}"
                bars.append(Bar(table, name, against, "faster", least[i], aim, source))
    return bars


def _jit_bars(
    case: str, faster: float, aim: float | None, within: float, aim_within: float | None
) -> list[Bar]:
    """What is asked of a call: against Equinox, and against flat arrays."""
    return [
        Bar("filter_jit", case, EQUINOX, "faster", faster, aim),
        Bar("filter_jit", case, FLAT, "within", within, aim_within),
    ]


BARS: Final = (
    Bar("direct", "flatten, 3 fields", EQUINOX, "faster", 4.2, 5),
    Bar("direct", "unflatten, 3 fields", EQUINOX, "faster", 3, 4),
    *(
        Bar("direct", f"{what}, {n} field{'s' if n > 1 else ''}", C, "within", least, aim)
        for what, least, aim in (("flatten", 1.25, 1.05), ("unflatten", 1.4, 1.15))
        for n in FIELDS
    ),
    Bar("jax", "jax.tree.flatten", EQUINOX, "faster", 2.5, 3),
    Bar("jax", "jax.tree.unflatten", EQUINOX, "faster", 3.2, 4),
    Bar("jax", "tree_flatten_with_path", EQUINOX, "faster", 1.4, 2),
    Bar("jax", "jax.tree.map", EQUINOX, "faster", 2.5, 3),
    *(
        Bar("jax", case, BY_HAND, "faster", 0.95, 1.01)
        for case in (
            "jax.tree.flatten",
            "jax.tree.unflatten",
            "tree_flatten_with_path",
            "jax.tree.map",
        )
    ),
    Bar("jit", TEN, EQUINOX, "removed", 0.80, 0.95),
    Bar("unxt", TEN_UNXT, EQUINOX, "removed", 0.80, 0.95),
    Bar("import", "import", EQUINOX, "seconds", 0.030),
    Bar("import", "treepress.install()", EQUINOX, "seconds", 0.050),
    Bar("in place", inplace.FLATTEN, EQUINOX, "faster", 2.2),
    Bar("in place", inplace.UNFLATTEN, EQUINOX, "faster", 3),
    # What is aimed at.
    Bar("in place", inplace.FLATTEN, MIXIN, "within", 1.0),
    Bar("in place", inplace.UNFLATTEN, MIXIN, "within", 1.0),
    Bar("in place", inplace.UNXT, EQUINOX, "removed", 0.80, 0.95),
    Bar("in place", inplace.ADAM, EQUINOX, "faster", 1.6, 2.5),
    Bar("in place", inplace.FILTER_JIT, EQUINOX, "faster", 1.3, 1.6),
    Bar("hot", hot.ATTRIBUTE, EQUINOX, "faster", 6),
    Bar("hot", hot.ATTRIBUTE, PLAIN, "within", 1.0),
    Bar("hot", hot.METHOD, EQUINOX, "faster", 35, 60),
    Bar("hot", hot.METHOD_CALL, EQUINOX, "faster", 15, 40),
    *[Bar("hot", case, EQUINOX, "faster", 3, 5) for case in hot.CONSTRUCT.values()],
    Bar("hot", hot.CONSTRUCT_OWN, EQUINOX, "faster", 2, 3),
    Bar("hot", hot.ADD, EQUINOX, "faster", 1.2, 1.35),
    Bar("hot", hot.MULTIPLY, EQUINOX, "faster", 1.2, 1.35),
    Bar("hot", hot.TRACE, EQUINOX, "faster", 1.15, 1.3),
    *_partition_bars(partition.ACCELERATED, (12, 5), (12, 8), (25, 10)),
    # The same, against the model as one has it without treepress.
    *_partition_bars(partition.ACCELERATED, (12, 5), (12, 8), (25, 10), of=partition.PLAIN),
    *_partition_bars(partition.PLAIN, (7, 3), (6, 5), (12, 5)),
    *_partition_bars(partition.MANY, (8, 3), (11, 5), (25, 8)),
    *_partition_bars(partition.NESTED, (6, 5), (70, 100), (15, 8)),
    # One figure is asked of both ways,
    *_partition_bars(partition.STATIC, (5, 5), (40, 40), (10, 10), table="static"),
    *_partition_bars(partition.LAYERS, None, (20, 20), (40, 40)),
    # or of the way there alone.
    *_partition_bars(partition.PREDICATES, None, (10,), (30,)),
    *(
        Bar("calls", f"jitted call, {case}", against, "within", least)
        for case, of_equinox in ((partition.NESTED, 0.55), (partition.STATIC, 0.002))
        for against, least in ((EQUINOX, of_equinox), (INOX, 1.0), (TUPLE, 1.05))
    ),
    *_jit_bars(jit.ARRAY, 3, None, 1.5, None),
    *_jit_bars(jit.QUANTITY, 5, 6, 1.5, 1.2),
    *_jit_bars(jit.MODEL, 4, 6, 1.5, 1.2),
    *_jit_bars(jit.IN_OUT, 4.5, 6, 1.5, 1.2),
    *_jit_bars(jit.MANY, 3.5, 4.2, 1.4, 1.15),
    *_jit_bars(jit.STEP, 2, None, 1.3, None),
    *(
        Bar("filter_jit", case + jit.PLAIN, EQUINOX, "faster", least)
        for case, least in ((jit.QUANTITY, 3.0), (jit.MODEL, 2.5), (jit.IN_OUT, 2.5))
    ),
    *(
        Bar("filter_jit", case, MODULE, "faster", 1.0)
        for case in (jit.QUANTITY, jit.MODEL, jit.IN_OUT, jit.MANY, jit.STEP)
    ),
    *(Bar("first", case, EQUINOX, "within", 1.05) for case in jit.FIRST),
    Bar("arrays", "slope", FLAT, "within", 1.3),
    *(Bar("walk", case, SPLIT, "faster", 1.0) for case in partition.WALKS),
)


def fallback_bars(results: Results) -> list[Bar]:
    """What is asked of the Python backend: never slower, and faster on flatten.

    `results` has all who are measured at all.
    """
    return [
        Bar(table, case, EQUINOX, "faster", 1.5 if _flattens(case) else 1.0, 2.0)
        for table in ("direct", "jax", "jit", "in place")
        for case in results.get(table, {})
    ] + [
        Bar(table, case, against, "faster", 1.0)
        for table in ("partition", "static", "calls")
        for case, times in results.get(table, {}).items()
        for against in (EQUINOX, INOX)
        if against in times
    ]


def _flattens(case: str) -> bool:
    return case.startswith(("flatten,", "jax.tree.flatten"))


def fallback_figures(results: Results, python: Results, table: str) -> Figures:
    """As measured, but that of a jitted call only the overhead over raw arrays counts.

    Who was too slow to be measured twice is taken over, scaled by what Equinox took.
    """
    figures: Figures = {}
    for case, times in python.get(table, {}).items():
        figures[case] = {p: taken - times.get(RAW, 0.0) for p, taken in times.items()}
        once = results.get(table, {}).get(case, {})
        if INOX in once and INOX not in times:
            figures[case][INOX] = once[INOX] * times[EQUINOX] / once[EQUINOX]
    return figures


def beside(figures: Figures, python: Figures) -> Figures:
    """The figures with those of the Python backend among the peers.

    They come from another process, which may have had a slower machine: so they are
    scaled by what Equinox took in both, or Inox where Equinox does not offer it.
    """
    joined: Figures = {}
    for case, times in figures.items():
        joined[case] = dict(times)
        other = python.get(case, {})
        for peer in (EQUINOX, INOX):
            if peer in times and peer in other:
                joined[case][PYTHON] = other[OURS] * times[peer] / other[peer]
                break
    return joined


def times_text(title: str, unit: str, figures: Figures) -> str:
    """The times of a table."""
    peers = list(dict.fromkeys(peer for times in figures.values() for peer in times))
    if not peers:
        return f"{title}: not measured, something is not installed"
    rows = [[f"({unit})", *peers]]
    for case, times in figures.items():
        rows.append([case, *(_time(times.get(peer), unit) for peer in peers)])
    return f"{title}\n{_aligned(rows)}"


def arrays_text(figures: Figures) -> str:
    """The sweep over the number of arrays."""
    return times_text("filter_jit, by the number of arrays in and out", "µs", figures)


def shares_text(figures: Figures, python: Figures) -> str:
    """How much of Equinox's overhead over raw arrays each peer does without.

    What the C reference leaves of it is JAX's own work on a node, which no kernel can take
    away.
    """
    shares = {case: _shares(times) for case, times in figures.items() if RAW in times}
    for case, row in shares.items():
        if case in python:
            row[PYTHON] = _shares(python[case])[OURS]
    if not shares:
        return ""
    peers = list(dict.fromkeys(peer for row in shares.values() for peer in row))
    rows = [["removed of Equinox's overhead over raw arrays", *peers]]
    for case, row in shares.items():
        rows.append([case, *(f"{row[peer]:.0%}" if peer in row else "" for peer in peers)])
    return _aligned(rows)


def _shares(times: Mapping[str, float]) -> dict[str, float]:
    overhead = times[EQUINOX] - times[RAW]
    return {
        peer: (times[EQUINOX] - taken) / overhead
        for peer, taken in times.items()
        if peer not in (RAW, EQUINOX)
    }


def bars_text(bars: Iterable[Bar], figures: Mapping[str, Figures]) -> str:
    """What was asked, and whether it is met."""
    rows = [["asked", "", "measured", "at least", "aim", ""]]
    for bar in bars:
        table = figures.get(bar.table, {})
        if bar.table == "arrays" and table:
            table = {"slope": {p: jit.slope(table, p) for p in (OURS, FLAT)}}
        value = bar.value(table)
        rows.append(
            [
                bar.case,
                _VALUES[bar.kind].format(peer=bar.against + (", plain" if bar.of else "")),
                bar.show(value) or "-",
                bar.show(bar.least),
                bar.show(bar.aim) or "-",
                "not measured" if value is None else bar.verdict(value),
            ]
        )
    return _aligned(rows)


# Title, table and case of the rows of the README's table.
FIRST_TABLE: Final = (
    ("`jax.tree.flatten`, 1,000 Modules", "jax", "jax.tree.flatten"),
    ("`jax.tree.unflatten`", "jax", "jax.tree.unflatten"),
    ("`jax.tree_util.tree_flatten_with_path`", "jax", "tree_flatten_with_path"),
    ("`jax.tree.map`", "jax", "jax.tree.map"),
    ("jitted call, 10 quantities in and out", "jit", TEN),
    ("the same with `unxt.Quantity`", "unxt", TEN_UNXT),
)


def markdown(results: Results, python: Results, about: str, command: str) -> str:
    """The short tables: of the README, and of docs/figures.md."""
    lines = [
        "| | Equinox | by hand | treepress | gain | without a compiler |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, table, case in FIRST_TABLE:
        times = results.get(table, {}).get(case)
        if times is None:
            continue
        fallback = python.get(table, {}).get(case)
        cells = [micro(times.get(peer)) for peer in (EQUINOX, BY_HAND, OURS)]
        cells += [_gain(times), _gain(fallback)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", *_partitions(results, python)]
    lines += ["", f"{about}. `{command}` prints it again."]
    return "\n".join(lines)


def _partitions(results: Results, python: Results) -> list[str]:
    rows = (
        ("`eqx.nn.MLP`, accelerated", "partition", partition.ACCELERATED),
        ("`eqx.nn.MLP` as it is", "partition", partition.PLAIN),
        ("21 such in a list", "partition", partition.MANY),
        ("100 nested dicts", "partition", partition.NESTED),
        ("1 array, 100,000 other leaves", "static", partition.STATIC),
        ("two types, 50 layers", "partition", partition.LAYERS),
        ("three predicates, 1,000 leaves", "partition", partition.PREDICATES),
        ("jitted call, 100 arrays of nested dicts", "calls", partition.NESTED),
        ("jitted call, 1 array of 100,001 leaves", "calls", partition.STATIC),
    )
    lines = [
        "| partition / combine | Equinox | Inox | treepress | gain | without a compiler |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, table, name in rows:
        kinds = ("jitted call",) if table == "calls" else ("partition", "combine")
        cases = [f"{kind}, {name}" for kind in kinds]
        ours = [results.get(table, {}).get(case) for case in cases]
        if None in ours:
            continue
        times = [row for row in ours if row is not None]
        joined = beside(results[table], python.get(table, {}))
        with_python = [
            {**row, OURS: joined[c][PYTHON]}
            for row, c in zip(times, cases)
            if PYTHON in joined[c]
        ]
        cells = [
            _joined([micro(row.get(peer)) for row in times])
            for peer in (EQUINOX, INOX, OURS)
        ]
        cells += [_joined(list(map(_gain, times))), _joined(list(map(_gain, with_python)))]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _joined(cells: list[str]) -> str:
    return " / ".join(cells).replace(" µs /", " /") if any(cells) else ""


def _gain(times: Mapping[str, float] | None) -> str:
    if not times:
        return ""
    # Of two that are slower, the faster.
    other = min([times[peer] for peer in (EQUINOX, INOX) if peer in times], default=0.0)
    return f"{other / times[OURS]:.1f}x" if other else ""


def micro(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e6:,.{0 if seconds >= 100e-6 else 1}f} µs"


def _time(seconds: float | None, unit: str) -> str:
    if seconds is None:
        return ""
    value = seconds * _SCALES[unit]
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
