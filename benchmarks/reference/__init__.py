"""The C reference: what the kernels of treepress are held against.

The extension is built when it is first asked for, next to the benchmarks and never
installed. Nothing of treepress depends on it.
"""

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

_NAME = "treepress_reference"
_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE / f"{_NAME}.c"
_BUILT = _HERE.parent / "build"


class Reference(Protocol):
    """The functions of the extension. Each returns a callable with vectorcall."""

    def flatten(
        self,
        dynamic: tuple[str, ...],
        static: tuple[str, ...],
        wrappers: tuple[str, ...],
        missing: object,
        /,
    ) -> Callable[[Any], Any]: ...

    def flatten_with_keys(
        self,
        dynamic: tuple[str, ...],
        static: tuple[str, ...],
        wrappers: tuple[str, ...],
        missing: object,
        keys: tuple[object, ...],
        /,
    ) -> Callable[[Any], Any]: ...

    def unflatten(
        self,
        cls: type,
        dynamic: tuple[str, ...],
        static: tuple[str, ...],
        wrappers: tuple[str, ...],
        missing: object,
        /,
    ) -> Callable[[Any, Any], Any]: ...


def load() -> Reference | str:
    """The extension, built if it is not importable; or why there is none."""
    try:
        return cast(Reference, importlib.import_module(_NAME))
    except ImportError:
        pass
    fault = _build()
    if fault:
        return fault
    sys.path.append(str(_BUILT))
    try:
        return cast(Reference, importlib.import_module(_NAME))
    except ImportError as error:
        return f"it was built and cannot be imported: {error}"


def _build() -> str:
    """Build it unless that is done. Returns why it cannot be."""
    # The source's age decides in setuptools too, but to ask it costs half a second.
    tag = f"{_NAME}.{sys.implementation.cache_tag}*"
    changed = _SOURCE.stat().st_mtime
    if any(built.stat().st_mtime > changed for built in _BUILT.glob(tag)):
        return ""
    with tempfile.TemporaryDirectory() as objects:
        folders = ["--build-lib", str(_BUILT), "--build-temp", objects]
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", *folders],
            cwd=_HERE,
            capture_output=True,
            text=True,
        )
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or ["no message"]
    return f"it could not be built: {lines[-1]}"
