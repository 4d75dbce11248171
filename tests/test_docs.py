"""What stands in the README, the pages of docs and the docstrings runs as it is written."""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import treepress
from treepress import _command

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```python\n.*?^```$", re.MULTILINE | re.DOTALL)
RUN = [page for page in PAGES if BLOCK.search(page.read_text("utf-8"))]
# Put in the first line, which is a heading in the page.
WITHOUT_TREEPRESS = "import sys; sys.modules['treepress'] = None"


def program(text: str, first: str = "") -> tuple[str, str]:
    """The blocks of a page, each line where it is there, and what they lack to run.

    They end before a block that imports what is not installed.
    """
    lines = [first] + [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        code = block[0].splitlines()[1:-1]
        for name in re.findall(r"^import (\w+)", "\n".join(code), re.MULTILINE):
            if importlib.util.find_spec(name) is None:
                return "\n".join(lines), name
        start = text.count("\n", 0, block.start()) + 1
        lines[start : start + len(code)] = code
    return "\n".join(lines), ""


def run(page: Path, code: str, folder: Path) -> None:
    """Run it in a process of its own, since pages install and accelerate."""
    script = folder / f"{page.name}.py"
    script.write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        # Some write files.
        cwd=folder,
        env={"TREEPRESS_BACKEND": treepress.backend, **os.environ},
    )
    assert done.returncode == 0, done.stderr
    assert "treepress:" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks(page: Path, tmp_path: Path) -> None:
    code, lacking = program(page.read_text("utf-8"))
    run(page, code, tmp_path)
    if lacking:
        pytest.skip(f"{lacking} is not installed")


def test_the_fallback_of_a_library(tmp_path: Path) -> None:
    """The two lines, and what follows on them, without treepress."""
    page = ROOT / "docs" / "libraries.md"
    section, _ = page.read_text("utf-8").split("\n## A test for it\n")
    code, _ = program(section, WITHOUT_TREEPRESS)
    assert code.count("except ImportError:") == 2
    code += "\nassert not hasattr(Quantity, '_eqx_tree_flatten')\n"
    run(page, code, tmp_path)


def test_commands() -> None:
    """Each command that a page tells of is one."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    told = set(re.findall(r"(?:^ {4}|`)make ([\w-]+)", text, re.MULTILINE))
    assert {"demo", "test", "bench", "docs"} <= told <= targets
    told = set(re.findall(r"python -m treepress (\w+)", text))
    assert {"run", "doctor"} <= told
    for command in told:
        with pytest.raises(SystemExit) as ended:
            _command.main([command, "--help"])
        assert ended.value.code == 0, command
    told = set(re.findall(r"(?:python |`)((?:benchmarks|examples)/[\w/]+\.py)", text))
    assert "benchmarks/jit.py" in told
    assert all((ROOT / path).exists() for path in told), told


def test_every_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    names = re.findall(r"^::: treepress\.(\w+)$", text, re.MULTILINE)
    assert sorted(names) == sorted(treepress.__all__)


@pytest.mark.parametrize("name", treepress.__all__)
def test_docstrings(name: str) -> None:
    obj = getattr(treepress, name)
    if isinstance(obj, str):
        return
    assert obj.__doc__
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in finder.find(obj, name, globs={}):
        runner.run(test)
    assert runner.failures == 0
    if name not in ("Accelerated", "Description", "Profile", "TreeDef"):
        assert runner.tries > 0, f"{name} has no example"
