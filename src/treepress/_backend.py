"""Which kernels run: decided once, when treepress is imported."""

import importlib
import importlib.machinery
import importlib.util
import os
from types import ModuleType
from typing import Any, Final, Literal

_VARIABLE: Final = "TREEPRESS_BACKEND"
_KERNELS: Final = "treepress.kernels.node"


def _compiled() -> tuple[ModuleType | None, str]:
    """The compiled kernels, or None and the reason why there are none."""
    spec = importlib.util.find_spec(_KERNELS)
    # The loader decides, not the import: `node.py` lies beside the extension module, and
    # where that is missing it would be imported in silence and run interpreted.
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        where = spec.origin if spec is not None else "nothing"
        return None, (
            f"this installation has no compiled kernels ({_KERNELS} is {where}). It was "
            f"built without a C compiler or with TREEPRESS_BUILD_PURE set; install a "
            f"wheel for this platform, or build again where a C compiler works"
        )
    try:
        return importlib.import_module(_KERNELS), ""
    except ImportError as error:
        return None, f"the compiled kernels cannot be loaded: {error}"


def _choose() -> tuple[ModuleType | None, str]:
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in ("", "compiled", "python"):
        raise ImportError(
            f"{_VARIABLE} is {wanted!r}. Set it to 'compiled' or 'python', or unset it "
            f"to have the compiled kernels where there are any"
        )
    if wanted == "python":
        return None, f"{_VARIABLE} is set to 'python'"
    module, reason = _compiled()
    if module is None and wanted == "compiled":
        raise ImportError(f"{_VARIABLE} is set to 'compiled', but {reason}")
    return module, reason


# The compiled kernels of single nodes, or None; and if None, why.
kernels, why_python = _choose()

# Those of whole trees, compiled or interpreted.
tree_kernels: Final[Any] = importlib.import_module(
    "treepress.fallback.tree" if kernels is None else "treepress.kernels.tree"
)

# That of methods.
method_kernels: Final[Any] = importlib.import_module(
    "treepress.fallback.method" if kernels is None else "treepress.kernels.method"
)

# That of jitted functions.
caller_kernels: Final[Any] = importlib.import_module(
    "treepress.fallback.caller" if kernels is None else "treepress.kernels.caller"
)

backend: Final[Literal["compiled", "python"]] = "python" if kernels is None else "compiled"
