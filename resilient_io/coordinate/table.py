"""The table of limits that the processes of one machine and user share: a file of fixed slots, mapped by each of them.

A slot holds the record of one level of a scope, under a digest of its name, and a row for each process that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from resilient_io.coordinate.bytelock import HAS_LOCKS, ByteLock
from resilient_io.coordinate.folder import Unusable, table_in
from resilient_io.coordinate.layout import (
    DIGEST_BYTES,
    FILE_BYTES,
    SLOTS,
    WANTED_AT,
    slot_at,
)
from resilient_io.coordinate.opening import is_in_place, opened
from resilient_io.coordinate.slot import Slot

_log = logging.getLogger("resilient_io")

# How often the file is looked at: a job that cleans up may have removed it.
_LOOK_S: Final = 1.0
# Slots that are looked at for a name; more would make a full table slow.
_PROBES: Final = 16


class Table:
    """The mapped file. Not thread-safe: the gate's lock guards it. Raises Unusable where it cannot be had."""

    __slots__ = ("_folder", "_looked_at", "_old", "_told", "doubles", "fd", "map", "owner", "path")

    def __init__(self, folder: Path) -> None:
        # Descriptors of files that were replaced: locks of theirs may still be let go.
        self._old: list[int] = []
        self._folder, self._looked_at, self._told = folder, -math.inf, False
        # Who a row belongs to: a number that no other process draws, because PIDs are not unique across containers.
        self.owner = float(int.from_bytes(os.urandom(6), "big") + 1)
        self._map()

    def __del__(self) -> None:
        # It may not have got as far as opening it.
        fds = (getattr(self, "fd", None), *getattr(self, "_old", ()))
        for fd in fds:
            if fd is not None:
                os.close(fd)

    def _map(self) -> None:
        if not HAS_LOCKS:
            raise Unusable("this platform has no file locks")
        try:
            self.path = table_in(self._folder)
            fd = opened(self.path)
            try:
                self.map: Any = mmap.mmap(fd, FILE_BYTES)
            except BaseException:
                os.close(fd)
                raise
        except (OSError, ValueError) as error:
            raise Unusable(f"{self._folder}: {error}") from error
        self.fd = fd
        self.doubles = memoryview(self.map).cast("d")

    def renew(self, now: float) -> bool:
        """Map the file that is there now, if the one in use was removed or replaced; say whether that was so.

        Looks at most every `_LOOK_S`. Slots of the file before are no longer theirs (`Slot.is_mine`).
        """
        if now - self._looked_at < _LOOK_S:
            return False
        self._looked_at = now
        if is_in_place(self.fd, self.path):
            return False
        before = self.fd
        try:
            self._map()
        except Unusable as error:
            self._tell("limits are shared no further: the table of this machine was removed: %s", error)
            return False
        self._old.append(before)
        self._tell("the table of limits at %s was removed or replaced; limits are shared anew", self._folder)
        return True

    def _tell(self, text: str, *about: object) -> None:
        """Warn once; what goes on is for those who look for it."""
        _log.log(logging.DEBUG if self._told else logging.WARNING, text, *about)
        self._told = True

    def slot(self, name: str, now: float) -> Slot | None:
        """Return the slot of a level, taken for it if there is room; None if the table is full or held up."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        # One that is there needs no lock: processes that start together would keep each other out at their first call.
        there = self._there(digest)
        if there is not None:
            return there
        with self.held() as held:
            return self._find(digest, now) if held else None

    def wanted(self, now: float) -> list[Slot]:
        """Return the slots of the levels that are to be shared across a cluster, and that somebody uses."""
        marks = self.map[WANTED_AT : WANTED_AT + SLOTS]
        marked = [number for number in range(SLOTS) if marks[number]] if any(marks) else ()
        found = []
        for number in marked:
            at = slot_at(number)
            slot = Slot(self, number, self.map[at : at + DIGEST_BYTES])
            if slot.is_live(now):
                found.append(slot)
            else:
                self.map[WANTED_AT + number] = 0
        return found

    def _there(self, digest: bytes) -> Slot | None:
        first = int.from_bytes(digest[:4], "big") % SLOTS
        near = (Slot(self, (first + step) % SLOTS, digest) for step in range(_PROBES))
        return next((slot for slot in near if slot.is_mine()), None)

    def _find(self, digest: bytes, now: float) -> Slot | None:
        first, free = int.from_bytes(digest[:4], "big") % SLOTS, None
        for step in range(_PROBES):
            slot = Slot(self, (first + step) % SLOTS, digest)
            if slot.is_mine():
                return slot
            if free is None and slot.is_idle(now):
                free = slot
        if free is None:
            self._tell("the table of limits at %s is full; some limits are not shared", self._folder)
            return None
        free.take(now)
        return free

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock of the whole table, if it can be had."""
        lock = ByteLock(self.fd, 0)
        try:
            yield lock.take_patiently()
        finally:
            lock.free()
