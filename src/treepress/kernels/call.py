"""Kernels that find out which function to call with which arrays, and call it."""

from typing import Any, Final

from .pattern import ARRAY, Pattern, tree_of

# How many structures are tried, for one form of call, before they are looked up.
RECENT: Final = 4


class Entry:
    """A function of arrays that was made for arguments of one structure."""

    def __init__(
        self,
        patterns: tuple[Pattern, ...],
        first: int,
        form: "Form",
        jitted: Any,
        flags: "Flags",
    ) -> None:
        self.patterns: Final = patterns
        # How many arrays the first argument has, behind which those of the function go.
        self.first: Final = first
        self.form: Final = form
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


def tree(out: dict[Any, Any]) -> object:
    """The user's result.

    The function of arrays gives a dict, with its arrays under the pattern of the result. So
    the structure goes with the trace and through JAX, which carries the keys of dicts along,
    and makes dicts and tuples without calling Python. Of a node of a class of ours it would
    have to; and the user's tree it would take apart again, to find leaves that are no arrays,
    and not call the function the fast way from then on.
    """
    for key in out:
        pattern: Pattern = key
        arrays: tuple[Any, ...] = out[key]
        return tree_of(pattern, arrays)
    raise AssertionError("no result")


class Calls:
    """All calls of one function."""

    def __init__(
        self, fixed: int, quietly: Any, bind: Any, look_up: Any, careful: Any, settle: Any
    ) -> None:
        # How many arrays the function itself has.
        self.fixed: Final = fixed
        # If warnings of donated buffers are not to be seen, what calls without them.
        self.quietly: Final = quietly
        self.bind: Final = bind
        self.look_up: Final = look_up
        self.careful: Final = careful
        self.settle: Final = settle
        # Without keywords, by the number of arguments; with, by that and the keywords.
        self.forms: dict[Any, Form] = {}

    def call(self, own: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any) -> Any:
        entry, found = self.find(own, args, kwargs)
        flags = entry.flags
        if not flags.plain:
            out: dict[Any, Any] = self.careful(entry, found, self.quietly is not None)
            return tree(out)
        try:
            if self.quietly is not None:
                out = self.quietly(entry.jitted, *found)
            # A call that lists its arguments makes no tuple and no dict of them.
            elif len(found) == 1:
                out = entry.jitted(found[0])
            else:
                out = entry.jitted(*found)
        except BaseException as error:
            if not flags.plain:
                self.settle(entry, found, None, error)
            raise
        if not flags.plain:
            self.settle(entry, found, out, None)
        return tree(out)

    def given(self, args: tuple[Any, ...], kwargs: Any) -> tuple[Form, tuple[Any, ...]]:
        """The form of a call, and its arguments in the order that this has."""
        form: Form | None
        if not kwargs:
            form = self.forms.get(len(args))
            if form is None:
                bound: Form = self.bind(self.forms, args, kwargs)
                return bound, args
            return form, args
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
        return form, args + tuple(values)

    def find(
        self, own: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any
    ) -> tuple[Entry, list[Any]]:
        """The entry for a call, and the arrays to call it with."""
        form, given = self.given(args, kwargs)
        recent = form.recent
        first = True
        for entry in recent:
            found: list[Any] = []
            matched = False
            # An error of values that cannot be compared is none of values that nobody has to.
            try:  # noqa: SIM105
                matched = entry.match(given, found)
            except Exception:
                pass
            if matched:
                if not first:
                    self.remember(form, entry)
                if self.fixed:
                    return entry, self.placed(own, found, entry.first)
                return entry, found
            first = False
        pair: tuple[Entry, list[Any]] = self.look_up(form, given)
        self.remember(form, pair[0])
        if self.fixed:
            return pair[0], self.placed(own, pair[1], pair[0].first)
        return pair

    def placed(self, own: tuple[Any, ...], given: list[Any], first: int) -> list[Any]:
        """All arrays in Equinox's order, in which JAX chooses those that it donates.

        That of the first argument, of the function itself, of the other arguments.
        """
        arrays = given[:first]
        for array in own:
            if array is not None:
                arrays.append(array)
        count = len(arrays) - first
        if count != self.fixed:
            raise TypeError(
                f"this jitted function has {count} of its {self.fixed} arrays. Where they "
                f"were taken out, by equinox.partition or the like, put them back in, by "
                f"equinox.combine, before you call it"
            )
        arrays.extend(given[first:])
        return arrays

    def remember(self, form: Form, entry: Entry) -> None:
        recent: list[Entry] = [entry]
        for other in form.recent:
            if other is not entry and len(recent) < RECENT:
                recent.append(other)
        form.recent = tuple(recent)
