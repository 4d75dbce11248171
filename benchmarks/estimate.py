"""What `treepress.profile` says would be saved, beside what is.

    python benchmarks/estimate.py [--rounds N]

Two programs are profiled, and run as they are, with `treepress.install()`, and with
`treepress.filter_jit` for Equinox's, by turns, each in a process of its own; of the times the
least counts. Nothing else should run meanwhile.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parent / "programs"
STEPS: Final = {"training": 6000, "simulation": 1500}
WAYS: Final = {
    "training": ("plain", "install", "filter_jit", "both"),
    "simulation": ("plain", "install"),
}

# Timed from after the imports that all ways have, as the profile is.
CHILD: Final = """
import sys, time, runpy
import jax, equinox, treepress
way, sys.argv = sys.argv[1], sys.argv[2:]
begin = time.perf_counter()
if way in ("install", "both"):
    treepress.install()
if way in ("filter_jit", "both"):
    equinox.filter_jit = treepress.filter_jit
runpy.run_path(sys.argv[0], run_name="__main__")
print("took", time.perf_counter() - begin, treepress.backend)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results = {name: _program(name, arguments.rounds) for name in STEPS}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print()
    for name, result in results.items():
        print(f"{name}: {result['plain']:.2f} s as it is, {result['backend']} backend")
        for way, (estimated, measured) in result["saved"].items():
            off = estimated / measured - 1 if measured > 0 else float("nan")
            print(
                f"  {way:<10}  saved {measured:6.2f} s   estimated {estimated:6.2f} s   "
                f"{off:+.0%}"
            )


def _program(name: str, rounds: int) -> dict[str, Any]:
    estimates = [_profile(name) for _ in range(2)]
    times: dict[str, list[float]] = {way: [] for way in WAYS[name]}
    backend = ""
    for number in range(rounds):
        print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for way in WAYS[name]:
            took, backend = _run(name, way)
            times[way].append(took)
        estimates.append(_profile(name))
    least = {way: min(measured) for way, measured in times.items()}
    saved = {}
    for way in WAYS[name][1:]:
        # As a share of the time, since a profile is no run of the quickest.
        shares = sorted(each["saving"][way] / each["wall"] for each in estimates)
        estimated = shares[len(shares) // 2] * least["plain"]
        saved[way] = (estimated, least["plain"] - least[way])
    return {"plain": least["plain"], "backend": backend, "saved": saved, "times": times}


def _run(name: str, way: str) -> tuple[float, str]:
    command = [sys.executable, "-c", CHILD, way, *_arguments(name)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    _, took, backend = done.stdout.splitlines()[-1].split()
    return float(took), backend


def _profile(name: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        command = [sys.executable, "-m", "treepress", "profile", "--json", str(out)]
        subprocess.run([*command, *_arguments(name)], check=True, capture_output=True)
        return json.loads(out.read_text(encoding="utf-8"))


def _arguments(name: str) -> list[str]:
    return [str(PROGRAMS / f"{name}.py"), str(STEPS[name])]


if __name__ == "__main__":
    main()
