"""Measures treepress against its peers, in the terms of what is asked of it.

    python benchmarks/run.py [--quick] [--markdown] [--out FOLDER]

All that is compared is measured in one process, by turns; only the Python backend, which
is chosen at import, has a process of its own, with Equinox measured in it again.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import jax
import report
from cases import LEGEND, REFERENCE
from jit import by_arrays, first_calls
from measure import PYTHON_PEERS, Effort, Figures, imports
from partition import by_leaves
from plot import draw_all
from report import BARS, SWEEPS, TABLES

import treepress
from treepress._backend import why_python

_HERE: Final = Path(__file__).resolve().parent
_COMMAND: Final = "make bench ARGS=--markdown"
_PACKAGES: Final = ("jax", "jaxlib", "equinox", "treepress", "flax", "unxt", "quax", "inox")
_QUICK: Final = 0.1


def main() -> None:
    arguments = _arguments()
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call,unused-ignore]
    check_kernels()
    scale = _QUICK if arguments.quick else 1.0
    if arguments.figures is not None:
        _only_figures(arguments.figures, Effort(scale, PYTHON_PEERS))
        return
    versions = _versions()
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(about)
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}")
    print(f"backend: {treepress.backend}{f', since {why_python}' if why_python else ''}")
    if isinstance(REFERENCE, str):
        print(f"C reference: skipped, {REFERENCE}")
    print("\nPeers:")
    for peer, meaning in LEGEND.items():
        print(f"  {peer + ':':<16}{meaning}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    python = _with_python_backend(arguments)
    results: dict[str, Figures] = {}
    for table in TABLES:
        results[table.name] = table.measure(Effort(scale))
        other = python.get(table.name, {})
        figures = report.beside(results[table.name], other)
        print(f"\n{report.times_text(table.title, table.unit, figures)}", flush=True)
        shares = report.shares_text(results[table.name], other)
        if shares:
            print(f"\n{shares}", flush=True)
        _show_bars(table.name, results)
    results["import"] = imports(Effort(scale))
    print(f"\n{report.times_text('Import', 'ms', results['import'])}", flush=True)
    _show_bars("import", results)
    _print_fallback(results, python if treepress.backend == "compiled" else results)
    for table in SWEEPS:
        results[table.name] = table.measure(Effort(scale))
    results["first"] = first_calls(Effort(scale))
    text = report.times_text("filter_jit: the first call", "ms", results["first"])
    print(f"\n{text}", flush=True)
    _show_bars("first", results)
    results["arrays"] = by_arrays(Effort(scale))
    print(f"\n{report.arrays_text(results['arrays'])}", flush=True)
    _show_bars("arrays", results)
    results["leaves"] = by_leaves(Effort(scale))
    _print_leaves(results["leaves"], python.get("leaves", {}))
    _write(arguments.out, versions, results, python)
    if arguments.markdown:
        names = ("Python", "jax", "equinox")
        short = ", ".join(f"{name} {versions[name]}" for name in names)
        short += f", the {treepress.backend} backend"
        print(f"\n{report.markdown(results, python, short, _COMMAND)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="a minute or so, and less sure"
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the tables of the README and of docs/figures.md too",
    )
    parser.add_argument("--out", type=Path, default=_HERE / "results", metavar="FOLDER")
    # How a run asks for the figures of the other backend.
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def check_kernels() -> None:
    """Refuse to measure anything else than what `treepress.backend` says.

    Where the source of the kernels is found before what was compiled of it, it is
    imported without a word, and runs several times slower.
    """

    class Node(treepress.Module):
        x: object

    kernel: Any = Node._eqx_tree_flatten
    assert treepress.describe(Node).accelerated, treepress.describe(Node)
    interpreted = isinstance(kernel, FunctionType) or isinstance(
        type(kernel).__call__, FunctionType
    )
    if interpreted != (treepress.backend == "python"):
        sys.exit(
            f"treepress.backend is {treepress.backend}, but the kernels are "
            f"{'interpreted' if interpreted else 'compiled'}: {kernel!r} of "
            f"{type(kernel).__module__}. Install treepress again, not editable, and take "
            f"its source off PYTHONPATH."
        )


def _with_python_backend(arguments: argparse.Namespace) -> dict[str, Figures]:
    """The figures of the Python backend, beside the compiled ones."""
    if treepress.backend == "python":
        return {}
    path = arguments.out / "python.json"
    command = [sys.executable, __file__, "--figures", str(path)]
    if arguments.quick:
        command.append("--quick")
    environment = {**os.environ, "TREEPRESS_BACKEND": "python"}
    subprocess.run(command, env=environment, check=True)
    figures: dict[str, Figures] = json.loads(path.read_text())
    path.unlink()
    return figures


def _only_figures(path: Path, effort: Effort) -> None:
    results = {table.name: table.measure(effort) for table in (*TABLES, *SWEEPS)}
    results["leaves"] = by_leaves(effort)
    path.write_text(json.dumps(results))


def _show_bars(name: str, results: dict[str, Figures]) -> None:
    bars = [bar for bar in BARS if bar.table == name]
    if bars and treepress.backend == "compiled":
        print(f"\n{report.bars_text(bars, results)}", flush=True)


def _print_fallback(results: dict[str, Figures], python: dict[str, Figures]) -> None:
    bars = report.fallback_bars(results)
    figures = {name: report.fallback_figures(results, python, name) for name in results}
    print("\nThe Python backend, against Equinox (of jitted calls, the overhead alone)")
    print(report.bars_text(bars, figures), flush=True)


def _print_leaves(figures: Figures, python: Figures) -> None:
    each = {
        size: {peer: taken / int(size) for peer, taken in times.items()}
        for size, times in report.beside(figures, python).items()
    }
    title = "Partition and combine, by the number of leaves: for each leaf"
    print(f"\n{report.times_text(title, 'ns', each)}", flush=True)


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _write(
    folder: Path,
    versions: dict[str, str],
    results: dict[str, Figures],
    python: dict[str, Figures],
) -> None:
    everything = {
        "versions": versions,
        "machine": {"architecture": platform.machine(), "cores": os.cpu_count()},
        "backend": treepress.backend,
        "seconds": results,
        "seconds, Python backend": python,
    }
    written = folder / "results.json"
    written.write_text(json.dumps(everything, indent=1) + "\n")
    print(f"\nwritten: {written}")
    for path, fault in draw_all(everything, folder).items():
        print(f"no plot: {fault}" if fault else f"drawn:   {path}")


if __name__ == "__main__":
    main()
