"""What `make` says and checks that no package is needed for."""

import importlib.util
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY:((?:.*\\\n)*.*)$", text, re.MULTILINE)
    targets = set(phony.replace("\\\n", " ").split())
    head = text.partition("\n#\n")[0].splitlines()
    listed = [re.fullmatch(r"# make (\S+) +\S.*", line) for line in head]
    assert all(listed), head
    assert sorted(m[1] for m in listed if m) == sorted(targets)
    rules = set(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))
    assert rules == targets


@pytest.fixture
def wheels() -> Any:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / ".ci" / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder: Path, content: str) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "x-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("x/__init__.py", content)
        wheel.writestr("x/same.py", "")
    (folder / "x.py").write_text(content)
    with tarfile.open(folder / "x-1.tar.gz", "w:gz") as archive:
        archive.add(folder / "x.py", "x-1/x.py")
    (folder / "x.py").unlink()
    return folder


def test_two_builds(wheels: Any, tmp_path: Path) -> None:
    first = built(tmp_path / "first", "1")
    wheels._compare(first, built(tmp_path / "again", "1"))
    other = built(tmp_path / "other", "2")
    with pytest.raises(
        SystemExit, match=r"of x-1-py3-none-any\.whl differ in x/__init__\.py$"
    ):
        wheels._compare(first, other)
    (other / "x-1-py3-none-any.whl").write_bytes(
        (first / "x-1-py3-none-any.whl").read_bytes()
    )
    with pytest.raises(SystemExit, match=r"of x-1\.tar\.gz differ in x-1/x\.py$"):
        wheels._compare(first, other)
    (other / "x-1.tar.gz").unlink()
    with pytest.raises(SystemExit, match="two builds gave other packages"):
        wheels._compare(first, other)
