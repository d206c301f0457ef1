"""One level's place in the table of a machine: its record, and a row for each process that uses it.

It is changed under a lock of its own. Nothing that is read here is trusted.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

from resilient_io.control import joining, law
from resilient_io.control.law import Record
from resilient_io.control.law_record import SENT_AT
from resilient_io.control.turns import WEIGHT_LEAST, WEIGHT_MOST
from resilient_io.coordinate.bytelock import ByteLock
from resilient_io.coordinate.layout import (
    DIGEST_BYTES,
    HAD_AT,
    HEAVIEST_AT,
    MOVED_AT,
    RECORD,
    RECORD_AT,
    ROW,
    ROW_BYTES,
    ROWS,
    ROWS_AT,
    SHARE_AT,
    SLOT_BYTES,
    WANTED_AT,
    WEIGHT_AT,
    slot_at,
)

# What a scope learnt is worth no more, if nobody has used it for so long.
STALE_S: Final = 300.0
# Who waits asks four times a second at least (`node`): one that has not for so long does not wait any more.
_WAITS_S: Final = 1.0
# How far one who asks moves the average of the weights.
_MIXED: Final = 1.0 / 64.0


class Mapped(Protocol):
    """The file that a slot is in."""

    fd: int
    map: Any
    doubles: memoryview[float]
    owner: float
    """Who a row belongs to."""


class Slot:
    """One level's place in the table. `read`, `write` and `claim_row` want its lock."""

    __slots__ = (
        "_at",
        "_doubles",
        "_had",
        "_heaviest",
        "_lock",
        "_map",
        "_mark",
        "_moved",
        "_row_at",
        "_share",
        "_table",
        "_weight",
        "digest",
        "flag_at",
        "flags",
    )

    def __init__(self, table: Mapped, number: int, digest: bytes) -> None:
        self._map = table.map
        self._doubles = table.doubles
        self._table = table  # which closes the file when nobody has it any more
        self.digest = digest
        self._at = slot_at(number)
        self._mark = WANTED_AT + number
        self._share, self._moved, self._had = ((self._at + offset) // 8 for offset in (SHARE_AT, MOVED_AT, HAD_AT))
        self._heaviest, self._weight = ((self._at + offset) // 8 for offset in (HEAVIEST_AT, WEIGHT_AT))
        # Where all processes see at a look whether the level is limited: not 0.0.
        self.flags, self.flag_at = table.doubles, (self._at + RECORD_AT) // 8 + law.LIMITED
        self._lock = ByteLock(table.fd, self._at)
        self._row_at: int | None = None

    def lock(self) -> bool:
        """Take the slot's lock; False if it is held up, or if the slot has become another level's."""
        if not (self._lock.take() or self._lock.take_patiently()):
            return False
        if self.is_mine():
            return True
        self._lock.free()
        return False

    def unlock(self) -> None:
        """Give the lock back; no harm if it is not held."""
        self._lock.free()

    def is_mine(self) -> bool:
        """Say whether the slot is this level's still, and in the file that is in use."""
        here = self._map[self._at : self._at + DIGEST_BYTES]
        return bool(here == self.digest) and self._map is self._table.map

    def is_limited(self) -> bool:
        """Say whether the level is limited; needs no lock."""
        return self.flags[self.flag_at] != 0.0

    def read(self, now: float) -> list[float]:
        """Return the record; a fresh one for one that makes no sense."""
        rec = list(RECORD.unpack_from(self._map, self._at + RECORD_AT))
        return rec if is_sound(rec, now) else law.fresh(now)

    def write(self, rec: Record) -> None:
        """Put the record there in one copy, so that a process that is killed leaves none half-written."""
        RECORD.pack_into(self._map, self._at + RECORD_AT, *rec)

    def put(self, rec: Record, *indices: int) -> None:
        """Write a few numbers of the record, each in one piece."""
        start = (self._at + RECORD_AT) // 8
        for index in indices:
            self._doubles[start + index] = rec[index]

    def want_cluster(self) -> None:
        """Mark the level as one to be shared across the cluster; it is forgotten when nobody uses the level."""
        self._map[self._mark] = 1

    @property
    def share(self) -> float:
        """What part of the cluster this machine is at this level, as the law's SHARE; 0.0: not heard yet."""
        return self._doubles[self._share]

    @share.setter
    def share(self, part: float) -> None:
        self._doubles[self._share] = part

    @property
    def moved_at(self) -> float:
        """When the level was last moved to its part of a cluster's rate."""
        return self._doubles[self._moved]

    @moved_at.setter
    def moved_at(self, now: float) -> None:
        self._doubles[self._moved] = now

    @property
    def had(self) -> tuple[float, float]:
        """Requests per second that had come through, and when."""
        return self._doubles[self._had], self._doubles[self._had + 1]

    @had.setter
    def had(self, had: tuple[float, float]) -> None:
        self._doubles[self._had], self._doubles[self._had + 1] = had

    def part(self, weight: float, now: float) -> float:
        """Return the weight of this process, which asks for a turn, relative to the heaviest of those who wait."""
        doubles, at = self._doubles, self._heaviest
        top, asked_at = doubles[at], doubles[at + 1]
        if doubles[self._weight] != weight:
            self.mix(weight)
        if weight < top <= WEIGHT_MOST and now - _WAITS_S < asked_at <= now + 1.0:
            return weight / top
        if weight != top or not now - _WAITS_S / 4.0 < asked_at <= now:
            self.lead(weight, now)
        return 1.0

    def lead(self, weight: float, now: float) -> None:
        """Make this process the heaviest of those who wait: no heavier one took its turn."""
        self._doubles[self._heaviest], self._doubles[self._heaviest + 1] = weight, now

    def mix(self, weight: float) -> None:
        """Let the average of the weights follow."""
        before = self.mean_weight
        self._doubles[self._weight] = before + (weight - before) * _MIXED

    @property
    def mean_weight(self) -> float:
        """The weight of the processes that wait, on average; 1.0 where none has another one."""
        found = self._doubles[self._weight]
        return found if WEIGHT_LEAST <= found <= WEIGHT_MOST else 1.0

    def is_live(self, now: float) -> bool:
        """Say whether a process uses the level."""
        return any(self.digest) and any(joining.is_live(row, now) for row in self.rows())

    def is_idle(self, now: float) -> bool:
        """Say whether the slot is free, or nobody has used it for long."""
        if not any(self._map[self._at : self._at + DIGEST_BYTES]):
            return True
        return not self._is_fresh(now) and not any(joining.is_live(row, now) for row in self.rows())

    def _is_fresh(self, now: float) -> bool:
        return 0.0 <= now - self._doubles[(self._at + RECORD_AT) // 8 + SENT_AT] <= STALE_S

    def take(self, now: float) -> None:
        """Make the slot this level's, and empty."""
        self._map[self._at : self._at + SLOT_BYTES] = bytes(SLOT_BYTES)
        self._map[self._mark] = 0
        self.write(law.fresh(now))
        self._map[self._at : self._at + DIGEST_BYTES] = self.digest

    # -- rows --------------------------------------------------------------------------------------

    def claim_row(self, now: float) -> None:
        """Take a row for this process, one that nobody uses; without one its requests are not seen at an entry."""
        if self._row_at is not None:
            return
        if not self._is_fresh(now) and not any(joining.is_live(row, now) for row in self.rows()):
            self.write(law.fresh(now))
        start = (self._at + ROWS_AT) // 8
        step = 1 + joining.ROW
        owners, leases = (self._doubles[start + n : start + ROWS * step : step].tolist() for n in (0, 1))
        for number, (owner, lease) in enumerate(zip(owners, leases, strict=True)):
            if owner == 0.0 or not joining.is_live((lease,), now):
                self._row_at = self._at + ROWS_AT + number * ROW_BYTES
                self._doubles[self._row_at // 8] = self._table.owner
                self.show((now, *[0.0] * (joining.ROW - 1)))
                return

    def show(self, row: tuple[float, ...]) -> None:
        """Write this process's row; needs no lock, only its owner does. One that was taken away is claimed anew."""
        at = self._row_at
        if at is None:
            return
        if self._doubles[at // 8] != self._table.owner:
            self._row_at = None
            return
        ROW.pack_into(self._map, at, self._table.owner, *row)

    @property
    def has_row(self) -> bool:
        """Say whether this process has a row, as far as it knows."""
        return self._row_at is not None

    def release_row(self) -> None:
        """Give the row up."""
        at, self._row_at = self._row_at, None
        if at is not None and self._doubles[at // 8] == self._table.owner:
            self._map[at : at + ROW_BYTES] = bytes(ROW_BYTES)

    def rows(self) -> list[tuple[float, ...]]:
        """Return what the other processes show."""
        start = self._at + ROWS_AT
        rows = ROW.iter_unpack(self._map[start : start + ROWS * ROW_BYTES])
        return [row[1:] for row in rows if row[0] not in (0.0, self._table.owner)]


def is_sound(rec: Record, now: float) -> bool:
    """Say whether a record can be stepped: one that is limited holds finite numbers, and is not from the future."""
    if rec[law.LIMITED] == 0.0:
        return True
    return (
        rec[law.LIMITED] == 1.0
        and 0.0 < rec[law.RATE] <= law.LAW.rate_max
        and (rec[law.TOKENS_AT] <= now + 1.0 and math.isfinite(sum(rec)))
    )
