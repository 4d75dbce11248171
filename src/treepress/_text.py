"""What the commands print alike: durations, and tables."""

from collections.abc import Iterable, Sequence


def duration(seconds: float) -> str:
    if not seconds:
        return "0"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        # As it will be shown: 999.7 µs are a millisecond.
        shown = float(f"{seconds / size:.3g}")
        if abs(shown) >= 1:
            return f"{shown:.3g} {unit}" if abs(shown) < 1000 else f"{seconds:,.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def aligned(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: tuple[int, ...] = (0,)
) -> list[str]:
    """The lines of a table; its columns go to the right but for some."""
    table = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in table
    ]
