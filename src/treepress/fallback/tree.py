"""The kernels of whole trees, interpreted.

They are plain Python that is as good as any written for the interpreter alone. So their
source files are run again, as modules of this package: also where they were compiled and an
import from `treepress.kernels` would give the extension modules.
"""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path


def _run(name: str, source: str) -> None:
    # Through a loader, which keeps the bytecode.
    path = Path(__file__).parent.parent / "kernels" / source
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    sys.modules[name] = module = module_from_spec(spec)
    loader.exec_module(module)


# Each after those that it imports.
for _name in ("shape", "walk", "build", "mapping", "pattern", "call"):
    _run(f"treepress.fallback.{_name}", f"{_name}.py")
_run(__name__, "tree.py")
