"""Measures treepress as it is here beside what it was, and says what differs.

    python benchmarks/compare.py [--base REF] [--rounds N] [--only TEXT] [--fail-above RATIO]

The package of a commit (that at which this branch left main; on main itself, the one before)
and that of the working tree are compiled, each into a folder of its own. Then processes take
turns that measure one or the other, the commit twice as often: so it is also compared with
itself, which shows what a difference has to exceed. All with the packages that are installed
beside the Python that runs this.
"""

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final, NamedTuple

from progress import Progress
from timing import Call, call, interleave

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = Path(__file__).resolve().parent / "build" / "compare"
SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")

# Who is measured: the working tree, and the base twice.
NEW: Final = "new"
BASE: Final = "base"
AGAIN: Final = "base again"

# Seconds for each figure of each process.
EACH: Final = 0.15
# Differences below this are never spoken of: how a process happens to lie in memory makes
# as much.
LEAST: Final = 0.03
# In how many of all pairs of processes the same one must be the faster.
SURE: Final = 0.95

# By benchmark, seconds, or why it cannot be measured.
Figures = dict[str, float | str]


class Result(NamedTuple):
    """A benchmark: all seconds of both, and what to think of them."""

    name: str
    base: float
    new: float
    # How far off the ratio may be, as a part of it.
    noise: float
    # How the base differs from itself.
    itself: float
    differs: bool

    @property
    def ratio(self) -> float:
        return self.new / self.base


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", default="", metavar="REF", help="a commit, see above")
    parser.add_argument("--rounds", type=_count, default=5, metavar="N", help="default: 5")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="what has it in its name"
    )
    parser.add_argument(
        "--fail-above",
        type=float,
        default=math.inf,
        metavar="RATIO",
        help="end with 1 if anything takes more than this many times as long as before",
    )
    # What a process that measures is given: the folder that it is to measure.
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        print(json.dumps(measured(arguments.measure, arguments.only)))
        return 0
    if not any(arguments.only in name for name in BENCHMARKS):
        parser.error(f"no benchmark has {arguments.only!r} in its name")
    commit = _commit(arguments.base, parser)
    print(f"base: {_git('log', '-1', '--format=%h %s', commit)}")
    print(f"new:  the working tree, {_state()}", flush=True)
    packages = {BASE: _package(commit), NEW: _package(None)}
    packages[AGAIN] = packages[BASE]
    rounds = _rounds(packages, arguments.rounds, arguments.only)
    return report(rounds, arguments.fail_above)


def _count(text: str) -> int:
    value = int(text)
    if value < 3:
        raise argparse.ArgumentTypeError("3 or more, to tell noise from a difference")
    return value


# What is compared.


def _commit(ref: str, parser: argparse.ArgumentParser) -> str:
    try:
        if ref:
            return _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        here = _git("rev-parse", "HEAD")
        left = _git("merge-base", "main", "HEAD")
        return left if left != here else _git("rev-parse", "HEAD^")
    except subprocess.CalledProcessError:
        parser.error(f"git knows no commit {ref or 'main'}; name one with BASE= or --base")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _state() -> str:
    changed = _git("status", "--porcelain", "--", *SOURCES)
    head = _git("log", "-1", "--format=%h %s")
    return f"{head}{', changed' if changed else ''}"


def _package(commit: str | None) -> Path:
    """The folder with the compiled package, built if it is not there from before."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        if commit is None:
            _copy(source)
        else:
            archive = Path(folder, "commit.tar")
            _git("archive", "--output", str(archive), commit)
            with tarfile.open(archive) as file:
                file.extractall(source, filter="data")
        made = BUILD / _fingerprint(source)
        if not (made / "treepress").exists():
            _build(source, made)
    return made


def _copy(source: Path) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source)


def _fingerprint(source: Path) -> str:
    """Of all that the compiled package is made of."""
    digest = hashlib.sha256(sys.version.encode())
    made_of = [source / "pyproject.toml", source / "setup.py", *source.glob("src/**/*")]
    for file in sorted(made_of):
        if file.is_file():
            name = file.relative_to(source).as_posix()
            digest.update(f"\0{name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _build(source: Path, made: Path) -> None:
    print(f"compiling {made.name} ...", flush=True)
    shutil.rmtree(made, ignore_errors=True)
    environment = {**_clean(), "TREEPRESS_BUILD_COMPILED": "1"}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    # Whole or not at all, so that what is there can be used again.
    with tempfile.TemporaryDirectory(dir=_made(BUILD)) as folder:
        done = subprocess.run(
            [*pip, "--target", folder, str(source)],
            env=environment,
            text=True,
            capture_output=True,
        )
        if done.returncode != 0:
            sys.exit(f"{source.name} cannot be built:\n{done.stdout}{done.stderr}")
        shutil.copytree(folder, made)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _clean() -> dict[str, str]:
    """The variables of this process, without those that change what is imported."""
    unwanted = ("TREEPRESS_", "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS")
    return {
        name: value for name, value in os.environ.items() if not name.startswith(unwanted)
    }


# The measurement.


def _rounds(packages: dict[str, Path], count: int, only: str) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {who: [] for who in packages}
    order = list(packages)
    shuffle = random.Random(0).shuffle
    with Progress() as progress:
        for done in range(count):
            # Who is first may find a cooler processor.
            shuffle(order)
            for i, who in enumerate(order):
                progress.show((done + i / len(order)) / count)
                found[who].append(_process(packages[who], only))
    return found


def _process(package: Path, only: str) -> Figures:
    command = [sys.executable, __file__, "--measure", str(package), "--only", only]
    environment = {
        **_clean(),
        "PYTHONPATH": str(package),
        "TREEPRESS_BACKEND": "compiled",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measured(package: Path, only: str) -> Figures:
    """The figures of one process."""
    import treepress
    from treepress.kernels import node

    for module in (treepress, node):
        assert Path(str(module.__file__)).is_relative_to(package), module.__file__
    assert str(node.__file__).endswith(tuple(EXTENSION_SUFFIXES)), node.__file__
    figures: Figures = {}
    calls: dict[str, Call] = {}
    for name, make in BENCHMARKS.items():
        if only in name:
            try:
                calls[name] = made = make()
                made.function(*made.arguments)
            except Exception as error:
                calls.pop(name, None)
                figures[name] = f"{type(error).__name__}: {error}"
    times = interleave(list(calls.values()), EACH * len(calls))
    figures.update(zip(calls, times, strict=True))
    return figures


# What is said of it.


def compared(
    name: str, base: Sequence[float], again: Sequence[float], new: Sequence[float]
) -> Result:
    """What the seconds of some processes each tell."""
    both = [*base, *again]
    itself = statistics.median(again) / statistics.median(base) - 1
    # Of each median, from how far the processes lie apart; three times that is rare.
    errors = [_spread(values) / math.sqrt(len(values)) for values in (both, new)]
    noise = max(LEAST, 3 * math.hypot(*errors), abs(itself))
    ratio = statistics.median(new) / statistics.median(both)
    pairs = [n > b for n in new for b in both]
    slower = sum(pairs) / len(pairs)
    differs = abs(math.log(ratio)) > math.log1p(noise) and not 1 - SURE < slower < SURE
    return Result(
        name, statistics.median(both), statistics.median(new), noise, itself, differs
    )


def _spread(values: Sequence[float]) -> float:
    """The standard deviation as a part of the median, not heeding some far off."""
    middle = statistics.median(values)
    return 1.48 * statistics.median([abs(value - middle) for value in values]) / middle


def report(rounds: dict[str, list[Figures]], fail_above: float) -> int:
    results: list[Result] = []
    failed = False
    notes = []
    for name in rounds[NEW][0]:
        base, again, new = (
            [figures[name] for figures in rounds[who]] for who in (BASE, AGAIN, NEW)
        )
        bad_base = [value for value in (*base, *again) if isinstance(value, str)]
        bad_new = [value for value in new if isinstance(value, str)]
        if bad_new:
            failed = True
            notes.append(f"{name}: fails, {bad_new[0]}")
        elif bad_base:
            taken = statistics.median([float(value) for value in new])
            notes.append(f"{name}: new, {_time(taken)}; the base fails, {bad_base[0]}")
        else:
            numbers = [[float(value) for value in row] for row in (base, again, new)]
            results.append(compared(name, *numbers))
    print(table(results))
    for note in notes:
        print(note)
    differing = [result for result in results if result.differs]
    if results:
        most = max(abs(result.itself) for result in results)
        print(f"\nThe base differs from itself by up to {100 * most:.1f} %.")
    for result in differing:
        word = "slower" if result.ratio > 1 else "faster"
        print(f"{result.name}: {word} beyond noise, {result.ratio:.2f} times the base.")
    if not differing:
        print("Nothing differs beyond noise.")
    above = [result for result in differing if result.ratio > fail_above]
    if above:
        print(f"{len(above)} above {fail_above:g}: it fails.")
    return 1 if failed or above else 0


def table(results: Sequence[Result]) -> str:
    rows = [["", "base", "new", "new/base", "noise", ""]]
    for result in results:
        rows.append(
            [
                result.name,
                _time(result.base),
                _time(result.new),
                f"{result.ratio:.2f}",
                f"± {100 * result.noise:.0f} %",
                ("slower" if result.ratio > 1 else "faster") if result.differs else "",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells, last in rows:
        padded = [
            f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=False)
        ]
        lines.append("  ".join([f"{first:<{widths[0]}}", *padded, last]).rstrip())
    return "\n".join(["", *lines])


def _time(seconds: float) -> str:
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


# The benchmarks. Each makes what it needs when it is asked, with public names alone: an older
# treepress may lack some, and then only those benchmarks that speak of them fail.


def _module_class(base: Any) -> Any:
    import equinox as eqx
    import jax

    class Node(base):  # type: ignore[misc]
        x: jax.Array
        y: jax.Array
        z: jax.Array
        unit: str = eqx.field(static=True)

        def method(self) -> Any:
            return self.x

    return Node


def _mixed() -> Any:
    import treepress

    return _module_class(treepress.Module)


def _in_place() -> Any:
    import equinox as eqx

    import treepress

    return treepress.accelerate(_module_class(eqx.Module))


def _dataclass() -> Any:
    import dataclasses

    import treepress

    @treepress.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Node:
        x: Any
        y: Any
        z: Any
        unit: str = dataclasses.field(metadata={"static": True})

    return Node


def _nodes(cls: Any, count: int = 100) -> list[Any]:
    import numpy as np

    zero = np.zeros(())
    return [cls(zero, zero, zero, "m") for _ in range(count)]


def _flatten(make: Callable[[], Any]) -> Call:
    import jax

    return call(jax.tree.flatten, _nodes(make()))


def _unflatten(make: Callable[[], Any]) -> Call:
    import jax

    leaves, treedef = jax.tree.flatten(_nodes(make()))
    return call(jax.tree.unflatten, treedef, leaves)


def _with_path() -> Call:
    import jax

    return call(jax.tree_util.tree_flatten_with_path, _nodes(_mixed()))


def _map() -> Call:
    import jax

    return call(jax.tree.map, _same, _nodes(_mixed()))


def _jit() -> Call:
    import jax
    import jax.numpy as jnp

    function = jax.jit(_same)
    cls = _mixed()
    nodes = [cls(*[jnp.float32(i)] * 3, "m") for i in range(4)]
    function(nodes)
    return call(function, nodes)


def _filter_jit() -> Call:
    import treepress

    function = treepress.filter_jit(_same)
    model = _mlp()
    function(model)
    return call(function, model)


def _same(tree: Any) -> Any:
    return tree


def _mlp() -> Any:
    import equinox as eqx
    import jax

    import treepress

    treepress.accelerate(eqx.nn.MLP, eqx.nn.Linear)
    return eqx.nn.MLP(2, 2, 8, 4, key=jax.random.key(0))


def _dicts() -> Any:
    import numpy as np

    return {f"layer{i}": {"weight": np.zeros(()), "name": "x"} for i in range(100)}


def _partition(tree: Any) -> Call:
    import jax
    import numpy as np

    import treepress

    return call(treepress.tree_partition, tree, (jax.Array, np.ndarray))


def _combine(tree: Any) -> Call:
    import treepress

    made = _partition(tree)
    return call(treepress.tree_combine, *made.function(*made.arguments))


def _attribute(node: Any) -> Any:
    return node.x


def _method(node: Any) -> Any:
    return node.method


def _node() -> Any:
    return _nodes(_mixed(), 1)[0]


def _construct() -> Call:
    import numpy as np

    zero = np.zeros(())
    return call(_mixed(), zero, zero, zero, "m")


BENCHMARKS: Final[dict[str, Callable[[], Call]]] = {
    "flatten, 100 Modules": lambda: _flatten(_mixed),
    "unflatten, 100 Modules": lambda: _unflatten(_mixed),
    "flatten with path, 100 Modules": _with_path,
    "tree map, 100 Modules": _map,
    "flatten, 100 accelerated in place": lambda: _flatten(_in_place),
    "unflatten, 100 accelerated in place": lambda: _unflatten(_in_place),
    "flatten, 100 dataclasses": lambda: _flatten(_dataclass),
    "unflatten, 100 dataclasses": lambda: _unflatten(_dataclass),
    "attribute": lambda: call(_attribute, _node()),
    "method": lambda: call(_method, _node()),
    "construct": _construct,
    "partition, MLP": lambda: _partition(_mlp()),
    "combine, MLP": lambda: _combine(_mlp()),
    "partition, 100 dicts": lambda: _partition(_dicts()),
    "combine, 100 dicts": lambda: _combine(_dicts()),
    "jitted call, 4 Modules in and out": _jit,
    "filter_jit, MLP in and out": _filter_jit,
}


if __name__ == "__main__":
    sys.exit(main())
