"""Each read of a socket measured, below the reader of http.client: one call of that brings as much as was asked for.

A body that trickles has to be noticed from one piece that comes to the next. Above http.client that means to take each
piece through all of its layers: two for each 256 KiB of a fast connection, 16 where TLS hands out 16 KiB at a time, and
a copy to join them. Here it is one call of Python for each piece, and http.client fills one buffer with them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from socket import SocketIO
from time import monotonic
from typing import Any

from resilient_io.control.stall import Meter


class Metered:
    """Reads a socket for one body, in the place of its file's `readinto`; for one thread.

    What came before an error, or before the body is found to stall, is handed on as the end of what there is; the
    read after that raises.
    """

    __slots__ = ("_error", "_has_some", "_is_begun", "_meter", "_recv_into", "_stalled")

    def __init__(
        self, recv_into: Callable[[Any], int], meter: Meter, stalled: Callable[[], Exception], *, is_begun: bool
    ) -> None:
        self._recv_into = recv_into
        self._meter = meter
        self._stalled = stalled
        self._error: Exception | None = None
        self._is_begun, self._has_some = is_begun, False

    def begin(self) -> None:
        """Begin another read of the body: nothing has come for it yet, but what came with the headers for the first."""
        self._has_some, self._is_begun = self._is_begun, False

    def __call__(self, buffer: Any) -> int:
        """Fill the buffer as far as one read of the socket does; 0 where what came before is to be handed on."""
        if self._error is not None:
            return self._end(self._error)
        began_at = monotonic()
        try:
            count = self._recv_into(buffer)
        except Exception as error:
            self._error = error
            return self._end(error)
        if self._meter.is_stalled(monotonic() - began_at, count):
            self._error = self._stalled()
        self._has_some = True
        return count

    def _end(self, error: Exception) -> int:
        if self._has_some:
            return 0
        raise error


def metered(raw: Any, meter: Meter, stalled: Callable[[], Exception]) -> Metered | None:
    """Measure what a body of urllib3 reads from its socket from now on; None where it is no plain file of a socket.

    That is where the body comes in chunks, which http.client reads line by line, or over what another library made.
    """
    http = getattr(raw, "_fp", None)
    file = getattr(http, "fp", None)
    if not isinstance(file, io.BufferedReader) or getattr(http, "chunked", True):
        return None
    below = file.raw
    sock = getattr(below, "_sock", None)
    if type(below) is not SocketIO or sock is None:
        return None
    # What came with the headers takes no read of the socket, and must not be lost to an error of the first one.
    own = below.__dict__  # of this answer's file alone
    own["readinto"] = _nothing
    is_begun = bool(file.peek(1))
    own["readinto"] = found = Metered(sock.recv_into, meter, stalled, is_begun=is_begun)
    return found


def _nothing(buffer: Any) -> int:
    return 0
