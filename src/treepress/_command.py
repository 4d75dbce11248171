"""The commands of `python -m treepress`."""

import argparse
import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any, Final, NoReturn

from ._doctor import report
from ._version import __version__
from .inplace import install

EXAMPLES: Final = """\
examples:
  python -m treepress run train.py --steps 100
  python -m treepress run -m my_package.train --steps 100
  python -m treepress profile --html profile.html train.py --steps 100
  python -m treepress profile -m my_package.train
  python -m treepress doctor --json
"""


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
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
    run.add_argument("SCRIPT", help="a script, a folder or zip file with one, or -")
    run.add_argument("-m", metavar="MODULE", help="a module, as python -m takes it")
    run.add_argument("ARGUMENT", nargs="*", help="handed on to the program")
    profile = commands.add_parser(
        "profile",
        help="run a program and say where its pytree time goes, and what would be saved",
        description="Run a program as python does, unchanged, and then say on stderr what "
        "its Modules and jitted calls took, and what treepress would save.",
        usage="python -m treepress profile [--json FILE] [--html FILE] "
        "(SCRIPT | -m MODULE) [ARGUMENT ...]",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    profile.add_argument("--json", metavar="FILE", help="write all of it as JSON")
    profile.add_argument("--html", metavar="FILE", help="write a page with a plot")
    profile.add_argument("SCRIPT", help="a script, a folder or zip file with one, or -")
    profile.add_argument("-m", metavar="MODULE", help="a module, as python -m takes it")
    profile.add_argument("ARGUMENT", nargs="*", help="handed on to the program")
    doctor = commands.add_parser(
        "doctor",
        help="say whether everything works here, and what to do if not",
        description="Say which kernels are used, what was found in Equinox and JAX, and "
        "what is wrong. Ends with 1 if anything that makes programs fast is off.",
    )
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    # Not by argparse, which would look into the arguments of the program.
    if given[:1] == ["run"] and not {*given[1:2]} & {"-h", "--help"}:
        _run(run, given[1:], install)
    elif given[:1] == ["profile"] and not {*given[1:2]} & {"-h", "--help"}:
        _profile(profile, given[1:])
    else:
        asked = parser.parse_args(given)
        if asked.command == "doctor":
            sys.exit(report(asked.json))


def _run(
    parser: argparse.ArgumentParser, given: list[str], before: Callable[[], None]
) -> None:
    """Run the program that the arguments name, after something else."""
    if not given:
        parser.error("give a SCRIPT, or -m and the name of a module")
    if given[0].startswith("-") and given[0] not in ("-", "-m"):
        parser.error(
            f"there is no option {given[0]}; options of the program go after SCRIPT, "
            f"those of python before -m treepress"
        )
    if given[0] != "-m":
        _run_script(parser, given[0], given[1:], before)
    elif len(given) > 1:
        _run_module(parser, given[1], given[2:], before)
    else:
        parser.error("-m takes the name of a module")


def _profile(parser: argparse.ArgumentParser, given: list[str]) -> None:
    from .profiling import profile

    files: dict[str, str] = {}
    while given and given[0].partition("=")[0] in ("--json", "--html"):
        option, equals, path = given.pop(0).partition("=")
        if not equals:
            if not given:
                parser.error(f"{option} takes the name of a file")
            path = given.pop(0)
        if not os.path.isdir(os.path.dirname(path) or "."):
            parser.error(f"{option}: there is no folder {os.path.dirname(path)}")
        files[option] = os.path.abspath(path)
    made = profile()
    ran = True
    error = parser.error

    def fail(message: str) -> NoReturn:
        nonlocal ran
        ran = False
        error(message)

    parser.error = fail  # type: ignore[method-assign]
    try:
        _run(parser, given, made.start)
    finally:
        if made.stop() and ran:
            print(made, file=sys.stderr)
            if "--json" in files:
                made.to_json(files["--json"])
            if "--html" in files:
                made.to_html(files["--html"])


def _run_script(
    parser: argparse.ArgumentParser,
    path: str,
    arguments: list[str],
    before: Callable[[], None],
) -> None:
    sys.argv = [path, *arguments]
    if path == "-":
        _start("", before)
        _execute(compile(sys.stdin.read(), "<stdin>", "exec"))
    if not os.path.exists(path):
        parser.error(f"there is no file {path}; to run a module, write -m before it")
    where = os.path.abspath(path)
    container = os.path.isdir(where) or not _is_source(where)
    spec = PathFinder.find_spec("__main__", [where]) if container else None
    if spec is not None:
        _start(where, before)
        _execute_spec(spec, "__main__")
    if os.path.isdir(where):
        parser.error(f"the folder {path} has no __main__.py")
    _start(os.path.dirname(os.path.realpath(path)), before)
    # Once, since it may be a pipe.
    with io.open_code(where) as file:
        code = compile(file.read(), where, "exec")
    _execute(code, __file__=where, __loader__=SourceFileLoader("__main__", where))


def _is_source(path: str) -> bool:
    # A zip file may have any name.
    import zipfile

    return not (os.path.isfile(path) and zipfile.is_zipfile(path))


def _run_module(
    parser: argparse.ArgumentParser,
    name: str,
    arguments: list[str],
    before: Callable[[], None],
) -> None:
    # Before the module is looked for, which imports the packages that it is in.
    before()
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
        if spec is None:
            parser.error(f"the package {name} has no __main__, so it cannot be run")
    if spec is None:
        parser.error(f"there is no module {name}")
    sys.argv = [spec.origin or name, *arguments]
    _execute_spec(spec, spec.name)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _start(folder: str, before: Callable[[], None]) -> None:
    # What stands there is the current folder, put by `python -m`.
    if not sys.flags.safe_path:
        sys.path[0] = folder
    before()


def _execute_spec(spec: ModuleSpec, name: str) -> NoReturn:
    loader: Any = spec.loader
    code = loader.get_code(name)
    _execute(
        code,
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )


def _execute(code: CodeType, **names: Any) -> NoReturn:
    """Run the code as `__main__`, for good: threads and exit handlers find it there."""
    namespace = vars(sys.modules["__main__"])
    namespace.clear()
    namespace.update(
        __name__="__main__",
        __builtins__=builtins,
        __doc__=None,
        __loader__=None,
        __package__=None,
        __spec__=None,
    )
    namespace.update(names)
    try:
        exec(code, namespace)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Without this frame, as python shows it.
        trace = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    sys.exit()
