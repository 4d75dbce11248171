"""The scripts in `examples` run, as a user would run them, and find what they look for."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import treepress

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {
    "training": "optax",
    "quax_library": "quax",
    "unxt_simulation": "unxt",
    "checkpoint": "safetensors",
}
BLOCKED = """\
import runpy, sys
sys.modules["treepress"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run(name: str, *before: str) -> str:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    done = subprocess.run(
        [sys.executable, *before, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={"TREEPRESS_BACKEND": treepress.backend, **os.environ},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_each_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


def test_training() -> None:
    out = run("training")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 100
    assert "times that the step was compiled: 1\n" in out


def test_quax_library() -> None:
    out = run("quax_library")
    assert "as jax.grad has it\n" in out
    assert "flattened by treepress\n" in out


def test_quax_library_without_treepress() -> None:
    out = run("quax_library", "-c", BLOCKED)
    assert "as jax.grad has it\n" in out
    assert "flattened by Equinox\n" in out


def test_unxt_simulation() -> None:
    out = run("unxt_simulation")
    assert "day 365: +1.000 -0.005 AU" in out
    assert "speed in AU / yr" in out
    assert "quantities are accelerated: True" in out


def test_checkpoint() -> None:
    out = run("checkpoint")
    assert re.search(r"^encoder/layers/0/weight +float32\[16, 4\]$", out, re.MULTILINE)
    assert "what was loaded computes what was saved\n" in out
    assert "not in the tree: 'ln/bias', 'ln/weight'" in out
    assert "with one left out: missing: 'norm/bias'\n" in out
    assert "with another shape: norm/bias is (3,) there, (8,) here\n" in out
