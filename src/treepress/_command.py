"""The commands of `python -m treepress`."""

import argparse
import builtins
import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any, Final, NoReturn

from ._doctor import report
from ._named import Unusable
from ._version import __version__
from .inplace import install

EXAMPLES: Final = """\
examples:
  python -m treepress run train.py --steps 100
  python -m treepress run -m my_package.train --steps 100
  python -m treepress profile --html profile.html train.py --steps 100
  python -m treepress profile -m my_package.train
  python -m treepress doctor --json
  python -m treepress bench my_lib:Quantity
"""
RUN_EXAMPLES: Final = """\
examples:
  python -m treepress run train.py --steps 100
  python -m treepress run -m my_package.train --steps 100
"""
PROFILE_EXAMPLES: Final = """\
examples:
  python -m treepress profile --html profile.html train.py --steps 100
  python -m treepress profile -m my_package.train
"""
DOCTOR_EXAMPLES: Final = """\
examples:
  python -m treepress doctor
  python -m treepress doctor --json
"""
BENCH_EXAMPLES: Final = """\
FACTORY is an instance, or a function without arguments that makes one. Without it an
instance is made from the annotations of the fields, if they are arrays, numbers or texts.
Modules are looked for as by python -m: first in the current folder.

examples:
  python -m treepress bench
  python -m treepress bench my_lib:Quantity my_lib.units:Frame
  python -m treepress bench my_lib:Model=my_lib:make_model
  python -m treepress bench --json equinox.nn:Linear=my_lib:layer
"""


class _Parser(argparse.ArgumentParser):
    """One that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (--help tells more)\n")


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(
        prog="python -m treepress",
        description="Press JAX pytrees flat, fast.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    run = _add_run(commands)
    profile = _add_profile(commands)
    _add_doctor(commands)
    _add_bench(commands)
    # Not by argparse, which would look into the arguments of the program.
    if given[:1] == ["run"] and not {*given[1:2]} & {"-h", "--help"}:
        _run(run, given[1:], install)
    elif given[:1] == ["profile"] and not {*given[1:2]} & {"-h", "--help"}:
        _profile(profile, given[1:])
    else:
        asked, unknown = parser.parse_known_args(given)
        command = commands.choices[asked.command]
        if unknown:
            command.error(f"there is no argument {unknown[0]}")
        try:
            status = asked.do(asked)
            sys.stdout.flush()
        except Unusable as error:
            command.error(str(error))
        except BrokenPipeError:
            # Who reads it has read enough. Nor has Python anything to say of it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        sys.exit(status)


def _add(commands: Any, name: str, help: str, **more: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=help, formatter_class=argparse.RawDescriptionHelpFormatter, **more
    )
    return made


def _add_run(commands: Any) -> argparse.ArgumentParser:
    run = _add(
        commands,
        "run",
        "run a program with every Equinox Module accelerated",
        description="Run a program as python does, with treepress.install() before it.",
        usage="python -m treepress run (SCRIPT | -m MODULE) [ARGUMENT ...]",
        epilog=RUN_EXAMPLES,
    )
    _take_program(run)
    return run


def _add_profile(commands: Any) -> argparse.ArgumentParser:
    profile = _add(
        commands,
        "profile",
        "run a program and say where its pytree time goes, and what would be saved",
        description="Run a program as python does, unchanged, and then say on stderr what "
        "its Modules\nand jitted calls took, and what treepress would save.",
        usage="python -m treepress profile [--json FILE] [--html FILE] "
        "(SCRIPT | -m MODULE) [ARGUMENT ...]",
        epilog=PROFILE_EXAMPLES,
    )
    profile.add_argument("--json", metavar="FILE", help="write all of it as JSON")
    profile.add_argument("--html", metavar="FILE", help="write a page with a plot")
    _take_program(profile)
    return profile


def _take_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("SCRIPT", help="a script, a folder or zip file with one, or -")
    parser.add_argument("-m", metavar="MODULE", help="a module, as python -m takes it")
    parser.add_argument("ARGUMENT", nargs="*", help="handed on to the program")


def _add_doctor(commands: Any) -> None:
    doctor = _add(
        commands,
        "doctor",
        "say whether everything works here, and what to do if not",
        description="Say which kernels are used, what was found in Equinox and JAX, and "
        "what is wrong.\nEnds with 1 if anything that makes programs fast is off.",
        epilog=DOCTOR_EXAMPLES,
    )
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    doctor.set_defaults(do=lambda asked: report(asked.json))


def _add_bench(commands: Any) -> None:
    bench = _add(
        commands,
        "bench",
        "measure classes of yours on this machine, beside Equinox and JAX",
        description="Measure what JAX does with classes of yours, as Equinox has them, as "
        "an equal dataclass\nof JAX, and as treepress has them. Without any, some of "
        "Equinox's are measured.",
        epilog=BENCH_EXAMPLES,
    )
    bench.add_argument(
        "classes",
        nargs="*",
        metavar="MODULE:CLASS[=MODULE:FACTORY]",
        help="a class, and what makes an instance of it",
    )
    bench.add_argument("--json", action="store_true", help="print it as JSON")
    bench.add_argument("--quick", action="store_true", help="a second each, and less sure")
    bench.set_defaults(do=_bench)


def _bench(asked: argparse.Namespace) -> int:
    # Here, since nothing else needs it.
    from . import _bench

    return _bench.report(asked.classes, asked.json, asked.quick)


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
        if path in ("", "-") or path.startswith("--") or os.path.isdir(path):
            parser.error(f"{option} takes the name of a file, got {path!r}")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            parser.error(f"{option}: there is no folder {folder}")
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            parser.error(f"{option}: {path} cannot be written")
        files[option] = os.path.abspath(path)
    made = profile()
    process = os.getpid()
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
        # Not in a child that the program has forked.
        if os.getpid() == process and made.stop() and ran:
            for option, write in (("--json", made.to_json), ("--html", made.to_html)):
                if option in files:
                    with _said(option):
                        write(files[option])
            with _said("the report"):
                print(made, file=sys.stderr)


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """Say what could not be written, and go on."""
    try:
        yield
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            print(f"treepress: {what}: {error}", file=sys.stderr)


def _run_script(
    parser: argparse.ArgumentParser,
    path: str,
    arguments: list[str],
    before: Callable[[], None],
) -> None:
    sys.argv = [path, *arguments]
    if path == "-":
        code = _compiled(sys.stdin.read(), "<stdin>")
        _start("", before)
        _execute(code)
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
    # Once, since it may be a pipe.
    with io.open_code(where) as file:
        code = _compiled(file.read(), where)
    _start(os.path.dirname(os.path.realpath(path)), before)
    _execute(code, __file__=where, __loader__=SourceFileLoader("__main__", where))


def _compiled(source: str | bytes, where: str) -> CodeType:
    try:
        return compile(source, where, "exec")
    except (SyntaxError, ValueError) as error:
        # As python shows it, without a frame.
        sys.excepthook(type(error), error.with_traceback(None), None)
        sys.exit(1)


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
    except SystemExit:
        raise
    except BaseException as error:
        # Without this frame, as python shows it.
        trace = error.__traceback__ and error.__traceback__.tb_next
        if isinstance(error, KeyboardInterrupt):
            # By which Python ends itself, once it has shown it.
            show = sys.excepthook
            sys.excepthook = lambda kind, e, _: show(kind, e.with_traceback(trace), trace)
            raise
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    sys.exit()
