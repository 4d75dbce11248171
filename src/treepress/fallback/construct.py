"""The kernels of construction, interpreted: see `interpreted`."""

from . import interpreted

interpreted(__name__, "construct.py")
