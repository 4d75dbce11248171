"""The hook into Equinox: in use, out of the way, and stepping aside where it must."""

import subprocess
import sys
import textwrap
from typing import Any

import equinox as eqx
import jax.tree_util as jtu

import treepress
from treepress import _backend, _equinox, module


def run(code: str) -> str:
    """The output of a fresh process, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fast_path_is_in_use() -> None:
    # Turns red where a new Equinox or JAX silently switched the kernels off.
    assert isinstance(module.known, _equinox.Known), module.known

    class Quantity(treepress.FlatMixin, eqx.Module):
        value: Any

    about = treepress.describe(Quantity)
    assert about.accelerated, about.reason
    _, aux = jtu.default_registry.flatten_one_level(Quantity(1))
    assert (
        aux is Quantity._eqx_tree_flatten(Quantity(1))[1] or treepress.backend == "python"
    )


def test_classes_without_the_mixin_get_equinoxs_functions(monkeypatch: Any) -> None:
    got: list[Any] = []
    monkeypatch.setattr(
        jtu, "register_pytree_with_keys", lambda *args, **kwargs: got.append((args, kwargs))
    )

    class Plain(eqx.Module):
        value: Any

    ((args, kwargs),) = got
    assert args == (Plain,)
    assert kwargs["flatten_func"].__code__.co_filename == (
        f"<generated_flatten_{Plain.__qualname__}>"
    )
    assert kwargs["unflatten_func"].args == (Plain,)
    assert not hasattr(Plain, "_eqx_tree_flatten")


def test_equinox_still_sees_all_of_tree_util(monkeypatch: Any) -> None:
    seen = type(eqx.Module).__new__.__globals__["jtu"]
    assert type(seen) is _equinox.TreeUtil
    for name in dir(jtu):
        if name != "register_pytree_with_keys" and not name.startswith("__"):
            assert getattr(seen, name) is getattr(jtu, name)
    monkeypatch.setattr(jtu, "tree_leaves", "replaced")
    monkeypatch.setattr(jtu, "added", "later", raising=False)
    assert seen.tree_leaves == "replaced"
    assert seen.added == "later"


STEPS_ASIDE = """
    import warnings
    import equinox as eqx
    import equinox._module._flatten, equinox._module._module as _module
    {change}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import treepress

        class Quantity(treepress.FlatMixin, eqx.Module):
            value: object
            unit: str = eqx.field(static=True)

        class Other(treepress.Module):
            value: object

    import jax
    ours = [w for w in caught if "treepress" in str(w.message)]
    about = treepress.describe(Quantity)
    again = jax.tree.map(lambda x: x + 1, Quantity(1, "m"))
    print(len(ours), about.accelerated, about.registered_by, again.value, again.unit)
    print(ours[0].message)
    print(about.reason)
    with treepress.profile() as p:
        for _ in range(4):
            jax.tree.leaves(Quantity(1, "m"))
            equinox.filter_jit(lambda x: x)(1)
    print(any("not watched" in note for note in p.notes), "What would be saved" in str(p))
"""

CHANGES = {
    "no such module": "import sys; sys.modules['equinox._module._flatten'] = None",
    "sentinel renamed": "del equinox._module._flatten.MISSING",
    "registers by another name": "_module.tree_util = _module.__dict__.pop('jtu');"
    "import builtins; builtins.jtu = _module.tree_util",
    "aux in another order": """
    original = _module.generate_flatten_functions
    def generate(cls, fields):
        flatten, with_keys, unflatten = original(cls, fields)
        def reverse(pair): return pair[0], pair[1][::-1]
        return (
            lambda obj: reverse(flatten(obj)),
            lambda obj: reverse(with_keys(obj)),
            lambda c, aux, children: unflatten(c, aux[::-1], children),
        )
    _module.generate_flatten_functions = generate
    """,
    "functions of another kind": """
    original = _module.generate_flatten_functions
    def generate(cls, fields):
        flatten, with_keys, unflatten = original(cls, fields)
        return (lambda obj, extra=1: flatten(obj) if extra == 1 else 0), with_keys, (
            lambda c, aux, children: unflatten(c, aux, children) if 1 else None
        )
    """,
    "other arguments": """
    real = _module.jtu.register_pytree_with_keys
    import jax.tree_util
    class Util:
        def __getattr__(self, name): return getattr(jax.tree_util, name)
    _module.jtu = Util()
    """,
}


def test_steps_aside_where_equinox_is_not_as_we_know_it() -> None:
    for name in (
        "no such module",
        "sentinel renamed",
        "registers by another name",
        "aux in another order",
        "other arguments",
    ):
        out = run(STEPS_ASIDE.format(change=CHANGES[name])).splitlines()
        assert out[0] == "1 False equinox 2 m", (name, out)
        assert "is not as treepress knows it" in out[1]
        assert "treepress" in out[2], (name, out)
        assert out[3] == "True True", (name, out)


def test_harmless_changes_do_not_switch_it_off() -> None:
    out = run(
        STEPS_ASIDE.format(change=CHANGES["functions of another kind"]).split("print(ours")[
            0
        ]
    )
    assert out.split() == ["0", "True", "treepress", "2", "m"]


def test_backend_variable() -> None:
    code = "import treepress; print(treepress.backend)"
    env = "import os; os.environ['TREEPRESS_BACKEND'] = {!r}; "
    assert run(env.format("python") + code).strip() == "python"
    for value in ("compiled", "nonsense"):
        out = run(
            env.format(value)
            + "import sys\n"
            + "try: import treepress; print(treepress.backend)\n"
            + "except ImportError as e: print(e)"
        ).strip()
        if value == "nonsense":
            assert "TREEPRESS_BACKEND is 'nonsense'" in out
        elif not _backend.why_python:
            assert out == "compiled"
        else:
            assert out == "compiled" or "no compiled kernels" in out


def test_interpreted_kernels_are_never_compiled_ones() -> None:
    out = run(
        """
        import importlib.util, os
        os.environ["TREEPRESS_BACKEND"] = "interpreted"
        where = importlib.util.find_spec("treepress").submodule_search_locations[0]
        print(any(name.endswith((".so", ".pyd")) for name in os.listdir(where + "/kernels")))
        try:
            import treepress
            print(treepress._backend.kernels.__file__)
        except ImportError as error:
            print(error)
        """
    ).splitlines()
    if out[0] == "True":
        assert "the kernels of this installation are compiled" in out[1]
    else:
        assert out[1].endswith("node.py")


def test_compiled_without_kernels_says_why() -> None:
    out = run(
        """
        import importlib.machinery, os, sys
        os.environ["TREEPRESS_BACKEND"] = "compiled"
        # As where the extension modules are missing: the .py files beside them are found.
        finder = importlib.machinery.FileFinder.path_hook(
            (importlib.machinery.SourceFileLoader, [".py"])
        )
        import equinox
        def hook(path):
            if not path.endswith("kernels"):
                raise ImportError
            return finder(path)
        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()
        try:
            import treepress
        except ImportError as error:
            print(error)
        del os.environ["TREEPRESS_BACKEND"]
        for name in [n for n in sys.modules if n.startswith("treepress")]:
            del sys.modules[name]
        import treepress
        print(treepress.backend)
        """
    ).splitlines()
    assert "no compiled kernels" in out[0]
    assert out[1] == "python"


def test_importing_twice_in_one_process() -> None:
    run(
        """
        import sys, equinox as eqx
        import treepress
        for name in [n for n in sys.modules if n.startswith("treepress")]:
            del sys.modules[name]
        import treepress, jax
        class A(treepress.Module):
            a: int
        assert treepress.describe(A).accelerated
        assert jax.tree.leaves(A(1)) == [1]
        """
    )
