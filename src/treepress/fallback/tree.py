"""The kernels of whole trees, interpreted: see `interpreted`."""

from . import interpreted

# Each after those that it imports.
for _name in ("shape", "walk", "build", "mapping", "pattern", "call"):
    interpreted(f"treepress.fallback.{_name}", f"{_name}.py")
interpreted(__name__, "tree.py")
