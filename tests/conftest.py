import os
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

import treepress
from treepress import _backend


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "not_interpreted: what holds of the kernels as they are, not under coverage",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("TREEPRESS_BACKEND") == "interpreted":
        # Instances of its classes have a `__dict__`, and calls of its functions have frames.
        skip = pytest.mark.skip(reason="the kernels are interpreted, for coverage")
        for item in items:
            if item.get_closest_marker("not_interpreted"):
                item.add_marker(skip)


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
