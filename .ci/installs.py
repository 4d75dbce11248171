"""Installs what is in `dist` as a user would, and looks at what that gives.

    python .ci/installs.py [--dist FOLDER] [PYTHON ...]

For each Python named (else for the one that runs this), in new environments where no
compiler is found: with all wheels there pip takes the compiled one, with the pure wheel alone
that; both bring what JAX and Equinox bring and nothing else, and `python -m treepress doctor`
says which one it is. Needs access to a package index, for JAX and Equinox.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from wheels import ROOT, clean, run

PURE = "-none-any.whl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    dist = arguments.dist.resolve()
    pure = sorted(dist.glob(f"treepress-*{PURE}"))
    if len(pure) != 1:
        sys.exit(f"there is no pure wheel in {dist}; make wheel puts one there")
    version = pure[0].name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder, "alone")
        alone.mkdir()
        shutil.copy(pure[0], alone)
        for python in arguments.pythons:
            for wheels, backend in ((dist, "compiled"), (alone, "python")):
                environment = Path(folder, "environment")
                shutil.rmtree(environment, ignore_errors=True)
                run([python, "-m", "venv", str(environment)])
                _check(environment, wheels, version, backend)
    return 0


def _check(environment: Path, wheels: Path, version: str, backend: str) -> None:
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / ("python.exe" if os.name == "nt" else "python"))
    variables = _variables(scripts)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--report"]
    report = environment / "report.json"
    found = ["--find-links", str(wheels), f"treepress=={version}"]
    run([*install, str(report), *found], variables)
    brought = _packages(report)
    taken = brought.pop("treepress")
    name = taken.rpartition("/")[2]
    if not taken.startswith("file:") or name.endswith(PURE) != (backend == "python"):
        sys.exit(f"pip took {taken} where it should take the {backend} wheel of {wheels}")
    # What is there but was not brought is what every environment has.
    listed = json.loads(run([*pip, "list", "--format", "json"], variables))
    there = {package["name"].lower().replace("_", "-") for package in listed}
    there -= {"pip", "setuptools", "treepress"}
    dry = ["--dry-run", "--ignore-installed", "jax", "equinox"]
    run([*install, str(report), *dry], variables)
    expected = set(_packages(report))
    if not there == set(brought) == expected:
        sys.exit(
            f"installed were {sorted(there)}; jax and equinox bring {sorted(expected)}"
        )
    done = subprocess.run(
        [python, "-m", "treepress", "doctor", "--json"],
        cwd=environment,
        env=variables,
        text=True,
        capture_output=True,
    )
    if not done.stdout:
        sys.exit(f"doctor failed:\n{done.stderr}")
    said = json.loads(done.stdout)
    if said["backend"] != backend or done.returncode != (0 if backend == "compiled" else 1):
        sys.exit(f"doctor ended with {done.returncode} and said:\n{done.stdout}")
    print(
        f"Python {said['versions']['python']}: {name}, and {len(there)} packages that jax "
        f"and equinox bring; doctor says {backend}, and ends with {done.returncode}",
        flush=True,
    )


def _packages(report: Path) -> dict[str, str]:
    """By name, where pip took a package from."""
    return {
        one["metadata"]["name"].lower().replace("_", "-"): one["download_info"]["url"]
        for one in json.loads(report.read_text(encoding="utf-8"))["install"]
    }


def _variables(scripts: Path) -> dict[str, str]:
    """Where nothing is found but this environment, and no compiler."""
    return {**clean(), "PATH": str(scripts), "CC": "false", "CXX": "false"}


if __name__ == "__main__":
    sys.exit(main())
