"""How the file of a table is opened: made if it is not there, and put in the place of what is no table.

A file that others may have mapped is never cut short: each of them would be killed at its next look. Another one takes
its name instead, and they see that (`Table.renew`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from resilient_io.coordinate.bytelock import ByteLock
from resilient_io.coordinate.folder import Unusable
from resilient_io.coordinate.layout import FILE_BYTES, HEADER

_log = logging.getLogger("resilient_io")
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# How long another process may take to prepare the file; it needs a millisecond.
_PREPARED_S: Final = 1.0
# Others may put a new file in place at the same moment; more than this often is no accident.
_TRIES: Final = 10


def opened(path: Path) -> int:
    """Return a descriptor of the table's file, ready to be mapped; raises Unusable or OSError."""
    for _ in range(_TRIES):
        fd = os.open(path, _FLAGS, 0o600)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise Unusable(f"{path} is no file of this user's")
            if _is_table(fd) or _is_prepared(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise Unusable(f"{path} is replaced again and again")


def is_in_place(fd: int, path: Path) -> bool:
    """Say whether the open file is still the one of that name, with all of its bytes; raises nothing."""
    try:
        mine, named = os.fstat(fd), os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino) and mine.st_size >= FILE_BYTES


def _is_table(fd: int) -> bool:
    return os.fstat(fd).st_size >= FILE_BYTES and os.pread(fd, len(HEADER), 0) == HEADER


def _is_prepared(fd: int, path: Path) -> bool:
    """Make a table of an empty file, or put one in the place of anything else; False: open what is there now."""
    with _locked(fd, path):
        if _is_table(fd):
            return True
        named = os.stat(path, follow_symlinks=False)
        if named.st_ino != os.fstat(fd).st_ino:
            return False
        if os.fstat(fd).st_size == 0:
            _fill(fd)
            return True
        _replace(path)
        return False


@contextlib.contextmanager
def _locked(fd: int, path: Path) -> Iterator[None]:
    until, lock = time.monotonic() + _PREPARED_S, ByteLock(fd, 0)
    while not lock.take():
        if time.monotonic() > until:
            raise Unusable(f"{path} is held up by another process")
        time.sleep(0.001)
    try:
        yield
    finally:
        lock.free()


def _fill(fd: int) -> None:
    """Give an empty file its size, then its header: who finds that may use it."""
    os.ftruncate(fd, FILE_BYTES)
    os.pwrite(fd, HEADER, 0)


def _replace(path: Path) -> None:
    _log.warning("%s was no table of limits, or spoilt: another one takes its place", path)
    other = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    fd = os.open(other, _FLAGS | os.O_EXCL, 0o600)
    try:
        _fill(fd)
        os.replace(other, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(other)
        raise
    finally:
        os.close(fd)
