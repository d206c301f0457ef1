"""A store of one object that answers a GET as a test says: other ranges, no lengths, a trickle. S3 and Azure alike."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One GET: its number from 1 on, its headers in lower case, and the bytes [first, end) that it means."""

    number: int
    headers: dict[str, str]
    first: int
    end: int
    is_range: bool


@dataclass(kw_only=True)
class Reply:
    """What is answered: `pieces` are bytes and the seconds between them; a header None is left out."""

    status: int = 200
    headers: dict[str, str | None] = field(default_factory=dict)
    pieces: Sequence[bytes | float] = ()
    reset: bool = False


class OddStore(ThreadingHTTPServer):
    """Answers each GET as `how` says; None is the sound answer. `asks` are those that came."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, data: bytes, how: Callable[[Ask], Reply | None], etag: str = '"one"') -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.how, self.etag = data, how, etag
        self.asks: list[Ask] = []
        self.answered: list[int] = []
        self.lock = threading.Lock()

    def begin_anew(self, data: bytes, how: Callable[[Ask], Reply | None] = lambda ask: None) -> None:
        """Have another object, answer soundly, and forget who asked."""
        self.data, self.how, self.etag = data, how, '"one"'
        self.asks, self.answered = [], []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The bytes that were asked for."""
        return [(ask.first, ask.end) for ask in self.asks]

    def sound(self, ask: Ask, **headers: str | None) -> Reply:
        """Return the answer of a store that does as it is asked."""
        told: dict[str, str | None] = {"ETag": self.etag, "Content-Length": str(ask.end - ask.first)}
        if ask.first >= len(self.data) and ask.is_range:
            body = b"<Error><Code>InvalidRange</Code></Error>"
            told["Content-Range"] = f"bytes */{len(self.data)}"
            told.update({"Content-Length": str(len(body)), "x-ms-error-code": "InvalidRange"})
            return Reply(status=416, headers=told, pieces=[body])
        if ask.is_range:
            told["Content-Range"] = f"bytes {ask.first}-{ask.end - 1}/{len(self.data)}"
        told.update(headers)
        return Reply(status=206 if ask.is_range else 200, headers=told, pieces=[self.data[ask.first : ask.end]])

    def handle_error(self, *about: Any) -> None:
        """Clients leave in the middle; that is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    server: OddStore
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Tell the size; a HEAD is no ask."""
        self.send_response(200)
        for name, value in {"ETag": self.server.etag, "Content-Length": str(len(self.server.data))}.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = headers.get("x-ms-range") or headers.get("range") or ""
        size, found = len(self.server.data), _RANGE.fullmatch(asked)
        first, end = 0, size
        if found and found[1]:
            first, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
        elif found:
            first = max(0, size - int(found[2]))
        with self.server.lock:
            ask = Ask(
                number=len(self.server.asks) + 1, headers=headers, first=first, end=end, is_range=found is not None
            )
            self.server.asks.append(ask)
        try:
            self._answer(_with_md5(self.server.how(ask) or self.server.sound(ask), ask))
        finally:
            self.server.answered.append(ask.number)

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            if value is not None:
                self.send_header(name, value)
        if reply.headers.get("Content-Length") is None:
            self.close_connection = True
        self.end_headers()
        for piece in reply.pieces:
            if isinstance(piece, bytes):
                self.wfile.write(piece)
            else:
                time.sleep(piece)
        length = reply.headers.get("Content-Length")
        if reply.reset:
            self.connection.shutdown(socket.SHUT_RDWR)
        if length is not None and int(length) != sum(len(each) for each in reply.pieces if isinstance(each, bytes)):
            self.close_connection = True

    def log_message(self, *about: Any) -> None:
        """Say nothing."""


def _with_md5(reply: Reply, ask: Ask) -> Reply:
    """Return the answer with the MD5 of what it brings, where Azure is asked for it."""
    if "x-ms-range-get-content-md5" in ask.headers and reply.status < 300 and "Content-MD5" not in reply.headers:
        data = b"".join(each for each in reply.pieces if isinstance(each, bytes))
        reply.headers["Content-MD5"] = base64.b64encode(hashlib.md5(data).digest()).decode()
    return reply


@contextmanager
def odd_store(data: bytes, how: Callable[[Ask], Reply | None] = lambda ask: None) -> Iterator[OddStore]:
    """Run one in a thread of its own."""
    with OddStore(data, how) as store:
        thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield store
        store.shutdown()
