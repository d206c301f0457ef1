"""HTTP/1.1 framing: heads, request bodies, answer bodies. It knows nothing of stores and faults."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from email.utils import formatdate
from http import HTTPStatus

from .calls import Head, Reply
from .wire import PIECE_BYTES, Wire

_REASONS = {status.value: status.phrase for status in HTTPStatus}
# Headers of one connection, which a proxy must not hand on (RFC 9110, 7.6.1), and the framing,
# which is written anew.
_OWN_HEADERS = frozenset({"connection", "keep-alive", "content-length", "transfer-encoding", "date"})
_BODYLESS = frozenset({204, 304})


def parse_request(raw: bytes) -> Head:
    """Return the head of a request; ValueError where it is not HTTP/1."""
    lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, version = lines[0].split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not HTTP/1: {version}")
    return Head(method=method, target=target, headers=dict(header_pairs(lines[1:], lower=True)), raw=raw)


def parse_answer(raw: bytes) -> tuple[int, list[tuple[str, str]]]:
    """Return status and headers of an answer's head."""
    lines = raw[:-4].decode("latin-1").split("\r\n")
    return int(lines[0].split(" ", 2)[1]), list(header_pairs(lines[1:], lower=False))


def header_pairs(lines: Iterable[str], *, lower: bool) -> Iterable[tuple[str, str]]:
    """Yield names and values of header lines."""
    for line in lines:
        name, _, value = line.partition(":")
        yield (name.lower() if lower else name), value.strip()


def wants_close(headers: dict[str, str], raw: bytes) -> bool:
    """Return whether the client ends the connection after this request."""
    connection = headers.get("connection", "").lower()
    return connection == "close" or (b" HTTP/1.0\r\n" in raw and connection != "keep-alive")


class RequestBody:
    """The body of a request as a stream of decoded pieces; read at most once.

    `Expect: 100-continue` is answered when the body is first wanted.
    """

    __slots__ = ("_chunked", "_expects", "_kept", "_left", "_wire", "done", "started")

    def __init__(self, wire: Wire, head: Head) -> None:
        headers = head.headers
        self._wire = wire
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = int(headers.get("content-length") or 0)
        self._expects = headers.get("expect", "").lower() == "100-continue"
        self._kept: bytes | None = None
        self.started = False
        self.done = not self._chunked and self._left == 0

    @property
    def chunked(self) -> bool:
        """Whether the client did not say how long the body is."""
        return self._chunked

    @property
    def awaited(self) -> bool:
        """Whether the client waits for leave to send."""
        # Also before an empty body: botocore 1.41 mixes up the next answer if the 100 is left out.
        return self._expects and not (self.done and self.started)

    def invite(self) -> None:
        """Answer the client's Expect header, if it is still open."""
        if self.awaited:
            self._expects = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def look(self) -> bytes:
        """Return all of the body and keep it, so that it can be read once more."""
        self._kept = b"".join([piece async for piece in self])
        return self._kept

    async def __anext__(self) -> bytes:
        if self._kept:
            kept, self._kept = self._kept, None
            return kept
        if self.done:
            raise StopAsyncIteration
        self.invite()
        self.started = True
        if self._chunked and self._left == 0 and not await self._next_chunk():
            raise StopAsyncIteration
        data = await self._wire.read(min(self._left, PIECE_BYTES))
        if not data:
            raise ConnectionResetError("the client left in the middle of a body")
        self._left -= len(data)
        if self._chunked and self._left == 0:
            await self._wire.read_line()
        self.done = not self._chunked and self._left == 0
        return data

    async def _next_chunk(self) -> bool:
        line = await self._wire.read_line()
        self._left = int(line.partition(b";")[0], 16)
        if self._left == 0:
            while await self._wire.read_line():
                pass  # trailers
            self.done = True
        return not self.done

    async def drop(self) -> None:
        """Read and forget what is left."""
        async for _ in self:
            pass


def answer_body(wire: Wire, headers: list[tuple[str, str]]) -> AsyncIterator[bytes]:
    """Return the decoded body of an answer: by length, by chunks, or to the end of the connection."""
    named = {name.lower(): value for name, value in headers}
    if "content-length" in named or named.get("transfer-encoding", "").lower() == "chunked":
        return RequestBody(wire, Head(method="", target="", headers={**named, "expect": ""}))
    return _ToTheEnd(wire)


class _ToTheEnd:
    """A body that only the end of the connection ends."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._wire.read()
        if not piece:
            raise StopAsyncIteration
        return piece


def has_body(method: str, status: int) -> bool:
    """Return whether an answer has a body at all."""
    return method != "HEAD" and status not in _BODYLESS and status >= 200


def render_head(reply: Reply, *, method: str, close: bool, framing: str) -> bytes:
    """Return the bytes of an answer's head; `framing` is "length", "chunked" or "eof"."""
    lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Unknown')}", f"Date: {_date()}"]
    lines += [f"{name}: {value}" for name, value in reply.headers if name.lower() not in _OWN_HEADERS]
    length = body_length(reply)
    if has_body(method, reply.status) and framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif length is not None and reply.status not in _BODYLESS and framing == "length":
        lines.append(f"Content-Length: {length}")
    if close or framing == "eof":
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def body_length(reply: Reply) -> int | None:
    """Return how many bytes the body has, or would have for a GET; None if nobody knows."""
    if reply.length is not None:
        return reply.length
    return None if reply.stream is not None else len(reply.body)


def body_pieces(reply: Reply) -> AsyncIterator[bytes | memoryview]:
    """Return the body of an answer in pieces that are worth a write."""
    return _Slices(reply.body) if reply.stream is None else reply.stream


class _Slices:
    """Bytes cut into pieces without a copy. Not a generator: one that is left in the middle needs a task to die."""

    def __init__(self, body: bytes | memoryview) -> None:
        self._body = memoryview(body)

    def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        return self

    async def __anext__(self) -> bytes | memoryview:
        if not self._body:
            raise StopAsyncIteration
        piece, self._body = self._body[:PIECE_BYTES], self._body[PIECE_BYTES:]
        return piece


_date_cache: tuple[int, str] = (0, "")


def _date() -> str:
    global _date_cache  # formatting a date costs more than the rest of a head
    second = int(time.time())
    if _date_cache[0] != second:
        _date_cache = (second, formatdate(second, usegmt=True))
    return _date_cache[1]
