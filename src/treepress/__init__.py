"""treepress presses JAX pytrees flat, fast."""

from typing import TYPE_CHECKING, Any

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
from .records import register_dataclass
from .split import tree_combine, tree_partition
from .treedef import TreeDef

if TYPE_CHECKING:
    from .profiling import Profile, profile

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


def __getattr__(name: str) -> Any:
    # Programs that are in use need none of it.
    if name in ("Profile", "profile"):
        from . import profiling

        return getattr(profiling, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
