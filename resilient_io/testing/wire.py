"""One TCP connection as bytes in and bytes out, with back-pressure; for both sides of the proxy.

`asyncio.Protocol` and not streams: a small request costs about half the CPU.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

#: Reading pauses above this many bytes that nobody took yet.
READ_AHEAD_BYTES = 1 << 20
#: Bodies go out in pieces of this size, each waiting for the one before.
PIECE_BYTES = 1 << 18
#: No request or answer head is longer; S3 itself allows 8 KiB.
HEAD_LIMIT_BYTES = 1 << 16
# l_onoff 1, l_linger 0: close() sends RST and drops what is unsent.
_LINGER_ZERO = struct.pack("ii", 1, 0)


class Wire(asyncio.Protocol):
    """A connection. `on_made` and `on_lost` are called with the wire when it opens and ends."""

    def __init__(
        self, *, on_made: Callable[[Wire], None] | None = None, on_lost: Callable[[Wire], None] | None = None
    ) -> None:
        self._on_made, self._on_lost = on_made, on_lost
        self._buffer = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._full = False
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self.written_bytes = 0

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; every write that the kernel does not take at once blocks `flush`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes and wake the reader."""
        self._buffer += data
        if len(self._buffer) > READ_AHEAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        """Take the peer's FIN for the end: HTTP clients do not half-close."""
        self._ended = True
        _wake(self._reader)

    def pause_writing(self) -> None:
        """Note that the kernel is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Note that all is written."""
        self._full = False
        _wake(self._writer)

    def connection_lost(self, error: Exception | None) -> None:
        """Wake everybody; from now on reads give b"" and `flush` raises."""
        self._ended, self._full, self._transport = True, False, None
        self._error = error
        _wake(self._reader)
        _wake(self._writer)
        if self._on_lost is not None:
            self._on_lost(self)

    # Reading.

    @property
    def alive(self) -> bool:
        """Whether neither side has ended the connection."""
        return self._transport is not None and not self._ended and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether the connection is alive and has no byte waiting."""
        return self.alive and not self._buffer

    async def read_head(self) -> bytes | None:
        """Return everything up to the blank line, or None if the connection ended before it."""
        start = 0
        while True:
            end = self._buffer.find(b"\r\n\r\n", start)
            if end >= 0:
                return self._take(end + 4)
            if len(self._buffer) > HEAD_LIMIT_BYTES:
                raise ValueError("the head of the message is too long")
            start = max(0, len(self._buffer) - 3)
            if not await self._more():
                return None

    async def read_line(self) -> bytes:
        """Return a line without its CRLF."""
        while (end := self._buffer.find(b"\n")) < 0:
            if not await self._more():
                raise ConnectionResetError("the connection ended in the middle of a line")
        return self._take(end + 1).rstrip(b"\r\n")

    async def read(self, limit: int = PIECE_BYTES) -> bytes:
        """Return 1 to `limit` bytes, or b"" at the end of the connection; ConnectionResetError after a RST."""
        while not self._buffer:
            if not await self._more():
                if self._error is not None:
                    raise ConnectionResetError(str(self._error))
                return b""
        return self._take(min(limit, len(self._buffer)))

    def _take(self, count: int) -> bytes:
        if count == len(self._buffer):
            data, self._buffer = bytes(self._buffer), bytearray()
        else:
            data = bytes(self._buffer[:count])
            del self._buffer[:count]
        if self._paused and len(self._buffer) <= READ_AHEAD_BYTES // 2:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def _more(self) -> bool:
        """Wait until bytes come; False when none will."""
        if self._ended:
            return False
        before = len(self._buffer)
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None
        return len(self._buffer) > before or not self._ended

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand bytes to the kernel or the transport's buffer; nothing if the connection ended."""
        if self._transport is not None and len(data):
            self._transport.write(data)
            self.written_bytes += len(data)

    async def flush(self) -> None:
        """Wait until the kernel has taken everything that was written."""
        if self._full:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the peer ended the connection")

    def close(self) -> None:
        """End the connection with FIN, after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with RST."""
        if self._transport is None:
            return
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
