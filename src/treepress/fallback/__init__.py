"""The same kernels for an interpreter without compiled ones."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path


def interpreted(name: str, source: str) -> None:
    """Run a kernel's source file again, as a module of this package.

    For those that are plain Python as good as any written for the interpreter alone. Where
    they were compiled, an import from `treepress.kernels` would give the extension modules.
    """
    # Through a loader, which keeps the bytecode.
    path = Path(__file__).parent.parent / "kernels" / source
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    sys.modules[name] = module = module_from_spec(spec)
    loader.exec_module(module)
