"""What a profile sees of attributes that are read and set, methods bound, instances made."""

import itertools
from collections import Counter
from types import FunctionType
from typing import Any, Final

from . import _construct, _reads
from ._hooks import stub_of_any, stub_of_reads
from ._methods import BoundMethod
from ._times import Account, Times, clock, net

# Of so many that are read or set one is measured: a prime, so as not to fall into step with a
# loop.
_PRIME: Final = 17


class Members:
    """How often, by class, and how long it took."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.read: Counter[type] = Counter()
        self.bound: Counter[type] = Counter()
        self.constructed: Counter[type] = Counter()
        # Those in what is constructed too.
        self.set: Counter[type] = Counter()
        self.read_times, self.bound_times, self.set_times = Times(), Times(), Times()
        self._binds = 0

    def forget(self, cls: type) -> None:
        for counter in (self.read, self.bound, self.constructed, self.set):
            del counter[cls]
        for times in (self.read_times, self.bound_times, self.set_times):
            times.samples.clear()

    def watch_construction(self) -> None:
        self._watch_sets()
        self._watch_calls()

    def watch_reads(self) -> None:
        account, costs = self.account, self.account.costs
        reads, times = self.read, self.read_times
        numbers = itertools.count(1)

        def make(theirs: Any) -> Any:
            def read(obj: Any, name: str) -> Any:
                if account.thread.paused:
                    account.cost += costs.read_passed
                    return theirs(obj, name)
                account.cost += costs.read
                reads[type(obj)] += 1
                if next(numbers) % _PRIME:
                    return theirs(obj, name)
                before, binds = account.cost, self._binds
                begin = clock()
                out = theirs(obj, name)
                end = clock()
                if self._binds == binds and not _runs_code(type(obj), name):
                    times.samples.append(
                        net(end - begin, account.cost - before + costs.clock)
                    )
                account.cost += clock() - end
                return out

            return _construct.unseen(read, theirs), theirs

        account.hooks.put(_reads.EQUINOX, make, stub_of_reads)

    def _watch_sets(self) -> None:
        account, costs = self.account, self.account.costs
        sets, times = self.set, self.set_times
        numbers = itertools.count(1)

        def make(theirs: Any) -> Any:
            def assign(obj: Any, name: str, value: Any) -> Any:
                if account.thread.paused:
                    account.cost += costs.read_passed
                    return theirs(obj, name, value)
                account.cost += costs.read
                sets[type(obj)] += 1
                if next(numbers) % _PRIME:
                    return theirs(obj, name, value)
                before = account.cost
                begin = clock()
                theirs(obj, name, value)
                end = clock()
                times.samples.append(net(end - begin, account.cost - before + costs.clock))
                account.cost += clock() - end

            # Warnings count frames up to the code that they are about.
            return _construct.unseen(assign, _construct.SETATTR)

        account.hooks.put(_construct.SETATTR, make, stub_of_any)

    def _watch_calls(self) -> None:
        account, costs = self.account, self.account.costs
        constructed, bound = self.constructed, self.bound

        def make(theirs: Any) -> Any:
            def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
                account.cost += costs.construct
                if account.thread.paused:
                    return theirs(cls, *args, **kwargs)
                if cls is not BoundMethod:
                    constructed[cls] += 1
                    return theirs(cls, *args, **kwargs)
                bound[type(args[1]) if len(args) > 1 else cls] += 1
                self._binds += 1
                # What it reads is part of binding a method.
                account.thread.paused += 1
                before = account.cost
                begin = clock()
                try:
                    return theirs(cls, *args, **kwargs)
                finally:
                    account.thread.paused -= 1
                    took = net(clock() - begin, account.cost - before + costs.clock)
                    self.bound_times.samples.append(took)

            # Warnings count frames up to the code that they are about.
            return _construct.unseen(construct, _construct.CALL)

        account.hooks.put(_construct.CALL, make, stub_of_any)


def _runs_code(cls: type, name: str) -> bool:
    """Whether to read an attribute is to call a property or the like."""
    for base in cls.__mro__:
        if name in base.__dict__:
            found = type(base.__dict__[name])
            return found is not FunctionType and hasattr(found, "__get__")
    return False
