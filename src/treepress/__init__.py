"""treepress presses JAX pytrees flat, fast."""

from ._backend import backend
from ._version import __version__
from .description import Description, describe
from .inplace import (
    Accelerated,
    accelerate,
    accelerated,
    deaccelerate,
    install,
    installed,
    uninstall,
)
from .jit import filter_jit
from .module import FlatMixin, Module
from .partition import Partition
from .profiling import Profile, profile
from .records import register_dataclass
from .split import tree_combine, tree_partition
from .treedef import TreeDef

__all__ = [
    "Accelerated",
    "Description",
    "FlatMixin",
    "Module",
    "Partition",
    "Profile",
    "TreeDef",
    "__version__",
    "accelerate",
    "accelerated",
    "backend",
    "deaccelerate",
    "describe",
    "filter_jit",
    "install",
    "installed",
    "profile",
    "register_dataclass",
    "tree_combine",
    "tree_partition",
    "uninstall",
]
