"""Build treepress, with its kernels compiled by mypyc where that is possible.

TREEPRESS_BUILD_PURE=1       builds without them.
TREEPRESS_BUILD_COMPILED=1   fails where they cannot be built.
"""

import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup

KERNELS = [
    f"src/treepress/kernels/{name}.py"
    for name in (
        "node",
        "method",
        "construct",
        "shape",
        "walk",
        "build",
        "mapping",
        "pattern",
        "call",
        "caller",
    )
]
BUILDING = frozenset(
    ["bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"]
)


def compiler_fault(*flags: str) -> str:
    """Why nothing can be compiled here, empty if a small extension module can be."""
    # Asked before setup() is told of any extension, since a wheel of pure Python is one
    # from the start: its tag must not name this platform.
    from sysconfig import get_paths

    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return 0; }\n")
        try:
            customize_compiler(compiler)
            compiler.compile(
                [str(source)],
                output_dir=folder,
                include_dirs=[get_paths()["include"]],
                extra_postargs=list(flags),
            )
        except Exception as error:  # compilers differ in how they fail
            return str(error).splitlines()[0] if str(error) else repr(error)
    return ""


def without_paths() -> list[str]:
    """Flags that keep out of what is compiled where mypyc and Python lie.

    The one is a folder made for the build, of another name each time.
    """
    from sysconfig import get_paths

    import mypyc

    folders = (Path(mypyc.__file__).parent.parent, get_paths()["include"])
    flags = [f"-ffile-prefix-map={folder}=." for folder in folders]
    return [] if os.name == "nt" or compiler_fault(*flags) else flags


def kernels() -> list[Extension]:
    # For metadata alone, which pip asks for first, nothing need be compiled.
    if on("TREEPRESS_BUILD_PURE") or not BUILDING.intersection(sys.argv):
        return []
    must = on("TREEPRESS_BUILD_COMPILED")
    fault = compiler_fault()
    if not fault:
        try:
            from mypyc.build import mypycify

            made: list[Extension] = mypycify(
                # The kernels import nothing but the standard library; their package
                # does, and what that imports is not there while a wheel is built.
                ["--follow-imports=skip", "--ignore-missing-imports", *KERNELS],
                group_name="treepress",
                opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),
            )
            flags = without_paths()
            for extension in made:
                extension.extra_compile_args += flags
            return made
        except (Exception, SystemExit) as error:
            fault = f"mypyc failed: {error!r}"
    if must:
        sys.exit(f"treepress: the kernels cannot be compiled: {fault}")
    print(
        f"treepress: no C compiler that works ({fault}); "
        f"building without compiled kernels, the Python backend will be used",
        file=sys.stderr,
    )
    return []


def on(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


setup(ext_modules=kernels())
