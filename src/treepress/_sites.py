"""The lines of a program that its Modules were flattened for."""

import sys
import sysconfig
from collections import Counter
from types import CodeType, FrameType
from typing import Final

# The code of a function, a line of it, and what of JAX or Equinox that calls.
Site = tuple[CodeType, int, str]


class Sites:
    def __init__(self) -> None:
        self.counts: Counter[Site] = Counter()
        # Of those that went through Equinox's functions: how many, and how long they took.
        self._times: dict[Site, tuple[int, float]] = {}
        self._places: dict[CodeType, str] = {}

    def note(self, frame: FrameType | None, weight: int, took: float | None) -> None:
        """Note what line of the program a node was flattened for."""
        via = ""
        while frame is not None:
            code = frame.f_code
            place = self._places.get(code)
            if place is None:
                place = self._places[code] = _place(code)
            if place == _PROGRAM:
                break
            if place != _OURS:
                via = place
            frame = frame.f_back
        if frame is not None:
            site = (frame.f_code, frame.f_lineno or 0, via)
            self.counts[site] += weight
            if took is not None:
                timed, total = self._times.get(site, (0, 0.0))
                self._times[site] = (timed + 1, total + took)

    def mean(self, site: Site) -> float:
        """What a node took, in nanoseconds, 0 if none was measured."""
        timed, total = self._times.get(site, (0, 0.0))
        return total / timed if timed else 0.0

    def clear(self) -> None:
        self.counts.clear()
        self._times.clear()
        self._places.clear()


# What the code of a frame belongs to: the program, this package, or the name of a function of
# JAX's or Equinox's.
_PROGRAM: Final = "program"
_OURS: Final = ""
# What is called otherwise by those who use it; of the first there is nothing to be said.
_CALLED: Final = {
    "api_boundary.<locals>.reraise_with_filtered_traceback": _OURS,
    "ExtendNameStackContextManager.__call__.<locals>.wrapper": _OURS,
    "Partial.__call__": _OURS,
    "_JitWrapper.__call__": "equinox.filter_jit",
    "_cpp_pjit.<locals>.cache_miss": "jax.jit",
    "_ModuleMeta.__call__": "making a Module",
}


def _place(code: CodeType) -> str:
    file = code.co_filename
    if file.startswith(("<treepress", _folder(__name__))):
        return _OURS
    if file.startswith(_FOLDERS):
        return _CALLED.get(code.co_qualname, code.co_qualname)
    if file.startswith(_STDLIB) and "site-packages" not in file:
        return _OURS
    return _PROGRAM


def _folder(name: str) -> str:
    file = sys.modules[name.partition(".")[0]].__file__ or ""
    return file[: -len("__init__.py")]


_FOLDERS: Final = tuple([_folder(name) for name in ("jax", "jaxlib", "equinox")])
_STDLIB: Final = sysconfig.get_paths()["stdlib"]
