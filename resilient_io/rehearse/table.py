"""The result of a rehearsal as people read it: one table, what it means, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from resilient_io.rehearse.clouds import S3, Cloud
from resilient_io.rehearse.outcomes import Figures
from resilient_io.rehearse.rehearsal import STOCK, TREATED, Run


def _change(cloud: Cloud) -> str:
    return (
        "To get this in your own code, put `import resilient_io; resilient_io.install()` before the first "
        f"{cloud.scheme}:// URL is opened, in every process, or write {cloud.own_scheme}:// for {cloud.scheme}://."
    )


def _makespan(figures: Figures) -> str:
    if figures.over_ideal is None:
        return f"{figures.makespan_s:.1f} s"
    return f"{figures.over_ideal:.2f} x ({figures.makespan_s:.1f} s)"


_ROWS: Final[Mapping[str, Callable[[Figures], str]]] = {
    "operations done": lambda one: f"{one.done:,}",
    "operations failed": lambda one: f"{one.failed:,}",
    "requests per operation": lambda one: f"{one.requests_per_operation:.2f}",
    "share of 503s": lambda one: f"{one.requests.refused_share:.1%}",
    "p50 of an operation": lambda one: _duration(one.p50_s),
    "p99 of an operation": lambda one: _duration(one.p99_s),
    "makespan over the ideal": _makespan,
    "bytes checked": lambda one: f"{one.checked_bytes:,}",
    "wrong bytes": lambda one: f"{one.wrong_bytes:,}",
}


def rows(runs: Sequence[Run], *, cloud: Cloud = S3) -> list[list[str]]:
    """Return the table as texts, its heading first."""
    heads = {STOCK: f"stock {cloud.library}", TREATED: "resilient-io"}
    table = [["", *(heads[run.name] for run in runs)]]
    return table + [[name, *(text(run.figures) for run in runs)] for name, text in _ROWS.items()]


def show(runs: Sequence[Run], *, title: str, cloud: Cloud = S3) -> None:
    """Print the table, by rich where it is installed."""
    table = rows(runs, cloud=cloud)
    if find_spec("rich") is None:
        print(plain(table, title=title))
    else:
        _show_by_rich(table, title=title)


def plain(table: Sequence[Sequence[str]], *, title: str) -> str:
    """Return the table as lines of text."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [title, ""]
    for name, *values in table:
        cells = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
        lines.append("   ".join([name.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def _show_by_rich(table: Sequence[Sequence[str]], *, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    head, *body = table
    shown = Table()
    shown.add_column(head[0])
    for name in head[1:]:
        shown.add_column(name, justify="right")
    for row in body:
        shown.add_row(*row)
    print(title)
    Console().print(shown)


def meaning(runs: Sequence[Run], *, cloud: Cloud = S3) -> list[str]:
    """Return two sentences: what the figures mean, and what to change."""
    by_name = {run.name: run.figures for run in runs}
    stock, treated = by_name.get(STOCK), by_name.get(TREATED)
    if treated is None:
        assert stock is not None
        return [f"On this store stock {cloud.library} {_what_it_did(stock)}.", _change(cloud)]
    if treated.failed or treated.wrong_bytes:
        return [f"resilient-io {_what_it_did(treated)}: it did not do what it is for.", _what_failed(treated)]
    beside = f"; stock {cloud.library} {_what_it_did(stock)}" if stock is not None else ""
    return [f"On the same store resilient-io {_what_it_did(treated)}{beside}.", _change(cloud)]


def _what_it_did(one: Figures) -> str:
    parts = [f"lost {one.failed:,} of {one.operations:,} operations" if one.failed else "lost no operation"]
    if one.wrong_bytes:
        parts.append(f"got {one.wrong_bytes:,} wrong bytes")
    parts.append(f"had {one.requests.refused_share:.0%} of its requests refused")
    if one.over_ideal is not None:
        parts.append(f"took {one.over_ideal:.1f} times as long as the ceiling alone takes")
    return ", ".join(parts[:-1]) + f" and {parts[-1]}"


def _what_failed(one: Figures) -> str:
    if not one.errors:
        return "Please report it with the seed above."
    text, count = max(one.errors.items(), key=lambda item: item[1])
    return f"The most frequent error, {count:,} times, was {text}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
