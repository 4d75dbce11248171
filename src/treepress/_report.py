"""A profile as a table in the terminal, and as a page."""

import html
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ._text import aligned, duration

# How many of each kind are shown.
_MOST: Final = 12


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole > 0 else ""


def short(name: str) -> str:
    """The name of a class, without the module that it shares with many."""
    parts = name.split(".")
    return ".".join([parts[0], *parts[-1:]]) if len(parts) > 2 else name


class Table(NamedTuple):
    """What is shown of one kind of findings: the first ones of all."""

    heading: str
    columns: Sequence[str]
    rows: list[Sequence[str]]
    # Columns that go to the left.
    left: tuple[int, ...]
    # What all of these are called if there is one more, or several, and how many are left out.
    names: tuple[str, str]
    more: int
    legend: str

    def rest(self) -> str:
        """What says that there are more, empty if there are not."""
        return f"and {self.more} {self.names[self.more > 1]} more" if self.more > 0 else ""


def tables(profile: Any) -> list[Table]:
    """Those in which there is anything."""
    every = (class_table(profile), function_table(profile), site_table(profile))
    return [table for table in every if table.rows]


def class_table(profile: Any) -> Table:
    columns = ("class", "flattened", "each", "unflattened", "each", "read", "set", "bound",
               "made", "total", "of all", "with install()")  # fmt: skip
    rows: list[Sequence[str]] = []
    for each in profile.classes[:_MOST]:
        faster = "accelerated" if each.accelerated else duration(each.faster)
        rows.append(
            (
                short(each.name),
                f"{each.flattened:,}",
                duration(each.flatten) if each.flattened else "",
                f"{each.unflattened:,}",
                duration(each.unflatten) if each.unflattened else "",
                f"{each.read:,}",
                f"{each.set:,}",
                f"{each.bound:,}",
                f"{each.constructed:,}",
                duration(each.total),
                share(each.total, profile.wall),
                f"{faster} *" if each.reason and not each.accelerated else faster,
            )
        )
    more = len(profile.classes) - _MOST
    return Table("Classes", columns, rows, (0,), ("class", "classes"), more, _CLASSES)


def function_table(profile: Any) -> Table:
    columns = ("equinox.filter_jit of", "at", "calls", "traces", "a call", "its overhead",
               "with treepress.filter_jit", "saved", "it waits", "saved of that",
               "of all")  # fmt: skip
    rows: list[Sequence[str]] = []
    for each in profile.functions[:_MOST]:
        known = not each.reason
        rows.append(
            (
                each.name,
                _place(each.where),
                f"{each.calls:,}",
                f"{each.traces:,}",
                duration(each.call) if each.call else "",
                duration(each.overhead) if known else each.reason,
                duration(each.faster) if known else "",
                duration(each.saved) if known else "",
                duration(each.waited) if known else "",
                duration(each.hidden) if known else "",
                share(each.saved + each.hidden, profile.wall) if known else "",
            )
        )
    more, names = len(profile.functions) - _MOST, ("function", "functions")
    return Table("Jitted functions", columns, rows, (0, 1), names, more, _FUNCTIONS)


def site_table(profile: Any) -> Table:
    columns = ("line", "by way of", "nodes", "total", "of all", "")
    rows: list[Sequence[str]] = []
    for each in profile.sites[:_MOST]:
        rows.append(
            (
                _place(each.where),
                each.via or "a jitted function",
                f"{each.nodes:,}",
                duration(each.total),
                share(each.total, profile.wall),
                each.text[:60],
            )
        )
    heading, more = "Lines that Modules were flattened for", len(profile.sites) - _MOST
    return Table(heading, columns, rows, (0, 1, 5), ("line", "lines"), more, "")


def _place(where: str) -> str:
    """A file with its folder, and the line."""
    return "/".join(where.replace("\\", "/").split("/")[-2:])


def saving_lines(profile: Any) -> list[tuple[str, float]]:
    return [
        ("treepress.install()", profile.saving.install),
        ("treepress.filter_jit for equinox.filter_jit", profile.saving.filter_jit),
        ("both", profile.saving.both),
    ]


def _remarks(profile: Any) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for each in profile.classes[:_MOST]:
        if each.reason and not each.accelerated:
            reasons.setdefault(each.reason, []).append(short(each.name))
    remarks = [f"* {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    if profile.installing and profile.classes:
        remarks.append(
            f"install() itself takes about {duration(profile.installing)}, once, which is not "
            f"taken off"
        )
    return remarks + list(profile.notes)


def _summary(profile: Any) -> str:
    return (
        f"{duration(profile.wall)}, to which profiling added {duration(profile.overhead)} "
        f"(taken off)"
    )


_CLASSES: Final = (
    "each: of one node, as it is; read, set, bound, made: how many attributes, methods and "
    "instances,\nby Equinox; with install(): what the total would be"
)
_FUNCTIONS: Final = (
    "overhead and waiting are of one call, what is saved of either is of all; nodes in these "
    "are counted above too.\nShares are of all that ran, traces and compilation too: to know "
    "about a loop alone, put\ntreepress.profile() around it, after a first call"
)


def text(profile: Any) -> str:
    lines = ["", f"treepress profile: {_summary(profile)}"]
    lines += [", ".join(f"{name} {version}" for name, version in profile.versions.items())]
    for table in tables(profile):
        lines += ["", *aligned(table.columns, table.rows, table.left)]
        lines += [said for said in (table.rest(), table.legend) if said]
    if not profile.classes and not profile.functions:
        lines += ["", "No Module was flattened, read or made, and nothing called by "
                  "equinox.filter_jit: nothing to be saved."]  # fmt: skip
    else:
        lines += ["", "What would be saved:"]
        for name, saved in saving_lines(profile):
            part = share(saved, profile.wall)
            lines.append(f"  {name:<44} {duration(saved):>9}  {part:>7}")
    remarks = _remarks(profile)
    if remarks:
        lines += ["", *remarks]
    return "\n".join(lines)


_STYLE: Final = """
.treepress{font:14px/1.5 system-ui,sans-serif;max-width:72rem;margin:auto;--now:#b4552d;
--faster:#2d7a6b;--line:#8884}
.treepress table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
.treepress th,.treepress td{padding:.2rem .7rem;border-bottom:1px solid var(--line);
text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.treepress th.left,.treepress td.left{text-align:left}
.treepress svg{width:100%;height:auto}
.treepress svg text{font:12px system-ui,sans-serif;fill:currentColor}
"""


def page(profile: Any) -> str:
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        "<meta name='color-scheme' content='light dark'>"
        "<title>treepress profile</title></head><body>\n"
        f"{body(profile)}\n</body></html>\n"
    )


def body(profile: Any) -> str:
    versions = ", ".join(f"{name} {said}" for name, said in profile.versions.items())
    parts = [
        f"<style>{_STYLE}</style><div class='treepress'>",
        "<h1>treepress profile</h1>",
        f"<p>{_escaped(_summary(profile))}<br>{_escaped(versions)}</p>",
        _savings(profile),
        _plot(profile),
    ]
    for table in tables(profile):
        parts += [
            f"<h2>{table.heading}</h2>",
            _table(table.columns, table.rows, table.left),
        ]
        parts += [f"<p>{_escaped(s)}</p>" for s in (table.rest(), table.legend) if s]
    parts += [f"<p>{_escaped(remark)}</p>" for remark in _remarks(profile)]
    parts.append("</div>")
    return "\n".join(parts)


def _escaped(value: str) -> str:
    return html.escape(value)


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], left: tuple[int, ...] = (0,)
) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        made = [
            f"<{tag}{' class=left' * (i in left)}>{_escaped(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(made)}</tr>"

    body = "".join([row(cells, "td") for cells in rows])
    return f"<table><thead>{row(columns, 'th')}</thead><tbody>{body}</tbody></table>"


def _savings(profile: Any) -> str:
    rows = [
        (name, duration(saved), share(saved, profile.wall))
        for name, saved in saving_lines(profile)
    ]
    return "<h2>What would be saved</h2>" + _table(("with", "saved", "of all"), rows)


def _plot(profile: Any) -> str:
    """Bars of the time that each class and function takes, and would take."""
    bars = [
        (short(each.name), each.total, each.faster)
        for each in profile.classes[:_MOST]
        if each.total
    ]
    bars += [
        (f"calls of {each.name}", each.overhead * calls, each.faster * calls)
        for each in profile.functions[:_MOST]
        if (calls := each.calls - each.traces) and each.overhead
    ]
    if not bars:
        return ""
    longest = max(max(now, faster) for _, now, faster in bars)
    height, left, width = 30, 250, 500
    lines = [
        f"<svg viewBox='0 0 {left + width + 120} {height * len(bars) + 24}' role='img'>"
    ]
    lines.append(
        f"<text x='{left}' y='12'><tspan style='fill:var(--now)'>■ now</tspan> "
        "<tspan style='fill:var(--faster)'>■ with treepress</tspan></text>"
    )
    for i, (name, now, faster) in enumerate(bars):
        y = 22 + i * height
        lines.append(
            f"<text x='{left - 8}' y='{y + 15}' text-anchor='end'>{_escaped(name[-38:])}</text>"
        )
        for offset, value, colour in ((0, now, "now"), (11, faster, "faster")):
            long = width * value / longest
            lines.append(
                f"<rect x='{left}' y='{y + offset}' width='{long:.1f}' height='9' "
                f"style='fill:var(--{colour})'/><text x='{left + long + 6:.1f}' "
                f"y='{y + offset + 9}'>{duration(value)}</text>"
            )
    lines.append("</svg>")
    return "\n".join(lines)
