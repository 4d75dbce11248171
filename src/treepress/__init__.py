"""treepress presses JAX pytrees flat, fast."""

from ._backend import backend as backend
from ._version import __version__ as __version__
from .dataclass import register_dataclass as register_dataclass
from .describe import Description as Description
from .describe import describe as describe
from .module import FlatMixin as FlatMixin
from .module import Module as Module
