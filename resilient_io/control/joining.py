"""What several processes did with an open scope, put together at its first refusal; and taken apart for one alone.

While a scope is open each process steps a record of its own, so that nothing is locked where nothing is limited, and
shows the few numbers that an entry needs in a *row*. At the first refusal the rows are joined, and the entry is
decided by what all of them had in flight and got.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from resilient_io.control.law_record import (
    BEGAN_AT,
    CHECKS,
    COUNT,
    COUNT_BEFORE,
    ENTERING,
    ENTRY_DEMAND,
    ENTRY_RATE,
    FLOOR_RATE,
    GOOD,
    IN_FLIGHT,
    LAW,
    RATE,
    REFUSED,
    SECOND,
    SHARE,
    SUCCEEDED_AT,
    TOKENS,
    Constants,
    Record,
    forget,
)

Row = Sequence[float]
# A row: when it was last written, and these of the process's record.
SHOWN: Final = (IN_FLIGHT, SECOND, COUNT, COUNT_BEFORE, BEGAN_AT, GOOD)
ROW: Final = 1 + len(SHOWN)
_IN_FLIGHT, _SECOND, _COUNT, _BEFORE, _BEGAN, _GOOD = range(1, ROW)
# A row that was not written for so long is that of a process that is gone, or of one with nothing to add.
LEASE_S: Final = 30.0


def row_of(rec: Record, now: float, in_flight: float) -> tuple[float, ...]:
    """Return what a process shows of its record; `in_flight` are its own requests."""
    return (now, in_flight, rec[SECOND], rec[COUNT], rec[COUNT_BEFORE], rec[BEGAN_AT], rec[GOOD])


def is_live(row: Row, now: float) -> bool:
    """Say whether the process behind a row has used the scope of late; one from the future is not believed."""
    return now - LEASE_S <= row[0] <= now + 1.0


def join(rec: Record, others: Iterable[Row], now: float) -> int:
    """Add the rows of the other processes to a record of an open scope; return how many were live."""
    second, live = float(math.floor(now)), 0
    if rec[SECOND] != second:
        rec[COUNT_BEFORE] = rec[COUNT] if rec[SECOND] == second - 1.0 else 0.0
        rec[COUNT], rec[SECOND] = 0.0, second
    for row in others:
        if not is_live(row, now):
            continue
        live += 1
        rec[IN_FLIGHT] += row[_IN_FLIGHT]
        rec[GOOD] += row[_GOOD]
        rec[SUCCEEDED_AT] = max(rec[SUCCEEDED_AT], row[_SECOND])
        if row[_SECOND] == second:
            rec[COUNT] += row[_COUNT]
            rec[COUNT_BEFORE] += row[_BEFORE]
        elif row[_SECOND] == second - 1.0:
            rec[COUNT_BEFORE] += row[_COUNT]
        if row[_IN_FLIGHT] > 0.0 or row[_SECOND] >= second - 1.0:
            rec[BEGAN_AT] = min(rec[BEGAN_AT], row[_BEGAN])
    return live


# What a record holds of requests, and requests per second, that were those of all who stepped it.
_OF_ALL: Final = (RATE, GOOD, ENTRY_RATE, ENTRY_DEMAND, FLOOR_RATE, COUNT, COUNT_BEFORE, REFUSED, SHARE)


def part(rec: Record, members: float, in_flight: float, now: float, law: Constants = LAW) -> None:
    """Make of the record of `members` processes that of one, which goes on by itself with `in_flight` requests.

    What all were trying out at the moment is over; and one that is a part must not judge refusals as if it were all.
    """
    if rec[ENTERING] != 0.0:  # what all asked for is not yet known to be too much: nobody here would find out
        rec[RATE] = min(rec[RATE], rec[ENTRY_RATE])
    for index in _OF_ALL:
        rec[index] /= members
    rec[RATE] = max(law.rate_min, rec[RATE])
    rec[TOKENS] = min(1.0, max(0.0, rec[TOKENS]))
    rec[IN_FLIGHT] = in_flight
    rec[ENTERING] = rec[CHECKS] = 0.0
    forget(rec, now)
