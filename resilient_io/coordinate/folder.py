"""Where the table of a machine is: a folder of this user's alone, and a file there for each clock."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from resilient_io.coordinate.bytelock import HAS_LOCKS
from resilient_io.coordinate.layout import LAYOUT


class Unusable(Exception):
    """The table cannot be used; the text says why, for a person."""


def directory() -> Path:
    """Return where the table is: `RESILIENT_IO_COORD_DIR`, or a folder of this user in shared memory."""
    given = os.environ.get("RESILIENT_IO_COORD_DIR")
    if given:
        if not os.path.isabs(given):
            raise Unusable(f"RESILIENT_IO_COORD_DIR must be a whole path, not {given!r}, which differs by folder")
        return Path(given)
    if not HAS_LOCKS:
        raise Unusable("this platform has no file locks")
    memory = Path("/dev/shm")
    root = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return root / f"resilient-io-{os.geteuid()}"


def table_in(folder: Path) -> Path:
    """Make the folder if it is not there, and return the path of the table in it; raises Unusable or OSError."""
    _make_folder(folder)
    return folder / f"limits-{LAYOUT}-{_clock_name()}"


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


def _clock_name() -> str:
    """Name the clock that the times in the file are of: it starts anew at each boot, and may differ by container."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = "/proc/self/ns/time"
        space = str(os.stat(namespace).st_ino) if os.path.exists(namespace) else ""
        return hashlib.blake2b(f"{boot}{space}".encode(), digest_size=6).hexdigest()
    return "boot"
