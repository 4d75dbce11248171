"""`python -m treepress`: programs run with treepress, unchanged."""

import argparse
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Final

from ._version import __version__

EXAMPLES: Final = """\
examples:
  python -m treepress run train.py --steps 100
  python -m treepress run -m my_package.train --steps 100
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m treepress",
        description="Press JAX pytrees flat, fast.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    run = commands.add_parser(
        "run",
        help="run a program with every Equinox Module accelerated",
        description="Run a program as python does, with treepress.install() before it.",
        usage="python -m treepress run (SCRIPT | -m MODULE) [ARGUMENT ...]",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "-m", dest="is_module", action="store_true", help="run a module, as python -m does"
    )
    run.add_argument(
        "program", metavar="SCRIPT", help="the script, or the name of a module"
    )
    run.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        help="handed on to the program",
    )
    given = parser.parse_args(arguments)
    run_program(run, given.program, given.arguments, given.is_module)


def run_program(
    parser: argparse.ArgumentParser, program: str, arguments: list[str], is_module: bool
) -> None:
    """Run a program in the place of this one."""
    from .inplace import install

    if is_module:
        sys.path[0] = os.getcwd()
        # Before the module is looked for, which imports the packages that it is in.
        install()
        if not _is_there(program):
            parser.error(f"there is no module {program}")
    else:
        if not os.path.exists(program):
            parser.error(f"there is no file {program}; to run a module, write -m before it")
        sys.path[0] = os.path.dirname(os.path.abspath(program))
        install()
    sys.argv = [program, *arguments]
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return False
        raise


if __name__ == "__main__":
    main()
