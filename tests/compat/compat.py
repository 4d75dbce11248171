"""Runs other projects' test suites without treepress.auto and with it, test by test.

    python tests/compat/compat.py [--suite NAME ...] [--equinox CHECKOUT ...]

Each suite has a virtual environment of its own, in which it is run twice. Ends with 1 if
any test comes out differently, and with 2 if a run is not what it should have been.
"""

import argparse
import platform
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import speed
from environment import Environment, Failed, copied, environment, source_package
from runs import Outcome, Run, Runner, argument


@dataclass(frozen=True)
class Suite:
    package: str
    requirements: tuple[str, ...]
    paths: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    # xdist refuses workers that do not have the same tests: parameters with an address.
    workers: bool = True
    # No source package on PyPI has the tests: they are those of a checkout.
    checkout: bool = False
    python: tuple[int, int] = (3, 11)
    remark: str = ""


_NO_HOOK: Final = ("-o", "addopts=")

SUITES: Final = {
    suite.package: suite
    for suite in (
        Suite("quax", ("beartype",)),
        Suite("inox", ()),
        Suite(
            "optree",
            ("numpy",),
            ("tests/integrations/test_jax.py", "tests/integrations/test_imports.py"),
            workers=False,
            remark="its integration with JAX",
        ),
        Suite(
            "unxt",
            (
                *("beartype", "hypothesis[numpy]", "matplotlib", "unxt-hypothesis"),
                *("pytest-arraydiff", "pytest-benchmark", "pytest-mpl", "sybil[pytest]"),
            ),
            ("tests/unit", "tests/integration"),
            python=(3, 12),
            remark="its unit and integration tests; it needs Python 3.12",
        ),
        Suite("lineax", ("beartype",), options=_NO_HOOK, checkout=True),
        Suite(
            "optimistix",
            ("beartype", "diffrax", "optax", "sif2jax"),
            options=_NO_HOOK,
            checkout=True,
        ),
        Suite(
            "equinox",
            ("beartype", "optax"),
            options=_NO_HOOK,
            checkout=True,
            remark="without jaxtyping's import hook, which must come before Equinox is "
            "imported, and so before treepress.auto; and so for lineax and optimistix",
        ),
    )
}

_COLUMNS: Final = ("suite", "version", "tests", "without", "with", "classes", "differences")
_BEGIN, _END = "<!-- compat: begin -->", "<!-- compat: end -->"
# Each test that differs is run alone so often, with treepress.auto and without; and if
# there are more of them, none is: such a run has more to tell than which are steady.
_AGAIN: Final = 2
_MOST_AGAIN: Final = 25


@dataclass(frozen=True)
class Difference:
    test: str
    without: Outcome
    accelerated: Outcome
    alone: str = ""
    flaky: bool = False


@dataclass(frozen=True)
class Result:
    suite: Suite
    version: str
    plain: Run
    accelerated: Run
    differences: tuple[Difference, ...]

    def row(self) -> tuple[str, ...]:
        flaky = sum(difference.flaky for difference in self.differences)
        differences = str(len(self.differences) - flaky)
        classes = [int(process["classes"]) for process in self.accelerated.processes]
        return (
            self.suite.package,
            self.version,
            str(len(self.plain.outcomes)),
            self.plain.counts(),
            self.accelerated.counts(),
            str(max(classes)),
            f"{differences}, and {flaky} not steady" if flaky else differences,
        )


def main() -> int:
    arguments = _arguments()
    try:
        if arguments.benchmarks:
            packages = arguments.suite or list(speed.PACKAGES)
            return speed.main(
                packages, arguments.backend, arguments.rounds, arguments.fresh
            )
        names = arguments.suite or [
            name for name, suite in SUITES.items() if not _lacking(suite, arguments)
        ]
        results = [_compare(SUITES[name], arguments) for name in names]
    except Failed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 2
    print("\n" + _text(results, arguments.backend))
    if arguments.markdown is not None:
        _write(arguments.markdown, _markdown(results, arguments.backend))
    differences = [each for result in results for each in result.differences]
    return 1 if any(not difference.flaky for difference in differences) else 0


def _compare(suite: Suite, arguments: argparse.Namespace) -> Result:
    print(f"== {suite.package}: preparing", flush=True)
    made, folder, version = _prepare(suite, arguments)
    workers = ("-n", str(arguments.n)) if arguments.n and suite.workers else ()
    sample = (arguments.every, arguments.part)
    runner = Runner(suite.package, made, folder, arguments.backend, suite.options, *sample)
    print(f"== {suite.package} {version}: without treepress.auto", flush=True)
    plain = runner.before("plain") if arguments.again else None
    if plain is None:
        plain = runner.run("plain", False, *suite.paths, *workers)
    print(f"   {plain.counts()}", flush=True)
    print(f"== {suite.package} {version}: with treepress.auto", flush=True)
    accelerated = runner.run("auto", True, *suite.paths, *workers)
    print(f"   {accelerated.counts()}", flush=True)
    absent = Outcome("not there")
    tests = dict.fromkeys([*plain.outcomes, *accelerated.outcomes])
    pairs = [
        (test, plain.outcomes.get(test, absent), accelerated.outcomes.get(test, absent))
        for test in tests
    ]
    different = [pair for pair in pairs if pair[1].word != pair[2].word]
    differences = [
        _judged(runner, *pair) if len(different) <= _MOST_AGAIN else Difference(*pair)
        for pair in different
    ]
    return Result(suite, version, plain, accelerated, tuple(differences))


def _prepare(suite: Suite, arguments: argparse.Namespace) -> tuple[Environment, Path, str]:
    name, requirements = suite.package, ("pytest>=8", *suite.requirements)
    if arguments.n:
        requirements = (*requirements, "pytest-xdist>=3")
    if suite.checkout:
        checkout = Path(getattr(arguments, name)).resolve()
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
        version = str(project["project"]["version"])
        made = environment(
            f"{name}-{version}", (str(checkout), *requirements), arguments.fresh
        )
        return made, copied(checkout, f"{name}-{version}"), version
    made = environment(name, (name, *requirements), arguments.fresh)
    version = made.version(name)
    return made, source_package(made, name, version), version


def _lacking(suite: Suite, arguments: argparse.Namespace) -> str:
    """What a suite needs and is not there."""
    if sys.version_info[:2] < suite.python:
        return f"it needs Python {suite.python[0]}.{suite.python[1]} or later"
    if suite.checkout and getattr(arguments, suite.package) is None:
        return f"its tests are in no source package: name a checkout with --{suite.package}"
    return ""


def _judged(
    runner: Runner, test: str, without: Outcome, accelerated: Outcome
) -> Difference:
    """The difference, with what it comes to when the test is run alone."""
    print(f"   alone: {test}", flush=True)
    words: dict[bool, list[str]] = {False: [], True: []}
    for _ in range(_AGAIN):
        for auto, said in words.items():
            said.append(_alone(runner, test, auto))
    alone = f"alone {' and '.join(words[False])} without, {' and '.join(words[True])} with"
    return Difference(
        test, without, accelerated, alone, {without.word} != set(words[False])
    )


def _alone(runner: Runner, test: str, auto: bool) -> str:
    try:
        outcomes = runner.run("alone", auto, argument(test)).outcomes
    except Failed as failure:
        return str(failure).splitlines()[0]
    return outcomes[test].word if test in outcomes else "not there"


def _text(results: list[Result], backend: str) -> str:
    rows = [_COLUMNS, *(result.row() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]
    lines += ["", _about(results, backend)]
    for result in results:
        for difference in result.differences:
            lines += ["", f"{result.suite.package}: {difference.test}"]
            lines += [f"  without: {_said(difference.without)}"]
            lines += [f"  with:    {_said(difference.accelerated)}"]
            if difference.alone:
                lines += [f"  {difference.alone}{', not steady' * difference.flaky}"]
    return "\n".join(lines)


def _markdown(results: list[Result], backend: str) -> str:
    lines = [f"{_about(results, backend)}.", ""]
    lines += [_row(_COLUMNS), _row(("---", "---", "--:", "---", "---", "--:", "---"))]
    lines += [_row(result.row()) for result in results]
    for result in results:
        if result.suite.remark:
            lines += ["", f"{result.suite.package}: {result.suite.remark}."]
    differences = [(result, each) for result in results for each in result.differences]
    if differences:
        lines += ["", "Tests that come out differently:", ""]
        for result, each in differences:
            steady = " (not steady without treepress.auto either)" * each.flaky
            lines += [f"- {result.suite.package} `{each.test}`: {each.without.word} without, "
                      f"{each.accelerated.word} with{steady}"]  # fmt: skip
    both = [
        (result, test)
        for result in results
        for test, outcome in result.plain.outcomes.items()
        if outcome.word in ("failed", "error")
        and result.accelerated.outcomes.get(test, Outcome("")).word == outcome.word
    ]
    if both:
        lines += ["", "Tests that fail without treepress.auto and with it:", ""]
        lines += [f"- {result.suite.package} `{test}`" for result, test in both]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _about(results: list[Result], backend: str) -> str:
    found: dict[str, dict[str, None]] = {}
    for result in results:
        for package, version in result.accelerated.processes[0]["versions"].items():
            found.setdefault(package, {})[version] = None
    versions = [f"{package} {' and '.join(every)}" for package, every in found.items()]
    python = f"Python {platform.python_version()}"
    return ", ".join([python, *versions, f"the {backend} backend", platform.system()])


def _said(outcome: Outcome) -> str:
    first = outcome.message.strip().splitlines()[:6]
    return "\n           ".join([outcome.word, *first])


def _write(path: Path, table: str) -> None:
    """Into the file, between its two marks if it has them."""
    old = path.read_text(encoding="utf-8") if path.exists() else f"{_BEGIN}\n{_END}\n"
    marked = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.DOTALL)
    if not marked.search(old):
        sys.exit(f"{path} has no lines {_BEGIN} and {_END} to write the table between")
    new = f"{_BEGIN}\n{table}\n{_END}"
    path.write_text(marked.sub(lambda _: new, old), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--suite", action="append", metavar="NAME", help="one of them; can be given again")
    for suite in SUITES.values():
        if suite.checkout:
            add(f"--{suite.package}", metavar="CHECKOUT", help="to run its tests too")
    add(
        "--again",
        action="store_true",
        help="take the outcomes without treepress.auto from the last time",
    )
    add("--backend", choices=("compiled", "python"), default="compiled")
    add("--markdown", type=Path, metavar="FILE", help="to write the table into")
    add("-n", type=int, default=0, metavar="WORKERS", help="of pytest-xdist")
    add(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="of the cases of each test function only the first of every N",
    )
    add("--part", type=int, default=1, metavar="K", help="or the K-th of every N")
    add("--fresh", action="store_true", help="make the environments anew")
    add(
        "--benchmarks", action="store_true", help="run quax's and unxt's benchmarks instead"
    )
    add("--rounds", type=int, default=3, help="of the benchmarks")
    arguments = parser.parse_args()
    if not 1 <= arguments.part <= arguments.every:
        parser.error(f"--part {arguments.part} is not one of 1 to {arguments.every}")
    known = list(speed.PACKAGES if arguments.benchmarks else SUITES)
    for name in arguments.suite or ():
        if name not in known:
            parser.error(f"there is no suite {name} here, but {', '.join(known)}")
        lacking = "" if arguments.benchmarks else _lacking(SUITES[name], arguments)
        if lacking:
            parser.error(f"{name}: {lacking}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
