"""`profile`: where the pytree time of a program goes, and what treepress would save of it."""

import json
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _backend, _calibrate
from ._dispatch import Calls
from ._doctor import versions
from ._estimate import Found, estimate, nothing
from ._times import clock
from ._watch import Watch

_running = threading.Lock()


class Profile(Found):
    """What `profile` found. `print` shows it as a table, and so does a notebook.

    Attributes:
        wall: how many seconds the program took, without what profiling added.
        overhead: how many seconds profiling added, as far as it knows.
        classes: a `ClassProfile` each, what took longest first.
        functions: a `FunctionProfile` for each function of `equinox.filter_jit`.
        sites: a `SiteProfile` for each line that flattened Modules, the worst first.
        saving: what `install` and `filter_jit` would save.
        installing: how many seconds `install` itself takes, once, about.
        notes: what could not be seen.
        versions: of all that matters, and the backend.
    """

    # What is found is asked of `_found`, by `__getattr__`: it is there when it has ended.
    def __init__(self) -> None:
        self._found: Found | None = None
        self._watch = Watch()
        self._calls = Calls(self._watch)
        self._begin: int | None = None
        self.versions = {**versions(), "backend": _backend.backend}

    def __enter__(self) -> "Profile":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to watch, as `with` does.

        Raises:
            RuntimeError: where it has begun before, or another profile is being made.
        """
        if self._begin is not None:
            raise RuntimeError("a profile is made once; call treepress.profile() again")
        if not _running.acquire(blocking=False):
            raise RuntimeError(
                "another profile is being made; there is one at a time in a process"
            )
        try:
            _calibrate.start(self._watch, self._calls)
        except BaseException:
            self._watch.stop()
            # What was seen until now is not of what is to be profiled.
            self._forget()
            _running.release()
            raise
        self._begin = clock()

    def stop(self) -> bool:
        """End it, as the end of `with` does. Whether it had begun, and not ended yet."""
        if self._begin is None or self._found is not None:
            return False
        elapsed = clock() - self._begin
        watch, calls = self._watch, self._calls
        try:
            watch.stop()
            try:
                self._found = estimate(watch, calls, elapsed)
            except Exception as error:  # what the program raises is not to be hidden
                self._found = nothing(watch, elapsed, error)
        finally:
            # Once more what an interrupt may have come into.
            try:
                watch.stop()
                if self._found is None:
                    self._found = nothing(watch, elapsed, KeyboardInterrupt())
            finally:
                _running.release()
            self._forget()
        return True

    def _forget(self) -> None:
        # What they hold is the program's.
        self._calls.clear()
        self._watch = Watch()
        self._calls = Calls(self._watch)

    def __getattr__(self, name: str) -> Any:
        if name in Found.__dataclass_fields__:
            if self._found is None:
                raise AttributeError(f"the profile has no {name} before it has ended")
            return getattr(self._found, name)
        raise AttributeError(f"a profile has no attribute {name!r}")

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data, times in seconds."""
        return {
            "versions": self.versions,
            "wall": self.wall,
            "overhead": self.overhead,
            "saving": self.saving._asdict(),
            "installing": self.installing,
            "classes": [each._asdict() for each in self.classes],
            "functions": [each._asdict() for each in self.functions],
            "sites": [each._asdict() for each in self.sites],
            "notes": list(self.notes),
        }

    def to_json(self, path: "str | Path | None" = None) -> str:
        """All of it as JSON, which is also written to a file if one is named."""
        return _written(json.dumps(self.as_dict(), indent=2) + "\n", path)

    def to_html(self, path: "str | Path | None" = None) -> str:
        """A page with a plot that needs no network, also written to a file if one is named."""
        from ._report import page

        return _written(page(self), path)

    def __str__(self) -> str:
        if self._found is None:
            return "a treepress profile that has not ended"
        from ._report import text

        return text(self)

    def __repr__(self) -> str:
        if self._found is None:
            return "<treepress profile, not ended>"
        return f"<treepress profile of {self.wall:.3g} s>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *Found.__dataclass_fields__})

    def _repr_html_(self) -> str:
        from ._report import body

        return body(self) if self._found is not None else str(self)


def _written(text: str, path: "str | Path | None") -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def profile() -> Profile:
    """Find out where the pytree time of a program goes, and what treepress would save.

    While the `with` block runs, Module classes are watched in place: how many nodes JAX
    flattens and unflattens, how many attributes are read, methods bound and instances
    constructed, and the calls of `equinox.filter_jit`. Nodes of classes that could be
    accelerated go through Equinox's functions and treepress's kernels by turns, so that both
    are measured in the program itself. Afterwards everything is as it was.

    Returns:
        a `Profile`, to be used with `with`; what it found is there when the block has ended.

    Raises:
        RuntimeError: where another profile is being made in this process.

    Cost: some 1 ms for each Module class that there is at the start; some 0.4 µs for each node,
    0.7 µs for each attribute and 2.5 µs for each construction. All of it is added up and taken
    off; `overhead` says how much it was. Each function of `equinox.filter_jit` gets a twin that
    is compiled three times, and is called after each of its first calls, then ever more rarely.

    Example:
        >>> import equinox as eqx, jax, treepress
        >>> model = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
        >>> with treepress.profile() as p:
        ...     for _ in range(100):
        ...         _ = jax.tree.leaves(model)
        >>> [(c.name, c.flattened) for c in p.classes if c.flattened == 100]
        [('equinox.nn._mlp.MLP', 100)]
        >>> "What would be saved:" in str(p)
        True
    """
    return Profile()
