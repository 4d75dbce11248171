"""What the hooks of a profile cost, on this machine and now."""

from collections.abc import Callable
from typing import Any

from . import _swap, module
from ._dispatch import Calls
from ._rates import pair
from ._times import clock
from ._watch import Watch

_ROUNDS = 200
_NUMBER = 10


class _Yardstick:
    """What is measured beside all else: the machine may be slower now than a moment ago."""

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


def start(watch: Watch, calls: Calls) -> None:
    """Begin to watch, and find out what the hooks cost."""
    cls, _ = pair(2, own=False)
    instance = cls(1.0, 2.0)
    known = module.known
    held = _swap.held_by(cls, known) if not isinstance(known, str) else known

    def read() -> Any:
        return instance.x0

    def read_dict() -> Any:
        return instance.__dict__

    def construct() -> Any:
        return cls(1.0, 2.0)

    def flatten() -> Any:
        return held.flatten(instance) if isinstance(held, _swap.Held) else None

    without = {work: _least(watch, work) for work in (read, read_dict, construct, flatten)}
    watch.start()
    calls.start()
    costs = watch.costs
    costs.clock = min(-(clock() - clock()) for _ in range(1000))

    def more(work: Callable[[], Any]) -> float:
        """In nanoseconds, as slow as the machine is now."""
        (took, yard), (took_before, yard_before) = _least(watch, work), without[work]
        return max(0.0, took - took_before * yard / yard_before)

    # In this order, since each is taken off from what holds the ones before it.
    watch.thread.paused += 1
    costs.read_dict = more(read_dict)
    costs.read_passed = more(read)
    costs.passed = more(flatten)
    watch.thread.paused -= 1
    costs.measured = costs.passed + 2 * costs.clock
    costs.read = more(read)
    costs.construct = more(construct)
    watch.forget(cls)


def _least(watch: Watch, work: Callable[[], Any]) -> tuple[float, float]:
    """The nanoseconds that something takes, and the yardstick, in the same moments.

    Without what is known of the hooks in it.
    """
    yard = _Yardstick()
    times, yards = [], []
    for _ in range(_ROUNDS):
        begin = clock()
        for _ in range(_NUMBER):
            yard.__class__  # noqa: B018
        yards.append((clock() - begin) / _NUMBER)
        cost = watch.cost
        begin = clock()
        for _ in range(_NUMBER):
            work()
        times.append((clock() - begin - (watch.cost - cost)) / _NUMBER)
    return min(times), min(yards)
