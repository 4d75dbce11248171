import os
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

import treepress
from treepress import _backend


def pytest_report_header() -> str:
    where = treepress.__file__ if _backend.kernels is None else _backend.kernels.__file__
    return f"treepress {treepress.__version__}, backend {treepress.backend}, from {where}"


def pytest_sessionstart() -> None:
    # A run is worth nothing if it tests something else than it says.
    wanted = os.environ.get("TREEPRESS_BACKEND")
    if wanted == "interpreted":
        # `make coverage`: what is else compiled, as Python.
        assert treepress.backend == "compiled"
        assert _backend.kernels is not None
        assert str(_backend.kernels.__file__).endswith(".py")
        return
    if wanted and treepress.backend != wanted:
        pytest.exit(f"asked for the {wanted} backend, got {treepress.backend}", 3)
    if _backend.kernels is not None and not str(_backend.kernels.__file__).endswith(
        tuple(EXTENSION_SUFFIXES)
    ):
        pytest.exit(f"the kernels are not compiled: {_backend.kernels.__file__}", 3)


@pytest.fixture
def backend() -> str:
    return treepress.backend
