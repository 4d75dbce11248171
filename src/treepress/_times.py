"""How long things took that a profile measures, and what its hooks in them cost."""

import threading
import time
from collections import deque
from typing import Final

from ._hooks import Hooks

clock: Final = time.perf_counter_ns

# How many times are kept of each.
_MOST: Final = 20_000


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


def net(taken: float, hooks: float) -> float:
    """What something took without hooks in it, which may have been slower when measured."""
    return max(taken - hooks, taken / 4)


class Thread(threading.local):
    """Whether what a thread does is no doing of the program's."""

    paused = 0


class Account:
    """What all hooks share: themselves, what they cost, and in which threads they count."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.costs = Costs()
        # What all of them have cost, in nanoseconds.
        self.cost = 0.0
        self.thread = Thread()
