"""The virtual environments and source packages that other projects' suites run in."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = Path(__file__).resolve().parent / "build"
PLUGINS: Final = Path(__file__).resolve().parent / "plugin"

_SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
_VERSION: Final = (
    "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
)


class Failed(Exception):
    """A step of the preparation went wrong; says which and how."""


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        if sys.platform == "win32":
            return self.folder / "Scripts" / "python.exe"
        return self.folder / "bin" / "python"

    def pip(self, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        command = [str(self.python), "-m", "pip", *arguments]
        run(command, {**clean(), **(variables or {})})

    def version(self, package: str) -> str:
        return run([str(self.python), "-c", _VERSION, package], clean()).strip()


def environment(name: str, requirements: Iterable[str], fresh: bool) -> Environment:
    """The environment called so, with treepress as this checkout has it."""
    made = Environment(BUILD / f"{name}-{sys.version_info[0]}.{sys.version_info[1]}")
    wanted = json.dumps([sys.version, *requirements])
    stamp = made.folder / "requirements.json"
    if fresh or not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(made.folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(made.folder)], clean())
        made.pip("install", "--quiet", "--upgrade", "pip")
        # In one go with treepress, so that pip finds versions that go with all of it.
        made.pip("install", "--quiet", _wheel(made), *requirements)
        stamp.write_text(wanted)
    else:
        made.pip("install", "--quiet", "--no-deps", "--force-reinstall", _wheel(made))
    return made


def _wheel(made: Environment) -> str:
    # Built from a copy. In the checkout it would take in what lies in `build` from before,
    # and the kernels must be compiled: without them a run would not be what it says it is.
    copy, wheels = made.folder / "treepress", made.folder / "wheel"
    for folder in (copy, wheels):
        shutil.rmtree(folder, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd")
            shutil.copytree(source, copy / name, ignore=unwanted)
        else:
            shutil.copy(source, copy / name)
    compiled = {"TREEPRESS_BUILD_COMPILED": "1"}
    made.pip(
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(wheels),
        str(copy),
        variables=compiled,
    )
    (wheel,) = wheels.glob("treepress-*.whl")
    return str(wheel)


def source_package(made: Environment, package: str, version: str) -> Path:
    """The folder with what the source package of that version holds."""
    unpacked = BUILD / "sources" / f"{package}-{version}"
    if not unpacked.exists():
        archives = BUILD / "archives"
        made.pip(
            *("download", "--quiet", "--no-deps", "--no-binary", package),
            *("--dest", str(archives), f"{package}=={version}"),
        )
        (archive,) = archives.glob(f"{package}-{version}.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(unpacked.parent, filter="data")
    return unpacked


def copied(checkout: Path, name: str) -> Path:
    """The tests of a checkout in a folder of their own.

    Beside the package that they test they would import that in the place of the installed
    one, and not in each process the same.
    """
    copy = BUILD / "sources" / name
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    shutil.copy(checkout / "pyproject.toml", copy)
    shutil.copytree(checkout / "tests", copy / "tests")
    return copy


def pytest_variables(folder: Path) -> dict[str, str]:
    """The variables that the suite asks the plugin pytest-env to set.

    That plugin sets them after treepress.auto has imported JAX, which is too late for
    some, so they are set from outside, for the run without it too.
    """
    configuration = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    table = configuration.get("tool", {}).get("pytest_env", {})
    return {name: str(value) for name, value in table.items()}


def clean() -> dict[str, str]:
    """The variables of this process, without those that change what is imported."""
    unwanted = ("TREEPRESS_", "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS")
    return {
        name: value for name, value in os.environ.items() if not name.startswith(unwanted)
    }


def run(command: list[str], variables: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=variables, text=True, capture_output=True)
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise Failed(f"{' '.join(command)} failed:\n{said}")
    return done.stdout
