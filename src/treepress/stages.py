"""What is left of a function as `filter_jit` lowers and compiles it."""

from typing import Any

import jax
import jax.tree_util as jtu

from ._rules import is_array


class Stage:
    """One of JAX's stages, with the structure of the arguments that it was made for."""

    def __init__(self, stage: Any, calls: Any, entry: Any) -> None:
        self._stage = stage
        self._calls = calls
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._stage, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stage!r})"


class Traced(Stage):
    """As `jax.stages.Traced`."""

    def lower(self, **kwargs: Any) -> "Lowered":
        return Lowered(self._stage.lower(**kwargs), self._calls, self._entry)


class Lowered(Stage):
    """As `jax.stages.Lowered`, which is its attribute `lowered`."""

    @property
    def lowered(self) -> Any:
        return self._stage

    def compile(self, *args: Any, **kwargs: Any) -> "Compiled":
        return Compiled(self._stage.compile(*args, **kwargs), self._calls, self._entry)


class Compiled(Stage):
    """As `jax.stages.Compiled`, which is its attribute `compiled`."""

    @property
    def compiled(self) -> Any:
        return self._stage
