"""A client made of a bare socket, which sees what an SDK hides."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class Answer:
    """What came back: the head in pieces, the raw bytes behind it, and how the connection ended."""

    status: int
    headers: dict[str, str]
    rest: bytes
    ended: str  # "open", "fin", "rst" or "silence"


class WireClient:
    def __init__(self, port: int, *, timeout_s: float = 5.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._buffer = b""

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body and "Transfer-Encoding" not in (headers or {}):
            lines.append(f"Content-Length: {len(body)}")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def head(self) -> tuple[int, dict[str, str]]:
        """Read one head; ConnectionResetError on RST, EOFError on FIN before it."""
        while b"\r\n\r\n" not in self._buffer:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("closed before the head")
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:])
        return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request and read a whole answer, by its length (no length: to the end)."""
        self.send(method, target, body, headers)
        status, found = self.head()
        if method == "HEAD" or status in (204, 304):
            return Answer(status, found, b"", "open")
        if "content-length" in found:
            return Answer(status, found, *self.take(int(found["content-length"])))
        if found.get("transfer-encoding") == "chunked":
            return Answer(status, found, self.chunks(), "open")
        return Answer(status, found, *self.take(1 << 40))

    def take(self, count: int) -> tuple[bytes, str]:
        """Read `count` bytes, and say how it ended."""
        while len(self._buffer) < count:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return self._buffer, "rst"
            except TimeoutError:
                return self._buffer, "silence"
            if not data:
                return self._buffer, "fin"
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken, "open"

    def chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._buffer:
                self._buffer += self.socket.recv(65536)
            line, _, self._buffer = self._buffer.partition(b"\r\n")
            size = int(line, 16)
            piece, ended = self.take(size + 2)
            assert ended == "open"
            if size == 0:
                return body
            body += piece[:-2]
