"""The proxy's other side: a request goes to the endpoint as it came, the answer comes back as a stream."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from .calls import BackendFailed, Body, Call, Head, Reply
from .http1 import answer_body, has_body, parse_answer
from .wire import Wire

#: Idle connections that are kept open to the endpoint.
IDLE_LIMIT = 64
#: Seconds until an endpoint that does not accept is given up; botocore waits 60, on this machine 5 are plenty.
CONNECT_TIMEOUT_S = 5.0
# Nothing else is touched: the Host and every signed header must arrive as they were signed.
_NOT_FORWARDED = frozenset({b"expect"})


class Upstream:
    """A `Backend` that hands calls on to `url`, with keep-alive where the endpoint allows it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an upstream is a URL such as http://127.0.0.1:5000, not {url!r}")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._idle: list[Wire] = []

    async def answer(self, head: Head, call: Call, body: Body, request_id: str) -> Reply:
        """Forward one call and return the endpoint's answer; `BackendFailed` where there is none."""
        while True:
            wire, reused = await self._connected()
            try:
                raw = await self._exchange(wire, head, body)
            except BaseException:
                wire.close()
                raise
            if raw is not None:
                return self._reply(wire, head, raw)
            wire.close()
            # A kept connection may have been closed just now; nothing was lost if no body went out.
            if not reused or body.started:
                raise BackendFailed("the upstream closed the connection without an answer")

    async def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connected(self) -> tuple[Wire, bool]:
        while self._idle:
            wire = self._idle.pop()
            if wire.quiet:
                return wire, True
            wire.close()
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(Wire, self._host, self._port, ssl=self._tls)
        try:
            _, wire = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        except (OSError, asyncio.TimeoutError) as error:
            raise BackendFailed(f"cannot connect to the upstream {self._host}:{self._port}: {error!r}") from error
        return wire, False

    async def _exchange(self, wire: Wire, head: Head, body: Body) -> bytes | None:
        """Send head and body; return the head of the final answer, None if the connection ended."""
        wire.write(_forwarded(head.raw))
        await self._send_body(wire, body)
        while (raw := await wire.read_head()) is not None:
            if not raw.startswith(b"HTTP/1.1 1"):
                return raw
        return None

    async def _send_body(self, wire: Wire, body: Body) -> None:
        chunked = body.chunked
        async for piece in body:
            if not wire.alive:
                return  # it may have answered early; the rest is read and dropped by our caller
            wire.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            try:
                await wire.flush()
            except ConnectionError:
                return
        if chunked:
            wire.write(b"0\r\n\r\n")

    def _reply(self, wire: Wire, head: Head, raw: bytes) -> Reply:
        status, headers = parse_answer(raw)
        named = {name.lower(): value for name, value in headers}
        length = int(named["content-length"]) if "content-length" in named else None
        stream = answer_body(wire, headers)
        bodyless = not has_body(head.method, status)
        may_live = named.get("connection", "").lower() != "close" and raw.startswith(b"HTTP/1.1")

        def release() -> None:
            if may_live and (bodyless or getattr(stream, "done", False)) and wire.quiet:
                self._keep(wire)
            else:
                wire.close()

        return Reply(status=status, headers=headers, stream=stream, length=length, release=release)

    def _keep(self, wire: Wire) -> None:
        if len(self._idle) < IDLE_LIMIT:
            self._idle.append(wire)
        else:
            wire.close()


def _forwarded(raw: bytes) -> bytes:
    """Return a request's head without the headers that end at this proxy."""
    if b"xpect" not in raw and b"XPECT" not in raw:
        return raw
    lines = raw.split(b"\r\n")
    return b"\r\n".join(line for line in lines if line.partition(b":")[0].strip().lower() not in _NOT_FORWARDED)
