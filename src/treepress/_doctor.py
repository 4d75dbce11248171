"""`python -m treepress doctor`: whether all that treepress does can be done here."""

import json
import os
import platform
from pathlib import Path
from typing import Any, Final

import equinox as eqx
import jax
from jaxlib import version as jaxlib_version

from . import _backend, _construct, _fit, _runtime, module
from ._version import __version__


def versions() -> dict[str, str]:
    return {
        "treepress": __version__,
        "equinox": eqx.__version__,
        "jax": jax.__version__,
        "jaxlib": jaxlib_version.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def examine() -> dict[str, Any]:
    """What there is, what was found, and what is wrong."""
    kernels = _backend.kernels
    if kernels is None:
        where = str(Path(__file__).parent / "fallback")
    else:
        where = str(kernels.__file__)
    hook = module.known if isinstance(module.known, str) else ""
    parts = {
        "kernels": _backend.why_python,
        "registration": hook,
        "attributes and methods": hook or _fit.why_never(),
        "construction": hook or _construct.why_never(),
        "filter_jit": _runtime.reason,
    }
    return {
        "versions": versions(),
        "backend": _backend.backend,
        "loaded from": where,
        "parts": {name: reason or "fine" for name, reason in parts.items()},
        "problems": [
            {"what": name, "why": reason, "do": _advice(name)}
            for name, reason in parts.items()
            if reason
        ],
    }


_OTHER_VERSION: Final = (
    "Use another version of treepress or of Equinox; until then this part is as fast as "
    "without treepress, and right"
)


def _advice(part: str) -> str:
    if part != "kernels":
        return _OTHER_VERSION
    if os.environ.get("TREEPRESS_BACKEND"):
        return "Unset it"
    return _backend.BUILD


def report(as_json: bool) -> int:
    """Print it; 1 if anything that makes programs fast is off."""
    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print(_text(found))
    return 1 if found["problems"] else 0


def _text(found: dict[str, Any]) -> str:
    rows = {**found["versions"], "backend": found["backend"]}
    rows["loaded from"] = found["loaded from"]
    width = max(map(len, [*rows, *found["parts"]])) + 1
    lines = [f"{name + ':':<{width}} {value}" for name, value in rows.items()]
    lines.append("")
    lines += [f"{name + ':':<{width}} {said}" for name, said in found["parts"].items()]
    lines.append("")
    for problem in found["problems"]:
        lines += [f"{problem['what']} off: {problem['why']}.", f"  {problem['do']}."]
    if not found["problems"]:
        lines.append(f"All is well on the {found['backend']} backend.")
    return "\n".join(lines)
