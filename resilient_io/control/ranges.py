"""Which ranges a read asks for: the rest of an object in blocks, and near ranges in one request. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Final

#: Bytes between two ranges that are fetched rather than asked for apart. At 30 MB/s, which one connection brings
#: without effort, they take 9 ms; a request of its own takes 20 ms and more until its first byte, and a token.
NEAR_BYTES: Final = 256 * 2**10
#: The most bytes that ranges are merged to: larger ones gain nothing, and come faster side by side.
MERGED_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes [start, end)."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One range of `path` to ask for, and the numbers of the wanted ranges that it brings."""

    path: str
    span: Span
    wanted: tuple[int, ...]


def blocks(start: int, end: int, block_bytes: int) -> list[Span]:
    """Return [start, end) as spans of nearly equal length, as few as blocks of at most `block_bytes` can be."""
    length_bytes = max(0, end - start)
    count = -(-length_bytes // block_bytes)
    cuts = [start + length_bytes * number // count for number in range(count + 1)] if count else []
    return [Span(*pair) for pair in itertools.pairwise(cuts)]


def merged(
    paths: Sequence[str],
    spans: Sequence[Span | None],
    *,
    near_bytes: int = NEAR_BYTES,
    most_bytes: int = MERGED_BYTES,
) -> list[Merged]:
    """Return the ranges to ask for, so that each wanted span lies in one of them.

    Spans of one path that touch, overlap or are at most `near_bytes` apart are merged while the whole is no longer
    than `most_bytes`. A None is a range that cannot be compared (it counts from the end, or has no end): it is left
    out here and has to be asked for by itself.
    """
    order = sorted(
        (path, span.start, span.end, n) for n, (path, span) in enumerate(zip(paths, spans, strict=True)) if span
    )
    found: list[Merged] = []
    for path, start, end, number in order:
        last = found[-1] if found else None
        if last is not None and last.path == path and start - last.span.end <= near_bytes:
            whole = Span(last.span.start, max(last.span.end, end))
            if len(whole) <= max(most_bytes, len(last.span)):
                found[-1] = Merged(path=path, span=whole, wanted=(*last.wanted, number))
                continue
        found.append(Merged(path=path, span=Span(start, end), wanted=(number,)))
    return found


def comparable(start: object, end: object) -> Span | None:
    """Return a wanted range as a span; None where its bytes depend on the object's size, or there are none."""
    start = 0 if start is None else start
    # Those of numpy are no ints.
    if isinstance(start, Integral) and isinstance(end, Integral) and 0 <= int(start) < int(end):
        return Span(int(start), int(end))
    return None
