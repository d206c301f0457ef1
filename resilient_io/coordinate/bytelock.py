"""A lock of one byte of a file: kept by the kernel, which drops it when its holder dies, and tried for 1 ms at most.

So a holder that was stopped blocks nobody, and one that was killed leaves nothing behind.
"""

from __future__ import annotations

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


if sys.platform == "linux":
    _SET_LOCK: Final = fcntl.F_OFD_SETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0)

elif fcntl is not None:
    _SET_LOCK: Final = fcntl.F_SETLK

    def _request(kind: int, at: int) -> bytes:
        return struct.pack("qqihh", at, 1, 0, kind, os.SEEK_SET)  # struct flock of macOS and the BSDs
