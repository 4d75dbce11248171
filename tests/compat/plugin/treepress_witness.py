"""A pytest plugin that writes down what became of each test, and what treepress did.

One file for each process in the folder TREEPRESS_WITNESS, of JSON lines. They are written
as things happen, so that those of a process that crashed say how far it came.
"""

import importlib.metadata
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

_FOLDER = Path(os.environ["TREEPRESS_WITNESS"])
_PACKAGES = ("equinox", "jax", "jaxlib", "pytest", "treepress")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Of the cases of each test function keep one of every so many."""
    every = int(os.environ.get("TREEPRESS_WITNESS_EVERY", "1"))
    part = int(os.environ.get("TREEPRESS_WITNESS_PART", "1"))
    if every == 1:
        return
    seen: Counter[str] = Counter()
    kept: list[Any] = []
    left: list[Any] = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        (kept if seen[function] % every == part - 1 else left).append(item)
        seen[function] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("main", start=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    # With xdist each report is seen twice: by the worker, and by the process that leads.
    if _worker() is None:
        _write(
            "main",
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            expected=hasattr(report, "wasxfail"),
            message=_message(report.longrepr),
        )


def pytest_collectreport(report: Any) -> None:
    if report.failed and _worker() is None:
        _write("main", uncollected=report.nodeid, message=_message(report.longrepr))


def pytest_sessionfinish() -> None:
    # Nothing is imported here: that treepress is not there is one of the things to see.
    treepress = sys.modules.get("treepress")
    accelerated = getattr(treepress, "accelerated", None)
    _write(
        _worker() or "main",
        auto="treepress.auto" in sys.modules,
        backend=getattr(treepress, "backend", None),
        # How: there are classes that would be fast without treepress.auto too.
        classes=sum(each.how == "install" for each in accelerated()) if accelerated else 0,
        versions={package: _version(package) for package in _PACKAGES},
    )


def _worker() -> str | None:
    return os.environ.get("PYTEST_XDIST_WORKER")


def _write(process: str, **record: object) -> None:
    with (_FOLDER / f"{process}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _message(longrepr: Any) -> str:
    if isinstance(longrepr, tuple):  # of a skipped test: file, line and reason
        return str(longrepr[2])
    crash = getattr(longrepr, "reprcrash", None)
    return "" if longrepr is None else str(longrepr if crash is None else crash.message)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
