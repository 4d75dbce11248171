"""Times of statements that are to be compared.

A machine that others use too is now fast, now slow; so all take turns in small batches, and of
each the fastest batch counts.
"""

import dataclasses
import random
import sys
import timeit
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

# Seconds for each figure, and the rounds that there are at least.
_EACH, _LEAST = 0.25, 10
_QUICK_EACH, _QUICK_LEAST = 0.01, 3
# Long enough for the clock, short enough to often fall between two disturbances.
_BATCH: Final = 200e-6
# Calls after a class has changed, which are not counted.
_WARMING: Final = 20
# Progress is shown of what takes longer.
_PATIENCE: Final = 2.0


class Row(NamedTuple):
    """A statement to be timed, of the names that it speaks of."""

    statement: str
    names: dict[str, Any]


@dataclasses.dataclass
class Column:
    """One of those that are compared."""

    name: str
    meaning: str
    rows: dict[str, Row]
    # Makes the classes what this column measures, and makes sure of it.
    prepare: Callable[[], None]


def measure(
    columns: Sequence[Column], quick: bool, progress: "Progress | None"
) -> dict[str, dict[str, float]]:
    """The least time of each row in each column, after many rounds."""
    timers: dict[tuple[str, str], timeit.Timer] = {}
    numbers: dict[tuple[str, str], int] = {}
    best: dict[tuple[str, str], float] = {}
    for column in columns:
        column.prepare()
        for name, row in column.rows.items():
            place = column.name, name
            timers[place] = _timer(row)
            numbers[place], best[place] = _number(timers[place])
    loop = _timer(Row("pass", {}))
    loops, loop_best = _number(loop)
    each, least = (_QUICK_EACH, _QUICK_LEAST) if quick else (_EACH, _LEAST)
    start = perf_counter()
    seconds = each * len(timers)
    shuffle = random.Random(0).shuffle
    order = list(columns)
    rounds = 0
    while rounds < least or perf_counter() < start + seconds:
        shuffle(order)
        for column in order:
            column.prepare()
            names = list(column.rows)
            shuffle(names)
            for name in names:
                place = column.name, name
                timer, number = timers[place], numbers[place]
                timer.timeit(min(_WARMING, number))
                best[place] = min(best[place], timer.timeit(number) / number)
            if progress is not None:
                done = min(rounds / least, (perf_counter() - start) / seconds)
                progress.show(min(1.0, done))
        loop_best = min(loop_best, loop.timeit(loops) / loops)
        rounds += 1
    if progress is not None:
        progress.done += 1
    found: dict[str, dict[str, float]] = {}
    for (column_name, name), taken in best.items():
        found.setdefault(name, {})[column_name] = max(0.0, taken - loop_best)
    return found


def _timer(row: Row) -> timeit.Timer:
    # The names become local variables of the loop. `timeit` has the garbage collector off.
    setup = "; ".join(f"{name} = given[{name!r}]" for name in row.names) or "pass"
    return timeit.Timer(row.statement, setup, globals={"given": row.names})


def _number(timer: timeit.Timer) -> tuple[int, float]:
    """How many times make a batch, and what each took in the first that was one."""
    number = 1
    while (taken := timer.timeit(number)) < _BATCH:
        number = max(number + 1, int(number * min(10.0, 1.2 * _BATCH / max(taken, 1e-7))))
    return number, taken / number


class Progress:
    """A line on a terminal, once it takes long."""

    def __init__(self, subjects: int) -> None:
        self.subjects = subjects
        self.done = 0
        self._start = perf_counter()
        self._shown = False

    def show(self, part: float) -> None:
        if sys.stderr.isatty() and perf_counter() > self._start + _PATIENCE:
            percent = 100 * (self.done + part) / self.subjects
            print(f"\rmeasuring: {percent:3.0f} %", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r" + " " * 20 + "\r", end="", file=sys.stderr, flush=True)
            self._shown = False
