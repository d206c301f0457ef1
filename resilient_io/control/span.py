"""Which bytes of an object an answer brings, and whether they are those that were asked for; the same for both clouds.

An answer with a Content-Range is a range of the object, whatever its status; one without it is the whole object, which
a store sends that ignores Range. A range that ends before the one that was asked for is short: the rest has to be asked
for. One that begins elsewhere, or says nothing of itself, is an error: its bytes would stand at the wrong place.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ASKED: Final = re.compile(r"bytes=(\d*)-(\d*)")
_TOLD: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_PARTIAL_CONTENT: Final = 206


class WrongRange(Exception):
    """An answer does not hold the bytes that were asked for."""


# Named tuples, because each read makes one of each: they take a quarter of the time of frozen dataclasses.


class Asked(NamedTuple):
    """The bytes that a request asks for: from `first`, to `last` (None: to the end), or the `suffix_bytes` at the end.

    With `is_part` the object's own part is asked for by number: it is as long as the answer says.
    """

    first: int = 0
    last: int | None = None
    suffix_bytes: int | None = None
    is_part: bool = False


WHOLE: Final = Asked()


class Told(NamedTuple):
    """What an answer says that it brings: the bytes [begin, end) of `size` bytes; None for what it does not say."""

    begin: int = 0
    end: int | None = None
    size: int | None = None
    is_range: bool = False


class Wanted(NamedTuple):
    """The bytes [begin, end) that make the body; `end` None if nobody says it, then it has at most `limit_bytes`."""

    begin: int
    end: int | None
    limit_bytes: int | None = None


def asked_for(text: str | None, *, is_part: bool = False) -> Asked:
    """Return what a Range header asks for; one that is not a single range of bytes asks for the whole."""
    if not text:
        return Asked(is_part=True) if is_part else WHOLE
    found = _ASKED.fullmatch(text)
    first, last = found.groups() if found is not None else ("", "")
    if first:
        return Asked(first=int(first), last=int(last) if last else None)
    return Asked(suffix_bytes=int(last)) if last else WHOLE


def told_by(content_range: str | None, content_length: int | None, status: int = 200) -> Told:
    """Return what the headers of an answer say. Raises WrongRange for a 206 that does not say of which bytes."""
    found = _TOLD.fullmatch(content_range) if content_range else None
    if found is not None:
        begin, last, size = found.groups()
        return Told(int(begin), int(last) + 1, None if size == "*" else int(size), is_range=True)
    if status == _PARTIAL_CONTENT:
        raise WrongRange("the answer is a part of the object and does not say which")
    return Told(end=content_length, size=content_length)


def span_of(asked: Asked, told: Told) -> Wanted:
    """Return the bytes that make the body, going by its first answer. Raises WrongRange."""
    if asked.is_part:
        return Wanted(begin=told.begin, end=told.end)
    if asked.suffix_bytes is not None:
        return _suffix(asked.suffix_bytes, told)
    wanted = None if asked.last is None else asked.last + 1
    if told.size is not None:
        return Wanted(begin=asked.first, end=told.size if wanted is None else min(wanted, told.size))
    if told.is_range:
        # Without the size nobody can tell a short range from the end of the object.
        if wanted is not None and told.end != wanted:
            raise WrongRange(f"asked for the bytes {asked.first}-{wanted - 1} and got those to {_last(told)}")
        return Wanted(begin=asked.first, end=told.end)
    return Wanted(begin=asked.first, end=None, limit_bytes=None if wanted is None else max(0, wanted - asked.first))


def bytes_before(told: Told, starts_at: int) -> int:
    """Return how many bytes of an answer come before those from `starts_at` on. Raises WrongRange."""
    if not told.is_range:
        return starts_at
    if told.begin != starts_at:
        raise WrongRange(f"asked for the bytes from {starts_at} on and got those from {told.begin} on")
    return 0


def _suffix(suffix_bytes: int, told: Told) -> Wanted:
    if told.size is None:
        raise WrongRange("the last bytes of an object whose size nobody tells cannot be cut out of it")
    return Wanted(begin=max(0, told.size - suffix_bytes), end=told.size)


def _last(told: Told) -> int | None:
    return None if told.end is None else told.end - 1
