"""quax's and unxt's own benchmarks, without treepress.auto and with it."""

import json
from pathlib import Path
from typing import Final

from environment import BUILD, Failed, environment, source_package
from runs import Runner

PACKAGES: Final = {
    "quax": ("pytest-benchmark",),
    "unxt": ("pytest-benchmark", "sybil[pytest]"),
}

# As fast as without, to the steadiness of most benchmarks; what differs more is repeated.
_SLOWER: Final = 0.95
# The type checks that quax's tests ask for would be most of what is timed.
_OPTIONS: Final = ("-o", "addopts=")

Times = dict[str, float]


def main(packages: list[str], backend: str, rounds: int, fresh: bool) -> int:
    for package in packages:
        print(f"== {package}: preparing", flush=True)
        made = environment(
            f"{package}-speed", (package, "pytest>=8", *PACKAGES[package]), fresh
        )
        version = made.version(package)
        folder = source_package(made, package, version)
        runner = Runner(f"{package}-speed", made, folder, backend, _OPTIONS)
        print(f"== {package} {version}, equinox {made.version('equinox')}, "
              f"jax {made.version('jax')}", flush=True)  # fmt: skip
        plain, accelerated = _measure(runner, ("tests/benchmark",), rounds)
        # Those that look faster too: to repeat only the others would flatter.
        apart = tuple(
            test
            for test, time in plain.items()
            if not _SLOWER < time / accelerated[test] < 1 / _SLOWER
        )
        if apart:
            print(f"   repeated, since they differ: {len(apart)}", flush=True)
            again = _measure(runner, apart, 2 * rounds)
            for times, new in zip((plain, accelerated), again):
                for test, time in new.items():
                    times[test] = min(times[test], time)
        _print(plain, accelerated, apart)
    return 0


def _measure(runner: Runner, tests: tuple[str, ...], rounds: int) -> tuple[Times, Times]:
    """The least time of each benchmark without treepress.auto and with it, by turns."""
    least: dict[bool, Times] = {False: {}, True: {}}
    for turn in range(rounds):
        # What comes second may find the processor in another state.
        for auto in (False, True) if turn % 2 == 0 else (True, False):
            what = "auto" if auto else "plain"
            print(f"   round {turn + 1} of {rounds}, {what}", flush=True)
            found = _times(runner, what, auto, tests)
            for test, time in found.items():
                least[auto][test] = min(time, least[auto].get(test, time))
    if least[False].keys() != least[True].keys():
        different = sorted(least[False].keys() ^ least[True].keys())
        raise Failed(
            f"{runner.name}: only one way there are times of {', '.join(different)}"
        )
    return least[False], least[True]


def _times(runner: Runner, what: str, auto: bool, tests: tuple[str, ...]) -> Times:
    file = BUILD / "witness" / f"{runner.name}.json"
    file.unlink(missing_ok=True)
    run = runner.run(
        what, auto, "--benchmark-only", f"--benchmark-json={file}", *tests, typical=True
    )
    failed = [test for test, outcome in run.outcomes.items() if outcome.word != "passed"]
    if failed:
        print(f"   not passed: {run.counts()}", flush=True)
    return _read(file)


def _read(file: Path) -> Times:
    results = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    return {result["fullname"]: float(result["stats"]["min"]) for result in results}


def _print(plain: Times, accelerated: Times, repeated: tuple[str, ...]) -> None:
    width = max(map(len, plain))
    print(f"{'benchmark':<{width}}  without, us   with, us  times as fast")
    for test in sorted(plain, key=lambda name: plain[name] / accelerated[name]):
        ratio = plain[test] / accelerated[test]
        print(
            f"{test:<{width}}  {plain[test] * 1e6:11.1f}  {accelerated[test] * 1e6:9.1f}"
            f"  {ratio:13.2f}{'  repeated' if test in repeated else ''}"
        )
    slower = sum(plain[test] < _SLOWER * accelerated[test] for test in plain)
    print(f"{len(plain)} benchmarks, {slower} slower with treepress.auto\n", flush=True)
