"""Kernels that find out which function to call with which arrays, and call it."""

from typing import Any, Final

from .pattern import ARRAY, Pattern, Result

# How many structures are tried, for one form of call, before they are looked up.
RECENT: Final = 4


class Entry:
    """A function of arrays that was made for arguments of one structure."""

    def __init__(
        self, patterns: tuple[Pattern, ...], token: Any, jitted: Any, flags: "Flags"
    ) -> None:
        self.patterns: Final = patterns
        self.token: Final = token
        self.jitted: Final = jitted
        self.flags: Final = flags

    def match(self, given: tuple[Any, ...], found: list[Any]) -> bool:
        for obj, pattern in zip(given, self.patterns):
            if pattern.code == ARRAY and type(obj) is pattern.cls:
                found.append(obj)
            elif not pattern.match(obj, found):
                return False
        return True


class Flags:
    """What is known of the traces of an entry. (Not in it: traces must not hold entries.)"""

    def __init__(self) -> None:
        # Whether a call needs no more than the call of `jitted`.
        self.plain = False
        # Whether a trace was made that nobody has looked at.
        self.fresh = False
        # Whether a trace has callbacks, so that errors may come from the device.
        self.waits = False
        # Marks, for Equinox's errors, the frame in which it is traced.
        self.token: Any = None


class Form:
    """How a call is written: so many positional arguments, these keywords."""

    def __init__(
        self, moved: tuple[str, ...], names: tuple[str, ...], positional: int
    ) -> None:
        # Keywords whose values become positional, and those that stay.
        self.moved: Final = moved
        self.names: Final = names
        self.positional: Final = positional
        # The entries that matched last, the very last first; replaced whole, never changed.
        self.recent: tuple[Entry, ...] = ()


class Calls:
    """All calls of one function."""

    def __init__(
        self, fixed: int, quiet: bool, bind: Any, look_up: Any, careful: Any, settle: Any
    ) -> None:
        # How many arrays the function itself has.
        self.fixed: Final = fixed
        # Whether warnings of donated buffers are not to be seen.
        self.quiet: Final = quiet
        self.bind: Final = bind
        self.look_up: Final = look_up
        self.careful: Final = careful
        self.settle: Final = settle
        # Without keywords, by the number of arguments; with, by that and the keywords.
        self.forms: dict[Any, Form] = {}

    def __call__(self, own: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any) -> Any:
        entry, found = self.find(own, args, kwargs)
        flags = entry.flags
        if self.quiet or not flags.plain:
            return self.careful(entry, found, self.quiet)
        try:
            out: Result = entry.jitted(*found)
        except BaseException as error:
            if not flags.plain:
                self.settle(entry, found, None, error)
            raise
        if not flags.plain:
            self.settle(entry, found, out, None)
        return out.tree()

    def find(
        self, own: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any
    ) -> tuple[Entry, list[Any]]:
        """The entry for a call, and the arrays to call it with."""
        form: Form | None
        given = args
        if kwargs:
            keywords: dict[Any, Any] = kwargs
            form = self.forms.get((len(args), tuple(keywords)))
            if form is None:
                made: Form = self.bind(self.forms, args, kwargs)
                form = made
            values: list[Any] = []
            for name in form.moved:
                values.append(keywords[name])
            for name in form.names:
                values.append(keywords[name])
            given = args + tuple(values)
        else:
            form = self.forms.get(len(args))
            if form is None:
                bound: Form = self.bind(self.forms, args, kwargs)
                form = bound
        recent = form.recent
        first = True
        for entry in recent:
            found: list[Any] = []
            if self.fixed:
                for array in own:
                    if array is not None:
                        found.append(array)
            matched = False
            try:
                matched = entry.match(given, found)
            except Exception:
                # Of values that cannot be compared, and that nobody may have to compare.
                pass
            if matched:
                if not first:
                    self.remember(form, entry)
                return entry, found
            first = False
        pair: tuple[Entry, list[Any]] = self.look_up(form, given)
        found = []
        if self.fixed:
            for array in own:
                if array is not None:
                    found.append(array)
        found.extend(pair[1])
        self.remember(form, pair[0])
        return pair[0], found

    def remember(self, form: Form, entry: Entry) -> None:
        recent: list[Entry] = [entry]
        for other in form.recent:
            if other is not entry and len(recent) < RECENT:
                recent.append(other)
        form.recent = tuple(recent)
