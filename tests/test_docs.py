"""The examples in the README and in the docstrings run as they are written."""

import doctest
import re
from pathlib import Path

import equinox as eqx
import pytest

import treepress

README = Path(__file__).parent.parent / "README.md"


def test_readme() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "readme"}
    try:
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
    finally:
        treepress.uninstall()
        treepress.deaccelerate(eqx.nn)


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
    if name not in ("Accelerated", "Description", "TreeDef"):
        assert runner.tries > 0, f"{name} has no example"
