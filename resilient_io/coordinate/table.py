"""The table of limits that the processes of one machine and user share: a file of fixed slots, mapped by each of them.

A slot holds the record of one level of a scope, under a digest of its name, and a row for each process that uses it.
It is changed under a lock of its own: a byte of the file, locked by the kernel, which drops it when its holder dies,
and tried for 1 ms at most, so that a holder that was stopped blocks nobody. Nothing that is read here is trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from resilient_io.control import joining, law
from resilient_io.control.law import Record
from resilient_io.control.law_record import LAYOUT, SENT_AT

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SLOTS: Final = 1024
ROWS: Final = 240
# How long a lock is tried for. A holder needs some microseconds; one that was stopped may need for ever.
PATIENCE_S: Final = 0.001
# What a scope learnt is worth no more, if nobody has used it for so long.
STALE_S: Final = 300.0
_RECORD_AT, _ROWS_AT = 64, 1024
_ROW_BYTES: Final = 8 * (1 + joining.ROW)
_SLOT_BYTES: Final = _ROWS_AT + ROWS * _ROW_BYTES
_HEADER_BYTES: Final = 4096
# In the header, from here on, a byte for each slot: not 0 where a process wants the level shared across the cluster.
_WANTED_AT: Final = 1024
# In a slot, between the digest and the record: what part of a cluster this machine is there, when it moved to it, and
# what had come through and when.
_SHARE_AT, _MOVED_AT, _HAD_AT = 16, 24, 32
_FILE_BYTES: Final = _HEADER_BYTES + SLOTS * _SLOT_BYTES
_HEADER: Final = struct.pack("<8sIIII", b"RIOLIMIT", LAYOUT, SLOTS, ROWS, law.SIZE)
_RECORD: Final = struct.Struct(f"{law.SIZE}d")
_ROW: Final = struct.Struct(f"{1 + joining.ROW}d")
_DIGEST_BYTES: Final = 16
# Slots that are looked at for a name; more would make a full table slow.
_PROBES: Final = 16
_NAPS_S: Final = 0.00005


class Unusable(Exception):
    """The table cannot be used; the text says why, for a person."""


def directory() -> Path:
    """Return where the table is: `RESILIENT_IO_COORD_DIR`, or a folder of this user in shared memory."""
    given = os.environ.get("RESILIENT_IO_COORD_DIR")
    if given:
        if not os.path.isabs(given):
            raise Unusable(f"RESILIENT_IO_COORD_DIR must be a whole path, not {given!r}, which differs by folder")
        return Path(given)
    if fcntl is None:
        raise Unusable("this platform has no file locks")
    memory = Path("/dev/shm")
    root = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return root / f"resilient-io-{os.geteuid()}"


class Table:
    """The mapped file. Not thread-safe: the gate's lock guards it. Raises Unusable where it cannot be had."""

    __slots__ = ("_fd", "doubles", "map", "owner", "path")

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            raise Unusable("this platform has no file locks")
        try:
            _make_folder(folder)
            self.path = folder / f"limits-{LAYOUT}-{_clock_name()}"
            self._fd = _opened(self.path)
            self.map: Any = mmap.mmap(self._fd, _FILE_BYTES)
        except (OSError, ValueError) as error:
            raise Unusable(f"{folder}: {error}") from error
        self.doubles = memoryview(self.map).cast("d")
        # Who a row belongs to: a number that no other process draws, because PIDs are not unique across containers.
        self.owner = float(int.from_bytes(os.urandom(6), "big") + 1)

    def __del__(self) -> None:
        # It may not have got as far as opening it.
        fd = getattr(self, "_fd", None)
        if fd is not None:
            os.close(fd)

    def slot(self, name: str, now: float) -> Slot | None:
        """Return the slot of a level, taken for it if there is room; None if the table is full or held up."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
        with self.held() as held:
            return self._find(digest, now) if held else None

    def wanted(self, now: float) -> list[Slot]:
        """Return the slots of the levels that are to be shared across a cluster, and that somebody uses."""
        marks = self.map[_WANTED_AT : _WANTED_AT + SLOTS]
        marked = [number for number in range(SLOTS) if marks[number]] if any(marks) else ()
        found = []
        for number in marked:
            at = _HEADER_BYTES + number * _SLOT_BYTES
            slot = Slot(self, number, self.map[at : at + _DIGEST_BYTES])
            if slot.is_live(now):
                found.append(slot)
            else:
                self.map[_WANTED_AT + number] = 0
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
        lock = _ByteLock(self._fd, 0)
        try:
            yield lock.take_patiently()
        finally:
            lock.free()


class Slot:
    """One level's place in the table. `read`, `write` and `claim_row` want its lock."""

    __slots__ = (
        "_at",
        "_doubles",
        "_had",
        "_lock",
        "_map",
        "_mark",
        "_moved",
        "_row_at",
        "_share",
        "_table",
        "digest",
        "flag_at",
        "flags",
    )

    def __init__(self, table: Table, number: int, digest: bytes) -> None:
        self._map = table.map
        self._doubles = table.doubles
        self._table = table  # which closes the file when nobody has it any more
        self.digest = digest
        self._at = _HEADER_BYTES + number * _SLOT_BYTES
        self._mark = _WANTED_AT + number
        self._share, self._moved, self._had = ((self._at + offset) // 8 for offset in (_SHARE_AT, _MOVED_AT, _HAD_AT))
        # Where all processes see at a look whether the level is limited: not 0.0.
        self.flags, self.flag_at = table.doubles, (self._at + _RECORD_AT) // 8 + law.LIMITED
        self._lock = _ByteLock(table._fd, self._at)
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
        """Say whether the slot is this level's still."""
        return bool(self._map[self._at : self._at + _DIGEST_BYTES] == self.digest)

    def is_limited(self) -> bool:
        """Say whether the level is limited; needs no lock."""
        return self.flags[self.flag_at] != 0.0

    def read(self, now: float) -> list[float]:
        """Return the record; a fresh one for one that makes no sense."""
        rec = list(_RECORD.unpack_from(self._map, self._at + _RECORD_AT))
        return rec if is_sound(rec, now) else law.fresh(now)

    def write(self, rec: Record) -> None:
        """Put the record there in one copy, so that a process that is killed leaves none half-written."""
        _RECORD.pack_into(self._map, self._at + _RECORD_AT, *rec)

    def put(self, rec: Record, *indices: int) -> None:
        """Write a few numbers of the record, each in one piece."""
        start = (self._at + _RECORD_AT) // 8
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

    def is_live(self, now: float) -> bool:
        """Say whether a process uses the level."""
        return any(self.digest) and any(joining.is_live(row, now) for row in self.rows())

    def is_idle(self, now: float) -> bool:
        """Say whether the slot is free, or nobody has used it for long."""
        if not any(self._map[self._at : self._at + _DIGEST_BYTES]):
            return True
        return not self._is_fresh(now) and not any(joining.is_live(row, now) for row in self.rows())

    def _is_fresh(self, now: float) -> bool:
        return 0.0 <= now - self._doubles[(self._at + _RECORD_AT) // 8 + SENT_AT] <= STALE_S

    def take(self, now: float) -> None:
        """Make the slot this level's, and empty."""
        self._map[self._at : self._at + _SLOT_BYTES] = bytes(_SLOT_BYTES)
        self._map[self._mark] = 0
        self.write(law.fresh(now))
        self._map[self._at : self._at + _DIGEST_BYTES] = self.digest

    # -- rows --------------------------------------------------------------------------------------

    def claim_row(self, now: float) -> None:
        """Take a row for this process, one that nobody uses; without one its requests are not seen at an entry."""
        if self._row_at is not None:
            return
        if not self._is_fresh(now) and not any(joining.is_live(row, now) for row in self.rows()):
            self.write(law.fresh(now))
        start = (self._at + _ROWS_AT) // 8
        step = 1 + joining.ROW
        owners, leases = (self._doubles[start + n : start + ROWS * step : step].tolist() for n in (0, 1))
        for number, (owner, lease) in enumerate(zip(owners, leases, strict=True)):
            if owner == 0.0 or not joining.is_live((lease,), now):
                self._row_at = self._at + _ROWS_AT + number * _ROW_BYTES
                self.show((now, *[0.0] * (joining.ROW - 1)))
                return

    def show(self, row: tuple[float, ...]) -> None:
        """Write this process's row; needs no lock, only its owner writes it."""
        if self._row_at is not None:
            _ROW.pack_into(self._map, self._row_at, self._table.owner, *row)

    def release_row(self) -> None:
        """Give the row up."""
        if self._row_at is not None:
            self._map[self._row_at : self._row_at + _ROW_BYTES] = bytes(_ROW_BYTES)
            self._row_at = None

    def rows(self) -> list[tuple[float, ...]]:
        """Return what the other processes show."""
        start = self._at + _ROWS_AT
        rows = _ROW.iter_unpack(self._map[start : start + ROWS * _ROW_BYTES])
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


# -- the file ----------------------------------------------------------------------------------------


def _make_folder(folder: Path) -> None:
    """Make the folder, and see that it is this user's alone: others could write lies into it, or links."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Unusable(f"{folder} is no folder (links are not followed)")
    if found.st_uid != os.geteuid():
        raise Unusable(f"{folder} belongs to another user")
    if found.st_mode & 0o077:
        raise Unusable(f"{folder} is open to others: chmod 700 {folder}")


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
    lock = _ByteLock(fd, 0)
    while not lock.take():
        if time.monotonic() > until:
            raise Unusable(f"{path} is held up by another process")
        time.sleep(0.001)
    try:
        if os.fstat(fd).st_size != _FILE_BYTES or os.pread(fd, len(_HEADER), 0) != _HEADER:
            os.ftruncate(fd, 0)
            os.ftruncate(fd, _FILE_BYTES)
            os.pwrite(fd, _HEADER, 0)
    finally:
        lock.free()


def _clock_name() -> str:
    """Name the clock that the times in the file are of: it starts anew at each boot, and may differ by container."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = "/proc/self/ns/time"
        space = str(os.stat(namespace).st_ino) if os.path.exists(namespace) else ""
        return hashlib.blake2b(f"{boot}{space}".encode(), digest_size=6).hexdigest()
    return "boot"


# -- locks -------------------------------------------------------------------------------------------


class _ByteLock:
    """A lock of one byte of a file: of the open file on Linux, so that two gates of one process exclude each other."""

    __slots__ = ("_fd", "_free", "_take")

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self._take, self._free = (_request(kind, at) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK))

    def take(self) -> bool:
        """Take it if it is free, or this process's already."""
        try:
            fcntl.fcntl(self._fd, _SET_LOCK, self._take)
        except OSError:
            return False
        return True

    def take_patiently(self) -> bool:
        """Take it; False if somebody else kept it for `PATIENCE_S`."""
        until = time.monotonic() + PATIENCE_S
        while not self.take():
            if time.monotonic() >= until:
                return False
            time.sleep(_NAPS_S)
        return True

    def free(self) -> None:
        """Give it back; no harm if it is not held."""
        fcntl.fcntl(self._fd, _SET_LOCK, self._free)


if sys.platform == "linux":
    _SET_LOCK: Final = fcntl.F_OFD_SETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0)

elif fcntl is not None:
    _SET_LOCK: Final = fcntl.F_SETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("qqihh", at, 1, 0, kind, os.SEEK_SET)  # struct flock of macOS and the BSDs
