"""The kernels of whole trees, interpreted.

They are plain Python that is as good as any written for the interpreter alone. So this
module is their source file, run again under this name: also where that file was compiled
and an import of `treepress.kernels.tree` would give the extension module.
"""

from importlib.machinery import SourceFileLoader
from pathlib import Path

# Through a loader, which keeps the bytecode.
_loader = SourceFileLoader(
    __name__, str(Path(__file__).parent.parent / "kernels" / "tree.py")
)
_code = _loader.get_code(__name__)
assert _code is not None
exec(_code)
