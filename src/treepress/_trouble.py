"""Where in a tree a walk failed."""

from typing import Any, Final

from ._backend import tree_kernels as kernels

# Nested deeper than this, a tree is refused: compiled code that recurses has only the C
# stack, 512 KiB for a thread on some systems, and overflowing that ends the process.
MOST_LEVELS: Final = 1000


def explain(error: Exception, walk: Any, style: tuple[bool, str]) -> None:
    """Add to an error where in the tree it came up."""
    shape = (*walk.shape, walk.run) if walk.run else tuple(walk.shape)
    path = kernels.paths(shape, *style)[-1]
    if isinstance(error, RecursionError) and _is_ours(error):
        raise RecursionError(
            f"the tree is nested too deep (more than {MOST_LEVELS} levels, or than Python's "
            f"own limit allows), at {path[:40]}...{path[-40:]}. Is a list or dict a part "
            f"of itself? If not, keep what repeats in a list, or stop at a node by is_leaf"
        ) from None
    where = f"at {path!r} in the tree" if path else "at the root"
    if walk.asked == kernels.ASK:
        where = f"is_leaf, {where}"
    elif walk.asked >= 0:
        where = f"filters[{walk.asked}], {where}; filters are asked at inner nodes too"
    error.add_note(f"treepress: {where}")


def _is_ours(error: RecursionError) -> bool:
    """Whether the walk went too deep, and not a filter."""
    if not error.args:
        return True
    # On the Python backend the interpreter's own limit is met first, by whatever is called
    # from far down in the walk.
    walking = 0
    frame = error.__traceback__
    while frame is not None:
        walking += frame.tb_frame.f_code.co_name in ("visit", "visit_all", "descend")
        frame = frame.tb_next
    return walking > 100
