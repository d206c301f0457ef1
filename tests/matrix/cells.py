"""The cells of the matrix: which fault can meet which operation at which door, and a small set that meets all pairs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from resilient_io.testing import FaultAction, FaultRule, Match

DOORS = ("boto3", "s3fs", "azure", "azure-aio", "adlfs")
S3_DOORS = frozenset({"boto3", "s3fs"})
# operation -> (the request that the fault meets, at S3 and at Azure)
OPERATIONS: dict[str, tuple[str, str]] = {
    "read": ("GetObject", "GetBlob"),
    "read range": ("GetObject", "GetBlob"),
    "read parts": ("GetObject", "GetBlob"),
    "put": ("PutObject", "PutBlob"),
    "create": ("PutObject", "PutBlob"),
    "create what is there": ("PutObject", "PutBlob"),
    "upload, begin": ("CreateMultipartUpload", ""),
    "upload, part": ("UploadPart", "PutBlock"),
    "upload, commit": ("CompleteMultipartUpload", "PutBlockList"),
    "copy": ("CopyObject", "CopyBlob"),
    "delete": ("DeleteObject", "DeleteBlob"),
    "delete all": ("DeleteObjects", "DeleteBlob"),
    "list": ("ListObjectsV2", "ListBlobs"),
    "head": ("HeadObject", "GetBlobProperties"),
    "head of nothing": ("HeadObject", "GetBlobProperties"),
    "exists": ("HeadObject", "GetBlobProperties"),
    "append": ("", "AppendBlock"),
}
READS = ("read", "read range", "read parts")
CREATES = ("create", "create what is there")
ASKS = (*READS, "list", "head", "head of nothing", "exists")
# Whose answers have a body that can be cut.
_TOLD_S3 = (*READS, "list", "copy", "upload, begin", "upload, commit", "delete all")
_TOLD_AZURE = (*READS, "list")
_CUT_BYTES = 1000
FAULTS = (
    "reset before",
    "reset after",
    "truncate",
    "early end",
    "stall",
    "503 midway",
    "500",
    "500 after",
    "version change",
    "200 for range",
    "short 206",
    "empty 200",
    "ignored If-None-Match",
)
LASTING = ("once", "always")


class Cell(NamedTuple):
    """One case: what is done where, and what goes wrong, for one request or for all."""

    door: str
    operation: str
    fault: str
    lasting: str

    @property
    def request(self) -> str:
        """The request that the fault meets."""
        return OPERATIONS[self.operation][0 if self.door in S3_DOORS else 1]

    def __str__(self) -> str:
        return "-".join(self)


def exists(cell: Cell) -> bool:
    """Say whether this fault can meet this operation."""
    door, operation, fault, lasting = cell
    if not cell.request or (operation == "exists" and door == "boto3"):
        return False
    if operation == "delete all" and door in ("azure", "azure-aio"):
        return False  # a batch, of which each part has its own answer
    match fault:
        case "truncate" | "early end":
            return operation in (_TOLD_S3 if door in S3_DOORS else _TOLD_AZURE)
        case "version change":
            return operation in READS and lasting == "once"
        case "200 for range" | "short 206":
            return operation in ("read range", "read parts") or (operation == "read" and door not in S3_DOORS)
        case "ignored If-None-Match":
            return operation in CREATES and lasting == "always"
        case "empty 200" if operation == "delete":
            return door not in S3_DOORS  # stores differ in 200 and 204
        case "500 after":
            return operation not in ASKS
    return True


def rules_of(cell: Cell) -> tuple[FaultRule, ...]:
    """Return what the server does."""
    match, calls = Match(op=cell.request), (1,) if cell.lasting == "once" else ()
    cut = 200 if cell.operation not in READS else _CUT_BYTES if cell.operation == "read parts" else 37
    reads, error = cell.operation in READS, FaultAction.ERROR
    match cell.fault:
        case "version change":
            return (FaultRule(action=FaultAction.TRUNCATE, match=match, calls=(1,), after_bytes=cut),)
        case "503 midway" if reads:
            after = (2,) if cell.lasting == "once" else tuple(range(2, 100))
            return (
                FaultRule(action=FaultAction.TRUNCATE, match=match, calls=(1,), after_bytes=cut),
                FaultRule(action=error, match=match, calls=after),
            )
        case "503 midway":
            return (FaultRule(action=error, match=match, calls=calls),)
        case "500" | "500 after":
            applied = cell.fault == "500 after"
            return (FaultRule(action=error, match=match, calls=calls, status=500, after_commit=applied),)
        case "stall" if reads:
            # One that lasts must not bring a byte, or it would go on for as many times as there are pieces.
            cut = cut if cell.lasting == "once" else 0
            return (FaultRule(action=FaultAction.STALL_BODY, match=match, calls=calls, after_bytes=cut),)
    return (FaultRule(action=_ACTIONS[cell.fault], match=match, calls=calls, after_bytes=cut),)


_ACTIONS = {
    "reset before": FaultAction.RESET_BEFORE,
    "reset after": FaultAction.RESET_AFTER,
    "truncate": FaultAction.TRUNCATE,
    "early end": FaultAction.EARLY_END_CHUNKED,
    "stall": FaultAction.STALL_BEFORE,
    "200 for range": FaultAction.IGNORE_RANGE,
    "short 206": FaultAction.SHORT_RANGE,
    "empty 200": FaultAction.OK_EMPTY,
    "ignored If-None-Match": FaultAction.IGNORE_IF_NONE_MATCH,
}


def full() -> list[Cell]:
    """Return every cell there is."""
    every = itertools.product(DOORS, OPERATIONS, FAULTS, LASTING)
    return [cell for cell in (Cell(*each) for each in every) if exists(cell)]


def pairwise(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """Return some of the cells, in which each two values that meet in a cell meet at least once."""
    left = {pair for cell in cells for pair in _pairs(cell)}
    shuffled, chosen = list(cells), []
    random.Random(seed).shuffle(shuffled)
    while left:
        best = max(shuffled, key=lambda cell: _new(cell, left))
        chosen.append(best)
        left.difference_update(_pairs(best))
    return sorted(chosen)


def _new(cell: Cell, left: set[tuple[int, str, int, str]]) -> int:
    return sum(pair in left for pair in _pairs(cell))


def _pairs(cell: Iterable[str]) -> Iterator[tuple[int, str, int, str]]:
    for (i, one), (j, other) in itertools.combinations(enumerate(cell), 2):
        yield i, one, j, other
