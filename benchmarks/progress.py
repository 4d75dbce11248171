"""A line on a terminal that says how far a long measurement is."""

import sys
from time import perf_counter
from typing import Final

# Nothing is shown of what takes less.
PATIENCE: Final = 2.0


class Progress:
    """Shown on stderr, if that is a terminal, and gone in the end."""

    def __init__(self, what: str = "measuring") -> None:
        self.what = what
        self._start = perf_counter()
        self._shown = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print(f"\r{' ' * self._shown}\r", end="", file=sys.stderr, flush=True)

    def show(self, part: float) -> None:
        """Say that a part of it, from 0 to 1, is done."""
        if sys.stderr.isatty() and perf_counter() > self._start + PATIENCE:
            text = f"{self.what}: {100 * min(1.0, part):3.0f} %"
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)
