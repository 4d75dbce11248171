"""What the functions of a class may ask of `super()`.

Read off their code: all names beside that of `super`, a few too many, never one too few but
where a function is hidden in another object.
"""

from types import CodeType, FunctionType
from typing import Final
from weakref import WeakKeyDictionary

_asked: Final[WeakKeyDictionary[type, frozenset[str]]] = WeakKeyDictionary()


def asked(cls: type) -> frozenset[str]:
    """The names that functions of a class may look up in what `super()` gives."""
    found = _asked.get(cls)
    if found is None:
        names: set[str] = set()
        for value in list(vars(cls).values()):
            for function in (value, *(getattr(value, n, None) for n in _FUNCTIONS)):
                if isinstance(function, FunctionType):
                    names.update(_names_beside_super(function))
        found = _asked[cls] = frozenset(names)
    return found


def forget(cls: type) -> None:
    _asked.pop(cls, None)


# Where descriptors and wrappers keep the functions that they are made of.
_FUNCTIONS: Final = ("__wrapped__", "__func__", "fget", "fset", "func")


def _names_beside_super(function: FunctionType) -> set[str]:
    names: set[str] = set()
    todo: list[CodeType] = []
    seen = 0
    while isinstance(function, FunctionType) and seen < 100:
        todo.append(function.__code__)
        function = getattr(function, "__wrapped__", None)  # type: ignore[assignment]
        seen += 1
    everything: list[CodeType] = []
    while todo:
        code = todo.pop()
        everything.append(code)
        todo += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    if any("super" in code.co_names for code in everything):
        names.update(*[code.co_names for code in everything])
    return names
