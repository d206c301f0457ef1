"""Cells that are known to be wrong today, with the symptom. Each fails as soon as it is right; then its line goes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product

from .cells import Cell

_CLIENT_BODY = "the body of a hardened boto3 client is not resumed, nor compared with what was asked for"
_RANGE = "a range answered by other bytes than were asked for ends in an SDK error, or in short data"
_LOST_CREATE = "a create-only write whose answer was lost is reported as ambiguous instead of looked up"
_LOST_COMMIT = "a commit whose answer was lost is reported as ambiguous instead of looked up"


def _each(*axes: str) -> list[str]:
    """Return the patterns of all combinations of alternatives that are written `a|b`."""
    return ["-".join(each) for each in product(*(axis.split("|") for axis in axes))]


# A shell pattern over "door-operation-fault-lasting" -> what is seen.
KNOWN: dict[str, str] = {
    **dict.fromkeys(
        _each("boto3", "read|read range", "truncate|stall|503 midway|version change", "once"), _CLIENT_BODY
    ),
    **dict.fromkeys(_each("boto3", "read|read range|read parts", "early end", "once|always"), _CLIENT_BODY),
    **dict.fromkeys(_each("boto3", "read range", "200 for range|short 206", "once|always"), _CLIENT_BODY),
    **dict.fromkeys(_each("boto3", "read parts", "short 206", "once|always"), _CLIENT_BODY),
    "boto3-read parts-200 for range-always": _CLIENT_BODY,
    **dict.fromkeys(_each("s3fs", "read range", "short 206", "once|always"), _RANGE),
    **dict.fromkeys(
        _each("azure|azure-aio|adlfs", "read|read range|read parts", "200 for range", "once|always"), _RANGE
    ),
    **dict.fromkeys(_each("azure|azure-aio", "read|read range|read parts", "short 206", "always"), _RANGE),
    **dict.fromkeys(_each("adlfs", "read|read range", "short 206", "always"), _RANGE),
    **dict.fromkeys(_each("*", "create", "reset after|500 after", "once"), _LOST_CREATE),
    **dict.fromkeys(
        _each("*", "create what is there", "reset before|reset after|stall|500|500 after|empty 200", "once"),
        _LOST_CREATE,
    ),
    **dict.fromkeys(
        _each("boto3|s3fs", "upload, commit", "reset after|truncate|early end|500 after", "once"), _LOST_COMMIT
    ),
}


def symptom_of(cell: Cell) -> str | None:
    """Return what is wrong with a cell, None where nothing is known."""
    return next((told for pattern, told in KNOWN.items() if fnmatchcase(str(cell), pattern)), None)


def idle_patterns(cells: list[Cell]) -> list[str]:
    """Return the patterns that fit no cell."""
    return [pattern for pattern in KNOWN if not any(fnmatchcase(str(cell), pattern) for cell in cells)]
