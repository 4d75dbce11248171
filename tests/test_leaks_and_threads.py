"""Nothing is kept that should be freed, and threads do not disturb each other."""

import gc
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import equinox as eqx
import jax
import pytest

import treepress
from twins import META, at_once


class Quantity(treepress.Module):
    value: Any
    unit: Any = eqx.field(static=True)


class Wide(treepress.Module):
    a: Any
    b: Any
    c: Any
    d: Any
    e: Any
    f: Any
    g: Any
    h: Any
    unit: Any = eqx.field(static=True)


class Value:
    """An object that tells when it is freed, and can be told from all others."""


def round_trip(obj: Any) -> Any:
    leaves, treedef = jax.tree.flatten(obj)
    jax.tree_util.tree_flatten_with_path(obj)
    return jax.tree.unflatten(treedef, leaves)


@pytest.mark.parametrize("cls", [Quantity, Wide])
@pytest.mark.parametrize("where", ["child", "static", "wrapper"])
def test_freed_when_deleted(cls: Any, where: str) -> None:
    value = Value()
    n = 1 if cls is Quantity else 8
    children = [value if where == "child" else 1] * n
    obj = cls(*children, value if where == "static" else "m")
    if where == "wrapper":
        vars(eqx.Module)["__dict__"].__get__(obj)["__doc__"] = value
    again = round_trip(obj)
    watched = weakref.ref(value)
    modules = [weakref.ref(obj), weakref.ref(again)]
    del obj, again, value, children
    gc.collect()
    assert [ref() for ref in modules] == [None, None]
    # A kernel that remembers the last static values must not keep this one.
    assert watched() is None


def test_static_value_is_freed_after_plain_ones() -> None:
    round_trip(Quantity(1, "m"))
    value = Value()
    round_trip(Quantity(1, value))
    watched = weakref.ref(value)
    del value
    gc.collect()
    assert watched() is None
    assert round_trip(Quantity(1, "m")).unit == "m"


def test_a_million_round_trips_do_not_grow_memory() -> None:
    # In a process of its own, where nothing else allocates meanwhile. Reference counts
    # of what every call touches and the number of allocated blocks show any leak.
    code = """
        import gc, sys, equinox as eqx, jax, treepress
        from treepress._node import nodes
        class Q(treepress.Module):
            a: object
            b: object
            s: object = eqx.field(static=True)
        import dataclasses
        @treepress.register_dataclass
        @dataclasses.dataclass
        class D:
            a: object
            b: object
            s: object = dataclasses.field(metadata={"static": True})
        class Wide(treepress.Module):
            f0: object; f1: object; f2: object; f3: object
            f4: object; f5: object; f6: object; f7: object
        a, b, s = object(), object(), object()
        q, d, w = Q(a, b, s), D(a, b, s), Wide(*[a] * 8)
        partly = object.__new__(Q)
        wrapped = Q(a, b, s)
        vars(eqx.Module)["__dict__"].__get__(wrapped)["__doc__"] = s
        calls = []
        for obj in (q, d, w, partly, wrapped):
            f = nodes[type(obj)].functions
            children, aux = f.flatten(obj)
            calls.append((f.flatten, f.flatten_with_keys, f.unflatten, obj, aux, children))
        def work(n):
            for flatten, with_keys, unflatten, obj, aux, children in calls:
                for _ in range(n):
                    flatten(obj); with_keys(obj); unflatten(aux, children)
                for _ in range(n // 100):
                    try: unflatten((), ())
                    except ValueError: pass
        watched = [a, b, s, q, d, w, Q, D, Wide, partly, *(c for c in calls)]
        work(1000)
        gc.collect()
        blocks, counts = sys.getallocatedblocks(), [sys.getrefcount(x) for x in watched]
        work(200_000)
        gc.collect()
        assert [sys.getrefcount(x) for x in watched] == counts, "reference leak"
        grown = sys.getallocatedblocks() - blocks
        assert grown < 500, grown
        print("done", treepress.backend)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"done {treepress.backend}\n", done.stderr


def test_threads_flatten_one_class_with_different_static_values() -> None:
    def work(unit: Any) -> Any:
        def target() -> None:
            quantity = Quantity(object(), unit)
            for _ in range(3000):
                again = round_trip(quantity)
                assert again.unit is unit
                assert again.value is quantity.value

        return target

    at_once(*(work(unit) for unit in ("m", 1, 1.0, True, None, Value())))


def test_threads_create_classes_and_flatten() -> None:
    def create(number: int) -> Any:
        def target() -> None:
            for i in range(30):
                cls = META(
                    f"Made{number}_{i}",
                    (treepress.FlatMixin, eqx.Module) if i % 2 else (eqx.Module,),
                    {"__annotations__": {"a": Any, "b": Any}},
                )
                assert treepress.describe(cls).accelerated == bool(i % 2)
                assert jax.tree.leaves(cls(number, i)) == [number, i]

        return target

    def flatten() -> None:
        tree = [Quantity(float(i), "m") for i in range(100)]
        for _ in range(50):
            assert jax.tree.leaves(tree) == [float(i) for i in range(100)]

    at_once(create(0), create(1), flatten, flatten)


def test_the_collector_sees_no_half_built_tuples() -> None:
    code = """
        import gc, equinox as eqx, treepress
        from treepress._node import nodes

        def look(*_):
            for t in gc.get_objects(generation=0):
                if type(t) is tuple:
                    list(t)

        class Some(treepress.Module):
            a: object
            b: object
            c: object

        some, functions = Some(1, 2, 3), nodes[Some].functions
        gc.collect()
        gc.freeze()
        gc.callbacks.append(look)
        gc.set_threshold(7)
        for flatten in functions[:2]:
            kept = [flatten(some) for _ in range(2000)]
        print("well")
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
