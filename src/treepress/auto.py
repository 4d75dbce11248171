"""`import treepress.auto` accelerates every Equinox Module of the process: `install`.

As a plugin, `pytest -p treepress.auto` runs a suite with it.
"""

from .inplace import install

install()
