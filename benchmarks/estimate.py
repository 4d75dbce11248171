"""What `treepress.profile` says would be saved, beside what is.

    python benchmarks/estimate.py [--rounds N]

Two programs are profiled, and run as they are, with `treepress.install()`, and with
`treepress.filter_jit` for Equinox's, each in a process of its own. These processes run by
turns, a quarter of a second each, and sleep meanwhile, so that whatever else slows the machine
down slows all of them. Needs a system with SIGSTOP.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = Path(__file__).parent / "programs"
STEPS: Final = {"training": 6000, "simulation": 1500}
WAYS: Final = {
    "training": ("plain", "install", "filter_jit", "both"),
    "simulation": ("plain", "install"),
}

# It sleeps when all is there that every way has, as a profile begins then.
CHILD: Final = """
import os, runpy, signal, sys
import jax, equinox, treepress
assert treepress.backend == "compiled"
way, sys.argv = sys.argv[1], sys.argv[2:]
os.kill(os.getpid(), signal.SIGSTOP)
if way in ("install", "both"):
    treepress.install()
if way in ("filter_jit", "both"):
    equinox.filter_jit = treepress.filter_jit
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SLICE: Final = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    results = {name: _program(name, arguments.rounds) for name in STEPS}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print()
    for name, result in results.items():
        print(f"{name}: {result['seconds']['plain']:.2f} s as it is")
        for way, (estimated, measured) in result["saved"].items():
            off = estimated / measured - 1 if measured > 0 else float("nan")
            print(
                f"  {way:<10}  saved {measured:6.2f} s   estimated {estimated:6.2f} s   "
                f"{off:+.0%}"
            )


def _program(name: str, rounds: int) -> dict[str, Any]:
    estimates = []
    seconds = dict.fromkeys(WAYS[name], 0.0)
    for number in range(rounds):
        print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        estimates.append(_profile(name))
        for way, took in _by_turns(name).items():
            seconds[way] += took / rounds
    saved = {}
    for way in WAYS[name][1:]:
        # As a share of the time, which is another one when it is profiled. What `install`
        # itself takes is a part of what is measured.
        shares = [
            (each["saving"][way] - each["installing"] * (way != "filter_jit"))
            / each["wall"]
            for each in estimates
        ]
        estimated = sum(shares) / len(shares) * seconds["plain"]
        saved[way] = (estimated, seconds["plain"] - seconds[way])
    return {"seconds": seconds, "saved": saved}


def _by_turns(name: str) -> dict[str, float]:
    """How many seconds each way was awake until it was done."""
    started = {}
    for way in WAYS[name]:
        command = [sys.executable, "-c", CHILD, way, *_arguments(name)]
        started[way] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status = os.waitpid(started[way].pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            sys.exit(f"{name} ended before it began")
    seconds = dict.fromkeys(started, 0.0)
    awake = list(started)
    while awake:
        for way in list(awake):
            process = started[way]
            begin = time.perf_counter()
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(SLICE)
                awake.remove(way)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGSTOP)
            seconds[way] += time.perf_counter() - begin
            if process.returncode:
                sys.exit(f"{name} failed")
    return seconds


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
