"""`python -m treepress doctor`."""

import json
import os
import subprocess
import sys
import textwrap

import equinox as eqx

import treepress


def doctor(before: str = "", *arguments: str) -> "subprocess.CompletedProcess[str]":
    code = textwrap.dedent(before) + (
        "\nimport sys\nfrom treepress._command import main\n"
        f"main(['doctor', *{list(arguments)!r}])"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )


def test_all_is_well() -> None:
    done = doctor("", "--json")
    found = json.loads(done.stdout)
    assert found["versions"]["treepress"] == treepress.__version__
    assert found["versions"]["equinox"] == eqx.__version__
    assert found["backend"] == treepress.backend
    kernels = found["parts"].pop("kernels")
    assert set(found["parts"].values()) == {"fine"}
    wanted = os.environ.get("TREEPRESS_BACKEND")
    if treepress.backend == "compiled" and wanted != "interpreted":
        assert (kernels, found["problems"], done.returncode) == ("fine", [], 0)
        assert "kernels" in found["loaded from"]
    else:
        assert done.returncode == 1
        (problem,) = found["problems"]
        assert problem["why"] == kernels == f"TREEPRESS_BACKEND is set to {wanted!r}"
        assert problem["do"] == "Unset it"


def test_nobody_reads_it() -> None:
    code = "import sys; sys.stdin.read(); from treepress._command import main; main(['doctor'])"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate()
    assert (process.returncode, err) == (1, "")


def test_an_unknown_equinox() -> None:
    done = doctor("""
        import warnings, equinox as eqx
        warnings.simplefilter("ignore")
        meta = type(eqx.Module)
        original = meta.__call__
        def __call__(cls, *args, **kwargs):
            return original(cls, *args, **kwargs)
        meta.__call__ = __call__
        """)
    assert done.returncode == 1, done.stderr
    assert "construction off: Equinox's __call__ of Modules is not the one" in done.stdout
    assert "attributes and methods: fine" in done.stdout
    assert "Use another version of treepress or of Equinox" in done.stdout


def test_filter_jit_that_steps_aside() -> None:
    done = doctor("""
        import equinox, equinox._compile_utils
        del equinox._compile_utils.get_fn_names
        """)
    assert done.returncode == 1, done.stderr
    assert "filter_jit off: cannot import name 'get_fn_names'" in done.stdout
    assert "registration: fine" in " ".join(done.stdout.split())
