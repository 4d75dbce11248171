"""Builds the C reference: `python setup.py build_ext --build-lib FOLDER`."""

import os
from pathlib import Path

from setuptools import Extension, setup  # type: ignore[import-untyped,unused-ignore]

SOURCE = Path(__file__).with_name("treepress_reference.c")

setup(
    name="treepress-reference",
    # setuptools wants paths from the current folder.
    ext_modules=[Extension("treepress_reference", [os.path.relpath(SOURCE)])],
)
