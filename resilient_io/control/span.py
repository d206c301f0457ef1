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
    """Return what the headers of an answer say.

    Raises WrongRange for a 206 that does not say of which bytes, and for a Content-Range that cannot be read: bytes of
    who knows where are none of those that were asked for.
    """
    if content_range:
        return _range_told(content_range)
    if status == _PARTIAL_CONTENT:
        raise WrongRange("the answer is a part of the object and does not say which")
    return Told(end=content_length, size=content_length)


def _range_told(content_range: str) -> Told:
    found = _TOLD.fullmatch(content_range)
    if found is None:
        raise WrongRange("the answer has a Content-Range that cannot be read")
    begin, end, size = int(found[1]), int(found[2]) + 1, None if found[3] == "*" else int(found[3])
    if begin >= end or (size is not None and end > size):
        raise WrongRange(f"the answer says that it has the bytes {begin}-{end - 1} of {found[3]}")
    return Told(begin, end, size, is_range=True)


def span_of(asked: Asked, told: Told) -> Wanted:
    """Return the bytes that make the body, going by its first answer. Raises WrongRange."""
    if asked.is_part:
        return Wanted(begin=told.begin, end=told.end)
    if asked.suffix_bytes is not None:
        return _suffix(asked.suffix_bytes, told)
    wanted = None if asked.last is None else asked.last + 1
    if told.size is not None:
        return Wanted(begin=asked.first, end=told.size if wanted is None else min(wanted, told.size))
    if told.is_range and told.end == wanted:
        return Wanted(begin=asked.first, end=wanted)
    # Without the size nobody can tell a short range from the end of the object: what follows has to be asked for.
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
