"""Which process of a machine speaks for it in a cluster: the holder of a lease that stands in the table's header."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from resilient_io.coordinate.table import Table

# Renewed at each exchange, whose calls of the hub are over sooner; a process that is stopped or killed loses it.
LEASE_S: Final = 5.0
# In the header of the table: a number that is this machine's, then so many places, one for each hub.
_NODE_AT: Final = 64
_PLACES_AT: Final = 128
_PLACES: Final = 8
_HUB, _OWNER, _UNTIL, _LOST, _WARNED_AT, _TOLD_AT, _READ_AT = range(7)
_DOUBLES: Final = 7
# A place that nobody has held for so long is free for another hub.
_STALE_S: Final = 60.0


class Lead:
    """The lease of one hub, as one process sees it. Not thread-safe. The table must be this object's alone."""

    def __init__(self, table: Table, hub: str) -> None:
        """Look for the lease of the hub of this name; the name must hold no password."""
        self._table = table
        self._key = _number_of(hub.encode("utf-8", "surrogatepass"))
        self._at = 0

    def take(self, now: float, *, by_force: bool = False) -> bool:
        """Take or renew the lease; `by_force` from whoever has it. Without the table's lock: say whether it is held."""
        with self._table.held() as held:
            if not held:
                return self.is_held(now)
            at = self._at = self._place(now) or 0
            if not at:
                return False
            doubles, me = self._table.doubles, self._table.owner
            if doubles[at + _OWNER] != me and _is_between(now, doubles[at + _UNTIL]) and not by_force:
                return False
            doubles[at + _OWNER], doubles[at + _UNTIL] = me, now + LEASE_S
            return True

    def is_held(self, now: float) -> bool:
        """Say whether this process has the lease."""
        if not self._is_placed():
            return False
        doubles, at = self._table.doubles, self._at
        return bool(doubles[at + _OWNER] == self._table.owner and _is_between(now, doubles[at + _UNTIL]))

    def tell(self, now: float) -> None:
        """Leave word for whoever has the lease that there is news; needs no lock."""
        if self._is_placed():
            self._table.doubles[self._at + _TOLD_AT] = now

    def is_told(self, now: float) -> bool:
        """Say whether there is word that the holder has not read; one from the future is not believed."""
        if not self._is_placed():
            return False
        doubles, at = self._table.doubles, self._at
        return bool(doubles[at + _READ_AT] < doubles[at + _TOLD_AT] <= now)

    def read(self, now: float) -> None:
        """Have read what was left so far; for the holder."""
        if self._is_placed():
            self._table.doubles[self._at + _READ_AT] = now

    def note(self, now: float, *, lost: bool) -> bool:
        """Note whether the hub is lost, for whoever has the lease later; say whether that is worth telling a person.

        It is at the first of the machine's processes that finds it so, and at most once in a minute.
        """
        doubles, at = self._table.doubles, self._at
        if not at or (doubles[at + _LOST] != 0.0) is lost:
            return False
        doubles[at + _LOST] = float(lost)
        if not lost:
            return True
        told = 0.0 <= now - doubles[at + _WARNED_AT] < _STALE_S and doubles[at + _WARNED_AT] != 0.0
        if not told:
            doubles[at + _WARNED_AT] = now
        return not told

    def _is_placed(self) -> bool:
        return bool(self._at and self._table.doubles[self._at + _HUB] == self._key)

    def _place(self, now: float) -> int | None:
        """Return where the hub's place begins, taken for it if there is room."""
        doubles, free = self._table.doubles, None
        for number in range(_PLACES):
            at = _PLACES_AT // 8 + number * _DOUBLES
            if doubles[at + _HUB] == self._key:
                return at
            until = doubles[at + _UNTIL]
            if free is None and (doubles[at + _HUB] == 0.0 or not now - _STALE_S < until <= now + LEASE_S + 1.0):
                free = at
        if free is not None:
            for field in range(_DOUBLES):
                doubles[free + field] = 0.0
            doubles[free + _HUB] = self._key
        return free


def node_of(table: Table) -> str:
    """Return the name of this machine in a cluster: drawn once by the first of its processes, and kept in the table."""
    with table.held():
        if table.doubles[_NODE_AT // 8] == 0.0:
            table.doubles[_NODE_AT // 8] = _number_of(os.urandom(16))
        return f"{int(table.doubles[_NODE_AT // 8]):012x}"


def _number_of(data: bytes) -> float:
    return float(int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big") or 1)


def _is_between(now: float, until: float) -> bool:
    return now < until <= now + LEASE_S + 1.0
