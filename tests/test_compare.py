"""`make bench-compare`: what is taken for a difference, and what is said of it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import pytest

import treepress

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
OWN = ("compare", "timing", "progress")


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("compare")
    for name in OWN:
        sys.modules.pop(name, None)
    treepress.deaccelerate(eqx.nn)


BASE = [1.00, 1.01, 0.99, 1.02, 1.00]
AGAIN = [1.01, 1.00, 1.00, 0.98, 1.01]


@pytest.mark.parametrize(
    ("new", "differs"),
    [
        (BASE, False),
        ([1.2 * x for x in BASE], True),
        ([0.8 * x for x in BASE], True),
        # Less than a process makes by chance.
        ([1.02 * x for x in BASE], False),
        # As far from each other as from the base.
        ([0.9, 1.5, 0.8, 1.6, 1.2], False),
        # One process that something came in the way of.
        ([1.00, 1.01, 0.99, 3.0, 1.00], False),
        ([1.2, 1.21, 1.19, 3.0, 1.2], True),
    ],
)
def test_what_differs(compare: Any, new: list[float], differs: bool) -> None:
    result = compare.compared("x", BASE, AGAIN, new)
    assert result.differs == differs, result


def test_a_base_that_differs_from_itself(compare: Any) -> None:
    again = [1.3 * x for x in BASE]
    assert not compare.compared("x", BASE, again, [1.25 * x for x in BASE]).differs


def rounds(compare: Any, **new: Any) -> dict[str, list[dict[str, Any]]]:
    def of(values: list[float]) -> list[dict[str, Any]]:
        return [{"steady": x, "other": x} for x in values]

    made = {compare.BASE: of(BASE), compare.AGAIN: of(AGAIN), compare.NEW: of(BASE)}
    for figures in made[compare.NEW]:
        figures.update(new)
    return made


def test_nothing_differs(compare: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.report(rounds(compare), 1.0) == 0
    out = capsys.readouterr().out
    assert "Nothing differs beyond noise." in out
    assert "The base differs from itself by up to 0.0 %." in out


def test_fail_above(compare: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.report(rounds(compare, other=1.5), float("inf")) == 0
    assert "other: slower beyond noise, 1.50 times the base." in capsys.readouterr().out
    assert compare.report(rounds(compare, other=1.5), 1.6) == 0
    assert compare.report(rounds(compare, other=1.5), 1.4) == 1
    # What is faster is no failure.
    assert compare.report(rounds(compare, other=0.5), 1.0) == 0
    assert "other: faster beyond noise, 0.50 times" in capsys.readouterr().out


def test_new_and_failing(compare: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made = rounds(compare)
    for who in (compare.BASE, compare.AGAIN):
        for figures in made[who]:
            figures["other"] = "AttributeError: no tree_partition"
    assert compare.report(made, 1.0) == 0
    out = capsys.readouterr().out
    assert "other: new, " in out
    assert "the base fails, AttributeError: no tree_partition" in out
    assert compare.report(rounds(compare, other="TypeError: that"), 100.0) == 1
    assert "other: fails, TypeError: that" in capsys.readouterr().out


def test_every_benchmark_runs(compare: Any) -> None:
    for name, make in compare.BENCHMARKS.items():
        made = make()
        made.function(*made.arguments)
        assert name
    source = (BENCHMARKS / "compare.py").read_text()
    # Else a base may lack it without having changed.
    assert "treepress._" not in source


def test_the_fingerprint_is_of_what_is_built(compare: Any, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "setup.py").touch()
    file = tmp_path / "src" / "x.py"
    file.write_text("1")
    one = compare._fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("text")
    assert compare._fingerprint(tmp_path) == one
    file.write_text("2")
    assert compare._fingerprint(tmp_path) != one
