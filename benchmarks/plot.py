"""The plots of a run: overhead, calls and gain.

    python benchmarks/plot.py RESULTS [--out FOLDER] [--only NAME]

draws them again from a `results.json`. (`--only gain --out docs/images` is the README's.)
"""

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cases import BY_HAND, EQUINOX, FLAT, INOX, MODULE, OURS, TUPLE, C
from measure import Figures
from report import FIRST_TABLE, PYTHON, Results, beside, micro

# Peer, then the points of its line.
Lines = dict[str, list[tuple[int, float]]]

# Told apart without colour too.
_LINES: Final = (
    (EQUINOX, "Equinox", "C3", "o-"),
    (PYTHON, "treepress, Python backend", "C0", "v--"),
    (BY_HAND, "coded by hand", "C1", "s-"),
    (OURS, "treepress, compiled", "C0", "o-"),
    (C, "C reference", "black", "x:"),
    (INOX, "Inox", "C2", "d-"),
)


def draw(results: Results, python: Results, title: str, path: Path) -> str:
    """Draw the overhead of a node, and whole trees split by the number of their leaves.

    Returns why it cannot be drawn.
    """
    try:
        pyplot = _pyplot()
    except ImportError as error:
        return str(error)
    figure, axes = pyplot.subplots(
        1, 3, figsize=(15, 4.2), layout="constrained", width_ratios=(1, 1, 1.2)
    )
    axes[1].sharey(axes[0])
    panels = (
        ("fields", "arrays in a node (and a unit); 100 nodes"),
        ("nodes", "nodes of 3 arrays and a unit"),
    )
    for ax, (sweep, label) in zip(axes, panels, strict=False):
        figures = beside(results[sweep], python.get(sweep, {}))
        _draw_lines(ax, _overheads(figures, sweep))
        _scale(ax, list(results[sweep]), label)
    axes[0].set_ylabel("µs a node over a tuple,\nflattened and unflattened by JAX")
    axes[0].legend()
    leaves = beside(results["leaves"], python.get("leaves", {}))
    lines = _totals(leaves)
    # A line of this slope has a cost in proportion to the leaves.
    guide = _proportional(lines[OURS], 0.3)
    axes[2].plot(*guide, ":", color="grey", label="in proportion")
    _draw_lines(axes[2], lines)
    _scale(axes[2], list(leaves), "leaves of nested dicts, half of them arrays")
    axes[2].set_ylabel("ms, partitioned and combined")
    axes[2].legend()
    _save(pyplot, figure, title, path)
    return ""


def draw_calls(figures: Figures, title: str, path: Path) -> str:
    """Draw what a call takes by the number of its arrays. Returns why it cannot be drawn."""
    try:
        pyplot = _pyplot()
    except ImportError as error:
        return str(error)
    figure, ax = pyplot.subplots(figsize=(6.5, 4.2), layout="constrained")
    styles = {
        EQUINOX: ("equinox.filter_jit", "C3", "o-"),
        MODULE: ("jax.jit, given the Modules", "C1", "s-"),
        OURS: ("treepress.filter_jit", "C0", "o-"),
        FLAT: ("jax.jit, flat arrays", "black", "x:"),
    }
    sizes = [int(size) for size in figures]
    for peer, (name, colour, style) in styles.items():
        times = [1e6 * row[peer] for row in figures.values()]
        ax.plot(sizes, times, style, color=colour, label=name)
    _scale(ax, list(figures), "arrays in and out, in Modules of two")
    ax.set_ylabel("µs a call")
    ax.legend()
    _save(pyplot, figure, title, path)
    return ""


def draw_gain(results: Results, title: str, path: Path) -> str:
    """Draw treepress against Equinox and by hand, for the README. Returns why it cannot be."""
    try:
        pyplot = _pyplot()
    except ImportError as error:
        return str(error)
    rows = [
        (name.replace("`", ""), results[table][case])
        for name, table, case in FIRST_TABLE
        if case in results.get(table, {})
    ]
    peers = (
        (OURS, "treepress", "C0"),
        (BY_HAND, "by hand", "C1"),
        (EQUINOX, "Equinox", "C3"),
    )
    bars: dict[str, list[tuple[float, float, str]]] = {}
    for at, (_, times) in enumerate(rows):
        there = [peer for peer, _, _ in peers if peer in times]
        for i, peer in enumerate(there):
            place = at + 0.27 * (i - (len(there) - 1) / 2)
            share = times[peer] / times[EQUINOX]
            bars.setdefault(peer, []).append((place, share, micro(times[peer])))
    figure, ax = pyplot.subplots(figsize=(7.5, 0.8 + 0.5 * len(rows)), layout="constrained")
    for peer, label, colour in peers:
        places, shares, texts = zip(*bars[peer], strict=True)
        drawn = ax.barh(places, shares, 0.25, color=colour, label=label)
        ax.bar_label(drawn, texts, padding=3, fontsize=7)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize="small")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12)
    ax.set_xlabel("of Equinox's time")
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    _save(pyplot, figure, title, path)
    return ""


def draw_all(
    everything: Mapping[str, Any], folder: Path, only: str = ""
) -> dict[Path, str]:
    """Draw the plots of what a `results.json` holds. By path, why one cannot be drawn."""
    results, versions = everything["seconds"], everything["versions"]
    python = everything["seconds, Python backend"]
    title = ", ".join(f"{name} {versions[name]}" for name in ("Python", "jax", "equinox"))
    plots: dict[str, Callable[[Path], str]] = {
        "overhead": lambda path: draw(results, python, title, path),
        "calls": lambda path: draw_calls(results["arrays"], title, path),
        "gain": lambda path: draw_gain(results, title, path),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return {
        (path := folder / f"{name}.svg"): plot(path)
        for name, plot in plots.items()
        if only in ("", name)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a results.json")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER")
    parser.add_argument("--only", default="", choices=("overhead", "calls", "gain"))
    arguments = parser.parse_args()
    everything = json.loads(arguments.results.read_text())
    for path, fault in draw_all(everything, arguments.out, arguments.only).items():
        print(f"no plot: {fault}" if fault else f"drawn:   {path}")


def _pyplot() -> Any:
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    # The ids in a file are made from this; without it they are others each time.
    matplotlib.rcParams["svg.hashsalt"] = "treepress"
    return importlib.import_module("matplotlib.pyplot")


def _save(pyplot: Any, figure: Any, title: str, path: Path) -> None:
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _draw_lines(ax: Any, lines: Lines) -> None:
    for peer, name, colour, style in _LINES:
        points = lines.get(peer)
        if points:
            ax.plot(*zip(*points, strict=True), style, color=colour, label=name)


def _scale(ax: Any, sizes: list[str], label: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks([int(size) for size in sizes], [f"{int(size):,}" for size in sizes])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label)
    ax.grid(alpha=0.3, which="both")


def _totals(figures: Figures) -> Lines:
    """What it takes in all, in ms."""
    lines: Lines = {}
    for size, times in figures.items():
        for peer, seconds in times.items():
            lines.setdefault(peer, []).append((int(size), 1e3 * seconds))
    return lines


def _proportional(
    points: list[tuple[int, float]], share: float
) -> tuple[list[int], list[float]]:
    """A line through `share` of the last point and the origin."""
    size, last = points[-1]
    sizes = [at for at, _ in points]
    return sizes, [share * last * at / size for at in sizes]


def _overheads(figures: Figures, by: str) -> Lines:
    """What it takes over a tuple, in µs a node."""
    lines: Lines = {}
    for size, times in figures.items():
        nodes = int(size) if by == "nodes" else 100
        for peer, seconds in times.items():
            if peer != TUPLE:
                point = (int(size), 1e6 * (seconds - times[TUPLE]) / nodes)
                lines.setdefault(peer, []).append(point)
    return lines


if __name__ == "__main__":
    main()
