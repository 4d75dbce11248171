"""`treepress.profile` and `python -m treepress profile`: exact counts, and nothing changed."""

import abc
import gc
import json
import random
import re
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treepress
from treepress import _calibrate, _command, _estimate, _node
from treepress._dispatch import FunctionWatch, Twin
from treepress._rates import Rates
from treepress._text import duration
from treepress._times import Times
from treepress._watch import PHASE, Watch


class Pair(eqx.Module):
    x: Any
    y: Any
    name: str = eqx.field(static=True, default="pair")

    def total(self) -> Any:
        return self.x + self.y


class Own(eqx.Module):
    x: Any

    def __init__(self, x: Any) -> None:
        self.x = x


class Odd(eqx.Module):
    x: Any

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


class Fast(treepress.FlatMixin, eqx.Module):
    x: Any


def of(profile: Any, cls: type) -> Any:
    name = f"{cls.__module__}.{cls.__qualname__}"
    found = [each for each in profile.classes if each.name == name]
    return found[0] if found else None


def test_counts() -> None:
    pair = Pair(1.0, Pair(2.0, 3.0))
    with treepress.profile() as p:
        for _ in range(10):
            leaves, treedef = jax.tree.flatten(pair)
        for _ in range(7):
            jax.tree.unflatten(treedef, leaves)
        for _ in range(5):
            _ = pair.x
        for _ in range(4):
            _ = pair.total
        for _ in range(3):
            Own(1.0)
        jtu.tree_flatten_with_path(pair)
    found = of(p, Pair)
    assert (found.flattened, found.unflattened) == (22, 14)
    assert (found.read, found.bound, found.constructed) == (5, 4, 0)
    assert found.flatten > 0
    assert found.unflatten > 0
    assert found.total > 0
    assert not found.reason
    own = of(p, Own)
    assert (own.constructed, own.flattened, own.set) == (3, 0, 0)
    assert p.wall > 0
    assert p.saving.filter_jit == 0


def test_more_nodes_than_are_measured() -> None:
    pairs = [Pair(i, i) for i in range(500)]
    with treepress.profile() as p:
        for _ in range(30):
            leaves, treedef = jax.tree.flatten(pairs)
            jax.tree.unflatten(treedef, leaves)
    found = of(p, Pair)
    assert (found.flattened, found.unflattened) == (15_000, 15_000)
    assert sum(site.nodes for site in p.sites) == pytest.approx(15_000, rel=0.01)
    assert any("jax.tree.flatten(pairs)" in site.text for site in p.sites)


def state() -> list[Any]:
    """What a profile puts hooks into."""
    from equinox import _jit

    module = eqx.Module
    meta = type(module)
    registered = getattr(sys.modules["jax._src.tree_util"], "_registry", {})
    return [
        *(vars(meta).get(name) for name in ("__call__", "__setattr__", "__delattr__")),
        *(vars(module).get(name) for name in ("__getattribute__", "__setattr__")),
        vars(module)["__getattribute__"].__code__,
        getattr(vars(meta)["__call__"], "__code__", None),
        _jit._call.__code__,
        [
            (
                getattr(entry.to_iter, "__code__", None),
                getattr(entry.from_iter, "func", None),
            )
            for entry in registered.values()
        ],
    ]


@pytest.fixture(scope="module", autouse=True)
def _twins() -> None:
    """The classes that a profile compares with are made the first time, for good."""
    with treepress.profile():
        jax.tree.leaves(Own(1.0))


def test_everything_is_as_it_was() -> None:
    before = state()
    accelerated = set(treepress.accelerated())
    pair = Pair(1.0, "text")
    treedef = jax.tree.structure(pair)
    with treepress.profile():
        assert jax.tree.structure(pair) == treedef
        inside = jax.tree.structure(Pair(2.0, "other"))
        assert pair.total == pair.total
    assert inside == treedef
    assert state() == before
    assert set(treepress.accelerated()) == accelerated
    assert not treepress.describe(Pair).accelerated


def test_an_exception_passes_through() -> None:
    p = treepress.profile()
    before = state()

    def work() -> None:
        with p:
            jax.tree.leaves(Pair(1.0, 2.0))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        work()
    assert of(p, Pair).flattened == 1
    assert state() == before


@pytest.mark.parametrize("where", ["start", "stop"])
def test_an_interrupt_leaves_nothing(where: str) -> None:
    before = state(), set(_node.originals)
    chance = random.Random(0)

    def interrupted(at: int) -> int:
        """Start and stop, with an interrupt at a line; returns how many lines there were."""
        lines = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.endswith(
                ("_watch.py", "_hooks.py", "_swap.py")
            ):
                return None
            if event == "line":
                lines += 1
                if lines == at:
                    raise KeyboardInterrupt
            return trace

        p = treepress.profile()
        if where == "stop":
            p.start()
        old = sys.gettrace()
        sys.settrace(trace)
        try:
            getattr(p, where)()
        finally:
            sys.settrace(old)
            if where == "start":
                p.stop()
        return lines

    count = interrupted(0)
    for at in (1, *chance.sample(range(2, count), 9)):
        with pytest.raises(KeyboardInterrupt):
            interrupted(at)
        assert (state(), set(_node.originals)) == before


def test_install_itself_takes_something() -> None:
    pair = Pair(1.0, 2.0)
    with treepress.profile() as p:
        jax.tree.leaves(pair)
    # It has some hundred classes to look at.
    assert p.installing > 1e-3
    assert p.as_dict()["installing"] == p.installing
    assert f"install() itself takes about {duration(p.installing)}" in str(p)
    with treepress.installed(), treepress.profile() as p:
        jax.tree.leaves(pair)
    assert p.installing == 0.0
    assert "itself takes" not in str(p)


def test_calls_that_raise() -> None:
    @eqx.filter_jit
    def fails(x: Any) -> Any:
        raise ValueError("no")

    @eqx.filter_jit
    def may_fail(x: Any) -> Any:
        return eqx.error_if(x, x > 1, "too large")

    with treepress.profile() as p:
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                fails(1.0)
        for _ in range(3):
            with pytest.raises(eqx.EquinoxRuntimeError, match="too large"):
                may_fail(jnp.asarray(2.0))
    # Not the function that Equinox jits for `error_if`, which is no affair of the program's.
    found = {each.name.rpartition(".")[2]: each for each in p.functions}
    assert set(found) == {"fails", "may_fail"}
    assert (found["fails"].calls, found["may_fail"].calls) == (0, 0)
    assert found["fails"].reason == "each of its 2 calls raised an error"
    assert found["may_fail"].reason == "each of its 3 calls raised an error"


def test_install_meanwhile() -> None:
    pair = Pair(1.0, 2.0)
    treedef = jax.tree.structure(pair)
    try:
        with treepress.profile() as p:
            jax.tree.leaves(pair)
            treepress.install()
            assert jax.tree.structure(pair) == treedef
            jax.tree.map(lambda x: x, pair)
        found = of(p, Pair)
        assert (found.flattened, found.unflattened, found.accelerated) == (3, 1, True)
        assert treepress.describe(Pair).accelerated
        assert jax.tree.structure(pair) == treedef
    finally:
        treepress.uninstall()
    assert not treepress.describe(Pair).accelerated
    assert jax.tree.structure(pair) == treedef
    # And it can be accelerated as ever.
    with treepress.installed():
        assert treepress.describe(Pair).accelerated


def test_given_back_and_taken_again_meanwhile() -> None:
    before, accelerated = state(), set(treepress.accelerated())
    pair = Pair(1.0, 2.0)
    with treepress.profile() as p:
        treepress.install()
        jax.tree.leaves(pair)
        treepress.uninstall()
        treepress.install()
        jax.tree.leaves(pair)
        treepress.uninstall()
        jax.tree.leaves(pair)
    # After `uninstall` it is not watched.
    assert of(p, Pair).flattened == 2
    assert state() == before
    assert set(treepress.accelerated()) == accelerated


def test_uninstall_meanwhile() -> None:
    before = state()
    with treepress.profile() as p:
        jax.tree.leaves(Pair(1.0, 2.0))
        treepress.uninstall()
        jax.tree.leaves(Pair(1.0, 2.0))
    assert of(p, Pair).flattened == 2
    assert state() == before


def test_an_accelerated_class_is_counted() -> None:
    with treepress.installed(), treepress.profile() as p:
        jax.tree.leaves([Pair(1.0, 2.0), Pair(1.0, 2.0)])
    found = of(p, Pair)
    assert found.accelerated
    assert found.flattened == 2
    assert not treepress.describe(Pair).accelerated
    assert jax.tree.leaves(Pair(1.0, 2.0)) == [1.0, 2.0]


def test_kernels_that_jax_holds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_estimate, "_MOST_NAMED", 10_000)
    with treepress.profile() as p:
        jax.tree.leaves(Fast(1.0))
    assert of(p, Fast) is None
    (note,) = [note for note in p.notes if note.startswith("not counted, since JAX")]
    assert "Fast" in note.partition(": ")[2].split(", ")
    assert "more" not in note
    monkeypatch.setattr(_estimate, "_MOST_NAMED", 0)
    with treepress.profile() as p:
        pass
    assert any(re.search(r"itself:  and \d+ more", note) for note in p.notes)


def test_a_class_that_cannot_be_accelerated() -> None:
    odd = Odd(1.0)
    with treepress.profile() as p:
        for _ in range(3):
            jax.tree.leaves(odd)
    found = of(p, Odd)
    assert found.flattened == 3
    assert "__getattribute__" in found.reason
    assert found.faster == pytest.approx(found.total)
    assert "__getattribute__" in str(p)


def test_classes_made_meanwhile() -> None:
    with treepress.profile() as p:

        class Late(eqx.Module):
            x: Any

        jax.tree.leaves(Late(1.0))
    assert of(p, Late).flattened == 1
    assert jax.tree.leaves(Late(2.0)) == [2.0]


def test_other_nodes() -> None:
    class Other:
        pass

    jtu.register_pytree_node(
        Other, lambda o: ((1.0,), "aux"), lambda aux, children: Other()
    )
    with treepress.profile() as p:
        leaves, treedef = jax.tree.flatten(Other())
        jax.tree.unflatten(treedef, leaves)
    found = of(p, Other)
    assert (found.flattened, found.unflattened) == (1, 1)
    assert found.reason == "it is no equinox.Module"
    assert found.faster == found.total


def test_filter_jit() -> None:
    @eqx.filter_jit
    def shift(pair: Pair, by: float) -> Pair:
        return Pair(pair.x + by, pair.y)

    pair = Pair(jnp.ones(3), "static")
    with treepress.profile() as p:
        for _ in range(20):
            out = shift(pair, 1.0)
        for _ in range(5):
            out = shift(pair, 2.0)
    assert out.y == "static"
    (found,) = [each for each in p.functions if each.name.endswith("shift")]
    assert (found.calls, found.traces) == (25, 2)
    assert found.call > 0
    assert found.overhead >= 0
    assert found.faster >= 0
    assert not found.reason
    assert Path(found.where.rpartition(":")[0]) == Path(__file__)
    # What flattens for the twins, and to see what is given, is not the program's.
    with treepress.profile() as p:
        for _ in range(30):
            shift(pair, 1.0)
    steady = of(p, Pair).flattened / 30
    assert steady == round(steady) > 0


def test_waiting_for_the_device() -> None:
    @eqx.filter_jit
    def double(x: Any) -> Any:
        return 2 * x

    def run(read: Any) -> Any:
        with treepress.profile() as p:
            x = jnp.ones(3)
            for _ in range(20):
                x = double(x)
                read(x)
        (found,) = p.functions
        assert found.calls == 20
        return found

    readers: list[Any] = [
        lambda x: float(x[0]),
        lambda x: x[0].item(),
        lambda x: x.tolist(),
        lambda x: x.block_until_ready(),
        jax.block_until_ready,
    ]
    before = type(jnp.ones(3)).block_until_ready
    for read in readers:
        assert run(read).hidden == 0
    assert before == type(jnp.ones(3)).block_until_ready
    assert run(lambda x: None).calls == 20


def times(*samples: float) -> Times:
    made = Times()
    made.samples.extend(samples)
    return made


def test_what_waiting_hides() -> None:
    # Nanoseconds: a call takes 1000, of which Equinox's overhead and the rest of jit's are 300.
    found = FunctionWatch("f", "")
    found.calls, found.traces, found.nanoseconds = 11, 1, 10_000
    found.twin = object.__new__(Twin)
    found.twin.times = (times(300), times(120), times(100))  # type: ignore[misc]
    found.between.samples.extend([50, 60, 70])
    found.followed[found] = 10
    made = _estimate._function_profile(found)
    assert made.overhead == pytest.approx(200e-9)
    assert made.faster == pytest.approx(20e-9)
    assert made.waited == pytest.approx(700e-9)
    assert made.saved == pytest.approx(10 * 180e-9)
    # Meanwhile there is the next call, 120, and what lies between, 60.
    assert made.hidden == pytest.approx(10 * 180e-9)
    found.waits = 5
    assert _estimate._function_profile(found).hidden == pytest.approx(5 * 180e-9)
    found.waits = 10
    assert _estimate._function_profile(found).hidden == 0


def test_calls_of_several_functions_hide_each_other() -> None:
    @eqx.filter_jit
    def first(x: Any) -> Any:
        return x + 1

    @eqx.filter_jit
    def second(x: Any) -> Any:
        return x * 2

    x = jnp.ones(3)
    with treepress.profile() as p:
        for _ in range(30):
            x = second(first(x))
            float(x[0])
    found = {each.name.rpartition(".")[2]: each for each in p.functions}
    # What the first returns nobody waits for.
    assert found["second"].hidden == 0
    made, other = FunctionWatch("made", ""), FunctionWatch("other", "")
    for each, took in ((made, 120), (other, 60)):
        each.calls, each.nanoseconds = 10, 10_000
        each.twin = object.__new__(Twin)
        each.twin.times = (times(300), times(took), times(50))  # type: ignore[misc]
        each.between.samples.append(40)
    made.followed.update({other: 9, made: 1})
    assert _estimate._function_profile(made).hidden == pytest.approx(10 * 106e-9)
    other.followed[made] = 10
    assert _estimate._function_profile(other).hidden == pytest.approx(10 * 160e-9)


def test_what_is_traced_at_each_call_says_so() -> None:
    @eqx.filter_jit
    def function(x: Any, number: int) -> Any:
        return x + number

    with treepress.profile() as p:
        for number in range(5):
            function(jnp.ones(2), number)
    (found,) = p.functions
    assert (found.calls, found.traces) == (5, 5)
    assert found.reason == "it was traced at every call"


def test_calls_of_our_own_are_noted() -> None:
    @treepress.filter_jit
    def mine(x: Any) -> Any:
        return x

    with treepress.profile() as p:
        mine(jnp.ones(2))
    (note,) = [note for note in p.notes if "calls of treepress.filter_jit" in note]

    @eqx.filter_jit
    def theirs(x: Any) -> Any:
        return x

    # A twin of this is called by treepress.filter_jit too.
    with treepress.profile() as p:
        for _ in range(5):
            theirs(jnp.ones(2))
    assert note in p.notes


def test_what_stretches_of_a_program_say() -> None:
    watch = Watch()
    rates = Rates(watch)
    # By turns Equinox's functions and kernels; now and then something else takes long.
    watch.phases = [2_000_000.0, 1_000_000.0] * 100
    watch.phases[10] = 1e12
    assert rates.of_phases() == pytest.approx(1_000_000 / PHASE)
    watch.phases = [2_000_000.0, 1_000_000.0] * 20
    assert rates.of_phases() is None
    # Where chance is all that there is, nothing is said.
    watch.phases = [1_000_000.0 + (-1) ** (i // 2) * 1e6 for i in range(200)]
    assert rates.of_phases() is None


def test_the_longest_times_are_left_out() -> None:
    assert times(*[10.0] * 99, 1e9).mean() == 10
    assert times(1, 2, 1e9).median() == 2
    assert times().mean() == times().median() == 0


def test_twins_are_not_seen() -> None:
    @eqx.filter_jit
    def shape(x: Any) -> Any:
        return x.shape

    def traced(x: Any) -> Any:
        for _ in range(5):
            shape(x)
        return x

    expected = str(jax.make_jaxpr(traced)(jnp.ones(3)))
    random.seed(0)
    numbers = [random.random() for _ in range(3)]
    random.seed(0)
    model = eqx.nn.Sequential([])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = jnp.ones(3)
        with jax.transfer_guard("disallow"), treepress.profile():
            for _ in range(5):
                shape(x)
        with treepress.profile():
            assert str(jax.make_jaxpr(traced)(jnp.ones(3))) == expected
        with treepress.profile():
            for _ in range(5):
                eqx.filter_jit(lambda x: x)(jnp.ones(3) * 1j)
                eqx.filter_jit(jax.vmap(model))(jnp.ones(3))
                eqx.filter_jit(lambda x: x)(np.ones(3))
    assert [random.random() for _ in range(3)] == numbers


def test_errors_of_equinox_read_the_same() -> None:
    @eqx.filter_jit
    def fail(x: Any) -> Any:
        return eqx.error_if(x, x[0] > 0, "mine")

    def said() -> str:
        with pytest.raises(RuntimeError) as info:
            fail(jnp.ones(3))
        return str(info.value)

    # What the first call says, which traces, is longer.
    said()
    expected = said()
    with treepress.profile():
        assert said() == expected


def test_warnings_name_the_same_line() -> None:
    class Warns(eqx.Module):
        x: Any

        @property
        def old(self) -> Any:
            warnings.warn("old", UserWarning, stacklevel=3)
            return self.x

    def told(instance: Any) -> tuple[str, int]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert instance.old == 1.0
        return caught[0].filename, caught[0].lineno

    expected = told(Warns(1.0))
    with treepress.profile():
        assert told(Warns(1.0)) == expected


def test_what_cannot_be_measured_is_no_error() -> None:
    class Abstract(eqx.Module):
        x: Any

        @abc.abstractmethod
        def f(self) -> Any: ...

    class Hidden(Pair):
        @property  # type: ignore[misc]
        def x(self) -> Any:
            return 0

    made: Any = object.__new__(Hidden)
    with treepress.profile() as p:
        jax.tree.leaves(made)
        space: dict[str, Any] = {"jax": jax, "pair": Pair(1, 2)}
        code = compile("jax.tree.leaves(pair)", "<odd>", "exec")
        exec(code.replace(co_linetable=b""), space)
    assert of(p, Hidden).flattened == 1


def test_threads_that_bind_are_counted() -> None:
    pair = Pair(1.0, 2.0)

    def work() -> None:
        for _ in range(500):
            jax.tree.leaves(pair)
            _ = pair.total

    with treepress.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # An addition now and then is lost between two threads.
    assert of(p, Pair).flattened > 1300


def test_filter_jit_of_what_has_no_twin() -> None:
    class Unequal:
        __hash__ = None  # type: ignore[assignment]

    @eqx.filter_jit
    def run(x: Any) -> Any:
        return x, 1

    with treepress.profile() as p, pytest.raises(ValueError, match="hash"):
        run(Unequal())
    assert [each.calls for each in p.functions] == [0]

    @eqx.filter_jit
    def once(x: Any) -> Any:
        return x

    with treepress.profile() as p:
        once(jnp.ones(2))
    (found,) = p.functions
    assert (found.calls, found.reason) == (1, "it was called too few times")
    assert found.saved == 0


def test_filter_jit_within_others() -> None:
    @eqx.filter_jit
    def inner(x: Any) -> Any:
        return x + 1

    @jax.jit
    def outer(x: Any) -> Any:
        return inner(inner(x))

    with treepress.profile() as p:
        for _ in range(5):
            out = outer(jnp.ones(2))
    assert float(out[0]) == 3.0
    assert [each.calls for each in p.functions] == [2]


trees = st.recursive(
    st.one_of(st.integers(), st.text(max_size=2), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.builds(Pair, inner, inner, st.text(max_size=2)),
        st.builds(Own, inner),
        st.builds(Odd, inner),
        st.builds(Fast, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=12, deadline=None)
@given(st.lists(trees, min_size=5, max_size=12))
def test_trees_come_out_the_same(made: list[Any]) -> None:
    expected = [jtu.tree_flatten_with_path(tree) for tree in made]
    with treepress.profile() as p:
        for tree, (paths, treedef) in zip(made, expected):
            # Often enough to go both ways.
            for _ in range(3):
                assert jtu.tree_flatten_with_path(tree) == (paths, treedef)
                leaves, again = jax.tree.flatten(tree)
                assert again == treedef
                assert jax.tree.structure(jax.tree.unflatten(again, leaves)) == treedef
    assert not any("worked out" in note for note in p.notes)


def test_both_ways_are_gone() -> None:
    pairs = [Pair(i, str(i)) for i in range(3000)]
    expected = jtu.tree_flatten_with_path(pairs)
    with treepress.profile():
        for _ in range(3):
            assert jtu.tree_flatten_with_path(pairs) == expected
            assert jax.tree.map(lambda x: x, pairs)[2999].y == "2999"


def test_threads() -> None:
    pairs = [Pair(i, i) for i in range(50)]
    wrong = []

    def work() -> None:
        for _ in range(100):
            if jax.tree.leaves(jax.tree.map(lambda x: x, pairs)) != [
                x for i in range(50) for x in (i, i)
            ]:
                wrong.append(1)

    with treepress.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert of(p, Pair).flattened > 0


def test_one_at_a_time() -> None:
    p = treepress.profile()
    with p:
        with pytest.raises(RuntimeError, match="another profile"), treepress.profile():
            pass
        with pytest.raises(AttributeError, match="no saving before"):
            _ = p.saving
        assert "not ended" in str(p)
    with pytest.raises(RuntimeError, match="made once"), p:
        pass
    with pytest.raises(AttributeError, match="no attribute 'savings'"):
        _ = p.savings
    with treepress.profile():
        pass


def test_nothing_is_held() -> None:
    class Big:
        pass

    kept: Any = Big()
    pair = Pair(kept, 1)
    with treepress.profile() as p:
        jax.tree.leaves(pair)
    ref = weakref.ref(kept)
    del kept, pair
    gc.collect()
    assert ref() is None
    assert not any("worked out" in note for note in p.notes)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (1.26e-8, "13 ns"),
        (9.994e-7, "999 ns"),
        (9.997e-7, "1 µs"),
        (1.2345e-5, "12.3 µs"),
        (999.7e-6, "1 ms"),
        (0.9999, "1 s"),
        (59.96, "60 s"),
        (999.6, "1,000 s"),
        (123456.7, "123,457 s"),
        (-0.002, "-2 ms"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_equinox_without_what_construction_needs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "import equinox as eqx\n"
        "del eqx._module._module._MSG_FIELD_INIT_FALSE\n"
        "import jax, treepress\n"
        "class A(eqx.Module):\n"
        "    x: int\n"
        "with treepress.profile() as p:\n"
        "    for _ in range(40):\n"
        "        jax.tree.leaves(A(1))\n"
        "assert [c.flattened for c in p.classes if c.name.endswith('.A')] == [40]\n"
        "print([note for note in p.notes if 'construction' in note])\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "construction and methods are not watched: Equinox has no longer" in done.stdout


def test_started_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    p = treepress.profile()
    with monkeypatch.context() as patched:

        def interrupted(watch: Any, calls: Any) -> None:
            watch.start()
            raise KeyboardInterrupt

        patched.setattr(_calibrate, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            p.start()
    with p:
        jax.tree.leaves(Pair(1.0, 2.0))
    assert of(p, Pair).flattened == 1


def test_forms() -> None:
    pair = Pair(1.0, 2.0)

    @eqx.filter_jit
    def same(x: Any) -> Any:
        return x

    with treepress.profile() as p:
        for _ in range(3):
            jax.tree.leaves(pair)
            same(pair)
    data = json.loads(p.to_json())
    assert data["wall"] == p.wall
    assert data["classes"][0].keys() >= {"name", "flattened", "total", "faster"}
    assert data["saving"].keys() == {"install", "filter_jit", "both"}
    assert data["functions"][0]["calls"] == 3
    text = str(p)
    for expected in ("Pair", "same", "treepress.install()", "profiling added", "jax"):
        assert expected in text
    page = p.to_html()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "Pair" in page
    # It opens without a network.
    assert not re.search(r"(src|href)\s*=|@import|url\(", page)
    assert p._repr_html_() in page


SCRIPT = """
import sys
import equinox as eqx, jax
model = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
for _ in range(10):
    jax.tree.leaves(model)
print(sys.argv, __name__)
assert "treepress.inplace" in sys.modules
import treepress
assert not treepress.describe(eqx.nn.MLP).accelerated
sys.exit(int(sys.argv[1]))
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "treepress", *arguments]
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True)


def test_command(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(
        *("profile", "--json", "out.json", "--html=out.html", "script.py", "3", "--html"),
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "['script.py', '3', '--html'] __main__\n"
    assert "equinox.MLP" in done.stderr
    data = json.loads((tmp_path / "out.json").read_text())
    found = {each["name"]: each for each in data["classes"]}
    assert found["equinox.nn._mlp.MLP"]["flattened"] >= 10
    assert "script.py" in data["sites"][0]["where"]
    assert "<svg" in (tmp_path / "out.html").read_text()
    done = run("profile", "-m", "script", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "What would be saved" in done.stderr


def test_command_of_a_script_that_fails(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import equinox as eqx\nraise KeyError('mine')\n")
    done = run("profile", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr
    assert "nothing to be saved" in done.stderr


def test_command_of_a_script_that_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("x = (\n")
    done = run("profile", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f'  File "{tmp_path / "script.py"}", line 1\n')
    assert "What would be saved" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a SCRIPT"),
        (("--html",), "--html takes the name of a file"),
        (("--html", "nowhere/out.html", "script.py"), "there is no folder nowhere"),
        (("--html", ".", "script.py"), "--html takes the name of a file"),
        (("--html", "--json", "script.py"), "--html takes the name of a file"),
        (("missing.py",), "there is no file missing.py"),
        (("--json", "-", "script.py"), "--json takes the name of a file"),
        (("--wrong", "script.py"), "there is no option --wrong"),
        (("-m", "missing_module"), "there is no module missing_module"),
    ],
)
def test_wrong_commands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    before = state()
    with pytest.raises(SystemExit) as stopped:
        _command.main(["profile", *arguments])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert state() == before
