"""The kernels of whole trees, interpreted.

They are plain Python that is as good as any written for the interpreter alone. So this
module is their source file, run again under this name: also where that file was compiled
and an import of `treepress.kernels.tree` would give the extension module.
"""

from pathlib import Path

_source = Path(__file__).parent.parent / "kernels" / "tree.py"
exec(compile(_source.read_bytes(), str(_source), "exec"))
