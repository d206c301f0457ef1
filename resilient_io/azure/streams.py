"""The stream that is the body of a request, sent from its beginning by each attempt."""

from __future__ import annotations

import io
import threading
from typing import Any


class Replay:
    """A request's body as a stream, and where it began."""

    def __init__(self, http_request: Any, position: int | None) -> None:
        self._http = http_request
        self._stream = http_request.body
        self._position = position
        self._lock = threading.Lock()
        self._is_viewed = False

    def rewound(self) -> bool:
        """Put the stream back to where it began; False if that cannot be done, and it cannot be sent again."""
        if self._position is None:
            return False
        try:
            if self._is_viewed:
                # Each view begins there by itself; and the stream may be read in another thread at this moment.
                return bool(self._stream.seekable())
            self._stream.seek(self._position)
        except (AttributeError, ValueError, OSError):
            return False
        return True

    def show_anew(self) -> None:
        """Give the next attempt a view of its own.

        aiohttp closes a file when it was sent, and reads it in another thread, which may still read for an attempt
        that is over.
        """
        if self._position is not None:
            self._http.data = _View(self._stream, self._position, self._lock)
            self._is_viewed = True


def replay_of(http_request: Any, position: int | None) -> Replay | None:
    """Return what sends the request's body again; None where that is no stream."""
    body = http_request.body
    return Replay(http_request, position) if body and hasattr(body, "read") else None


class _View(io.IOBase):
    """The stream as one attempt reads it: from where it began, at a position of its own, and never closed."""

    def __init__(self, stream: Any, position: int, lock: threading.Lock) -> None:
        self._stream = stream
        self._at = position
        self._lock = lock

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            self._stream.seek(self._at)
            piece: bytes = self._stream.read(size)
        self._at += len(piece)
        return piece

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._lock:
            self._stream.seek(self._at)
            self._stream.seek(offset, whence)
            self._at = self._stream.tell()
        return self._at

    def fileno(self) -> int:
        number: int = self._stream.fileno()
        return number

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the stream open: it is the caller's, and the next attempt's."""
