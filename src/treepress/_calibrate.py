"""What the hooks of a profile cost, on this machine and now."""

from . import _swap, module
from ._dispatch import Calls
from ._rates import least, pair
from ._watch import Watch, clock


def start(watch: Watch, calls: Calls) -> None:
    """Begin to watch, and find out what the hooks cost."""
    probe = _Probe()
    before = probe.costs(watch)
    watch.start()
    calls.start()
    after = probe.costs(watch)
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
        self.cls, _ = pair(2, own=False)
        self.instance = self.cls(1.0, 2.0)
        known = module.known
        held = _swap.held_by(self.cls, known) if not isinstance(known, str) else known
        self.held = held if isinstance(held, _swap.Held) else None

    def costs(self, watch: Watch) -> dict[str, float]:
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


def _cost_of_clock() -> float:
    return min(-(clock() - clock()) for _ in range(1000))
