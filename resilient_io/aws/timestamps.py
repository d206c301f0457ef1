"""The two forms in which S3 writes a time, read at a fiftieth of the cost.

botocore hands each LastModified to dateutil, which guesses the form of any date there is: 60 to 90 us, one for each
answer and a thousand for each page of a listing. That is more than all the hooks add to a request, so they make up
for themselves here. Whatever has another form, or does not hold, still goes to botocore.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from botocore.utils import parse_timestamp
from dateutil.tz import tzutc

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Of a header (RFC 9110, IMF-fixdate) ...
_HEADER: Final = re.compile(r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII)
# ... and of a document (RFC 3339).
_DOCUMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z", re.ASCII)
_UTC: Final = tzutc()


def parse(value: Any) -> datetime:
    """Return what `botocore.utils.parse_timestamp` returns, in UTC. Raises what it raises."""
    if isinstance(value, str):
        try:
            found = _of_header(value) or _of_document(value)
        except ValueError:
            found = None
        if found is not None:
            return found
    stock: datetime = parse_timestamp(value)
    return stock


def _of_header(text: str) -> datetime | None:
    match = _HEADER.fullmatch(text)
    if match is None:
        return None
    day, month, year, hour, minute, second = match.groups()
    at = _MONTHS.index(month) + 1
    return datetime(int(year), at, int(day), int(hour), int(minute), int(second), tzinfo=_UTC)


def _of_document(text: str) -> datetime | None:
    match = _DOCUMENT.fullmatch(text)
    if match is None:
        return None
    *whole, part = match.groups()
    year, month, day, hour, minute, second = map(int, whole)
    return datetime(year, month, day, hour, minute, second, int((part or "").ljust(6, "0")), tzinfo=_UTC)
