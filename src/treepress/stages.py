"""The stages of a function that `filter_jit` traces, lowers and compiles ahead of time."""

from typing import Any

import jax.tree_util as jtu

from ._backend import tree_kernels as kernels
from ._rules import is_array


class Stage:
    """A stage of JAX's, with what it takes to call it.

    Whatever else JAX's has is an attribute of it too.
    """

    def __init__(
        self, stage: Any, own: tuple[Any, ...], calls: Any, where: Any, first: int
    ) -> None:
        self._stage = stage
        # The arrays of the function, the kernel that calls it, where arguments have arrays,
        # and how many the first one has.
        self._what = (own, calls, where, first)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self._stage, name)

    def __dir__(self) -> list[str]:
        theirs = [name for name in dir(self._stage) if not name.startswith("_")]
        return sorted({*super().__dir__(), *theirs})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stage!r})"

    @property
    def out_info(self) -> Any:
        """The result, with shapes and dtypes in the places of arrays."""
        return kernels.tree(self._stage.out_info)


class Traced(Stage):
    """As `jax.stages.Traced`, which is its attribute `traced`."""

    @property
    def traced(self) -> Any:
        return self._stage

    def lower(self, **kwargs: Any) -> "Lowered":
        lowered = self._stage.lower(**kwargs)
        return Lowered(lowered, *self._what)


class Lowered(Stage):
    """As `jax.stages.Lowered`, which is its attribute `lowered`."""

    @property
    def lowered(self) -> Any:
        return self._stage

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "Compiled":
        compiled = self._stage.compile(compiler_options=compiler_options)
        return Compiled(compiled, *self._what)


class Compiled(Stage):
    """As `jax.stages.Compiled`, which is its attribute `compiled`.

    It is called as the function is. Static arguments are not compared: those that it was
    compiled for are what it has.
    """

    @property
    def compiled(self) -> Any:
        return self._stage

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        own, calls, known, first = self._what
        where, arrays = arrays_of(*calls.given(args, kwargs))
        if where != known:
            raise TypeError(
                f"this function was compiled for {told(known)}, and is called "
                f"with {told(where)}. Call it with arrays where there were arrays, or lower "
                f"and compile it for these arguments"
            )
        if calls.fixed:
            arrays = calls.placed(own, arrays, first)
        return kernels.tree(self._stage(*arrays))


Where = tuple[int, tuple[str, ...], tuple[bool, ...]]


def arrays_of(form: Any, given: tuple[Any, ...]) -> tuple[Where, list[Any]]:
    """The arrays in arguments, and what says where they are."""
    leaves = jtu.tree_leaves(given)
    flags = [is_array(leaf) for leaf in leaves]
    arrays = [leaf for leaf, flag in zip(leaves, flags) if flag]
    return (form.positional, form.names, tuple(flags)), arrays


def told(where: Where) -> str:
    positional, names, flags = where
    text = f"{positional} positional arguments"
    if names:
        text += f" and {', '.join(names)} by keyword"
    return f"{text}, of whose {len(flags)} leaves {sum(flags)} are arrays"
