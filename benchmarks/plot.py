"""The plot: overhead per node by the number of fields and the number of nodes."""

import importlib
from pathlib import Path
from typing import Any, Final

from cases import BY_HAND, EQUINOX, OURS, TUPLE, C
from measure import Figures
from report import PYTHON, Results, beside

# Told apart without colour too.
_LINES: Final = (
    (EQUINOX, "Equinox", "C3", "o-"),
    (PYTHON, "treepress, Python backend", "C0", "v--"),
    (BY_HAND, "coded by hand", "C1", "s-"),
    (OURS, "treepress, compiled", "C0", "o-"),
    (C, "C reference", "black", "x:"),
)


def draw(results: Results, python: Results, title: str, path: Path) -> str:
    """Draw the plot to `path`. Returns why it cannot be drawn."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        return str(error)
    figure, axes = pyplot.subplots(
        1, 2, figsize=(10, 4.2), sharey=True, layout="constrained"
    )
    panels = (
        ("fields", "arrays in a node (and a unit); 100 nodes"),
        ("nodes", "nodes of 3 arrays and a unit"),
    )
    for ax, (sweep, label) in zip(axes, panels, strict=True):
        lines = _overheads(beside(results[sweep], python.get(sweep, {})), sweep)
        for peer, name, colour, style in _LINES:
            points = lines.get(peer)
            if points:
                ax.plot(*zip(*points, strict=True), style, color=colour, label=name)
        ax.set_xscale("log")
        ax.set_yscale("log")
        sizes = list(results[sweep])
        ax.set_xticks([int(size) for size in sizes], sizes)
        ax.set_xticks([], minor=True)
        ax.set_xlabel(label)
        ax.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("µs a node over a tuple,\nflattened and unflattened by JAX")
    axes[0].legend()
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return ""


def _overheads(figures: Figures, by: str) -> dict[str, list[tuple[int, float]]]:
    """Peer, then the points of its line: what it takes over a tuple, in µs a node."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for size, times in figures.items():
        nodes = int(size) if by == "nodes" else 100
        for peer, seconds in times.items():
            if peer != TUPLE:
                point = (int(size), 1e6 * (seconds - times[TUPLE]) / nodes)
                lines.setdefault(peer, []).append(point)
    return lines
