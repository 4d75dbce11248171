"""`accelerate` and `install`: existing classes get our kernels, and can be given back."""

import dataclasses
import datetime
import os
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import treepress
from treepress import _backend, _command, _hooks, _swap, inplace, module
from twins import getdict, in_threads, one_level


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = {a.cls for a in treepress.accelerated()}
    yield
    treepress.uninstall()
    for cls, *_ in treepress.accelerated():
        if cls not in before and treepress.describe(cls).how == "accelerate":
            treepress.deaccelerate(cls)


def fresh() -> Any:
    """A class of Equinox's that nothing was done to yet."""

    class Quantity(eqx.Module):
        value: Any
        unit: str = eqx.field(static=True)

        def double(self) -> Any:
            return 2 * self.value

    return Quantity


_keyed: dict[type, Any] = {}


def held(cls: type) -> Any:
    """All that can be seen of the functions that JAX holds for a class."""
    entry = jax._src.tree_util._registry[cls]
    # Found while the class is not accelerated.
    keyed = _keyed.setdefault(cls, _swap._flatten_functions(cls)[1])
    functions = (entry.to_iter, keyed)
    return (
        entry,
        [(f, f.__code__, f.__defaults__, f.__kwdefaults__, vars(f)) for f in functions],
        (entry.from_iter.func, entry.from_iter.args, entry.from_iter.keywords),
        vars(entry.from_iter),
    )


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments, *(["-c", textwrap.dedent(code)] if code else [])],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # Not those by which xdist tells its workers.
        env={k: v for k, v in os.environ.items() if "XDIST" not in k},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kernel_in_use(cls: Any) -> bool:
    """Whether what JAX holds to unflatten a class is a kernel of ours, of this backend."""
    entry = jax._src.tree_util._registry[cls]
    kernel = entry.from_iter.func
    if _backend.kernels is not None:
        return type(kernel) is _backend.kernels.ModuleUnflatten
    return "<treepress" in kernel.__code__.co_filename


def test_accelerate_is_in_place() -> None:
    cls = fresh()
    obj = cls(jnp.arange(3.0), "m")
    seen = one_level(obj)
    leaves, treedef = jax.tree.flatten(obj)
    registered = jax._src.tree_util._registry[cls]
    assert not kernel_in_use(cls)

    assert treepress.accelerate(cls) is cls

    assert kernel_in_use(cls)
    assert jax._src.tree_util._registry[cls] is registered
    assert one_level(obj) == seen
    again, treedef_after = jax.tree.flatten(obj)
    assert again[0] is leaves[0]
    assert treedef == treedef_after
    assert hash(treedef) == hash(treedef_after)
    back = jax.tree.unflatten(treedef, leaves)
    assert type(back) is cls
    assert getdict(back) == getdict(obj)
    about = treepress.describe(cls)
    assert about.accelerated
    assert about.how == "accelerate"
    assert about.registered_by == "equinox"
    assert "yes, by accelerate" in str(about)


def test_nothing_is_compiled_again() -> None:
    cls = fresh()
    obj = cls(jnp.arange(3.0), "m")
    traces = []

    @jax.jit
    def double(x: Any) -> Any:
        traces.append(x)
        return jax.tree.map(lambda leaf: 2 * leaf, x)

    double(obj)
    with treepress.installed():
        assert treepress.describe(cls).accelerated
        assert jnp.array_equal(double(obj).value, 2 * obj.value)
        double(cls(jnp.ones(3), "m"))
    double(obj)
    assert len(traces) == 1
    with treepress.installed():
        double(cls(jnp.ones(3), "s"))
    assert len(traces) == 2


def test_given_back_function_for_function() -> None:
    classes = [fresh(), eqx.nn.Linear, eqx.nn.MLP, eqx.Module]
    before = [held(cls) for cls in classes]
    treepress.accelerate(classes[0])
    treepress.install()
    assert all(treepress.describe(cls).accelerated for cls in classes[:-1])
    assert [held(cls) for cls in classes[1:3]] != before[1:3]
    treepress.uninstall()
    assert treepress.describe(classes[0]).accelerated, "accelerate is not install"
    treepress.deaccelerate(classes[0])
    assert [held(cls) for cls in classes] == before
    assert not treepress.describe(classes[0]).accelerated
    treepress.deaccelerate(classes[0])


def test_what_is_given_is_returned() -> None:
    one, other = fresh(), fresh()
    assert treepress.accelerate(one, other) == (one, other)
    assert treepress.accelerate(one, one, other) == (one, one, other)
    assert treepress.deaccelerate(one, other) == (one, other)

    @treepress.accelerate
    class First(eqx.Module):
        x: Any

    @treepress.accelerate(subclasses=True)
    class Second(eqx.Module):
        x: Any

    class Below(Second):
        y: Any

    assert [treepress.describe(cls).how for cls in (First, Second, Below)] == [
        "accelerate"
    ] * 3


def test_idempotent() -> None:
    cls = fresh()
    before = held(cls)
    treepress.accelerate(cls)
    kernel = jax._src.tree_util._registry[cls].from_iter.func
    treepress.accelerate(cls)
    treepress.install()
    assert jax._src.tree_util._registry[cls].from_iter.func is kernel
    treepress.uninstall()
    assert treepress.describe(cls).accelerated
    treepress.install()
    treepress.install()
    treepress.uninstall()
    treepress.deaccelerate(cls)
    treepress.uninstall()
    assert held(cls) == before


def test_accelerate_keeps_a_class_that_install_had() -> None:
    cls = fresh()
    treepress.install()
    treepress.accelerate(cls)
    treepress.uninstall()
    assert treepress.describe(cls).how == "accelerate"


def test_modules_and_packages() -> None:
    before = {a.cls for a in treepress.accelerated()}
    assert treepress.accelerate(eqx.nn) is eqx.nn
    new = {a.cls for a in treepress.accelerated()} - before
    assert {eqx.nn.Linear, eqx.nn.MLP, eqx.nn.GRUCell} <= new
    assert all(cls.__module__.startswith("equinox.nn.") for cls in new)
    treepress.deaccelerate(eqx.nn)
    assert {a.cls for a in treepress.accelerated()} == before
    with pytest.raises(ValueError, match="no subclass of equinox.Module .* in dataclasses"):
        treepress.accelerate(dataclasses)
    # A package whose name begins like another's.
    like = types.ModuleType("equinox.n")
    with pytest.raises(ValueError, match="equinox.n "):
        treepress.accelerate(like)


def test_subclasses() -> None:
    base: Any = fresh()

    class Below(base):  # type: ignore[misc]
        pass

    treepress.accelerate(base)
    assert not treepress.describe(Below).accelerated
    treepress.accelerate(base, subclasses=True)

    class Later(Below):
        z: Any

    assert treepress.describe(Below).how == "accelerate"
    assert treepress.describe(Later).how == "accelerate"
    assert jax.tree.leaves(Later(1, "m", 2)) == [1, 2]
    treepress.deaccelerate(base, subclasses=True)
    assert not any(treepress.describe(cls).accelerated for cls in (base, Below, Later))

    class AfterThat(base):  # type: ignore[misc]
        pass

    assert not treepress.describe(AfterThat).accelerated


def test_generic_alias_stands_for_its_class() -> None:
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class Box(eqx.Module, Generic[T]):
        x: T

    treepress.accelerate(Box[int])
    assert treepress.describe(Box).accelerated


def test_install_takes_what_is_there_and_what_comes() -> None:
    old = fresh()
    treepress.install()
    new = fresh()
    assert treepress.describe(old).how == treepress.describe(new).how == "install"
    assert kernel_in_use(old)
    assert kernel_in_use(new)
    treepress.uninstall()
    assert not treepress.describe(new).accelerated
    assert not kernel_in_use(new)
    assert jax.tree.leaves(new(1, "m")) == [1]
    assert not treepress.describe(fresh()).accelerated


def test_installed_as_a_context() -> None:
    cls = fresh()
    with treepress.installed():
        with treepress.installed():
            assert treepress.describe(cls).accelerated
        assert treepress.describe(cls).accelerated
    assert not treepress.describe(cls).accelerated
    with pytest.raises(KeyError), treepress.installed():
        raise KeyError
    assert not treepress.describe(cls).accelerated
    treepress.install()
    with treepress.installed():
        pass
    assert treepress.describe(cls).accelerated
    with treepress.installed():
        treepress.uninstall()
        assert not treepress.describe(cls).accelerated
    assert not treepress.describe(cls).accelerated


def test_the_last_word_on_hot_counts() -> None:
    cls = fresh()

    def hot() -> bool:
        return treepress.describe(cls).hot

    with treepress.installed():
        assert hot() is True
        treepress.install(hot=False)
        assert hot() is False
    assert hot() is False
    with treepress.installed(hot=True):
        assert hot() is True
    assert hot() is False
    treepress.install(hot=True)
    assert hot() is True
    treepress.uninstall()
    # Contexts that overlap.
    first, second = treepress.installed(), treepress.installed(hot=False)
    first.__enter__()
    second.__enter__()
    assert hot() is False
    first.__exit__(None, None, None)
    assert hot() is False
    second.__exit__(None, None, None)
    assert not treepress.describe(cls).accelerated
    with treepress.installed():
        assert hot() is True


def test_a_class_taken_back_stays_so_until_asked_for_again() -> None:
    cls = fresh()
    treepress.install()
    treepress.deaccelerate(cls)
    assert not treepress.describe(cls).accelerated
    assert treepress.describe(fresh()).accelerated
    treepress.install()
    assert treepress.describe(cls).accelerated


def test_accelerated_lists_all() -> None:
    start = datetime.datetime.now(datetime.UTC)

    class Mixed(treepress.Module):
        x: Any

    @treepress.register_dataclass
    @dataclasses.dataclass
    class Record:
        x: Any

    in_place, by_install = fresh(), fresh()
    treepress.accelerate(in_place)
    treepress.install()
    found = {a.cls: a for a in treepress.accelerated() if a.since >= start}
    assert found[Mixed].how == "FlatMixin"
    assert found[Record].how == "register_dataclass"
    assert found[in_place].how == "accelerate"
    assert found[by_install].how == "install"
    dates = [a.since for a in treepress.accelerated()]
    assert dates == sorted(dates)
    assert dates[-1] <= datetime.datetime.now(datetime.UTC)


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


def test_refused_and_told_what_to_do() -> None:
    @dataclasses.dataclass
    class JaxRecord:
        x: Any

    jtu.register_dataclass(JaxRecord, ["x"], [])

    @jtu.register_pytree_with_keys_class
    class WithKeys:
        def tree_flatten_with_keys(self) -> Any:
            return (), None

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls()

    @dataclasses.dataclass
    class Record:
        x: Any

    class Nothing:
        pass

    cases: list[tuple[Any, str]] = [
        (JaxRecord, "use treepress.register_dataclass in the place of"),
        (WithKeys, "use treepress.register_dataclass in the place of"),
        (Record, "Register it with treepress.register_dataclass"),
        (Nothing, "it is no pytree node"),
        (dict, "JAX flattens it in C"),
        (tuple, "JAX flattens it in C"),
        (3, "an instance of int"),
        ("equinox", "an instance of str"),
        (None, "an instance of NoneType"),
        (fresh()(1, "m"), "its class is .*Quantity"),
    ]
    for given, message in cases:
        good = fresh()
        with pytest.raises(TypeError, match=message):
            treepress.accelerate(good, given)
        assert not treepress.describe(good).accelerated, "nothing is half done"
        treepress.accelerate(good)
        back = "it is no equinox.Module" if isinstance(given, type) else message
        with pytest.raises(TypeError, match=back):
            treepress.deaccelerate(good, given)
        assert treepress.describe(good).accelerated, "nothing is half done"
    with pytest.raises(TypeError, match="takes one class or more"):
        treepress.deaccelerate()


def test_refused_flax_struct() -> None:
    struct = pytest.importorskip("flax.struct")

    @struct.dataclass
    class Record:
        x: Any

    with pytest.raises(TypeError, match=r"use treepress\.register_dataclass in the place"):
        treepress.accelerate(Record)


def test_accelerated_otherwise() -> None:
    class Mixed(treepress.Module):
        x: Any

    treepress.accelerate(Mixed)
    assert treepress.describe(Mixed).how == "FlatMixin"
    cls = fresh()
    treepress.accelerate(cls)
    with pytest.raises(
        TypeError, match=r"int cannot be taken back: it is no equinox.Module$"
    ):
        treepress.deaccelerate(int)
    with pytest.raises(TypeError, match=r"Mixed cannot be taken back.* without FlatMixin"):
        treepress.deaccelerate(cls, Mixed)
    assert treepress.describe(cls).accelerated, "nothing is half done"


def test_packages_with_flat_mixin_can_be_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = types.ModuleType("of_both")
    code = "import equinox as eqx, treepress\nclass A(eqx.Module): ...\n"
    exec(code + "class B(treepress.Module): ...\n", vars(package))
    monkeypatch.setitem(sys.modules, "of_both", package)
    treepress.accelerate(package)
    assert treepress.describe(package.A).accelerated
    treepress.deaccelerate(package)
    assert not treepress.describe(package.A).accelerated
    treepress.accelerate(eqx.Module, subclasses=True)
    # By identity: of the classes of other tests one is equal to all.
    assert all(a.cls is not module.probe for a in treepress.accelerated())
    treepress.deaccelerate(eqx.Module, subclasses=True)
    assert not treepress.describe(eqx.nn.Linear).accelerated


def test_uninstall_leaves_nothing_of_equinox_changed() -> None:
    printed = run("""
        import equinox as eqx, treepress
        from equinox._module._prebuilt import BoundMethod

        def found():
            classes = (eqx.Module, type(eqx.Module), BoundMethod)
            return [
                {name: value for name, value in vars(cls).items() if callable(value)}
                for cls in classes
            ], type(eqx.nn.Lambda(abs).__call__), treepress.describe(BoundMethod).hot

        before = found()
        for hot in (True, False):
            treepress.install(hot=hot)
            assert (found() != before) == hot
            treepress.uninstall()
            assert found() == before
        class Mine(treepress.Module):
            x: object
        assert treepress.describe(Mine).hot and treepress.describe(Mine).constructed
        treepress.install()
        treepress.uninstall()
        assert treepress.describe(Mine).hot and treepress.describe(Mine).constructed
        print("well")
        """)
    assert printed == "well\n"


def test_left_alone() -> None:
    class Own(treepress.Module):
        x: Any

        def _eqx_tree_flatten(self) -> Any:
            return (self.x,), None

        @classmethod
        def _eqx_tree_unflatten(cls, aux: Any, children: Any) -> Any:
            obj = object.__new__(cls)
            object.__setattr__(obj, "x", children[0])
            return obj

    class Unusual(eqx.Module):
        x: Any

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, str(name))

    with pytest.warns(RuntimeWarning, match="Own is not accelerated.* its own procedures"):
        treepress.accelerate(Own)
    assert treepress.describe(Own).registered_by == "its own procedures"
    with pytest.warns(RuntimeWarning, match="Unusual has a __getattribute__ of its own"):
        treepress.accelerate(Unusual)
    about = treepress.describe(Unusual)
    assert not about.accelerated
    assert "__getattribute__" in about.reason
    assert jax.tree.leaves((Own(1), Unusual(2))) == [1, 2]
    # Once is enough, and `install` is not about this class.
    treepress.accelerate(Unusual)
    treepress.install()
    treepress.uninstall()
    assert treepress.describe(Own).registered_by == "its own procedures"


def test_left_alone_where_registered_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = type(eqx.Module).__new__.__globals__
    generate = inner["generate_flatten_functions"]

    def other(cls: type, fields: Any) -> Any:
        flatten, keyed, unflatten = generate(cls, fields)
        return (lambda x: flatten(x)), keyed, unflatten

    monkeypatch.setitem(inner, "generate_flatten_functions", other)
    cls = fresh()
    monkeypatch.undo()
    with pytest.warns(RuntimeWarning, match="not as Equinox makes them"):
        treepress.accelerate(cls)
    assert not treepress.describe(cls).accelerated
    assert "not as Equinox makes them" in treepress.describe(cls).reason
    assert jax.tree.leaves(cls(1, "m")) == [1]

    monkeypatch.setitem(inner, "generate_flatten_functions", other)
    treepress.install()
    with pytest.warns(RuntimeWarning, match="Quantity is not accelerated"):
        cls = fresh()
    assert jax.tree.leaves(cls(1, "m")) == [1]


def test_left_alone_where_the_fields_are_not_those_registered() -> None:
    cls = fresh()
    # A field more than when Equinox made its functions.
    cls.__dataclass_fields__["more"] = cls.__dataclass_fields__["value"]
    field = dataclasses.field()
    field.name = "more"
    field._field_type = cls.__dataclass_fields__["value"]._field_type
    cls.__dataclass_fields__["more"] = field
    with pytest.warns(RuntimeWarning, match="not as Equinox makes them"):
        treepress.accelerate(cls)


def test_abstract_class() -> None:
    import abc

    class Shape(eqx.Module):
        x: eqx.AbstractVar[Any]

        @abc.abstractmethod
        def area(self) -> Any: ...

    class Square(Shape):
        x: Any

        def area(self) -> Any:
            return self.x**2

    treepress.accelerate(Shape, Square)
    assert treepress.describe(Shape).accelerated
    assert jax.tree.map(lambda x: x + 1, Square(2)).area() == 9
    abstract: Any = Shape
    with pytest.raises(TypeError, match="abstract"):
        abstract()


def test_while_a_class_is_being_made() -> None:
    seen = []

    class Base(eqx.Module):
        x: Any

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen.append(treepress.accelerate(cls))
            seen.append(treepress.describe(cls).accelerated)

    class Below(Base):
        y: Any

    assert seen == [Below, False]
    assert treepress.describe(Below).how == "accelerate"
    assert jax.tree.leaves(Below(1, 2)) == [1, 2]


def test_bound_methods_and_transformations() -> None:
    cls = fresh()
    obj = cls(jnp.arange(3.0), "m")
    treepress.install()
    method = jax.tree.map(lambda x: x + 1, obj.double)
    assert jnp.array_equal(method(), 2 * (obj.value + 1))
    assert jnp.array_equal(jax.jit(lambda m: m())(obj.double), 2 * obj.value)
    assert jnp.array_equal(eqx.filter_jit(obj.double)(), 2 * obj.value)
    filter_grad: Any = eqx.filter_grad
    grads = filter_grad(lambda q: q.double().sum())(obj)
    assert isinstance(grads, cls)
    assert jnp.array_equal(grads.value, 2 * jnp.ones(3))
    assert jax.vmap(lambda q: q)(obj).unit == "m"


def test_inside_a_trace() -> None:
    cls = fresh()

    @jax.jit
    def f(x: Any) -> Any:
        obj = cls(x, "m")
        treepress.accelerate(cls)
        obj = jax.tree.map(lambda leaf: leaf + 1, obj)
        treepress.deaccelerate(cls)
        return jax.tree.map(lambda leaf: leaf + 1, obj)

    assert f(jnp.array(1.0)).value == 3


def test_threads_that_flatten_meanwhile() -> None:
    cls = fresh()
    obj = cls([1, (2, cls(3, "s"))], "m")
    leaves, treedef = jax.tree.flatten(obj)
    paths = jtu.tree_flatten_with_path(obj)
    rounds = [0]

    def flatten() -> None:
        assert jax.tree.flatten(obj) == (leaves, treedef)
        assert jtu.tree_flatten_with_path(obj) == paths
        assert jax.tree.leaves(jax.tree.unflatten(treedef, leaves)) == leaves
        rounds[0] += 1

    with in_threads(flatten, 3):
        for _ in range(300):
            treepress.accelerate(cls)
            treepress.deaccelerate(cls)
    assert rounds[0] > 0


def test_installed_from_two_threads() -> None:
    classes = [fresh() for _ in range(20)]
    before = [held(cls) for cls in classes]
    errors: list[Any] = []

    def work() -> None:
        try:
            for _ in range(10):
                with treepress.installed():
                    fresh()
                    for cls in classes:
                        assert jax.tree.leaves(cls(1, "m")) == [1]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [held(cls) for cls in classes] == before


OLDER = """
import gc, warnings
import equinox as eqx, jax, jax.numpy as jnp, jax.tree_util as jtu

class Quantity(eqx.Module):
    value: jax.Array
    unit: str = eqx.field(static=True)

    def __del__(self):
        object.__getattribute__(self, "unit")

class Empty(eqx.Module):
    pass

class Abstract(eqx.Module):
    x: eqx.AbstractVar[int]

q = Quantity(jnp.ones(2), "m")
seen = jtu.tree_flatten_with_path((q, Empty()))
gc.freeze()
warnings.simplefilter("error")
import treepress
"""


def test_classes_older_than_treepress() -> None:
    out = run(
        OLDER
        + """
treepress.install()
for cls in (Quantity, Empty, Abstract, eqx.nn.Linear):
    assert treepress.describe(cls).accelerated, treepress.describe(cls)
again = jtu.tree_flatten_with_path((q, Empty()))
assert again == seen, again
assert type(jtu.tree_unflatten(again[1], [1])[0]) is Quantity
treepress.uninstall()
flatten, keyed = treepress._swap._flatten_functions(Quantity)
assert flatten.__code__.co_filename == "<generated_flatten_Quantity>"
assert keyed.__code__.co_filename == "<generated_flatten_with_keys_Quantity>"
print("done")
"""
    )
    assert out == "done\n"


def test_without_jaxs_python_registry() -> None:
    if not hasattr(jtu.default_registry, "is_node"):
        pytest.skip("this jaxlib's registry shows nothing to the gc")
    out = run(
        OLDER
        + """
from jax._src import tree_util
known = dict(tree_util._registry)
tree_util._registry.clear()
treepress.accelerate(Quantity)
tree_util._registry.update(known)
print(treepress.describe(Quantity).accelerated, tree_util._registry[Quantity].from_iter.args)
"""
    )
    assert out == "True ()\n"


def test_auto_before_and_after_equinox() -> None:
    out = run(
        """
        import treepress.auto
        import equinox as eqx, treepress
        print(treepress.describe(eqx.nn.Linear).how)
        class Quantity(eqx.Module):
            x: object
        print(treepress.describe(Quantity).how)
        """
    )
    assert out == "install\ninstall\n"


def test_forked_process() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    out = run(
        """
        import os, signal, warnings, threading
        warnings.simplefilter("ignore")
        import equinox as eqx, treepress, jax
        from treepress import _calls, _node, partition
        treepress.install()
        jitted = treepress.filter_jit(lambda x: x)
        taken = threading.Event(); over = threading.Event()
        def hold():
            with _node.lock, partition._names_lock, _calls._lock, jitted._kept.cache.lock:
                taken.set(); over.wait()
        thread = threading.Thread(target=hold); thread.start(); taken.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            class Quantity(eqx.Module):
                x: object
            jax.tree.leaves(treepress.Partition(new=1))
            treepress.filter_jit(hold)
            assert jitted._kept.cache.entries() == []
            print(treepress.describe(eqx.nn.Linear).how, treepress.describe(Quantity).how)
            treepress.uninstall()
            print(treepress.describe(eqx.nn.Linear).accelerated, flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        over.set(); thread.join()
        print(status, treepress.describe(eqx.nn.Linear).accelerated)
        """
    )
    assert out == "install install\nFalse\n0 True\n"


SPAWNING = """
import multiprocessing
import equinox as eqx, treepress
if __name__ == "__mp_main__" and {child}:
    treepress.install()

def how(_):
    return treepress.describe(eqx.nn.Linear).how

if __name__ == "__main__":
    treepress.install()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(how(0), repr(pool.map(how, [0])[0]))
"""


@pytest.mark.parametrize(("child", "there"), [(True, "'install'"), (False, "''")])
def test_spawned_process(tmp_path: Path, child: bool, there: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNING.format(child=child))
    assert run("", str(script)) == f"install {there}\n"


SUITE = """
import equinox as eqx, treepress, os

class Quantity(eqx.Module):
    x: object

def test_it():
    assert treepress.describe(Quantity).how == "install"
    assert treepress.describe(eqx.nn.Linear).how == "install"
    assert (os.environ.get("PYTEST_XDIST_WORKER") is not None) == {workers}
"""


@pytest.mark.parametrize("workers", [False, True])
def test_as_a_plugin_of_pytest(tmp_path: Path, workers: bool) -> None:
    if workers:
        pytest.importorskip("xdist")
    (tmp_path / "test_suite.py").write_text(SUITE.format(workers=workers))
    count = ["-n", "2"] if workers else ["-p", "no:xdist"]
    out = run("", "-m", "pytest", "-p", "treepress.auto", "-q", *count, str(tmp_path))
    assert "1 passed" in out


def test_run_a_script_and_a_module(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 1\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    code = """
import sys, equinox as eqx, treepress, beside
print(__name__, sys.argv[1:], treepress.describe(eqx.nn.Linear).how, len(sys.argv))
print(sys.modules["__main__"].__dict__ is globals(), sys.argv[0].endswith(".py"))
sys.exit(int(sys.argv[-1]))
"""
    (tmp_path / "script.py").write_text(code)
    (package / "main.py").write_text(code)
    expected = "__main__ ['--m', '-x', '0'] install 4\nTrue True\n"
    run_it = ["-m", "treepress", "run"]
    arguments = ["--m", "-x", "0"]
    assert run("", *run_it, str(tmp_path / "script.py"), *arguments) == expected
    done = subprocess.run(
        [sys.executable, *run_it, "-m", "package.main", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == expected
    done = subprocess.run(
        [sys.executable, *run_it, "script.py", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.py"], "there is no file nowhere.py"),
        (["run", "--hot", "x.py"], "there is no option --hot; options of the program go"),
        (["run", "-m", "no_such_module"], "no_such_module"),
        (["run"], "SCRIPT"),
        (["walk"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_command_line_errors(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as stopped:
        _command.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_unknown_equinox_leaves_all_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known", "the reason")
    cls = fresh()
    with pytest.warns(RuntimeWarning, match="not accelerated, and works as before: the r"):
        treepress.accelerate(cls)
    treepress.install()
    assert not treepress.describe(cls).accelerated
    assert jax.tree.leaves(cls(1, "m")) == [1]


def test_a_kernel_taken_out_while_it_runs_stays_alive() -> None:
    out = run(
        """
        import equinox as eqx, jax, treepress
        junk = []
        class Setter:
            def __set__(self, obj, value):
                vars(obj)["x"] = value
                treepress.deaccelerate(A)
                junk.append([bytes(i) for i in range(64)])
            def __get__(self, obj, owner=None):
                return vars(obj)["x"]
        class A(eqx.Module):
            x: object; y: object; z: object
            u: str = eqx.field(static=True); v: str = eqx.field(static=True)
        a = A(1, 2, 3, "m", "s")
        A.x = Setter()
        treedef = jax.tree.structure(a)
        for _ in range(50):
            treepress.accelerate(A)
            assert jax.tree.leaves(treedef.unflatten([1, 2, 3])) == [1, 2, 3]
        print("done")
        """
    )
    assert out == "done\n"


def test_uninstall_in_the_midst_of_install_is_done_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cls = fresh()
    before = held(cls)
    calling = _hooks.calling

    seen: list[Any] = []

    def interrupted(*args: Any) -> Any:
        # As a signal handler or a finaliser may.
        if not seen:
            seen.append(args)
            treepress.uninstall()
            treepress.deaccelerate(cls)
        return calling(*args)

    monkeypatch.setattr(_swap, "calling", interrupted)
    treepress.install()
    assert held(cls) == before
    assert not treepress.describe(cls).accelerated
    seen.clear()
    treepress.accelerate(cls)
    assert held(cls) == before
    monkeypatch.undo()
    treepress.accelerate(cls)
    assert treepress.describe(cls).accelerated


@pytest.mark.parametrize("where", ["_give_back", "_take"])
def test_an_interrupt_loses_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = fresh()
    before = held(cls)
    set_state = _swap.set_state

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    if where == "_give_back":
        treepress.accelerate(cls)
    monkeypatch.setattr(_swap, "set_state", interrupted)
    change = treepress.deaccelerate if where == "_give_back" else treepress.accelerate
    with pytest.raises(KeyboardInterrupt):
        change(cls)
    monkeypatch.setattr(_swap, "set_state", set_state)
    assert jax.tree.leaves(cls(1, "m")) == [1]
    treepress.accelerate(cls)
    assert kernel_in_use(cls)
    treepress.deaccelerate(cls)
    assert held(cls) == before


def test_older_classes_with_bases_before_module() -> None:
    out = run(
        """
        import abc, typing, warnings
        import equinox as eqx, jax
        warnings.simplefilter("error")
        class Mix: pass
        class Slots: __slots__ = ()
        T = typing.TypeVar("T")
        class A(Mix, eqx.Module): x: object
        class B(typing.Generic[T], eqx.Module): x: object
        class C(Slots, abc.ABC, eqx.Module): x: object
        class D(eqx.Module):
            x: object
            __class__ = property(lambda self: int)
        class E(Mix, eqx.Module):
            x: eqx.AbstractVar[int]
        class F(E): x: int
        class G(eqx.Module):
            x: object
            __module__ = property(lambda self: "odd")
        import treepress
        treepress.install()
        print(*[treepress.describe(cls).accelerated for cls in (A, B, C, D, F, G)])
        print(jax.tree.leaves([cls(1) for cls in (A, B, C, F, G)]))
        treepress.uninstall()
        treepress.accelerate(eqx.nn)
        """
    )
    assert out == "True True True True True True\n[1, 1, 1, 1, 1]\n"


def test_half_made_class_that_install_met() -> None:
    class Base(eqx.Module):
        x: Any

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            with treepress.installed():
                pass

    class Below(Base):
        pass

    assert not treepress.describe(Below).accelerated


def test_installed_that_fails_to_begin_has_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = type(eqx.Module).__new__.__globals__
    generate = inner["generate_flatten_functions"]
    monkeypatch.setitem(
        inner,
        "generate_flatten_functions",
        lambda cls, fields: (lambda *a: None, *generate(cls, fields)[1:]),
    )
    odd = fresh()
    monkeypatch.undo()
    cls = fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning), treepress.installed():
            pass
        inplace._warned.discard(odd)
        with pytest.raises(RuntimeWarning, match="Quantity"):
            treepress.accelerate(odd, cls)
    assert treepress.describe(cls).how == "accelerate", "the others are accelerated"
    treepress.deaccelerate(cls)
    with treepress.installed():
        assert treepress.describe(cls).accelerated
    assert not treepress.describe(cls).accelerated


def test_kernels_are_made_once() -> None:
    import linecache

    cls = fresh()
    treepress.accelerate(cls)
    first = jax._src.tree_util._registry[cls].from_iter.func
    treepress.deaccelerate(cls)
    before = len(linecache.cache)
    treepress.accelerate(cls)
    assert jax._src.tree_util._registry[cls].from_iter.func is first
    assert len(linecache.cache) == before


def test_another_copy_of_treepress() -> None:
    out = run(
        """
        import sys, warnings
        import equinox as eqx, treepress
        treepress.install()
        first = treepress
        for name in [name for name in sys.modules if name.split(".")[0] == "treepress"]:
            del sys.modules[name]
        warnings.simplefilter("error")
        import treepress
        treepress.install()
        print(treepress.describe(eqx.nn.Linear).reason)
        treepress.uninstall()
        print(first.describe(eqx.nn.Linear).accelerated)
        first.uninstall()
        treepress.install()
        print(treepress.describe(eqx.nn.Linear).accelerated)
        """
    )
    assert out == "another copy of treepress has accelerated it\nTrue\nTrue\n"


RUNNABLE = """
import os, pickle, sys, threading, atexit
sys.stdout.reconfigure(line_buffering=True)
class Here: pass
def late():
    threading.main_thread().join()
    print(type(pickle.loads(pickle.dumps(Here()))) is Here)
threading.Thread(target=late).start()
atexit.register(lambda: print(sys.modules["__main__"].Here is Here))
print(sys.argv[1:], os.path.isabs(__file__), __name__, __spec__ is None)
if "fail" in sys.argv:
    1 / 0
"""


def test_run_is_as_python_runs(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    script = tmp_path / "real" / "script.py"
    script.write_text(RUNNABLE + "import helper\n")
    (tmp_path / "real" / "helper.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(
        "import sys; print(sys.path[0], __package__ == '', __spec__.name, sys.argv)"
    )
    (tmp_path / "no_python.py").write_text("x = (\n")
    (tmp_path / "interrupted.py").write_text("def f():\n    raise KeyboardInterrupt\nf()\n")
    link = tmp_path / "link.py"
    try:
        link.symlink_to(script)
    except OSError:
        link = script

    def outputs(*arguments: str, **more: Any) -> list[Any]:
        return [
            subprocess.run(
                [sys.executable, *command, *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
                **more,
            )
            for command in ([], ["-m", "treepress", "run"])
        ]

    for arguments in (
        ("real/script.py", "a", "--", "-m", "x"),
        (str(link), "--", "--help"),
        ("folder", "x"),
        ("real/script.py", "fail"),
        ("-", "x"),
        ("no_python.py",),
        ("interrupted.py",),
    ):
        python, ours = outputs(*arguments, input="import sys; print(sys.argv)")
        assert ours.stdout == python.stdout, ours.stderr
        assert ours.stderr == python.stderr
        assert ours.returncode == python.returncode
    assert "ZeroDivisionError" in outputs("real/script.py", "fail")[1].stderr
    if os.path.exists("/dev/stdin"):
        python, ours = outputs("/dev/stdin", "x", input="import sys; print(sys.argv)")
        assert ours.stdout == python.stdout == "['/dev/stdin', 'x']\n"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    assert "has no __main__" in outputs("-m", "package")[1].stderr


def test_a_getattribute_that_does_as_that_of_object() -> None:
    class Plain(eqx.Module):
        x: Any

        def __getattribute__(self, attribute: str, /) -> Any:
            # With another name and a docstring it is the same.
            "Reads."
            return object.__getattribute__(self, attribute)

    class Other(eqx.Module):
        x: Any

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name.lower())

    treepress.accelerate(Plain)
    about = treepress.describe(Plain)
    assert about.accelerated
    assert "__getattribute__ of its own" in about.why_not_hot
    assert jax.tree.leaves(Plain(1.0)) == [1.0]
    treepress.deaccelerate(Plain)
    with pytest.warns(RuntimeWarning, match="__getattribute__ of its own"):
        treepress.accelerate(Other)
