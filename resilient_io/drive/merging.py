"""`cat_ranges` with near ranges of one object in one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from resilient_io.control.ranges import NEAR_BYTES, Merged, comparable, merged
from resilient_io.drive.versions import one_version_each

CatRanges = Callable[..., Awaitable[list[Any]]]


async def cat_merged(
    stock: CatRanges, paths: list[str], starts: Any, ends: Any, max_gap: int | None, on_error: str, **options: Any
) -> list[Any]:
    """Return the bytes of each range, in their order, from as few requests as their nearness allows.

    `stock` is the filesystem's own method. `max_gap` is the most bytes between two ranges that are fetched together:
    None for the default, -1 for those alone that overlap. An error stands for every range that its request was to
    bring; with `on_error` other than "return" the first one is raised.

    All bytes of one object are of one version: where it was replaced in between, ObjectChanged stands for the ranges of
    the later answers.
    """
    with one_version_each():
        return await _cat(stock, paths, starts, ends, max_gap, on_error, **options)


async def _cat(
    stock: CatRanges, paths: list[str], starts: Any, ends: Any, max_gap: int | None, on_error: str, **options: Any
) -> list[Any]:
    if not isinstance(paths, list):
        raise TypeError("paths must be a list")
    begins, stops = _each(starts, paths), _each(ends, paths)
    spans = [comparable(start, end) for start, end in zip(begins, stops, strict=True)]
    near_bytes = NEAR_BYTES if max_gap is None else max_gap
    groups = merged(paths, spans, near_bytes=near_bytes)
    alone = [number for number, span in enumerate(spans) if span is None]
    found = await stock(
        [group.path for group in groups] + [paths[number] for number in alone],
        [group.span.start for group in groups] + [begins[number] for number in alone],
        [group.span.end for group in groups] + [stops[number] for number in alone],
        on_error="return",
        **options,
    )
    out: list[Any] = [None] * len(paths)
    for number, data in zip(alone, found[len(groups) :], strict=True):
        out[number] = data
    again = [n for group, data in zip(groups, found, strict=False) for n in _cut(group, data, begins, stops, out)]
    if again:
        asked = ([values[n] for n in again] for values in (paths, begins, stops))
        for number, data in zip(again, await stock(*asked, on_error="return", **options), strict=True):
            out[number] = data
    _raise_first(out, on_error)
    return out


def _each(values: Any, paths: list[str]) -> list[Any]:
    each = list(values) if isinstance(values, Iterable) else [values] * len(paths)
    if len(each) != len(paths):
        raise ValueError("starts and ends must be as many as paths")
    return each


def _cut(group: Merged, data: Any, begins: list[Any], stops: list[Any], out: list[Any]) -> list[int]:
    """Hand out what a request brought; return the ranges that begin behind the object's end, which it does not tell."""
    behind = []
    for number in group.wanted:
        if isinstance(data, BaseException) or len(group.wanted) == 1:
            out[number] = data
            continue
        start = (begins[number] or 0) - group.span.start
        out[number] = data[start : stops[number] - group.span.start]
        if start >= len(data):
            behind.append(number)
    return behind


def _raise_first(out: list[Any], on_error: str) -> None:
    error = next((each for each in out if isinstance(each, BaseException)), None)
    if error is not None and on_error != "return":
        raise error
