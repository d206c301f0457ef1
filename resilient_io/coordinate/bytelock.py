"""A lock of one byte of a file: kept by the kernel, which drops it when its holder dies, and tried for 1 ms at most.

So a holder that was stopped blocks nobody, and one that was killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS: Final = fcntl is not None
# How long a lock is tried for. A holder needs some microseconds; one that was stopped may need for ever.
PATIENCE_S: Final = 0.001
_NAPS_S: Final = 0.00005


class ByteLock:
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


def take_byte(fd: int, at: int) -> bool:
    """Take a byte if nobody else has it; whoever took it with this very file has it already."""
    try:
        fcntl.fcntl(fd, _SET_LOCK, _request(fcntl.F_WRLCK, at))
    except OSError:
        return False
    return True


def free_byte(fd: int, at: int) -> None:
    """Give a byte back, taken or marked; no harm if it is neither."""
    fcntl.fcntl(fd, _SET_LOCK, _request(fcntl.F_UNLCK, at))


def want_byte(fd: int, at: int) -> None:
    """Mark a byte, as many others may: the mark of one who dies is gone."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, _SET_LOCK, _request(fcntl.F_RDLCK, at))


def is_wanted(fd: int, at: int) -> bool:
    """Say whether somebody else has marked a byte."""
    return _kind_of(fcntl.fcntl(fd, _GET_LOCK, _request(fcntl.F_WRLCK, at))) != fcntl.F_UNLCK


if sys.platform == "linux":
    _GET_LOCK: Final = fcntl.F_OFD_GETLK
    _SET_LOCK: Final = fcntl.F_OFD_SETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0)

    def _kind_of(answer: bytes) -> int:
        return int(struct.unpack_from("h", answer)[0])

elif fcntl is not None:
    _SET_LOCK: Final = fcntl.F_SETLK
    _GET_LOCK: Final = fcntl.F_GETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("qqihh", at, 1, 0, kind, os.SEEK_SET)  # struct flock of macOS and the BSDs

    def _kind_of(answer: bytes) -> int:
        return int(struct.unpack_from("h", answer, 20)[0])
