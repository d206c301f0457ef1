"""The table of limits that the processes of one machine and user share: a file of fixed slots, mapped by each of them.

A slot holds the record of one level of a scope, under a digest of its name, and a row for each process that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from resilient_io.coordinate.bytelock import HAS_LOCKS, ByteLock
from resilient_io.coordinate.folder import Unusable, table_in
from resilient_io.coordinate.layout import (
    DIGEST_BYTES,
    FILE_BYTES,
    HEADER,
    SLOTS,
    WANTED_AT,
    slot_at,
)
from resilient_io.coordinate.slot import Slot

# Slots that are looked at for a name; more would make a full table slow.
_PROBES: Final = 16


class Table:
    """The mapped file. Not thread-safe: the gate's lock guards it. Raises Unusable where it cannot be had."""

    __slots__ = ("doubles", "fd", "map", "owner", "path")

    def __init__(self, folder: Path) -> None:
        if not HAS_LOCKS:
            raise Unusable("this platform has no file locks")
        try:
            self.path = table_in(folder)
            self.fd = _opened(self.path)
            self.map: Any = mmap.mmap(self.fd, FILE_BYTES)
        except (OSError, ValueError) as error:
            raise Unusable(f"{folder}: {error}") from error
        self.doubles = memoryview(self.map).cast("d")
        # Who a row belongs to: a number that no other process draws, because PIDs are not unique across containers.
        self.owner = float(int.from_bytes(os.urandom(6), "big") + 1)

    def __del__(self) -> None:
        # It may not have got as far as opening it.
        fd = getattr(self, "fd", None)
        if fd is not None:
            os.close(fd)

    def slot(self, name: str, now: float) -> Slot | None:
        """Return the slot of a level, taken for it if there is room; None if the table is full or held up."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
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

    def _find(self, digest: bytes, now: float) -> Slot | None:
        first, free = int.from_bytes(digest[:4], "big") % SLOTS, None
        for step in range(_PROBES):
            slot = Slot(self, (first + step) % SLOTS, digest)
            if slot.is_mine():
                return slot
            if free is None and slot.is_idle(now):
                free = slot
        if free is not None:
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


def _opened(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Unusable(f"{path} is no file of this user's")
        _prepare(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _prepare(fd: int, path: Path) -> None:
    """Give a new file its size and header; empty one that is not what it should be."""
    until = time.monotonic() + 1.0
    lock = ByteLock(fd, 0)
    while not lock.take():
        if time.monotonic() > until:
            raise Unusable(f"{path} is held up by another process")
        time.sleep(0.001)
    try:
        if os.fstat(fd).st_size != FILE_BYTES or os.pread(fd, len(HEADER), 0) != HEADER:
            os.ftruncate(fd, 0)
            os.ftruncate(fd, FILE_BYTES)
            os.pwrite(fd, HEADER, 0)
    finally:
        lock.free()
