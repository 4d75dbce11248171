"""`python -m treepress bench`: that it measures what it says, and nothing is left of it."""

import dataclasses
import io
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import treepress
from treepress import _bench, _command, _compared, _named, _timing, inplace, module

ONE = jnp.ones(())


class Quantity(eqx.Module):
    value: jax.Array
    unit: str = eqx.field(static=True)

    def double(self) -> Any:
        return 2 * self.value


class Flat(treepress.FlatMixin, eqx.Module):
    value: jax.Array
    unit: str = eqx.field(static=True)

    def double(self) -> Any:
        return 2 * self.value


class Pair(eqx.Module):
    quantity: Quantity
    flat: Flat
    function: Any

    def __init__(self, value: Any) -> None:
        self.quantity = Quantity(value, "m")
        self.flat = Flat(value, "m")
        self.function = abs


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Theirs:
    value: jax.Array
    unit: str = dataclasses.field(metadata={"static": True})


@treepress.register_dataclass(drop_fields=["cache"])
@dataclasses.dataclass(frozen=True, slots=True)
class Ours:
    value: jax.Array
    unit: str = dataclasses.field(metadata={"static": True})
    cache: int = 3


@dataclasses.dataclass
class NoNode:
    value: jax.Array


class Registered:
    def __init__(self, value: Any) -> None:
        self.value = value


jax.tree_util.register_pytree_node(
    Registered, lambda r: ((r.value,), "m"), lambda _, children: Registered(*children)
)


def fails() -> None:
    raise ValueError("first\nsecond")


def pair() -> Pair:
    return Pair(ONE)


quantity = Quantity(ONE, "m")
number = 7


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_timing, "_QUICK_EACH", 1e-9)
    monkeypatch.setattr(_timing, "_QUICK_LEAST", 1)
    monkeypatch.setattr(_timing, "_BATCH", 1e-9)


@pytest.fixture
def my_lib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lib = types.ModuleType("my_lib")
    vars(lib).update({k: v for k, v in globals().items() if not k.startswith("_")})
    monkeypatch.setitem(sys.modules, "my_lib", lib)
    yield
    treepress.uninstall()
    treepress.deaccelerate(Quantity, Pair)


def measured(text: str) -> _compared.Table:
    return _compared.measure(_bench._subject(text), quick=True)


TREE = ["flatten", "unflatten", "flatten with path", "tree map", "jitted, in and out"]


@pytest.mark.usefixtures("my_lib")
@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        (
            "my_lib:Quantity",
            ["Equinox", "JAX", "treepress"],
            [*TREE, "attribute .value", "method .double", "construct"],
        ),
        (
            "my_lib:Flat=my_lib:Flat",
            None,
            None,
        ),
        (
            "my_lib:Flat",
            ["Equinox", "JAX", "treepress"],
            [*TREE, "attribute .value", "method .double", "construct"],
        ),
        (
            "my_lib:Pair=my_lib:pair",
            ["Equinox", "JAX", "treepress"],
            [*TREE, "attribute .quantity", "call my_lib:pair()"],
        ),
        ("my_lib:Theirs", ["JAX", "treepress"], TREE),
        ("my_lib:Ours", ["JAX", "treepress"], TREE),
        ("my_lib:Registered=my_lib:registered", ["as it is"], TREE),
    ],
)
def test_rows_and_columns(text: str, columns: Any, rows: Any) -> None:
    vars(sys.modules["my_lib"])["registered"] = Registered(ONE)
    if columns is None:
        with pytest.raises(_named.Unusable, match=r"Flat\(\) failed with TypeError"):
            measured(text)
        return
    table = measured(text)
    assert list(table.meanings) == columns
    assert list(table.seconds) == rows
    whole = [*columns]
    for row, times in table.seconds.items():
        # What an equal dataclass has no part in.
        expected = [c for c in whole if not (row.startswith("call") and c == "JAX")]
        assert list(times) == expected, row
    assert table.notes == []
    printed = _bench._text(table)
    assert all(row in printed for row in rows)
    assert ("Equinox/treepress" in printed) == ("Equinox" in columns)


def seen(row: _timing.Row) -> set[tuple[str, str]]:
    """The Python functions that a row calls: file and name."""
    calls = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.add((frame.f_code.co_filename, frame.f_code.co_name))

    space = dict(row.names)
    code = compile(row.statement, "row", "eval")
    sys.setprofile(profile)
    try:
        eval(code, space)
    finally:
        sys.setprofile(None)
    return calls


# What each of these calls in Python where Equinox does it, by a part of file and name.
BY_EQUINOX = {
    "flatten": ("equinox", "flatten"),
    "unflatten": ("equinox", "unflatten"),
    "flatten with path": ("equinox", "flatten_with_keys"),
    "attribute .value": ("equinox", "__getattribute__"),
    "method .double": ("equinox", "__getattribute__"),
    "construct": ("equinox", "__call__"),
}


@pytest.mark.usefixtures("my_lib")
@pytest.mark.parametrize("state", ["", "accelerate", "install", "install at all"])
@pytest.mark.parametrize("name", ["Quantity", "Flat"])
def test_what_each_column_runs(
    state: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "accelerate":
        treepress.accelerate(Quantity)
    elif state:
        treepress.install()
    found: dict[str, dict[str, set[tuple[str, str]]]] = {}

    def measure(columns: Any, quick: bool, progress: Any) -> Any:
        # More than once, for they take turns.
        for _ in range(2):
            for column in columns:
                column.prepare()
                found[column.name] = {r: seen(row) for r, row in column.rows.items()}
        return {}

    monkeypatch.setattr(_timing, "measure", measure)
    measured(f"my_lib:{name}")

    def by_equinox(column: str, row: str) -> bool:
        part, function = BY_EQUINOX[row]
        return any(
            function in called
            and (part in file or file.startswith("<"))
            and "treepress" not in file
            for file, called in found[column][row]
        )

    for row in BY_EQUINOX:
        assert by_equinox("Equinox", row), (row, found["Equinox"][row])
        assert not by_equinox("treepress", row), (row, found["treepress"][row])
        assert not by_equinox("JAX", row), (row, found["JAX"][row])


def everything() -> Any:
    """All that says which classes are accelerated."""
    functions = [
        (cls, jax._src.tree_util._registry[cls].to_iter.__code__)
        for cls in (Quantity, Pair, eqx.nn.Linear)
    ]
    return (
        [(a.cls, a.how, a.since) for a in treepress.accelerated() if a.cls in KNOWN],
        functions,
        [treepress.describe(cls).hot for cls in KNOWN],
        [treepress.describe(cls).constructed for cls in KNOWN],
        type(vars(Quantity)["double"]),
        dict(module.hot_choices),
        set(inplace._roots),
        inplace._installed,
        "__setattr__" in vars(type(eqx.Module)),
    )


KNOWN = (Quantity, Flat, Pair, eqx.nn.Linear)


@pytest.mark.usefixtures("my_lib")
@pytest.mark.parametrize("state", ["", "cold", "with subclasses", "install"])
@pytest.mark.parametrize("text", ["my_lib:Quantity", "my_lib:Pair=my_lib:pair"])
def test_all_is_afterwards_as_before(state: str, text: str) -> None:
    if state == "cold":
        treepress.accelerate(Quantity, hot=False)
    elif state == "with subclasses":
        treepress.accelerate(Quantity, subclasses=True)
    elif state:
        treepress.install()
    before = everything()
    measured(text)
    assert everything() == before
    assert jax.tree.leaves(pair())[0] is ONE


@pytest.mark.usefixtures("my_lib")
def test_all_is_as_before_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    treepress.accelerate(Pair)
    before = everything()

    def measure(columns: Any, quick: bool, progress: Any) -> Any:
        columns[0].prepare()
        raise KeyboardInterrupt

    monkeypatch.setattr(_timing, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        measured("my_lib:Pair=my_lib:pair")
    assert everything() == before


@pytest.mark.usefixtures("my_lib")
def test_a_class_that_cannot_be_accelerated() -> None:
    class Odd(Quantity):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    vars(sys.modules["my_lib"])["Odd"] = Odd
    table = measured("my_lib:Odd")
    assert list(table.meanings) == ["Equinox", "JAX"]
    assert "Odd is not accelerated: Odd has a __getattribute__ of its own" in table.notes[
        0
    ].replace(Odd.__qualname__, "Odd")
    assert "Odd" in treepress.describe(Odd).cls.__name__
    assert treepress.describe(Odd).how == ""


@pytest.mark.usefixtures("my_lib")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module:X"], "there is no module no_such_module"),
        (["my_lib"], "write MODULE:NAME"),
        (["my_lib:Nothing"], "there is no Nothing in my_lib"),
        (["my_lib:number"], "my_lib:number is no class, but of type int"),
        (["my_lib:quantity"], "write MODULE:CLASS=my_lib:quantity"),
        (["my_lib:NoNode"], "NoNode is no pytree node; treepress.register_dataclass"),
        (["my_lib:NoNode=my_lib:number"], "of type int: neither a NoNode nor a function"),
        (
            ["my_lib:Quantity=my_lib:fails"],
            "my_lib:fails() failed with ValueError: first sec",
        ),
        (["my_lib:Quantity=my_lib:pair"], "my_lib:pair() is of type Pair, no Quantity"),
        (["my_lib:Quantity=my_lib:nothing"], "there is no nothing in my_lib"),
        (["my_lib:Pair"], "name what makes one: my_lib:Pair=MODULE:FACTORY"),
        (["breaks:X"], "import breaks failed with ZeroDivisionError: division by zero"),
        (
            ["lacks:X"],
            "import lacks failed with ModuleNotFoundError: No module named 'miss",
        ),
        (
            ["odd:Odd"],
            "no value for the field f of odd:Odd is known, a Callable; name what",
        ),
        (["--no-such"], "treepress bench: error: there is no argument --no-such (--help"),
    ],
)
def test_errors(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    (tmp_path / "lacks.py").write_text("import missing_there\n")
    (tmp_path / "odd.py").write_text(
        "import equinox as eqx\nfrom collections.abc import Callable\n"
        "class Odd(eqx.Module):\n    f: Callable\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        _command.main(["bench", *arguments])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("my_lib")
def test_values_from_annotations() -> None:
    annotated = {
        "a": "jax.Array",
        "b": float,
        "c": "int | None",
        "d": Any,
        "e": jax.typing.ArrayLike,
    }
    cls = types.new_class(
        "Annotated",
        (eqx.Module,),
        {},
        lambda space: space.update(__annotations__=annotated, __module__=__name__),
    )
    vars(sys.modules["my_lib"])["Annotated"] = cls
    made: Any = _bench._subject("my_lib:Annotated").instance
    assert isinstance(made.a, jax.Array)
    assert (made.b, made.c) == (1.0, 1)
    assert isinstance(made.d, jax.Array)
    assert isinstance(made.e, jax.Array)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, texts in (
        (["--help"], ["run", "doctor", "bench my_lib:Quantity"]),
        (["bench", "--help"], ["bench my_lib:Model=my_lib:make_model", "FACTORY is"]),
    ):
        with pytest.raises(SystemExit) as stopped:
            _command.main(arguments)
        assert stopped.value.code == 0
        out = capsys.readouterr().out
        assert all(text in out for text in texts)


@pytest.mark.usefixtures("my_lib")
def test_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench.report(["my_lib:Quantity", "my_lib:Theirs"], False, True) == 0
    out, err = capsys.readouterr()
    head = out.splitlines()[0]
    for text in (
        treepress.__version__,
        treepress.backend,
        eqx.__version__,
        jax.__version__,
    ):
        assert text in head
    assert "my_lib:Quantity, made from its annotations: 1 node, 1 leaf\n" in out
    assert "JAX/treepress" in out
    assert "\x1b" not in out
    assert "\r" not in out
    assert err == ""


def test_without_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench.report([], True, True) == 0
    found = json.loads(capsys.readouterr().out)["classes"]
    names = [table["class"] for table in found]
    assert names == ["Example", "equinox.nn:Linear", "equinox.nn:MLP"]
    assert [table["notes"] for table in found] == [[], [], []]
    assert "Linear" in found[2]["columns"]["treepress"]
    assert not treepress.describe(eqx.nn.Linear).accelerated


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("my_lib")
def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, patience, shown in (
        (_Terminal(), -1.0, True),
        (_Terminal(), 1000.0, False),
        (io.StringIO(), -1.0, False),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(_timing, "_PATIENCE", patience)
        _bench.report(["my_lib:Theirs"], True, True)
        assert ("%" in stream.getvalue()) == shown
        # The line is gone in the end.
        assert not stream.getvalue().rpartition("\r")[2]


def test_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(
        "import equinox as eqx, jax, treepress\n"
        "treepress.install()\n"
        "class Quantity(eqx.Module):\n"
        "    value: jax.Array\n"
        "    unit: str = eqx.field(static=True)\n"
        "def make():\n"
        "    return Quantity(jax.numpy.ones(3), 'm')\n"
    )
    command = [sys.executable, "-m", "treepress", "bench", "--quick", "--json"]
    done = subprocess.run(
        [*command, "my_module:Quantity=my_module:make"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["backend"] == treepress.backend
    (table,) = found["classes"]
    assert table["class"] == "my_module:Quantity"
    assert table["columns"]["treepress"] == "the class as it is, accelerated by install"
    assert set(table["seconds"]["flatten"]) == {"Equinox", "JAX", "treepress"}
    assert all(taken > 0 for taken in table["seconds"]["flatten"].values())
