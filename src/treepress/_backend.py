"""Which kernels run: decided once, when treepress is imported."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Final, Literal

_VARIABLE: Final = "TREEPRESS_BACKEND"
_KERNELS: Final = "treepress.kernels.node"
BUILD: Final = (
    "Where a C compiler works, TREEPRESS_BUILD_COMPILED=1 pip install --force-reinstall "
    "--no-deps --no-binary treepress treepress builds them, or says why it cannot; with a "
    "folder of the source, its path instead of the last treepress"
)


def _compiled() -> tuple[ModuleType | None, str]:
    """The compiled kernels, or None and the reason why there are none."""
    spec = importlib.util.find_spec(_KERNELS)
    # The loader decides, not the import: `node.py` lies beside the extension module, and
    # where that is missing it would be imported in silence and run interpreted.
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        where = spec.origin if spec is not None else "nothing"
        return None, (
            f"this installation has no compiled kernels ({_KERNELS} is {where}): it was "
            f"built without a C compiler or with TREEPRESS_BUILD_PURE set, is the wheel for "
            f"all platforms, or is no installation but the source itself"
        )
    try:
        return importlib.import_module(_KERNELS), ""
    except ImportError as error:
        return None, f"the compiled kernels cannot be loaded: {error}"


def _interpreted() -> ModuleType:
    """The kernels that are to be compiled, run as Python, which shows what of them is run."""
    module = importlib.import_module(_KERNELS)
    if not str(module.__file__).endswith(".py"):
        raise ImportError(
            f"{_VARIABLE} is set to 'interpreted', but the kernels of this installation are "
            f"compiled. Install one that was built with TREEPRESS_BUILD_PURE set"
        )
    for name in ("method", "caller"):
        # They name a decorator that is there for the compiler alone.
        spec = importlib.util.find_spec(f"treepress.kernels.{name}")
        assert spec is not None
        assert spec.loader is not None
        made: Any = importlib.util.module_from_spec(spec)
        made.mypyc_attr = lambda **_: lambda cls: cls
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
    return module


def _choose() -> tuple[ModuleType | None, str]:
    wanted = os.environ.get(_VARIABLE, "")
    # The last is for coverage, and none for users.
    if wanted not in ("", "compiled", "python", "interpreted"):
        raise ImportError(
            f"{_VARIABLE} is {wanted!r}. Set it to 'compiled' or 'python', or unset it "
            f"to have the compiled kernels where there are any"
        )
    if wanted == "python":
        return None, f"{_VARIABLE} is set to 'python'"
    if wanted == "interpreted":
        return _interpreted(), f"{_VARIABLE} is set to 'interpreted'"
    module, reason = _compiled()
    if module is None and wanted == "compiled":
        raise ImportError(f"{_VARIABLE} is set to 'compiled', but {reason}. {BUILD}")
    return module, reason


# The compiled kernels of single nodes, or None; and why it is Python that runs.
kernels, why_python = _choose()


def _kernels(name: str) -> Any:
    """Other kernels, compiled or interpreted."""
    package = "fallback" if kernels is None else "kernels"
    return importlib.import_module(f"treepress.{package}.{name}")


# Those of whole trees, of methods, of construction, and of jitted functions.
tree_kernels: Final = _kernels("tree")
method_kernels: Final = _kernels("method")
construct_kernels: Final = _kernels("construct")
caller_kernels: Final = _kernels("caller")

backend: Final[Literal["compiled", "python"]] = "python" if kernels is None else "compiled"
"""Which kernels run: `"compiled"`, or `"python"` where there are none or
`TREEPRESS_BACKEND` forbids them."""
