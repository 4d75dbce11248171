"""What the hooks of a profile cost, on this machine and now."""

from collections.abc import Callable
from typing import Any

from . import _swap, module
from ._dispatch import Calls
from ._rates import pair
from ._watch import Watch, clock

_ROUNDS = 150
_NUMBER = 10


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

    def more(work: Callable[[], Any]) -> float:
        return max(0.0, _least(watch, work) - without[work])

    costs = watch.costs
    costs.clock = min(-(clock() - clock()) for _ in range(1000))
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


def _least(watch: Watch, work: Callable[[], Any]) -> float:
    """The nanoseconds that something takes, but for what is known of the hooks in it."""
    times = []
    for _ in range(_ROUNDS):
        cost = watch.cost
        begin = clock()
        for _ in range(_NUMBER):
            work()
        times.append((clock() - begin - (watch.cost - cost)) / _NUMBER)
    return min(times)
