"""Building and installing, with and without a C compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

if os.environ.get("TREEPRESS_BACKEND") in ("python", "interpreted"):
    # What is built does not depend on the backend that these tests run on.
    pytest.skip("runs with the compiled backend", allow_module_level=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed to build, so that nothing is built in the repository."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "*.pyd")
    )
    return folder


def build(source: Path, out: Path, **variables: str) -> tuple[Path, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TREEPRESS")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-v",
            "--no-deps",
            "-w",
            str(out),
            str(source),
        ],
        env={**env, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    (wheel,) = out.glob("*.whl")
    return wheel, output


def run_wheel(wheel: Path, folder: Path, code: str) -> str:
    """Run code with the wheel's contents before all else."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith("TREEPRESS")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CODE = """
import equinox as eqx, jax, treepress
class Q(treepress.Module):
    value: object
    unit: str = eqx.field(static=True)
q = jax.tree.map(lambda x: x + 1, Q(1, "m"))
print(treepress.backend, treepress.describe(Q).accelerated, q.value, q.unit)
"""


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        pytest.param(
            {"CC": "/nonexistent/cc"},
            "treepress: no C compiler that works",
            marks=pytest.mark.skipif(
                sys.platform == "win32", reason="no variable names the compiler there"
            ),
        ),
        ({"TREEPRESS_BUILD_PURE": "1"}, ""),
    ],
)
def test_pure_install(
    source: Path, tmp_path: Path, variables: dict[str, str], line: str
) -> None:
    wheel, output = build(source, tmp_path, **variables)
    assert wheel.name.endswith("-py3-none-any.whl")
    said = [text for text in output.splitlines() if "treepress: no C compiler" in text]
    assert len(said) == bool(line)
    assert run_wheel(wheel, tmp_path / "installed", CODE) == "python True 2 m"


def test_compiled_install(source: Path, tmp_path: Path) -> None:
    # Optimised by nobody, since the C compiler needs most of the time for that.
    fast = {"TREEPRESS_BUILD_COMPILED": "1", "MYPYC_OPT_LEVEL": "0"}
    wheel, _ = build(source, tmp_path, **fast)
    assert "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "treepress/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".h")) or "test" in name]
    assert run_wheel(wheel, tmp_path / "installed", CODE) == "compiled True 2 m"
