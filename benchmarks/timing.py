"""Times of calls, measured so that they can be compared.

A machine that others use too is now fast, now slow, for seconds at a time. So the calls
that are to be compared take turns in small batches, over a time that is long beside such
spells, and of each call the fastest batch counts: the time that it takes when nothing is
in its way.
"""

import random
import timeit
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

from progress import Progress

# Long enough for the clock, short enough to often fall between two disturbances.
BATCH: Final = 200e-6
LEAST_ROUNDS: Final = 15
# Calls after a change, which are not counted.
WARMING: Final = 20


class Call(NamedTuple):
    """`function(*arguments)`, to be timed; `before` is called before each batch."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    before: Callable[[], None] | None = None


def call(function: Callable[..., Any], *arguments: Any) -> Call:
    return Call(function, arguments)


def interleave(
    calls: Sequence[Call], seconds: float, least: int = LEAST_ROUNDS
) -> list[float]:
    """The time that each call takes, in seconds, by measuring for `seconds` in all.

    There are at least `least` rounds, however long they take.

    What the loop itself takes is measured as one of the candidates, and taken off. The
    garbage collector is off meanwhile, as `timeit` has it.
    """
    timers = [*map(_timer, calls), timeit.Timer("pass")]
    before = [*[c.before for c in calls], None]
    batches = []
    for timer, prepare in zip(timers, before, strict=True):
        if prepare is not None:
            prepare()
        batches.append(_number(timer))
    best = [taken for _, taken in batches]
    order = list(range(len(timers)))
    # The order changes, since a call may leave the caches worse for the next. It is the
    # same in each run.
    shuffle = random.Random(0).shuffle
    start = perf_counter()
    rounds = 0
    with Progress() as progress:
        while rounds < least or perf_counter() < start + seconds:
            shuffle(order)
            for i in order:
                number, _ = batches[i]
                prepare = before[i]
                if prepare is not None:
                    prepare()
                    timers[i].timeit(WARMING)
                best[i] = min(best[i], timers[i].timeit(number) / number)
            rounds += 1
            progress.show(min(rounds / least, (perf_counter() - start) / seconds))
    *times, loop = best
    return [taken - loop for taken in times]


def _timer(c: Call) -> timeit.Timer:
    names = [f"a{i}" for i in range(len(c.arguments))]
    # Function and arguments become local variables of the loop.
    return timeit.Timer(
        f"function({', '.join(names)})",
        f"function, ({''.join(f'{name}, ' for name in names)}) = given",
        globals={"given": c[:2]},
    )


def _number(timer: timeit.Timer) -> tuple[int, float]:
    """How many calls make a batch, and what each took in the first that was one."""
    number = 1
    while (taken := timer.timeit(number)) < BATCH:
        number = max(number + 1, int(number * min(10.0, 1.2 * BATCH / max(taken, 1e-7))))
    return number, taken / number
