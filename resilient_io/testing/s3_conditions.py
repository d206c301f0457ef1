"""Conditional requests and ranges as S3 answers them (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from .memory import Stored

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass
class Denied(Exception):
    """The store says no, with this status and S3 code."""

    status: int
    code: str | None
    headers: list[tuple[str, str]] = field(default_factory=list)


def byte_range(header: str | None, length: int) -> tuple[int, int] | None:
    """Return first byte and end (exclusive) of a Range header, or None where the whole is meant.

    A header that is no single byte range is ignored, as S3 does; one that starts behind the end is
    416 with the length.
    """
    found = _RANGE.match(header.strip()) if header else None
    if found is None or found.group(1, 2) == ("", ""):
        return None
    first, last = found.groups()
    if first == "":
        start, end = max(0, length - int(last)), length
    else:
        start, end = int(first), min(length, int(last) + 1 if last else length)
        if last and int(last) < start:
            return None
    if start >= length or start >= end:
        raise Denied(416, "InvalidRange", [("Content-Range", f"bytes */{length}")])
    return start, end


def check_read(headers: dict[str, str], stored: Stored) -> None:
    """Raise 412 or 304 where a condition of a GET or HEAD does not hold."""
    wanted = headers.get("if-match")
    if wanted is not None and not _names(wanted, stored):
        raise Denied(412, "PreconditionFailed")
    since = headers.get("if-unmodified-since")
    if wanted is None and since is not None and stored.modified_s > _epoch_s(since):
        raise Denied(412, "PreconditionFailed")
    unwanted = headers.get("if-none-match")
    if unwanted is not None and _names(unwanted, stored):
        raise _not_modified(stored)
    since = headers.get("if-modified-since")
    if unwanted is None and since is not None and stored.modified_s <= _epoch_s(since):
        raise _not_modified(stored)


def check_write(headers: dict[str, str], stored: Stored | None) -> None:
    """Raise 412 (or 404 for If-Match without an object) where a condition of a write does not hold."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    if wanted is not None and stored is None:
        raise Denied(404, "NoSuchKey")
    if wanted is not None and stored is not None and not _names(wanted, stored):
        raise Denied(412, "PreconditionFailed")
    if unwanted is not None and stored is not None and _names(unwanted, stored):
        raise Denied(412, "PreconditionFailed")


def _names(header: str, stored: Stored) -> bool:
    return header.strip() == "*" or stored.etag in [one.strip().strip('"') for one in header.split(",")]


def _not_modified(stored: Stored) -> Denied:
    return Denied(304, None, [("ETag", f'"{stored.etag}"')])


def _epoch_s(date: str) -> float:
    return parsedate_to_datetime(date).timestamp()
